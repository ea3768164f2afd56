"""The support vector machine whose solution is unique: exact, certified, and not private."""

from discreet.learn.exact_svm._model import Certificate, RegularizedSVM

__all__ = ["Certificate", "RegularizedSVM"]
