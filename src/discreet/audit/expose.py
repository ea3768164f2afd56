"""Who is recognized, and who is known to be in the table: attacks on people rather than on cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.audit.linkage import linkage, score_linkage
from discreet.audit.membership import membership, score_membership
from discreet.audit.rows import check_aligned
from discreet.audit.targets import MOST_ROWS, targets_of
from discreet.noise import permutation
from discreet.noise.stream import Stream, stream_or_fresh
from discreet.release.invariant.plan import InvariantPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._typing import AnyArray
    from discreet.audit.guess import Exposed
    from discreet.release import Plan


def expose_rows(
    plan: Plan,
    rows: Mapping[str, AnyArray],
    published: Mapping[str, AnyArray],
    *,
    stream: Stream | None = None,
) -> tuple[Exposed, ...]:
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
    if not plan.of_people:
        return ()
    n = check_aligned(plan, rows, published, "expose_rows")
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
    found: list[Exposed | None]
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
