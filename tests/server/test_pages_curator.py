"""The curator's page over plain HTTP: tokens, spending, refusals, the attack, the switch, the ledger."""

from __future__ import annotations

import csv
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest

from discreet.audit.reconstruction import Reconstructor
from discreet.server.errors import STATUS
from discreet.server.pages import curator as curator_pages
from discreet.server.pages.curator import REASONS, attack_view, spending_view
from tests.server.conftest import configured, lines_of
from tests.server.markup import Element, Visitor, owes_nothing, read

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from tests.server.conftest import RunningService

ASKED = {"kind": "sentence", "text": "count where age > 40", "privacy": {"kind": "zcdp", "rho": 0.5}}


PEOPLE = "/datasets/town/curator/people"
PAGES = ("/datasets/town/curator", PEOPLE, "/datasets/town/curator/analysts/ben")


def order(visitor: Visitor, **fields: str) -> Element:
    """Order something about tokens."""
    response = visitor.client.post("/datasets/town/curator/tokens", data={"csrf": visitor.csrf(), **fields})
    return read(response.text) if response.text else Element("", {})


def valid_tokens(service: RunningService) -> list[dict[str, Any]]:
    """Return the tokens that open something; those of a refused order are revoked."""
    return [token for token in service.backend.tokens() if token["state"] == "valid"]


def test_analysts_see_nothing_of_the_curators(service: RunningService) -> None:
    analyst = Visitor(service)
    pages = [analyst.client.get(path) for path in PAGES]
    pages += [
        analyst.client.post(
            f"/datasets/town/curator/{what}", data={"csrf": analyst.csrf(), "stopped": "yes", "name": "eve"}
        )
        for what in ("stop", "attack", "check", "tokens", "allocations")
    ]
    assert {page.status_code for page in pages} == {403}
    assert len({page.text for page in pages}) == 1
    for text in (
        pages[0].text,
        analyst.client.get("/datasets/town").text,
        analyst.client.get("/datasets/town/history").text,
    ):
        assert "/datasets/town/curator" not in text
        assert "ben" not in text
        assert "cura" not in text.replace("curator", "")
    assert service.backend.access.stop_record("town") is None
    assert len(service.backend.tokens()) == 3


def test_a_new_token_is_shown_once_and_opens_the_door(service: RunningService) -> None:
    curator = Visitor(service, "cura")
    page = order(curator, action="create", names="zoe", days="30", limit="0.25")
    token = page.one(id="fresh-token").text
    assert token.startswith("dsc_")
    owes_nothing(page)
    assert token not in curator.client.get(PEOPLE).text
    service.tokens["zoe"] = token
    zoe = Visitor(service, "zoe")
    assert "ρ = 0.25" in zoe.get("/datasets/town").one("details", class_="amounts").text
    assert zoe.client.get("/datasets/town/curator").status_code == 403


def test_tokens_for_many_names_are_shown_together_or_downloaded_and_kept_nowhere(
    service: RunningService,
) -> None:
    curator = Visitor(service, "cura")
    page = order(curator, action="create", names="zoe\n\n yan \n", days="30", limit="0.5")
    owes_nothing(page)
    made = dict(line.split(",") for line in page.one(id="fresh-token").text.splitlines())
    assert list(made) == ["zoe", "yan"]
    fields = {"csrf": curator.csrf(), "action": "download", "names": "xia\nwim", "days": "30"}
    file = curator.client.post("/datasets/town/curator/tokens", data=fields)
    assert file.headers["content-disposition"] == 'attachment; filename="tokens.csv"'
    head, *rows = csv.reader(file.text.splitlines())
    assert head == ["name", "token"]
    made |= dict(rows)
    for name, token in made.items():
        service.tokens[name] = token
        assert Visitor(service, name).client.get("/datasets/town").status_code == 200
        assert token not in curator.client.get(PEOPLE).text
    limits = {one["name"]: one["limit"] for one in service.backend.list_allocations()["analysts"]}
    assert limits["zoe"]["rho"] == limits["yan"]["rho"] == 0.5


def allocate(visitor: Visitor, **fields: str) -> httpx.Response:
    """Order something about limits and groups."""
    return visitor.client.post("/datasets/town/curator/allocations", data={"csrf": visitor.csrf(), **fields})


