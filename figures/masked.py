"""The second paper's example in the plane (figure 2) and its utility bounds beside what is measured.

Pham et al., on masked data for privacy-sensitive learning. What each figure shows stands in README.md beside
this file; masked_digits.py makes figures 3 and 4, masked_twelve.py figure 5.
"""

from __future__ import annotations

import contextlib
import csv
import os
from pathlib import Path
from typing import TYPE_CHECKING

# Our matrices are small: a second BLAS thread costs more than it brings.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from fisher import tidy
from foundation import COLORS
from matplotlib import pyplot as plt
from matplotlib.colors import ListedColormap

from discreet import NoPromise, PureDP
from discreet.errors import PromiseError
from discreet.learn.logistic.problem import problem_for
from discreet.learn.logistic.utility import (
    input_utility,
    output_utility,
    printed_input_utility,
    printed_output_utility,
)
from discreet.learn.perturbation.mean_loss import minimize
from discreet.learn.perturbation.mean_loss_constants import minimizer_sensitivity
from discreet.noise import Stream, spherical_laplace, standard_normal
from discreet.release import MaskedRelease

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from discreet._types import Floats, Ints
    from discreet.release import Release

    Value = float | str

plt.rcParams["axes.titlesize"] = 10.5
OUT = Path(__file__).parent / "masked"
CENTERS = np.array([[0.0, 1.5], [1.0, 1.0], [1.0, -1.0]])
FAKE = np.array([2.0, 2.0])
"""Where the paper puts records that stand in for those of the third class."""
SPREAD = 0.5
"""Standard deviation: the paper's covariance is a quarter of the identity."""
RADIUS, PENALTY = 4.0, 0.01
"""Declared norm of a row, and lambda."""
CLASS_COLORS = (COLORS["blue"], COLORS["green"], COLORS["red"])
NAMES = ("first class", "second class", "third class, sensitive")
SIZE = 100
NO_NOISE = NoPromise("a figure of the construction alone")


def save(figure: Figure, name: str) -> None:
    """Write a figure; small enough to be kept in the repository."""
    OUT.mkdir(exist_ok=True)
    figure.savefig(OUT / f"{name}.png", dpi=110)
    plt.close(figure)


