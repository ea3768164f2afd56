"""Statistics from published rows with noise: intervals hold; what the law says nothing of is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from discreet.noise import Stream
from discreet.noise_law import (
    Clear,
    ColumnLaw,
    GaussianLaw,
    InvariantLaw,
    JointResponseLaw,
    LaplaceLaw,
    MaskedLaw,
    NoiseLaw,
    ResponseLaw,
    SampledLaw,
)
from discreet.release.statistics import RowStatistics
from tests.release.redrawn_tables import covered

N = 3000
_DRAWS = Stream.from_seed(9).generator()
X = _DRAWS.uniform(0, 10, N)
TRUE: dict[str, Any] = {
    "x": X,
    "z": np.clip(X + _DRAWS.normal(size=N), 0, 10),
    "s": (X // 4).astype(int),
    "t": (_DRAWS.random(N) < X / 10).astype(int),
}
KEEP = {"s": 0.7, "t": 0.8}


def noise_law(**changed: Any) -> NoiseLaw:
    """Return the law of two numbers and two categories, of which some may be replaced."""
    laws: dict[str, Any] = {
        "x": GaussianLaw(variance=4.0),
        "z": LaplaceLaw(variance=2.0),
        "s": ResponseLaw(levels=3, keep=KEEP["s"]),
        "t": ResponseLaw(levels=2, keep=KEEP["t"]),
        **changed,
    }
    return NoiseLaw(
        columns=(
            ColumnLaw(name="x", lower=0, upper=10, law=laws["x"]),
            ColumnLaw(name="z", lower=0, upper=10, law=laws["z"]),
            ColumnLaw(name="s", type="category", levels=("a", "b", "c"), law=laws["s"]),
            ColumnLaw(name="t", type="category", levels=(0, 1), law=laws["t"]),
        )
    )


def publish(seed: int) -> dict[str, Any]:
    """Return rows with noise of that law."""
    draws = Stream.from_seed(seed).generator()

    def respond(codes: Any, levels: int, keep: float) -> Any:
        return np.where(draws.random(N) < keep, codes, (codes + draws.integers(1, levels, N)) % levels)

    return {
        "x": TRUE["x"] + 2 * draws.normal(size=N),
        "z": TRUE["z"] + draws.laplace(size=N),
        "s": respond(TRUE["s"], 3, KEEP["s"]),
        "t": respond(TRUE["t"], 2, KEEP["t"]),
    }


def coverage(law: NoiseLaw, draws: range) -> float:
    """Return how often intervals of all kinds of statistics hold the numbers of the true rows."""
    s, t, x, z = (TRUE[name] for name in ("s", "t", "x", "z"))
    found: list[bool] = []
    for seed in draws:
        rows = publish(seed)
        statistics = RowStatistics(law, lambda rows=rows: rows)  # type: ignore[misc]
        found += covered(statistics.count("s = 'a' OR t = 1"), np.sum((s == 0) | (t == 1)))
        table = [np.sum((s == i) & (t == j)) for i in range(3) for j in range(2)]
        found += covered(statistics.crosstab("s", "t"), table)
        found += covered(statistics.mean("x", by="s"), [x[s == i].mean() for i in range(3)])
        found += covered(statistics.mean("z"), z.mean())
        found += covered(statistics.mean("t", where="s = 'c'"), t[s == 2].mean())
        found += covered(statistics.proportion("t = 1", by="s"), [t[s == i].mean() for i in range(3)])
        found += covered(statistics.correlation("x", "z"), np.corrcoef(x, z)[0, 1])
    return float(np.mean(found))


@pytest.mark.slow
def test_intervals_from_rows_with_noise_hold() -> None:
    # 1,600 intervals, of which those of one release depend on each other.
    assert coverage(noise_law(), range(100)) >= 0.88


def test_rows_taken_as_they_are_would_be_seen() -> None:
    assert coverage(noise_law(s=Clear(), t=Clear(), x=Clear(), z=Clear()), range(20)) < 0.5


@pytest.mark.stats
def test_intervals_from_rows_with_noise_hold_in_many_draws() -> None:
    assert 0.94 <= coverage(noise_law(), range(3000)) <= 0.97


def test_columns_that_were_randomized_together_or_shown_in_part_are_corrected() -> None:
    joint = JointResponseLaw(columns=("s", "t"), levels=6, keep=0.6)
    draws = Stream.from_seed(1).generator()
    codes = TRUE["s"] * 2 + TRUE["t"]
    codes = np.where(draws.random(N) < 0.6, codes, (codes + draws.integers(1, 6, N)) % 6)
    rows = {**publish(1), "s": codes // 2, "t": codes % 2}
    found = RowStatistics(noise_law(s=joint, t=joint), lambda: rows).count("s = 'b'")
    assert found.sd is not None
    assert abs((found.value or 0) - np.sum(TRUE["s"] == 1)) < 6 * found.sd < 600
    shown = draws.random(N) < 0.5
    sampled = {**rows, "s": np.where(shown, TRUE["s"], 3), "t": np.where(shown, 2, TRUE["t"])}
    laws = {name: SampledLaw(law=Clear(), picked=1, among=2, unpublished=9) for name in ("s", "t")}
    half = RowStatistics(noise_law(**laws), lambda: sampled)
    assert abs((half.count("s = 'b'").value or 0) - np.sum(TRUE["s"] == 1)) < 6 * np.sqrt(N)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda s: s.count("x > 3"), "must name categories, and 'x'"),
        (lambda s: s.mean("x", by="z"), "must name categories, was 'z'"),
        (lambda s: s.correlation("x", "s"), "must hold numbers"),
    ],
)
def test_what_the_noise_says_nothing_about_is_refused(ask: Any, words: str) -> None:
    with pytest.raises(Exception, match=words):
        ask(RowStatistics(noise_law(), lambda: publish(1)))


@pytest.mark.parametrize(
    ("law", "words"),
    [
        (GaussianLaw(variance=1.0, clamped=True), "clamped"),
        (InvariantLaw(learner="ridge", variance=1.0), "noise that ridge does not notice"),
        (
            MaskedLaw(regularization=1, exact=True, origin="x", level=None, scale=1, shift=0, beside=""),
            "are made up",
        ),
    ],
)
def test_laws_that_cannot_be_corrected_for_are_refused(law: Any, words: str) -> None:
    with pytest.raises(Exception, match=words):
        RowStatistics(noise_law(x=law), lambda: publish(1)).mean("x")
