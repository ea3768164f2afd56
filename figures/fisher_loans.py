"""The first paper's figure 7: ridge regression of interest rates on noised loans, plain and noise-aware."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
from fisher import LOOKS, NOISES, OUT, add_noise, save, save_numbers, tidy
from fisher_success import WIDE, integer_codes
from foundation import COLORS
from matplotlib import pyplot as plt

from discreet.noise import Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fisher import Noise

    from discreet._types import AnyArray, Floats, Ints

FILE = "lending_club_2007_2011.parquet"
SIGMA = 1e-5
"""The paper's weight of the squared coefficients."""
PAPER_ROWS = 887_379
LAMBDAS = tuple(10.0**k for k in range(-2, 7))
TIMES: dict[Noise, float] = {"gaussian": 1.0, "laplace_fisher": 2.0}
"""Variance of a noise over the Gaussian one's."""
_CHUNK = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """All that ridge regression reads of a table: second moments of features and target."""

    n_rows: int
    gram: Floats
    cross: Floats
    square: float

    def loss(self, coef: Floats) -> float:
        """Return the paper's loss of a model on this table."""
        fit = self.square - 2 * coef @ self.cross + coef @ self.gram @ coef
        return float(SIGMA * coef @ coef + fit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Losses, on the original loans, of models trained on noised ones."""

    plain: float
    aware: float
    no_floor: float
    floored: float


def find_loans() -> Path | None:
    """Return the file with the loans, if there is one."""
    given = os.environ.get("DISCREET_DATA")
    folder = Path(given) if given else Path(__file__).parents[2] / "shared" / "data"
    return folder / FILE if (folder / FILE).is_file() else None


def read_loans(path: Path) -> tuple[Floats, Floats]:
    """Return standardized features and centered interest rates (percent a year).

    Words become integer codes, as in the paper, a missing one being a word of its own. Numbers that most
    loans lack are left out; in the others the mean stands in.
    """
    columns: dict[str, AnyArray] = dict(duckdb.read_parquet(str(path)).fetchnumpy())
    rate = np.asarray(columns.pop("int_rate"), np.float64)
    features = []
    for column in columns.values():
        if column.dtype == object:
            features.append(integer_codes(column))
        elif np.mean(np.ma.getmaskarray(column)) < 0.5:
            numbers = np.ma.masked_array(column, dtype=np.float64)
            features.append(np.ma.filled(numbers, numbers.mean()))
    X = np.column_stack(features)
    return (X - X.mean(axis=0)) / X.std(axis=0), rate - rate.mean()


def moments(
    X: Floats, y: Floats, rows: Ints | None = None, noise: tuple[Noise, float, Stream] | None = None
) -> Moments:
    """Sum over the rows named, a chunk at a time, with fresh noise on each if one is given."""
    n_rows, p = len(X) if rows is None else len(rows), X.shape[1]
    lower, upper = np.full(p, -WIDE), np.full(p, WIDE)
    gram, cross, square = np.zeros((p, p)), np.zeros(p), 0.0
    for start in range(0, n_rows, _CHUNK):
        chosen = slice(start, start + _CHUNK) if rows is None else rows[start : start + _CHUNK]
        part, target = X[chosen], y[chosen]
        if noise is not None:
            kind, lam, stream = noise
            part = add_noise(part, kind, lam, lower, upper, stream.spawn())
        gram += part.T @ part
        cross += part.T @ target
        square += float(target @ target)
    return Moments(n_rows=n_rows, gram=gram / n_rows, cross=cross / n_rows, square=square / n_rows)


def ridge(gram: Floats, cross: Floats) -> Floats:
    """Return the minimizer of the paper's loss."""
    return np.asarray(np.linalg.solve(gram + SIGMA * np.eye(len(gram)), cross))


def aware_ridge(seen: Moments, variance: float, floor: float) -> tuple[Floats, float]:
    """Subtract the known noise from the second moments first; return the model and the share floored.

    Eigenvalues below ``floor`` are moved up to it: they cannot be told from what the noise left behind.
    """
    values, vectors = np.linalg.eigh(seen.gram - variance * np.eye(len(seen.gram)))
    coef = vectors @ ((vectors.T @ seen.cross) / (np.maximum(values, floor) + SIGMA))
    return np.asarray(coef), float(np.mean(values < floor))


def edge(p: int, n_rows: int) -> float:
    """Return how wide the eigenvalues of pure unit noise spread, by random matrix theory."""
    return 2 * math.sqrt(p / n_rows) + p / n_rows


def losses(clean: Moments, seen: Moments, variance: float) -> Loss:
    """Train on noised moments, plainly and knowing the noise, and test on the clean ones."""
    aware, floored = aware_ridge(seen, variance, variance * edge(len(seen.gram), seen.n_rows))
    bare, _ = aware_ridge(seen, variance, 1e-9)
    return Loss(
        plain=clean.loss(ridge(seen.gram, seen.cross)),
        aware=clean.loss(aware),
        no_floor=clean.loss(bare),
        floored=floored,
    )


def large_table(clean: Moments, variance: float) -> float:
    """Return the loss of plain ridge on noised rows in the limit of many rows: a closed form."""
    return clean.loss(ridge(clean.gram + variance * np.eye(len(clean.gram)), clean.cross))


def standard_error(values: Floats) -> float:
    """Return the standard error of a mean; one value has none."""
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def measure(
    X: Floats, y: Floats, rows: Ints | None, lambdas: Sequence[float], repetitions: int
) -> tuple[Moments, list[tuple[str | float, ...]]]:
    """Return the clean moments, and a line of numbers for each noise and weight."""
    clean = moments(X, y, rows)
    out: list[tuple[str | float, ...]] = []
    for noise, times in TIMES.items():
        for lam in lambdas:
            variance = times / math.sqrt(lam)
            stream = Stream.from_seed(7).derive(f"{clean.n_rows} {noise} {lam:g}")
            found = [
                losses(clean, moments(X, y, rows, (noise, lam, stream)), variance) for _ in range(repetitions)
            ]
            plain, aware = np.array([f.plain for f in found]), np.array([f.aware for f in found])
            out.append(
                (
                    float(clean.n_rows), noise, lam, plain.mean(), standard_error(plain),
                    large_table(clean, variance), aware.mean(), standard_error(aware),
                    float(np.mean([f.floored for f in found])), float(np.median([f.no_floor for f in found])),
                    clean.loss(ridge(clean.gram, clean.cross)), clean.square, float(repetitions),
                )
            )  # fmt: skip
    return clean, out


HEADER = (
    "rows", "noise", "lambda", "plain", "plain_error", "plain_closed_form", "noise_aware",
    "noise_aware_error", "share_of_eigenvalues_floored", "median_noise_aware_without_floor", "original",
    "predicting_the_mean", "repetitions",
)  # fmt: skip


def figure_7(path: Path, repetitions: int = 10) -> None:
    """Draw the loss on the real loans, and on as many rows as the paper had."""
    X, y = read_loans(path)
    # Size alone: every loan comes about 21 times, each time with noise of its own.
    many = Stream.from_seed(7).generator().integers(len(X), size=PAPER_ROWS)
    figure, axes = plt.subplots(1, 2, figsize=(11.5, 4.9), layout="constrained", sharey=True)
    rows: list[tuple[str | float, ...]] = []
    panels: tuple[tuple[Ints | None, Sequence[float], int, str], ...] = (
        (None, LAMBDAS, repetitions, f"{len(X):,} real loans, {repetitions} repetitions"),
        (many, LAMBDAS[::2], 1, f"the same loans resampled to {PAPER_ROWS:,} rows, once"),
    )
    for (chosen, lambdas, times, title), axis in zip(panels, axes, strict=True):
        start = time.perf_counter()
        clean, found = measure(X, y, chosen, lambdas, times)
        rows += found
        fine = np.geomspace(lambdas[0], lambdas[-1], 81)
        for noise, factor in TIMES.items():
            mine = [row for row in found if row[1] == noise]
            looks = LOOKS[noise]
            axis.errorbar(lambdas, [row[3] for row in mine], [2 * row[4] for row in mine],
                          label=f"{NOISES[noise]}: plain", ms=5, lw=0, elinewidth=1,
                          marker=looks["marker"], color=looks["color"])  # fmt: skip
            axis.plot(fine, [large_table(clean, factor / math.sqrt(lam)) for lam in fine], lw=1,
                      color=looks["color"],
                      label="plain, closed form" if noise == "gaussian" else None)  # fmt: skip
            axis.errorbar(lambdas, [row[6] for row in mine], [2 * row[7] for row in mine],
                          label=f"{NOISES[noise]}: noise-aware", ms=4, lw=1.2, elinewidth=1,
                          marker=looks["marker"], color=COLORS["green"],
                          linestyle="-" if noise == "gaussian" else ":")  # fmt: skip
        axis.axhline(float(found[0][10]), color=COLORS["blue"], lw=1.3, label="original loans")
        axis.axhline(clean.square, color="black", lw=0.8, ls="--", label="predicting the mean rate")
        axis.set(xscale="log", yscale="log", xlabel="λ", title=title)
        axis.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
        axis.minorticks_off()
        print(f"figure 7, {title}: {time.perf_counter() - start:.0f} s")
    axes[0].set_ylabel("loss on the original loans (percentage points²)")
    axes[1].legend(frameon=False, fontsize=8.5, loc="upper right", bbox_to_anchor=(1.0, 0.93))
    tidy(*axes)
    figure.suptitle(f"Fig. 7: interest rate from {X.shape[1]} standardized features, ridge with σ = 1e-5",
                    fontsize=11.5)  # fmt: skip
    save(figure, "fig7")
    save_numbers("fig7", HEADER, rows)


def main() -> None:
    """Draw the figure, or say aloud that its table is missing."""
    loans = find_loans()
    if loans is None:
        print("=" * 88)
        print(f"SKIPPED figure 7: {FILE} was not found.")
        print("Set DISCREET_DATA to the folder that holds it. What figures/fisher/ holds was left as it is.")
        print("=" * 88)
        return
    figure_7(loans)
    print(f"wrote figure 7 to figures/{OUT.name}/")


if __name__ == "__main__":
    main()
