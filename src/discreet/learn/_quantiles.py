"""Private quantiles of one column, by one histogram or by bisection, whichever is less noisy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from scipy import optimize, special
from sklearn.isotonic import isotonic_regression

from discreet.errors import ParameterError
from discreet.learn.arguments import is_number
from discreet.learn.budget_schedule import BudgetSchedule
from discreet.query import Histogram
from discreet.query.curation import Curation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Floats
    from discreet.privacy import Promise
    from discreet.privacy.budget_split import Privacy
    from discreet.query import Answer, NoisySums
    from discreet.query.calibration import Law
    from discreet.query.curation import Curated
    from discreet.schema import Schema

Method: TypeAlias = Literal["histogram", "bisection"]

MOST_BITS = 20
"""Largest ``bits``: the range is cut into at most a million cells."""


@dataclass(frozen=True, kw_only=True)
class Quantiles:
    """Result of :func:`private_quantiles`.

    Attributes
    ----------
    qs : tuple of float
        Fractions between 0 and 1, in the order they were given.
    value : tuple of float
        Quantiles in the column's unit; a date in days since its lower bound. They rise with the fractions.
    lower, upper : tuple of float
        Ends of the intervals that hold the exact quantiles of the table, each with probability ``level``.
    level : float
        Confidence level of the intervals, between 0 and 1.
    sd : float
        Largest standard deviation of the noise on a compared count of rows.
    method : {"histogram", "bisection"}
        Method that was chosen as the less noisy one.
    promises : tuple of Promise
        Promises that hold for all queries together.
    answers : dict of str to Answer
        Noisy counts by name of the query.

    Privacy
    -------
    Computed from noisy counts alone; may be published for the promises that it names.

    Reference
    ---------
    docs/explanation/theorems/sulq-3.md.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import ApproxDP, Column, Database, Schema
    >>> schema = Schema(columns=[Column("age", type="integer", lower=0, upper=120)])
    >>> with Database({"age": np.arange(20000) % 100}, schema=schema, random_state=1) as db:
    ...     median = private_quantiles(db, "age", [0.5], privacy=ApproxDP(1, 1e-6))
    >>> median.lower[0] <= 49.5 <= median.upper[0]
    True
    """

    qs: tuple[float, ...]
    value: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    level: float
    sd: float
    method: Method
    promises: tuple[Promise, ...]
    answers: dict[str, Answer]


@dataclass(frozen=True)
class _ExcessCounts:
    """Noisy counts of rows below some cuts in excess of the quantile's share of all rows.

    Attributes
    ----------
    cuts : array of int
        Positions of the cuts among all cuts of the range.
    excess : array of float
        Rows below each cut, less the fraction times all rows.
    sd : array of float
        Standard deviation of the noise on each excess.
    """

    cuts: AnyArray
    excess: Floats
    sd: Floats


def private_quantiles(
    sums: NoisySums,
    column: str,
    qs: Sequence[float] | float,
    *,
    privacy: Privacy,
    bits: int = 12,
    level: float = 0.95,
    owner: str | None = None,
) -> Quantiles:
    """Return private quantiles of a column: values below which given fractions of the rows lie.

    Parameters
    ----------
    sums : NoisySums
        Database or rows in memory that answer noisy sums.
    column : str
        Name of a number or a date. Rows where it is missing do not count.
    qs : float or sequence of float
        Fractions between 0 and 1: 0.5 is the median.
    privacy : ApproxDP, ZCDP, GaussianDP or PureDP
        Promise of all queries together.
    bits : int
        Resolution: the range is cut into ``2**bits`` cells, or into its whole numbers where these are fewer;
        a quantile is the middle of a cell.
    level : float
        Confidence level of the intervals, between 0 and 1.
    owner : str, optional
        Name that is charged beside the total of the ledger; None charges the total alone.

    Privacy
    -------
    The promise is split evenly over the questions. One histogram of ``M`` cells costs 2 in squared
    sensitivity, and the count below a cut has variance of at most ``M R / 4``; each of ``s`` steps of
    bisection is a histogram of ``len(qs) + 1`` cells with ``s`` times the variance, hence
    ``s (len(qs) + 1) R / 4`` at most. The smaller one is taken: a rule on declared facts alone.

    Reference
    ---------
    Section 4.5 of Blum, Dwork, McSherry and Nissim (2005): docs/explanation/theorems/sulq-3.md,
    sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import ApproxDP, Column, Schema
    >>> from discreet.query import Database
    >>> schema = Schema(columns=[Column("age", type="integer", lower=0, upper=120)])
    >>> with Database({"age": np.arange(20000) % 100}, schema=schema, random_state=1) as sums:
    ...     found = private_quantiles(sums, "age", [0.255, 0.505], privacy=ApproxDP(epsilon=1.0, delta=1e-6))
    >>> found.method, found.value
    ('bisection', (25.0, 50.0))
    """
    fractions = _parse_fractions(qs)
    if not (isinstance(bits, int) and not isinstance(bits, bool) and 1 <= bits <= MOST_BITS):
        raise ParameterError(
            f"bits of private_quantiles must be a whole number from 1 to {MOST_BITS}, was {bits!r}."
        )
    if not (is_number(level) and 0 < level < 1):
        raise ParameterError(f"level of private_quantiles must be between 0 and 1, was {level!r}.")
    search = plan_search(sums.schema, column, len(fractions), bits)
    schedule = BudgetSchedule(sums, privacy, dict.fromkeys(search.steps, 1.0), owner=owner)
    value, excesses = search_quantiles(schedule, search.steps, search, fractions)
    curated, cuts = search.curated, search.cuts
    laws = [answer.law for answer in schedule.answers.values()] or ["gaussian"]
    intervals = [_interval_cuts(part, len(cuts) - 1, level, laws[0]) for part in excesses]
    return Quantiles(
        qs=fractions,
        value=tuple(value),
        lower=tuple(_cut_value(curated, cuts[low]) for low, _ in intervals),
        # A whole number is at most the one before the next cell; any other may come close to that.
        upper=tuple(_cut_value(curated, cuts[high] - curated.whole) for _, high in intervals),
        level=float(level),
        sd=max(float(part.sd.max(initial=0.0)) for part in excesses),
        method=search.method,
        promises=schedule.promises,
        answers=schedule.answers,
    )


@dataclass(frozen=True)
class QuantileSearch:
    """How the quantiles of one column are found, from declared facts alone.

    Attributes
    ----------
    curated : Curated
        The column on its grid of integers.
    cuts : array of int
        Starts of the cells on that grid, and one past the last.
    method : {"histogram", "bisection"}
        Method that has the smaller variance.
    steps : tuple of str
        Names of the queries, in order.
    """

    curated: Curated
    cuts: AnyArray
    method: Method
    steps: tuple[str, ...]


def plan_search(schema: Schema, column: str, n_quantiles: int, bits: int) -> QuantileSearch:
    """Return how quantiles of a column are found in ``2**bits`` cells, or fewer; refuses categories."""
    curated = Curation.from_schema(schema).column(column)
    if curated.is_category:
        raise ParameterError(
            f"column of private_quantiles must be a number or a date, and {column!r} is a category. Ask for "
            "its histogram."
        )
    cells = min(curated.top + 1, 2**bits)
    cuts = np.array([j * (curated.top + 1) // cells for j in range(cells + 1)])
    method = choose_method(cells, n_quantiles)
    steps = max(1, math.ceil(math.log2(cells)))
    names = ("histogram",) if method == "histogram" else tuple(f"step {i + 1}" for i in range(steps))
    return QuantileSearch(curated, cuts, method, names)


def search_quantiles(
    schedule: BudgetSchedule, passes: Sequence[str], search: QuantileSearch, fractions: Sequence[float]
) -> tuple[list[float], list[_ExcessCounts]]:
    """Return the quantiles in the column's unit, rising with the fractions, and the counts behind them.

    Parameters
    ----------
    schedule : BudgetSchedule
        Shares of the promise, which may pay for other columns too.
    passes : sequence of str
        Name in the schedule of each step of the search.
    search : QuantileSearch
        The column and its cells.
    fractions : sequence of float
        Fractions of the rows below the quantiles.
    """
    curated, cuts = search.curated, search.cuts
    if search.method == "histogram":
        excesses = _count_by_histogram(schedule, passes[0], curated, cuts, fractions)
        cut_indices = [_first_sufficient_cut(part, len(cuts) - 1) for part in excesses]
    else:
        excesses, cut_indices = _count_by_bisection(schedule, passes, curated, cuts, fractions)
    # Noise may reverse neighboring quantiles; sorting them is post-processing.
    order = np.argsort(fractions, kind="stable")
    ordered = np.empty(len(fractions))
    middles = np.array([_cell_middle(curated, cuts, j) for j in cut_indices])
    ordered[order] = np.sort(middles[order])
    return ordered.tolist(), excesses


def choose_method(cells: int, n_quantiles: int) -> Method:
    """Return the method with the smaller variance.

    Notes
    -----
    A count below a cut has variance ``M R / 4`` at most by one histogram of ``M`` cells, and ``s (k + 1) R /
    4`` by ``s = log2(M)`` steps of bisection for ``k`` quantiles.
    """
    steps = max(1, math.ceil(math.log2(cells)))
    return "histogram" if cells <= steps * (n_quantiles + 1) else "bisection"


def _parse_fractions(qs: Sequence[float] | float) -> tuple[float, ...]:
    """Return the fractions as floats, after a check that they are between 0 and 1."""
    values: tuple[Any, ...] = tuple(np.atleast_1d(np.asarray(qs, dtype=object)).tolist())
    if not values or not all(is_number(q) and 0 <= q <= 1 for q in values):
        raise ParameterError(f"qs of private_quantiles must be numbers from 0 to 1, was {qs!r}.")
    return tuple(map(float, values))


def _count_by_histogram(
    schedule: BudgetSchedule, name: str, curated: Curated, cuts: AnyArray, fractions: Sequence[float]
) -> list[_ExcessCounts]:
    """Return the excess at every inner cut for each fraction, from one histogram."""
    below, sd = _count_between(schedule, name, curated, cuts[1:-1])
    inner = np.arange(1, len(cuts) - 1)
    return [_excess_counts(inner, below, sd, q, schedule, curated) for q in fractions]


def _count_by_bisection(
    schedule: BudgetSchedule,
    passes: Sequence[str],
    curated: Curated,
    cuts: AnyArray,
    fractions: Sequence[float],
) -> tuple[list[_ExcessCounts], list[int]]:
    """Return the excess at the cuts that bisection queried, and the cut it ends at, for each fraction.

    Notes
    -----
    Each step counts the rows between the current middles of all fractions in one histogram; a fraction whose
    middle has enough rows below it goes on in the lower half.
    """
    lows, highs = [0] * len(fractions), [len(cuts) - 1] * len(fractions)
    parts_of: list[list[_ExcessCounts]] = [[] for _ in fractions]
    for name in passes:
        middles = [(low + high) // 2 for low, high in zip(lows, highs, strict=True)]
        # Fractions that are still in the same cell share a cut.
        queried = np.array(sorted({m for m, low in zip(middles, lows, strict=True) if m > low}))
        if not queried.size:
            break
        below, sd = _count_between(schedule, name, curated, cuts[queried])
        for i, q in enumerate(fractions):
            excesses = _excess_counts(queried, below, sd, q, schedule, curated)
            parts_of[i].append(excesses)
            if middles[i] > lows[i]:
                if excesses.excess[np.searchsorted(queried, middles[i])] >= 0:
                    highs[i] = middles[i]
                else:
                    lows[i] = middles[i]
    return [_concatenate(each) for each in parts_of], highs


def _concatenate(parts: Sequence[_ExcessCounts]) -> _ExcessCounts:
    """Return the excess counts of several queries for one quantile as one value."""
    none = [np.empty(0)]
    return _ExcessCounts(
        np.concatenate([part.cuts for part in parts] or none),
        np.concatenate([part.excess for part in parts] or none),
        np.concatenate([part.sd for part in parts] or none),
    )


def _count_between(
    schedule: BudgetSchedule, name: str, curated: Curated, cuts: AnyArray
) -> tuple[Floats, float]:
    """Return noisy counts of rows between cuts and their deviation; rows with a missing cell are left out."""
    edges = [_cut_value(curated, cut) for cut in cuts]
    if not edges:
        return np.zeros(0), 0.0
    answer = schedule.ask(name, Histogram((curated.name,), {curated.name: edges}))
    # One more cell, where there is one, counts the missing values.
    counts = np.asarray(answer.value)[: len(edges) + 1]
    return np.asarray(counts), float(np.max(answer.sd))


def _excess_counts(
    cuts: AnyArray, counts: Floats, sd: float, q: float, schedule: BudgetSchedule, curated: Curated
) -> _ExcessCounts:
    """Return the excess of rows below each cut, with its noise, for one fraction.

    Notes
    -----
    For ``m`` cells with noise ``sd`` and the first ``k`` of them below a cut: where the number of rows ``n``
    is public, the cells are adjusted to add up to it and the deviation is ``sd sqrt(k (m - k) / m)``;
    otherwise the excess is ``below - q total``, with ``sd sqrt(k (1 - q)^2 + (m - k) q^2)``.
    """
    m = len(counts)
    if not m:
        return _ExcessCounts(np.empty(0), np.empty(0), np.empty(0))
    k = np.arange(1, m)
    below, total = np.cumsum(counts)[:-1], counts.sum()
    if schedule.sums.n_rows is not None and curated.flag is None:
        # The cells must add up to the public number of rows: each takes an equal part of the difference.
        below = below + k / m * (schedule.sums.n_rows - total)
        return _ExcessCounts(cuts, below - q * schedule.sums.n_rows, sd * np.sqrt(k * (m - k) / m))
    return _ExcessCounts(cuts, below - q * total, sd * np.sqrt(k * (1 - q) ** 2 + (m - k) * q**2))


def _first_sufficient_cut(excesses: _ExcessCounts, cells: int) -> int:
    """Return the first cut with enough rows below it, after isotonic regression of the counts."""
    if not excesses.cuts.size:
        return cells
    # True counts below rising cuts rise: isotonic regression removes the reversals that noise makes.
    enough = np.flatnonzero(isotonic_regression(excesses.excess) >= 0)
    return int(excesses.cuts[enough[0]]) if enough.size else cells


def _interval_cuts(excesses: _ExcessCounts, cells: int, level: float, law: Law) -> tuple[int, int]:
    """Return two cuts between which the exact quantile lies with probability ``level``."""
    if not excesses.cuts.size:
        return 0, cells
    # A union bound: all comparisons hold at once with probability `level`.
    z = _tail_in_sds((1 - level) / excesses.cuts.size, law)
    surely_short = excesses.cuts[excesses.excess + z * excesses.sd < 0]
    surely_enough = excesses.cuts[excesses.excess - z * excesses.sd >= 0]
    return int(surely_short.max(initial=0)), int(surely_enough.min(initial=cells))


def _tail_in_sds(failure: float, law: Law) -> float:
    """Return the deviations that a weighted sum of noise exceeds with probability at most ``failure``.

    Notes
    -----
    The normal quantile for Gaussian noise. For Laplace noise the Chernoff bound
    ``2 exp(-u t) / (1 - u^2)`` at its best ``u = (sqrt(1 + t^2) - 1) / t``, solved for ``t``: the moment
    generating function of a weighted sum of Laplace variables is at most that of one with the same variance.
    """
    if law == "gaussian":
        return -float(special.ndtri(failure / 2))

    def excess(t: float) -> float:
        u = (math.sqrt(1 + t * t) - 1) / t
        return math.log(2) - u * t - math.log1p(-u * u) - math.log(failure)

    # t is in scales of the Laplace law, of which its standard deviation is sqrt(2).
    return float(optimize.brentq(excess, 1e-9, 10 - 4 * math.log(failure))) / math.sqrt(2)


def _cell_middle(curated: Curated, cuts: AnyArray, j: int) -> float:
    """Return the middle of the cell that ends at cut ``j``, in the column's unit."""
    first, last = int(cuts[j - 1]), int(cuts[j]) - 1
    middle = (first + last) / 2
    return _cut_value(curated, math.floor(middle) if curated.whole else middle)


def _cut_value(curated: Curated, index: float) -> float:
    """Return an integer of the curated table in the column's unit."""
    return min(float(curated.lower + curated.step * index), curated.upper)
