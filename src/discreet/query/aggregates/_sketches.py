"""Sums of rows under public signs, from which products with columns of another database are estimated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from discreet.errors import ParameterError
from discreet.query._person_signs import SketchPass
from discreet.query.aggregates.base import Aggregate, BoundAggregate, check_cells
from discreet.query.engines.tasks import KernelTotals
from discreet.query.features import ONE, Features

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.query.curation import Curation
    from discreet.schema.schema import Neighbors

MOST_SKETCHES = 2**16
_LONGEST_KEY = 256


@dataclass(frozen=True)
class SignSketches(Aggregate):
    """For every sketch, the sum of coordinates times a public sign of the row's id.

    Two databases give a person the same signs under the same key and number of sketches, so the mean product
    of their answers is, in expectation, the sum of products of their columns over the ids that both have:
    :func:`~discreet.query.vertical._gram.cross_products`.

    Parameters
    ----------
    columns : sequence of str
        A number is one coordinate, as a fraction of its range, where the declared fill, its middle, stands
        for a missing cell, which is imputation; a category one for each level, 0 or 1.
    sketches : int
        Number of sketches, from 1 to 65536.
    key : str
        Public text that fixes the signs. Choose it without looking at ids.
    center : sequence of float, optional
        Public origin of each coordinate, from 0 to 1; the middle of the ranges if left out.
    radius : float, optional
        Length to which longer centered rows are shortened; no row is shortened if left out.

    Notes
    -----
    The answer has a row for each sketch and a column for each coordinate. The table must have been registered
    with its ids: ``Database(..., keep_ids=True)``.

    Privacy
    -------
    Holds for every key and whatever the ids are. When a person is replaced, the id may change and with it the
    signs: a sketch moves by ``x`` and by ``y``, each under its own sign, which is at most ``|x| + |y|``. With
    ``m`` sketches the square of the sensitivity is ``4 m max |x|**2``, and ``m max |x|**2`` when a person is
    added or removed. It is least about the middle of the ranges: 1 for each number.

    Reference
    ---------
    Blum, Dwork, McSherry and Nissim (2005) remark that rows may be split over databases:
    docs/explanation/theorems/sulq-vertical.md.
    """

    kind: ClassVar[str] = "sign sketches"
    columns: Sequence[str]
    sketches: int
    key: str
    center: Sequence[float] | None = None
    radius: float | None = None

    def __post_init__(self) -> None:
        columns = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
        object.__setattr__(self, "columns", columns)
        if self.center is not None:
            object.__setattr__(self, "center", tuple(float(value) for value in self.center))
        check_sketches(self.sketches, "SignSketches")
        check_key(self.key, "SignSketches")

    def bind(self, curation: Curation, neighbors: Neighbors) -> BoundAggregate:
        """Return the aggregate bound to a curated table; refuses columns that do not fit."""
        features = Features.from_curation(curation, self.columns, center=self.center, radius=self.radius)
        d, m = features.size, self.sketches
        check_cells(m * d)
        kernel = SketchPass(features, curation.id_identifiers(), self.key, m)
        # Under replace-one the new id may have the opposite sign: the two rows then add up.
        one_sketch = 4 * features.square if neighbors == "replace-one" else features.square
        return BoundAggregate(
            canonical={
                "kind": self.kind,
                "columns": list(self.columns),
                "center": list(features.center),
                "row": features.square,
                "key": self.key,
                "sketches": m,
            },
            squared=m * one_sketch,
            # Cauchy-Schwarz in each sketch; exact where every coordinate can move by its whole range.
            absolute=m * (math.isqrt(d * one_sketch - 1) + 1 if one_sketch else 0),
            precision=(1,) * (m * d),
            weight=(1,) * (m * d),
            unit=np.full(m * d, 1 / ONE),
            shift=np.zeros(m * d),
            places=np.arange(m * d).reshape(m, d),
            plain_unit=1 / ONE,
            wanted=KernelTotals(kernel),
        )


def check_sketches(sketches: object, owner: str) -> None:
    """Refuse a number of sketches that is not whole, or out of range."""
    whole = isinstance(sketches, int) and not isinstance(sketches, bool)
    if not whole or not 1 <= sketches <= MOST_SKETCHES:  # type: ignore[operator]
        raise ParameterError(
            f"sketches of {owner} must be a whole number from 1 to {MOST_SKETCHES}, was {sketches!r}. "
            "discreet.query.vertical._gram.best_sketches says how many serve best."
        )


def check_key(key: object, owner: str) -> None:
    """Refuse a key that is no text, or empty, or too long."""
    if not isinstance(key, str) or not 1 <= len(key) <= _LONGEST_KEY:
        raise ParameterError(
            f"key of {owner} must be a text of 1 to {_LONGEST_KEY} characters, and was not. It is public: "
            "agree on any, such as the name and date of the study."
        )
