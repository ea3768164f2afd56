"""The private support vector machine beside private logistic regression, at three epsilon and smoothings.

Accuracy on a fifth of the rows, drawn anew for each of five seeds, each with five draws of noise; on the
census the rows that its publishers kept away, with five draws. The promise is (epsilon, 1e-6), replace-one.
Both learners have their defaults, and rows as ``classifier_tables.py`` declares them. "vote" names the class
that is most common among the training rows. Tables that are missing in ``DISCREET_DATA`` are left out.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from classifier_tables import TABLES
from measure import save

from discreet import ApproxDP, PrivateLogisticRegression, PrivateSVM

if TYPE_CHECKING:
    from collections.abc import Callable

    from sulq_tables import Table

NAMES = ("pima", "breast", "australian", "german", "abalone", "adult", "heart", "wdbc", "waveform", "segment")
EPSILONS = (0.1, 1.0, 10.0)
SPLITS, DRAWS = 5, 5
LEARNERS: dict[str, Callable[..., Any]] = {
    "logistic": PrivateLogisticRegression,
    "svm 0.1": lambda **given: PrivateSVM(smoothing=0.1, **given),
    "svm 0.5": PrivateSVM,
    "svm 1": lambda **given: PrivateSVM(smoothing=1.0, **given),
}


def measure(table: Table) -> dict[str, Any]:
    """Return mean accuracies and their standard errors over splits, by epsilon and learner."""
    levels = sorted(table.schema.column(table.target).levels)
    codes = {level: code for code, level in enumerate(levels)}
    found: dict[str, dict[str, list[list[float]]]] = {f"{e:g}": {n: [] for n in LEARNERS} for e in EPSILONS}
    votes, seconds = [], dict.fromkeys(LEARNERS, 0.0)
    for split in range(1 if table.training else SPLITS):
        train, test = table.split(split)
        X, _, norm = table.vectors(train)
        X_test = table.vectors(test)[0]
        y, y_test = (rows[table.target].map(codes).to_numpy() for rows in (train, test))
        votes.append(float(np.mean(y_test == np.bincount(y).argmax())))
        for epsilon in EPSILONS:
            for name, make in LEARNERS.items():
                scores = []
                for draw in range(DRAWS):
                    model = make(
                        privacy=ApproxDP(epsilon=epsilon, delta=1e-6), norm_bound=norm,
                        classes=range(len(levels)), random_state=1000 * split + draw,
                    )  # fmt: skip
                    started = time.process_time()
                    model.fit(X, y)
                    seconds[name] += time.process_time() - started
                    scores.append(float(model.score(X_test, y_test)))
                found[f"{epsilon:g}"][name].append(scores)
    accuracy = {
        epsilon: {name: round(float(np.mean(scores)), 4) for name, scores in by_name.items()}
        for epsilon, by_name in found.items()
    }
    errors = {
        epsilon: {name: standard_error(scores) for name, scores in by_name.items()}
        for epsilon, by_name in found.items()
    }
    fits = len(EPSILONS) * DRAWS * len(votes)
    return {
        "vote": round(float(np.mean(votes)), 4),
        "accuracy": accuracy,
        "standard error": errors,
        "seconds per fit": {name: round(total / fits, 4) for name, total in seconds.items()},
    }


def standard_error(scores: list[list[float]]) -> float:
    """Return that of the mean, from the spread over splits, or over draws where there is one split."""
    means = np.array(scores[0]) if len(scores) == 1 else np.array(scores).mean(axis=1)
    return round(float(np.std(means, ddof=1) / np.sqrt(len(means))), 4)


def main() -> None:
    """Measure all tables that are there, print and save."""
    result: dict[str, Any] = {}
    for name in NAMES:
        try:
            table = TABLES[name]()
        except FileNotFoundError as problem:
            print(f"{name} is left out: {problem.filename} is not there.")
            continue
        result[name] = measure(table)
        for epsilon, scores in result[name]["accuracy"].items():
            shown = "  ".join(f"{learner} {value:.3f}" for learner, value in scores.items())
            print(f"{name:>11} {epsilon:>4}  {shown}", flush=True)
    ahead = [
        scores["svm 0.5"] - scores["logistic"]
        for table in result.values()
        for scores in table["accuracy"].values()
    ]
    print(f"svm at least as good as logistic in {sum(a >= 0 for a in ahead)} of {len(ahead)}, "
          f"mean difference {np.mean(ahead):+.4f}")  # fmt: skip
    save("svm", result)


if __name__ == "__main__":
    main()
