"""How many rows a learner needs for an epsilon, or which epsilon for the rows there are: from public facts.

What a noised table says about its label is measured by ``T2 / p``, the statistic by which noise-aware
learners decide whether to fit, over what it is by chance. Its mean follows from the noise law, the number of
rows, and one number that is not public and so is assumed: how much of the label's variance true columns
explain, each by itself, added up. (Columns that say the same are counted twice: a row that shows one of them
loses nothing by it.)
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.errors import DiscreetError, ParameterError
from discreet.evaluation.noise_aware import law_of
from discreet.learn.noise_aware.estimators import FIRM, critical_value
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
"""The part of the label's variance that true columns explain, where nothing is said: a cautious guess."""
SMALL_EPSILON, FEW_COLUMNS = 2.0, 6
"""Up to this epsilon, no more columns than this are worth their noise."""
TOGETHER = (
    "At so small an epsilon two or three columns of few values, randomized together with {target} as one "
    "answer (joint), tell more than columns and label apart."
)
_UNIFORM = 1 / 12
_MOST_ROWS = 10**15
_LEAST, _MOST = 0.01, 32.0


@dataclass(frozen=True, slots=True)
class SignalEvidence:
    """What one published row says about its label, whatever the table holds.

    Attributes
    ----------
    kept : float
        What is left of the explained share of the label's variance once noise is on it, 0 to 1.
    rank : int
        ``p``: how many directions the columns have.
    """

    kept: float
    rank: int

    def ratio(self, n_rows: float, explained: float) -> float:
        """Return the mean of ``T2 / p``."""
        return 1 + n_rows * explained * self.kept / self.rank

    def rows_for(self, ratio: float, explained: float) -> float:
        """Return how many rows have that mean."""
        return (ratio - 1) * self.rank / (explained * self.kept) if self.kept > 0 else math.inf


