"""Models that can be trained on a table, their parameters, and the training itself."""

from __future__ import annotations

import dataclasses
import inspect
import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.arguments import nearest
from discreet.errors import DataError, ParameterError, PromiseError, SchemaError
from discreet.learn import METHODS, PrivateClassifier
from discreet.learn.feature_map import FeatureMap
from discreet.noise import Stream
from discreet.privacy import NoPromise, Promise
from discreet.query import Database
from discreet.query.interface import PrivateTable
from discreet.query.unit_rows import LABEL, ledger_salt, limited_batches
from discreet.report.statement.model import predicts_target
from discreet.report.statement.model_documents import Pass
from discreet.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from discreet._types import AnyArray, Floats
    from discreet.learn import Learner
    from discreet.ledger import Ledger
    from discreet.privacy import Receipt
    from discreet.query import Aggregate, Answer
    from discreet.schema import Schema

# These follow from the schema or from the request, or must not be chosen at all.
_FIXED = ("self", "privacy", "schema", "bounds", "classes", "target_bounds", "ledger", "random_state")

DEFAULT_MODEL = PrivateClassifier.name
"""Model that is trained where none is named."""


def trainable_models() -> dict[str, type[Learner]]:
    """Return the registered learners that make a promise, by name, the default one first."""
    return {
        name: kind
        for name, kind in sorted(METHODS.items(), key=lambda item: (item[0] != DEFAULT_MODEL, item[0]))
        if "privacy" in inspect.signature(kind.__init__).parameters
    }


def model_options(name: str) -> tuple[str, ...]:
    """Return the parameters of a model other than its promise and what the schema declares."""
    parameters = inspect.signature(_model_class(name).__init__).parameters
    return tuple(option for option in parameters if option not in _FIXED)


def model_summary(name: str) -> str:
    """Return the first line of the docstring of a model."""
    return (inspect.getdoc(_model_class(name)) or "").partition("\n")[0]


def is_on_sums(kind: type[Learner] | Learner) -> bool:
    """Return whether a learner takes only noisy sums, and sees no row."""
    return hasattr(kind, "fit_database")


def make_learner(
    name: str, *, schema: Schema, privacy: Promise | None, ledger: Ledger | None = None, **parameters: Any
) -> Learner:
    """Return a learner for a declared table, after every check that needs no row.

    Parameters
    ----------
    name : str
        Name of the model in :func:`trainable_models`.
    schema : Schema
        Schema that declares the columns of the table.
    privacy : Promise
        Promise that the model must keep; unit and neighbors are the schema's.
    ledger : Ledger, optional
        Ledger that the training is charged to; None: nothing is counted.
    **parameters
        Parameters of the learner, among those of :func:`model_options`.

    Returns
    -------
    Learner
        Learner that is not fitted yet.
    """
    kind: Any = _model_class(name)
    check_parameter_names(name, parameters)
    if privacy is None or isinstance(privacy, NoPromise):
        raise PromiseError(
            f"privacy of the model {name} must be a promise, and was "
            f"{'not given' if privacy is None else 'none'}: it has no default. Give --epsilon 1 "
            "--delta 1e-6, or --mu, or --rho."
        )
    given = dict(parameters)
    if not is_on_sums(kind):
        given |= _declared_parameters(kind, schema, given)
        given["ledger"] = ledger
    about: dict[str, Any] = {"unit": schema.unit, "neighbors": schema.neighbors}
    learner: Learner = kind(privacy=dataclasses.replace(privacy, **about), **given)
    learner._check_parameters()
    for option in parameters:
        # The model file must be able to hold it, which is checked here and not after the charge.
        learner._pack(option, getattr(learner, option), {})
    if predicts_target(learner) and schema.target is None:
        raise ParameterError(
            f"target of the model {name} must be a column, and none is declared. Name one (--target COLUMN "
            "on the command line)."
        )
    if name == DEFAULT_MODEL and schema.column(str(schema.target)).is_number:
        raise ParameterError(
            f"target of the model {name} must be a list of values, and {schema.target!r} is a number. Name "
            "another column, or predict the number with --model ridge on the command line."
        )
    if not is_on_sums(kind):
        _classes(name, schema)
        _check_one_row(name, schema)
    return learner


