"""Is somebody in the table? Tried on a fresh draw of half of the people, so that both answers are known."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import logsumexp

from discreet.audit.guess import FAILURE, Exposed, share_interval
from discreet.audit.linkage import log_likelihoods, published_scores
from discreet.errors import DataError, DiscreetWarning
from discreet.release.invariant.plan import InvariantPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._typing import AnyArray, Bools, Floats
    from discreet.audit.targets import Target
    from discreet.noise import Stream
    from discreet.release import Plan

MOST_PEOPLE = 1_500
"""People in each of three groups: in the table, not in it, and known to the attacker."""
_CELLS = 100_000_000
_BLOCK = 128
_FEWEST = 24


def membership(
    plan: Plan, targets: Sequence[Target], rows: Mapping[str, AnyArray], stream: Stream
) -> Exposed | None:
    """Publish a third of the people anew and tell them from another third.

    A person's statistics are how much likelier the published rows are with that person among them than
    without (the mean over rows of their likelihood, relative to that under the population, which the
    attacker knows from the last third), and how likely the nearest row is. The better of the two and its
    threshold are chosen on half of the people; the other half is what is counted.

    Parameters
    ----------
    plan : Plan
        Of the release; what it publishes of the third is drawn here and shown to nobody.
    targets : sequence of Target
        The columns that the attacker knows, with laws of their own.
    rows : mapping of str to array
        True columns, in random order.
    stream : Stream
        Where the noise of the fresh draw comes from.

    Returns
    -------
    Exposed or None
        None where there are too few people or columns.
    """
    n = len(next(iter(rows.values())))
    most = MOST_PEOPLE if not targets else int((_CELLS / (3 * len(targets))) ** 0.5)
    each = min(n // 3, MOST_PEOPLE, most)
    if each < _FEWEST or not targets:
        return None
    inside, outside, others = ({k: v[i * each : (i + 1) * each] for k, v in rows.items()} for i in range(3))
    published = plan.noise(inside, stream)
    # What a row is worth under the population: the same for everybody, so it cancels nobody out.
    usual = _mean_likelihood(_blocks(targets, others, published), axis=0)
    scores = [_statistics(targets, people, published, usual) for people in (inside, outside)]
    hits = max((_told_apart(a, b) for a, b in zip(*scores, strict=True)), key=lambda pair: pair[0])[1]
    return _exposed(hits, each, f"a person's true cells in {len(targets)} columns, and the published laws")


def score_membership(plan: InvariantPlan, rows: Mapping[str, AnyArray], stream: Stream) -> Exposed | None:
    """Do the same for an invariant release, by whether a person's score is among the published ones."""
    n = len(next(iter(rows.values())))
    each = min(n // 2, MOST_PEOPLE)
    if each < _FEWEST:
        return None
    inside, outside = ({k: v[i * each : (i + 1) * each] for k, v in rows.items()} for i in range(2))
    # A plan of its own, so that what the curator is told about the real release stays as it is.
    again = InvariantPlan(
        schema=plan.schema,
        learner=plan.learner,
        variance=plan.variance,
        scales=plan.scales,
        outward=plan.outward,
        precision=plan.precision,
        label="",
        report=lambda _: None,
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DiscreetWarning)
            published = again.draw(inside, stream)
    except DataError:
        return None
    distances = []
    for people in (inside, outside):
        scores = published_scores(again, people, published)
        if scores is None:
            return None
        distances.append(-np.log(cKDTree(scores[1]).query(scores[0])[0] + 1e-300))
    _, hits = _told_apart(*distances)
    knowledge = "a person's true record, the published file, and which learner it was made for"
    return _exposed(hits, each, knowledge)


def _blocks(
    targets: Sequence[Target], people: Mapping[str, AnyArray], published: Mapping[str, AnyArray]
) -> Floats:
    n = len(next(iter(people.values())))
    parts = [
        log_likelihoods(targets, {k: v[i : i + _BLOCK] for k, v in people.items()}, published)
        for i in range(0, n, _BLOCK)
    ]
    return np.concatenate(parts)


def _mean_likelihood(logs: Floats, axis: int) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(logsumexp(logs, axis=axis) - np.log(logs.shape[axis]))


def _statistics(
    targets: Sequence[Target],
    people: Mapping[str, AnyArray],
    published: Mapping[str, AnyArray],
    usual: Floats,
) -> tuple[Floats, Floats]:
    logs = _blocks(targets, people, published)
    # A row that the population cannot explain at all belongs to whoever can.
    relative = logs - np.where(np.isfinite(usual), usual, -700.0)
    return _mean_likelihood(relative, axis=1), logs.max(axis=1)


def _told_apart(inside: Floats, outside: Floats) -> tuple[float, Bools]:
    """Choose a threshold on every second person; return its gain and who of the others is told rightly."""
    inside, outside = (np.nan_to_num(x, nan=0.0, posinf=1e300, neginf=-1e300) for x in (inside, outside))
    learn_in, learn_out = inside[::2], outside[::2]
    cuts = np.unique(np.concatenate([learn_in, learn_out]))
    # The share of either group at or above each cut.
    above_in, above_out = (
        1 - np.searchsorted(np.sort(x), cuts, side="left") / x.size for x in (learn_in, learn_out)
    )
    gain = above_in - above_out
    best = int(np.argmax(gain))
    # Between two of the values seen, so that the next person is on the right side of it.
    cut = cuts[best] if best == 0 else cuts[best] / 2 + cuts[best - 1] / 2
    hits = np.concatenate([inside[1::2] >= cut, outside[1::2] < cut])
    return float(gain[best]), hits


def _exposed(hits: Bools, each: int, knowledge: str) -> Exposed:
    success, lower, upper = share_interval(hits, FAILURE)
    return Exposed(
        attack="membership",
        success=success,
        lower=lower,
        upper=upper,
        chance=0.5,
        n=len(hits),
        failure_probability=FAILURE,
        knowledge=f"{knowledge}; and how the population is distributed",
        sentence=f"On a fresh draw of {each:,} people, whoever knows a person's true record and the "
        f"population says rightly in {success:.1%} of cases whether that person is in the table; by chance, "
        "in 50 %.",
    )
