"""What was paid for: every number with its question, its group and its interval."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from discreet import Column, Database, GaussianDP, Ledger, Schema
from discreet.query import Gram, History
from discreet.query.frames import HISTORY_COLUMNS
from tests.query.survey import ROWS, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

MU, FINER = GaussianDP(mu=0.3), GaussianDP(mu=0.4)


@pytest.fixture
def db() -> Iterator[Database]:
    with Database(ROWS, schema=SCHEMA, random_state=5) as made:
        yield made


def rows_of(history: History, question: str) -> list[tuple[object, ...]]:
    """Return statistic, group, value, lower and upper of the numbers of a question."""
    names = ("statistic", "group", "value", "lower", "upper")
    told = zip(history.columns["question"], *(history.columns[name] for name in names), strict=True)
    return [tuple(row) for asked, *row in told if asked == question and row[2] is not None]


def test_every_number_has_its_group_and_its_interval(db: Database) -> None:
    first, second = db.mean("age", by=["sex", "smoker"], privacy=MU), db.count("age > 40", privacy=MU)
    finer = db.mean("age", by=["sex", "smoker"], privacy=FINER)
    refined = db.count("age > 40", privacy=FINER, refines=second.receipts)
    history = db.history()
    assert tuple(history.columns) == HISTORY_COLUMNS
    means = [
        ("mean(age)", ", ".join(cell.key), cell.value, cell.lower, cell.upper)
        for result in (first, finer)
        for cell in result.cells
    ]
    assert rows_of(history, first.question) == means
    assert [row[2] for row in rows_of(history, second.question)] == [second.value, refined.value]
    assert set(history.columns["receipt"]) >= {*first.receipts, *second.receipts, *refined.receipts}
    assert rows_of(db.history(last=1), second.question)[0][2:] == (refined.value, *refined.interval())


def test_dates_are_days_and_other_answers_are_lists(db: Database) -> None:
    mean, gram = db.mean("admitted", privacy=MU), db.ask(Gram(("age",)), privacy=MU)
    history = db.history()
    assert history.columns["value"][0] == str(mean.frame.columns["value"][0])
    assert history.columns["value"][1] == gram.to_dict()["value"]
    assert (history.columns["group"], history.columns["lower"][1]) == ([None, None], None)
    assert len(history.to_pandas()) == len(history.to_polars()) == 2
    assert history.columns["question"][0] in (history.to_csv() or "")
    assert repr(history) == "History(2 charges, 2 rows)"


def test_a_history_is_legible_and_harmless() -> None:
    schema = Schema(columns=[Column("town", values=("<script>", "=1+1"))])
    with Database({"town": ["<script>", "=1+1"] * 50}, schema=schema, random_state=1) as db:
        db.count(by="town", privacy=MU)
        db.ask(Gram(("town",)), privacy=MU)
        history = db.history()
    html = history._repr_html_()
    assert "<script" not in html
    cells = ["".join(cell.itertext()) for cell in ElementTree.fromstring(html).iter("td")]
    assert cells.count("count by town") == 1  # said once for all its groups
    assert {"<script>", "=1+1", "other"} <= set(cells)
    assert any(cell.endswith(" numbers") for cell in cells)
    assert ",'=1+1," in (history.to_csv() or "")


def test_answers_under_another_schema_have_no_numbers() -> None:
    small = Schema(columns=[Column("age", type="integer", lower=0, upper=9)])
    large = Schema(columns=[Column("years", type="integer", lower=0, upper=9)])
    with contextlib.closing(Ledger.open(":memory:")) as ledger:
        with Database({"age": [1, 2, 3]}, schema=small, ledger=ledger) as db:
            db.count("age > 1", privacy=MU)
        with Database({"years": [1, 2, 3]}, schema=large, ledger=ledger) as db:
            db.count("years > 1", privacy=MU)
            history = db.history()
    assert history.columns["question"] == ["count where 1 < age", "count where 1 < years"]
    assert history.columns["value"][0] is None
    assert history.columns["lower"][1] is not None
