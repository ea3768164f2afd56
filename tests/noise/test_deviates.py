"""The exact sampler: its shortcuts agree with its definition, and its tables with the law."""

from __future__ import annotations

import itertools
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING

import mpmath
import numpy as np
import pytest

from discreet.noise import Stream, _kernels, discrete_laplace, rounded_gaussian
from discreet.noise import deviates as lattice
from discreet.noise.samplers import GAUSSIAN_TOTAL_VARIATION as GAUSSIAN_TV
from discreet.noise.samplers import LAPLACE_TOTAL_VARIATION as LAPLACE_TV

if TYPE_CHECKING:
    from collections.abc import Callable

TABLES: dict[str, Callable[[], lattice.BucketTable]] = {
    "normal": lattice.normal_table,
    "exponential": lattice.exponential_table,
}


def _exact_weights(name: str, table: lattice.BucketTable) -> list[mpmath.mpf]:
    """Bucket probabilities from scratch, with 100 digits."""
    buckets = range(-table.half, len(table.slope) - table.half)
    near = [mpmath.mpf(h if h >= 0 else h + 1) / 64 for h in buckets]
    weights = [mpmath.exp(-z * z / 2 if name == "normal" else -z) for z in near]
    total = mpmath.fsum(weights)
    return [w / total for w in weights]


@pytest.mark.parametrize(("name", "claimed"), [("normal", GAUSSIAN_TV), ("exponential", LAPLACE_TV / 2)])
def test_the_tables_and_the_tails_stay_inside_the_claimed_total_variation(name: str, claimed: float) -> None:
    table = TABLES[name]()
    with mpmath.workdps(100):
        exact = _exact_weights(name, table)
        ends = [0, *table.thresholds, 1 << 128]
        tabulated = [mpmath.mpf(b - a) / mpmath.mpf(2) ** 128 for a, b in itertools.pairwise(ends)]
        difference = mpmath.fsum(abs(a - b) for a, b in zip(exact, tabulated, strict=True))
        cut = mpmath.mpf(len(table.slope) - table.half) / 64
        tail = mpmath.erfc(cut / mpmath.sqrt(2)) if name == "normal" else mpmath.exp(-cut)
        # Accepted mass per proposal: width times the integral of f over the sum of f(near).
        integral = mpmath.sqrt(2 * mpmath.pi) if name == "normal" else mpmath.mpf(1)
        near = [h if h >= 0 else h + 1 for h in range(-table.half, len(table.slope) - table.half)]
        heights = mpmath.fsum(
            mpmath.exp(-((mpmath.mpf(h) / 64) ** 2) / 2 if name == "normal" else -mpmath.mpf(h) / 64)
            for h in near
        )
        acceptance = 64 * integral * (1 - tail) / heights
        assert 0.98 < acceptance < 1
        assert difference / acceptance + tail <= claimed
        # and the bound is not idle: it is of the right order
        assert difference > claimed / 64


@pytest.mark.parametrize("name", TABLES)
def test_every_slot_that_accepts_at_sight_lies_in_one_bucket_and_below_its_least_probability(
    name: str,
) -> None:
    table = TABLES[name]()
    ends = [0, *table.thresholds, 1 << 128]
    checked = 0
    for slot in range(0, 1 << 16, 37):
        entry = int(table.slots[slot])
        least, place = entry & 0xFFFF, (entry >> 16) + table.half
        if least == 0:
            continue
        checked += 1
        assert ends[place] <= slot << 112
        assert (slot + 1) << 112 <= ends[place + 1]
        with localcontext() as context:
            context.prec = 50
            far = (-(Decimal(float(table.slope[place])) + Decimal(table.curvature))).exp()
            assert Decimal(least) / (1 << 16) <= far
    assert checked > 1700


@pytest.mark.parametrize("name", TABLES)
def test_acceptance_in_double_precision_never_contradicts_the_exact_decision(name: str) -> None:
    table = TABLES[name]()
    stream = Stream.from_seed(3)
    n = 2_000
    slot, lot = stream.words(n).view(np.uint16)[: 2 * n].reshape(2, n)
    offset, more = stream.words(n), stream.words(3 * n).reshape(3, n)
    # Half of the acceptance numbers are put next to the probability, where decisions are hard.
    place, _, _ = lattice._settle_proposals(table, slot, lot, offset, more, stream.spawn())
    u = offset * 2.0**-64
    v = np.where(place >= table.half, u, 1 - u)
    probability = np.exp(-v * (table.slope[place] + table.curvature * v))
    lot = np.where(np.arange(n) % 2, np.floor(probability * 2**16), lot).astype(np.uint16)
    place, accepted, tails = lattice._settle_proposals(table, slot, lot, offset, more, stream.spawn())
    exact = [
        lattice._decide_exactly(
            table, int(place[i]), int(offset[i]), int(lot[i]) << 64 | int(more[2, i]), stream.spawn()
        )[0]
        for i in range(n)
    ]
    assert np.array_equal(accepted, exact)
    assert 0.2 < np.mean(accepted) < 1
    assert not tails


