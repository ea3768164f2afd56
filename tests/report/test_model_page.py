"""The page of a classifier: its pictures show what the model predicts, and nothing else."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet import (
    ApproxDP,
    Column,
    GaussianDP,
    NoPromise,
    PrivateClassifier,
    Schema,
    formatting,
    publish_model,
    verify,
)
from discreet.report.charts import ColumnEffect, EffectCell, draw_effect, effect_axis
from discreet.report.folder.folder import MODEL, MODEL_PAGE
from discreet.report.pages._first_page import model_first_page
from discreet.report.pages._model import MISSING, column_effects, effects_view
from discreet.report.statement.model_documents import ModelStatement
from tests.report.chromium import PROGRAM, browser
from tests.report.reading import read_page
from tests.report.samples import HOSTILE

if TYPE_CHECKING:
    from pathlib import Path

    from discreet.privacy import Promise

N = 3000
FIRST = datetime.date(2015, 1, 1)


def _weyl(count: int) -> np.ndarray[Any, Any]:
    """Numbers without chance that fill the unit interval."""
    return np.asarray((np.arange(1, count + 1) * 0.6180339887498949) % 1.0)


def table(classes: tuple[str, ...]) -> tuple[Schema, dict[str, Any]]:
    """Return a table with every kind of column: whole, real, mostly zero, date, missing, list."""
    i = np.arange(N)
    u = _weyl(N)
    age, temp, day = 18 + (i * 7) % 73, 60 * u - 30, (i * 31) % 3000
    income = np.where(i % 3 > 0, 0.0, 1e6 * u**4)
    bmi = np.where(i % 10 == 0, np.nan, 10 + 50 * ((i * 0.7548776662466927) % 1.0))
    ward = np.array(["surgery", "medicine", HOSTILE[0]])[i % 3]
    score = (age - 54) / 36 + temp / 30 + (i % 3 == 2)
    label = np.array(classes)[np.searchsorted(np.linspace(-0.5, 1.2, len(classes) - 1), score)]
    schema = Schema(
        dataset="clinic",
        columns=[
            Column("age", type="integer", lower=18, upper=90, measure="years"),
            Column("temp", lower=-30, upper=30, measure="°C"),
            Column("income", lower=0, upper=1_000_000, measure="EUR"),
            Column("day", type="date", lower=FIRST, upper=FIRST + datetime.timedelta(days=2999)),
            Column("bmi", lower=10, upper=60, required=False),
            Column("ward", values=("surgery", "medicine", HOSTILE[0])),
            Column("outcome", values=classes, closed=True),
        ],
        target="outcome",
    )
    days = np.datetime64(FIRST) + day
    rows = {"age": age, "temp": temp, "income": income, "day": days, "bmi": bmi, "ward": ward}
    return schema, {**rows, "outcome": label}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Published classifiers of two, three and eleven classes."""
    folder = tmp_path_factory.mktemp("models")
    made = {}
    for count in (2, 3, 11):
        schema, rows = table(tuple(f"{HOSTILE[1]}{k}" for k in range(count)))
        made[count] = publish_model(
            rows,
            schema=schema,
            privacy=ApproxDP(epsilon=4, delta=1e-6),
            ledger=False,
            out=folder / str(count),
        ).public
    return made


