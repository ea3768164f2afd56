"""The first paper's figures 1 to 3, as printed and as corrected; the scripts fisher_*.py make the others.

Farokhi, *Privacy-Preserving Public Release of Datasets for Support Vector Machine Classification*. What each
figure shows stands in README.md beside this file.
"""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

# Our matrices are small: a second BLAS thread costs more than it brings.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from foundation import COLORS
from matplotlib import pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter
from scipy.optimize import brentq

from discreet.learn import RegularizedSVM
from discreet.noise import Stream, standard_normal
from discreet.privacy import gaussian_delta, gaussian_epsilon, gaussian_mu
from discreet.release._laplace import LaplaceNumbers, matched_scale
from discreet.release.gaussian import GaussianNumbers, informed_error, printed_epsilon, trace_bounds
from discreet.schema import Column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from discreet._types import Floats, Ints

    Value = float | str

Noise = Literal["gaussian", "laplace_fisher", "laplace_variance"]

plt.rcParams["axes.titlesize"] = 10.5
OUT = Path(__file__).parent / "fisher"
LAMBDAS = (1e-4, 1e-2, 1.0)
"""Of the paper's example in the plane."""
PLANE = (-20.0, 25.0)
"""Declared for both columns of that example: wide enough to clip nothing."""
SEED = 1
"""Of the table that figures 3 and 4 draw."""
NOISES: Mapping[Noise, str] = {
    "gaussian": "Gaussian",
    "laplace_fisher": "Laplace, same Fisher information",
    "laplace_variance": "Laplace, same variance",
}
LOOKS: Mapping[Noise, dict[str, str]] = {
    "gaussian": {"color": COLORS["red"], "marker": "o", "linestyle": "-"},
    "laplace_fisher": {"color": COLORS["gray"], "marker": "s", "linestyle": "-"},
    "laplace_variance": {"color": COLORS["green"], "marker": "^", "linestyle": ":"},
}


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


def tidy(*axes: Axes) -> None:
    """Take away what a reader does not need: the frame, and minor ticks' labels."""
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        if axis.get_xscale() == "log":
            axis.xaxis.set_major_locator(LogLocator(numticks=8))
            axis.xaxis.set_minor_formatter(NullFormatter())


def add_noise(X: Floats, noise: Noise, lam: float, lower: Floats, upper: Floats, stream: Stream) -> Floats:
    """Return rows with the noise that the releases of the product would add at weight ``lam`` and Pi = I.

    The bounds are constants of the figure. They decide what is promised and nothing that is drawn, as long
    as no value is clipped.
    """
    if np.any(np.clip(X, lower, upper) != X):
        raise ValueError("The bounds of a figure must hold all of its rows: clipping would change the noise.")
    columns = tuple(
        Column(f"x{j}", lower=float(a), upper=float(b))
        for j, (a, b) in enumerate(zip(lower, upper, strict=True))
    )
    gaussian = GaussianNumbers(columns, np.full(X.shape[1], 1 / math.sqrt(lam)))
    if noise == "gaussian":
        return gaussian.release(X, stream)
    on: Literal["fisher", "variance"] = "fisher" if noise == "laplace_fisher" else "variance"
    return LaplaceNumbers(columns, matched_scale(gaussian, on)).release(X, stream)


def draw_plane(seed: int) -> tuple[Floats, Ints]:
    """Draw the paper's example: 50 rows around (0, 0) with y = +1 and 50 around (0, 5) with y = -1."""
    X = standard_normal((100, 2), Stream.from_seed(seed))
    X[50:, 1] += 5.0
    return X, np.repeat([1, -1], 50)


def boundary(model: RegularizedSVM, across: Floats) -> Floats:
    """Return the height of a classifier's line over points of the first axis."""
    a, b = model.coef_, model.intercept_
    return np.asarray(-(b + a[0] * across) / a[1])


