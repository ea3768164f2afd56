"""Ways to publish are tried on the same rows, say why they are impossible, and follow one rule."""

from __future__ import annotations

import dataclasses
from datetime import date

import numpy as np
import pytest

from discreet import ApproxDP, Column, PureDP, Schema
from discreet.evaluation.compared_rows import ComparedRows, related_rows
from discreet.evaluation.way_choice import best_way, choose_way
from discreet.evaluation.ways import TITLES, Way, WayName, measure_ways
from discreet.noise import Stream

N = 3_000
PRIVACY = ApproxDP(epsilon=1, delta=1e-6)
SCHEMA = Schema(
    dataset="people",
    columns=[
        Column("age", type="integer", lower=17, upper=90),
        Column("pay", lower=0, upper=100, required=False),
        Column("born", type="date", lower=date(1930, 1, 1), upper=date(2010, 12, 31)),
        Column("sex", values=("f", "m")),
        Column("owner", values=("no", "yes"), role="target"),
    ],
)


def compare(schema: Schema = SCHEMA, n: int = N, explained: float = 0.6) -> ComparedRows:
    stream = Stream.from_seed(1)
    train, test = (related_rows(schema, n, stream.derive(part), explained=explained) for part in ("a", "b"))
    return ComparedRows(schema, train, test, stream)


@pytest.fixture(scope="module")
def rows() -> ComparedRows:
    return compare()


@pytest.fixture(scope="module")
def ways(rows: ComparedRows) -> dict[WayName, Way]:
    return {way.name: way for way in measure_ways(SCHEMA, rows, N, privacy=PRIVACY, floors={})}


# Made-up rows.


def test_made_up_rows_have_the_declared_relations() -> None:
    made = related_rows(SCHEMA, 20_000, Stream.from_seed(2), explained=0.6)
    assert list(made) == [column.name for column in SCHEMA.released]
    assert np.mean(made["age"] < 17 + 74 / 4) == pytest.approx(0.5, abs=0.02)
    assert np.isnan(made["pay"]).mean() == pytest.approx(0.1, abs=0.015)
    known = ~np.isnan(made["pay"])
    assert np.corrcoef(made["age"][known], made["pay"][known])[0, 1] == pytest.approx(0.27, abs=0.04)
    nothing = related_rows(SCHEMA, 20_000, Stream.from_seed(2), explained=1e-9)
    told, untold = (np.corrcoef(rows["age"], rows["owner"])[0, 1] for rows in (made, nothing))
    assert told > 0.3
    assert abs(untold) < 0.03


# What every way achieves.


def test_all_ways_are_tried_on_the_same_rows(ways: dict[WayName, Way], rows: ComparedRows) -> None:
    assert list(ways) == list(TITLES)
    assert [way.why_not for way in ways.values()] == [""] * 6
    constant, unprotected = rows.baselines()["constant"], rows.baselines()["unprotected"]
    assert constant is not None
    assert unprotected is not None
    for name in ("synthetic", "model"):
        assert constant + 0.02 < (ways[name].accuracy or 0) < unprotected + 0.03
    assert ways["model"].table_error is None
    assert ways["questions"].accuracy is None
    assert (ways["questions"].mean_error or 1) < (ways["gaussian"].mean_error or 0) / 10
    assert (ways["synthetic"].table_error or 1) < (ways["coarse"].table_error or 0) / 2
    assert {way.membership for way in ways.values() if way.name != "coarse"} == {ways["model"].membership}
    assert ways["coarse"].delta == 0
    assert ways["coarse"].trust == ways["gaussian"].trust == "local"


def test_no_noise_is_no_error(rows: ComparedRows) -> None:
    codes = rows.find_cells(rows.train)
    assert rows.table_error([rows.count(codes, pair) for pair in rows.pairs]) == 0
    assert rows.mean_error({c.name: rows.mean(c, rows.train[c.name]) for c in rows.numbers}) == 0


