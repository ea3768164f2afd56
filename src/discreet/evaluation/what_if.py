"""What another amount of noise, or another number of rows, would give.

The what-if table has noise, floors, epsilon and accuracy of a release with more and with less noise. The
sample size is the number of rows that a learner needs at an epsilon, or the epsilon for given rows, from
public facts.

The information of a noised table about its label is measured by ``T2 / p``, the statistic by which
noise-aware learners decide whether to fit, divided by its mean under chance. Its mean follows from the noise
law, the number of rows, and one number that is not public and therefore assumed: the share of the label's
variance that the true columns explain, each by itself, added up. Correlated columns are counted twice,
because a row that shows only one of them loses nothing by it.
"""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import DiscreetError, DiscreetWarning, ParameterError, PromiseError
from discreet.evaluation.compared_rows import EXPLAINED
from discreet.evaluation.noise_aware import published_law
from discreet.learn.noise_aware.estimators import FIRM_RATIO, critical_value
from discreet.noise import InRange
from discreet.noise_law import (
    Additive,
    Clear,
    InRangeLaw,
    InvariantLaw,
    JointResponseLaw,
    ResponseLaw,
    SampledLaw,
)
from discreet.privacy import ApproxDP, PureDP, Spending
from discreet.release.gaussian import GaussianNumbers, GaussianRelease
from discreet.release.kinds import is_invariant_plan
from discreet.release.table import TablePlan
from discreet.report.findings import WhatIf

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from discreet.noise_law import ColumnLaw, Law, NoiseLaw
    from discreet.release import ReleaseMethod, ReleasePlan
    from discreet.schema import Schema

FACTORS = tuple(2.0 ** (k / 2) for k in range(-6, 7))
"""Factors of the noise, from an eighth to eight."""
_UNIFORM = 1 / 12
"""Variance of the uniform law on an interval of width 1."""
_MOST_ROWS = 10**15
_LEAST, _MOST = 0.01, 32.0
"""Epsilons between which the least sufficient one is searched."""


def what_if(
    method: ReleaseMethod,
    schema: Schema,
    n_rows: int,
    *,
    delta: float = 1e-6,
    accuracy: Callable[[ReleasePlan, float], float | None] | None = None,
    factors: Sequence[float] = FACTORS,
    seconds: float = 15.0,
    progress: Callable[[float], None] | None = None,
) -> list[WhatIf]:
    """Plan the same release with more and with less noise.

    The noise of every number is multiplied by ``factor``; for a list the log odds of keeping a cell, and so
    its epsilon, are divided by ``factor``; the in-range mechanism divides each epsilon. An invariant release
    multiplies its standard deviation.

    Parameters
    ----------
    method : ReleaseMethod
        Release method with the chosen parameters.
    schema : Schema
        Declared columns of the table.
    n_rows : int
        Public number of rows of the table.
    delta : float
        Delta at which epsilon is stated.
    accuracy : callable, optional
        Function from a plan and its factor to an accuracy, such as
        :func:`~discreet.evaluation.learning.accuracy_meter` returns; None to leave accuracies out.
    factors : sequence of float
        Factors of the noise; 1, the release as it was chosen, is always included.
    seconds : float
        Time in seconds after which no entry is added; those nearest to the chosen one come first.
    progress : callable, optional
        Function called with the share that is done, from 0 to 1.

    Returns
    -------
    list of WhatIf
        From the least noise to the most. A factor at which the noise cannot be drawn, or proves nothing, is
        left out; a release whose noise cannot be scaled has the one entry.

    Privacy
    -------
    Reads no row, unless ``accuracy`` does: then it is internal, and choosing by it is tuning on private data.
    """
    deadline = time.monotonic() + seconds
    chosen = method.plan(schema, n_rows)
    entries = [_entry(method, chosen, 1.0, delta, accuracy)]
    others = {float(factor) for factor in factors} - {1.0} if _is_scalable(chosen) else set()
    # Nearest to the chosen noise first, by ratio: where time runs out, the far ones are missing.
    for done, factor in enumerate(sorted(others, key=lambda factor: abs(math.log(factor)))):
        if time.monotonic() > deadline:
            break
        try:
            with warnings.catch_warnings():
                # The chosen plan has already given these warnings.
                warnings.simplefilter("ignore", DiscreetWarning)
                plan = method.scaled_plan(schema, n_rows, factor)
        except DiscreetError:
            continue
        entries.append(_entry(method, plan, factor, delta, accuracy))
        if progress is not None:
            progress((done + 1) / len(others))
    return sorted(entries, key=lambda entry: entry.factor)


