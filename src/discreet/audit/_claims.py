"""Promises of differential privacy, attacked on two made-up rows as far apart as the schema allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.audit._base import AuditResult, MechanismPair
from discreet.audit._bounds import check_failure_probability
from discreet.audit._distinguishing import DEFAULT_EVENTS, DP_KINDS, MOST_COORDINATES, try_events
from discreet.audit._enumeration import EveryRow, enumerated
from discreet.audit._sampler_checks import low_bits
from discreet.audit.channel import Target, noise_covariance, targets_of
from discreet.noise.stream import Stream, stream_or_fresh
from discreet.noise_law import InvariantLaw
from discreet.privacy import NoPromise, PureDP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Floats
    from discreet.audit._distinguishing import Family
    from discreet.privacy import Promise
    from discreet.release import ReleasePlan
    from discreet.schema import Column

RUNS = 20_000
"""Runs on each of the two rows; fewer where the promise covers many columns."""
_MOST_CELLS = 4_000_000
OF_NOBODY = (
    "Published rows are nobody's, so that there is no row to follow through the release: the promise is "
    "about the one model that was trained on the whole table, and is audited where models are."
)
_ATTACKS: tuple[tuple[str, tuple[Family, ...]], ...] = (
    ("distinguish", DEFAULT_EVENTS),
    ("precision", (low_bits,)),
)


def attack_claims(
    plan: ReleasePlan, *, failure_probability: float = 1e-6, stream: Stream | None = None
) -> tuple[AuditResult, ...]:
    """Tell two extreme rows apart by what ``plan`` would publish of them, for each promise that it makes.

    Of every number one row has the lower bound and the other the upper one (for correlated noise, the pair of
    corners that it separates best); of every list, the first and the last level; where a promise is about
    missing cells, one row has none and the other one. All that the promise does not cover is the same.

    Parameters
    ----------
    plan : Plan
        Of the release; nothing else of it is used than ``schema``, ``columns``, ``promises`` and ``noise``.
    failure_probability : float
        Largest probability that any true promise is called broken, over all promises and attacks.
    stream : Stream, optional
        Where the noise comes from.

    Returns
    -------
    tuple of AuditResult
        By promise: "distinguish" and "precision", each with a lower bound on epsilon beside what is claimed;
        "not tested" where no differential privacy is promised, with the plan's own reason. "Enumerate" comes
        third where a promise is pure and every row and all that can be published of it can be written down:
        it compares the published laws of all pairs of rows, exactly. Floors are left to
        :func:`~discreet.audit.attack_prior`.

    Privacy
    -------
    Depends on no row of anybody. A promise that holds here is not proven: see
    :func:`~discreet.audit._distinguishing`.

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
    tested = [pair for pair in _parts(plan) if pair[0].kind in DP_KINDS]
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
        trial = _Extremes(plan, parts).trial(promise)
        results += [try_events(trial, name, families, share, stream) for name, families in _ATTACKS]
        if isinstance(promise, PureDP) and _whole_row(plan, promise):
            exact = enumerated(EveryRow(plan=plan, claim=promise))
            results += [exact] if exact.verdict != "not tested" else []
    return tuple(results)


def _whole_row(plan: ReleasePlan, promise: Promise) -> bool:
    """Whether a promise is about all that is protected in a row, so that whole rows may be compared."""
    protected = {target.name for target in targets_of(plan) if not target.is_clear}
    return promise.covers is None or protected <= set(promise.covers)


@dataclass(frozen=True)
class _Part:
    """A cell that a promise is about: a number, a list, or the flag of a number that may be missing."""

    target: Target
    flag: bool = False

    @property
    def column(self) -> Column:
        return self.target.column


def _parts(plan: ReleasePlan) -> list[tuple[Promise, list[_Part]]]:
    """Return for each promise what it is about.

    A number that may be missing is covered twice, by the promise on numbers and by the one on lists, for
    its flag: the first promise that covers it without any list is the one on numbers.
    """
    protected = {
        t.name: t for t in targets_of(plan) if not t.is_clear and not isinstance(t.summary.law, InvariantLaw)
    }
    promised: set[str] = set()
    found: list[tuple[Promise, list[_Part]]] = []
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
            found.append((promise, parts))
    return found


@dataclass(frozen=True, eq=False)
class _Extremes:
    """Two rows that differ as much as can be in what a promise covers, and in nothing else."""

    plan: ReleasePlan
    parts: Sequence[_Part]

    def trial(self, promise: Promise) -> MechanismPair:
        allowed = self.plan.schema.max_rows_per_unit or 1
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
        middle = {c.name: 0.0 if c.is_category else c.fill for c in self.plan.schema.released}
        a, b = dict(middle), dict(middle)
        numbers = [p.column for p in self.parts if not p.flag and p.column.is_number]
        for column, up in zip(numbers, self._directions(numbers), strict=True):
            ends = column.range if up > 0 else column.range[::-1]
            a[column.name], b[column.name] = ends
        for part in self.parts:
            if part.flag:
                b[part.column.name] = np.nan
            elif part.column.is_category:
                b[part.column.name] = float(part.target.codes[-1])
        return a, b

    def _directions(self, numbers: Sequence[Column]) -> Floats:
        """Return in which direction each number goes, so that the noise hides the step least."""
        covariance = noise_covariance(self.plan, [c.name for c in numbers])
        if covariance is None:
            return np.ones(len(numbers))
        widths = np.array([c.width for c in numbers])
        strength = np.linalg.inv(covariance) * widths * widths[:, None]
        signs = np.where(np.linalg.eigh(strength)[1][:, -1] < 0, -1.0, 1.0)
        # Turn single numbers round as long as that separates the two rows further.
        for _ in range(len(signs)):
            gains = -signs * (strength @ signs) + np.diagonal(strength)
            best = int(np.argmax(gains))
            if gains[best] <= 0:
                break
            signs[best] = -signs[best]
        return signs
