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

:func:`attack_claims` attacks what a release promises, with two made-up rows as far apart as possible.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.arguments import checked_arguments
from discreet.audit._base import VERDICTS, AuditResult, MechanismDraws, MechanismPair, SingleDraws
from discreet.audit._bounds import check_failure_probability
from discreet.audit._density import LawPair, density
from discreet.audit._distinguishing import DEFAULT_EVENTS, DP_KINDS, MOST_COORDINATES, try_events
from discreet.audit._enumeration import EveryRow, enumerate_rows
from discreet.audit._prior import PlannedAttacks, attack_floor
from discreet.audit._sampler_checks import check_timing, low_bits, position
from discreet.audit.targets import Target, noise_covariance, plan_targets
from discreet.errors import ParameterError
from discreet.noise.stream import Stream, stream_or_fresh
from discreet.noise_law import InvariantLaw
from discreet.privacy import NoPromise, PureDP
from discreet.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from discreet._types import AnyArray, Floats
    from discreet.audit._distinguishing import Family
    from discreet.privacy import Promise
    from discreet.release import ReleasePlan
    from discreet.schema import Column

RUNS = 20_000
"""Number of runs on each of the two rows; fewer where the promise covers many columns."""
_MOST_CELLS = 4_000_000
OF_NOBODY = (
    "Published rows belong to no real person, so no row can be followed through the release: the promise "
    "is about the one model that was trained on the whole table, and is audited with the models."
)
_ATTACKS: tuple[tuple[str, tuple[Family, ...]], ...] = (
    ("distinguish", DEFAULT_EVENTS),
    ("precision", (low_bits,)),
)
_EVERY_KIND = frozenset({*DP_KINDS, "error-floor"})


@one_thread()
def attack_claims(
    plan: ReleasePlan, *, failure_probability: float = 1e-6, stream: Stream | None = None
) -> tuple[AuditResult, ...]:
    """Try to distinguish two extreme rows by their published forms, for each promise of a plan.

    For every number one row has the lower bound and the other the upper one (for correlated noise, the pair
    of corners that it separates best); for every list, the first and the last level; where a promise is about
    missing cells, one row has a value and the other has none. Both rows are equal in everything that the
    promise does not cover.

    Parameters
    ----------
    plan : ReleasePlan
        Plan of the release, of which ``schema``, ``columns``, ``promises`` and ``noise`` are used.
    failure_probability : float
        Largest probability that any true promise is called broken, over all promises and attacks.
    stream : Stream, optional
        Source of the noise; a fresh one by default.

    Returns
    -------
    tuple of AuditResult
        For each promise "distinguish" and "precision", each with a lower bound on epsilon; "not tested" where
        no differential privacy is promised, with the plan's own reason. A third result, "enumerate", comes
        where a promise is pure and the domain is small: it compares the published laws of all pairs of rows,
        exactly. Floors are tested by :func:`~discreet.audit.attack_prior`.

    Privacy
    -------
    Depends on no real row. A promise that holds here is not proven: see
    :mod:`discreet.audit._distinguishing`.

    Reference
    ---------
    Clopper and Pearson (1934); Jagielski, Ullman and Oprea (2020), for auditing.

    Examples
    --------
    >>> from discreet import ApproxDP, Column, GaussianRelease, Schema
    >>> from discreet.audit import attack_claims
    >>> from discreet.noise import Stream
    >>> schema = Schema(columns=[Column("age", lower=0, upper=100)])
    >>> plan = GaussianRelease(privacy=ApproxDP(epsilon=2, delta=1e-6), schema=schema).plan(schema, 1000)
    >>> [(r.attack, r.verdict) for r in attack_claims(plan, stream=Stream.from_seed(1))]
    [('distinguish', 'holds'), ('precision', 'holds')]
    """
    check_failure_probability(failure_probability, "attack_claims")
    if not plan.row_level:
        return tuple(
            AuditResult(attack="none", claim=promise, verdict="not tested", reason=OF_NOBODY)
            for promise in plan.promises
        )
    stream = stream_or_fresh(stream)
    tested = [pair for pair in _covered_parts(plan) if pair[0].kind in DP_KINDS]
    # Union bound over promises and attacks; "enumerate" draws nothing and needs no share.
    share = failure_probability / max(1, len(tested) * len(_ATTACKS))
    results = [
        AuditResult(
            attack="none",
            claim=promise,
            verdict="not tested",
            reason=f"No differential privacy is promised here: {promise.reason}.",
        )
        for promise in plan.promises
        if isinstance(promise, NoPromise)
    ]
    for promise, parts in tested:
        trial = _ExtremeRows(plan, parts).mechanism_pair(promise)
        results += [try_events(trial, name, families, share, stream) for name, families in _ATTACKS]
        if isinstance(promise, PureDP) and _covers_row(plan, promise):
            exact = enumerate_rows(EveryRow(plan=plan, claim=promise))
            results += [exact] if exact.verdict != "not tested" else []
    return tuple(results)


