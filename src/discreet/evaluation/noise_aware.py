"""A model that is told the public noise law of the rows it is trained on, beside one that is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax

from discreet.errors import DataError, InsufficientInformation, ParameterError
from discreet.evaluation._models import PredictionTask
from discreet.noise_law import NoiseLaw
from discreet.release.publication import in_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray, Floats, Ints
    from discreet.learn.noise_aware.base import MomentAccumulator
    from discreet.noise import Stream
    from discreet.release import ReleasePlan
    from discreet.schema import Schema

    Rows = Mapping[str, AnyArray]

MOST_PRODUCTS = 10**12
"""Products of two entries that are added up in a run: half a minute or so."""
REFUSED = (
    "A noise-aware learner refuses these rows: what they show about the target cannot be told from chance. "
    "More rows, fewer columns or a larger epsilon would help."
)
RANKS = (
    "The noise-aware model orders rows, and its scores are no probabilities: the release says too little for "
    "that. A model that is not told the noise law may do as well here."
)


@dataclass(frozen=True, slots=True, eq=False)
class AwareModel:
    """A fitted noise-aware learner, for rows in the encoded form that jobs use.

    Attributes
    ----------
    estimator : NoiseAwareClassifier or NoiseAwareRidge
    schema : Schema
        Of the published table.
    question : Question
        What it predicts.
    """

    estimator: Any
    schema: Schema
    question: PredictionTask

    @property
    def chances(self) -> bool:
        """Whether its scores of classes are probabilities."""
        return bool(self.estimator.status_ == "ok")

    @property
    def note(self) -> str:
        """What the reader must know."""
        return "" if self.chances else RANKS

    def predict(self, rows: Rows) -> Floats:
        """Return a score for each true row and class, or a number for each row in units of the range."""
        column = self.question.column
        features = {c.name: in_words(c, rows[c.name]) for c in self.schema.features}
        if not self.question.n_classes:
            predicted = np.asarray(self.estimator.predict(features), np.float64)
            if column.is_category:
                return predicted
            return np.asarray((predicted - column.range[0]) / column.width)
        scores = np.asarray(self.estimator.decision_function(features))
        if scores.ndim == 1:
            scores = np.column_stack([np.zeros(len(scores)), scores])
        classes = self.estimator.classes_.tolist()
        places = [classes.index(level) for level in column.levels]
        return np.asarray(softmax(scores[:, places], axis=1))


def law_of(plan: ReleasePlan) -> NoiseLaw:
    """Return the noise law that a plan publishes."""
    return NoiseLaw.from_columns((plan.schema.column(done.column), done.law) for done in plan.columns)


class AwareRows:
    """Published rows, added up for a learner that knows their law while a release passes by.

    What stays is as long as the law, however many rows come. A release whose noise cannot be corrected for
    is let pass.

    Parameters
    ----------
    plan : Plan
        Of the release.
    n_rows : int
        About how many rows will come. Of a table that is both very long and very wide, some are left out, at
        random, so that whoever waits for the release does not wait for this.
    stream : Stream
        Decides which. It must not be the stream of the noise.

    Privacy
    -------
    Reads published rows and their public law alone.
    """

    def __init__(self, plan: ReleasePlan, n_rows: int, stream: Stream) -> None:
        self._schema = plan.schema
        self._stream = stream
        self._gathering: MomentAccumulator | None = None
        self._orders: dict[str, Ints] = {}
        self._threshold = np.uint64(0)
        self._failed: Exception | None = None
        target = plan.schema.target
        if target is None or not plan.row_level:
            return
        # Here, so that nobody who learns nothing waits for scikit-learn.
        from discreet.learn import NoiseAwareClassifier, NoiseAwareRidge

        self.question = PredictionTask.from_column(plan.schema.column(target))
        kind = NoiseAwareClassifier if self.question.n_classes else NoiseAwareRidge
        try:
            law = law_of(plan)
            self._gathering = kind(law, on_weak="raise").accumulator()
        except ParameterError:
            return
        for column in law.columns:
            if column.levels is not None:
                places = {repr(level): i for i, level in enumerate(column.levels)}
                there = plan.schema.column(column.name).levels
                codes = [places.get(repr(level), len(places)) for level in there]
                self._orders[column.name] = np.array(codes, np.int64)
        share = min(1.0, MOST_PRODUCTS / (self._gathering.work * max(n_rows, 1)))
        self._threshold = np.uint64(min(int(share * 2.0**64), 2**64 - 1))

    @property
    def n_rows(self) -> int:
        """How many rows were added up."""
        return 0 if self._gathering is None else self._gathering.n_rows

    def see(self, published: Rows) -> None:
        """Take in some published rows, encoded.

        By now the release is paid for, so that a failure here waits for whoever asks for the model.
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
        except Exception as problem:
            self._failed, self._gathering = problem, None

    def fit(self) -> AwareModel | str:
        """Train on what came by.

        Returns
        -------
        AwareModel or str
            A sentence where the learner refuses the rows; an empty one where the noise of this release cannot
            be corrected for, or the target is no question for it.
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
        return AwareModel(estimator, self._schema, self.question)
