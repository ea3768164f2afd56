"""The smooth support vector machine with differential privacy, by perturbation of its objective or minimizer.

``loss`` has the Huberized hinge and the constants that follow from it; ``problem`` states what is minimized;
``constants`` puts them together for the mechanisms of :mod:`discreet.learn.perturbation`. The exact machine
of the invariant release is :mod:`discreet.learn.exact_svm`.
"""

from discreet.learn.svm._model import SMOOTHING, PrivateSVM

__all__ = ["SMOOTHING", "PrivateSVM"]
