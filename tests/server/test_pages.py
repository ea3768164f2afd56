"""The analyst's pages over plain HTTP, without a script: asking, answers, history."""

from __future__ import annotations

import csv
import datetime
import json
import math
import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from discreet.query import preview_query
from discreet.query.language.query import parse_query
from discreet.report.charts.bars import spending_steps
from discreet.schema import Column, Schema
from discreet.server.api.openapi import openapi_document, reference_page
from discreet.server.pages import history
from discreet.server.pages.answer import MOST_NUMBERS
from discreet.server.pages.columns import column_views, examples
from discreet.server.pages.curator import refusal_lines
from discreet.server.pages.page import asset_address
from tests.server.conftest import SCHEMA, running, write_table
from tests.server.markup import Element, Visitor, owes_nothing, read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.server.conftest import RunningService


def charges(service: RunningService, who: str = "ana") -> int:
    return service.backend.dataset.ledger.spent(who).charges


def big(page: Element) -> float:
    return float(page.one("p", class_="big").one("strong").text.replace(",", "").replace("\u2212", "-"))


# Asking.


def test_an_answer_is_a_page_that_can_be_loaded_again_without_asking_again(service: RunningService) -> None:
    visitor = Visitor(service)
    response = visitor.send(
        visitor.get("/datasets/town"), "/datasets/town/ask", do="ask", where="age > 40", amount="0.1"
    )
    place = response.headers["location"]
    pages = [visitor.get(place) for _ in range(3)]
    assert charges(service) == 1
    assert len({big(page) for page in pages}) == 1
    (entry,) = visitor.client.get("/v1/datasets/town/history?format=json").json()["entries"]
    assert big(pages[0]) == pytest.approx(entry["value"][0], abs=0.51)
    assert f"/datasets/town/answers/{entry['receipt']}" == place
    assert "asked before" not in pages[0].text


def test_an_answer_is_saved_as_a_table_of_groups_and_intervals_by_its_owner_alone(
    service: RunningService,
) -> None:
    asked = {"kind": "sentence", "text": "count by sex", "privacy": {"kind": "zcdp", "rho": 0.1}}
    answer = service.ask(asked).json()
    visitor = Visitor(service)
    page = visitor.get(f"/datasets/town/answers/{answer['receipts'][0]}")
    (link,) = [
        one for one in page.all("a") if one.text == "Download CSV" and "answers" in one.attributes["href"]
    ]
    saved = visitor.client.get(link.attributes["href"])
    assert saved.headers["content-disposition"] == 'attachment; filename="answer.csv"'
    head, *rows = csv.reader(saved.text.splitlines())
    assert head == ["sex", "statistic", "value", "lower", "upper", "unit"]
    assert [row[:1] for row in rows] == [cell["key"] for cell in answer["cells"]]
    for row, cell in zip(rows, answer["cells"], strict=True):
        assert [float(number) for number in row[2:5]] == [cell["value"], cell["lower"], cell["upper"]]
    chart = visitor.client.get(link.attributes["href"].replace(".csv", ".svg"))
    assert chart.headers["content-type"] == "image/svg+xml"
    assert chart.headers["content-disposition"] == 'attachment; filename="answer.svg"'
    assert {"f", "m", "other"} <= {text.text for text in read(chart.text).all("text")}
    for ending in ("csv", "svg"):
        address = link.attributes["href"].replace(".csv", f".{ending}")
        assert Visitor(service, "ben").client.get(address).status_code == 404
    assert visitor.client.get(link.attributes["href"].replace(".csv", ".exe")).status_code == 404
    assert charges(service) == 1


@pytest.mark.parametrize("by", ["sex, owner", "owner, sex"])
def test_one_statistic_of_two_columns_is_a_two_way_table(shared_service: RunningService, by: str) -> None:
    asked = {"kind": "sentence", "text": f"count by {by}", "privacy": {"kind": "zcdp", "rho": 0.01}}
    answer = shared_service.ask(asked).json()
    table = (
        Visitor(shared_service).get(f"/datasets/town/answers/{answer['receipts'][0]}").one(class_="several")
    )
    first, second = table.one("thead").all("tr")
    assert first.one("th").attributes["colspan"] == "2"
    assert first.one("th").text == "owner"
    assert [re.sub(r"\d.*", "", head.text) for head in second.all("th")] == ["sex", "no", "yes"]
    rows = list(table.one("tbody").all("tr"))
    assert [row.one("th").text for row in rows] == ["f", "m", "other"]
    shown = {
        (row.one("th").text, cell.attributes["data-label"]): float(cell.attributes["data-order"])
        for row in rows
        for cell in row.all("td")
    }
    # The column with fewer values goes across, whichever was named first.
    turn = 1 if by.startswith("sex") else -1
    assert shown == {tuple(cell["key"][::turn]): cell["value"] for cell in answer["cells"]}


def test_seven_values_go_down_and_not_across(shared_service: RunningService) -> None:
    text = "count by sex, age (10, 20, 30, 40, 50, 60)"
    asked = {"kind": "sentence", "text": text, "privacy": {"kind": "zcdp", "rho": 0.01}}
    answer = shared_service.ask(asked).json()
    page = Visitor(shared_service).get(f"/datasets/town/answers/{answer['receipts'][0]}")
    table = page.one(class_="several")
    assert next(table.one("thead").all("tr")).one("th").text == "sex"
    rows = list(table.one("tbody").all("tr"))
    shown = [[float(cell.attributes["data-order"]) for cell in row.all("td")] for row in rows]
    values = [cell["value"] for cell in answer["cells"]]
    assert shown == [values[i::7] for i in range(7)]
    assert [row.one("th").text for row in rows] == [cell["key"][1] for cell in answer["cells"][:7]]


