"""The classifier that is trained where no model is named: an additive model that follows public rules.

``_rules`` decides by public facts which stages run, on which cells and for which shares; ``_curves`` makes
step curves from noisy counts; ``_model`` is the estimator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.lazy_names import load_on_use

if TYPE_CHECKING:
    from discreet.learn.classifier._curves import Curve
    from discreet.learn.classifier._model import PrivateClassifier
    from discreet.learn.paid_score import ModelScore


__all__ = ["Curve", "ModelScore", "PrivateClassifier"]

__getattr__ = load_on_use(
    __name__,
    {
        "_curves": ("Curve",),
        "_model": ("PrivateClassifier",),
    },
)
