"""A release that reads no cell: everything that can be said before a row is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.job import steps
from discreet.job.declared import label_of, schema_of, table_of
from discreet.job.options import DEFAULT, floors_asked, method_for, promise_for
from discreet.job.result import Row, notes_of, rows_of, sentences_of
from discreet.job.stages import Stages
from discreet.ledger.audit_log import AuditLog
from discreet.release.base import check_publishable
from discreet.report.statement.build import promised_blocks
from discreet.report.statement.table import TableSubject
from discreet.tables import open_table

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from discreet.audit import AuditResult, Guess
    from discreet.job.stages import Progress, Say
    from discreet.privacy import Promise
    from discreet.release import Plan
    from discreet.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What a release would do and promise.

    Attributes
    ----------
    plan : Plan
        What would be done.
    guesses, audits
        Attacks on made-up records.
    rows, notes
        As of :class:`~discreet.job.result.Published`.
    sentences, open : tuple of str
        What would be promised, and what would not be protected.
    """

    plan: Plan
    guesses: tuple[Guess, ...]
    audits: tuple[AuditResult, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    sentences: tuple[str, ...]
    open: tuple[str, ...]


def rehearse(
    source: Any,
    *,
    schema: Schema | str | os.PathLike[str] | None = None,
    target: str | None = None,
    method: str | None = None,
    privacy: Promise | None = None,
    protect: Mapping[str, float] | None = None,
    attack_records: int = steps.ATTACK_RECORDS,
    say: Say | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Rehearsal:
    """Check the declaration, plan the release and attack the plan; charge, draw and write nothing.

    Parameters
    ----------
    source, schema, target, method, privacy, protect, attack_records, say, progress, **options
        As of :func:`discreet.publish`.

    Returns
    -------
    Rehearsal

    Privacy
    -------
    Reads the names and types of the columns and how many rows there are, which a release shows anyway, and no
    cell.
    """
    declared = schema_of(source, schema)
    declared = declared if target is None else declared.with_target(target)
    check_publishable(declared, "a release")
    asked = floors_asked(declared, protect)
    wanted = privacy if privacy is not None else promise_for(declared, protect=protect)
    releasing = method_for(method or DEFAULT, schema=declared, privacy=wanted, **options)
    stages = Stages(AuditLog(None), say=say, progress=progress)
    with stages.stage("read") as tell:
        n_rows = steps.read_table(table_of(source), declared, label_of(source), tell)
    with stages.stage("check") as tell, open_table(table_of(source)) as table:
        # Compares names and types with the declaration; cells would be read by going through the batches.
        table.batches(declared, ids=declared.id_column is not None)
        tell("every declared column is there; no cell was looked at")
    with stages.stage("plan") as tell:
        plan = steps.plan_release(releasing, declared, n_rows, asked, tell)
    with stages.stage("test") as tell:
        guesses, audits = steps.test_plan(plan, attack_records, tell)
    blocks = promised_blocks(TableSubject(plan, releasing))
    return Rehearsal(
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