def with_target(schema: Schema, target: str | None) -> Schema:
    """Return the schema with another target column; None keeps its own."""
    if target is None or target == schema.target:
        return schema
    if target not in {column.name for column in schema.columns}:
        raise ParameterError(
            f"target of a model must be one of the declared columns, was {target!r}. Its schema lists them."
        )
    return schema.with_target(target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Result of a training.

    Attributes
    ----------
    learner : Learner
        Fitted learner, ready to be saved.
    passes : tuple of Pass
        Queries on the rows, each with its receipt.
    n_rows : int or None
        Number of rows; None if it is not public.
    cached : bool
        Whether every answer had been paid for before.
    """

    learner: Learner
    passes: tuple[Pass, ...]
    n_rows: int | None
    cached: bool = False


def train(
    learner: Learner,
    table: Any,
    schema: Schema,
    ledger: Ledger | None,
    label: str,
    on_plan: Callable[[str], None] | None = None,
) -> Training:
    """Train a learner on a table; everything is charged before it is drawn.

    Parameters
    ----------
    learner : Learner
        Learner as :func:`make_learner` returns it; it is fitted in place.
    table : Any
        Table as :func:`~discreet.tables.open_table` reads it; for a learner on noisy sums also a database or
        a service, which then charges its own ledger.
    schema : Schema
        Schema that declares the columns of the table.
    ledger : Ledger or None
        Ledger that is charged; None: nothing is counted.
    label : str
        Name of the table for error messages.
    on_plan : callable, optional
        Called before the first charge with what to expect of the model, where its learner can say so.

    Privacy
    -------
    A learner on noisy sums sees only paid answers. Any other sees the rows, in this process, and adds noise
    to its result.
    """
    return (
        _train_on_sums(learner, table, schema, ledger, label, on_plan)
        if is_on_sums(learner)
        else _train_on_rows(learner, table, schema, label)
    )


class _Recording:
    """Database that records the aggregates it answers, in their order."""

    def __init__(self, db: PrivateTable) -> None:
        self._db = db
        self.aggregates: list[dict[str, Any]] = []

    def ask(self, aggregate: Aggregate, **options: Any) -> Answer:
        answer = self._db.ask(aggregate, **options)
        self.aggregates.append(aggregate.to_dict())
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


def _train_on_sums(
    learner: Any,
    table: Any,
    schema: Schema,
    ledger: Ledger | None,
    label: str,
    on_plan: Callable[[str], None] | None,
) -> Training:
    """Fit a learner that takes noisy sums, and match its answers with their receipts."""
    answering = isinstance(table, PrivateTable)
    opened = nullcontext(table) if answering else Database(table, schema=schema, ledger=ledger)
    with opened as db:
        n_rows = db.n_rows
        if n_rows == 0:
            raise refuse_empty_table(label)
        if on_plan is not None and hasattr(learner, "plan_fit"):
            on_plan(learner.plan_fit(db)[0])
        recording = _Recording(db)
        learner.fit_database(recording)
    answers: dict[str, Answer] = learner.answers_
    if ledger is None and not answering:
        learner.receipts_ = tuple(map(_without_ledger, learner.receipts_))
    queries = dict(zip(answers, zip(recording.aggregates, learner.receipts_, strict=True), strict=True))
    passes = []
    for name, share in learner.split_.items():
        aggregate, receipt = queries.get(name, (None, None))
        charge = None if receipt is None else receipt.to_dict()
        passes.append(Pass(name=name, share=share, question=aggregate, receipt=charge))
    return Training(
        learner=learner,
        passes=tuple(passes),
        n_rows=n_rows,
        cached=bool(answers) and all(answer.cached for answer in answers.values()),
    )


def _train_on_rows(learner: Any, table: Any, schema: Schema, label: str) -> Training:
    """Fit a learner that takes coordinates of rows, in memory."""
    salt = Stream().salt(LABEL) if learner.ledger is None else ledger_salt(learner.ledger, schema)
    X, y = _read_rows(table, schema, FeatureMap.from_schema(schema), salt)
    if not len(X):
        raise refuse_empty_table(label)
    counted = learner.ledger is not None
    learner.fit(X, _classes(learner.name, schema)[y])
    learner.ledger = None  # already charged; a model file holds no ledger
    # A learner may pay for something else first, such as where to start.
    if hasattr(learner, "receipts_"):
        if not counted:
            learner.receipts_ = tuple(map(_without_ledger, learner.receipts_))
        receipts = learner.receipts_
    else:
        receipts = (learner.receipt_,)
    names = [f"before training, {i}" for i in range(1, len(receipts))] + ["training"]
    passes = tuple(
        Pass(name=name, share=None, receipt=receipt.to_dict())
        for name, receipt in zip(names, receipts, strict=True)
    )
    return Training(learner=learner, passes=passes, n_rows=len(X))


def _without_ledger(receipt: Receipt) -> Receipt:
    """Return a receipt without its ledger, which was in memory and cannot be looked up."""
    return dataclasses.replace(receipt, ledger=None, seq=None, hash=None, question=None)


def _read_rows(source: Any, schema: Schema, feature_map: FeatureMap, salt: str) -> tuple[Floats, AnyArray]:
    """Return rows as coordinates, and the position of each label in its column's list."""
    assert schema.target is not None
    rows, labels = [], []
    with open_table(source, schema=schema) as table:
        for batch, kept in limited_batches(table, schema, salt):
            here = slice(None) if kept is None else kept
            rows.append(feature_map.coordinates_of(batch)[here])
            labels.append(np.asarray(batch[schema.target])[here])
    if not rows:
        return np.empty((0, feature_map.size)), np.empty(0, np.int64)
    return np.concatenate(rows), np.concatenate(labels)


def _declared_parameters(kind: type[Learner], schema: Schema, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that follow from the schema: coordinates are from 0 to 1, levels 0 or 1."""
    accepted = inspect.signature(kind.__init__).parameters
    feature_map = FeatureMap.from_schema(schema)
    lists = [schema.column(name).is_category for name, _ in feature_map.coordinates]
    # Bounds of -1 and 1 leave a 0 and a 1 as they are, so that absent levels add nothing to a row's length.
    values: dict[str, Any] = {
        "bounds": ([-1.0 if is_list else 0.0 for is_list in lists], [1.0] * len(lists)),
        "norm_bound": math.sqrt(len(feature_map.names)),
        "classes": None if schema.target is None else list(schema.column(schema.target).levels),
    }
    return {name: value for name, value in values.items() if name in accepted and name not in given}


def _classes(name: str, schema: Schema) -> AnyArray:
    """Return the classes in the order of the target's list."""
    assert schema.target is not None
    column = schema.column(schema.target)
    kinds = {type(level) for level in column.levels} if column.is_category else set()
    if len(kinds) != 1 or None in column.levels or len(column.levels) < 2:
        raise ParameterError(
            f"target of the model {name} must be a list of at least two values of one kind, never missing, "
            f"and {schema.target!r} is not. Give another --target."
        )
    return np.array(column.levels)


def _check_one_row(name: str, schema: Schema) -> None:
    """Refuse several rows per unit for a model whose noise covers one row."""
    if (schema.max_rows_per_unit or 1) > 1:
        others = ", ".join(other for other, kind in trainable_models().items() if is_on_sums(kind))
        raise SchemaError(
            f"schema of the model {name} must say max_rows_per_unit: 1, said {schema.max_rows_per_unit}: its "
            f"noise covers one row. Take one of {others}, which cover several."
        )


def check_parameter_names(name: str, parameters: Iterable[str]) -> None:
    """Refuse a parameter that the model does not have."""
    known = model_options(name)
    for option in parameters:
        if option == "paid_score" and option not in known:
            raise ParameterError(
                f"The model {name} names no classes, so it has no accuracy that could be paid for. Leave "
                "paid_score (`--score`) out."
            )
        if option not in known:
            close = nearest(option, known)
            hint = f"Did you mean {close!r}?" if close else f"Its parameters: {', '.join(known) or 'none'}."
            raise ParameterError(f"The model {name} has no parameter {option!r}. {hint}")


def _model_class(name: str) -> type[Learner]:
    """Return the class of a trainable model; refuse a name of another kind."""
    known = trainable_models()
    if name in known:
        return known[name]
    close = nearest(name, known)
    hint = f"Did you mean {close!r}?" if close else "`discreet learn --list` says what each is."
    if name in METHODS:
        hint = f"{METHODS[name].__name__} promises nothing to the people in the rows. {hint}"
    raise ParameterError(f"model must be one of {', '.join(known)}, was {name!r}. {hint}")


def refuse_empty_table(label: str) -> DataError:
    """Return the error for a table without rows."""
    return DataError(f"{label} must have at least one row, and has none.")
