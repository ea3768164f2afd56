"""Several tables in one service: who sees which, and that none is mistaken for another."""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import re
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from discreet import GaussianDP, connect
from discreet.errors import DiscreetError, LedgerUnavailable, ParameterError, ServiceError
from discreet.server import app
from discreet.server.access import AccessStore
from discreet.server.config import Config
from discreet.server.errors import BUSY, ApiException
from discreet.server.service import Service
from tests.server.conftest import SCHEMA, lines_of, running, signed_in, write_table
from tests.server.markup import Visitor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.server.conftest import RunningService

PRIVACY = {"kind": "gaussian-dp", "mu": 0.1}
COUNT = {"kind": "count", "where": "age > 40", "privacy": PRIVACY}
PATHS = (
    *("query", "preview", "schema", "budget", "history", "dummy", "nothing", "curator/overview"),
    *("curator/spending", "curator/refusals", "curator/check", "curator/tokens", "curator/stop"),
)


def village(folder: Path, name: str = "village", rows: int = 500) -> dict[str, Any]:
    """Write a second table, of other rows; return its entry."""
    lines = (folder / "town.csv").read_text(encoding="utf-8").splitlines()
    (folder / f"{name}.csv").write_text("\n".join(lines[: rows + 1]) + "\n", encoding="utf-8")
    schema = replace(SCHEMA, dataset=name, title="A village", description="Half a thousand people.")
    (folder / f"{name}.schema.yaml").write_text(schema.to_yaml(), encoding="utf-8")
    return {"table": f"{name}.csv", "ledger": f"{name}.ledger", "limit": {"rho": 1.0}}


@contextlib.contextmanager
def town_and_village(folder: Path) -> Iterator[RunningService]:
    """Run a service for a town and a village: ana may ask both, ben the town; vic curates the village."""
    write_table(folder)
    with running(folder, others={"village": village(folder)}) as service:
        tokens = service.whole.tokens
        service.tokens["ana"] = tokens.create("test", "ana", days=9, dataset="village")
        service.tokens["vic"] = tokens.create("test", "vic", days=9, dataset="village", role="curator")
        yield service


@pytest.fixture
def both(tmp_path: Path) -> Iterator[RunningService]:
    with town_and_village(tmp_path) as service:
        yield service


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """For tests that take nothing away."""
    with town_and_village(tmp_path_factory.mktemp("both")) as service:
        yield service


def get(service: RunningService, who: str, path: str) -> Any:
    return service.client(who).get(path)


def test_each_caller_sees_the_tables_that_are_granted_and_no_other(shared: RunningService) -> None:
    found = {
        who: get(shared, who, "/v1/datasets").json()["datasets"] for who in ("ana", "ben", "vic", "opal")
    }
    assert {who: [one["dataset"] for one in listed] for who, listed in found.items()} == {
        "ana": ["town", "village"],
        "ben": ["town"],
        "vic": ["village"],
        "opal": ["town", "village"],
    }
    entry = found["ana"][1]
    assert (entry["title"], entry["n_rows"], entry["role"]) == ("A village", 500, "analyst")
    assert entry["total"]["limit"]["rho"] == 1.0
    # Without any grant the list is empty, and nothing else opens.
    shared.tokens["new"] = shared.whole.tokens.create("test", "new", days=1)
    assert get(shared, "new", "/v1/datasets").json() == {"datasets": []}


def seen(response: Any) -> tuple[Any, ...]:
    """Return all that a caller sees of a response but the number of the request."""
    text = response.text
    if response.headers["content-type"] == "application/json":
        body = response.json()
        body["error"].pop("request_id")
        text = json.dumps(body)
    headers = {k: v for k, v in response.headers.items() if k not in ("date", "x-request-id")}
    return response.status_code, text, json.dumps(headers)