@pytest.mark.parametrize(
    ("text", "keys", "headings"),
    [
        ("SELECT COUNT(*), AVG(age) FROM t GROUP BY sex, owner", ["sex", "owner"], ["count", "mean(age)"]),
        ("SELECT COUNT(*), AVG(age) FROM t", [], ["count", "mean(age)"]),
        # Too wide, or with gaps, for a two-way table.
        (
            "count by age (10, 20, 30, 40, 50, 60), income (1, 2, 3, 4, 5, 6)",
            ["age", "income"],
            ["count"],
        ),
        (
            "SELECT COUNT(*) AS n FROM t GROUP BY sex, owner ORDER BY n DESC LIMIT 5",
            ["sex", "owner"],
            ["count"],
        ),
    ],
)
def test_other_tables_have_a_row_for_each_group_and_a_column_for_each_statistic(
    shared_service: RunningService, text: str, keys: list[str], headings: list[str]
) -> None:
    asked = {"kind": "sentence", "text": text, "privacy": {"kind": "zcdp", "rho": 0.1}}
    answer = shared_service.ask(asked).json()
    table = (
        Visitor(shared_service).get(f"/datasets/town/answers/{answer['receipts'][0]}").one(class_="groups")
    )
    (head,) = table.one("thead").all("tr")
    assert [one.text.split()[0] for one in head.all("th")] == [
        *keys,
        *headings,
        *(["Interval"] if len(headings) == 1 else []),
    ]
    numbers = [
        ([one.text for one in row.all("th")], float(cell.attributes["data-order"]))
        for row in table.one("tbody").all("tr")
        for cell in row.all("td")
        if "data-order" in cell.attributes
    ]
    assert numbers == [(cell["key"], cell["value"]) for cell in answer["cells"]]
    # Every column of numbers has an axis with round numbers on it.
    for axis in (axes := list(table.all("svg", class_="cell-axis"))):
        assert len(list(axis.all("text"))) >= 2
    assert len(axes) == len(headings)


