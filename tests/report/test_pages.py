"""Both pages, for every odd table: one file, valid, readable by everybody, and only text from names."""

from __future__ import annotations

import base64
import hashlib
import inspect
import itertools
import math
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from discreet import Column, GaussianRelease, Schema
from discreet.report.folder._metadata import data_package
from discreet.report.pages import render
from discreet.report.pages._attacks import guess_table
from discreet.report.pages.render import statement_page, write_report
from discreet.report.statement.build import build_statement
from discreet.report.statement.documents import Tuning
from discreet.report.statement.table import TableSubject
from tests.report import samples
from tests.report.reading import Element, read_page

if TYPE_CHECKING:
    from discreet.report.findings import Findings
    from discreet.report.statement.documents import Statement

TEMPLATES = Path(render.__file__).parents[1] / "templates"
KINDS = ("report", "statement")


@cache
def sample(case: str) -> tuple[Statement, Findings]:
    return samples.CASES[case]()


@cache
def page(case: str, kind: str) -> str:
    statement, findings = sample(case)
    if kind == "report":
        return render._report_page(statement, findings)
    return statement_page(statement, None if findings.quality is None else findings.quality.measured)


@cache
def tree(case: str, kind: str) -> Element:
    return read_page(page(case, kind))


every_page = pytest.mark.parametrize(("case", "kind"), [(c, k) for c in samples.CASES for k in KINDS])


