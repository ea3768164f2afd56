"""The third paper: what its classifier decides in the plane, with and without noise, and how well it does.

The paper has no figures. ``regions`` draws made-up rows of two columns; ``accuracy`` draws what
``benchmarks/large_margin.py`` measured and keeps in ``benchmarks/results/large_margin.json``.
"""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from foundation import COLORS
from matplotlib import patches
from matplotlib import pyplot as plt
from matplotlib.colors import ListedColormap

from discreet import ApproxDP, LargeMarginGaussianClassifier, NoPromise, PureDP
from discreet.learn.large_margin._problem import MarginProblem, common_shift, to_coordinates, to_matrices
from discreet.learn.large_margin._training import minimize, psd_part
from discreet.noise import Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Floats, Ints

OUT = Path(__file__).parent / "large-margin-gaussian"
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "large_margin.json"
SEED = 3
SIDES = (0.0, 10.0)
TITLES = {
    "clinic": "Breast cancer, 30 columns",
    "clinic-8": "Breast cancer, 8 public axes",
    "digits-8": "Digits, 8 public axes",
    "digits-25": "Digits, 25 public axes",
    "waveform": "Waveform, 21 columns",
    "segment": "Segment, 18 columns",
    "mnist-25": "MNIST, 25 public axes",
}
LINES = {
    "objective, delta": ("ours, delta = 1e-5", COLORS["blue"], "-", "o"),
    "output, delta": ("ours, noise on the output, delta = 1e-5", COLORS["blue"], ":", "o"),
    "objective, pure": ("ours, pure", COLORS["green"], "-", "s"),
    "diffprivlib logistic regression": ("diffprivlib LogisticRegression, pure", COLORS["red"], "--", "^"),
    "diffprivlib naive Bayes": ("diffprivlib GaussianNB, pure", COLORS["gray"], "--", "v"),
}


def plane(n: int = 3000) -> tuple[Floats, Ints]:
    """Draw rows of three classes: a disc, a ring around it, and a heap across the ring."""
    draw = Stream.from_seed(SEED).generator()
    y = draw.integers(3, size=n)
    angle = draw.uniform(0, 2 * math.pi, n)
    radius = np.where(y == 0, 1.1 * np.sqrt(draw.uniform(0, 1, n)), 2.6 + 0.35 * draw.standard_normal(n))
    X = np.column_stack([4 + radius * np.cos(angle), 5 + radius * np.sin(angle)])
    heap = np.array([7.6, 7.2]) + draw.standard_normal((n, 2)) @ np.array([[0.7, 0.4], [0.0, 0.5]])
    return np.clip(np.where((y == 2)[:, None], heap, X), *SIDES), y


def model(privacy: Any, X: Floats, y: Ints, **rest: Any) -> LargeMarginGaussianClassifier:
    """Train on the plane."""
    return LargeMarginGaussianClassifier(
        privacy=privacy, bounds=SIDES, classes=[0, 1, 2], random_state=SEED, **rest
    ).fit(X, y)


def as_printed(trained: LargeMarginGaussianClassifier, X: Floats, y: Ints) -> LargeMarginGaussianClassifier:
    """Return the model that one tilt for all classes leads to: a norm of 168, and none of it arrives."""
    rows = trained.embedding_.rows(X)
    of = MarginProblem(rows, y, n_classes=3, regularization=trained.regularization_, smoothing=1.0)
    b = Stream.from_seed(SEED).generator().standard_normal(of.squares.dimension)
    of.linear_term = of.gather(np.tile(168 * b / np.linalg.norm(b), (3, 1)))
    twin = model(NoPromise("made-up rows"), X, y, regularization=trained.regularization_)
    twin.matrices_ = common_shift(
        of.matrices(minimize(of, max(1e-5, of.descent(constrained=False).least_tolerance)))
    )[:, np.newaxis]
    return twin


def projected(trained: LargeMarginGaussianClassifier, X: Floats, y: Ints) -> LargeMarginGaussianClassifier:
    """Return a private model whose matrices were made semidefinite class by class."""
    twin = model(ApproxDP(epsilon=1.0, delta=1e-5), X, y)
    matrices = twin.matrices_[:, 0] - twin.matrices_[:, 0].mean(axis=0)
    twin.matrices_ = to_matrices(psd_part(to_coordinates(matrices), 3), 3)[:, np.newaxis]
    return twin


