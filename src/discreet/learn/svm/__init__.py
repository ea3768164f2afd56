"""The smooth support vector machine with differential privacy, by perturbation of its objective or minimizer.

``loss`` has the Huberized hinge and the constants that follow from it; ``problem`` states what is minimized;
``constants`` puts them together for the mechanisms of :mod:`discreet.learn.perturbation`. The exact machine
of the invariant release is :mod:`discreet.learn.exact_svm`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.lazy_names import load_on_use

if TYPE_CHECKING:
    from discreet.learn.svm._model import PrivateSVM
    from discreet.learn.svm.loss import SMOOTHING


__all__ = ["SMOOTHING", "PrivateSVM"]

__getattr__ = load_on_use(
    __name__,
    {
        "_model": ("PrivateSVM",),
        "loss": ("SMOOTHING",),
    },
)
