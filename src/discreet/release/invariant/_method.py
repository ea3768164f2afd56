"""Release method that keeps one model exactly, and says what that gives away."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from discreet.errors import DataError, ParameterError, PromiseError, SchemaError
from discreet.release.base import ReleaseMethod, check_publishable, collect_parameters
from discreet.release.invariant._learners import (
    InvariantLearner,
    LogisticLearner,
    MultinomialLearner,
    RidgeLearner,
    SVMLearner,
)
from discreet.release.invariant.plan import (
    NO_EPSILON,
    Exposure,
    InvariantPlan,
    declared_name,
    encoded_rows,
    encoded_schema,
    warn_curator,
)
from discreet.release.publication import Publication, published_fields
from discreet.schema import Column, unclipped_column
from discreet.tables import check_target, write_table
from discreet.tables.external_sort import word_order

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from discreet._types import AnyArray, Bools, Floats
    from discreet.ledger import Ledger
    from discreet.noise import Stream
    from discreet.privacy import Promise, Receipt
    from discreet.release.base import Watch
    from discreet.release.publication import Encoded
    from discreet.schema import Schema

Scales = Mapping[str, float] | Sequence[float] | Literal["range"] | None
LEARNERS: dict[str, type[InvariantLearner]] = {
    "svm": SVMLearner,
    "ridge": RidgeLearner,
    "logistic": LogisticLearner,
    "multinomial": MultinomialLearner,
}
QUARTER_OF_THE_RANGE = 0.25


class InvariantRelease(ReleaseMethod):
    """Add noise that a given model does not notice: trained on the released table, it is the same.

    Parameters
    ----------
    learner : {"svm", "ridge", "logistic", "multinomial", "gram"} or InvariantLearner
        Learner whose model is kept. For other parameters than the default ones give an object, such as
        ``SVMLearner(theta=10)`` or ``NetworkLearner.from_sklearn(model)``. ``"gram"`` replaces the rows by
        others with the same sums, squares and products instead of adding noise, which keeps least squares,
        ridge regression for every penalty and principal components.
    variance : float, optional
        Variance of the noise in each column before it is projected, in the units of ``scales``. With neither
        of the two, the standard deviation is a quarter of each declared range. Left out for ``"gram"``.
    scales : mapping, sequence or "range", optional
        Unit in which each noised column gets the same noise; by default 1 for every column, with
        ``"range"`` the width of its declared range.
    outward : bool
        Whether rows that are no support vectors also move away from the boundary of a support vector machine,
        by a Maxwell-distributed length. Hides their exact scores, and shifts their mean.
    precision : int or "float32", optional
        Number of decimals to which published numbers are rounded, or 32-bit numbers; None keeps all digits.
        Rounding moves the model, and a warning says so.
    privacy
        Must be None: there is no promise that this release could be calibrated to.
    schema, bounds, ledger, random_state
        As for :class:`~discreet.release.base.ReleaseMethod`. With ``bounds``, classes are -1 and 1.

    Attributes
    ----------
    exposure_ : Exposure or None
        Exposure of each row by the last release, for the curator alone; None for ``"gram"``.

    Privacy
    -------
    **Nothing is promised**, and the release carries a ``NoPromise`` that says why. No (epsilon, delta)
    exists: the model is published exactly. The score of every row is published exactly (with ``outward``
    only those of support vectors), and so are the rows on which the model depends and how much. An attacker
    who knows all other rows computes such a row without error. No error floor holds against every attacker
    in a column's own unit: the model may depend on that column alone, and then the score is the column. What
    holds is Cramér-Rao: an unbiased guess that knows no other row has a squared error, summed over columns,
    of at least ``variance (p - 1) (1 - h_i)``; it is in :attr:`exposure_`, is no promise, and shrinkage does
    better. Labels and public columns are published as they are. Repeated releases average out. Categories
    become columns of numbers ``name=level``, with noise. Refusals and warnings depend on the rows and are for
    the curator's own process.

    Reference
    ---------
    Farokhi, theorem 2.10, corrected: docs/explanation/theorems/fisher-invariant.md, fisher-cramer-rao.md

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import InvariantRelease, RegularizedSVM
    >>> X = np.column_stack([np.sin(np.arange(60)), np.cos(3.0 * np.arange(60)), np.arange(60) / 60])
    >>> y = np.where(X[:, 0] + X[:, 2] + np.sin(7.0 * np.arange(60)) > 0.5, 1, -1)
    >>> method = InvariantRelease(learner="svm", variance=100.0, bounds=(-1, 1), random_state=1)
    >>> released = method.release(X, y)
    >>> before, after = RegularizedSVM().fit(X, y), RegularizedSVM().fit(released.data, y)
    >>> bool(abs(released.data - X).max() > 10), bool(abs(before.coef_ - after.coef_).max() < 1e-9)
    (True, True)
    """

    name: ClassVar[str] = "invariant"
    # Training and decompositions of the whole table: up to 8e-6 between three processors on 200 rows.
    replay_tolerance: ClassVar[float] = 1e-4

    def __init__(
        self,
        *,
        learner: str | InvariantLearner = "svm",
        variance: float | None = None,
        scales: Scales = None,
        outward: bool = False,
        precision: int | Literal["float32"] | None = None,
        privacy: Promise | None = None,
        schema: Schema | None = None,
        bounds: tuple[Any, Any] | None = None,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        """Check the parameters against each other and store them."""
        super().__init__(schema=schema, bounds=bounds, ledger=ledger, random_state=random_state)
        if privacy is not None:
            raise PromiseError(
                f"privacy of InvariantRelease must be left out, was {privacy}. {NO_EPSILON}, and no error "
                "floor holds either. Give variance=, or use another method."
            )
        if learner == "gram" and variance is not None:
            raise ParameterError(
                "variance of InvariantRelease must be left out with learner='gram': the rows are replaced, "
                "not noised."
            )
        if learner != "gram" and variance is None and scales is None:
            variance, scales = QUARTER_OF_THE_RANGE**2, "range"
        if learner != "gram" and not (
            isinstance(variance, int | float) and not isinstance(variance, bool) and 0 < variance < math.inf
        ):
            raise ParameterError(
                f"variance of InvariantRelease must be a finite number above 0, was {variance!r}. "
                "It is the square of the noise's standard deviation, in the unit of each column."
            )
        if precision is not None and precision != "float32" and not isinstance(precision, int):
            raise ParameterError(
                f"precision of InvariantRelease must be a number of decimals or 'float32', was {precision!r}."
            )
        self.learner = learner
        self.variance = variance
        self.scales = scales
        self.outward = outward
        self.precision = precision
        self.privacy = privacy
        self._model = _make_learner(learner)
        if outward and not getattr(self._model, "one_sided", False):
            raise ParameterError(
                "outward of InvariantRelease must be False unless the learner is a support vector machine: "
                "other losses notice every move of a score."
            )
        self.exposure_: Exposure | None = None

    def plan(self, schema: Schema, n_rows: int) -> InvariantPlan:
        """Return the plan of the release, from the schema alone."""
        return self.scaled_plan(schema, n_rows, 1.0)

    def scaled_plan(self, schema: Schema, n_rows: int, factor: float) -> InvariantPlan:
        """Return the plan with ``factor`` times the standard deviation; ``"gram"`` has none to change."""
        schema = encoded_schema(schema)
        noised = [c for c in schema.numeric_features if c.role == "sensitive"]
        if not noised:
            raise ParameterError(
                "schema of InvariantRelease must have a sensitive column, and has none. There is nothing to "
                "protect."
            )
        if any(c.grid is not None for c in noised) and self.precision is None:
            warn_curator(
                "The declared grid is not applied to an invariant release: rounding would move the model. "
                "Publish all 17 digits."
            )
        self._check_target(schema)
        return InvariantPlan(
            schema=schema,
            learner=self._model,
            variance=float(self.variance or 0.0) * factor**2,
            scales=self._scales(noised),
            outward=self.outward,
            precision=self.precision,
            label=_describe_learner(self._model),
            report=self._store_exposure,
        )

    def publish(
        self,
        source: Any,
        target: str | Path,
        *,
        shuffle: bool = True,
        replace: bool = False,
        stream: Stream | None = None,
        watch: Watch | None = None,
        rows_salt: str | None = None,
    ) -> Publication:
        """Release a table straight into a file.

        The model needs the whole table in memory, the noise does not.

        Parameters
        ----------
        source, target, shuffle, replace, stream, watch, rows_salt
            As for :meth:`ReleaseMethod.publish`; ``watch`` is called with encoded rows.

        Returns
        -------
        Publication
        """
        self._require_schema()
        check_target(target, replace=replace)
        stream = self._stream(stream)
        salt = self._rows_salt(stream) if rows_salt is None else rows_salt
        schema, rows, kept = self._read(source, None, salt)
        check_publishable(schema, type(self).__name__)
        n_read = count_rows(rows)
        plan = self.plan(schema, n_read)
        stream.spend(f"{type(self).__name__}.publish")
        receipt = self._charge(plan.promises, schema, stream.seeded)
        if kept is not None:
            rows = {name: values[kept] for name, values in rows.items()}
        noise, words = self._streams(stream, schema, n_read).whole(rows)
        order = np.arange(count_rows(rows))
        if shuffle:
            order = word_order(words.words(len(order)))
            rows = {name: values[order] for name, values in rows.items()}
        batches = _show_batches(rows, plan.batches(rows, noise), watch)
        written = write_table(target, published_fields(plan.schema), batches, replace=replace)
        if self.exposure_ is not None:
            self.exposure_ = self.exposure_.reorder(order)
        return Publication(
            n_rows=written,
            n_read=n_read,
            schema=plan.schema,
            promises=plan.promises,
            receipt=receipt,
            summary=plan.columns,
            commitment=stream.commitment,
            rows_salt=salt or None,
        )

    def parameters(self) -> dict[str, Any]:
        """Return everything but the table, the ledger and the key; the learner by name."""
        return collect_parameters(self, learner=_serialize_learner(self.learner))

    def _noise_parameters(self) -> dict[str, Any]:
        # A learner of the caller's own cannot be serialized for others, but is named in the digest.
        named = self.learner if isinstance(self.learner, str) else _describe_learner(self._model)
        return collect_parameters(self, learner=named)

    @classmethod
    def from_parameters(cls, values: Mapping[str, Any], **common: Any) -> InvariantRelease:
        """Return the method with the parameters that :meth:`parameters` returned."""
        arguments = dict(values)
        learner = arguments.get("learner")
        if isinstance(learner, Mapping):
            kind = LEARNERS.get(str(learner.get("name")))
            if kind is None:
                raise ParameterError(
                    f"learner of InvariantRelease must be one of {', '.join([*LEARNERS, 'gram'])}."
                )
            arguments["learner"] = kind(**learner["parameters"])
        return super().from_parameters(arguments, **common)

    def not_protected(self, schema: Schema) -> tuple[str, ...]:
        """Return what a release by this method does not protect, as clauses without a full stop."""
        return (*super().not_protected(schema), *self.plan(schema, 1).leaks)

    def _charge(
        self, promises: tuple[Promise, ...], schema: Schema, seeded: bool, question: str | None = None
    ) -> Receipt:
        # The receipt names what was declared, not how it was encoded.
        return super()._charge(promises, self.schema or schema, seeded, question)

    def _read(self, X: Any, y: AnyArray | None, salt: str) -> tuple[Schema, Encoded, Bools | None]:
        """Read and encode a table; a bare matrix gets its target as a column."""
        bare = self.schema is None and y is not None
        self.exposure_ = None
        schema, rows, kept = super()._read(X, None if bare else y, salt)
        if bare:
            schema, rows = self._with_bare_target(schema, rows, np.asarray(y))
        return encoded_schema(schema), encoded_rows(schema, rows), kept

    def _store_exposure(self, exposure: Exposure) -> None:
        self.exposure_ = exposure

    def _with_bare_target(self, schema: Schema, rows: Encoded, y: AnyArray) -> tuple[Schema, Encoded]:
        """Return schema and rows with the target of a bare matrix: -1 and 1, or any number."""
        n_rows = count_rows(rows)
        if y.shape != (n_rows,):
            raise ParameterError(
                f"y of InvariantRelease.release must have one entry for each of the {n_rows} rows, had shape "
                f"{y.shape}."
            )
        if self._model is not None and self._model.wants != "number":
            if not np.isin(y, (-1, 1)).all():
                raise DataError(
                    "y of InvariantRelease.release must hold -1 and 1 alone when bounds are given. "
                    "Give schema= with a target that lists its classes."
                )
            column, values = Column("y", values=(-1, 1), role="target"), (y > 0).astype(np.int32)
        else:
            # A bare target has no declared range; nothing is promised about it, so nothing is clipped.
            column = unclipped_column("y", role="target")
            values = np.asarray(y, np.float64)
        return dataclasses.replace(schema, columns=[*schema.columns, column], target="y"), {
            **rows,
            "y": values,
        }

    def _check_target(self, schema: Schema) -> None:
        """Raise if the schema has no target that the learner can take."""
        if schema.target is None:
            if self._model is None:
                return
            raise ParameterError(
                "InvariantRelease needs a target, and the table has none: the model to be kept predicts one. "
                "Declare target= in the schema, or give y."
            )
        column = schema.column(schema.target)
        wants = "anything" if self._model is None else self._model.wants
        levels = column.levels
        fits = {
            "anything": column.required,
            "number": column.required and all(isinstance(level, int) for level in levels),
            "two classes": len(levels) == 2 and None not in levels,
            "classes": len(levels) >= 2 and None not in levels,
        }
        if not fits[wants]:
            what = {
                "two classes": "two classes",
                "classes": "classes",
                "number": "a number, or classes that are whole numbers",
                "anything": "a number or classes",
            }
            raise SchemaError(
                f"target of InvariantRelease must be {what[wants]}, none of them missing, for this learner; "
                f"{column.name!r} is not. Take another learner or target."
            )

    def _scales(self, noised: Sequence[Column]) -> Floats:
        """Return the unit of each noised column; a mapping may use declared names for encoded columns."""
        if self.scales is None:
            return np.ones(len(noised))
        given: Any = self.scales
        if isinstance(given, Mapping):
            names = [c.name for c in noised]
            if self.schema is not None:
                names = [name if name in given else declared_name(name, self.schema) for name in names]
            if set(names) != set(given):
                raise ParameterError(
                    f"scales of InvariantRelease must name the sensitive columns "
                    f"{', '.join(dict.fromkeys(names))}, named {', '.join(given) or 'none'}."
                )
            given = [given[name] for name in names]
        elif isinstance(given, str) and given == "range":
            given = [c.width for c in noised]
        try:
            scales = np.asarray(given, np.float64)
        except (TypeError, ValueError):
            scales = np.empty(0)
        if scales.shape != (len(noised),) or not (np.isfinite(scales).all() and (scales > 0).all()):
            raise ParameterError(
                f"scales of InvariantRelease must be 'range' or {len(noised)} finite numbers above 0, one "
                f"for each sensitive column, were {self.scales!r}."
            )
        return scales


def _make_learner(learner: str | InvariantLearner) -> InvariantLearner | None:
    """Return the learner for a name or an object; None for ``"gram"``."""
    if learner == "gram":
        return None
    if isinstance(learner, str) and learner in LEARNERS:
        return LEARNERS[learner]()
    if isinstance(learner, InvariantLearner) and not isinstance(learner, type):
        return learner
    raise ParameterError(
        f"learner of InvariantRelease must be one of {', '.join([*LEARNERS, 'gram'])} or an object with "
        f"solve(), wants and unique, was {learner!r}."
    )


def _describe_learner(learner: InvariantLearner | None) -> str:
    """Return the name of a learner with its parameters, for analysts of the released table."""
    if learner is None:
        return "gram"
    return repr(learner) if dataclasses.is_dataclass(learner) else type(learner).__name__


def _serialize_learner(learner: str | InvariantLearner) -> str | dict[str, Any]:
    """Return a learner as JSON: its name, or its name and parameters."""
    if isinstance(learner, str):
        return learner
    for name, kind in LEARNERS.items():
        if type(learner) is kind:
            return {"name": name, "parameters": dataclasses.asdict(learner)}  # type: ignore[call-overload]
    raise ParameterError(
        f"learner of InvariantRelease must be one of {', '.join([*LEARNERS, 'gram'])} to be written down for "
        f"others to check, was {type(learner).__name__}."
    )


def _show_batches(
    rows: Encoded, batches: Iterator[dict[str, AnyArray]], watch: Watch | None
) -> Iterator[dict[str, AnyArray]]:
    """Yield the batches, after calling ``watch`` with each and the true rows that it comes from."""
    start = 0
    for batch in batches:
        n_rows = count_rows(batch)
        if watch is not None:
            watch({name: values[start : start + n_rows] for name, values in rows.items()}, batch)
        start += n_rows
        yield batch


def count_rows(rows: Encoded) -> int:
    return len(next(iter(rows.values())))
