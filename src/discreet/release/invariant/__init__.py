"""Release of a table on which a model trains to exactly the same result as on the true rows.

``_learners`` trains models and returns weights and derivatives, ``_noise`` draws the noise and the tables
with the same products, ``plan`` encodes a table as numbers, trains, checks and draws, and ``_method`` is the
release.
"""

from discreet.release.invariant._learners import (
    InvariantLearner,
    LearnerSolution,
    LogisticLearner,
    MultinomialLearner,
    NetworkLearner,
    RidgeLearner,
    SVMLearner,
)
from discreet.release.invariant._method import InvariantRelease
from discreet.release.invariant._noise import InvariantNoise
from discreet.release.invariant.plan import Exposure

__all__ = [
    "Exposure",
    "InvariantLearner",
    "InvariantNoise",
    "InvariantRelease",
    "LearnerSolution",
    "LogisticLearner",
    "MultinomialLearner",
    "NetworkLearner",
    "RidgeLearner",
    "SVMLearner",
]
