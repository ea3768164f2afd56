"""Speed of making masked points: the direct construction against the greedy one, and how it grows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from measure import interleaved, save

from discreet.noise import Stream
from discreet.release.masked import Task, make_mask

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, COLUMNS, PENALTY = 200, 30, 0.5
LEAST_RATIO = 50.0
"""How much faster than the greedy construction the direct one must be, at 200 points."""
SIZES = (10_000, 100_000, 1_000_000)
MOST_GROWTH = 2.0
"""Time per point at the largest size, over that at the smallest."""


def task(n: int, d: int, n_classes: int = 2, norm: float = 0.6, **other: Any) -> Task:
    """Make a classifier to be masked, the same one every time."""
    rows = 1 if n_classes == 2 else n_classes
    weights = np.sin(np.arange(1, rows * d + 1) ** 1.3).reshape(rows, d)
    weights -= weights.mean(axis=0) if rows > 1 else 0.0
    codes = np.arange(n) % n_classes
    usual: dict[str, Any] = {
        "weights": weights * (norm / np.linalg.norm(weights)),
        "regularization": PENALTY,
        "radius": 1.0,
        "constant": 0.0,
        "n_records": n,
        "labels": lambda weights, regularization: codes,
        "fixed": np.zeros((0, d)),
        "fixed_codes": np.zeros(0, np.int64),
    }
    return Task(**{**usual, **other})


def seconds_of(work: Callable[[], object]) -> float:
    """Time something once."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> dict[str, Any]:
    """Measure, print and save."""
    direct, greedy = task(ROWS, COLUMNS), task(ROWS, COLUMNS, construction="greedy")
    times = interleaved(
        {
            "direct": lambda: make_mask(direct, Stream.from_seed(1)),
            "greedy": lambda: make_mask(greedy, Stream.from_seed(1)),
        },
        rounds=3,
    )
    ratio = times["greedy"] / times["direct"]
    growth: dict[str, Any] = {}
    for name, classes, d, sizes in (
        ("two classes, 10 columns", 2, 10, SIZES),
        ("ten classes, 10 columns", 10, 10, SIZES[:2]),
    ):
        spent, gradients = {}, {}
        for n in sizes:
            work = task(n, d, classes)
            gradients[str(n)] = make_mask(work, Stream.from_seed(1)).gradient
            spent[str(n)] = min(
                seconds_of(lambda w=work: make_mask(w, Stream.from_seed(1))) for _ in range(2)
            )
        per_point = [spent[str(n)] / n for n in sizes]
        growth[name] = {
            "seconds": {n: round(t, 3) for n, t in spent.items()},
            "gradient": gradients,
            "per_point_largest_over_smallest": round(per_point[-1] / per_point[0], 2),
        }
    result = {
        "at_200_points": {
            "direct_ms": round(1e3 * times["direct"], 2),
            "greedy_ms": round(1e3 * times["greedy"], 1),
            "ratio": round(ratio, 1),
        },
        "growth": growth,
        "bar": {
            "least_ratio": LEAST_RATIO,
            "most_growth": MOST_GROWTH,
            "met": ratio >= LEAST_RATIO
            and all(part["per_point_largest_over_smallest"] <= MOST_GROWTH for part in growth.values()),
        },
    }
    print(result["at_200_points"])
    for name, part in growth.items():
        print(name, part)
    print("bars met:", result["bar"]["met"])
    save("masked", result)
    return result


if __name__ == "__main__":
    main()
