"""The what-if table: noise, floors, epsilon and accuracy of a release with more and with less noise."""

from __future__ import annotations

import math
import time
import warnings
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import DiscreetError, DiscreetWarning, PromiseError
from discreet.noise import InRange
from discreet.noise_law import Additive, InRangeLaw, InvariantLaw, JointResponseLaw, ResponseLaw, SampledLaw
from discreet.privacy import Spending
from discreet.release.gaussian import GaussianNumbers, GaussianRelease
from discreet.release.invariant.plan import InvariantPlan
from discreet.release.table import TablePlan
from discreet.report.findings import WhatIf

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from discreet.noise_law import Law
    from discreet.release import ReleaseMethod, ReleasePlan
    from discreet.schema import Schema

FACTORS = tuple(2.0 ** (k / 2) for k in range(-6, 7))
"""Factors of the noise, from an eighth to eight."""


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
    return not isinstance(plan, InvariantPlan) or plan.learner is not None


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
