"""Models that a service trains on its own database: only paid answers are learned from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ParameterError
from discreet.pipeline.training import make_learner, model_options

if TYPE_CHECKING:
    from discreet.learn import Learner
    from discreet.privacy import Promise
    from discreet.schema import Schema
    from discreet.server.api.requests import TrainRequest


def make_model(request: TrainRequest, schema: Schema, privacy: Promise | None) -> Any:
    """Make a learner, and refuse what can be refused before anything is charged."""
    known = model_options(request.kind)
    for name in request.parameters:
        # Before anything else is given by name: a parameter must not stand in for the ledger.
        if name not in known:
            raise ParameterError(
                f"parameters of {request.kind} must be among {', '.join(known)}, and {name!r} is not."
            )
    told: dict[str, Any] = dict(request.parameters)
    return make_learner(request.kind, schema=schema, privacy=privacy, **told)


def with_target(schema: Schema, target: str | None) -> Schema:
    """Return the schema with the column that is to be predicted."""
    if target is None or target == schema.target:
        return schema
    if target not in {column.name for column in schema.columns}:
        raise ParameterError(
            f"target of a model must be one of the declared columns, was {target!r}. GET /v1/schema lists "
            "them."
        )
    return schema.with_target(target)


def fitted_attributes(learner: Learner) -> dict[str, Any]:
    """Return what a model learned, as plain JSON values; nothing in it has an entry for each row."""
    found: dict[str, Any] = {}
    for name in learner._saved_attributes:
        if name in ("promises_", "receipts_") or not hasattr(learner, name):
            continue
        arrays: dict[str, Any] = {}
        packed = learner._pack(name, getattr(learner, name), arrays)
        found[name] = _to_json(arrays.get(name, packed))
    return found


def _to_json(value: Any) -> Any:
    """Return nested lists; what is no number is null."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, dict):
        return (
            value["texts"] if set(value) == {"texts"} else {key: _to_json(one) for key, one in value.items()}
        )
    if isinstance(value, list | tuple):
        return [_to_json(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
