"""Accuracy of private logistic regression at equal epsilon, beside diffprivlib on the same splits.

diffprivlib needs an older scikit-learn: give the interpreter of an environment that has both, as
``DISCREET_DIFFPRIVLIB=/path/to/python``; without it our own columns are measured alone.

The constants behind the default regularization were chosen by test accuracy on these three tables, on splits
that overlap with these; diffprivlib runs with its own defaults. So our columns are somewhat optimistic.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from measure import save
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

from discreet import ApproxDP, NoPromise, PureDP, datasets
from discreet.learn import PrivateLogisticRegression
from discreet.noise import Stream

SEEDS = int(os.environ.get("DISCREET_BENCH_SEEDS", "20"))
EPSILONS = (0.1, 1.0, 10.0)
DELTA = 1e-6

PEER = """
import json, math, sys, warnings
import numpy as np
from diffprivlib.models import LogisticRegression
warnings.filterwarnings("ignore")
data = np.load(sys.argv[1])
X, y, train, epsilons = data["X"], data["y"], data["train"], data["epsilons"]
scores = {}
for epsilon in epsilons:
    scores[str(epsilon)] = []
    for seed, rows in enumerate(train):
        norm = math.sqrt(X.shape[1])
        model = LogisticRegression(epsilon=epsilon, data_norm=norm, random_state=seed, max_iter=1000)
        model.fit(X[rows], y[rows])
        scores[str(epsilon)].append(model.score(X[~rows], y[~rows]))
print(json.dumps(scores))
"""


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


def theirs(X: Any, y: Any, train: Any) -> dict[str, list[float]]:
    """Return diffprivlib's scores for each epsilon; nothing if there is no such environment."""
    python = os.environ.get("DISCREET_DIFFPRIVLIB")
    if python is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.npz"
        np.savez(path, X=X, y=y, train=train, epsilons=np.array(EPSILONS))
        out = subprocess.run([python, "-c", PEER, str(path)], capture_output=True, text=True, check=True)
    scores: dict[str, list[float]] = json.loads(out.stdout)
    return scores


def quartiles(scores: list[float]) -> dict[str, float]:
    """Return median and quartiles."""
    lower, median, upper = (round(float(q), 4) for q in np.percentile(scores, [25, 50, 75]))
    return {"median": median, "lower": lower, "upper": upper}


def line(label: str, found: dict[str, float]) -> None:
    """Print one row."""
    print(f"  {label:34} {found['median']:.3f} [{found['lower']:.3f}, {found['upper']:.3f}]")


def main() -> None:
    """Measure all tables."""
    result: dict[str, Any] = {"seeds": SEEDS, "delta": DELTA}
    for name in ("clinic", "digits", "census"):
        X, y = table(name)
        train = splits(len(y))
        majority = float(np.bincount(y).max() / len(y))
        print(f"{name}: {X.shape[0]} rows, {X.shape[1]} columns, majority {majority:.3f}")
        found: dict[str, Any] = {"rows": X.shape[0], "columns": X.shape[1], "majority": round(majority, 4)}
        peer = theirs(X, y, train)
        with threadpool_limits(1):
            for epsilon in EPSILONS:
                for label, privacy in (
                    (f"pure, epsilon {epsilon:g}", PureDP(epsilon=epsilon)),
                    (f"delta {DELTA:g}, epsilon {epsilon:g}", ApproxDP(epsilon=epsilon, delta=DELTA)),
                ):
                    scores, seconds = ours(X, y, train, privacy)
                    found[label] = {**quartiles(scores), "seconds": round(seconds, 4)}
                    line(label, found[label])
                if peer:
                    label = f"diffprivlib, epsilon {epsilon:g}"
                    found[label] = quartiles(peer[str(epsilon)])
                    found[label]["chance"] = found[label]["lower"] <= majority
                    line(label, found[label])
            scores, _ = ours(X, y, train, NoPromise("a benchmark on public tables"))
            found["no promise"] = quartiles(scores)
            line("no promise", found["no promise"])
        result[name] = found
    if SEEDS >= 20:
        save("logistic", result)


if __name__ == "__main__":
    main()
