"""Large-margin classification with one ellipsoid per class, with differential privacy.

``risk`` bounds what privacy costs. Inside, ``_problem`` states what is minimized, and ``_bounds`` how far one
row moves that, with a law of noise for several classes; ``_training`` has the public numbers, the defaults
that follow from them, and minimizers with a certificate. The mechanisms are those of
:mod:`discreet.learn.perturbation`.
"""

from discreet.learn.large_margin._model import LargeMarginGaussianClassifier
from discreet.learn.large_margin._problem import Ellipse

__all__ = ["Ellipse", "LargeMarginGaussianClassifier"]
