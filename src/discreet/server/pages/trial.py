"""Trials of a question on made-up rows, from the page on which it is asked."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.query import Database
from discreet.query.text_query import run_query
from discreet.server.api import requests
from discreet.server.api.bodies import query_response

if TYPE_CHECKING:
    from discreet._types import AnyArray
    from discreet.server.dataset_service import DatasetService
    from discreet.server.pages.page import PageRequest

_MOST_ROWS = 10_000
_SEED = 1  # dummy rows are public anyway: dummy?seed=1 begins with these
_NOTHING_SPENT = {"own": None, "total": None, "more": None, "nearer": None, "used": None, "takes": None}


def run_trial(page_request: PageRequest, request: Any) -> dict[str, Any]:
    """Answer a parsed request from dummy rows of its data set, with the noise that it would get.

    It is counted as work of its caller.

    Privacy
    -------
    The rows are drawn from the schema alone, so nothing is learned and nothing is charged.
    """
    service = page_request.target
    schema = service.dataset.schema
    privacy = requests.promise_from_request(request.privacy, unit=schema.unit, neighbors=schema.neighbors)
    query = service.dataset.parse_query(request)
    page_request.middleware.count_work(
        page_request.caller, service.dataset.trial_work(query, _count_rows(service))
    )
    # One database per trial, since a shared one would keep the answers of all trials.
    with Database(_rows(service), schema=schema) as rows:
        result = run_query(rows, query, privacy=privacy, sd=request.requested_sd())
    return query_response(result, _NOTHING_SPENT)


def _count_rows(service: DatasetService) -> int:
    """Return the number of dummy rows: as many as the table has, and at most 10,000."""
    return min(service.dataset.database.n_rows or 1000, _MOST_ROWS)


@lru_cache(maxsize=8)
def _rows(service: DatasetService) -> dict[str, AnyArray]:
    """Return dummy rows by column."""
    n = _count_rows(service)
    rows = service.dataset.dummy(n, _SEED)
    columns = {
        column.name: np.asarray(rows[column.name], dtype=object) for column in service.dataset.schema.released
    }
    if service.dataset.schema.id_column is not None:
        columns[service.dataset.schema.id_column] = np.arange(n)  # one unit per dummy row
    return columns
