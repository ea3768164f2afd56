"""Synthetic tables of columns that follow something hidden, with hidden classes fitted and without.

    python benchmarks/synthetic_hidden.py

These tables took no part in the choice of the fit. Prints and records, as the mean over three seeds, the
distance of two-way tables in total variation, and in how many releases hidden classes were fitted.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import synthetic

from discreet import ApproxDP, Column, Schema
from discreet.noise import Stream
from discreet.release.synthetic import SyntheticRelease
from discreet.release.synthetic import rows as synthetic_rows

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS, EPSILONS = 3, (1.0, 10.0)


def answers(n: int, columns: int, levels: int, seed: int, traits: int = 1, noise: float = 1.0) -> Any:
    """Return answers that each follow one of some traits, with thresholds of their own."""
    draws = Stream.from_seed(seed).generator()
    hidden = draws.standard_normal((n, traits))
    rows = {}
    for i in range(columns):
        slope = draws.uniform(0.7, 1.8) * draws.choice([-1, 1])
        felt = hidden[:, i % traits] * slope + noise * draws.logistic(size=n)
        cuts = np.quantile(felt, np.sort(draws.uniform(0.05, 0.95, levels - 1)))
        rows[f"c{i}"] = np.searchsorted(cuts, felt)
    return rows


def mixture(n: int, columns: int, classes: int, seed: int) -> Any:
    """Return columns of two to nine levels that are independent given a hidden class."""
    draws = Stream.from_seed(seed).generator()
    hidden = draws.choice(classes, n, p=draws.dirichlet(np.full(classes, 2.0)))
    rows = {}
    for i, levels in enumerate(draws.integers(2, 10, columns)):
        ends = np.cumsum(draws.dirichlet(np.full(levels, 0.5), classes), axis=1)
        rows[f"c{i}"] = (draws.random(n)[:, None] > ends[hidden]).sum(axis=1).clip(0, levels - 1)
    return rows


def baskets(n: int, columns: int, seed: int) -> Any:
    """Return what people of five kinds bought."""
    draws = Stream.from_seed(seed).generator()
    rates = np.where(draws.random((5, columns)) < 0.25, 0.7, 0.05)
    bought = draws.random((n, columns)) < rates[draws.integers(0, 5, n)]
    return {f"c{i}": bought[:, i].astype(np.int64) for i in range(columns)}


def chain(n: int, columns: int, seed: int) -> Any:
    """Return columns of which each follows the one before: nothing is hidden, and the tree is enough."""
    draws = Stream.from_seed(seed).generator()
    rows, value = {}, draws.standard_normal(n)
    for i in range(columns):
        value = 0.8 * value + 0.6 * draws.standard_normal(n)
        rows[f"c{i}"] = np.digitize(value, [-1.5, -0.7, 0, 0.7, 1.5])
    return rows


TABLES: dict[str, Callable[[], Any]] = {
    "one trait, 25 answers of 5": lambda: answers(8000, 25, 5, 101),
    "three traits, 24 answers of 4": lambda: answers(10_000, 24, 4, 102, traits=3),
    "6 hidden classes, 16 columns": lambda: mixture(6000, 16, 6, 103),
    "12 hidden classes, 20 columns": lambda: mixture(20_000, 20, 12, 104),
    "baskets of 30": lambda: baskets(5000, 30, 105),
    "a chain of 15": lambda: chain(10_000, 15, 106),
    "one strong trait, 12 answers of 7": lambda: answers(5000, 12, 7, 107, noise=0.3),
}


def distance(first: Any, second: Any) -> float:
    """Return the mean distance of two-way tables in total variation."""
    found = []
    for a, b in itertools.combinations(first, 2):
        width = int(first[b].max()) + 1
        places = [rows[a].astype(np.int64) * width + rows[b] for rows in (first, second)]
        size = max(int(place.max()) for place in places) + 1
        tables = [np.bincount(place, minlength=size) / len(place) for place in places]
        found.append(np.abs(tables[0] - tables[1]).sum() / 2)
    return float(np.mean(found))


def measure(rows: Any, epsilon: float) -> dict[str, float]:
    """Return the distances without hidden classes and with them."""
    schema = Schema(columns=[Column(name, values=tuple(range(v.max() + 1))) for name, v in rows.items()])
    found: dict[str, float] = {}
    usual = synthetic_rows.LEAST_SHARE
    for what, least in (("tree alone", 0.0), ("hidden classes", usual)):
        synthetic_rows.LEAST_SHARE = least
        distances, fitted = [], 0
        for seed in range(SEEDS):
            promise = ApproxDP(epsilon=epsilon, delta=1e-6)
            method = SyntheticRelease(promise, schema=schema, anyway=True, random_state=seed)
            distances.append(distance(rows, method.release(rows).columns))
            fitted += "hidden_classes" in method.model_
        found |= {what: float(np.mean(distances)), "fitted": fitted}
    return found


def main() -> None:
    """Measure all tables."""
    found = {}
    for name, make in TABLES.items():
        for epsilon in EPSILONS:
            what = f"{name}, epsilon {epsilon:g}"
            found[what] = measure(make(), epsilon)
            print(what, found[what], flush=True)
    synthetic.record("hidden classes, 2-way TV", found, digits=4)


if __name__ == "__main__":
    main()
