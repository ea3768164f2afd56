"""Creating and opening a ledger, with the limits that are fixed then."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.errors import LedgerError, LedgerTampered
from discreet.ledger._caps import Caps, Rule, read_caps, write_caps
from discreet.ledger._sqlite import Memory, SqliteFile
from discreet.ledger.postgres import PostgresSchema, is_postgres
from discreet.ledger.records import (
    DATASET_MARK,
    FORMAT,
    START,
    TOTAL,
    LedgerRow,
    dataset_mark,
    dataset_scope,
    missing_row_error,
)
from discreet.privacy.composition import Spending
from discreet.privacy.receipt import canonical, product_version

if TYPE_CHECKING:
    from discreet.ledger._store import Store
    from discreet.ledger.transaction import Transaction
    from discreet.privacy.promises import Promise


@dataclass(frozen=True, slots=True)
class Opening:
    """Facts about a ledger that never change.

    Attributes
    ----------
    identity : str
        Hash of the ledger's first row.
    owner_caps : Caps or None
        Caps of owners who have none of their own; None is no limit.
    """

    identity: str
    owner_caps: Caps | None


def open_store(address: str | os.PathLike[str], timeout: float) -> Store:
    """Return the store of the ledger at a path or URL."""
    url = os.fspath(address)
    if is_postgres(url):
        return PostgresSchema(url, timeout)
    return Memory() if url == ":memory:" else SqliteFile(url, timeout)


def open_ledger(store: Store, caps: Caps | None, owner_caps: Caps | None, *, when: str) -> Opening:
    """Open the ledger of a store, creating it if there is none; its limits must be those given, if any."""
    if not store.exists():
        body = {
            "type": "open",
            "format": FORMAT,
            "version": product_version(),
            # Makes the identities of two ledgers differ that are created alike in the same second.
            "born": [os.getpid(), time.monotonic_ns()],
            "caps": None if caps is None else caps.to_dict(),
            "owner_caps": None if owner_caps is None else owner_caps.to_dict(),
        }
        first = LedgerRow.from_previous(0, START, when, canonical(body))

        def write_first_rows(transaction: Transaction) -> None:
            transaction.insert(first)
            transaction.put_head(first.hash, first)
            transaction.put_total(TOTAL, write_caps(caps), canonical(Spending().to_dict()))

        store.create(write_first_rows)
    with store.read() as transaction:
        identity, _, _ = transaction.head()
        content = _first(transaction)
    _check_limit("limit", caps, content["caps"])
    _check_limit("owner_limit", owner_caps, content["owner_caps"])
    return Opening(identity, read_caps(content["owner_caps"]))


@dataclass(frozen=True, slots=True)
class OpenDataset:
    """Operation that opens one of several data sets that share a ledger, or checks its limit.

    Attributes
    ----------
    dataset : str
        Name of the data set.
    caps : Caps or None
        Caps of its own limit; None is no limit beside that of all, or the one it was opened with.
    when : str
        Universal time for the row.
    """

    dataset: str
    caps: Caps | None
    when: str

    def __call__(self, transaction: Transaction) -> None:
        """Record the data set with its caps; if it is there, refuse other caps."""
        seq = transaction.mark(dataset_mark(self.dataset))
        if seq is None:
            values = None if self.caps is None else self.caps.to_dict()
            body = {"type": "data set", "dataset": self.dataset, "caps": values}
            row = transaction.append(self.when, canonical(body))
            transaction.put_mark(dataset_mark(self.dataset), row.seq)
            scope, spent = dataset_scope(self.dataset), canonical(Spending().to_dict())
            transaction.put_total(scope, write_caps(self.caps), spent)
            return
        opened = transaction.row(seq)
        if opened is None:
            raise missing_row_error(seq)
        _check_limit("dataset_limit", self.caps, opened.content["caps"])


@dataclass(frozen=True, slots=True)
class BindDataset:
    """Operation that records the name of the ledger's data set unless there is one, and returns that name.

    Attributes
    ----------
    dataset : str
        Name of the data set.
    when : str
        Universal time for the row.
    """

    dataset: str
    when: str

    def __call__(self, transaction: Transaction) -> str:
        """Return the name that is recorded, which is the given one at first."""
        seq = transaction.mark(DATASET_MARK)
        if seq is None:
            row = transaction.append(self.when, canonical({"type": "bind", "dataset": self.dataset}))
            transaction.put_mark(DATASET_MARK, row.seq)
            return self.dataset
        bound = transaction.row(seq)
        if bound is None:
            raise missing_row_error(seq)
        return str(bound.content["dataset"])


def make_caps(limit: Promise | None, rule: Rule, order: float | None) -> Caps | None:
    """Return the caps of a limit; None where there is none."""
    return None if limit is None else Caps.from_limit(limit, rule=rule, order=order)


def _first(transaction: Transaction) -> dict[str, Any]:
    """Return the body of the first row."""
    first = transaction.row(1)
    if first is None:
        raise missing_row_error(1)
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
    if caps is None or (caps.limit, caps.rule, caps.order) != (given.limit, given.rule, given.order):
        raise LedgerError(
            f"{name} of Ledger.open must be the one fixed when the ledger was made, "
            f"{'none' if caps is None else caps.description}, got {given.description}. Leave it out, or open "
            "another ledger."
        )