@pytest.mark.parametrize("who", ["ben", "cura"])
def test_a_table_that_is_not_granted_is_like_one_that_does_not_exist(
    shared: RunningService, who: str
) -> None:
    client = shared.client(who)
    browser = signed_in(shared, who)

    def all_seen(name: str, path: str) -> list[tuple[Any, ...]]:
        place = f"/v1/datasets/{name}/{path}"
        page = browser.get(f"/datasets/{name}/{path}", headers={"accept": "text/html"})
        sent = (client.get(place), client.post(place, json=COUNT), client.post(place, content=b"{"), page)
        return [seen(response) for response in sent]

    for path in PATHS:
        assert all_seen("village", path) == all_seen("hamlet", path), path
    assert client.get("/v1/datasets/village/budget").status_code == 404
    assert browser.get("/datasets/village").status_code == 404
    # Nor do documents, login or health name it.
    for path in ("/openapi.json", "/docs", "/login", "/health", "/ready", "/"):
        assert "village" not in client.get(path).text
        assert "village" not in browser.get(path).text


def test_a_refusal_takes_as_long_for_a_table_that_is_not_granted_as_for_none(shared: RunningService) -> None:
    client, least = shared.client("ben"), {"village": 9.0, "villagf": 9.0}
    # The least of many rounds, as many as it takes: a busy machine delays both, and neither for ever.
    for _ in range(2000):
        for name in least:
            began = time.perf_counter()
            assert client.get(f"/v1/datasets/{name}/budget").status_code == 404
            least[name] = min(least[name], time.perf_counter() - began)
        if abs(least["village"] - least["villagf"]) < 0.1 * min(least.values()):
            break
    assert abs(least["village"] - least["villagf"]) < 0.1 * min(least.values())


def test_no_way_of_writing_a_name_leads_to_another_table(shared: RunningService) -> None:
    ways = (
        *("town/../village", "town%2F..%2Fvillage", "..%2Fvillage", "village%00", "village%0a", "VILLAGE"),
        *("*", "%2A", "village%20", ".", "..", "village/", "town/village", "town;village", "town%3Fvillage"),
    )
    for who in ("ben", "cura"):
        client = shared.client(who)
        for name in ways:
            assert client.get(f"/v1/datasets/{name}/budget").status_code == 404, name


def test_each_table_pays_from_its_own_ledger_and_remembers_its_own(both: RunningService) -> None:
    client, ledgers = both.client("ana"), {}
    receipts = {}
    for name in ("town", "village"):
        answer = client.post(f"/v1/datasets/{name}/query", json=COUNT).json()
        receipts[name] = answer["receipts"][0]
        ledgers[name] = both.whole.datasets[name].dataset.ledger
    assert [ledger.spent().charges for ledger in ledgers.values()] == [1, 1]
    # The receipt of one refines, recalls and lists nothing at the other.
    refined = {**COUNT, "refines": [receipts["town"]]}
    assert client.post("/v1/datasets/village/query", json=refined).status_code >= 400
    listed = client.get("/v1/datasets/village/history").json()["entries"]
    assert [entry["receipt"] for entry in listed] == [receipts["village"]]
    browser = signed_in(both, "ana")
    assert browser.get(f"/datasets/town/answers/{receipts['town']}").status_code == 200
    assert browser.get(f"/datasets/village/answers/{receipts['town']}").status_code == 404
    assert browser.get(f"/datasets/village/answers/{receipts['town']}/answer.csv").status_code == 404
    # An idempotency key of one is a new one at the other.
    keyed = {"Idempotency-Key": "k"}
    for name in ("town", "village"):
        other = {**COUNT, "where": f"age > {len(name)}"}
        assert client.post(f"/v1/datasets/{name}/query", json=other, headers=keyed).status_code == 200
    assert [ledger.spent().charges for ledger in ledgers.values()] == [2, 2]
    answers = [line for line in lines_of(both.folder / "audit.jsonl") if line["event"] == "answer"]
    assert [line["dataset"] for line in answers] == ["town", "village"] * 2


def test_a_curator_sees_and_stops_their_own_table_alone(both: RunningService) -> None:
    for who, name in (("ana", "town"), ("ana", "village")):
        wrong = {**COUNT, "where": f"{name} > 1"}
        assert both.client(who).post(f"/v1/datasets/{name}/query", json=wrong).status_code == 422
    refusals = get(both, "vic", "/v1/datasets/village/curator/refusals").json()["refusals"]
    assert [one["asked"] for one in refusals] == ["count where village > 1"]
    tokens = get(both, "vic", "/v1/datasets/village/curator/tokens").json()["tokens"]
    assert {token["name"] for token in tokens} == {"ana", "vic"}
    stop = "/v1/datasets/{}/curator/stop"
    assert both.client("vic").post(stop.format("town"), json={"stopped": True}).status_code == 404
    assert both.client("vic").post(stop.format("village"), json={"stopped": True}).status_code == 200
    assert both.client("ana").post("/v1/datasets/village/query", json=COUNT).status_code == 423
    assert both.client("ana").post("/v1/datasets/town/query", json=COUNT).status_code == 200