def _is_scalable(plan: ReleasePlan) -> bool:
    """Return whether the amount of noise of a plan can be changed."""
    return not is_invariant_plan(plan) or plan.learner is not None


def _entry(
    method: ReleaseMethod,
    plan: ReleasePlan,
    factor: float,
    delta: float,
    accuracy: Callable[[ReleasePlan, float], float | None] | None,
) -> WhatIf:
    """Return the entry of one factor: noise and floor of each column, epsilon at delta, and accuracy."""
    noise = {s.column: _amount(s.law) for s in plan.columns}
    epsilon = plan_epsilon(plan, delta)
    return WhatIf(
        factor=factor,
        noise={name: amount for name, amount in noise.items() if amount is not None},
        floors={s.column: s.floor.error for s in plan.columns if s.floor is not None},
        epsilon=epsilon,
        delta=None if epsilon is None else delta,
        accuracy=accuracy(plan, factor) if accuracy is not None else None,
        regularization=_regularization(method, plan),
    )


def plan_epsilon(plan: ReleasePlan, delta: float) -> float | None:
    """Return the epsilon at ``delta`` of all promises of a plan together; None where there is none.

    Privacy
    -------
    Holds for one release that is planned in advance; see :class:`~discreet.privacy.Spending`.

    Reference
    ---------
    docs/explanation/theorems/composition.md
    """
    spent = Spending.from_promises(plan.promises)
    if spent.unpromised:
        return None
    try:
        return spent.epsilon_at(delta)
    except PromiseError:
        return None


def _amount(law: Law) -> float | None:
    """Return the standard deviation of a number's noise, or the probability that a list's cell changes."""
    match law:
        case Additive():
            return math.sqrt(law.variance)
        case ResponseLaw() | JointResponseLaw():
            return 1 - law.keep
        case SampledLaw():
            return _amount(law.law)
        case InvariantLaw():
            return None if law.variance is None else math.sqrt(law.variance)
        case InRangeLaw():
            return _in_range_error(law)
    return None


def _in_range_error(law: InRangeLaw) -> float:
    """Return the root-mean-square distance of a published value from the true one, uniform on the range."""
    table = InRange(
        lower=law.lower,
        upper=law.upper,
        regularization=law.regularization,
        inputs=law.inputs,
        cells=law.cells,
    )
    squares = (table.grid[:, None] - table.outputs) ** 2
    return math.sqrt(float(np.mean(np.sum(table.masses * 2.0**-63 * squares, axis=1))))


def _regularization(method: ReleaseMethod, plan: ReleasePlan) -> float | None:
    """Return the regularization lambda of Gaussian noise; None for other noise.

    Notes
    -----
    The covariance is ``V = Pi^(-1/2) / sqrt(lambda)``. Where V has another shape, lambda follows from the
    mean of the diagonal of ``Pi^(1/2) V``.
    """
    if not isinstance(method, GaussianRelease) or not isinstance(plan, TablePlan):
        return None
    if not isinstance(plan.numbers, GaussianNumbers):
        return None
    shape, covariance = method.shape(plan.numbers.columns), plan.numbers.covariance
    parts = covariance / shape if shape.ndim == 1 else np.diagonal(np.linalg.solve(shape, covariance))
    # V / Pi^(-1/2) is lambda^(-1/2).
    return float(np.mean(parts)) ** -2


@dataclass(frozen=True, slots=True)
class SignalEvidence:
    """Information of one published row about its label, by the noise law only.

    Attributes
    ----------
    kept : float
        Share of the explained variance of the label that the noise leaves, from 0 to 1.
    rank : int
        Number ``p`` of directions of the columns: 1 for a number, levels less one for a list.
    """

    kept: float
    rank: int

    def ratio(self, n_rows: float, explained: float) -> float:
        """Return the mean of ``T2 / p``, which is ``1 + n explained kept / p``."""
        return 1 + n_rows * explained * self.kept / self.rank

    def rows_for(self, ratio: float, explained: float) -> float:
        """Return the number of rows with a given mean of ``T2 / p``; infinite if nothing is left."""
        return (ratio - 1) * self.rank / (explained * self.kept) if self.kept > 0 else math.inf


