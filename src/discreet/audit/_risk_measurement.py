"""Risk of a release before it is charged: linkage, membership and attribute inference on made-up people."""

from __future__ import annotations

import contextlib
import copy
import math
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from scipy import special

from discreet.audit._guess import FAILURE
from discreet.audit._made_up_people import LAWS, PEOPLE
from discreet.audit._members import attack_members, largest_success
from discreet.audit._reidentification import score_linkage, score_membership
from discreet.audit._row_risk import RowScores
from discreet.audit._table_risk import MOST_ROWS, TableScores
from discreet.audit.risk import DIGITS, LIMITS, AttackRisk, Risk, judge, threshold_of
from discreet.errors import DiscreetError, DiscreetWarning
from discreet.formatting import count_noun, percent, small_percent
from discreet.noise_law import (
    CorrelatedGaussianLaw,
    JointBoundedLaw,
    JointResponseLaw,
    SampledLaw,
    SphericalLaw,
)
from discreet.privacy import ApproxDP, GaussianDP, NoPromise, PureDP
from discreet.release.invariant.plan import InvariantPlan, encoded_rows
from discreet.release.masked.method import MaskedRelease
from discreet.release.synthetic import SyntheticRelease
from discreet.release.synthetic.synthesis import sampling_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from discreet._types import AnyArray, Floats
    from discreet.audit._members import MemberComparison
    from discreet.audit.risk import RiskAttack
    from discreet.noise import Stream
    from discreet.noise_law import Law
    from discreet.release import ReleaseMethod, ReleasePlan
    from discreet.schema import Schema

Scores: TypeAlias = RowScores | TableScores
FEW = 3
"""Number of columns that an attacker with little knowledge has."""
_FACTORS = (2.0, 4.0, 8.0)
_KNOWS_ALL = "all columns of a person, everything that is published, and other people of the same kind"
_ADVISED_ON = 200
"""Number of made-up people on whom more noise is tried."""
_ENOUGH, _MOST_RUNS = 600, 8
"""People whom attacks on made tables need for a narrow interval, and the most tables made for them."""
_FEWEST_MADE = 200
"""Smallest number of made-up rows of which a table is made anew, if the table has as many."""
_SYNTHETIC = (
    "Publish a synthetic table (--method synthetic --epsilon 1 --delta 1e-6): none of its rows is a person's."
)


