"""What more or less noise would mean, for somebody who has not released anything yet.

A release that reads no cell: everything that can be said before a row is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.evaluation.learning import meter_for
from discreet.evaluation.sample_size import EXPLAINED, recommend
from discreet.evaluation.samples import PairedSample
from discreet.evaluation.what_if import plan_table, what_if
from discreet.ledger.audit_log import TUNED, AuditLog
from discreet.noise import Stream
from discreet.pipeline import _release_stages
from discreet.pipeline._registry import charged_ledger
from discreet.pipeline._release_stages import usual_delta
from discreet.pipeline._stages import Stages
from discreet.pipeline.options import DEFAULT, method_for, promise_for, requested_floors
from discreet.pipeline.result import Row, notes_of, rows_of, sentences_of
from discreet.pipeline.sources import LedgerPlace, label_of, log_place, schema_of, table_of
from discreet.query.dummy_rows import RULE
from discreet.release.base import check_publishable
from discreet.release.invariant.plan import InvariantPlan, encoded_rows
from discreet.report.statement.build import promised_blocks
from discreet.report.statement.table import TableSubject
from discreet.tables import open_table

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from discreet._types import AnyArray
    from discreet.audit import AuditResult, Guess
    from discreet.evaluation.sample_size import Recommendation
    from discreet.pipeline._stages import Progress, Say
    from discreet.privacy import Promise
    from discreet.release import ReleasePlan
    from discreet.report.findings import WhatIf
    from discreet.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRelease:
    """Positions from the least noise to the most, what their accuracy was measured on, and advice.

    Attributes
    ----------
    positions : list of WhatIf
    measured_on : str
    schema : Schema
        Of the table that would be published; of rows that are nobody's, what was declared.
    advice : Advice or None
        How many rows a learner needs, or which epsilon; None without a target, or where noise does not tell.
    """

    positions: list[WhatIf]
    measured_on: str
    schema: Schema
    advice: Recommendation | None = None


def plan_for(
    source: Any,
    *,
    schema: Schema | str | os.PathLike[str] | None = None,
    method: str | None = None,
    privacy: Promise | None = None,
    protect: Mapping[str, float] | None = None,
    n_rows: int | None = None,
    public_sample: Any = None,
    on_private_rows: bool = False,
    explained: float = EXPLAINED,
    ledger: LedgerPlace = None,
    new_ledger: bool = False,
    progress: Callable[[str, float], None] | None = None,
    **options: Any,
) -> PlannedRelease:
    """Plan a release with more and with less noise.

    Parameters
    ----------
    source, schema, method, privacy, protect, **options
        As of :func:`discreet.publish`.
    n_rows : int, optional
        The public number of rows; by default the table is asked how many it has.
    public_sample : path, URL or frame, optional
        A public table of the same columns, to measure accuracy on.
    on_private_rows : bool
        Measure it on the table itself: internal, logged beside the `ledger`, and held against later releases.
    explained : float
        Which part of the target's variance the true columns are taken to explain, for advice on rows.
    ledger, new_ledger
        As of :func:`discreet.publish`; nothing is charged.
    progress : callable, optional
        Told how much is done.

    Privacy
    -------
    Reads no cell unless `on_private_rows`. Then whoever chooses by the result tunes on private data, and the
    statement of every later release under the same ledger says so.
    """
    declared = schema_of(source, schema)
    check_publishable(declared, "a release")
    wanted = privacy if privacy is not None else promise_for(declared, protect=protect)
    releasing = method_for(method or DEFAULT, schema=declared, privacy=wanted, **options)
    if n_rows is None:
        with open_table(table_of(source)) as table:
            n_rows = max(1, table.count())
    plan = releasing.plan(declared, n_rows)
    shown = plan.schema if plan.row_level else declared
    advice = recommend(releasing, declared, n_rows, explained=explained)
    common: dict[str, Any] = {
        "delta": usual_delta(releasing),
        "progress": None if progress is None else lambda done: progress("plan", done),
    }
    if not on_private_rows:
        positions = plan_table(releasing, declared, n_rows, public_sample=public_sample, **common)
        measured = (
            RULE if public_sample is None else f"measured on the public table {label_of(public_sample)}."
        )
        return PlannedRelease(positions=positions, measured_on=measured, schema=shown, advice=advice)
    book = charged_ledger(source, declared, ledger, new_ledger=new_ledger)
    AuditLog(log_place(book)).write(
        TUNED, table=label_of(source), dataset=declared.dataset, schema=declared.digest
    )
    if book is not None:
        book.close()
    stream = Stream()
    rows = _sample(source, declared, plan, stream)
    meter = meter_for(plan, rows, stream=stream, seconds=60.0)
    return PlannedRelease(
        positions=what_if(releasing, declared, n_rows, accuracy=meter, **common),
        measured_on="measured on private rows: internal. The statement of every later release says so.",
        schema=shown,
        advice=advice,
    )


def _sample(source: Any, schema: Schema, plan: ReleasePlan, stream: Stream) -> dict[str, AnyArray]:
    """Return some true rows, encoded as the method publishes them."""
    pairs = PairedSample(schema, stream.derive("sample"))
    with open_table(table_of(source)) as table:
        for batch in table.batches(schema):
            pairs(batch, batch)
    rows = pairs.rows
    return dict(encoded_rows(schema, rows) if isinstance(plan, InvariantPlan) else plan.truth(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What a release would do and promise.

    Attributes
    ----------
    plan : Plan
        What would be done.
    guesses, audits
        Attacks on made-up records.
    rows, notes
        As of :class:`~discreet.pipeline.result.Published`.
    sentences, open : tuple of str
        What would be promised, and what would not be protected.
    """

    plan: ReleasePlan
    guesses: tuple[Guess, ...]
    audits: tuple[AuditResult, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    sentences: tuple[str, ...]
    open: tuple[str, ...]


def dry_run(
    source: Any,
    *,
    schema: Schema | str | os.PathLike[str] | None = None,
    target: str | None = None,
    method: str | None = None,
    privacy: Promise | None = None,
    protect: Mapping[str, float] | None = None,
    attack_records: int = _release_stages.ATTACK_RECORDS,
    say: Say | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> DryRun:
    """Check the declaration, plan the release and attack the plan; charge, draw and write nothing.

    Parameters
    ----------
    source, schema, target, method, privacy, protect, attack_records, say, progress, **options
        As of :func:`discreet.publish`.

    Returns
    -------
    DryRun

    Privacy
    -------
    Reads the names and types of the columns and how many rows there are, which a release shows anyway, and no
    cell.
    """
    declared = schema_of(source, schema)
    declared = declared if target is None else declared.with_target(target)
    check_publishable(declared, "a release")
    asked = requested_floors(declared, protect)
    wanted = privacy if privacy is not None else promise_for(declared, protect=protect)
    releasing = method_for(method or DEFAULT, schema=declared, privacy=wanted, **options)
    stages = Stages(AuditLog(None), say=say, progress=progress)
    with stages.stage("read") as tell:
        n_rows = _release_stages.read_table(table_of(source), declared, label_of(source), tell)
    with stages.stage("check") as tell, open_table(table_of(source)) as table:
        # Compares names and types with the declaration; cells would be read by going through the batches.
        table.batches(declared, ids=declared.id_column is not None)
        tell("every declared column is there; no cell was looked at")
    with stages.stage("plan") as tell:
        plan = _release_stages.plan_release(releasing, declared, n_rows, asked, tell)
    with stages.stage("test") as tell:
        guesses, audits = _release_stages.test_plan(plan, attack_records, tell)
    blocks = promised_blocks(TableSubject(plan, releasing))
    return DryRun(
        plan=plan,
        guesses=guesses,
        audits=audits,
        rows=rows_of(plan, guesses),
        notes=notes_of(
            plan, method=releasing.name, chosen=method is not None, privacy=wanted, asked=asked, counted=True
        ),
        sentences=sentences_of(blocks["definition"], blocks["numbers"], asked),
        open=tuple(blocks["not_protected"]),
    )
