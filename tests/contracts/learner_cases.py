"""One working example for each registered learner: whoever adds a learner adds a row to each table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import is_regressor

from discreet.learn import (
    LargeMarginGaussianClassifier,
    Learner,
    NoiseAwareClassifier,
    NoiseAwareRidge,
    PrivateClassifier,
    PrivateGradientLogistic,
    PrivateID3Classifier,
    PrivateKMeans,
    PrivateLogisticRegression,
    PrivateNaiveBayes,
    PrivatePCA,
    PrivatePerceptron,
    PrivateRidge,
    PrivateSVM,
    RegularizedSVM,
)
from discreet.noise_law import ColumnLaw, GaussianLaw, NoiseLaw, ResponseLaw
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, NoPromise, PureDP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

X = np.column_stack([np.sin(np.arange(60.0)), np.cos(3 * np.arange(60.0)), np.arange(60.0) % 7])
Y = np.where(X[:, 0] + 0.4 * X[:, 1] + 0.3 * np.sin(5 * np.arange(60.0)) > 0, "yes", "no")

# scikit-learn's checks bring labels and ranges of their own; only without a promise are labels taken as they
# come. tests/learn/logistic/test_sklearn.py runs the same checks with noise, the labels being declared.
LOGISTIC: dict[str, Any] = {"privacy": NoPromise("the rows are made up"), "norm_bound": 30.0}

EXACT: dict[str, Any] = {"privacy": NoPromise("the rows are made up")}
"""Learners on noisy sums take ranges and labels as they come for the same reason."""

NOISED: tuple[ColumnLaw, ...] = tuple(
    ColumnLaw(name=name, lower=-7.0, upper=7.0, law=GaussianLaw(variance=0.01))
    for name in ("age", "height", "day")
)
ANSWERED = ColumnLaw(
    name="answer",
    type="category",
    levels=("no", "yes"),
    role="target",
    law=ResponseLaw(levels=2, keep=0.99),
)

LEARNERS: dict[str, Callable[..., Learner]] = {
    "svm-exact": lambda **rest: RegularizedSVM(**rest),
    "logistic": lambda **rest: PrivateLogisticRegression(**{**LOGISTIC, **rest}),
    "svm": lambda **rest: PrivateSVM(**{**LOGISTIC, **rest}),
    "large-margin-gaussian": lambda **rest: LargeMarginGaussianClassifier(**{**LOGISTIC, **rest}),
    "classifier": lambda **rest: PrivateClassifier(**{**EXACT, **rest}),
    "id3": lambda **rest: PrivateID3Classifier(**{**EXACT, **rest}),
    "naive-bayes": lambda **rest: PrivateNaiveBayes(**{**EXACT, **rest}),
    "ridge": lambda **rest: PrivateRidge(**{**EXACT, **rest}),
    "gradient-logistic": lambda **rest: PrivateGradientLogistic(**{**EXACT, **rest}),
    "pca": lambda **rest: PrivatePCA(**{**EXACT, **rest}),
    "kmeans": lambda **rest: PrivateKMeans(**{**EXACT, "n_clusters": 3, **rest}),
    "perceptron": lambda **rest: PrivatePerceptron(**{**EXACT, **rest}),
    # They read published rows: without noise, and learning whatever little the checks' rows say.
    "noise-aware": lambda **rest: NoiseAwareClassifier(**{"law": "clear", "on_weak": "rank", **rest}),
    "noise-aware-ridge": lambda **rest: NoiseAwareRidge(**{"law": "clear", "on_weak": "rank", **rest}),
}
"""Learners that keep the meaning of scikit-learn's accuracy checks: private ones at a huge epsilon."""

EXPECTED_FAILURES: dict[str, Mapping[str, str]] = {
    "svm-exact": {},
    "logistic": {},
    "svm": {},
    "large-margin-gaussian": {},
    "classifier": {},
    "id3": {},
    "naive-bayes": {},
    "ridge": {},
    "gradient-logistic": {},
    "pca": {},
    "kmeans": dict.fromkeys(
        ("check_clustering", "check_clustering(readonly_memmap=True)"),
        "labels_ would keep an entry for each private row; fit_predict gives them to the curator",
    ),
    "perceptron": {},
    "noise-aware": {},
    "noise-aware-ridge": {},
}
"""scikit-learn's checks that a learner fails on purpose, with the reason."""

