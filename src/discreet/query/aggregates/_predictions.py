"""How many rows an additive model gets right."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from discreet.errors import ParameterError
from discreet.query.aggregates.base import Aggregate, BoundAggregate
from discreet.query.aggregates.histogram import check_edges, plain_edges, starts_of
from discreet.query.engines.base import KernelTotals
from discreet.query.passes import ONE, Features, PredictionPass, curve_band

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.query.curation import Curation
    from discreet.schema.schema import Neighbors

_LARGEST_TERM = 2.0**20  # of a score; sums over all columns stay far below 2**62


@dataclass(frozen=True)
class PredictionCounts(Aggregate):
    """The number of rows whose class a public additive model names, or a table of classes by named ones.

    Parameters
    ----------
    target : str
        Column of the class label, a category.
    classes : sequence
        Levels of the target between which the model chooses, in the order of its scores.
    intercept : sequence of float
        Score of each class before any column is looked at.
    curves : mapping of str to sequence of sequences of float
        For each level or cell of some columns, that of missing ones last, the score it adds to each class.
    lines : mapping of str to sequence of float
        For numbers that are read on a scale of their own, its origin as a fraction of the range and the
        number of its units in the range; cut to 3 units on either side, and 0 for missing ones.
    slopes : mapping of str to sequence of float
        For the same numbers, the score that a unit adds to each class.
    edges : mapping of str to sequence of float
        For numbers with a curve, the values at which cells begin.
    by_class : bool
        Whether to count rows by their class and the class that is named, instead of those that are right.

    Notes
    -----
    A row's class is the first with the largest score, in whole multiples of 2**-16. A row whose level is not
    among the classes is right with none, and in no cell of the table.

    Privacy
    -------
    A row is right or not: the number moves by at most 1 when a row is replaced, added or removed. In the
    table a row is in one cell: the square of the sensitivity is 2 when it is replaced and 1 otherwise.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    kind: ClassVar[str] = "prediction counts"
    target: str
    classes: Sequence[Any]
    intercept: Sequence[float]
    curves: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    lines: Mapping[str, Sequence[float]] = field(default_factory=dict)
    slopes: Mapping[str, Sequence[float]] = field(default_factory=dict)
    edges: Mapping[str, Sequence[float]] = field(default_factory=dict)
    by_class: bool = False

    def __post_init__(self) -> None:
        """Normalize the fields to plain values, and refuse scores that are not one for each class."""
        curves = {name: tuple(tuple(map(float, row)) for row in rows) for name, rows in self.curves.items()}
        slopes = {name: tuple(map(float, row)) for name, row in self.slopes.items()}
        object.__setattr__(self, "classes", tuple(self.classes))
        object.__setattr__(self, "intercept", tuple(map(float, self.intercept)))
        object.__setattr__(self, "curves", curves)
        object.__setattr__(self, "slopes", slopes)
        lines = {name: tuple(map(float, row)) for name, row in self.lines.items()}
        object.__setattr__(self, "lines", lines)
        object.__setattr__(self, "edges", plain_edges(self.edges))
        check_edges(self.edges, list(curves))
        if self.target in (*curves, *slopes):
            raise ParameterError(
                f"curves of a question must not hold its target {self.target!r}. Leave it out."
            )
        rows = [self.intercept, *slopes.values(), *(row for rows in curves.values() for row in rows)]
        good = all(
            len(row) == len(self.classes) and all(abs(value) <= _LARGEST_TERM for value in row)
            for row in rows
        )
        good = good and list(lines) == list(slopes) and all(len(line) == 2 for line in lines.values())
        if len(self.classes) < 2 or not good:
            raise ParameterError(
                "scores of a question must be numbers of at most 2**20, one for each of two or more classes, "
                "and are not."
            )

    def bind(self, curation: Curation, neighbors: Neighbors) -> BoundAggregate:
        """Return the aggregate bound to a curated table; refuses columns that do not fit."""
        kernel = self.kernel(curation)
        n = len(self.classes)
        size = n * n if self.by_class else 1
        charge = 2 if self.by_class and neighbors == "replace-one" else 1
        return BoundAggregate(
            canonical={
                **self.to_dict(),
                "places": list(kernel.places),
                "terms": [list(kernel.intercept), [[list(row) for row in t] for t in kernel.tables]],
            },
            squared=charge,
            absolute=charge,
            precision=(1,) * size,
            weight=(1,) * size,
            unit=np.ones(size),
            shift=np.zeros(size),
            places=np.arange(size).reshape((n, n) if self.by_class else ()),
            plain_unit=1.0,
            wanted=KernelTotals(kernel),
        )

    def kernel(self, curation: Curation) -> PredictionPass:
        """Return the pass over batches of rows that counts."""
        column = curation.column(self.target)
        known = [(type(level), level) for level in column.levels]
        missing = [level for level in self.classes if (type(level), level) not in known]
        if missing or len(set(self.classes)) < len(self.classes):
            raise ParameterError(
                f"classes of a question must be levels of the category {self.target!r}, each once, and "
                f"{(missing or self.classes)[0]!r} is not. It has {', '.join(map(repr, column.levels))}."
            )
        order = [known.index((type(level), level)) for level in self.classes]
        read: list[str] = []
        bands = []
        for name, rows in self.curves.items():
            starts = starts_of(curation.column(name), self.edges[name]) if name in self.edges else None
            band = curve_band(curation.column(name), starts, read)
            if len(rows) != band.size:
                raise ParameterError(
                    f"curves of a question for {name!r} must have {band.size} cells, and have {len(rows)}."
                )
            bands.append(band)
        lines = None
        if self.lines:
            lines = Features.from_curation(curation, (), center=None, radius=None, lines=self.lines)
        return PredictionPass(
            curves_read=tuple(read),
            bands=tuple(bands),
            tables=tuple(tuple(map(_whole, rows)) for rows in self.curves.values()),
            lines=lines,
            slopes=tuple(map(_whole, self.slopes.values())),
            intercept=_whole(self.intercept),
            target=column.sql,
            places=tuple(order.index(i) if i in order else -1 for i in range(len(column.levels))),
            by_class=self.by_class,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "kind": self.kind,
            "target": self.target,
            "classes": list(self.classes),
            "intercept": list(self.intercept),
            "curves": {name: [list(row) for row in rows] for name, rows in self.curves.items()},
            "lines": {name: list(line) for name, line in self.lines.items()},
            "slopes": {name: list(row) for name, row in self.slopes.items()},
            "edges": plain_edges(self.edges),
            "by_class": self.by_class,
        }


def _whole(values: Sequence[float]) -> tuple[int, ...]:
    return tuple(math.floor(value * ONE + 0.5) for value in values)
