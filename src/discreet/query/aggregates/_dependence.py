"""How far tables of two columns are from public ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from discreet.errors import ParameterError
from discreet.query.aggregates._marginals import (
    MarginalsLayout,
    check_tables,
    make_axis,
    plain_groups,
    read_groups,
    read_integer,
)
from discreet.query.aggregates.base import Aggregate, BoundAggregate
from discreet.query.aggregates.histogram import check_edges, plain_edges

if TYPE_CHECKING:
    from discreet._types import AnyArray, Ints
    from discreet.query.aggregates.histogram import Axis
    from discreet.query.curation import Curation
    from discreet.schema.schema import Neighbors

_LARGEST_REFERENCE = 2**32  # as many rows as a curated table may have; sums of such numbers fit 64 bits


@dataclass(frozen=True)
class Dependence(Aggregate):
    """For pairs of columns, the number of rows on which their table and a public one disagree.

    For the exact table ``N`` of a pair and its reference ``A`` the score is ``sum abs(N - A) / 2`` over the
    cells: ``n`` times their distance in total variation where both are about ``n`` rows. Against a reference
    in which the columns are independent it says how much they depend on each other.

    Parameters
    ----------
    pairs : sequence of (str, str)
        Two columns each; no pair twice, in either order.
    edges : mapping of str to sequence of float
        For numbers, where cells begin; a whole number with few values needs none.
    reference : mapping
        Public whole numbers to compare with, in one of two forms.
        ``{"kind": "tables", "values": [...]}`` has for each pair the cells of its table in C order.
        ``{"kind": "given", "margins": {column: [...]}, "by": y}`` has for each column its table with the
        column ``y``, from which the tables of columns that are independent given ``y`` are computed; with
        None for ``y``, counts of the column alone.
    groups : mapping of str to sequence of int
        For categories of which several levels share a cell, the cell of each level, as of
        :class:`Marginals`; the reference is about these cells.

    Notes
    -----
    From margins the reference is ``floor(sum_k 2 N_ak N_bk / (N_a+k + N_b+k) + 1/2)`` over the cells ``k`` of
    ``y``, where ``+`` sums over the cells of a column: for margins with the same class totals ``N_k``, that
    is ``N_ak N_bk / N_k``. It is computed in whole numbers, the same on every machine.

    Privacy
    -------
    Replacing a row moves one cell of each pair's table down by 1 and one up, and so ``sum abs(N - A)`` by at
    most 2; adding or removing one, by 1. Over ``P`` pairs the square of the sensitivity is ``4 P`` and ``P``,
    the sum of absolute changes at most ``2 P`` and ``P``. This holds because the reference does not depend on
    rows: take it from answers that were paid for, never from the exact table.

    Reference
    ---------
    docs/explanation/theorems/marginals.md.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> columns = [Column(name, values=(0, 1), closed=True) for name in ("old", "ill", "tall")]
    >>> rows = {"old": [0, 1] * 500, "ill": [0, 1] * 500, "tall": [0] * 500 + [1] * 500}
    >>> margins = {name: [500, 500] for name in rows}
    >>> question = Dependence(
    ...     [("old", "ill"), ("old", "tall")], reference={"kind": "given", "margins": margins, "by": None}
    ... )
    >>> with Database(rows, schema=Schema(columns=columns), random_state=1) as database:
    ...     answer = database.ask(question, privacy=GaussianDP(mu=1))
    >>> bool(abs(answer.value - [500, 0]).max() < 10)
    True
    """

    kind: ClassVar[str] = "dependence"
    pairs: Sequence[tuple[str, str]]
    edges: Mapping[str, Sequence[float]] = field(default_factory=dict)
    reference: Mapping[str, Any] = field(default_factory=dict)
    groups: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Normalize the fields, and refuse a reference that is not of whole numbers."""
        pairs = tuple((pair,) if isinstance(pair, str) else tuple(pair) for pair in self.pairs)
        check_tables(pairs, "pairs of Dependence", range(2, 3))
        reference = _read_reference(self.reference, pairs)
        object.__setattr__(self, "pairs", pairs)
        object.__setattr__(self, "edges", plain_edges(self.edges))
        object.__setattr__(self, "reference", reference)
        object.__setattr__(self, "groups", read_groups(self.groups))
        by = reference.get("by")
        names = [*itertools.chain.from_iterable(pairs), *([] if by is None else [by])]
        check_edges(self.edges, names)
        check_edges(self.groups, names)

    def bind(self, curation: Curation, neighbors: Neighbors) -> BoundAggregate:
        """Return the aggregate bound to a curated table; refuses columns or references that do not fit."""
        layout = MarginalsLayout.from_curation(curation, self.pairs, self.edges, self.groups)
        classes = self._check_reference(layout)

        def finish(integers: list[int], n_rows: int) -> list[int]:
            counts = layout.split(np.array(integers, np.int64))
            references = self._tables(layout, classes)
            return [int(np.abs(own - public).sum()) for own, public in zip(counts, references, strict=True)]

        size, changing = len(self.pairs), sum(layout.can_change(neighbors))
        step = 2 if neighbors == "replace-one" else 1
        return BoundAggregate(
            canonical={**self.to_dict(), "shapes": [list(shape) for shape in layout.shapes]},
            squared=step**2 * changing,
            absolute=step * changing,
            precision=(1,) * size,
            weight=(1,) * size,
            unit=np.full(size, 0.5),
            shift=np.zeros(size),
            places=np.arange(size),
            plain_unit=0.5,
            wanted=layout.task(),
            finish=finish,
        )

    def reference_tables(self, curation: Curation) -> tuple[dict[str, Axis], list[Ints]]:
        """Return the cells of each column, and the public table that each pair is compared with.

        Parameters
        ----------
        curation : Curation
            Layout of the curated table: ``database.curation``.
        """
        layout = MarginalsLayout.from_curation(curation, self.pairs, self.edges, self.groups)
        return layout.axes, self._tables(layout, self._check_reference(layout))

    def _check_reference(self, layout: MarginalsLayout) -> int:
        """Refuse a reference of other lengths than the tables; return the number of classes."""
        if self.reference["kind"] == "tables":
            for pair, size, values in zip(self.pairs, layout.sizes, self.reference["values"], strict=True):
                _check_length(f"of {' and '.join(pair)}", values, size)
            return 1
        by = self.reference["by"]
        classes = 1 if by is None else len(make_axis(layout.curation, by, self.edges, self.groups).labels)
        for name, axis in layout.axes.items():
            _check_length(f"of {name}", self.reference["margins"][name], len(axis.labels) * classes)
        return classes

    def _tables(self, layout: MarginalsLayout, classes: int) -> list[Ints]:
        """Return the public table of each pair."""
        if self.reference["kind"] == "tables":
            values = itertools.chain.from_iterable(self.reference["values"])
            return layout.split(np.fromiter(values, np.int64, layout.size))
        margins = {
            name: np.array(self.reference["margins"][name], object).reshape(-1, classes)
            for name in layout.axes
        }
        return [_independent_table(margins[first], margins[second]) for first, second in self.pairs]

    def split(self, n: int) -> list[Dependence]:
        """Return questions about at most `n` pairs each, which together cost what this one costs.

        Parameters
        ----------
        n : int
            Largest number of pairs of a part, for a service that takes no larger requests.
        """
        if n < 1:
            raise ParameterError(f"n of Dependence.split must be at least 1, was {n!r}.")
        return [self._part(start, start + n) for start in range(0, len(self.pairs), n)]

    def _part(self, start: int, end: int) -> Dependence:
        """Return the question about some consecutive pairs, with what it needs of edges and reference."""
        pairs = self.pairs[start:end]
        names = dict.fromkeys(itertools.chain.from_iterable(pairs))
        reference = dict(self.reference)
        if reference["kind"] == "tables":
            reference["values"] = reference["values"][start:end]
        else:
            reference["margins"] = {name: reference["margins"][name] for name in names}
        kept = {*names, reference.get("by")}
        edges = {name: cuts for name, cuts in self.edges.items() if name in kept}
        groups = {name: cells for name, cells in self.groups.items() if name in kept}
        return Dependence(pairs, edges, reference, groups)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "kind": self.kind,
            "pairs": [list(pair) for pair in self.pairs],
            "edges": plain_edges(self.edges),
            "reference": dict(self.reference),
            **plain_groups(self.groups),
        }


