"""Attacks on people rather than on cells: linkage and membership; internal.

Linkage: which published row belongs to a person whose true record the attacker knows. Membership: whether a
person is in the table, tried on a fresh draw of a part of the people, for whom the truth is known.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import scipy

from discreet.audit._guess import FAILURE, Reidentification, share_interval
from discreet.audit._mixture import log_sum_exp
from discreet.audit._real_rows import check_aligned
from discreet.audit.channel import cell_log_likelihood
from discreet.audit.targets import MOST_ROWS, UnitRows, plan_targets
from discreet.errors import DataError, DiscreetWarning
from discreet.noise import permutation
from discreet.noise.stream import Stream, stream_or_fresh
from discreet.release.kinds import is_invariant_plan
from discreet.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Bools, Floats, Ints
    from discreet.audit.targets import Target
    from discreet.release import ReleasePlan
    from discreet.release.invariant.plan import InvariantPlan

_COMPARISONS = 100_000_000
"""Largest number of cells that one attack compares."""
_BLOCK = 64
_TIED = 1e-9
"""Difference of two distances, relative to the largest score, below which they count as equal."""
MOST_PEOPLE = 1_500
"""Largest size of each of three groups: in the table, not in it, and known to the attacker."""
_CELLS = 100_000_000
_MEMBERSHIP_BLOCK = 128
_FEWEST = 24


@one_thread()
def attack_records(
    plan: ReleasePlan,
    rows: Mapping[str, AnyArray],
    published: Mapping[str, AnyArray],
    *,
    ids: AnyArray | None = None,
    stream: Stream | None = None,
) -> tuple[Reidentification, ...]:
    """Link people to their published rows, and decide who is in the table.

    *linkage*: the published row that is likeliest for a known true record; a second time with the
    public columns, where there are any. *invariants*: for an invariant release, the row with the
    person's exact score. *membership*: on a fresh draw of a part of the people.

    Parameters
    ----------
    plan : ReleasePlan
        Plan of the release, with the laws of its columns.
    rows, published : mapping of str to array
        True and published columns, encoded, row by row; at most 20,000 random rows are used. For an
        invariant release give the whole table: a model trained on a part of it is another.
    ids : array, optional
        Id of the person of each row: whoever has several is attacked by all of them together. None: every
        row is another person's.
    stream : Stream, optional
        Source of the choice of rows and of the fresh noise; a fresh one by default.

    Returns
    -------
    tuple of Reidentification
        Results of the attacks that apply, in the order above.

    Privacy
    -------
    Internal: every number depends on private rows. Error floors promise nothing about linkage or
    membership; differential privacy bounds membership.

    Reference
    ---------
    For exact scores, docs/explanation/theorems/fisher-invariant.md.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import Column, ErrorFloor, GaussianRelease, Schema
    >>> from discreet.noise import Stream
    >>> schema = Schema(columns=[Column("age", lower=17, upper=90)])
    >>> plan = GaussianRelease(privacy=ErrorFloor(age=14), schema=schema).plan(schema, 1000)
    >>> rows = {"age": np.tile([20.0, 35.0, 50.0, 65.0], 250)}
    >>> published = plan.draw(rows, Stream.from_seed(1))
    >>> [result.attack for result in attack_records(plan, rows, published, stream=Stream.from_seed(2))]
    ['linkage', 'membership']
    """
    if not plan.row_level:
        return ()
    n = check_aligned(plan, rows, published, "attack_records")
    if n < 2:
        return ()
    stream = stream_or_fresh(stream)
    units = UnitRows.from_ids(None if is_invariant_plan(plan) else ids, n)
    # Random order, because linkage takes the first of equally likely rows.
    units = units.take(permutation(len(units), stream.derive("order of the attacked")))
    order = units.places
    if not is_invariant_plan(plan):
        order = order[:MOST_ROWS]
    owners = units.owners[: len(order)]
    names = [summary.column for summary in plan.columns]
    people = {name: rows[name][order] for name in names}
    shown = {name: published[name][order] for name in names}
    fresh = stream.derive("a fresh draw")
    results: list[Reidentification | None]
    if is_invariant_plan(plan):
        results = [score_linkage(plan, people, shown), score_membership(plan, people, fresh)]
        return tuple(x for x in results if x is not None)
    known = [t for t in plan_targets(plan) if t.channel is not None]
    protected = [t for t in known if not t.is_clear]
    results = [linkage(protected, people, shown, owners, with_public=False)]
    if len(protected) < len(known):
        results.append(linkage(known, people, shown, owners, with_public=True))
    results.append(membership(plan, protected, people, owners, fresh))
    return tuple(x for x in results if x is not None)


def log_likelihoods(
    targets: Sequence[Target], people: Mapping[str, AnyArray], published: Mapping[str, AnyArray]
) -> Floats:
    """Return the log likelihood of each published row for each person, of shape (people, published).

    Parameters
    ----------
    targets : sequence of Target
        Columns that the attacker knows, each with a channel.
    people, published : mapping of str to array
        True cells of the people, and published cells of the rows.
    """
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
    owners: Ints,
    *,
    with_public: bool,
) -> Reidentification | None:
    """Link each person to the published row that is likeliest for the person's true rows.

    Parameters
    ----------
    targets : sequence of Target
        Columns that the attacker knows of the person.
    rows, published : mapping of str to array
        True and published columns, row by row, in random order: of equally likely rows the first
        is taken.
    owners : array of int
        Number of the person that each row belongs to, from 0 on; those of one person stand together.
    with_public : bool
        Whether the known columns include public ones, for the text of the result.

    Returns
    -------
    Reidentification or None
        None with fewer than two rows, or where no column has a law of its own.
    """
    n = len(next(iter(rows.values())))
    if n < 2 or not targets:
        return None
    # A table of many columns is searched in part: for fewer people, among fewer rows.
    # As many rows as leave comparisons for about a hundred people.
    among = min(n, max(1_000, _COMPARISONS // (100 * len(targets))))
    units = UnitRows.from_ids(owners[:among], among)
    each = len(units.places) / len(units)
    attacked = min(len(units), max(50, int(_COMPARISONS // (among * len(targets) * each))))
    hits = np.empty(attacked, bool)
    searched = {t.name: published[t.name][:among] for t in targets}
    for start in range(0, attacked, _BLOCK):
        block = units.take(np.arange(start, min(start + _BLOCK, attacked)))
        people = {t.name: rows[t.name][block.places] for t in targets}
        # Of several rows of a person, whichever explains a published row.
        logs = np.logaddexp.reduceat(log_likelihoods(targets, people, searched), block.starts, axis=0)
        hits[start : start + _BLOCK] = owners[np.argmax(logs, axis=1)] == np.arange(start, start + len(block))
    success, lower, upper = share_interval(hits, FAILURE)
    known = f"a person's true cells in {_columns(len(targets))}"
    known += (" of every row" if each > 1 else "") + (", public ones among them" if with_public else "")
    row = "a row of that person" if each > 1 else "that person's row"
    chance = each / among
    return Reidentification(
        attack="linkage",
        success=success,
        lower=lower,
        upper=upper,
        chance=chance,
        n=attacked,
        failure_probability=FAILURE,
        knowledge=f"{known}, and the published laws",
        sentence=f"An attacker who knows {known} finds {row} among {among:,} in "
        f"{_percent(success)} of cases; by chance, in {_percent(chance)}.",
    )


def score_linkage(
    plan: InvariantPlan, rows: Mapping[str, AnyArray], published: Mapping[str, AnyArray]
) -> Reidentification | None:
    """Link people to published rows by their model score, which an invariant release preserves exactly.

    The model is trained on the published rows with the learner that the release names. Then a person's score
    is computed from the true record and searched among the scores of the published rows.

    Parameters
    ----------
    plan : InvariantPlan
        Plan of the release, with its learner.
    rows, published : mapping of str to array
        True and published columns, row by row, of the *whole* table: a model trained on a part of it is
        another.

    Returns
    -------
    Reidentification or None
        None where no scores are kept, or the model cannot be trained.
    """
    scores = published_scores(plan, rows, published)
    if scores is None:
        return None
    true, shown = scores
    # Rows that share a score, as on a margin, must not be distinguished by rounding errors.
    distance, place = scipy.spatial.cKDTree(shown).query(true, k=2)
    # A link counts only if the nearest score is clearly nearer than the second.
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
        sentence="An attacker who trains the named model on the published file and knows a person's true "
        f"record finds that person's row by its score in {_percent(success)} of cases among "
        f"{len(true):,}; by chance, in {_percent(1 / len(true))}.",
    )


def published_scores(
    plan: InvariantPlan, people: Mapping[str, AnyArray], published: Mapping[str, AnyArray]
) -> tuple[Floats, Floats] | None:
    """Train the named model on a published table and return the scores of some people and of its rows.

    Parameters
    ----------
    plan : InvariantPlan
        Plan of the release, with its learner and schema.
    people, published : mapping of str to array
        True columns of some people, and all published columns.

    Returns
    -------
    (array, array) or None
        None without a learner, with fewer than two rows, or where training fails.
    """
    from discreet.release.invariant.plan import feature_matrix  # its plan has loaded the method

    if plan.learner is None or len(next(iter(published.values()))) < 2:
        return None
    assert plan.schema.target is not None
    column = plan.schema.column(plan.schema.target)
    labels = published[column.name]
    features = feature_matrix(published, plan.schema)
    if plan.learner.wants == "number" and column.is_category:
        labels = np.array(column.levels, np.float64)[labels]
    try:
        solution = plan.learner.solve(
            features, labels, 0 if plan.learner.wants == "number" else len(column.levels)
        )
    except DataError:
        return None
    return feature_matrix(people, plan.schema) @ solution.weights, features @ solution.weights


def _columns(n: int) -> str:
    return "one column" if n == 1 else f"{n} columns"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 or share == 0 else f"{100 * share:.2g}%"


def membership(
    plan: ReleasePlan,
    targets: Sequence[Target],
    rows: Mapping[str, AnyArray],
    owners: Ints,
    stream: Stream,
) -> Reidentification | None:
    """Publish a third of the people anew and decide for them and another third who is in the table.

    Parameters
    ----------
    plan : ReleasePlan
        Plan of the release; what it draws here is never shown to anyone.
    targets : sequence of Target
        Columns that the attacker knows, each with a law of its own.
    rows : mapping of str to array
        True columns, in random order.
    owners : array of int
        As for :func:`linkage`.
    stream : Stream
        Source of the noise of the fresh draw.

    Returns
    -------
    Reidentification or None
        None where there are too few people or columns.

    Notes
    -----
    A person's first statistic is the log mean over published rows of ``f(row | person) / f(row)``, with
    ``f(row)`` the mean likelihood over the last third, which the attacker knows; the second is the largest
    likelihood of a row. Over several rows of a person the first is added up and the largest of the second
    taken. The better of the two and its threshold are chosen on half of the people, and successes are counted
    on the other half.
    """
    units = UnitRows.from_ids(owners, len(owners))
    # Three tables of likelihoods, people by published rows, for every column.
    most = MOST_PEOPLE if not targets else int((_CELLS / (3 * len(targets))) ** 0.5)
    each = min(len(units) // 3, int(min(MOST_PEOPLE, most) * len(units) // len(owners)))
    if each < _FEWEST or not targets:
        return None
    thirds = [units.take(np.arange(i * each, (i + 1) * each)) for i in range(3)]
    inside, outside, others = ({k: v[part.places] for k, v in rows.items()} for part in thirds)
    published = plan.noise(inside, stream)
    # The likelihood of each row under the population.
    baseline = _log_mean(_blockwise_likelihoods(targets, others, published), axis=0)
    scores = []
    for part, people in zip(thirds[:2], (inside, outside), strict=True):
        mean, largest = _statistics(targets, people, published, baseline)
        scores.append((part.combine(mean, np.add), part.combine(largest, np.maximum)))
    hits = max((decide_membership(a, b) for a, b in zip(*scores, strict=True)), key=lambda pair: pair[0])[1]
    return _membership_result(
        hits, each, f"a person's true cells in {len(targets)} columns, and the published laws"
    )


def score_membership(
    plan: InvariantPlan, rows: Mapping[str, AnyArray], stream: Stream
) -> Reidentification | None:
    """Decide membership for an invariant release, by whether a person's score is among the published ones.

    Parameters
    ----------
    plan : InvariantPlan
        Plan of the release, with its learner.
    rows : mapping of str to array
        True columns, in random order.
    stream : Stream
        Source of the noise of the fresh draw.

    Returns
    -------
    Reidentification or None
        None where there are too few people, or the model cannot be trained.
    """
    n = len(next(iter(rows.values())))
    each = min(n // 2, MOST_PEOPLE)
    if each < _FEWEST:
        return None
    inside, outside = ({k: v[i * each : (i + 1) * each] for k, v in rows.items()} for i in range(2))
    again = plan.without_report()
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
        # The smaller the distance, the likelier a member. A member's is a rounding error that depends on the
        # processor: all below the resolution count as one exact match.
        resolution = _TIED * float(np.abs(scores[1]).max()) + 1e-300
        distance = scipy.spatial.cKDTree(scores[1]).query(scores[0])[0]
        distances.append(-np.log(np.maximum(distance, resolution)))
    _, hits = decide_membership(*distances)
    knowledge = "a person's true record, the published file, and which learner it was made for"
    return _membership_result(hits, each, knowledge)


def _blockwise_likelihoods(
    targets: Sequence[Target], people: Mapping[str, AnyArray], published: Mapping[str, AnyArray]
) -> Floats:
    """Return :func:`log_likelihoods` computed in blocks of people, which bounds the memory."""
    n = len(next(iter(people.values())))
    parts = [
        log_likelihoods(targets, {k: v[i : i + _MEMBERSHIP_BLOCK] for k, v in people.items()}, published)
        for i in range(0, n, _MEMBERSHIP_BLOCK)
    ]
    return np.concatenate(parts)


def _log_mean(logs: Floats, axis: int) -> Floats:
    """Return the logarithm of the mean of ``exp(logs)`` along an axis."""
    return np.asarray(log_sum_exp(logs, axis) - np.log(logs.shape[axis]))


def _statistics(
    targets: Sequence[Target],
    people: Mapping[str, AnyArray],
    published: Mapping[str, AnyArray],
    baseline: Floats,
) -> tuple[Floats, Floats]:
    """Return the two statistics of each person: mean relative likelihood and largest likelihood, in logs."""
    logs = _blockwise_likelihoods(targets, people, published)
    # A row that is impossible under the population is strong evidence for the people who explain it.
    relative = logs - np.where(np.isfinite(baseline), baseline, -700.0)
    return _log_mean(relative, axis=1), logs.max(axis=1)


def decide_membership(inside: Floats, outside: Floats) -> tuple[float, Bools]:
    """Choose a threshold on every second person and apply it to the others.

    Parameters
    ----------
    inside, outside : array of shape (n,)
        Statistic of the people in the table and of those who are not.

    Returns
    -------
    gain : float
        Difference of the two groups' shares above the threshold, in the first half of the people.
    hits : array of bool
        For each of the other people whether the decision is right.
    """
    inside, outside = (np.nan_to_num(x, nan=0.0, posinf=1e300, neginf=-1e300) for x in (inside, outside))
    learn_in, learn_out = inside[::2], outside[::2]
    cuts = np.unique(np.concatenate([learn_in, learn_out]))
    # The share of either group at or above each cut.
    above_in, above_out = (
        1 - np.searchsorted(np.sort(x), cuts, side="left") / x.size for x in (learn_in, learn_out)
    )
    gain = above_in - above_out
    best = int(np.argmax(gain))
    # Halfway to the next smaller value, so that a new value close to the cut falls on the right side.
    cut = cuts[best] if best == 0 else cuts[best] / 2 + cuts[best - 1] / 2
    hits = np.concatenate([inside[1::2] >= cut, outside[1::2] < cut])
    return float(gain[best]), hits


def _membership_result(hits: Bools, each: int, knowledge: str) -> Reidentification:
    """Return the share of right decisions about membership with its interval and sentence."""
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
        sentence=f"On a fresh draw of {each:,} people, an attacker who knows a person's true record and "
        f"the population says correctly in {success:.1%} of cases whether that person is in the "
        "table; by chance, in 50 %.",
    )