LARGER: dict[str, Mapping[str, Any]] = {
    "svm-exact": {"theta": 2.0, "rho": 0.5, "positive": "no"},
    "svm": {
        "privacy": ApproxDP(epsilon=3.0, delta=1e-6),
        "bounds": (-7.0, 7.0),
        "norm_bound": 2.0,
        "classes": ["no", "yes"],
        "regularization": 0.25,
        "smoothing": 0.25,
        "mechanism": "output",
        "fit_intercept": False,
        "intercept_scale": 0.5,
        "tolerance": 1e-9,
        "random_state": 1,
    },
    "logistic": {
        "privacy": ApproxDP(epsilon=3.0, delta=1e-6),
        "bounds": (-7.0, 7.0),
        "norm_bound": 2.0,
        "classes": ["no", "yes"],
        "regularization": 0.25,
        "mechanism": "output",
        "sensitivity": "worst-case",
        "fit_intercept": False,
        "intercept_scale": 0.5,
        "tolerance": 1e-9,
        "random_state": 1,
    },
    "large-margin-gaussian": {
        "privacy": ApproxDP(epsilon=3.0, delta=1e-6),
        "bounds": (-7.0, 7.0),
        "norm_bound": 2.0,
        "classes": ["no", "yes"],
        "regularization": 9.0,
        "smoothing": 0.5,
        "mechanism": "output",
        "psd": "constrained",
        "trace_weight": 0.25,
        "components": 2,
        "centroids": [[0.0, 0.5, 0.0], [0.0, -0.5, 6.0]],
        "centroid_share": 0.25,
        "intercept_scale": 0.5,
        "tolerance": 1e-4,
        "random_state": 1,
    },
    "classifier": {
        "privacy": GaussianDP(mu=2.0),
        "bounds": (-7.0, 7.0),
        "classes": ["no", "yes"],
        "edges": {"day": [1.0, 3.5]},
        "floor": False,
        "paid_score": "table",
        "random_state": 1,
    },
    "id3": {
        "privacy": GaussianDP(mu=2.0),
        "bounds": (-7.0, 7.0),
        "classes": ["no", "yes"],
        "edges": {"day": [1.0, 3.5]},
        "n_bins": 3,
        "max_depth": 2,
        "random_state": 1,
    },
    "naive-bayes": {
        "privacy": PureDP(epsilon=3.0),
        "bounds": (-7.0, 7.0),
        "classes": ["no", "yes"],
        "edges": {"day": [1.0, 3.5]},
        "n_bins": 3,
        "random_state": 1,
    },
    "ridge": {
        "privacy": ApproxDP(epsilon=3.0, delta=1e-6),
        "bounds": (-7.0, 7.0),
        "target_bounds": (-1.0, 2.0),
        "regularization": 0.5,
        "random_state": 1,
    },
    "gradient-logistic": {
        "privacy": ZCDP(rho=2.0),
        "bounds": (-7.0, 7.0),
        "classes": ["no", "yes"],
        "rounds": 3,
        "regularization": 0.5,
        "radius": 0.5,
        "random_state": 1,
    },
    "pca": {
        "n_components": 2,
        "privacy": ApproxDP(epsilon=3.0, delta=1e-6),
        "bounds": (-7.0, 7.0),
        "centered": False,
        "range_units": True,
        "radius": 0.5,
        "random_state": 1,
    },
    "kmeans": {
        "n_clusters": 2,
        "privacy": GaussianDP(mu=2.0),
        "bounds": (-7.0, 7.0),
        "max_iter": 2,
        "radius": None,
        "random_state": 1,
    },
    "perceptron": {
        "privacy": PureDP(epsilon=30.0),
        "bounds": (-7.0, 7.0),
        "classes": ["no", "yes"],
        "rounds": 3,
        "step": "constant",
        "radius": 0.5,
        "random_state": 1,
    },
    "noise-aware": {
        "law": NoiseLaw(columns=(*NOISED, ANSWERED)),
        "model": "mean",
        "rows": "noised",
        "folds": 5,
        "on_weak": "majority",
    },
    "noise-aware-ridge": {"law": NoiseLaw(columns=NOISED), "folds": 5, "on_weak": "mean"},
}
"""Parameters other than the default ones, which must survive a file."""


def labels(name: str, given: Any = Y) -> Any:
    """Return what a learner is shown beside ``X``: the labels, as numbers to those that predict a number."""
    return (Y == "yes").astype(float) if is_regressor(LEARNERS[name]()) else given
