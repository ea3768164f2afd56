"""How a ledger is found or made, and how its limits become caps that stay."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.errors import LedgerError, LedgerTampered
from discreet.ledger._caps import Caps
from discreet.ledger._store import FORMAT, TOTAL, Store
from discreet.ledger._verification import read_caps, write_caps
from discreet.ledger.entries import missing_row
from discreet.ledger.records import START, Row
from discreet.privacy.compose import Spending
from discreet.privacy.receipt import canonical, product_version

if TYPE_CHECKING:
    from discreet.ledger.transaction import Session
    from discreet.privacy.promises import Promise


@dataclass(frozen=True, slots=True)
class Opening:
    """What stays the same about a ledger.

    Attributes
    ----------
    identity : str
        Hash of its first row.
    owner_caps : Caps or None
        For owners who are given none of their own.
    marked : bool
        Whether it has the table of marks, which those of earlier versions get when they need it.
    """

    identity: str
    owner_caps: Caps | None
    marked: bool


def store_at(place: str | os.PathLike[str], timeout: float) -> Store:
    """Return what keeps the ledger at a path or URL."""
    url = os.fspath(place)
    if url.startswith(("postgresql://", "postgres://")):
        from discreet.ledger._postgres import PostgresSchema

        return PostgresSchema(url, timeout)
    from discreet.ledger._sqlite import Memory, SqliteFile

    return Memory() if url == ":memory:" else SqliteFile(url, timeout)


def opened(store: Store, caps: Caps | None, owner_caps: Caps | None, *, when: str) -> Opening:
    """Open the ledger of a store, making it if there is none; its limits must be those given, if any."""
    if not store.exists():
        body = {
            "type": "open",
            "format": FORMAT,
            "version": product_version(),
            # Two ledgers opened with the same words at the same time are two ledgers.
            "born": [os.getpid(), time.monotonic_ns()],
            "caps": None if caps is None else caps.to_dict(),
            "owner_caps": None if owner_caps is None else owner_caps.to_dict(),
        }
        first = Row.after(0, START, when, canonical(body))

        def fill(session: Session) -> None:
            session.insert(first)
            session.put_head(first.hash, first)
            session.put_total(TOTAL, write_caps(caps), canonical(Spending().to_dict()))

        store.create(fill)
    with store.read() as session:
        identity, _, _ = session.head()
        content = _first(session)
        marked = "marks" in session.tables()
    _check_limit("limit", caps, content["caps"])
    _check_limit("owner_limit", owner_caps, content["owner_caps"])
    return Opening(identity, read_caps(content["owner_caps"]), marked)


def fixed(limit: Promise | None, gaussian_share: float) -> Caps | None:
    """Turn a limit into caps."""
    return None if limit is None else Caps.fix(limit, gaussian_share=gaussian_share)


def _first(session: Session) -> dict[str, Any]:
    """Return what the ledger was opened with."""
    first = session.row(1)
    if first is None:
        raise missing_row(1)
    try:
        return first.content
    except ValueError as error:
        raise LedgerTampered(
            "row 1 of the ledger's record must be readable, and is not. "
            "Restore the ledger from a backup that checks."
        ) from error


def _check_limit(name: str, given: Caps | None, fixed: dict[str, Any] | None) -> None:
    if given is None:
        return
    caps = read_caps(fixed)
    # The amounts stay as they were fixed, also where a newer version would round them differently.
    if caps is None or (caps.limit, caps.gaussian_share) != (given.limit, given.gaussian_share):
        have = "none" if caps is None else str(caps.limit)
        raise LedgerError(
            f"{name} of Ledger.open must be the one fixed when the ledger was made, {have}, got "
            f"{given.limit} (with its gaussian_share). Leave it out, or open another ledger."
        )
