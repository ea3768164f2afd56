"""One model for all classes beside one model for each class against all others, under the same promise.

Pathak and Raj give the cost of one-against-all as the reason for a classifier that has several classes by
nature, and measure nothing. Here both have the same promise. One-against-all trains a model for each of C
classes and predicts the class with the largest score; its models share the promise: each has epsilon / C
where it is pure, and mu / sqrt(C) where noise is Gaussian, which is what C models may spend together.

Tables, splits and norms are those of ``large_margin.py``; MNIST is a random sample of 5,000 images. Both
learners are as they come, with output perturbation, whose Gaussian noise composes exactly.

``DISCREET_BENCH_SEEDS=2`` makes a short run, which is not saved.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from large_margin import TABLES, Split
from measure import save
from peers import versions
from scipy.optimize import brentq

from discreet import ApproxDP, LargeMarginGaussianClassifier, NoPromise, PrivateLogisticRegression, PureDP
from discreet.noise import Stream
from discreet.privacy.calibration import gaussian_mu

if TYPE_CHECKING:
    from discreet._types import Floats

SEEDS = int(os.environ.get("DISCREET_BENCH_SEEDS", "5"))
EPSILONS = (1.0, 3.0, 10.0)
DELTA = 1e-5
SAMPLE = 5_000
NAMES = ("waveform", "segment", "digits-8", "mnist-25")
LEARNERS: dict[str, type[Any]] = {
    "logistic": PrivateLogisticRegression,
    "large-margin-gaussian": LargeMarginGaussianClassifier,
}


def load_split(name: str, seed: int) -> Split:
    """Return a table; of MNIST a sample."""
    split = TABLES[name](seed)
    if len(split.X) <= 2 * SAMPLE:
        return split
    chosen = Stream.from_seed(seed).generator().permutation(len(split.X))[:SAMPLE]
    return replace(split, X=split.X[chosen], y=split.y[chosen])


def share_promise(privacy: Any, n: int) -> Any:
    """Return what each of n models may promise so that all together keep a promise."""
    if isinstance(privacy, PureDP):
        return PureDP(epsilon=privacy.epsilon / n)
    if isinstance(privacy, ApproxDP):
        part = gaussian_mu(privacy.epsilon, privacy.delta) / math.sqrt(n)
        low = brentq(lambda e: gaussian_mu(e, privacy.delta) - part, 1e-6, privacy.epsilon)
        return ApproxDP(epsilon=low, delta=privacy.delta)
    return privacy


def train(learner: type[Any], split: Split, y: Any, classes: int, privacy: Any, seed: int) -> Any:
    """Return a model of some classes of a table."""
    rest = {} if isinstance(privacy, NoPromise) else {"mechanism": "output"}
    return learner(
        privacy=privacy, bounds=split.bounds, norm_bound=None if split.bounds else split.norm,
        classes=range(classes), random_state=seed, **rest,
    ).fit(split.X, y)  # fmt: skip


def score_one(learner: type[Any], split: Split, privacy: Any, seed: int) -> float:
    """Return the accuracy of one model of all classes."""
    return float(
        train(learner, split, split.y, split.classes, privacy, seed).score(split.X_test, split.y_test)
    )


def score_all(learner: type[Any], split: Split, privacy: Any, seed: int) -> float:
    """Return the accuracy of a model for each class against all others, which share the promise."""
    part = share_promise(privacy, split.classes)
    scores: list[Floats] = []
    for label in range(split.classes):
        model = train(learner, split, (split.y == label).astype(int), 2, part, 1000 * seed + label)
        scores.append(np.ravel(model.decision_function(split.X_test)))
    return float(np.mean(np.argmax(scores, axis=0) == split.y_test))


def measure_table(name: str) -> dict[str, Any]:
    """Measure both ways with both learners on one table."""
    splits = [load_split(name, seed) for seed in range(SEEDS)]
    first = splits[0]
    found: dict[str, Any] = {
        "rows": len(first.X), "columns": first.X.shape[1], "classes": first.classes, "seeds": SEEDS,
        "majority": round(float(np.bincount(first.y_test).max() / len(first.y_test)), 4),
    }  # fmt: skip
    print(f"{name}: {found['rows']} rows, {found['columns']} columns, {found['classes']} classes", flush=True)
    promises: dict[str, Any] = {"no promise": NoPromise("a benchmark on public tables")}
    for epsilon in EPSILONS:
        promises[f"delta, epsilon {epsilon:g}"] = ApproxDP(epsilon=epsilon, delta=DELTA)
        promises[f"pure, epsilon {epsilon:g}"] = PureDP(epsilon=epsilon)
    for label, learner in LEARNERS.items():
        for text, privacy in promises.items():
            line = {}
            for way, measure in (("one model", score_one), ("one against all", score_all)):
                start = time.process_time()
                scores = [measure(learner, split, privacy, seed) for seed, split in enumerate(splits)]
                line[way] = {
                    "mean": round(float(np.mean(scores)), 4),
                    "sd": round(float(np.std(scores)), 4),
                    "seconds": round((time.process_time() - start) / SEEDS, 3),
                }
            found[f"{label}, {text}"] = line
            shown = ", ".join(
                f"{w['mean']:.3f} ± {w['sd']:.3f} in {w['seconds']:.2f} s" for w in line.values()
            )
            print(f"  {label:22} {text:20} {shown}", flush=True)
    return found


def main() -> None:
    """Measure all tables, and save the results of a whole run."""
    found = {name: measure_table(name) for name in NAMES}
    if SEEDS >= 5:
        save("one_against_all", {"accuracy": found, "delta": DELTA, "versions": versions()})


if __name__ == "__main__":
    main()
