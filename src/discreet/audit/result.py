"""What an attack found: the claim, what was measured against it, and how sure that is."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from discreet.errors import ParameterError
from discreet.privacy.promises import Promise, promise_from_dict

if TYPE_CHECKING:
    from collections.abc import Mapping

Verdict: TypeAlias = Literal["holds", "broken", "not tested"]
VERDICTS: tuple[Verdict, ...] = ("broken", "holds", "not tested")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """One attack on one claim.

    Attributes
    ----------
    attack : str
        Name in :data:`discreet.audit.ATTACKS`.
    claim : Promise
        What was promised.
    verdict : {"holds", "broken", "not tested"}
        "broken": the claim is false, except with probability ``failure_probability``. "holds": this
        attack did not break it, which proves nothing about another attack.
    reason : str
        Why, in a sentence.
    quantity : str
        What ``measured`` and ``allowed`` are, with the point at which they were read.
    measured : float or None
        The bound that the attack proved.
    allowed : float or None
        What the claim allows for the same quantity.
    failure_probability : float
        Chance that a true claim is called broken, over everything the attack tried; 0 for an attack
        that draws nothing.
    n : int
        How many outputs the attack looked at.
    knowledge : str
        What the attacker is assumed to know.
    details : mapping
        Plain JSON values for the reader who wants to repeat it.

    Privacy
    -------
    Attacks run on inputs made up for the purpose protect nobody and reveal nothing. An attack on real
    rows is internal: its numbers depend on them.

    Reference
    ---------
    How counts become bounds: :mod:`discreet.audit.bounds`.
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
        # A detour over JSON: what is kept is plain, a copy, and equal to what is read back.
        details = json.loads(json.dumps(dict(self.details)))
        object.__setattr__(self, "details", MappingProxyType(details))

    @property
    def strain(self) -> float:
        """How close the attack came: measured over allowed, infinite where nothing was allowed."""
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
        if self.measured is None or self.allowed is None:
            return f"{self.attack}: {self.verdict} ({self.claim}). {self.reason}"
        sure = (
            f"a true claim fails this with probability at most {self.failure_probability:g}"
            if self.failure_probability
            else "no randomness involved"
        )
        return (
            f"{self.attack}: {self.verdict} ({self.claim}). {self.reason} "
            f"Measured {self.quantity}: {self.measured:.4g}; allowed: {self.allowed:.4g} ({sure})."
        )
