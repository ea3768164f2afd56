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
from discreet.release import CoarseRelease
from discreet.release.coarse import CoarsePlan

if TYPE_CHECKING:
    from discreet.noise_law import ColumnLaw, NoiseLaw
    from discreet.release import ReleaseMethod
    from discreet.release.table import Label
    from discreet.schema import Schema

EXPLAINED = 0.25
"""Default share of the label's variance that the true columns explain: a cautious guess."""
SMALL_EPSILON, FEW_COLUMNS = 2.0, 6
"""Up to this epsilon, no more columns than this are worth their noise."""
TOGETHER = (
    "At so small an epsilon two or three columns of few values, randomized together with {target} as one "
    "answer (joint), tell more than columns and label apart."
)
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
    n_rows, columns : int
        Number of rows and of feature columns of the table; the label is not counted.
    per_row : int or None
        Number of columns that each row shows; None for all.
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
    columns: int
    per_row: int | None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """Estimate for the chosen release, and the method and number of columns that would be better.

    Attributes
    ----------
    chosen : SampleSizeEstimate or None
        Estimate for the chosen method; None where a learner cannot correct for its noise.
    best : SampleSizeEstimate
        Estimate for the most informative method at the same epsilon.
    columns : int
        Number of columns to publish by the best method.
    explained : float
        Assumed share of the label's variance that the columns explain.
    sentences : tuple of str
        The recommendation in sentences, for the user.
    """

    chosen: SampleSizeEstimate | None
    best: SampleSizeEstimate
    columns: int
    explained: float
    sentences: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return dataclasses.asdict(self)


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
    planned = _planned_evidence(method, schema, n_rows)
    if planned is None:
        return None
    evidence, per_row = planned
    classes = len(schema.column(schema.target).levels) if schema.target is not None else 0
    tests = classes if classes > 2 else 1
    # A learner of more than two classes tests each of them against the rest.
    # With so many rows the critical value is that of the chi-square limit.
    by_chance = critical_value(evidence.rank, _MOST_ROWS, tests) / evidence.rank
    privacy = getattr(method, "privacy", None)
    return SampleSizeEstimate(
        method=method.name,
        epsilon=getattr(privacy, "epsilon", None),
        n_rows=n_rows,
        columns=len(schema.features),
        per_row=per_row,
        ratio=evidence.ratio(n_rows, explained),
        rows_to_rank=_round_rows(evidence.rows_for(by_chance, explained)),
        rows_to_learn=_round_rows(evidence.rows_for(max(FIRM_RATIO, by_chance), explained)),
        epsilon_to_learn=_least_epsilon(method, schema, n_rows, explained),
    )


def _planned_evidence(
    method: ReleaseMethod, schema: Schema, n_rows: int
) -> tuple[SignalEvidence, int | None] | None:
    """Plan a release; return its information by row and the number of columns in a row (None for all)."""
    if schema.target is None:
        return None
    plan = method.plan(schema, n_rows)
    if not plan.row_level:
        return None
    evidence = signal_evidence(published_law(plan))
    if evidence is None or evidence.rank < 1:
        return None
    sampled = isinstance(plan, CoarsePlan) and any(cell.sampled for cell in plan.cells)
    return evidence, plan.picked if sampled and isinstance(plan, CoarsePlan) else None


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
        return planned is not None and planned[0].ratio(n_rows, explained) >= FIRM_RATIO

    low, high = _LEAST, _MOST
    if not is_enough(high):
        return None
    while high > 1.02 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    # Two digits, unless the rounded epsilon is too small.
    return float(f"{high * 1.005:.2g}") if is_enough(float(f"{high * 1.005:.2g}")) else float(f"{high:.3g}")


