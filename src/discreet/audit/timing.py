"""Whether the time that a draw takes follows its value.

Rejection and counting samplers run longer for some values than for others. Whoever can time a single
answer then learns about its noise. The times may drift and jump as they like: if they do not depend on
the values, every order of the values is equally likely, and the rank correlation has a known law.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np
from scipy import special, stats

from discreet.audit.bounds import check_failure_probability
from discreet.audit.result import AuditResult

if TYPE_CHECKING:
    from discreet.audit.subject import SingleDraws


def timing(subject: SingleDraws, *, failure_probability: float = 1e-6) -> AuditResult:
    """Correlate the time of single draws with their absolute value, by ranks.

    Parameters
    ----------
    subject : SingleDraws
        ``draw()`` gives one number; ``calls`` of them are timed one by one.
    failure_probability : float
        Largest probability that a source without fault is called broken.

    Returns
    -------
    AuditResult
        ``measured`` is the absolute value of Spearman's correlation.

    Privacy
    -------
    Holds means that nothing was seen on this machine with this clock.

    Reference
    ---------
    Jin, McMurtry, Rubinstein and Ohrimenko (2022).
    """
    check_failure_probability(failure_probability, "timing")
    clock = time.perf_counter_ns
    values, times = np.empty(subject.calls), np.empty(subject.calls)
    for i in range(subject.calls):
        start = clock()
        value = subject.draw()
        times[i] = clock() - start
        values[i] = abs(float(np.asarray(value).reshape(-1)[0]))
    correlation = 0.0
    if np.ptp(values) > 0 and np.ptp(times) > 0:
        ranks = stats.rankdata(values), stats.rankdata(times)
        correlation = float(np.corrcoef(*ranks)[0, 1])
    # Under random order a rank correlation has variance 1 / (n - 1), ties or not.
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
