"""The main job: from a table to a folder that anyone can verify, stage by stage."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.audit import Guess, Reidentification, attack_file
from discreet.errors import ParameterError
from discreet.evaluation.noise_aware import AwareRows
from discreet.evaluation.tallies import PairedSample
from discreet.ledger.audit_log import FILE as LOG
from discreet.ledger.audit_log import TUNED, AuditLog
from discreet.noise import Stream
from discreet.pipeline import _plan_stages, _release_stages
from discreet.pipeline._output import (
    INTERNAL,
    PUBLIC,
    RESUME,
    WORK,
    ReleaseKey,
    build_folder,
    check_target_folder,
    forget_key,
    load_signing_key,
    open_work_folder,
)
from discreet.pipeline._stages import Stages, close_ledger, describe_tuning, log_failure, parse_about
from discreet.pipeline.answered_release import make_answering_method, publish_answers
from discreet.pipeline.methods import (
    check_declared,
    check_one_target,
    choose_method,
    resolve_declaration,
    resolve_floors,
    resolve_method,
    resolve_promise,
)
from discreet.pipeline.options import Output, RunOptions, SparkOptions
from discreet.pipeline.plan_basis import read_prior
from discreet.pipeline.result import Published, build_notes, build_rows, select_sentences
from discreet.pipeline.sources import LedgerPlace, describe_source, find_schema, log_path, resolve_source
from discreet.pipeline.table_registry import open_charged_ledger
from discreet.query.interface import PrivateTable
from discreet.release.kinds import is_synthetic
from discreet.release.readable import readable_columns, write_readable
from discreet.release.spark import PartitionedTable
from discreet.report.findings import Findings, WhatIf
from discreet.report.folder.folder import (
    DATA,
    READABLE,
    data_digests,
    date_files,
    sign,
    write_public,
)
from discreet.report.folder.model_files import write_answers, write_classifier, write_prior
from discreet.report.pages.render import write_report
from discreet.report.statement.build import build_statement
from discreet.report.statement.table import TableSubject
from discreet.tables.spark import is_spark_source, open_parquet

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from discreet.ledger import Ledger
    from discreet.pipeline.options import KeyEscrow
    from discreet.privacy import Promise
    from discreet.query.database import Database
    from discreet.release import Publication, ReleaseMethod
    from discreet.release.base import Watch
    from discreet.schema import Schema

ATTACKS, REPORT = "attacks.json", "report.html"


def publish(
    source: Any,
    *,
    out: str | os.PathLike[str],
    schema: Schema | str | os.PathLike[str] | None = None,
    target: str | None = None,
    method: str | ReleaseMethod | None = None,
    privacy: Promise | None = None,
    protect: Mapping[str, float] | None = None,
    ledger: LedgerPlace = None,
    output: Output = Output(),  # noqa: B008 - frozen
    run: RunOptions = RunOptions(),  # noqa: B008 - frozen
    **options: Any,
) -> Published:
    """Release a table into two folders: one to publish, with a statement to verify, and an internal one.

    Parameters
    ----------
    source : path, URL, frame, "demo:census", Database or RemoteDatabase
        Table as :func:`discreet.tables.open_table` reads it, or a bundled one; a Spark data frame or a
        ``spark://`` address. A database that answers questions, also one behind a service, is for the method
        "synthetic": no row of it is seen here.
    out : path
        Folder that will hold ``public`` and ``internal``; complete at the end, or not there.
    schema : Schema or path, optional
        Schema that declares the columns. By default that of `method` if it has one, or else the file
        ``*.schema.yaml`` beside the table.
    target : str, optional
        Column that learners predict, if it is another than the schema's.
    method : str or ReleaseMethod, optional
        Name in :data:`discreet.release.METHODS`, or a method with its parameters, which then takes neither
        `privacy` nor `options`. None: "synthetic" for differential privacy, "gaussian" for error floors.
    privacy : Promise, optional
        Promise that the release must keep. None: the error floors of `protect` and of the schema.
    protect : mapping of str to float, optional
        Error floor of each named column, in its unit. Whatever sets the noise, a release that does not prove
        them is refused.
    ledger : Ledger, path, URL, False or None
        Ledger that is charged. None: that of `method`, or else a file beside the table, named by the schema's
        ``dataset``. False: nothing is counted, and the statement says so.
    output : Output
        Texts about the release, the file that keeps its key, who signs it, and whether a release at `out` may
        be replaced.
    run : RunOptions
        Whether the noise was tuned on private rows, how many records the plan is attacked on, why a risk
        above the thresholds is accepted, whether another ledger may be charged, workers of Spark, and what is
        called as the job goes on.
    **options
        Parameters of the method, such as ``scale`` or ``clamp``.

    Returns
    -------
    Published

    Raises
    ------
    SchemaError
        The schema is incomplete or wrong.
    SelfAttackFailed
        An attack on made-up records beat what was promised. Nothing was charged, drawn or published.
    RiskTooHigh
        An attack on made-up people is above its threshold, and ``run.accept_risk`` gives no reason to accept
        it. Nothing was charged, drawn or published.
    BudgetExceeded
        The ledger's limit would be passed. Nothing was charged, drawn or published.
    OtherLedger
        The table was charged to another ledger before. Nothing was charged, drawn or published.

    Privacy
    -------
    Everything in ``public`` follows from the schema, the method, the ledger and the released table. The
    charge is on disk before the first random bit is drawn, and nothing undoes it. Everything computed from
    true rows goes to ``internal`` and decides nothing.

    Reference
    ---------
    ``docs/reference/cli.md``; why the attack comes first: ``docs/decisions/0009-attack-before-charge.md``.

    Examples
    --------
    >>> import tempfile
    >>> from discreet import Column, Schema
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = publish(
    ...         {"age": [34.0, 61.0, 47.0] * 100},
    ...         schema=Schema(columns=[Column("age", lower=17, upper=90, measure="years")]),
    ...         protect={"age": 18},
    ...         ledger=False,
    ...         out=f"{folder}/release",
    ...     )
    ...     sorted(path.name for path in result.public.iterdir())[:2], result.rows[0].verdict
    (['README.txt', 'SHA256SUMS'], 'holds')
    """
    if isinstance(source, PrivateTable):
        for name, given in (("schema", schema), ("ledger", ledger), ("escrow", output.escrow)):
            if given is not None:
                raise ParameterError(
                    f"{name} must be left out where a {type(source).__name__} is asked, which has its own."
                )
        return publish_answers(
            source,
            make_answering_method(source, method, target=target, privacy=privacy, **options),
            out=out,
            protect=protect,
            output=output,
            run=run,
        )
    folder = Path(out)
    spark = SparkOptions() if run.spark is None and is_spark_source(source) else run.spark
    forget_key(folder, resume=spark is not None and spark.resume)
    check_target_folder(folder, replace=output.replace)
    schema, ledger = resolve_declaration(method, schema, ledger)
    declared = find_schema(source, schema)
    check_one_target(method, target)
    declared = declared if target is None else declared.with_target(target)
    floors = resolve_floors(declared, protect)
    promise = resolve_promise(method, declared, privacy=privacy, protect=protect)
    named, method = method is not None, choose_method(method, declared, privacy=promise, floors=floors)
    check_declared(method, declared)
    key = ReleaseKey.from_escrow(output.escrow, release=folder)
    signing_key = load_signing_key(output.signing)
    texts = parse_about(output.about)
    fingerprint = None
    if spark is not None and not is_spark_source(source):
        fingerprint = partial(fingerprint_parts, folder, spark)
    table_ledger = open_charged_ledger(
        source, declared, ledger, new_ledger=run.new_ledger, fingerprint=fingerprint
    )
    releasing = resolve_method(method, schema=declared, privacy=promise, ledger=table_ledger, **options)
    if spark is not None and is_synthetic(releasing):
        check_answers_alone(spark, output.escrow)
        with (
            close_ledger(table_ledger, ledger),
            open_database(source, declared, table_ledger, spark) as asked,
        ):
            return publish_answers(
                asked,
                releasing,
                out=out,
                protect=protect,
                output=output,
                run=run,
            )
    log = AuditLog(log_path(table_ledger))
    stages = Stages(log, on_stage=run.on_stage, on_progress=run.on_progress)
    table, label = resolve_source(source), describe_source(source)
    with (
        close_ledger(table_ledger, ledger),
        log_failure(log),
        key,
        build_folder(folder, replace=output.replace, resume=spark is not None and spark.resume) as draft,
    ):
        log.begin(
            what="release",
            table=label,
            dataset=declared.dataset,
            schema=declared.digest,
            method={"name": releasing.name, "parameters": releasing.parameters()},
            ledger=None if table_ledger is None else table_ledger.identity,
            command=run.command,
        )
        public, internal = draft / PUBLIC, draft / INTERNAL
        tuned_before = log.mentions(TUNED)
        parts = None if spark is None else open_parts(table, declared, internal, spark)
        table = table if parts is None else parts.path
        with stages.stage("read") as report:
            n_rows = _plan_stages.read_table(table, declared, label, report)
        with stages.stage("check") as report:
            _plan_stages.check_cells(table if parts is None else parts, declared, n_rows, report)
        with stages.stage("plan") as report:
            n_rows = _plan_stages.used_length(table, releasing, declared, n_rows)
            plan = _plan_stages.plan_release(releasing, declared, n_rows, floors, report)
            if parts is not None:
                parts.check_method(plan, type(releasing).__name__)
        with stages.stage("test") as report:
            verdicts, audits = _plan_stages.attack_plan(releasing, plan, n_rows, run.attack_records, report)
        with stages.stage("risk") as report:
            prior = read_prior(run.public_sample, declared)
            risk = _plan_stages.assess_risk(releasing, plan, n_rows, run.attack_records, report, prior)
        risk = _plan_stages.check_risk(risk, run.accept_risk)
        log.write("risk", verdict=risk.verdict, why=risk.why, accepted=risk.accepted)
        log.write("promise", promises=[kept.to_dict() for kept in plan.promises])
        with stages.stage("release") as report:
            beside = AwareRows(plan, n_rows, Stream())
            pairs = PairedSample(plan.schema, Stream(), others=beside.see)
            watch = _release_stages.make_watch(pairs, n_rows, report)
            if parts is None:
                publication = releasing.publish(table, public / DATA, stream=key.stream(), watch=watch)
            else:
                publication = publish_parts(
                    releasing, parts, draft, key, watch=watch, resume=spark is not None and spark.resume
                )
            write_classifier(public, releasing, publication.schema)
            write_answers(public, releasing)
            write_prior(public, prior)
            charge = _release_stages.describe_charge(releasing, publication, table_ledger)
            sampled = "" if parts is None else "; a sample of batches is compared with its true rows"
            report(f"{publication.n_rows:,} rows, {charge}{sampled}")
        for receipt in publication.receipts:
            log.write("charged", receipt=receipt.to_dict(), commitment=publication.commitment)
        with stages.stage("learn") as report:
            learning, positions = None, list[WhatIf]()
            with report.optional("what a learner gets from it"):
                if not plan.row_level:
                    made_up = _release_stages.MadeUpRows(public / DATA, plan) if plan.typed else None
                    pairs = _release_stages.sample_true_rows(table, declared, made_up)
                learning, positions = _release_stages.measure_worth(
                    releasing, declared, plan, pairs, beside, n_rows, report
                )
        with stages.stage("attack") as report:
            on_file = attack_file(
                plan, _release_stages.first_rows(public / DATA, plan.schema, typed=plan.typed)
            )
            on_rows, exposed = tuple[Guess, ...](), tuple[Reidentification, ...]()
            on_made_up = _release_stages.attack_made_up_people(releasing, plan, publication.n_rows)
            compared = list(on_made_up)
            with report.optional("attacks on real rows"):
                on_rows, exposed = _release_stages.attack_real_rows(plan, pairs, report)
                compared += _release_stages.attack_real_people(releasing, pairs)
            report(_release_stages.describe_attacks(plan, on_rows, on_file, exposed, compared))
        with stages.stage("write") as report:
            write_readable(public / DATA, public / READABLE, readable_columns(publication))
            statement = build_statement(
                TableSubject(publication, releasing, (*on_file, *on_made_up), risk=risk),
                about=texts,
                ledger=table_ledger,
                tuning=describe_tuning(run.tuned, tuned_before, publication.receipts[0], table_ledger),
                files=data_digests(public),
                created=publication.receipt.when,
            )
            write_public(public, statement)
            if signing_key is not None:
                sign(public, signing_key)
            date_files(public, statement.what.created)
            columns: dict[str, Any] = {}
            with report.optional("comparisons of columns"):
                if is_synthetic(releasing):
                    columns = _release_stages.compare_tables(releasing, table, declared, plan, public / DATA)
                else:
                    columns = _release_stages.compare_rows(pairs, plan)
            findings = Findings(
                guesses=[guess.to_dict() for guess in (*verdicts, *on_file, *on_rows)],
                audits=[audit.to_dict() for audit in audits],
                exposures=[one.to_dict() for one in exposed],
                learning=learning,
                what_if=positions,
                members=[one.to_dict() for one in compared],
                **columns,
                stages=stages.done,
                command=run.command,
                composition=statement.composition.total,
            )
            (internal / ATTACKS).write_text(findings.model_dump_json(indent=2) + "\n", encoding="utf-8")
            with report.optional("the report"):
                write_report(internal / REPORT, statement, findings)
            key.keep()
            if parts is not None:
                parts.close()
            report(f"{folder / PUBLIC}, {folder / INTERNAL}")
        log.write("published", release=statement.what.release, files=statement.files)
        log.copy(internal / LOG)
    return Published(
        folder=folder,
        public=folder / PUBLIC,
        internal=folder / INTERNAL,
        statement=statement,
        findings=findings,
        risk=risk,
        receipt=publication.receipt,
        rows=build_rows(plan, verdicts),
        sentences=select_sentences(statement.definition, statement.numbers, floors),
        notes=build_notes(
            plan,
            method=releasing.name,
            chosen=named,
            privacy=promise,
            floors=floors,
            counted=publication.receipt.recorded,
        ),
    )


def open_parts(source: Any, schema: Schema, internal: Path, spark: SparkOptions) -> PartitionedTable:
    """Return the table as the workers of Spark read it, with its private folder in an internal one."""
    return PartitionedTable(source, schema, internal / WORK, session=spark.session, master=spark.master)


def fingerprint_parts(
    out: Path, spark: SparkOptions, source: Any, schema: Schema, key: bytes
) -> tuple[str, ...]:
    """Return the fingerprint of a table by which its ledger is found, taken by the workers of Spark.

    Parameters
    ----------
    out : Path
        Folder of the release, beside which all workers see private files.
    spark : SparkOptions
        Cluster or session whose workers read the table.
    source, schema, key
        As for :func:`~discreet.tables.fingerprint.fingerprint_table`. What cannot be read is an error here.
    """
    with (
        open_work_folder(out) as internal,
        contextlib.closing(open_parts(source, schema, internal, spark)) as parts,
    ):
        return parts.fingerprint(key)


def check_answers_alone(spark: SparkOptions, escrow: KeyEscrow | None) -> None:
    """Refuse what a synthetic release from answers of Spark has not: one key, and one charge to resume."""
    for name, given in (("resume (--resume)", spark.resume), ("escrow (--keep-key)", escrow is not None)):
        if given:
            raise ParameterError(
                f"{name} must be left out where Spark answers the questions of a synthetic release: each is "
                "charged and answered by itself. Release the table without Spark, or leave it out."
            )


@contextlib.contextmanager
def open_database(
    source: Any, schema: Schema, ledger: Ledger | None, spark: SparkOptions
) -> Iterator[Database]:
    """Yield a database in Spark that answers the questions of a synthetic release.

    Parameters
    ----------
    source : path, Spark data frame or spark:// URL
        Table; of a path, Parquet files that all workers see.
    schema : Schema
        Declaration of the columns.
    ledger : Ledger or None
        Ledger that is charged; None: nothing is counted.
    spark : SparkOptions
        Cluster or session that answers the questions.
    """
    from discreet.query.database import Database  # loaded here, since other releases ask no questions

    if not is_spark_source(source):
        source = open_parquet(Path(source), session=spark.session, master=spark.master)
    database = Database(source, schema=schema, ledger=ledger)
    try:
        yield database
    finally:
        database.close()


def publish_parts(
    method: ReleaseMethod,
    parts: PartitionedTable,
    draft: Path,
    key: ReleaseKey,
    *,
    watch: Watch,
    resume: bool,
) -> Publication:
    """Charge once and draw on the workers; a record in the draft says how to go on after a kill.

    Parameters
    ----------
    method : ReleaseMethod
        Method of the release, with its ledger.
    parts : PartitionedTable
        Table whose cells were checked.
    draft : Path
        Folder in which the release is built.
    key : ReleaseKey
        Key of the release, which is stored before the charge, and taken from the record to resume.
    watch : callable
        As for :meth:`ReleaseMethod.publish_parts`.
    resume : bool
        Whether the draft has the record of an earlier run.

    Privacy
    -------
    The record holds the key, in a file that only its owner can read, until the release is complete: whoever
    has it and the release has the true rows. It is written before the charge, which is named by key, plan and
    rows and not made twice, so that no moment is left in which the table is paid for and cannot be drawn.
    """
    facts = {
        "source": parts.digest,
        "schema": parts.schema.digest,
        "method, with its parameters,": method.plan_digest(parts.n_rows),
    }
    record = draft / INTERNAL / RESUME
    if resume:
        key.resume(record, facts)
    else:
        key.store(record, facts)
    try:
        return method.publish_parts(parts, draft / PUBLIC / DATA, stream=key.stream(), watch=watch)
    except BaseException:
        # Also when interrupted. A release that was not paid for has nothing to resume.
        if not resume and not parts.is_paid:
            record.unlink()
        raise