def test_limits_and_groups_are_changed_and_recorded(service: RunningService) -> None:
    curator = Visitor(service, "cura")
    owes_nothing(curator.get(PEOPLE))
    assert allocate(curator, action="join", name="ana", group="north").headers["location"].startswith(PEOPLE)
    assert allocate(curator, action="limit", whom="group:north", amount="0.25").status_code == 303
    assert allocate(curator, action="limit", whom="analyst:ana", amount="0.75").status_code == 303
    page = curator.get(f"{PEOPLE}?done=limit")
    owes_nothing(page)
    assert "The limit was changed." in page.one("p", role="status").text
    rows = {row.one("th").text: row.text for row in page.all("tr", role="row") if list(row.all("td"))}
    assert "ρ = 0.25" in rows["north"]
    assert "ana" in rows["north"]
    assert "ρ = 0.75" in rows["ana"]
    assert service.ask({**ASKED, "privacy": {"kind": "zcdp", "rho": 0.5}}).status_code == 409
    service.ask({**ASKED, "privacy": {"kind": "zcdp", "rho": 0.125}})
    analyst = Visitor(service)
    assert "of your group's budget is left" in analyst.get("/datasets/town").text
    assert "of your group's budget is left" in analyst.get("/").text
    assert allocate(curator, action="leave", name="ana").status_code == 303
    assert service.ask({**ASKED, "privacy": {"kind": "zcdp", "rho": 0.5}}).status_code == 200
    assert allocate(curator, action="no-limit", whom="analyst:ana").status_code == 303
    events = [line["event"] for line in lines_of(service.folder / "audit.jsonl")]
    assert (events.count("limit set"), events.count("group set")) == (3, 2)
    assert service.backend.check()["intact"]


def test_limits_are_given_as_that_of_the_data_set_is(start: Callable[..., RunningService]) -> None:
    service = start(limit={"epsilon": 4.0, "delta": 1e-6})
    curator = Visitor(service, "cura")
    page = curator.get(PEOPLE)
    assert "New limit, ε" in page.text
    assert "Its δ is that of the data set, 10⁻⁶." in page.text
    assert allocate(curator, action="limit", whom="analyst:ana", amount="1.5").status_code == 303
    (limit,) = (
        one["limit"] for one in service.backend.list_allocations()["analysts"] if one["name"] == "ana"
    )
    assert (limit["kind"], limit["epsilon"], limit["delta"]) == ("approx-dp", 1.5, 1e-6)
    assert service.ask({**ASKED, "privacy": {"kind": "pure-dp", "epsilon": 1.6}}).status_code == 409


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"action": "limit", "whom": "analyst:ana", "amount": ""}, "a number above 0"),
        ({"action": "limit", "whom": "analyst:ana", "amount": "nan"}, "a number above 0"),
        ({"action": "limit", "whom": "king:ana", "amount": "1"}, "to an analyst or a group"),
        ({"action": "limit", "whom": "analyst:", "amount": "1"}, "printable"),
        ({"action": "join", "name": "ana", "group": ""}, "printable"),
        ({"action": "join", "name": "ana", "group": "total"}, "must not be"),
    ],
)
def test_a_limit_or_group_that_cannot_be_set_says_why_and_changes_nothing(
    shared_service: RunningService, fields: dict[str, str], words: str
) -> None:
    before = shared_service.backend.list_allocations()
    curator = Visitor(shared_service, "cura")
    response = allocate(curator, **fields)
    assert response.status_code == 422
    page = read(response.text)
    assert words in page.one("div", class_="note", role="alert").text
    owes_nothing(page)
    foreign = curator.client.post("/datasets/town/curator/allocations", data={**fields, "csrf": "wrong"})
    assert foreign.status_code == 403
    assert shared_service.backend.list_allocations() == before