def measure_risk(
    method: ReleaseMethod,
    plan: ReleasePlan,
    n_rows: int | None,
    *,
    people: int = PEOPLE,
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
    game = _Game(schema, n_rows, people, stream)
    if isinstance(method, SyntheticRelease | MaskedRelease):
        attacks, left_out = _attack_made_tables(method, plan, game)
    elif isinstance(plan, InvariantPlan):
        attacks, left_out = _attack_invariants(plan, game)
    else:
        measured = _RowRisk(plan, game)
        attacks, left_out = measured.attacks(progress), measured.left_out
    risk = judge(attacks, left_out, gain_bound=_bound_gain(plan), people=people, row_level=plan.row_level)
    return replace(risk, advice=tuple(_advise(method, plan, game, risk)))


@dataclass(frozen=True)
class _Game:
    """Public facts of a release, and how it is attacked.

    Attributes
    ----------
    schema : Schema
        Declaration of the table.
    n_rows : int or None
        Number of rows of the table; None where it is not public.
    people : int
        Number of made-up people that are attacked.
    stream : Stream
        Source of the people and of the noise, which follows from the public facts.
    """

    schema: Schema
    n_rows: int | None
    people: int
    stream: Stream

    @property
    def made_rows(self) -> int:
        """Number of made-up rows where a whole table must be made."""
        most = max(_FEWEST_MADE, 2 * self.people)
        return most if self.n_rows is None else min(self.n_rows, most)


class _RowRisk:
    """Attacks on a release whose rows are each that of a person.

    Parameters
    ----------
    plan : ReleasePlan
        Plan of the release.
    game : _Game
        Public facts of the release, with its number of rows.
    """

    def __init__(self, plan: ReleasePlan, game: _Game) -> None:
        """Draw made-up people and their rows under each law."""
        schema, n_rows, stream = game.schema, game.n_rows, game.stream
        assert n_rows is not None
        joint = any(_is_joint(summary.law) for summary in plan.columns)
        draw: Any = TableScores.draw if joint else RowScores.draw
        self._scores: list[tuple[str, Scores]] = [
            (law.name, draw(plan, schema, law, n_rows, stream.derive(law.name), game.people)) for law in LAWS
        ]
        self._stream = stream
        self._n_rows = min(n_rows, MOST_ROWS) if joint else n_rows
        self._bound = _bound_gain(plan)
        self.left_out: list[str] = []
        if self._n_rows < n_rows:
            self.left_out.append(
                f"Noise that columns share is attacked in a table of {self._n_rows:,} rows, not {n_rows:,}: "
                "the figures are too high rather than too low."
            )
        if (schema.max_rows_per_unit or 1) > 1:
            self.left_out.append("Several rows of one person, which tell more together, are attacked singly.")

    def attacks(self, progress: Callable[[float], None]) -> list[AttackRisk]:
        """Return the worst result of each attack over the laws of made-up people."""
        first = self._scores[0][1]
        public, protected = len(first.always_known), len(first.by_information())
        if not public + protected:
            return []
        sizes = sorted({min(FEW, protected), math.ceil(protected / 2), protected})
        found = [self._worst(self._link(name, one, k) for name, one in self._scores) for k in sizes]
        found.append(self._worst(self._recognize(name, one) for name, one in self._scores))
        progress(0.3)
        guesses: list[AttackRisk] = []
        for done, (name, one) in enumerate(self._scores):
            guesses += [self._guess(name, one, j) for j in one.by_information()]
            progress(0.3 + 0.7 * (done + 1) / len(self._scores))
        return [*found, *([self._worst(guesses)] if guesses else [])]

    def linkage_of_last(self, columns: int) -> float:
        """Return the success of linkage by the columns that tell least, and those that are public."""
        return max(
            float(one.link([*one.always_known, *one.by_information()[-columns:]]).mean())
            for _, one in self._scores
        )

    @staticmethod
    def _worst(results: Iterable[AttackRisk]) -> AttackRisk:
        return max(results, key=lambda one: (one.upper - one.baseline) / (1 - one.baseline + 1e-12))

    def _link(self, law: str, scores: Scores, k: int) -> AttackRisk:
        """Return how often the attacker finds the row of a person of whom k columns are known."""
        known = _knowledge(k, len(scores.columns) - len(scores.always_known), len(scores.always_known))
        success = scores.link([*scores.always_known, *scores.by_information()[:k]])
        chance = 1 / self._n_rows
        return self._result(
            "linkage", law, success, chance, k + len(scores.always_known), known,
            f"Somebody who knows {known} finds that person's row among {self._n_rows:,} in "
            f"{small_percent(float(success.mean()))} of cases; by chance, in {small_percent(chance)}.",
        )  # fmt: skip

    def _recognize(self, law: str, scores: Scores) -> AttackRisk:
        """Return how often the attacker knows whether a person is in the table, all columns known."""
        k = len(scores.columns)
        known = _knowledge(
            k - len(scores.always_known), k - len(scores.always_known), len(scores.always_known)
        )
        success = scores.recognize([*scores.always_known, *scores.by_information()])
        return self._result(
            "membership", law, success, 0.5, k, known,
            f"Somebody who knows {known} says correctly in {percent(float(success.mean()))} of cases whether "
            f"that person is in the table; by chance, in {percent(0.5)}.",
        )  # fmt: skip

    def _guess(self, law: str, scores: Scores, unknown: int) -> AttackRisk:
        """Return how often the attacker guesses a cell of a person whose other cells are known."""
        target = scores.columns[unknown].target
        right, without = scores.guess(unknown, self._stream.derive(f"{law} {target.name}"))
        baseline = float(without.mean())
        near = "" if target.is_list else ", to within 5 % of its range where it has many values,"
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
        if attack == "attribute inference" and spread == 0:
            reach = 0.0
        return _state(
            attack=attack, known=known, knowledge=f"{knowledge}, and how people are distributed",
            prior=law, success=mean, lower=max(0.0, mean - reach), upper=min(1.0, mean + reach),
            baseline=baseline, bound=None if self._bound is None else _raise_by(baseline, self._bound), n=n,
            n_rows=self._n_rows, failure_probability=FAILURE, sentence=sentence,
        )  # fmt: skip


def _state(
    *,
    attack: RiskAttack,
    success: float,
    lower: float,
    upper: float,
    baseline: float,
    bound: float | None,
    **others: Any,
) -> AttackRisk:
    """Return the result of an attack, with its threshold and as many digits as every processor agrees on.

    Parameters
    ----------
    attack, success, lower, upper, baseline, bound, **others
        As for :class:`~discreet.audit.risk.AttackRisk`.
    """
    shares = [round(share, DIGITS) for share in (success, lower, upper, baseline)]
    return AttackRisk(
        attack=attack, success=shares[0], lower=shares[1], upper=shares[2], baseline=shares[3],
        bound=None if bound is None else min(1.0, round(bound + 0.5 * 10.0**-DIGITS, DIGITS)),
        threshold=threshold_of(attack, shares[3]), **{"column": None, **others},
    )  # fmt: skip


def _knowledge(known: int, protected: int, public: int) -> str:
    """Return in words which columns the attacker knows."""
    if known == protected:
        return f"all {protected + public} columns of a person" if protected + public > 1 else "the column"
    beside = f" and the {count_noun(public, 'public column')}" if public else ""
    return f"the {known} columns of a person that tell most{beside}"


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
    """
    if any(isinstance(promise, NoPromise) for promise in plan.promises):
        return None
    if any(summary.law.kind == "clear" for summary in plan.columns):
        return None
    bounds = [
        (promise.covers, promise.delta_at(0.0))
        for promise in plan.promises
        if isinstance(promise, PureDP | ApproxDP | GaussianDP)
    ]
    whole = [delta for covers, delta in bounds if covers is None]
    parts = [delta for covers, delta in bounds if covers is not None]
    covered = {name for covers, _ in bounds if covers is not None for name in covers}
    if parts and covered >= {summary.column for summary in plan.columns}:
        whole.append(1 - math.prod(1 - min(delta, 1.0) for delta in parts))
    return min(whole, default=None)


def _attack_made_tables(
    method: SyntheticRelease | MaskedRelease, plan: ReleasePlan, game: _Game
) -> tuple[list[AttackRisk], list[str]]:
    """Attack people in tables that are made anew from made-up rows, and others."""
    size, n_rows = game.made_rows, game.n_rows
    if isinstance(method, SyntheticRelease):
        # Other rows from the same answers have the same risk.
        method = copy.copy(method)
        method.draw = 0
    _, rows = LAWS[-1].draw(game.schema, 2 * size, game.stream.derive("people"))
    found = _repeat_attacks(method, rows, game)
    left_out = []
    if n_rows is None or size < n_rows:
        of = "a table whose number of rows is not public" if n_rows is None else f"one of {n_rows:,} rows"
        left_out.append(
            f"People are attacked in a table made of {size:,} made-up rows, where they are found more easily "
            f"than in {of}."
        )
    known = len(game.schema.released)
    areas = [one for one in found if one.members is None]
    attacks = [_membership_of(max(areas, key=lambda one: one.value), size, known)] if areas else []
    named = {one.attack: one for one in found}
    if "exact match" in named:
        linkage = _difference_of("linkage", named["exact match"], plan, size, known)
        inference = _difference_of("attribute inference", named["guessed cells"], plan, size, known - 1)
        attacks = [linkage, *attacks, inference]
    else:
        left_out.append("Linkage and attribute inference: no published row is that of a person.")
    if not found:
        left_out.append(
            "Membership: the made-up rows are too few, or rows of the table are published as they are."
        )
    return attacks, left_out


def _repeat_attacks(
    method: SyntheticRelease | MaskedRelease, rows: dict[str, AnyArray], game: _Game
) -> tuple[MemberComparison, ...]:
    """Attack several tables of few people each, and return the means; none where no table can be made."""
    runs = [attack_members(method, rows, on="made-up", stream=game.stream.derive("attack 0"))]
    if not runs[0]:
        return ()
    more = min(_MOST_RUNS, math.ceil(_ENOUGH / runs[0][0].n))
    for k in range(1, more):
        again = attack_members(method, rows, on="made-up", stream=game.stream.derive(f"attack {k}"))
        runs += [again] if again else []
    return tuple(_mean_of(one) for one in zip(*runs, strict=True))


def _mean_of(runs: Sequence[MemberComparison]) -> MemberComparison:
    """Return one attack on several tables as one result, with the interval of its mean."""
    first, n = runs[0], len(runs)
    value = math.fsum(one.value for one in runs) / n
    reach = math.sqrt(math.fsum((one.upper - one.value) ** 2 for one in runs)) / n
    means: dict[str, Any] = {}
    if first.members is not None:
        for name in ("members", "others"):
            means[name] = math.fsum(getattr(one, name) for one in runs) / n
    return replace(first, value=value, lower=value - reach, upper=value + reach, n=first.n * n, **means)


def _membership_of(found: MemberComparison, size: int, known: int) -> AttackRisk:
    """Return the best of the attacks that tell people in a table from others."""
    return _state(
        attack="membership", known=known, knowledge=_KNOWS_ALL, prior="correlated",
        success=found.value, lower=max(0.0, found.lower), baseline=found.chance,
        # What is proven narrows what is measured.
        upper=max(found.value, min(found.upper, found.bound)),
        bound=found.bound, n=found.n, n_rows=size, failure_probability=found.failure_probability,
        sentence="Somebody who knows all columns of a person tells people in the table from others in "
        f"{percent(found.value)} of pairs; by chance, in {percent(0.5)}.",
    )  # fmt: skip


def _difference_of(
    attack: RiskAttack, found: MemberComparison, plan: ReleasePlan, size: int, known: int
) -> AttackRisk:
    """Return an attack that may be right about people who are not in the table, too."""
    assert found.members is not None
    assert found.others is not None
    shares = [small_percent(found.members), small_percent(found.others)]
    sentence = (
        f"A published row has all cells of a person in the table in {shares[0]} of cases, and of others in "
        f"{shares[1]}."
        if attack == "linkage"
        else "Somebody who knows all columns of a person but one guesses it, by the row that is most alike, "
        f"right in {shares[0]} of cases, and for people who are not in the table in {shares[1]}."
    )
    return _state(
        attack=attack, known=known, knowledge=_KNOWS_ALL, prior="correlated",
        success=found.members, lower=min(max(0.0, found.others + found.lower), found.members),
        upper=max(min(1.0, found.others + found.upper), found.members), baseline=found.others,
        bound=min(largest_success(one, found.others) for one in plan.promises), n=found.n, n_rows=size,
        failure_probability=found.failure_probability, sentence=sentence,
    )  # fmt: skip


def _attack_invariants(plan: InvariantPlan, game: _Game) -> tuple[list[AttackRisk], list[str]]:
    """Attack made-up people by the score that an invariant release keeps exactly."""
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
        _state(
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


def _advise(method: ReleaseMethod, plan: ReleasePlan, game: _Game, risk: Risk) -> list[str]:
    """Return what would lower the risk, the surest first."""
    if risk.verdict == "yes":
        return []
    if isinstance(method, SyntheticRelease | MaskedRelease):
        return ["Ask for a smaller epsilon."] if risk.verdict == "no" else []
    advice = [_SYNTHETIC]
    n_rows = game.n_rows
    if risk.verdict != "no" or isinstance(plan, InvariantPlan) or n_rows is None:
        return advice
    # Advice needs no narrow intervals.
    game = replace(game, people=min(game.people, _ADVISED_ON))
    for factor in _FACTORS:
        try:
            more = method.scaled_plan(game.schema, n_rows, factor)
        except DiscreetError:
            break
        attacks = _RowRisk(more, game).attacks(lambda share: None)
        if not any(one.is_above for one in attacks):
            advice.append(f"Ask for {factor:g} times the noise: every figure is then below its threshold.")
            break
    else:
        advice.append(f"More noise alone does not help: {_FACTORS[-1]:g} times as much is not enough.")
    advice += _advise_columns(plan, game)
    return advice


def _advise_columns(plan: ReleasePlan, game: _Game) -> list[str]:
    """Return how many columns may be published if linkage is to stay below its threshold."""
    measured = _RowRisk(plan, game)
    protected = len(measured._scores[0][1].by_information())
    for columns in range(protected - 1, 0, -1):
        if measured.linkage_of_last(columns) <= LIMITS["linkage"]:
            return [
                f"Publish at most {columns} of the {protected} protected columns, without those that tell "
                "most: linkage is then below its threshold."
            ]
    return []
