"""Risk of a release before it is charged: linkage, membership and attribute inference on made-up people."""

from __future__ import annotations

import contextlib
import math
import warnings
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from scipy import special

from discreet.audit._guess import FAILURE
from discreet.audit._made_up_people import LAWS, PEOPLE, Game, describe_prior
from discreet.audit._row_risk import RowScores
from discreet.audit._unit_risk import MOST_ALIKE, MOST_DIFFERENT, UnitScores
from discreet.audit.risk import LIMITS, AttackRisk, Risk, judge, promise_of_exchange, state_attack
from discreet.errors import DiscreetError, DiscreetWarning
from discreet.formatting import count_noun, percent, small_percent
from discreet.noise_law import (
    CorrelatedGaussianLaw,
    JointBoundedLaw,
    JointResponseLaw,
    SampledLaw,
    SphericalLaw,
)
from discreet.privacy import NoPromise
from discreet.release.keystream import sampling_stream
from discreet.release.kinds import is_invariant_plan, is_masked, is_synthetic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from discreet._types import Floats
    from discreet.audit._made_up_people import PublicPrior
    from discreet.audit._table_risk import TableScores
    from discreet.audit.risk import RiskAttack
    from discreet.noise_law import Law
    from discreet.release import ReleaseMethod, ReleasePlan
    from discreet.release.invariant.plan import InvariantPlan

    Scores: TypeAlias = RowScores | TableScores

_SCREENED, _STATED = 200, 3
"""People by whom columns are compared first, and columns whose cells are then guessed for all people."""
FEW = 3
"""Number of columns that an attacker with little knowledge has."""
_FACTORS = (2.0, 4.0, 8.0)
_ADVISED_ON = 200
"""Number of made-up people on whom more noise is tried."""
_SYNTHETIC = (
    "Publish a synthetic table (--method synthetic --epsilon 1 --delta 1e-6): none of its rows is a person's."
)


