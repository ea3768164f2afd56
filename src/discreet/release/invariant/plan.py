"""Plan of an invariant release: encode the table as numbers, train the model, check it, draw the noise."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from discreet.errors import DataError, DiscreetWarning, SchemaError
from discreet.noise_law import Clear, InvariantLaw
from discreet.privacy import NoPromise
from discreet.release.invariant._learners import InvariantLearner, LearnerSolution, check_classes
from discreet.release.invariant._noise import InvariantNoise, draw_same_gram
from discreet.release.publication import ColumnSummary, ReleasePlan
from discreet.schema import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from discreet._types import AnyArray, Bools, Floats, Ints
    from discreet.noise import Stream
    from discreet.release.publication import Encoded
    from discreet.schema import Schema


def encoded_schema(schema: Schema) -> Schema:
    """Return the schema of the encoded table.

    A sensitive category becomes one number from 0 to 1 for each level, called ``name=level``; a sensitive
    number that may be missing gets its flag as a second one. Everything else stays.
    """
    columns: list[Column] = []
    for column in schema.columns:
        if column.role == "sensitive":
            columns += _encode_column(column)
        elif column.is_released and column.is_number and not column.required:
            raise SchemaError(
                f"Column {column.name!r} must be required for an invariant release: it is published as it "
                "is, and a model cannot be trained on missing cells. Declare required=True, or drop the "
                "column."
            )
        else:
            columns.append(column)
    names = {column.name for column in columns}
    key = schema.primary_key if set(schema.primary_key) <= names else ()
    return dataclasses.replace(schema, columns=columns, primary_key=key)


def encoded_rows(schema: Schema, rows: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Return encoded rows as the columns that :func:`encoded_schema` declares."""
    out: dict[str, AnyArray] = {}
    for column in schema.released:
        values = rows[column.name]
        if column.role != "sensitive":
            out[column.name] = values
        elif column.is_category:
            for code, encoded in enumerate(_encode_column(column)):
                out[encoded.name] = (values == code).astype(np.float64)
        else:
            missing = np.isnan(values)
            out[column.name] = np.where(missing, column.fill, values)
            if column.missing_flag is not None:
                out[column.missing_flag] = missing.astype(np.float64)
    return out


def _encode_column(column: Column) -> list[Column]:
    """Return the numeric columns that a sensitive column becomes."""
    if column.is_category:
        words = ["missing" if level is None else str(level) for level in column.levels]
        return [_unit_column(f"{column.name}={word}") for word in words]
    if column.missing_flag is None:
        return [column]
    return [dataclasses.replace(column, required=True), _unit_column(column.missing_flag)]


def _unit_column(name: str) -> Column:
    """Return a column of numbers from 0 to 1."""
    return Column(name, lower=0.0, upper=1.0)


def declared_name(name: str, schema: Schema) -> str:
    """Return the name of the declared column that an encoded one comes from."""
    for column in schema.released:
        if any(encoded.name == name for encoded in _encode_column(column)):
            return column.name
    return name


def feature_matrix(columns: Mapping[str, AnyArray], schema: Schema) -> Floats:
    """Return the features that a model is trained on, in the order of ``schema.numeric_features``."""
    return np.column_stack([columns[c.name] for c in schema.numeric_features]).astype(np.float64, copy=False)


LARGEST_RESIDUAL = 1e-9
"""Largest residual of a model; one that is less settled would move when it is trained again."""
LEVERAGE_REFUSED, LEVERAGE_WARNED = 1 - 1e-9, 0.5
"""Leverages of a row from which on a release is refused, or the curator warned."""
ROWS_PER_BATCH = 100_000