def test_tokens_are_listed_with_the_roles_that_each_opens(both: RunningService) -> None:
    tokens = both.whole.tokens
    tokens.grant("test", "vic", "town", "analyst")
    tokens.create("test", "vic", days=9, at="town")
    roles = {(one["name"], one["at"]): one["roles"] for one in tokens.list_tokens() if one["name"] == "vic"}
    assert roles == {
        ("vic", "*"): {"village": "curator", "town": "analyst"},
        ("vic", "town"): {"town": "analyst"},
    }


def test_a_ledger_that_does_not_answer_hides_no_other_table(
    both: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> None:
        raise LedgerUnavailable("the ledger must be reachable, and is not. Mend it.")

    monkeypatch.setattr(both.whole.datasets["village"].dataset.ledger._store, "read", gone)
    listed = {one["dataset"]: one for one in get(both, "opal", "/v1/datasets").json()["datasets"]}
    assert {name: one["ready"] for name, one in listed.items()} == {"town": True, "village": False}
    assert listed["town"]["total"]["left"] is not None
    assert listed["village"]["total"]["spent"] is None
    with connect(both.url, token=both.tokens["opal"]) as service:
        town, here = service.datasets()
        assert town.budget.total is not None
        assert here.budget.total is None
        assert "its table or ledger does not answer now" in str(here)
    page = Visitor(both, "opal").get("/")
    assert "The ledger does not answer at the moment." in page.text
    assert len(list(page.all("a", href="/datasets/town"))) == 2
    metrics = both.client("opal").get("/metrics").text
    assert 'discreet_left{currency="rho",dataset="town"}' in metrics
    assert 'discreet_ready{dataset="town"} 1.0' in metrics
    assert 'discreet_ready{dataset="village"} 0.0' in metrics
    assert 'discreet_stopped{dataset="village"} 0.0' in metrics
    assert both.client().get("/ready").status_code == 503
    assert both.ask(COUNT).status_code == 200


def test_a_lost_table_is_opened_anew_while_the_others_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "INTERVAL", 1e6)  # the service itself does not look
    with town_and_village(tmp_path) as both:

        def ask(dataset: str, where: str) -> Any:
            asked = {**COUNT, "where": where}
            return both.client("opal").post(f"/v1/datasets/{dataset}/query", json=asked).json()

        assert ask("village", "age > 40")["cached"] is False
        old = both.whole.datasets["village"]
        both.whole.reopen_lost()
        assert both.whole.datasets["village"] is old
        old.dataset._readiness.close()
        old.dataset.database._engine.close()
        old.dataset._readiness._errors = 10**6
        assert [both.whole.has_lost, both.whole.is_lost] == [True, False]
        table = both.folder / "village.csv"
        moved = table.rename(both.folder / "moved.csv")
        both.whole.reopen_lost()
        assert both.whole.datasets["village"] is old
        assert ask("town", "age > 40")["cached"] is False
        moved.rename(table)
        both.whole.reopen_lost()
        assert not both.whole.has_lost
        assert ask("village", "age > 40")["cached"] is True  # what was paid for is in the same ledger
        assert ask("village", "age > 41")["cached"] is False
        events = [line for line in both.logged(4) if line["event"].startswith("data set")]
        assert [(line["event"], line["dataset"]) for line in events] == [
            ("data set not reopened", "village"),
            ("data set reopened", "village"),
        ]


class _Losing:
    """A service whose tables cannot be opened anew, and all of which are lost at the third try."""

    has_lost = True
    is_lost = False
    tries = 0

    async def run_long(self, work: Callable[[], None], *, deadline: bool) -> None:
        assert not deadline
        work()

    @property
    def service(self) -> _Losing:
        return self

    def reopen_lost(self) -> None:
        self.tries += 1
        if self.tries == 1:
            raise ApiException(BUSY)  # all threads are taken
        self.is_lost = self.tries == 3


