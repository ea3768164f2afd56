"""Attacks on synthetic and masked tables that compare people whose rows they were made of with others.

A table is made anew from a random half of some people, under the same promise, and attacked: the other half
is the holdout, so nothing is taken away from the release. What counts is how much better an attack does on
the people in the table. How well it does on both is what the table says about people of their kind, which is
what it is for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from scipy import special

from discreet.audit._guess import FAILURE, AttackRecord, max_roc_area
from discreet.audit._shadow_tables import MaskedShadow, ShadowTable
from discreet.audit.risk import promise_of_exchange
from discreet.audit.targets import UnitRows
from discreet.errors import DiscreetError, ParameterError
from discreet.formatting import percent
from discreet.noise import permutation
from discreet.noise.stream import Stream, stream_or_fresh
from discreet.query.dummy import rows_from_schema
from discreet.ranks import rank_values
from discreet.release.keystream import sampling_stream
from discreet.release.kinds import is_masked
from discreet.release.synthetic.plan import LEAST_ROWS
from discreet.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray, Bools, Floats, Ints
    from discreet.release.masked.method import MaskedRelease
    from discreet.release.synthetic import SyntheticRelease

Group: TypeAlias = Literal["made-up", "rows"]
MOST_PEOPLE = 2_000
"""Largest number of people in the table, and of others, that are attacked."""
_MOST_COMPARED = 1_000_000_000
"""Largest number of cells of people and published rows that are compared."""
_MOST_DRAWN = 20_000
"""Largest number of people that are made up for an attack on a published table."""
_LEARNED = (
    "shadow models",
    "An attacker who has learned on tables of other people how those in a table differ tells a person in the "
    "table from another in {} of pairs.",
)
_KNOWLEDGE = "all cells of a person, everything that is published, and other people of the same kind"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberComparison(AttackRecord):
    """How much better an attack on a synthetic or masked table does on people in it than on others.

    Attributes
    ----------
    attack : str
        Name of the attack, in a few words.
    value : float
        Area under the ROC curve, or mean of the people in the table less that of the others.
    lower, upper : float
        Confidence interval of `value`, over people like these.
    chance : float
        Value that an attack without the table reaches: 1/2 for an area, 0 for a difference.
    bound : float
        Largest value that the promise allows, on average over releases and over who is in the table.
    members, others : float or None
        Mean of people in the table and of others; None for an area.
    n : int
        Number of people in each of the two groups.
    rows : int
        Number of rows of which the attacked table was made.
    failure_probability : float
        Chance that the value lies outside the interval.
    on : {"made-up", "rows"}
        People that were attacked: drawn from published rows or from the schema, or real.
    knowledge : str
        Knowledge that the attacker is assumed to have.
    sentence : str
        The result in plain words, for the report.

    Privacy
    -------
    On "made-up" everything follows from the published file. On "rows" every number depends on real rows:
    internal.

    Reference
    ---------
    DeLong, DeLong and Clarke-Pearson (1988), for the interval of an area; the normal approximation for
    differences.
    """

    kind: ClassVar[str] = "member-comparison"

    attack: str
    value: float
    lower: float
    upper: float
    chance: float
    bound: float
    members: float | None
    others: float | None
    n: int
    rows: int
    failure_probability: float
    on: Group
    knowledge: str
    sentence: str

    def __post_init__(self) -> None:
        self._check("on", get_args(Group))

    @property
    def exceeds_bound(self) -> bool:
        """Whether even the lower end of the interval is above what the promise allows."""
        return self.lower > self.bound

    def __str__(self) -> str:
        return f"{self.attack}: {self.sentence}"


@one_thread()
def attack_members(
    method: SyntheticRelease | MaskedRelease,
    rows: Mapping[str, AnyArray],
    *,
    on: Group,
    ids: AnyArray | None = None,
    stream: Stream | None = None,
) -> tuple[MemberComparison, ...]:
    """Make tables of halves of some people anew, and compare these people with the others.

    *shadow models*: a table of one half teaches the attacker how people in a table differ from others, and a
    table of the other half is attacked.

    Synthetic tables: *nearest row*: in how many columns the published row that is most alike differs.
    *likelihood*: how far the noisy counts of a person's cells exceed what is expected from other people, whom
    the attacker knows. *exact match*: whether a published row has all cells of the person. *distance*: the
    share of columns in which the row that is most alike agrees. *guessed cells*: each cell guessed by the
    published row that is most alike in all other columns.

    Masked tables: *margin*: how well the published classifier fits the person. *influence*: how far it is
    shifted towards the person, away from a classifier of other people. *nearest point*: how near the nearest
    published point is.

    Parameters
    ----------
    method : SyntheticRelease or MaskedRelease
        Method with the parameters of the release; neither it nor its ledger is changed.
    rows : mapping of str to array
        Released columns of people, encoded. At most a third of either half, and 2,000 people, are attacked.
    on : {"made-up", "rows"}
        Whether the people are made up from what is public, or real.
    ids : array, optional
        Id of the person of each row: a person is attacked by all rows together. None: every row is another
        person's.
    stream : Stream, optional
        Source of the halves and of the noise; a fresh one by default.

    Returns
    -------
    tuple of MemberComparison
        The results in the order above; none where there are too few people to make a table of, or where some
        of them are published as they are.

    Privacy
    -------
    On real rows internal: nothing that is made here may be published. No row of the release is held back for
    it.

    Reference
    ---------
    Shokri, Stronati, Song and Shmatikov (2017), for shadow models; Yeom, Giacomelli, Fredrikson and Jha
    (2018), for the fit of a model.
    """
    masked = is_masked(method)
    units = UnitRows.from_ids(ids, len(next(iter(rows.values()), ())))
    half = len(units) // 2
    # The attacker's own table leaves out everybody who is attacked, and must still have enough rows.
    if len(units.places) // 2 < 2 * LEAST_ROWS or half < LEAST_ROWS:
        return ()
    # Whose rows are published as they are needs no attack to be found.
    if is_masked(method) and _publishes_rows(method):
        return ()
    stream = stream_or_fresh(stream)
    # People are divided, not rows: somebody in both halves would be member and stranger at once.
    order = permutation(2 * half, stream.derive("halves"))
    # All rows of a person are compared with all rows: the work grows by the square of their number.
    n = _people(half, len(rows) * max(1, len(units.places) // len(units)) ** 2)
    first, second = order[:half], order[half:]
    seeds = stream.derive("noise").words(2) >> np.uint64(33)
    shadow: Any = MaskedShadow if masked else ShadowTable
    make = partial(shadow.from_members, method, rows, units)
    try:
        # Nobody who is attacked takes part in what the attacker learns from.
        taught = make(first[n:], second[n:], n, int(seeds[0]))
        attacked = make(second, first, n, int(seeds[1]))
    except DiscreetError:
        return ()
    # The attacker learns on one table and is measured on another: nothing is fitted to the people attacked.
    direction = _learn_direction(*taught.features())
    features = attacked.features()
    compare = _Comparisons(attacked, on)
    # Column by column: a product of matrices depends on the machine in its last digits.
    learned = [sum(group[:, j] * weight for j, weight in enumerate(direction)) for group in features]
    scores = [learned, *([group[:, j] for group in features] for j in range(len(direction)))]
    return (
        *(
            compare.area(attack, text, members, others)
            for (attack, text), (members, others) in zip((_LEARNED, *attacked.areas), scores, strict=True)
        ),
        *(() if masked else compare.differences()),
    )


def attack_published(method: SyntheticRelease | MaskedRelease, n_rows: int) -> tuple[MemberComparison, ...]:
    """Attack made-up people in tables made anew. Anybody gets the same results.

    Parameters
    ----------
    method : SyntheticRelease or MaskedRelease
        A synthetic method after the release, or after it was repeated from ``tables.json``: people are drawn
        from its noisy answers. Or a masked method with its schema, from which people are drawn.
    n_rows : int
        Number of published rows of a synthetic release, and of rows of the table of a masked one; twice as
        many people are drawn, at most 20,000.

    Returns
    -------
    tuple of MemberComparison
        As of :func:`attack_members`.

    Privacy
    -------
    May be published: everything follows from the schema, or from published answers and their seed, the noise
    of the new tables included.

    Reference
    ---------
    As :func:`attack_members`.
    """
    if is_masked(method):
        assert method.schema is not None
        stream = sampling_stream("attacks", method.schema.digest)
        people = rows_from_schema(method.schema, min(2 * n_rows, _MOST_DRAWN), stream.derive("people"))
    else:
        # Rows of public columns are kept, and no more can be made than there are.
        size = None if method.plan_.public else min(2 * n_rows, _MOST_DRAWN)
        people = {name: values[:_MOST_DRAWN] for name, values in method.generate(size, seed=1).items()}
        stream = sampling_stream("attacks", method.sampling_seed_)
    each = (method.schema.max_rows_per_unit or 1) if method.schema is not None else 1
    # All rows of a person stand together, as many as the promise covers.
    ids = np.arange(len(next(iter(people.values())))) // each
    return attack_members(method, people, on="made-up", ids=ids, stream=stream)


def _publishes_rows(method: MaskedRelease) -> bool:
    """Return whether true labels, rows of other classes or given records stand beside the points."""
    return method.labels == "true" or method.sensitive is not None or method.initial is not None


def _people(n_rows: int, columns: int) -> int:
    """Return how many people of each group are attacked: fewer where rows are many or wide."""
    # Twice, because members and others are both compared with every row.
    most = _MOST_COMPARED // (2 * n_rows * columns)
    return max(LEAST_ROWS // 2, min(n_rows // 3, MOST_PEOPLE, most))


def _learn_direction(members: Floats, others: Floats) -> Floats:
    """Return the weights of features by Fisher's discriminant, from people of whom the attacker knows."""
    within = (np.cov(members, rowvar=False) + np.cov(others, rowvar=False)) / 2
    # Features that never vary within a group would make the matrix singular.
    ridge = np.diag(1e-9 * np.diagonal(within) + 1e-300)
    weights: Floats = np.linalg.solve(within + ridge, members.mean(axis=0) - others.mean(axis=0))
    return weights


