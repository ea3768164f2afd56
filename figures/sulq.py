"""The private database: noise against sampling error, the printed variances, and each learner's quality.

Blum, Dwork, McSherry and Nissim, *Practical Privacy: the SuLQ Framework*. What each figure shows stands in
README.md beside this file. The learners' figures are drawn from what ``benchmarks/sulq_supervised.py`` and
``benchmarks/sulq_unsupervised.py`` wrote, so that nothing has to be trained, nor diffprivlib installed, here.
"""

from __future__ import annotations

import csv
import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from fisher import tidy
from foundation import COLORS
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter

from discreet.privacy import GaussianDP
from discreet.privacy._posterior_odds import (
    dp_variance,
    odds_variance,
    theorem_1_variance,
    theorem_4_variance,
)
from discreet.privacy.calibration import gaussian_mu
from discreet.query import Database, Sums
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OUT = Path(__file__).parent / "sulq"
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
DELTA = 1e-6
EPSILONS = (0.1, 1.0, 10.0)
ORANGE = "#c98a1b"
TOO_LONG = "diffprivlib took too long"
LOOKS: Mapping[str, dict[str, Any]] = {
    "ours": {"color": COLORS["blue"], "marker": "o", "label": "ours, δ = 1e-6"},
    "ours, pure": {"color": COLORS["blue"], "marker": "o", "ls": ":", "mfc": "white", "label": "ours, pure"},
    "in cells": {"color": COLORS["green"], "marker": "^", "label": "ours in cells, δ = 1e-6"},
    "in cells, pure": {
        "color": COLORS["green"], "marker": "^", "ls": ":", "mfc": "white", "label": "ours in cells, pure",
    },
    "diffprivlib": {"color": COLORS["red"], "marker": "s", "label": "diffprivlib (pure)"},
    "forest": {"color": ORANGE, "marker": "D", "label": "diffprivlib, forest (pure)"},
}  # fmt: skip


def save(figure: Figure, name: str) -> None:
    """Write a figure; small enough to be kept in the repository."""
    OUT.mkdir(exist_ok=True)
    figure.savefig(OUT / f"{name}.png", dpi=110)
    plt.close(figure)


