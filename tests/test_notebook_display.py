"""What notebooks show: public facts and paid numbers alone, escaped."""

from __future__ import annotations

import re
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet import ApproxDP, Column, Database, ErrorFloor, GaussianRelease, Ledger, PureDP, Schema
from discreet.pipeline import ProgressBar
from discreet.query import Histogram, Sums

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "<script>alert(1)</script>&\u202e"
SCHEMA = Schema(
    title=HOSTILE,
    columns=[
        Column("age", type="integer", lower=0, upper=100, measure="<b>years"),
        Column(HOSTILE, values=(HOSTILE, "plain"), closed=True),
    ],
    unit="<i>",
)
ROWS = {"age": np.arange(40) % 7, HOSTILE: np.array([HOSTILE, "plain"] * 20)}
OTHERS = {"age": np.full(40, 93), HOSTILE: np.array(["plain"] * 40)}


def shown(thing: Any) -> str:
    html = thing._repr_html_()
    tags = set(re.findall(r"</?(\w+)", html))
    assert tags <= {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "p", "svg", "rect"}, tags
    assert "\u202e" not in html
    return str(html)


def test_schema_is_shown_with_what_it_declares() -> None:
    html = shown(SCHEMA)
    assert "0 to 100 &lt;b&gt;years" in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;\\u202e" in html
    wide = Schema(columns=[Column(f"c{i}", lower=0, upper=1) for i in range(90)])
    assert "30 more columns" in shown(wide)
    assert len(shown(wide)) < 40_000


def test_database_and_ledger_show_nothing_that_depends_on_rows() -> None:
    limit = ApproxDP(2, 1e-6, unit="<i>")

    def pages(rows: dict[str, Any]) -> list[str]:
        with (
            Ledger.open(":memory:", limit=limit) as ledger,
            Database(rows, schema=SCHEMA, ledger=ledger, random_state=1) as db,
        ):
            before = [shown(db), shown(ledger)]
            db.query("count where age < 50", privacy=ApproxDP(1, 1e-6, unit="<i>"))
            return [*before, shown(db), shown(ledger)]

    first, second = pages(ROWS), pages(OTHERS)
    assert first == second
    assert "40" in first[0]
    assert first[0] != first[2]  # the charge is shown
    assert first[1] != first[3]


def test_rows_are_not_counted_where_their_number_is_private() -> None:
    private = Schema(columns=[Column("x", lower=0, upper=1)], neighbors="add-remove", row_count="private")
    with Database({"x": np.zeros(12_345)}, schema=private) as db:
        assert "not public" in shown(db)
        assert "12,345" not in shown(db)


def test_answer_shows_noisy_numbers_and_their_cost() -> None:
    with Database(ROWS, schema=SCHEMA, random_state=1) as db:
        privacy = PureDP(1, unit="<i>")
        groups = db.ask(Histogram([HOSTILE]), privacy=privacy)
        single = db.ask(Sums(["age"]), privacy=privacy)
        again = db.ask(Histogram([HOSTILE]), privacy=privacy)
    html = shown(groups)
    assert "epsilon = 1" in html
    assert len(re.findall("±", html)) == 2
    assert " 20 ±" not in html  # the true count
    assert len(re.findall("±", shown(single))) == 1
    assert "paid for before" in shown(again)


def test_release_shows_published_cells_and_names_a_seed() -> None:
    method = GaussianRelease(privacy=ErrorFloor(age=9, unit="<i>"), schema=SCHEMA, random_state=1)
    release = method.release(ROWS)
    html = shown(release)
    assert "protects no one" in html
    cells = release.cells["age"]
    assert f"{cells[0]:.6g}" in html
    assert f"{cells[5]:.6g}" not in html


@pytest.mark.slow
def test_statements_are_shown(tmp_path: Path) -> None:
    from discreet import load_release, publish, publish_model

    schema = Schema(
        columns=[Column("age", type="integer", lower=0, upper=100), Column("ill", values=("no", "yes"))],
        target="ill",
    )
    rows = {"age": np.arange(600) % 90, "ill": np.where(np.arange(600) % 90 > 50, "yes", "no")}
    publish(rows, schema=schema, protect={"age": 20}, ledger=False, out=tmp_path / "table")
    assert "gaussian" in shown(load_release(tmp_path / "table" / "public").statement)
    done = publish_model(rows, schema=schema, privacy=ApproxDP(1, 1e-6), ledger=False, out=tmp_path / "model")
    assert "classifier" in shown(done.statement)


def test_progress_is_one_bar_that_is_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def display(bar: dict[str, str], *, raw: bool, display_id: bool) -> SimpleNamespace:
        assert raw
        assert display_id
        seen.append("new " + bar["text/plain"])
        return SimpleNamespace(update=lambda bar, raw: seen.append(bar["text/html"]))

    ipython = ModuleType("IPython")
    ipython.display = SimpleNamespace(display=display)  # type: ignore[attr-defined]
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    bar = ProgressBar()
    for share in (0.0, 0.001, 0.5):
        bar("<read>", share)
    assert seen == ["new <read> 0%", '<progress value="0.50"></progress> &lt;read&gt; 50%']


def test_progress_is_silent_where_no_one_looks(capsys: pytest.CaptureFixture[str]) -> None:
    ProgressBar()("read", 0.5)
    assert capsys.readouterr() == ("", "")
