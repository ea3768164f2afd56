"""The support vector machine whose solution is unique: exact, certified, and not private.

``problem`` states what is solved, ``solver`` and ``active_set`` solve it, ``model`` is what people use.
"""

from discreet.learn.svm._model import Certificate, RegularizedSVM

__all__ = ["Certificate", "RegularizedSVM"]