def figure_1(points: int = 241) -> None:
    """Draw the region of (epsilon, delta) for s = .1, and where the printed theorem stops being true."""
    s = 0.1
    epsilons = np.linspace(0.005, 0.8, points)
    # Theorem 2.5 solved for delta: epsilon = s (1 + sqrt(2 ln(1 / delta))).
    printed = np.exp(-(np.maximum(epsilons / s - 1, 0.0) ** 2) / 2)
    exact = np.array([gaussian_delta(float(e), s) for e in epsilons])
    save_numbers(
        "fig1_region",
        ("epsilon", "delta_theorem_2_5", "delta_exact"),
        list(zip(epsilons, printed, exact, strict=True)),
    )

    deltas = np.geomspace(1e-12, 0.2, 34 if points > 100 else 5)
    deltas = np.unique(np.concatenate([deltas, [1e-10, 1e-6, 1e-5, 1e-3, 1e-1]]))
    fails = np.array([false_from(float(d)) for d in deltas])
    save_numbers(
        "fig1_where_theorem_2_5_fails",
        ("delta", "false_beyond_epsilon", "s"),
        [(d, e, e / printed_epsilon(1.0, float(d))) for d, e in zip(deltas, fails, strict=True)],
    )

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained")
    left.fill_between(epsilons, printed, 1, color="#d5d5d5", label="Theorem 2.5 as printed", lw=0)
    left.semilogy(epsilons, exact, color=COLORS["blue"], label="exact boundary: private on and above")
    at = 1e-5
    claimed, true = printed_epsilon(s, at), gaussian_epsilon(s, at)
    left.plot([true, claimed], [at, at], "o-", color=COLORS["red"], ms=4, lw=1)
    left.text(claimed + 0.012, at / 2.2, f"{claimed:.3f} printed,\n{true:.3f} exact", color=COLORS["red"],
              fontsize=9, va="top")  # fmt: skip
    # The caption taken literally, for one column: lambda = .01, so that s = lambda^(1/4) = .316.
    left.set(
        xlabel="epsilon\n(the paper's caption has √λ‖Π$^{1/2}$‖ = 0.1, which for one column is s = 0.316)",
        ylabel="delta",
        xlim=(0, 0.8),
        ylim=(1e-10, 1),
        title="Fig. 1: what noise with s = λ$^{1/4}$‖Π$^{1/4}$‖ = 0.1 promises",
    )
    left.legend(frameon=False, loc="lower left", fontsize=9)

    right.semilogy(fails, deltas, color=COLORS["red"])
    right.fill_betweenx(deltas, fails, 32, color=COLORS["red"], alpha=0.12, lw=0)
    for delta in (1e-1, 1e-3, 1e-5, 1e-10):
        epsilon = false_from(delta)
        right.plot(epsilon, delta, "o", color=COLORS["red"], ms=4)
        right.text(epsilon - 0.35, delta, f"{epsilon:.2f}", ha="right", va="center", fontsize=9)
    right.text(28.2, 1e-3, "false", ha="center", color=COLORS["red"])
    right.text(11, 1e-8, "true, and wasteful", ha="center", color=COLORS["gray"])
    right.set(
        xlabel="epsilon",
        ylabel="delta",
        xlim=(5, 32),
        ylim=(1e-12, 0.2),
        title="Theorem 2.5 at its own noise: where it is false",
    )
    tidy(left, right)
    save(figure, "fig1")


def false_from(delta: float) -> float:
    """Return the epsilon beyond which theorem 2.5 claims less than its own noise leaks."""
    per_s = printed_epsilon(1.0, delta)

    def excess(epsilon: float) -> float:
        return math.log(gaussian_delta(epsilon, epsilon / per_s) / delta)

    return float(brentq(excess, 5.0, 40.0, xtol=1e-10))


