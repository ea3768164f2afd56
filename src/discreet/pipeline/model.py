"""From a table to a model that may leave the house, with a statement that a stranger can check."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from discreet.errors import SourceError
from discreet.formatting import count_noun
from discreet.learn import METHODS
from discreet.learn.feature_map import FeatureMap
from discreet.ledger.audit_log import FILE as LOG
from discreet.ledger.audit_log import TUNED, AuditLog
from discreet.pipeline._output import INTERNAL, PUBLIC, building, check_place
from discreet.pipeline._registry import charged_ledger
from discreet.pipeline._stages import READABLE, Stages, about_of, closing, look_at_cells, recorded, tuning_of
from discreet.pipeline.sources import LedgerPlace, label_of, log_place, schema_of, table_of
from discreet.pipeline.training import make_learner, on_sums, train
from discreet.privacy import Receipt
from discreet.release.base import check_publishable
from discreet.report.folder.folder import (
    MODEL,
    STATEMENT,
    date_files,
    digest_of,
    read_bytes,
    sign,
    signing_key,
    write_model_folder,
)
from discreet.report.folder.model_files import saved_parameters
from discreet.report.statement.build import build_statement
from discreet.report.statement.documents import ModelStatement
from discreet.report.statement.model import ModelSubject
from discreet.schema import Schema

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from discreet.learn import Learner
    from discreet.ledger import Ledger
    from discreet.pipeline._stages import Progress, Say, StageReport
    from discreet.pipeline.training import Training
    from discreet.privacy import Promise
    from discreet.report.statement.documents import About


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel:
    """A model that is on disk, with everything that is known about it.

    Attributes
    ----------
    folder, public, internal : Path
        Where it is. Only ``public`` may leave the house.
    model : Learner
        Fitted. A learner on noisy sums takes rows as they are; any other takes the coordinates that
        :func:`load_model` makes of them.
    statement : ModelStatement
        What ``public/statement.json`` says.
    receipts : tuple of Receipt
        What was charged.
    cached : bool
        Whether all of it had been paid for before, so that it is the same model again.

    Privacy
    -------
    Everything but ``internal`` may be published.

    Reference
    ---------
    ``docs/reference/cli.md``.
    """

    folder: Path
    public: Path
    internal: Path
    model: Learner
    statement: ModelStatement
    receipts: tuple[Receipt, ...]
    cached: bool


def publish_model(
    source: Any,
    *,
    model: str,
    privacy: Promise,
    out: str | os.PathLike[str],
    schema: Schema | str | os.PathLike[str] | None = None,
    target: str | None = None,
    ledger: LedgerPlace = None,
    new_ledger: bool = False,
    about: About | Mapping[str, str | None] | None = None,
    sign_with: str | os.PathLike[str] | None = None,
    sign_password: str | None = None,
    replace: bool = False,
    tuned: bool = False,
    command: str = "",
    say: Say | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> PublishedModel:
    """Train a model on a table into two folders, one of which may leave the house.

    Parameters
    ----------
    source : path, URL, frame or "demo:census"
        The table.
    model : str
        A name in :data:`discreet.learn.METHODS` of a learner that makes a promise: "id3", "logistic", ...
    privacy : PureDP, ApproxDP, ZCDP or GaussianDP
        What the model shall promise; some learners keep some kinds only, and say so. Unit and neighbors are
        the schema's.
    out : path
        The folder that will hold ``public`` and ``internal``; whole at the end or not there.
    schema : Schema or path, optional
        What is declared. By default the file ``*.schema.yaml`` beside the table.
    target : str, optional
        The column that is predicted, if another than the schema's.
    ledger : Ledger, path, URL, False or None
        Where it is charged: by default a file beside the table, named by the schema's ``dataset``. False:
        nobody counts, and the statement says so.
    new_ledger : bool
        Whether a table that is known to another ledger may be charged to this one all the same; ledger and
        statement then say so.
    about : About or mapping, optional
        ``curator``, ``purpose``, ``contact``, ``license``, ``supersedes``: published as they stand.
    sign_with : path, optional
        An Ed25519 private key in PEM that signs the hashes, with `sign_password` if it has one.
    replace : bool
        Whether what was published at `out` may be replaced.
    tuned : bool
        Whether parameters were chosen by looking at private rows; the statement says so.
    command : str
        How to run it again, for the log.
    say : callable, optional
        Called with every stage when it is done.
    progress : callable, optional
        Called with the name of the running stage and the share that is done.
    **parameters
        Of the learner, such as ``max_depth``; checked before a row is read.

    Returns
    -------
    PublishedModel

    Raises
    ------
    SchemaError
        What was declared is incomplete or wrong.
    BudgetExceeded
        The ledger's limit would be passed. Nothing was published.
    OtherLedger
        The table was charged to another ledger before. Nothing was charged or published.

    Privacy
    -------
    Whatever is in ``public`` follows from the schema, the parameters, the ledger and answers that were paid
    for. Nothing is measured on the rows besides: how good the model is on them would be a further release.

    Reference
    ---------
    ``docs/reference/cli.md``, ``docs/reference/statement.md``.

    Examples
    --------
    >>> import tempfile
    >>> from discreet import ApproxDP, Column
    >>> schema = Schema(columns=[Column("age", type="integer", lower=0, upper=99),
    ...                          Column("owner", values=("no", "yes"), closed=True)], target="owner")
    >>> rows = {"age": [20, 70] * 2000, "owner": ["no", "yes"] * 2000}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = publish_model(rows, model="id3", schema=schema, ledger=False, out=f"{folder}/model",
    ...                          privacy=ApproxDP(epsilon=1, delta=1e-6))
    ...     load_model(done.public).predict({"age": [10, 90]}).tolist()
    ['no', 'yes']
    """
    folder = Path(out)
    check_place(folder, replace=replace)
    declared = schema_of(source, schema)
    declared = declared if target is None else declared.with_target(target)
    signer = None if sign_with is None else signing_key(read_bytes(Path(sign_with)), sign_password)
    who = about_of(about)
    # Whatever is refused is refused before a ledger is made.
    if not on_sums(make_learner(model, schema=declared, privacy=privacy, **parameters)):
        check_publishable(declared, f"the model {model}")
    book = charged_ledger(source, declared, ledger, new_ledger=new_ledger)
    learner = make_learner(model, schema=declared, privacy=privacy, ledger=book, **parameters)
    log = AuditLog(log_place(book))
    stages = Stages(log, say=say, progress=progress)
    table, label = table_of(source), label_of(source)
    with closing(book, ledger), recorded(log), building(folder, replace=replace) as room:
        log.begin(
            what="model",
            table=label,
            dataset=declared.dataset,
            schema=declared.digest,
            method={"name": model, "parameters": {name: repr(value) for name, value in parameters.items()}},
            ledger=None if book is None else book.identity,
            command=command,
        )
        public, internal = room / PUBLIC, room / INTERNAL
        looked_before = log.mentions(TUNED)
        with stages.stage("check") as tell:
            _check_table(table, declared, label, tell)
        with stages.stage("learn") as tell:
            done = train(learner, table, declared, book, label)
            receipts = tuple(Receipt.from_dict(p.receipt) for p in done.passes if p.receipt is not None)
            tell(_told(done, receipts, book))
        log.write("charged", receipts=[receipt.to_dict() for receipt in receipts], cached=done.cached)
        with stages.stage("write") as tell:
            learner.save(public / MODEL)
            statement = build_statement(
                ModelSubject(
                    learner=learner,
                    schema=declared,
                    promises=learner.promises_,
                    passes=done.passes,
                    n_rows=done.n_rows,
                    parameters=saved_parameters(public / MODEL),
                ),
                about=who,
                ledger=book,
                tuning=tuning_of(tuned, looked_before, receipts[0], book),
                files={MODEL: digest_of(public / MODEL)},
                created=receipts[-1].when,
            )
            write_model_folder(public, statement)
            if signer is not None:
                sign(public, signer)
            date_files(public, statement.what.created)
            tell(f"{folder / PUBLIC}, {folder / INTERNAL}")
        log.write("published", release=statement.what.release, files=statement.files)
        log.copy(internal / LOG)
    return PublishedModel(
        folder=folder,
        public=folder / PUBLIC,
        internal=folder / INTERNAL,
        model=learner,
        statement=statement,
        receipts=receipts,
        cached=done.cached,
    )


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read a published model, ready for rows as they are.

    Parameters
    ----------
    path : path
        A ``public`` folder, or the folder that holds one. Nothing in it is executed; whether it is what it
        says is for :func:`discreet.verify` to find out.

    Returns
    -------
    estimator
        Of scikit-learn's kind: takes a frame, or a mapping of names to arrays, with the columns that the
        model reads. A learner that knows matrices alone comes in a pipeline that makes them of rows.

    Privacy
    -------
    The model has been paid for: using it costs nothing more.

    Reference
    ---------
    ``docs/reference/statement.md``.
    """
    folder = Path(path)
    folder = folder / PUBLIC if not (folder / STATEMENT).exists() else folder
    statement = ModelStatement.from_json(read_bytes(folder / STATEMENT))
    kind = METHODS.get(statement.what.model.name)
    if kind is None:
        raise SourceError(
            f"{folder} holds a model of kind {statement.what.model.name[:40]!r}, which this version does not "
            "know. It may have been written by a newer version."
        )
    learner = kind.load(folder / MODEL)
    layout = FeatureMap.from_schema(Schema.from_dict(statement.declared))
    if not on_sums(kind):
        return Pipeline([("coordinates", FunctionTransformer(layout.rows)), ("model", learner)])
    if not layout.plain:
        return learner
    # Of numbers alone it takes a matrix, which has no names to compare.
    del learner.feature_names_in_
    matrix = FunctionTransformer(_matrix, kw_args={"names": layout.names})
    return Pipeline([("matrix", matrix), ("model", learner)])


def _matrix(rows: Any, names: tuple[str, ...]) -> Any:
    """Put named columns side by side; leave a matrix."""
    if isinstance(rows, np.ndarray):
        return rows
    return np.column_stack([np.asarray(rows[name], np.float64) for name in names])


def _check_table(source: Any, schema: Schema, label: str, tell: StageReport) -> None:
    """Look at every declared cell once, so that a bad one is named before anything is paid."""
    if type(source).__module__.startswith("pyspark.") or str(source).startswith("spark://"):
        tell(f"{label}: its engine checks it")
        return
    n_rows = look_at_cells(source, schema)
    public = schema.row_count == "public" and schema.neighbors == "replace-one"
    rows = f"{count_noun(n_rows, 'row')}; " if public else ""
    tell(f"{label}: {rows}{READABLE}")


def _told(done: Training, receipts: tuple[Receipt, ...], book: Ledger | None) -> str:
    """Say what was trained, and where it was charged."""
    if done.cached:
        return f"{done.learner.name}: every answer was paid for before; the same model again, free"
    asked = count_noun(len(receipts), "charge")
    where = "drawn without a ledger: nobody counts it" if book is None else f"{asked}, each before its draw"
    return f"{done.learner.name}, {where}"
