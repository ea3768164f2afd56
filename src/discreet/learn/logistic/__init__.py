"""Logistic regression that one person's row moves by no more than was promised.

``embedding`` carries rows into the unit ball by public constants; ``problem`` states what is minimized and
``solver`` minimizes it with a certificate; ``sensitivity`` says how far one row moves the minimizer,
``vector`` hides a vector of coefficients on the lattice, ``output`` and ``objective`` are the two families
of mechanisms, ``defaults`` chooses between them without looking at a row; ``model`` is what people use.
"""

from discreet.learn.logistic.embedding import Embedding
from discreet.learn.logistic.model import PrivateLogisticRegression

__all__ = ["Embedding", "PrivateLogisticRegression"]