def test_an_operator_sees_what_a_configuration_changes_before_it_does(
    start: Callable[..., RunningService], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start()
    service.whole.config_file = configured(service.folder)
    service.client("opal")
    operator = Visitor(service, "opal")
    page = operator.get("/")
    owes_nothing(page)
    assert "none is missing" in read(operator.send(page, "/reload#reload", do="check").text).text
    village = {"table": "town.csv", "schema": "village.schema.yaml", "ledger": "village.ledger"}
    text = (service.folder / "town.schema.yaml").read_text().replace("dataset: town", "dataset: village")
    (service.folder / "village.schema.yaml").write_text(text)
    configured(service.folder, others={"village": {**village, "limit": {"rho": 1.0}, "new_ledger": True}})
    shown = read(operator.send(page, "/reload#reload", do="check").text)
    owes_nothing(shown)
    assert "village would be added." in shown.text
    assert shown.one("a", aria_current="page").text == "Data sets"
    assert "village" not in service.whole.datasets
    assert operator.client.post("/reload", data={"csrf": "wrong", "do": "change"}).status_code == 403
    for who in ("ana", "cura"):
        visitor = Visitor(service, who)
        sent = visitor.client.post("/reload", data={"csrf": visitor.csrf(), "do": "change"})
        assert sent.status_code == 403
        assert "reload" not in visitor.client.get("/").text
    assert "village" not in service.whole.datasets
    done = read(operator.send(shown, "/reload#reload", do="change").text)
    assert "Done. village added." in done.text
    assert "village" in service.whole.datasets
    with monkeypatch.context() as patched:
        begun = {"added": ["hamlet"], "retired": [], "done": False}
        patched.setattr("discreet.server.app.reload", lambda *_: begun)
        told = read(operator.send(done, "/reload#reload", do="change").text).text
    assert "hamlet to be added. The processes of the service are being replaced" in told
    assert "Done." not in told
    (service.folder / "config.yaml").write_text("datasets: 3")
    wrong = operator.send(done, "/reload#reload", do="change")
    assert wrong.status_code == 422
    assert "village" in service.whole.datasets


def test_a_rotated_token_ends_the_old_one_and_its_sessions(service: RunningService) -> None:
    curator, ben = Visitor(service, "cura"), Visitor(service, "ben")
    token = order(curator, action="rotate", name="ben").one(id="fresh-token").text
    assert ben.client.get("/datasets/town").status_code == 303
    assert ben.client.post("/login", data={"token": service.tokens["ben"]}).status_code == 401
    assert ben.client.post("/login", data={"token": token}).status_code == 303


def test_a_revoked_token_is_shown_as_such_and_opens_nothing(service: RunningService) -> None:
    curator, ben = Visitor(service, "cura"), Visitor(service, "ben")
    order(curator, action="revoke", name="ben")
    assert ben.client.get("/datasets/town").status_code == 303
    (row,) = (r for r in curator.get(PEOPLE).all("tr") if r.text.startswith("ben") and "revoked" in r.text)
    assert not list(row.all("button"))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"action": "create", "names": "ana"}, "has a valid token already"),
        ({"action": "create", "names": " \n"}, "one per line"),
        ({"action": "create", "names": "zoe\ntotal"}, "must not be 'total'"),
        ({"action": "create", "names": "zoe\nzoe"}, "must all differ"),
        ({"action": "create", "names": "zoe\nana"}, "has a valid token already"),
        ({"action": "download", "names": "x" * 65}, "printable"),
        ({"action": "create", "names": "eve", "days": "many"}, "whole number"),
        ({"action": "create", "names": "eve", "days": "0"}, "above 0"),
        ({"action": "create", "names": "eve", "limit": "-1"}, "above 0"),
        ({"action": "create", "names": "eve", "limit": "inf"}, "above 0"),
        ({"action": "create", "names": "eve", "role": "king"}, "one of analyst, curator"),
        ({"action": "rotate", "name": "nobody"}, "valid token"),
        ({"action": "revoke", "name": "nobody"}, "No token was ever created"),
    ],
)
def test_an_order_that_cannot_be_carried_out_says_why_and_keeps_what_was_typed(
    shared_service: RunningService, fields: dict[str, str], words: str
) -> None:
    before = valid_tokens(shared_service)
    page = order(Visitor(shared_service, "cura"), **{"role": "analyst", "days": "30", "limit": "", **fields})
    assert words in page.one("div", class_="note", role="alert").text
    assert valid_tokens(shared_service) == before
    if fields["action"] == "create":
        assert page.one(id="token-names").text == fields["names"]
    owes_nothing(page)