def save_numbers(name: str, header: Sequence[str], rows: Sequence[Sequence[float | str]]) -> None:
    """Write the numbers behind a figure."""
    OUT.mkdir(exist_ok=True)
    with (OUT / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for row in rows:
            writer.writerow([value if isinstance(value, str) else f"{value:.9g}" for value in row])


def figure_noise(seeds: int = 40) -> None:
    """Draw noise and sampling error of a share against rows, and how many questions stay below."""
    mu = gaussian_mu(1.0, DELTA)
    rows = np.geomspace(100, 1e8, 61)
    variances = {T: (theorem_1_variance(1.0, DELTA, T), dp_variance(1.0, DELTA, T)) for T in (1, 100)}
    measured = [(n, _measured_error(n, mu / 10, seeds)) for n in (1000, 10_000, 100_000)]
    save_numbers(
        "noise",
        ("rows", "sampling_error", "theorem_1_T_1", "exact_T_1", "theorem_1_T_100", "exact_T_100"),
        [
            (n, 0.5 / math.sqrt(n), *(math.sqrt(R) / n for pair in variances.values() for R in pair))
            for n in rows
        ],
    )
    save_numbers("noise_measured", ("rows", "root_mean_square_error_T_100"), measured)
    many = [(n, most_questions(n, printed=True), most_questions(n, printed=False)) for n in rows]
    save_numbers("questions", ("rows", "theorem_1", "exact"), many)

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained")
    left.loglog(rows, 0.5 / np.sqrt(rows), color="black", lw=2, label="sampling error of a share")
    for T, style in ((1, "-"), (100, "--")):
        printed, exact = (math.sqrt(R) / rows for R in variances[T])
        left.loglog(
            rows, printed, style, color=COLORS["red"], label=f"noise of theorem 1, {T} question{'s'[: T > 1]}"
        )
        left.loglog(
            rows, exact, style, color=COLORS["blue"], label=f"noise needed, {T} question{'s'[: T > 1]}"
        )
    left.plot(*zip(*measured, strict=True), "o", color=COLORS["blue"], ms=5, mfc="white",
              label=f"measured, one of 100, {seeds} answers")  # fmt: skip
    left.set(
        xlabel="rows",
        ylabel="standard deviation of the share",
        xlim=(100, 1e8),
        ylim=(1e-8, 10),
        title="Noise falls faster than sampling error (ε = 1, δ = 1e-6)",
    )
    left.legend(frameon=False, fontsize=8.5, loc="lower left")
    values = np.array(many)
    right.loglog(values[:, 0], values[:, 0], color=COLORS["gray"], lw=1, ls=":", label="as many as rows")
    right.loglog(values[:, 0], values[:, 2], color=COLORS["blue"], label="with the noise needed")
    some = values[:, 1] >= 1
    right.loglog(values[some, 0], values[some, 1], color=COLORS["red"], label="with the noise of theorem 1")
    right.set(
        xlabel="rows",
        ylabel="questions",
        xlim=(100, 1e8),
        ylim=(1, 1e8),
        title="Questions whose noise stays below sampling error",
    )
    right.legend(frameon=False, fontsize=9, loc="upper left")
    tidy(left, right)
    save(figure, "noise")


def _measured_error(n: int, mu: float, seeds: int) -> float:
    """Return the root mean square error of a noisy share over some seeds, on rows that half have."""
    schema = Schema(columns=[Column("x", type="integer", lower=0, upper=1)])
    errors = []
    for seed in range(seeds):
        with Database({"x": np.arange(n) % 2}, schema=schema, random_state=seed) as sums:
            answer = sums.ask(Sums("x"), privacy=GaussianDP(mu=mu))
        errors.append(float(np.ravel(answer.value)[0]) / n - 0.5)
    return math.sqrt(float(np.mean(np.square(errors))))


def most_questions(n: float, *, printed: bool) -> float:
    """Return how many questions have noise below the sampling error of a share of a half: R <= n / 4."""
    if not printed:
        return n / 4 * gaussian_mu(1.0, DELTA) ** 2
    # 8 T log(T / delta)^2 <= n / 4 at epsilon 1, by bisection.
    low, high = 0.0, n
    for _ in range(200):
        middle = (low + high) / 2
        if 8 * middle * math.log(max(middle, 1.0) / DELTA) ** 2 <= n / 4:
            low = middle
        else:
            high = middle
    return low


def figure_variance() -> None:
    """Draw the variances of theorems 1 and 4 over those that are needed."""
    queries = np.unique(np.geomspace(1, 1e6, 61).round().astype(int))
    epsilons = np.geomspace(0.01, 100, 61)
    formulas = {
        "theorem_1": theorem_1_variance,
        "theorem_4": theorem_4_variance,
        "corrected": odds_variance,
        "dp_exact": dp_variance,
    }
    pairs = [(1.0, int(T)) for T in queries] + [(float(e), 100) for e in epsilons]
    save_numbers(
        "variance",
        ("epsilon", "T", *formulas),
        [(e, T, *(f(e, DELTA, T) for f in formulas.values())) for e, T in sorted(set(pairs))],
    )
    looks = {
        "theorem_1": ("theorem 1 as printed", COLORS["red"], "-"),
        "theorem_4": ("theorem 4 as printed", ORANGE, "--"),
        "corrected": ("the paper's promise, corrected", COLORS["green"], "-"),
    }
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained")
    for name, (label, color, style) in looks.items():
        over = [formulas[name](1.0, DELTA, int(T)) / dp_variance(1.0, DELTA, int(T)) for T in queries]
        left.loglog(queries, over, style, color=color, label=label)
        over = [formulas[name](float(e), DELTA, 100) / dp_variance(float(e), DELTA, 100) for e in epsilons]
        right.loglog(epsilons, over, style, color=color, label=label)
    for axis in (left, right):
        axis.axhline(1, color=COLORS["blue"], label="differential privacy, exact")
        axis.set_ylim(0.7, 600)
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    for T, offset in ((1, (4, -13)), (100, (0, 7)), (10**4, (0, 7))):
        over = theorem_1_variance(1.0, DELTA, T) / dp_variance(1.0, DELTA, T)
        left.plot(T, over, "o", color=COLORS["red"], ms=4)
        left.annotate(f"{over:.0f}", (T, over), xytext=offset, textcoords="offset points",
                      ha="left" if T == 1 else "center", fontsize=9)  # fmt: skip
    left.set(
        xlabel="questions T",
        ylabel="variance over what is needed",
        title="Variance R at ε = 1, δ = 1e-6",
    )
    right.set(xlabel="epsilon", title="Variance R at T = 100, δ = 1e-6")
    left.legend(frameon=False, fontsize=9, loc="lower right", bbox_to_anchor=(1, 0.2))
    tidy(left, right)
    save(figure, "variance")


Lines = dict[str, dict[float, dict[str, float]]]
"""For each line of a panel median and quartiles at each epsilon."""


def draw_learner(
    name: str,
    title: str,
    quality: str,
    panels: Mapping[str, Lines],
    level: Mapping[str, tuple[float, str]],
    missing: Mapping[str, str] | None = None,
    log: bool = False,
) -> None:
    """Draw one learner: a panel for each table, quality against epsilon; say where a line has no answer."""
    columns = min(3, len(panels))
    deep = -(-len(panels) // columns)
    figure, grid = plt.subplots(
        deep, columns, figsize=(3.6 * columns, 3.1 * deep + 0.7), layout="constrained", squeeze=False
    )
    handles: dict[str, Any] = {}
    rows: list[tuple[float | str, ...]] = []
    for axis, (table, lines) in zip(grid.flat, panels.items(), strict=False):
        for place, (line, points) in enumerate(lines.items()):
            at = np.array(sorted(points))
            values = np.array([[points[e][q] for q in ("lower", "median", "upper")] for e in at])
            rows += [(table, line, float(e), *map(float, v)) for e, v in zip(at, values, strict=True)]
            spread = np.abs(values[:, [0, 2]] - values[:, [1]]).T
            shift = 1.06 ** (place - (len(lines) - 1) / 2)
            handles[line] = axis.errorbar(at * shift, values[:, 1], spread, lw=1.4, ms=5, elinewidth=1,
                                          **LOOKS[line])  # fmt: skip
        axis.set(xscale="log", title=table)
        axis.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
        axis.minorticks_off()
        if table in level:
            axis.axhline(level[table][0], color=COLORS["gray"], lw=1, ls="--")
            axis.text(13.5, level[table][0], level[table][1], fontsize=8, color=COLORS["gray"], ha="right",
                      va="bottom")  # fmt: skip
        if log:
            _round_ticks(axis)
        if missing and table in missing:
            axis.set_title(table, pad=16)
            axis.text(0.5, 1.02, missing[table], transform=axis.transAxes, fontsize=8, ha="center",
                      color=COLORS["red"])  # fmt: skip
        axis.set_xlim(0.07, 14)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in grid.flat[len(panels) :]:
        axis.set_axis_off()
    for axis in grid[:, 0]:
        axis.set_ylabel(quality)
    for column in range(columns):
        grid[(len(panels) - 1 - column) // columns, column].set_xlabel("epsilon")
    figure.suptitle(title, fontsize=11)
    figure.legend(handles.values(), [LOOKS[line]["label"] for line in handles], loc="outside lower center",
                  ncols=len(handles), frameon=False, fontsize=9)  # fmt: skip
    save_numbers(name, ("table", "line", "epsilon", "lower", "median", "upper"), rows)
    save(figure, name)


def _round_ticks(axis: Axes) -> None:
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    ticks = [tick for tick in (1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100) if low <= tick <= high]
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()


def lines_of(found: Mapping[str, Any], names: Mapping[str, str]) -> Lines:
    """Return the lines of one learner's results, under other names; what was not measured is left out."""
    made: Lines = {}
    for epsilon in EPSILONS:
        for key, line in names.items():
            value = found[f"epsilon {epsilon:g}"].get(key)
            if value is not None:
                made.setdefault(line, {})[epsilon] = value
    return made


def figure_learners() -> None:
    """Draw one picture for each learner from the benchmarks' results."""
    plain = {name: name for name in ("ours", "ours, pure", "diffprivlib")}
    found = _results("sulq_unsupervised")
    if found is not None:
        for kind, name, title, quality in (
            (
                "pca",
                "pca",
                "Principal components: share of the variance that is possible (1 is best)",
                "share",
            ),
            (
                "k-means",
                "kmeans",
                "Clusters: mean squared distance over the least known (1 is best)",
                "ratio",
            ),
        ):
            panels = {
                f"{table} (k = {row['k']})": lines_of(row, plain)
                for table, row in found.get(kind, {}).items()
                if all(f"epsilon {epsilon:g}" in row for epsilon in EPSILONS)
            }
            slow = {
                f"{table} (k = {row['k']})": [
                    e for e in EPSILONS if TOO_LONG in row.get(f"epsilon {e:g}", {})
                ]
                for table, row in found.get(kind, {}).items()
            }
            missing = {
                table: f"diffprivlib: not in 40 s at ε = {', '.join(f'{e:g}' for e in at)}"
                for table, at in slow.items()
                if at
            }
            if panels:
                draw_learner(name, title, quality, panels, {}, missing, log=kind == "k-means")
    found = _results("sulq_supervised")
    if found is None:
        return
    tables = found["tables"]
    majority = {table: (row["majority"], "largest class") for table, row in tables.items()}
    for name, learner, title in (
        ("id3", "tree", "Decision trees (ID3): accuracy"),
        ("naive_bayes", "naive Bayes", "Naive Bayes: accuracy"),
        ("logistic", "logistic regression", "Logistic regression by gradient queries: accuracy"),
        ("perceptron", "perceptron", "Perceptron, averaged: accuracy (diffprivlib has none)"),
    ):
        panels = {}
        for table, row in tables.items():
            if learner in row:
                panels[table] = lines_of(row[learner], plain)
                if learner == "logistic regression":
                    cells = {"ours": "in cells", "ours, pure": "in cells, pure"}
                    panels[table] |= lines_of(row["logistic regression in cells"], cells)
                if learner == "tree":
                    panels[table] |= lines_of(row["forest"], {"diffprivlib": "forest"})
        if panels:
            draw_learner(name, title, "accuracy", panels, majority)


def _results(name: str) -> dict[str, Any] | None:
    path = RESULTS / f"{name}.json"
    if not path.is_file():
        print(f"{path.name} is not there: run benchmarks/{name}.py first. Its figures are left as they are.")
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


if __name__ == "__main__":
    figure_noise()
    figure_variance()
    figure_learners()
    print(f"wrote the figures of the private database to figures/{OUT.name}/")
