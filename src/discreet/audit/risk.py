"""What somebody who knows part of a person's record gains from a release: figures, thresholds and verdict.

:class:`AttackRisk` is one attack on made-up rows, :class:`Risk` all of them with the verdict. Plans,
statements and reports read these two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, get_args

from discreet.audit._guess import AttackRecord
from discreet.errors import ParameterError, PromiseError
from discreet.formatting import percent, small_percent
from discreet.json_record import JsonRecord
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PureDP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.privacy import Promise

RiskAttack: TypeAlias = Literal["linkage", "membership", "attribute inference"]
RiskVerdict: TypeAlias = Literal["yes", "with care", "no"]
LIMITS: dict[RiskAttack, float] = {"linkage": 0.09, "membership": 0.2, "attribute inference": 0.2}
"""Largest gain over the baseline with which a table may be published; reasons in decision 0042."""
MOST_GAIN = 0.5
"""Largest gain that a promise may allow any attacker where the verdict is yes; reasons in decision 0056."""
_BOUNDED = 0.9
"""Largest gain that a promise may allow any attacker where the lower end of an interval decides."""
_ALL = 0.995
"""Gain from which on it is not told apart from a whole one."""
_EPSILONS = tuple(k / 4 for k in range(81))
"""Points of a privacy curve at which the success of an attack is bounded."""
DIGITS = 6
"""Decimals of the stated shares: what another processor computes is the same to these digits."""


def threshold_of(attack: RiskAttack, baseline: float) -> float:
    """Return the largest share of people about whom an attack may be right, from that without the release."""
    return round(baseline + LIMITS[attack] * (1 - baseline), DIGITS)


def promise_of_exchange(promise: Promise) -> Promise | None:
    """Return what is promised where a person in the table and another change places; None if nothing is.

    Tables of which one person is replaced are two steps apart where neighbors add or remove one.
    """
    if not isinstance(promise, PureDP | ApproxDP | ZCDP | GaussianDP):
        return None
    if promise.neighbors == "replace-one":
        return promise
    try:
        return promise.group(2, unit=promise.unit)
    except PromiseError:
        return None  # its delta would reach 1


def largest_success(promise: Promise, others: float) -> float:
    """Return the largest share of people in a table about whom an attack is right, from that of others.

    Notes
    -----
    At every epsilon of the promise's curve, an attack that is right about a share b of people outside the
    table is right about at most ``exp(epsilon) b + delta`` of those in it, and wrong about at least
    ``exp(-epsilon) (1 - b - delta)``.
    """
    exchange = promise_of_exchange(promise)
    if exchange is None:
        return 1.0
    # Every point of the curve is a bound of its own: the least of them holds.
    # Steps of 1/4 are enough: a coarser grid makes the bound larger, which is the safe side.
    curve = [(math.exp(epsilon), exchange.delta_at(epsilon)) for epsilon in _EPSILONS]
    return min(min(ratio * others + delta, 1 - (1 - others - delta) / ratio) for ratio, delta in curve)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackRisk(AttackRecord):
    """How often one attack on the made-up rows of a release is right, and how often it is without them.

    Attributes
    ----------
    attack : {"linkage", "membership", "attribute inference"}
        "linkage": which published row is that of a person. "membership": whether a person is in the table.
        "attribute inference": which value a person has in `column`.
    column : str or None
        Column whose values are guessed; None for linkage and membership.
    known : int
        Number of columns of the person that the attacker knows.
    knowledge : str
        Knowledge that the attacker is assumed to have, in words.
    prior : {"independent", "correlated", "declared"}
        Law of the made-up rows: columns independent, columns that depend on each other, or public rows.
    success : float
        Share of people about whom the attacker is right.
    lower, upper : float
        Confidence interval of that share.
    baseline : float
        Share without the person's row: by chance, or by the best guess from the same knowledge.
    bound : float or None
        Largest share that the promise allows any attacker; None if no promise bounds it.
    threshold : float
        Largest share with which a table may be published, as :func:`threshold_of` returns it.
    n : int
        Number of made-up people that were attacked.
    n_rows : int
        Number of rows of the table that the share is stated for.
    failure_probability : float
        Chance that the share lies outside the interval.
    sentence : str
        The result in plain words, for statement, terminal and report.

    Privacy
    -------
    Follows from the schema, the method and the public number of rows: may be published.

    Reference
    ---------
    ``docs/explanation/risk.md``.
    """

    kind: ClassVar[str] = "attack-risk"

    attack: RiskAttack
    column: str | None
    known: int
    knowledge: str
    prior: str
    success: float
    lower: float
    upper: float
    baseline: float
    bound: float | None
    threshold: float
    n: int
    n_rows: int
    failure_probability: float
    sentence: str

    def __post_init__(self) -> None:
        self._check("attack", get_args(RiskAttack))
        self._check("prior", ("independent", "correlated", "declared"))
        self._check_interval(self.failure_probability, self.lower, self.success, self.upper)

    @property
    def gain(self) -> float:
        """Share of people about whom the attacker is right only because of the release, from 0 to 1."""
        # Relative to what was left to gain: a cell that everybody guesses anyway is no success (0042).
        return max(0.0, (self.success - self.baseline) / (1 - self.baseline)) if self.baseline < 1 else 0.0

    @property
    def is_above(self) -> bool:
        """Whether the attack may be above its threshold; with a promise that bounds any gain, whether it is.

        Intervals of few people are wide. Where a promise limits what every attacker gains, the upper end
        would stop small tables by chance alone, so the lower end decides.
        """
        is_bounded = self.bound is not None and self.bound <= self.baseline + _BOUNDED * (1 - self.baseline)
        return (self.lower if is_bounded else self.upper) > self.threshold

    def __str__(self) -> str:
        return f"{self.attack}: {self.sentence}"


def state_attack(
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
        As for :class:`AttackRisk`.
    """
    shares = [round(share, DIGITS) for share in (success, lower, upper, baseline)]
    return AttackRisk(
        attack=attack, success=shares[0], lower=shares[1], upper=shares[2], baseline=shares[3],
        # A bound is rounded up, a measured share to the nearest: the stated bound must stay a bound.
        bound=None if bound is None else min(1.0, round(bound + 0.5 * 10.0**-DIGITS, DIGITS)),
        threshold=threshold_of(attack, shares[3]), **{"column": None, **others},
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk(JsonRecord):
    """The attacks on the made-up rows of a release, and whether it may be published.

    Attributes
    ----------
    attacks : tuple of AttackRisk
        Results of the attacks that were run.
    sentence : str
        What somebody who knows most of a record gains, in one sentence.
    advice : tuple of str
        Changes that lower the risk, the best one first; empty for the verdict "yes".
    verdict : {"yes", "with care", "no"}
        Whether the table may be published. "no": an attack is above its threshold. "with care": none is, but
        these are means over people, and no promise bounds what is gained about one person by half or less.
    why : str
        Reason of the verdict, in one sentence.
    people : int
        Number of made-up people that were to be attacked; who measures again takes as many.
    not_covered : tuple of str
        Attacks that were not run, and why.
    accepted : str or None
        Reason for which the curator accepts a risk above the thresholds; None if none was given.

    Privacy
    -------
    As :class:`AttackRisk`.

    Reference
    ---------
    ``docs/decisions/0042-risk-before-charge.md``.
    """

    kind: ClassVar[str] = "risk"

    attacks: tuple[AttackRisk, ...]
    sentence: str
    advice: tuple[str, ...]
    verdict: RiskVerdict
    why: str
    people: int
    not_covered: tuple[str, ...] = ()
    accepted: str | None = None

    def __post_init__(self) -> None:
        if self.verdict not in get_args(RiskVerdict):
            raise ParameterError(
                f"verdict of Risk must be one of {', '.join(get_args(RiskVerdict))}, was {self.verdict!r}."
            )

    @property
    def stops(self) -> bool:
        """Whether the release must stop before it is charged."""
        return self.verdict == "no" and self.accepted is None

    def worst(self, attack: RiskAttack) -> AttackRisk | None:
        """Return the result of an attack with the largest gain; None if it was not run."""
        return max((one for one in self.attacks if one.attack == attack), key=lambda x: x.gain, default=None)

    def accept(self, reason: str) -> Risk:
        """Return a copy that records the reason for which the curator accepts the risk."""
        if not reason.strip():
            raise ParameterError("The reason for accepting a risk must be a text, and was empty.")
        return replace(self, accepted=reason.strip())

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, from which :meth:`from_dict` makes an equal value."""
        values = JsonRecord.to_dict(self)
        lists = {name: list(values[name]) for name in ("advice", "not_covered")}
        return {**values, **lists, "attacks": [one.to_dict() for one in self.attacks]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the value that :meth:`to_dict` wrote; unknown kinds and keys are refused."""
        plain = dict(values)
        for name in ("advice", "not_covered"):
            plain[name] = tuple(plain.get(name, ()))
        plain["attacks"] = tuple(AttackRisk.from_dict(one) for one in plain.get("attacks", ()))
        # Named in full: a class with slots is made anew, and super() would look in the old one.
        return super(Risk, cls).from_dict(plain)


def judge(
    attacks: Sequence[AttackRisk],
    left_out: Sequence[str],
    *,
    gain_bound: float | None,
    people: int,
    row_level: bool,
) -> Risk:
    """Return the verdict on some attacks, with the reason and the sentence about most of a record.

    Parameters
    ----------
    attacks : sequence of AttackRisk
        Results of the attacks on made-up people.
    left_out : sequence of str
        Sentences about what was not attacked.
    gain_bound : float or None
        Largest gain that the promise of the release allows any attacker; None if it does not bound it.
    people : int
        Number of made-up people that were to be attacked.
    row_level : bool
        Whether every published row is that of a person.
    """
    verdict: RiskVerdict = "yes"
    above = [one for one in attacks if one.is_above]
    below = "Every attack stays below its threshold"
    if any(one.success > one.threshold for one in attacks):
        below = "No attack is above its threshold by more than chance"
    if above:
        verdict = "no"
        # In multiples of its own limit: a gain of 0.1 is too much for linkage, and little for the
        # others.
        worst = max(above, key=lambda one: one.gain / LIMITS[one.attack])
        why = (
            f"{worst.attack.capitalize()} is above its threshold: {small_percent(worst.success)} of made-up "
            f"people, and at most {small_percent(worst.threshold)} may be."
        )
    elif not attacks:
        verdict, why = "with care", "The attacks could not be run on made-up rows."
    elif gain_bound is None:
        verdict = "with care"
        why = (
            f"{below}, and no promise of differential privacy bounds what "
            "somebody gains who knows more than these attackers."
        )
    elif gain_bound > MOST_GAIN:
        verdict = "with care"
        allowed = "any gain" if gain_bound > _ALL else f"a gain of up to {percent(gain_bound, rounding='up')}"
        why = (
            f"{below} on average over people, but about somebody who stands out the promise allows {allowed}."
        )
    else:
        why = (
            f"{below}, and whatever else an attacker knows, the promise lets nobody gain "
            f"more than {percent(gain_bound, rounding='up')}."
        )
    risk = Risk(
        attacks=tuple(attacks), sentence="", advice=(), verdict=verdict, why=why, people=people,
        not_covered=tuple(left_out),
    )  # fmt: skip
    return replace(risk, sentence=_summarize(risk, row_level=row_level))


def _summarize(risk: Risk, *, row_level: bool) -> str:
    """Return what somebody who knows most of a record gains, in one sentence."""
    link, member = risk.worst("linkage"), risk.worst("membership")
    guess = risk.worst("attribute inference")
    parts = []
    if link is not None:
        what, beside = "that person's row", "by chance"
        if not row_level:
            what, beside = "a row like that person's", "for people who are not in the table"
        shares = [small_percent(share) for share in (link.success, link.baseline)]
        parts.append(f"finds {what} in {shares[0]} of cases ({shares[1]} {beside})")
    if guess is not None:
        what = "an unknown cell" if guess.column is None else f"an unknown {guess.column}"
        parts.append(
            f"guesses {what} right in {percent(guess.success)} of cases ({percent(guess.baseline)} without)"
        )
    if member is not None:
        parts.append(
            f"tells whether the person is in the table in {percent(member.success)} of cases (50 % by chance)"
        )
    if not parts:
        return "What somebody who knows most of a person's record gains could not be measured."
    text = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    return f"Somebody who knows most of a person's record {text}."