def test_the_switch_stops_everybody_until_it_is_turned_back(service: RunningService) -> None:
    curator = Visitor(service, "cura")
    page = curator.get("/datasets/town/curator")
    confirm = page.one("form", action="/datasets/town/curator/stop").one("details")
    assert "open" not in confirm.attributes, "the button that stops everything is behind a question"
    assert curator.send(page, "/datasets/town/curator/stop").headers["location"] == "/datasets/town/curator"
    assert service.ask(ASKED).status_code == 423
    stopped = curator.get("/datasets/town/curator")
    assert any("Stopped:" in strip.text for strip in stopped.all("p", class_="strip"))
    owes_nothing(stopped)
    curator.send(stopped, "/datasets/town/curator/stop")
    assert service.ask(ASKED).status_code == 200


def test_spending_is_drawn_against_the_limit_and_told_by_analyst(service: RunningService) -> None:
    service.ask({**ASKED, "privacy": {"kind": "zcdp", "rho": 4.0}})
    service.ask({**ASKED, "text": "count where age > 41"}, "ben")
    page = Visitor(service, "cura").get("/datasets/town/curator")
    picture = page.one("svg", class_="steps")
    assert "4.5 of 10 spent" in picture.one("desc").text
    assert "limit 10" in picture.text
    rows = {row.one("th").text: row.text for row in page.all("tr") if len(list(row.all("a"))) == 1}
    assert "ρ = 4" in rows["ana"]
    assert "80.0\u00a0% spent" in rows["ana"]
    assert "ρ = 0.5" in rows["ben"]
    assert "45.0\u00a0%" in page.one("dl", class_="tiles").text
    asked = Visitor(service, "cura").get("/datasets/town/curator/analysts/ana")
    assert "count where 40 < age" in asked.text
    assert not [
        link for link in asked.all("a") if link.attributes["href"].startswith("/datasets/town/answers")
    ]


def test_spending_never_falls_in_the_picture_although_the_clock_was_set_back() -> None:
    times = ("2026-05-01T12:05:00+00:00", "2027-05-01T12:05:00+00:00", "2026-05-01T12:05:00+00:00")
    steps = [{"when": when, "spent": {"rho": float(number)}} for number, when in enumerate(times, 1)]
    total = {
        "limit": {"kind": "zcdp", "rho": 10.0},
        "left": {"rho": 7.0},
        "spent": {"rho": 3.0, "charges": 3},
    }
    view = spending_view({"total": total, "analysts": {}}, {"steps": steps})
    assert "3 of 10 spent from 2026-05-01, 12:05 UTC to 2027-05-01, 12:05 UTC." in view.picture
    heights = [float(y) for y in re.findall(r"V([\d.]+)", str(view.picture).partition('class="line"')[2])]
    assert heights == sorted(heights, reverse=True)


def test_every_error_code_has_words_for_the_table_of_refused_questions() -> None:
    assert REASONS.keys() == STATUS.keys()


def test_refusals_are_listed_with_who_and_why(service: RunningService) -> None:
    service.ask({**ASKED, "text": "count where age in (select 1)"})
    service.ask({**ASKED, "privacy": {"kind": "zcdp", "rho": 500.0}}, "ben")
    page = Visitor(service, "cura").get("/datasets/town/curator")
    told = [row.text for row in page.all("tr") if "count where" in row.text]
    assert "ben" in told[0]
    assert "too little budget left" in told[0]
    assert "ana" in told[1]
    assert "question not understood" in told[1]


def test_the_attack_is_told_in_a_sentence_and_on_bars(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curator_pages, "PATIENCE", 600.0)
    service.ask({**ASKED, "text": "count where age > 40 by owner", "privacy": {"kind": "zcdp", "rho": 0.01}})
    curator = Visitor(service, "cura")
    response = curator.send(curator.get("/datasets/town/curator"), "/datasets/town/curator/attack")
    page = read(response.text)
    assert response.status_code == 200, page.text
    section = next(s for s in page.all("section") if s.attributes["aria-labelledby"] == "attack-title")
    meaning, lead = section.all("p", class_="lead")
    assert meaning.text.startswith("All answers together")
    assert "An attacker who knows everything but one column" in lead.text
    named = [head.one("bdi").text for head in section.all("h3")]
    assert named == ["age", "owner"]
    assert len(list(section.all("svg", class_="marks"))) == 2
    owes_nothing(page)
    row = service.backend.dataset.ledger.history()[-1].seq
    later = curator.client.get("/datasets/town/curator").text
    assert lead.text in read(later).text, "it is shown until there is another"
    assert f"up to row {row} of the ledger" in later