def _read_reference(reference: Mapping[str, Any], pairs: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return a reference as plain lists of whole numbers; refuses any other."""
    kind = reference.get("kind") if isinstance(reference, Mapping) else None
    if kind == "tables" and set(reference) == {"kind", "values"}:
        values = list(reference["values"])
        if len(values) != len(pairs):
            raise ParameterError(
                f"reference of Dependence must have a table for each of the {len(pairs)} pairs, and has "
                f"{len(values)}."
            )
        least = -_LARGEST_REFERENCE
        tables = [
            _read_integers(own, f"of {' and '.join(pair)}", least)
            for pair, own in zip(pairs, values, strict=True)
        ]
        return {"kind": kind, "values": tables}
    if kind == "given" and set(reference) == {"kind", "margins", "by"}:
        by, margins = reference["by"], reference["margins"]
        if by is not None and not isinstance(by, str):
            raise ParameterError(f"by of a reference must be a column or None, was {by!r}.")
        names = dict.fromkeys(itertools.chain.from_iterable(pairs))
        absent = [name for name in names if name not in margins]
        if absent:
            raise ParameterError(
                f"margins of a reference must have every column of the pairs, and {absent[0]!r} is not there."
            )
        return {
            "kind": kind,
            "margins": {name: _read_integers(margins[name], f"of {name}", 0) for name in names},
            "by": by,
        }
    raise ParameterError(
        'reference of Dependence must be {"kind": "tables", "values": [...]} or {"kind": "given", '
        f'"margins": {{...}}, "by": ...}}, was of the kind {kind!r}. Take it from noisy answers.'
    )


def _read_integers(values: Any, which: str, least: int) -> list[int]:
    """Return whole numbers from `least` to 2**32 as a list; refuses others."""
    found = np.ravel(values).tolist() if isinstance(values, np.ndarray) else list(values)
    integers = [read_integer(value) for value in found]
    for old, new in zip(found, integers, strict=True):
        if new is None or not least <= new <= _LARGEST_REFERENCE:
            raise ParameterError(
                f"reference of Dependence must have whole numbers from {least} to {_LARGEST_REFERENCE}, and "
                f"that {which} has {old!r}. Round noisy counts, and take negative margins as 0."
            )
    return [value for value in integers if value is not None]


def _check_length(which: str, values: Sequence[int], size: int) -> None:
    if len(values) != size:
        raise ParameterError(
            f"reference of Dependence must have a number for each cell, and that {which} has {len(values)} "
            f"for {size} cells. Missing and unlisted values have cells too."
        )


def _independent_table(first: AnyArray, second: AnyArray) -> Ints:
    """Return the table of two columns that are independent given a class, rounded to whole numbers.

    Notes
    -----
    Over the product ``D`` of the classes' denominators everything is a whole number, of any size.
    """
    totals = first.sum(axis=0) + second.sum(axis=0)
    used = np.flatnonzero(totals != 0)
    denominator = math.lcm(*(int(total) for total in totals[used]))
    factors = np.array([2 * denominator // int(total) for total in totals[used]], object)
    products = (first[:, used] * factors) @ second[:, used].T
    rounded: Ints = ((2 * products + denominator) // (2 * denominator)).astype(np.int64)
    return rounded
