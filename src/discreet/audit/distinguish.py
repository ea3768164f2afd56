"""The distinguishing attack: run it many times on two neighbors and bet on which one it was."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.audit.bounds import (
    USUAL_DELTA,
    check_failure_probability,
    foremost,
    strongest_evidence,
    usual_epsilon,
)
from discreet.audit.events import atoms, count_hits, half_lines, likelihood_ratio
from discreet.audit.result import AuditResult
from discreet.audit.subject import Mechanism, Trial
from discreet.errors import ParameterError
from discreet.noise.stream import Stream, stream_or_fresh
from discreet.privacy.promises import ApproxDP, Promise, PureDP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._typing import AnyArray, Floats, Ints
    from discreet.audit.events import Event, Family

DP_KINDS = frozenset({"pure-dp", "approx-dp", "zcdp", "gaussian-dp"})
"""Kinds of promises that bound how far two neighbors' outputs can be told apart."""
DEFAULT_EVENTS: tuple[Family, ...] = (half_lines, atoms, likelihood_ratio)
FINALISTS = 4
"""Events that go to the test; the failure probability is shared among them."""
_CLEARLY = 3.0
KNOWLEDGE = "everything but which of the two inputs was used, and the noise"


def distinguish(
    mechanism: Mechanism,
    a: Any,
    b: Any,
    claim: Promise,
    *,
    events: Sequence[Family] = DEFAULT_EVENTS,
    n: int = 100_000,
    failure_probability: float = 1e-6,
    stream: Stream | None = None,
) -> AuditResult:
    """Look for an event whose probabilities under two neighbors no mechanism with ``claim`` can have.

    Half of the outputs serve to choose events, the other half to test them.

    Parameters
    ----------
    mechanism : callable
        ``mechanism(input, stream)`` returns one or more independent outputs along the first axis.
    a, b : object
        Two inputs that the claim calls neighbors.
    claim : Promise
        A promise of differential privacy.
    events : sequence of families
        See :mod:`discreet.audit.events`.
    n : int
        Outputs under each input.
    failure_probability : float
        Largest probability that a true claim is called broken.
    stream : Stream, optional
        Where the mechanism's randomness comes from.

    Returns
    -------
    AuditResult
        ``measured`` is a lower bound on epsilon at the delta at which the claim was strained most.

    Privacy
    -------
    Broken means: the claim is false. Holds means no more than that these events did not show it; with
    ``n`` outputs nothing rarer than about ``30 / n`` can be seen.

    Reference
    ---------
    Clopper and Pearson (1934); Jagielski, Ullman and Oprea (2020), for auditing. The argument is in
    :mod:`discreet.audit.bounds`.

    Examples
    --------
    >>> from discreet.audit import distinguish
    >>> from discreet.noise import Stream, discrete_laplace
    >>> from discreet.privacy.promises import PureDP
    >>> def count(value, stream):
    ...     return value + discrete_laplace(1.0, 10_000, stream)
    >>> result = distinguish(count, 0, 1, PureDP(epsilon=0.5), n=20_000, stream=Stream.from_seed(1))
    >>> result.verdict, result.measured > 0.5
    ('broken', True)
    """
    trial = Trial(mechanism=mechanism, a=a, b=b, claim=claim, n=n)
    return try_events(trial, "distinguish", events, failure_probability, stream)


