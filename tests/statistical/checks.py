"""Checks that return the probability of something at least as odd, if the sampler has no fault."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special, stats

from tests.statistical import ALPHA

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import AnyArray, Floats, Ints
    from tests.statistical.laws import IntegerLaw

LEAST_EXPECTED = 200.0
"""Below it, the chi-square law is too rough at a level of 1e-9."""
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "sampler.json"


def chi_square(counts: Ints, probabilities: Floats) -> float:
    """Compare counts with exact cell probabilities; rare cells are joined with their neighbors."""
    n = counts.sum()
    seen, wanted = [], []
    count = expected = 0.0
    for k, p in zip(counts.tolist(), (probabilities * n).tolist(), strict=True):
        count, expected = count + k, expected + p
        if expected >= LEAST_EXPECTED:
            seen.append(count)
            wanted.append(expected)
            count = expected = 0.0
    seen[-1] += count
    wanted[-1] += expected
    assert len(seen) > 1, "a single cell tests nothing: draw more"
    statistic = math.fsum((k - e) ** 2 / e for k, e in zip(seen, wanted, strict=True))
    return float(stats.chi2.sf(statistic, len(seen) - 1))


def cells(values: Ints, law: IntegerLaw, number: int = 200) -> float:
    """Chi-square over about ``number`` cells of equal probability, and rarer ones in both tails."""
    edges = law.edges(number)
    counts = np.bincount(np.searchsorted(edges, values), minlength=edges.size + 1)
    return chi_square(counts, law.probabilities(edges))


def tails(values: Ints, law: IntegerLaw) -> float:
    """Chi-square over halving tail probabilities, from 1/2 down to what the sample can show."""
    depth = int(math.log2(values.size / LEAST_EXPECTED))
    # Two symmetric tails at once: abs(value) > x.
    low, high = np.zeros(depth), np.full(depth, 100.0 * law.scale + 10)
    wanted = 2.0 ** -np.arange(1, depth + 1)
    for _ in range(90):
        middle = (low + high) / 2
        over = 2 * law.below(-np.floor(middle) - 1) > wanted
        low, high = np.where(over, middle, low), np.where(over, high, middle)
    edges = np.unique(np.floor(high))
    survival = np.concatenate([[1.0], 2 * law.below(-edges - 1), [0.0]])
    counts = np.bincount(np.searchsorted(edges, np.abs(values)), minlength=edges.size + 1)
    return chi_square(counts, -np.diff(survival))


def kolmogorov(values: AnyArray, cdf: Callable[[Floats], Floats]) -> float:
    """Largest distance from a distribution function, discrete or not.

    The Dvoretzky-Kiefer-Wolfowitz-Massart bound holds for every law and every sample size.
    """
    x, counts = np.unique(values, return_counts=True)
    upto = np.cumsum(counts) / values.size
    exact = cdf(x.astype(np.float64))
    # Between two values seen, the empirical function is flat and the exact one is largest just before
    # the next. For integers that is the exact function at the next value minus one.
    before = cdf(x.astype(np.float64) - 1) if values.dtype.kind == "i" else exact
    distance = max(float(np.abs(upto - exact).max()), float(np.abs(before - np.append(0.0, upto[:-1])).max()))
    return min(1.0, 2 * math.exp(-2 * values.size * distance**2))


def low_bits(values: Ints, bits: int = 6) -> float:
    """Chi-square of the lowest bits, uniform where the scale is far above ``2**bits``."""
    counts = np.bincount(values & ((1 << bits) - 1), minlength=1 << bits)
    return chi_square(counts, np.full(1 << bits, 2.0**-bits))


def mean(values: AnyArray, expected: float, deviation: float) -> float:
    """Compare a mean with the exact one; ``deviation`` is the exact one of a single value."""
    z = (float(np.mean(values)) - expected) / deviation * math.sqrt(len(values))
    return float(2 * special.ndtr(-abs(z)))


def two_samples(x: Ints, y: Ints, apart: float = 0.0) -> float:
    """Kolmogorov distance of two samples whose laws are at most ``apart`` from one another."""
    points = np.unique(np.concatenate([x, y]))
    each = [np.searchsorted(np.sort(v), points, side="right") / v.size for v in (x, y)]
    distance = max(0.0, float(np.abs(each[0] - each[1]).max()) - apart)
    # Each sample is within t of its own law except with probability 2 exp(-2 n t**2).
    a, b = math.sqrt(x.size), math.sqrt(y.size)
    first = distance * b / (a + b)
    return min(1.0, 4 * math.exp(-2 * (first * a) ** 2))


def all_checks(values: Ints, law: IntegerLaw) -> dict[str, float]:
    """Run every check that applies to a symmetric law on the integers."""
    found = {
        "cells": cells(values, law),
        "tails": tails(values, law),
        "kolmogorov": kolmogorov(values, law.cdf),
        "mean": mean(values, 0.0, law.deviation),
        "absolute mean": mean(np.abs(values), law.mean_absolute, law.deviation_absolute),
    }
    if law.scale >= 2**9:
        found["low bits"] = low_bits(values)
    return found


def assert_fits(p_values: dict[str, float]) -> None:
    """Fail if one of the checks found what happens by chance with probability below ALPHA."""
    odd = {name: p for name, p in p_values.items() if p < ALPHA}
    assert not odd, f"below {ALPHA:g}: {odd}"


def record(name: str, n: int, p_values: dict[str, float], **more: Any) -> None:
    """Write the outcome of a long check into the table of results."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    table = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    table[name] = {"n": n, "alpha": ALPHA, "p_values": p_values, **more}
    RESULTS.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
