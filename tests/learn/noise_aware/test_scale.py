"""One pass in constant memory, at most five times as long as plain class means take."""

from __future__ import annotations

import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.learn import NoiseAwareClassifier
from discreet.noise import Stream
from discreet.noise_law import Clear, ColumnLaw, GaussianLaw, NoiseLaw, ResponseLaw

if TYPE_CHECKING:
    from collections.abc import Callable

COLUMNS = 12
LABEL = ColumnLaw(name="y", type="category", levels=(0, 1), role="target", law=Clear())
LISTS = NoiseLaw(
    columns=(
        *(
            ColumnLaw(name=f"c{j}", type="category", levels=(0, 1, 2, 3), law=ResponseLaw(levels=4, keep=0.6))
            for j in range(COLUMNS)
        ),
        LABEL,
    )
)
NUMBERS = NoiseLaw(
    columns=(
        *(
            ColumnLaw(name=f"x{j}", lower=0.0, upper=1.0, law=GaussianLaw(variance=0.08))
            for j in range(COLUMNS)
        ),
        LABEL,
    )
)


def table(kind: str, n: int) -> tuple[NoiseLaw, Any, Any]:
    generator = Stream.from_seed(1).generator()
    labels = generator.integers(0, 2, n)
    if kind == "lists":
        return LISTS, generator.integers(0, 4, (n, COLUMNS), dtype=np.int8), labels
    return NUMBERS, generator.random((n, COLUMNS)), labels


def most_memory(kind: str, n: int) -> int:
    """Return the most bytes that a fit held at a time, beside its matrix."""
    law, rows, labels = table(kind, n)
    tracemalloc.start()
    try:
        NoiseAwareClassifier(law, on_weak="rank").fit(rows, labels)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["lists", "numbers"])
def test_memory_does_not_grow_with_the_number_of_rows(kind: str) -> None:
    short, long = most_memory(kind, 100_000), most_memory(kind, 400_000)
    assert long < short + 2_500_000  # a byte or two for each further label, and no row
    assert long < 60_000_000


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.mark.stats
@pytest.mark.parametrize("kind", ["lists", "numbers"])
def test_ten_million_rows_take_at_most_five_times_as_long_as_their_class_means(kind: str) -> None:
    law, rows, labels = table(kind, 10_000_000)
    plain = min(seconds(lambda: [rows[labels == c].mean(axis=0) for c in (0, 1)]) for _ in range(2))
    ours = min(seconds(lambda: NoiseAwareClassifier(law, on_weak="rank").fit(rows, labels)) for _ in range(2))
    assert ours < 5 * plain
