"""What somebody who means harm, or a disk that is full, must not bring about."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import shutil
import threading
from html import unescape
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from discreet.errors import EngineFailed, LedgerTampered, ParameterError
from discreet.privacy import GaussianDP, PureDP
from discreet.query.aggregates import Histogram, Node, NodeTables, Sums
from discreet.server import books, readiness
from discreet.server.config import Config
from discreet.server.office import Office
from discreet.server.readiness import Readiness
from tests.server.conftest import running, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.server.conftest import Service

PRIVACY = {"kind": "gaussian-dp", "mu": 0.1}
COUNT = {"kind": "count", "where": "age > 40", "privacy": PRIVACY}
MEAN = {"kind": "mean", "expression": "age", "by": ["sex"], "privacy": PRIVACY}


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Disk:
    """What the trail writes to: full, as long as it is said to be."""

    def __init__(self) -> None:
        self.full = False
        self._real = os.write

    def write(self, handle: int, line: bytes) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._real(handle, line)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk()
    monkeypatch.setattr(os, "write", made.write)
    yield made
    made.full = False


def signed_in(service: Service, who: str) -> httpx.Client:
    """Return a browser of somebody."""
    client = service.client(None)
    client.headers["Origin"] = service.url
    assert client.post("/login", data={"token": service.tokens[who]}).status_code == 303
    return client


# An answer leaves only once the trail names the row that paid for it.


def kept_ledger(folder: Path) -> Path:
    kept = folder / "kept"
    kept.mkdir()
    for path in folder.glob("town.ledger*"):
        shutil.copy(path, kept)
    return kept


def put_back(folder: Path, kept: Path) -> None:
    for path in folder.glob("town.ledger*"):
        path.unlink()
    for path in kept.iterdir():
        shutil.copy(path, folder)


def test_what_the_history_tells_is_in_the_trail_so_that_an_older_ledger_is_refused(
    tmp_path: Path, disk: Disk
) -> None:
    with running(tmp_path) as service:
        tokens = service.tokens
    kept = kept_ledger(tmp_path)
    with running(tmp_path, tokens) as service:
        disk.full = True
        assert service.ask(COUNT).status_code == 503
        client = service.client()
        # It was charged and answered, and as long as nobody can write that down, nobody is told.
        assert service.office.ledger.spent().charges == 1
        assert client.get("/v1/history").status_code == 503
        assert client.get("/v1/history?format=csv").status_code == 503
        assert service.client("cura").get("/v1/history").status_code == 503
        disk.full = False
        (entry,) = client.get("/v1/history").json()["entries"]
        assert entry["value"] is not None
        written = lines_of(tmp_path / "audit.jsonl")
        assert client.get("/v1/history").status_code == 200
        assert lines_of(tmp_path / "audit.jsonl") == written  # once is enough
    named = [line for line in written if line["event"] == "answer"]
    assert [(line["asked"], line["rows"][0][1]) for line in named] == [("history", entry["row"])]
    put_back(tmp_path, kept)
    with pytest.raises(LedgerTampered, match="earlier state"):
        Office(Config.of(settings(), tmp_path))


def test_the_page_of_an_answer_that_the_trail_could_not_name_waits_for_it(tmp_path: Path, disk: Disk) -> None:
    with running(tmp_path) as service:
        browser = signed_in(service, "ana")
        disk.full = True
        assert service.ask(COUNT).status_code == 503
        receipt = service.office.ledger.entries("ana")[-1].receipt
        assert browser.get(f"/answers/{receipt.id}").status_code == 503
        assert browser.get("/history").status_code == 503
        disk.full = False
        assert browser.get(f"/answers/{receipt.id}").status_code == 200
        answers = [line for line in lines_of(tmp_path / "audit.jsonl") if line["event"] == "answer"]
        assert [row[1] for line in answers for row in line["rows"]] == [receipt.seq]


def test_what_was_named_before_a_restart_is_not_named_again(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        service.ask(COUNT)
        tokens = service.tokens
    with running(tmp_path, tokens) as service:
        assert len(service.client().get("/v1/history").json()["entries"]) == 1
    assert sum(line["event"] == "answer" for line in lines_of(tmp_path / "audit.jsonl")) == 1


def test_a_long_question_is_in_the_trail_by_its_beginning_and_its_hash(service: Service) -> None:
    question = Sums([f"age > {k}.5" for k in range(60)]).to_dict()
    assert service.ask({"kind": "statistical", "question": question, "privacy": PRIVACY}).status_code == 200
    line = lines_of(service.folder / "audit.jsonl")[-1]
    assert len(line["asked"]) == 500
    assert len(line["asked_sha256"]) == 64


def test_half_a_line_is_cut_off_and_that_is_written_down(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with running(tmp_path) as service:
        service.ask(COUNT)
        tokens = service.tokens
    with path.open("ab") as file:
        file.write(b'{"event":"answer"')
    with running(tmp_path, tokens) as service:
        assert [line["bytes"] for line in lines_of(path) if line["event"] == "cut"] == [17]
        with path.open("ab") as file:
            file.write(b'{"half')
        # Also while it runs: another process may have been killed.
        curator = service.client("cura")
        assert curator.get("/v1/curator/refusals").status_code == 200
        assert curator.get("/v1/curator/check").json()["intact"]
        assert [line["bytes"] for line in lines_of(path) if line["event"] == "cut"] == [17, 6]


def test_a_check_waits_for_a_line_that_is_being_written(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, half, go = service.folder / "audit.jsonl", threading.Event(), threading.Event()
    real = os.write

    def slowly(handle: int, line: bytes) -> int:
        real(handle, line[:20])
        half.set()
        go.wait(10)
        return 20 + real(handle, line[20:])

    before = service.office.trail.check()
    monkeypatch.setattr(os, "write", slowly)
    writer = threading.Thread(target=service.office.trail.write, args=("test",))
    writer.start()
    assert half.wait(10)
    found: list[int] = []
    checker = threading.Thread(target=lambda: found.append(service.office.trail.check()))
    checker.start()
    checker.join(0.2)
    assert checker.is_alive()
    go.set()
    writer.join(10)
    checker.join(10)
    assert found == [before + 1] == [len(lines_of(path))]


# Whoever was stopped, or lost their token, gets nothing more.

KMEANS = {"kind": "kmeans", "privacy": PRIVACY, "parameters": {"n_clusters": 2, "max_iter": 4}}


def interrupted(service: Service, request: dict[str, Any], after: int, act: Callable[[], object]) -> Any:
    """Ask, and have something done once so many questions were answered inside."""
    office, asked = service.office, 0
    real = office.database.asking

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal asked
        answer = yield from real(*given, **named)
        asked += 1
        if asked == after:
            act()
        return answer

    office.database.asking = counted  # type: ignore[method-assign]
    try:
        return service.ask(request), lambda: asked
    finally:
        office.database.asking = real  # type: ignore[method-assign]


@pytest.mark.parametrize(("request_", "after"), [(KMEANS, 1), (MEAN, 1), (COUNT, 1), (MEAN, 2)])
def test_the_switch_ends_what_is_under_way_before_its_next_question(
    service: Service, request_: dict[str, Any], after: int
) -> None:
    cura = service.office.access.find(service.tokens["cura"])
    assert cura is not None
    response, asked = interrupted(service, request_, after, lambda: service.office.stop(cura))
    assert response.json()["error"]["code"] == "stopped"
    assert asked() == after
    assert service.office.ledger.spent().charges == after
    # What was paid for is free once it answers again.
    service.office.resume(cura)
    assert service.ask(request_).status_code == 200
    left = service.office.ledger.spent().charges
    assert service.ask(request_).json()["cached"]
    assert service.office.ledger.spent().charges == left


@pytest.mark.parametrize(("request_", "after"), [(KMEANS, 1), (MEAN, 1), (COUNT, 1)])
def test_a_token_that_is_revoked_ends_what_is_under_way_before_its_next_question(
    service: Service, request_: dict[str, Any], after: int
) -> None:
    response, asked = interrupted(
        service, request_, after, lambda: service.office.revoke_token("test", "ana")
    )
    assert response.status_code == 401
    assert asked() == after
    assert not [line for line in lines_of(service.folder / "audit.jsonl") if line["event"] == "answer"]


def test_a_browser_whose_token_is_revoked_while_it_asks_is_sent_to_the_door(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = signed_in(service, "ana")
    page = browser.get("/").text
    csrf = page.partition('name="csrf" value="')[2].partition('"')[0]
    real = service.office.database.asking

    def revoking(*given: Any, **named: Any) -> Any:
        service.office.revoke_token("test", "ana")
        return real(*given, **named)

    monkeypatch.setattr(service.office.database, "asking", revoking)
    form = {"csrf": csrf, "do": "ask", "source": "sql", "sql": "count where age > 40"}
    response = browser.post("/ask", data={**form, "exact": "mu", "amount": "0.1"})
    assert (response.status_code, response.headers["location"]) == (303, "/login")


# Where tokens are sent.


def test_no_address_is_redirected_to_another(service: Service) -> None:
    for path in ("/v1/budget/", "/login/", "/docs/", "/health/", "/answers/", "/ask/"):
        response = service.client().get(path, headers={"Host": "evil.example"})
        assert response.status_code == 404, path
        assert "location" not in response.headers


def shown_address(service: Service, **headers: str) -> str:
    """Return where the page of an answer says that programs send their token."""
    caller = service.office.access.find(service.tokens["ana"])
    assert caller is not None
    secret = service.office.access.open_session(caller, hours=1)
    receipts = service.ask(COUNT).json()["receipts"]
    cookie = {"Cookie": f"__Host-discreet={secret}", **headers}
    page = service.client(None).get(f"/answers/{receipts[0]}", headers=cookie).text
    return unescape(page).partition("RemoteDatabase('")[2].partition("'")[0]


def test_behind_a_proxy_pages_name_an_address_with_tls(start: Callable[..., Service]) -> None:
    service = start(behind_proxy=True)
    assert shown_address(service, Host="data.example.org") == "https://data.example.org"


def test_a_declared_address_is_the_one_that_pages_name_and_no_other_host_is_served(
    start: Callable[..., Service],
) -> None:
    service = start(behind_proxy=True, address="https://data.example.org/")
    client = service.client()
    # Whoever reaches it directly is shown where others do.
    assert shown_address(service) == "https://data.example.org"
    for host in ("data.example.org", "DATA.example.org:443"):
        assert client.get("/v1/budget", headers={"Host": host}).status_code == 200, host
    for host in ("evil.example", "data.example.org:80", "data.example.org@evil.example", "a b", "[", ""):
        for path in ("/v1/budget", "/login", "/docs"):
            response = client.get(path, headers={"Host": host})
            assert response.status_code == 400, (host, path)
            assert not host or host not in response.text
    # Machines look under names of their own.
    assert client.get("/health", headers={"Host": "10.0.0.7:8000"}).status_code == 200
    assert client.get("/ready", headers={"Host": "10.0.0.7:8000"}).status_code == 200


# What is refused costs nothing, and what cannot be written down is not done.


def test_a_mean_by_groups_with_a_wrong_receipt_is_refused_before_its_first_half(service: Service) -> None:
    first = service.ask(MEAN).json()["receipts"]
    before = service.office.ledger.spent()
    for refines in ([first[0], first[0]], first[::-1], [first[0], "nope-00"]):
        assert service.ask({**MEAN, "refines": refines}).status_code == 422
    assert service.office.ledger.spent() == before
    assert service.ask({**MEAN, "refines": first}).status_code == 200


def test_what_the_trail_cannot_take_is_not_done_or_stays_on_the_safe_side(
    service: Service, disk: Disk
) -> None:
    curator, order = service.client("cura"), "/v1/curator/tokens"
    disk.full = True
    assert curator.post("/v1/curator/stop", json={"stopped": True}).status_code == 503
    assert service.office.access.stopped() is not None  # stopping is never held up
    assert curator.post("/v1/curator/stop", json={"stopped": False}).status_code == 503
    assert service.office.access.stopped() is not None
    assert curator.post(order, json={"action": "rotate", "name": "ben"}).status_code == 503
    assert service.client("ben").get("/v1/budget").status_code == 200
    assert curator.post(order, json={"action": "create", "name": "dan"}).status_code == 503
    assert curator.post(order, json={"action": "revoke", "name": "ben"}).status_code == 503
    assert service.client("ben").get("/v1/budget").status_code == 401
    disk.full = False
    assert curator.post("/v1/curator/stop", json={"stopped": False}).status_code == 200
    assert service.office.access.stopped() is None


def test_a_rotation_that_is_refused_is_not_in_the_trail(service: Service) -> None:
    with pytest.raises(ParameterError, match="has none"):
        service.office.rotate_token("test", "nobody")
    assert lines_of(service.folder / "audit.jsonl")[-1]["event"] == "token created"


# Readiness.


def test_a_service_whose_engine_is_gone_is_not_ready(service: Service) -> None:
    assert httpx.get(f"{service.url}/ready").status_code == 200
    service.office.database.close()
    service.office._readiness = Readiness(service.office._look)  # what was found before is told for a second
    assert httpx.get(f"{service.url}/ready").status_code == 503
    assert httpx.get(f"{service.url}/health").status_code == 200


def test_an_engine_is_looked_at_once_for_all_who_want_to_know(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    found = Readiness(lambda: looks.append(1))
    for _ in range(50):
        found.check()
    assert len(looks) < 5
    monkeypatch.setattr(readiness, "WITHIN", 0.05)
    go = threading.Event()

    def wait() -> None:
        looks.append(2)
        go.wait(10)

    slow = Readiness(wait)
    for _ in range(2):
        with pytest.raises(EngineFailed):
            slow.check()
    assert looks.count(2) == 1
    go.set()


# Sizes and numbers.


@pytest.mark.parametrize(
    "asked",
    [
        {"kind": "count", "by": ["age", "sex", "city"]},
        {"kind": "histogram", "columns": ["age", "sex", "city"]},
        {"kind": "sentence", "text": "mean(income) by age, sex, city"},
        {"kind": "statistical", "question": Histogram(["age", "sex", "city"]).to_dict()},
        {
            "kind": "statistical",
            "question": NodeTables("owner", [Node([], ["age", "city"])] * 8).to_dict(),
        },
    ],
)
def test_an_answer_with_more_cells_than_the_operator_allows_is_refused_for_free(
    start: Callable[..., Service], asked: dict[str, Any]
) -> None:
    # 121 ages, 3 sexes with the other one, 5 cities with another one and none
    service = start(limits={"per_minute": 100_000, "cells": 121 * 3 * 5 - 1})
    for path in ("/v1/preview", "/v1/query"):
        response = service.client().post(path, json={**asked, "privacy": PRIVACY})
        assert response.status_code == 422, response.text
        assert "at most 1814 numbers" in response.json()["error"]["message"]
    assert service.office.ledger.spent().charges == 0


def test_an_answer_with_as_many_cells_as_the_operator_allows_is_given(start: Callable[..., Service]) -> None:
    service = start(limits={"per_minute": 100_000, "cells": 121 * 3 * 5})
    told = service.ask({"kind": "count", "by": ["age", "sex", "city"], "privacy": PRIVACY})
    assert len(told.json()["cells"]) == 121 * 3 * 5


def test_a_question_of_many_sums_is_refused_before_they_are_read(shared_service: Service) -> None:
    def preview(n: int) -> int:
        question = {"kind": "sums", "expressions": [f"age > {k}" for k in range(n)]}
        asked = {"kind": "statistical", "question": question, "privacy": PRIVACY}
        return shared_service.client().post("/v1/preview", json=asked).status_code

    assert (preview(64), preview(65)) == (200, 422)


@pytest.mark.parametrize(("name", "kind"), [("mu", "gaussian-dp"), ("rho", "zcdp"), ("epsilon", "pure-dp")])
def test_amounts_of_privacy_are_within_reason(shared_service: Service, name: str, kind: str) -> None:
    client = shared_service.client()
    for value, status in ((1e-13, 422), (1e300, 422), (1.1e6, 422), (1.0, 200), (0.01, 200)):
        for asked in ({"kind": "count", "where": "age > 1"}, {"kind": "perceptron", "target": "owner"}):
            body = {**asked, "privacy": {"kind": kind, name: value}}
            response = client.post("/v1/preview", json=body)
            assert response.status_code == status, response.text
            if status == 422:
                assert response.json()["error"]["details"]["fields"] == [f"privacy.{name}"]


def test_the_attack_answers_also_when_charges_promise_next_to_nothing(start: Callable[..., Service]) -> None:
    service = start(limit={"rho": 1e5}, analyst_limit=None)
    for privacy in (GaussianDP(mu=300.0), PureDP(epsilon=1e-9)):
        service.office.database.count("owner = 'yes'", privacy=privacy)
    found = service.client("cura").get("/v1/curator/attack")
    assert found.status_code == 200, found.text
    assert found.json()["used"] == 2


def test_a_history_of_nothing_is_refused_as_the_document_says(shared_service: Service) -> None:
    client = shared_service.client()
    assert client.get("/v1/history?last=0").status_code == 422
    assert client.get("/v1/history?last=1").status_code == 200
    assert client.get("/v1/dummy?seed=0").status_code == 200


def test_a_history_leaves_out_very_large_answers_and_ends_a_page_that_grows_too_large(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for by in (["age", "sex"], ["age", "city"]):  # 363 and 605 cells
        assert service.ask({"kind": "count", "by": by, "privacy": PRIVACY}).status_code == 200
    for k in range(5):
        service.ask({**COUNT, "where": f"age > {k}"})
    client = service.client()
    whole = client.get("/v1/history").json()
    values = [entry["value"] for entry in whole["entries"]]
    assert [value is None for value in values] == [False] * 7
    assert not whole["more"]
    assert books.MOST_VALUES == 4096
    monkeypatch.setattr(books, "MOST_VALUES", 604)
    values = [entry["value"] for entry in client.get("/v1/history").json()["entries"]]
    assert [value is None for value in values] == [False, True] + [False] * 5
    monkeypatch.setattr(books, "MOST_VALUES", 605)
    assert client.get("/v1/history").json() == whole
    monkeypatch.setattr(books, "MOST_BYTES", 20_000)
    found, after = [], 0
    for _ in range(10):
        page = client.get(f"/v1/history?after={after}").json()
        found += page["entries"]
        after = found[-1]["row"]
        if not page["more"]:
            break
        assert len(page["entries"]) < 7
    assert [entry["row"] for entry in found] == [entry["row"] for entry in whole["entries"]]
    assert len(found) > len(page["entries"])


def test_ids_of_requests_tell_nothing_about_other_requests(shared_service: Service) -> None:
    client = shared_service.client(None)
    ids = [client.get("/health").headers["x-request-id"] for _ in range(20)]
    assert len(set(ids)) == 20
    # A counter would have all but the last characters in common.
    assert len({text[:-4] for text in ids}) == 20


def test_text_that_a_spreadsheet_would_run_is_marked_and_numbers_are_not(
    start: Callable[..., Service],
) -> None:
    service = start()
    asked = {"kind": "sum", "expression": "0 - income", "privacy": PRIVACY}
    assert service.ask(asked).json()["value"] < 0
    from discreet.server.routes import _cell

    assert _cell("-2+3+cmd|' /C calc'!A0") == "'-2+3+cmd|' /C calc'!A0"
    assert _cell(-2.5) == -2.5
    (row,) = csv.DictReader(io.StringIO(service.client().get("/v1/history?format=csv").text))
    assert json.loads(row["value"])[0] < 0


def test_a_model_trained_again_is_free_with_or_without_a_key(service: Service) -> None:
    first = service.ask(KMEANS, **{"Idempotency-Key": "k"}).json()
    again = service.ask(KMEANS, **{"Idempotency-Key": "k"}).json()
    assert again["cached"]
    assert again["fitted"] == first["fitted"]
    text = service.client().get("/openapi.json").json()["paths"]["/v1/query"]["post"]["parameters"][0]
    assert "Not used for models" in text["description"]
