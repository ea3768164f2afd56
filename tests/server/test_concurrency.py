"""Many analysts at once, and a service that is killed under them: what was paid is what was answered."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

import pytest

from discreet.ledger import Ledger
from tests.server.concurrent_analysts import ConcurrentAnalysts, Exchange
from tests.server.processes import Served, in_database, served, town_in_postgres

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PRICE = 1e-4
ANALYSTS = 64


def counts(analyst: int) -> Iterator[dict[str, Any]]:
    """Make up counts that nobody asked before."""
    for i in itertools.count(1):
        yield {
            "kind": "count",
            "where": f"income < {100 * i + analyst} AND age > 20",
            "privacy": {"kind": "zcdp", "rho": PRICE},
        }


def check_books(ledger: str, said: list[Exchange], limit: float) -> int:
    """Verify that a ledger accounts for every answer that anybody received, once, and within its limit."""
    with Ledger.open(ledger) as book:
        book.check()
        entries = {entry.receipt.id: entry for entry in book.entries()}
        spent, left = book.spent(), book.remaining()
    asked = [entry.asked["said"] for entry in entries.values() if entry.asked is not None]
    asked = [text for text in asked if text is not None]
    assert len(asked) == len(set(asked)), "a question was charged twice"
    for one in said:
        if one.status != 200:
            continue
        (receipt,) = one.answer["receipts"]
        entry = entries[receipt]
        assert entry.receipt.owner == f"a{one.analyst}"
        assert entry.answer is not None, "an answer left that was not stored"
    assert float(spent.rho) <= limit
    assert left is not None
    assert left["rho"] >= 0
    return len(entries)


def outcomes(analysts: ConcurrentAnalysts) -> set[str]:
    """Return what came of the questions: answered, or the codes of errors."""
    return {
        "answered" if one.status == 200 else one.answer["error"]["code"] if one.answer else "lost"
        for one in analysts.exchanges
    }


def ask_together(
    service: Served, seconds: float | None, limit: float, ledger: str
) -> tuple[ConcurrentAnalysts, int]:
    """Let all analysts ask for some time, or until the budget is gone, and verify the books."""
    analysts = ConcurrentAnalysts(service.port, "/v1/datasets/town/query", service.tokens(ANALYSTS), counts)
    if seconds is None:
        analysts.ask_for(120, until=409)
    else:
        analysts.ask_for(seconds)
    return analysts, check_books(ledger, analysts.exchanges, limit)


LONG = pytest.param(60.0, marks=pytest.mark.stats)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [None, LONG])
def test_a_crowd_spends_one_budget_to_the_last_unit_and_no_further(
    tmp_path: Path, seconds: float | None
) -> None:
    affordable = 100 if seconds is None else 5000
    limit = (affordable + 0.5) * PRICE  # a charge is rounded up, by far less
    changed = {
        "limit": {"rho": limit},
        "analyst_limit": {"rho": limit},
        "limits": {"per_minute": 10**6, "concurrent": 256},
    }
    with served(tmp_path, **changed) as service:
        analysts, charged = ask_together(service, seconds, limit, str(tmp_path / "town.ledger"))
    assert outcomes(analysts) == {"answered", "budget-exceeded"}
    assert charged == affordable == len(analysts.answered())


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [None, LONG])
def test_two_workers_on_postgresql_share_one_budget(
    tmp_path: Path, postgres_url: str, seconds: float | None
) -> None:
    affordable = 100 if seconds is None else 3000
    limit = (affordable + 0.5) * PRICE
    ledger = f"{postgres_url}#town"
    changed = {
        "table": town_in_postgres(postgres_url),
        "schema": "town.schema.yaml",
        "ledger": ledger,
        "workers": 2,
        "limit": {"rho": limit},
        "analyst_limit": {"rho": limit},
        "limits": {"per_minute": 10**6, "concurrent": 256},
    }
    with served(tmp_path, **changed) as service:
        analysts, charged = ask_together(service, seconds, limit, ledger)
    assert outcomes(analysts) == {"answered", "budget-exceeded"}
    assert charged == affordable == len(analysts.answered())


def kill_under_questions(folder: Path, kills: int, url: str | None = None) -> dict[str, int]:
    """Kill a service under eight analysts again and again, verify the books, and return what was counted.

    With the URL of a PostgreSQL database all that the service keeps is there; otherwise in files.
    """
    changed = {"ledger": str(folder / "town.ledger")} if url is None else in_database(url)
    service = Served(folder, **changed, limits={"per_minute": 10**6}, new_ledger=True)
    tokens = service.tokens(8)
    endless = [counts(i) for i in range(len(tokens))]
    said: list[Exchange] = []
    for kill in range(kills):
        service.start()
        analysts = ConcurrentAnalysts(
            service.port, "/v1/datasets/town/query", tokens, lambda analyst: endless[analyst]
        )
        asking = threading.Thread(target=analysts.ask_for, args=(0.6,))
        asking.start()
        # Another moment of a question each time.
        asking.join(0.15 + 0.0073 * (kill % 50))
        service.kill()
        asking.join()
        said += analysts.exchanges
    assert any(one.status == 0 for one in said), "nobody was interrupted"
    charges = check_books(changed["ledger"], said, limit=10.0)

    # What was answered is answered again with the same number, and for free.
    received = [one for one in said if one.status == 200]
    assert received
    service.start()
    try:
        for one in received[:: max(1, len(received) // 20)]:
            again = ConcurrentAnalysts(service.port, "/v1/datasets/town/query", tokens, lambda _: iter([]))
            stored = again.once(one.analyst, one.body)
            assert stored["cached"]
            assert stored["value"] == one.answer["value"]
    finally:
        service.stop()
    interrupted = sum(one.status == 0 for one in said)
    return {"kills": kills, "answers": len(received), "interrupted": interrupted, "charges": charges}


@pytest.mark.slow
@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.stats)])
@pytest.mark.parametrize("store", ["file", "postgresql"])
def test_a_killed_service_accounts_for_every_answer_that_anybody_received(
    tmp_path: Path, request: pytest.FixtureRequest, store: str, kills: int
) -> None:
    url = request.getfixturevalue("postgres_url") if store == "postgresql" else None
    counted = kill_under_questions(tmp_path, kills, url)
    # What was charged and not answered was asked by somebody whose connection was lost.
    assert counted["answers"] <= counted["charges"] <= counted["answers"] + counted["interrupted"]


@pytest.mark.slow
def test_a_ledger_that_loses_a_charge_is_noticed(tmp_path: Path) -> None:
    """The check above is not blind: with one charge less, it fails."""
    with served(tmp_path) as service:
        analysts = ConcurrentAnalysts(
            service.port, "/v1/datasets/town/query", service.tokens(4), counts
        ).ask_for(0.5)
    check_books(str(tmp_path / "town.ledger"), analysts.exchanges, limit=10.0)
    lost = analysts.answered()[0]
    forged = {**lost.answer, "receipts": ["0" * 12 + "-999999"]}
    with pytest.raises(KeyError):
        check_books(str(tmp_path / "town.ledger"), [Exchange(0, lost.body, 200, forged, 0.1)], limit=10.0)