def save_numbers(name: str, header: Sequence[str], rows: Sequence[Sequence[Value]]) -> None:
    """Write the numbers behind a figure."""
    OUT.mkdir(exist_ok=True)
    with (OUT / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for row in rows:
            writer.writerow([value if isinstance(value, str) else f"{value:.9g}" for value in row])


def draw_toy(seed: int, n: int = SIZE) -> tuple[Floats, Ints]:
    """Draw ``n`` rows around each of the three centers."""
    y = np.repeat([0, 1, 2], n)
    return CENTERS[y] + SPREAD * standard_normal((3 * n, 2), Stream.from_seed(seed)), y


def draw_fake(seed: int, n: int = SIZE) -> tuple[Floats, Ints]:
    """Draw the records that the paper gives the third class instead."""
    stream = Stream.from_seed(seed).derive("fake")
    return FAKE + SPREAD * standard_normal((n, 2), stream), np.full(n, 2)


def train(X: Floats, y: Ints, penalty: float = PENALTY, radius: float = RADIUS, n_classes: int = 3) -> Floats:
    """Return the weights of softmax regression on rows divided by the radius, without noise."""
    problem = problem_for(X / radius, y, penalty, n_classes)
    return problem.weights(minimize(problem, 1e-11))


def accuracy(weights: Floats, X: Floats, y: Ints) -> float:
    """Return the share of rows whose class has the largest score."""
    return float(np.mean((X @ weights.T).argmax(axis=1) == y))


def mask_toy(
    X: Floats,
    y: Ints,
    records: int,
    *,
    fake: tuple[Floats, Ints] | None,
    privacy: NoPromise | PureDP,
    seed: int,
) -> tuple[MaskedRelease, Release]:
    """Mask the third class beside the true rows of the others, and beside given records if there are any."""
    method = MaskedRelease(
        privacy=privacy, regularization=PENALTY, norm_bound=RADIUS, classes=[0, 1, 2], sensitive=2,
        n_records=records, initial=fake, fit_intercept=False, random_state=seed,
    )  # fmt: skip
    return method, method.release(X, y)


def regions(axis: Axes, weights: Floats) -> None:
    """Color the plane by the class that a classifier gives it."""
    x, y = np.meshgrid(np.linspace(-2.2, 4.2, 321), np.linspace(-3.2, 4.0, 361))
    best = (np.column_stack([x.ravel(), y.ravel()]) @ weights.T).argmax(axis=1)
    axis.pcolormesh(
        x, y, best.reshape(x.shape), cmap=ListedColormap(CLASS_COLORS), vmin=0, vmax=2, alpha=0.13,
        shading="nearest", rasterized=True,
    )  # fmt: skip


def dots(axis: Axes, X: Floats, y: Ints, marker: str = "o", **looks: float | str) -> None:
    """Draw rows in the colors of their classes."""
    for code in range(3):
        mine = X[y == code]
        axis.plot(
            mine[:, 0], mine[:, 1], marker, color=CLASS_COLORS[code], **{"ms": 3.2, "alpha": 0.75, **looks}
        )


def figure_2(seed: int = 2, tests: int = 20_000, repetitions: int = 8) -> None:
    """Draw the three classes, the paper's initial records, and what masks the sensitive class."""
    X, y = draw_toy(seed)
    fake = draw_fake(seed)
    test = draw_toy(seed + 10**6, tests // 3)
    others = y < 2
    initial = np.vstack([X[others], fake[0]]), np.concatenate([y[others], fake[1]])
    models = {"true rows": train(X, y), "initial records alone": train(*initial)}
    with_fake, far = mask_toy(X, y, 3 * SIZE, fake=fake, privacy=NO_NOISE, seed=seed)
    without, near = mask_toy(X, y, SIZE, fake=None, privacy=NO_NOISE, seed=seed)
    assert with_fake.model_ is not None
    assert without.model_ is not None
    models["300 points beside the fake class"] = with_fake.model_
    models["100 points, no fake class"] = without.model_

    figure, axes = plt.subplots(1, 4, figsize=(14.2, 6.0), layout="constrained", sharey=True)
    titles = (
        "(a) true rows",
        "(b) the paper's initial records:\na fake class in place of the third",
        f"(c) 300 points beside them\n(weights shortened to {with_fake.scale_:.2f})",
        "(d) without a fake class:\n100 points are enough, weights whole",
    )
    for axis, title, weights in zip(axes, titles, models.values(), strict=True):
        regions(axis, weights)
        axis.set(title=f"{title}\n{accuracy(weights, *test):.3f} right", xlim=(-2.2, 4.2), ylim=(-3.2, 4.0),
                 aspect="equal")  # fmt: skip
    dots(axes[0], X, y)
    dots(axes[1], *initial)
    for axis, release, shown in ((axes[2], far, initial), (axes[3], near, (X[others], y[others]))):
        dots(axis, *shown)
        points = RADIUS * np.asarray(release.data)[len(shown[0]) :]
        axis.plot(points[:, 0], points[:, 1], "x", color="black", ms=4, mew=0.9)
    for color, name in zip(CLASS_COLORS, NAMES, strict=True):
        axes[0].plot([], [], "o", color=color, ms=4, label=name)
    axes[0].plot([], [], "x", color="black", ms=4, label="points of nobody, third class")
    figure.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=4)
    tidy(*axes)
    figure.suptitle(
        "Fig. 2: a sensitive class is masked; the colored regions are what a classifier says", fontsize=11.5
    )
    save(figure, "fig2")
    rows: list[Sequence[Value]] = [
        ("none", name, accuracy(weights, *test), 0.0, 1.0, float(np.linalg.norm(weights)), 1.0)
        for name, weights in models.items()
    ]
    rows[2] = (*rows[2][:4], float(with_fake.scale_ or 0), *rows[2][5:])
    rows += [noisy_row(epsilon, test, repetitions) for epsilon in (1.0, 10.0)]
    save_numbers(
        "fig2",
        (
            "epsilon",
            "trained_on",
            "accuracy",
            "standard_error",
            "weights_shortened_to",
            "norm_of_weights",
            "share_with_points",
        ),
        rows,
    )


def noisy_row(epsilon: float, test: tuple[Floats, Ints], repetitions: int) -> Sequence[Value]:
    """Measure masked tables that keep a promise, over fresh true rows and noise."""
    found = []
    for seed in range(repetitions):
        X, y = draw_toy(seed)
        with contextlib.suppress(PromiseError):  # no points beside these true rows
            method, _ = mask_toy(X, y, SIZE, fake=None, privacy=PureDP(epsilon=epsilon), seed=seed)
            assert method.model_ is not None
            norm = float(np.linalg.norm(method.model_))
            found.append((accuracy(method.model_, *test), float(method.scale_ or 0), norm))
    values = np.array(found) if found else np.full((1, 3), np.nan)
    error = float(np.std(values[:, 0]) / np.sqrt(max(len(found) - 1, 1)))
    right, scale, norm = (float(value) for value in values.mean(axis=0))
    return f"{epsilon:g}", "100 points, no fake class", right, error, scale, norm, len(found) / repetitions


DIMENSION, BOUND_PENALTY, BOUND_EPSILON, FAILURE = 30, 0.5, 1.0, 0.05
"""Of the figure of utility bounds; the first two and the last are those of the specification's experiment."""
ROWS = (50, 100, 200, 500, 1000, 2000, 5000)


def draw_rows(n: int, seed: int) -> tuple[Floats, Ints]:
    """Draw rows of norm at most 1 in two classes that lie apart along one axis."""
    stream = Stream.from_seed(seed).derive(f"{n} rows")
    X = standard_normal((n, DIMENSION), stream) / np.sqrt(DIMENSION)
    y = np.arange(n) % 2
    X[:, 0] += np.where(y == 1, 0.4, -0.4)
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0), y


