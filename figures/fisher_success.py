"""The first paper's figures 5 and 6: how well classifiers trained on noised tables do on the true rows."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
from fisher import LOOKS, NOISES, OUT, add_noise, save, save_numbers, tidy
from foundation import COLORS
from matplotlib import pyplot as plt

from discreet import datasets
from discreet.learn import RegularizedSVM
from discreet.noise import Stream
from discreet.privacy import gaussian_mu
from discreet.release.gaussian import trace_bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fisher import Noise

    from discreet._types import AnyArray, Floats, Ints

RAW, WIDE = 2.0**21, 256.0
"""How far raw and standardized features may go either way: wide enough to clip nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Features in one scaling, with the bounds that go with it."""

    name: str
    title: str
    X: Floats
    y: Ints
    lower: Floats
    upper: Floats
    widths: Floats
    """Declared ranges in this scaling, for the bound on every attacker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Success of one noise at one weight."""

    noise: Noise
    lam: float
    mean: float
    error: float
    repetitions: int


def read(name: str) -> dict[str, AnyArray]:
    """Return the columns of a bundled table as they stand in its file, in its order."""
    return dict(duckdb.read_parquet(str(datasets.load(name).path)).fetchnumpy())


def integer_codes(values: AnyArray) -> Floats:
    """Return numbers as they are and words as their places in the alphabet, a missing one being "?"."""
    if values.dtype != object:
        return np.asarray(values, np.float64)
    words = np.ma.filled(values, "?").astype(str)
    return np.asarray(np.unique(words, return_inverse=True)[1], np.float64)


def scaled(X: Floats, y: Ints, widths: Floats) -> dict[str, Table]:
    """Return the table raw, scaled to [0, 1] by its extremes, and standardized, as the paper may have."""
    p, sd = X.shape[1], X.std(axis=0)
    ones = np.ones(p)
    return {
        "raw": Table(
            name="raw", title="raw features", X=X, y=y, lower=-RAW * ones, upper=RAW * ones, widths=widths,
        ),
        "unit": Table(
            name="unit", title="features scaled to [0, 1]", X=(X - X.min(axis=0)) / np.ptp(X, axis=0), y=y,
            lower=0 * ones, upper=ones, widths=ones,
        ),
        "standard": Table(
            name="standard", title="standardized features", X=(X - X.mean(axis=0)) / sd, y=y,
            lower=-WIDE * ones, upper=WIDE * ones, widths=widths / sd,
        ),
    }  # fmt: skip


def clinic() -> dict[str, Table]:
    """569 patients, 30 features of cell nuclei; malignant is +1."""
    schema = datasets.load("clinic").schema
    columns = read("clinic")
    features = schema.numeric_features
    X = np.column_stack([columns[c.name] for c in features]).astype(np.float64)
    # The schema's bounds clip four cells; a figure of the paper must not, so they only give the widths.
    widths = np.array([c.width for c in features])
    return scaled(X, np.where(columns["diagnosis"] == "M", 1, -1), widths)


def census() -> dict[str, Table]:
    """48,842 adults, 14 features, words as integer codes as in the paper; above 50,000 USD is +1."""
    columns = read("census")
    label = columns.pop("income")
    X = np.column_stack([integer_codes(column) for column in columns.values()])
    return scaled(X, np.where(label == ">50K", 1, -1), np.ptp(X, axis=0))


def success(table: Table, noise: Noise, lam: float, repetitions: int) -> Point:
    """Train on noised rows, test on the true ones."""
    stream = Stream.from_seed(5).derive(f"{table.name} {noise} {lam:.6g}")
    rates = []
    for _ in range(repetitions):
        noised = add_noise(table.X, noise, lam, table.lower, table.upper, stream.spawn())
        rates.append(RegularizedSVM().fit(noised, table.y).score(table.X, table.y))
    error = statistics.stdev(rates) / math.sqrt(repetitions)
    return Point(noise=noise, lam=lam, mean=float(np.mean(rates)), error=error, repetitions=repetitions)


def curves(table: Table, lambdas: Sequence[float], repetitions: int) -> list[Point]:
    """Measure all noises at all weights."""
    return [success(table, noise, lam, repetitions) for noise in NOISES for lam in lambdas]


def draw_success(axis: Any, table: Table, points: Sequence[Point]) -> tuple[float, float]:
    """Draw the curves with two standard errors, the original and the base rate."""
    original = float(RegularizedSVM().fit(table.X, table.y).score(table.X, table.y))
    base = max(float(np.mean(table.y == label)) for label in (-1, 1))
    for noise, name in NOISES.items():
        mine = sorted((p for p in points if p.noise == noise), key=lambda p: p.lam)
        axis.errorbar(
            [p.lam for p in mine], [p.mean for p in mine], [2 * p.error for p in mine],
            label=name, ms=4, lw=1.3, elinewidth=1, **LOOKS[noise],
        )  # fmt: skip
    axis.axhline(original, color=COLORS["blue"], lw=1.3, label="original rows")
    axis.axhline(base, color="black", lw=0.8, ls="--", label="always the larger class")
    axis.set(xscale="log", title=table.title)
    return original, base


def figure_5(repetitions: int = 20) -> None:
    """Draw success on the clinic table in three scalings, over the bounds."""
    tables = clinic()
    p = tables["raw"].X.shape[1]
    # (8, 1e-5) for one row of 30 columns in [0, 1]: s = lambda^(1/4) sqrt(30).
    private = (gaussian_mu(8.0, 1e-5) / math.sqrt(p)) ** 4
    lambdas = {
        "raw": (1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0, 1e2, 1e4),
        "unit": (private, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1e4, 1e6, 1e8),
        "standard": (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e4, 1e6),
    }
    figure, axes = plt.subplots(
        2, 3, figsize=(13, 6.6), layout="constrained", sharex="col", height_ratios=[1.5, 1]
    )
    rows: list[tuple[str | float, ...]] = []
    for (name, table), top, bottom in zip(tables.items(), *axes, strict=True):
        start = time.perf_counter()
        points = curves(table, lambdas[name], repetitions)
        original, base = draw_success(top, table, points)
        top.set_ylim(0.6, 1.0)
        bounds = {lam: trace_bounds(np.full(p, lam**-0.5), np.ones(p), table.widths) for lam in lambdas[name]}
        rows += [
            (
                name, point.noise, point.lam, point.mean, point.error, point.repetitions, original, base,
                bounds[point.lam].unbiased / (2 if point.noise == "laplace_variance" else 1),
                bounds[point.lam].anyone if point.noise == "gaussian" else math.nan,
            )
            for point in points
        ]  # fmt: skip
        at = list(bounds)
        unbiased = np.array([bound.unbiased for bound in bounds.values()])
        bottom.loglog(at, unbiased, color=COLORS["red"], label="unbiased only: Gaussian, Laplace same Fisher")
        bottom.loglog(
            at, unbiased / 2, ":", color=COLORS["green"], label="unbiased only: Laplace same variance"
        )
        bottom.loglog(at, [bound.anyone for bound in bounds.values()], "--", color=COLORS["blue"],
                      label="every attacker: Gaussian")  # fmt: skip
        bottom.set(xlabel="λ")
        tidy(top, bottom)
        print(f"figure 5, {name}: {time.perf_counter() - start:.0f} s")
    axes[0, 0].set_ylabel("success rate on the original rows")
    axes[1, 0].set_ylabel("bound on the squared error of\na guess at a row (features' units²)")
    axes[0, 1].annotate(
        "(8, 1e-5)-local DP:\nbase rate", (private, 0.6274), xytext=(7e-3, 0.9), fontsize=8.5, ha="left",
        arrowprops={"arrowstyle": "->", "color": COLORS["gray"]},
    )  # fmt: skip
    axes[0, 0].legend(frameon=False, fontsize=8.5, loc="center right", bbox_to_anchor=(1.0, 0.35))
    axes[1, 1].set_ylim(top=1e5)  # room for the legend
    axes[1, 1].legend(frameon=False, fontsize=8.5, loc="upper right")
    figure.suptitle(
        f"Fig. 5: breast cancer (569 rows, 30 features), {repetitions} repetitions, two standard errors",
        fontsize=11.5,
    )
    save(figure, "fig5")
    save_numbers(
        "fig5",
        (
            "features", "noise", "lambda", "success", "standard_error", "repetitions", "original",
            "base_rate", "bound_unbiased_only", "bound_every_attacker",
        ),
        rows,
    )  # fmt: skip


def figure_6(repetitions: int = 3, many: int = 20) -> None:
    """Draw success on the census table in two scalings."""
    tables = census()
    lambdas = {
        "unit": (1e2, 1e3, 1e4, 1e5, 1e6, 1e8),
        "standard": (1e-1, 1.0, 1e1, 1e2, 1e3, 1e4, 1e6),
    }
    # Where the paper's order turns round: as many repetitions as it takes to see it.
    reversal = ("standard", 1e4)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained", sharey=True)
    rows: list[tuple[str | float, ...]] = []
    for (name, chosen), axis in zip(lambdas.items(), axes, strict=True):
        start = time.perf_counter()
        table = tables[name]
        points = [
            success(table, noise, lam, many if (name, lam) == reversal else repetitions)
            for noise in NOISES
            for lam in chosen
        ]
        original, base = draw_success(axis, table, points)
        rows += [
            (
                name,
                q.noise,
                q.lam,
                q.mean,
                q.error,
                q.repetitions,
                original,
                base,
                table.X.shape[1] * q.lam**-0.5,
            )
            for q in points
        ]
        axis.set(xlabel="λ")
        print(f"figure 6, {name}: {time.perf_counter() - start:.0f} s")
        if name == reversal[0]:
            means = {q.noise: q for q in points if q.lam == reversal[1]}
            g, fisher = means["gaussian"], means["laplace_fisher"]
            axis.annotate(
                f"Gaussian {g.mean:.5f} ± {g.error:.5f}\n"
                f"Laplace, same Fisher {fisher.mean:.5f} ± {fisher.error:.5f}"
                f"\n({many} repetitions)",
                (reversal[1], g.mean), xytext=(3e2, 0.79), fontsize=8.5, va="center",
                arrowprops={"arrowstyle": "->", "color": COLORS["gray"]},
            )  # fmt: skip
    axes[0].set_ylabel("success rate on the original rows")
    axes[0].legend(frameon=False, fontsize=8.5, loc="lower right", bbox_to_anchor=(1.0, 0.08))
    tidy(*axes)
    figure.suptitle(
        f"Fig. 6: census (48,842 rows, 14 integer codes), {repetitions} repetitions, two standard errors",
        fontsize=11.5,
    )
    save(figure, "fig6")
    save_numbers(
        "fig6",
        (
            "features", "noise", "lambda", "success", "standard_error", "repetitions", "original",
            "base_rate", "bound_gaussian_unbiased_only",
        ),
        rows,
    )  # fmt: skip


if __name__ == "__main__":
    figure_5()
    figure_6()
    print(f"wrote figures 5 and 6 to figures/{OUT.name}/")
