"""A model that is told the public noise law of the rows it is trained on, beside one that is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax

from discreet.errors import DataError, InsufficientInformation, ParameterError
from discreet.law import NoiseLaw
from discreet.release.published import in_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._typing import AnyArray, Floats, Ints
    from discreet.job.questions import Question
    from discreet.release import Plan
    from discreet.schema import Schema

    Rows = Mapping[str, AnyArray]

REFUSED = (
    "A noise-aware learner refuses these rows: what they show about the target cannot be told from chance. "
    "More rows, fewer columns or a larger epsilon would help."
)
RANKS = (
    "The noise-aware model orders rows, and its scores are no probabilities: the release says too little for "
    "that."
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
    question: Question

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


def law_of(plan: Plan) -> NoiseLaw:
    """Return the noise law that a plan publishes."""
    return NoiseLaw.of((plan.schema.column(done.column), done.law) for done in plan.columns)


def fit_aware(plan: Plan, published: Rows, places: Ints, question: Question) -> AwareModel | str:
    """Train a noise-aware learner on some published rows.

    Parameters
    ----------
    plan : Plan
        Of the release.
    published : mapping of str to array
        Published rows, encoded.
    places : array of int
        Which of them to train on.
    question : Question
        What to predict.

    Returns
    -------
    AwareModel or str
        A sentence where the learner refuses the rows; an empty one where the noise of this release cannot be
        corrected for, or the target is no question for it.

    Privacy
    -------
    Reads published rows and their public law alone.
    """
    # Here, so that nobody who learns nothing waits for scikit-learn.
    from discreet.learn import NoiseAwareClassifier, NoiseAwareRidge

    kind = NoiseAwareClassifier if question.n_classes else NoiseAwareRidge
    rows = {c.name: in_words(c, published[c.name][places]) for c in plan.schema.released}
    try:
        estimator = kind(law_of(plan), on_weak="raise").fit(rows)
    except InsufficientInformation:
        return REFUSED
    except (ParameterError, DataError):
        return ""
    return AwareModel(estimator, plan.schema, question)
