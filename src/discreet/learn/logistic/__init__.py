"""Logistic regression with differential privacy, by perturbation of its objective or its minimizer.

``problem`` states what is minimized and minimizes it with a certificate; ``sensitivity`` says how far one row
moves the minimizer; ``constants`` has the public numbers and the defaults that follow from them;
``utility`` bounds what privacy costs. The mechanisms are those of :mod:`discreet.learn.perturbation`.
"""

from discreet.learn.logistic._model import PrivateLogisticRegression
from discreet.learn.perturbation.base import Embedding

__all__ = ["Embedding", "PrivateLogisticRegression"]
