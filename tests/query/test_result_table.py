"""Results as frames, CSV, HTML and charts: the same numbers everywhere, and no text that acts."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import io
import math
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from discreet import ApproxDP, Database, GaussianDP, Ledger
from discreet.errors import ParameterError
from discreet.privacy import ZCDP
from discreet.query.frames import Frame
from discreet.query.intervals import UNBOUNDED, ResultInterval
from discreet.query.result_drawing import MAX_ROWS, Scale, column_scale, draw_chart, draw_table
from discreet.query.result_table import CellNumbers, ResultTable, SvgText, TableColumn, TableRow
from tests.query.survey import FIRST_DAY, ROWS, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MU = GaussianDP(mu=0.5)
HOSTILE = ("=SUM(A1)", "<script>alert(1)</script>", '"&\u202e', "-5", "+cmd|' /C calc'!A0", "\uff20x")
YEARS = TableColumn("mean(age)", "years", ResultInterval(0.0, 120.0), None)
ROW_COUNT = TableColumn("count", "rows", ResultInterval(0.0, 600.0), None)


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    with Database(ROWS, schema=SCHEMA, random_state=5) as made:
        yield made


def table(keys: Sequence[str], columns: Sequence[TableColumn] = (ROW_COUNT,), **more: Any) -> ResultTable:
    """Return a table of one key, with other numbers in each row."""
    rows = tuple(
        TableRow((key,), {c.name: CellNumbers(10.0 + i, 1.0, 8.0 + i, 12.0 + i) for c in columns})
        for i, key in enumerate(keys)
    )
    named: dict[str, Any] = {"title": "count by town", "group_by": ("town",), **more}
    return ResultTable(columns=tuple(columns), rows=rows, **named)


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


# Frames and CSV.


def test_one_statistic_has_plain_names_and_several_have_their_own() -> None:
    one = table(["a", "b"])
    assert list(one.frame.columns) == ["town", "value", "sd", "lower", "upper"]
    both = table(["a", "b"], [ROW_COUNT, YEARS]).frame
    assert list(both.columns) == [
        *("town", "count", "count sd", "count lower", "count upper"),
        *("mean(age)", "mean(age) sd", "mean(age) lower", "mean(age) upper"),
    ]
    assert both.columns["mean(age) upper"] == [12.0, 13.0]
    assert list(table(["a"], group_by=("lower",)).frame.columns)[3:] == ["noisy lower", "upper"]


def test_the_frame_of_a_result_has_its_cells(db: Database) -> None:
    result = db.query("mean(age) by sex, smoker", privacy=MU)
    frame = result.to_pandas()
    assert list(frame.columns) == ["sex", "smoker", "value", "sd", "lower", "upper"]
    assert frame["upper"].tolist() == [cell.upper for cell in result.cells]
    assert result.to_polars()["sex"].to_list() == [cell.key[0] for cell in result.cells]
    assert db.query("count where age > 40", privacy=MU).to_pandas().shape == (1, 4)


def test_a_mean_of_dates_is_a_day_and_its_interval_is_rounded_outward(db: Database) -> None:
    result = db.query("mean(admitted) by sex", privacy=MU)
    frame, cell = result.frame.columns, result.cells[0]
    assert frame["value"][0] == FIRST_DAY + datetime.timedelta(days=round(cell.value or 0))
    assert frame["lower"][0] == FIRST_DAY + datetime.timedelta(days=math.floor(cell.lower))
    assert frame["upper"][0] == FIRST_DAY + datetime.timedelta(days=math.ceil(cell.upper))
    assert str(frame["value"][0]) in str(result)
    assert read(result.to_csv() or "")[1][1] == str(frame["value"][0])


def test_csv_has_every_digit_and_goes_to_a_file(db: Database, tmp_path: Path) -> None:
    result = db.query("count by sex", privacy=MU)
    head, *rows = read(result.to_csv() or "")
    assert head == ["sex", "value", "sd", "lower", "upper"]
    assert [float(row[1]) for row in rows] == [cell.value for cell in result.cells]
    assert result.to_csv(tmp_path / "answer.csv") is None
    assert (tmp_path / "answer.csv").read_bytes().decode("utf-8") == result.to_csv()


def test_no_cell_of_a_csv_is_a_formula() -> None:
    names = [*HOSTILE, "-5 to below 3", "\tx", "Zürich"]
    head, *rows = read(table(names, group_by=("=1+1",)).frame.to_csv() or "")
    assert head[0] == "'=1+1"
    for row, name in zip(rows, names, strict=True):
        assert row[0].lstrip("'") == name
        assert re.fullmatch(r"-?\d+", row[0]) or row[0][0] not in "=+-@\t\r\n\uff20"
    assert [row[0] for row in rows][3] == "-5"  # a number is no formula
    assert read(Frame({"a": [None, [1, 2]]}).to_csv() or "")[1:] == [[""], ["[1, 2]"]]


# HTML.


def elements(text: str, kind: str) -> list[ElementTree.Element]:
    """Return the elements of a kind; all HTML here is well-formed XML."""
    return list(ElementTree.fromstring(text).iter(kind))


def test_a_table_escapes_names_and_says_every_number(db: Database) -> None:
    hostile = draw_table(table(HOSTILE, title="count <b>", notes=("a < b",)))
    assert "<script" not in hostile
    assert "\u202e" not in hostile
    assert [cell.text for cell in elements(hostile, "th") if cell.get("scope") == "row"][1] == HOSTILE[1]
    result = db.query("mean(age) by sex, smoker", privacy=MU)
    html = result._repr_html_()
    cells = ["".join(cell.itertext()) for cell in elements(html, "td")]
    for value, interval in result.cell_texts():
        assert value in cells
        assert interval in cells
    assert [caption.text for caption in elements(html, "caption")] == [result.question]
    assert "Cost: " in html
    # Bars repeat what the cells say, so they are hidden from screen readers.
    assert all(bar.get("aria-hidden") == "true" for bar in elements(html, "svg"))
    assert not re.search(r"https?:|url\(|<style|<script", html)


def test_a_long_table_is_cut_and_says_so() -> None:
    long = table([f"g{i}" for i in range(MAX_ROWS + 12)])
    html, chart = draw_table(long), draw_chart(long)
    assert len(elements(html, "tr")) == MAX_ROWS + 1
    assert "12 more groups" in html
    assert "12 more groups" in chart
    assert "more groups" not in draw_table(table(["a"]))


def test_several_statistics_without_groups_are_rows() -> None:
    numbers = {"count": CellNumbers(5.0, 1.0, 3.0, 7.0), "mean(age)": CellNumbers(None, None, 0.0, 120.0)}
    both = ResultTable(
        title="count, mean(age)", group_by=(), columns=(ROW_COUNT, YEARS), rows=(TableRow((), numbers),)
    )
    headings = [cell.text for cell in elements(draw_table(both), "th") if cell.get("scope") == "row"]
    assert headings == ["count (rows)", "mean(age) (years)"]
    assert "no rows" in draw_table(both)
    assert len(re.findall("<circle", draw_chart(both))) == 1


def test_a_preview_shows_its_cost_and_the_budget(db: Database) -> None:
    preview = db.preview("mean(age) by sex", privacy=ApproxDP(epsilon=1, delta=1e-6))
    html = preview._repr_html_()
    assert all(words in html for words in (preview.sql or "", preview.margin_words, preview.cost_words))
    assert not elements(html, "svg")
    with (
        Ledger.open(":memory:", limit=ZCDP(rho=1)) as ledger,
        Database(ROWS, schema=SCHEMA, ledger=ledger) as limited,
    ):
        (bar,) = elements(limited.preview("count where age < 30", privacy=MU)._repr_html_(), "svg")
    assert bar.get("aria-label") == "0.0\u00a0% is used; this takes 12.5\u00a0%"
    with pytest.raises(ParameterError, match="preview has none"):
        preview.to_svg()


# Charts.


def test_a_chart_is_a_picture_of_every_group(db: Database, tmp_path: Path) -> None:
    result = db.query("count by sex", privacy=MU)
    chart = result.plot()
    assert isinstance(chart, SvgText)
    assert chart._repr_svg_() == chart == result.to_svg()
    svg = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in elements(chart, f"{svg}text")]
    assert {"count by sex", "f", "m", "x", "count (rows)"} <= set(texts)
    assert len(elements(chart, f"{svg}circle")) == 3
    assert result.to_svg(tmp_path / "chart.svg") is None
    assert (tmp_path / "chart.svg").read_text("utf-8") == chart
    assert "<script" not in draw_chart(table(HOSTILE))


def test_a_group_with_a_long_name_shows_each_of_its_values_in_a_chart() -> None:
    number = CellNumbers(50.0, None, 49.0, 51.0)
    keys = [("a general practitioner with an outpatient clinic", answer, "x") for answer in ("yes", "no")]
    rows = tuple(TableRow(key, {"mean(age)": number}) for key in keys)
    drawn = draw_chart(ResultTable(title="t", group_by=("work", "smokes", "z"), columns=(YEARS,), rows=rows))
    labels = [text.split(">")[-1] for text in drawn.split("<")]
    assert [label for label in labels if label.startswith("a gen") and label.endswith("…, yes, x")]
    assert [label for label in labels if label.startswith("a gen") and label.endswith("…, no, x")]


def test_means_that_cannot_be_read_do_not_set_the_scale() -> None:
    readable, unreadable = CellNumbers(50.0, None, 49.0, 51.0), CellNumbers(3.0, None, 0.0, 120.0)
    rows = (TableRow(("a",), {"mean(age)": readable}), TableRow(("b",), {"mean(age)": unreadable}))
    drawn = ResultTable(title="mean(age) by town", group_by=("town",), columns=(YEARS,), rows=rows)
    scale = column_scale(drawn, YEARS, 0.0, 100.0)
    assert 48 < scale.lower < 49
    assert 51 < scale.upper < 52
    only = dataclasses.replace(drawn, rows=rows[1:])
    assert column_scale(only, YEARS, 0.0, 1.0).upper > 120
    # Off the scale there is no dot and no end of a whisker.
    assert len(re.findall("<circle", draw_chart(drawn))) == 1


@pytest.mark.parametrize("size", [0.0, 5e-324, 1e-300, 1.0, 1e300, 1.7e308])
def test_numbers_of_any_size_are_drawn(size: float) -> None:
    column = TableColumn("sum(x)", None, UNBOUNDED, None)
    for numbers in (CellNumbers(size, size, -size, size), CellNumbers(-size, 0.0, -size, -size)):
        rows = (TableRow(("a",), {"sum(x)": numbers}), TableRow(("b",), {"sum(x)": numbers}))
        one = ResultTable(title="sum(x) by town", group_by=("town",), columns=(column,), rows=rows)
        for drawn in (draw_chart(one), draw_table(one), draw_chart(dataclasses.replace(one, group_by=()))):
            assert not re.search(r'"(nan|inf)', drawn)


def test_ticks_are_round_numbers() -> None:
    assert Scale(0.0, 1337.0, 0, 1).ticks(5) == [0, 500, 1000]
    assert Scale(52.94, 53.19, 0, 1).ticks(5) == pytest.approx([52.95, 53.0, 53.05, 53.1, 53.15])
    assert Scale(180.2, 182.9, 0, 1).ticks(5, 1.0) == [181.0, 182.0]
