"""Models that a service trains from paid answers of its own database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.arguments import nearest
from discreet.errors import ParameterError
from discreet.pipeline.training import make_learner, model_options

if TYPE_CHECKING:
    from discreet.learn import Learner
    from discreet.privacy import Promise
    from discreet.schema import Schema
    from discreet.server.api.requests import TrainRequest


def make_model(request: TrainRequest, schema: Schema, privacy: Promise | None) -> Any:
    """Return the learner of a request, with all its parameters checked before anything is charged."""
    names = model_options(request.kind)
    for name in request.parameters:
        # Checked before the parameters are passed by name: none may replace schema, privacy or ledger.
        if name not in names:
            close = nearest(name, names)
            raise ParameterError(
                f"Parameters of {request.kind} must be among {', '.join(names)}, and {name!r} is not."
                + ("" if close is None else f" Did you mean {close}?")
            )
    parameters: dict[str, Any] = dict(request.parameters)
    return make_learner(request.kind, schema=schema, privacy=privacy, **parameters)


def fitted_attributes(learner: Learner) -> dict[str, Any]:
    """Return the fitted attributes of a model as plain JSON values; none has one entry per row."""
    attributes: dict[str, Any] = {}
    for name in learner._saved_attributes:
        if name in ("promises_", "receipts_") or not hasattr(learner, name):
            continue
        arrays: dict[str, Any] = {}
        packed = learner._pack(name, getattr(learner, name), arrays)
        attributes[name] = _to_json(arrays.get(name, packed))
    return attributes


def _to_json(value: Any) -> Any:
    """Return a value as nested lists, with None for numbers that are not finite."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, dict):
        return (
            value["texts"] if set(value) == {"texts"} else {key: _to_json(one) for key, one in value.items()}
        )
    if isinstance(value, list | tuple):
        return [_to_json(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