NO_EPSILON = (
    "The model trained on the released table is exactly the model trained on the true one, so tables with "
    "different models can always be told apart: no epsilon exists for any delta below 1"
)
_LEAKS = (
    "the model itself and how much it leans on each row are shown exactly",
    "whoever knows all other rows computes every row on which the model leans",
    "whoever knows how the columns go together guesses far better than the noise suggests",
    "labels and public columns are published as they are",
    "repeated releases of one table average the noise out",
)
_SCORES = (
    "the model's score of every row{which} is published exactly, and a score alone can tell who somebody is "
    "(98 % of the rows of a table of 569 patients)"
)
_ONLY_HERE = (
    "the model is the same only for the whole table with all of its digits, the same features in the same "
    "units, and the learner and parameters named: not for a part of the rows, scaled or rounded columns, or "
    "another penalty"
)
_STATIONARY = "the model stays a stationary point of its training problem; training anew may end elsewhere"
_GRAM_LEAKS = (
    "all sums, squares and products of the columns, and so every mean of a class, are published exactly",
    "whoever knows all other rows computes the remaining one from the sums",
    "labels and public columns are published as they are",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exposure:
    """Exposure of each row by an invariant release, in the order of the rows read; for the curator.

    Attributes
    ----------
    leverage : array of shape (n_rows,)
        ``h``: share of its noise that each row loses so that the gradient stays.
    leaned_on : array of bool, shape (n_rows,)
        Whether the model depends on the row; of a support vector machine, the support vectors.
    unbiased_bound : array of shape (n_rows,)
        Cramér-Rao: least squared error, summed over the noised columns, of an *unbiased* guess by an attacker
        who knows *no other row*. No promise: biased guesses and side knowledge do better.
    informed_bound : array of shape (n_rows,)
        The same bound for an attacker who knows all other rows: zero where ``leaned_on``.
    n_directions : int
        Dimension of the space in which each row moved.
    residual : float
        Residual of the trained model, as in :class:`LearnerSolution`.

    Privacy
    -------
    Everything here is computed from private rows: it is for the curator and must not be published. An
    analyst who trains the model on the released table learns most of it all the same.

    Reference
    ---------
    docs/explanation/theorems/fisher-invariant.md, fisher-cramer-rao.md

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import InvariantRelease
    >>> X = np.column_stack([np.sin(np.arange(60)), np.cos(3.0 * np.arange(60)), np.arange(60) / 60])
    >>> y = np.where(X[:, 0] + X[:, 2] > 0.5, 1, -1)
    >>> method = InvariantRelease(learner="svm", variance=100.0, bounds=(-1, 1), random_state=1)
    >>> released = method.release(X, y)
    >>> exposure = method.exposure_
    >>> exposure.leverage.shape, bool(exposure.leaned_on.any())
    ((60,), True)
    """

    leverage: Floats
    leaned_on: Bools
    unbiased_bound: Floats
    informed_bound: Floats
    n_directions: int
    residual: float

    @property
    def smallest_bound(self) -> float:
        """Least ``unbiased_bound`` of any row."""
        return float(self.unbiased_bound.min())

    @classmethod
    def from_noise(cls, noise: InvariantNoise, solution: LearnerSolution) -> Exposure:
        """Return the exposure that follows from the noise and the trained model."""
        bound = noise.unbiased_bound()
        leaned_on = noise.leverage > 0
        return cls(
            leverage=noise.leverage,
            leaned_on=leaned_on,
            unbiased_bound=bound,
            # Who knows all other rows solves C'W = 0 for the noise of this one.
            informed_bound=np.where(leaned_on, 0.0, bound),
            n_directions=noise.n_directions,
            residual=solution.residual,
        )

    def reorder(self, order: Ints) -> Exposure:
        """Return the exposure in the original order of rows that were permuted by ``order``."""
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        arrays = ("leverage", "leaned_on", "unbiased_bound", "informed_bound")
        return dataclasses.replace(self, **{name: getattr(self, name)[back] for name in arrays})


class InvariantPlan(ReleasePlan):
    """Plan of an invariant release: train the model, check it, draw the noise.

    Parameters
    ----------
    schema : Schema
        Schema of the encoded table, as :func:`encoded_schema` returns it.
    learner : InvariantLearner or None
        Learner whose model is kept; None keeps sums, squares and products.
    variance : float
        Variance of the noise before it is projected, in the units of ``scales``.
    scales : array of shape (n_noised,)
        Unit of each noised column, in its own measure.
    outward : bool
        Whether rows that do not touch the model also move away from its boundary.
    precision : int, "float32" or None
        Number of decimals kept, or 32-bit numbers; None keeps all digits.
    label : str
        Name of the learner with its parameters, for the published law.
    report : callable
        Function that is called with the :class:`Exposure` of the rows once it is known.
    """

    is_row_wise = False

    def __init__(
        self,
        *,
        schema: Schema,
        learner: InvariantLearner | None,
        variance: float,
        scales: Floats,
        outward: bool,
        precision: int | Literal["float32"] | None,
        label: str,
        report: Callable[[Exposure], None],
    ) -> None:
        """Store the choices and derive the public laws of the columns and the (absent) promise."""
        self.schema = schema
        self.learner = learner
        self.variance = variance
        self.scales = scales
        self.outward = outward
        self.precision = precision
        self._report = report
        laws = {
            name: InvariantLaw(
                learner=label, variance=None if learner is None else variance * float(scale**2)
            )
            for name, scale in zip(self._noised_columns, scales, strict=True)
        }
        self.columns = tuple(
            ColumnSummary(column=c.name, law=laws.get(c.name, Clear())) for c in schema.released
        )
        self.promises = (self._promise(),)

    def without_report(self) -> InvariantPlan:
        """Return the same plan for an attack, which must not overwrite the exposure of the real release."""
        return InvariantPlan(
            schema=self.schema,
            learner=self.learner,
            variance=self.variance,
            scales=self.scales,
            outward=self.outward,
            precision=self.precision,
            label="",
            report=lambda _: None,
        )

    @property
    def _noised_columns(self) -> list[str]:
        return [c.name for c in self.schema.numeric_features if c.role == "sensitive"]

    @property
    def leaks(self) -> tuple[str, ...]:
        """Facts that the released table gives away, as clauses."""
        if self.learner is None:
            return _GRAM_LEAKS
        which = " on which the model leans" if self.outward else ""
        return (_SCORES.format(which=which), *_LEAKS)

    def _promise(self) -> NoPromise:
        """Return the statement that nothing is promised, with the reasons."""
        if self.learner is None:
            reason = "; ".join((NO_EPSILON.replace("The model", "Every least-squares model"), *self.leaks))
            assumes: tuple[str, ...] = (_ONLY_HERE.replace(", or another penalty", ""),)
        else:
            reason = "; ".join((NO_EPSILON, *self.leaks))
            assumes = (_ONLY_HERE,) if self.learner.unique else (_ONLY_HERE, _STATIONARY)
        return NoPromise(
            f"{reason[0].lower()}{reason[1:]}", unit=self.schema.unit, assumes=assumes, arithmetic="real"
        )

    def draw(self, rows: Encoded, stream: Stream) -> dict[str, AnyArray]:
        """Train and check the model, and return the whole released table."""
        features = feature_matrix(rows, self.schema)
        indices = self._sensitive_indices()
        if self.learner is None:
            released = self._draw_same_gram(features, indices, rows, stream)
        else:
            noise = self._make_noise(features, indices, rows)
            released = noise.draw(stream)
            for j, index in enumerate(indices):
                released[:, j] += features[:, index]
        return self._table_columns(rows, self._round_released(released))

    def batches(self, rows: Encoded, stream: Stream) -> Iterator[dict[str, AnyArray]]:
        """Yield the same table in batches, with no more noise in memory than one block."""
        if self.learner is None:
            yield self.draw(rows, stream)
            return
        features = feature_matrix(rows, self.schema)
        indices = self._sensitive_indices()
        noise = self._make_noise(features, indices, rows)
        cuts = [slice(start, start + ROWS_PER_BATCH) for start in range(0, len(features), ROWS_PER_BATCH)]
        parts = noise.add((features[cut][:, indices] for cut in cuts), stream)
        for cut, part in zip(cuts, parts, strict=True):
            yield self._table_columns(
                {name: values[cut] for name, values in rows.items()}, self._round_released(part)
            )

    def _sensitive_indices(self) -> list[int]:
        return [j for j, c in enumerate(self.schema.numeric_features) if c.role == "sensitive"]

    def _table_columns(self, rows: Encoded, released: Floats) -> dict[str, AnyArray]:
        noised = dict(zip(self._noised_columns, np.ascontiguousarray(released.T), strict=True))
        return {c.name: noised.get(c.name, rows[c.name]) for c in self.schema.released}

    def _learner_target(self, rows: Encoded) -> tuple[AnyArray, int]:
        """Return the target in the form that the learner takes, and the number of classes; 0 for a number."""
        assert self.schema.target is not None
        column = self.schema.column(self.schema.target)
        values = rows[column.name]
        if self.learner is None or self.learner.wants == "number":
            numbers = np.array(column.levels, np.float64)[values] if column.is_category else values
            if not np.isfinite(numbers).all():
                raise DataError(
                    f"Column {column.name!r} must hold a finite number in every row: it is the target.",
                    column=column.name,
                    line=int(np.flatnonzero(~np.isfinite(numbers))[0]) + 1,
                )
            return numbers, 0
        check_classes(values, len(column.levels), "InvariantRelease")
        return values, len(column.levels)

    def _make_noise(self, features: Floats, indices: list[int], rows: Encoded) -> InvariantNoise:
        """Train the model and return the noise that it does not notice; raise if there is none."""
        assert self.learner is not None
        solution = self.learner.solve(features, *self._learner_target(rows))
        if self.learner.unique and not solution.residual <= LARGEST_RESIDUAL:
            raise DataError(
                f"The model of InvariantRelease must be solved to a residual of {LARGEST_RESIDUAL:g}, was "
                f"{solution.residual:.1e}: training anew would move it. Scale the columns or use a stronger "
                "penalty."
            )
        if not solution.residual <= LARGEST_RESIDUAL:
            warn_curator(
                f"The network is not stationary (relative gradient {solution.residual:.1e}): on the released "
                "table its outputs and its gradient are the same, and training on from it moves it as it "
                "would have."
            )
        noise = InvariantNoise(
            solution.derivatives,
            solution.weights[indices],
            self.variance,
            scales=self.scales,
            outward=solution.outward if self.outward else None,
        )
        self._check_noise(noise, solution, len(indices))
        self._report(Exposure.from_noise(noise, solution))
        return noise

    def _check_noise(self, noise: InvariantNoise, solution: LearnerSolution, n_columns: int) -> None:
        """Raise or warn where the noise protects a row little, or no row at all."""
        if not solution.weights.any():
            warn_curator(
                "All weights of the model are zero: it says the same of every row, and the released table "
                "keeps that."
            )
        if n_columns == 1 and not noise.n_directions:
            raise DataError(
                "InvariantRelease needs at least two sensitive columns, and has one: a row's score gives it "
                "away, the noise would be zero and the data published unchanged. Use another method."
            )
        if not noise.n_directions:
            raise DataError(
                "The weights of the model of InvariantRelease must leave a direction free, and have rank "
                f"{n_columns} for {n_columns} sensitive columns: no invariant noise exists. Use fewer "
                "outputs or hidden units."
            )
        largest = float(noise.leverage.max(initial=0.0))
        if largest > LEVERAGE_REFUSED:
            raise DataError(
                "The model of InvariantRelease must lean on several rows, and leans on a single one (a "
                "single support vector, say): that record would be published unchanged. Use a larger table "
                "or a stronger penalty."
            )
        if largest > LEVERAGE_WARNED:
            warn_curator(
                f"One row loses {largest:.0%} of its noise, because the model leans on few rows. "
                "Use a larger table or a stronger penalty."
            )

    def _draw_same_gram(self, features: Floats, indices: list[int], rows: Encoded, stream: Stream) -> Floats:
        """Return random rows with the same products, beside public columns and the target."""
        public = [j for j in range(features.shape[1]) if j not in indices]
        fixed = [np.ones((len(features), 1)), features[:, public]]
        if self.schema.target is not None:
            column = self.schema.column(self.schema.target)
            # One column for each class but the first, which the ones and the others determine.
            classes = np.arange(1, len(column.levels))
            fixed.append(
                (rows[column.name][:, None] == classes).astype(np.float64)
                if column.is_category
                else self._learner_target(rows)[0][:, None]
            )
        held = np.column_stack(fixed)
        least = len(indices) + held.shape[1] + 1
        if len(features) < least:
            raise DataError(
                f"InvariantRelease with learner='gram' needs at least {least} rows for {len(indices)} "
                f"sensitive columns, had {len(features)}: fewer are determined by their sums and products."
            )
        if len(features) < 2 * least:
            warn_curator(
                "The table has hardly more rows than columns: its exact sums and products say much about "
                "each row."
            )
        return draw_same_gram(features[:, indices], held, stream)

    def _round_released(self, released: Floats) -> Floats:
        """Return the released numbers rounded as requested, with a warning."""
        if self.precision is None:
            return released
        warn_curator(
            f"Rounding to {_describe_precision(self.precision)} moves the model that is trained on the "
            "released table. Publish all 17 digits to keep it."
        )
        if self.precision == "float32":
            return released.astype(np.float32).astype(np.float64)
        return released.round(self.precision)


def _describe_precision(precision: int | Literal["float32"]) -> str:
    return "32-bit numbers" if precision == "float32" else f"{precision} decimals"


def warn_curator(message: str) -> None:
    """Issue a warning in the process of the curator."""
    warnings.warn(message, DiscreetWarning, stacklevel=2)
