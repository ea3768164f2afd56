"""The pages in a real browser: the slider by keyboard and address, widths, paper, darkness, the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from discreet.report.pages import render
from discreet.report.pages.render import statement_page, write_report
from tests.report import samples
from tests.report.chromium import PROGRAM, Browser, browser

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        PROGRAM is None,
        reason="Chromium is NOT TESTED: found none on the path (the slider, the layout of both pages)",
    ),
]

NARROW_CASES = ("census", "hostile", "clinic", "bare", "without floors")


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for case in NARROW_CASES:
        statement, findings = samples.CASES[case]()
        write_report(folder / f"{case}-report.html", statement, findings)
        (folder / f"{case}-statement.html").write_text(statement_page(statement), encoding="utf-8")
    return folder


def text(page: Browser, name: str) -> str:
    return str(page.run(f"document.getElementById('what-if-{name}').textContent"))


@pytest.fixture
def report(chromium: Browser, folder: Path) -> Browser:
    chromium.size(1280)
    chromium.media()
    chromium.open(folder / "census-report.html")
    return chromium


def test_the_slider_starts_at_the_release_as_it_is(report: Browser) -> None:
    assert report.run("document.getElementById('what-if-live').hidden") is False
    assert report.run("document.getElementById('what-if-slider').value") == "5"
    assert text(report, "factor") == "1\u00a0×"
    assert report.run("document.getElementById('what-if-reset').disabled") is True
    assert report.run("getComputedStyle(document.getElementById('what-if-static')).display") == "none"


def test_the_arrow_keys_move_noise_floor_epsilon_and_accuracy_together(report: Browser) -> None:
    _, findings = samples.census()
    before = [text(report, name) for name in ("factor", "epsilon", "accuracy", "said", "columns")]
    cursor = report.run("document.querySelector('#what-if .cursor').getAttribute('x1')")
    report.run("document.getElementById('what-if-slider').focus()")
    report.press("ArrowRight", 39)
    report.press("ArrowRight", 39)
    after = [text(report, name) for name in ("factor", "epsilon", "accuracy", "said", "columns")]
    assert all(old != new for old, new in zip(before, after, strict=True))
    assert after[0] == "2\u00a0×"
    position = sorted(findings.what_if, key=lambda at: at.factor)[7]
    assert position.accuracy is not None
    assert after[2] == f"{100 * position.accuracy:.1f}\u00a0%"
    moved = report.run("document.querySelector('#what-if .cursor').getAttribute('x1')")
    assert float(moved) > float(cursor)
    assert report.run("document.getElementById('what-if-said').getAttribute('aria-live')") == "polite"
    assert (
        report.run("document.getElementById('what-if-slider').getAttribute('aria-valuetext')") == "2\u00a0×"
    )
    assert report.run("location.hash") == "#what-if=7"


def test_the_button_goes_back(report: Browser) -> None:
    report.run("document.getElementById('what-if-slider').focus()")
    report.press("Home", 36)
    assert text(report, "factor") != "1\u00a0×"
    report.run("document.getElementById('what-if-reset').focus()")
    report.run("document.getElementById('what-if-reset').click()")
    assert text(report, "factor") == "1\u00a0×"
    assert "The chosen noise" in text(report, "said")


@pytest.mark.parametrize(
    ("fragment", "value"), [("#what-if=3", "3"), ("#what-if=999", "10"), ("#what-if=x", "5")]
)
def test_an_address_can_name_a_position(chromium: Browser, folder: Path, fragment: str, value: str) -> None:
    chromium.open(folder / "census-report.html", fragment)
    assert chromium.run("document.getElementById('what-if-slider').value") == value


@pytest.mark.parametrize("case", NARROW_CASES)
@pytest.mark.parametrize("kind", ["report", "statement"])
def test_no_page_is_wider_than_its_window_and_none_asks_for_anything(
    chromium: Browser, folder: Path, case: str, kind: str
) -> None:
    chromium.media()
    for width in (1280, 400):
        chromium.size(width)
        chromium.open(folder / f"{case}-{kind}.html")
        assert chromium.run("document.documentElement.scrollWidth") <= width
        assert chromium.complaints() == []
        assert [url for url in chromium.requests() if not url.startswith("file:")] == []
        assert len(chromium.requests()) == 1


def test_paper_has_a_table_in_place_of_the_slider_and_no_dark_ground(chromium: Browser, folder: Path) -> None:
    chromium.size(1280)
    chromium.media(dark=True, paper=True)
    chromium.open(folder / "census-report.html")
    assert chromium.run("getComputedStyle(document.getElementById('what-if-live')).display") == "none"
    assert chromium.run("getComputedStyle(document.getElementById('what-if-static')).display") == "block"
    assert chromium.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_the_page_follows_a_dark_screen(chromium: Browser, folder: Path) -> None:
    grounds = {}
    for dark in (True, False):
        chromium.media(dark=dark)
        chromium.open(folder / "census-statement.html")
        color = str(chromium.run("getComputedStyle(document.body).backgroundColor"))
        grounds[dark] = sum(int(part) for part in color.removeprefix("rgb(").removesuffix(")").split(","))
    assert grounds[True] < 120
    assert grounds[False] > 700


def test_the_policy_stops_a_script_that_is_not_the_page_s_own(chromium: Browser, tmp_path: Path) -> None:
    statement, findings = samples.one_number()
    intruder = "<script>document.title = 'taken over'</script></body>"
    forged = tmp_path / "forged.html"
    forged.write_text(render._report_page(statement, findings).replace("</body>", intruder), encoding="utf-8")
    chromium.media()
    chromium.open(forged)
    assert chromium.run("document.title") != "taken over"
    assert any("Content Security Policy" in complaint for complaint in chromium.complaints())


def test_without_a_script_the_table_is_there(chromium: Browser, folder: Path) -> None:
    chromium.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.media()
        chromium.open(folder / "census-report.html")
        assert chromium.run("getComputedStyle(document.getElementById('what-if-live')).display") == "none"
        assert chromium.run("getComputedStyle(document.getElementById('what-if-static')).display") == "block"
    finally:
        chromium.call("Emulation.setScriptExecutionDisabled", value=False)
