"""Statements of releases and trained models: the blocks that both share, and the composition of charges.

Every block is a function of what was declared, planned and charged. A verifier builds the same blocks from a
plan of its own, and compares. The composition is that of the charges in one ledger.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from discreet.errors import PromiseError
from discreet.formatting import count_noun, name, number
from discreet.privacy import ApproxDP, NoPromise, Receipt, Spending
from discreet.privacy.receipt import product_version
from discreet.release.table import ROWS_KNOWN
from discreet.report.statement.documents import (
    About,
    DeclaredBound,
    Document,
    EarlierCharge,
    LedgerPosition,
    Tuning,
    Unit,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from discreet.ledger import Ledger
    from discreet.privacy import Promise
    from discreet.release import ReleaseMethod
    from discreet.report.statement.documents import Composition, Definition, Implementation, Numbers, What
    from discreet.report.statement.model_documents import (
        ModelComposition,
        ModelImplementation,
        ModelNumbers,
        ModelWhat,
    )
    from discreet.schema import Column, Schema

DocumentT = TypeVar("DocumentT", bound=Document, covariant=True)
VERSIONED = ("numpy", "scipy", "duckdb", "cryptography")
"""Packages that the noise depends on, whose versions a statement has."""
USUAL_DELTA = 1e-6
"""Delta at which Gaussian noise is read as an epsilon where no other one was requested."""
LARGEST_DELTA = 1e-3
"""Largest delta beside which an epsilon is printed: with a larger one a row may be published in full."""
_UNKNOWN = "One more release would add to what cannot be added up; ask the curator for a total."


class Subject(Protocol[DocumentT]):
    """Subject of a statement: a published table, or a trained model."""

    @property
    def schema(self) -> Schema:
        """Declared schema of the rows."""

    @property
    def promises(self) -> Sequence[Promise]:
        """All promises that hold."""

    @property
    def receipts(self) -> Sequence[Receipt]:
        """Charges, in the order in which they were made."""

    def what(self, head: Mapping[str, Any], files: Mapping[str, str]) -> What | ModelWhat:
        """Return the block about the publication; `head` holds the fields that all statements have."""

    def definition(self) -> Definition:
        """Return the kinds of promise that hold, with a sentence for each."""

    def numbers(self) -> Numbers | ModelNumbers:
        """Return the promises in full, with the theorems that prove them."""

    def not_protected(self) -> list[str]:
        """Return what is not protected, one sentence each."""

    def composition(self, ledger: Ledger | Sequence[Receipt] | None) -> Composition | ModelComposition:
        """Return the other charges to the same ledger, and the total."""

    def implementation(self) -> Implementation | ModelImplementation:
        """Return the block about the sampling of the noise."""

    def document(self, **blocks: Any) -> DocumentT:
        """Return the statement of these blocks and of those that only this kind of subject has."""


def build_statement(
    subject: Subject[DocumentT],
    *,
    about: About | None = None,
    ledger: Ledger | Sequence[Receipt] | None = None,
    tuning: Tuning,
    files: Mapping[str, str],
    created: str | None = None,
    service: str | None = None,
) -> DocumentT:
    """Build the privacy statement of a published table or of a trained model.

    Parameters
    ----------
    subject : TableSubject or ModelSubject
        Publication or model that the statement is about.
    about : About, optional
        Curator, purpose and other facts that only people know; None leaves them all out.
    ledger : Ledger or sequence of Receipt, optional
        Ledger that was charged, or all receipts of that ledger; earlier charges are listed. None if no ledger
        was used.
    tuning : Tuning
        Whether the noise was chosen by looking at private rows, and why.
    files : mapping of str to str
        SHA-256 of each published file of data, by file name.
    created : str, optional
        Universal time, ISO 8601; by default that of the last charge, which is the one that can be verified.
    service : str, optional
        What the limits of the service count whose answers were used, as it says; None for a table at hand.

    Returns
    -------
    Statement or ModelStatement

    Privacy
    -------
    Reads no row. What it says follows from the schema, the parameters, the ledger and what was paid for.
    """
    schema = subject.schema
    head = {
        "product_version": product_version(),
        "created": created or subject.receipts[-1].when,
        "dataset": schema.dataset,
        **(about or About()).model_dump(),
    }
    return subject.document(
        what=subject.what(head, files),
        **promised_blocks(subject),
        declared=schema.to_dict(),
        digest=schema.digest,
        composition=subject.composition(ledger).model_copy(update={"service": service}),
        tuning=tuning,
        implementation=subject.implementation(),
        files=dict(files),
    )


def promised_blocks(subject: Subject[Any]) -> dict[str, Any]:
    """Return the blocks that follow from the schema and the promises alone, by their names in a statement."""
    schema = subject.schema
    return {
        "unit": Unit(
            unit=schema.unit,
            neighbors=schema.neighbors,
            max_rows_per_unit=schema.max_rows_per_unit or 1,
            row_count=schema.row_count,
        ),
        "definition": subject.definition(),
        "numbers": subject.numbers(),
        "bounds": [declared_bound(column) for column in schema.released],
        "not_protected": subject.not_protected(),
        "assumptions": list_assumptions(subject.promises, schema),
    }


def declared_bound(column: Column) -> DeclaredBound:
    """Return the declared content of a column, and the treatment of cells with other content."""
    if column.is_number:
        outside = "moved to the nearest bound, in silence"
    elif column.other is not None:
        outside = f"becomes {column.other!r}"
    else:
        outside = "refused before anything is published: the list is complete"
    return DeclaredBound(
        column=column.name,
        type=str(column.type),
        lower=_json_bound(column.lower),
        upper=_json_bound(column.upper),
        values=None if column.values is None else list(column.values),
        missing=not column.required,
        source=column.bounds_source,
        outside=outside,
        grid=column.grid,
    )


def _json_bound(bound: float | int | datetime.date | None) -> float | str | None:
    return bound.isoformat() if isinstance(bound, datetime.date) else bound


def list_assumptions(promises: Iterable[Promise], schema: Schema) -> list[str]:
    """Return the assumptions of the promises, one sentence each."""
    unit = schema.unit
    rows = (
        f"Each {unit} has one row of the table, as the schema says."
        if schema.id_column is None
        else f"The column {schema.id_column!r} tells which rows belong to one {unit}."
    )
    clauses = [clause for promise in promises for clause in promise.assumes]
    if schema.id_column is not None and schema.neighbors == "replace-one":
        clauses.append(ROWS_KNOWN)
    return [
        "Bounds, lists and the amount of noise were declared without looking at the rows.",
        rows,
        "The curator, who holds the rows and drew the noise, is trusted with them.",
        "The key of the noise is secret: it was discarded, or nobody but the curator's auditor can read it.",
        "AES-256, from which the noise is made, cannot be told from a random source.",
        *dict.fromkeys(sentence_from(clause) for clause in clauses),
    ]


def sentence_from(clause: str) -> str:
    """Return a clause as a sentence: a capital at its start, a full stop at its end."""
    return clause[:1].upper() + clause[1:] + ("" if clause.endswith(".") else ".")


def arithmetic_of(promises: Iterable[Promise]) -> str:
    """Return "real" if any promise rests on floating point, else "exact"."""
    return "real" if any(promise.arithmetic == "real" for promise in promises) else "exact"


def describe_randomness(seeded: bool, published: str) -> str:
    """Return the source of the random bits; `published`, "FILE" or "MODEL", is for the warning of a seed."""
    if seeded:
        return (
            "SEEDED: the noise follows from a seed, and whoever knows it can remove it. "
            f"THIS {published} PROTECTS NOBODY; it is for tests."
        )
    return "AES-256 in counter mode under a key of 256 bits that the operating system drew."


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
    history = list(ledger or ()) if ledger is None or isinstance(ledger, Sequence) else ledger.history()
    earlier = [past for past in history if past.id not in own and _is_before(past, last)]
    limit, others, position = None, list[str](), None
    if ledger is not None and not isinstance(ledger, Sequence):
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