def save_numbers(name: str, header: Sequence[str], rows: Sequence[Sequence[str | float]]) -> None:
    """Write the numbers behind a figure."""
    OUT.mkdir(exist_ok=True)
    with (OUT / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for row in rows:
            writer.writerow([value if isinstance(value, str) else f"{value:.6g}" for value in row])


def regions(n: int = 3000, cells: int = 240) -> None:
    """Draw decision regions and ellipses without noise, with noise, and of two things not to do."""
    X, y = plane(n)
    plain = model(NoPromise("made-up rows"), X, y)
    panels = {
        "no promise": plain,
        "epsilon 1, delta 1e-5": model(ApproxDP(epsilon=1.0, delta=1e-5), X, y),
        "epsilon 0.3, pure": model(PureDP(epsilon=0.3), X, y),
        "epsilon 1, noise on the output": model(PureDP(epsilon=1.0), X, y, mechanism="output"),
        "as printed: one b for all classes": as_printed(plain, X, y),
        "semidefinite class by class": projected(plain, X, y),
    }
    sides = np.linspace(*SIDES, cells)
    grid = np.stack(np.meshgrid(sides, sides), axis=-1).reshape(-1, 2)
    colors = [COLORS["blue"], COLORS["red"], COLORS["green"]]
    figure, axes = plt.subplots(2, 3, figsize=(11, 7.4), layout="constrained", sharex=True, sharey=True)
    rows: list[tuple[str | float, ...]] = []
    for axis, (title, trained) in zip(axes.flat, panels.items(), strict=True):
        decided = trained.predict(grid).reshape(cells, cells)
        axis.imshow(decided, extent=(*SIDES, *SIDES), origin="lower", cmap=ListedColormap(colors), alpha=0.25,
                    vmin=0, vmax=2)  # fmt: skip
        for code, color in enumerate(colors):
            axis.scatter(*X[:600][y[:600] == code].T, s=5, color=color, lw=0)
        accuracy = float(trained.score(X, y))
        same = float(np.mean(trained.predict(X) == plain.predict(X)))
        if title not in ("as printed: one b for all classes", "semidefinite class by class"):
            for e, color in zip(trained.ellipses(0.25), colors, strict=True):
                size = 2 * e.radii[0], 2 * e.radii[1]
                axis.add_patch(
                    patches.Ellipse(e.center, *size, angle=e.angle, fill=False, color=color, lw=1.6)
                )
                axis.plot(*e.center, "+", color=color, ms=9, mew=2)
                rows.append((title, accuracy, same, e.label, *e.center, *e.radii, e.angle))  # type: ignore[arg-type]
        else:
            rows.append((title, accuracy, same, "", *[""] * 5))
        axis.set(title=f"{title}\n{accuracy:.3f} right, {same:.3f} as without noise", xlim=SIDES, ylim=SIDES)
        axis.title.set_fontsize(10)
    header = ("panel", "accuracy", "same_as_without_noise", "class", "x", "y", "long", "short", "angle")
    save_numbers("regions", header, rows)
    figure.savefig(OUT / "regions.png", dpi=100)
    plt.close(figure)


def accuracy() -> None:
    """Draw accuracy against epsilon for every table that was measured."""
    if not RESULTS.exists():
        print("benchmarks/large_margin.py has measured nothing yet; the figure is left as it is.")
        return
    measured: dict[str, Any] = json.loads(RESULTS.read_text()).get("accuracy", {})
    names = [name for name in TITLES if name in measured]
    rows: list[tuple[str | float, ...]] = []
    figure, axes = plt.subplots(2, 4, figsize=(13, 6.6), layout="constrained", sharex=True)
    for axis, name in zip(axes.flat, names, strict=False):
        found = measured[name]
        for line, (label, color, style, marker) in LINES.items():
            points = [
                (epsilon, found[f"{line}, epsilon {epsilon:g}"])
                for epsilon in (1.0, 3.0, 10.0)
                if f"{line}, epsilon {epsilon:g}" in found
            ]
            if points:
                at, mean, sd = zip(*[(e, p["mean"], p["sd"]) for e, p in points], strict=True)
                axis.errorbar(at, mean, sd, color=color, ls=style, marker=marker, ms=5, lw=1.5, capsize=2,
                              label=label)  # fmt: skip
                rows += [(name, label, e, m, s) for e, m, s in zip(at, mean, sd, strict=True)]
        axis.axhline(found["no promise"]["mean"], color="black", lw=0.8)
        axis.axhline(found["majority"], color=COLORS["gray"], lw=0.8, ls=":")
        rows.append((name, "no promise", math.inf, found["no promise"]["mean"], found["no promise"]["sd"]))
        axis.set(title=TITLES[name], xscale="log", ylim=(0, 1))
        axis.set_xticks([1, 3, 10], labels=["1", "3", "10"])
        axis.minorticks_off()
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("epsilon")
    axes[0, 0].set_ylabel("right on rows kept away")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    save_numbers("accuracy", ("table", "learner", "epsilon", "mean", "sd"), rows)
    figure.savefig(OUT / "accuracy.png", dpi=110)
    plt.close(figure)


def main() -> None:
    """Draw both."""
    regions()
    accuracy()


if __name__ == "__main__":
    main()
