"""The table of attacks on promises, and :func:`run_audit`, which runs those that fit a subject.

Attacks on a promise are entries of :data:`ATTACKS`. Attacks on a whole release (the published file, real
rows, linkage, membership) give no verdict on a promise, so they have functions of their own:
:func:`~discreet.audit.attack_file`, :func:`~discreet.audit.attack_rows`,
:func:`~discreet.audit.attack_records`.

To add an attack on a promise:

1. write a module ``audit/_x.py`` with a function that takes a subject and returns an
   :class:`~discreet.audit._base.AuditResult`;
2. add an entry to :data:`ATTACKS`, with the kinds of promises that it can break and the type of subject that
   it needs: one of :mod:`discreet.audit._base`, or a class of its own;
3. add to ``tests/broken/`` a broken twin that it catches, beside the true method that passes.

:func:`run_audit`, the command line and the report find it through its entry.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.arguments import checked_arguments
from discreet.audit._base import VERDICTS, AuditResult, MechanismDraws, MechanismPair, SingleDraws
from discreet.audit._bounds import check_failure_probability
from discreet.audit._density import LawPair, density
from discreet.audit._distinguishing import DEFAULT_EVENTS, DP_KINDS, try_events
from discreet.audit._enumeration import EveryRow, enumerate_rows
from discreet.audit._prior import PlannedAttacks, attack_floor
from discreet.audit._sampler_checks import check_timing, low_bits, position
from discreet.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.noise.stream import Stream

_EVERY_KIND = frozenset({*DP_KINDS, "error-floor"})


@dataclass(frozen=True, kw_only=True)
class Attack:
    """An entry of :data:`ATTACKS`.

    Attributes
    ----------
    about : str
        Description of the attack, for the help text and the report.
    kinds : frozenset of str
        The ``kind`` of every promise that it can break.
    subject : type
        Class of the subjects that it can attack.
    run : callable
        Function ``run(subject, failure_probability, stream)`` that returns an AuditResult.
    """

    about: str
    kinds: frozenset[str]
    subject: type[Any]
    run: Callable[[Any, float, Stream | None], AuditResult]


ATTACKS: dict[str, Attack] = {
    "distinguish": Attack(
        about="tells two neighbors apart by the outputs",
        kinds=DP_KINDS,
        subject=MechanismPair,
        run=lambda subject, p, stream: try_events(subject, "distinguish", DEFAULT_EVENTS, p, stream),
    ),
    "precision": Attack(
        about="tells two neighbors apart by the outputs' lowest bits",
        kinds=DP_KINDS,
        subject=MechanismPair,
        run=lambda subject, p, stream: try_events(subject, "precision", (low_bits,), p, stream),
    ),
    "density": Attack(
        about="compares two exact laws with the claim, without drawing",
        kinds=DP_KINDS,
        subject=LawPair,
        run=lambda subject, _p, _stream: density(subject),
    ),
    "enumerate": Attack(
        about="compares all rows of a small domain with the claim, without drawing",
        kinds=frozenset({"pure-dp"}),
        subject=EveryRow,
        run=lambda subject, _p, _stream: enumerate_rows(subject),
    ),
    "position": Attack(
        about="looks for positions of a vector whose noise has another law",
        kinds=_EVERY_KIND,
        subject=MechanismDraws,
        run=lambda subject, p, stream: position(subject, failure_probability=p, stream=stream),
    ),
    "reconstruct": Attack(
        about="guesses the cells of made-up people by Bayes' rule, by rounding and by learning",
        kinds=frozenset({"error-floor"}),
        subject=PlannedAttacks,
        run=attack_floor,
    ),
    "timing": Attack(
        about="correlates the time of a draw with its size",
        kinds=_EVERY_KIND,
        subject=SingleDraws,
        run=lambda subject, p, _stream: check_timing(subject, failure_probability=p),
    ),
}


@checked_arguments
def run_audit(
    subject: Any,
    attack: str | None = None,
    failure_probability: float = 1e-6,
    *,
    stream: Stream | None = None,
) -> AuditResult:
    """Try to break the claim of a subject.

    Parameters
    ----------
    subject : MechanismPair, LawPair, EveryRow, MechanismDraws, SingleDraws or PlannedAttacks
        Subject of the attack; its attribute ``claim`` is the promise under attack.
    attack : str, optional
        Name of an attack in :data:`ATTACKS`; by default every attack that fits the subject and its claim,
        the failure probability shared equally among them.
    failure_probability : float
        Largest probability that a true claim is called broken.
    stream : Stream, optional
        Source of the subject's randomness, for tests; a fresh one by default.

    Returns
    -------
    AuditResult
        Of several attacks the one that broke the claim, or else came closest; ``details["also"]`` has
        the sentences of the others.

    Privacy
    -------
    "holds" means that these attacks failed; it is no proof.

    Reference
    ---------
    Each attack names its own; several share the failure probability by the union bound.

    Examples
    --------
    >>> from discreet.audit import MechanismPair, run_audit
    >>> from discreet.noise import Stream, discrete_laplace
    >>> from discreet.privacy.promises import PureDP
    >>> pair = MechanismPair(
    ...     mechanism=lambda count, stream: count + discrete_laplace(10.0, 10_000, stream),
    ...     a=0, b=1, claim=PureDP(epsilon=0.1), n=10_000, name="count",
    ... )
    >>> run_audit(pair, stream=Stream.from_seed(1)).verdict
    'holds'
    """
    check_failure_probability(failure_probability, "run_audit")
    claim = getattr(subject, "claim", None)
    if claim is None:
        raise ParameterError(
            f"subject of run_audit must have a claim, and {type(subject).__name__} has none. "
            "Wrap it in a MechanismPair: a mechanism, two neighboring inputs and what is promised."
        )
    if attack is not None:
        return _run(_find_attack(attack), attack, subject, failure_probability, stream)
    fitting = [name for name, row in ATTACKS.items() if isinstance(subject, row.subject)]
    fitting = [name for name in fitting if claim.kind in ATTACKS[name].kinds]
    if not fitting:
        return AuditResult(
            attack="none",
            claim=claim,
            verdict="not tested",
            reason=f"No attack tests {claim.kind} on a {type(subject).__name__}.",
        )
    share = failure_probability / len(fitting)
    results = [_run(ATTACKS[name], name, subject, share, stream) for name in fitting]
    # Broken claims first, then the attack that came closest.
    results.sort(key=lambda result: (VERDICTS.index(result.verdict), -result.strain))
    return _add_others(results[0], results[1:], failure_probability)


def _find_attack(attack: str) -> Attack:
    """Return the entry of a name; raise ParameterError with the nearest name if there is none."""
    if attack in ATTACKS:
        return ATTACKS[attack]
    near = difflib.get_close_matches(attack, ATTACKS, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else "Leave it out to run all that fit."
    raise ParameterError(f"attack of run_audit must be one of {', '.join(ATTACKS)}, was {attack!r}. {hint}")


def _run(
    row: Attack, name: str, subject: Any, failure_probability: float, stream: Stream | None
) -> AuditResult:
    """Run one attack, or return "not tested" with the reason why it does not apply."""
    reason = None
    if not isinstance(subject, row.subject):
        reason = f"It runs on a {row.subject.__name__}, not on a {type(subject).__name__}."
    elif subject.claim.kind not in row.kinds:
        reason = f"It says nothing about {subject.claim.kind}."
    if reason is not None:
        return AuditResult(attack=name, claim=subject.claim, verdict="not tested", reason=reason)
    return row.run(subject, failure_probability, stream)


def _add_others(first: AuditResult, others: list[AuditResult], failure_probability: float) -> AuditResult:
    """Return the first result with the texts of the others and the failure probability of all of them."""
    values = first.to_dict()
    values["details"]["also"] = [str(result) for result in others]
    # An attack that draws nothing keeps its failure probability of 0.
    if first.failure_probability:
        values["failure_probability"] = failure_probability
    return AuditResult.from_dict(values)
