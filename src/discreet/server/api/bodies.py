"""Response bodies as plain dictionaries, which are written as JSON without being validated again.

A test compares them with the models in ``responses``.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.query.costs import cost_fields
from discreet.server.training import fitted_attributes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.privacy import Promise
    from discreet.query import Answer
    from discreet.query.results import QueryResult
    from discreet.server.api.requests import TrainRequest


def query_response(result: QueryResult, left: Mapping[str, Any]) -> dict[str, Any]:
    """Return the response to a text query.

    Parameters
    ----------
    result : QueryResult
        Result of the query, or its preview.
    left : mapping
        What is left to the caller and in total, as :meth:`Accounting.remaining` returns it.
    """
    return dataclasses.replace(result, remaining=left).to_wire()


def aggregate_response(question: dict[str, Any], answer: Answer, left: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a statistical question."""
    return {
        "kind": "answer",
        "question": question,
        "answer": answer.to_dict(),
        "law": answer.law,
        "cached": answer.cached,
        "receipts": [answer.receipt.id],
        "parts": [list(getattr(answer, "parts", (answer.receipt.id,)))],
        **cost_fields(answer.cost, left),
    }


def model_response(request: TrainRequest, learner: Any, left: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model."""
    answers = learner.answers_.values()
    return {
        "kind": "model",
        "question": request.kind,
        "learner": request.kind,
        "parameters": dict(request.parameters),
        "fitted": fitted_attributes(learner),
        "cached": bool(answers) and all(answer.cached for answer in answers),
        "receipts": [receipt.id for receipt in learner.receipts_],
        **cost_fields(learner.promises_, left),
    }


def preview_response(
    question: Any,
    cost: tuple[Promise, ...],
    left: Mapping[str, Any],
    *,
    learner: str | None = None,
    sd: Any = None,
    free: bool = False,
) -> dict[str, Any]:
    """Return what an aggregate or a model would cost; a text query's preview is a :func:`query_response`.

    Parameters
    ----------
    question : str or dict
        Aggregate as its ``to_dict`` writes it, or the name of the learner.
    cost : tuple of Promise
        Promises that would be charged.
    left : mapping
        What is left to the caller and in total, as :meth:`Accounting.remaining` returns it.
    learner : str, optional
        Name of the learner; None for an aggregate.
    sd : float or array, optional
        Standard deviation of the noise, in the answer's unit; None for a model.
    free : bool
        Whether nothing would be charged, because the caller has paid before.
    """
    return {
        "kind": "price",
        "question": question,
        "sql": None,
        "learner": learner,
        "columns": [],
        "by": [],
        "sums": 1,
        "simultaneous": 1,
        "sd": None if sd is None else np.asarray(sd).tolist(),
        "margin": None,
        "n_rows": None,
        "expected": [],
        "unreadable_below": None,
        **cost_fields(cost, left),
        "more": left["more"],
        "free": free or not cost,
        "laws": [],
    }