def signal_evidence(law: NoiseLaw) -> SignalEvidence | None:
    """Return the information of a row under a law; None without a label or a law to correct for.

    Notes
    -----
    Every column is assumed to explain the same share, to be uniform on its declared values, and to be
    independent of the others. ``kept`` is the mean over columns of ``k_column k_label``, with ``k`` as of
    :func:`_kept`; a joint response of column and label counts once.

    Reference
    ---------
    docs/explanation/theorems/noise-aware.md

    Examples
    --------
    >>> from discreet.noise_law import Clear, ColumnLaw, GaussianLaw, NoiseLaw
    >>> noise = GaussianLaw(variance=16.0)
    >>> numbers = [ColumnLaw(name=f"x{j}", lower=0, upper=1, law=noise) for j in range(14)]
    >>> label = ColumnLaw(name="y", type="category", levels=(0, 1), role="target", law=Clear())
    >>> evidence = signal_evidence(NoiseLaw(columns=[*numbers, label]))
    >>> evidence.rank, round(evidence.ratio(32561, 0.33), 1)
    (14, 5.0)
    """
    label = law.label
    if label is None or not law.features:
        return None
    kept_label = _kept(label)
    kept = [_kept(column) for column in law.features]
    if kept_label is None or any(part is None for part in kept):
        return None
    together = label.cell_law.columns if isinstance(label.cell_law, JointResponseLaw) else ()
    # A joint response keeps column and label together, so that the label's own factor does not apply.
    parts = [
        (part or 0.0) * (1.0 if column.name in together else kept_label)
        for column, part in zip(law.features, kept, strict=True)
    ]
    rank = sum(len(c.levels or ()) - 1 if c.is_category else 1 + c.missing for c in law.features)
    return SignalEvidence(math.fsum(parts) / len(parts), rank)