@every_page
def test_headings_are_in_order_and_ids_are_unique(case: str, kind: str) -> None:
    root = tree(case, kind)
    levels = [int(e.tag[1]) for e in root.all() if re.fullmatch("h[1-6]", e.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = [e.attributes["id"] for e in root.all() if "id" in e.attributes]
    assert len(set(ids)) == len(ids)
    referred = {e.attributes["href"][1:] for e in root.all("a")}
    for attribute in ("aria-labelledby", "aria-describedby", "for"):
        referred |= {i for e in root.all() for i in e.attributes.get(attribute, "").split()}
    assert referred <= set(ids)


@every_page
def test_tables_and_pictures_tell_what_they_show(case: str, kind: str) -> None:
    root = tree(case, kind)
    for table in root.all("table"):
        assert table.all("caption")[0].text
        assert all(th.attributes.get("scope") in ("col", "row") for th in table.all("th"))
        width = len(table.all("thead")[0].all("th"))
        for row in table.all("tbody")[0].all("tr"):
            assert len(row.all("th") + row.all("td")) == width
    for svg in root.all("svg"):
        assert svg.attributes["role"] == "img"
        assert svg.all("title")[0].text
        assert svg.all("desc")[0].text


@every_page
def test_a_page_asks_nobody_for_anything(case: str, kind: str) -> None:
    root = tree(case, kind)
    assert not root.all("link") + root.all("img") + root.all("iframe") + root.all("object") + root.all("form")
    loading = {"src", "srcset", "data", "action", "style", "xlink:href", "background", "poster"}
    for element in root.all():
        assert not loading & set(element.attributes)
        assert not any(name.startswith("on") for name in element.attributes)
        assert element.attributes.get("href", "#").startswith("#")
    style = root.all("style")[0].text
    assert "url(" not in style
    assert "@import" not in style
    assert "@font-face" not in style


@every_page
def test_the_policy_allows_the_page_s_own_style_and_script_and_nothing_else(case: str, kind: str) -> None:
    root = tree(case, kind)
    (meta,) = [m for m in root.all("meta") if m.attributes.get("http-equiv") == "Content-Security-Policy"]
    policy = dict(part.split(" ", 1) for part in meta.attributes["content"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["style-src"] == _hash("".join(root.all("style")[0].strings()))
    scripts = [s for s in root.all("script") if "type" not in s.attributes]
    assert len(scripts) == (kind == "report")
    assert policy["script-src"] == (_hash("".join(scripts[0].strings())) if scripts else "'none'")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@every_page
def test_no_number_that_is_none_and_no_empty_word_is_printed(case: str, kind: str) -> None:
    body = tree(case, kind).all("body")[0]
    text = " ".join(s for e in body.all() if e.tag != "script" for s in e.children if isinstance(s, str))
    assert not re.search(r"\b(nan|NaN|Infinity|undefined)\b|\bNone\b(?!\.)|\binf\b", text)
    assert not any(badge.text == "" for badge in body.all("span", "badge"))


@pytest.mark.parametrize("kind", KINDS)
def test_names_stay_text_whatever_they_hold(kind: str) -> None:
    root, text = tree("hostile", kind), page("hostile", kind)
    assert "<script>alert" not in text
    assert "\u202e" not in text
    assert "\x00" not in text
    assert "49" not in root.all("h1")[0].text
    names = {bdi.text for bdi in root.all("bdi")}
    assert {"<script>alert(1)</script>", "{{ 7 * 7 }}{% raw %}", "\\u202eevil\\u202c"} <= names
    assert not any(e.tag == "b" and e.text == "never" for e in root.all())


@pytest.mark.parametrize("kind", KINDS)
def test_of_hundreds_of_columns_those_with_the_same_noise_are_one_card(kind: str) -> None:
    statement, _ = sample("wide")
    cards = tree("wide", kind).one("columns").all("article", "column")
    alike = {(n.law_in_words, n.without, repr(n.floor)) for n in statement.numbers.columns}
    assert len(cards) == len(alike) < 10
    named = [name.text for card in cards for name in card.all("p", "muted")[0].all("bdi")[:-1]]
    assert sorted(named) == sorted(n.column for n in statement.numbers.columns)
    assert len(page("wide", kind)) < 1_500_000


def test_of_hundreds_of_different_columns_the_worst_thirty_are_shown_and_the_rest_folded() -> None:
    statement, findings = sample("wide")
    different = [n.model_copy(update={"law_in_words": n.column}) for n in statement.numbers.columns]
    numbers = statement.numbers.model_copy(update={"columns": different})
    text = render._report_page(statement.model_copy(update={"numbers": numbers}), findings)
    columns = read_page(text).one("columns")
    assert len(columns.all("article", "column")) == 30
    (folded,) = columns.all("details")
    assert folded.all("summary")[0].text.startswith("270 more columns")
    assert len(folded.all("p", "compact")) == 270


def test_the_report_keeps_the_order_of_its_sections() -> None:
    root = tree("census", "report")
    assert [s.attributes["id"] for s in root.all("section")] == [
        "attacks", "columns", "learning", "what-if", "data", "correlations", "statement", "schema",
        "composition", "reproduce", "limits", "words",
    ]  # fmt: skip
    assert "Internal: contains facts about real people." in root.all("p", "strip")[0].text


@pytest.mark.parametrize("kind", KINDS)
def test_each_protected_column_has_the_attack_first_and_then_its_floor(kind: str) -> None:
    statement, _ = sample("census")
    numbers = {n.column: n for n in statement.numbers.columns}
    cards = tree("census", kind).one("columns").all("article")
    seen = 0
    for card in cards:
        names = card.all("p", "muted") if "columns with" in card.all("h3")[0].text else card.all("h3")
        seen += max(1, len(names[0].all("bdi")) - 1)
        first = names[0].all("bdi")[-1].text
        *before, floor = (p.text for p in card.all("div", "column-text")[0].all("p"))
        assert floor == " ".join(numbers[first].sentence.split())
        if kind == "report":
            assert before[-1].startswith("On the real rows")
        marks = {e.attributes.get("class") for e in card.all("svg")[0].all()}
        assert {"mark-without", "mark-floor"} <= marks
        assert not card.all("span", "badge")
    assert seen == len(numbers)
    assert "± 9 years" in cards[0].text.replace("\u00a0", " ")


def test_the_public_page_has_no_attack_on_rows_or_made_up_records() -> None:
    assert list(inspect.signature(statement_page).parameters) == ["statement", "measured"]
    root = tree("census", "statement")
    assert "real rows" not in root.text
    for section in ("attacks", "what-if", "data", "quality"):
        assert not [e for e in root.all() if e.attributes.get("id") == section]


def test_the_statement_reads_the_same_on_both_pages() -> None:
    public = tree("census", "statement").one("promises")
    internal = tree("census", "report").one("statement")
    said = [e.text for e in public.all() if e.tag in ("p", "li", "dd", "td", "h3")]
    heard = {e.text for e in internal.all()}
    assert len(said) > 40
    assert [text for text in said if text not in heard] == []


def test_a_broken_floor_is_said_first_and_in_words() -> None:
    root = tree("broken", "report")
    assert root.all("div", "verdict")[0].attributes["class"] == "verdict bad"
    assert "is broken" in root.all("div", "verdict")[0].text
    assert root.all("span", "bad")[0].text == "broken"
    assert "the floor is broken" in root.one("columns").text
    assert not tree("one number", "report").all("span", "bad")


def test_the_invariant_release_shows_in_red_whom_it_gives_away() -> None:
    (exposure,) = tree("clinic", "report").all("article", "exposure")
    assert "bad" in exposure.attributes["class"].split()
    assert "98.2" in exposure.text
    assert "gives people away" in exposure.text
    (verdict,) = tree("clinic", "report").all("div", "verdict")
    assert verdict.attributes["class"] == "verdict bad"
    assert "559 of 569 people" in verdict.text


@pytest.mark.parametrize("kind", KINDS)
def test_a_seeded_release_says_so_in_red(kind: str) -> None:
    alerts = [p for p in tree("seeded", kind).all("p", "bad") if "Seeded" in p.text]
    assert len(alerts) == 1
    assert not [p for p in tree("census", kind).all("p", "bad") if "Seeded" in p.text]


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_without_a_promise_says_so(kind: str) -> None:
    assert "Nothing is promised about the people in this file." in tree("without floors", kind).text


def test_what_an_attacker_expects_has_no_interval_and_what_was_measured_has_one() -> None:
    _, findings = sample("census")
    measured = next(guess for guess in findings.guesses if guess["on"] == "prior") | {"on": "file"}
    expected = measured | {"lower": measured["error"], "upper": measured["error"]}
    for guess, shown in ((measured, True), (expected, False)):
        table = guess_table([guess], on="file")
        assert table is not None
        assert ("to\u00a0" in str(table.rows[0][3])) == shown


def test_the_slider_and_its_table_say_the_same() -> None:
    root = tree("census", "report")
    statement, findings = sample("census")
    rows = root.one("what-if-static").all("tbody")[0].all("tr")
    assert len(rows) == len(findings.what_if)
    assert [("(chosen)" in r.text) for r in rows].count(True) == 1
    chosen = next(r for r in rows if "(chosen)" in r.text)
    assert root.one("what-if-accuracy").text in chosen.text
    assert "tuning on private data" in root.one("what-if").text
    assert statement.numbers.columns[0].column in chosen.parent.parent.all("thead")[0].text  # type: ignore[union-attr]


@pytest.mark.slow
def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    code = (
        "import hashlib, sys; from tests.report import samples\n"
        "from discreet.report.pages import render as pages\n"
        "s, f = samples.census(); pages.write_report(sys.argv[1], s, f)\n"
        "print(hashlib.sha256(pages.statement_page(s).encode()).hexdigest())"
    )
    said = []
    for seed in ("1", "2"):
        target = tmp_path / seed
        done = subprocess.run(
            [sys.executable, "-c", code, str(target)],
            env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        said.append((done.stdout, target.read_bytes()))
    assert said[0] == said[1]


def test_the_report_is_written_over_an_older_one(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("x" * 10_000_000)
    statement, findings = sample("one number")
    write_report(target, statement, findings)
    assert target.read_text(encoding="utf-8") == page("one number", "report")


@pytest.mark.slow
def test_the_snippet_on_the_public_page_runs_and_corrects_for_the_noise(tmp_path: Path) -> None:
    import pandas as pd

    n = 6000
    schema = Schema(
        columns=[
            Column('we"ight', lower=0, upper=200, measure="kg"),
            Column("color", values=("it's red", "green", "blue"), closed=True),
        ]
    )
    weight = 70 + 10 * np.sin(np.arange(n))
    color = np.where(np.arange(n) % 10 < 7, "it's red", "green")
    method = GaussianRelease(scale=40.0, schema=schema, random_state=11)
    publication = method.publish(pd.DataFrame({'we"ight': weight, "color": color}), tmp_path / "data.parquet")
    statement = build_statement(
        TableSubject(publication, method),
        tuning=Tuning(on_private_rows="no", why="A test."),
        files={"data.parquet": "00" * 32},
    )
    (tmp_path / "datapackage.json").write_text(data_package(statement), encoding="utf-8")
    root = read_page(statement_page(statement))
    code = "".join(root.one("debias").strings())
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    mean, variance, share = (float(line.split()[-1]) for line in done.stdout.splitlines())
    # Five standard errors of each; the noise alone has a variance of 1600, which a raw variance would show.
    assert mean == pytest.approx(weight.mean(), abs=5 * 41.3 / math.sqrt(n))
    assert variance == pytest.approx(weight.var(), abs=5 * 1650 * math.sqrt(2 / n))
    keep = statement.numbers.columns[1].law["keep"]
    assert share == pytest.approx(0.7, abs=5 * 0.5 / math.sqrt(n) / (keep - (1 - keep) / 2))


def test_no_snippet_where_nothing_can_be_corrected() -> None:
    root = tree("clinic", "statement")
    assert not [e for e in root.all() if e.attributes.get("id") == "debias"]
    assert "without correcting for the noise" in root.one("learning").text


# Contrast, from the variables of the style sheet.

_TEXT_ON = [
    (text, ground)
    for text in ("--ink", "--muted", "--accent", "--ok", "--warn", "--bad")
    for ground in ("--paper", "--surface", "--sunk")
] + [
    ("--ink", "--warn-soft"), ("--warn", "--warn-soft"), ("--ink", "--bad-soft"), ("--bad", "--bad-soft"),
    ("--muted", "--bad-soft"), ("--ok", "--ok-soft"), ("--on-strip", "--strip"), ("--ink", "--accent-faint"),
    ("--on-pale", "--sunk"), *(("--on-pale", f"--{hue}-{k}") for hue in ("cold", "warm") for k in (1, 2, 3)),
    *(("--on-deep", f"--{hue}-{k}") for hue in ("cold", "warm") for k in (4, 5)),
]  # fmt: skip
_SHAPES_ON = [(shape, "--paper") for shape in ("--accent", "--bad", "--strong-line", "--ink")]


def _variables(scheme: str) -> dict[str, str]:
    style = (TEMPLATES / "style.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    found = dict(re.findall(r"(--[\w-]+):\s*(#[0-9a-f]{6});", blocks[0]))
    return (
        found | dict(re.findall(r"(--[\w-]+):\s*(#[0-9a-f]{6});", blocks[1])) if scheme == "dark" else found
    )


def _luminance(color: str) -> float:
    parts = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(a: str, b: str) -> float:
    light, dark = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_computed_as_the_guidelines_do() -> None:
    assert _contrast("#000000", "#ffffff") == pytest.approx(21)
    assert _contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_is_readable_in_both_schemes(scheme: str) -> None:
    colors = _variables(scheme)
    weak = {pair: _contrast(colors[pair[0]], colors[pair[1]]) for pair in _TEXT_ON}
    assert {pair: ratio for pair, ratio in weak.items() if ratio < 4.5} == {}
    shapes = {pair: _contrast(colors[pair[0]], colors[pair[1]]) for pair in _SHAPES_ON}
    assert {pair: ratio for pair, ratio in shapes.items() if ratio < 3} == {}


def test_templates_escape_what_they_print_and_refuse_to_print_nothing() -> None:
    environment = render._environment()
    assert environment.from_string("{{ x }}").render(x="<b>\u202e") == "&lt;b&gt;\\u202e"
    with pytest.raises(AssertionError, match="None"):
        environment.from_string("{{ x }}").render(x=None)
