"""Answers of the private database to every aggregate, under fixed seeds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet import Column, Database, Ledger, Schema
from discreet.learn import METHODS
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PureDP
from tests.golden._entry_points import calibrate, query
from tests.golden.digests import error_of, of_array, of_json, rounded
from tests.postgres import running_server

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = Schema(
    columns=[
        Column("income", lower=0, upper=1, required=False),
        Column("height", lower=-2.5, upper=3.25),
        Column("age", type="integer", lower=17, upper=90),
        Column("job", values=("clerk", "nürse", "日本"), required=False),
        Column("owner", values=(0, 1), role="target"),
    ],
    dataset="golden-people",
)
BALL: Mapping[str, Any] = {"center": None, "radius": None, "edges": {}}
AGGREGATES: dict[str, Mapping[str, Any]] = {
    "sums": {"kind": "sums", "expressions": ["age", "height * 2", "age > 40 AND job = 'clerk'"]},
    "histogram": {"kind": "histogram", "columns": ["job", "owner"], "edges": {}, "expression": None},
    "histogram of a sum": {
        "kind": "histogram",
        "columns": ["age"],
        "edges": {"age": [30.0, 60.0]},
        "expression": "height",
    },
    "node tables": {
        "kind": "node tables",
        "target": "owner",
        "nodes": [
            {"path": [], "attributes": ["job", "age"]},
            {"path": [["job", 1]], "attributes": ["age"]},
        ],
        "edges": {"age": [40.0]},
    },
    "gram": {"kind": "gram", "columns": ["height", "age"], **BALL, "with_sums": True},
    "gram in a ball": {
        "kind": "gram",
        "columns": ["height", "age"],
        "center": [0.25, 0.5],
        "radius": 0.5,
        "with_sums": False,
        "edges": {},
    },
    "moments": {"kind": "moments", "columns": ["height", "age"]},
    "cluster sums": {
        "kind": "cluster sums",
        "columns": ["height", "age"],
        "centers": [[0.25, 0.5], [0.75, 0.5]],
        "radius": 1.0,
    },
    "halfspace sums": {
        "kind": "halfspace sums",
        "columns": ["height", "age"],
        "target": "owner",
        "positive": 1,
        "weights": [0.5, -0.25, 0.125],
        "intercept": True,
        **BALL,
    },
    "gradient sums": {
        "kind": "gradient sums",
        "columns": ["height", "age"],
        "target": "owner",
        "positive": 1,
        "weights": [0.5, -0.25, 0.125],
        "intercept": True,
        **BALL,
    },
    "sign sketches": {
        "kind": "sign sketches",
        "columns": ["height", "age"],
        "sketches": 4,
        "key": "00" * 32,
        "center": None,
        "radius": None,
    },
    "distinct units": {
        "kind": "distinct units",
        "columns": ["job"],
        "edges": {},
        "where": "age > 40",
    },
    "marginals": {
        "kind": "marginals",
        "tables": [["job"], ["income", "owner"], ["age", "job", "owner"]],
        "edges": {"income": [0.25, 0.5], "age": [40.0]},
        "precisions": [3, 1, 16],
    },
    "dependence": {
        "kind": "dependence",
        "pairs": [["income", "job"], ["income", "age"], ["age", "job"]],
        "edges": {"income": [0.25, 0.5], "age": [40.0]},
        "reference": {
            "kind": "given",
            "margins": {
                "income": [60, 70, 50, 55, 90, 75, 50, 50],
                "job": [50, 50, 45, 55, 50, 50, 50, 50, 55, 45],
                "age": [80, 75, 170, 175],
            },
            "by": "owner",
        },
    },
}
"""Every aggregate as the wire writes it."""

NEEDS_ID = {"sign sketches", "distinct units"}
PROMISES = {
    "gaussian": GaussianDP(mu=0.5),
    "pure": PureDP(epsilon=1.0),
    "approximate": ApproxDP(epsilon=1.0, delta=1e-6),
}


def people(n: int = 500) -> dict[str, Any]:
    """Return rows without chance in which cells are missing, unlisted and out of range."""
    i = np.arange(n)
    jobs = np.array(["clerk", "nürse", "日本", "unlisted", None], dtype=object)
    return {
        "income": np.where(i % 5 == 0, np.nan, (i * 7919 % 1000) / 999),
        "height": np.where(i % 7 == 0, 1e300 * (-1.0) ** i, (i * 31 % 97) / 16 - 2.5),
        "age": 17 + i * 31 % 74,
        "job": jobs[i * 13 % 5],
        "owner": i * 17 % 2,
    }


def database_cases(source: Any = None, version: str | None = None) -> dict[str, Any]:
    """Return digests of answers to every aggregate and verb.

    Parameters
    ----------
    source : optional
        Where the rows are; rows in memory, which DuckDB adds up, when None.
    version : str, optional
        Version of the rows, for sources that need one; None lets the database find it.
    """
    found: dict[str, Any] = {}
    for name, aggregate in AGGREGATES.items():
        if name in NEEDS_ID:
            continue
        for law, privacy in PROMISES.items():
            with _database(source, version) as database:
                found[f"{name} {law}"] = _answer(query(database, aggregate, privacy=privacy))
        with _database(source, version) as database:
            costs, sd = calibrate(database, aggregate, privacy=PROMISES["gaussian"])
            found[f"{name} cost"] = of_json(rounded([p.to_dict() for p in costs], 8))
            found[f"{name} sd"] = of_array(sd, step=1e-6)
    for law, privacy in PROMISES.items() if source is None else ():
        rows, schema = {**people(), "who": np.arange(500) * 37 % 200}, _schema_with_id(3)
        with Database(rows, schema=schema, ledger=Ledger.open(":memory:"), random_state=11) as database:
            found[f"distinct units {law}"] = _answer(
                query(database, AGGREGATES["distinct units"], privacy=privacy)
            )
    with _database(source, version) as database:
        privacy = GaussianDP(mu=0.5)
        found["count"] = _answer(database.count("age > 40", privacy=privacy))
        found["sum"] = _answer(database.sum("height", privacy=privacy))
        mean = database.mean("height", privacy=privacy)
        found["mean"] = of_json(rounded([cell.to_dict() for cell in mean.cells], 9))
        found["histogram of levels"] = _answer(database.histogram(["job"], privacy=privacy))
        found["count repeated"] = database.count("40 < age", privacy=privacy).cached
        found["unknown column"] = error_of(lambda: database.sum("weight", privacy=privacy))
        found["refused expression"] = error_of(lambda: database.sum("(select 1)", privacy=privacy))
        found["wrong expression"] = error_of(lambda: database.count("age >", privacy=privacy))
    return found


def learner_on_database_cases(source: Any = None, version: str | None = None) -> dict[str, Any]:
    """Return digests of models that learners fit on noisy sums of a database."""
    found: dict[str, Any] = {}
    settings: dict[str, dict[str, Any]] = {
        "id3": {"max_depth": 2, "n_bins": 3},
        "naive-bayes": {"n_bins": 3},
        "ridge": {"regularization": 0.5},
        "gradient-logistic": {"rounds": 2, "radius": 1.0},
        "perceptron": {"rounds": 2, "radius": 1.0},
        "pca": {"n_components": 2},
        "kmeans": {"n_clusters": 2, "max_iter": 2},
    }
    for name, parameters in settings.items():
        target = "age" if name == "ridge" else "owner"
        with _database(source, version, target=target) as database:
            model: Any = METHODS[name](privacy=ZCDP(rho=1.0), **parameters)
            model.fit_database(database)
            fitted = {
                key: of_array(value, step=1e-9)
                for key in ("coef_", "intercept_", "components_", "cluster_centers_", "class_log_prior_")
                if (value := getattr(model, key, None)) is not None
            }
            found[name] = of_json(fitted)
            found[f"{name} promises"] = of_json(rounded([p.to_dict() for p in model.promises_], 8))
    return found


def postgres_cases() -> dict[str, Any]:
    """Return the digests of :func:`database_cases` on a PostgreSQL server that is started for it."""
    import psycopg

    rows = people()
    with running_server() as server, server.database() as url:
        with psycopg.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute(
                "CREATE TABLE people (income double precision, height double precision, age integer, "
                "job text, owner integer)"
            )
            cursor.executemany(
                "INSERT INTO people VALUES (%s, %s, %s, %s, %s)",
                [
                    (float(income), float(height), int(age), job, int(owner))
                    for income, height, age, job, owner in zip(*rows.values(), strict=True)
                ],
            )
        return database_cases(f"{url}?table=people")


def _database(source: Any, version: str | None, *, target: str | None = None) -> Database:
    """Return a database under a fixed seed; with a target, of three columns that learners take."""
    schema, rows = SCHEMA, people() if source is None else source
    if target is not None:
        columns = [
            replace(column, role="target" if column.name == target else "sensitive")
            for column in SCHEMA.columns
            if column.name in ("height", "age", "owner")
        ]
        schema = Schema(columns=columns, dataset="golden-numbers")
        if source is None:
            rows = {column.name: rows[column.name] for column in columns}
    return Database(rows, schema=schema, ledger=Ledger.open(":memory:"), random_state=11, version=version)


def _schema_with_id(most: int) -> Schema:
    """Return the schema of rows of which up to `most` of each person are used."""
    columns = [Column("who", role="id"), *SCHEMA.columns]
    return Schema(columns=columns, id_column="who", max_rows_per_unit=most, dataset="golden-visits")


def _answer(answer: Any) -> str:
    """Return the digest of an answer: its numbers, the law, what it is about and what it cost."""
    return of_json(
        [
            of_array(answer.value),
            of_array(answer.sd, step=1e-9),
            answer.law,
            getattr(answer, "labels", None),
            rounded([promise.to_dict() for promise in answer.cost], 8),
            answer.cached,
        ]
    )