def _kept(column: ColumnLaw) -> float | None:
    """Return the share of a column's squared correlations with others that its noise leaves.

    Notes
    -----
    A list with randomized response: ``(keep - other)**2``. A number with variance ``s`` and noise variance
    ``v``: ``s / (s + v)``, with s that of the uniform law on the declared range. Both times the share of rows
    that show the cell. None for laws that a learner cannot correct for.
    """
    law = column.cell_law
    share = column.law.share if isinstance(column.law, SampledLaw) else 1.0
    if isinstance(law, Clear):
        return share
    if isinstance(law, ResponseLaw | JointResponseLaw):
        gap = law.keep - (1 - law.keep) / (law.levels - 1)
        return share * gap**2
    if isinstance(law, Additive) and not law.clamped and law.grid is None:
        variance = _UNIFORM * column.width**2
        return share * variance / (variance + law.variance)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSizeEstimate:
    """Estimate of what a noise-aware learner can do with a release.

    Attributes
    ----------
    method : str
        Name of the release method.
    epsilon : float or None
        Requested epsilon; None for a method without one.
    n_rows : int
        Number of rows of the table.
    target : str
        Name of the column that is learned.
    explained : float
        Assumed share of the target's variance that the true columns explain.
    ratio : float
        Expected value of ``T2 / p`` with these rows.
    rows_to_rank, rows_to_learn : int or None
        Number of rows from which on a learner orders rows, and gives probabilities; None beyond all tables.
    epsilon_to_learn : float or None
        Least epsilon with which these rows are enough; None where the method has no epsilon or none is.
    """

    method: str
    epsilon: float | None
    n_rows: int
    target: str
    explained: float
    ratio: float
    rows_to_rank: int | None
    rows_to_learn: int | None
    epsilon_to_learn: float | None = None

    @property
    def status(self) -> str:
        """Status of a learner fitted to these rows: "ok", "ranking-only" or "refused"."""
        if self.rows_to_learn is not None and self.n_rows >= self.rows_to_learn:
            return "ok"
        ranks = self.rows_to_rank is not None and self.n_rows >= self.rows_to_rank
        return "ranking-only" if ranks else "refused"

    @property
    def sentences(self) -> tuple[str, str]:
        """What a learner can do with these rows, and the rows or the epsilon that it needs."""
        return _expectation(self), _requirements(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return dataclasses.asdict(self) | {"status": self.status, "sentences": list(self.sentences)}


def estimate_sample_size(
    method: ReleaseMethod, schema: Schema, n_rows: int, *, explained: float = EXPLAINED
) -> SampleSizeEstimate | None:
    """Estimate what a learner can do with a release; None without a label or a law it can correct for.

    Parameters
    ----------
    method : ReleaseMethod
        Release method with its privacy parameters.
    schema : Schema
        Declared columns of the table, with a target.
    n_rows : int
        Public number of rows of the table.
    explained : float
        Assumed share of the label's variance that the true columns explain, each by itself, added up.

    Privacy
    -------
    Reads no row: follows from the schema, the noise and the number of rows.
    """
    if not 0 < explained <= 1:
        raise ParameterError(f"explained must lie above 0 and be at most 1, was {explained!r}.")
    evidence = _planned_evidence(method, schema, n_rows)
    if evidence is None or schema.target is None:
        return None
    classes = len(schema.column(schema.target).levels)
    tests = classes if classes > 2 else 1
    # A learner of more than two classes tests each of them against the rest.
    # With so many rows the critical value is that of the chi-square limit.
    by_chance = critical_value(evidence.rank, _MOST_ROWS, tests) / evidence.rank
    privacy = getattr(method, "privacy", None)
    return SampleSizeEstimate(
        method=method.name,
        epsilon=getattr(privacy, "epsilon", None),
        n_rows=n_rows,
        target=schema.target,
        explained=explained,
        ratio=evidence.ratio(n_rows, explained),
        rows_to_rank=_round_rows(evidence.rows_for(by_chance, explained)),
        rows_to_learn=_round_rows(evidence.rows_for(max(FIRM_RATIO, by_chance), explained)),
        epsilon_to_learn=_least_epsilon(method, schema, n_rows, explained),
    )


def _planned_evidence(method: ReleaseMethod, schema: Schema, n_rows: int) -> SignalEvidence | None:
    """Plan a release and return its information by row; None where a learner cannot correct for its noise."""
    if schema.target is None:
        return None
    plan = method.plan(schema, n_rows)
    evidence = signal_evidence(published_law(plan)) if plan.row_level else None
    return evidence if evidence is not None and evidence.rank >= 1 else None


def _round_rows(needed: float) -> int | None:
    """Return a number of rows rounded up to two digits, which is all the estimate supports; None if huge."""
    if not needed < _MOST_ROWS:
        return None
    step: int = 10 ** max(0, math.floor(math.log10(max(needed, 1))) - 1)
    return max(2, math.ceil(needed / step) * step)


def _least_epsilon(method: ReleaseMethod, schema: Schema, n_rows: int, explained: float) -> float | None:
    """Return the least epsilon with which these rows are enough, by bisection on a log scale."""
    privacy = getattr(method, "privacy", None)
    if not isinstance(privacy, PureDP | ApproxDP):
        return None

    def is_enough(epsilon: float) -> bool:
        other = dataclasses.replace(privacy, epsilon=epsilon)
        parameters = method.parameters() | {"privacy": other.to_dict()}
        try:
            scaled = type(method).from_parameters(parameters, schema=schema)
            planned = _planned_evidence(scaled, schema, n_rows)
        except DiscreetError:
            return False
        return planned is not None and planned.ratio(n_rows, explained) >= FIRM_RATIO

    low, high = _LEAST, _MOST
    if not is_enough(high):
        return None
    while high > 1.02 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    # Two digits, unless the rounded epsilon is too small.
    return float(f"{high * 1.005:.2g}") if is_enough(float(f"{high * 1.005:.2g}")) else float(f"{high:.3g}")


def _expectation(estimate: SampleSizeEstimate) -> str:
    """Return the sentence on what a learner can do with these rows."""
    can = {
        "ok": "can learn probabilities of it",
        "ranking-only": "can order rows by it, without probabilities",
        "refused": "has to refuse: what is left cannot be distinguished from chance",
    }[estimate.status]
    at = "" if estimate.epsilon is None else f" at epsilon {estimate.epsilon:g}"
    return (
        f"If the true columns explain {estimate.explained:.0%} of the variance of {estimate.target}, each by "
        f"itself and added up, a noise-aware learner on {estimate.n_rows:,} rows of this {estimate.method} "
        f"release{at} {can} "
        f"(T2/p about {estimate.ratio:.2g}; {FIRM_RATIO:g} is needed)."
    )


def _requirements(estimate: SampleSizeEstimate) -> str:
    """Return the sentence on the rows, or the epsilon, that a learner needs."""
    if estimate.rows_to_learn is None:
        return "No number of rows would do with so much noise."
    sentence = f"It takes about {estimate.rows_to_learn:,} rows to learn"
    if estimate.rows_to_rank is not None and estimate.rows_to_rank < estimate.rows_to_learn:
        sentence += f", {estimate.rows_to_rank:,} to order rows"
    if estimate.epsilon_to_learn is not None:
        sentence += f"; for {estimate.n_rows:,} rows an epsilon of about {estimate.epsilon_to_learn:g}"
    return f"{sentence}."
