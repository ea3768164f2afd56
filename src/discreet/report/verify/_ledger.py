"""Checks of what a statement says about its ledger, by itself and against the ledger."""

from __future__ import annotations

import datetime
import hashlib
import re
from typing import TYPE_CHECKING

from discreet.errors import LedgerError
from discreet.ledger.records import charge_hash
from discreet.privacy import NoPromise
from discreet.privacy.receipt import canonical
from discreet.report.statement.build import earlier_charge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.ledger import Ledger
    from discreet.privacy import Receipt
    from discreet.report.statement.documents import Composition
    from discreet.report.statement.model_documents import ModelComposition
    from discreet.report.verify._result import Checks

ONLY_THE_LEDGER = (
    "Only the ledger can show that it has this charge with this hash and time, that the charges listed are "
    "all that came before it and were what is said of them, that rows said to be no charges are none, and "
    "what its limit is."
)
"""Text of the check where no ledger is given."""
_HASH = re.compile("[0-9a-f]{64}")
_NUMBERED = re.compile("[0-9a-f]{12}-[0-9]{1,18}")
_KINDS = {"open", "bind", "answer", "owner limit", "others", "request"}
_CLOCKS_APART = datetime.timedelta(days=1)


def receipt_faults(receipt: Receipt, *, plain: bool) -> list[str]:
    """Return the faults of a receipt by itself; `plain` as for :func:`position_faults`."""
    if not receipt.recorded:
        text = canonical([receipt.what, receipt.when, [part.to_dict() for part in receipt.promises]])
        expected = "unrecorded-" + hashlib.sha256(text.encode()).hexdigest()[:16]
        # A model's passes are counted in memory where no ledger is used, and numbered there.
        is_named = receipt.id == expected or (not plain and _NUMBERED.fullmatch(receipt.id) is not None)
        if not is_named or (receipt.seq, receipt.hash, receipt.owner) != (None, None, None):
            return ["The receipt is of no ledger, and does not have the name that follows from its content."]
        return []
    wrong = []
    if not (_is_hash(receipt.ledger) and _is_hash(receipt.hash) and (receipt.seq or 0) >= 2):
        wrong.append("The receipt must have the hash of its ledger, its row there and the hash of that row.")
    elif receipt.id != f"{str(receipt.ledger)[:12]}-{receipt.seq}":
        wrong.append("The receipt's name is not that of its ledger and row.")
    return wrong


def position_faults(
    stated: Composition | ModelComposition, own: Sequence[Receipt], *, plain: bool
) -> list[str]:
    """Return the faults of the ledger rows that a statement lists, counts or leaves out.

    Every row before the last receipt is a charge that is listed, one of the statement's `own` receipts, or
    counted as no charge. So a charge that is left out leaves a gap. Of a `plain` charge the receipt says all
    that its row does, and its hash is computed again.
    """
    receipts = [receipt for receipt in own if receipt.recorded]
    position = stated.position
    if not receipts:
        listed = position is not None or stated.earlier
        return ["No ledger counted it, and charges of one are listed."] if listed else []
    if position is None and is_charged_elsewhere(stated, own):
        return []
    if position is None:
        return ["It does not say where in the ledger it was charged (composition.position)."]
    last = max(receipts, key=lambda receipt: receipt.seq or 0)
    row, rows = last.seq or 0, [charge.row for charge in stated.earlier]
    mine = {receipt.seq or 0 for receipt in receipts}
    wrong = []
    counted = len(rows) + sum(position.others.values()) + len(mine)
    if rows != sorted(set(rows)) or any(not 1 < place < row or place in mine for place in rows):
        wrong.append("The rows of the charges before must be before it in the ledger, in order, each once.")
    if counted != row:
        wrong.append(
            f"The receipt has row {row} of the ledger, and {counted} rows up to it are accounted for: "
            "charges before it were left out or made up."
        )
    others = position.others
    if (
        not set(others) <= _KINDS
        or min(others.values(), default=0) < 1
        or others.get("open") != 1
        or others.get("bind", 0) > 1
        or others.get("answer", 0) > len(rows) + len(mine)
    ):
        wrong.append("A ledger has no such rows beside its charges (composition.position.others).")
    if (_is_hash(position.previous) and charge_hash(last, str(position.previous)) == last.hash) != plain:
        wrong.append("The hash of the receipt is not the one that its content has in the ledger.")
    if not _is_hash(position.head) or position.head_row < row:
        wrong.append("The head of the ledger must be the receipt's row or one after it, with its hash.")
    elif position.head_row == row and position.head != last.hash:
        wrong.append("The head of the ledger is the receipt's row, and has another hash.")
    return wrong


