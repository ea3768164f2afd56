"""Base class of classifiers with a promise to each row, and the public map of rows to the unit ball."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from discreet.errors import ParameterError, PromiseError
from discreet.learn.base import (
    POSITIVE,
    Constraint,
    Learner,
    check_finite,
    declared_classes,
    is_number,
    label_codes,
    two_vectors,
)
from discreet.noise import Stream
from discreet.privacy import ApproxDP, NoPromise, PureDP, Receipt, promise_from_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from discreet._types import AnyArray, Floats, Ints
    from discreet.learn.perturbation.mechanisms import PerturbedProblem, TrainingPlan
    from discreet.ledger import Ledger
    from discreet.privacy import Promise


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


PlanT = TypeVar("PlanT")
POSITIVE_OR_NONE = Constraint(
    "None or " + POSITIVE.words, lambda v: v is None or POSITIVE.contains(v), POSITIVE.outside
)


def choice(*words: str) -> Constraint:
    """Return the constraint of a parameter that is one of a few words."""
    return Constraint(
        "one of " + ", ".join(map(repr, words)),
        lambda v: isinstance(v, str) and v in words,
        ("other", None, 1),
    )


class PerturbedClassifier(ClassifierMixin, Learner):
    """A classifier of rows in a declared region with declared labels, under replace-one."""

    common_constraints: ClassVar[Mapping[str, Constraint]] = {
        "privacy": Constraint(
            "a PureDP, an ApproxDP or a NoPromise",
            lambda v: isinstance(v, PureDP | ApproxDP | NoPromise),
            (None, 1.0, "pure"),
        ),
        "norm_bound": Constraint(
            "None or a number from 1e-30 to 1e100",
            lambda v: v is None or (is_number(v) and 1e-30 <= v <= 1e100),
            (0, -1.0, math.inf, 1e-40, 1e101, "1", True),
        ),
        "regularization": POSITIVE_OR_NONE,
        "tolerance": POSITIVE_OR_NONE,
        "random_state": Constraint(
            "None or a whole number",
            lambda v: v is None or (isinstance(v, int | np.integer) and not isinstance(v, bool)),
            (1.5, "1", True),
        ),
    }
    common_saved: ClassVar[tuple[str, ...]] = (
        "classes_", "embedding_", "regularization_", "mechanism_", "promises_", "receipt_",
    )  # fmt: skip
    _decoders: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "privacy": promise_from_dict,
        "bounds": lambda sides: None if sides is None else tuple(sides),
        "embedding_": Embedding.from_dict,
        "promises_": lambda promises: tuple(map(promise_from_dict, promises)),
        "receipt_": Receipt.from_dict,
    }

    privacy: PureDP | ApproxDP | NoPromise
    bounds: Any
    norm_bound: float | None
    classes: Any
    ledger: Ledger | None
    random_state: int | None

    def _read(
        self, X: Any, y: Any, plan: Callable[[int, int, int], PlanT]
    ) -> tuple[Floats, Ints, AnyArray, PlanT]:
        """Return rows, the position of each label in the list of classes, that list, and the plan.

        ``plan`` is given the numbers of rows, columns and classes. It refuses what it refuses before cells
        are looked at.
        """
        name = type(self).__name__
        if self.privacy.neighbors != "replace-one":
            raise PromiseError(
                f"neighbors of the privacy of {name} must be 'replace-one', was "
                f"{self.privacy.neighbors!r}: the number of rows enters the noise. Ask for replace-one."
            )
        promises = not isinstance(self.privacy, NoPromise)
        labels = np.asarray(y)
        # Before validate_data, which refuses NaN in y with scikit-learn's own error.
        if labels.dtype.kind == "f" and labels.ndim == 1:
            check_finite(labels, f"y of {name}.fit")
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=False)
        classes = declared_classes(self.classes, y, owner=name, promises=promises)
        # Before the cells are checked: a refusal by the plan must not depend on them.
        planned = plan(len(X), X.shape[1], len(classes))
        check_finite(X, f"X of {name}.fit", getattr(self, "feature_names_in_", None))
        check_classification_targets(y)
        return X, label_codes(y, classes, owner=name), classes, planned

    def _embed_rows(self, X: Any, where: str) -> Floats:
        """Return rows to be judged by a fitted model, mapped to the unit ball."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite=False, reset=False)
        check_finite(X, f"X of {type(self).__name__}.{where}", getattr(self, "feature_names_in_", None))
        rows: Floats = self.embedding_.rows(X)
        return rows

    @abstractmethod
    def recompute_promises(self, n_rows: int) -> tuple[Promise, ...] | None:
        """Return the promises of a fitted model, computed anew from the number of rows and its parameters.

        Returns
        -------
        tuple of Promise or None
            None where a part of the promise was spent in another way, which the plan does not have.
        """

    @abstractmethod
    def decision_function(self, X: Any) -> Floats:
        """Return the score of the second of two classes, or of each of more classes, for each row."""

    def predict(self, X: Any) -> AnyArray:
        """Return the class with the largest score for each row, the first of equal ones."""
        scores = self.decision_function(X)
        best = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[best])

    def _train(self, plan: TrainingPlan, problem: PerturbedProblem, what: str) -> tuple[Floats, Receipt]:
        """Return the released vector and the receipt for it; ``what`` names the model on the receipt."""
        if plan.name != "exact":
            what += f" by {plan.name} perturbation"
        receipts: list[Receipt] = []

        def charge() -> Stream:
            receipts.append(self._charge(plan.promises, what))
            return self._stream()

        released = plan.train(problem, charge)
        (receipt,) = receipts
        return released, receipt

    def _charge(self, promises: Iterable[Promise], what: str) -> Receipt:
        seeded = self.random_state is not None
        promises = tuple(promises)
        if self.ledger is None:
            return Receipt.from_promises(promises, what=what, seeded=seeded)
        return self.ledger.charge(promises, what=what, seeded=seeded)

    def _stream(self) -> Stream:
        return Stream() if self.random_state is None else Stream.from_seed(int(self.random_state))

    def _pack(self, name: str, value: Any, arrays: dict[str, Any]) -> Any:
        if name == "ledger":
            return None  # A saved model is paid for: the ledger stays where it is.
        if name == "promises_":
            return [promise.to_dict() for promise in value]
        if name in ("bounds", "classes") and isinstance(value, list | tuple):
            return [np.asarray(part).tolist() for part in value]
        return super()._pack(name, value, arrays)