def test_an_attack_that_fails_is_not_said_to_be_charged(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("row 17")

    service.ask(ASKED)
    monkeypatch.setattr(Reconstructor, "update", fails)
    response = service.client("cura").get("/v1/datasets/town/curator/attack")
    curator = Visitor(service, "cura")
    page = curator.send(curator.get("/datasets/town/curator"), "/datasets/town/curator/attack")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "engine-failed")
    assert page.status_code == 503
    for text in (response.text, page.text):
        assert "The attack could not be computed. Nothing was charged." in text
        assert "row 17" not in text


def test_an_attack_that_is_still_running_does_not_keep_the_page_waiting(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curator_pages, "PATIENCE", 0.0)
    may_go_on = threading.Event()
    begun = Reconstructor.update
    monkeypatch.setattr(Reconstructor, "update", lambda *given: may_go_on.wait(600) and begun(*given))
    service.ask(ASKED)
    curator = Visitor(service, "cura")
    response = curator.send(curator.get("/datasets/town/curator"), "/datasets/town/curator/attack")
    may_go_on.set()
    assert response.status_code == 200
    assert "The attack is running" in response.text
    assert service.backend.attack(patience=600)["used"] == 1


def test_the_ledger_is_checked_to_its_head_and_a_changed_trail_is_told(service: RunningService) -> None:
    service.ask(ASKED)
    curator = Visitor(service, "cura")
    page = curator.get("/datasets/town/curator")
    head = service.backend.dataset.ledger.head[1]
    assert head in page.text
    told = (
        read(curator.send(page, "/datasets/town/curator/check").text)
        .one("p", class_="note", role="status")
        .text
    )
    assert re.search(r"\d+ rows of the ledger and \d+ lines of the audit log are consistent", told)
    trail = service.folder / "audit.jsonl"
    trail.write_text(trail.read_text().replace('"ana"', '"eve"'))
    broken = curator.send(page, "/datasets/town/curator/check")
    assert broken.status_code == 503
    assert "fit together" not in broken.text
    assert read(broken.text).one("div", class_="note", role="alert").text.strip()


def guess(column: str, without: float, error: float, **more: Any) -> dict[str, Any]:
    told = {
        "column": column, "statistic": "root-mean-square error", "measure": "years", "without": without,
        "error": error, "lower": error, "upper": error, "floor": 5.0, **more,
    }  # fmt: skip
    return {"guess": told, "answers": 1, "sentence": f"{column}: guessed."}


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ([("age", 10.0, 10.0), ("pay", 4.0, 4.1)], "no column easier to guess"),
        ([("age", 10.0, 9.9), ("pay", 4.0, 3.9)], "hardly help an attacker, most with pay"),
        ([("age", 10.0, 9.0), ("pay", 4.0, 3.9)], "somewhat, most with age"),
        ([("age", 10.0, 2.0), ("pay", 4.0, 3.9)], "from ±\u00a010 years to ±\u00a02 years, by 80\u00a0%"),
    ],
)
def test_one_sentence_says_what_the_attack_comes_to(columns: list[tuple[Any, ...]], words: str) -> None:
    told = {"columns": [guess(*column) for column in columns], "alarms": [], "sentences": ["Lead."]}
    assert words in attack_view(told).meaning


def test_a_floor_that_an_attack_stays_above_holds_and_an_alarm_comes_first() -> None:
    told = {
        "columns": [guess("age", 10.0, 9.0), guess("pay", 9.0, 4.0), guess("size", 9.0, 4.0, floor=None)],
        "alarms": ["Too little noise."],
        "sentences": ["Alarm: Too little noise.", "Lead.", "age: guessed.", "No answer depends on x."],
    }
    view = attack_view(told)
    assert [column.verdict[1] for column in view.columns] == [
        "floor holds",
        "better than the floor",
        "no floor",
    ]
    assert view.alarms == ("Too little noise.",)
    assert (view.lead, view.after) == ("Lead.", ("No answer depends on x.",))
