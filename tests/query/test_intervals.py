"""Intervals hold the exact number as often as they say, for every kind of answer and every size of group."""

from __future__ import annotations

import itertools
import math
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from scipy import special

from discreet import Column, Database, GaussianDP, PureDP, Schema
from discreet.noise import Stream
from discreet.privacy import Receipt
from discreet.query import Answer
from discreet.query.combination import ResultTerm, combine_results
from discreet.query.costs import CostModel
from discreet.query.intervals import LEVEL, ResultInterval, interval_width, mean_intervals, sum_intervals
from discreet.query.language.query import parse_query
from discreet.query.statistics import StatisticValues, plan_query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from discreet._types import Floats
    from discreet.query.calibration import Law

SIZES = (0, 1, 2, 3, 5, 10, 100)  # exact counts, in standard deviations of their noise
PLACES = (-1.0, -0.5, 0.0, 0.5, 1.0)  # exact means, from one end of the range to the other
LAWS: tuple[Law, ...] = ("gaussian", "laplace")
PROMISES: dict[str, Any] = {"gaussian": GaussianDP(mu=0.5), "laplace": PureDP(epsilon=0.5)}
N = 1_000_000
SCHEMA = Schema(
    columns=[
        Column("x", lower=0, upper=100),
        Column("signed", lower=-50, upper=50),
        Column("sex", values=("f", "m", "x"), closed=True),
    ]
)
FAST, LONG = 10_000, 400_000


