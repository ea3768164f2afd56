"""From a publication to its statement: every block is a function of what was declared and planned.

A verifier calls the same functions on a plan that it made itself, and compares.
"""

from __future__ import annotations

import dataclasses
import datetime
import platform
from importlib import metadata
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError
from discreet.privacy import ErrorFloor, Ledger, NoPromise, Receipt
from discreet.privacy.receipt import product_version
from discreet.release.published import published_fields
from discreet.report.statement._sentences import (
    DEPLOYMENT,
    LATTICES,
    SAMPLERS,
    THEOREMS,
    TIMING,
    column_sentence,
    floors_sentence,
    total_sentence,
)
from discreet.report.statement.composition import LARGEST_DELTA, draft_composition, total_cost
from discreet.report.statement.documents import (
    About,
    ColumnNumbers,
    DeclaredBound,
    Definition,
    Implementation,
    Method,
    Numbers,
    Statement,
    Theorem,
    Tuning,
    Unit,
    What,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from discreet.audit import Guess
    from discreet.privacy import Promise
    from discreet.release import ColumnSummary, Publication, ReleaseMethod
    from discreet.release.base import Plan
    from discreet.schema import Column, Schema
    from discreet.tables import Field

_HOLDS = {"DOUBLE": "number", "BIGINT": "integer", "VARCHAR": "text", "BOOLEAN": "boolean", "DATE": "date"}
_VERSIONED = ("numpy", "scipy", "duckdb", "cryptography")


def make_statement(
    publication: Publication,
    method: ReleaseMethod,
    *,
    about: About | None = None,
    ledger: Ledger | Sequence[Receipt] | None = None,
    tuning: Tuning,
    attacks: Sequence[Guess] = (),
    files: Mapping[str, str],
    created: str | None = None,
    shuffled: bool = True,
) -> Statement:
    """Say what is promised about a published file.

    Parameters
    ----------
    publication : Publication
        What was published.
    method : ReleaseMethod
        By which it was published; made with ``schema=``.
    about : About, optional
        What only people can say.
    ledger : Ledger or sequence of Receipt, optional
        Where it was charged, or all receipts of that ledger; earlier charges are listed.
    tuning : Tuning
        Whether the noise was chosen by looking at private rows.
    attacks : sequence of Guess
        Those on the published file; others depend on private rows or on chance and are refused.
    files : mapping of str to str
        SHA-256 of each file of data.
    created : str, optional
        Universal time, ISO 8601; by default that of the charge, which is the one that can be verified.
    shuffled : bool
        Whether rows were published in random order.

    Returns
    -------
    Statement

    Privacy
    -------
    Reads no row. What it says follows from the schema, the method, the ledger and the published file.
    """
    if method.schema is None:
        raise ParameterError(
            "method of make_statement must have been made with schema=, and was made with bounds=. "
            "A statement publishes what was declared."
        )
    if any(guess.on != "file" for guess in attacks):
        raise ParameterError(
            "attacks of make_statement must be those on the published file. Others are internal: leave them "
            "out."
        )
    about, schema, receipt = about or About(), method.schema, publication.receipt
    return Statement(
        what=What(
            release=f"{schema.dataset or 'table'}-{publication.commitment[:12]}",
            product_version=product_version(),
            created=created or receipt.when,
            dataset=schema.dataset,
            **about.model_dump(),
            method=Method(name=method.name, parameters=method.parameters()),
            rows_read=publication.n_read,
            rows_published=publication.n_rows,
        ),
        **drafted(publication, method, schema),
        declared=schema.to_dict(),
        digest=schema.digest,
        composition=draft_composition(receipt, ledger),
        tuning=tuning,
        implementation=draft_implementation(
            publication, method, seeded=receipt.seeded, commitment=publication.commitment, shuffled=shuffled
        ),
        attacks=[dataclasses.replace(guess, seconds=0.0).to_dict() for guess in attacks],
        files=dict(files),
    )


def drafted(planned: Plan | Publication, method: ReleaseMethod, schema: Schema) -> dict[str, Any]:
    """Return the blocks that follow from the declared schema and the plan alone, by the names they have."""
    return {
        "unit": Unit(
            unit=schema.unit,
            neighbors=schema.neighbors,
            max_rows_per_unit=schema.max_rows_per_unit or 1,
            row_count=schema.row_count,
        ),
        "definition": draft_definition(planned, method),
        "numbers": draft_numbers(planned, method, schema),
        "bounds": [declared_bound(column) for column in schema.released],
        "not_protected": [_sentence(open_) for open_ in method.not_protected(schema)],
        "assumptions": draft_assumptions(planned.promises, schema),
    }


def draft_definition(planned: Plan | Publication, method: ReleaseMethod) -> Definition:
    """Say which kinds of promise hold."""
    promises = planned.promises
    epsilon, delta = total_cost(promises, method)
    sentences = []
    if epsilon is None:
        sentences.append(
            "Do not take this release for differentially private: no epsilon is proven for all of its "
            f"columns together at a delta of at most {LARGEST_DELTA:g}."
        )
    else:
        sentences.append(total_sentence(epsilon, delta, promises[0].unit))
    floors = [promise for promise in promises if isinstance(promise, ErrorFloor)]
    sentences += [promise.sentence() for promise in promises if not isinstance(promise, ErrorFloor)]
    sentences += [floors_sentence(promise) for promise in floors]
    if not floors:
        sentences.append("No error floor is proven for any column.")
    return Definition(
        kinds=list(dict.fromkeys(promise.kind for promise in promises)),
        differential_privacy=epsilon is not None,
        deployment=DEPLOYMENT[_kinds(planned)[0]],
        sentences=sentences,
    )


def draft_numbers(planned: Plan | Publication, method: ReleaseMethod, schema: Schema) -> Numbers:
    """Return every number, with the theorems that it comes from."""
    epsilon, delta = total_cost(planned.promises, method)
    published = planned.schema
    fields = {field.name: field for field in published_fields(published)}
    return Numbers(
        promises=[promise.to_dict() for promise in planned.promises],
        epsilon=epsilon,
        delta=delta,
        columns=[
            column_numbers(published.column(summary.column), summary, fields[summary.column], schema.unit)
            for summary in _summaries(planned)
        ],
        theorems=[Theorem(id=id_, about=about) for id_, about in _theorems(planned)],
    )


def column_numbers(column: Column, summary: ColumnSummary, field: Field, unit: str) -> ColumnNumbers:
    """Say what was done to one published column."""
    numeric = column.is_number
    as_days = column.type == "date" and field.type == "number"
    without = None if summary.floor is None or summary.prior is None else summary.prior.largest
    return ColumnNumbers(
        column=column.name,
        role=column.role,
        type=str(column.type),
        holds=_HOLDS[field.sql_type],
        measure=column.measure or ("days" if as_days else None),
        origin=str(column.lower) if as_days else None,
        lower=column.range[0] if numeric else None,
        upper=column.range[1] if numeric else None,
        levels=None if numeric else list(column.levels),
        missing=not column.required,
        law=summary.law.to_dict(),
        law_in_words=summary.law.words(),
        epsilon=summary.epsilon,
        floor=None if summary.floor is None else dataclasses.asdict(summary.floor),
        without=without,
        sentence=column_sentence(column, summary, unit),
    )


def declared_bound(column: Column) -> DeclaredBound:
    """Say what a column may contain, and what happens to a cell that holds something else."""
    if column.is_number:
        outside = "moved to the nearest bound, in silence"
    elif column.other is not None:
        outside = f"becomes {column.other!r}"
    else:
        outside = "refused before anything is published: the list is complete"
    return DeclaredBound(
        column=column.name,
        type=str(column.type),
        lower=_plain(column.lower),
        upper=_plain(column.upper),
        values=None if column.values is None else list(column.values),
        missing=not column.required,
        source=column.bounds_source,
        outside=outside,
        grid=column.grid,
    )


def draft_assumptions(promises: Iterable[Promise], schema: Schema) -> list[str]:
    """Return what has to be true for the promises to hold, one sentence each."""
    unit = schema.unit
    rows = (
        f"Each {unit} has one row of the table, as the schema says."
        if schema.id_column is None
        else f"The column {schema.id_column!r} tells which rows belong to one {unit}."
    )
    return [
        "Bounds, lists and the amount of noise were declared without looking at the rows.",
        rows,
        "The curator, who holds the rows and drew the noise, is trusted with them.",
        "The key of the noise is secret: it was discarded, or nobody but the curator's auditor can read it.",
        "AES-256, from which the noise is made, cannot be told from a random source.",
        *dict.fromkeys(_sentence(assumed) for promise in promises for assumed in promise.assumes),
    ]


def draft_implementation(
    planned: Plan | Publication, method: ReleaseMethod, *, seeded: bool, commitment: str, shuffled: bool
) -> Implementation:
    """Say how the noise was made."""
    kinds, schema = _kinds(planned), method.schema
    done = []
    if schema is not None and schema.id_column is not None:
        most = schema.max_rows_per_unit
        done.append(f"rows of one {schema.unit} beyond {most} left out, chosen by a salted hash")
    if shuffled:
        done.append("rows put in random order under the key")
    for summary in _summaries(planned):
        if getattr(summary.law, "clamped", False):
            done.append(f"{summary.column} moved back into its declared range after the noise")
        if grid := getattr(summary.law, "grid", None):
            done.append(f"{summary.column} rounded to steps of {grid:g} after the noise")
    if (precision := getattr(method, "precision", None)) is not None:
        done.append(f"numbers rounded to {precision}{' decimals' if isinstance(precision, int) else ''}")
    return Implementation(
        sampler=" ".join(dict.fromkeys(SAMPLERS[kind] for kind in kinds)),
        arithmetic="real" if any(p.arithmetic == "real" for p in planned.promises) else "exact",
        lattice=" ".join(dict.fromkeys(LATTICES[kind] for kind in kinds if kind in LATTICES)) or "None.",
        randomness=(
            "SEEDED: the noise follows from a seed, and whoever knows it can remove it. "
            "THIS FILE PROTECTS NOBODY; it is for tests."
            if seeded
            else "AES-256 in counter mode under a key of 256 bits that the operating system drew."
        ),
        key_commitment=commitment,
        seeded=seeded,
        shuffled=shuffled,
        rows_salt=getattr(planned, "rows_salt", None),
        total_variation=sum(promise.total_variation for promise in planned.promises),
        post_processing=done,
        timing=TIMING,
        versions=installed_versions(),
    )


def _summaries(planned: Plan | Publication) -> tuple[ColumnSummary, ...]:
    """Return what was done to each column: a publication has it as ``summary``, a plan as ``columns``."""
    found: tuple[ColumnSummary, ...] = getattr(planned, "summary", ()) or getattr(planned, "columns", ())
    return found


def _kinds(planned: Plan | Publication) -> list[str]:
    """Return the kinds of law in use, other than leaving a column as it is."""
    laws = [summary.law for summary in _summaries(planned)]
    kinds = [law.kind for law in laws if law.kind != "clear"]
    if any(law.missing_keep is not None for law in laws):
        kinds.append("response")
    return list(dict.fromkeys(kinds))


def _theorems(planned: Plan | Publication) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for kind in _kinds(planned):
        found |= THEOREMS[kind]
    if any(isinstance(promise, ErrorFloor) for promise in planned.promises):
        found |= THEOREMS["floor"]
    if not all(isinstance(promise, NoPromise) for promise in planned.promises):
        found |= THEOREMS["total"]
    return list(found.items())


def _sentence(words: str) -> str:
    """Make a sentence of a clause: a capital at its start, a full stop at its end."""
    return words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")


def _plain(bound: float | int | datetime.date | None) -> float | str | None:
    return bound.isoformat() if isinstance(bound, datetime.date) else bound


def installed_versions() -> dict[str, str]:
    """Return the versions of everything that decides about noise."""
    return {
        "discreet": product_version(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in _VERSIONED},
    }
