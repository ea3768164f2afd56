"""Rows that a plan is measured on: the table's own, public ones, or made-up ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.audit import PublicPrior
from discreet.evaluation.compared_rows import EXPLAINED
from discreet.evaluation.tallies import PairedSample
from discreet.ledger.audit_log import TUNED, AuditLog
from discreet.noise import Stream
from discreet.pipeline.sources import LedgerPlace, describe_source, log_path, resolve_source
from discreet.pipeline.table_registry import open_charged_ledger
from discreet.tables import open_table

if TYPE_CHECKING:
    from discreet._types import AnyArray
    from discreet.schema import Schema


@dataclass(frozen=True, slots=True)
class PlanBasis:
    """Rows that a plan is measured on, and what is assumed about them.

    Parameters
    ----------
    n_rows : int, optional
        Public number of rows. None: the table is opened to count them.
    public_sample : path, URL or frame, optional
        Public table of the same columns, to measure on. None: made-up rows, or no accuracy.
    on_rows : bool
        Whether to measure on the table itself: internal, logged beside the ledger, and stated by every later
        release.
    explained : float
        Share of the target's variance that the columns are assumed to explain, from 0 to 1: of made-up rows,
        and for the number of rows that a learner needs.
    """

    n_rows: int | None = None
    public_sample: Any = None
    on_rows: bool = False
    explained: float = EXPLAINED


def log_tuning(source: Any, schema: Schema, ledger: LedgerPlace, *, new_ledger: bool) -> None:
    """Write into the audit log that true rows are looked at, before they are.

    Parameters
    ----------
    source, ledger, new_ledger
        As for :func:`discreet.publish`; nothing is charged.
    schema : Schema
        Declaration of the table.
    """
    table_ledger = open_charged_ledger(source, schema, ledger, new_ledger=new_ledger)
    AuditLog(log_path(table_ledger)).write(
        TUNED, table=describe_source(source), dataset=schema.dataset, schema=schema.digest
    )
    if table_ledger is not None:
        table_ledger.close()


def read_sample(source: Any, schema: Schema, stream: Stream) -> dict[str, AnyArray]:
    """Return a uniform sample of the rows of a table, encoded; all of them if they are few."""
    sample = PairedSample(schema, stream.derive("sample"))
    with open_table(source, schema=schema) as table:
        for batch in table.batches(schema):
            sample(batch, batch)
    return sample.rows


def read_prior(public_sample: Any, schema: Schema) -> PublicPrior | None:
    """Return the law of public rows that attackers may know; None where none were declared.

    Parameters
    ----------
    public_sample : path, URL or frame, optional
        Public table with the released columns of the schema; None for none.
    schema : Schema
        Declaration of the table that is protected.
    """
    if public_sample is None:
        return None
    sample = PairedSample(schema, Stream.from_seed(0))
    with open_table(resolve_source(public_sample), schema=schema) as table:
        for batch in table.batches(schema):
            sample(batch, batch)
    label = describe_source(public_sample)
    # The name of a file says which table it is; where it lies is nobody's business.
    return PublicPrior.from_rows(schema, sample.rows, label if "://" in label else Path(label).name)
