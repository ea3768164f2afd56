"""Classes as ellipsoids with a margin between them, and a promise to whoever they are learned from.

``squares`` has the coordinates of symmetric matrices; ``problem`` states what is minimized and ``solver``
minimizes it with a certificate; ``sensitivity`` says how far one row moves that, ``noise`` has a law of its
own for several classes, ``output`` and ``objective`` are the two families of mechanisms, ``defaults`` chooses
without looking at a row; ``gaussians`` reads ellipsoids out of matrices, ``risk`` bounds what privacy costs;
``model`` is what people use.
"""

from discreet.learn.large_margin._model import LargeMarginGaussianClassifier
from discreet.learn.large_margin._problem import Ellipse

__all__ = ["Ellipse", "LargeMarginGaussianClassifier"]
