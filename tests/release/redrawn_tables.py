"""Published tables of counts with fresh noise, so that intervals can be checked many times over."""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.noise import Stream
from discreet.query import aggregate_from_dict
from discreet.query.curation import Curation
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.release.synthetic import SyntheticRelease
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from discreet.release.statistics import StatisticResult

N_ROWS = 2000
SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=0, upper=99),
        Column("pay", lower=0, upper=1000, required=False),
        Column("town", values=("east", "west"), required=False),
        Column("size", type="integer", lower=0, upper=3),
        Column("ill", values=(0, 1), role="target"),
    ]
)
CELLS = {"age": (20, 40, 60), "pay": (100, 300)}


@functools.cache
def true_rows(n: int = N_ROWS) -> dict[str, Any]:
    """Make rows in which everything depends on age a little."""
    draws = Stream.from_seed(5).generator()
    age = np.clip(draws.normal(45, 20, n), 0, 99).astype(int)
    pay = np.where(draws.random(n) < 0.1, np.nan, np.clip(draws.exponential(3 * age + 1), 0, 1000))
    town = np.array(["east", "west", "north", None], object)[(age // 30 + draws.integers(0, 2, n)) % 4]
    size = (draws.random(n) * (1 + age // 25)).astype(int).clip(0, 3)
    return {
        "age": age,
        "pay": pay,
        "town": town,
        "size": size,
        "ill": (draws.random(n) < age / 120).astype(int),
    }


@functools.cache
def published(privacy: Any, neighbors: Any = "replace-one") -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Return the tables of one release, and for each of its questions the exact integers."""
    schema = Schema(columns=SCHEMA.columns, neighbors=neighbors)
    method = SyntheticRelease(privacy, schema=schema, cells=CELLS, random_state=3)
    method.release(true_rows())
    engine = DuckDBEngine()
    curation = Curation.from_schema(schema)
    engine.register(true_rows(), curation)
    exact = []
    for asked in method.tables_["questions"]:
        bound = aggregate_from_dict(asked["question"]).bind(curation, neighbors)
        exact.append(np.array(bound.exact(engine), np.float64) * (bound.plain_unit or 1.0))
    engine.close()
    return method.tables_, tuple(exact)


def redraw(privacy: Any, seed: int | None, neighbors: Any = "replace-one") -> dict[str, Any]:
    """Return the tables with other noise of the same law; None for none."""
    document, exact = published(privacy, neighbors)
    made = copy.deepcopy(document)
    draws = None if seed is None else Stream.from_seed(seed).generator()
    for asked, values in zip(made["questions"], exact, strict=True):
        noise = np.zeros(len(values))
        if draws is not None:
            plain = draws.normal(size=len(values))
            if asked["law"] == "laplace":
                plain = draws.laplace(size=len(values)) / np.sqrt(2)
            noise = plain * np.array(asked["sd"])
        asked["values"] = (values + noise).tolist()
    return made


def covered(result: StatisticResult, exact: Any) -> list[bool]:
    """Return for each cell whether its interval holds the exact number, up to rounding."""
    found = zip(result.cells, np.atleast_1d(np.asarray(exact, float)).tolist(), strict=True)
    return [cell.lower - 1e-9 <= number <= cell.upper + 1e-9 for cell, number in found]
