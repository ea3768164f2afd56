"""Plans of a release: more and less noise side by side, and a dry run that reads no cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.evaluation.learning import choose_meter
from discreet.evaluation.sample_size import EXPLAINED, recommend
from discreet.evaluation.samples import PairedSample
from discreet.evaluation.what_if import plan_table, what_if
from discreet.ledger.audit_log import TUNED, AuditLog
from discreet.noise import Stream
from discreet.pipeline import _release_stages
from discreet.pipeline._release_stages import usual_delta
from discreet.pipeline._stages import Stages
from discreet.pipeline.options import (
    ATTACK_RECORDS,
    check_declared,
    resolve_declaration,
    resolve_floors,
    resolve_method,
    resolve_promise,
)
from discreet.pipeline.result import Row, build_notes, build_rows, select_sentences
from discreet.pipeline.sources import LedgerPlace, describe_source, find_schema, log_path, resolve_source
from discreet.pipeline.table_registry import open_charged_ledger
from discreet.query.dummy import RULE
from discreet.release.invariant.plan import InvariantPlan, encoded_rows
from discreet.report.statement.build import promised_blocks
from discreet.report.statement.table import TableSubject
from discreet.tables import open_table

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from discreet._types import AnyArray
    from discreet.audit import AuditResult, Guess
    from discreet.evaluation.sample_size import Recommendation
    from discreet.pipeline._stages import OnProgress, OnStage
    from discreet.privacy import Promise
    from discreet.release import ReleaseMethod, ReleasePlan
    from discreet.report.findings import WhatIf
    from discreet.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRelease:
    """A release with more and with less noise, and how many rows a learner needs.

    Attributes
    ----------
    positions : list of WhatIf
        Noise, floors, epsilon and accuracy at several factors of the noise, the least noise first.
    measured_on : str
        Rows that the accuracy was measured on, in words.
    schema : Schema
        Schema of the table that would be published; the declared one if published rows belong to no one.
    advice : Recommendation or None
        Number of rows that a learner needs, or the epsilon; None without a target, or if it does not follow
        from the noise.
    """

    positions: list[WhatIf]
    measured_on: str
    schema: Schema
    advice: Recommendation | None = None


@dataclass(frozen=True, slots=True)
class PlanBasis:
    """Rows that a plan is measured on, and what is assumed about them.

    Parameters
    ----------
    n_rows : int, optional
        Public number of rows. None: the table is opened to count them.
    public_sample : path, URL or frame, optional
        Public table of the same columns, to measure accuracy on. None: accuracy follows from a rule.
    on_private_rows : bool
        Whether to measure accuracy on the table itself: internal, logged beside the ledger, and stated by
        every later release.
    explained : float
        Share of the target's variance that the true columns are assumed to explain, from 0 to 1, for advice
        on the number of rows.
    """

    n_rows: int | None = None
    public_sample: Any = None
    on_private_rows: bool = False
    explained: float = EXPLAINED


def plan_noise_levels(
    source: Any,
    *,
    schema: Schema | str | os.PathLike[str] | None = None,
    method: str | ReleaseMethod | None = None,
    privacy: Promise | None = None,
    protect: Mapping[str, float] | None = None,
    ledger: LedgerPlace = None,
    new_ledger: bool = False,
    basis: PlanBasis = PlanBasis(),  # noqa: B008 - frozen
    on_progress: OnProgress | None = None,
    **options: Any,
) -> PlannedRelease:
    """Return plans of a release with more and with less noise.

    Parameters
    ----------
    source, schema, method, privacy, protect, **options
        As for :func:`discreet.publish`.
    ledger, new_ledger
        As for :func:`discreet.publish`; nothing is charged.
    basis : PlanBasis
        Number of rows, and the table that accuracy is measured on.
    on_progress : callable, optional
        Called with "plan" and the share that is done, from 0 to 1.

    Privacy
    -------
    Reads no cell unless `basis` says so. Choosing by that result is tuning on private data, and the statement
    of every later release under the same ledger says so.
    """
    schema, ledger = resolve_declaration(method, schema, ledger)
    declared = find_schema(source, schema)
    check_declared(method, declared)
    promise = resolve_promise(method, declared, privacy=privacy, protect=protect)
    releasing = resolve_method(method, schema=declared, privacy=promise, **options)
    n_rows, public_sample = basis.n_rows, basis.public_sample
    if n_rows is None:
        with open_table(resolve_source(source)) as table:
            n_rows = max(1, table.count())
    plan = releasing.plan(declared, n_rows)
    shown = plan.schema if plan.row_level else declared
    advice = recommend(releasing, declared, n_rows, explained=basis.explained)
    common: dict[str, Any] = {
        "delta": usual_delta(releasing),
        "progress": None if on_progress is None else lambda done: on_progress("plan", done),
    }
    if not basis.on_private_rows:
        positions = plan_table(releasing, declared, n_rows, public_sample=public_sample, **common)
        measured = RULE
        if public_sample is not None:
            measured = f"measured on the public table {describe_source(public_sample)}."
        return PlannedRelease(positions=positions, measured_on=measured, schema=shown, advice=advice)
    table_ledger = open_charged_ledger(source, declared, ledger, new_ledger=new_ledger)
    AuditLog(log_path(table_ledger)).write(
        TUNED, table=describe_source(source), dataset=declared.dataset, schema=declared.digest
    )
    if table_ledger is not None:
        table_ledger.close()
    stream = Stream()
    rows = _sample(source, declared, plan, stream)
    meter = choose_meter(plan, rows, stream=stream, seconds=60.0)
    return PlannedRelease(
        positions=what_if(releasing, declared, n_rows, accuracy=meter, **common),
        measured_on="measured on private rows: internal. The statement of every later release says so.",
        schema=shown,
        advice=advice,
    )


def _sample(source: Any, schema: Schema, plan: ReleasePlan, stream: Stream) -> dict[str, AnyArray]:
    """Return a sample of true rows, encoded as the method publishes them."""
    pairs = PairedSample(schema, stream.derive("sample"))
    with open_table(resolve_source(source)) as table:
        for batch in table.batches(schema):
            pairs(batch, batch)
    rows = pairs.rows
    return dict(encoded_rows(schema, rows) if isinstance(plan, InvariantPlan) else plan.truth(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What a release would do and promise, without doing it.

    Attributes
    ----------
    plan : ReleasePlan
        Plan that the release would be drawn by.
    guesses, audits : tuple of Guess, tuple of AuditResult
        Attacks on made-up records, and attacks on the other promises.
    rows, notes
        As for :class:`~discreet.pipeline.result.Published`.
    sentences, open : tuple of str
        Promises in words, and what would not be protected.
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
    method: str | ReleaseMethod | None = None,
    privacy: Promise | None = None,
    protect: Mapping[str, float] | None = None,
    attack_records: int = ATTACK_RECORDS,
    on_stage: OnStage | None = None,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> DryRun:
    """Check the declaration, plan the release and attack the plan; charge, draw and write nothing.

    Parameters
    ----------
    source, schema, target, method, privacy, protect, on_stage, on_progress, **options
        As for :func:`discreet.publish`.
    attack_records : int
        As for :class:`~discreet.pipeline.options.RunOptions`.

    Returns
    -------
    DryRun

    Privacy
    -------
    Reads no cell: only the names and types of the columns and the number of rows, which a release shows.
    """
    schema, _ = resolve_declaration(method, schema, None)
    declared = find_schema(source, schema)
    declared = declared if target is None else declared.with_target(target)
    check_declared(method, declared)
    floors = resolve_floors(declared, protect)
    promise = resolve_promise(method, declared, privacy=privacy, protect=protect)
    releasing = resolve_method(method, schema=declared, privacy=promise, **options)
    stages = Stages(AuditLog(None), on_stage=on_stage, on_progress=on_progress)
    with stages.stage("read") as report:
        n_rows = _release_stages.read_table(resolve_source(source), declared, describe_source(source), report)
    with stages.stage("check") as report, open_table(resolve_source(source)) as table:
        # Compares names and types with the declaration; cells would be read by going through the batches.
        table.batches(declared, ids=declared.id_column is not None)
        report("every declared column is there; no cell was looked at")
    with stages.stage("plan") as report:
        plan = _release_stages.plan_release(releasing, declared, n_rows, floors, report)
    with stages.stage("test") as report:
        guesses, audits = _release_stages.attack_plan(plan, attack_records, report)
    blocks = promised_blocks(TableSubject(plan, releasing))
    return DryRun(
        plan=plan,
        guesses=guesses,
        audits=audits,
        rows=build_rows(plan, guesses),
        notes=build_notes(
            plan,
            method=releasing.name,
            chosen=method is not None,
            privacy=promise,
            floors=floors,
            counted=True,
        ),
        sentences=select_sentences(blocks["definition"], blocks["numbers"], floors),
        open=tuple(blocks["not_protected"]),
    )
