"""Wrong twins of the samplers and of how noise is added, each beside the true method."""

from __future__ import annotations

import itertools
import math
import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import special

from discreet.audit import (
    Lattice,
    LawPair,
    MechanismDraws,
    SingleDraws,
    check_timing,
    density,
    distinguish,
    position,
    precision,
    run_audit,
    shift_law,
)
from discreet.errors import NoiseError
from discreet.noise import Pool, Stream, Whitening, deviates, discrete_laplace, rounded_gaussian
from discreet.noise.deviates import BLOCK, LOG2_BUCKETS, normal_table
from discreet.noise.stream import process_mark
from discreet.privacy.promises import ApproxDP, GaussianDP, PureDP
from tests.statistical import ALPHA, LONG, SHORT, checks
from tests.statistical.laws import rounded_gaussian_law

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from discreet._types import AnyArray, Floats, Ints

N = 20_000
LAPLACE = PureDP(epsilon=1.0)
GAUSSIAN = GaussianDP(mu=1.0)


# --- half the noise --------------------------------------------------------------------------------


@pytest.mark.parametrize(("scale", "verdict"), [(1000.0, "holds"), (500.0, "broken")])
def test_half_the_noise(scale: float, verdict: str) -> None:
    def gaussian(value: int, stream: Stream) -> AnyArray:
        return value + rounded_gaussian(scale, N, stream)

    def laplace(value: int, stream: Stream) -> AnyArray:
        return value + discrete_laplace(scale, N, stream)

    stream = Stream.from_seed(1)
    assert distinguish(gaussian, 0, 1000, GAUSSIAN, n=N, stream=stream).verdict == verdict
    assert distinguish(laplace, 0, 1000, LAPLACE, n=N, stream=stream).verdict == verdict


@pytest.mark.parametrize(("scale", "verdict"), [(30.0, "holds"), (29.9, "broken")])
def test_a_little_less_noise_is_seen_without_drawing(scale: float, verdict: str) -> None:
    noise = Lattice(
        logpmf=lambda x: -np.abs(x) / scale + math.log(math.tanh(1 / (2 * scale))),
        lower=-3000, upper=3000, tail=1e-42,
    )  # fmt: skip
    assert density(LawPair(p=noise, q=shift_law(noise, 30), claim=LAPLACE)).verdict == verdict


# --- noise in floating point -----------------------------------------------------------------------


def _float_gaussian(value: float, stream: Stream) -> AnyArray:
    return np.asarray(value + stream.generator().standard_normal(N))


def _float_laplace(value: float, stream: Stream) -> AnyArray:
    uniform = stream.generator().random(N) - 0.5
    return np.asarray(value - np.sign(uniform) * np.log1p(-2 * np.abs(uniform)))


def _four_uniforms(value: float, stream: Stream) -> AnyArray:
    """The sum of two products of a logarithm and a cosine: random enough, and still a float."""
    u = stream.generator().random((4, N))
    noise = np.log(1 - u[0]) * np.cos(np.pi * u[1]) + np.log(1 - u[2]) * np.cos(np.pi * u[3])
    return np.asarray(value + noise)


def _whitened(value: float, stream: Stream) -> AnyArray:
    whitening = Whitening.diagonal(np.zeros(1), np.ones(1), np.ones(1))
    return whitening.release(np.full((N, 1), value), stream)


def _on_the_lattice(value: float, stream: Stream) -> AnyArray:
    return np.asarray((int(value * 2**20) + discrete_laplace(2.0**20, N, stream)) * 2.0**-20)


def _snapped(value: float, stream: Stream) -> AnyArray:
    """Float noise, of which only multiples of 2**-10 are let out."""
    return np.asarray(np.rint(_float_laplace(value, stream) * 2**10) * 2.0**-10)


