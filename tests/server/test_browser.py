"""The pages in a real browser: both paths, keys, widths, darkness, contrast, the policy."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from discreet.server.jobs import OPEN
from tests.report.chromium import PROGRAM, Browser, browser
from tests.server.conftest import running
from tests.server.test_jobs import Gate, created, gate
from tests.server.test_pages_hostile import hostile_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.conftest import RunningService

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        PROGRAM is None,
        reason="Chromium is NOT TESTED: found none on the path (scripts, layout of the service's pages)",
    ),
]

__all__ = ["gate"]

READY = "document.getElementById('price').className === 'price ready'"

# Text whose contrast with what lies behind it is below AA, with the ratio.
FAINT = """(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((x) => x / 255)
    .map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
    .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
  const over = (top, below) => {
    const a = top[3] === undefined ? 1 : top[3];
    return [0, 1, 2].map((i) => a * top[i] + (1 - a) * below[i]);
  };
  const behind = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, box = element.getBoundingClientRect();
    if (!walker.currentNode.data.trim() || box.width < 2 || box.height < 2) continue;
    const style = getComputedStyle(element);
    if (style.visibility === "hidden" || element.closest(".unseen, [hidden], option, script")) continue;
    const back = behind(element);
    const ink = over(parse(element.namespaceURI.endsWith("svg") ? style.fill : style.color), back);
    const [a, b] = [light(ink), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const words = walker.currentNode.data.trim().slice(0, 40);
    if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)} ${words}`);
  }
  return found;
})()"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def page(chromium: Browser) -> Browser:
    chromium.call("Network.clearBrowserCookies")
    chromium.call("Emulation.setScriptExecutionDisabled", value=False)
    chromium.size(1280)
    chromium.media()
    return chromium


def enter(page: Browser, service: RunningService, who: str) -> None:
    """Log in by typing a token."""
    page.visit(f"{service.url}/login")
    page.write("#token", service.tokens[who])
    page.follow("button.primary")


def charges(service: RunningService, who: str = "ana") -> int:
    return service.backend.dataset.ledger.spent(who).charges


def test_an_analyst_builds_a_question_sees_its_price_asks_and_refines(
    page: Browser, service: RunningService
) -> None:
    enter(page, service, "ana")
    page.wait(READY)
    page.choose("#verb", "mean")
    page.write("#of", "income")
    page.write("#where", "sex = 'f' AND age > 30")
    page.wait("document.getElementById('sql').value.includes('AVG(income)')")
    page.wait(READY)
    dear = page.text("#price")
    assert "EUR (95 %)" in dear
    assert page.text("#ask-button").startswith("Ask: costs")
    page.run("document.getElementById('slider').focus()")
    for _ in range(12):
        page.press("ArrowRight", 39)
    page.wait(f"{READY} && document.getElementById('price').innerText !== {dear!r}")
    assert page.run("document.getElementById('slider').getAttribute('aria-valuetext')").startswith("costs")
    # The other way of writing follows, and leads back.
    page.click("label[for=source-sql]")
    assert page.run("getComputedStyle(document.querySelector('.panel-sentence')).display") == "none"
    page.write("#sql", "SELECT SUM(income) FROM t WHERE age < 50 GROUP BY city")
    page.wait("document.getElementById('verb').value === 'sum'")
    assert page.run("document.getElementById('by1').value") == "city"
    assert page.run("document.getElementById('where').value") == "age < 50"
    assert charges(service) == 0
    page.wait(READY)
    page.follow("#ask-button")
    assert page.run("location.pathname").startswith("/datasets/town/answers/")
    assert page.run("document.querySelectorAll('.groups tbody tr').length") == 5
    page.call("Page.reload")
    page.wait("document.readyState === 'complete'")
    assert charges(service) == 1
    page.follow(".refine button")
    assert "refined" in page.text(".answer .kicker")
    assert charges(service) == 2
    page.follow("nav.places li:nth-child(2) a")
    assert page.run("document.querySelectorAll('.stack tbody tr').length") == 2
    page.follow(".who button")
    assert page.run("location.pathname") == "/login"
    assert page.complaints() == []
    assert all(url.startswith((service.url, "about:")) for url in page.requests())


def test_a_mistake_is_told_while_typing_and_forgotten_once_it_is_mended(
    page: Browser, service: RunningService
) -> None:
    enter(page, service, "ana")
    page.wait(READY)
    page.write("#where", "age > (SELECT 3)")
    page.wait("!document.getElementById('where-problem').hidden")
    assert "sub-query" in page.text("#where-problem")
    assert page.run("document.getElementById('where').getAttribute('aria-invalid')") == "true"
    assert page.text("#ask-button") == "Ask"
    page.write("#where", "age > 3")
    page.wait("document.getElementById('where-problem').hidden")
    assert page.run("document.getElementById('where').hasAttribute('aria-invalid')") is False
    page.write("#amount", "500")
    page.wait("document.getElementById('price').innerText.includes('more than is left')")
    assert charges(service) == 0


def test_the_enter_key_shows_the_price_and_spends_nothing(page: Browser, service: RunningService) -> None:
    enter(page, service, "ana")
    page.write("#where", "age > 40")
    page.run("window.left = true")
    page.call(
        "Input.dispatchKeyEvent",
        type="keyDown",
        key="Enter",
        code="Enter",
        windowsVirtualKeyCode=13,
        text="\r",
    )
    page.wait("!window.left && document.readyState === 'complete' && document.body.children.length > 0")
    assert "rows (95 %)" in page.text("#price")
    assert charges(service) == 0


def test_everything_needed_to_ask_works_without_a_script(page: Browser, service: RunningService) -> None:
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    enter(page, service, "ana")
    assert page.run("getComputedStyle(document.getElementById('slider-field')).display") == "none"
    page.write("#where", "age > 40")
    page.follow("button.plain-only")
    assert "rows (95 %)" in page.text("#price")
    page.follow("#ask-button")
    assert page.run("document.querySelector('.big strong').textContent")
    assert charges(service) == 1


def test_names_and_values_of_the_list_write_themselves_into_the_question(
    page: Browser, service: RunningService
) -> None:
    enter(page, service, "ana")
    page.run("document.querySelectorAll('.levels').forEach((one) => { one.open = true; })")
    page.click(".column-list > li:nth-child(3) button.whole")
    page.run("document.getElementById('where').value += ' ='")
    page.click(".column-list > li:nth-child(3) .levels button")
    assert page.run("document.getElementById('where').value") == "sex = 'f'"
    page.wait("document.getElementById('step').innerText.includes(\"sex IN ('f')\")")


def test_keys_alone_reach_the_content_and_switch_the_way_of_writing(
    page: Browser, service: RunningService
) -> None:
    enter(page, service, "ana")
    page.run("document.activeElement.blur()")
    page.press("Tab", 9)
    assert page.text(":focus") == "Skip to the content"
    assert page.run("document.activeElement.getBoundingClientRect().left") >= 0
    page.run("document.getElementById('source-sentence').focus()")
    page.press("ArrowRight", 39)
    assert page.run("document.getElementById('source-sql').checked") is True
    assert page.run("getComputedStyle(document.querySelector('.panel-sql')).display") != "none"
    ring = "getComputedStyle(document.querySelector('label[for=source-sql]')).outlineStyle"
    assert page.run(ring) == "solid"


def test_suggestions_are_chosen_with_keys_and_columns_sort_the_rows(
    page: Browser, service: RunningService
) -> None:
    enter(page, service, "ana")
    page.click("label[for=source-sql]")
    shown = "[...document.querySelectorAll('#sql-suggestions li')].map((one) => one.textContent).join(' ')"
    page.write("#sql", "count where ci")
    page.wait(f"{shown} === 'city'")
    # Nothing is chosen before an arrow key is pressed: Enter stays a new line until then.
    assert page.run("document.getElementById('sql').hasAttribute('aria-activedescendant')") is False
    page.press("ArrowDown", 40)
    assert (
        page.run("document.getElementById('sql').getAttribute('aria-activedescendant')")
        == "sql-suggestions-0"
    )
    page.press("Enter", 13)
    assert page.run("document.getElementById('sql').value") == "count where city"
    page.run("document.getElementById('sql').setSelectionRange(99, 99)")
    page.call("Input.insertText", text=" = ")
    page.call("Input.insertText", text="'T")
    page.wait(f"{shown} === \"'Thun'\"")
    assert page.violations() == []
    page.write("#sql", "count where c")
    page.wait(f"{shown}.split(' ').length > 1")
    for width in (1280, 390):
        page.size(width)
        assert page.violations() == [], width
    page.size(1280)
    # Letters of any language ask for suggestions.
    page.write("#sql", "count where ö")
    page.wait("performance.getEntriesByType('resource').some((one) => one.name.endsWith('%C3%B6'))")
    page.write("#sql", "count where c")
    page.wait(f"{shown}.split(' ').length > 1")
    page.press("Escape", 27)
    assert page.run("document.getElementById('sql-suggestions').hidden") is True
    page.write("#sql", "count where age > 3")
    page.wait("performance.getEntriesByType('resource').some((one) => one.name.endsWith('age+%3E+3'))")
    assert page.run("document.getElementById('sql-suggestions').hidden") is True
    page.write("#sql", "count by city")
    page.wait("document.getElementById('by1').value === 'city'")
    page.wait(READY)
    page.follow("#ask-button")
    rows = "[...document.querySelectorAll('.groups tbody tr')].map((row) => {})"
    number = "Number(row.querySelector('[data-order]').dataset.order)"
    before = page.run(rows.format("row.cells[0].innerText"))
    page.click(".groups thead th.number button")
    numbers = page.run(rows.format(number))
    assert numbers == sorted(numbers, reverse=True)
    assert (
        page.run("document.querySelector('.groups thead th.number').getAttribute('aria-sort')")
        == "descending"
    )
    page.click(".groups thead th.number button")
    assert page.run(rows.format(number)) == sorted(numbers)
    page.click(".groups thead th button")
    assert page.run(rows.format("row.cells[0].innerText")) == before
    assert page.complaints() == []


def test_a_curator_lets_somebody_in_attacks_stops_and_starts_again(
    page: Browser, service: RunningService
) -> None:
    service.ask({"kind": "sentence", "text": "count where age > 40", "privacy": {"kind": "zcdp", "rho": 0.1}})
    enter(page, service, "cura")
    assert page.run("location.pathname") == "/datasets/town/curator"
    page.follow(".subplaces li:nth-child(2) a")
    page.write("#token-names", "zoe")
    page.follow("button[value=create]")
    token = page.text("#fresh-token")
    assert page.run("document.querySelector('button.copy').hidden") is False
    service.backend.attack(patience=600)
    page.follow(".subplaces li:first-child a")
    page.follow("form[action='/datasets/town/curator/attack'] button")
    assert "An attacker who knows everything" in page.text(".lead + .lead")
    with pytest.raises(RuntimeError, match="cannot be clicked"):
        page.click(".confirm button")
    page.click(".confirm summary")
    page.wait("document.querySelector('.confirm').open")
    page.follow(".confirm button")
    assert service.backend.access.stop_record("town") is not None
    assert "Stopped" in page.text("body")
    page.follow(".switch button")
    assert service.backend.access.stop_record("town") is None
    page.follow("form[action='/datasets/town/curator/check'] button")
    assert "are consistent" in page.text(".note[role=status]")
    assert page.complaints() == []
    page.follow(".who button")
    page.write("#token", token)
    page.follow("button.primary")
    assert page.run("location.pathname") == "/datasets/town"


def test_a_job_is_followed_without_loading_its_page_again(
    page: Browser, service: RunningService, gate: Gate
) -> None:
    enter(page, service, "ana")
    page.visit(f"{service.url}/datasets/town/jobs")
    page.choose("#model", "kmeans")
    assert page.run("getComputedStyle(document.querySelector('.target-field')).display") == "none"
    page.write("#model-options", "n_clusters = 2")
    page.follow(".train button")
    gate.came.acquire()
    page.wait("document.querySelector('progress') !== null")
    page.run("window.stayed = true")
    assert page.violations() == []
    gate.open.set()
    page.wait("document.querySelector('[data-state]').dataset.state === 'done'")
    assert page.run("window.stayed") is True
    assert page.run("document.querySelector('button.copy').hidden") is False
    assert page.complaints() == []


def test_hostile_names_run_nothing_also_while_the_script_works_with_them(
    page: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    hostile_files(folder)
    with running(folder) as service:
        enter(page, service, "ana")
        page.wait(READY)
        for k in (1, 2, 3):
            page.write("#where", "")
            page.click(f".column-list > li:nth-child({k}) button.whole")
        page.choose("#verb", "sum")
        page.write("#of", "1")
        page.write("#where", "")
        page.choose("#by1", page.run("document.getElementById('by1').options[1].value"))
        page.wait("document.getElementById('step').innerText.includes('<script>')")
        page.wait(READY)
        page.follow("#ask-button")
        assert "<script>" in page.text(".groups tbody")
        assert page.run("window.pwned === undefined && document.images.length === 0") is True
        assert page.complaints() == []


def test_every_page_fits_narrow_and_wide_screens_and_can_be_read_light_and_dark(
    page: Browser, service: RunningService
) -> None:
    for text in (
        "count by city, sex",
        "mean(income) where age > 40",
        "sum(income) by age (20, 40, 60, 80)",
        "SELECT COUNT(*), AVG(age) FROM t GROUP BY city",
    ):
        service.ask({"kind": "sentence", "text": text, "privacy": {"kind": "zcdp", "rho": 0.5}})
    service.ask({"kind": "sentence", "text": "count where x", "privacy": {"kind": "zcdp", "rho": 0.5}})
    price = {"privacy": {"kind": "zcdp", "rho": 0.1}}
    service.whole.access.saved.save("ana", "town", "older people", "count where age > 64", price)
    receipts = [entry.receipt.id for entry in service.backend.dataset.ledger.entries("ana")]
    client = service.client()
    kmeans = {"kind": "kmeans", "privacy": {"kind": "zcdp", "rho": 0.1}}
    heavy = {"kind": "count", "where": "age > 40", "privacy": {"kind": "zcdp", "rho": 400.0}}
    jobs = [created(client, body)["id"] for body in (kmeans, heavy)]
    while any(job.state in OPEN for job in service.whole.jobs.jobs_of("town", "ana")):
        time.sleep(0.01)
    places = [
        "/login",
        "/",
        "/docs",
        "/datasets/town",
        "/datasets/nowhere",
        *(f"/datasets/town/answers/{one}" for one in receipts),
        "/datasets/town/history",
        "/datasets/town/saved",
        "/datasets/town/jobs",
        *(f"/datasets/town/jobs/{one}" for one in jobs),
        "/datasets/town/curator/analysts/ana",
        "/datasets/town/curator/people",
        "/datasets/town/curator",
        "/ as an operator",
    ]
    enter(page, service, "ana")
    for path in places:
        if path == "/datasets/town/curator/analysts/ana":
            page.follow(".who button")
            enter(page, service, "cura")
            page.visit(service.url + path)
        elif path == "/datasets/town/curator":
            page.follow(".who button")
            enter(page, service, "cura")
            service.backend.attack(patience=600)
            page.follow("form[action='/datasets/town/curator/attack'] button")
            page.click(".confirm summary")
        elif path == "/ as an operator":
            service.client("opal")
            page.follow(".who button")
            enter(page, service, "opal")
            page.visit(f"{service.url}/")
        else:
            page.visit(service.url + path)
        page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        for width in (390, 768, 1440, 1280):
            page.size(width)
            assert page.run("document.documentElement.scrollWidth") <= width, (path, width)
            for dark in (False, True) if width in (390, 1280) else ():
                page.media(dark=dark)
                assert page.run(FAINT) == [], (path, width, dark)
                assert page.violations() == [], (path, width, dark)
        page.media()
        missing = 1 if path == "/datasets/nowhere" else 0
        assert len(page.complaints()) == missing, path


def test_the_search_for_faint_text_and_for_pages_that_are_too_wide_finds_them(
    page: Browser, shared_service: RunningService
) -> None:
    page.visit(f"{shared_service.url}/login")
    page.run(
        """(() => {
          const made = document.createElement("p");
          made.textContent = "hard to read";
          made.style.color = "#999";
          made.style.minWidth = "3000px";
          document.querySelector("main").append(made);
        })()"""
    )
    assert page.run(FAINT) == ["2.75 hard to read"]
    (broken,) = page.violations()
    assert broken.startswith("color-contrast")
    assert page.run("document.documentElement.scrollWidth") > 1440


def test_the_name_and_the_way_out_stay_beside_the_pages_of_a_curator(
    page: Browser, service: RunningService
) -> None:
    enter(page, service, "cura")
    page.visit(f"{service.url}/datasets/town/curator")
    words = "every person is protected; at most 3 rows of each are used"
    page.run(f"document.querySelector('.about .muted').textContent = {words!r}")
    middle = "(({top, bottom}) => (top + bottom) / 2)(document.querySelector('%s').getBoundingClientRect())"
    for width in (1280, 390):
        page.size(width)
        first = ".places" if width == 1280 else ".brand"
        assert abs(page.run(middle % first) - page.run(middle % ".who")) < 20
        right = page.run("document.querySelector('.who').getBoundingClientRect().right")
        assert width - 60 < right <= width