def test_lost_tables_are_tried_again_and_the_process_ends_once_none_can_be_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(app, "INTERVAL", 0.0)
    monkeypatch.setattr(app, "LOST", 0.0)
    monkeypatch.setattr(signal, "raise_signal", ended.append)
    losing: Any = _Losing()
    asyncio.run(app._watch_engines(losing))
    assert (losing.tries, ended) == (3, [signal.SIGTERM])


def test_a_token_that_a_curator_issues_is_worth_nothing_at_another_table(both: RunningService) -> None:
    orders = "/v1/datasets/village/curator/tokens"
    vic = both.client("vic")
    # Neither for somebody who may ask the other table, nor for its curator, nor for an operator.
    get(both, "opal", "/v1/datasets")
    for name in ("ben", "cura", "opal"):
        token = vic.post(orders, json={"action": "create", "name": name, "role": "curator"}).json()["token"]
        both.tokens["stolen"] = token
        assert [one["dataset"] for one in get(both, "stolen", "/v1/datasets").json()["datasets"]] == [
            "village"
        ]
        assert get(both, "stolen", "/v1/datasets/town/budget").status_code == 404
        assert get(both, "stolen", "/metrics").status_code == 403
        assert get(both, "stolen", "/v1/datasets/village/budget").status_code == 200
        browser = signed_in(both, "stolen")
        assert browser.get("/datasets/town").status_code == 404
    # A token that is valid everywhere is not a curator's to rotate or to revoke.
    for action in ("rotate", "revoke"):
        assert vic.post(orders, json={"action": action, "name": "ana"}).status_code == 422
    assert get(both, "ana", "/v1/datasets/town/budget").status_code == 200
    assert vic.post(orders, json={"action": "create", "name": "x", "role": "operator"}).status_code == 422


def test_a_grant_takes_effect_and_ends_in_an_open_session(both: RunningService) -> None:
    browser, town = signed_in(both, "ben"), both.whole.datasets["town"]
    assert browser.get("/datasets/village").status_code == 404
    orders = "/v1/datasets/village/curator/tokens"
    assert both.client("vic").post(orders, json={"action": "grant", "name": "ana"}).status_code == 200
    town.withdraw("test", "ben")
    assert browser.get("/datasets/town").status_code == 404
    assert get(both, "ben", "/v1/datasets/town/budget").status_code == 404
    assert both.ask(COUNT, "ben").status_code == 404
    assert both.client("vic").post(orders, json={"action": "withdraw", "name": "ana"}).status_code == 200
    assert get(both, "ana", "/v1/datasets/village/budget").status_code == 404
    assert get(both, "ana", "/v1/datasets/town/budget").status_code == 200
    events = [(line["event"], line.get("name")) for line in lines_of(both.folder / "audit.jsonl")]
    assert events[-3:] == [("granted", "ana"), ("withdrawn", "ben"), ("withdrawn", "ana")]


def test_a_grant_that_is_withdrawn_ends_what_is_under_way(both: RunningService) -> None:
    town = both.backend
    real = town.dataset.database.ask_task

    def withdrawing(*given: Any, **named: Any) -> Any:
        answer = yield from real(*given, **named)
        town.withdraw("test", "ben")
        return answer

    town.dataset.database.ask_task = withdrawing  # type: ignore[method-assign]
    response = both.ask(COUNT, "ben")
    assert response.status_code == 401
    assert not [line for line in lines_of(both.folder / "audit.jsonl") if line["event"] == "answer"]


