"""The distinguishing attack: run a mechanism many times on two neighbors and test events on its outputs.

A family of events sees one half of the outputs under both inputs and proposes sets of outputs. It may choose
them in any way, because they are tested on the other half. A set stands for its complement too.

To add a family, write a function ``family(train_a, train_b) -> list of Event`` and pass it in ``events`` of
:func:`distinguish`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from discreet.audit._base import AuditResult, Mechanism, MechanismPair
from discreet.audit._bounds import (
    USUAL_DELTA,
    best_evidence,
    check_failure_probability,
    strongest_evidence,
    usual_epsilon,
)
from discreet.errors import ParameterError
from discreet.noise.stream import Stream, stream_or_fresh
from discreet.privacy.promises import ApproxDP, Promise, PureDP

if TYPE_CHECKING:
    from discreet._types import AnyArray, Bools, Floats, Ints

Score: TypeAlias = Callable[["AnyArray"], "AnyArray"]
"""Function from outputs of shape (n, width) to one number for each."""
Family: TypeAlias = Callable[["AnyArray", "AnyArray"], "list[Event]"]
"""Function from training outputs under two inputs to events."""

MOST_COORDINATES = 64
"""Number of coordinates that are tested one by one; the learned direction covers all of them."""
_THRESHOLDS = 60
_CELLS = 64
_COMMONEST = 8
DP_KINDS = frozenset({"pure-dp", "approx-dp", "zcdp", "gaussian-dp"})
"""Kinds of promises that bound how well the outputs of two neighbors can be distinguished."""
FINALISTS = 4
"""Number of events that are tested; the failure probability is shared among them."""
_CLEARLY = 3.0
"""Standard errors above the claim from which on an event is ranked by them."""
KNOWLEDGE = "everything but which of the two inputs was used, and the noise"


@dataclass(frozen=True)
class Event:
    """A set of outputs: those whose score passes a test.

    Attributes
    ----------
    name : str
        Description of the set in results.
    score : callable
        Function from outputs to numbers; events of one family share it, so that it is computed once.
    test : callable
        Function from scores to booleans.
    """

    name: str
    score: Score
    test: Callable[[AnyArray], Bools]

    def contains(self, outputs: AnyArray) -> Bools:
        """Return for each output whether it is in the set."""
        return self.test(self.score(outputs))


def count_hits(events: Sequence[Event], outputs: AnyArray) -> Ints:
    """Return how many of the outputs lie in each event."""
    scores: dict[Score, AnyArray] = {}
    counts = np.empty(len(events), np.int64)
    for i, event in enumerate(events):
        if event.score not in scores:
            scores[event.score] = event.score(outputs)
        counts[i] = np.count_nonzero(event.test(scores[event.score]))
    return counts


def half_lines(train_a: AnyArray, train_b: AnyArray) -> list[Event]:
    """Propose "score at least a threshold", for thresholds from the extremes to the middle."""
    return [
        Event(f"{name} >= {threshold:.17g}", score, partial(np.less_equal, threshold))
        for name, score in _scores(train_a, train_b)
        for threshold in _thresholds(score(train_a), score(train_b))
    ]


def atoms(train_a: AnyArray, train_b: AnyArray) -> list[Event]:
    """Propose "coordinate equal to a value", for the values seen most often."""
    events = []
    for j in range(min(train_a.shape[1], MOST_COORDINATES)):
        score = _coordinate(j)
        for train in (train_a, train_b):
            # Both samples propose: a value that only one input can give is the strongest evidence there
            # is.
            values, counts = np.unique(score(train), return_counts=True)
            # Values that occur once are draws of a continuous law and no atoms: they are left out below.
            common = np.argsort(counts)[::-1][:_COMMONEST]
            events += [
                Event(f"output[{j}] == {values[i]}", score, partial(np.equal, values[i]))
                for i in common
                if counts[i] > 1
            ]
    return events


def likelihood_ratio(train_a: AnyArray, train_b: AnyArray) -> list[Event]:
    """Propose unions of quantile cells of a score that are likelier under one input than the other."""
    events = []
    for name, score in _scores(train_a, train_b):
        pooled = np.concatenate([score(train_a), score(train_b)])
        # Edges are observed values, so that no atom is split between two cells.
        edges = np.unique(np.quantile(pooled, np.linspace(0, 1, _CELLS + 1)[1:-1], method="inverted_cdf"))
        events += likelier_cells(f"cells of {name}", _cell(score, edges), train_a, train_b)
    return events


def likelier_cells(name: str, place: Score, train_a: AnyArray, train_b: AnyArray) -> list[Event]:
    """Propose nested unions of cells, those with the highest ratio of counts first.

    Parameters
    ----------
    name : str
        Name of the cells in results.
    place : callable
        Function from outputs to the numbers of their cells, from 0 on.
    train_a, train_b : array
        Training outputs under the two inputs, one per row.

    Notes
    -----
    Cells are ordered by ``(k_a + 1/2) / (k_b + 1/2)``, which estimates the likelihood ratio; by the lemma of
    Neyman and Pearson its upper level sets are the most powerful events.
    """
    cells_a, cells_b = place(train_a), place(train_b)
    size = int(max(cells_a.max(), cells_b.max())) + 1
    counts_a, counts_b = np.bincount(cells_a, minlength=size), np.bincount(cells_b, minlength=size)
    # An empty cell would have the ratio 1 by the half counts alone.
    occupied = np.flatnonzero(counts_a + counts_b)
    ratio = (counts_a[occupied] + 0.5) / (counts_b[occupied] + 0.5)
    order = occupied[np.argsort(ratio)[::-1]]
    cuts = np.unique(np.linspace(1, max(1, order.size - 1), _THRESHOLDS).astype(int))
    events = []
    for cut in cuts:
        # The last entry stands for every cell without a training output.
        chosen = np.zeros(size + 1, np.bool_)
        chosen[order[:cut]] = True
        events.append(Event(f"{name}: the {cut} likeliest of {order.size}", place, partial(_among, chosen)))
    return events


def _scores(train_a: AnyArray, train_b: AnyArray) -> list[tuple[str, Score]]:
    """Return the scores by which outputs are ordered: each coordinate, a learned direction, the norm."""
    width = train_a.shape[1]
    scores = [(f"output[{j}]", _coordinate(j)) for j in range(min(width, MOST_COORDINATES))]
    if width > 1:
        scores.append(("learned direction", _direction(train_a, train_b)))
        scores.append(("norm", _norm))
    return scores


def _direction(train_a: AnyArray, train_b: AnyArray) -> Score:
    """Return Fisher's linear discriminant of the two samples.

    Notes
    -----
    ``w = W^-1 (mean_a - mean_b)`` with ``W`` the mean of the two covariances plus 1e-10, of standardized
    coordinates.
    """
    a, b = _finite(train_a), _finite(train_b)
    pooled = np.concatenate([a, b])
    center, spread = pooled.mean(axis=0), pooled.std(axis=0)
    spread[spread == 0] = 1.0
    a, b = (a - center) / spread, (b - center) / spread
    # Noise that is used twice leaves a direction without variance: a larger ridge would hide it.
    within = (np.cov(a, rowvar=False) + np.cov(b, rowvar=False)) / 2 + 1e-10 * np.eye(a.shape[1])
    weights = np.linalg.solve(within, a.mean(axis=0) - b.mean(axis=0))
    return lambda x: (_finite(x) - center) / spread @ weights


def _thresholds(a: AnyArray, b: AnyArray) -> Floats:
    """Return pooled values as thresholds: at even ranks, and at geometric ranks in both tails."""
    pooled = np.sort(np.concatenate([a, b]))
    # Likelihood ratios are often largest far out in the tails.
    tail = np.geomspace(1 / pooled.size, 0.5, _THRESHOLDS // 3)
    # Even ranks for the middle, where laws that differ in an atom are told apart.
    ranks = np.concatenate([tail, 1 - tail, np.linspace(0, 1, _THRESHOLDS // 3)])
    return np.unique(pooled[np.minimum((ranks * pooled.size).astype(int), pooled.size - 1)])


@cache
def _coordinate(j: int) -> Score:
    # NaN counts as infinite: an output that is not a number can tell inputs apart like any other.
    return lambda x: np.nan_to_num(x[:, j].astype(np.float64), nan=np.inf, posinf=np.inf, neginf=-np.inf)


def _finite(x: AnyArray) -> Floats:
    return np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def _norm(x: AnyArray) -> AnyArray:
    return np.asarray(np.linalg.norm(_finite(x), axis=1))


def _cell(score: Score, edges: Floats) -> Score:
    return lambda x: np.searchsorted(edges, score(x), side="right")


def _among(chosen: Bools, cells: AnyArray) -> Bools:
    return np.asarray(chosen[np.minimum(cells, chosen.size - 1)])


DEFAULT_EVENTS: tuple[Family, ...] = (half_lines, atoms, likelihood_ratio)


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
    """Search for an event whose probabilities under two neighbors contradict a claim.

    One half of the outputs serves to choose events, the other half to test them.

    Parameters
    ----------
    mechanism : callable
        ``mechanism(input, stream)`` returns one or more independent outputs along the first axis.
    a, b : object
        Two inputs that the claim calls neighbors.
    claim : Promise
        A promise of differential privacy.
    events : sequence of callable
        Families that propose events from training outputs, see :mod:`discreet.audit._distinguishing`.
    n : int
        Number of outputs under each input.
    failure_probability : float
        Largest probability that a true claim is called broken.
    stream : Stream, optional
        Source of the mechanism's randomness; a fresh one by default.

    Returns
    -------
    AuditResult
        ``measured`` is a lower bound on epsilon at the delta at which the claim was strained most.

    Privacy
    -------
    "broken" means that the claim is false. "holds" means only that these events did not show it; with ``n``
    outputs no event rarer than about ``30 / n`` can be detected.

    Reference
    ---------
    Clopper and Pearson (1934); Jagielski, Ullman and Oprea (2020), for auditing. The argument is in
    :mod:`discreet.audit._bounds`.

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
    trial = MechanismPair(mechanism=mechanism, a=a, b=b, claim=claim, n=n)
    return try_events(trial, "distinguish", events, failure_probability, stream)


