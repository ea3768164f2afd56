"""The large-margin Gaussian classifier: accuracy beside diffprivlib, speed beside an SDP solver, cost.

``accuracy``: the learner as it comes, its defaults following from the number of rows, columns and classes and
from the promise. They were chosen on segment, waveform, made-up rows and a sample of MNIST; figures of these
are somewhat optimistic, those of the clinic and digits tables are not. Ranges are round constants, the
principal axes and the norms that go with them come from rows that are public and used for nothing else.
diffprivlib promises (epsilon, 0) and gets the same splits, ranges and norms. ``speed``: cvxpy with SCS on the
same problem, to the same objective. ``rows``: time and memory at 15, 30 and 60 thousand rows, 50 columns, 10
classes.

``large_margin.py accuracy digits-25`` measures one part, or one table, and keeps the rest of the results.
``DISCREET_BENCH_SEEDS=2`` makes a short run, which is not saved. Segment, waveform and MNIST are read from
the folder named by ``DISCREET_DATA``, by default ``shared/data`` beside the repository.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import json
import multiprocessing
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from measure import RESULTS, peak_memory_mb, save
from peers import Peer, versions
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from discreet import ApproxDP, LargeMarginGaussianClassifier, NoPromise, PureDP, datasets
from discreet.learn.large_margin._problem import MarginProblem
from discreet.learn.large_margin._training import (
    LargeMarginConstants,
    accelerated_projection,
    make_large_margin_plan,
    minimize,
)
from discreet.learn.perturbation.embedding import Embedding
from discreet.noise import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import Floats, Ints

SEEDS = int(os.environ.get("DISCREET_BENCH_SEEDS", "20"))
LARGE_SEEDS = min(SEEDS, 3)
EPSILONS = (1.0, 3.0, 10.0)
DELTA = 1e-5
DATA = Path(os.environ.get("DISCREET_DATA", Path(__file__).parents[2] / "shared" / "data"))
BARS = {
    "digits-8": {"objective, delta, epsilon 3": 0.815, "output, delta, epsilon 3": 0.763},
    "digits-25": {"objective, pure, epsilon 10": 0.727, "output, pure, epsilon 10": 0.525},
}
"""Mean accuracies to reach."""
SEGMENT = {
    "region_centroid_col": (0, 255), "region_centroid_row": (0, 255), "short_line_density_5": (0, 0.5),
    "short_line_density_2": (0, 0.5), "vedge_mean": (0, 30), "vedge_sd": (0, 100), "hedge_mean": (0, 50),
    "hedge_sd": (0, 100), "intensity_mean": (0, 150), "rawred_mean": (0, 150), "rawblue_mean": (0, 150),
    "rawgreen_mean": (0, 150), "exred_mean": (-50, 10), "exblue_mean": (-10, 90), "exgreen_mean": (-35, 25),
    "value_mean": (0, 150), "saturation_mean": (0, 1), "hue_mean": (-3.2, 3.2),
}  # fmt: skip


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows to test on, with what was declared about them."""

    X: Floats
    y: Ints
    X_test: Floats
    y_test: Ints
    bounds: tuple[Floats, Floats] | None
    norm: float
    classes: int
    box: tuple[Floats, Floats] | None = None
    """For a peer that needs ranges where a norm was declared: the extremes of the public rows."""

    def score(self, seed: int, privacy: Any, **rest: Any) -> float:
        """Return the accuracy of a model with the noise of one seed."""
        model = LargeMarginGaussianClassifier(
            privacy=privacy,
            bounds=self.bounds,
            norm_bound=None if self.bounds else self.norm,
            classes=range(self.classes),
            random_state=seed,
            **rest,
        ).fit(self.X, self.y)
        return float(model.score(self.X_test, self.y_test))

    def handed_over(self) -> dict[str, Any]:
        """Return rows as the peer gets them: in [-1, 1], or inside the declared norm."""
        rows = self.X, self.X_test
        if self.bounds is None:
            assert self.box is not None
            lower, upper = self.box
            norms = [np.linalg.norm(X, axis=1, keepdims=True).clip(1e-9) for X in rows]
            rows = tuple(X * np.minimum(1, self.norm / norm) for X, norm in zip(rows, norms, strict=True))
        else:
            low, high = self.bounds
            lower, upper = -np.ones(len(low)), np.ones(len(low))
            rows = tuple(2 * (np.clip(X, low, high) - low) / (high - low) - 1 for X in rows)
        return {
            "X": rows[0], "y": self.y, "X_test": rows[1], "y_test": self.y_test,
            "lower": lower, "upper": upper, "classes": self.classes,
        }  # fmt: skip


