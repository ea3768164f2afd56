"""Statements of releases and trained models: the blocks that both share.

Every block is a function of what was declared, planned and charged. A verifier builds the same blocks from a
plan of its own, and compares.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from discreet.privacy.receipt import product_version
from discreet.release.table import ROWS_KNOWN
from discreet.report.statement.documents import About, DeclaredBound, Document, Tuning, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from discreet.ledger import Ledger
    from discreet.privacy import Promise, Receipt
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
        composition=subject.composition(ledger),
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