def losses(n: int, repetitions: int) -> tuple[Floats, Floats]:
    """Return how much worse on true rows the objective is for the paper's two algorithms."""
    output, local = np.empty(repetitions), np.empty(repetitions)
    for seed in range(repetitions):
        X, y = draw_rows(n, seed)
        problem = problem_for(X, y, BOUND_PENALTY, 2)
        w = minimize(problem, 1e-11)
        stream = Stream.from_seed(seed).derive(f"{n} noise")
        apart = minimizer_sensitivity(2.0, BOUND_PENALTY, n, 0.0)
        noise = spherical_laplace(BOUND_EPSILON / apart, DIMENSION, 1, stream)[0]
        output[seed] = problem.value(w + noise) - problem.value(w)
        noised = X + spherical_laplace(BOUND_EPSILON / 2, DIMENSION, n, stream)
        found = minimize(problem_for(noised, y, BOUND_PENALTY, 2), 1e-9)
        local[seed] = problem.value(found) - problem.value(w)
    return output, local


def figure_bounds(repetitions: int = 40) -> None:
    """Draw propositions 2 and 5, as printed and as corrected, beside the losses that they bound."""
    measured = {n: losses(n, repetitions) for n in ROWS}
    given = {
        "dimension": DIMENSION,
        "regularization": BOUND_PENALTY,
        "epsilon": BOUND_EPSILON,
        "failure": FAILURE,
    }
    rows = []
    for n, (output, local) in measured.items():
        X, y = draw_rows(n, 0)
        norm = float(np.linalg.norm(minimize(problem_for(X, y, BOUND_PENALTY, 2), 1e-11)))
        rows.append(
            (
                float(n), float(np.quantile(output, 1 - FAILURE)), float(output.mean()),
                printed_output_utility(n_rows=n, **given), output_utility(n_rows=n, **given),
                float(np.quantile(local, 1 - FAILURE)), float(local.mean()),
                printed_input_utility(**given), input_utility(n_rows=n, norm=norm, **given), norm,
            )
        )  # fmt: skip
    save_numbers(
        "bounds",
        ("rows", "output_loss_q95", "output_loss_mean", "proposition_2_printed", "proposition_2_corrected",
         "input_loss_q95", "input_loss_mean", "proposition_5_printed", "proposition_5_corrected",
         "norm_of_weights"),
        rows,
    )  # fmt: skip
    values = np.array(rows)
    figure, axes = plt.subplots(1, 2, figsize=(11.5, 4.9), layout="constrained", sharey=True)
    panels = ((1, "Proposition 2: noise on the classifier"), (5, "Proposition 5: noise on every row"))
    for axis, (first, title) in zip(axes, panels, strict=True):
        axis.plot(values[:, 0], values[:, first + 2], "--", color=COLORS["gray"], label="bound as printed")
        axis.plot(values[:, 0], values[:, first + 3], "-", color=COLORS["blue"], label="bound as corrected")
        axis.plot(
            values[:, 0], values[:, first], "o", color=COLORS["red"], ms=5, label="95 % of runs lose less"
        )
        axis.plot(values[:, 0], values[:, first + 1], "^", color=COLORS["green"], ms=5, label="mean of runs")
        axis.set(xscale="log", yscale="log", xlabel="rows N", title=title)
        axis.legend(frameon=False, fontsize=9)
    axes[0].set_ylabel("loss on the true rows beyond the best")
    tidy(*axes)
    figure.suptitle(
        f"{DIMENSION} columns, λ = {BOUND_PENALTY:g}, ε = {BOUND_EPSILON:g}, {repetitions} runs; bounds hold "
        f"with probability {1 - FAILURE:g}", fontsize=11.5,
    )  # fmt: skip
    save(figure, "bounds")


if __name__ == "__main__":
    figure_2()
    figure_bounds()
    print(f"wrote figure 2 and the utility bounds to figures/{OUT.name}/")