def test_a_decision_closer_than_the_digits_at_hand_draws_more_and_remembers_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a margin of 1 every doubtful proposal takes the exact road."""
    seen: list[int] = []
    decide = lattice._decide_exactly

    def watched(*arguments: object) -> tuple[bool, lattice.Tail]:
        verdict, tail = decide(*arguments)  # type: ignore[arg-type]
        seen.append(tail[1])
        return verdict, tail

    monkeypatch.setattr(lattice, "_decide_exactly", watched)
    usual = rounded_gaussian(1000.3, 5_000, Stream.from_seed(9))
    assert not seen
    monkeypatch.setattr(lattice, "_MARGIN", 1.0)
    exact = rounded_gaussian(1000.3, 5_000, Stream.from_seed(9))
    assert np.array_equal(usual, exact)
    assert len(seen) > 50


def test_digits_already_seen_by_a_close_decision_are_not_drawn_again() -> None:
    """An acceptance number equal to the probability in its first 80 digits forces more digits."""
    table = lattice.normal_table()
    offset = 1 << 63
    place = table.half + 64  # bucket [1, 1 + 1/64)
    with mpmath.workdps(60):
        v = mpmath.mpf(offset) / 2**64
        probability = mpmath.exp(-v * (mpmath.mpf(float(table.slope[place])) + table.curvature * v))
        number = int(mpmath.floor(probability * 2**80))
    tails = {lattice._decide_exactly(table, place, offset, number, Stream.from_seed(k))[1] for k in range(8)}
    assert {count for _, count in tails} == {64}
    assert len(tails) == 8
    digits, count = next(iter(tails))
    deviates = lattice.Deviates(np.array([64], np.int16), np.array([offset], np.uint64), {0: (digits, count)})
    # At a scale so large that the 65th digit counts, the remembered digits are the ones used.
    scale = Fraction(1 << 80)
    value = lattice._floor_exactly(deviates, 0, scale, False, Stream.from_seed(99))
    expected = (Fraction((64 << 128) + (offset << 64 | digits), 1 << 128) * scale) // 1
    assert value == expected


@pytest.mark.parametrize("s", [1.0, 10.0, 777.7, 2.0**12, 2.0**20, 3.3e9, 2.0**40, 1.1 * 2**40, 2.0**50])
@pytest.mark.parametrize("half", [True, False])
def test_rounding_agrees_with_rational_arithmetic(s: float, half: bool) -> None:
    n = 3_000
    sampler = lattice.Sampler(lattice.normal_table(), n, Stream.from_seed(2))
    deviates = sampler.draw(n)
    out = np.empty(n, np.int64)
    sampler.floor(deviates, s, half, out)
    for i in range(n):
        z = Fraction(int(deviates.bucket[i]) * 2**64 + int(deviates.offset[i]), 64 << 64)
        assert out[i] == (z * Fraction(s) + Fraction(half, 2)) // 1


@pytest.mark.parametrize("compiled", [False, True])
def test_rounding_is_right_where_bucket_and_offset_cancel(compiled: bool) -> None:
    """Just below zero the offset's own rounding is large against the value."""
    if compiled:
        pytest.importorskip("numba", reason="the [fast] extra is not installed")
    scale = 1.1 * 2**34
    offsets = [
        (1 << 64) - int((2 * m + 1) * 2**63 / Fraction(scale)) + j
        for m in range(1, 20_000, 97)
        for j in range(-3, 4)
    ]
    bucket, offset = np.full(len(offsets), -1, np.int16), np.array(offsets, np.uint64)
    out = np.empty(len(offsets), np.int64)
    make = _kernels.numba_kernels() if compiled else _kernels.NumpyKernels
    assert make is not None
    undecided = set(make(out.size).scale_floor(bucket, offset, np.array(scale), True, 1, out).tolist())
    decided = [i for i in range(out.size) if i not in undecided]
    exact = [(Fraction(o - 2**64, 2**64) * Fraction(scale) + Fraction(1, 2)) // 1 for o in offsets]
    assert all(out[i] == exact[i] for i in decided)
    assert len(undecided) > 100


def test_a_scale_for_each_position_is_the_same_as_one_scale_for_all() -> None:
    n = 4_000
    sampler = lattice.Sampler(lattice.normal_table(), n, Stream.from_seed(4))
    deviates = sampler.draw(n)
    one, each = np.empty(n, np.int64), np.empty(n, np.int64)
    sampler.floor(deviates, 2.0**20, True, one)
    sampler.floor(deviates, np.full(n, 2.0**20), True, each)
    assert np.array_equal(one, each)


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("scale", [0.7, 1.1e6, 0.9 * 2.0**18, 1.1 * 2.0**18, 1e9])
def test_every_value_next_to_a_whole_number_is_decided_rightly_or_not_at_all(
    scale: float, half: bool
) -> None:
    """Offsets for which the rounded value is within a few units in the last place of the next integer."""
    edges = [Fraction(whole) - Fraction(half, 2) for whole in range(-40, 41)]
    places = [edge * 64 / Fraction(scale) for edge in edges]
    steps = [sign << bits for sign in (-1, 1) for bits in (0, 1, 5, 11, 14, 36, 40)]
    digits = [int(place * 2**64) + step for place in places for step in steps]
    digits = [number for number in digits if abs(number >> 64) < 800]
    bucket = np.array([number >> 64 for number in digits], np.int16)
    offset = np.array([number & 2**64 - 1 for number in digits], np.uint64)
    per_bucket, out = np.array(scale / 64), np.empty(bucket.size, np.int64)
    undecided = _kernels.NumpyKernels(out.size).scale_floor(bucket, offset, per_bucket, half, 864, out)
    exact = [
        (Fraction(number, 2**64) * Fraction(float(per_bucket)) + Fraction(half, 2)) // 1 for number in digits
    ]
    decided = set(range(len(digits))) - set(undecided.tolist())
    assert decided
    assert all(out[i] == exact[i] for i in decided)
    assert len(undecided) > len(digits) // 20


@pytest.mark.parametrize("s", [1.0, 777.7, 2.0**20, 1.1 * 2**40])
def test_numba_and_numpy_give_the_same_bits(s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason="the [fast] extra is not installed")
    n = lattice.BLOCK + 12_345
    monkeypatch.setattr(_kernels, "WORTH_COMPILING", n + 1)
    plain = rounded_gaussian(s, n, Stream.from_seed(8)), discrete_laplace(s, n, Stream.from_seed(8))
    monkeypatch.setattr(_kernels, "WORTH_COMPILING", 1)
    assert isinstance(_kernels.kernels_for(n, 10), _kernels.numba_kernels())  # type: ignore[arg-type]
    fast = rounded_gaussian(s, n, Stream.from_seed(8)), discrete_laplace(s, n, Stream.from_seed(8))
    assert np.array_equal(plain[0], fast[0])
    assert np.array_equal(plain[1], fast[1])


def test_without_numba_the_numpy_loops_serve_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_kernels, "numba_kernels", lambda: None)
    assert isinstance(_kernels.kernels_for(10**9, 10), _kernels.NumpyKernels)


