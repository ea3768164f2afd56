"""Results and subjects of attacks: :class:`AuditResult`, and mechanisms and samplers that can be attacked.

A release, a learner or a database becomes a :class:`MechanismPair` by a short function that runs it on one of
two neighboring inputs. Pairs of exact laws are in :mod:`discreet.audit._density`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np

from discreet.errors import ParameterError
from discreet.noise.stream import Stream, stream_or_fresh
from discreet.privacy.promises import Promise, promise_from_dict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray

Verdict: TypeAlias = Literal["holds", "broken", "not tested"]
VERDICTS: tuple[Verdict, ...] = ("broken", "holds", "not tested")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """Result of one attack on one claim.

    Attributes
    ----------
    attack : str
        Name of the attack, a key of :data:`discreet.audit.ATTACKS`.
    claim : Promise
        Promise that the attack tried to break.
    verdict : {"holds", "broken", "not tested"}
        "broken": the claim is false, except with probability ``failure_probability``. "holds": this
        attack did not break it, which proves nothing about another attack.
    reason : str
        Reason of the verdict, in one sentence.
    quantity : str
        Name of the quantity in ``measured`` and ``allowed``, with the point at which it is read.
    measured : float or None
        Bound on the quantity that the attack proved; None if nothing was tested.
    allowed : float or None
        Largest value of the quantity under the claim; None if nothing was tested.
    failure_probability : float
        Chance that a true claim is called broken, over everything the attack tried; 0 for an attack
        that draws nothing.
    n : int
        Number of outputs that the attack used.
    knowledge : str
        Knowledge that the attacker is assumed to have.
    details : mapping
        Plain JSON values from which the attack can be repeated.

    Privacy
    -------
    Attacks on inputs made up for the purpose reveal nothing about anyone. An attack on real rows is
    internal: its numbers depend on them.

    Reference
    ---------
    How counts become bounds: :mod:`discreet.audit._bounds`.
    """

    kind: ClassVar[str] = "audit-result"

    attack: str
    claim: Promise
    verdict: Verdict
    reason: str
    quantity: str = ""
    measured: float | None = None
    allowed: float | None = None
    failure_probability: float = 0.0
    n: int = 0
    knowledge: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the verdict, its numbers and the probability, and freeze a plain copy of the details."""
        if self.verdict not in VERDICTS:
            raise ParameterError(
                f"verdict of AuditResult must be one of {', '.join(VERDICTS)}, was {self.verdict!r}."
            )
        if self.verdict != "not tested" and (self.measured is None or self.allowed is None):
            raise ParameterError(
                "measured and allowed of AuditResult must be numbers, were None. "
                'Only the verdict "not tested" comes without them.'
            )
        if not 0 <= self.failure_probability < 1:
            raise ParameterError(
                "failure_probability of AuditResult must be at least 0 and below 1, "
                f"was {self.failure_probability!r}."
            )
        # The detour over JSON makes a plain copy that equals what from_dict reads back.
        details = json.loads(json.dumps(dict(self.details)))
        object.__setattr__(self, "details", MappingProxyType(details))

    @property
    def strain(self) -> float:
        """Ratio of measured to allowed; infinite where nothing was allowed, 0 where nothing was tested."""
        if self.measured is None or self.allowed is None:
            return 0.0
        if self.allowed > 0:
            return self.measured / self.allowed
        return math.inf if self.measured > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, from which :meth:`from_dict` makes an equal result."""
        values: dict[str, Any] = {"kind": self.kind}
        for item in fields(self):
            values[item.name] = getattr(self, item.name)
        values["claim"] = self.claim.to_dict()
        values["details"] = dict(self.details)
        for name in ("measured", "allowed"):
            number = values[name]
            # JSON has no infinity.
            values[name] = number if number is None or math.isfinite(number) else repr(number)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> AuditResult:
        """Make the result that :meth:`to_dict` wrote; unknown kinds and keys are refused."""
        rest = dict(values)
        if rest.pop("kind", None) != cls.kind:
            raise ParameterError(
                f"kind of an audit result must be {cls.kind!r}, was {values.get('kind')!r}. "
                "It may have been written by a newer version."
            )
        known = {item.name for item in fields(cls)}
        if set(rest) != known:
            odd = ", ".join(sorted(set(rest) ^ known))
            raise ParameterError(
                f"keys of an audit result must be {', '.join(sorted(known))}; missing or unknown: {odd}. "
                "Write it with to_dict()."
            )
        rest["claim"] = promise_from_dict(rest["claim"])
        for name in ("measured", "allowed"):
            rest[name] = None if rest[name] is None else float(rest[name])
        return cls(**rest)

    def __reduce__(self) -> tuple[Any, ...]:
        return AuditResult.from_dict, (self.to_dict(),)

    def __str__(self) -> str:
        """Return verdict, reason and, where something was tested, the two numbers and their certainty."""
        if self.measured is None or self.allowed is None:
            return f"{self.attack}: {self.verdict} ({self.claim}). {self.reason}"
        certainty = (
            f"a true claim fails this with probability at most {self.failure_probability:g}"
            if self.failure_probability
            else "no randomness involved"
        )
        return (
            f"{self.attack}: {self.verdict} ({self.claim}). {self.reason} "
            f"Measured {self.quantity}: {self.measured:.4g}; allowed: {self.allowed:.4g} ({certainty})."
        )


Mechanism: TypeAlias = Callable[[Any, Stream], "AnyArray"]
"""``mechanism(input, stream)``: one or more independent outputs of one input, along the first axis."""


@dataclass(frozen=True, kw_only=True)
class MechanismPair:
    """A mechanism and two inputs that its claim calls neighbors.

    Parameters
    ----------
    mechanism : callable
        ``mechanism(input, stream)`` returns an array whose first axis counts **independent** runs: one
        run per call is fine, a thousand is faster. A row-wise release can be given a thousand copies of
        one row, if it draws fresh noise for each.
    a, b : object
        Two inputs one step apart (one row replaced, added or removed).
    claim : Promise
        Promise of the mechanism about every such pair of inputs.
    n : int
        Number of outputs to collect under each input, at least 4.
    name : str
        Noun for the mechanism in messages, such as "release".

    Privacy
    -------
    Inputs are made up for the purpose. Real rows may be given in the curator's own process; the result is
    then internal.

    Reference
    ---------
    The form of the game is that of every auditor: a generator of neighbors, a mechanism, a test.
    """

    mechanism: Mechanism
    a: Any
    b: Any
    claim: Promise
    n: int = 100_000
    name: str = "mechanism"

    def __post_init__(self) -> None:
        if self.n < 4:
            raise ParameterError(
                f"n of MechanismPair must be at least 4, was {self.n}. Half of the outputs choose the "
                "events, the other half test them."
            )

    def collect(self, given: Any, stream: Stream | None = None) -> AnyArray:
        """Run the mechanism on an input until there are ``n`` outputs; each is one row of the result."""
        stream = stream_or_fresh(stream)
        parts: list[AnyArray] = []
        collected = 0
        while collected < self.n:
            part = np.atleast_1d(np.asarray(self.mechanism(given, stream)))
            if part.shape[0] == 0 or (parts and part.shape[1:] != parts[0].shape[1:]):
                raise ParameterError(
                    "mechanism of MechanismPair must return at least one output along the first axis, all of "
                    f"one shape, and returned shape {part.shape}. Wrap a single run as output[np.newaxis]."
                )
            parts.append(part)
            collected += part.shape[0]
        # Calls may give more outputs than were asked for; a fixed number of them keeps the bounds exact.
        outputs = np.concatenate(parts)[: self.n]
        return outputs.reshape(self.n, -1)


@dataclass(frozen=True, kw_only=True)
class MechanismDraws:
    """A sampler and a promise that rests on it.

    Parameters
    ----------
    draw : callable
        ``draw(stream)`` returns one vector of draws that should all have one law: independent, or such
        that every order of them is equally likely.
    claim : Promise
        Promise to the people whose values these draws hide.
    calls : int
        Number of vectors that are drawn.
    name : str
        Noun for the sampler in messages, such as "noise".

    Privacy
    -------
    Draws made for a test hide no one's value.

    Reference
    ---------
    See :mod:`discreet.audit._sampler_checks`.
    """

    draw: Callable[[Stream], AnyArray]
    claim: Promise
    calls: int = 100
    name: str = "sampler"


@dataclass(frozen=True, kw_only=True)
class SingleDraws:
    """A source of single numbers whose running time an attacker can measure.

    Parameters
    ----------
    draw : callable
        ``draw()`` returns one number.
    claim : Promise
        Promise to the person whose value a draw hides.
    calls : int
        Number of draws that are timed.
    name : str
        Noun for the source in messages, such as "sampler".

    Privacy
    -------
    Draws made for a test hide no one's value.

    Reference
    ---------
    See :mod:`discreet.audit._sampler_checks`.
    """

    draw: Callable[[], Any]
    claim: Promise
    calls: int = 20_000
    name: str = "source"
