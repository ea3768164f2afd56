"""Sample size: the rows that a learner needs at an epsilon, or the epsilon for given rows, from public facts.

The information of a noised table about its label is measured by ``T2 / p``, the statistic by which
noise-aware learners decide whether to fit, divided by its mean under chance. Its mean follows from the noise
law, the number of rows, and one number that is not public and therefore assumed: the share of the label's
variance that the true columns explain, each by itself, added up. Correlated columns are counted twice,
because a row that shows only one of them loses nothing by it.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.errors import DiscreetError, ParameterError
from discreet.evaluation.noise_aware import published_law
from discreet.learn.noise_aware.estimators import FIRM_RATIO, critical_value
from discreet.noise_law import Additive, Clear, JointResponseLaw, ResponseLaw, SampledLaw
from discreet.privacy import ApproxDP, PureDP

if TYPE_CHECKING:
    from discreet.noise_law import ColumnLaw, NoiseLaw
    from discreet.release import ReleaseMethod
    from discreet.schema import Schema

EXPLAINED = 0.25
"""Default share of the label's variance that the true columns explain: a cautious guess."""
_UNIFORM = 1 / 12
"""Variance of the uniform law on an interval of width 1."""
_MOST_ROWS = 10**15
_LEAST, _MOST = 0.01, 32.0
"""Epsilons between which the least sufficient one is searched."""


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
