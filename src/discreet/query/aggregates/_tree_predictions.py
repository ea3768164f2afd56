"""How many rows a public decision tree gets right."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from discreet.errors import ParameterError
from discreet.query.aggregates._predictions import PredictionPass, bind_counts, class_places
from discreet.query.aggregates.base import Aggregate, BoundAggregate
from discreet.query.aggregates.histogram import check_edges, plain_edges, starts_of
from discreet.query.features import Band, curve_band

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Ints
    from discreet.query.curation import Curation
    from discreet.schema.schema import Neighbors


@dataclass(frozen=True, slots=True)
class TreeScores:
    """Scores of the classes of rows in a public decision tree: 1 for the class of a row's leaf.

    Attributes
    ----------
    read : tuple of str
        SQL names of the columns that splits read.
    bands : tuple of Band
        Cells of each column that some node splits by.
    nodes : tuple of tuple of int
        For each node, the root first and children after their parents: the band that splits it and the node
        of each cell, or -1 and the place of the class that a leaf names.
    n_classes : int
        Number of classes between which the tree chooses.
    target : str
        SQL name of the target.
    places : tuple of int
        Place among the classes of each level of the target; -1 for a level that is no class.
    """

    read: tuple[str, ...]
    bands: tuple[Band, ...]
    nodes: tuple[tuple[int, ...], ...]
    n_classes: int
    target: str
    places: tuple[int, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read."""
        return (*self.read, self.target)

    def __call__(self, arrays: Sequence[AnyArray]) -> tuple[AnyArray, Ints]:
        """Return the place of each row's class, -1 for none, and the scores of all classes, one row each."""
        codes = [band.clipped_codes(arrays) for band in self.bands]
        at = np.zeros(len(arrays[-1]), np.int64)
        named = np.zeros(len(at), np.int64)
        # Children come after their parents, so one pass over the nodes takes every row to its leaf.
        for i, (band, *rest) in enumerate(self.nodes):
            members = np.flatnonzero(at == i)
            if band < 0:
                named[members] = rest[0]
            else:
                at[members] = np.array(rest, np.int64)[codes[band][members]]
        scores = (np.arange(self.n_classes)[:, None] == named).astype(np.int64)
        return np.array(self.places)[arrays[-1]], scores


@dataclass(frozen=True)
class TreePredictions(Aggregate):
    """The number of rows whose class a public decision tree names, or a table of classes by named ones.

    Parameters
    ----------
    target : str
        Column of the class label, a category.
    classes : sequence
        Levels of the target between which the tree chooses.
    columns : sequence of str
        Columns that some node splits by.
    nodes : sequence of sequence of int
        For each node, the root first and children after their parents: the index of the column that splits
        it and the node of each cell, that of missing ones last; or -1 and the index of the class that a leaf
        names.
    edges : mapping of str to sequence of float
        For numbers among the columns, the values at which cells begin.
    by_class : bool
        Whether to count rows by their class and the class that is named, instead of those that are right.

    Privacy
    -------
    As of :class:`PredictionCounts`: a row is right or not, and in one cell of the table.

    Reference
    ---------
    docs/explanation/theorems/classifier.md.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("age", lower=0, upper=99), Column("ill", values=(0, 1))])
    >>> stump = TreePredictions("ill", (0, 1), ("age",), ((0, 1, 2), (-1, 0), (-1, 1)), {"age": [50]})
    >>> with Database({"age": [20, 80] * 500, "ill": [0, 1] * 500}, schema=schema, random_state=1) as db:
    ...     round(db.ask(stump, privacy=GaussianDP(1)).value)
    1000
    """

    kind: ClassVar[str] = "tree predictions"
    target: str
    classes: Sequence[Any]
    columns: Sequence[str]
    nodes: Sequence[Sequence[int]]
    edges: Mapping[str, Sequence[float]] = field(default_factory=dict)
    by_class: bool = False

    def __post_init__(self) -> None:
        """Normalize the fields to plain values, and refuse nodes that are no tree."""
        object.__setattr__(self, "classes", tuple(self.classes))
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "nodes", tuple(tuple(map(int, node)) for node in self.nodes))
        object.__setattr__(self, "edges", plain_edges(self.edges))
        check_edges(self.edges, list(self.columns))
        if self.target in self.columns:
            raise ParameterError(
                f"columns of a question must not hold its target {self.target!r}. Leave it out."
            )
        if len(self.classes) < 2 or not self.nodes or not all(map(self._is_node, range(len(self.nodes)))):
            raise ParameterError(
                "nodes of a question must each name a column and later nodes, or -1 and one of two or more "
                "classes, and do not."
            )

    def _is_node(self, place: int) -> bool:
        """Return whether a node is a leaf, or a split whose children come after it."""
        node, n = self.nodes[place], len(self.nodes)
        if len(node) == 2 and node[0] == -1:
            return 0 <= node[1] < len(self.classes)
        # A child before its parent would never be visited, and its rows would be counted in no leaf.
        is_split = len(node) > 1 and 0 <= node[0] < len(self.columns)
        return is_split and all(place < child < n for child in node[1:])

    def scores(self, curation: Curation) -> TreeScores:
        """Return the scores of rows on a curated table, for a pass over batches of them."""
        read: list[str] = []
        bands = []
        for name in self.columns:
            starts = starts_of(curation.column(name), self.edges[name]) if name in self.edges else None
            bands.append(curve_band(curation.column(name), starts, read))
        for band, *rest in self.nodes:
            if band >= 0 and len(rest) != bands[band].size:
                raise ParameterError(
                    f"nodes of a question that split by {self.columns[band]!r} must have "
                    f"{bands[band].size} children, one for each cell, and have {len(rest)}."
                )
        return TreeScores(
            read=tuple(read),
            bands=tuple(bands),
            nodes=tuple(tuple(node) for node in self.nodes),
            n_classes=len(self.classes),
            target=curation.column(self.target).sql,
            places=class_places(curation, self.target, self.classes),
        )

    def bind(self, curation: Curation, neighbors: Neighbors) -> BoundAggregate:
        """Return the aggregate bound to a curated table; refuses columns that do not fit."""
        scores = self.scores(curation)
        canonical = {**self.to_dict(), "places": list(scores.places)}
        return bind_counts(canonical, PredictionPass(scores, self.by_class), neighbors)
