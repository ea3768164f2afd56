"""The public map of rows to the unit ball."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from discreet.errors import ParameterError
from discreet.learn.arguments import two_vectors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import Floats

# Room for the rounding of a norm of up to a million cells: after it, norms are at most 1 without "about".
_ROOM = 1 - 2.0**-30


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """Rows as vectors of norm at most 1, the last coordinate a constant for the intercept.

    With bounds, a row is clipped to them and mapped affinely to [-1, 1] in every column. Then it is shortened
    to ``norm_bound`` if it is longer, divided by ``norm_bound``, multiplied by ``sqrt(1 - constant**2)``, and
    ``constant`` is appended.

    Attributes
    ----------
    n_features : int
        Columns of a row.
    lower, upper : tuple of float or None
        Declared bounds, one for each column.
    norm_bound : float
        Declared largest norm, after the bounds were mapped.
    constant : float
        The appended coordinate; 0 if there is no intercept.

    Privacy
    -------
    A function of declared numbers alone, applied to each row by itself; it is published with the model. The
    norm of what comes out is at most 1 in exact arithmetic, whatever goes in.

    Reference
    ---------
    An appended 1 makes rows longer than 1, and an intercept without a penalty can be moved by one row without
    bound: docs/explanation/theorems/masked-sensitivity.md.
    """

    kind: ClassVar[str] = "unit-ball"

    n_features: int
    lower: tuple[float, ...] | None
    upper: tuple[float, ...] | None
    norm_bound: float
    constant: float

    @classmethod
    def declare(
        cls, n_features: int, *, bounds: Any, norm_bound: float | None, constant: float | None, owner: str
    ) -> Self:
        """Return the map for ``n_features`` columns, from declared bounds and norm.

        ``constant`` is None for the default, ``1 / sqrt(n_features + 1)``: the intercept is one more
        column, at the edge of its range in every row.
        """
        lower = upper = None
        if bounds is not None:
            lower, upper = two_vectors(bounds, n_features, owner)
        elif norm_bound is None:
            raise ParameterError(
                f"bounds or norm_bound of {owner} must be given, were None: neither is taken from the rows. "
                "Declare the range of each column, bounds=(lower, upper), or the largest norm of a row."
            )
        return cls(
            n_features=n_features,
            lower=lower,
            upper=upper,
            norm_bound=math.sqrt(n_features) if norm_bound is None else float(norm_bound),
            constant=1 / math.sqrt(n_features + 1) if constant is None else float(constant),
        )

    @property
    def dimension(self) -> int:
        """Coordinates of an embedded row."""
        return self.n_features + (self.constant > 0)

    @property
    def _stretch(self) -> float:
        return math.sqrt(1 - self.constant**2) * _ROOM

    def rows(self, X: Floats) -> Floats:
        """Return the embedded rows."""
        if self.lower is not None:
            low, high = np.array(self.lower), np.array(self.upper)
            X = 2 * ((np.clip(X, low, high) - low) / (high - low)) - 1
        # The largest cell is taken out first: squares of large cells overflow.
        largest = np.abs(X).max(axis=1, initial=0.0, keepdims=True)
        X = X / np.where(largest > 0, largest, 1.0)
        norm = np.linalg.norm(X, axis=1, keepdims=True)
        # Infinite where the quotient overflows: the row is longer than norm_bound, the minimum cuts it.
        with np.errstate(over="ignore", divide="ignore"):
            size = largest / self.norm_bound
            shorter = np.minimum(size, 1 / np.where(norm > 0, norm, 1.0))
        X = X * (shorter * self._stretch)
        return np.hstack([X, np.full((len(X), 1), self.constant)]) if self.constant > 0 else X

    @property
    def affine(self) -> tuple[Floats, Floats]:
        """Return ``scale`` and ``start``: rows inside what was declared become ``scale * row + start``.

        Without the appended coordinate.
        """
        inner = self._stretch / self.norm_bound
        if self.lower is None:
            return np.full(self.n_features, inner), np.zeros(self.n_features)
        low, high = np.array(self.lower), np.array(self.upper)
        slope = 2 / (high - low)
        return inner * slope, -inner * (1 + slope * low)

    def coefficients(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return coefficients and intercepts for rows in their own units, inside what was declared."""
        scale, start = self.affine
        inner = weights[:, : self.n_features]
        intercept = weights[:, -1] * self.constant if self.constant > 0 else np.zeros(len(weights))
        return inner * scale, intercept + inner @ start

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, from which :meth:`from_dict` makes an equal map."""
        return {"kind": self.kind, **asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the map that :meth:`to_dict` wrote."""
        rest = dict(values)
        if rest.pop("kind", None) != cls.kind:
            raise ParameterError(f"An embedding must have the kind {cls.kind!r}. Write it with to_dict().")
        for name in ("lower", "upper"):
            if rest.get(name) is not None:
                rest[name] = tuple(rest[name])
        try:
            return cls(**rest)
        except TypeError as error:
            raise ParameterError(
                f"An embedding has no such keys: {', '.join(sorted(rest))}. Write it with to_dict()."
            ) from error
