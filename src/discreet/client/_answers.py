"""Answers of a service to aggregates: one of another shape, noise or cost than was asked for is refused."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.client._arguments import PRIVACY_AMOUNTS
from discreet.errors import DiscreetError
from discreet.query.answers import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Floats
    from discreet.privacy import Promise
    from discreet.query.aggregates import BoundAggregate
    from discreet.query.calibration import QueryNoise

_ROUNDING = 1e-9  # relative; another machine may compute a standard deviation a few units differently


def read_answer(
    values: Any, bound: BoundAggregate, noise: QueryNoise, *, schema: str, refined: bool
) -> Answer | str:
    """Return an answer, or what is wrong with one that was not computed for this aggregate at this cost.

    Parameters
    ----------
    values : dict
        Answer as ``Answer.to_dict`` writes it.
    bound : BoundAggregate
        Aggregate that was asked for; it fixes the shape.
    noise : QueryNoise
        Noise that was asked for; it fixes the law, the standard deviations and the cost.
    schema : str
        Digest of the schema that the service sent before.
    refined : bool
        Whether earlier answers were merged into it, so that it is less noisy.
    """
    try:
        value, sd = (_to_floats(values[name]) for name in ("value", "sd"))
        answer = Answer.from_dict(values)
    except (KeyError, TypeError, ValueError, AttributeError, DiscreetError):
        return "an answer that cannot be read"
    expected = bound.arrange(noise.sd(bound), 0.0)
    if value.shape != bound.shape or sd.shape != bound.shape:
        return "an answer of another shape"
    if not (np.isfinite(value).all() and np.isfinite(sd).all() and (sd >= 0).all()):
        return "an answer with numbers that are none"
    # What is merged with earlier answers is less noisy than its own part, and has the law of the widest.
    fits = sd <= expected * (1 + _ROUNDING)
    if not refined:
        fits &= sd >= expected * (1 - _ROUNDING)
    if answer.law not in ((noise.law, "laplace") if refined else (noise.law,)) or not fits.all():
        return "an answer with other noise"
    if answer.receipt.schema != schema:
        return "an answer under another schema than before"
    if not _is_same_cost(answer.cost[-1:] if refined else answer.cost, noise.promise):
        return "an answer at another price"
    return dataclasses.replace(answer, labels=bound.labels)


def charged_noise(candidates: Sequence[QueryNoise], cost: Any) -> QueryNoise:
    """Return the noise of the law that a service says it charges; the first if that cannot be read."""
    kinds = [promise.get("kind") for promise in cost or () if isinstance(promise, dict)]
    return next((n for n in candidates if n.promise and kinds[-1:] == [n.promise.kind]), candidates[0])


def _is_same_cost(cost: tuple[Promise, ...], promise: Promise | None) -> bool:
    if promise is None:
        return cost == ()
    if len(cost) != 1 or type(cost[0]) is not type(promise):
        return False
    about = (cost[0].unit, cost[0].neighbors) == (promise.unit, promise.neighbors)
    numbers = [(getattr(cost[0], name), getattr(promise, name)) for name in PRIVACY_AMOUNTS[type(promise)]]
    return about and all(abs(a - b) <= _ROUNDING * b for a, b in numbers)


def _to_floats(values: Any) -> Floats:
    """Return numbers as an array; refuses texts that look like numbers."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise ValueError
    return array.astype(np.float64)