def figure_2(points: int = 61) -> None:
    """Draw the bound on an unbiased attacker's error that (epsilon, delta) implies, printed and true."""
    epsilons, deltas = np.geomspace(0.1, 40, points), np.geomspace(1e-12, 0.3, points)
    at_delta, at_epsilon = (1e-1, 1e-5, 1e-10), (0.1, 1.0, 8.0)
    rows: list[tuple[float, ...]] = [
        (e, d, printed_bound(e, d), true_bound(e, d))
        for e, d in [
            *((float(e), d) for d in at_delta for e in np.union1d(epsilons, [0.1, 1.0, 8.0, 32.0])),
            *((e, float(d)) for e in at_epsilon for d in np.union1d(deltas, [1e-10, 1e-5, 1e-1])),
        ]
    ]
    save_numbers("fig2", ("epsilon", "delta", "printed", "true"), sorted(set(rows)))

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained", sharey=True)
    shades = (COLORS["gray"], COLORS["red"], COLORS["blue"])
    for delta, color in zip(at_delta, shades, strict=True):
        left.loglog(epsilons, [printed_bound(float(e), delta) for e in epsilons], "--", color=color, lw=1.2)
        left.loglog(epsilons, [true_bound(float(e), delta) for e in epsilons], color=color,
                    label=f"delta = {delta:g}")  # fmt: skip
    for epsilon, color in zip(at_epsilon, shades, strict=True):
        right.loglog(deltas, [printed_bound(epsilon, float(d)) for d in deltas], "--", color=color, lw=1.2)
        right.loglog(deltas, [true_bound(epsilon, float(d)) for d in deltas], color=color,
                     label=f"epsilon = {epsilon:g}")  # fmt: skip
    for axis, x in ((left, 1.0), (right, 1e-5)):
        values = printed_bound(1.0, 1e-5), true_bound(1.0, 1e-5)
        axis.plot([x, x], values, "o", color="black", ms=4)
        axis.annotate(f"{values[0]:.1f} printed", (x, values[0]), xytext=(8, 5), textcoords="offset points",
                      fontsize=9)  # fmt: skip
        axis.annotate(f"{values[1]:.1f} true", (x, values[1]), xytext=(-8, -10), textcoords="offset points",
                      fontsize=9, ha="right", va="top")  # fmt: skip
    left.set(
        xlabel="epsilon",
        ylabel="least mean squared error of unbiased guesses\n(units of sensitivity²)",
        title="Fig. 2: dashed as printed, solid what (epsilon, delta) implies",
    )
    right.set(xlabel="delta", title="order ln(1/δ)/ε², not ln²(1/δ)/ε²")
    for axis in (left, right):
        axis.legend(frameon=False, fontsize=9)
    tidy(left, right)
    save(figure, "fig2")


def printed_bound(epsilon: float, delta: float) -> float:
    """Return the paper's bound, with its constant set to 1 as in its figure."""
    return (printed_epsilon(1.0, delta) / epsilon) ** 2


def true_bound(epsilon: float, delta: float) -> float:
    """Return the variance, over squared sensitivity, of the least Gaussian noise that is private."""
    return 1 / gaussian_mu(epsilon, delta) ** 2


def guess_from_release(noised: Floats, labels: Ints, variance: float) -> Floats:
    """Guess the rows from what was published alone: shrink each class towards its mean."""
    guess = np.empty_like(noised)
    for label in (-1, 1):
        rows = noised[labels == label]
        spread = rows.var(axis=0, ddof=1)
        keep = np.maximum(spread - variance, 0.0) / spread
        guess[labels == label] = rows.mean(axis=0) + keep * (rows - rows.mean(axis=0))
    return guess


def figure_3(tables: int = 400) -> None:
    """Draw the example in the plane, its classifiers, and what its bounds are worth."""
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 4.8), layout="constrained", gridspec_kw={"width_ratios": [1.1, 1]}
    )
    draw_releases(left)
    draw_errors(right, tables)
    tidy(left, right)
    save(figure, "fig3")


