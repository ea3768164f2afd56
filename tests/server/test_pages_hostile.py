"""Names, values, questions and people that try to be more than text on a page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from discreet.schema import Column, Schema
from discreet.server.pages.forms import AskForm, FieldError, parse_form
from tests.server.conftest import SCHEMA, running
from tests.server.markup import Visitor, owes_nothing, read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server.conftest import RunningService

SCRIPT = "<script>window.pwned=1</script>"
IMAGE = '"><img src=x onerror=window.pwned=1>'
QUOTES = "'; DROP TABLE people; --"
TEMPLATE = "{{ 7 * 7 }}{% include 'x' %}"
REVERSED = "a\u202eb"
NAMES = (SCRIPT, IMAGE, TEMPLATE)
LEVELS = (SCRIPT, QUOTES, "plain", REVERSED)
WHO = '<b onmouseover="window.pwned=1">eve'


def hostile_files(folder: Path) -> None:
    """Write a table whose names and values are hostile."""
    schema = Schema(
        columns=[
            Column(SCRIPT, values=LEVELS, description=IMAGE),
            Column(IMAGE, lower=0, upper=10, measure="</option><script>window.pwned=1</script>"),
            Column(TEMPLATE, type="integer", lower=0, upper=9, description=TEMPLATE),
        ],
        dataset="town",
        unit="<i>person</i>",
    )
    (folder / "town.schema.yaml").write_text(schema.to_yaml(), encoding="utf-8")
    rows = [NAMES, *((LEVELS[k % 4], k % 10, k % 10) for k in range(200))]
    lines = [",".join('"{}"'.format(str(cell).replace('"', '""')) for cell in row) for row in rows]
    (folder / "town.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("hostile")
    hostile_files(folder)
    with running(folder) as service:
        service.tokens["eve"] = service.backend.create_token("test", WHO, "analyst")
        yield service


def test_hostile_names_and_values_are_text_wherever_they_stand(hostile: RunningService) -> None:
    visitor = Visitor(hostile, "eve")
    page = visitor.get("/datasets/town")
    owes_nothing(page)
    assert WHO in page.one("form", action="/logout").text
    options = list(page.one(id="by1").all("option"))
    assert [option.attributes["value"] for option in options] == ["", *NAMES]
    assert "<i>person</i>" in page.one("header").text
    written = [code.attributes["data-write"] for code in page.one("aside").all("code")]
    assert '"{}"'.format(IMAGE.replace('"', '""')) in written
    assert "'{}'".format(QUOTES.replace("'", "''")) in written
    assert "\u202e" not in page.text, "what turns text around is shown, not done"


def test_hostile_groups_questions_and_answers_are_text(hostile: RunningService) -> None:
    visitor = Visitor(hostile, "eve")
    page = visitor.ask(by1=SCRIPT, exact="rho", amount="0.1")
    owes_nothing(page)
    keys = [row.one("th").text for row in page.one("section", class_="answer").one("tbody").all("tr")]
    assert keys == [SCRIPT, QUOTES, "plain", "a\\u202eb", "other"]
    shown = json.loads(page.one(id="answer-json").text)
    assert shown["by"] == [SCRIPT]
    level = "'{}'".format(QUOTES.replace("'", "''"))
    column = f'"{SCRIPT}"'
    page = visitor.ask(verb="sum", of='"{}"'.format(IMAGE.replace('"', '""')), where=f"{column} = {level}")
    owes_nothing(page)
    assert "</option>" in page.one("p", class_="big").text
    owes_nothing(visitor.get("/datasets/town/history"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", [*NAMES, QUOTES, REVERSED, "\x00", "]]>", "</textarea><script>1</script>", "\ud800"]
)
@pytest.mark.parametrize(
    "field", ["where", "of", "sql", "by1", "edges1", "amount", "exact", "verb", "source", "key"]
)
def test_hostile_text_in_any_field_comes_back_as_text(hostile: RunningService, field: str, text: str) -> None:
    visitor = Visitor(hostile, "eve")
    changed = {"verb": "sum", "of": "1", "where": "TRUE", "source": "sql" if field == "sql" else "sentence"}
    fields = {
        **visitor.fill(visitor.get("/datasets/town"), "/datasets/town/ask"),
        **changed,
        "by1": TEMPLATE,
        "edges1": "3",
        "do": "price",
        field: text,
    }
    body = "&".join(f"{_encoded(name)}={_encoded(value)}" for name, value in fields.items())
    kind = {"content-type": "application/x-www-form-urlencoded"}
    response = visitor.client.post("/datasets/town/ask", content=body, headers=kind)
    assert response.status_code in (200, 409, 422)
    page = read(response.text)
    owes_nothing(page)
    live = visitor.client.post("/datasets/town/price", content=body, headers=kind)
    assert live.headers["content-type"] == "application/json"
    assert live.status_code == 200


def _encoded(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


def test_hostile_people_are_text_on_the_curators_page(hostile: RunningService) -> None:
    hostile.ask({"kind": "sentence", "text": SCRIPT, "privacy": {"kind": "zcdp", "rho": 1.0}}, "eve")
    curator = Visitor(hostile, "cura")
    page = curator.get("/datasets/town/curator")
    owes_nothing(page)
    assert WHO in page.text
    link = next(a for a in page.all("a") if a.text == WHO)
    theirs = curator.get(link.attributes["href"])
    owes_nothing(theirs)
    assert WHO in theirs.one("h1").text
    people = curator.get("/datasets/town/curator/people")
    owes_nothing(people)
    forms = [form for form in people.all("form", action="/datasets/town/curator/tokens") if form.text.strip()]
    assert WHO in {field.attributes["value"] for form in forms for field in form.all("input", name="name")}


def test_a_body_that_is_no_form_is_refused_and_not_repeated(hostile: RunningService) -> None:
    visitor = Visitor(hostile, "eve")
    for body in (b"\xff\xfe\x00", b"{}", b"&&&===" * 50, b"a=1&" * 5000):
        response = visitor.client.post("/datasets/town/ask", content=body)
        assert response.status_code in (403, 422)
        owes_nothing(read(response.text))


# Forms by themselves.


def test_a_form_takes_the_last_of_a_field_and_drops_what_it_does_not_know() -> None:
    form = AskForm.from_fields(
        parse_form(b"where=a&where=b&unknown=1&verb=sum&of=%C3%A4"), AskForm(amount="3")
    )
    assert form == AskForm(where="b", verb="sum", of="ä", amount="3")


def test_every_form_is_a_request_or_names_a_field_that_the_page_has() -> None:
    names = ("source", "verb", "of", "where", "by1", "edges1", "by2", "edges2", "sql", "exact", "amount")
    texts = ("", "age", "0", "1,2", "sex", "income > 3", "sentence", "sql", "mean", "margin", "rho", "'")
    for name in names:
        for text in texts:
            form = AskForm.from_fields({"amount": "1", "verb": "sum", "of": "income", name: text}, AskForm())
            field, asked = None, {}
            try:
                asked = form.request(SCHEMA)
            except FieldError as error:
                field = error.field
            if field is None:
                assert asked["kind"] in ("count", "sum", "mean", "sentence")
                assert ("sd" in asked) != ("privacy" in asked)
            else:
                assert field in names
