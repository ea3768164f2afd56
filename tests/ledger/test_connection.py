"""A ledger in PostgreSQL whose connection dies at any moment between a charge and its answer.

A proxy stands between ledger and server. It counts what the client sends, and cuts the connection at the k-th
message: before the server gets it, or after, so that what the server did is not acknowledged.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import numpy as np
import pytest

from discreet.errors import LedgerUnavailable
from discreet.ledger import Ledger
from discreet.privacy.promises import PureDP
from discreet.query import Database, Sums
from discreet.schema import Column, Schema
from tests.postgres import PASSWORD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from discreet.privacy.receipt import Receipt

pytestmark = pytest.mark.slow  # a cut connection is noticed by waiting
TENTH = PureDP(epsilon=0.1)
MOST = 40
"""Messages after which no cut happens any more: a charge and its answer take fewer."""
_numbers = itertools.count()


class Proxy:
    """Passes on what a client and a PostgreSQL server say, until it is told to cut."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition(":")[0] + f":{port}"))
        self._cut_at: int | None = None
        self._forward = self.stall = self._drop_reply = False
        self.cuts = 0
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, at: int, *, forward: bool) -> None:
        """Cut at the client's message number `at` from now, forwarding it first or not."""
        self._cut_at, self._forward, self._drop_reply = at, forward, False

    def heal(self) -> None:
        """Cut no more."""
        self._cut_at, self._drop_reply = None, False

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                self._sockets += [client, server]
                for work in (self._upward, self._downward):
                    threading.Thread(target=work, args=(client, server), daemon=True).start()

    def _upward(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if self.stall:
                    continue
                if self._cut_at is not None:
                    self._cut_at -= 1
                    if self._cut_at < 0:
                        self._cut_at = None
                        self.cuts += 1
                        if not self._forward:
                            break
                        self._drop_reply = True
                server.sendall(data)
        self._end(client, server)

    def _downward(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if self._drop_reply:
                    self._drop_reply = False
                    break
                if not self.stall:
                    client.sendall(data)
        self._end(client, server)

    @staticmethod
    def _end(*ends: socket.socket) -> None:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for end in (self._listener, *self._sockets):
            self._end(end)
            end.close()


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    made = Proxy(postgres_url)
    yield made
    made.close()


def repeated(act: Callable[[], Receipt | bytes], proxy: Proxy) -> tuple[Receipt | bytes, list[str]]:
    """Do something until the ledger can be reached; return its result and what was said before."""
    said: list[str] = []
    while True:
        try:
            return act(), said
        except LedgerUnavailable as problem:
            said.append(str(problem))
            assert len(said) <= 2
            proxy.heal()


@pytest.mark.parametrize("forward", [False, True], ids=["before the server", "before the answer"])
def test_a_cut_at_any_message_charges_once_and_keeps_one_answer(
    proxy: Proxy, postgres_url: str, forward: bool
) -> None:
    cuts = 0
    for at in range(MOST):
        name = f"#cut_{next(_numbers)}"
        with Ledger.open(proxy.url + name, timeout=120) as ledger, Ledger.open(postgres_url + name) as direct:
            proxy.cut(at, forward=forward)
            before = proxy.cuts

            def charge(ledger: Ledger = ledger) -> Receipt:
                return ledger.charge(TENTH, owner="ana", question="q", request="key", asked={"sum": "age"})

            receipt, said = repeated(charge, proxy)
            # Whatever is drawn now was paid for, as whoever else looks can see.
            direct.check(receipt)  # type: ignore[arg-type]
            kept, more = repeated(lambda: ledger.store(receipt, b"first"), proxy)  # type: ignore[arg-type]  # noqa: B023
            proxy.heal()
            again = charge()
            assert (again.id, again.answer, kept) == (receipt.id, b"first", b"first")  # type: ignore[union-attr]
            assert direct.spent().charges == 1
            assert ledger.store(again, b"second") == b"first"
            direct.check()
            for text in said + more:
                assert "Nothing is released" in text
                assert PASSWORD not in text
            cuts += proxy.cuts - before
            if proxy.cuts == before:
                break
    else:
        raise AssertionError("every message was cut: MOST is too small to reach the end")
    assert cuts >= 6


@pytest.mark.parametrize("forward", [False, True], ids=["before the server", "before the answer"])
def test_a_database_whose_ledger_is_cut_off_answers_once(
    proxy: Proxy, postgres_url: str, forward: bool
) -> None:
    schema = Schema(columns=[Column("age", type="integer", lower=0, upper=99)])
    name = f"#answers_{next(_numbers)}"
    told: set[str] = set()
    with (
        Ledger.open(proxy.url + name, timeout=120) as ledger,
        Ledger.open(postgres_url + name) as direct,
        Database({"age": [20, 70] * 50}, schema=schema, ledger=ledger) as db,
    ):
        for at in range(MOST):
            before = proxy.cuts
            proxy.cut(at, forward=forward)
            key, question = f"key {at}", Sums((f"age > {at}",))
            for attempt in range(3):
                try:
                    answer = db.ask(question, privacy=TENTH, request=key)
                    break
                except LedgerUnavailable:
                    assert attempt < 2
                    proxy.heal()
            proxy.heal()
            # No answer left without a charge that everybody can see, and a repeat is the same answer.
            assert direct.entry(answer.receipt.id).answer is not None
            told.add(key)
            again = db.ask(question, privacy=TENTH, request=key)
            assert np.array_equal(again.value, answer.value)
            assert direct.spent().charges == len(told)
            if proxy.cuts == before:
                break
        direct.check()
    assert proxy.cuts >= 6


def test_a_session_ended_between_charge_and_answer_changes_nothing(postgres_url: str) -> None:
    import psycopg

    with Ledger.open(postgres_url) as ledger:
        receipt = ledger.charge(TENTH, question="q")
        with psycopg.connect(postgres_url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        assert ledger.store(receipt, b"answer") == b"answer"
        assert ledger.charge(TENTH, question="q").answer == b"answer"
        assert ledger.spent().charges == 1


def test_a_client_that_falls_silent_does_not_hold_the_ledger(proxy: Proxy, postgres_url: str) -> None:
    """A machine that vanished inside a transaction leaves its lock behind, and the server must not wait."""
    import psycopg

    Ledger.open(postgres_url).close()
    with Ledger.open(proxy.url, timeout=1) as silent, Ledger.open(postgres_url, timeout=60) as other:
        silent.charge(TENTH)
        store = silent._store
        with pytest.raises(LedgerUnavailable), store._write_transaction():  # type: ignore[attr-defined]  # noqa: PT012
            proxy.stall = True
            # Waits for the lock that nobody will give back, unless the server ends the silent transaction.
            other.charge(TENTH)
            proxy.close()
        assert other.spent().charges == 2
    with psycopg.connect(postgres_url) as look:
        assert look.execute("SELECT seq FROM discreet_ledger.book").fetchone() == (3,)
