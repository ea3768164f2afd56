"""Large-margin classification with one ellipsoid per class, with differential privacy.

``risk`` bounds what privacy costs. Inside, ``_problem`` states what is minimized and ``_solver`` minimizes it
with a certificate; ``_bounds`` says how far one row moves that and has a law of noise for several classes;
``_constants`` has the public numbers and the defaults that follow from them. The mechanisms are those of
:mod:`discreet.learn.perturbation`.
"""

from discreet.learn.large_margin._model import LargeMarginGaussianClassifier
from discreet.learn.large_margin._problem import Ellipse

__all__ = ["Ellipse", "LargeMarginGaussianClassifier"]
