"""What training a model would ask and cost, without reading a cell or charging anything."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.pipeline._plan_stages import public_length
from discreet.pipeline.sources import describe_source, find_schema, resolve_source
from discreet.pipeline.training import DEFAULT_MODEL, is_on_sums, make_learner, refuse_empty_table
from discreet.query.costs import CostModel
from discreet.query.interface import PrivateTable
from discreet.release.base import check_publishable
from discreet.tables import open_table

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from discreet.privacy import Promise
    from discreet.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlan:
    """What a training would ask, and what is to be expected of the model.

    Attributes
    ----------
    model : str
        Name of the model.
    promise : Promise
        Promise of the whole model: what it would cost.
    n_rows : int or None
        Number of rows; None where it is private.
    shares : mapping of str to float
        Share of the promise that each query gets; empty for a model that does not plan its queries.
    expectation : str or None
        What to expect, in words; None for a model that says nothing beforehand.
    """

    model: str
    promise: Promise
    n_rows: int | None
    shares: Mapping[str, float]
    expectation: str | None


def plan_model(
    source: Any,
    *,
    model: str = DEFAULT_MODEL,
    privacy: Promise,
    schema: Schema | str | os.PathLike[str] | None = None,
    target: str | None = None,
    **parameters: Any,
) -> ModelPlan:
    """Return what :func:`discreet.publish_model` would ask of a table; charge, draw and write nothing.

    Parameters
    ----------
    source, model, privacy, schema, target, **parameters
        As for :func:`discreet.publish_model`.

    Returns
    -------
    ModelPlan

    Privacy
    -------
    Reads no cell: only the names and types of the columns, and the number of rows where it is public.
    """
    answering = isinstance(source, PrivateTable)
    declared = source.schema if answering else find_schema(source, schema)
    declared = declared if target is None else declared.with_target(target)
    learner: Any = make_learner(model, schema=declared, privacy=privacy, **parameters)
    if not is_on_sums(learner):
        check_publishable(declared, f"the model {model}")
    opened = nullcontext(None) if answering else open_table(resolve_source(source), schema=declared)
    with opened as table:
        if table is None:
            costs, n_rows = source, source.n_rows
        else:
            # Compares names and types with the declaration; going through the batches would read cells.
            table.batches(declared, ids=declared.id_column is not None)
            n_rows = public_length(declared, table.count())
            costs = CostModel(declared, n_rows)
    if n_rows == 0:
        raise refuse_empty_table(describe_source(source))
    expectation, shares = learner.plan_fit(costs) if hasattr(learner, "plan_fit") else (None, {})
    return ModelPlan(
        model=model, promise=learner.privacy, n_rows=n_rows, shares=shares, expectation=expectation
    )