class _Comparisons:
    """Comparisons of people in an attacked table with others."""

    def __init__(self, shadow: ShadowTable | MaskedShadow, on: Group) -> None:
        self._shadow, self._on = shadow, on
        self._promise = promise_of_exchange(shadow.promise)

    def area(self, attack: str, sentence: str, members: Floats, others: Floats) -> MemberComparison:
        """Return how well a score tells people in the table from others."""
        found = roc_area(members, others)
        bound = 1.0 if self._promise is None else max_roc_area(self._promise)
        return self._result(attack, found, 0.5, bound, None, len(members), sentence.format(percent(found[0])))

    def differences(self) -> list[MemberComparison]:
        """Return the differences in exact matches, distances and guessed cells."""
        assert isinstance(self._shadow, ShadowTable)
        (near_in, right_in), (near_out, right_out) = self._shadow.nearest
        width = max(self._shadow.width, 1)  # 0 where noise leaves one cell to every column
        return [
            self._difference(
                "exact match", near_in == 0, near_out == 0, 1, "{} of people in the table have a published "
                "row with all their cells, and {} of others.",
            ),
            self._difference(
                "distance", width - near_in, width - near_out, width, "The published row that is most alike "
                "agrees in {} of the columns of people in the table, and in {} of those of others.",
            ),
            self._difference(
                "guessed cells", right_in, right_out, width, "Each cell guessed by the published row that is "
                "most alike in the other columns: right in {} of cases for people in the table, and in {} "
                "for others.",
            ),
        ]  # fmt: skip

    def _difference(
        self, attack: str, members: Ints | Bools, others: Ints | Bools, most: int, sentence: str
    ) -> MemberComparison:
        """Return the difference of the means of two groups, as shares of `most`, with its interval."""
        n = len(members)
        # Sums of whole numbers are the same on every machine.
        totals = [int(np.sum(group)) for group in (members, others)]
        squares = [int(np.sum(np.square(group, dtype=np.int64))) for group in (members, others)]
        means = totals[0] / (n * most), totals[1] / (n * most)
        variance = sum(square * n - total * total for square, total in zip(squares, totals, strict=True))
        reach = -float(special.ndtri(FAILURE / 2)) * math.sqrt(variance / n) / (n * most)
        value = (totals[0] - totals[1]) / (n * most)
        # A mean of numbers from 0 to 1 differs between neighbors by no more than the total variation.
        bound = 1.0 if self._promise is None else self._promise.delta_at(0.0)
        text = sentence.format(percent(means[0]), percent(means[1]))
        return self._result(attack, (value, value - reach, value + reach), 0.0, bound, means, n, text)

    def _result(
        self,
        attack: str,
        found: tuple[float, float, float],
        chance: float,
        bound: float,
        means: tuple[float, float] | None,
        n: int,
        sentence: str,
    ) -> MemberComparison:
        """Return a result with all that is the same for every attack."""
        value, lower, upper = found
        members, others = means or (None, None)
        return MemberComparison(
            attack=attack, value=value, lower=lower, upper=upper, chance=chance, bound=bound,
            members=members, others=others, n=n, rows=self._shadow.n_rows, failure_probability=FAILURE,
            on=self._on, knowledge=_KNOWLEDGE, sentence=sentence,
        )  # fmt: skip


def roc_area(members: Floats, others: Floats) -> tuple[float, float, float]:
    """Return the area under the ROC curve of a score, and its confidence interval.

    Parameters
    ----------
    members, others : array
        Scores of people in the table, which should be higher, and of others.

    Reference
    ---------
    DeLong, DeLong and Clarke-Pearson (1988).
    """
    if not (len(members) and len(others)):
        raise ParameterError("members and others of roc_area must each have at least one score.")
    ranks = rank_values(np.concatenate([members, others]))
    # Rank among all less rank among their own: the number of the other group below, ties counted half.
    above = (ranks[: len(members)] - rank_values(members)) / len(others)
    below = 1 - (ranks[len(members) :] - rank_values(others)) / len(members)
    area = float(above.mean())
    spread = math.sqrt(above.var() / len(members) + below.var() / len(others))
    reach = -float(special.ndtri(FAILURE / 2)) * spread
    return area, max(0.0, area - reach), min(1.0, area + reach)
