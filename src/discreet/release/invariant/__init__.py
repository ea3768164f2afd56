"""A table on which a model trains to exactly what it was.

``learners``, ``logistic`` and ``network`` say what a model asks of the noise, ``noise`` draws it, ``gram``
draws rows with the same products; ``encoding`` turns a table into the numbers that a model sees; ``plan``
trains, checks and draws, and ``method`` is the release.
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
