"""Noise-aware models of published rows: learners that use the public noise law, fed while rows pass by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from discreet.errors import DataError, InsufficientInformation, ParameterError
from discreet.evaluation._models import PredictionTask
from discreet.noise_law import NoiseLaw
from discreet.release.publication import decode_cells

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray, Floats, Ints
    from discreet.learn.noise_aware.base import MomentAccumulator
    from discreet.noise import Stream
    from discreet.release import ReleasePlan
    from discreet.schema import Schema

    Rows = Mapping[str, AnyArray]

MOST_PRODUCTS = 10**12
"""Largest number of products that are summed in one run, about half a minute."""
REFUSED = (
    "A noise-aware learner refuses these rows: what they show about the target cannot be distinguished "
    "from chance. More rows, fewer columns or a larger epsilon would help."
)
RANKS = (
    "The noise-aware model orders rows, but its scores are not probabilities: the release contains too "
    "little information for that. A model that ignores the noise law may do as well here."
)


@dataclass(frozen=True, slots=True, eq=False)
class AwareModel:
    """A fitted noise-aware learner that predicts encoded rows.

    Attributes
    ----------
    estimator : NoiseAwareClassifier or NoiseAwareRidge
        Fitted estimator of :mod:`discreet.learn`.
    schema : Schema
        Schema of the published table.
    task : PredictionTask
        Target that the estimator predicts.
    """

    estimator: Any
    schema: Schema
    task: PredictionTask

    @property
    def chances(self) -> bool:
        """Whether its scores of classes are probabilities."""
        return bool(self.estimator.status_ == "ok")

    @property
    def note(self) -> str:
        """Note for the report if scores are no probabilities, or ""."""
        return "" if self.chances else RANKS

    def predict(self, rows: Rows) -> Floats:
        """Return scores of shape (n, n_classes), or numbers of shape (n,) in units of the declared range."""
        column = self.task.column
        features = {c.name: decode_cells(c, rows[c.name]) for c in self.schema.features}
        if not self.task.n_classes:
            predicted = np.asarray(self.estimator.predict(features), np.float64)
            if column.is_category:
                return predicted
            return np.asarray((predicted - column.range[0]) / column.width)
        scores = np.asarray(self.estimator.decision_function(features))
        if scores.ndim == 1:
            # The score of two classes is that of the second over the first.
            scores = np.column_stack([np.zeros(len(scores)), scores])
        classes = self.estimator.classes_.tolist()
        # The estimator sorts its classes; the task has them in their declared order.
        places = [classes.index(level) for level in column.levels]
        return np.asarray(scipy.special.softmax(scores[:, places], axis=1))


def published_law(plan: ReleasePlan) -> NoiseLaw:
    """Return the noise law that a plan publishes."""
    return NoiseLaw.from_columns((plan.schema.column(done.column), done.law) for done in plan.columns)


class AwareRows:
    """Moments of published rows for a noise-aware learner, accumulated while a release is written.

    Memory does not grow with the number of rows. Rows of a release whose noise cannot be corrected for are
    ignored.

    Parameters
    ----------
    plan : ReleasePlan
        Plan of the release, with the laws of its columns.
    n_rows : int
        Approximate number of rows to come. Of a table that is both very long and very wide, a random part is
        left out, so that the release is not delayed.
    stream : Stream
        Source of the choice of rows. It must not be the stream of the noise.

    Privacy
    -------
    Reads only published rows and their public law.
    """

    def __init__(self, plan: ReleasePlan, n_rows: int, stream: Stream) -> None:
        """Set up the accumulator, the translation of codes, and the share of rows to use."""
        self._schema = plan.schema
        self._stream = stream
        self._gathering: MomentAccumulator | None = None
        self._orders: dict[str, Ints] = {}
        self._threshold = np.uint64(0)
        self._failed: Exception | None = None
        target = plan.schema.target
        if target is None or not plan.row_level:
            return
        # Imported here, because scikit-learn is slow to load and most commands train nothing.
        from discreet.learn import NoiseAwareClassifier, NoiseAwareRidge

        self.task = PredictionTask.from_column(plan.schema.column(target))
        kind = NoiseAwareClassifier if self.task.n_classes else NoiseAwareRidge
        try:
            law = published_law(plan)
            self._gathering = kind(law, on_weak="raise").accumulator()
        except ParameterError:
            return
        for column in law.columns:
            if column.levels is not None:
                places = {repr(level): i for i, level in enumerate(column.levels)}
                levels = plan.schema.column(column.name).levels
                codes = [places.get(repr(level), len(places)) for level in levels]
                self._orders[column.name] = np.array(codes, np.int64)
        # A row is used if its random word is below the threshold; the largest one stands for all rows.
        share = min(1.0, MOST_PRODUCTS / (self._gathering.work * max(n_rows, 1)))
        self._threshold = np.uint64(min(int(share * 2.0**64), 2**64 - 1))

    @property
    def n_rows(self) -> int:
        """Number of rows in the moments."""
        return 0 if self._gathering is None else self._gathering.n_rows

    def see(self, published: Rows) -> None:
        """Add a batch of published rows, encoded.

        The release is already charged for, so an error here is stored and raised by :meth:`fit`.
        """
        if self._gathering is None:
            return
        try:
            chosen: Any = slice(None)
            if self._threshold < np.uint64(2**64 - 1):
                chosen = self._stream.words(len(next(iter(published.values())))) < self._threshold
            self._gathering.see(
                {
                    c.name: self._orders[c.name][published[c.name][chosen]]
                    if c.name in self._orders
                    else published[c.name][chosen]
                    for c in self._schema.released
                }
            )
        # Any error at all: the release is being written and paid for, and must not stop for its evaluation.
        except Exception as error:
            self._failed, self._gathering = error, None

    def fit(self) -> AwareModel | str:
        """Train on the rows so far.

        Returns
        -------
        AwareModel or str
            A sentence where the learner refuses the rows; "" where the noise of this release cannot be
            corrected for, or the learner cannot predict the target.
        """
        if self._failed is not None:
            raise self._failed
        if self._gathering is None:
            return ""
        try:
            estimator = self._gathering.fit()
        except InsufficientInformation:
            return REFUSED
        except (ParameterError, DataError):
            return ""
        return AwareModel(estimator, self._schema, self.task)
