"""From a table to a published model, with a statement that anyone can verify, or to a plan of it alone."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from discreet.arguments import checked_arguments
from discreet.errors import ParameterError, SourceError
from discreet.formatting import count_noun
from discreet.learn import METHODS
from discreet.learn.feature_map import FeatureMap
from discreet.ledger import Ledger
from discreet.ledger.audit_log import FILE as LOG
from discreet.ledger.audit_log import TUNED, AuditLog
from discreet.pipeline._output import INTERNAL, PUBLIC, build_folder, check_target_folder, load_signing_key
from discreet.pipeline._stages import (
    READABLE,
    Stages,
    check_every_cell,
    close_ledger,
    describe_tuning,
    log_failure,
    parse_about,
)
from discreet.pipeline.options import Output, RunOptions
from discreet.pipeline.sources import LedgerPlace, describe_source, find_schema, log_path, resolve_source
from discreet.pipeline.table_registry import open_charged_ledger
from discreet.pipeline.training import (
    DEFAULT_MODEL,
    is_on_sums,
    make_learner,
    refuse_empty_table,
    train,
    trainable_models,
)
from discreet.privacy import Receipt
from discreet.query.costs import CostModel
from discreet.query.interface import PrivateTable
from discreet.release.base import check_publishable
from discreet.report.folder.folder import (
    MODEL,
    STATEMENT,
    date_files,
    digest_of,
    read_bytes,
    sign,
    write_model_folder,
)
from discreet.report.folder.model_files import saved_parameters
from discreet.report.statement.build import build_statement
from discreet.report.statement.model import ModelSubject
from discreet.report.statement.model_documents import ModelStatement
from discreet.schema import Schema
from discreet.tables import open_table

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from discreet.learn import Learner
    from discreet.pipeline._stages import StageReport
    from discreet.pipeline.training import Training
    from discreet.privacy import Promise


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel:
    """A model on disk, with everything that is known about it.

    Attributes
    ----------
    folder, public, internal : Path
        Folder of the model and its two parts. Publish only ``public``.
    model : Learner
        Fitted learner. One on noisy sums takes rows as they are; any other takes the coordinates that
        :func:`load_model` makes of them.
    statement : ModelStatement
        Content of ``public/statement.json``: every promise with its proof.
    receipts : tuple of Receipt
        Receipts of the charges, in the order in which they were paid.
    cached : bool
        Whether every answer had been paid for before, so that it is the same model again.

    Privacy
    -------
    Everything but ``internal`` may be published.

    Reference
    ---------
    ``docs/reference/cli.md``.

    Examples
    --------
    >>> from discreet import ApproxDP, publish_model
    >>> privacy = ApproxDP(2, 1e-6, unit="patient")
    >>> done = publish_model("demo:clinic", privacy=privacy, ledger=False, out="model")
    >>> done.public.name, done.cached, len(done.receipts) > 0
    ('public', False, True)
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
    model: str = DEFAULT_MODEL,
    privacy: Promise,
    out: str | os.PathLike[str],
    schema: Schema | str | os.PathLike[str] | None = None,
    target: str | None = None,
    ledger: LedgerPlace = None,
    output: Output = Output(),  # noqa: B008 - frozen
    run: RunOptions = RunOptions(),  # noqa: B008 - frozen
    **parameters: Any,
) -> PublishedModel:
    """Train a model on a table into two folders: one to publish, with a statement, and an internal one.

    Parameters
    ----------
    source : path, URL, frame, "demo:census", Database or RemoteDatabase
        Table as :func:`discreet.tables.open_table` reads it, or a bundled one. A table that answers queries
        trains a learner on noisy sums; its own schema and ledger are used.
    model : str
        Name in :data:`discreet.learn.METHODS` of a learner that makes a promise: "id3", "logistic", ... By
        default the classifier that needs no choices, :class:`discreet.PrivateClassifier`.
    privacy : PureDP, ApproxDP, ZCDP or GaussianDP
        Promise that the model must keep; some learners keep only some kinds, and say so. Unit and neighbors
        are the schema's.
    out : path
        Folder that will hold ``public`` and ``internal``; complete at the end, or not there.
    schema : Schema or path, optional
        Schema that declares the columns. None: the file ``*.schema.yaml`` beside the table.
    target : str, optional
        Column that the model predicts, if it is another than the schema's.
    ledger : Ledger, path, URL, False or None
        Ledger that is charged. None: a file beside the table, named by the schema's ``dataset``. False:
        nothing is counted, and the statement says so.
    output : Output
        Texts about the model, who signs it, and whether what was published at `out` may be replaced. Its
        ``escrow`` must be None: a model is not replayed from a key, so no key of it can be kept.
    run : RunOptions
        Whether parameters were tuned on private rows, the command line, whether another ledger may be
        charged, and what is called as the job goes on. A model is not attacked, and not trained on Spark.
    **parameters
        Parameters of the learner, such as ``max_depth``; checked before a row is read.

    Returns
    -------
    PublishedModel

    Raises
    ------
    SchemaError
        The schema is incomplete or wrong.
    BudgetExceeded
        The ledger's limit would be passed. Nothing was published.
    OtherLedger
        The table was charged to another ledger before. Nothing was charged or published.

    Privacy
    -------
    Everything in ``public`` follows from the schema, the parameters, the ledger and answers that were paid
    for. Nothing is measured on the rows besides: how good the model is on them is said where the learner paid
    for it out of its promise, as the default one does.

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
    ...     result = publish_model(rows, model="id3", schema=schema, ledger=False, out=f"{folder}/model",
    ...                            privacy=ApproxDP(epsilon=1, delta=1e-6))
    ...     load_model(result.public).predict({"age": [20, 70]}).tolist()
    ['no', 'yes']
    """
    folder = Path(out)
    _check_options(output, run)
    check_target_folder(folder, replace=output.replace)
    answering = isinstance(source, PrivateTable)
    declared = _own_schema(source, schema, target) if answering else find_schema(source, schema)
    declared = declared if target is None else declared.with_target(target)
    signing_key = load_signing_key(output.signing)
    texts = parse_about(output.about)
    # Everything that can be refused is refused before a ledger is made.
    if not is_on_sums(make_learner(model, schema=declared, privacy=privacy, **parameters)):
        check_publishable(declared, f"the model {model}")
        if answering:
            raise _not_on_sums(model)
    own = getattr(source, "ledger", None)
    table_ledger = (
        (own if isinstance(own, Ledger) else None)
        if answering
        else open_charged_ledger(source, declared, ledger, new_ledger=run.new_ledger)
    )
    learner = make_learner(model, schema=declared, privacy=privacy, ledger=table_ledger, **parameters)
    log = AuditLog(log_path(table_ledger))
    stages = Stages(log, on_stage=run.on_stage, on_progress=run.on_progress)
    table, label = (source, "the table") if answering else (resolve_source(source), describe_source(source))
    with (
        nullcontext() if answering else close_ledger(table_ledger, ledger),
        log_failure(log),
        build_folder(folder, replace=output.replace) as draft,
    ):
        log.begin(
            what="model",
            table=label,
            dataset=declared.dataset,
            schema=declared.digest,
            method={"name": model, "parameters": {name: repr(value) for name, value in parameters.items()}},
            ledger=None if table_ledger is None else table_ledger.identity,
            command=run.command,
        )
        public, internal = draft / PUBLIC, draft / INTERNAL
        tuned_before = log.mentions(TUNED)
        with stages.stage("check") as report:
            _check_table(table, declared, label, report)
        with stages.stage("learn") as report:
            training = train(learner, table, declared, table_ledger, label, _plan_stage(stages))
            receipts = tuple(Receipt.from_dict(p.receipt) for p in training.passes if p.receipt is not None)
            report(_describe_training(training, receipts, table_ledger))
        log.write("charged", receipts=[receipt.to_dict() for receipt in receipts], cached=training.cached)
        with stages.stage("write") as report:
            learner.save(public / MODEL)
            statement = build_statement(
                ModelSubject(
                    learner=learner,
                    schema=declared,
                    promises=learner.promises_,
                    passes=training.passes,
                    n_rows=training.n_rows,
                    parameters=saved_parameters(public / MODEL),
                ),
                about=texts,
                ledger=table_ledger,
                tuning=describe_tuning(run.tuned, tuned_before, receipts[0], table_ledger),
                files={MODEL: digest_of(public / MODEL)},
                created=receipts[-1].when,
                service=getattr(source, "composition", None) if answering else None,
            )
            write_model_folder(public, statement, learner)
            if signing_key is not None:
                sign(public, signing_key)
            date_files(public, statement.what.created)
            report(f"{folder / PUBLIC}, {folder / INTERNAL}")
        log.write("published", release=statement.what.release, files=statement.files)
        log.copy(internal / LOG)
    return PublishedModel(
        folder=folder,
        public=folder / PUBLIC,
        internal=folder / INTERNAL,
        model=learner,
        statement=statement,
        receipts=receipts,
        cached=training.cached,
    )