def noise(law: Law, sd: float, name: str, size: int) -> Floats:
    """Return noise of a law, the same for the same name."""
    stream = Stream.from_seed(zlib.crc32(name.encode()))
    uniform = ((stream.words(size) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    drawn: Floats = special.ndtri(uniform)
    if law == "laplace":
        drawn = np.sign(uniform - 0.5) * -np.log1p(-np.abs(2 * uniform - 1)) / math.sqrt(2)
    return sd * drawn


def noise_sds(text: str, law: Law) -> list[float]:
    """Return the standard deviations of the sums behind a query: of a mean, first the sum's."""
    plan, costs = plan_query(parse_query(text, SCHEMA), N), CostModel(SCHEMA, N)
    bound, drawn = costs.calibrate(plan.aggregate, privacy=PROMISES[law])
    sds = np.reshape(bound.arrange(drawn.sd(bound), 0.0), (plan.sums, -1))
    assert np.all(sds == sds[:, :1])
    return [float(sd) for sd in sds[:, 0]]


def combine_draws(text: str, sums: list[Floats], sds: list[Floats], law: Law) -> StatisticValues:
    """Return the numbers of a query in many draws, all as groups of one result."""
    plan = replace(plan_query(parse_query(text, SCHEMA), N), labels=(tuple(range(len(sums[0]))),))
    (found,) = plan.combine(np.stack(sums), np.stack(sds), law)
    return found


def possible_values(text: str, schema: Schema = SCHEMA, n_rows: int | None = N) -> ResultInterval:
    """Return the least and the largest number that the one statistic of a query can have."""
    plan = plan_query(parse_query(text, schema), n_rows)
    return plan.possible_values(plan.query.statistics[0])


class Trial(NamedTuple):
    """Intervals of many draws, with the exact number; `at_bound` if it is an end of what is possible."""

    name: str
    size: float
    exact: float
    lower: Floats
    upper: Floats
    at_bound: bool


def coverage(trial: Trial) -> float:
    inside = (trial.lower <= trial.exact + 1e-9) & (trial.exact - 1e-9 <= trial.upper)
    return float(np.mean(inside))


def problems(trials: list[Trial]) -> list[str]:
    """Return the trials that hold the exact number too seldom, or from 5 standard deviations on too often."""
    found = []
    for trial in trials:
        share = coverage(trial)
        if share < 0.93 or (trial.size >= 5 and share > 0.98 and not trial.at_bound):
            found.append(f"{trial.name} at {trial.size} sd: {share:.3f}")
    return found


def count_trials(law: Law, draws: int) -> list[Trial]:
    """Counts of all rows and of groups, cells of a histogram."""
    trials = []
    for text in ("count where x > 3", "count by sex", "count by x (20, 40)"):
        (sd,) = noise_sds(text, law)
        exact_counts = [size * sd for size in SIZES] + [N - size * sd for size in SIZES]
        for exact, size in zip(exact_counts, 2 * SIZES, strict=True):
            noisy = exact + noise(law, sd, f"{law} {text} {exact}", draws)
            made = combine_draws(text, [noisy], [np.full(draws, sd)], law)
            trials.append(Trial(text, size, exact, made.lower, made.upper, size == 0))
    return trials


def sum_trials(law: Law, draws: int) -> list[Trial]:
    """Sums of all rows and of groups, and means over a public number of rows."""
    trials = []
    for text in ("sum(x)", "sum(x) where x > 3", "sum(signed) by sex", "mean(x)", "mean(signed)"):
        (sd,) = noise_sds(text, law)
        divisor = N if text.startswith("mean") else 1
        low, high = possible_values(text)
        for size in SIZES:
            for exact in (low + size * sd / divisor, high - size * sd / divisor):
                noisy = exact * divisor + noise(law, sd, f"{law} {text} {exact}", draws)
                made = combine_draws(text, [noisy], [np.full(draws, sd)], law)
                trials.append(Trial(text, size, exact, made.lower, made.upper, size == 0))
                if divisor > 1:
                    assert np.all((made.values >= low) & (made.values <= high))
    return trials


def noisy_pair(
    text: str, law: Law, size: float, place: float, draws: int, name: str = ""
) -> tuple[float, tuple[Floats, float], tuple[Floats, float]]:
    """Return the exact mean, and noisy counts and sums of displacements with their standard deviations."""
    low, high = possible_values(text)
    sum_sd, count_sd = noise_sds(text, law)
    count, offset = size * count_sd, place * (high - low) / 2
    key = f"{name} {law} {text} {size} {place}"
    counts = count + noise(law, count_sd, f"counts {key}", draws)
    sums = offset * count + noise(law, sum_sd, f"sums {key}", draws)
    return (low + high) / 2 + offset, (counts, count_sd), (sums, sum_sd)


def mean_trials(law: Law, draws: int, intervals: Any = mean_intervals) -> list[Trial]:
    """Means by groups and over chosen rows; NaN ends are those of a mean that is not shown."""
    trials = []
    for text in ("mean(x) by sex", "mean(signed) where x > 3", "mean(x > 3) by sex"):
        bounds = possible_values(text)
        for size, place in itertools.product(SIZES, PLACES):
            exact, (counts, count_sd), (sums, sum_sd) = noisy_pair(text, law, size, place, draws)
            values, lower, upper = intervals(
                sums, np.full(draws, sum_sd), counts, np.full(draws, count_sd), interval_width(law), bounds
            )
            shown = ~np.isnan(lower)
            lower, upper = lower[shown], upper[shown]
            assert np.all((values[shown] >= lower) & (values[shown] <= upper))
            at_bound = abs(place) == 1
            trials.append(Trial(f"{text} at {place}", size, exact, lower, upper, at_bound))
            if size == 0:  # an empty group: no mean of the range is left out
                trials += [
                    Trial(f"{text} empty", 0, end, lower, upper, at_bound)
                    for end in ((bounds.lower, bounds.upper) if len(lower) else ())
                ]
    return trials


def merged(law: Law, exact: float, laws: tuple[Law, ...], sds: list[float], name: str, draws: int) -> Answer:
    """Return answers of several draws, merged as a refined answer is."""
    answers = [
        Answer(
            value=exact + noise(of, sd, f"{name} {i}", draws),
            sd=np.full(draws, sd),
            law=of,
            cost=(),
            cached=False,
            receipt=Receipt.from_promises((), what=f"sums {i}"),
            about="the same",
        )
        for i, (of, sd) in enumerate(zip(laws, sds, strict=True))
    ]
    return Answer.merge(*answers)


def refined_trials(law: Law, draws: int) -> list[Trial]:
    """Counts and means by groups that were paid for two or three times, also under another law."""
    trials = []
    paid: list[tuple[tuple[Law, ...], tuple[float, ...]]] = [
        ((law, law), (1, 1)),
        ((law, law, law), (1, 0.5, 2)),
        ((law, "laplace"), (1, 0.7)),
    ]
    for laws, factors in paid:
        for size, place in itertools.product(SIZES, PLACES):
            parts: list[Answer] = []
            total = 0.0
            for sd, what in zip(noise_sds("mean(x) by sex", law)[::-1], ("count", "sum"), strict=True):
                sds = [sd * factor for factor in factors]
                spread = sd / math.sqrt(sum(factor**-2 for factor in factors))
                total = size * spread if what == "count" else total
                exact = total if what == "count" else total * 50 * place
                key = f"{laws} {factors} {size} {place} {what}"
                parts.append(merged(law, exact, laws, sds, key, draws))
            values, spreads = ([np.asarray(getattr(one, name)) for one in parts] for name in ("value", "sd"))
            made = combine_draws("mean(x) by sex", values[::-1], spreads[::-1], parts[0].law)
            # At 5 sd the range may cut a side of the interval: then .983 for merged Laplace noise.
            at_bound = abs(place) == 1 or (size == 5 and place != 0)
            name = f"{laws} {factors} mean at {place}"
            trials.append(Trial(name, size, 50 + 50 * place, made.lower, made.upper, at_bound))
            made = combine_draws("count by sex", values[:1], spreads[:1], parts[0].law)
            trials.append(Trial(f"{laws} {factors} count", size, total, made.lower, made.upper, size == 0))
    return trials


def difference_trials(
    law: Law, draws: int, combine: Any = combine_results, sizes: Sequence[int] = SIZES
) -> list[Trial]:
    """Differences of two counts, and of the means of two groups."""
    trials = []
    (sd,) = noise_sds("count by sex", law)
    width = interval_width(law)
    for size in sizes:
        noisy = [
            size * times * sd + noise(law, sd, f"{law} {size} {times} {draws}", draws) for times in (2, 1)
        ]
        ends = [sum_intervals(one, np.full(draws, sd), width, ResultInterval(0, N)) for one in noisy]
        combined = _differences(noisy, ends, law, sd, ResultInterval(0.0, N), combine)
        trials.append(Trial("count - count", size, size * sd, *combined, size == 0))
    bounds = ResultInterval(0.0, 100.0)
    for size, (one, other) in itertools.product(sizes, ((0.0, 0.5), (1.0, 0.0), (1.0, -0.5), (-1.0, -1.0))):
        exacts: list[float] = []
        values: list[Floats] = []
        intervals: list[tuple[Floats, ...]] = []
        for place, name in ((one, "a"), (other, "b")):
            exact, (counts, count_sd), (sums, sum_sd) = noisy_pair(
                "mean(x) by sex", law, size, place, draws, name
            )
            value, *interval = mean_intervals(
                sums, np.full(draws, sum_sd), counts, np.full(draws, count_sd), width, bounds
            )
            exacts.append(exact)
            values.append(value)
            intervals.append(tuple(interval))
        combined = _differences(values, intervals, law, None, bounds, combine)
        at_bound = 1 in (abs(one), abs(other))
        trials.append(Trial(f"mean {one} - mean {other}", size, exacts[0] - exacts[1], *combined, at_bound))
    return trials


def _differences(
    values: Any, ends: Any, law: Law, sd: float | None, bounds: ResultInterval, combine: Any
) -> tuple[Floats, Floats]:
    """Return the ends of the intervals of differences, one after the other."""
    found = []
    for row in zip(*(array.tolist() for array in (*values, *ends[0], *ends[1])), strict=True):
        terms = [
            ResultTerm(
                times=times,
                question="a",
                key=(key,),
                value=value,
                sd=sd,
                interval=ResultInterval(*interval),
                law=law,
                parts=(("a-1",),),
                bounds=bounds,
            )
            for times, key, value, interval in ((1, "f", row[0], row[2:4]), (-1, "m", row[1], row[4:]))
        ]
        found.append(combine(terms).interval)
    lower, upper = np.array(found).T
    return lower, upper


KINDS: dict[str, Callable[[Law, int], list[Trial]]] = {
    "counts": count_trials,
    "sums": sum_trials,
    "means": mean_trials,
    "refined": refined_trials,
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("kind", KINDS)
def test_intervals_of_every_kind_hold_the_exact_number(kind: str, law: Law) -> None:
    assert problems(KINDS[kind](law, FAST)) == []


@pytest.mark.parametrize("law", LAWS)
def test_intervals_of_differences_hold_the_exact_number(law: Law) -> None:
    assert problems(difference_trials(law, 1_500, sizes=(0, 2, 10))) == []


@pytest.mark.stats
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("kind", KINDS)
def test_intervals_of_every_kind_hold_the_exact_number_in_many_draws(kind: str, law: Law) -> None:
    trials = KINDS[kind](law, LONG)
    assert problems(trials) == []
    assert min(map(coverage, trials)) > LEVEL - 0.002  # six standard deviations of the share


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_intervals_of_differences_of_every_size_hold_the_exact_number(law: Law) -> None:
    assert problems(difference_trials(law, 2_000)) == []


@pytest.mark.stats
@pytest.mark.parametrize("law", LAWS)
def test_intervals_of_differences_hold_the_exact_number_in_many_draws(law: Law) -> None:
    assert problems(difference_trials(law, 10_000)) == []


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_intervals_of_answers_that_a_database_drew_hold_the_exact_means(law: Law) -> None:
    sizes = {"a": 4, "b": 9, "c": 20, "d": 60, "e": 400, "f": 2000}
    rows = [(town, 100.0 * (i % 4 == 0)) for town, size in sizes.items() for i in range(size)]
    schema = Schema(columns=[Column("x", lower=0, upper=100), Column("town", values=(*sizes, "empty"))])
    source = {"town": [town for town, _ in rows], "x": [x for _, x in rows]}
    exact = {town: np.mean([x for of, x in rows if of == town]) for town in sizes}
    found: dict[str, list[bool]] = {}
    with Database(source, schema=schema, random_state=3) as db:
        for i in range(150):
            # Another promise is another question, and draws anew.
            amount = 0.5 + i * 1e-6
            promise: Any = GaussianDP(mu=amount) if law == "gaussian" else PureDP(epsilon=amount)
            for cell in db.query("mean(x) by town", privacy=promise).cells:
                (town,) = cell.key
                inside = (
                    cell.interval == (0, 100)
                    if town not in exact
                    else (cell.lower <= exact[town] <= cell.upper)
                )
                found.setdefault(town, []).append(bool(inside))
            counted = db.query("count by town", privacy=promise).cells
            hits = [cell.lower <= sizes.get(cell.key[0], 0) <= cell.upper for cell in counted]
            found.setdefault("counts", []).extend(hits)
    shares = {town: np.mean(inside) for town, inside in found.items()}
    # Six standard deviations of the share of 150 draws, at 95 %.
    assert min(shares.values()) > LEVEL - 6 * math.sqrt(LEVEL * (1 - LEVEL) / 150), shares
    assert np.mean([*shares.values()]) > 0.94


def test_an_interval_is_never_a_single_point_and_holds_a_mean_of_the_range() -> None:
    far = np.array([-1e6, 0.0, 1e6])
    lower, upper = sum_intervals(far, np.ones(3), 2.0, ResultInterval(0, 10))
    assert (lower.tolist(), upper.tolist()) == ([0, 0, 8], [2, 2, 10])
    sums, counts = np.meshgrid([-1e9, -3.0, 0.0, 3.0, 1e9], [-1e9, -1.0, 0.0, 1.9, 2.0, 2.1, 1e9])
    ones = np.ones_like(sums)
    values, lower, upper = mean_intervals(sums, ones, counts, ones, 2.0, ResultInterval(-1, 3))
    assert np.all((lower >= -1) & (lower <= values) & (values <= upper) & (upper <= 3) & (lower < upper))
    # A count within its margin is compatible with an empty group: every mean of the range is left.
    few = counts <= 2
    assert np.all((lower[few] == -1) & (upper[few] == 3))
    exact = mean_intervals(
        np.zeros(2), np.zeros(2), np.array([0.0, 5.0]), np.zeros(2), 2.0, ResultInterval(0, 4)
    )
    np.testing.assert_equal(exact, ([np.nan, 2], [0, 2], [4, 2]))


def test_no_sum_of_laplace_noises_leaves_the_interval_more_often_than_one() -> None:
    reach = interval_width("laplace")
    for share in np.linspace(0, 0.5, 101)[:-1]:
        small, large = math.sqrt(share / 2), math.sqrt((1 - share) / 2)
        tail = large**2 * math.exp(-reach / large)
        tail -= small**2 * math.exp(-reach / small) if small else 0.0
        assert tail / (large**2 - small**2) <= 1 - LEVEL + 1e-12
    # Any number of them, beside Gaussian noise: by the transform of their sum.
    t = (np.arange(40_000) + 0.5) * 0.005
    for shares, gaussian in (
        ((0.5, 0.5), 0.0),
        ((0.9, 0.1), 0.0),
        ((0.98,), 0.02),
        ((0.5,), 0.5),
        ((0.25,) * 4, 0.0),
    ):
        transform = np.exp(-gaussian * t**2 / 2) / np.prod([1 + s * t**2 / 2 for s in shares], axis=0)
        tail = 1 - 2 / math.pi * np.sum(np.sin(reach * t) / t * transform) * 0.005
        assert 0.03 < tail < 1 - LEVEL


@pytest.mark.parametrize(
    ("text", "n_rows", "bounds"),
    [
        ("count by sex", 10, (0, 10)),
        ("count where x > 3", None, (0, math.inf)),
        ("sum(x + 5)", 10, (50, 1050)),
        ("sum(x + 5) where x > 3", 10, (0, 1050)),
        ("sum(x + 5) by sex", None, (0, math.inf)),
        ("sum(x + 5)", None, (0, math.inf)),
        ("sum(signed)", None, (-math.inf, math.inf)),
        ("sum(-x) by sex", 10, (-1000, 0)),
        ("sum(part + 5)", 10, (0, 60)),
        ("mean(signed) by sex", 10, (-50, 50)),
        ("mean(x > 3)", None, (0, 1)),
    ],
)
def test_what_is_possible_follows_from_the_declaration(
    text: str, n_rows: int | None, bounds: tuple[float, float]
) -> None:
    schema = Schema(columns=[*SCHEMA.columns, Column("part", lower=0, upper=1, required=False)])
    assert possible_values(text, schema, n_rows) == bounds


# Wrong twins.


def first_order(
    sums: Floats, sum_sds: Floats, counts: Floats, count_sds: Floats, width: float, bounds: ResultInterval
) -> tuple[Floats, Floats, Floats]:
    """The wrong twin: an interval of the first order, shown where the count is 3 standard deviations."""
    divisor = np.where(counts > 3 * count_sds, counts, np.nan)
    offset = sums / divisor
    spread = width * np.hypot(sum_sds, offset * count_sds) / divisor
    mean = offset + (bounds.lower + bounds.upper) / 2
    return mean, mean - spread, mean + spread


def hiding(*how: Any) -> tuple[Floats, Floats, Floats]:
    """The wrong twin: right intervals, of which those that are the whole range are not shown."""
    values, lower, upper = mean_intervals(*how)
    whole = (lower == how[-1].lower) & (upper == how[-1].upper)
    return values, np.where(whole, np.nan, lower), np.where(whole, np.nan, upper)


@pytest.mark.parametrize("law", LAWS)
def test_an_interval_of_the_first_order_and_hidden_numbers_would_be_seen(law: Law) -> None:
    seen = mean_trials(law, FAST, first_order)
    assert problems(seen)
    at_two = [coverage(trial) for trial in seen if trial.size == 2 and len(trial.lower)]
    assert min(at_two) < 0.82
    assert any("at 1 sd" in words for words in problems(mean_trials(law, FAST, hiding)))


def test_cut_intervals_that_are_added_in_squares_would_be_seen() -> None:
    def blind(terms: list[ResultTerm]) -> Any:
        """The wrong twin: does not know where an interval was cut."""
        return combine_results([replace(term, bounds=ResultInterval(-1e9, 1e9)) for term in terms])

    assert problems(difference_trials("gaussian", 1_500, blind, sizes=(0, 2)))
