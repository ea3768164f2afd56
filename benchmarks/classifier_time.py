"""Processor time of the default classifier on a million rows of 20 numbers in DuckDB, beside plain SQL.

    python benchmarks/classifier_time.py

The SQL counts the rows in the classifier's own cells of every column by class, a ``CASE`` and a ``GROUP BY``
for each column, without noise, on one thread; beside it the same with as many cells of equal width, which
need no ``CASE``. The fit has both stages and the score; the time of all its threads counts. They take turns.
Results go to ``benchmarks/results/classifier_time.json``.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pandas as pd
from measure import save
from peers import versions
from sulq_tables import Registered

from discreet import ApproxDP, Column, Schema, learn
from discreet.noise import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, COLUMNS, ROUNDS, CELLS = 1_000_000, 20, 3, 25


def main() -> None:
    """Measure both and write what was found."""
    draws = Stream.from_seed(1).generator()
    X = draws.random((ROWS, COLUMNS))
    names = [f"x{i}" for i in range(COLUMNS)]
    rows = pd.DataFrame(X, columns=names)
    rows["y"] = np.where(X[:, :5].sum(axis=1) + 0.5 * draws.standard_normal(ROWS) > 2.5, "yes", "no")
    numbers = [Column(name, lower=0.0, upper=1.0) for name in names]
    schema = Schema(columns=[*numbers, Column("y", values=("no", "yes"), role="target")])
    plain = duckdb.connect(config={"threads": 1})
    plain.execute("CREATE TABLE t AS SELECT * FROM rows")
    with Registered(rows, schema) as table:
        models: list[learn.PrivateClassifier] = []

        def fit() -> None:
            model = learn.PrivateClassifier(privacy=ApproxDP(epsilon=1.0, delta=1e-6))
            models.append(model.fit_database(table.sums(len(models))))

        def count(cell: Callable[[str], str]) -> None:
            for name in names:
                plain.execute(f"SELECT {cell(name)} AS cell, y, count(*) FROM t GROUP BY ALL").fetchall()  # noqa: S608

        def find_cell(name: str) -> str:
            edges = models[0].cells_.edges[name]
            return f"CASE {' '.join(f'WHEN {name} < {e} THEN {i}' for i, e in enumerate(edges))} ELSE -1 END"

        work: dict[str, Callable[[], None]] = {
            "fit": fit,
            "sql": lambda: count(find_cell),
            "sql, cells of equal width": lambda: count(lambda name: f"floor({name} * {CELLS})"),
        }
        seconds: dict[str, list[float]] = {name: [] for name in work}
        for _ in range(ROUNDS):
            for name, do in work.items():
                started = time.process_time()
                do()
                seconds[name].append(time.process_time() - started)
    best = {name: min(found) for name, found in seconds.items()}
    save(
        "classifier_time",
        {
            "versions": versions(),
            "settings": {"rows": ROWS, "columns": COLUMNS, "stages": models[0].stages_, "rounds": ROUNDS},
            "processor seconds": best,
            "ratio": best["fit"] / best["sql"],
        },
    )


if __name__ == "__main__":
    main()
