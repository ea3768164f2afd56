from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from discreet.batching import Step
from discreet.query import execution
from discreet.query.aggregates import Dependence, DistinctUnits, Histogram, Marginals, NodeTables, TreeNode
from discreet.server import middleware
from discreet.server.errors import ApiException
from discreet.server.limits import RateLimiter
from discreet.server.pages import ask as ask_page
from discreet.server.work import WorkBudget, WorkModel
from discreet.server.workers import FairThreadPool
from tests.server.markup import Visitor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from discreet.batching import QueryTask
    from tests.server.conftest import RunningService

PRIVACY = {"kind": "gaussian-dp", "mu": 0.1}
COUNT = {"kind": "count", "where": "age > 40", "privacy": PRIVACY}
KMEANS = {"kind": "kmeans", "privacy": PRIVACY, "parameters": {"n_clusters": 2, "max_iter": 4}}


def test_a_bucket_gives_what_it_holds_and_fills_with_time() -> None:
    rates = RateLimiter(6)
    assert [rates.take("ana", 0.0) for _ in range(6)] == [None] * 6
    assert rates.take("ana", 0.0) == 10
    assert rates.take("ben", 0.0) is None
    assert rates.take("ana", 9.0) == 1
    assert rates.take("ana", 10.0) is None
    assert rates.take("ana", 10.0) == 10
    # It never holds more than a minute's worth, however long nobody came.
    assert [rates.take("ana", 1e6) for _ in range(7)] == [None] * 6 + [10]


def test_a_clock_that_goes_back_opens_no_bucket() -> None:
    rates = RateLimiter(1)
    assert rates.take("ana", 100.0) is None
    assert rates.take("ana", 50.0) is not None


def test_one_caller_who_asks_too_often_waits_and_others_do_not(start: Callable[..., RunningService]) -> None:
    service = start(limits={"per_minute": 5})
    client = service.client("ana")
    codes = [client.get("/v1/datasets/town/schema").status_code for _ in range(6)]
    assert codes == [200] * 5 + [429]
    response = client.get("/v1/datasets/town/schema")
    assert response.json()["error"]["code"] == "rate-limited"
    assert 1 <= int(response.headers["retry-after"]) <= 12
    assert service.client("ben").get("/v1/datasets/town/schema").status_code == 200
    assert service.client(None).get("/health").status_code == 200


def test_logging_in_counts_as_coming(start: Callable[..., RunningService]) -> None:
    service = start(limits={"per_minute": 5})
    sent = {"token": service.tokens["ana"]}
    responses = [httpx.post(f"{service.url}/login", data=sent) for _ in range(6)]
    assert [response.status_code for response in responses] == [303] * 5 + [429]
    assert "set-cookie" not in responses[-1].headers
    assert int(responses[-1].headers["retry-after"]) >= 1
    assert service.client("ana").get("/v1/datasets/town/schema").status_code == 429
    assert service.client("ben").get("/v1/datasets/town/schema").status_code == 200


class Held:
    """Work of an backend that waits until it is let go."""

    def __init__(
        self, service: RunningService, monkeypatch: pytest.MonkeyPatch, what: str = "ask_task"
    ) -> None:
        self.go, self.began = threading.Event(), threading.Semaphore(0)
        real = getattr(service.backend, what)

        def slow(*given: Any, **named: Any) -> Any:
            self._wait(())
            return real(*given, **named)

        def slow_flow(*given: Any, **named: Any) -> QueryTask[Any]:
            yield Step(self._wait, None)
            return (yield from real(*given, **named))

        monkeypatch.setattr(service.backend, what, slow_flow if what == "ask_task" else slow)

    def _wait(self, waiting: Sequence[None]) -> Sequence[None]:
        self.began.release(max(1, len(waiting)))
        assert self.go.wait(30)
        return waiting


