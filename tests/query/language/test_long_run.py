"""Texts by the hundred thousand: refused, or the same integers everywhere; none fails on a row."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import pytest
from benchmarks.measure import save

from tests.query.language.checks import Tally, accepted, agree, stays_within_bounds
from tests.query.language.generator import Generator, HashChoices
from tests.query.language.rows import (
    curated,
    duckdb_connection,
    duckdb_indices,
    named,
    postgres_indices,
)

if TYPE_CHECKING:
    from tests.query.language.rows import Compute

ARRAYS = curated(200)
COLUMNS = named(ARRAYS)
BATCH = 40


def texts(seed: int) -> list[str]:
    """Draw a batch: a quarter loose words, a quarter expressions with a strange word, a half without."""
    generator = Generator(HashChoices(seed))
    kinds = (
        generator.soup,
        generator.mutated,
        lambda: generator.text(1 + seed % 3),
        lambda: generator.text(2),
    )
    return [kinds[i % 4]() for i in range(BATCH)]


def run(batches: range, engines: dict[str, tuple[Compute, int]]) -> tuple[Tally, dict[str, int]]:
    """Check batches of texts, on each engine every so many."""
    tally, compared = Tally(), dict.fromkeys(engines, 0)
    for seed in batches:
        expressions = accepted(texts(seed), tally)
        for expression in expressions:
            stays_within_bounds(expression, COLUMNS)
        if not expressions:
            continue
        for name, (compute, every) in engines.items():
            if seed % every == 0:
                agree(expressions, COLUMNS, compute)
                compared[name] += len(expressions)
    return tally, compared


@pytest.mark.slow
def test_a_thousand_texts_are_refused_or_answered_alike() -> None:
    connection = duckdb_connection(ARRAYS)
    tally, compared = run(range(25), {"duckdb": (partial(duckdb_indices, connection), 1)})
    assert tally.generated == 1000
    assert compared["duckdb"] == tally.accepted > 300
    assert tally.refused > 300


@pytest.mark.stats
def test_two_hundred_thousand_texts_are_refused_or_answered_alike(postgres_url: str) -> None:
    connection = duckdb_connection(ARRAYS)
    start = time.process_time()
    with postgres_indices(postgres_url, ARRAYS) as postgres:
        engines: dict[str, tuple[Compute, int]] = {
            "duckdb": (partial(duckdb_indices, connection), 1),
            "postgres": (postgres, 10),
        }
        tally, compared = run(range(5000), engines)
    assert tally.generated == 200_000
    save(
        "expressions",
        {
            "generated": tally.generated,
            "accepted": tally.accepted,
            "refused": tally.refused,
            "rows": len(COLUMNS["age"]),
            "compared_with_evaluate": compared,
            "differences": 0,
            "engine_errors": 0,
            "values_outside_their_interval": 0,
            "processor_seconds": round(time.process_time() - start),
            "refused_constructs": dict(sorted(tally.constructs.items(), key=lambda item: -item[1])[:60]),
        },
    )