FLOATS = [
    (_float_gaussian, GAUSSIAN, "broken"),
    (_float_gaussian, ApproxDP(epsilon=4.9, delta=1e-6), "broken"),
    (_float_laplace, LAPLACE, "broken"),
    (_four_uniforms, LAPLACE, "broken"),
    (_whitened, GAUSSIAN, "holds"),
    (_on_the_lattice, LAPLACE, "holds"),
    (_snapped, LAPLACE, "holds"),
]


@pytest.mark.parametrize(
    ("mechanism", "claim", "verdict"), FLOATS, ids=[f"{row[0].__name__}-{row[1].kind}" for row in FLOATS]
)
def test_noise_in_floats_shows_the_input_in_its_lowest_bits(
    mechanism: Callable[[float, Stream], AnyArray], claim: PureDP, verdict: str
) -> None:
    result = precision(mechanism, 0.0, 1.0, claim, n=2 * N, stream=Stream.from_seed(1))
    assert result.verdict == verdict
    if verdict == "broken":
        # One input reaches these bits, the other hardly ever does.
        assert min(result.details["hits"]) < 0.001 * result.details["tested"]
        assert max(result.details["hits"]) > 0.02 * result.details["tested"]


def test_the_distinguishing_attack_alone_would_miss_it() -> None:
    result = distinguish(_float_gaussian, 0.0, 1.0, GAUSSIAN, n=N, stream=Stream.from_seed(1))
    assert result.verdict == "holds"


# --- a draw used twice -----------------------------------------------------------------------------


def _two_answers(first: Stream, second: Stream, value: int) -> AnyArray:
    """Two answers of sensitivity 1000 each, together mu = 1 * sqrt(2)."""
    return np.stack(
        [value + rounded_gaussian(1000.0, N, first), -value + rounded_gaussian(1000.0, N, second)], axis=1
    )


def _fresh_draws(value: int, stream: Stream) -> AnyArray:
    return _two_answers(stream, stream, value)


def _same_label_twice(value: int, stream: Stream) -> AnyArray:
    parent = stream.spawn()
    return _two_answers(parent.derive("answer"), parent.derive("answer"), value)


@pytest.mark.parametrize(("mechanism", "verdict"), [(_fresh_draws, "holds"), (_same_label_twice, "broken")])
def test_a_draw_used_twice(mechanism: Callable[[int, Stream], AnyArray], verdict: str) -> None:
    claim = GaussianDP(mu=math.sqrt(2))
    result = distinguish(mechanism, 0, 1000, claim, n=2 * N, stream=Stream.from_seed(1))
    assert result.verdict == verdict
    if verdict == "broken":
        # The difference of the two answers has no noise at all.
        assert max(result.details["hits"]) > 0.99 * N
        assert min(result.details["hits"]) < 0.01 * N


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("careless", [False, True])
def test_a_stream_carried_over_a_fork(careless: bool) -> None:
    """Where nothing stops it, the child's noise is the parent's, and their difference is the data."""

    def two_processes(value: int, stream: Stream) -> AnyArray:
        shared = stream.spawn()
        read, write = os.pipe()
        if not (child := os.fork()):
            try:
                if careless:
                    shared._process = process_mark()
                mine = -value + rounded_gaussian(1000.0, N, shared)
            except NoiseError:
                mine = np.zeros(0, np.int64)
            with os.fdopen(write, "wb") as pipe:
                pipe.write(mine.tobytes())
            os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            theirs = np.frombuffer(pipe.read(), np.int64)
        os.waitpid(child, 0)
        if not theirs.size:
            raise NoiseError("refused in the child")
        return np.stack([value + rounded_gaussian(1000.0, N, shared), theirs], axis=1)

    claim = GaussianDP(mu=math.sqrt(2))
    if careless:
        assert distinguish(two_processes, 0, 1000, claim, n=N, stream=Stream.from_seed(1)).verdict == "broken"
    else:
        with pytest.raises(NoiseError, match="refused"):
            distinguish(two_processes, 0, 1000, claim, n=N, stream=Stream.from_seed(1))


# --- slow draws at the end of the block ------------------------------------------------------------


