"""Composition of the charges in one ledger, as a statement describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from discreet.errors import PromiseError
from discreet.formatting import count_noun, name, number
from discreet.ledger import Ledger
from discreet.privacy import ApproxDP, NoPromise, Receipt, Spending
from discreet.report.statement.documents import EarlierCharge, LedgerPosition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.privacy import Promise
    from discreet.release import ReleaseMethod

USUAL_DELTA = 1e-6
"""Delta at which Gaussian noise is read as an epsilon where no other one was requested."""
LARGEST_DELTA = 1e-3
"""Largest delta beside which an epsilon is printed: with a larger one a row may be published in full."""


def total_cost(promises: Sequence[Promise], method: ReleaseMethod) -> tuple[float | None, float | None]:
    """Return epsilon and delta of all rows of one unit, (None, None) where none holds.

    Pure promises have a delta only through their sampler; it is None where even that is zero. A delta above
    ``LARGEST_DELTA``, as bounded noise has it, counts as none: the promise itself still says it.
    """
    requested = getattr(method, "privacy", None)
    delta = requested.delta if isinstance(requested, ApproxDP) else USUAL_DELTA
    return _epsilon_delta(Spending.from_promises(promises), delta)


def _epsilon_delta(spending: Spending, delta: float) -> tuple[float | None, float | None]:
    """Return epsilon and delta, Gaussian noise read at `delta`; (None, None) where none holds."""
    if spending.unpromised or not spending.charges:
        return None, None
    try:
        if spending.rho:
            return spending.epsilon_at(delta), delta
        epsilon, delta = spending.epsilon, spending.delta_at(spending.epsilon)
    except PromiseError:
        return None, None
    return (epsilon, delta or None) if delta <= LARGEST_DELTA else (None, None)


def compose_charges(
    receipts: Sequence[Receipt],
    promises: Sequence[Promise],
    ledger: Ledger | Sequence[Receipt] | None,
    *,
    plain: bool,
) -> dict[str, Any]:
    """Return earlier charges, the total of all, and the total after one more release.

    Parameters
    ----------
    receipts : sequence of Receipt
        Charges of the statement itself.
    promises : sequence of Promise
        Promises of these charges together.
    ledger : Ledger, sequence of Receipt or None
        Ledger that was charged, or all of its receipts; None if no ledger was used.
    plain : bool
        Whether a receipt holds all that its row of the ledger does, as that of a table does.

    Returns
    -------
    dict
        Fields that the composition of a table and that of a model have in common.
    """
    counted = bool(receipts) and all(receipt.recorded for receipt in receipts)
    own, last = {receipt.id for receipt in receipts}, max(receipts, key=lambda receipt: receipt.seq or 0)
    history = ledger.history() if isinstance(ledger, Ledger) else list(ledger or ())
    earlier = [past for past in history if past.id not in own and _is_before(past, last)]
    limit, others, position = None, list[str](), None
    if isinstance(ledger, Ledger):
        guarantee = ledger.guarantee()
        limit = None if isinstance(guarantee, NoPromise) else str(guarantee)
        others = ledger.others()
        position = ledger_position(last, ledger, plain=plain)
    total, following = describe_total(
        [past.promises for past in earlier],
        promises,
        counted=counted,
        limit=limit,
        steered=includes_answers([past.what for past in earlier]),
        others=len(others),
        alone=counted and position is None,
    )
    return {
        "counted": counted,
        "ledger": last.ledger if counted else None,
        "position": position,
        "earlier": [earlier_charge(past) for past in earlier],
        "total": total,
        "limit": limit,
        "next": following,
        "other_ledgers": others,
    }


def ledger_position(receipt: Receipt, ledger: Ledger, *, plain: bool) -> LedgerPosition | None:
    """Return the position of a charge in its ledger; `plain` if its receipt holds all that its row does."""
    if not receipt.recorded:
        return None
    previous, others = ledger.position(receipt)
    row, digest = ledger.head
    return LedgerPosition(previous=previous if plain else None, others=others, head_row=row, head=digest)


def earlier_charge(charge: Receipt) -> EarlierCharge:
    """Return the entry of an earlier charge in a later statement."""
    assert charge.seq is not None
    return EarlierCharge(
        row=charge.seq,
        what=charge.what,
        when=charge.when,
        promises=[part.to_dict() for part in charge.promises],
    )


def _is_before(past: Receipt, receipt: Receipt) -> bool:
    if past.ledger != receipt.ledger or past.seq is None or receipt.seq is None:
        return False
    return past.seq < receipt.seq


def includes_answers(what: Sequence[str]) -> bool:
    """Return whether charges include answers, after which a caller can choose the next query."""
    if not what:
        return False
    from discreet.query.aggregates import AGGREGATES  # imports the engines, which few reports need

    return not AGGREGATES.keys().isdisjoint(what)


def describe_total(
    earlier: Sequence[Sequence[Promise]],
    current: Sequence[Promise],
    *,
    counted: bool,
    limit: str | None,
    steered: bool = False,
    others: int = 0,
    alone: bool = False,
) -> tuple[str, str]:
    """Return sentences about the total of all charges in a ledger, and after one more release.

    Parameters
    ----------
    earlier : sequence of sequences of Promise
        Promises of each earlier charge to the same ledger.
    current : sequence of Promise
        Promises of this statement.
    counted : bool
        Whether a ledger counted this charge.
    limit : str or None
        Guarantee of the ledger as text; None if it has no limit.
    steered : bool
        Whether earlier charges were answers after which more may have been chosen: their sum is then no
        guarantee, and the limit of the ledger is.
    others : int
        Number of other ledgers that the same table was charged to, which are not added.
    alone : bool
        Whether the ledger belongs to a service that shows its other charges to nobody but its curator.

    Returns
    -------
    tuple of (str, str)
        The total, and the total after one more release.

    Reference
    ---------
    docs/explanation/theorems/composition.md
    """
    charges_made = [Spending.from_promises(promises) for promises in (*earlier, current)]
    try:
        total = sum(charges_made, Spending())
        after = total + charges_made[-1]
    except PromiseError as problem:
        return f"The charges cannot be added up: {problem}", _UNKNOWN
    if alone:
        described = _describe_spending(total, [])
        return (
            f"These questions by themselves: {described}. They were charged to the ledger of a service; what "
            "else was charged there, and its limits, its curator knows.",
            "One more release like this one is charged as much, and refused where it would pass a limit of "
            "the service.",
        )
    charges = f"{total.charges} charges in this ledger, this one included"
    if total.charges == 1:
        charges = "Alone in this ledger" if counted else "This release by itself"
    elsewhere = ""
    if others:
        ledgers = count_noun(others, "other ledger")
        elsewhere = f" The same table was charged to {ledgers} too, which is not added here."
    if steered and limit is not None:
        return (
            f"{charges}, some of them answers after which more was asked: guaranteed is the limit of the "
            f"ledger, {limit}.{elsewhere}",
            f"One more release like this one is made only if it stays within the same limit: {limit}.",
        )
    known = "" if counted else " Nobody counts: no ledger was used, and other releases may exist."
    apart = _covered_by_some(charges_made)
    following = (
        f"One more release like this one would bring the total to: {_describe_spending(after, apart)}."
    )
    if limit is not None:
        following += f" The ledger refuses what would pass its limit: {limit}."
    elif counted:
        following += " The ledger counts, and has no limit."
    else:
        following += " No ledger would notice."
    if steered:
        known += (
            " Some were answers after which more was asked, and the ledger has no limit, so this sum is no "
            "guarantee."
        )
    return f"{charges}: {_describe_spending(total, apart)}.{known}{elsewhere}", following


_UNKNOWN = "One more release would add to what cannot be added up; ask the curator for a total."


def _covered_by_some(charges: Sequence[Spending]) -> list[str]:
    """Return the columns that some charges cover and others do not."""
    covers = [set(charge.covers) for charge in charges if charge.covers is not None]
    return sorted(set().union(*covers) - covers[0].intersection(*covers)) if covers else []


def _describe_spending(spending: Spending, apart: Sequence[str]) -> str:
    """Return a spending as text; `apart` are the columns that not every charge covers."""
    epsilon, delta = _epsilon_delta(spending, USUAL_DELTA)
    if epsilon is None:
        parts = ["no epsilon is proven for all of it"]
    else:
        at = "" if delta is None else f" at delta {number(delta, rounding='up')}"
        parts = [f"epsilon {number(epsilon, digits=4, rounding='up')}{at}"]
        if apart:
            listed = ", ".join(name(column) for column in apart)
            parts.append(f"not every charge covers {listed}")
    # For a single release the exact floor is among the numbers, and higher than these bounds, which add up.
    proven = sorted(spending.floors().items()) if spending.charges > 1 else []
    if proven:
        listed = ", ".join(f"{name(column)} {number(floor, rounding='down')}" for column, floor in proven)
        parts.append(f"error floors (van Trees) {listed}")
    return "; ".join(parts)
