"""Routes for what is public about a data set, and for the caller's own budget and history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema  # noqa: TC002 - pydantic reads annotations
from starlette.requests import Request  # noqa: TC002 - FastAPI reads annotations
from starlette.responses import Response  # noqa: TC002 - FastAPI reads annotations

from discreet.query.frames import history_rows
from discreet.query.intervals import LEVEL
from discreet.server.api import responses
from discreet.server.api.csv_response import csv_response
from discreet.server.api.route import (
    DATASET,
    READ_CODES,
    AnalystDataset,
    bounds_schema,
    documented_route,
    dump,
    json_response,
    middleware_of,
    whole_number,
)
from discreet.server.dataset import MAX_DUMMY_ROWS
from discreet.server.errors import FORBIDDEN, ApiException, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi.routing import APIRoute

_MAX_HISTORY = 10_000
_CSV_COLUMNS = (
    *("receipt", "when", "who", "question", "statistic", "group", "value", "sd", "lower", "upper"),
    *("confidence", "law", "cost"),
)


def _read_format(text: str) -> str:
    if text not in ("json", "csv"):
        raise ValueError("it must be one of json, csv")
    return text


_Format = Annotated[
    Literal["json", "csv"],
    BeforeValidator(_read_format),
    Field(description="Format of the response: json or csv."),
]


class HistoryParameters(BaseModel):
    """Query parameters of a history."""

    model_config = ConfigDict(extra="forbid")

    after: Annotated[
        int,
        whole_number(0, 2**62),
        Field(
            description="Only charges after this row of the ledger.",
            json_schema_extra=bounds_schema(0, 2**62),
        ),
    ] = 0
    last: Annotated[
        int,
        whole_number(1, _MAX_HISTORY),
        Field(
            description="Return at most this many entries, the newest.",
            json_schema_extra=bounds_schema(1, _MAX_HISTORY),
        ),
    ] = 1000
    first: Annotated[
        int | SkipJsonSchema[None],
        whole_number(1, _MAX_HISTORY),
        Field(
            description="Instead of last: return at most this many entries, the oldest.",
            json_schema_extra=bounds_schema(1, _MAX_HISTORY),
        ),
    ] = None
    format: _Format = "json"
    analyst: Annotated[
        str | SkipJsonSchema[None], Field(description="For curators: name of an analyst; all if left out.")
    ] = None


class DummyParameters(BaseModel):
    """Query parameters of made-up rows; the service checks `n` again, in its own words."""

    model_config = ConfigDict(extra="forbid")

    n: Annotated[
        int,
        whole_number(0, 2**31),
        Field(description="Number of rows.", json_schema_extra=bounds_schema(1, 10_000)),
    ] = 100
    seed: Annotated[
        int,
        whole_number(0, 2**63 - 1),
        Field(
            description="The same seed makes the same rows.", json_schema_extra=bounds_schema(0, 2**63 - 1)
        ),
    ] = 0
    format: _Format = "json"


async def datasets(request: Request) -> Response:
    """Return the data sets that the caller may ask, with what is public about them and with budgets."""
    caller = request.state.caller
    return json_response(
        await middleware_of(request).run_in_thread(
            lambda: dump({"datasets": middleware_of(request).service.catalogue(caller)})
        )
    )


async def schema(request: Request, target: AnalystDataset) -> Response:
    """Return what is public about the table."""
    return json_response(dump(target.dataset.about()))


async def budget(request: Request, target: AnalystDataset) -> Response:
    """Return what may be spent, was spent and is left."""
    caller = request.state.caller
    return json_response(await middleware_of(request).run_in_thread(lambda: dump(target.budget(caller))))


async def history(
    request: Request, target: AnalystDataset, parameters: Annotated[HistoryParameters, Query()]
) -> Response:
    """Return the caller's charges; to a curator, those of every analyst."""
    caller = request.state.caller
    if parameters.first is not None and "last" in parameters.model_fields_set:
        raise InvalidRequest((("first", "it must not be given with last"),))
    if parameters.analyst not in (None, caller.name) and not caller.may("curator", target.name):
        raise ApiException(FORBIDDEN)

    def work() -> Response:
        page = target.history_page(
            caller,
            analyst=parameters.analyst,
            after=parameters.after,
            last=parameters.last,
            first=parameters.first,
        )
        if parameters.format == "csv":
            rows = [row for entry in page["entries"] for row in _csv_rows(entry)]
            return csv_response(
                _CSV_COLUMNS, ([row[name] for name in _CSV_COLUMNS] for row in rows), "history"
            )
        return json_response(dump(page))

    return await middleware_of(request).run_in_thread(work)


async def dummy(
    request: Request, target: AnalystDataset, parameters: Annotated[DummyParameters, Query()]
) -> Response:
    """Return made-up rows."""
    dataset, middleware = target.dataset, middleware_of(request)
    values = min(parameters.n, MAX_DUMMY_ROWS) * len(dataset.schema.columns)
    middleware.count_work(request.state.caller, dataset.work.estimate_dummy(values))

    def work() -> Response:
        rows = dataset.dummy(parameters.n, parameters.seed)
        if parameters.format == "csv":
            return csv_response(tuple(rows), zip(*rows.values(), strict=True), "dummy")
        return json_response(
            dump({"kind": "dummy", "n": parameters.n, "seed": parameters.seed, "rows": rows})
        )

    return await middleware.run_in_thread(work)


def _csv_rows(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a charge of a history as rows of a table, one for each number of a text query."""
    return [
        {**row, "who": entry["who"], "confidence": None if row["lower"] is None else LEVEL}
        for row in history_rows(entry)
    ]


def table_routes() -> list[APIRoute]:
    """Return the routes of this module, in the order of the document."""
    return [
        documented_route(
            "/v1/datasets", datasets, "Data sets that are granted to you",
            role="analyst", codes=READ_CODES, model=responses.CatalogueResponse,
        ),
        documented_route(
            f"{DATASET}/schema", schema, "What is public about the table",
            role="analyst", model=responses.SchemaResponse,
        ),
        documented_route(
            f"{DATASET}/budget", budget, "Budgets: limits, what is spent and what is left",
            description="Yours, that of your group, and that of all analysts together.",
            role="analyst", codes=READ_CODES, model=responses.BudgetResponse,
        ),
        documented_route(
            f"{DATASET}/history", history, "What you paid for, with the answers",
            description="Answers of more than 4096 numbers are left out: asking again is free. As CSV each "
            "number has a row, with its group, its interval and confidence; a question of several charges "
            "has its numbers at the last of them.",
            role="analyst", codes=READ_CODES, model=responses.HistoryResponse, as_csv=True,
        ),
        documented_route(
            f"{DATASET}/dummy", dummy, "Dummy rows",
            description="Free: they are drawn from the schema alone, for trying out programs.",
            role="analyst", codes=("work-limited",), model=responses.DummyResponse, as_csv=True,
        ),
    ]  # fmt: skip