def test_the_notebook_cell_of_an_answer_runs_and_gets_it_for_free(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISCREET_TOKEN", service.tokens["ana"])
    visitor = Visitor(service)
    for page in (
        visitor.ask(verb="mean", of="income", by1="sex", amount="0.2"),
        read(visitor.send(visitor.get("/datasets/town"), "/datasets/town/ask", do="ask", where="").text),
    ):
        names: dict[str, Any] = {}
        exec(page.one(id="answer-python").text, names)
        names["table"].close()
        cells = json.loads(page.one(id="answer-json").text)["cells"]
        assert [cell.value for cell in names["answer"].cells] == [cell["value"] for cell in cells]
    assert charges(service) == 1


def test_an_answer_whose_price_is_not_found_has_a_notebook_cell_that_recalls_it(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISCREET_TOKEN", service.tokens["ana"])
    monkeypatch.setattr(history, "_price", lambda *_: None)
    page = Visitor(service).ask(by1="sex", amount="0.1")
    assert not list(page.all(id="answer-curl"))
    names: dict[str, Any] = {}
    exec(page.one(id="answer-python").text, names)
    names["table"].close()
    (answer,) = names["answers"]
    cells = json.loads(page.one(id="answer-json").text)["cells"]
    assert answer.value.tolist() == [cell["value"] for cell in cells]
    assert charges(service) == 1


def test_a_form_that_is_sent_twice_asks_once_and_says_so(service: RunningService) -> None:
    visitor = Visitor(service)
    page = visitor.get("/datasets/town")
    first, second = (
        visitor.send(page, "/datasets/town/ask", do="ask", where="age > 40").headers["location"] for _ in "ab"
    )
    assert charges(service) == 1
    assert second == first + "?again"
    assert "asked before: free" in visitor.get(second).text


def test_a_form_that_was_changed_since_asks_anew(service: RunningService) -> None:
    visitor = Visitor(service)
    page = visitor.get("/datasets/town")
    places = {
        visitor.send(page, "/datasets/town/ask", do="ask", where=f"age > {k}").headers["location"]
        for k in (30, 40)
    }
    assert charges(service) == len(places) == 2


@pytest.mark.parametrize("do", [{}, {"do": "price"}, {"do": "try"}, {"do": "nonsense"}])
def test_only_the_button_that_says_so_spends(service: RunningService, do: dict[str, str]) -> None:
    visitor = Visitor(service)
    response = visitor.send(visitor.get("/datasets/town"), "/datasets/town/ask", where="age > 40", **do)
    assert response.status_code == 200
    assert charges(service) == 0
    assert service.backend.dataset.ledger.spent().charges == 0
    # The Enter key presses the first button of the form.
    assert next(visitor.get("/datasets/town").one(id="ask-form").all("button")).attributes["value"] == "price"


def test_the_price_is_told_before_asking_in_the_unit_and_as_a_share(shared_service: RunningService) -> None:
    visitor = Visitor(shared_service)
    page = read(
        visitor.send(
            visitor.get("/datasets/town"),
            "/datasets/town/ask",
            do="price",
            verb="sum",
            of="income",
            amount="0.05",
        ).text
    )
    told = page.one(id="price").text
    assert math.isclose(1.96 * 100_000 / math.sqrt(2 * 0.05), 620_000, rel_tol=1e-3)
    assert "± 620,000" in told
    assert "EUR (95 %)" in told
    assert "costs 1.0\u00a0% of your budget" in told
    assert "Ask: costs 1.0\u00a0%" in page.one(id="ask-button").text


def test_the_price_of_a_quantile_tells_by_how_many_rows_it_may_be_off(shared_service: RunningService) -> None:
    visitor = Visitor(shared_service)
    for asked, shown in (
        ("median(age)", "± "),
        ("median(age), count where sex = 'f'", "median(age) ± "),
    ):
        fields = {"do": "price", "source": "sql", "sql": asked, "amount": "0.05"}
        told = read(visitor.send(visitor.get("/datasets/town"), "/datasets/town/ask", **fields).text)
        assert re.search(rf"{re.escape(shown)}[\d.,]+\s+rows in rank", told.one(id="price").text), asked


def test_trying_shows_noise_on_rows_about_nobody_and_says_so(service: RunningService) -> None:
    visitor = Visitor(service)
    response = visitor.send(
        visitor.get("/datasets/town"), "/datasets/town/ask", do="try", verb="mean", of="age", amount="1"
    )
    card = read(response.text).one("section", class_="answer")
    assert "dummy data" in card.text.lower()
    assert "Not an answer" in card.text
    assert "Receipt" not in card.text
    # Ages are made up between 0 and 120, and are below 101 in the table: the mean tells which was asked.
    assert abs(big(card) - 60) < 3
    assert charges(service) == 0


def test_pages_of_a_table_with_ids_say_how_many_rows_of_a_person_are_used(tmp_path: Path) -> None:
    write_table(tmp_path)
    lines = (tmp_path / "town.csv").read_text(encoding="utf-8").splitlines()
    with_ids = ["who," + lines[0], *(f"{i // 3},{line}" for i, line in enumerate(lines[1:]))]
    (tmp_path / "town.csv").write_text("\n".join(with_ids) + "\n", encoding="utf-8")
    schema = replace(
        SCHEMA, columns=[Column("who", role="id"), *SCHEMA.columns], id_column="who", max_rows_per_unit=2
    )
    (tmp_path / "town.schema.yaml").write_text(schema.to_yaml(), encoding="utf-8")
    with running(tmp_path) as service:
        visitor = Visitor(service)
        page = visitor.get("/datasets/town")
        assert "at most 2 rows of each are used" in page.text
        tried = visitor.send(page, "/datasets/town/ask", do="try", verb="mean", of="age", amount="1")
        assert "Not an answer" in read(tried.text).one("section", class_="answer").text
        assert charges(service) == 0


def test_the_sentence_and_the_sql_are_the_same_question(service: RunningService) -> None:
    visitor = Visitor(service)
    page = visitor.get("/datasets/town")
    fields = visitor.fill(page, "/datasets/town/ask", verb="mean", of="income", where="sex = 'f'", by1="age",
                          edges1="30, 60", by2="city")  # fmt: skip
    told = visitor.client.post("/datasets/town/price", data=fields).json()
    assert told["errors"] == {}
    back = visitor.client.post(
        "/datasets/town/price", data={**fields, "source": "sql", "sql": told["sql"], "verb": "count"}
    )
    assert back.json()["question"] == told["question"]
    again = visitor.client.post(
        "/datasets/town/price", data={**fields, **back.json()["parts"], "source": "sentence"}
    )
    assert (
        again.json()["question"]
        == told["question"]
        == ("mean(income) where sex IN ('f') by age (30, 60), city")
    )
    assert charges(service) == 0


WRONG: list[tuple[dict[str, str], str, str]] = [
    ({"where": "age > (SELECT 3)"}, "where", "sub-query"),
    ({"where": "age + 1"}, "where", "not a condition"),
    ({"where": "agee > 3"}, "where", "age"),
    ({"verb": "sum", "of": ""}, "of", "Choose a column, or enter an expression"),
    ({"verb": "sum", "of": "income /"}, "of", "Not understood: nothing after /"),
    ({"verb": "drop"}, "verb", "Choose"),
    ({"by1": "nobody"}, "by1", "no such column"),
    ({"by1": "age", "edges1": "60, 30"}, "edges1", "increasing"),
    ({"by1": "sex", "by2": "age", "edges2": ""}, "edges2", "increasing"),
    ({"amount": "much"}, "amount", "above 0"),
    ({"amount": "-1"}, "amount", "above 0"),
    ({"amount": "nan"}, "amount", "above 0"),
    ({"exact": "margin", "verb": "mean", "of": "age"}, "amount", "number of rows"),
    ({"source": "sql", "sql": "mean(age)", "exact": "margin"}, "amount", "one count or one sum"),
    ({"source": "sql", "sql": ""}, "sql", "Enter a question"),
    (
        {"source": "sql", "sql": "SELECT age FROM t"},
        "sql",
        "Not understood: a column that is not in GROUP BY, age",
    ),
    ({"source": "sql", "sql": "SELECT COUNT(*) FROM t HAVING COUNT(*) > 3"}, "sql", "HAVING"),
]


def test_a_price_that_no_request_may_have_is_told_in_the_words_of_the_form(
    shared_service: RunningService,
) -> None:
    visitor = Visitor(shared_service)
    sent = visitor.send(visitor.get("/datasets/town"), "/datasets/town/ask", do="ask", amount="1e9")
    assert read(sent.text).one(id="amount-problem").text == "It must be at most 1000000."
    place = "/datasets/town/jobs"
    sent = visitor.send(visitor.get(place), place, model="kmeans", amount="1e9")
    assert read(sent.text).one(id="model-amount-problem").text == "It must be at most 1000000."


def test_a_free_answer_has_no_heading_for_receipts(shared_service: RunningService) -> None:
    visitor = Visitor(shared_service)
    sent = visitor.send(visitor.get("/datasets/town"), "/datasets/town/ask", do="ask")
    headings = [one.text for one in read(sent.text).one("dl", class_="receipt").all("dt")]
    assert headings == ["Cost", "Budget"]


@pytest.mark.parametrize(("changed", "field", "words"), WRONG)
def test_a_mistake_is_told_beside_its_field_and_costs_nothing(
    shared_service: RunningService, changed: dict[str, str], field: str, words: str
) -> None:
    visitor, before = Visitor(shared_service), charges(shared_service)
    response = visitor.send(visitor.get("/datasets/town"), "/datasets/town/ask", do="ask", **changed)
    page = read(response.text)
    assert response.status_code == 422
    shown = [p.attributes["id"] for p in page.all("p", class_="problem") if "hidden" not in p.attributes]
    assert shown == [f"{field}-problem"]
    problem = page.one(id=f"{field}-problem")
    assert words in problem.text
    assert problem.one("span", class_="nearest").text.strip()
    assert page.one(id=field).attributes["aria-invalid"] == "true"
    owes_nothing(page)
    for name, typed in changed.items():
        if name in ("where", "of", "amount", "edges1"):
            assert page.one(id=name).attributes["value"] == typed
    assert charges(shared_service) == before
    live = visitor.client.post(
        "/datasets/town/price",
        data=visitor.fill(visitor.get("/datasets/town"), "/datasets/town/ask", **changed),
    ).json()
    assert list(live["errors"]) == [field]


def test_what_is_too_dear_is_told_by_the_smaller_of_both_limits(start: Callable[..., RunningService]) -> None:
    service = start(limit={"rho": 1.0}, analyst_limit={"rho": 0.3})
    visitor = Visitor(service)
    response = visitor.send(
        visitor.get("/datasets/town"),
        "/datasets/town/ask",
        do="ask",
        where="age > 40",
        exact="rho",
        amount="2",
    )
    assert response.status_code == 409
    problem = read(response.text).one(id="amount-problem").text
    assert problem.startswith(
        "Not enough budget for 'ana': this takes 666.7\u00a0% of it and 100.0\u00a0% is left."
    )
    assert "Nothing was charged. At most ρ = 0.3 would fit into what you have left." in problem
    # The way out is in the words of the form, and works.
    too_near = {"where": "age > 40", "exact": "margin", "amount": "0.5"}
    response = visitor.send(visitor.get("/datasets/town"), "/datasets/town/ask", do="ask", **too_near)
    found = re.search(
        r"A margin of error of ±.([\d.]+) or more", read(response.text).one(id="amount-problem").text
    )
    assert found is not None
    assert charges(service) == 0
    response = visitor.send(
        visitor.get("/datasets/town"), "/datasets/town/ask", do="ask", **{**too_near, "amount": found[1]}
    )
    assert response.status_code != 409
    assert charges(service) == 1


def test_a_stopped_service_says_so_above_the_form(service: RunningService) -> None:
    visitor = Visitor(service)
    page = visitor.get("/datasets/town")
    service.backend.access.stop("town", "cura")
    response = visitor.send(page, "/datasets/town/ask", do="ask", where="age > 40")
    assert response.status_code == 423
    told = read(response.text)
    assert "stopped" in told.one(id="form-problem").text
    assert any("Stopped:" in strip.text for strip in told.all("p", class_="strip"))
    assert charges(service) == 0


# Answers.

QUESTIONS: list[dict[str, str]] = [
    {"where": "age > 40", "exact": "rho", "amount": "0.013"},
    {"where": "age > 40", "exact": "mu", "amount": "0.17"},
    {"where": "age > 40", "exact": "margin", "amount": "33"},
    {"verb": "sum", "of": "income", "by1": "sex", "exact": "margin", "amount": "1e6"},
    {"verb": "mean", "of": "age", "exact": "rho", "amount": "0.02"},
    {"verb": "mean", "of": "income", "where": "sex = 'f'", "exact": "rho", "amount": "0.07"},
    {"verb": "mean", "of": "income", "by1": "city", "exact": "rho", "amount": "0.031"},
    {"verb": "mean", "of": "income", "by1": "age", "edges1": "30, 60", "exact": "mu", "amount": "0.3"},
    {"by1": "sex", "by2": "city", "exact": "rho", "amount": "0.011"},
]


@pytest.mark.parametrize("asked", QUESTIONS)
def test_the_command_on_the_card_gets_the_same_answer_for_free(
    shared_service: RunningService, asked: dict[str, str]
) -> None:
    visitor = Visitor(shared_service)
    page = visitor.ask(**asked)
    before = charges(shared_service)
    shown = json.loads(page.one(id="answer-json").text)
    words = shlex.split(page.one(id="answer-curl").text.replace("\\\n", " "))
    assert words[:3] == ["curl", "-sS", f"{shared_service.url}/v1/datasets/town/query"]
    told = shared_service.ask(json.loads(words[words.index("-d") + 1])).json()
    assert told["cached"] is True
    assert charges(shared_service) == before
    assert told["cells"] == shown["cells"]
    assert told["receipts"] == shown["receipts"]
    compile(page.one(id="answer-python").text, "card", "exec")


def test_a_command_that_might_be_charged_again_is_not_shown(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = {"kind": "approx-dp", "epsilon": 0.123456789012, "delta": 1.23456789e-6}
    service.ask({"kind": "mean", "expression": "income", "by": ["sex"], "privacy": odd})
    visitor = Visitor(service)
    (link,) = visitor.get("/datasets/town/history").one("table", class_="stack").all("a")
    page = visitor.get(link.attributes["href"])
    words = shlex.split(page.one(id="answer-curl").text.replace("\\\n", " "))
    assert service.ask(json.loads(words[words.index("-d") + 1])).json()["cached"]
    assert charges(service) == 1
    # The price is another one now, as if the other law of noise took less of the budget.
    quote = preview_query
    monkeypatch.setattr(history, "preview_query", lambda *of, **how: replace(quote(*of, **how), cost=()))
    page = visitor.get(link.attributes["href"])
    assert page.one(id="answer-json")
    assert not list(page.all(id="answer-curl"))
    assert "curl" not in page.one("details", class_="again").text


def test_refining_shows_both_intervals_and_is_found_again(service: RunningService) -> None:
    visitor = Visitor(service)
    first = visitor.ask(where="age > 40", exact="rho", amount="0.02")
    response = visitor.send(first, "/datasets/town/refine")
    page = visitor.get(response.headers["location"])
    assert charges(service) == 2
    before, now = json.loads(first.one(id="answer-json").text), json.loads(page.one(id="answer-json").text)
    assert now["cells"][0]["sd"] == pytest.approx(before["cells"][0]["sd"] / math.sqrt(2))
    bar = page.one("section", class_="answer").one("svg", class_="interval-bar")
    assert [text.text for text in bar.all("text")][:2] == ["before", "now"]
    assert "refined" in page.one("p", class_="kicker").text
    assert len(list(page.one("dl", class_="receipt").all("code"))) == 2
    assert "ρ = 0.04 including the answers it refines" in page.one("dl", class_="receipt").text
    again = visitor.send(first, "/datasets/town/refine")
    assert again.headers["location"] == response.headers["location"] + "?again"
    assert charges(service) == 2
    words = shlex.split(page.one(id="answer-curl").text.replace("\\\n", " "))
    assert service.ask(json.loads(words[words.index("-d") + 1])).json()["cells"] == now["cells"]
    assert charges(service) == 2


def test_groups_that_noise_hides_are_named_and_faint(service: RunningService) -> None:
    page = Visitor(service).ask(by1="age", edges1="30, 119", exact="margin", amount="49.9")
    card = page.one("section", class_="answer")
    rows = list(card.one("tbody").all("tr"))
    assert len(rows) == 3
    assert "faint" not in rows[0].attributes.get("class", "")
    assert "faint" in rows[2].attributes["class"]
    assert "groups below about 100 rows" in card.one("p", class_="note").text
    assert "including empty ones" in card.one("caption").text


def test_an_average_by_groups_is_one_line_and_one_page(service: RunningService) -> None:
    visitor = Visitor(service)
    visitor.ask(verb="mean", of="income", by1="sex", exact="rho", amount="0.5")
    visitor.ask(where="age > 40")
    page = visitor.get("/datasets/town/history")
    links = list(page.one("table", class_="stack").all("a"))
    assert [link.text for link in links] == ["count where 40 < age", "mean(income) by sex"]
    card = visitor.get(links[1].attributes["href"]).one("section", class_="answer")
    assert [row.one("th").text for row in card.one("tbody").all("tr")] == ["f", "m", "other"]
    assert "ρ = 0.5" in page.one("table", class_="stack").text
    other, receipt = (link.attributes["href"].removeprefix("/datasets/town/answers/") for link in links)
    for wrong in ([receipt, receipt], [other, receipt], ["nope-1"], [receipt, "nope-1"]):
        assert visitor.client.get(f"/datasets/town/answers/{','.join(wrong)}").status_code == 404


def test_what_follows_from_what_is_public_is_answered_and_charged_nothing(service: RunningService) -> None:
    visitor = Visitor(service)
    response = visitor.send(visitor.get("/datasets/town"), "/datasets/town/ask", do="ask", where="")
    page = read(response.text)
    assert response.status_code == 200
    assert big(page) == 2000
    assert "This is exact" in page.text
    # It has no page of its own, so its files are in their links.
    files = [one.attributes["href"] for one in page.one("p", class_="files").all("a")]
    assert [file.partition(",")[0] for file in files] == [
        "data:text/csv; charset=utf-8",
        "data:image/svg+xml",
    ]
    assert list(csv.reader(unquote(files[0]).partition(",")[2].splitlines())) == [
        ["statistic", "value", "lower", "upper", "unit"],
        ["count", "2000.0", "2000.0", "2000.0", "rows"],
    ]
    assert charges(service) == 0


def test_the_budget_counts_questions_like_the_last_one(start: Callable[..., RunningService]) -> None:
    service = start(limit={"rho": 1.0}, analyst_limit={"rho": 0.5})
    visitor = Visitor(service)
    assert "not asked yet" in visitor.get("/datasets/town").one("p", class_="budget-lead").text
    page = visitor.ask(where="age > 40", exact="rho", amount="0.1")
    lead = page.one("p", class_="budget-lead").text
    assert "Enough for about 4 more questions like your last one." in lead
    assert lead.startswith("80.0\u00a0% of your budget is left.")
    listed = page.one("details", class_="amounts").text
    for words in ("ρ = 0.1", "ρ = 0.5", "ρ = 0.4", "ρ = 1", "ρ = 0.9", "pool what they learn"):
        assert words in listed
    Visitor(service, "ben").ask(where="age > 41", exact="rho", amount="0.5")
    visitor.ask(where="age > 42", exact="rho", amount="0.3")
    # What all have left, 0.1, now pays for less than what she has left herself.
    assert "too little for another" in visitor.get("/datasets/town").one("p", class_="budget-lead").text


@pytest.mark.parametrize("limit", [{"epsilon": 1.0}, {"epsilon": 1.0, "delta": 1e-6}, {"mu": 0.5}])
def test_every_kind_of_limit_has_a_price_to_begin_with(
    start: Callable[..., RunningService], limit: dict[str, Any]
) -> None:
    service = start(limit=limit, analyst_limit=None)
    visitor = Visitor(service)
    response = visitor.send(visitor.get("/datasets/town"), "/datasets/town/ask", do="ask", where="age > 40")
    assert response.status_code == 303, read(response.text).one("form", id="ask-form").text
    page = visitor.get(response.headers["location"])
    assert "of the shared budget is left" in page.one("p", class_="budget-lead").text
    more = re.search(r"about (\d+) more questions", page.one("p", class_="budget-lead").text)
    assert more is not None
    assert 90 <= int(more[1]) <= 110
    owes_nothing(page)


def test_a_table_whose_size_is_private_is_counted_with_noise(tmp_path: Path) -> None:
    write_table(tmp_path)
    private = replace(SCHEMA, neighbors="add-remove", row_count="private")
    (tmp_path / "town.schema.yaml").write_text(private.to_yaml(), encoding="utf-8")
    with running(tmp_path) as service:
        visitor = Visitor(service)
        page = visitor.get("/datasets/town")
        assert "not public" in page.one("aside").text
        assert "2,000" not in page.text
        answer = visitor.ask(where="", exact="rho", amount="0.01")
        assert abs(big(answer) - 2000) < 100
        assert charges(service) == 1
        mean = visitor.send(
            visitor.get("/datasets/town"),
            "/datasets/town/ask",
            do="price",
            verb="mean",
            of="age",
            amount="0.5",
        )
        assert "depends on the number of rows" in read(mean.text).one(id="price").text
        owes_nothing(visitor.ask(verb="mean", of="age", exact="rho", amount="0.5"))


def test_what_programs_asked_is_in_the_history_and_survives_another_schema(
    start: Callable[..., RunningService], tmp_path: Path
) -> None:
    price = {"privacy": {"kind": "zcdp", "rho": 0.1}}
    service = start()
    for asked in (
        {"kind": "kmeans", "parameters": {"n_clusters": 2}},
        {"kind": "statistical", "question": {"kind": "sums", "expressions": ["age"]}},
        {"kind": "histogram", "columns": ["sex", "city"]},
        {"kind": "sum", "expression": "income"},
    ):
        assert service.ask({**asked, **price}).status_code == 200
    visitor = Visitor(service)
    page = visitor.get("/datasets/town/history")
    owes_nothing(page)
    assert [link.text for link in page.one("table", class_="stack").all("a")] == [
        "sum(income)",
        "count by sex, city",
    ]
    assert "for a model or program: cluster sums, 4 times" in page.text
    # Without one of its columns, and after a new start.
    fewer = replace(SCHEMA, columns=[column for column in SCHEMA.columns if column.name != "income"])
    (tmp_path / "town.schema.yaml").write_text(fewer.to_yaml(), encoding="utf-8")
    later = Visitor(start(service.tokens))
    told = later.get("/datasets/town/history")
    assert "sum(income)" in told.text
    assert not list(told.one("table", class_="stack").all("a"))


# What is whose.


def test_somebody_elses_answer_is_not_told_from_one_that_never_was(service: RunningService) -> None:
    ana, ben = Visitor(service), Visitor(service, "ben")
    response = ana.send(
        ana.get("/datasets/town"), "/datasets/town/ask", do="ask", where="age > 40", amount="0.1"
    )
    place = response.headers["location"]
    never = place[:-1] + "99"
    theirs, nobodys = (ben.client.get(path) for path in (place, never))
    assert theirs.status_code == nobodys.status_code == 404
    assert theirs.text == nobodys.text
    refused = ben.client.post(
        "/datasets/town/refine",
        data={"csrf": ben.csrf(), "receipts": place.rpartition("/")[2], "exact": "rho", "amount": "0.1"},
    )
    assert refused.status_code == 404
    assert charges(service, "ben") == 0
    assert (
        "40 &lt; age"
        not in ben.client.get("/datasets/town").text + ben.client.get("/datasets/town/history").text
    )
    cura = Visitor(service, "cura")
    assert cura.client.get(place).status_code == 404
    assert "40 < age" not in cura.get("/datasets/town/history").text


def test_what_paid_sums_answer_too_is_shown_as_it_was_asked(service: RunningService) -> None:
    visitor, price = Visitor(service), {"source": "sql", "exact": "rho", "amount": "0.1"}
    visitor.ask(sql="SELECT MEDIAN(age) FROM t", **price)
    before = charges(service)
    response = visitor.send(
        visitor.get("/datasets/town"),
        "/datasets/town/ask",
        do="ask",
        sql="quantile(age, 0.1), quantile(age, 0.9)",
        **price,
    )
    page = visitor.get(response.headers["location"])
    told = json.loads(page.one(id="answer-json").text)
    assert [column["name"] for column in told["columns"]] == ["quantile(age, 0.1)", "quantile(age, 0.9)"]
    assert "asked before: free" in page.text
    assert charges(service) == before
    # Refined it stays what was asked.
    finer = visitor.send(page, "/datasets/town/refine").headers["location"]
    told = json.loads(visitor.get(finer).one(id="answer-json").text)
    assert [column["name"] for column in told["columns"]] == ["quantile(age, 0.1)", "quantile(age, 0.9)"]
    assert charges(service) == before + 1
    # Other sums, and what cannot be read, are not answered by that receipt.
    place = response.headers["location"].partition("?")[0]
    for other in ("median(income)", "mean(age)", "nothing"):
        assert visitor.client.get(place, params={"question": other}).status_code == 404


# Sums and differences.


def test_answers_are_added_up_with_the_interval_of_their_noises(service: RunningService) -> None:
    visitor = Visitor(service)
    told = json.loads(visitor.ask(by1="sex", exact="margin", amount="40").one(id="answer-json").text)
    women, men, _ = told["cells"]
    receipt = told["receipts"][0]
    page = visitor.get(f"/datasets/town/history?term1={receipt}:0&sign2=-&term2={receipt}:1")
    words = page.one("div", class_="price").text.replace(",", "")
    difference, margin = women["value"] - men["value"], 40 * math.sqrt(2)
    between = f"between {math.floor(difference - margin)} and {math.ceil(difference + margin)}"
    assert f"= {difference:.0f} rows {between}: different from zero at 95 %." in words
    owes_nothing(page)
    same = visitor.get(f"/datasets/town/history?term1={receipt}:0&sign2=-&term2={receipt}:0")
    assert "the same noise" in same.one("div", class_="price").text
    visitor.ask(verb="sum", of="income", exact="margin", amount="1e6")
    income = json.loads(visitor.client.get("/v1/datasets/town/history").text)["entries"][-1]["receipt"]
    mixed = visitor.get(f"/datasets/town/history?term1={receipt}:0&term2={income}:0")
    assert "one unit" in mixed.one("p", class_="note", role="alert").text
    assert charges(service) == 2


# What every page owes.


def test_every_page_keeps_the_policy_and_speaks_to_everybody(service: RunningService) -> None:
    visitor = Visitor(service)
    owes_nothing(visitor.get("/login"))
    owes_nothing(visitor.get("/datasets/town"))
    owes_nothing(visitor.ask(where="age > 40", amount="0.1"))
    owes_nothing(visitor.ask(by1="sex", by2="city", amount="0.1"))
    owes_nothing(visitor.get("/datasets/town/history"))
    owes_nothing(visitor.get("/datasets/town/answers/a-1", 404))
    owes_nothing(visitor.get("/datasets/town/curator", 403))


@pytest.mark.parametrize("name", ["style.css", "pages.css", "pages.js", "icon.svg"])
def test_what_pages_bring_with_them_is_served_with_its_type(
    shared_service: RunningService, name: str
) -> None:
    client = shared_service.client(None)
    response = client.get(asset_address(name))
    assert response.status_code == 200
    kinds = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    assert response.headers["content-type"].startswith(kinds[name.rpartition(".")[2]])
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "immutable" in response.headers["cache-control"]  # its address changes with its content
    assert client.get(f"/static/{name}?v=0").headers["cache-control"] == "no-store"
    assert "http://" not in response.text.replace("http://www.w3.org", "")
    for wrong in ("/static/../config.py", "/static/%2e%2e%2fvisit.py", "/static/visit.py"):
        assert client.get(wrong).status_code == 404


@pytest.mark.parametrize("seed", [1, None])
def test_known_noise_is_said_in_red_on_every_page(
    start: Callable[..., RunningService], seed: int | None
) -> None:
    service = start(seed=seed)
    visitor, door = Visitor(service), Visitor(service, None)
    for page in (door.get("/login"), visitor.get("/datasets/town"), visitor.get("/datasets/town/history")):
        told = [strip for strip in page.all("p", class_="strip") if "known seed" in strip.text]
        assert len(told) == (seed is not None)


COUNT: dict[str, Any] = {"kind": "count", "where": "age > 40", "privacy": {"kind": "zcdp", "rho": 0.5}}


ADMITTED = Schema(
    columns=[
        Column("admitted", lower=datetime.date(2020, 1, 1), upper=datetime.date(2024, 12, 31)),
        Column("ward", values=("north", "south")),
        Column("stays", type="integer", lower=0, upper=9),
    ],
    dataset="clinic",
)


def test_a_name_with_a_slash_has_its_page_too(service: RunningService) -> None:
    service.tokens["a/b"] = service.backend.create_token("test", "a/b")
    service.ask(COUNT, "a/b")
    curator = Visitor(service, "cura")
    links = re.findall(
        r'href="(/datasets/town/curator/analysts/a[^"]*b)"', curator.client.get("/datasets/town/curator").text
    )
    assert len(links) == 1
    page = curator.client.get(links[0])
    assert page.status_code == 200
    assert "count where" in page.text


def test_an_average_of_dates_is_in_days() -> None:
    assert parse_query("mean(admitted)", ADMITTED).statistics[0].measure == "days"
    assert parse_query("mean(stays)", ADMITTED).statistics[0].measure is None


def test_amounts_of_the_picture_of_spending_are_above_what_would_hide_them() -> None:
    drawn = str(
        spending_steps("k", [("2026-01-01T10:00:00Z", 1.0), ("2026-01-02T10:00:00Z", 4.0)], None, "ρ")
    )
    area = drawn.index('class="area"')
    ticks = [place for place in range(len(drawn)) if drawn.startswith('class="tick"', place)]
    assert len(ticks) > 3
    assert min(ticks) > area


def test_a_long_question_does_not_fill_the_curators_page() -> None:
    refused = {"when": "2026-01-01T10:00:00Z", "who": "eve", "code": "refused"}
    long, none = refusal_lines([{**refused, "asked": "(" * 500}, {**refused, "asked": ""}])
    assert len(long["what"]) == 160
    assert long["what"].endswith("…")
    assert none["what"] == "not readable"


def test_wide_tables_of_the_reference_scroll_in_their_frame_and_not_the_page() -> None:
    page = reference_page(openapi_document())
    for table in re.findall(r"<table.*?</caption>", page, re.DOTALL):
        if "Codes with their" not in table:
            assert f'tabindex="0">\n{table}' in page
    assert page.count("<table") > 20
    assert page.count("<div") == page.count("</div>")


def test_the_reference_says_of_what_kinds_a_body_may_be() -> None:
    page = reference_page(openapi_document())
    assert "One of LimitAllocationRequest, GroupAllocationRequest." in page
    assert "One of CountRequest, SumRequest, MeanRequest," in page


def test_columns_say_what_their_lists_show() -> None:
    views = {view.name: view for view in column_views(ADMITTED)}
    assert views["admitted"].range == "2020-01-01 to 2024-12-31"
    assert views["ward"].range.startswith("one of 2 values")
    assert ("or other" in views["ward"].range) == (len(views["ward"].levels) == 3)
    assert SCHEMA.column("sex").values == ("f", "m")


def test_a_long_answer_is_shown_in_part_and_its_files_have_all_of_it(service: RunningService) -> None:
    visitor = Visitor(service)
    edges = ", ".join(map(str, range(1, 100)))
    page = visitor.ask(source="sql", sql=f"count by age ({edges}), city", amount="0.1")
    owes_nothing(page)
    assert len(list(page.one("table", class_="groups").one("tbody").all("tr"))) == MOST_NUMBERS
    assert not list(page.all("pre", id="answer-json"))
    assert page.one("pre", id="answer-python").text
    (link,) = (a for a in page.all("a") if a.text == "Download CSV")
    rows = visitor.client.get(link.attributes["href"]).text.splitlines()
    assert len(rows) == 1 + 100 * 5
    assert f"These are the first {MOST_NUMBERS} of 500 numbers" in page.text
    # What there is to know before reading so many rows stands above them.
    above = page.one("section", class_="answer").one("p", class_="note")
    assert next(above.all("a")).attributes["href"] == link.attributes["href"]
    assert page.text.count("Noise makes groups below about") == above.text.count("Noise makes groups") == 1
    # What is sorted is all of it, and not the part that is shown; that is free.
    spent = charges(service)
    values = [float(line.split(",")[3]) for line in rows[1:]]
    for words, turn in (("largest count first", -1), ("smallest count first", 1)):
        (link,) = (a for a in page.all("a") if a.text == words)
        ordered = visitor.get(link.attributes["href"])
        table = ordered.one("table", class_="groups").one("tbody")
        shown = [
            float(cell.attributes["data-order"])
            for cell in table.all("td", class_="number")
            if "data-order" in cell.attributes
        ]
        assert shown == sorted(values, key=lambda value: turn * value)[:MOST_NUMBERS]
        assert words in ordered.text
    assert charges(service) == spent


def test_every_statistic_of_a_long_answer_can_be_sorted_by(service: RunningService) -> None:
    visitor = Visitor(service)
    edges = ", ".join(map(str, range(1, 100)))
    page = visitor.ask(
        source="sql", sql=f"mean(age), count by age ({edges}), city", exact="rho", amount="0.1"
    )
    links = [a for a in page.all("a") if a.text.endswith(" first") and "est " in a.text]
    assert len(links) == 4
    for link in links:
        assert "order by" in visitor.get(link.attributes["href"]).one(id="answer-title").text


def test_a_question_that_depends_on_no_column_of_a_hidden_number_of_rows_is_refused_before_it_is_asked(
    start: Callable[..., RunningService], tmp_path: Path
) -> None:
    write_table(tmp_path)
    schema = replace(SCHEMA, row_count="private")
    (tmp_path / "town.schema.yaml").write_text(schema.to_yaml(), encoding="utf-8")
    service = start()
    visitor = Visitor(service)
    page = visitor.send(visitor.get("/datasets/town"), "/datasets/town/ask", do="price")
    assert page.status_code == 422
    service.backend.dataset._count_rows()  # which no caller asks for, to see whether the table answers
    assert "the number of rows is not public" in read(page.text).one(id="form-problem").text
    assert "Exact" not in read(page.text).one(id="price").text


@pytest.mark.parametrize(
    ("amount", "problem"),
    [("0,05", "Give a number above 0."), ("1,5", "Give a number above 0."), ("1,000", "")],
)
def test_a_decimal_comma_is_refused_and_not_left_out(
    shared_service: RunningService, amount: str, problem: str
) -> None:
    visitor = Visitor(shared_service)
    fields = {"do": "price", "source": "sql", "sql": "count where age > 3", "amount": amount}
    page = read(visitor.send(visitor.get("/datasets/town"), "/datasets/town/ask", **fields).text)
    assert problem in page.one(id="amount-problem").text
    assert bool(page.one(id="amount-problem").text.strip()) == bool(problem)


def test_people_get_a_page_of_every_refusal_and_programs_json(
    start: Callable[..., RunningService], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start(limits={"per_minute": 30})
    visitor = Visitor(service)
    reads = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the cell was 17")

    with monkeypatch.context() as broken:
        broken.setattr(history, "paid_queries", fail)
        response = visitor.client.get("/datasets/town/history", headers=reads)
    assert response.status_code == 500
    page = read(response.text)
    owes_nothing(page)
    assert f"request id {response.headers['x-request-id']}" in page.text
    assert "17" not in page.text.replace(response.headers["x-request-id"], "")
    while (response := visitor.client.get("/datasets/town/saved", headers=reads)).status_code == 200:
        pass
    assert (response.status_code, read(response.text).one("h1").text) == (429, "Too many requests")
    assert int(response.headers["retry-after"]) >= 1
    owes_nothing(read(response.text))
    told = visitor.client.get("/datasets/town/saved", headers={"accept": "*/*"}).json()
    assert told["error"]["code"] == "rate-limited"


def test_the_list_of_data_sets_says_which_are_stopped(service: RunningService) -> None:
    assert "stopped" not in Visitor(service).get("/").text
    assert service.client("cura").post("/v1/datasets/town/curator/stop", json={"stopped": True}).is_success
    assert "A curator has stopped all questions" in Visitor(service).get("/").one("main").text


def test_an_example_is_short_enough_to_be_read() -> None:
    long, short = Column("work", values=("x" * 60, "y")), Column("smokes", values=("no", "yes"))
    assert examples(column_views(Schema(columns=[long, short])))["where"] == "smokes = 'no'"
    assert examples(column_views(Schema(columns=[long])))["where"].startswith("work = ")


def test_the_list_of_data_sets_counts_the_columns_that_can_be_asked_about(
    start: Callable[..., RunningService], tmp_path: Path
) -> None:
    write_table(tmp_path)
    first, *others = SCHEMA.columns
    schema = replace(SCHEMA, columns=[replace(first, role="drop"), *others])
    (tmp_path / "town.schema.yaml").write_text(schema.to_yaml(), encoding="utf-8")
    visitor = Visitor(start())
    assert f" {len(others)} columns;" in visitor.get("/").text
    assert visitor.get("/datasets/town").one(id="columns-title").text == f"{len(others)} columns"