def is_charged_elsewhere(stated: Composition | ModelComposition, own: Sequence[Receipt]) -> bool:
    """Return whether charges are those of an analyst of a service, who sees no other rows of its ledger."""
    return (
        stated.position is None and bool(own) and all(one.recorded and one.owner is not None for one in own)
    )


def time_faults(created: str, own: Sequence[Receipt]) -> list[str]:
    """Return the faults of the time of a statement, which is that of its last charge."""
    if created != own[-1].when:
        return ["The statement was not created when it was charged (what.created)."]
    try:
        when = datetime.datetime.fromisoformat(created)
        ahead = when - datetime.datetime.now(datetime.UTC)
    except (ValueError, TypeError):
        return ["what.created must be a universal time."]
    if (
        when.isoformat(timespec="seconds") != created
        or when.second
        or when.utcoffset() != datetime.timedelta()
    ):
        return ["what.created must be a universal time in whole minutes."]
    return ["The statement is from the future (what.created)."] if ahead > _CLOCKS_APART else []


def check_ledger(
    stated: Composition | ModelComposition, own: Sequence[Receipt], ledger: Ledger | None, checks: Checks
) -> None:
    """Check a statement against its ledger; without one, add that this was not checkable."""
    receipts = [receipt for receipt in own if receipt.recorded]
    if not receipts:
        if ledger is not None:
            checks.add("ledger", "failed", "A ledger was given, and by the statement none has counted this.")
        return
    if ledger is None:
        beside = ""
        if is_charged_elsewhere(stated, own):
            beside = " It is the ledger of a service; what else was charged there, its curator knows."
        if stated.position is not None:
            rows = ", ".join(f"{count} {kind!r}" for kind, count in sorted(stated.position.others.items()))
            beside = f" Rows before it that are said to be no charges: {rows}."
        checks.add("ledger", "not checkable", ONLY_THE_LEDGER + beside + " Give it with --ledger.")
        return
    with checks.attempt("ledger"):
        checks.settle(
            "ledger",
            _ledger_faults(stated, receipts, ledger),
            "It is intact, and has this charge, all charges listed before it and no others, and the limit.",
        )


def _ledger_faults(
    stated: Composition | ModelComposition, receipts: Sequence[Receipt], ledger: Ledger
) -> list[str]:
    """Return the differences of a statement and its ledger: charges, rows before them, head and limit."""
    if stated.ledger != ledger.identity:
        return ["It is another ledger than the one that the statement names."]
    wrong = []
    ledger.check()
    for receipt in receipts:
        try:
            ledger.check(receipt)
        except LedgerError:
            wrong.append(f"It does not have the charge {receipt.id} as its receipt says.")
    if wrong:
        return wrong
    last, mine = max(receipts, key=lambda receipt: receipt.seq or 0), {receipt.seq for receipt in receipts}
    before = [
        earlier_charge(past)
        for past in ledger.history()
        if past.seq not in mine and (past.seq or 0) < (last.seq or 0)
    ]
    if before != list(stated.earlier):
        wrong.append("The charges before this one are not those that the statement lists.")
    position = stated.position
    previous, others = ledger.position(last)
    if position is None or position.others != others or position.previous not in (None, previous):
        wrong.append("The rows before this one are not those that the statement counts.")
    else:
        ledger.confirm(position.head_row, position.head)
    guarantee = ledger.guarantee()
    if stated.limit != (None if isinstance(guarantee, NoPromise) else str(guarantee)):
        wrong.append("Its limit is not the one that the statement says.")
    return wrong


def _is_hash(value: str | None) -> bool:
    return value is not None and _HASH.fullmatch(value) is not None and value.strip("0") != ""
