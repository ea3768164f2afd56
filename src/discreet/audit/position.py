"""Whether the law of a draw depends on where it stands in its vector.

A vectorized sampler that finishes its slow draws last, and puts them at the end of the block, gives the
right law on average and a wrong one there. So draws are sorted into classes by value and into groups by
position, over many calls, and the table is tested for independence.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from discreet.audit.bounds import check_failure_probability
from discreet.audit.result import AuditResult
from discreet.errors import ParameterError
from discreet.noise.stream import Stream, stream_or_fresh

if TYPE_CHECKING:
    from discreet._typing import Ints
    from discreet.audit.subject import Draws

_CLASSES = 12
_GROUPS = 64
LEAST_EXPECTED = 100.0
"""A smaller expected count would make the chi-square law too rough at small failure probabilities."""


def position(
    subject: Draws, *, failure_probability: float = 1e-6, stream: Stream | None = None
) -> AuditResult:
    """Test that every position of a vector of draws has one law.

    Parameters
    ----------
    subject : Draws
        ``draw(stream)`` gives one vector; ``calls`` of them are looked at. Long vectors are cut into 64
        groups of positions, short ones position by position.
    failure_probability : float
        Largest probability that a sampler without fault is called broken.
    stream : Stream, optional
        Where the draws come from.

    Returns
    -------
    AuditResult
        ``measured`` is the negative decimal logarithm of the p-value.

    Privacy
    -------
    Positions belong to people: a coordinate whose noise is narrower than claimed has a larger epsilon.

    Reference
    ---------
    Pearson's chi-square of independence, with at least 100 expected draws in every cell.

    Examples
    --------
    >>> from discreet.audit import Draws, position
    >>> from discreet.noise import Stream, rounded_gaussian
    >>> from discreet.privacy.promises import GaussianDP
    >>> draws = Draws(draw=lambda s: rounded_gaussian(50, 20, s), claim=GaussianDP(mu=0.02), calls=2_000)
    >>> position(draws, stream=Stream.from_seed(1)).verdict
    'holds'
    """
    check_failure_probability(failure_probability, "position")
    stream = stream_or_fresh(stream)
    table = _table(subject, stream)
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    if expected.size == 0 or expected.min() < LEAST_EXPECTED:
        raise ParameterError(
            f"calls of Draws must be large enough for {LEAST_EXPECTED:g} draws per group and class, "
            f"was {subject.calls}. Ask for more calls."
        )
    parts = np.sum((table - expected) ** 2 / expected, axis=1)
    groups, freedom = table.shape[0], table.shape[1] - 1
    # All groups together see a drift, the worst one alone sees a single bad place: half the failure
    # probability each. Logarithms, because a plain p-value ends at 1e-308.
    together = stats.chi2.logsf(parts.sum(), (groups - 1) * freedom)
    worst = int(np.argmax(parts))
    alone = stats.chi2.logsf(parts[worst], freedom) + math.log(groups)
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


def _table(subject: Draws, stream: Stream) -> Ints:
    """Count draws by group of positions (rows) and class of values (columns)."""
    first = np.asarray(subject.draw(stream)).reshape(-1)
    if first.size < 2:
        raise ParameterError("draw of Draws must return at least two numbers, returned fewer.")
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
