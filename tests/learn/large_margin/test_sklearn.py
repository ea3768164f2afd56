"""scikit-learn's checks of the private learner, with noise at an epsilon that leaves accuracy a meaning."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from discreet.learn import LargeMarginGaussianClassifier
from discreet.privacy import ApproxDP, PureDP

MECHANISMS: tuple[dict[str, Any], ...] = ({}, {"mechanism": "output"})
EXPECTED_FAILURES: dict[str, str] = {}
"""Checks that a noisy learner fails on purpose, with the reason."""


class LabelsDeclared(LargeMarginGaussianClassifier):
    """The learner of somebody who knows the labels of scikit-learn's made-up tables."""

    def fit(self, X: Any, y: Any) -> Self:
        given = self.classes
        labels = np.asarray(y)
        if labels.ndim <= 2 and labels.size and labels.dtype.kind != "c" and np.all(labels == labels):
            found = np.unique(labels)
            # Where a table shows one label, what it could have shown besides is anybody's guess.
            self.classes = found if len(found) > 1 else [0, 1] if found[0] in (0, 1) else None
        try:
            return super().fit(X, y)
        finally:
            self.classes = given


@pytest.mark.slow
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        LabelsDeclared(privacy=privacy, norm_bound=5.0, random_state=1, **rest)
        for privacy in (PureDP(epsilon=30.0), ApproxDP(epsilon=60.0, delta=0.1))
        for rest in MECHANISMS
    ],
    expected_failed_checks=lambda _: EXPECTED_FAILURES,
)
def test_scikit_learn_accepts_the_noisy_learner_as_one_of_its_own(estimator: Any, check: Any) -> None:
    check(estimator)
