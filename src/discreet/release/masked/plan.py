"""Plan of a masked release: train the classifier privately, then make the points."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from discreet.noise.linear_algebra import round_to_bits
from discreet.noise_law import Clear, MaskedLabelLaw, MaskedLaw, MaskedSvmLaw
from discreet.privacy import NoPromise, Promise
from discreet.release.masked._equations import label_shares
from discreet.release.masked.construction import Task, make_mask
from discreet.release.masked.encoding import apportion, shuffled_codes
from discreet.release.masked.losses import HingeLoss
from discreet.release.publication import ColumnSummary, ReleasePlan
from discreet.release.table import LABEL_CLEAR, ROWS_KNOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import AnyArray, Floats, Ints
    from discreet.learn.perturbation.mechanisms import TrainingPlan
    from discreet.noise import Stream
    from discreet.noise_law import Law
    from discreet.release.masked.construction import Construction, Infeasible, Mask
    from discreet.release.masked.encoding import Encoding, NoisyCounts
    from discreet.release.masked.losses import MaskedLoss
    from discreet.release.publication import Encoded
    from discreet.schema import Column

Labels = Literal["prior", "noisy_counts", "true"]
_WEIGHT_BITS = 24
"""Binary digits to which released weights are rounded, so that all processors make the same points."""
_SLACK = 1 + 1e-9
"""Factor that allows for rounding where a published norm is compared with the radius."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FixedRecords:
    """Records that are published as they are, beside the artificial points.

    Attributes
    ----------
    rows, codes : array
        Given records as points of shape (n, dimension), with the positions of their labels.
    sensitive : int or None
        Position of the class whose rows are masked; rows of other classes are published. None masks all rows.
    """

    rows: Floats
    codes: Ints
    sensitive: int | None

    @property
    def description(self) -> str:
        """Description of the records in the file beside the points; empty if there are none."""
        parts = []
        if self.sensitive is not None:
            parts.append("the true rows of all other classes, as they are")
        if len(self.rows):
            parts.append(f"{len(self.rows):,} given records, as they are")
        return " and ".join(parts)


@dataclass(frozen=True, kw_only=True)
class PointLabels:
    """Where the labels of the points come from.

    Attributes
    ----------
    source : {"prior", "noisy_counts", "true"}
        Source of the labels, as for :class:`~discreet.release.MaskedRelease`.
    shares : tuple of float or None
        Public shares of the classes; None where they follow from the model.
    counts : NoisyCounts or None
        Noisy counts of the classes; None where labels do not follow from counts.
    """

    source: Labels
    shares: tuple[float, ...] | None
    counts: NoisyCounts | None


@dataclass(frozen=True, kw_only=True)
class PointRules:
    """How many points are made, where, and how.

    Attributes
    ----------
    n_records : int or None
        Number of points to make; None means as many as true labels, or as rows of the sensitive class.
    radius : float
        Radius of the ball that contains the points.
    construction, infeasible
        As for :class:`~discreet.release.MaskedRelease`.
    """

    n_records: int | None
    radius: float
    construction: Construction
    infeasible: Infeasible


