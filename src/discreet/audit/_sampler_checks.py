"""Attacks on the implementation of a sampler: position in a vector, low-order bits, and running time.

:func:`position`. A vectorized sampler that finishes its slow draws last, and puts them at the end of the
block, has the right law on average and a wrong one there. Draws are sorted into classes by value and into
groups by position, over many calls, and the table is tested for independence.

:func:`precision`. A float is a multiple of its last place, and a sum of floats is no finer than the coarser
of its terms. So ``value + noise``, computed in floats, lies on a grid that depends on ``value``, and an
output finer than that grid excludes the input, whatever epsilon was promised. The attack uses the magnitude
of each output and its finest bit, and nothing else.

:func:`check_timing`. Rejection and counting samplers run longer for some values than for others, so the time
of a single answer reveals its noise. Times may drift and jump: if they do not depend on the values, every
order of the values is equally likely, and the rank correlation has a known variance.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from scipy import special

from discreet.audit._base import AuditResult, Mechanism, MechanismPair
from discreet.audit._bounds import check_failure_probability
from discreet.audit._distinguishing import MOST_COORDINATES, likelier_cells, try_events
from discreet.errors import ParameterError
from discreet.noise.stream import Stream, stream_or_fresh
from discreet.ranks import rank_values

if TYPE_CHECKING:
    from discreet._types import AnyArray, Ints
    from discreet.audit._base import MechanismDraws, SingleDraws
    from discreet.audit._distinguishing import Event
    from discreet.privacy.promises import Promise

_CLASSES = 12
_GROUPS = 64
LEAST_EXPECTED = 100.0
"""Least expected count, below which the chi-squared law is too rough at small failure probabilities."""
# Exponents of 64-bit floats run from -1074 to 1024; those beyond these limits share the outermost cells.
_LEAST, _MOST = -160, 160
_SPAN = _MOST - _LEAST + 1


def position(
    subject: MechanismDraws, *, failure_probability: float = 1e-6, stream: Stream | None = None
) -> AuditResult:
    """Test that every position of a vector of draws has one law.

    Parameters
    ----------
    subject : MechanismDraws
        Sampler whose ``draw(stream)`` gives one vector; ``calls`` of them are tested. Long vectors are cut
        into 64 groups of positions, short ones are tested position by position.
    failure_probability : float
        Largest probability that a sampler without fault is called broken.
    stream : Stream, optional
        Source of the draws; a fresh one by default.

    Returns
    -------
    AuditResult
        ``measured`` is the negative decimal logarithm of the p-value.

    Privacy
    -------
    Positions belong to people: a coordinate whose noise is narrower than claimed has a larger epsilon.

    Notes
    -----
    With counts ``O`` and expected counts ``E`` by group and class, ``sum (O - E)**2 / E`` is compared with
    the chi-squared law, over all groups and for the worst one; half of the failure probability each.

    Reference
    ---------
    Pearson's chi-square of independence, with at least 100 expected draws in every cell.

    Examples
    --------
    >>> from discreet.audit import MechanismDraws, position
    >>> from discreet.noise import Stream, rounded_gaussian
    >>> from discreet.privacy.promises import GaussianDP
    >>> draws = MechanismDraws(
    ...     draw=lambda s: rounded_gaussian(50, 20, s), claim=GaussianDP(mu=0.02), calls=2_000
    ... )
    >>> position(draws, stream=Stream.from_seed(1)).verdict
    'holds'
    """
    check_failure_probability(failure_probability, "position")
    stream = stream_or_fresh(stream)
    table = _table(subject, stream)
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    if expected.size == 0 or expected.min() < LEAST_EXPECTED:
        raise ParameterError(
            f"calls of MechanismDraws must be large enough for {LEAST_EXPECTED:g} draws per group and class, "
            f"was {subject.calls}. Ask for more calls."
        )
    parts = np.sum((table - expected) ** 2 / expected, axis=1)
    groups, freedom = table.shape[0], table.shape[1] - 1
    # All groups together detect a drift, the worst one alone detects a single bad position. In logarithms,
    # because a p-value underflows below 1e-308.
    together = scipy.stats.chi2.logsf(parts.sum(), (groups - 1) * freedom)
    worst = int(np.argmax(parts))
    # A group's part is (1 - its share of draws) times chi-squared, because it has a part in the margins: the
    # p-value is a little too large. log(groups) is the union bound over groups.
    alone = scipy.stats.chi2.logsf(parts[worst], freedom) + math.log(groups)
    # The smaller of two tests: each has half of the failure probability.
    log_p = min(0.0, min(float(together), float(alone)) + math.log(2))
    broken = log_p < math.log(failure_probability)
    where = f"group {worst} of {groups}"
    return AuditResult(
        attack="position",
        claim=subject.claim,
        verdict="broken" if broken else "holds",
        reason=f"The law of the {subject.name} depends on the position, most at {where}."
        if broken
        else f"No position of the {subject.name} stands out among {groups} groups.",
        quantity="-log10 of the p-value",
        measured=-log_p / math.log(10),
        allowed=-math.log10(failure_probability),
        failure_probability=failure_probability,
        n=int(table.sum()),
        knowledge="the position of a value in the output",
        details={"groups": groups, "classes": freedom + 1, "worst": worst},
    )


def _table(subject: MechanismDraws, stream: Stream) -> Ints:
    """Return the number of draws by group of positions (rows) and class of values (columns)."""
    first = np.asarray(subject.draw(stream)).reshape(-1)
    if first.size < 2:
        raise ParameterError("draw of MechanismDraws must return at least two numbers, returned fewer.")
    group = np.arange(first.size) * min(first.size, _GROUPS) // first.size
    table = np.zeros((int(group[-1]) + 1, _CLASSES), np.int64)
    # The first calls only choose the classes, so that these are fixed before anything is counted.
    sample = [first]
    while sum(part.size for part in sample) < 10_000:
        sample.append(np.asarray(subject.draw(stream)).reshape(-1))
    edges = np.unique(
        np.quantile(np.concatenate(sample), np.linspace(0, 1, _CLASSES + 1)[1:-1], method="inverted_cdf")
    )
    for _ in range(subject.calls):
        values = np.asarray(subject.draw(stream)).reshape(-1)
        cell = group * _CLASSES + np.searchsorted(edges, values, side="left")
        table += np.bincount(cell, minlength=table.size).reshape(table.shape)
    return table[:, table.sum(axis=0) > 0]


def finest_bit(x: AnyArray) -> Ints:
    """Return for each float the largest ``k`` such that it is a multiple of ``2**k``.

    Zero and non-finite values are multiples of every power: they get the largest exponent in use.
    """
    mantissa, exponent = np.frexp(np.where(np.isfinite(x), x, 0.0))
    # frexp gives a mantissa below 1 in size: times 2**53 it is a whole number, without rounding.
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    # The lowest set bit is a power of two, so that frexp counts its trailing zeros exactly.
    lowest = whole & -whole
    zeros = np.frexp(lowest.astype(np.float64))[1] - 1
    return np.where(whole == 0, _MOST, exponent - 53 + zeros).astype(np.int64)


def low_bits(train_a: AnyArray, train_b: AnyArray) -> list[Event]:
    """Propose sets of (magnitude, finest bit) that are likelier under one input than under the other."""
    events: list[Event] = []
    for j in range(min(train_a.shape[1], MOST_COORDINATES)):
        events += likelier_cells(f"magnitude and finest bit of output[{j}]", _cells(j), train_a, train_b)
    return events


def _cells(j: int) -> Any:
    """Return a function from outputs to cells of magnitude and finest bit of coordinate j."""

    def place(x: AnyArray) -> Ints:
        column = x[:, j].astype(np.float64)
        magnitude = np.frexp(np.where(np.isfinite(column), column, 0.0))[1]
        low, high = (
            np.clip(value, _LEAST, _MOST).astype(np.int64) - _LEAST
            for value in (magnitude, finest_bit(column))
        )
        return np.asarray(low * _SPAN + high)

    return place


def precision(
    mechanism: Mechanism,
    a: Any,
    b: Any,
    claim: Promise,
    *,
    n: int = 100_000,
    failure_probability: float = 1e-6,
    stream: Stream | None = None,
) -> AuditResult:
    """Try to distinguish two neighbors by the finest bits of the outputs.

    Parameters
    ----------
    mechanism, a, b, claim, n, failure_probability, stream
        As for :func:`discreet.audit.distinguish`; outputs are floats.

    Returns
    -------
    AuditResult
        ``measured`` is a lower bound on epsilon, as of :func:`discreet.audit.distinguish`.

    Privacy
    -------
    Noise on a lattice, added to values on the same lattice, passes with any inputs. Noise computed and
    added in floats does not: the loss is infinite on an event of a few percent.

    Reference
    ---------
    Mironov (2012); Haney, Desfontaines, Hartman, Shrestha and Hay (2022).

    Examples
    --------
    >>> from discreet.audit import precision
    >>> from discreet.noise import Stream
    >>> from discreet.privacy.promises import GaussianDP
    >>> def in_floats(value, stream):
    ...     return value + stream.generator().standard_normal(10_000)
    >>> precision(in_floats, 0.0, 1.0, GaussianDP(mu=1.0), n=20_000, stream=Stream.from_seed(1)).verdict
    'broken'
    """
    trial = MechanismPair(mechanism=mechanism, a=a, b=b, claim=claim, n=n)
    return try_events(trial, "precision", (low_bits,), failure_probability, stream)


def check_timing(subject: SingleDraws, *, failure_probability: float = 1e-6) -> AuditResult:
    """Correlate the time of single draws with their absolute value, by ranks.

    Parameters
    ----------
    subject : SingleDraws
        Source whose ``draw()`` gives one number; ``calls`` of them are timed one by one.
    failure_probability : float
        Largest probability that a source without fault is called broken.

    Returns
    -------
    AuditResult
        ``measured`` is the absolute value of Spearman's correlation.

    Privacy
    -------
    "holds" means that no dependence was measured on this machine with this clock.

    Notes
    -----
    Spearman's correlation of n pairs in random order has variance ``1 / (n - 1)``, with ties or without; it
    is compared with the normal quantile at half the failure probability.

    Reference
    ---------
    Jin, McMurtry, Rubinstein and Ohrimenko (2022).
    """
    check_failure_probability(failure_probability, "check_timing")
    clock = time.perf_counter_ns
    values, times = np.empty(subject.calls), np.empty(subject.calls)
    for i in range(subject.calls):
        start = clock()
        value = subject.draw()
        times[i] = clock() - start
        values[i] = abs(float(np.asarray(value).reshape(-1)[0]))
    # Constant values or times have no ranks to correlate.
    correlation = 0.0
    if np.ptp(values) > 0 and np.ptp(times) > 0:
        ranks = rank_values(values), rank_values(times)
        correlation = float(np.corrcoef(*ranks)[0, 1])
    allowed = -float(special.ndtri(failure_probability / 2)) / math.sqrt(subject.calls - 1)
    broken = abs(correlation) > allowed
    return AuditResult(
        attack="timing",
        claim=subject.claim,
        verdict="broken" if broken else "holds",
        reason=f"The time of a draw from the {subject.name} "
        + ("follows its size." if broken else "does not follow its size."),
        quantity="rank correlation of time and size",
        measured=abs(correlation),
        allowed=allowed,
        failure_probability=failure_probability,
        n=subject.calls,
        knowledge="the time that each single draw took",
        details={"correlation": correlation, "median_ns": float(np.median(times))},
    )
