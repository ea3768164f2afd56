"""Accuracy of private logistic regression at equal epsilon, beside diffprivlib on the same splits.

Ours has its default settings, in which the regularization follows from the number of rows, columns and
classes and from the promise; its constants were chosen on other tables (benchmarks/logistic_constants.py).
diffprivlib has its own defaults and runs as benchmarks/peers.py says. Both are told the same bounds.
"""

from __future__ import annotations

import math
import os
import time
from typing import Any

import numpy as np
import pandas as pd
from measure import save
from peers import Peer, versions
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

from discreet import ApproxDP, NoPromise, PureDP, datasets
from discreet.learn import PrivateLogisticRegression
from discreet.noise import Stream

SEEDS = int(os.environ.get("DISCREET_BENCH_SEEDS", "20"))
EPSILONS = (0.1, 1.0, 10.0)
DELTA = 1e-6
CLEAR = 0.02
"""Accuracy by which the median at epsilon 1 with a delta must be above diffprivlib's, where there is room."""


def table(name: str) -> tuple[Any, Any]:
    """Return a table as a matrix in [-1, 1], mapped by declared bounds, and its classes as integers."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return X / 8 - 1, y
    bundled = datasets.load(name)
    frame, schema = pd.read_parquet(bundled.path), bundled.schema
    columns = []
    for column in schema.features:
        values = frame[column.name]
        if column.is_number:
            lower, upper = column.range
            columns.append(2 * (values.to_numpy(float).clip(lower, upper) - lower) / (upper - lower) - 1)
        elif column.name == "native_country":
            columns.append(2.0 * (values == "United-States").to_numpy() - 1)
        else:
            columns += [
                2.0 * (values.isna() if level is None else values == level).to_numpy() - 1
                for level in column.levels
            ]
    return np.column_stack(columns), np.unique(frame[schema.target], return_inverse=True)[1]


def splits(n: int) -> Any:
    """Return for each seed which four fifths of the rows are for training."""
    order = [Stream.from_seed(seed).generator().permutation(n) for seed in range(SEEDS)]
    return np.array([places < int(0.8 * n) for places in order])


def ours(X: Any, y: Any, train: Any, privacy: Any) -> tuple[list[float], float]:
    """Return the scores of the learner as it comes, and the mean processor time of a fit."""
    scores, start = [], time.process_time()
    for seed, rows in enumerate(train):
        model = PrivateLogisticRegression(
            privacy=privacy, bounds=(-1, 1), classes=range(int(y.max()) + 1), random_state=seed
        ).fit(X[rows], y[rows])
        scores.append(float(model.score(X[~rows], y[~rows])))
    return scores, (time.process_time() - start) / len(train)


def theirs(peer: Peer, name: str, X: Any, y: Any, train: Any) -> dict[float, list[float]]:
    """Return diffprivlib's scores for each epsilon; a fit that takes too long scores nothing."""
    scores: dict[float, list[float]] = {epsilon: [] for epsilon in EPSILONS}
    side = np.ones(X.shape[1])
    for seed, rows in enumerate(train):
        table = peer.table(
            f"{name} {seed}", X=X[rows], y=y[rows], X_test=X[~rows], y_test=y[~rows], lower=-side, upper=side,
            classes=int(y.max()) + 1,
        )  # fmt: skip
        for epsilon in EPSILONS:
            job = {
                "model": "logistic regression", "table": table, "epsilon": epsilon, "seed": seed,
                "norm": math.sqrt(X.shape[1]),
            }  # fmt: skip
            found = peer.fit(job)
            scores[epsilon].append(0.0 if found is None else float(found["found"]))
    return scores


def quartiles(scores: list[float]) -> dict[str, float]:
    """Return median and quartiles."""
    lower, median, upper = (round(float(q), 4) for q in np.percentile(scores, [25, 50, 75]))
    return {"median": median, "lower": lower, "upper": upper}


def line(label: str, found: dict[str, float]) -> None:
    """Print one row."""
    print(f"  {label:34} {found['median']:.3f} [{found['lower']:.3f}, {found['upper']:.3f}]")


def measure(peer: Peer, name: str) -> dict[str, Any]:
    """Measure one table."""
    X, y = table(name)
    train = splits(len(y))
    majority = float(np.bincount(y).max() / len(y))
    print(f"{name}: {X.shape[0]} rows, {X.shape[1]} columns, majority {majority:.3f}", flush=True)
    found: dict[str, Any] = {"rows": X.shape[0], "columns": X.shape[1], "majority": round(majority, 4)}
    other = theirs(peer, name, X, y, train)
    with threadpool_limits(1):
        for epsilon in EPSILONS:
            for label, privacy in (
                (f"pure, epsilon {epsilon:g}", PureDP(epsilon=epsilon)),
                (f"delta {DELTA:g}, epsilon {epsilon:g}", ApproxDP(epsilon=epsilon, delta=DELTA)),
            ):
                scores, seconds = ours(X, y, train, privacy)
                found[label] = {**quartiles(scores), "seconds": round(seconds, 4)}
                line(label, found[label])
            label = f"diffprivlib, epsilon {epsilon:g}"
            found[label] = quartiles(other[epsilon])
            found[label]["chance"] = found[label]["lower"] <= majority
            line(label, found[label])
        scores, _ = ours(X, y, train, NoPromise("a benchmark on public tables"))
        found["no promise"] = quartiles(scores)
        line("no promise", found["no promise"])
    return found


def bars(found: dict[str, Any]) -> dict[str, bool]:
    """Say of one table which bars are met: medians, where diffprivlib is better than the larger class."""
    met = {}
    for epsilon in EPSILONS:
        peer = found[f"diffprivlib, epsilon {epsilon:g}"]
        if not peer["chance"]:
            mine = found[f"pure, epsilon {epsilon:g}"]
            met[f"pure at {epsilon:g} is at least diffprivlib"] = mine["median"] >= peer["median"]
    mine, peer = found[f"delta {DELTA:g}, epsilon 1"], found["diffprivlib, epsilon 1"]
    best = found["no promise"]["median"]
    # Two points, or half of what there is to gain where that is less.
    clear = min(CLEAR, (best - peer["median"]) / 2)
    met[f"delta {DELTA:g} at 1 is clearly above"] = mine["median"] >= peer["median"] + clear
    return met


def main() -> None:
    """Measure all tables."""
    with Peer() as peer:
        result: dict[str, Any] = {"seeds": SEEDS, "delta": DELTA, "versions": {**versions(), **peer.versions}}
        for name in ("clinic", "digits", "census"):
            result[name] = measure(peer, name)
            result[name]["bars"] = bars(result[name])
            for what, met in result[name]["bars"].items():
                print(f"  {'met' if met else 'NOT MET'}: {what}", flush=True)
    if SEEDS >= 20:
        save("logistic", result)


if __name__ == "__main__":
    main()
