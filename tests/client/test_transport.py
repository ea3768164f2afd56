"""What a client does when there is no answer: the right exception, or another attempt that is not paid."""

from __future__ import annotations

import re
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from discreet import RemoteDatabase
from discreet.client import transport
from discreet.errors import (
    AccessRefused,
    BudgetExceeded,
    DiscreetError,
    EngineFailed,
    ExpressionRefused,
    LedgerUnavailable,
    ParameterError,
    PromiseError,
    SchemaError,
    ServiceError,
    ServiceUnavailable,
)
from discreet.query import Sums
from tests.server.scripted import SILENCE, Heard, LossyProxy, Say, served
from tests.server.stand_in import MU, TOKEN, StandIn, closed_port, standing_in

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the client would have slept."""
    slept: list[float] = []
    monkeypatch.setattr("discreet.client.transport.sleep", slept.append)
    return slept


# Errors come back as themselves.


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (Say.error(401, "unauthorized"), AccessRefused, "It is unauthorized. Do otherwise."),
        (Say.error(403, "forbidden"), AccessRefused, "It is forbidden"),
        (Say(403, b"go away", {"Content-Type": "text/plain"}), AccessRefused, "before it refused"),
        (Say.error(422, "invalid"), ParameterError, "It is invalid. Do otherwise."),
        (Say.error(422, "invalid", {"error": "PromiseError"}), PromiseError, "It is invalid"),
        (Say.error(422, "invalid", {"error": "SchemaError"}), SchemaError, "It is invalid"),
        (Say.error(422, "invalid", {"error": "SystemExit"}), ParameterError, "It is invalid"),
        (Say.error(413, "too-large"), ParameterError, "It is too-large"),
        (Say.error(409, "key-reused"), ParameterError, "It is key-reused"),
        (Say.error(422, "refused"), ParameterError, "It is refused"),
        (Say.error(423, "stopped"), ServiceUnavailable, "It is stopped. Do otherwise. Nothing was charged."),
        (Say.error(500, "failed"), ServiceUnavailable, "may have been charged"),
        (Say.error(418, "teapot"), ServiceError, "It is teapot. Do otherwise. Nothing was charged."),
        (Say(422, b"\xff"), ServiceError, "status 422"),
    ],
)
def test_a_refusal_is_the_exception_that_a_database_would_raise(
    said: Say, kind: type[DiscreetError], words: str, naps: list[float]
) -> None:
    with standing_in(said) as (stand_in, db):
        with pytest.raises(DiscreetError, match=re.escape(words)) as told:
            db.ask(Sums("age"), privacy=MU)
        assert type(told.value) is kind
        assert len(stand_in.heard) == 1
        assert naps == []


def test_a_refused_budget_says_what_is_left() -> None:
    details = {"asked": 0.5, "left": 0.25, "limit": 1.0, "currency": "rho", "scope": "own", "fits": None}
    with (
        standing_in(Say.error(409, "budget-exceeded", details)) as (_, db),
        pytest.raises(BudgetExceeded, match="It is budget-exceeded") as told,
    ):
        db.ask(Sums("age"), privacy=MU)
    caught = told.value
    assert (caught.asked, caught.left, caught.limit) == (0.5, 0.25, 1.0)
    assert (caught.currency, caught.scope) == ("rho", "own")


@pytest.mark.parametrize("amount", [None, "1", True, [1], {"rho": 1}])
def test_a_refused_budget_without_numbers_is_still_one(amount: Any) -> None:
    details = {"asked": amount, "left": amount}
    with (
        standing_in(Say.error(409, "budget-exceeded", details)) as (_, db),
        pytest.raises(BudgetExceeded) as told,
    ):
        db.ask(Sums("age"), privacy=MU)
    assert (told.value.asked, told.value.left) == (0.0, 0.0)


def test_a_refused_text_says_what_and_what_instead() -> None:
    details = {"refused": "a subquery", "nearest": "Write a condition."}
    with (
        standing_in(Say.error(422, "refused", details)) as (_, db),
        pytest.raises(ExpressionRefused) as told,
    ):
        db.query("count where age > 4", privacy=MU)
    assert (told.value.construct, told.value.hint) == ("a subquery", "Write a condition.")


def test_a_message_from_outside_can_neither_hide_nor_flood() -> None:
    error = {"code": "invalid", "message": "a\x1b[2Jb\u202e" + "x" * 10_000, "hint": 7, "details": []}
    with (
        standing_in(Say.json({"error": error}, 422)) as (_, db),
        pytest.raises(ParameterError, match=r"^a\\u001b\[2Jb\\u202exxx") as told,
    ):
        db.ask(Sums("age"), privacy=MU)
    assert len(str(told.value)) <= 2000


# Attempts.


@pytest.mark.parametrize(
    "trouble",
    [
        SILENCE,
        Say.error(429, "busy"),
        Say.error(429, "rate-limited"),
        Say.error(503, "engine-failed"),
        Say.error(503, "ledger-unavailable"),
        Say(502, b"bad gateway", {"Content-Type": "text/html"}),
        Say(503, b""),
        Say(504, b""),
        Say(429, b""),
        Say(200, b'{"kind":', {"Content-Type": "application/json", "Content-Length": "900"}),
    ],
)
def test_trouble_that_passes_is_waited_out_under_one_key(trouble: Say, naps: list[float]) -> None:
    with standing_in(trouble, trouble) as (stand_in, db):
        answer = db.ask(Sums("age"), privacy=MU)
        assert answer.value == stand_in.database.ask(Sums("age"), privacy=MU).value
        assert len(stand_in.heard) == 3
        assert len(set(stand_in.keys)) == 1
        assert len({heard.body for heard in stand_in.heard}) == 1
        first, second = naps
        assert 0 < first < second < 1


def test_a_service_that_asks_for_time_gets_it(naps: list[float]) -> None:
    with standing_in(Say.error(429, "rate-limited", Retry_After="7")) as (_, db):
        db.ask(Sums("age"), privacy=MU)
    assert naps == [7.0]


def test_the_message_says_once_what_was_charged(naps: list[float]) -> None:
    error = {"message": "It is busy. Nothing was charged.", "hint": "Try again in a moment.", "details": {}}
    busy = Say.json({"error": {"code": "busy", **error}}, 429)
    with standing_in(busy, busy, retries=1) as (_, db), pytest.raises(ServiceUnavailable) as told:
        db.ask(Sums("age"), privacy=MU)
    words = "It is busy. Try again in a moment. That was attempt 2."
    assert str(told.value) == f"{words} Nothing was charged."
    with standing_in(SILENCE, busy, retries=1) as (_, db), pytest.raises(ServiceUnavailable) as told:
        db.ask(Sums("age"), privacy=MU)
    maybe = "It may have been charged; if it was, the same again is free and gets the answer that was lost."
    assert str(told.value) == f"{words} {maybe}"
    assert len(naps) == 2


@pytest.mark.parametrize("value", ["soon", "-3", "1e9", "٣", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_a_time_that_cannot_be_read_is_our_own(value: str, naps: list[float]) -> None:
    with standing_in(Say.error(429, "busy", Retry_After=value.encode().decode("latin-1"))) as (_, db):
        db.ask(Sums("age"), privacy=MU)
    assert 0 < naps[0] < 1


def test_a_service_that_asks_for_an_hour_is_not_waited_for(naps: list[float]) -> None:
    with (
        standing_in(Say.error(429, "rate-limited", Retry_After="3600")) as (_, db),
        pytest.raises(ServiceUnavailable, match="Nothing was charged") as told,
    ):
        db.ask(Sums("age"), privacy=MU)
    assert told.value.wait == 3600.0
    assert naps == []


def test_questions_have_keys_of_their_own() -> None:
    with standing_in() as (stand_in, db):
        for _ in range(3):
            db.ask(Sums("age"), privacy=MU)
        assert len(set(stand_in.keys)) == 3
        assert all(re.fullmatch("[0-9a-f]{32}", key) for key in stand_in.keys)


def test_a_question_without_an_answer_keeps_its_key() -> None:
    with standing_in(SILENCE, SILENCE, SILENCE, retries=1) as (stand_in, db):
        with pytest.raises(ServiceUnavailable, match=r"attempt 2.*may have been charged.*free") as told:
            db.ask(Sums("age"), privacy=MU)
        assert told.value.may_be_charged
        db.ask(Sums("share"), privacy=MU)
        db.ask(Sums("age"), privacy=MU)
        keys = stand_in.keys
        # age, age; then share twice; then age again.
        assert keys[0] == keys[1] == keys[4]
        assert keys[2] == keys[3] != keys[0]
        db.ask(Sums("age"), privacy=MU)
        assert stand_in.keys[5] not in keys


def test_an_interrupt_while_waiting_keeps_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    with standing_in(SILENCE) as (stand_in, db):
        with monkeypatch.context() as patched:
            patched.setattr("discreet.client.transport.sleep", interrupted)
            with pytest.raises(KeyboardInterrupt):
                db.ask(Sums("age"), privacy=MU)
        db.ask(Sums("age"), privacy=MU)
        assert len(set(stand_in.keys)) == 1


def test_keys_of_questions_that_are_never_answered_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_MAX_UNANSWERED", 3)
    with standing_in(*[Say.error(422, "invalid")] * 5) as (_, db):
        for i in range(5):
            with pytest.raises(ParameterError):
                db.ask(Sums(f"age + {i}"), privacy=MU)
        assert len(db._transport._unanswered) == 3


def test_nobody_there_means_nothing_was_charged() -> None:
    with standing_in(retries=2) as (_, db):
        pass
    gone = RemoteDatabase.__new__(RemoteDatabase)
    vars(gone).update(vars(db))
    gone._transport = transport.Transport(
        f"http://127.0.0.1:{closed_port()}", transport.BearerToken(TOKEN), timeout=5, retries=2, verify=True
    )
    with pytest.raises(ServiceUnavailable, match=r"cannot be reached.*attempt 3\. Nothing was") as told:
        gone.sum("age", privacy=MU)
    assert not told.value.may_be_charged
    gone.close()


def test_a_service_that_does_not_answer_in_time_may_have_charged() -> None:
    waiting = threading.Event()

    class Slow(StandIn):
        def __call__(self, heard: Heard) -> Say:
            if heard.method == "POST":
                waiting.wait(10)
            return super().__call__(heard)

    with served(Slow()) as url, RemoteDatabase(url, "survey", TOKEN) as db:
        db.close()
        db._transport = transport.Transport(
            url, transport.BearerToken(TOKEN), timeout=0.2, retries=0, verify=True
        )
        with pytest.raises(ServiceUnavailable, match=r"within 0\.2 seconds.*may have been charged") as told:
            db.ask(Sums("age"), privacy=MU)
        waiting.set()
    assert told.value.may_be_charged


def test_trouble_that_stays_is_told_as_what_it_is() -> None:
    for said, kind, words in (
        (Say.error(503, "engine-failed"), EngineFailed, "the repeat is free"),
        (Say.error(503, "ledger-unavailable"), LedgerUnavailable, "It is ledger-unavailable"),
        (Say.error(429, "busy"), ServiceUnavailable, r"It is busy.*Nothing was charged"),
        (Say(502, b""), ServiceUnavailable, "may have been charged"),
    ):
        with standing_in(said, said, retries=1) as (stand_in, db):
            with pytest.raises(kind, match=words):
                db.ask(Sums("age"), privacy=MU)
            assert len(stand_in.heard) == 2


def test_what_costs_nothing_says_nothing_about_charges() -> None:
    with served(lambda _: SILENCE) as url, pytest.raises(ServiceUnavailable) as told:
        RemoteDatabase(url, "survey", TOKEN, retries=1)
    assert "charged" not in str(told.value)


# TLS.


def test_a_service_proves_who_it_is(certificate: tuple[Path, Path], naps: list[float]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    stand_in = StandIn()
    with served(stand_in, tls=context) as url:
        assert url.startswith("https://")
        with pytest.raises(ServiceError, match=r"CERTIFICATE_VERIFY_FAILED.*verify="):
            RemoteDatabase(url, "survey", TOKEN)
        assert naps == []
        for verify in (certificate[0], ssl.create_default_context(cafile=str(certificate[0]))):
            with RemoteDatabase(url, "survey", TOKEN, verify=verify) as db:
                assert (
                    db.ask(Sums("age"), privacy=MU).value
                    == stand_in.database.ask(Sums("age"), privacy=MU).value
                )
    with served(stand_in) as url, pytest.raises(ServiceError, match="must prove who it is"):
        RemoteDatabase(url.replace("http", "https"), "survey", TOKEN)


# Lost answers are paid once, also where nobody but the client and its key could know.


class NewKeys(transport.Transport):
    """The wrong twin: each attempt is a request of its own."""

    def _attempt(self, method: str, path: str, **more: Any) -> Any:
        if "Idempotency-Key" in more["headers"]:
            more["headers"] = {**more["headers"], "Idempotency-Key": f"key-{time.monotonic_ns()}"}
        return super()._attempt(method, path, **more)


def test_a_proxy_that_loses_every_second_answer_is_noticed_by_nobody() -> None:
    stand_in = StandIn()
    with served(stand_in) as behind:
        proxy = LossyProxy(behind, lambda n: n % 2 == 1)
        with served(proxy) as url, RemoteDatabase(url, "survey", TOKEN) as db:
            for text in ("age", "share", "age > 4"):
                db.ask(Sums(text), privacy=MU)
        assert len(proxy.heard) == 6
        assert stand_in.ledger.spent().charges == 3
        assert stand_in.keys[0::2] == stand_in.keys[1::2]
        twin = LossyProxy(behind, lambda n: n % 2 == 1)
        with served(twin) as url, RemoteDatabase(url, "survey", TOKEN) as db:
            db._transport.__class__ = NewKeys
            db.ask(Sums("age"), privacy=MU)
        assert len({heard.headers["idempotency-key"] for heard in twin.heard}) == 2
