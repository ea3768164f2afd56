"""Small private tables whose answers are attacked."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.query import Database, Histogram, Sums
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from discreet._types import Ints
    from discreet.ledger import Ledger
    from discreet.privacy import Promise
    from discreet.query import Aggregate

PEOPLE = 200
GROUPINGS = 6
LEVELS = 8


def scattered(n: int, start: int, size: int) -> Ints:
    """Return numbers from 0 to below `size` that look as if they were drawn: SplitMix64."""
    words = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start * n)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (words >> np.uint64(33)).astype(np.int64) % size


def bits_table(n: int = PEOPLE) -> dict[str, Any]:
    """One bit for each person and a wage, which go with nothing, and some public groups to ask about."""
    groups = {f"g{i}": scattered(n, i, LEVELS) for i in range(GROUPINGS)}
    ill = np.where(scattered(n, 50, 2) == 0, "yes", "no")
    return {**groups, "ill": ill, "wage": scattered(n, 51, 5001).astype(np.float64)}


def bits_schema() -> Schema:
    return Schema(
        columns=[
            *(Column(f"g{i}", values=tuple(range(LEVELS)), role="public") for i in range(GROUPINGS)),
            Column("ill", values=("no", "yes")),
            Column("wage", lower=0, upper=5000, measure="EUR"),
        ]
    )


def crossings(expression: str | None = None) -> list[Aggregate]:
    """Ask about every crossing of two groupings: of each person some crossings say much."""
    pairs = itertools.combinations([f"g{i}" for i in range(GROUPINGS)], 2)
    if expression is None:
        return [Histogram((*pair, "ill")) for pair in pairs]
    return [Histogram(pair, {}, expression) for pair in pairs]


def counts(start: int, each: int) -> Sums:
    """Ask how many are ill in some groups."""
    return Sums(
        tuple(
            f"g{i % GROUPINGS} >= {i // GROUPINGS % LEVELS} AND g{(i + 1) % GROUPINGS} <= {i % LEVELS} "
            f"AND wage > {i} AND ill = 'yes'"
            for i in range(start, start + each)
        )
    )


def asked(
    privacy: Promise,
    questions: list[Aggregate],
    *,
    seed: int | None = 1,
    ledger: Ledger | None = None,
    n: int = PEOPLE,
) -> Database:
    """Return a database that has answered some questions."""
    db = Database(bits_table(n), schema=bits_schema(), ledger=ledger, random_state=seed)
    for question in questions:
        db.ask(question, privacy=privacy)
    return db
