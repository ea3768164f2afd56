"""What learners get from masked data: trained on points that carry one classifier, tested on true rows.

Masked points hold the released logistic regression and nothing else about the table. Other learners find its
rule again, more or less well; what they would have found in the true rows beyond it is not there.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from logistic import splits, table
from measure import save
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from discreet import ApproxDP, NoPromise
from discreet.learn.perturbation.embedding import Embedding
from discreet.release import MaskedRelease

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = int(os.environ.get("DISCREET_BENCH_SEEDS", "5"))
MOST_ROWS = 4000
PROMISES: dict[str, Any] = {
    "no noise": NoPromise("what the construction alone does"),
    "epsilon 4, delta 1e-06": ApproxDP(epsilon=4, delta=1e-6),
}
LEARNERS: dict[str, Callable[[float, int], Any]] = {
    # The published one: with the penalty that goes with the points, it is the released classifier.
    "logistic regression": lambda penalty, n: LogisticRegression(
        C=1 / (penalty * n), fit_intercept=False, tol=1e-8, max_iter=5000
    ),
    "tree": lambda penalty, n: DecisionTreeClassifier(random_state=0),
    "forest": lambda penalty, n: RandomForestClassifier(100, random_state=0),
    "SVM": lambda penalty, n: SVC(C=10.0),
}


def measure(name: str) -> dict[str, Any]:
    """Return the mean accuracy of each learner on true rows, by what it was trained on."""
    X, y = table(name)
    some = np.linspace(0, len(y) - 1, min(len(y), MOST_ROWS)).astype(int)
    X, y = X[some], y[some]
    d, classes = X.shape[1], sorted(set(y.tolist()))
    embedding = Embedding.declare(
        d, bounds=(-1, 1), norm_bound=math.sqrt(d), constant=None, owner="benchmark"
    )
    scores: dict[str, dict[str, list[float]]] = {}
    for seed, rows in enumerate(splits(len(y))[:SEEDS]):
        test = embedding.rows(X[~rows]), y[~rows]
        for promise, privacy in PROMISES.items():
            method = MaskedRelease(
                privacy=privacy, bounds=(-1, 1), norm_bound=math.sqrt(d), classes=classes, fit_intercept=True,
                random_state=seed,
            )  # fmt: skip
            made = method.release(X[rows], y[rows])
            assert method.regularization_ is not None
            sides = {promise: (np.asarray(made.data), np.asarray(made.target))}
            if promise == "no noise":
                sides["true rows"] = embedding.rows(X[rows]), y[rows]
            for side, (points, labels) in sides.items():
                for learner, make in LEARNERS.items():
                    model = make(method.regularization_, len(labels)).fit(points, labels)
                    scores.setdefault(side, {}).setdefault(learner, []).append(float(model.score(*test)))
    return {
        side: {learner: round(float(np.mean(found)), 4) for learner, found in learners.items()}
        for side, learners in scores.items()
    }


def main() -> None:
    """Measure, print and save."""
    result: dict[str, Any] = {"seeds": SEEDS}
    with threadpool_limits(1):
        for name in ("clinic", "census", "digits"):
            result[name] = measure(name)
            print(name)
            for side, learners in result[name].items():
                print(f"  {side:24}", "  ".join(f"{k} {v:.3f}" for k, v in learners.items()), flush=True)
    if SEEDS >= 5:
        save("masked_learners", result)


if __name__ == "__main__":
    main()