def try_events(
    trial: MechanismPair,
    attack: str,
    families: Sequence[Family],
    failure_probability: float,
    stream: Stream | None = None,
) -> AuditResult:
    """Choose events on one half of the outputs and test the claim with them on the other half."""
    check_failure_probability(failure_probability, attack)
    stream = stream_or_fresh(stream)
    a, b = trial.collect(trial.a, stream), trial.collect(trial.b, stream)
    # Events are chosen and tested on different outputs: on the same ones the bounds would not hold.
    half = trial.n // 2
    proposed = [family(a[:half], b[:half]) for family in families]
    candidates = [event for events in proposed for event in events]
    if not candidates:
        raise ParameterError(f"events of {attack} must propose at least one event, and proposed none.")
    finalists = _choose(trial.claim, proposed, a[:half], b[:half])
    tested = trial.n - half
    counts = list(zip(count_hits(finalists, a[half:]), count_hits(finalists, b[half:]), strict=True))
    # The events were fixed on other outputs, so only their number costs failure probability.
    evidence = [
        strongest_evidence(
            trial.claim, int(k_a), tested, int(k_b), tested, failure_probability / len(finalists)
        )
        for k_a, k_b in counts
    ]
    worst = best_evidence(evidence)
    best, event = evidence[worst], finalists[worst]
    broken = best.excess > 0
    k_a, k_b = (int(k) for k in counts[worst])
    counted = f"the event {event.name!r} came up {k_a} and {k_b} times in {tested} runs on either input"
    return AuditResult(
        attack=attack,
        claim=trial.claim,
        verdict="broken" if broken else "holds",
        reason=f"No {trial.name} with this promise behaves so: {counted}."
        if broken
        else f"The strongest of {len(candidates)} events shows no more than the promise allows: {counted}.",
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
    """Return the events to test: the best of each family, then the best of the rest."""
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
    """Return for each candidate event how strongly its training counts contradict the claim.

    Notes
    -----
    With ``p, q`` the estimated probabilities, ``z = (p - exp(epsilon) q - delta) / se``. The score is ``z``
    where ``z > 3``; otherwise the share of the claim's epsilon that the event seems to prove, at most 1, so
    that a claim that holds is tested by the events that strain it most.
    """
    grid = [claim.epsilon] if isinstance(claim, PureDP | ApproxDP) else [i / 4 for i in range(1, 48)]
    points = [(epsilon, claim.delta_at(epsilon)) for epsilon in grid]
    if len(points) > 1:
        points.append((usual_epsilon(claim), USUAL_DELTA))
    # Half an observation is added, so that a count of zero does not have a standard error of zero.
    p, q = ((hits + 0.5) / (n + 1) for hits in (hits_a, hits_b))
    best = np.zeros(len(hits_a))
    for epsilon, delta in points:
        # Beyond 700 the exponential overflows, and no event proves so large an epsilon.
        growth = math.exp(min(epsilon, 700.0))
        # A set and its complement, in both directions: the promise bounds all four.
        for left, right in ((p, q), (q, p), (1 - p, 1 - q), (1 - q, 1 - p)):
            spread_left, spread_right = (np.sqrt(x * (1 - x) / n) for x in (left, right))
            error = np.hypot(spread_left, growth * spread_right)
            above = (left - growth * right - delta) / error
            # Five standard errors off either probability, so that rare events are not overrated.
            sure = np.maximum(left - 5 * spread_left - delta, 0) / (right + 5 * spread_right)
            share = np.log(np.maximum(sure, 1.0)) / epsilon
            best = np.maximum(best, np.where(above > _CLEARLY, above, np.minimum(share, 1)))
    return best
