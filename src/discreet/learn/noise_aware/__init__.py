"""Learning from a noised table with its noise law: post-processing that costs no privacy.

``rows`` reads published rows and encodes labels; ``_blocks`` has the coordinates of each column, and
``_coordinates`` debiases those of all; ``_moments`` sums products of rows and corrects them for the noise;
``estimators`` computes weights from corrected moments and tests whether they mean anything; ``_learners``
has the learners, and ``base`` what they share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.lazy_names import load_on_use

if TYPE_CHECKING:
    from discreet.learn.noise_aware._learners import NoiseAwareClassifier, NoiseAwareRidge


__all__ = ["NoiseAwareClassifier", "NoiseAwareRidge"]

__getattr__ = load_on_use(
    __name__,
    {
        "_learners": ("NoiseAwareClassifier", "NoiseAwareRidge"),
    },
)
