"""Logistic regression with differential privacy, by perturbation of its objective or its minimizer.

``problem`` states what is minimized and minimizes it with a certificate; ``sensitivity`` says how far one row
moves the minimizer; ``constants`` has the public numbers and the defaults that follow from them;
``utility`` bounds what privacy costs. The mechanisms are those of :mod:`discreet.learn.perturbation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.lazy_names import load_on_use
from discreet.learn.perturbation.embedding import Embedding

if TYPE_CHECKING:
    from discreet.learn.logistic._model import PrivateLogisticRegression

__all__ = ["Embedding", "PrivateLogisticRegression"]

__getattr__ = load_on_use(
    __name__,
    {
        "_model": ("PrivateLogisticRegression",),
    },
)