def _covers_row(plan: ReleasePlan, promise: Promise) -> bool:
    """Return whether a promise covers every protected column, so that whole rows may be compared."""
    protected = {target.name for target in plan_targets(plan) if not target.is_clear}
    return promise.covers is None or protected <= set(promise.covers)


@dataclass(frozen=True)
class _Part:
    """A cell that a promise covers: a number, a list, or with ``flag`` the missing flag of a number."""

    target: Target
    flag: bool = False

    @property
    def column(self) -> Column:
        return self.target.column


def _covered_parts(plan: ReleasePlan) -> list[tuple[Promise, list[_Part]]]:
    """Return each promise with the cells that it covers.

    Notes
    -----
    A number that may be missing is covered twice: by the promise about numbers, and, with its flag, by the
    one about lists. The first promise that covers it without any list is the one about numbers.
    """
    protected = {
        # Noise with invariants depends on the whole table, so that no single row can be followed.
        t.name: t
        for t in plan_targets(plan)
        if not t.is_clear and not isinstance(t.summary.law, InvariantLaw)
    }
    promised: set[str] = set()
    pairs: list[tuple[Promise, list[_Part]]] = []
    for promise in plan.promises:
        if promise.kind not in DP_KINDS and not isinstance(promise, NoPromise):
            continue
        covered = [t for name, t in protected.items() if promise.covers is None or name in promise.covers]
        numbers = [t for t in covered if not t.is_list]
        whole_row = promise.covers is None or len(covered) == len(protected)
        lists = len(numbers) < len(covered)
        flags_only = all(t.missing_keep is not None for t in numbers) and (
            bool(promised & {t.name for t in numbers}) or (lists and not whole_row)
        )
        parts = [_Part(t, flag=flags_only and not t.is_list) for t in covered]
        if not flags_only:
            promised |= {t.name for t in numbers}
        if parts:
            pairs.append((promise, parts))
    return pairs


@dataclass(frozen=True, eq=False)
class _ExtremeRows:
    """Two rows that differ as much as possible in the cells that a promise covers, and in nothing else."""

    plan: ReleasePlan
    parts: Sequence[_Part]

    def mechanism_pair(self, promise: Promise) -> MechanismPair:
        """Return the release of all rows of one unit as a mechanism on the two rows."""
        allowed = self.plan.schema.max_rows_per_unit or 1
        # A promise covers all rows of a unit, so one output holds as many of them as the attack can use.
        rows = max(1, min(allowed, MOST_COORDINATES // len(self.parts)))
        runs = max(2_000, min(RUNS, _MOST_CELLS // (rows * len(self.plan.schema.released))))
        a, b = self._corners()

        def mechanism(given: dict[str, float], stream: Stream) -> AnyArray:
            copies = {
                c.name: np.full(runs * rows, given[c.name], np.int64 if c.is_category else np.float64)
                for c in self.plan.schema.released
            }
            drawn = self.plan.noise(copies, stream)
            cells = [np.isnan(drawn[p.column.name]) if p.flag else drawn[p.column.name] for p in self.parts]
            return np.column_stack(cells).astype(np.float64).reshape(runs, -1)

        return MechanismPair(mechanism=mechanism, a=a, b=b, claim=promise, n=runs, name="release")

    def _corners(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the two rows, by column; NaN stands for a missing number."""
        # Both rows are equal elsewhere: to tell them apart by a column that is not covered breaks
        # nothing.
        middle = {c.name: 0.0 if c.is_category else c.fill for c in self.plan.schema.released}
        a, b = dict(middle), dict(middle)
        numbers = [p.column for p in self.parts if not p.flag and p.column.is_number]
        for column, up in zip(numbers, self._directions(numbers), strict=True):
            ends = column.range if up > 0 else column.range[::-1]
            a[column.name], b[column.name] = ends
        for part in self.parts:
            if part.flag:
                # From a value to none, because the flag is what this promise hides.
                b[part.column.name] = np.nan
            elif part.column.is_category:
                b[part.column.name] = float(part.target.codes[-1])
        return a, b

    def _directions(self, numbers: Sequence[Column]) -> Floats:
        """Return signs s of the steps of the numbers for which the noise hides the step least.

        Notes
        -----
        Maximizes ``d' V^-1 d`` over ``d_j = s_j width_j``, with ``V`` the covariance of the noise: the signs
        of the top eigenvector, then single flips as long as they help.
        """
        covariance = noise_covariance(self.plan, [c.name for c in numbers])
        if covariance is None:
            return np.ones(len(numbers))
        widths = np.array([c.width for c in numbers])
        strength = np.linalg.inv(covariance) * widths * widths[:, None]
        # The best real vector, rounded to signs, is a good start for the search over signs.
        signs = np.where(np.linalg.eigh(strength)[1][:, -1] < 0, -1.0, 1.0)
        # A quarter of the change of the quadratic form when one sign is flipped.
        for _ in range(len(signs)):
            gains = -signs * (strength @ signs) + np.diagonal(strength)
            best = int(np.argmax(gains))
            if gains[best] <= 0:
                break
            signs[best] = -signs[best]
        return signs


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
    # Union bound: no more than the whole failure probability, however the attacks depend on each other.
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
