"""The default classifier is the same model, bit for bit, whichever engine answers under one key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.learn import PrivateClassifier, PrivateID3Classifier
from discreet.privacy import GaussianDP
from discreet.query import Database
from discreet.query.engines._postgres import PostgresEngine
from discreet.schema import Column, Schema
from tests.learn.noisy_sums import townsfolk, townsfolk_schema

if TYPE_CHECKING:
    import pandas as pd

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def three_classes() -> tuple[pd.DataFrame, Schema]:
    rows = townsfolk(2500)
    ages = rows["age"].to_numpy()
    rows["group"] = np.array(["a", "b", "c"])[(ages > 25).astype(int) + (ages > 55)]
    schema = Schema(columns=[*townsfolk_schema().columns, Column("group", values=("a", "b", "c"))])
    return rows, schema.with_target("group")


def fit_on(source: Any, schema: Schema, **more: Any) -> PrivateClassifier:
    with Database(source, schema=schema, random_state=7, **more) as db:
        return PrivateClassifier(privacy=GaussianDP(mu=1.0), paid_score="table").fit_database(db)


def check_same(one: PrivateClassifier, other: PrivateClassifier) -> None:
    assert one.curves_ == other.curves_
    assert one.slopes_.tobytes() == other.slopes_.tobytes()
    assert one.intercept_.tobytes() == other.intercept_.tobytes()
    assert one.score_ == other.score_
    for a, b in zip(one.answers_.values(), other.answers_.values(), strict=True):
        assert np.array_equal(a.value, b.value)


def test_postgresql_gives_the_model_that_duckdb_gives(postgres_url: str) -> None:
    for rows, schema in ((townsfolk(2500), townsfolk_schema()), three_classes()):
        here = fit_on(rows, schema)
        assert here.stages_ == 2
        check_same(here, fit_on(rows, schema, engine=PostgresEngine(postgres_url)))


def test_postgresql_counts_the_right_rows_of_a_tree_as_duckdb_does(postgres_url: str) -> None:
    found = []
    for engine in (None, PostgresEngine(postgres_url)):
        rows, schema = three_classes()
        more: dict[str, Any] = {} if engine is None else {"engine": engine}
        with Database(rows, schema=schema, random_state=7, **more) as db:
            model = PrivateID3Classifier(privacy=GaussianDP(mu=1.0), max_depth=2, paid_score="table")
            found.append(model.fit_database(db))
    assert found[0].score_ is not None
    assert found[0].tree_.depth == 2
    assert found[0].score_ == found[1].score_


@pytest.mark.slow
def test_spark_gives_the_model_that_duckdb_gives(spark: Any) -> None:
    for rows, schema in ((townsfolk(2500), townsfolk_schema()), three_classes()):
        check_same(fit_on(rows, schema), fit_on(spark.createDataFrame(rows), schema))
