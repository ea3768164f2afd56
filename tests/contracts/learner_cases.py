"""One working example for each registered learner: whoever adds a learner adds a row to each table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.learn import Learner, RegularizedSVM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

X = np.column_stack([np.sin(np.arange(60.0)), np.cos(3 * np.arange(60.0)), np.arange(60.0) % 7])
Y = np.where(X[:, 0] + 0.4 * X[:, 1] + 0.3 * np.sin(5 * np.arange(60.0)) > 0, "yes", "no")

LEARNERS: dict[str, Callable[..., Learner]] = {
    "svm": lambda **rest: RegularizedSVM(**rest),
}
"""Learners that keep the meaning of scikit-learn's accuracy checks: private ones at a huge epsilon."""

EXPECTED_FAILURES: dict[str, Mapping[str, str]] = {
    "svm": {},
}
"""scikit-learn's checks that a learner fails on purpose, with the reason."""

LARGER: dict[str, Mapping[str, Any]] = {
    "svm": {"theta": 2.0, "rho": 0.5, "positive": "no"},
}
"""Parameters other than the default ones, which must survive a file."""