@pytest.mark.parametrize("count", [2, 3])
def test_effects_add_up_to_what_the_model_predicts(count: int, folders: dict[int, Path]) -> None:
    model = PrivateClassifier.load(folders[count] / MODEL)
    effects = column_effects(model, list(range(count)) if count > 2 else [1])
    _, rows = table(tuple(map(str, range(count))))
    rows = {name: cells[:200] for name, cells in rows.items() if name != "outcome"}
    codes = model.cells_.codes(rows)
    low, high = np.zeros((200, len(effects[0].cells[0].first))), 0.0
    for j, effect in enumerate(effects):
        cells = effect.cells
        if not effect.is_number:  # sorted by effect, where the model has the declared order
            names = [str(level) for level in model.layout_.schema.columns[j].levels]
            cells = sorted(cells, key=lambda cell, names=names: names.index(cell.name))  # type: ignore[misc]
        ends = np.array([[np.minimum(c.first, c.last), np.maximum(c.first, c.last)] for c in cells])
        low, high = low + ends[codes[:, j], 0], high + ends[codes[:, j], 1]
    scores = model.predict_joint_log_proba(rows)
    if count == 2:
        scores = scores[:, 1:] - scores[:, :1]
    # Up to a constant, which is the score of the average row.
    constant = (scores - (low + high) / 2).mean(axis=0)
    slack = (high - low).max() / 2 + 1e-9
    assert np.all(scores - constant >= low - slack)
    assert np.all(scores - constant <= high + slack)
    assert np.ptp(scores) > 5 * slack


def test_the_average_row_has_no_effect(folders: dict[int, Path]) -> None:
    model = PrivateClassifier.load(folders[2] / MODEL)
    for effect in column_effects(model, [1]):
        mean = sum(cell.share * (cell.first[0] + cell.last[0]) / 2 for cell in effect.cells)
        assert abs(mean) < 1e-9, effect.column
        assert sum(cell.share for cell in effect.cells) == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 11])
def test_the_page_is_well_formed_whatever_the_names_are(count: int, folders: dict[int, Path]) -> None:
    page = (folders[count] / MODEL_PAGE).read_text(encoding="utf-8")
    root = read_page(page)
    shown = [figure.all("figcaption")[0].text for figure in root.all("figure")]
    assert len(shown) >= 5
    assert any(caption.startswith("age spread ") for caption in shown)
    legend = root.all("ul", "legend")
    assert len(legend) == (count > 2)
    if legend:
        assert len(legend[0].all("li")) == min(count, 8)
    assert ("Drawn are the first 8 of 11 classes." in root.text) == (count == 11)
    assert root.one("quality").text.count("The model is ") >= 1
    assert verify(folders[count]).ok


def test_bounds_and_missing_values_stand_beside_the_curve(folders: dict[int, Path]) -> None:
    model = PrivateClassifier.load(folders[2] / MODEL)
    names = {e.column: [c.name for c in e.cells if c.name] for e in column_effects(model, [1])}
    assert names["income"][0] == "= 0"
    assert names["bmi"][-1] == MISSING
    assert names["age"] == []
    assert names["temp"] == []


def test_the_largest_spread_is_first_and_all_classes_have_a_color(folders: dict[int, Path]) -> None:
    model = PrivateClassifier.load(folders[11] / MODEL)
    effects = {effect.column: effect.spread for effect in column_effects(model, list(range(8)))}
    view = effects_view(model)
    assert [effects[one.column] for one in view.shown] == sorted(effects.values(), reverse=True)
    assert (len(view.classes), view.left_out, view.first) == (8, 3, "")


def cell(value: float, sd: float = 0.1, **changes: Any) -> EffectCell:
    return EffectCell(first=(value,), last=(value,), sd=(sd,), share=changes.pop("share", 0.5), **changes)


def test_a_scale_leaves_out_rare_cells_and_most_of_wide_bands() -> None:
    common = ColumnEffect(column="a", cells=[cell(1.0), cell(-0.5)], is_number=False)
    rare = ColumnEffect(column="b", cells=[cell(9.0, share=0.001), cell(0.1, 50.0)], is_number=False)
    assert effect_axis([common]) == pytest.approx((-0.7, 1.2))
    assert effect_axis([common, rare]) == pytest.approx((-4 / 3, 4 / 3))
    assert effect_axis([]) == pytest.approx((-0.25, 0.25))