def try_events(
    trial: Trial,
    attack: str,
    families: Sequence[Family],
    failure_probability: float,
    stream: Stream | None = None,
) -> AuditResult:
    """Choose events on one half of the outputs and test the claim with them on the other half."""
    check_failure_probability(failure_probability, attack)
    stream = stream_or_fresh(stream)
    a, b = trial.collect(trial.a, stream), trial.collect(trial.b, stream)
    half = trial.n // 2
    proposed = [family(a[:half], b[:half]) for family in families]
    candidates = [event for events in proposed for event in events]
    if not candidates:
        raise ParameterError(f"events of {attack} must propose at least one event, and proposed none.")
    finalists = _choose(trial.claim, proposed, a[:half], b[:half])
    tested = trial.n - half
    counts = list(zip(count_hits(finalists, a[half:]), count_hits(finalists, b[half:]), strict=True))
    evidence = [
        strongest_evidence(
            trial.claim, int(k_a), tested, int(k_b), tested, failure_probability / len(finalists)
        )
        for k_a, k_b in counts
    ]
    worst = foremost(evidence)
    best, event = evidence[worst], finalists[worst]
    broken = best.excess > 0
    k_a, k_b = (int(k) for k in counts[worst])
    told = f"the event {event.name!r} came up {k_a} and {k_b} times in {tested} runs on either input"
    return AuditResult(
        attack=attack,
        claim=trial.claim,
        verdict="broken" if broken else "holds",
        reason=f"No {trial.name} with this promise behaves so: {told}."
        if broken
        else f"The strongest of {len(candidates)} events shows no more than the promise allows: {told}.",
        quantity=f"epsilon at delta {best.delta:.3g}, at least",
        measured=best.measured,
        allowed=best.epsilon,
        failure_probability=failure_probability,
        n=2 * trial.n,
        knowledge=KNOWLEDGE,
        details={
            "event": event.name,
            "hits": [k_a, k_b],
            "tested": tested,
            "excess": best.excess,
            "candidates": len(candidates),
        },
    )


def _choose(
    claim: Promise, proposed: Sequence[Sequence[Event]], train_a: AnyArray, train_b: AnyArray
) -> list[Event]:
    """Return the best event of each family, then the best of the rest."""
    first: list[tuple[float, Event]] = []
    rest: list[tuple[float, Event]] = []
    for events in proposed:
        hits_a, hits_b = count_hits(events, train_a), count_hits(events, train_b)
        scores = _prospects(claim, hits_a, hits_b, len(train_a))
        ranked = [(float(scores[i]), events[i]) for i in np.argsort(scores)[::-1][:FINALISTS]]
        first += ranked[:1]
        rest += ranked[1:]
    for group in (first, rest):
        group.sort(key=lambda pair: -pair[0])
    return [event for _, event in (first + rest)[:FINALISTS]]


def _prospects(claim: Promise, hits_a: Ints, hits_b: Ints, n: int) -> Floats:
    """Score candidate events by how far they stand above the claim in training.

    Above 1: standard errors above the claim, where those are many enough to matter. Up to 1: the share of
    the claim's epsilon that the event seems to prove, so that a claim that holds is met by what strains
    it most.
    """
    grid = [claim.epsilon] if isinstance(claim, PureDP | ApproxDP) else [i / 4 for i in range(1, 48)]
    points = [(epsilon, claim.delta_at(epsilon)) for epsilon in grid]
    if len(points) > 1:
        points.append((usual_epsilon(claim), USUAL_DELTA))
    # Counts are drawn toward the middle by one observation, so that no hits are not no error.
    p, q = ((hits + 0.5) / (n + 1) for hits in (hits_a, hits_b))
    best = np.zeros(len(hits_a))
    for epsilon, delta in points:
        # Beyond 700 the exponential is no double, and no event is that telling.
        growth = math.exp(min(epsilon, 700.0))
        for left, right in ((p, q), (q, p), (1 - p, 1 - q), (1 - q, 1 - p)):
            spread_left, spread_right = (np.sqrt(x * (1 - x) / n) for x in (left, right))
            error = np.hypot(spread_left, growth * spread_right)
            above = (left - growth * right - delta) / error
            sure = np.maximum(left - 5 * spread_left - delta, 0) / (right + 5 * spread_right)
            share = np.log(np.maximum(sure, 1.0)) / epsilon
            best = np.maximum(best, np.where(above > _CLEARLY, above, np.minimum(share, 1)))
    return best
