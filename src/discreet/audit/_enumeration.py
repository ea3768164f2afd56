"""The exact audit of small domains: the law of every published row given every true one."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.audit._base import AuditResult
from discreet.audit.targets import Target, plan_targets
from discreet.errors import ParameterError
from discreet.noise_law import JointResponseLaw, ResponseLaw, SampledLaw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Floats, Ints
    from discreet.privacy import Promise
    from discreet.release import ReleasePlan

MOST_ENTRIES = 1 << 23
"""Largest number of pairs of a true row and a published row."""


@dataclass(frozen=True, kw_only=True)
class EveryRow:
    """A plan whose protected columns are short lists, and the promise that it makes about one row.

    Parameters
    ----------
    plan : ReleasePlan
        Plan of the release, of which ``schema`` and ``columns`` are used.
    claim : Promise
        Promise about one row; where a unit has several rows, this attack uses one of them.
    name : str
        Noun for the plan in messages, such as "release".

    Privacy
    -------
    Built from public facts only.

    Reference
    ---------
    docs/explanation/theorems/coarse-response.md
    """

    plan: ReleasePlan
    claim: Promise
    name: str = "release"


@dataclass(frozen=True, slots=True, eq=False)
class RowLaw:
    """The law of a whole published row, given each true one.

    Attributes
    ----------
    columns : tuple of str
        Names of the protected columns.
    rows, outputs : array of shape (n, len(columns))
        Codes of all possible true rows, and of all possible published rows.
    chances : array of shape (len(rows), len(outputs))
        Probability of each published row given each true one.
    """

    columns: tuple[str, ...]
    rows: Ints
    outputs: Ints
    chances: Floats

    @property
    def loss(self) -> float:
        """Largest privacy loss: the logarithm of the ratio of two probabilities of one published row."""
        # The logarithm of an impossible output is -inf and its loss infinite, which no pure promise
        # allows.
        with np.errstate(divide="ignore"):
            logs = np.log(self.chances)
        worst: float = (logs.max(axis=0) - logs.min(axis=0)).max()
        return worst


def row_law(plan: ReleasePlan) -> RowLaw | None:
    """Return the law of a published row from the laws of its columns; None where the domain is too large.

    Notes
    -----
    Responses are independent of each other given the true row. If only some of them are shown, every choice
    of ``picked`` among ``among`` responses has the same probability, and a response is shown as a whole.

    Reference
    ---------
    docs/explanation/theorems/coarse-response.md
    """
    targets = [t for t in plan_targets(plan) if not t.is_clear]
    answers = _response_columns(targets)
    if not targets or answers is None:
        return None
    # Counted before anything is written down: a few lists already give more pairs than memory holds.
    size = math.prod(t.codes.size * len(t.column.levels) for t in targets)
    if size > MOST_ENTRIES:
        return None
    rows = np.array(list(itertools.product(*(t.codes for t in targets))), np.int64)
    outputs = np.array(list(itertools.product(*(range(len(t.column.levels)) for t in targets))), np.int64)
    sampled = [a for a in answers if isinstance(targets[a[0]].summary.law, SampledLaw)]
    hidden = {i: _hidden_code(targets[i]) for a in sampled for i in a}
    shown = np.array([(outputs[:, a] != [hidden[i] for i in a]).any(axis=1) for a in sampled])
    partly = np.array([(outputs[:, a] == [hidden[i] for i in a]).any(axis=1) for a in sampled])
    chances = np.ones((len(rows), len(outputs)))
    if sampled:
        law = targets[sampled[0][0]].summary.law
        assert isinstance(law, SampledLaw)
        # Published rows with another number of responses, or with a part of one, are impossible.
        possible = (shown.sum(axis=0) == law.picked) & ~(shown & partly).any(axis=0)
        # Every choice of responses is equally likely.
        chances *= possible / math.comb(law.among, law.picked)
    for answer in answers:
        law = targets[answer[0]].summary.law
        cell = law.law if isinstance(law, SampledLaw) else law
        assert isinstance(cell, ResponseLaw | JointResponseLaw)
        alike = (rows[:, None, answer] == outputs[None, :, answer]).all(axis=2)
        # Generalized randomized response: what is not kept is uniform on all other levels.
        factor = np.where(alike, cell.keep, (1 - cell.keep) / (cell.levels - 1))
        if isinstance(law, SampledLaw):
            factor = np.where((outputs[:, answer] == [hidden[i] for i in answer]).all(axis=1), 1.0, factor)
        chances *= factor
    # Published rows that no true row can give have no privacy loss.
    possible = chances.max(axis=0) > 0
    return RowLaw(tuple(t.name for t in targets), rows, outputs[possible], chances[:, possible])


def enumerate_rows(subject: EveryRow) -> AuditResult:
    """Compare every pair of rows with a promise of pure differential privacy, without drawing.

    Returns
    -------
    AuditResult
        "not tested" where a law is no randomized response, or the domain is large.

    Privacy
    -------
    Exact for the published laws. Whether the program follows them is tested by the attacks that draw.

    Reference
    ---------
    docs/explanation/theorems/coarse-response.md

    Examples
    --------
    >>> from discreet import Column, PureDP, Schema
    >>> from discreet.audit import EveryRow, run_audit
    >>> from discreet.release import CoarseRelease
    >>> schema = Schema(columns=[Column("a", values=(0, 1, 2)), Column("b", values=(0, 1))])
    >>> plan = CoarseRelease(privacy=PureDP(epsilon=1), schema=schema).plan(schema, 100)
    >>> result = run_audit(EveryRow(plan=plan, claim=plan.promises[0]))
    >>> result.verdict, round(result.measured, 6)
    ('holds', 1.0)
    """
    law = row_law(subject.plan)
    if law is None:
        return AuditResult(
            attack="enumerate",
            claim=subject.claim,
            verdict="not tested",
            reason=f"The {subject.name} has laws or lists of which not every row can be written down.",
        )
    allowed = getattr(subject.claim, "epsilon", None)
    if allowed is None:
        raise ParameterError("claim of EveryRow must have an epsilon, and has none.")
    # Bound on the rounding error of products and quotients of a few doubles.
    error = 2.0**-48 * max(1, len(law.columns))
    # The error is taken off, so that a promise that is met with equality is not called broken.
    broken = law.loss - error > allowed
    return AuditResult(
        attack="enumerate",
        claim=subject.claim,
        verdict="broken" if broken else "holds",
        reason=f"Of {len(law.rows)} rows, every pair {'does not keep' if broken else 'keeps'} the promise.",
        quantity="largest privacy loss",
        measured=law.loss,
        allowed=allowed,
        n=len(law.outputs),
        knowledge="everything but which of two rows was published, and the noise",
        details={"error": error},
    )


def _response_columns(targets: Sequence[Target]) -> list[list[int]] | None:
    """Return the column indices of each randomized response; None where there are other laws."""
    places = {target.name: i for i, target in enumerate(targets)}
    responses: dict[tuple[str, ...], list[int]] = {}
    for target in targets:
        law = target.summary.law
        cell = law.law if isinstance(law, SampledLaw) else law
        if isinstance(cell, JointResponseLaw):
            # One entry for each joint response, although every one of its columns names it.
            responses[cell.columns] = [places[name] for name in cell.columns]
        elif isinstance(cell, ResponseLaw):
            responses[(target.name,)] = [places[target.name]]
        else:
            return None
    return list(responses.values())


def _hidden_code(target: Target) -> int:
    """Return the code of "not published" of a sampled column."""
    law = target.summary.law
    assert isinstance(law, SampledLaw)
    return target.column.levels.index(law.unpublished)