def _parted(X: Floats, y: Ints, seed: int, bounds: tuple[Floats, Floats]) -> Split:
    order = Stream.from_seed(seed).generator().permutation(len(X))
    test, train = order[: len(X) // 5], order[len(X) // 5 :]
    return Split(X[train], y[train], X[test], y[test], bounds, float(np.sqrt(X.shape[1])), int(y.max()) + 1)


def _clinic() -> tuple[Floats, Ints, tuple[Floats, Floats]]:
    bundled = datasets.load("clinic")
    frame, schema = pd.read_parquet(bundled.path), bundled.schema
    names = [column.name for column in schema.features]
    low, high = (np.array([c.range[i] for c in schema.features], float) for i in (0, 1))
    y = np.unique(frame[schema.target], return_inverse=True)[1]
    return frame[names].to_numpy(float), y, (low, high)


def clinic(seed: int) -> Split:
    """Return the breast cancer table with the ranges of its bundled schema."""
    X, y, bounds = _clinic()
    return _parted(X, y, seed, bounds)


def clinic_axes(seed: int) -> Split:
    """Return the same on 8 principal axes of 100 public rows, in units of the declared ranges."""
    X, y, (low, high) = _clinic()
    return _on_axes((X - low) / (high - low), y, seed, 8, public=100, train=369)


def digits(dimension: int) -> Callable[[int], Split]:
    """Return scikit-learn's digits on principal axes of 400 public rows; 997 rows train, 400 test."""

    def split(seed: int) -> Split:
        X, y = load_digits(return_X_y=True)
        return _on_axes(X, y, seed, dimension, public=400, train=997)

    return split


def _on_axes(X: Floats, y: Ints, seed: int, dimension: int, *, public: int, train: int) -> Split:
    order = Stream.from_seed(seed).generator().permutation(len(X))
    known, own, test = order[:public], order[public : public + train], order[public + train :]
    Z = PCA(dimension, svd_solver="full").fit(X[known]).transform(X)
    norm = float(np.quantile(np.linalg.norm(Z[known], axis=1), 0.95))
    box = Z[known].min(axis=0), Z[known].max(axis=0)
    return Split(Z[own], y[own], Z[test], y[test], None, norm, int(y.max()) + 1, box)


def segment(seed: int) -> Split:
    """Return image segments with round ranges; one column is constant and left out."""
    frame = pd.read_parquet(DATA / "segment.parquet")
    columns = [name for name in frame.columns if name not in ("class", "split", "region_pixel_count")]
    low, high = (np.array([SEGMENT[name][i] for name in columns], float) for i in (0, 1))
    y = np.unique(frame["class"], return_inverse=True)[1]
    return _parted(frame[columns].to_numpy(float), y, seed, (low, high))


def waveform(seed: int) -> Split:
    """Return the waveform table; every column from -5 to 10."""
    frame = pd.read_parquet(DATA / "waveform.parquet")
    X = frame.drop(columns="class").to_numpy(float)
    bounds = (np.full(X.shape[1], -5.0), np.full(X.shape[1], 10.0))
    return _parted(X, frame["class"].to_numpy(int), seed, bounds)


def mnist(seed: int) -> Split:
    """Return MNIST on 25 principal axes of its first 2,000 images, which are public, for any seed."""
    found = {}
    for part in ("train", "test"):
        frame = pd.read_parquet(DATA / f"mnist_{part}.parquet")
        pixels = np.frombuffer(b"".join(frame["image"]), np.uint8).reshape(len(frame), -1)
        found[part] = pixels.astype(np.float32) / 255, frame["label"].to_numpy(int)
    (X, y), (X_test, y_test) = found["train"], found["test"]
    axes = PCA(25, svd_solver="full").fit(X[:2000])
    Z, Z_test = axes.transform(X).astype(float), axes.transform(X_test).astype(float)
    norm = float(np.quantile(np.linalg.norm(Z[:2000], axis=1), 0.95))
    box = Z[:2000].min(axis=0), Z[:2000].max(axis=0)
    return Split(Z[2000:], y[2000:], Z_test, y_test, None, norm, 10, box)


TABLES: dict[str, Callable[[int], Split]] = {
    "clinic": clinic,
    "clinic-8": clinic_axes,
    "digits-8": digits(8),
    "digits-25": digits(25),
    "segment": segment,
    "waveform": waveform,
    "mnist-25": mnist,
}


def accuracy_of(name: str, peer: Peer) -> dict[str, Any]:
    """Measure one table."""
    large = name == "mnist-25"
    seeds = LARGE_SEEDS if large else SEEDS
    splits = [TABLES[name](0)] * seeds if large else [TABLES[name](seed) for seed in range(seeds)]
    first = splits[0]
    found: dict[str, Any] = {
        "rows": len(first.X), "columns": first.X.shape[1], "classes": first.classes, "seeds": seeds,
        "majority": round(float(np.bincount(first.y_test).max() / len(first.y_test)), 4),
    }  # fmt: skip
    print(f"{name}: {found['rows']} rows to train on, {found['columns']} columns", flush=True)

    def note(label: str, scores: list[float]) -> None:
        mean, spread = float(np.mean(scores)), float(np.std(scores))
        found[label] = {
            "mean": round(mean, 4),
            "sd": round(spread, 4),
            "median": round(float(np.median(scores)), 4),
        }
        bar = BARS.get(name, {}).get(label)
        print(f"  {label:34} {mean:.3f} ± {spread:.3f}" + (f"  (bar {bar})" if bar else ""), flush=True)

    for epsilon in EPSILONS:
        for mechanism in ("objective", "output"):
            for kind, privacy in (
                ("delta", ApproxDP(epsilon=epsilon, delta=DELTA)),
                ("pure", PureDP(epsilon=epsilon)),
            ):
                scores = [s.score(seed, privacy, mechanism=mechanism) for seed, s in enumerate(splits)]
                note(f"{mechanism}, {kind}, epsilon {epsilon:g}", scores)
        for model in ("logistic regression", "naive Bayes"):
            scores = []
            for seed, s in enumerate(splits):
                table = peer.table(f"{name}-{0 if large else seed}", **s.handed_over())
                job = {"model": model, "table": table, "epsilon": epsilon, "seed": seed, "norm": s.norm}
                answer = peer.fit(job)
                scores += [] if answer is None else [answer["found"]]
            if scores:
                note(f"diffprivlib {model}, epsilon {epsilon:g}", scores)
            else:
                print(f"  diffprivlib {model}, epsilon {epsilon:g}: took too long")
    quiet = NoPromise("a benchmark on public tables")
    note("no promise", [s.score(seed, quiet) for seed, s in enumerate(splits[: 1 if large else seeds])])
    return found


def embedded(split: Split) -> Floats:
    """Return rows as the solver sees them."""
    return Embedding.declare(
        split.X.shape[1], bounds=split.bounds, norm_bound=None if split.bounds else split.norm, constant=0.5,
        owner="benchmark",
    ).rows(split.X)  # fmt: skip


def solved_by_scs(of: MarginProblem, *, cone: bool, accuracy: float, limit: float) -> tuple[float, float]:
    """Return SCS's processor time, without the modeling language's, and the objective that it reached."""
    import cvxpy as cp  # type: ignore[import-untyped,unused-ignore]

    cvxpy: Any = cp
    rows, h, p = of.squares.rows, of.smoothing, of.p
    matrices = [cvxpy.Variable((p, p), **({"PSD": True} if cone else {"symmetric": True}))
                for _ in range(of.n_classes)]  # fmt: skip
    far = [cvxpy.sum(cvxpy.multiply(rows @ m, rows), axis=1) for m in matrices]
    cost = of.regularization / 2 * sum(cvxpy.sum_squares(m) for m in matrices)
    for y in range(of.n_classes):
        own = np.flatnonzero(of.codes == y)
        for c in range(of.n_classes):
            if c != y:
                t = cvxpy.Variable(len(own), nonneg=True)
                cost += cvxpy.sum_squares(t) / (4 * h)
                cost += cvxpy.sum(cvxpy.pos(1 + far[y][own] - far[c][own] + h - t))
    program = cvxpy.Problem(cvxpy.Minimize(cost))
    program.get_problem_data(cvxpy.SCS)  # what the modeling language does, once and not counted
    start = time.process_time()
    try:
        program.solve(
            solver=cvxpy.SCS, eps_abs=accuracy, eps_rel=accuracy, max_iters=10**6, time_limit_secs=limit
        )
    except cvxpy.error.SolverError:
        return time.process_time() - start, float("nan")
    seconds = time.process_time() - start
    found = np.array([m.value for m in matrices])
    i, j = np.triu_indices(p)
    at = found[:, i, j] * np.where(i == j, 1.0, np.sqrt(2))
    value = of.whole_value_and_gradient(at)[0] if cone else of.value_and_gradient(of.gather(at))[0]
    return seconds, float(value)


def speed_of(name: str, limit: float) -> dict[str, Any]:
    """Compare our solvers with SCS on one table, at regularization n / 100, unconstrained and in the cone."""
    split = TABLES[name](0)
    rows = embedded(split)
    found: dict[str, Any] = {"rows": len(rows), "columns": split.X.shape[1], "classes": split.classes}
    for label, cone in (("unconstrained", False), ("constrained", True)):
        best, value = float("inf"), 0.0
        for _ in range(5):
            start = time.process_time()
            of = MarginProblem(
                rows, split.y, n_classes=split.classes, regularization=0.01 * len(rows), smoothing=1.0
            )
            if cone:
                at = accelerated_projection(of, 1e-4 * of.n_classes)
                assert at is not None
                value = of.whole_value_and_gradient(at)[0]
            else:
                value = of.value_and_gradient(minimize(of, 1e-4 * of.n_classes))[0]
            best = min(best, time.process_time() - start)
        theirs, accuracy, reached = float("inf"), 1e-4, float("nan")
        # The first accuracy at which SCS's objective is as good as ours, to one part in a million.
        for accuracy in (1e-4, 1e-5, 1e-6, 1e-7, 1e-8):
            theirs, reached = solved_by_scs(of, cone=cone, accuracy=accuracy, limit=limit)
            if not reached > value * (1 + 1e-6):
                break
        found[label] = {
            "ours_seconds": round(best, 4), "scs_seconds": round(theirs, 3), "scs_accuracy": accuracy,
            "ratio": round(theirs / best, 1), "objective": value,
            "scs_objective": None if np.isnan(reached) else reached,
        }  # fmt: skip
        print(f"{name}, {label}: ours {best:.3f} s, SCS {theirs:.2f} s, {theirs / best:.1f} times; "
              f"objectives {value:.6f} and {reached:.6f}", flush=True)  # fmt: skip
    return found


def _one_size(n: int, connection: Any) -> None:
    draw = Stream.from_seed(1).generator()
    centers, spread = draw.standard_normal((10, 50)), draw.standard_normal((10, 50, 50)) / 7
    y = draw.integers(10, size=n)
    X = centers[y] + np.einsum("nij,nj->ni", spread[y], draw.standard_normal((n, 50)))
    rows = Embedding.declare(50, bounds=None, norm_bound=12.0, constant=0.5, owner="benchmark").rows(X)
    del X
    constants = LargeMarginConstants(n_rows=n, n_classes=10, dimension=51)
    plan = make_large_margin_plan(constants, ApproxDP(epsilon=1.0, delta=1e-6))
    start = time.process_time()
    of = MarginProblem(rows, y, n_classes=10, regularization=plan.regularization, smoothing=1.0)
    counted, evaluate = [0], of.value_and_gradient

    def counting(w: Floats) -> tuple[float, Floats]:
        counted[0] += 1
        return evaluate(w)

    of.value_and_gradient = counting  # type: ignore[method-assign]
    plan.train(of, lambda: Stream.from_seed(1))
    connection.send((time.process_time() - start, counted[0], peak_memory_mb()))


def by_rows() -> dict[str, Any]:
    """Measure whole trainings of three sizes, each in a process of its own."""
    found: dict[str, Any] = {"columns": 50, "classes": 10}
    spawn = multiprocessing.get_context("spawn")
    for n in (15_000, 30_000, 60_000):
        receiver, sender = spawn.Pipe(duplex=False)
        process = spawn.Process(target=_one_size, args=(n, sender))
        process.start()
        seconds, evaluations, megabytes = receiver.recv()
        process.join()
        found[str(n)] = {
            "seconds": round(seconds, 2), "evaluations": evaluations, "peak_mb": round(megabytes),
            "microseconds_by_row_and_evaluation": round(1e6 * seconds / evaluations / n, 3),
        }  # fmt: skip
        print(
            f"{n} rows: {seconds:.1f} s of processor time, {evaluations} gradients, {megabytes:.0f} MB",
            flush=True,
        )
    return found


def keep(part: str, found: dict[str, Any]) -> None:
    """Put what was measured beside what the file already holds."""
    if SEEDS < 20:
        return
    path = RESULTS / "large_margin.json"
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    result |= {"delta": DELTA, "versions": versions(), part: result.get(part, {}) | found}
    save("large_margin", result)


def main(chosen: list[str] | None = None) -> None:
    """Measure what was chosen, by default everything, and keep the rest."""
    chosen = chosen or []
    tables = [name for name in TABLES if name in chosen] or list(TABLES)
    if not chosen or "accuracy" in chosen:
        with Peer() as peer:
            keep("peer", peer.versions)
            for name in tables:
                try:
                    keep("accuracy", {name: accuracy_of(name, peer)})
                except FileNotFoundError:
                    print(f"{name}: not in {DATA}")
    if not chosen or "speed" in chosen:
        for name in ("clinic", "digits-25"):
            keep("speed", {name: speed_of(name, 300.0)})
    if not chosen or "rows" in chosen:
        keep("rows", by_rows())


if __name__ == "__main__":
    main(sys.argv[1:])
