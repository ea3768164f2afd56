"""Learning from a noised table with its noise law in hand: free post-processing, and far better than without.

``coordinates`` and ``labels`` say how a column's cells are debiased, ``sums`` reads rows once, ``moments``
corrects what was added up, ``estimators`` makes scores of it and ``refusal`` says whether they mean anything;
``reading`` brings rows in, ``model``, ``ridge`` and ``classifier`` are the learners.
"""

from discreet.learn.noise_aware._classifier import NoiseAwareClassifier
from discreet.learn.noise_aware._ridge import NoiseAwareRidge

__all__ = ["NoiseAwareClassifier", "NoiseAwareRidge"]
