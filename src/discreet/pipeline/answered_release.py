"""Release of a table that answers questions, at hand or behind a service: its rows are not seen here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError
from discreet.formatting import count_noun
from discreet.ledger import Ledger
from discreet.ledger.audit_log import AuditLog
from discreet.pipeline import _plan_stages, _release_stages
from discreet.pipeline._output import INTERNAL, PUBLIC, build_folder, check_target_folder, load_signing_key
from discreet.pipeline._stages import Stages, describe_tuning, parse_about
from discreet.pipeline.methods import check_floors, check_one_target, resolve_method
from discreet.pipeline.options import Output, RunOptions
from discreet.pipeline.plan_basis import read_prior
from discreet.pipeline.result import Published, build_notes, select_sentences
from discreet.release import SyntheticRelease
from discreet.release.readable import readable_columns, write_readable
from discreet.report.findings import Findings
from discreet.report.folder.folder import DATA, READABLE, data_digests, date_files, sign, write_public
from discreet.report.folder.model_files import write_answers, write_prior
from discreet.report.pages.render import write_report
from discreet.report.statement.build import build_statement
from discreet.report.statement.table import TableSubject

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from discreet.privacy import Promise
    from discreet.query.interface import PrivateTable
    from discreet.release import ReleaseMethod

ATTACKS, REPORT = "attacks.json", "report.html"
NOT_SEEN = "the rows are with the table that answers: nothing was learned from them or attacked on them here"


def make_answering_method(
    sums: PrivateTable,
    method: str | ReleaseMethod | None,
    *,
    target: str | None,
    privacy: Promise | None,
    **options: Any,
) -> SyntheticRelease:
    """Return the method of a release from answers alone; refuses those that read rows.

    Parameters
    ----------
    sums : Database or RemoteDatabase
        Table that answers questions, whose schema is used.
    method, target, privacy, **options
        As for :func:`discreet.publish`; a method that is left out is synthetic.
    """
    check_one_target(method, target)
    if target is not None and not isinstance(method, SyntheticRelease):
        options["target"] = target
    made = resolve_method(method or SyntheticRelease.name, schema=sums.schema, privacy=privacy, **options)
    if not isinstance(made, SyntheticRelease):
        raise ParameterError(
            f"method must be synthetic for a table that answers questions, was {made.name!r}: the other "
            "methods read rows. Release the table where its rows are."
        )
    return made


def publish_answers(
    sums: PrivateTable,
    releasing: SyntheticRelease,
    *,
    out: str | os.PathLike[str],
    protect: Mapping[str, float] | None = None,
    output: Output = Output(),  # noqa: B008 - frozen
    run: RunOptions = RunOptions(),  # noqa: B008 - frozen
) -> Published:
    """Make a synthetic table out of a budget at a database or a service, with a statement to verify.

    Parameters
    ----------
    sums : Database or RemoteDatabase
        Table that answers questions; its schema and its ledger are used.
    releasing : SyntheticRelease
        Method of the release, as :func:`make_answering_method` returns it.
    out, protect, output, run
        As for :func:`discreet.publish`; a floor is refused.

    Returns
    -------
    Published

    Privacy
    -------
    Sees noisy answers alone, each charged to the holder of the token before its noise is drawn. What is
    measured on true rows elsewhere, learning and attacks, is left out. A service shows an analyst no charges
    of others, so that the statement says what these questions come to, and not what else was charged.
    """
    folder, schema = Path(out), sums.schema
    check_target_folder(folder, replace=output.replace)
    signing_key, texts = load_signing_key(output.signing), parse_about(output.about)
    stages = Stages(AuditLog(None), on_stage=run.on_stage, on_progress=run.on_progress)
    ledger = getattr(sums, "ledger", None)
    charged = ledger if isinstance(ledger, Ledger) else None
    with build_folder(folder, replace=output.replace) as draft:
        public, internal = draft / PUBLIC, draft / INTERNAL
        with stages.stage("read") as report:
            rows = "a number of rows that is not public" if sums.n_rows is None else f"{sums.n_rows:,} rows"
            report(f"{type(sums).__name__}: {rows}; {len(schema.released)} columns to publish")
        with stages.stage("plan") as report:
            plan = releasing.plan(schema, sums.n_rows)
            check_floors(plan, dict(protect or {}))
            report(_plan_stages.describe_plan(releasing, plan))
        with stages.stage("test") as report:
            _, audits = _plan_stages.attack_plan(
                releasing, plan, sums.n_rows or 0, run.attack_records, report
            )
        with stages.stage("risk") as report:
            prior = read_prior(run.public_sample, schema)
            risk = _plan_stages.assess_risk(releasing, plan, sums.n_rows, run.attack_records, report, prior)
        risk = _plan_stages.check_risk(risk, run.accept_risk)
        with stages.stage("release") as report:
            in_parts = getattr(sums, "is_distributed", False)
            publication = releasing.publish_database(sums, public / DATA, in_parts=in_parts)
            write_answers(public, releasing)
            write_prior(public, prior)
            paid = f"{len(publication.receipts)} questions charged, each before its first draw"
            report(f"{publication.n_rows:,} rows, {paid}; {NOT_SEEN}")
        with stages.stage("attack") as report:
            attacks = _release_stages.attack_made_up_people(releasing, plan, publication.n_rows)
            names = count_noun(len({one.attack for one in attacks}), "attack")
            report(f"{names} on the people in tables made anew from published answers; on real rows none")
        with stages.stage("write") as report:
            write_readable(public / DATA, public / READABLE, readable_columns(publication))
            statement = build_statement(
                TableSubject(publication, releasing, attacks, risk=risk),
                about=texts,
                ledger=charged,
                tuning=describe_tuning(run.tuned, False, publication.receipts[0], charged),
                files=data_digests(public),
                created=publication.receipt.when,
                service=getattr(sums, "composition", None),
            )
            write_public(public, statement)
            if signing_key is not None:
                sign(public, signing_key)
            date_files(public, statement.what.created)
            findings = Findings(
                audits=[audit.to_dict() for audit in audits],
                members=[one.to_dict() for one in attacks],
                stages=stages.done,
                command=run.command,
                composition=statement.composition.total,
            )
            (internal / ATTACKS).write_text(findings.model_dump_json(indent=2) + "\n", encoding="utf-8")
            with report.optional("the report"):
                write_report(internal / REPORT, statement, findings)
            report(f"{folder / PUBLIC}, {folder / INTERNAL}")
    return Published(
        folder=folder,
        public=folder / PUBLIC,
        internal=folder / INTERNAL,
        statement=statement,
        findings=findings,
        risk=risk,
        receipt=publication.receipt,
        rows=(),
        sentences=select_sentences(statement.definition, statement.numbers, {}),
        notes=build_notes(plan, method=releasing.name, chosen=True, privacy=None, floors={}, counted=True),
    )