def test_a_client_lists_the_tables_and_asks_each(shared: RunningService) -> None:
    with connect(shared.url, shared.tokens["ana"]) as service:
        town, small = service.datasets()
        assert (town.name, small.name, small.n_rows, small.title) == ("town", "village", 500, "A village")
        assert small.budget.total is not None
        assert "village: A village (500 rows, 5 columns; analyst)" in str(small)
        privacy = GaussianDP(mu=0.1)
        assert service["village"] is service.dataset("village")
        counts = [service[name].query("count", privacy=privacy).value for name in ("town", "village")]
        assert counts == [2000, 500]  # public
        asked = service["village"].count("age > 40", privacy=privacy)
        assert service["village"].recall(asked.receipts[0]).receipt.id == asked.receipts[0]
        with pytest.raises(ParameterError, match="must name a charge"):
            service["town"].recall(asked.receipts[0])
        for name in ("hamlet", "Village"):
            with pytest.raises(ServiceError, match="no data set of this name"):
                service[name]
        for wrong in ("../v1", "a/b", "", None, "a?b"):
            with pytest.raises(ParameterError, match="dataset of RemoteDatabase"):
                service[wrong]  # type: ignore[index]
    with connect(shared.url, shared.tokens["ben"]) as service, pytest.raises(DiscreetError):
        service["village"]


def test_pages_lead_from_the_list_of_tables_to_each(shared: RunningService) -> None:
    browser = signed_in(shared, "ana")
    page = browser.get("/").text
    assert 'href="/datasets/town"' in page
    assert 'href="/datasets/village"' in page
    assert "/curator" not in page
    assert "Half a thousand people." in page
    asked = browser.get("/datasets/village").text
    assert 'action="/datasets/village/ask"' in asked
    assert "/datasets/town" not in asked
    assert "500 rows" in asked
    curators = signed_in(shared, "vic").get("/datasets/village/curator").text
    assert "/datasets/town" not in curators
    assert "ben" not in curators
    shared.tokens["nobody"] = shared.whole.tokens.create("test", "nobody", days=1)
    assert "No data set is granted to you" in signed_in(shared, "nobody").get("/").text


def test_grants_of_the_store_are_the_higher_of_one_and_every(tmp_path: Path) -> None:
    store = AccessStore(tmp_path / "access.db")
    token = store.create("ana", days=1, grants={"town": "curator", "*": "analyst"})
    caller = store.find(token)
    assert caller is not None
    assert (caller.role("town"), caller.role("village")) == ("curator", "analyst")
    assert caller.may("analyst", "town")
    assert not caller.may("curator", "village")
    assert not caller.is_operator
    assert not store.withdraw("ana", "village")
    assert store.withdraw("ana", "*")
    assert store.find(token).role("village") is None  # type: ignore[union-attr]
    store.close()


# One limit for all tables about the same people.


PEOPLE = {"residents": {"ledger": "residents.ledger", "limit": {"rho": 1.0}}}


@contextlib.contextmanager
def same_people(folder: Path, **changed: Any) -> Iterator[RunningService]:
    """Run a service for a town and a village about the same people; ana may ask both."""
    write_table(folder)
    entries = {
        "town": {"table": "town.csv", "people": "residents", "limit": {"rho": 0.75}},
        "village": {**village(folder), "ledger": None, "limit": None, "people": "residents"},
    }
    for entry in entries.values():
        entry["version"] = "2026"  # named alike, so that questions differ by the data set alone
    given = {name: {k: v for k, v in entry.items() if v is not None} for name, entry in entries.items()}
    with running(folder, datasets=given, people=PEOPLE, **changed) as service:
        service.tokens["ana"] = service.whole.tokens.create("test", "ana", days=9, dataset="village")
        yield service