def recommend(
    method: ReleaseMethod, schema: Schema, n_rows: int, *, explained: float = EXPLAINED
) -> Recommendation | None:
    """Estimate what a learner can do with a release, and recommend a method and a number of columns.

    Parameters
    ----------
    method, schema, n_rows, explained
        As for :func:`estimate_sample_size`.

    Returns
    -------
    Recommendation or None
        None without a label, or where the method has no epsilon and its noise cannot be corrected for.

    Privacy
    -------
    As for :func:`estimate_sample_size`.
    """
    chosen = estimate_sample_size(method, schema, n_rows, explained=explained)
    best, privacy = chosen, getattr(method, "privacy", None)
    if isinstance(privacy, PureDP | ApproxDP) and not isinstance(method, CoarseRelease):
        coarse = _coarse_release(method, schema, privacy.epsilon)
        other = coarse and estimate_sample_size(coarse, schema, n_rows, explained=explained)
        # Only a more informative method is recommended in place of the chosen one.
        if other and (best is None or other.ratio > best.ratio):
            best = other
    if best is None:
        return None
    columns = _recommended_columns(best)
    target = str(schema.target)
    sentences = [] if chosen is None else [_expectation(chosen, target, explained), *_requirements(chosen)]
    sentences.append(_recommendation(best, chosen, columns))
    small = best.method == CoarseRelease.name and (best.epsilon or math.inf) <= SMALL_EPSILON
    if small and getattr(method, "label", "clear") != "clear" and not getattr(method, "joint", None):
        sentences.append(TOGETHER.format(target=target))
    return Recommendation(
        chosen=chosen,
        best=best,
        columns=columns,
        explained=explained,
        sentences=tuple(sentences),
    )


def _coarse_release(method: ReleaseMethod, schema: Schema, epsilon: float) -> CoarseRelease | None:
    """Return the coarse release with the same epsilon and label; None where it cannot be planned."""
    label: Label = "clear" if getattr(method, "label", "") == "clear" else "randomized"
    coarse = CoarseRelease(privacy=PureDP(epsilon=epsilon), label=label, schema=schema)
    try:
        coarse.plan(schema, 1)
    except DiscreetError:
        return None  # for example shares of epsilon that only other methods support
    return coarse


def _recommended_columns(best: SampleSizeEstimate) -> int:
    """Return the number of columns to publish.

    Notes
    -----
    Where all columns explain the same, ``ratio - 1`` is inversely proportional to their number, so the share
    ``(ratio - 1) / (FIRM - 1)`` of them reaches the ratio at which a learner gives probabilities.
    """
    firm = math.floor(best.columns * min(1.0, (best.ratio - 1) / (FIRM_RATIO - 1)))
    most = FEW_COLUMNS if best.epsilon is not None and best.epsilon <= SMALL_EPSILON else best.columns
    return max(1, min(firm, most, best.columns))


def _expectation(estimate: SampleSizeEstimate, target: str, explained: float) -> str:
    """Return the sentence on what a learner can do with these rows."""
    can = {
        "ok": "can learn probabilities of it",
        "ranking-only": "can order rows by it, without probabilities",
        "refused": "has to refuse: what is left cannot be distinguished from chance",
    }[estimate.status]
    at = "" if estimate.epsilon is None else f" at epsilon {estimate.epsilon:g}"
    return (
        f"If the true columns explain {explained:.0%} of the variance of {target}, each by itself and added "
        f"up, a noise-aware learner on {estimate.n_rows:,} rows of this {estimate.method} release{at} {can} "
        f"(T2/p about {estimate.ratio:.2g}; {FIRM_RATIO:g} is needed)."
    )


def _requirements(estimate: SampleSizeEstimate) -> list[str]:
    """Return the sentence on the rows, or the epsilon, that a learner needs."""
    if estimate.rows_to_learn is None:
        return ["No number of rows would do with so much noise."]
    sentence = f"It takes about {estimate.rows_to_learn:,} rows to learn"
    if estimate.rows_to_rank is not None and estimate.rows_to_rank < estimate.rows_to_learn:
        sentence += f", {estimate.rows_to_rank:,} to order rows"
    if estimate.epsilon_to_learn is not None:
        sentence += f"; for {estimate.n_rows:,} rows an epsilon of about {estimate.epsilon_to_learn:g}"
    return [f"{sentence}."]


def _recommendation(best: SampleSizeEstimate, chosen: SampleSizeEstimate | None, columns: int) -> str:
    """Return the sentence that names method and number of columns."""
    better = chosen is None or best.method != chosen.method
    shown = ""
    if best.per_row is not None and columns > best.per_row:
        shown = f", {best.per_row} of them shown in each row"
    which = f"all {columns} columns" if columns == best.columns else f"the {columns} most telling columns"
    which = which if columns > 1 else "the most telling column alone"
    reason = ""
    if better:
        reason = f" (T2/p about {best.ratio:.2g})"
    chosen_publicly = "" if columns == best.columns else ", chosen by what is publicly known"
    return f"Recommended: method {best.method}{reason} with {which}{chosen_publicly}{shown}."