def draw_releases(axis: Axes) -> None:
    """Draw one table, three releases of it, and the classifiers trained on each."""
    X, y = draw_plane(SEED)
    lower, upper = np.full(2, PLANE[0]), np.full(2, PLANE[1])
    stream = Stream.from_seed(SEED)
    tables = {
        f"{lam:g}": add_noise(X, "gaussian", lam, lower, upper, stream.derive(f"{lam:g}")) for lam in LAMBDAS
    }
    tables["original"] = X
    shades = (COLORS["red"], COLORS["green"], COLORS["gray"], COLORS["blue"])
    across = np.array([-40.0, 40.0])
    points, models = [], []
    for (name, rows), color in zip(tables.items(), shades, strict=True):
        model = RegularizedSVM().fit(rows, y)
        points += [(name, *x, label) for x, label in zip(rows, y, strict=True)]
        models.append((name, *model.coef_, model.intercept_, model.score(X, y)))
        for label, marker in ((1, "o"), (-1, "^")):
            some = rows[y == label]
            axis.scatter(some[:, 0], some[:, 1], s=11, marker=marker, color=color, alpha=0.7, lw=0)
        text = name if name == "original" else f"λ = {name}"
        axis.plot(across, boundary(model, across), color=color, lw=1.7, label=text)
    axis.set(
        xlabel="first feature",
        ylabel="second feature",
        xlim=(-34, 34),
        ylim=(-27, 33),
        title="Fig. 3: rows with y = +1 (dots) and y = −1 (triangles), classifiers",
    )
    axis.legend(frameon=False, fontsize=9, ncols=4, loc="upper center", handlelength=1.2, columnspacing=1.2)
    save_numbers("fig3_points", ("lambda", "x1", "x2", "y"), points)
    save_numbers("fig3_classifiers", ("lambda", "a1", "a2", "b", "success_on_original"), models)


def draw_errors(axis: Axes, tables: int) -> None:
    """Draw the printed bounds beside what attackers reach."""
    rows = [(lam, *privacy_in_plane(lam, tables)) for lam in LAMBDAS]
    save_numbers(
        "fig3_bounds",
        (
            "lambda", "variance", "bound_unbiased_only", "error_of_unbiased_guess",
            "error_knowing_the_classes", "formula_knowing_the_classes", "error_from_release_alone",
            "standard_error", "epsilon_1e-5_if_range_1",
        ),
        rows,
    )  # fmt: skip
    values = np.array(rows)
    bars = (
        (2, "bound as printed: unbiased guesses only", COLORS["gray"]),
        (6, "reached by shrinking towards the published class means", COLORS["blue"]),
        (4, "reached by somebody who knows the two classes", COLORS["red"]),
    )
    for place, (column, text, color) in enumerate(bars):
        at = np.arange(3) + (place - 1) * 0.27
        axis.bar(at, values[:, column], 0.25, color=color, label=text)
        for x, value in zip(at, values[:, column], strict=True):
            digits = 0 if column == 2 else 2
            axis.text(x, value * 1.06, f"{value:.{digits}f}", ha="center", va="bottom", fontsize=9)
    axis.set(
        yscale="log",
        ylim=(0.4, 3000),
        ylabel="mean squared error of a guess at a row",
        xlabel="λ",
        title="The bounds 200, 20 and 2 hold for unbiased guesses alone",
    )
    axis.set_xticks(range(3), [f"{lam:g}" for lam in LAMBDAS])
    axis.legend(frameon=False, fontsize=9, loc="upper right")


def privacy_in_plane(lam: float, tables: int) -> tuple[float, ...]:
    """Return bound and attained errors for the example in the plane, over fresh tables and noise."""
    variance = np.full(2, 1 / math.sqrt(lam))
    bound = trace_bounds(variance, np.ones(2), np.full(2, PLANE[1] - PLANE[0])).unbiased
    lower, upper = np.full(2, PLANE[0]), np.full(2, PLANE[1])
    errors = np.empty((tables, 3))
    for t in range(tables):
        X, y = draw_plane(t)
        stream = Stream.from_seed(t).derive(f"attack {lam:g}")
        noised = add_noise(X, "gaussian", lam, lower, upper, stream)
        centers = np.where(y[:, None] == 1, 0.0, [0.0, 5.0])
        known = centers + (noised - centers) / (1 + variance)
        guesses = (noised, known, guess_from_release(noised, y, float(variance[0])))
        errors[t] = [np.mean(np.sum((guess - X) ** 2, axis=1)) for guess in guesses]
    unbiased, informed, release_alone = errors.mean(axis=0)
    return (
        float(variance[0]),
        bound,
        unbiased,
        informed,
        informed_error(variance, np.eye(2)),
        release_alone,
        float(errors[:, 2].std(ddof=1) / math.sqrt(tables)),
        gaussian_epsilon(lam**0.25 * math.sqrt(2), 1e-5),
    )


if __name__ == "__main__":
    figure_1()
    figure_2()
    figure_3()
    print(f"wrote figures 1 to 3 to figures/{OUT.name}/")