def signal_evidence(law: NoiseLaw) -> SignalEvidence | None:
    """Return what a row says under a law; None where it cannot be corrected for, or there is no label.

    Every column is taken to explain the same part, to be uniform on what was declared, and to be independent
    of the others.

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
    # One answer for column and label is right about both at once.
    parts = [
        (part or 0.0) * (1.0 if column.name in together else kept_label)
        for column, part in zip(law.features, kept, strict=True)
    ]
    rank = sum(len(c.levels or ()) - 1 if c.is_category else 1 + c.missing for c in law.features)
    return SignalEvidence(math.fsum(parts) / len(parts), rank)


def _kept(column: ColumnLaw) -> float | None:
    """Return which part of a column's squared correlations with others its noise leaves."""
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
    """What a learner can expect of a release.

    Attributes
    ----------
    method : str
        Of the release.
    epsilon : float or None
        That was asked for.
    n_rows, columns : int
        Of the table; the label is not counted.
    per_row : int or None
        How many columns each row shows; None for all.
    ratio : float
        The mean of ``T2 / p``.
    rows_to_rank, rows_to_learn : int or None
        From how many rows on a learner orders rows, and gives probabilities; None beyond all tables.
    epsilon_to_learn : float or None
        With which epsilon these rows would do; None where it was not asked for or none does.
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
        """What the learner does with so many rows: "ok", "ranking-only" or "refused"."""
        if self.rows_to_learn is not None and self.n_rows >= self.rows_to_learn:
            return "ok"
        ranks = self.rows_to_rank is not None and self.n_rows >= self.rows_to_rank
        return "ranking-only" if ranks else "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What to expect of the release that was asked for, and what would be better.

    Attributes
    ----------
    chosen : SampleSizeEstimate or None
        None where nothing can be said about its noise.
    best : SampleSizeEstimate
        The method that says most about the label at the same epsilon.
    columns : int
        How many columns to publish by it.
    explained : float
        What was assumed.
    sentences : tuple of str
        All of it in words.
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
    """Say what a learner can expect of a release; None where its noise or its schema does not tell.

    Parameters
    ----------
    method : ReleaseMethod
        What is asked for.
    schema : Schema
        What is declared.
    n_rows : int
        The public number of rows.
    explained : float
        Which part of the label's variance true columns are taken to explain, each by itself, added up.

    Privacy
    -------
    Reads no row: follows from the schema, the noise and the number of rows.
    """
    if not 0 < explained <= 1:
        raise ParameterError(f"explained must lie above 0 and be at most 1, was {explained!r}.")
    found = _evidence(method, schema, n_rows)
    if found is None:
        return None
    evidence, per_row = found
    classes = len(schema.column(schema.target).levels) if schema.target is not None else 0
    tests = classes if classes > 2 else 1
    by_chance = critical_value(evidence.rank, _MOST_ROWS, tests) / evidence.rank
    asked = getattr(method, "privacy", None)
    return SampleSizeEstimate(
        method=method.name,
        epsilon=getattr(asked, "epsilon", None),
        n_rows=n_rows,
        columns=len(schema.features),
        per_row=per_row,
        ratio=evidence.ratio(n_rows, explained),
        rows_to_rank=_rows(evidence.rows_for(by_chance, explained)),
        rows_to_learn=_rows(evidence.rows_for(max(FIRM, by_chance), explained)),
        epsilon_to_learn=_epsilon_for(method, schema, n_rows, explained),
    )


def _evidence(method: ReleaseMethod, schema: Schema, n_rows: int) -> tuple[SignalEvidence, int | None] | None:
    if schema.target is None:
        return None
    plan = method.plan(schema, n_rows)
    if not plan.row_level:
        return None
    found = signal_evidence(law_of(plan))
    if found is None or found.rank < 1:
        return None
    sampled = isinstance(plan, CoarsePlan) and any(cell.sampled for cell in plan.cells)
    return found, plan.picked if sampled and isinstance(plan, CoarsePlan) else None


def _rows(needed: float) -> int | None:
    """Round up to two digits: more would claim to know more."""
    if not needed < _MOST_ROWS:
        return None
    step: int = 10 ** max(0, math.floor(math.log10(max(needed, 1))) - 1)
    return max(2, math.ceil(needed / step) * step)


def _epsilon_for(method: ReleaseMethod, schema: Schema, n_rows: int, explained: float) -> float | None:
    """Find the least epsilon with which these rows are enough, by halving."""
    asked = getattr(method, "privacy", None)
    if not isinstance(asked, PureDP | ApproxDP):
        return None

    def enough(epsilon: float) -> bool:
        told = method.parameters() | {"privacy": dataclasses.replace(asked, epsilon=epsilon).to_dict()}
        try:
            found = _evidence(type(method).from_parameters(told, schema=schema), schema, n_rows)
        except DiscreetError:
            return False
        return found is not None and found[0].ratio(n_rows, explained) >= FIRM

    low, high = _LEAST, _MOST
    if not enough(high):
        return None
    while high > 1.02 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return float(f"{high * 1.005:.2g}") if enough(float(f"{high * 1.005:.2g}")) else float(f"{high:.3g}")


def recommend(
    method: ReleaseMethod, schema: Schema, n_rows: int, *, explained: float = EXPLAINED
) -> Recommendation | None:
    """Say what to expect of a release, and which method, how many columns in a row and altogether to choose.

    Parameters
    ----------
    method, schema, n_rows, explained
        As of :func:`estimate_sample_size`.

    Returns
    -------
    Recommendation or None
        None without a label, or where the method has no epsilon and nothing can be said about its noise.

    Privacy
    -------
    As of :func:`estimate_sample_size`.
    """
    chosen = estimate_sample_size(method, schema, n_rows, explained=explained)
    best, asked = chosen, getattr(method, "privacy", None)
    if isinstance(asked, PureDP | ApproxDP) and not isinstance(method, CoarseRelease):
        coarse = _coarse(method, schema, asked.epsilon)
        other = coarse and estimate_sample_size(coarse, schema, n_rows, explained=explained)
        if other and (best is None or other.ratio > best.ratio):
            best = other
    if best is None:
        return None
    columns = _columns(best)
    target = str(schema.target)
    sentences = [] if chosen is None else [_expectation(chosen, target, explained), *_needs(chosen)]
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


def _coarse(method: ReleaseMethod, schema: Schema, epsilon: float) -> CoarseRelease | None:
    label: Label = "clear" if getattr(method, "label", "") == "clear" else "randomized"
    coarse = CoarseRelease(privacy=PureDP(epsilon=epsilon), label=label, schema=schema)
    try:
        coarse.plan(schema, 1)
    except DiscreetError:
        return None  # such as shares of epsilon that only other methods know
    return coarse


def _columns(best: SampleSizeEstimate) -> int:
    """Return how many columns to publish: where all explain alike, half of them have twice the ratio."""
    firm = math.floor(best.columns * min(1.0, (best.ratio - 1) / (FIRM - 1)))
    most = FEW_COLUMNS if best.epsilon is not None and best.epsilon <= SMALL_EPSILON else best.columns
    return max(1, min(firm, most, best.columns))


def _expectation(found: SampleSizeEstimate, target: str, explained: float) -> str:
    can = {
        "ok": "can learn probabilities of it",
        "ranking-only": "can order rows by it, without probabilities",
        "refused": "has to refuse: what is left cannot be told from chance",
    }[found.status]
    at = "" if found.epsilon is None else f" at epsilon {found.epsilon:g}"
    return (
        f"If the true columns explain {explained:.0%} of the variance of {target}, each by itself and added "
        f"up, a noise-aware learner on {found.n_rows:,} rows of this {found.method} release{at} {can} (T2/p "
        f"about {found.ratio:.2g}; {FIRM:g} is needed)."
    )


def _needs(found: SampleSizeEstimate) -> list[str]:
    if found.rows_to_learn is None:
        return ["No number of rows would do with so much noise."]
    said = f"It takes about {found.rows_to_learn:,} rows to learn"
    if found.rows_to_rank is not None and found.rows_to_rank < found.rows_to_learn:
        said += f", {found.rows_to_rank:,} to order rows"
    if found.epsilon_to_learn is not None:
        said += f"; for {found.n_rows:,} rows an epsilon of about {found.epsilon_to_learn:g}"
    return [f"{said}."]


def _recommendation(best: SampleSizeEstimate, chosen: SampleSizeEstimate | None, columns: int) -> str:
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
