"""Which published row is somebody's? Asked by somebody who knows that person's true record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial import cKDTree

from discreet.audit.channel import cell_log_likelihood
from discreet.audit.guess import FAILURE, Exposed, share_interval
from discreet.errors import DataError
from discreet.release.invariant.encoding import matrix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._typing import AnyArray, Floats
    from discreet.audit.targets import Target
    from discreet.release.invariant.plan import InvariantPlan

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
) -> Exposed | None:
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
    return Exposed(
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
) -> Exposed | None:
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
    return Exposed(
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
