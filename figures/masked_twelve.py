"""The second paper's figure 5: accuracy of its two algorithms on twelve tables, at N = 100 and 200."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Literal

import numpy as np
from fisher import tidy
from foundation import COLORS
from masked import OUT, save, save_numbers
from masked_tables import SOURCES, say_skipped
from matplotlib import pyplot as plt
from matplotlib.ticker import NullLocator

from discreet.learn.logistic.problem import problem_for
from discreet.learn.logistic.sensitivity import gradient_change, largest_norm
from discreet.learn.perturbation.mean_loss import minimize
from discreet.learn.perturbation.mean_loss_constants import minimizer_sensitivity
from discreet.noise import Stream, spherical_laplace
from discreet.release.masked import Task, make_mask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from masked import Value
    from matplotlib.axes import Axes

    from discreet._types import Floats, Ints

PENALTY = 0.5
SIZES = (100, 200)
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
Way = Literal["masked", "output", "tight", "input"]
LOOKS: Mapping[Way, dict[str, str]] = {
    "masked": {
        "color": COLORS["red"], "marker": "o",
        "label": "masked data = noise on the classifier, as in the paper",
    },
    "tight": {"color": COLORS["blue"], "marker": "s", "label": "the same with the tight constant"},
    "input": {"color": COLORS["gray"], "marker": "^", "label": "noise on every row"},
}  # fmt: skip


def fit(X: Floats, y: Ints) -> Floats:
    """Return the weights of plain logistic regression, without an intercept as in the paper."""
    return minimize(problem_for(X, y, PENALTY, 2), 1e-10)


def right(weights: Floats, X: Floats, y: Ints) -> float:
    """Return the share of rows on the right side."""
    return float(np.mean((X @ weights > 0) == (y == 1)))


def masked_weights(weights: Floats, n: int, stream: Stream) -> Floats:
    """Make points for a classifier and return what logistic regression finds on them."""
    codes = np.arange(n) % 2
    task = Task(
        weights=weights[np.newaxis, :],
        regularization=PENALTY,
        radius=1.0,
        constant=0.0,
        n_records=n,
        labels=lambda weights, regularization: codes,
        fixed=np.zeros((0, len(weights))),
        fixed_codes=np.zeros(0, np.int64),
    )
    made = make_mask(task, stream)
    found = fit(made.points, made.codes)
    # What the figure is about: the classifier comes back from the points.
    if float(np.linalg.norm(found - made.weights[0])) > 1e-8:
        raise AssertionError("Logistic regression on masked points must find the classifier they carry.")
    return found


def one_run(X: Floats, y: Ints, n: int, seed: int, name: str) -> dict[tuple[Way | str, float], float]:
    """Measure everything once on ``n`` random rows; the rest is for validation."""
    stream = Stream.from_seed(seed).derive(f"{name} {n}")
    order = stream.derive("rows").generator().permutation(len(y))
    rows, rest = order[:n], order[n:]
    d, plain = X.shape[1], fit(X[rows], y[rows])
    found: dict[tuple[Way | str, float], float] = {("none", 0.0): right(plain, X[rest], y[rest])}
    for way, change in (("output", 2.0), ("tight", gradient_change(2, PENALTY))):
        apart = minimizer_sensitivity(change, PENALTY, n, 0.0)
        for epsilon in EPSILONS:
            noisy = plain + spherical_laplace(epsilon / apart, d, 1, stream.spawn())[0]
            found[way, epsilon] = right(noisy, X[rest], y[rest])
            if way == "output":
                again = masked_weights(noisy, n, stream.spawn())
                found["masked", epsilon] = right(again, X[rest], y[rest])
                found["exists", epsilon] = float(np.linalg.norm(noisy) <= largest_norm(PENALTY))
    for epsilon in EPSILONS:
        noised = X[rows] + spherical_laplace(epsilon / 2, d, n, stream.spawn())
        found["input", epsilon] = right(fit(noised, y[rows]), X[rest], y[rest])
    return found


def measure(name: str, repetitions: int, sizes: Sequence[int] = SIZES) -> list[tuple[Value, ...]]:
    """Return a line of numbers for each size, way and epsilon of one table."""
    X, y = SOURCES[name].read(two_classes=True)
    d = X.shape[1]
    # Rows fill about half of the box: a public norm, to which longer ones are shortened.
    X = X / (math.sqrt(d) / 2)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    majority = float(np.bincount(y).max() / len(y))
    lines: list[tuple[Value, ...]] = []
    for n in sizes:
        runs = [one_run(X, y, n, seed, name) for seed in range(repetitions)]
        for way, epsilon in runs[0]:
            scores = np.array([run[way, epsilon] for run in runs])
            sd = float(scores.std(ddof=1)) if repetitions > 1 else math.nan
            lines.append(
                (name, float(n), way, epsilon, float(scores.mean()), sd, majority, float(d), float(len(y)))
            )
    return lines


HEADER = (
    "table", "rows", "way", "epsilon", "accuracy", "standard_deviation", "majority", "columns", "rows_in_all",
)  # fmt: skip


def panel(axis: Axes, name: str, lines: Sequence[tuple[Value, ...]]) -> None:
    """Draw one table."""
    for n, style, fill in ((200, "-", "full"), (100, "--", "none")):
        for way, looks in LOOKS.items():
            mine = [line for line in lines if line[1] == n and line[2] == way]
            axis.plot(
                [line[3] for line in mine], [line[4] for line in mine], linestyle=style, fillstyle=fill,
                ms=3.5, lw=1.1, color=looks["color"], marker=looks["marker"],
            )  # fmt: skip
        (plain,) = [line for line in lines if line[1] == n and line[2] == "none"]
        axis.axhline(float(plain[4]), color=COLORS["green"], lw=1.1, ls=style)
    axis.axhline(float(lines[0][6]), color="black", lw=0.8, ls=":")
    axis.set(xscale="log", ylim=(0.3, 1.0), title=f"{SOURCES[name].title} (d = {lines[0][7]:.0f})")
    axis.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
    axis.xaxis.set_minor_locator(NullLocator())


def figure_5(names: Sequence[str], repetitions: int = 50) -> None:
    """Draw all tables."""
    lines: list[tuple[Value, ...]] = []
    figure, axes = plt.subplots(3, 4, figsize=(14.2, 9.6), layout="constrained", sharex=True, sharey=True)
    for axis, name in zip(axes.flat, names, strict=False):
        start = time.perf_counter()
        found = measure(name, repetitions)
        lines += found
        panel(axis, name, found)
        print(f"figure 5, {name}: {time.perf_counter() - start:.0f} s", flush=True)
    tidy(*axes.flat)
    for axis in axes.flat:
        axis.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
    for axis in axes[-1]:
        axis.set_xlabel("ε")
    for axis in axes[:, 0]:
        axis.set_ylabel("accuracy on other rows")
    first = axes.flat[0]
    for looks in LOOKS.values():
        first.plot([], [], color=looks["color"], marker=looks["marker"], ms=4, lw=1.1, label=looks["label"])
    first.plot([], [], color=COLORS["green"], lw=1.1, label="without noise")
    first.plot([], [], color="black", lw=0.8, ls=":", label="the larger class")
    first.plot([], [], color="black", lw=1.1, label="N = 200")
    first.plot([], [], color="black", lw=1.1, ls="--", label="N = 100")
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.suptitle(f"Fig. 5: twelve tables, λ = {PENALTY:g}, {repetitions} repetitions", fontsize=11.5)
    save(figure, "fig5")
    save_numbers("fig5", HEADER, lines)


def main() -> None:
    """Draw the figure, or say aloud which table is missing."""
    for source in SOURCES.values():
        if not source.path.is_file():
            say_skipped("figure 5", source.path.name, f"figures/{OUT.name}/")
            return
    figure_5(tuple(SOURCES))
    print(f"wrote figure 5 to figures/{OUT.name}/")


if __name__ == "__main__":
    main()