def measure_risk(
    method: ReleaseMethod,
    plan: ReleasePlan,
    n_rows: int | None,
    *,
    people: int = PEOPLE,
    prior: PublicPrior | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> Risk:
    """Attack made-up people in a release that is planned, and say whether it may be published.

    Parameters
    ----------
    method : ReleaseMethod
        Method with its parameters and its schema; neither it nor its ledger is changed.
    plan : ReleasePlan
        Plan of the release by this method.
    n_rows : int or None
        Number of rows of the table; None where it is not public.
    people : int
        Number of made-up people that are attacked; fewer are faster, and the intervals wider.
    prior : PublicPrior, optional
        Law of public rows that attackers may know; people are made up by it too, and the worst figure
        counts.
    progress : callable
        Called with the share that is done, from 0 to 1.

    Returns
    -------
    Risk
        Always the same for the same schema, method and number of rows.

    Privacy
    -------
    May be published: no row is read, and the made-up rows and their noise follow from public facts.

    Reference
    ---------
    ``docs/explanation/risk.md``.

    Examples
    --------
    >>> from discreet import Column, GaussianRelease, Schema
    >>> schema = Schema(columns=[Column("age", lower=0, upper=100), Column("height", lower=1, upper=2)])
    >>> method = GaussianRelease(scale=0.01, schema=schema)
    >>> measure_risk(method, method.plan(schema, 1000), 1000).verdict
    'no'
    """
    schema = method.schema
    assert schema is not None
    # Which rows are drawn from answers does not change what the answers tell.
    facts = {name: value for name, value in method.parameters().items() if name not in ("draw", "n_records")}
    stream = sampling_stream("risk", schema.digest, method.name, facts, n_rows)
    game = Game(schema, n_rows, people, stream, LAWS if prior is None else (*LAWS, prior))
    if is_synthetic(method) or is_masked(method):
        from discreet.audit._table_risk import attack_made_tables

        attacks, left_out = attack_made_tables(method, plan, game)
    elif is_invariant_plan(plan):
        attacks, left_out = _attack_invariants(plan, game)
    else:
        measured = _RowRisk(plan, game)
        attacks, left_out = measured.attacks(progress), measured.left_out
    risk = judge(attacks, left_out, gain_bound=_bound_gain(plan), people=people, row_level=plan.row_level)
    return replace(risk, advice=tuple(_advise(method, plan, game, risk)))


class _RowRisk:
    """Attacks on a release whose rows are each that of a person.

    Parameters
    ----------
    plan : ReleasePlan
        Plan of the release.
    game : Game
        Public facts of the release, with its number of rows.
    """

    def __init__(self, plan: ReleasePlan, game: Game) -> None:
        """Say what is left out; people and their rows are drawn law by law, when they are first attacked."""
        schema, n_rows = game.schema, game.n_rows
        assert n_rows is not None
        rows_each = min(schema.max_rows_per_unit or 1, n_rows)
        joint = any(_is_joint(summary.law) for summary in plan.columns)
        self._plan, self._game, self._rows_each, self._joint = plan, game, rows_each, joint
        self._drawn: dict[int, tuple[Scores, Scores | UnitScores]] = {}
        self._draw_scores: Callable[..., Scores] = RowScores.draw
        self._source = describe_prior(game)
        self._n_rows = n_rows
        if joint:
            from discreet.audit._table_risk import MOST_ROWS, TableScores

            self._n_rows = min(n_rows, MOST_ROWS)
            self._draw_scores = partial(TableScores.draw, rows_each=min(rows_each, MOST_ALIKE))
        self._bound = _bound_gain(plan)
        self.left_out: list[str] = []
        if self._n_rows < n_rows:
            self.left_out.append(
                f"Noise that columns share is attacked in a table of {self._n_rows:,} rows, not {n_rows:,}: "
                "the figures are too high rather than too low."
            )
        if rows_each > 1:
            self.left_out.append("Cells are guessed in one row of a person, not in all of them together.")
        if rows_each > MOST_DIFFERENT and not joint:
            self.left_out.append(
                f"Of the {rows_each:,} rows that a person may have, {MOST_DIFFERENT} that differ are "
                f"attacked together, or {min(rows_each, MOST_ALIKE)} that are the same."
            )

    def _draw(self, place: int) -> tuple[Scores, Scores | UnitScores]:
        """Return the rows of made-up people under a law, one by one and put together to people."""
        if place not in self._drawn:
            game, law = self._game, self._game.laws[place]
            stream = game.stream.derive(law.name)
            scores = self._draw_scores(self._plan, game.schema, law, game.n_rows, stream, game.people)
            # A table is made of people with all of their rows.
            units: Scores | UnitScores = scores
            if isinstance(scores, RowScores) and self._rows_each > 1:
                units = _join_rows(scores, self._rows_each, alike=law.alike)
            self._drawn[place] = scores, units
        return self._drawn[place]

    def attacks(self, progress: Callable[[float], None]) -> list[AttackRisk]:
        """Return the worst result of each attack over the laws of made-up people, linkage first."""
        linkage: dict[int, list[AttackRisk]] = {k: [] for k in self._sizes}
        if not linkage:
            return []
        membership: list[AttackRisk] = []
        guesses: list[AttackRisk] = []
        declared: list[AttackRisk] = []
        laws = range(len(self._game.laws))
        for place in laws:
            for k, results in linkage.items():
                results.append(self._link(place, k))
            membership.append(self._recognize(place))
            for j in self._most_guessed(place):
                guess = self._guess(place, j)
                (declared if guess.prior == "declared" else guesses).append(guess)
            # New memory takes time: the rows of the next law are drawn in that of these.
            del self._drawn[place]
            progress((place + 1) / len(laws))
        # What is guessed by whoever knows the declared rows is stated in any case.
        return [self._worst(one) for one in (*linkage.values(), membership, guesses, declared) if one]

    @property
    def n_protected(self) -> int:
        """Number of protected columns."""
        return len(self._draw(0)[0].by_information)

    def is_above(self, attacks: Collection[RiskAttack]) -> bool:
        """Return whether any of some attacks is above its threshold, those that mostly are first."""
        laws = range(len(self._game.laws))
        if not self._sizes:
            return False
        ways: dict[RiskAttack, Iterable[AttackRisk]] = {
            "linkage": (self._link(place, k) for k in reversed(self._sizes) for place in laws),
            "membership": (self._recognize(place) for place in laws),
            "attribute inference": (
                self._guess(place, j) for place in laws for j in self._most_guessed(place)
            ),
        }
        return any(one.is_above for attack, ones in ways.items() if attack in attacks for one in ones)

    @property
    def _sizes(self) -> list[int]:
        """Numbers of protected columns that attackers know: few, half and all; empty without any column."""
        protected = self.n_protected
        if not protected + len(self._draw(0)[0].always_known):
            return []
        return sorted({min(FEW, protected), math.ceil(protected / 2), protected})

    def is_linked_by_last(self, columns: int) -> bool:
        """Return whether linkage by the columns that tell least, and the public ones, is above its limit."""
        drawn = (self._draw(place) for place in range(len(self._game.laws)))
        return any(
            float(units.link([*one.always_known, *one.by_information[-columns:]]).mean()) > LIMITS["linkage"]
            for one, units in drawn
        )

    @staticmethod
    def _worst(results: Iterable[AttackRisk]) -> AttackRisk:
        # By the upper end of the interval, as a share of what could be gained at all.
        return max(results, key=lambda one: (one.upper - one.baseline) / (1 - one.baseline + 1e-12))

    def _link(self, place: int, k: int) -> AttackRisk:
        """Return how often the attacker finds a row of a person of whom k columns are known."""
        law, (scores, units) = self._game.laws[place].name, self._draw(place)
        known = _knowledge(
            k, len(scores.columns) - len(scores.always_known), len(scores.always_known), units.rows_each
        )
        success = units.link([*scores.always_known, *scores.by_information[:k]])
        chance = units.rows_each / self._n_rows
        row = "that person's row" if units.rows_each == 1 else "one of them"
        return self._result(
            "linkage", law, success, chance, k + len(scores.always_known), known,
            f"Somebody who knows {known} finds {row} among {self._n_rows:,} in "
            f"{small_percent(float(success.mean()))} of cases; by chance, in {small_percent(chance)}.",
        )  # fmt: skip

    def _recognize(self, place: int) -> AttackRisk:
        """Return how often the attacker knows whether a person is in the table, all columns known."""
        law, (scores, units) = self._game.laws[place].name, self._draw(place)
        k = len(scores.columns)
        public = len(scores.always_known)
        known = _knowledge(k - public, k - public, public, units.rows_each)
        success = units.recognize([*scores.always_known, *scores.by_information])
        return self._result(
            "membership", law, success, 0.5, k, known,
            f"Somebody who knows {known} says correctly in {percent(float(success.mean()))} of cases whether "
            f"that person is in the table; by chance, in {percent(0.5)}.",
        )  # fmt: skip

    def _most_guessed(self, place: int) -> list[int]:
        """Return the columns whose cells the attacker gains most about, by the first people alone.

        Only the largest gain is stated. A column above its threshold is among the largest of the first
        people, unless others are above it as well.
        """
        scores, _ = self._draw(place)
        columns = scores.by_information
        if not isinstance(scores, RowScores) or len(columns) <= _STATED or len(scores.place) <= _SCREENED:
            return columns
        first = scores.take(_SCREENED)
        found = {j: self._guess_by(first, place, j) for j in columns}
        return sorted(columns, key=lambda j: (-found[j].gain, j))[:_STATED]

    def _guess(self, place: int, unknown: int) -> AttackRisk:
        """Return how often the attacker guesses a cell of a person whose other cells are known."""
        return self._guess_by(self._draw(place)[0], place, unknown)

    def _guess_by(self, scores: Scores, place: int, unknown: int) -> AttackRisk:
        """Return :meth:`_guess` about some of the people of a law."""
        law, target = self._game.laws[place].name, scores.columns[unknown].target
        right, without = scores.guess(unknown, self._game.stream.derive(f"{law} {target.name}"))
        baseline = float(without.mean())
        near = "" if target.is_list else ", to within 5 % of its range where it has many values,"
        # The difference varies less than either: people who are guessed easily without the table are so with
        # it.
        result = self._result(
            "attribute inference", law, right - without + baseline, baseline, len(scores.columns) - 1,
            f"all columns of a person but {target.name}",
            f"Somebody who knows all columns of a person but {target.name} guesses it right{near} in "
            f"{percent(float(right.mean()))} of cases; without that person's row, in {percent(baseline)}.",
        )  # fmt: skip
        return replace(result, column=target.name)

    def _result(
        self,
        attack: RiskAttack,
        law: str,
        success: Floats,
        baseline: float,
        known: int,
        knowledge: str,
        sentence: str,
    ) -> AttackRisk:
        """Return the mean over people with its interval, by the normal approximation."""
        n, mean = len(success), min(max(float(success.mean()), 0.0), 1.0)
        spread = float(success.std()) / math.sqrt(n)
        # People who are all alike may be so by chance: then the largest share that none in n shows.
        reach = -float(special.ndtri(FAILURE / 2)) * spread or -math.log(FAILURE / 2) / n
        # Exact probabilities that agree for all people have no sampling error to allow for.
        if attack == "attribute inference" and spread == 0:
            reach = 0.0
        return state_attack(
            attack=attack, known=known,
            knowledge=f"{knowledge}, and {self._source.get(law, 'how people are distributed')}",
            prior=law, success=mean, lower=max(0.0, mean - reach), upper=min(1.0, mean + reach),
            baseline=baseline, bound=None if self._bound is None else _raise_by(baseline, self._bound), n=n,
            n_rows=self._n_rows, failure_probability=FAILURE, sentence=sentence,
        )  # fmt: skip


def _join_rows(scores: RowScores, rows_each: int, *, alike: bool) -> UnitScores:
    """Return rows that were drawn one by one as those of people who have several."""
    if alike:
        return UnitScores.from_scores(scores, 1, min(rows_each, MOST_ALIKE))
    return UnitScores.from_scores(scores, min(rows_each, MOST_DIFFERENT), 1)


def _knowledge(known: int, protected: int, public: int, rows_each: int) -> str:
    """Return in words which columns the attacker knows, and in how many rows."""
    whose = "a person" if rows_each == 1 else f"all {rows_each} rows of a person"
    if known == protected:
        return f"all {protected + public} columns of {whose}" if protected + public > 1 else "the column"
    beside = f" and the {count_noun(public, 'public column')}" if public else ""
    return f"the {known} columns of {whose} that tell most{beside}"


def _is_joint(law: Law) -> bool:
    """Return whether the cells of a row are noised together."""
    inner = law.law if isinstance(law, SampledLaw) else law
    return isinstance(inner, CorrelatedGaussianLaw | SphericalLaw | JointBoundedLaw | JointResponseLaw)


def _raise_by(baseline: float, gain: float) -> float:
    return min(1.0, baseline + gain * (1 - baseline))


def _bound_gain(plan: ReleasePlan) -> float | None:
    """Return the largest gain that the promises allow any attacker; None if they do not bound it.

    Notes
    -----
    Where a person's row is replaced, everything that is published changes in law by at most the total
    variation ``delta(0)`` of the promise, and a guess that has b to start from gains at most
    ``delta(0) (1 - b)``. Promises about different columns of a row bound it by ``1 - prod(1 - delta(0))``.
    Where neighbors add or remove a person, replacing one takes two steps.
    """
    if any(isinstance(promise, NoPromise) for promise in plan.promises):
        return None
    # A column that is published as it is tells more than the promises about the others allow.
    if any(summary.law.kind == "clear" for summary in plan.columns):
        return None
    bounds = [
        (promise.covers, exchange.delta_at(0.0))
        for promise in plan.promises
        if (exchange := promise_of_exchange(promise)) is not None
    ]
    whole = [delta for covers, delta in bounds if covers is None]
    parts = [delta for covers, delta in bounds if covers is not None]
    covered = {name for covers, _ in bounds if covers is not None for name in covers}
    # Promises about columns bound the gain only if no column is left out.
    if parts and covered >= {summary.column for summary in plan.columns}:
        whole.append(1 - math.prod(1 - min(delta, 1.0) for delta in parts))
    return min(whole, default=None)


def _attack_invariants(plan: InvariantPlan, game: Game) -> tuple[list[AttackRisk], list[str]]:
    """Attack made-up people by the score that an invariant release keeps exactly."""
    from discreet.audit._reidentification import score_linkage, score_membership
    from discreet.release.invariant.plan import encoded_rows  # its plan has loaded the method

    size, schema, stream = game.made_rows, game.schema, game.stream
    _, declared = LAWS[-1].draw(schema, size, stream.derive("people"))
    rows = encoded_rows(schema, declared)
    results = [score_membership(plan, rows, stream.derive("membership"))]
    with contextlib.suppress(DiscreetError), warnings.catch_warnings():
        # Warnings about a model of made-up rows would be taken for those of the release.
        warnings.simplefilter("ignore", DiscreetWarning)
        published = plan.without_report().draw(rows, stream.derive("noise"))
        results.insert(0, score_linkage(plan, rows, published))
    named: dict[str, RiskAttack] = {"invariants": "linkage", "membership": "membership"}
    attacks = [
        state_attack(
            attack=named[one.attack], known=len(schema.released), knowledge=one.knowledge,
            prior="correlated", success=one.success, lower=one.lower, upper=one.upper, baseline=one.chance,
            bound=None, n=one.n, n_rows=size, failure_probability=one.failure_probability,
            sentence=one.sentence,
        )
        for one in results if one is not None
    ]  # fmt: skip
    left_out = ["Attribute inference: whoever knows all other rows computes those that the model leans on."]
    if not attacks:
        left_out.append("Linkage and membership: no model could be trained on made-up rows.")
    return attacks, left_out


def _advise(method: ReleaseMethod, plan: ReleasePlan, game: Game, risk: Risk) -> list[str]:
    """Return what would lower the risk, the surest first."""
    if risk.verdict == "yes":
        return []
    if is_synthetic(method) or is_masked(method):
        return ["Ask for a smaller epsilon."] if risk.verdict == "no" else []
    advice = [_SYNTHETIC]
    n_rows = game.n_rows
    if risk.verdict != "no" or is_invariant_plan(plan) or n_rows is None:
        return advice
    # More noise lowers every figure, so attacks that are below their thresholds now need not be tried again.
    above = {one.attack for one in risk.attacks if one.is_above}
    # Advice needs no narrow intervals.
    game = replace(game, people=min(game.people, _ADVISED_ON))
    for factor in _FACTORS:
        try:
            more = method.scaled_plan(game.schema, n_rows, factor)
        except DiscreetError:
            break
        if not _RowRisk(more, game).is_above(above):
            advice.append(f"Ask for {factor:g} times the noise: every figure is then below its threshold.")
            break
    else:
        advice.append(f"More noise alone does not help: {_FACTORS[-1]:g} times as much is not enough.")
    advice += _advise_columns(plan, game)
    return advice


def _advise_columns(plan: ReleasePlan, game: Game) -> list[str]:
    """Return how many columns may be published if linkage is to stay below its threshold."""
    measured = _RowRisk(plan, game)
    for columns in range(measured.n_protected - 1, 0, -1):
        if not measured.is_linked_by_last(columns):
            return [
                f"Publish at most {columns} of the {measured.n_protected} protected columns, without those "
                "that tell most: linkage is then below its threshold."
            ]
    return []
