"""The main job: from a table to a release that a stranger can check, stage by stage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.audit import Guess, Reidentification, attack_file
from discreet.evaluation.noise_aware import AwareRows
from discreet.evaluation.samples import PairedSample
from discreet.ledger.audit_log import FILE as LOG
from discreet.ledger.audit_log import TUNED, AuditLog
from discreet.noise import Stream
from discreet.pipeline import _release_stages
from discreet.pipeline._output import INTERNAL, PUBLIC, KeyEscrow, building, check_place
from discreet.pipeline._registry import charged_ledger
from discreet.pipeline._release_stages import ATTACK_RECORDS
from discreet.pipeline._stages import Stages, about_of, closing, recorded, tuning_of
from discreet.pipeline.options import DEFAULT, method_for, promise_for, requested_floors
from discreet.pipeline.result import Published, notes_of, rows_of, sentences_of
from discreet.pipeline.sources import LedgerPlace, label_of, log_place, schema_of, table_of
from discreet.release.base import check_publishable
from discreet.report.findings import Findings, WhatIf
from discreet.report.folder.folder import (
    DATA,
    add_csv,
    data_digests,
    date_files,
    read_bytes,
    sign,
    signing_key,
    write_public,
)
from discreet.report.folder.model_files import write_classifier
from discreet.report.pages.render import write_report
from discreet.report.statement.build import build_statement
from discreet.report.statement.table import TableSubject

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from discreet.pipeline._stages import Progress, Say
    from discreet.privacy import Promise
    from discreet.report.statement.documents import About
    from discreet.schema import Schema

ATTACKS, REPORT = "attacks.json", "report.html"


def publish(
    source: Any,
    *,
    out: str | os.PathLike[str],
    schema: Schema | str | os.PathLike[str] | None = None,
    target: str | None = None,
    method: str | None = None,
    privacy: Promise | None = None,
    protect: Mapping[str, float] | None = None,
    ledger: LedgerPlace = None,
    new_ledger: bool = False,
    about: About | Mapping[str, str | None] | None = None,
    keep_key: str | os.PathLike[str] | None = None,
    passphrase: str | None = None,
    recipient: str | os.PathLike[str] | None = None,
    sign_with: str | os.PathLike[str] | None = None,
    sign_password: str | None = None,
    csv: bool | None = None,
    replace: bool = False,
    tuned: bool = False,
    attack_records: int = ATTACK_RECORDS,
    command: str = "",
    say: Say | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Published:
    """Release a table into two folders, one of which may leave the house with a statement to re-check.

    Parameters
    ----------
    source : path, URL, frame or "demo:census"
        The table, as :func:`discreet.tables.open_table` reads it, or a bundled one.
    out : path
        The folder that will hold ``public`` and ``internal``; whole at the end or not there.
    schema : Schema or path, optional
        What is declared. By default the file ``*.schema.yaml`` beside the table.
    target : str, optional
        The column that learners predict, if another than the schema's.
    method : str, optional
        A name in :data:`discreet.release.METHODS`; by default "gaussian".
    privacy : Promise, optional
        What shall be promised. By default the floors of `protect` and of the schema.
    protect : mapping of str to float, optional
        A floor for each named column, in its unit. Whatever sets the noise, a release that does not prove
        them is refused.
    ledger : Ledger, path, URL, False or None
        Where it is charged: by default a file beside the table, named by the schema's ``dataset``. False:
        nobody counts, and the statement says so.
    new_ledger : bool
        Whether a table that is known to another ledger may be charged to this one all the same; ledger and
        statement then say so.
    about : About or mapping, optional
        ``curator``, ``purpose``, ``contact``, ``license``, ``supersedes``: published as they stand.
    keep_key : path, optional
        Where to keep the key for an auditor, sealed under `passphrase` or for the X25519 public key in the
        file `recipient`. By default the key is forgotten.
    sign_with : path, optional
        An Ed25519 private key in PEM that signs the hashes, with `sign_password` if it has one.
    csv : bool, optional
        Whether to write ``data.csv.gz`` too; by default below a million rows.
    replace : bool
        Whether a release at `out` may be replaced.
    tuned : bool
        Whether the amount of noise was chosen by looking at private rows; the statement says so.
    attack_records : int
        How many made-up records the plan is attacked on before anything is charged; fewer are faster, and
        notice only larger mistakes.
    command : str
        How to run it again, for the internal report.
    say : callable, optional
        Called with every stage when it is done.
    progress : callable, optional
        Called with the name of the running stage and the share that is done.
    **options
        Parameters of the method, such as ``scale`` or ``clamp``.

    Returns
    -------
    Published

    Raises
    ------
    SchemaError
        What was declared is incomplete or wrong.
    SelfAttackFailed
        An attack on made-up records beat what was promised. Nothing was charged, drawn or published.
    BudgetExceeded
        The ledger's limit would be passed. Nothing was charged, drawn or published.
    OtherLedger
        The table was charged to another ledger before. Nothing was charged, drawn or published.

    Privacy
    -------
    Whatever is in ``public`` follows from the schema, the method, the ledger and the released table. The
    charge is on disk before the first random bit is drawn; what happens afterwards does not undo it.
    Everything computed from true rows goes to ``internal`` and decides nothing.

    Reference
    ---------
    ``docs/reference/cli.md``; why the attack comes first: ``docs/decisions/0009-attack-before-charge.md``.

    Examples
    --------
    >>> import tempfile
    >>> from discreet import Column, Schema
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = publish(
    ...         {"age": [34.0, 61.0, 47.0]},
    ...         schema=Schema(columns=[Column("age", lower=17, upper=90, measure="years")]),
    ...         protect={"age": 9},
    ...         ledger=False,
    ...         out=f"{folder}/release",
    ...     )
    ...     sorted(path.name for path in done.public.iterdir())[:2], done.rows[0].verdict
    (['SHA256SUMS', 'croissant.json'], 'holds')
    """
    folder = Path(out)
    check_place(folder, replace=replace)
    declared = schema_of(source, schema)
    declared = declared if target is None else declared.with_target(target)
    check_publishable(declared, "a release")
    keeper = KeyEscrow.from_options(keep_key, passphrase, recipient, release=folder)
    signer = None if sign_with is None else signing_key(read_bytes(Path(sign_with)), sign_password)
    who = about_of(about)
    asked = requested_floors(declared, protect)
    wanted = privacy if privacy is not None else promise_for(declared, protect=protect)
    book = charged_ledger(source, declared, ledger, new_ledger=new_ledger)
    releasing = method_for(method or DEFAULT, schema=declared, privacy=wanted, ledger=book, **options)
    log = AuditLog(log_place(book))
    stages = Stages(log, say=say, progress=progress)
    table, label = table_of(source), label_of(source)
    with closing(book, ledger), recorded(log), keeper, building(folder, replace=replace) as room:
        log.begin(
            what="release",
            table=label,
            dataset=declared.dataset,
            schema=declared.digest,
            method={"name": releasing.name, "parameters": releasing.parameters()},
            ledger=None if book is None else book.identity,
            command=command,
        )
        public, internal = room / PUBLIC, room / INTERNAL
        looked_before = log.mentions(TUNED)
        with stages.stage("read") as tell:
            n_rows = _release_stages.read_table(table, declared, label, tell)
        with stages.stage("check") as tell:
            _release_stages.check_cells(table, declared, n_rows, tell)
        with stages.stage("plan") as tell:
            plan = _release_stages.plan_release(releasing, declared, n_rows, asked, tell)
        with stages.stage("test") as tell:
            verdicts, audits = _release_stages.test_plan(plan, attack_records, tell)
        log.write("promise", promises=[promise.to_dict() for promise in plan.promises])
        with stages.stage("release") as tell:
            beside = AwareRows(plan, n_rows, Stream())
            pairs = PairedSample(plan.schema, Stream(), others=beside.see)
            publication = releasing.publish(
                table,
                public / DATA,
                stream=keeper.stream(),
                watch=_release_stages.watching(pairs, n_rows, tell),
            )
            write_classifier(public, releasing, publication.schema)
            tell(f"{publication.n_rows:,} rows, {_release_stages.charged(publication.receipt, book)}")
        log.write("charged", receipt=publication.receipt.to_dict(), commitment=publication.commitment)
        with stages.stage("learn") as tell:
            learning, positions = None, list[WhatIf]()
            with tell.optional("what a learner gets from it"):
                pairs = pairs if plan.row_level else _release_stages.true_rows(table, declared)
                learning, positions = _release_stages.learn(
                    releasing, declared, plan, pairs, beside, n_rows, tell
                )
        with stages.stage("attack") as tell:
            on_file = attack_file(plan, _release_stages.first_rows(public / DATA, plan.schema))
            on_rows, exposed = tuple[Guess, ...](), tuple[Reidentification, ...]()
            with tell.optional("attacks on real rows"):
                on_rows, exposed = _release_stages.attack_people(plan, pairs, tell)
            tell(_release_stages.attack_words(plan, on_rows, on_file, exposed))
        with stages.stage("write") as tell:
            add_csv(public, publication.n_rows, wanted=csv)
            statement = build_statement(
                TableSubject(publication, releasing, on_file),
                about=who,
                ledger=book,
                tuning=tuning_of(tuned, looked_before, publication.receipt, book),
                files=data_digests(public),
                created=publication.receipt.when,
            )
            write_public(public, statement)
            if signer is not None:
                sign(public, signer)
            date_files(public, statement.what.created)
            compared: dict[str, Any] = {}
            with tell.optional("comparisons of columns"):
                compared = _release_stages.compare_rows(pairs, plan)
            findings = Findings(
                guesses=[guess.to_dict() for guess in (*verdicts, *on_file, *on_rows)],
                audits=[audit.to_dict() for audit in audits],
                exposures=[found.to_dict() for found in exposed],
                learning=learning,
                what_if=positions,
                **compared,
                stages=stages.done,
                command=command,
                composition=statement.composition.total,
            )
            (internal / ATTACKS).write_text(findings.model_dump_json(indent=2) + "\n", encoding="utf-8")
            with tell.optional("the report"):
                write_report(internal / REPORT, statement, findings)
            keeper.keep()
            tell(f"{folder / PUBLIC}, {folder / INTERNAL}")
        log.write("published", release=statement.what.release, files=statement.files)
        log.copy(internal / LOG)
    return Published(
        folder=folder,
        public=folder / PUBLIC,
        internal=folder / INTERNAL,
        statement=statement,
        findings=findings,
        receipt=publication.receipt,
        rows=rows_of(plan, verdicts),
        sentences=sentences_of(statement.definition, statement.numbers, asked),
        notes=notes_of(
            plan,
            method=releasing.name,
            chosen=method is not None,
            privacy=wanted,
            asked=asked,
            counted=publication.receipt.recorded,
        ),
    )
