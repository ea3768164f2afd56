"""Logistic regression that one person's row moves by no more than was promised.

``problem`` states what is minimized and ``solver`` minimizes it with a certificate; ``sensitivity`` says how
far one row moves the minimizer, ``output`` and ``objective`` are the two families of mechanisms, ``defaults``
chooses between them without looking at a row; ``model`` is what people use. Rows are embedded and vectors
hidden by :mod:`discreet.learn.perturbed`.
"""

from discreet.learn.logistic._model import PrivateLogisticRegression
from discreet.learn.perturbation.base import Embedding

__all__ = ["Embedding", "PrivateLogisticRegression"]
