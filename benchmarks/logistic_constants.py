"""How much to regularize, chosen on tables that benchmarks/logistic.py does not measure.

Accuracy is measured over a range of regularizations on nine public tables at several promises. The constants
of ``discreet.learn.perturbation.mean_loss_constants`` lose, in the mean over these tables and promises, as
little against the best regularization of each as any do, to a twentieth of a point; among equals the smaller
penalty was taken. Two public considerations enter. Ranges are wide: bounds that are to hold everybody leave
most people in a corner of the box. And a classifier that is no better than the most common class counts as
that class: otherwise so much regularization that nothing is learned would look good. Nothing here reads the
breast cancer, digits or census tables, though it was a poor result on the first of them that led to these two
considerations.

The tables are looked for as figures/masked_tables.py says; if one is missing nothing is saved.
"""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from measure import save
from threadpoolctl import threadpool_limits

from discreet import ApproxDP, PureDP
from discreet.errors import PromiseError
from discreet.learn import PrivateLogisticRegression
from discreet.learn.logistic.problem import LogisticConstants
from discreet.learn.perturbation.defaults import pure_if_quieter
from discreet.learn.perturbation.mean_loss_constants import relative_noise
from discreet.noise import Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

sys.path.insert(0, str(Path(__file__).parents[1] / "figures"))
from masked_tables import SOURCES

SEEDS = int(os.environ.get("DISCREET_BENCH_SEEDS", "4"))
EPSILONS = (0.1, 1.0, 10.0)
DELTA = 1e-6
CHOSEN_ON = (
    "pima", "statlog", "mammographic", "australian", "german", "abalone", "transfusion", "segment",
    "waveform",
)  # fmt: skip
RATIOS = np.geomspace(2e-3, 2.0, 9)
"""Regularization over the relative noise."""
SMALL, LARGE = np.geomspace(0.005, 2.0, 14), np.geomspace(0.1, 30.0, 14)
OUTPUT = np.geomspace(0.05, 3.0, 13)


def present() -> list[str]:
    """Return the tables that are there."""
    missing = [name for name in CHOSEN_ON if not SOURCES[name].path.is_file()]
    for name in missing:
        print(f"SKIPPED {name}: {SOURCES[name].path.name} was not found; set DISCREET_DATA to its folder.")
    return [name for name in CHOSEN_ON if name not in missing]


def accuracy(X: Any, y: Any, privacy: Any, regularization: float, mechanism: Any, seeds: int) -> float:
    """Return the mean accuracy on the fifth of the rows that is not trained on."""
    scores = []
    for seed in range(seeds):
        rows = Stream.from_seed(seed).generator().permutation(len(y)) < int(0.8 * len(y))
        model = PrivateLogisticRegression(
            privacy=privacy, bounds=(-1, 1), classes=range(int(y.max()) + 1), random_state=1000 + seed,
            regularization=regularization, mechanism=mechanism,
        )  # fmt: skip
        try:
            scores.append(model.fit(X[rows], y[rows]).score(X[~rows], y[~rows]))
        except PromiseError:
            # Noise so large that the solver gives up, and nothing is released: as good as guessing.
            scores.append(1 / (int(y.max()) + 1))
    return float(np.mean(scores))


def measure(name: str) -> list[dict[str, Any]]:
    """Return one curve of a table for each promise and mechanism."""
    found = []
    X, y = SOURCES[name].read(two_classes=False, wide=True)
    seeds = SEEDS if len(y) < 2000 else max(1, SEEDS // 4)
    constants = LogisticConstants(
        n_rows=int(0.8 * len(y)), n_classes=int(y.max()) + 1, dimension=X.shape[1] + 1
    )
    for epsilon, promise in itertools.product(EPSILONS, ("pure", "delta")):
        privacy: Any = PureDP(epsilon=epsilon)
        if promise == "delta":
            privacy = pure_if_quieter(constants, ApproxDP(epsilon=epsilon, delta=DELTA), "auto")
            if isinstance(privacy, PureDP):
                continue
        noise = relative_noise(constants, privacy, constants.gradient_change)
        for mechanism in ("auto", "output"):
            ratios = RATIOS if mechanism == "auto" else OUTPUT[::3]
            scores = [accuracy(X, y, privacy, float(r * noise), mechanism, seeds) for r in ratios]
            found.append(
                {
                    "table": name, "epsilon": epsilon, "promise": promise, "mechanism": mechanism,
                    "noise": noise, "least": 1 / (constants.n_rows * constants.dimension),
                    "majority": float(np.bincount(y).max() / len(y)),
                    "ratios": [float(r) for r in ratios], "scores": scores,
                }
            )  # fmt: skip
    print(f"{name}: {X.shape[0]} rows, {X.shape[1]} columns", flush=True)
    return found


def regret(curve: dict[str, Any], at: float) -> float:
    """Return what is lost at a ratio against the curve's best, read off between the points."""
    scores = np.maximum(curve["scores"], curve["majority"])
    return float(scores.max() - np.interp(np.log(at), np.log(curve["ratios"]), scores))


def ratio(curve: dict[str, Any], small: float, large: float) -> float:
    """Return the default's ratio for these constants, as :func:`default_regularization` has it."""
    noise = curve["noise"]
    return float(max(curve["least"] / noise, noise / (small + large * noise)))


def choose(curves: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the constants with the least mean regret, and that regret."""
    free = [curve for curve in curves if curve["mechanism"] == "auto"]
    kept = [curve for curve in curves if curve["mechanism"] == "output"]

    def mean(small: float, large: float) -> float:
        return float(np.mean([regret(c, ratio(c, small, large)) for c in free]))

    small, large = min(itertools.product(SMALL, LARGE), key=lambda pair: mean(*pair))
    output = min(OUTPUT, key=lambda part: np.mean([regret(c, part) for c in kept]))
    return {
        "objective_small": float(small),
        "objective_large": float(large),
        "objective_regret": mean(small, large),
        "output_weight": float(output),
        "output_regret": float(np.mean([regret(c, output) for c in kept])),
    }


def main() -> None:
    """Measure, choose, print and save."""
    with threadpool_limits(1):
        curves = [curve for name in present() for curve in measure(name)]
    chosen = choose(curves)
    for name, value in chosen.items():
        print(f"  {name:18} {value:.4g}")
    if {curve["table"] for curve in curves} >= set(CHOSEN_ON) and SEEDS >= 4:
        save("logistic_constants", {"seeds": SEEDS, "delta": DELTA, "chosen": chosen, "curves": curves})


if __name__ == "__main__":
    main()
