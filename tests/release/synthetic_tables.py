"""Small tables of every kind of column, from which synthetic ones are made."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np

from discreet import Column, Schema
from discreet.noise import Stream

COLUMNS = (
    Column("day", lower=datetime.date(2001, 1, 1), upper=datetime.date(2013, 1, 1)),
    Column("size", lower=-4, upper=4, required=False),
    Column("income", lower=0, upper=100_000),
    Column("age", type="integer", lower=0, upper=120),
    Column("children", type="integer", lower=0, upper=9),
    Column("owner", values=(False, True)),
    Column("town", values=("east", "west"), required=False),
    Column("ill", values=(0, 1), role="target"),
)


def mixed_schema(**more: Any) -> Schema:
    """Declare all kinds of columns."""
    return Schema(columns=COLUMNS, **more)


def mixed_rows(n: int = 2000, seed: int = 7) -> dict[str, Any]:
    """Make rows in which age, town and illness go together, and most have no income."""
    draws = Stream.from_seed(seed).generator()
    age = draws.integers(0, 100, n)
    town = np.array(["east", "west", "elsewhere", None], object)[(age // 30) % 4]
    size = np.where(draws.random(n) < 0.2, np.nan, draws.normal(size=n))
    return {
        "day": np.datetime64("2001-01-01") + draws.integers(0, 4000, n),
        "size": size,
        "income": np.where(draws.random(n) < 0.7, 0.0, draws.exponential(3000.0, n)),
        "age": age,
        "children": draws.integers(0, 10, n),
        "owner": age > 40,
        "town": town,
        "ill": (age > 60).astype(int),
    }


def plain_schema(columns: int = 3, levels: int = 3, target: bool = True) -> Schema:
    """Declare columns of a few whole numbers each, the last of which may be the target."""
    names = [f"c{i}" for i in range(columns)]
    values = tuple(range(levels))
    return Schema(
        columns=[Column(name, values=values) for name in names], target=names[-1] if target else None
    )


def plain_rows(n: int = 300, columns: int = 3, levels: int = 3, seed: int = 7) -> dict[str, Any]:
    """Make rows in which a column repeats that before it, or the one before that, most of the time."""
    draws = Stream.from_seed(seed).generator()
    made = [draws.integers(0, levels, n)]
    for _ in range(1, columns):
        which = draws.random(n)
        near = np.where(which < 0.4, made[-1], made[max(len(made) - 2, 0)])
        made.append(np.where(which < 0.8, near, draws.integers(0, levels, n)))
    return {f"c{i}": values for i, values in enumerate(made)}


def hidden_class_rows(n: int = 3000, columns: int = 16, levels: int = 6, seed: int = 9) -> dict[str, Any]:
    """Make rows in which every column repeats one that is not there, half of the time."""
    draws = Stream.from_seed(seed).generator()
    hidden = draws.integers(0, levels, n)
    return {
        f"c{i}": np.where(draws.random(n) < 0.5, hidden, draws.integers(0, levels, n)) for i in range(columns)
    }
