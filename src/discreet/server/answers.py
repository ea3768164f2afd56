"""Answers, prices and models as they go over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.query.results import LEVEL, describe_cost
from discreet.server.learning import fitted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.privacy import Promise
    from discreet.query import Answer
    from discreet.query.results import QueryResult, ResultCell
    from discreet.server.wire import Training

DELTA = 1e-6
"""At which Gaussian costs are also told as an epsilon."""


def answer_wire(reply: QueryResult, left: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a sentence."""
    alone = reply.cells[0] if not reply.axes else None
    low, high = _ends(alone)
    return {
        "kind": "answer",
        "question": reply.question,
        "measure": reply.measure,
        "by": list(reply.axes),
        "cells": [_cell(cell) for cell in reply.cells],
        "value": None if alone is None else alone.value,
        "sd": None if alone is None else alone.sd,
        "interval": {"level": LEVEL, "lower": low, "upper": high},
        "law": reply.law,
        "unreadable_below": reply.unreadable_below,
        "cached": reply.cached,
        "receipts": [receipt.id for receipt in reply.receipts],
        "parts": [list(merged) for merged in reply.parts],
        **_paid(reply.cost, left),
    }


def statistical_wire(question: dict[str, Any], answer: Answer, left: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a statistical question."""
    return {
        "kind": "answer",
        "question": question,
        "answer": answer.to_dict(),
        "law": answer.law,
        "cached": answer.cached,
        "receipts": [answer.receipt.id],
        "parts": [list(getattr(answer, "parts", (answer.receipt.id,)))],
        **_paid(answer.cost, left),
    }


def model_wire(request: Training, learner: Any, left: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model."""
    answers = learner.answers_.values()
    return {
        "kind": "model",
        "question": request.kind,
        "learner": request.kind,
        "parameters": dict(request.parameters),
        "fitted": fitted(learner),
        "cached": bool(answers) and all(answer.cached for answer in answers),
        "receipts": [receipt.id for receipt in learner.receipts_],
        **_paid(learner.promises_, left),
    }


def price_wire(
    question: Any,
    reply: QueryResult | None,
    cost: tuple[Promise, ...],
    left: Mapping[str, Any],
    *,
    sql: str | None = None,
    learner: str | None = None,
    sd: Any = None,
    free: bool = False,
) -> dict[str, Any]:
    """Return what something would cost; `free` if nothing would be charged all the same."""
    cell = reply.cells[0] if reply is not None and reply.cells else None
    spread = None if sd is None else np.asarray(sd).tolist()
    return {
        "kind": "price",
        "question": question,
        "sql": sql,
        "learner": learner,
        "measure": None if reply is None else reply.measure,
        "by": [] if reply is None else list(reply.axes),
        "sd": spread if cell is None else cell.sd,
        "margin": None if cell is None else cell.margin,
        "unreadable_below": None if reply is None else reply.unreadable_below,
        **_paid(cost, left),
        "more": left["more"],
        "free": free or not cost,
    }


def _paid(cost: tuple[Promise, ...], left: Mapping[str, Any]) -> dict[str, Any]:
    """Return what something costs, and what is left."""
    return {
        "cost": [promise.to_dict() for promise in cost],
        "cost_words": describe_cost(cost, DELTA),
        "remaining": dict(left),
    }


def _cell(cell: ResultCell) -> dict[str, Any]:
    low, high = _ends(cell)
    return {"key": list(cell.key), "value": cell.value, "sd": cell.sd, "lower": low, "upper": high}


def _ends(cell: ResultCell | None) -> tuple[float | None, float | None]:
    if cell is None or cell.value is None or cell.margin is None:
        return None, None
    return cell.value - cell.margin, cell.value + cell.margin