def test_tables_about_the_same_people_share_one_limit_and_nothing_else(tmp_path: Path) -> None:
    with same_people(tmp_path) as service:
        client = service.client("ana")

        def ask(name: str, rho: float, where: str = "age > 40") -> Any:
            question = {"kind": "count", "where": where, "privacy": {"kind": "zcdp", "rho": rho}}
            return client.post(f"/v1/datasets/{name}/query", json=question)

        assert ask("town", 0.5).status_code == 200
        nearest = "of {} is left"
        assert nearest.format("the budget of this data set") in signed_in(service, "ana").get("/").text
        refused = ask("town", 0.3, "age > 41").json()["error"]
        assert refused["code"] == "budget-exceeded"
        assert ask("village", 0.5).json()["cached"] is False
        # The town has 0.25 left of its own limit, and the people have nothing.
        assert ask("town", 0.1, "age > 42").status_code == 409
        for name, charges in (("town", 1), ("village", 1)):
            budget = client.get(f"/v1/datasets/{name}/budget").json()
            assert budget["people"]["name"] == "residents"
            assert budget["people"]["left"]["rho"] == 0
            assert budget["total"]["left"]["rho"] == 0
            assert "about residents share one limit" in budget["composition"]
            assert len(client.get(f"/v1/datasets/{name}/history").json()["entries"]) == charges
        with connect(service.url, service.tokens["ana"]) as whole:
            assert "about residents share one limit" in (whole["village"].composition or "")
            words = str(whole["village"].budget())
            assert "All data sets about residents: 100" in words
            assert "about residents share one limit" in words
        receipt = client.get("/v1/datasets/village/history").json()["entries"][0]["receipt"]
        browser = signed_in(service, "ana")
        assert browser.get(f"/datasets/village/answers/{receipt}").status_code == 200
        assert browser.get(f"/datasets/town/answers/{receipt}").status_code == 404
        refined = {"kind": "count", "where": "age > 40", "privacy": PRIVACY, "refines": [receipt]}
        assert client.post("/v1/datasets/town/query", json=refined).status_code == 422
        assert nearest.format("the budget of all data sets about residents") in browser.get("/").text
        page = html.unescape(browser.get("/datasets/town").text).replace("\u00a0", " ")
        assert nearest.format("the budget of all data sets about residents") in page
        amounts = dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", page))
        assert amounts["This data set"] == "ρ = 0.5 spent by all analysts; ρ = 0.25 left of ρ = 0.75"
        shared = "ρ = 1 spent by all analysts; ρ = 0 left of ρ = 1"
        assert amounts["All data sets about residents"] == shared
        village = html.unescape(browser.get("/datasets/village").text).replace("\u00a0", " ")
        assert "<dd>ρ = 0.5 spent by all analysts; no limit of its own</dd>" in village
        assert "The shared limit" not in amounts
        limits = re.sub("<.*?>", "", signed_in(service, "cura").get("/datasets/town/curator/people").text)
        assert "They count at all data sets about residents together" in limits
        # The curator of the town sees what was spent, and nothing of who asked the village what.
        overview = service.client("cura").get("/v1/datasets/town/curator/overview").json()
        assert "village" not in json.dumps(overview)
        attack = service.whole.datasets["town"].attack(patience=60)
        assert attack["used"] == 1
        assert service.client("cura").get("/v1/datasets/town/curator/check").json()["intact"]
        config = service.whole.config
    # Over a restart too.
    with contextlib.closing(Service(config)) as again:
        assert again.datasets["village"].dataset.ledger.spent().charges == 1


def test_a_table_without_people_says_that_others_come_on_top(shared: RunningService) -> None:
    entry = get(shared, "ana", "/v1/datasets").json()["datasets"][0]
    assert entry["people"] is None
    assert "comes on top" in entry["composition"]
    browser = signed_in(shared, "ana")
    for path in ("/", "/datasets/town"):
        assert "comes on top" in browser.get(path).text


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (
            {"people": "residents", "ledger": "x"},
            r"datasets\.town\.ledger of .* must not be set together with people",
        ),
        (
            {"people": "residents", "rule": "pure"},
            r"datasets\.town\.rule of .* must not be set together with people",
        ),
        ({"people": "strangers"}, "must be a name under people of the configuration, was 'strangers'"),
        (
            {"people_limit": {"rho": 1.0}, "people": "residents"},
            r"town\.people_limit of .* must not be set",
        ),
        ({"name": "x", "ledger": "x", "limit": {"rho": 1.0}}, r"town\.name of .* must not be set"),
        ({"ledger": "x"}, "datasets.town.limit of .* is required"),
        (
            {"ledger": "residents.ledger", "limit": {"rho": 1.0}},
            "is the same as people.residents.ledger",
        ),
    ],
)
def test_an_entry_that_contradicts_its_people_is_refused(
    tmp_path: Path, entry: dict[str, Any], told: str
) -> None:
    content = {
        "people": PEOPLE,
        "datasets": {"town": {"table": "t.csv", **entry}},
        "access": "a",
        "audit_log": "b",
    }
    with pytest.raises(ParameterError, match=told):
        Config.from_dict(content, tmp_path)
