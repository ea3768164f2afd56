"""What another amount of noise would mean: noise, floors, epsilon and accuracy, side by side."""

from __future__ import annotations

import math
import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import DiscreetError, DiscreetWarning, PromiseError
from discreet.evaluation.learning import meter_for
from discreet.evaluation.samples import PairedSample
from discreet.noise import InRange, Stream
from discreet.noise_law import Additive, InRangeLaw, InvariantLaw, JointResponseLaw, ResponseLaw, SampledLaw
from discreet.privacy import Spending
from discreet.query.dummy_rows import rows_from_schema
from discreet.release.gaussian import GaussianNumbers, GaussianRelease
from discreet.release.invariant.plan import InvariantPlan, encoded_rows
from discreet.release.table import TablePlan
from discreet.report.findings import WhatIf
from discreet.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from discreet._types import AnyArray
    from discreet.noise_law import Law
    from discreet.release import ReleaseMethod, ReleasePlan
    from discreet.schema import Schema

FACTORS = tuple(2.0 ** (k / 2) for k in range(-6, 7))
"""From an eighth of the noise to eight times as much."""
MADE_UP_ROWS = 6_000
_SEED = 20_000_101  # the rows are about nobody: everybody may draw the same ones


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

    Every number gets ``factor`` times the noise; of a list the log odds of keeping a cell, and so its
    epsilon, are divided by ``factor``; the in-range mechanism divides each epsilon. An invariant release
    multiplies its standard deviation.

    Parameters
    ----------
    method : ReleaseMethod
        What was chosen.
    schema : Schema
        What was declared.
    n_rows : int
        The public number of rows.
    delta : float
        Where epsilon is read.
    accuracy : callable, optional
        Takes a plan and its factor, as :func:`~discreet.evaluation.learning.accuracy_meter` makes it.
    factors : sequence of float
        Of the noise; 1 is the release as it was chosen, and is added if it is not there.
    seconds : float
        After so long no position is added; those nearest to the chosen one come first.
    progress : callable, optional
        Told the share that is done, from 0 to 1.

    Returns
    -------
    list of WhatIf
        From the least noise to the most. A factor at which the noise cannot be drawn, or proves nothing, is
        left out; a release without a knob has the one position.

    Privacy
    -------
    Reads no row, unless ``accuracy`` does: then it is internal, and choosing by it is tuning on private data.
    """
    until = time.monotonic() + seconds
    chosen = method.plan(schema, n_rows)
    found = [_position(method, chosen, 1.0, delta, accuracy)]
    others = {float(factor) for factor in factors} - {1.0} if _has_knob(chosen) else set()
    for done, factor in enumerate(sorted(others, key=lambda factor: abs(math.log(factor)))):
        if time.monotonic() > until:
            break
        try:
            with warnings.catch_warnings():
                # The plan of the release itself has said it.
                warnings.simplefilter("ignore", DiscreetWarning)
                plan = method.scaled_plan(schema, n_rows, factor)
        except DiscreetError:
            continue
        found.append(_position(method, plan, factor, delta, accuracy))
        if progress is not None:
            progress((done + 1) / len(others))
    return sorted(found, key=lambda one: one.factor)


def plan_table(
    method: ReleaseMethod,
    schema: Schema,
    n_rows: int,
    *,
    delta: float = 1e-6,
    public_sample: Any = None,
    factors: Sequence[float] = FACTORS,
    progress: Callable[[float], None] | None = None,
) -> list[WhatIf]:
    """Return the what-if table of somebody who has not read a cell.

    Parameters
    ----------
    method, schema, n_rows, delta, factors, progress
        As of :func:`what_if`.
    public_sample : path, URL or frame, optional
        A public table with the same schema, on which accuracy is measured. Without one, it is measured on
        rows drawn from the schema with a planted rule, :data:`~discreet.query.dummy_rows.RULE`.

    Privacy
    -------
    Nothing is charged and nothing private is read: the sample must be public, because it is learned from as
    it is, and rows drawn from the schema are about nobody (their seed is a constant).
    """
    stream = Stream.from_seed(_SEED)
    if schema.target is None:
        return what_if(method, schema, n_rows, delta=delta, factors=factors, progress=progress)
    if public_sample is None:
        rows = rows_from_schema(schema, MADE_UP_ROWS, stream.derive("rows"))
    else:
        rows = _read(public_sample, schema, stream.derive("sample"))
    plan = method.plan(schema, n_rows)
    if isinstance(plan, InvariantPlan):
        rows = encoded_rows(schema, rows)
    meter = meter_for(plan, plan.truth(rows), stream=stream, seconds=60.0)
    return what_if(method, schema, n_rows, delta=delta, accuracy=meter, factors=factors, progress=progress)


def _read(public_sample: Any, schema: Schema, stream: Stream) -> dict[str, AnyArray]:
    sample = PairedSample(schema, stream)
    with open_table(public_sample) as table:
        for batch in table.batches(schema):
            sample(batch, batch)
    return sample.rows


def _has_knob(plan: ReleasePlan) -> bool:
    return not isinstance(plan, InvariantPlan) or plan.learner is not None


def _position(
    method: ReleaseMethod,
    plan: ReleasePlan,
    factor: float,
    delta: float,
    accuracy: Callable[[ReleasePlan, float], float | None] | None,
) -> WhatIf:
    noise = {s.column: _amount(s.law) for s in plan.columns}
    epsilon = epsilon_of(plan, delta)
    return WhatIf(
        factor=factor,
        noise={name: amount for name, amount in noise.items() if amount is not None},
        floors={s.column: s.floor.error for s in plan.columns if s.floor is not None},
        epsilon=epsilon,
        delta=None if epsilon is None else delta,
        accuracy=accuracy(plan, factor) if accuracy is not None else None,
        regularization=_regularization(method, plan),
    )


def epsilon_of(plan: ReleasePlan, delta: float) -> float | None:
    """Return the epsilon of everything in a row together at ``delta``; None where there is none.

    Privacy
    -------
    Of one release, planned before any answer was seen; see :class:`~discreet.privacy.Spending`.

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
    """Return the standard deviation of a number's noise, or how often a cell of a list is changed."""
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
    """Return the root-mean-square distance of a published value from the true one, over its range."""
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
    """Return lambda of ``V = Pi^(-1/2) / sqrt(lambda)``; where V has another shape, of its mean."""
    if not isinstance(method, GaussianRelease) or not isinstance(plan, TablePlan):
        return None
    if not isinstance(plan.numbers, GaussianNumbers):
        return None
    shape, covariance = method.shape(plan.numbers.columns), plan.numbers.covariance
    parts = covariance / shape if shape.ndim == 1 else np.diagonal(np.linalg.solve(shape, covariance))
    return float(np.mean(parts)) ** -2
