"""The sample of pairs is fair, aligned and of constant size; its totals are those of all rows."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from discreet import Column, GaussianRelease, Schema
from discreet.errors import ParameterError
from discreet.evaluation.tallies import PairedSample
from discreet.noise import Stream
from tests.statistical import ALPHA
from tests.statistical.checks import chi_square

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from discreet._types import AnyArray, Words

SCHEMA = Schema(columns=[Column("x", lower=0, upper=1000)])


class Script:
    """Stands in for a stream: hands out words that the test has chosen."""

    def __init__(self, words: Iterable[int]) -> None:
        self._left = list(words)

    def words(self, n: int) -> Words:
        out, self._left = self._left[:n], self._left[n:]
        return np.array(out, np.uint64)


class FirstStay(PairedSample):
    """A wrong twin: whoever came first stays."""

    def _choose(self, rows: Any, published: Any, words: Words) -> None:
        super()._choose(rows, published, np.arange(len(words), dtype=np.uint64) + np.uint64(self.seen))


class BatchByBatch(PairedSample):
    """A wrong twin: a full batch replaces what was there, however many rows came before."""

    def _choose(self, rows: Any, published: Any, words: Words) -> None:
        self._words[: self._held] = np.iinfo(np.uint64).max
        super()._choose(rows, published, words)


class Misaligned(PairedSample):
    """A wrong twin: the published rows come from the next person."""

    def __call__(self, rows: Any, published: Any) -> None:
        super().__call__(rows, {name: np.roll(values, 1) for name, values in published.items()})


def feed(pairs: PairedSample, n: int, batch: int) -> PairedSample:
    for start in range(0, n, batch):
        values = np.arange(start, min(n, start + batch), dtype=np.float64)
        pairs({"x": values}, {"x": values + 0.25})
    return pairs


def subsets(kind: type[PairedSample], batch: int) -> Counter[tuple[float, ...]]:
    """Count which two of five rows stay, over every order that five different words can have."""
    found: Counter[tuple[float, ...]] = Counter()
    for order in itertools.permutations(range(1, 6)):
        pairs = feed(kind(SCHEMA, cast("Stream", Script(order)), rows=2), 5, batch)
        found[tuple(sorted(pairs.rows["x"].tolist()))] += 1
    return found


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5])
def test_every_subset_is_equally_likely_whatever_the_batches(batch: int) -> None:
    found = subsets(PairedSample, batch)

    assert set(found) == set(itertools.combinations(range(5), 2))
    assert set(found.values()) == {math.factorial(5) // math.comb(5, 2)}


@pytest.mark.parametrize("twin", [FirstStay, BatchByBatch])
def test_a_biased_reservoir_is_caught_by_the_same_count(twin: type[PairedSample]) -> None:
    assert len(set(subsets(twin, 2).values())) > 1 or len(subsets(twin, 2)) < math.comb(5, 2)


def places(kind: type[PairedSample]) -> AnyArray:
    """Sample 10 of 200 rows a thousand times, and count how often each twentieth of the table is there."""
    stream, counts = Stream.from_seed(1), np.zeros(20, np.int64)
    for _ in range(1_000):
        kept = feed(kind(SCHEMA, stream, rows=10), 200, 64).rows["x"]
        counts += np.bincount((kept // 10).astype(np.int64), minlength=20)
    return counts


def test_real_words_keep_early_and_late_rows_alike() -> None:
    assert chi_square(places(PairedSample), np.full(20, 1 / 20)) > ALPHA


def test_a_reservoir_that_prefers_late_rows_is_caught() -> None:
    assert chi_square(places(BatchByBatch), np.full(20, 1 / 20)) < ALPHA


def misaligned(pairs: PairedSample) -> bool:
    return bool((pairs.published_rows["x"] - pairs.rows["x"] != 0.25).any())


def test_true_and_published_rows_stay_side_by_side() -> None:
    assert not misaligned(feed(PairedSample(SCHEMA, Stream.from_seed(2), rows=50), 900, 128))
    assert misaligned(feed(Misaligned(SCHEMA, Stream.from_seed(2), rows=50), 900, 128))


class Forgetful(PairedSample):
    """A wrong twin: whoever had to go is not passed on."""

    def _choose(self, rows: Any, published: Any, words: Words) -> None:
        passed: list[Any] = []
        others = self._others
        assert others is not None
        self._others = lambda batch: passed.append(batch)
        super()._choose(rows, published, words)
        self._others = others
        for batch in passed:
            here = np.isin(batch["x"], published["x"])
            others({name: values[here] for name, values in batch.items()})


@pytest.mark.parametrize(("kind", "complete"), [(PairedSample, True), (Forgetful, False)])
@pytest.mark.parametrize("batch", [7, 64, 1_000])
def test_everybody_is_in_the_sample_or_passed_on_and_nobody_is_both(
    kind: type[PairedSample], complete: bool, batch: int
) -> None:
    passed: list[AnyArray] = []
    stream = Stream.from_seed(6)
    pairs = feed(kind(SCHEMA, stream, rows=50, others=lambda rows: passed.append(rows["x"])), 900, batch)
    found = np.sort(np.concatenate([pairs.published_rows["x"], *passed]))
    everybody = bool(np.array_equal(found, np.arange(900) + 0.25))
    assert everybody == (complete or batch == 1_000)  # of one batch nobody has to go


def test_a_short_table_is_kept_whole() -> None:
    pairs = feed(PairedSample(SCHEMA, Stream.from_seed(3), rows=50), 30, 7)

    assert pairs.whole
    assert pairs.seen == 30
    assert pairs.rows["x"].tolist() == list(range(30))


def test_memory_is_the_same_after_many_rows() -> None:
    pairs = feed(PairedSample(SCHEMA, Stream.from_seed(4), rows=50), 1_000, 100)
    before = {name: values.nbytes for name, values in pairs._kept[0].items()}
    feed(pairs, 20_000, 1_000)

    assert {name: values.nbytes for name, values in pairs._kept[0].items()} == before
    assert not pairs.whole
    assert pairs.rows["x"].size == 50


def test_a_wide_table_keeps_fewer_rows() -> None:
    wide = Schema(columns=[Column(f"x{j}", lower=0, upper=1) for j in range(4_000)])

    assert PairedSample(wide, Stream.from_seed(5))._capacity == 2_000


def test_sides_of_different_lengths_are_refused() -> None:
    with pytest.raises(ParameterError, match="one for one"):
        PairedSample(SCHEMA, Stream.from_seed(6))({"x": np.zeros(3)}, {"x": np.zeros(2)})


def test_no_room_is_refused() -> None:
    with pytest.raises(ParameterError, match="rows of PairedSample"):
        PairedSample(SCHEMA, Stream.from_seed(6), rows=0)


MIXED = Schema(
    columns=[
        Column("age", type="integer", lower=17, upper=90),
        Column("pay", lower=0, upper=10, required=False),
        Column("job", values=("a", "b"), required=False),
    ]
)


def mixed(n: int) -> tuple[dict[str, AnyArray], dict[str, AnyArray]]:
    g = Stream.from_seed(7).generator()
    pay = g.uniform(0, 10, n)
    pay[::5] = np.nan
    rows: dict[str, AnyArray] = {
        "age": g.integers(17, 91, n).astype(np.float64),
        "pay": pay,
        "job": g.integers(0, 4, n).astype(np.int32),
    }
    published: dict[str, AnyArray] = {
        "age": rows["age"] + g.normal(0, 20, n),
        "pay": np.where(g.uniform(size=n) < 0.1, np.nan, g.normal(5, 4, n)),
        "job": g.integers(0, 4, n),
    }
    return rows, published


def test_totals_are_exact_over_all_rows_not_over_the_sample() -> None:
    rows, published = mixed(5_000)
    pairs = PairedSample(MIXED, Stream.from_seed(8), rows=20)
    for start in range(0, 5_000, 700):
        pairs(*({k: v[start : start + 700] for k, v in side.items()} for side in (rows, published)))

    for name in ("age", "pay"):
        totals = pairs.totals[name]
        assert totals.bins is not None
        for tally, side in ((totals.original, rows), (totals.release, published)):
            cells = side[name][~np.isnan(side[name])]
            edges = totals.bins.edges()
            inside, _ = np.histogram(cells, edges)
            assert tally.counts[1:-1].tolist() == inside.tolist()
            assert tally.counts[0] == (cells < edges[0]).sum()
            assert tally.counts[-1] == (cells > edges[-1]).sum()
            assert tally.missing == 5_000 - cells.size
            assert tally.mean == pytest.approx(cells.mean(), rel=1e-11)
            assert tally.sd == pytest.approx(cells.std(), rel=1e-10)
    assert pairs.totals["job"].original.counts.tolist() == np.bincount(rows["job"]).tolist()
    assert pairs.totals["job"].release.counts.tolist() == np.bincount(published["job"]).tolist()


def test_bounds_themselves_are_inside() -> None:
    pairs = PairedSample(SCHEMA, Stream.from_seed(9))
    pairs({"x": np.array([0.0, 1000.0])}, {"x": np.array([-1e-6, 1000.0 + 1e-6])})
    totals = pairs.totals["x"]

    assert totals.original.counts[[0, -1]].tolist() == [0, 0]
    assert totals.release.counts[[0, -1]].tolist() == [1, 1]


def test_it_watches_a_release(tmp_path: Path) -> None:
    source = {"x": np.linspace(0, 1000, 3_000)}
    method = GaussianRelease(scale=5.0, schema=SCHEMA)
    pairs = PairedSample(SCHEMA, Stream.from_seed(10), rows=500)
    method.publish(source, tmp_path / "out.parquet", watch=pairs)

    noise = pairs.published_rows["x"] - pairs.rows["x"]
    assert pairs.seen == 3_000
    assert 4 < noise.std() < 6
    assert pairs.totals["x"].original.mean == pytest.approx(500)
