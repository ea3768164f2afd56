"""What noise promises: error floors of one column, and exact against printed accounting."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt

from discreet.privacy import gaussian_delta, gaussian_mu, zcdp_rho
from discreet.privacy.floors import GaussianNoise, bayes_floor, van_trees_floor
from discreet.privacy.priors import IntegerPrior, UniformPrior

if TYPE_CHECKING:
    from collections.abc import Sequence

OUT = Path(__file__).parent / "foundation"
COLORS = {"blue": "#2b5c8a", "red": "#b5442e", "gray": "#7a7a7a", "green": "#3c7a4b"}


def save(name: str, header: Sequence[str], rows: Sequence[Sequence[float]]) -> None:
    """Write the numbers behind a figure, and the figure."""
    OUT.mkdir(exist_ok=True)
    with (OUT / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows([[f"{value:.9g}" for value in row] for row in rows])
    plt.savefig(OUT / f"{name}.png", dpi=150)
    plt.close()


def floors() -> None:
    """Age from 17 to 90: what can be proven from noise, against every attacker."""
    continuous, whole = UniformPrior(17, 90), IntegerPrior(17, 90)
    sds = np.geomspace(0.1, 100, 61)
    rows = []
    for sd in sds:
        noise = GaussianNoise(float(sd))
        rows.append(
            (
                sd,
                bayes_floor(noise, continuous),
                bayes_floor(noise, whole),
                van_trees_floor(noise, continuous),
                sd,
            )
        )
    table = np.array(rows)
    _, axis = plt.subplots(figsize=(7, 4.4), layout="constrained")
    axis.loglog(sds, table[:, 4], ":", color=COLORS["gray"], label="Cramér-Rao: unbiased attackers only")
    axis.loglog(sds, table[:, 1], color=COLORS["blue"], label="exact Bayes error, real numbers")
    axis.loglog(sds, table[:, 2], color=COLORS["red"], label="exact Bayes error, whole years")
    axis.loglog(sds, table[:, 3], "--", color=COLORS["green"], label="van Trees: closed form, another prior")
    axis.axhline(73 / math.sqrt(12), color=COLORS["gray"], lw=0.8)
    axis.text(0.105, 73 / math.sqrt(12) * 1.08, "a blind guess", color=COLORS["gray"], fontsize=9)
    axis.set(
        xlabel="standard deviation of the noise (years)",
        ylabel="least error of any guess (years)",
        ylim=(0.02, 110),
        title="Age from 17 to 90: in whole years, small noise is undone by rounding",
    )
    axis.legend(frameon=False, loc="lower right", fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    save("floors", ("sd", "bayes", "bayes_integers", "van_trees", "cramer_rao"), rows)


def accounting() -> None:
    """Noise for (epsilon, 1e-5): exact, by zCDP, and by the first paper's theorem 2.5."""
    delta = 1e-5
    epsilons = np.geomspace(0.1, 64, 61)
    rows = []
    for epsilon in epsilons:
        exact = 1 / gaussian_mu(float(epsilon), delta)
        concentrated = 1 / math.sqrt(2 * zcdp_rho(float(epsilon), delta))
        printed = (1 + math.sqrt(2 * math.log(1 / delta))) / epsilon
        rows.append((epsilon, exact, concentrated, printed, gaussian_delta(float(epsilon), 1 / printed)))
    table = np.array(rows)
    _, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    left.loglog(epsilons, table[:, 1], color=COLORS["blue"], label="exact")
    left.loglog(epsilons, table[:, 2], "--", color=COLORS["green"], label="by zCDP")
    left.loglog(epsilons, table[:, 3], color=COLORS["red"], label="theorem 2.5 as printed")
    left.set(xlabel="epsilon", ylabel="noise sd over sensitivity", title="Noise for (epsilon, 1e-5)")
    left.legend(frameon=False)
    right.loglog(epsilons, np.maximum(table[:, 4], 1e-30), color=COLORS["red"])
    right.axhline(delta, color=COLORS["gray"], lw=0.8)
    right.text(0.11, delta * 2, "claimed 1e-5", color=COLORS["gray"], fontsize=9)
    right.set(
        xlabel="epsilon",
        ylabel="true delta",
        ylim=(1e-12, 1),
        title="Theorem 2.5's noise: wasteful, then not private",
    )
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    save("accounting", ("epsilon", "exact", "zcdp", "theorem_2_5", "true_delta_of_theorem_2_5"), rows)


if __name__ == "__main__":
    floors()
    accounting()
    print(f"wrote {', '.join(sorted(p.name for p in OUT.iterdir()))} to figures/{OUT.name}/")