def test_little_noise_is_corrected_to_little_error(rows: ComparedRows) -> None:
    privacy = ApproxDP(epsilon=50, delta=1e-6)
    ways = {way.name: way for way in measure_ways(SCHEMA, rows, N, privacy=privacy, floors={})}
    # The middles of six values stand for the numbers of a coarse table.
    assert (ways["coarse"].mean_error or 1) < 0.03
    assert (ways["questions"].table_error or 1) < 0.003


def test_floors_set_the_noise_of_rows_and_of_nothing_else(
    ways: dict[WayName, Way], rows: ComparedRows
) -> None:
    by_floor = {w.name: w for w in measure_ways(SCHEMA, rows, N, privacy=PRIVACY, floors={"age": 9.0})}
    assert by_floor["gaussian"] != ways["gaussian"]
    assert by_floor["gaussian"].epsilon != 1
    assert by_floor["synthetic"] == ways["synthetic"]


@pytest.mark.parametrize(
    ("schema", "n", "epsilon", "name", "why"),
    [
        (Schema(columns=SCHEMA.columns[:4]), 300, 1.0, "model", "none is declared"),
        (Schema(columns=SCHEMA.columns[:4]), 300, 1.0, "masked", "no target is declared"),
        (SCHEMA, 100, 0.01, "synthetic", "must allow for a table"),
        (dataclasses.replace(SCHEMA, neighbors="add-remove"), 300, 1.0, "coarse", "replace-one"),
        (SCHEMA.with_target("pay"), 300, 1.0, "model", "pay is a number"),
    ],
)
def test_an_impossible_way_says_why_from_public_facts(
    schema: Schema, n: int, epsilon: float, name: WayName, why: str
) -> None:
    privacy = ApproxDP(epsilon=epsilon, delta=1e-6, neighbors=schema.neighbors)
    found = {way.name: way for way in measure_ways(schema, compare(schema, n), n, privacy=privacy, floors={})}
    assert why in found[name].why_not
    assert found[name].membership is None
    assert any(not way.why_not for way in found.values())


def test_rows_of_one_person_and_pure_promises_are_possible() -> None:
    schema = Schema(
        dataset="visits",
        columns=[Column("patient", role="id"), *SCHEMA.columns[:2], SCHEMA.columns[4]],
        id_column="patient",
        max_rows_per_unit=3,
    )
    found = measure_ways(schema, compare(schema, 600), 600, privacy=PureDP(epsilon=8), floors={})
    assert {way.name for way in found if way.why_not} <= {"gaussian"}


# The rule.


def way(name: WayName, **outcome: float) -> Way:
    return Way(name=name, epsilon=1.0, delta=1e-6, trust="central", **outcome)  # type: ignore[arg-type]


def test_ways_within_two_points_of_the_best_are_equal() -> None:
    few = [way("synthetic", accuracy=0.80), way("model", accuracy=0.785), way("masked", accuracy=0.9)]
    assert best_way(few, "model") is few[1]
    few[1] = way("model", accuracy=0.775)
    assert best_way(few, "model") is few[0]
    assert best_way(few, "means") is None
    assert best_way(few[2:], "model") is few[2]


def test_a_way_that_serves_more_purposes_is_recommended() -> None:
    few = [
        way("synthetic", accuracy=0.80, table_error=0.1, mean_error=0.005),
        way("model", accuracy=0.82),
        way("questions", table_error=0.06, mean_error=0.0),
    ]
    found = choose_way(few, {"constant": 0.6, "unprotected": 0.9})
    assert found.way == "synthetic"
    assert found.by_task == {"model": "model", "tables": "questions", "means": "questions"}
    assert choose_way(few, {"constant": 0.6}, "tables").way == "questions"
    assert "no model learns anything" in choose_way(few, {"constant": 0.82}, "model").reason
    risky = dataclasses.replace(few[0], risk={"verdict": "no"})
    assert choose_way([risky, *few[1:]], {}).way == "questions"
    nothing = [dataclasses.replace(one, why_not="Too few rows.") for one in few]
    assert choose_way(nothing, {}).way is None