def test_narrow_cells_are_drawn_as_wide_as_others_and_the_axis_says_so() -> None:
    spans = [(0.0, 0.01), (0.01, 50.0), (50.0, 100.0)]
    cells = [cell(0.1 * i, start=a, end=b) for i, (a, b) in enumerate(spans)]
    narrow = ColumnEffect(column="a", cells=cells, is_number=True, axis_title="kg")
    assert "kg, not to scale" in draw_effect("k", narrow, ["yes"], (-1, 1))
    even = ColumnEffect(column="a", cells=cells[1:], is_number=True, axis_title="kg")
    assert "not to scale" not in draw_effect("k", even, ["yes"], (-1, 1))


def test_a_curve_is_thin_where_its_band_holds_0() -> None:
    values = [(0.5, 0.1), (0.5, 0.3), (-0.5, 0.1), (-0.6, 0.1)]
    cells = [cell(value, sd, start=i, end=i + 1) for i, (value, sd) in enumerate(values)]
    drawn = draw_effect("k", ColumnEffect(column="a", cells=cells, is_number=True), ["yes"], (-1, 1))
    assert drawn.count('class="step k0"') == 2
    assert drawn.count('class="step unsure k0"') == 1
    assert drawn.count('class="band k0"') == 1


def test_a_model_without_effects_says_so(tmp_path: Path) -> None:
    schema, rows = table(("no", "yes"))
    private = ApproxDP(epsilon=0.0005, delta=1e-6)
    done = publish_model(rows, schema=schema, privacy=private, ledger=False, out=tmp_path / "m")
    assert done.statement.quality is not None
    assert "Expect no better than a guess." in str(done.statement.quality.expected)
    assert done.statement.quality.score is None
    text = read_page((done.public / MODEL_PAGE).read_text(encoding="utf-8")).one("effects").text
    assert "No column has an effect" in text or "spread" in text
    assert verify(done.public).ok


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="no Chromium")
@pytest.mark.parametrize("count", [2, 11])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_shows_it_on_any_screen(
    count: int, width: int, dark: bool, folders: dict[int, Path], tmp_path: Path
) -> None:
    with browser(tmp_path) as page:
        page.size(width)
        page.media(dark=dark)
        page.open(folders[count] / MODEL_PAGE)
        assert page.complaints() == []
        assert page.run("document.documentElement.scrollWidth") == width
        # Pictures are as wide as the screen lets them be, and their labels can be read.
        sizes = page.run(
            "[...document.querySelectorAll('svg.effect')].map(s => s.getBoundingClientRect().width / 400)"
        )
        assert len(sizes) >= 5
        assert min(sizes) > 0.8


@pytest.mark.parametrize(
    ("promises", "seeded", "answer", "gain"),
    [
        # A promise (epsilon, delta) alone allows randomized response: (e - 1) / (e + 1) = 0.462 at 1.
        ([ApproxDP(1.0, 1e-6)], False, "Yes", 0.4622),
        ([GaussianDP(0.2)], False, "Yes", 0.0797),  # 2 Phi(0.1) - 1
        ([ApproxDP(4.0, 1e-6)], False, "With care", 0.9641),
        ([ApproxDP(4.0, 1e-6), GaussianDP(0.2)], False, "Yes", 0.0797),  # both hold
        ([ApproxDP(1.0, 1e-6)], True, "No", None),
        ([NoPromise("a test")], False, "No", None),
    ],
)
def test_the_verdict_follows_from_the_promise(
    folders: dict[int, Path], promises: list[Promise], seeded: bool, answer: str, gain: float | None
) -> None:
    stated = ModelStatement.model_validate_json((folders[2] / "statement.json").read_bytes())
    stated = stated.model_copy(
        update={
            "numbers": stated.numbers.model_copy(update={"promises": [p.to_dict() for p in promises]}),
            "implementation": stated.implementation.model_copy(update={"seeded": seeded}),
        }
    )
    page = model_first_page(stated, [])
    assert page.verdict.answer == answer
    if gain is None:
        assert page.gains == []
    else:
        assert formatting.percent(gain, rounding="up") in page.verdict.why
        assert page.gains[0].amount == formatting.percent((1 + gain) / 2, rounding="up")