@checked_arguments
def load_model(path: str | os.PathLike[str]) -> Any:
    """Read a published model into an estimator that takes rows as they are.

    Parameters
    ----------
    path : path
        A ``public`` folder, or the folder that holds one. Nothing in it is executed, and nothing is
        verified: :func:`discreet.verify` does that.

    Returns
    -------
    estimator
        Estimator in the sense of scikit-learn: takes a frame, or a mapping of names to arrays, with the
        columns that the model reads. A learner that takes only matrices comes in a pipeline that makes them.

    Privacy
    -------
    The model has been paid for: using it costs nothing more.

    Reference
    ---------
    ``docs/reference/statement.md``.

    Examples
    --------
    >>> import tempfile
    >>> from discreet import ApproxDP, Column, publish_model
    >>> schema = Schema(columns=[Column("age", type="integer", lower=0, upper=99),
    ...                          Column("owner", values=("no", "yes"), closed=True)], target="owner")
    >>> rows = {"age": [20, 70] * 2000, "owner": ["no", "yes"] * 2000}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = publish_model(rows, schema=schema, ledger=False, out=f"{folder}/model",
    ...                          privacy=ApproxDP(1, 1e-6))
    ...     load_model(done.public).predict({"age": [20, 70]}).tolist()
    ['no', 'yes']
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
    feature_map = FeatureMap.from_schema(Schema.from_dict(statement.declared))
    if not is_on_sums(kind):
        return Pipeline([("coordinates", FunctionTransformer(feature_map.rows)), ("model", learner)])
    if not feature_map.plain:
        return learner
    # With numbers alone the learner takes a matrix, which has no names to compare.
    del learner.feature_names_in_
    matrix = FunctionTransformer(_matrix, kw_args={"names": feature_map.names})
    return Pipeline([("matrix", matrix), ("model", learner)])


def _matrix(rows: Any, names: tuple[str, ...]) -> Any:
    """Return named columns side by side as a matrix; a matrix stays as it is."""
    if isinstance(rows, np.ndarray):
        return rows
    return np.column_stack([np.asarray(rows[name], np.float64) for name in names])


def _own_schema(table: PrivateTable, schema: Any, target: str | None) -> Schema:
    """Return the schema of a table that answers queries; refuse another one, or another target."""
    if schema is not None or target not in (None, table.schema.target):
        word, said = ("schema", "another") if schema is not None else ("target", repr(target))
        raise ParameterError(
            f"{word} must be that of the table that answers queries or left out, was {said}. Leave it out."
        )
    return table.schema


def _not_on_sums(model: str) -> ParameterError:
    others = ", ".join(name for name, kind in trainable_models().items() if is_on_sums(kind))
    return ParameterError(
        f"model must be one that needs no rows for a table that answers queries, was {model!r}. Take one of "
        f"{others}."
    )


def _plan_stage(stages: Stages) -> Callable[[str], None]:
    """Return a function that reports, as a stage of its own, what to expect of a model."""

    def report_plan(text: str) -> None:
        with stages.stage("plan") as report:
            report(text)

    return report_plan


def _check_table(source: Any, schema: Schema, label: str, report: StageReport) -> None:
    """Read every declared cell once, so that a bad one is named before anything is charged."""
    if isinstance(source, PrivateTable):
        report(f"{label} answers queries, and was checked where its rows are")
        return
    if type(source).__module__.startswith("pyspark.") or str(source).startswith("spark://"):
        report(f"{label}: its engine checks it")
        return
    n_rows = check_every_cell(source, schema)
    public = schema.row_count == "public" and schema.neighbors == "replace-one"
    rows = f"{count_noun(n_rows, 'row')}; " if public else ""
    report(f"{label}: {rows}{READABLE}")


def _describe_training(training: Training, receipts: tuple[Receipt, ...], ledger: Ledger | None) -> str:
    """Return which model was trained and where it was charged, in words."""
    name = training.learner.name
    if training.cached:
        return f"{name}: every answer was paid for before; the same model again, free"
    charges = count_noun(len(receipts), "charge")
    where = "drawn without charging a ledger" if ledger is None else f"{charges}, each before its draw"
    return f"{name}, {where}"


def _check_options(output: Output, run: RunOptions) -> None:
    """Refuse options that a release has and a model has not."""
    if run.spark is not None:
        raise ParameterError(
            "spark must be None for a model: it is trained in one process, or by a table that answers in "
            "Spark. Give a Database on Spark as the table, or leave spark out."
        )
    if output.escrow is not None:
        raise ParameterError(
            "escrow must be None for a model: it is not replayed from a key, so there is none to keep. Leave "
            "it out."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlan:
    """What a training would ask, and what is to be expected of the model.

    Attributes
    ----------
    model : str
        Name of the model.
    promise : Promise
        Promise of the whole model: what it would cost.
    n_rows : int or None
        Number of rows; None where it is private.
    shares : mapping of str to float
        Share of the promise that each query gets; empty for a model that does not plan its queries.
    expectation : str or None
        What to expect, in words; None for a model that says nothing beforehand.
    """

    model: str
    promise: Promise
    n_rows: int | None
    shares: Mapping[str, float]
    expectation: str | None


def plan_model(
    source: Any,
    *,
    model: str = DEFAULT_MODEL,
    privacy: Promise,
    schema: Schema | str | os.PathLike[str] | None = None,
    target: str | None = None,
    **parameters: Any,
) -> ModelPlan:
    """Return what :func:`discreet.publish_model` would ask of a table; charge, draw and write nothing.

    Parameters
    ----------
    source, model, privacy, schema, target, **parameters
        As for :func:`discreet.publish_model`.

    Returns
    -------
    ModelPlan

    Privacy
    -------
    Reads no cell: only the names and types of the columns, and the number of rows where it is public.
    """
    from discreet.pipeline._plan_stages import public_length  # loads attacks, which training needs not

    answering = isinstance(source, PrivateTable)
    declared = source.schema if answering else find_schema(source, schema)
    declared = declared if target is None else declared.with_target(target)
    learner: Any = make_learner(model, schema=declared, privacy=privacy, **parameters)
    if not is_on_sums(learner):
        check_publishable(declared, f"the model {model}")
    opened = nullcontext(None) if answering else open_table(resolve_source(source), schema=declared)
    with opened as table:
        if table is None:
            costs, n_rows = source, source.n_rows
        else:
            # Compares names and types with the declaration; going through the batches would read cells.
            table.batches(declared, ids=declared.id_column is not None)
            n_rows = public_length(declared, table.count())
            costs = CostModel(declared, n_rows)
    if n_rows == 0:
        raise refuse_empty_table(describe_source(source))
    expectation, shares = learner.plan_fit(costs) if hasattr(learner, "plan_fit") else (None, {})
    return ModelPlan(
        model=model, promise=learner.privacy, n_rows=n_rows, shares=shares, expectation=expectation
    )
