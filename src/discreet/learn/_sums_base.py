"""Base classes of learners that use noisy sums only, from rows in memory, a database or a service.

A learner splits its promise over passes (:mod:`discreet.learn.budget_schedule`), queries noisy sums, and
computes the model from the answers. :class:`SumsEstimator` makes rows a :class:`~discreet.query.Database` and
labels a declared category, and keeps answers and receipts with the model.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from discreet.errors import ParameterError
from discreet.learn.arguments import Constraint, check_finite, declared_classes, label_codes
from discreet.learn.base import Learner
from discreet.learn.budget_schedule import BudgetSchedule, NoiselessSums
from discreet.learn.feature_map import FeatureMap, schema_of_bounds
from discreet.learn.paid_score import (
    PAID_SCORE,
    SCORE_SHARE,
    VOTE_SHARE,
    ModelScore,
    ScoreCounts,
    is_worth_asking,
)
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, NoPromise, PureDP, Receipt, promise_from_dict
from discreet.query import Database, Histogram, PredictionCounts
from discreet.query.unit_rows import check_matrix_allowed
from discreet.schema import Column, Schema
from discreet.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from discreet._types import AnyArray, Floats
    from discreet.ledger import Ledger
    from discreet.privacy.budget_split import Privacy
    from discreet.query import Aggregate, Answer, NoisySums
    from discreet.schema.column import Level

WHOLE = Constraint(
    "None or a whole number",
    lambda v: v is None or (isinstance(v, int | np.integer) and not isinstance(v, bool)),
    (1.5, "1", True),
)
FLAG = Constraint("True or False", lambda v: isinstance(v, bool), (None, 1, "yes"))
PRIVACY = Constraint(
    "a PureDP, ApproxDP, ZCDP, GaussianDP or NoPromise",
    lambda v: isinstance(v, PureDP | ApproxDP | ZCDP | GaussianDP | NoPromise),
    (None, 1.0, "pure"),
)
SCHEMA = Constraint("None or a Schema", lambda v: v is None or isinstance(v, Schema), ("table.yaml", 1))


class SumsEstimator(Learner):
    """Base of estimators that are fitted to noisy sums; subclasses query them in :meth:`_learn`.

    Subclasses have at least the parameters ``privacy``, ``bounds``, ``schema``, ``ledger`` and
    ``random_state``, include :attr:`common_constraints` in ``_constraints`` and :attr:`common_saved` in
    ``_saved_attributes``, and define :meth:`_learn`.
    """

    privacy: Privacy
    bounds: Any
    schema: Schema | None
    ledger: Ledger | None
    random_state: int | None
    layout_: FeatureMap
    answers_: dict[str, Answer]
    promises_: tuple[Any, ...]
    receipts_: tuple[Receipt, ...]
    split_: dict[str, float]

    common_constraints: ClassVar[Mapping[str, Constraint]] = {
        "privacy": PRIVACY,
        "schema": SCHEMA,
        "random_state": WHOLE,
    }
    common_saved: ClassVar[tuple[str, ...]] = ("layout_", "promises_", "receipts_", "split_")
    _decoders: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "privacy": promise_from_dict,
        "bounds": lambda sides: None if sides is None else tuple(sides),
        "schema": lambda content: None if content is None else Schema.from_dict(content),
        "layout_": FeatureMap.from_dict,
        "promises_": lambda promises: tuple(map(promise_from_dict, promises)),
        "receipts_": lambda receipts: tuple(map(Receipt.from_dict, receipts)),
        "split_": dict,
    }

    @abstractmethod
    def _learn(
        self, sums: NoisySums, layout: FeatureMap, target: str | None, owner: str | None
    ) -> BudgetSchedule:
        """Query the sums, set the fitted attributes, and return the schedule with its answers."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the model to rows in memory.

        Parameters
        ----------
        X : matrix or frame
            A matrix of numbers in the order of ``bounds`` or of the schema's features; a frame, where the
            schema has categories, dates or numbers that may be missing; a missing number is then the middle
            of its range, which is imputation.
        y : array, optional
            Labels, where the learner needs them.
        """
        self._check_parameters()
        rows, schema, labels = self._declare_rows(X, y)
        # Both answer the same queries, so that every learner is written once.
        make = NoiselessSums if isinstance(self.privacy, NoPromise) else Database
        seed = None if self.random_state is None else int(self.random_state)
        layout = FeatureMap.from_schema(schema)
        table = layout.name_columns(rows)
        target = None
        if labels is not None:
            target, cells = labels
            table = _add_labels(table, target, cells, schema)
        with make(table, schema=schema, ledger=self.ledger, random_state=seed) as sums:
            return self._fit_sums(sums, layout, target, None)

    def fit_database(
        self, db: NoisySums, *, columns: Sequence[str] | None = None, owner: str | None = None
    ) -> Self:
        """Fit the model to a table that answers noisy sums and shows no rows.

        Parameters
        ----------
        db : Database or other NoisySums
            Table whose schema has the bounds and whose ledger is charged.
        columns : sequence of str, optional
            Names of the columns to read; by default all released ones but the target.
        owner : str, optional
            Name that is charged beside the total of the ledger; None charges the total alone.
        """
        self._check_parameters()
        layout = FeatureMap.from_schema(db.schema, columns)
        self._check_database(db, layout)
        target = self._database_target(db.schema)
        if target in layout.names:
            raise ParameterError(
                f"columns of {type(self).__name__}.fit_database must not hold the target {target!r}, and do. "
                "Leave it out."
            )
        self.n_features_in_ = len(layout.names)
        self.feature_names_in_ = np.array(layout.names, dtype=object)
        return self._fit_sums(db, layout, target, owner)

    def _fit_sums(self, sums: NoisySums, layout: FeatureMap, target: str | None, owner: str | None) -> Self:
        """Fit the model by :meth:`_learn`, and set what all learners on sums keep."""
        with one_thread():
            schedule = self._learn(sums, layout, target, owner)
        self.layout_ = layout
        self.answers_ = schedule.answers
        self.promises_ = schedule.promises
        self.receipts_ = tuple(answer.receipt for answer in schedule.answers.values())
        self.split_ = schedule.split
        return self

    def _check_new_rows(self, X: Any, where: str) -> Any:
        """Return rows to be judged by a fitted model, checked; ``where`` names the method in messages."""
        check_is_fitted(self)
        if self.layout_.plain:
            X = validate_data(self, X, dtype=np.float64, ensure_all_finite=False, reset=False)
            check_finite(X, f"X of {type(self).__name__}.{where}", getattr(self, "feature_names_in_", None))
        return X

    def _coordinates(self, X: Any, where: str) -> Floats:
        """Return rows to be judged by a fitted model as coordinates from 0 to 1."""
        rows = self._check_new_rows(X, where)
        return self.layout_.rows(rows)

    # Declaration of rows in memory.

    def _declare_rows(self, X: Any, y: Any) -> tuple[Any, Schema, tuple[str, AnyArray] | None]:
        """Return checked rows, the schema of rows and labels, and the labels with their column's name.

        Raises
        ------
        ParameterError
            If bounds and schema are both given, or neither while something is promised.
        """
        schema = self.schema
        if schema is not None and self.bounds is not None:
            raise ParameterError(
                f"bounds and schema of {type(self).__name__} must be given one at a time, were both. The "
                "schema has the bounds."
            )
        if schema is not None and schema.id_column is not None and not _has_names(X):
            check_matrix_allowed(schema, f"X of {type(self).__name__}.fit")
        if schema is not None and (schema.id_column is not None or not FeatureMap.from_schema(schema).plain):
            names = [column.name for column in schema.features]
            self.n_features_in_, self.feature_names_in_ = len(names), np.array(names, dtype=object)
        else:
            X, y = self._validate_rows(X, y)
        if schema is None:
            schema = self._schema_from_bounds(X)
        columns = [*schema.features, *(c for c in schema.columns if c.name == schema.id_column)]
        label = self._local_target(schema, y)
        if label is not None:
            columns.append(label[0])
        # Only what is read is declared: X need not hold the other columns of the schema.
        declared = dataclasses.replace(
            schema, columns=columns, target=None if label is None else label[0].name, primary_key=()
        )
        return X, declared, None if label is None else (label[0].name, label[1])

    def _validate_rows(self, X: Any, y: Any) -> tuple[Floats, Any]:
        """Return a matrix of finite numbers and its labels, as scikit-learn validates them."""
        owner = type(self).__name__
        if self.__sklearn_tags__().target_tags.required:
            labels = np.asarray(y)
            # Before validate_data, which refuses NaN in y with scikit-learn's own error.
            if labels.dtype.kind == "f" and labels.ndim == 1:
                check_finite(labels, f"y of {owner}.fit")
            X, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=False)
        else:
            X = validate_data(self, X, dtype=np.float64, ensure_all_finite=False)
        check_finite(X, f"X of {owner}.fit", getattr(self, "feature_names_in_", None))
        return X, y

    def _schema_from_bounds(self, X: Floats) -> Schema:
        """Return the schema of a matrix: by declared bounds, or by its own range if nothing is promised."""
        bounds = self.bounds
        if bounds is None:
            if not isinstance(self.privacy, NoPromise):
                raise ParameterError(
                    f"bounds or schema of {type(self).__name__} must be given, were None: what the rows span "
                    "is not for free. Declare the range of each column, bounds=(lower, upper)."
                )
            # Without a promise the range of the rows may be used; a constant column needs a width above 0.
            low, high = X.min(axis=0), X.max(axis=0)
            bounds = low, np.where(high > low, high, low + np.maximum(1.0, np.abs(low)))
        known = getattr(self, "feature_names_in_", None)
        names = [f"x{i}" for i in range(X.shape[1])] if known is None else [str(name) for name in known]
        return schema_of_bounds(
            bounds,
            names,
            owner=type(self).__name__,
            unit=self.privacy.unit,
            neighbors=self.privacy.neighbors,
        )

    def _local_target(self, schema: Schema, y: Any) -> tuple[Column, AnyArray] | None:
        """Return the declared column of the labels and their cells; None for learners without labels."""
        return None

    def _database_target(self, schema: Schema) -> str | None:
        """Return the column of a database that holds the labels; None for learners without labels."""
        return None

    def _check_database(self, db: NoisySums, layout: FeatureMap) -> None:
        """Refuse a schema, bounds or ledger that differ from those of the database."""
        owner = type(self).__name__
        if self.schema is not None and self.schema.digest != db.schema.digest:
            raise ParameterError(
                f"schema of {owner} must be that of the database or left out, was another. The database goes "
                "by its own."
            )
        if self.bounds is not None:
            numbers = [column for column in layout.schema.columns if column.is_number]
            names = [column.name for column in numbers]
            declared = schema_of_bounds(self.bounds, names, owner=owner, unit="row", neighbors="replace-one")
            if [c.range for c in declared.columns] != [c.range for c in numbers]:
                raise ParameterError(
                    f"bounds of {owner} must be those of the database or left out, were others. The database "
                    "goes by its own."
                )
        if self.ledger is not None and self.ledger is not getattr(db, "ledger", None):
            raise ParameterError(
                f"ledger of {owner} must be that of the database or left out, was another. The database "
                "charges its own."
            )

    def _pack(self, name: str, value: Any, arrays: dict[str, Any]) -> Any:
        if name == "ledger":
            return None  # A saved model is paid for: the ledger stays where it is.
        if name in ("promises_", "receipts_"):
            return [item.to_dict() for item in value]
        if name == "split_":
            return dict(value)
        if name in ("bounds", "classes") and isinstance(value, list | tuple):
            return [np.asarray(part).tolist() for part in value]
        return super()._pack(name, value, arrays)


class SumsClassifier(ClassifierMixin, SumsEstimator):
    """Base of classifiers that are fitted to noisy sums; adds the parameters ``classes`` and ``paid_score``.

    Inside :meth:`_learn` and afterwards, ``classes_`` has the classes in sorted order and :attr:`_levels` the
    levels of the target's column, in the same order. :meth:`_learn` makes its schedule by
    :meth:`_make_schedule`, which adds the passes of the paid score.
    """

    classes: Any
    paid_score: bool | str
    classes_: AnyArray
    score_: ModelScore | None
    _levels: tuple[Level, ...]

    common_constraints: ClassVar[Mapping[str, Constraint]] = {
        **SumsEstimator.common_constraints,
        "paid_score": PAID_SCORE,
    }
    common_saved: ClassVar[tuple[str, ...]] = (*SumsEstimator.common_saved, "classes_", "score_")
    _decoders: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        **SumsEstimator._decoders,
        "score_": lambda score: None if score is None else ModelScore.from_dict(score),
    }

    @property
    def _by_table(self) -> bool:
        """Whether the score is asked as a table of classes."""
        return self.paid_score == "table"

    @abstractmethod
    def _count_query(self, target: str, *, by_class: bool = False) -> Aggregate:
        """Return the query for the rows that the model as it is gets right."""

    @property
    @abstractmethod
    def _n_parameters(self) -> int:
        """Number of independent parameters of the fitted model, which the interval of its score needs."""

    def _fit_sums(self, sums: NoisySums, layout: FeatureMap, target: str | None, owner: str | None) -> Self:
        self.score_ = None  # of an earlier fit, which this one may not repeat
        self.layout_ = layout
        return super()._fit_sums(sums, layout, target, owner)

    def _make_schedule(
        self, sums: NoisySums, shares: Mapping[str, float], target: str, owner: str | None
    ) -> BudgetSchedule:
        """Return the schedule of the passes of a model and of its paid score, where that says something."""
        plain = BudgetSchedule(sums, self.privacy, shares, owner=owner)
        if self.paid_score is False:
            return plain
        model = 1 - SCORE_SHARE - VOTE_SHARE
        split = {name: model * share for name, share in plain.split.items()}
        scored = BudgetSchedule(
            sums, self.privacy, split | {"classes": VOTE_SHARE, "score": SCORE_SHARE}, owner=owner
        )
        # Where the number of rows is private, the class counts decide later.
        return scored if sums.n_rows is None or self._is_scored(scored, target, sums.n_rows) else plain

    def _is_scored(self, schedule: BudgetSchedule, target: str, n_rows: float) -> bool:
        """Return whether the score of so many rows says enough, by its share and by public facts."""
        classes = len(self._levels)
        # Noise does not depend on the model, so any stands for the one that is not fitted yet.
        question = PredictionCounts(target, self._levels, (0.0,) * classes, by_class=self._by_table)
        sd = float(np.max(schedule.expected_sd("score", question)))
        law = "laplace" if isinstance(self.privacy, PureDP) else "gaussian"
        return is_worth_asking(sd * (math.sqrt(classes) if self._by_table else 1.0), n_rows, law)

    def _pay_score(self, schedule: BudgetSchedule, target: str) -> None:
        """Ask for the class counts and the score, where :meth:`_make_schedule` has planned them."""
        if "score" not in schedule.split:
            return
        answer = schedule.ask("classes", Histogram((target,)))
        # Noise may take the sum of few rows to 0 or below.
        total = max(float(np.sum(answer.value)), 1.0)
        # Too few rows are known only now where their number is private; what is left out is not charged.
        if schedule.sums.n_rows is not None or self._is_scored(schedule, target, total):
            self._ask_score(schedule, target, ScoreCounts(answer.value, answer.sd, answer.law))

    def _ask_score(self, schedule: BudgetSchedule, target: str, classes: ScoreCounts) -> None:
        """Ask how many rows the finished model gets right, and set the score."""
        answer = schedule.ask("score", self._count_query(target, by_class=self._by_table))
        right = ScoreCounts(answer.value, answer.sd, answer.law)
        self.score_ = ModelScore.from_counts(right, classes, schedule.sums.n_rows, self._n_parameters)

    def _local_target(self, schema: Schema, y: Any) -> tuple[Column, AnyArray] | None:
        """Return the column of the classes and the labels as its levels; set the classes."""
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if schema.target is not None:
            self._take_levels(schema)
            return schema.column(schema.target), y
        owner, promises = type(self).__name__, not isinstance(self.privacy, NoPromise)
        self.classes_ = declared_classes(self.classes, y, owner=owner, promises=promises)
        # Classes may be of a type that no column has, so the column holds their positions.
        self._levels = tuple(range(len(self.classes_)))
        name = "y"
        # A feature may be called y as well.
        while name in schema:
            name += "_"
        return Column(name, values=self._levels, role="target"), label_codes(y, self.classes_, owner=owner)

    def _database_target(self, schema: Schema) -> str | None:
        self._take_levels(schema)
        return schema.target

    def _take_levels(self, schema: Schema) -> None:
        """Set the classes to the levels of a schema's target."""
        owner = type(self).__name__
        column = None if schema.target is None else schema.column(schema.target)
        if column is None or not column.is_category or None in column.levels:
            raise ParameterError(
                f"schema of {owner} must have a target that is a category and never missing, and has not. "
                "Use schema.with_target(name)."
            )
        kinds = {type(level) for level in column.levels}
        if len(kinds) != 1 or len(column.levels) < 2:
            raise ParameterError(
                f"target of the schema of {owner} must have at least two levels of one kind, and has not. "
                "List every label once."
            )
        # Levels of one kind can be compared, which their declared type does not show.
        self._levels = tuple(sorted(column.levels, key=lambda level: level))  # type: ignore[arg-type,return-value]
        self.classes_ = np.array(self._levels)
        if self.classes is not None and not np.array_equal(np.unique(self.classes), self.classes_):
            raise ParameterError(
                f"classes of {owner} must be the levels of the target or left out, were others. The "
                "schema has them."
            )


def _has_names(X: Any) -> bool:
    return isinstance(X, Mapping) or hasattr(X, "columns")


def _add_labels(rows: Any, target: str, cells: AnyArray, schema: Schema) -> Any:
    """Return rows with names, with the labels as one more column."""
    if isinstance(rows, Mapping):
        return {**rows, target: cells}
    import narwhals as nw

    frame = nw.from_native(rows, eager_only=True)
    names = [column.name for column in schema.columns if column.name != target]
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise ParameterError(
            f"X of a learner must have the declared column {missing[0]!r}, and has not. It must hold all "
            "features of the schema by name."
        )
    return {**{name: frame[name].to_numpy() for name in names}, target: np.asarray(cells)}
