"""The first paper's figure 4: noise that a classifier does not notice, and the luck in its bound of 80.5."""

from __future__ import annotations

import math

import numpy as np
from fisher import OUT, PLANE, SEED, boundary, draw_plane, save, save_numbers, tidy
from fisher_success import clinic
from foundation import COLORS
from matplotlib import pyplot as plt

from discreet.learn import RegularizedSVM
from discreet.release.invariant import InvariantRelease

VARIANCE = 100.0
PAPER = 80.5
TABLES = 1000


def bound_over_variance(model: RegularizedSVM) -> float:
    """Return ``(p - 1) (1 - max h)``: times m, the bound for the row that is noised least."""
    pull = model.dual_coef_**2
    return (len(model.coef_) - 1) * (1 - float(pull.max() / pull.sum()))


def bounds_over_tables(tables: int) -> list[tuple[float, float, float]]:
    """Return seed, bound and number of support vectors for fresh draws of the paper's table."""
    rows = []
    for seed in range(tables):
        model = RegularizedSVM().fit(*draw_plane(seed))
        rows.append((float(seed), VARIANCE * bound_over_variance(model), float(len(model.support_))))
    return rows


def figure_4(tables: int = TABLES) -> None:
    """Draw one release with its classifiers, and the distribution of the bound."""
    X, y = draw_plane(SEED)
    method = InvariantRelease(learner="svm", variance=VARIANCE, bounds=PLANE, random_state=SEED)
    noised = method.release(X, y).data
    before, after = RegularizedSVM().fit(X, y), RegularizedSVM().fit(noised, y)
    moved = max(np.abs(before.coef_ - after.coef_).max(), abs(before.intercept_ - after.intercept_))
    exposure = method.exposure_
    assert exposure is not None
    assert math.isclose(exposure.smallest_bound, VARIANCE * bound_over_variance(before), rel_tol=1e-9)

    rows = bounds_over_tables(tables)
    bounds = np.array(rows)[:, 1]
    share = float(np.mean(bounds < PAPER))
    summary: list[tuple[str, float]] = [
        ("mean", float(bounds.mean())),
        ("sd", float(bounds.std(ddof=1))),
        *((f"quantile {q:g}", float(np.quantile(bounds, q))) for q in (0.05, 0.25, 0.5, 0.75, 0.95)),
        ("max", float(bounds.max())),
        ("share of tables below the paper's 80.5", share),
        ("fewest support vectors", min(row[2] for row in rows)),
        ("most support vectors", max(row[2] for row in rows)),
        ("mean support vectors", float(np.mean([row[2] for row in rows]))),
        (f"bound of the table drawn (seed {SEED})", exposure.smallest_bound),
        ("largest change of a coefficient or the intercept", moved),
        ("rows that somebody who knows all others computes exactly", float(exposure.leaned_on.sum())),
        *(
            (f"clinic table, {table.title}: bound over m", bound_over_variance(model))
            for table in clinic().values()
            for model in [RegularizedSVM().fit(table.X, table.y)]
        ),
    ]
    save_numbers("fig4_bounds", ("seed", "bound", "support_vectors"), rows)
    save_numbers("fig4_summary", ("what", "value"), summary)
    points = [("original", *x, label) for x, label in zip(X, y, strict=True)]
    points += [("released", *x, label) for x, label in zip(noised, y, strict=True)]
    save_numbers("fig4_points", ("table", "x1", "x2", "y"), points)

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 4.6), layout="constrained", gridspec_kw={"width_ratios": [1.25, 1]}
    )
    for label, marker, word in ((1, "o", "y = +1"), (-1, "^", "y = −1")):
        left.scatter(*noised[y == label].T, s=14, marker=marker, color=COLORS["red"], lw=0, alpha=0.8,
                     label=f"released, {word}")  # fmt: skip
        left.scatter(*X[y == label].T, s=12, marker=marker, color=COLORS["blue"], lw=0,
                     label=f"original, {word}")  # fmt: skip
    across = np.array([-40.0, 40.0])
    left.plot(
        across, boundary(before, across), color=COLORS["blue"], lw=3, alpha=0.45, label="classifier before"
    )
    left.plot(across, boundary(after, across), "--", color=COLORS["red"], lw=1.2, label="classifier after")
    left.set(
        xlabel="first feature",
        ylabel="second feature",
        xlim=(-32, 32),
        ylim=(-4.5, 13),
        title=f"Fig. 4: invariant noise, m = 100; the classifier moves by {moved:.0e}",
    )
    left.legend(frameon=False, fontsize=8.5, ncols=3, loc="upper center")

    right.hist(bounds, bins=np.arange(0, 102.5, 2.5).tolist(), color=COLORS["blue"], alpha=0.75)
    right.axvline(PAPER, color=COLORS["red"])
    top = right.get_ylim()[1]
    right.text(PAPER + 1, top * 0.98, f"paper: {PAPER},\nabove {100 * share:.0f}%\nof tables", va="top",
               color=COLORS["red"], fontsize=9)  # fmt: skip
    right.axvline(float(bounds.mean()), color=COLORS["gray"], ls="--")
    right.text(float(bounds.mean()) - 1, top * 0.98,
               f"mean {bounds.mean():.1f},\nsd {bounds.std(ddof=1):.1f}",
               va="top", ha="right", color=COLORS["gray"], fontsize=9)  # fmt: skip
    right.set(
        xlabel="bound m (p − 1)(1 − max h): squared error of unbiased\n"
        "guesses by somebody who knows no other row",
        ylabel=f"tables out of {tables}",
        xlim=(0, 102),
        title="The bound depends on the table drawn",
    )
    tidy(left, right)
    save(figure, "fig4")


if __name__ == "__main__":
    figure_4()
    print(f"wrote figure 4 to figures/{OUT.name}/")
