"""Who is recognized, and who is known to be in the table: attacks on people rather than on cells.

Which published row is somebody's? Asked by somebody who knows that person's true record.

Is somebody in the table? Tried on a fresh draw of half of the people, so that both answers are known.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import logsumexp

from discreet.audit._guess import FAILURE, Reidentification, share_interval
from discreet.audit._real_rows import check_aligned
from discreet.audit.channel import MOST_ROWS, cell_log_likelihood, targets_of
from discreet.errors import DataError, DiscreetWarning
from discreet.noise import permutation
from discreet.noise.stream import Stream, stream_or_fresh
from discreet.release.invariant.plan import InvariantPlan, matrix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Bools, Floats
    from discreet.audit.channel import Target
    from discreet.release import ReleasePlan

_COMPARISONS = 100_000_000
"""Cells compared by one attack, at most."""
_BLOCK = 64
_TIED = 1e-9


def log_likelihoods(
    targets: Sequence[Target], people: Mapping[str, AnyArray], published: Mapping[str, AnyArray]
) -> Floats:
    """Return how likely each published row (columns) is for each person (rows), all columns together."""
    total: Floats | float = 0.0
    for target in targets:
        assert target.channel is not None
        total = total + cell_log_likelihood(
            target.channel,
            target.column,
            target.missing_keep,
            published[target.name][None, :],
            people[target.name][:, None],
        )
    return np.asarray(total)


def linkage(
    targets: Sequence[Target],
    rows: Mapping[str, AnyArray],
    published: Mapping[str, AnyArray],
    *,
    with_public: bool,
) -> Reidentification | None:
    """Look for the published row that is likeliest for a person whose true record is known.

    Parameters
    ----------
    targets : sequence of Target
        The columns that the attacker knows of the person.
    rows, published : mapping of str to array
        True and published columns, row by row, in random order: of equally likely rows the first
        is taken.
    with_public : bool
        For the words: whether columns that are published as they are belong to them.

    Returns
    -------
    Exposed or None
        None where no column has a law of its own.
    """
    n = len(next(iter(rows.values())))
    if n < 2 or not targets:
        return None
    # A table of many columns is searched in part: for fewer people, among fewer rows.
    among = min(n, max(1_000, _COMPARISONS // (100 * len(targets))))
    asked = min(among, max(50, _COMPARISONS // (among * len(targets))))
    found = np.empty(asked, np.int64)
    seen = {t.name: published[t.name][:among] for t in targets}
    for start in range(0, asked, _BLOCK):
        people = {t.name: rows[t.name][start : min(start + _BLOCK, asked)] for t in targets}
        found[start : start + _BLOCK] = np.argmax(log_likelihoods(targets, people, seen), axis=1)
    success, lower, upper = share_interval(found == np.arange(asked), FAILURE)
    known = f"a person's true cells in {_columns(len(targets))}" + (
        ", public ones among them" if with_public else ""
    )
    return Reidentification(
        attack="linkage",
        success=success,
        lower=lower,
        upper=upper,
        chance=1 / among,
        n=asked,
        failure_probability=FAILURE,
        knowledge=f"{known}, and the published laws",
        sentence=f"Somebody who knows {known} finds that person's row among {among:,} in {_percent(success)} "
        f"of cases; by chance, in {_percent(1 / among)}.",
    )


def score_linkage(
    plan: InvariantPlan, rows: Mapping[str, AnyArray], published: Mapping[str, AnyArray]
) -> Reidentification | None:
    """Recognize people by their score, which an invariant release publishes exactly.

    The model is trained on the published rows with the learner that the release names; then a person's score
    is computed from the true record and looked for among the scores of the published rows.

    Parameters
    ----------
    plan : InvariantPlan
        Of the release.
    rows, published : mapping of str to array
        True and published columns, row by row, of the *whole* table: a model trained on a part of it is
        another.

    Returns
    -------
    Exposed or None
        None where no scores are kept, or the model cannot be trained.
    """
    scores = published_scores(plan, rows, published)
    if scores is None:
        return None
    true, shown = scores
    # The second nearest too: rows that share a score, as on a margin, are not told apart by rounding errors.
    distance, place = cKDTree(shown).query(true, k=2)
    apart = distance[:, 1] - distance[:, 0] > _TIED * float(np.abs(shown).max())
    hits = (place[:, 0] == np.arange(len(true))) & apart
    success, lower, upper = share_interval(hits, FAILURE)
    return Reidentification(
        attack="invariants",
        success=success,
        lower=lower,
        upper=upper,
        chance=1 / len(true),
        n=len(true),
        failure_probability=FAILURE,
        knowledge="a person's true record, the published file, and which learner it was made for",
        sentence="Whoever trains the named model on the published file and knows a person's true record "
        f"finds that person's row by its score in {_percent(success)} of cases among {len(true):,}; by "
        f"chance, in {_percent(1 / len(true))}.",
    )


def published_scores(
    plan: InvariantPlan, people: Mapping[str, AnyArray], published: Mapping[str, AnyArray]
) -> tuple[Floats, Floats] | None:
    """Train the named model on a published table; return the scores of some people and of its rows."""
    if plan.learner is None or len(next(iter(published.values()))) < 2:
        return None
    assert plan.schema.target is not None
    column = plan.schema.column(plan.schema.target)
    labels = published[column.name]
    features = matrix(published, plan.schema)
    if plan.learner.wants == "number" and column.is_category:
        labels = np.array(column.levels, np.float64)[labels]
    try:
        solution = plan.learner.solve(
            features, labels, 0 if plan.learner.wants == "number" else len(column.levels)
        )
    except DataError:
        return None
    return matrix(people, plan.schema) @ solution.weights, features @ solution.weights


def _columns(n: int) -> str:
    return "one column" if n == 1 else f"{n} columns"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 or share == 0 else f"{100 * share:.2g}%"


MOST_PEOPLE = 1_500
"""People in each of three groups: in the table, not in it, and known to the attacker."""
_CELLS = 100_000_000
_MEMBERSHIP_BLOCK = 128
_FEWEST = 24


def membership(
    plan: ReleasePlan, targets: Sequence[Target], rows: Mapping[str, AnyArray], stream: Stream
) -> Reidentification | None:
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


def score_membership(
    plan: InvariantPlan, rows: Mapping[str, AnyArray], stream: Stream
) -> Reidentification | None:
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
        log_likelihoods(targets, {k: v[i : i + _MEMBERSHIP_BLOCK] for k, v in people.items()}, published)
        for i in range(0, n, _MEMBERSHIP_BLOCK)
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


def _exposed(hits: Bools, each: int, knowledge: str) -> Reidentification:
    success, lower, upper = share_interval(hits, FAILURE)
    return Reidentification(
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


def attack_records(
    plan: ReleasePlan,
    rows: Mapping[str, AnyArray],
    published: Mapping[str, AnyArray],
    *,
    stream: Stream | None = None,
) -> tuple[Reidentification, ...]:
    """Link people to their published rows, and tell who is in the table.

    *linkage*: the published row that is likeliest for a known true record; a second time with the
    public columns, where there are any. *invariants*: for an invariant release, the row with the
    person's exact score. *membership*: on a fresh draw of a part of the people.

    Parameters
    ----------
    plan : Plan
        Of the release.
    rows, published : mapping of str to array
        True and published columns, encoded, row by row; of more than 20,000 rows, so many are drawn. For an
        invariant release give the whole table: a model trained on a part of it is another.
    stream : Stream, optional
        Decides who is attacked, and draws the fresh noise.

    Returns
    -------
    tuple of Exposed

    Privacy
    -------
    Internal: every number depends on private rows. Error floors promise nothing about linkage or
    membership; differential privacy bounds membership.

    Reference
    ---------
    For exact scores, docs/explanation/theorems/fisher-invariant.md.
    """
    if not plan.row_level:
        return ()
    n = check_aligned(plan, rows, published, "attack_records")
    if n < 2:
        return ()
    stream = stream_or_fresh(stream)
    # In random order, because of equally likely rows the first is taken.
    order = permutation(n, stream.derive("order of the attacked"))
    if not isinstance(plan, InvariantPlan):
        order = order[:MOST_ROWS]
    names = [summary.column for summary in plan.columns]
    people = {name: rows[name][order] for name in names}
    shown = {name: published[name][order] for name in names}
    fresh = stream.derive("a fresh draw")
    found: list[Reidentification | None]
    if isinstance(plan, InvariantPlan):
        found = [score_linkage(plan, people, shown), score_membership(plan, people, fresh)]
        return tuple(x for x in found if x is not None)
    known = [t for t in targets_of(plan) if t.channel is not None]
    protected = [t for t in known if not t.is_clear]
    found = [linkage(protected, people, shown, with_public=False)]
    if len(protected) < len(known):
        found.append(linkage(known, people, shown, with_public=True))
    found.append(membership(plan, protected, people, fresh))
    return tuple(x for x in found if x is not None)