class MaskedPlan(ReleasePlan):
    """Plan of a masked release: train privately, choose labels, make points.

    Parameters
    ----------
    encoding : Encoding
        Public map from declared columns to points.
    training : TrainingPlan
        Calibrated private training of the classifier.
    n_rows : int
        Public number of rows of the table.
    labels : PointLabels
        Source of the labels of the points.
    points : PointRules
        Number of the points, their ball, and how they are made.
    fixed : FixedRecords
        Records that are published as they are.
    loss : MaskedLoss
        Loss of the learner that the points are made for.
    report : callable
        Function that is called with the :class:`~discreet.release.masked.construction.Mask` once it is made.
    """

    row_level = False
    is_row_wise = False

    def __init__(
        self,
        *,
        encoding: Encoding,
        training: TrainingPlan,
        n_rows: int,
        labels: PointLabels,
        points: PointRules,
        fixed: FixedRecords,
        loss: MaskedLoss,
        report: Callable[[Mask], None],
    ) -> None:
        """Store the choices and derive published schema, laws and promises."""
        self.encoding = encoding
        self.training = training
        self.n_rows = n_rows
        self.labels = labels
        self.points = points
        self.fixed = fixed
        self.loss = loss
        self._report = report
        self.schema = encoding.published_schema(self._limit)
        self.columns = tuple(
            ColumnSummary(column=column.name, law=self._law(column, place))
            for place, column in enumerate(self.schema.released)
        )
        self.promises = self._promises()

    @property
    def _limit(self) -> float:
        """Norm that no published record exceeds."""
        # Fixed records were mapped to the unit ball, whatever the radius of the points.
        return max(self.points.radius, 1.0) if self.fixed.description else self.points.radius

    @property
    def target(self) -> Column:
        """Column of the labels of the points."""
        assert self.schema.target is not None
        return self.schema.column(self.schema.target)

    @property
    def regularization(self) -> float:
        """Weight of the penalty, in training on true rows and on published ones."""
        return self.training.regularization

    def _law(self, column: Column, place: int) -> Law:
        """Return the public law of one published column; ``place`` is its position."""
        if column.role != "target":
            coordinates = self.encoding.coordinates
            scale, shift = self.encoding.maps[place]
            law = MaskedLaw(
                regularization=self.regularization,
                exact=self.points.construction == "direct",
                origin=coordinates[place].origin if place < len(coordinates) else "",
                level=coordinates[place].level if place < len(coordinates) else None,
                scale=scale,
                shift=shift,
                beside=self.fixed.description,
            )
            if isinstance(self.loss, HingeLoss):
                return MaskedSvmLaw(smoothing=self.loss.smoothing, **dataclasses.asdict(law))
            return law
        if self.labels.source == "true":
            return Clear()
        source = {
            (True, True): "noisy counts",
            (False, False): "public shares",
            (False, True): "the released model",
        }[self.labels.counts is not None, self.labels.shares is None]
        public = self.labels.shares if not self.fixed.description else None
        return MaskedLabelLaw(source=source, shares=public, beside=self.fixed.description)

    def _promises(self) -> tuple[Promise, ...]:
        """Return the promises of classifier and counts, and a ``NoPromise`` for what they do not cover."""
        declared = self.encoding.schema
        assumed: tuple[str, ...] = (ROWS_KNOWN,) * (declared.id_column is not None)
        features = tuple(column.name for column in declared.features)
        unit, covers = declared.unit, None
        rest: list[Promise] = []
        if self.labels.source == "true":
            assumed, covers = (*assumed, LABEL_CLEAR), features
        if len(self.fixed.rows):
            assumed = (*assumed, "the given records are public or made up, and none is a row of the table")
        if self.fixed.sensitive is not None:
            masked = self.target.levels[self.fixed.sensitive]
            unit, covers = f"{unit} whose {self.target.name} is {masked}", features
            assumed = (
                *assumed,
                f"which rows have {self.target.name} = {masked}, and all other rows, are public: they are "
                "published as they are",
            )
            rest.append(
                NoPromise(
                    f"every row whose {self.target.name} is not {masked} is published as it is, and so is "
                    "how many rows each class has",
                    unit=declared.unit,
                    arithmetic="real",
                )
            )
        kept = [
            dataclasses.replace(promise, unit=unit, covers=covers, assumes=_merge(promise.assumes, assumed))
            for promise in self.training.promises
        ]
        if self.labels.counts is not None:
            kept.append(
                self.labels.counts.promise(self.target.name, {"unit": declared.unit, "assumes": assumed})
            )
        return (*kept, *rest)

    def train(self, rows: Encoded, stream: Stream, *, sample: bool = False) -> Floats:
        """Return the private weights: one row for two classes, else one for each class.

        With ``sample``, the rows stand for a whole table, and the result promises nothing.
        """
        codes = self._codes(rows)
        n_classes = len(self.target.levels)
        problem = self.loss.problem(self.encoding.rows(rows), codes, self.regularization, n_classes)
        # The mean is over the public number of rows, also where rows of a unit were left out.
        if not sample:
            problem.n_rows = max(self.n_rows, len(codes))
        return round_to_bits(problem.weights(self.training.train(problem, stream.spawn)), _WEIGHT_BITS)

    def draw(self, rows: Encoded, stream: Stream) -> dict[str, AnyArray]:
        """Train the private classifier and return the published table, whose rows belong to no person."""
        stream = stream.spawn()  # so that the streams derived below differ at every call
        codes = self._codes(rows)
        weights = self.train(rows, stream)
        fixed, fixed_codes = self.fixed.rows, self.fixed.codes
        if self.fixed.sensitive is not None:
            others = codes != self.fixed.sensitive
            true = self.encoding.rows({name: values[others] for name, values in rows.items()})
            fixed = np.concatenate([true, fixed])
            fixed_codes = np.concatenate([codes[others], fixed_codes])
        n_records = self.points.n_records
        if n_records is None:
            n_records = (
                len(codes) if self.labels.source == "true" else int(np.sum(codes == self.fixed.sensitive))
            )
        mask = make_mask(
            Task(
                weights=weights,
                regularization=self.regularization,
                radius=self.points.radius,
                constant=self.encoding.constant,
                n_records=n_records,
                labels=self._labels(codes, n_records, stream.derive("labels")),
                fixed=fixed,
                fixed_codes=fixed_codes,
                construction=self.points.construction,
                infeasible=self.points.infeasible,
                loss=self.loss,
                free_labels=self.labels.source == "prior"
                and self.labels.shares is None
                and self.fixed.sensitive is None,
            ),
            stream.derive("points"),
        )
        self._report(mask)
        columns: dict[str, AnyArray] = dict(
            zip(self.encoding.names, np.ascontiguousarray(mask.points.T), strict=True)
        )
        columns[self.target.name] = mask.codes.astype(np.int32)
        return columns

    def _codes(self, rows: Encoded) -> Ints:
        return np.asarray(rows[self.target.name], np.int64)

    def _labels(self, codes: Ints, n: int, stream: Stream) -> Callable[[Floats, float], Ints]:
        """Return a function from weights and regularization to labels; random draws happen once, here."""
        if self.labels.source == "true":
            return lambda weights, regularization: codes
        order = stream.derive("order")
        if self.fixed.sensitive is not None:
            same = np.full(n, self.fixed.sensitive)
            return lambda weights, regularization: same
        shares: Any = self.labels.shares
        if self.labels.counts is not None:
            shares = self.labels.counts.shares(codes, stream)
        if shares is not None:
            chosen = shuffled_codes(apportion(shares, n), order)
            return lambda weights, regularization: chosen

        def labels_for_model(weights: Floats, regularization: float) -> Ints:
            shares = label_shares(
                weights, regularization, self.encoding.constant, self.points.radius, self.loss
            )
            return shuffled_codes(apportion(shares, n), order.spawn())

        return labels_for_model

    def misfits(self, columns: Encoded) -> dict[str, str]:
        """Return the columns with cells that this plan cannot have drawn, each with the reason."""
        misfits = super().misfits(columns)
        points = np.column_stack([columns[name] for name in self.encoding.names])
        limit = self._limit
        with np.errstate(over="ignore"):
            long = np.einsum("ij,ij->i", points, points) > (limit * _SLACK) ** 2
        if long.any():
            place = int(np.abs(points[int(np.argmax(long))]).argmax())
            misfits.setdefault(self.encoding.names[place], "points outside the ball that they are made in")
        constant = self.encoding.constant
        if constant > 0 and (points[:, -1] != constant).any():
            misfits.setdefault(self.encoding.names[-1], "values other than the public constant")
        return misfits

    def repeat_chance(self) -> float:
        """Return a bound on the chance that two points agree; 1 for greedy points and fixed records."""
        return 2.0**-50 if self.points.construction == "direct" and not self.fixed.description else 1.0

    def noised_columns(self) -> tuple[str, ...]:
        """Return the names of the coordinates of the points."""
        return self.encoding.names

    def length_misfit(self, n_read: int, n_published: int) -> str | None:
        """Return what is wrong with the number of published rows; None if nothing is."""
        if self.points.n_records is None:
            # As many as were read, less the rows of a unit beyond those that it may have.
            fewer = self.encoding.schema.id_column is not None
            least, most = (1 if fewer else n_read), n_read
        else:
            least = self.points.n_records
            most = least + (n_read if self.fixed.sensitive is not None else 0)
        least, most = least + len(self.fixed.rows), most + len(self.fixed.rows)
        if least <= n_published <= most:
            return None
        return "The number of rows published is not the one that the method makes."


def _merge(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    """Return the texts of both tuples without repetitions."""
    return tuple(dict.fromkeys((*first, *second)))
