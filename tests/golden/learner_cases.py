"""Models that every learner fits under fixed seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import is_regressor

from discreet.learn import METHODS
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PureDP
from tests.golden._entry_points import column_law, gaussian_law, noise_law, response_law
from tests.golden.digests import of_array, of_json, rounded

if TYPE_CHECKING:
    from collections.abc import Mapping

X = np.column_stack([np.sin(np.arange(60.0)), np.cos(3 * np.arange(60.0)), np.arange(60.0) % 7])
Y = np.where(X[:, 0] + 0.4 * X[:, 1] + 0.3 * np.sin(5 * np.arange(60.0)) > 0, "yes", "no")
DECLARED: Mapping[str, Any] = {"bounds": (-7.0, 7.0), "classes": ["no", "yes"], "random_state": 1}
APPROXIMATE = ApproxDP(epsilon=3.0, delta=1e-6)


def laws() -> tuple[Any, ...]:
    """Return the noise of three published columns."""
    return tuple(
        column_law(name=name, lower=-7.0, upper=7.0, law=gaussian_law(variance=0.01))
        for name in ("age", "height", "day")
    )


def answered() -> Any:
    """Return the noise of a published label."""
    return column_law(
        name="answer",
        type="category",
        levels=("no", "yes"),
        role="target",
        law=response_law(levels=2, keep=0.99),
    )


def settings() -> dict[str, tuple[str, Mapping[str, Any], float]]:
    """Return for each case the learner, its parameters and the grid on which results are compared."""
    linear = {"privacy": APPROXIMATE, "norm_bound": 2.0, **DECLARED}
    return {
        "svm exact": ("svm-exact", {"theta": 2.0, "rho": 0.5, "positive": "no"}, 1e-6),
        "svm objective": ("svm", {**linear, "regularization": 0.25}, 1e-7),
        "svm output": (
            "svm",
            {**linear, "privacy": PureDP(epsilon=4.0), "regularization": 0.25, "mechanism": "output"},
            1e-7,
        ),
        "logistic objective": ("logistic", {**linear, "regularization": 0.25}, 1e-7),
        "logistic output": (
            "logistic",
            {**linear, "regularization": 0.25, "mechanism": "output", "fit_intercept": False},
            1e-7,
        ),
        "logistic pure": (
            "logistic",
            {**linear, "privacy": PureDP(epsilon=4.0), "regularization": 0.25},
            1e-7,
        ),
        "large margin output": (
            "large-margin-gaussian",
            {**linear, "regularization": 9.0, "mechanism": "output", "components": 2, "tolerance": 1e-9},
            1e-5,
        ),
        "large margin objective": ("large-margin-gaussian", {**linear, "regularization": 9.0}, 1e-5),
        "id3": ("id3", {"privacy": GaussianDP(mu=2.0), "n_bins": 3, "max_depth": 2, **DECLARED}, 1e-9),
        "naive bayes": ("naive-bayes", {"privacy": PureDP(epsilon=3.0), "n_bins": 3, **DECLARED}, 1e-9),
        "ridge": (
            "ridge",
            {
                "privacy": APPROXIMATE,
                "bounds": (-7.0, 7.0),
                "target_bounds": (-1.0, 2.0),
                "regularization": 0.5,
                "random_state": 1,
            },
            1e-9,
        ),
        "gradient logistic": (
            "gradient-logistic",
            {"privacy": ZCDP(rho=2.0), "rounds": 3, "regularization": 0.5, "radius": 0.5, **DECLARED},
            1e-9,
        ),
        "pca": (
            "pca",
            {"privacy": APPROXIMATE, "n_components": 2, "bounds": (-7.0, 7.0), "random_state": 1},
            1e-9,
        ),
        "pca range units": (
            "pca",
            {
                "privacy": APPROXIMATE,
                "n_components": 2,
                "bounds": (-7.0, 7.0),
                "centered": False,
                "range_units": True,
                "radius": 0.5,
                "random_state": 1,
            },
            1e-9,
        ),
        "kmeans": (
            "kmeans",
            {
                "privacy": GaussianDP(mu=2.0),
                "n_clusters": 2,
                "max_iter": 2,
                "bounds": (-7.0, 7.0),
                "random_state": 1,
            },
            1e-9,
        ),
        "perceptron": (
            "perceptron",
            {"privacy": PureDP(epsilon=30.0), "rounds": 3, "step": "constant", "radius": 0.5, **DECLARED},
            1e-9,
        ),
        "noise aware": ("noise-aware", {"law": noise_law(columns=(*laws(), answered())), "folds": 5}, 1e-7),
        "noise aware mean": (
            "noise-aware",
            {"law": noise_law(columns=(*laws(), answered())), "model": "mean", "on_weak": "majority"},
            1e-7,
        ),
        "noise aware ridge": (
            "noise-aware-ridge",
            {"law": noise_law(columns=laws()), "folds": 5, "on_weak": "mean"},
            1e-7,
        ),
    }


FITTED = (
    "coef_",
    "intercept_",
    "classes_",
    "components_",
    "explained_variance_",
    "cluster_centers_",
    "counts_",
    "dual_coef_",
    "class_log_prior_",
)
CALLED = ("predict", "predict_proba", "decision_function", "transform")


def learner_cases() -> dict[str, Any]:
    """Return digests of what every learner fits and predicts."""
    found: dict[str, Any] = {"registered learners": sorted(METHODS)}
    for case, (name, parameters, step) in settings().items():
        model = METHODS[name](**parameters)
        model.fit(X, (Y == "yes").astype(float) if is_regressor(model) else Y)
        for fitted in FITTED:
            if (value := getattr(model, fitted, None)) is not None:
                found[f"{case} {fitted}"] = of_array(value, step=step)
        for called in CALLED:
            if hasattr(model, called):
                found[f"{case} {called}"] = of_array(getattr(model, called)(X), step=step)
        if hasattr(model, "promises_"):
            found[f"{case} promises"] = of_json(rounded([p.to_dict() for p in model.promises_], 8))
        if hasattr(model, "receipts_"):
            found[f"{case} texts of receipts"] = [receipt.what for receipt in model.receipts_]
        found[f"{case} class"] = type(model).__name__
    return found