def test_memory_does_not_grow_with_the_number_of_draws() -> None:
    small, large = (lattice.Sampler(lattice.normal_table(), n, Stream.from_seed(1)) for n in (10**6, 10**9))
    assert small.capacity == large.capacity == lattice.BLOCK


def test_a_floor_that_64_digits_do_not_decide_draws_more() -> None:
    """At a scale of 2**70 one unit of the 64th digit spans 64 lattice steps."""
    deviates = lattice.Deviates(np.array([3], np.int16), np.array([12345], np.uint64), {})
    found = {
        lattice._floor_exactly(deviates, 0, Fraction(1 << 70), False, Stream.from_seed(k)) for k in range(40)
    }
    low = (Fraction(3 * 2**64 + 12345, 2**64) * 2**70) // 1
    assert all(low <= value < low + 64 for value in found)
    assert len(found) > 20


EDGE_SCALES = [5e-324, 1e-320, 2.0**-1022, 1e-300, 1e-17, 2.0**-53, 0.01, 1 - 2.0**-53, 1.0, 1 + 2.0**-52,
               63.9, 2.0**30, 3.3e9, 2.0**49 + 1, 2.0**50 - 0.125, 2.0**50]  # fmt: skip


def _edge_positions(half_table: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return buckets at the ends of the table and around zero, each with offsets next to every boundary."""
    ends = [-half_table, -half_table + 1, -2, -1, 0, 1, 2, count - 2, count - 1]
    near = [0, 1, 2, 1 << 10, (1 << 11) - 1, 1 << 11, (1 << 53) - 1, 1 << 53, (1 << 53) + 1]
    near += [(1 << 63) + j for j in (-1, 0, 1)] + [
        (1 << 64) - j for j in (1, 2, 3, 1 << 10, 1 << 11, 3 << 10)
    ]
    near += [(1 << k) + j for k in range(12, 63) for j in (-1, 0, 1)]
    pairs = [(bucket, offset) for bucket in ends for offset in near]
    buckets, offsets = zip(*pairs, strict=True)
    return np.array(buckets, np.int16), np.array(offsets, np.uint64)


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("table", [lattice.normal_table, lattice.exponential_table])
def test_both_loops_agree_at_every_edge_and_with_rational_arithmetic(
    table: Callable[[], lattice.BucketTable], half: bool
) -> None:
    """The least and the largest scale, the ends of the tables, offsets next to every power of two."""
    pytest.importorskip("numba", reason="the [fast] extra is not installed")
    compiled = _kernels.numba_kernels()
    assert compiled is not None
    bucket, offset = _edge_positions(table().half, len(table().thresholds) + 1 - table().half)
    n = bucket.size
    for scale in EDGE_SCALES:
        per_bucket = np.array(scale * 2.0**-6)
        decided = []
        for make in (_kernels.NumpyKernels, compiled):
            for scales in (per_bucket, np.full(n, per_bucket)):
                out = np.empty(n, np.int64)
                undecided = make(n).scale_floor(bucket, offset, scales, half, table().farthest, out)
                decided.append({i: int(out[i]) for i in range(n)})
                for i in undecided.tolist():
                    del decided[-1][i]
        exact = Fraction(scale) / 64
        for i in range(0, n, 7):
            low = ((int(bucket[i]) + Fraction(int(offset[i]), 2**64)) * exact + Fraction(half, 2)) // 1
            assert all(found.get(i, low) == low for found in decided)
        # What one of them decides in another way than the rest would be found between the positions above.
        both = set.intersection(*map(set, decided))
        assert all(found[i] == decided[0][i] for found in decided for i in both)
    for bits in range(45):
        outs = [np.empty(n, np.int64), np.empty(n, np.int64)]
        _kernels.NumpyKernels(n).shift_floor(bucket, offset, bits, half, outs[0])
        compiled(n).shift_floor(bucket, offset, bits, half, outs[1])
        assert np.array_equal(outs[0], outs[1])
        expected = [
            (((int(b) << 64) + int(o)) * 2**bits * 2 + (2**64 if half else 0)) >> 65
            for b, o in zip(bucket[::5], offset[::5], strict=True)
        ]
        assert outs[0][::5].tolist() == expected


@pytest.mark.parametrize("table", [lattice.normal_table, lattice.exponential_table])
def test_both_loops_propose_the_same_for_every_slot_and_edge(
    table: Callable[[], lattice.BucketTable],
) -> None:
    pytest.importorskip("numba", reason="the [fast] extra is not installed")
    compiled = _kernels.numba_kernels()
    assert compiled is not None
    slots = table().slots
    slot = np.repeat(np.arange(1 << 16, dtype=np.uint16), 4)
    least = (slots & 0xFFFF)[slot]
    lot = np.clip(least + np.tile([-1, 0, 1, 1 << 16], 1 << 16), 0, (1 << 16) - 1).astype(np.uint16)
    outcomes = []
    for make in (_kernels.NumpyKernels, compiled):
        bucket = np.empty(slot.size, np.int16)
        outcomes.append((make(slot.size).propose(slots, slot, lot, bucket), bucket))
    for plain, fast in zip(*outcomes, strict=True):
        assert np.array_equal(plain, fast)


@pytest.mark.parametrize("n", [0, 1, 2, lattice.BLOCK - 1, lattice.BLOCK, lattice.BLOCK + 1])
def test_both_loops_give_the_same_draws_at_the_borders_of_blocks(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba", reason="the [fast] extra is not installed")
    # Wide scales that are no power of two are decided one by one, so few of them.
    for s in (0.3, 1.1 * 2**40, 2.0**50) if n > 2 else EDGE_SCALES:
        drawn: list[np.ndarray] = []
        for least in (10**9, 0):
            monkeypatch.setattr(_kernels, "WORTH_COMPILING", least)
            stream = Stream.from_seed(8)
            drawn.append(rounded_gaussian(s, n, stream))
            drawn.append(discrete_laplace(s, n, stream))
            drawn.append(stream.words(1))  # both have used up the same words
        assert all(np.array_equal(plain, fast) for plain, fast in zip(drawn[:3], drawn[3:], strict=True))


@pytest.mark.parametrize("scale", [5e-324, 1e-320, 1e-308, 1e-100, 1e-17])
def test_the_least_scales_give_zeros_and_come_to_an_end(scale: float) -> None:
    for half in (True, False):
        table = lattice.normal_table() if half else lattice.exponential_table()
        sampler = lattice.Sampler(table, 50, Stream.from_seed(1))
        out = np.full(50, 7)
        sampler.floor(sampler.draw(50), scale, half, out)
        assert not out.any()