def _slow_draws_last(s: float, n: int, stream: Stream) -> Ints:
    """The same proposals and decisions as the true sampler; what took longer is put behind the rest."""
    table = normal_table()
    parts = []
    while n:
        sampler = deviates.Sampler(table, n, stream)
        offset, bucket = stream.words(n), np.empty(n, np.int16)
        slot, lot = stream.words((n + 1) // 2).view(np.uint16)[: 2 * n].reshape(2, n)
        slow = sampler._kernels.propose(table.slots, slot, lot, bucket)
        place, accepted, _ = deviates._settle_proposals(
            table, slot[slow], lot[slow], offset[slow], stream.words(3 * slow.size).reshape(3, -1), stream
        )
        bucket[slow] = place - table.half
        order = np.concatenate([np.delete(np.arange(n), slow), slow[accepted]])
        z = (bucket[order] + offset[order] * 2.0**-64) * 2.0**-LOG2_BUCKETS
        parts.append(np.rint(s * z).astype(np.int64))
        n -= order.size
    return np.concatenate(parts)


@pytest.mark.parametrize("size", [1000, BLOCK])
@pytest.mark.parametrize(("sampler", "verdict"), [(rounded_gaussian, "holds"), (_slow_draws_last, "broken")])
def test_slow_draws_at_the_end_of_the_block(
    sampler: Callable[[float, int, Stream], Ints], verdict: str, size: int
) -> None:
    calls = max(20, SHORT // size)
    subject = MechanismDraws(draw=lambda stream: sampler(1000.0, size, stream), claim=GAUSSIAN, calls=calls)
    result = position(subject, stream=Stream.from_seed(1))
    assert result.verdict == verdict, result
    if verdict == "broken":
        assert result.details["worst"] == 63


def test_slow_draws_at_the_end_have_the_right_law_on_average() -> None:
    """So that no test without regard to position can see them."""
    draws = np.concatenate([_slow_draws_last(1000.0, BLOCK, Stream.from_seed(k)) for k in range(8)])
    checks.assert_fits(checks.all_checks(draws, rounded_gaussian_law(1000.0)))


# --- proposals that are never rejected -------------------------------------------------------------


@pytest.mark.parametrize("rejecting", [True, False])
def test_a_sampler_that_forgets_to_reject(rejecting: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One proposal in a hundred is refused; kept, they make the noise 0.3 % wider."""
    settle = deviates._settle_proposals

    def keep_all(*arguments: Any) -> Any:
        place, accepted, tails = settle(*arguments)
        return place, np.ones_like(accepted), tails

    if not rejecting:
        monkeypatch.setattr(deviates, "_settle_proposals", keep_all)
    law = rounded_gaussian_law(2.0**20)
    draws = rounded_gaussian(2.0**20, 4 * SHORT, Stream.from_seed(1))
    p = checks.mean(np.abs(draws), law.mean_absolute, law.deviation_absolute)
    assert (p > ALPHA) is rejecting


# --- a table without refinement --------------------------------------------------------------------


def _sixteen_bit_counts() -> Ints:
    """Slots per bucket, the thresholds rounded to 16 bits."""
    ends = [0, *normal_table().thresholds, 1 << 128]
    return np.diff([(end + (1 << 111)) >> 112 for end in ends]).astype(np.int64)


def _sixteen_bits_only(s: float, n: int, stream: Stream) -> Ints:
    """The bucket by its 16-bit slot alone, the offset accepted by a float."""
    table = normal_table()
    counts = _sixteen_bit_counts()
    bucket_of_slot = np.repeat(np.arange(len(counts)) - table.half, counts)
    m = n + n // 8
    bucket = bucket_of_slot[stream.words((m + 3) // 4).view(np.uint16)[:m]]
    u, number = stream.words(2 * m).reshape(2, m) * 2.0**-64
    v = np.where(bucket >= 0, u, 1 - u)
    accepted = number < np.exp(-v * (table.slope[bucket + table.half] + table.curvature * v))
    z = (bucket + u)[accepted] * 2.0**-LOG2_BUCKETS
    assert z.size >= n
    return np.asarray(np.rint(z * s)[:n], np.int64)


@pytest.mark.parametrize(("refined", "verdict"), [(True, "holds"), (False, "broken")])
def test_a_table_of_sixteen_bits_without_refinement(refined: bool, verdict: str) -> None:
    """Its law over buckets, exactly: some tail buckets are never drawn, others far too often."""
    table = normal_table()
    ends = [0, *table.thresholds, 1 << 128]
    exact = np.array([float(b - a) for a, b in itertools.pairwise(ends)]) / 2.0**128
    ratio = np.ones(exact.size)
    if not refined:
        # The outermost buckets have no mass even at 128 bits.
        ratio = np.divide(_sixteen_bit_counts() / 2.0**16, exact, out=np.zeros(exact.size), where=exact > 0)

    def logpmf(h: Floats) -> Floats:
        # By symmetry on the left, where the distribution function keeps its digits.
        left = -np.abs(h + 0.5) - 0.5
        high, low = (special.log_ndtr((left + end) / 64) for end in (1, 0))
        inside = np.clip(h + table.half, 0, exact.size - 1).astype(np.int64)
        with np.errstate(divide="ignore"):
            return np.asarray(high + np.log1p(-np.exp(low - high)) + np.log(ratio[inside]))

    # Past the table's end one and the same ratio is used: 2**-135 of the mass.
    noise = Lattice(logpmf=logpmf, lower=-table.half, upper=table.half - 1, tail=2.0**-130, accuracy=1e-12)
    result = density(LawPair(p=noise, q=shift_law(noise, 64), claim=GAUSSIAN))
    assert result.verdict == verdict, result


@pytest.mark.stats
def test_a_table_of_sixteen_bits_is_seen_in_fine_cells_too() -> None:
    """Ten million draws show the rounded bucket probabilities themselves, tails aside."""
    law = rounded_gaussian_law(2.0**20)
    edges = np.arange(-220, 221) * (2**20 // 64) - 1
    twin, true = (
        np.bincount(np.searchsorted(edges, draws), minlength=edges.size + 1)
        for draws in (_sixteen_bits_only(2.0**20, LONG, Stream()), rounded_gaussian(2.0**20, LONG, Stream()))
    )
    found = {
        name: checks.chi_square(counts, law.probabilities(edges))
        for name, counts in (("twin", twin), ("true", true))
    }
    checks.record("sixteen-bit table", LONG, found)
    assert found["twin"] < ALPHA < found["true"]


# --- time ------------------------------------------------------------------------------------------


def _counting_laplace(coins: Iterator[int]) -> Callable[[], int]:
    """Two geometric numbers by tossing a coin until it falls: the time is the size."""

    def draw() -> int:
        plus = minus = 0
        while next(coins):
            plus += 1
        while next(coins):
            minus += 1
        return plus - minus

    return draw


def test_a_sampler_that_counts_tells_its_draw_by_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tossed = itertools.count()
    bits = np.unpackbits(Stream.from_seed(1).words(4_000).view(np.uint8)).tolist()
    coins = (bit for bit in bits if next(tossed) >= 0)
    # The clock counts tosses: it takes as long on a busy machine.
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(tossed))
    counting = SingleDraws(draw=_counting_laplace(coins), claim=LAPLACE, calls=5_000)
    assert run_audit(counting, "timing").verdict == "broken"


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_a_pool_does_not(law: str) -> None:
    pool = Pool()
    take = pool.gaussian if law == "gaussian" else pool.laplace
    subject = SingleDraws(draw=lambda: take(1000.3), claim=GAUSSIAN, calls=10_000)
    # Whatever else the machine does: it knows no draw, so this alarms falsely once in 10^9.
    result = check_timing(subject, failure_probability=1e-9)
    assert result.verdict == "holds", result