def test_more_questions_than_fit_are_told_to_come_again_and_the_curator_still_gets_in(
    start: Callable[..., RunningService], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start(limits={"concurrent": 2, "per_minute": 1000})
    held, codes = Held(service, monkeypatch), []
    threads = [
        threading.Thread(target=lambda: codes.append(service.ask(COUNT).status_code)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert held.began.acquire(timeout=120)
    response = service.ask(COUNT, "ben")
    assert response.status_code == 429
    assert response.json()["error"]["code"] == "busy"
    assert int(response.headers["retry-after"]) >= 1
    cura = service.client("cura")
    assert cura.get("/v1/datasets/town/curator/overview").status_code == 200
    assert cura.post("/v1/datasets/town/curator/stop", json={"stopped": False}).status_code == 200
    held.go.set()
    for thread in threads:
        thread.join(30)
    assert codes == [200, 200]
    assert service.ask(COUNT, "ben").status_code == 200


def test_a_room_gives_each_caller_a_share_and_a_line_and_refuses_whoever_comes_after() -> None:
    go, ran = threading.Event(), []

    def work(who: str) -> str:
        assert go.wait(20)
        ran.append(who)
        return who

    async def asking() -> None:
        room = FairThreadPool("test", 4, share=2, max_waiting=1)
        busy = [asyncio.create_task(room.run("ana", lambda: work("ana"))) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(ApiException):
            await room.run("ana", lambda: "too many")
        # Two of four threads are left, though three jobs would have taken three.
        for _ in range(2):
            assert await asyncio.wait_for(room.run("ben", lambda: "at once"), 10) == "at once"
        assert ran == []
        busy[2].cancel()  # whoever leaves the line makes room in it
        await asyncio.sleep(0)
        busy[2] = asyncio.create_task(room.run("ana", lambda: work("ana")))
        go.set()
        assert await asyncio.gather(*busy) == ["ana"] * 3
        assert await room.run("ana", lambda: "again") == "again"
        room.close()

    asyncio.run(asking())


def test_a_thread_whose_caller_has_left_is_still_part_of_the_share() -> None:
    go = threading.Event()

    async def asking() -> None:
        room = FairThreadPool("test", 2, share=1, max_waiting=0)
        left = asyncio.create_task(room.run("ana", lambda: go.wait(20)))
        await asyncio.sleep(0)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        with pytest.raises(ApiException):
            await room.run("ana", lambda: True)
        go.set()
        room.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(asking())


def test_one_caller_who_asks_too_much_at_once_is_told_so_and_others_are_answered(
    start: Callable[..., RunningService], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start(limits={"concurrent": 12, "per_minute": 1000})
    codes: list[int] = []
    with monkeypatch.context() as patched:
        held = Held(service, patched)
        threads = [
            threading.Thread(target=lambda: codes.append(service.ask(COUNT).status_code)) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert held.began.acquire(timeout=120)
        # A quarter of twelve is taken; nine are left, and none of them for ana.
        response = service.ask(COUNT)
        assert (response.status_code, response.json()["error"]["code"]) == (429, "busy")
        ben = threading.Thread(target=lambda: codes.append(service.ask(COUNT, "ben").status_code))
        ben.start()
        assert held.began.acquire(timeout=120)
        held.go.set()
        for thread in (*threads, ben):
            thread.join(30)
    assert codes == [200] * 4
    assert service.ask(COUNT).status_code == 200


def test_whoever_crowds_the_desk_with_free_requests_keeps_neither_others_nor_the_curator_waiting(
    start: Callable[..., RunningService], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start(limits={"per_minute": 1000})
    held, codes = Held(service, monkeypatch, "preview"), []

    def preview(who: str) -> None:
        response = service.client(who).post("/v1/datasets/town/preview", json=COUNT)
        codes.append(response.status_code)

    def crowd(who: str, n: int) -> list[threading.Thread]:
        threads = [threading.Thread(target=preview, args=(who,)) for _ in range(n)]
        for thread in threads:
            thread.start()
        return threads

    threads = crowd("ana", 12)
    for _ in range(2):
        assert held.began.acquire(timeout=120)
    assert not held.began.acquire(timeout=0.3), "ana has more than her share"
    assert service.client("ben").get("/v1/datasets/town/budget", timeout=120).status_code == 200
    # All of the desk is taken once four have come.
    for name in ("ben", "carl", "dora"):
        if name != "ben":
            service.tokens[name] = service.backend.create_token("test", name)
        threads += crowd(name, 2)
        for _ in range(2):
            assert held.began.acquire(timeout=120)
    for who in (None, "ana"):
        assert service.client(who).get("/ready", timeout=120).status_code == 200
        assert service.client(who).get("/health", timeout=120).status_code == 200
    cura = service.client("cura")
    assert (
        cura.post("/v1/datasets/town/curator/stop", json={"stopped": False}, timeout=120).status_code == 200
    )
    held.go.set()
    for thread in threads:
        thread.join(30)
    assert codes == [200] * 18


def test_a_question_that_takes_too_long_is_answered_later_and_then_free(
    start: Callable[..., RunningService], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start(limits={"seconds": 1, "per_minute": 1000})
    with monkeypatch.context() as patched:
        held = Held(service, patched)
        response = service.ask(COUNT)
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "engine-failed"
        held.go.set()
    limit = time.monotonic() + 120
    while not service.backend.dataset.ledger.spent().charges:
        assert time.monotonic() < limit
        time.sleep(0.01)
    # The slow one may still be on its way; a repeat waits for it or finds what it left.
    assert service.ask(COUNT).status_code == 200
    assert service.backend.dataset.ledger.spent().charges == 1


def test_what_is_free_and_takes_too_long_is_not_said_to_be_charged(
    start: Callable[..., RunningService], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start(limits={"seconds": 1, "per_minute": 1000})
    held = Held(service, monkeypatch, "preview")
    preview = service.client().post("/v1/datasets/town/preview", json=heavy(2))
    go = threading.Event()
    monkeypatch.setattr(ask_page, "run_trial", lambda *_: go.wait(30))
    analyst = Visitor(service, "ana")
    trial = analyst.client.post(
        "/datasets/town/ask",
        data={"csrf": analyst.csrf(), "do": "try", "source": "sql", "sql": "count"},
        headers={"accept": "text/html"},
    )
    held.go.set()
    go.set()
    error = preview.json()["error"]
    assert (preview.status_code, error["code"]) == (trial.status_code, "busy") == (429, "busy")
    for text in (error["message"], trial.text):
        assert "longer than the service waits for it, and goes on. Nothing was charged." in text
        assert "charge stands" not in text


def test_whoever_sends_a_body_drop_by_drop_is_not_waited_for(start: Callable[..., RunningService]) -> None:
    service = start(limits={"seconds": 1, "per_minute": 1000})
    host, port = service.url.removeprefix("http://").split(":")
    body = json.dumps(COUNT).encode()
    head = (
        "POST /v1/datasets/town/query HTTP/1.1\r\n"
        f"Host: {host}\r\nAuthorization: Bearer {service.tokens['ana']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=120) as connection:
        connection.sendall(head.encode() + body[:5])
        # The rest of the body never comes, so an answer shows that nobody waited for it.
        answer = connection.recv(65536)
    assert b" 408 " in answer.splitlines()[0]
    assert b"did not arrive in time. Nothing was charged." in answer
    assert service.backend.dataset.ledger.spent().charges == 0


def test_whoever_leaves_before_the_answer_has_paid_once_and_finds_it_later(service: RunningService) -> None:
    host, port = service.url.removeprefix("http://").split(":")
    body = json.dumps(COUNT).encode()
    head = (
        "POST /v1/datasets/town/query HTTP/1.1\r\n"
        f"Host: {host}\r\nAuthorization: Bearer {service.tokens['ana']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=120) as connection:
        connection.sendall(head.encode() + body)
    limit = time.monotonic() + 120
    while not service.backend.dataset.ledger.spent().charges:
        assert time.monotonic() < limit
        time.sleep(0.01)
    assert service.ask(COUNT).status_code == 200
    assert service.backend.dataset.ledger.spent().charges == 1


def test_many_at_once_pay_once_for_one_question_and_never_pass_a_limit(
    start: Callable[..., RunningService],
) -> None:
    service = start(analyst_limit={"rho": 0.05}, limits={"concurrent": 64, "per_minute": 100_000})
    codes: list[int] = []

    def ask(n: int) -> None:
        asked = ({**COUNT, "where": f"age > {(n + i) % 16}"} for i in range(4))
        codes.extend(service.ask(question).status_code for question in asked)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    # Ten questions at 0.005 fit; whoever repeats one of them is answered, everybody else is refused.
    assert service.backend.dataset.ledger.spent("ana").charges == 10
    assert set(codes) == {200, 409}
    assert len(codes) == 64
    service.backend.dataset.ledger.check()


def test_answers_leave_at_the_end_of_a_slot_and_repeats_at_once(
    start: Callable[..., RunningService], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start(slots=0.4)
    began = time.monotonic()
    assert service.ask(COUNT).status_code == 200
    assert time.monotonic() - began >= 0.4
    waits: list[float] = []
    monkeypatch.setattr(execution, "sleep", waits.append)
    assert service.ask(COUNT).json()["cached"]
    assert waits == []


@pytest.mark.parametrize(
    "asked",
    [
        {"kind": "count", "by": ["age", "sex", "city"]},
        {"kind": "histogram", "columns": ["age", "sex", "city"]},
        {"kind": "sentence", "text": "mean(income) by age, sex, city"},
        {"kind": "statistical", "question": Histogram(["age", "sex", "city"]).to_dict()},
        {"kind": "statistical", "question": DistinctUnits(["age", "sex", "city"]).to_dict()},
        {"kind": "statistical", "question": Marginals([["age", "sex", "city"]]).to_dict()},
        {
            "kind": "statistical",
            "question": NodeTables("owner", [TreeNode([], ["age", "city"])] * 8).to_dict(),
        },
    ],
)
def test_an_answer_with_more_cells_than_the_operator_allows_is_refused_for_free(
    start: Callable[..., RunningService], asked: dict[str, Any]
) -> None:
    # 121 ages, 3 sexes with the other one, 5 cities with another one and none
    service = start(limits={"per_minute": 100_000, "cells": 121 * 3 * 5 - 1})
    for path in ("/v1/datasets/town/preview", "/v1/datasets/town/query"):
        response = service.client().post(path, json={**asked, "privacy": PRIVACY})
        assert response.status_code == 422, response.text
        assert "at most 1814 numbers" in response.json()["error"]["message"]
    assert service.backend.dataset.ledger.spent().charges == 0


def test_an_answer_with_as_many_cells_as_the_operator_allows_is_given(
    start: Callable[..., RunningService],
) -> None:
    service = start(limits={"per_minute": 100_000, "cells": 121 * 3 * 5})
    told = service.ask({"kind": "count", "by": ["age", "sex", "city"], "privacy": PRIVACY})
    assert len(told.json()["cells"]) == 121 * 3 * 5


def test_tables_that_are_counted_and_not_shown_may_be_larger_and_are_split_if_they_are_too_large(
    start: Callable[..., RunningService],
) -> None:
    # 121 ages with 3 sexes and with 5 cities, and 15 of both: 983 cells behind three numbers.
    service = start(limits={"per_minute": 100_000, "cells": 60, "body_bytes": 1600})
    pairs = [("age", "sex"), ("age", "city"), ("sex", "city")]
    margins = {"age": [1] * 121, "sex": [40, 41, 40], "city": [25, 24, 24, 24, 24]}
    question = Dependence(pairs, reference={"kind": "given", "margins": margins, "by": None})
    values = [[1] * (121 * 3), [1] * (121 * 5), [1] * 15]
    large = Dependence(pairs, reference={"kind": "tables", "values": values})

    def preview(asked: Dependence) -> Any:
        body = {"kind": "statistical", "question": asked.to_dict(), "privacy": PRIVACY}
        return service.client().post("/v1/datasets/town/preview", json=body)

    assert "at most 960 cells in all, and these have 983" in preview(question).json()["error"]["message"]
    assert [preview(part).status_code for part in question.split(1)] == [200] * 3
    assert preview(large).json()["error"]["code"] == "too-large"
    assert [preview(part).status_code for part in large.split(1)] == [200] * 3
    assert service.backend.dataset.ledger.spent().charges == 0


def test_a_question_of_many_sums_is_refused_before_they_are_read(shared_service: RunningService) -> None:
    def preview(n: int) -> int:
        question = {"kind": "sums", "expressions": [f"age > {k}" for k in range(n)]}
        asked = {"kind": "statistical", "question": question, "privacy": PRIVACY}
        return shared_service.client().post("/v1/datasets/town/preview", json=asked).status_code

    assert (preview(64), preview(65)) == (200, 422)


# Work.


def heavy(number: int) -> dict[str, Any]:
    """Return a question of 64 expressions, each of about a thousand characters."""
    branch = "CASE WHEN age > {0} AND income < {1} THEN age / 120 ELSE 0 END"
    texts = [" + ".join(branch.format(i, 64 * number + text + 1) for i in range(16)) for text in range(64)]
    return {"kind": "statistical", "question": {"kind": "sums", "expressions": texts}, "privacy": PRIVACY}


@pytest.mark.slow
def test_a_heavy_question_is_answered_as_any_and_again_for_free(service: RunningService) -> None:
    first, again = service.ask(heavy(1)), service.ask(heavy(1))
    assert (first.status_code, again.status_code) == (200, 200)
    sent, repeated = first.json(), again.json()
    assert repeated["cached"]
    assert not sent["cached"]
    assert repeated["answer"]["value"] == sent["answer"]["value"]
    cost = service.client().post("/v1/datasets/town/preview", json=heavy(2))
    assert cost.status_code == 200
    assert service.backend.dataset.ledger.spent().charges == 1
    bad = heavy(3)
    bad["question"]["expressions"][63] = "nothing + 1"
    refused = service.ask(bad)
    assert refused.status_code == 422
    assert "nothing" in refused.json()["error"]["message"]


@pytest.mark.slow
def test_whoever_has_used_up_the_work_of_an_hour_is_refused_before_the_charge(
    start: Callable[..., RunningService],
) -> None:
    service = start(limits={"per_minute": 100_000, "work_per_hour": 1.0})
    statuses = [service.ask(heavy(number)).status_code for number in range(1, 4)]
    assert statuses == [200, 429, 429]
    response = service.ask(heavy(9))
    assert response.json()["error"]["code"] == "work-limited"
    assert 1 <= int(response.headers["retry-after"]) <= 3600
    assert service.client().post("/v1/datasets/town/preview", json=heavy(9)).status_code == 429
    assert service.backend.dataset.ledger.spent().charges == 1
    assert service.ask(COUNT, who="ben").status_code == 200


def busy(
    start: Callable[..., RunningService], patch: pytest.MonkeyPatch, **estimates: float
) -> tuple[RunningService, WorkBudget]:
    """Return a service whose callers have a second of work an hour, with fixed estimates, and its budget."""
    budget = WorkBudget(1.0)
    patch.setattr(time, "thread_time", lambda: 0.0)  # what a model computes by itself
    patch.setattr(middleware, "WorkBudget", lambda _: budget)
    service = start(limits={"per_minute": 100_000})
    for name, seconds in estimates.items():
        patch.setattr(WorkModel, name, lambda *_, _seconds=seconds, **__: _seconds)
    return service, budget


def test_the_steps_of_a_model_are_work_and_those_that_were_paid_for_are_less(
    start: Callable[..., RunningService], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, budget = busy(start, monkeypatch, estimate_reading=0.01)
    asked: list[int] = []

    def estimate(model: WorkModel, **_: int) -> float:
        asked.append(model.rows)
        return 0.45 if model.rows else 0.01

    monkeypatch.setattr(WorkModel, "estimate_question", estimate)
    refused = service.ask(KMEANS)
    assert refused.status_code == 429
    error = refused.json()["error"]
    assert (error["code"], error["hint"].partition(", ")[2]) == (
        "work-limited", "and train it again: its earlier steps are free.",
    )  # fmt: skip
    assert service.backend.dataset.ledger.spent().charges == 2
    asked.clear()
    budget._levels.clear()  # an hour later
    again = service.ask(KMEANS)
    assert asked.count(0) == 2
    assert again.status_code == 429
    assert service.backend.dataset.ledger.spent().charges == 4


def test_a_model_that_costs_nothing_more_is_not_trained_without_end(
    start: Callable[..., RunningService], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, _ = busy(start, monkeypatch, estimate_question=0.06, estimate_reading=0.0)
    statuses = [service.ask(KMEANS).status_code for _ in range(6)]
    assert statuses[0] == 200
    assert statuses[-1] == 429
    job = service.client().post("/v1/datasets/town/jobs", json=KMEANS).json()
    deadline = time.monotonic() + 60
    while job["state"] in ("waiting", "running"):
        assert time.monotonic() < deadline
        job = service.client().get(f"/v1/datasets/town/jobs/{job['id']}").json()
    assert (job["state"], job["error"]["code"]) == ("refused", "work-limited")
    assert service.ask(COUNT, who="ben").status_code == 200


def test_previews_saved_questions_and_made_up_rows_are_work(
    start: Callable[..., RunningService], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, budget = busy(start, monkeypatch, estimate_planning=0.4, estimate_dummy=0.4)
    save = {"title": "old", "text": "count where age > 60", "privacy": PRIVACY}
    paths: list[tuple[str, str, Any]] = [
        ("POST", "preview", COUNT), ("POST", "saved", save), ("GET", "dummy?n=5", None),
    ]  # fmt: skip
    client = service.client()
    for method, path, body in paths:
        budget._levels.clear()
        statuses = [
            client.request(method, f"/v1/datasets/town/{path}", json=body).status_code for _ in range(3)
        ]
        assert statuses == [200, 200, 429], path


def test_trials_on_made_up_rows_are_work(
    start: Callable[..., RunningService], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, _ = busy(start, monkeypatch, estimate_trial=0.4)
    visitor = Visitor(service)
    page = visitor.get("/datasets/town")
    asked = {"source": "sql", "sql": "count where age > 30", "exact": "mu", "amount": "0.1", "do": "try"}
    codes = [visitor.send(page, "/datasets/town/ask", **asked).status_code for _ in range(3)]
    assert codes == [200, 200, 429]
    assert service.backend.dataset.ledger.spent().charges == 0
