"""Sensitivities by brute force: every row of a small table alone in an engine, and all pairs of neighbors."""

from __future__ import annotations

import itertools
import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.query.curation import Curation
from discreet.query.engines._duckdb import DuckDBEngine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.query.aggregates import BoundAggregate
    from discreet.query.engines import Engine
    from discreet.schema import Schema
    from discreet.schema.schema import Neighbors


class SingleRows:
    """Rows that a table may have, each in an engine of its own.

    Sums add up over rows, which the tests that use this check: how the other rows of two neighbors look does
    not matter.
    """

    def __init__(self, schema: Schema, rows: Sequence[dict[str, Any]]) -> None:
        self._schema = schema
        self._rows = rows
        self._curation = Curation.from_schema(schema)
        self._vectors: dict[str, np.ndarray[Any, Any]] = {}

    def open(self, rows: Sequence[dict[str, Any]]) -> Engine:
        """Return an engine with some rows."""
        engine = DuckDBEngine()
        engine.register({name: [row[name] for row in rows] for name in self._schema.names}, self._curation)
        return engine

    @cached_property
    def engines(self) -> list[Engine]:
        """For each row an engine that has no other."""
        return [self.open([row]) for row in self._rows]

    def vectors(self, bound: BoundAggregate) -> np.ndarray[Any, Any]:
        """Return the exact integers of every row alone."""
        # Both kinds of neighbors share them, unless a public number of rows is left out for one of them.
        key = json.dumps([bound.canonical, bound.size])
        if key not in self._vectors:
            self._vectors[key] = np.array([bound.exact(engine) for engine in self.engines], dtype=object)
        return self._vectors[key]

    def changes(self, bound: BoundAggregate, neighbors: Neighbors) -> np.ndarray[Any, Any]:
        """Return how far each pair of neighbors is apart."""
        vectors = self.vectors(bound)
        if neighbors == "add-remove":
            return vectors
        return np.array([a - b for a, b in itertools.combinations(vectors, 2)], dtype=object)

    def distances(self, bound: BoundAggregate, neighbors: Neighbors) -> tuple[int, int]:
        """Return the largest weighted square and absolute change between any two neighbors."""
        changes = self.changes(bound, neighbors)
        precision, weight = np.array(bound.precision, dtype=object), np.array(bound.weight, dtype=object)
        return (changes**2 @ precision).max(), (abs(changes) @ weight).max()
