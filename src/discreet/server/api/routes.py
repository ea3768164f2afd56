"""Endpoints for programs: every path under ``/v1``, and those for an operator's tools.

An endpoint of a data set gets it by a dependency, which finds it for the caller by the role that it needs.

Each route declares its parameters, request body, response model and error codes; the OpenAPI document is
generated from them. Endpoints return finished responses, so nothing is validated twice.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from fastapi import Depends, Header, Path, Query
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import Request  # noqa: TC002 - FastAPI reads annotations
from starlette.responses import JSONResponse, PlainTextResponse, Response

from discreet.errors import LedgerError, SourceError
from discreet.server.api import requests, responses
from discreet.server.callers import contains_token
from discreet.server.dataset_service import DatasetService
from discreet.server.errors import (
    FORBIDDEN,
    NOT_JSON,
    STATUS,
    TOKEN_IN_BODY,
    ApiException,
    InvalidRequest,
    curator_error,
)
from discreet.server.work import Planning

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from discreet.batching import QueryTask
    from discreet.server.callers import Role
    from discreet.server.middleware import ServiceMiddleware
    from discreet.server.service import Service

    Endpoint: TypeAlias = Callable[..., Awaitable[Response]]

_TOKENS: TypeAdapter[Any] = TypeAdapter(requests.TokenRequest)
_STOP: TypeAdapter[Any] = TypeAdapter(requests.StopRequest)
_KEY: TypeAdapter[str] = TypeAdapter(requests.IdempotencyKey)
_MAX_HISTORY = 10_000
_PATIENCE = 60.0  # seconds that a program waits for an attack


def _whole(least: int, most: int) -> BeforeValidator:
    """Return a validator of whole numbers in plain decimal digits; pydantic's own accepts more."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
            raise ValueError(f"it must be a whole number from {least} to {most}")
        return int(text)

    return BeforeValidator(read)


def _bounds(least: int, most: int) -> dict[str, Any]:
    return {"minimum": least, "maximum": most}


def _read_format(text: str) -> str:
    if text not in ("json", "csv"):
        raise ValueError("it must be one of json, csv")
    return text


_Format = Annotated[
    Literal["json", "csv"], BeforeValidator(_read_format), Field(description="json, or csv to save.")
]
_Key = Annotated[
    str | SkipJsonSchema[None],
    Header(
        alias="Idempotency-Key",
        description="Of your choice; sent again with the same key, a request is never charged twice. Not "
        "used for models: training one again is free as long as the rows are the same.",
        json_schema_extra={"pattern": "^[!-~]{1,128}$"},
    ),
]


class HistoryParameters(BaseModel):
    """Query parameters of a history."""

    model_config = ConfigDict(extra="forbid")

    after: Annotated[
        int,
        _whole(0, 2**62),
        Field(description="Only charges after this row of the ledger.", json_schema_extra=_bounds(0, 2**62)),
    ] = 0
    last: Annotated[
        int,
        _whole(1, _MAX_HISTORY),
        Field(description="At most so many, the newest.", json_schema_extra=_bounds(1, _MAX_HISTORY)),
    ] = 1000
    first: Annotated[
        int | SkipJsonSchema[None],
        _whole(1, _MAX_HISTORY),
        Field(
            description="Instead of last: at most so many, the oldest.",
            json_schema_extra=_bounds(1, _MAX_HISTORY),
        ),
    ] = None
    format: _Format = "json"
    analyst: Annotated[
        str | SkipJsonSchema[None], Field(description="For curators: whose. Everybody's if left out.")
    ] = None


class DummyParameters(BaseModel):
    """Query parameters of made-up rows; the service checks `n` again, in its own words."""

    model_config = ConfigDict(extra="forbid")

    n: Annotated[
        int,
        _whole(0, 2**31),
        Field(description="How many rows.", json_schema_extra=_bounds(1, 10_000)),
    ] = 100
    seed: Annotated[
        int,
        _whole(0, 2**63 - 1),
        Field(description="The same seed makes the same rows.", json_schema_extra=_bounds(0, 2**63 - 1)),
    ] = 0
    format: _Format = "json"


def _dataset_for(role: Role) -> Any:
    """Return the dependency that finds the data set in the path for a caller with a role on it."""

    async def find(
        request: Request, dataset: Annotated[str, Path(description="Name of the data set.")]
    ) -> DatasetService:
        return _middleware(request).service.find(request.state.caller, dataset, role)

    return Depends(find)


_Analyst = Annotated["DatasetService", _dataset_for("analyst")]
_Curator = Annotated["DatasetService", _dataset_for("curator")]

_QUERY_CODES = (
    "budget-exceeded",
    "key-reused",
    "refused",
    "stopped",
    "busy",
    "work-limited",
    "engine-failed",
    "ledger-unavailable",
)
_READ_CODES = ("busy", "ledger-unavailable")
_TAGS = {"": "operations", "analyst": "analysts", "curator": "curators", "operator": "operations"}
_DATASET = "/v1/datasets/{dataset}"


class ApiRoutes:
    """The endpoints of one service.

    Parameters
    ----------
    service : Service or None
        Service that answers; None if only the OpenAPI document is needed.
    """

    def __init__(self, service: Service | None) -> None:
        if service is not None:
            self._service = service

    def routes(self) -> list[APIRoute]:
        """Return every route, in the order of the document."""
        return [
            _route(
                "/v1/datasets", self.datasets, "The data sets that you may ask",
                role="analyst", codes=_READ_CODES, model=responses.CatalogueResponse,
            ),
            _route(
                f"{_DATASET}/query", self.query, "Ask",
                description="Charged before it is answered. The same question about the same rows is free, "
                "and gets the same answer.",
                method="POST", role="analyst", body="Question", codes=_QUERY_CODES,
                model=responses.QueryResponse | responses.AggregateResponse | responses.ModelResponse,
            ),
            _route(
                f"{_DATASET}/preview", self.preview, "What a question would cost",
                description="Free: nothing is charged, no row is looked at.",
                method="POST", role="analyst", body="Question",
                codes=("refused", "work-limited", *_READ_CODES),
                model=responses.PreviewResponse,
            ),
            _route(
                f"{_DATASET}/schema", self.schema, "What is public about the table",
                role="analyst", model=responses.SchemaResponse,
            ),
            _route(
                f"{_DATASET}/budget", self.budget, "What is left",
                description="Yours, and that of everybody together.",
                role="analyst", codes=_READ_CODES, model=responses.BudgetResponse,
            ),
            _route(
                f"{_DATASET}/history", self.history, "What you paid for, with the answers",
                description="Answers of more than 4096 numbers are left out: asking again is free.",
                role="analyst", codes=_READ_CODES, model=responses.HistoryResponse, as_csv=True,
            ),
            _route(
                f"{_DATASET}/dummy", self.dummy, "Made-up rows",
                description="Drawn from the schema alone, to try programs on. Free.",
                role="analyst", model=responses.DummyResponse, as_csv=True,
            ),
            _route(
                f"{_DATASET}/curator/overview", _read_only(DatasetService.overview), "How it stands",
                role="curator", codes=_READ_CODES, model=responses.OverviewResponse,
            ),
            _route(
                f"{_DATASET}/curator/spending", _read_only(DatasetService.spending_history),
                "Spent over time",
                role="curator", codes=_READ_CODES, model=responses.SpendingResponse,
            ),
            _route(
                f"{_DATASET}/curator/refusals",
                _read_only(lambda target: {"refusals": target.refusals()}), "Last refusals",
                role="curator", model=responses.RefusalsResponse,
            ),
            _route(
                f"{_DATASET}/curator/check", _read_only(DatasetService.check),
                "Verify ledger and trail",
                role="curator", codes=_READ_CODES, model=responses.CheckResponse,
            ),
            _route(
                f"{_DATASET}/curator/attack", _read_only(_attack, long=True),
                "What could be rebuilt from all answers so far",
                description="Compares with rows: for the curator's eyes.",
                role="curator", codes=_READ_CODES, model=responses.AttackResponse,
            ),
            _route(
                f"{_DATASET}/curator/tokens", _read_only(lambda target: {"tokens": target.tokens()}),
                "All tokens", role="curator", model=responses.TokensResponse,
            ),
            _route(
                f"{_DATASET}/curator/tokens", self.change_token, "Create, rotate or revoke a token",
                description="Or give a name a role on the data set, or withdraw it.",
                method="POST", role="curator", body="TokenOrder", codes=_READ_CODES,
                model=responses.TokenResponse,
            ),
            _route(
                f"{_DATASET}/curator/stop", _read_only(_stop_state), "Whether it is stopped",
                role="curator", model=responses.StopResponse,
            ),
            _route(
                f"{_DATASET}/curator/stop", self.change_stop, "Stop, or answer again",
                description="Lasts, also over a restart.",
                method="POST", role="curator", body="StopOrder", codes=_READ_CODES,
                model=responses.StopResponse,
            ),
            _route("/metrics", self.metrics, "Counts for Prometheus", role="operator"),
            _route("/health", self.health, "Whether the process lives", model=responses.StatusResponse),
            _route(
                "/ready", self.ready, "Whether ledger and engine answer",
                codes=("ledger-unavailable",), model=responses.StatusResponse,
            ),
        ]  # fmt: skip

    # Queries.

    async def datasets(self, request: Request) -> Response:
        """Return the data sets that the caller may ask, with what is public about them and with budgets."""
        caller = request.state.caller
        return _json_response(
            await _middleware(request).run_in_thread(
                lambda: _dump({"datasets": self._service.catalogue(caller)})
            )
        )

    async def query(self, request: Request, target: _Analyst, key: _Key = None) -> Response:
        """Answer a query, an aggregate or a model."""
        middleware, caller = _middleware(request), request.state.caller
        body = await _read_json(request)

        def task() -> QueryTask[_WrittenAnswer | requests.TrainRequest]:
            query = requests.parse_request(requests.QUERY_REQUEST, body)
            checked = None if key is None else _check_key(key)
            if isinstance(query, requests.TrainRequest):
                return query
            answer = yield from target.ask_task(caller, query, key=checked)
            return _WrittenAnswer.from_response(query.kind, answer)

        result = await middleware.run_query(task(), target.dataset.work, len(body))
        if isinstance(result, requests.TrainRequest):
            # Runs many queries one after the other, which would hold up a worker.
            model = result
            result = await middleware.run_long(
                lambda: _WrittenAnswer.from_response(model.kind, target.ask(caller, model))
            )
        middleware.metrics.count_answer(result.kind, result.cached)
        return _json_response(result.content)

    async def preview(self, request: Request, target: _Analyst) -> Response:
        """Return what a query would cost."""
        caller, body = request.state.caller, await _read_json(request)

        def work() -> bytes:
            query = requests.parse_request(requests.QUERY_REQUEST, body)
            return _dump(target.preview(caller, query))

        def heavy_task() -> QueryTask[bytes]:
            query = requests.parse_request(requests.QUERY_REQUEST, body)
            yield from target.planning_task(query)
            content: bytes = yield Planning(lambda _: [work()], None)
            return content

        middleware, model = _middleware(request), target.dataset.work
        if model.estimate_reading(len(body)) > model.light:
            return _json_response(await middleware.run_query(heavy_task(), model, len(body)))
        return _json_response(await middleware.run_in_thread(work))

    # What is public, and the caller's own.

    async def schema(self, request: Request, target: _Analyst) -> Response:
        """Return what is public about the table."""
        return _json_response(_dump(target.dataset.about()))

    async def budget(self, request: Request, target: _Analyst) -> Response:
        """Return what may be spent, was spent and is left."""
        caller = request.state.caller
        return _json_response(await _middleware(request).run_in_thread(lambda: _dump(target.budget(caller))))

    async def history(
        self, request: Request, target: _Analyst, parameters: Annotated[HistoryParameters, Query()]
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
                flat = [{**entry, **_flatten(entry)} for entry in page["entries"]]
                columns = ("receipt", "when", "who", "question", "value", "sd", "law", "cost")
                return csv_response(columns, ([row[name] for name in columns] for row in flat), "history")
            return _json_response(_dump(page))

        return await _middleware(request).run_in_thread(work)

    async def dummy(
        self, request: Request, target: _Analyst, parameters: Annotated[DummyParameters, Query()]
    ) -> Response:
        """Return made-up rows."""

        def work() -> Response:
            rows = target.dataset.dummy(parameters.n, parameters.seed)
            if parameters.format == "csv":
                return csv_response(tuple(rows), zip(*rows.values(), strict=True), "dummy")
            return _json_response(
                _dump({"kind": "dummy", "n": parameters.n, "seed": parameters.seed, "rows": rows})
            )

        return await _middleware(request).run_in_thread(work)

    # For the curator.

    async def change_token(self, request: Request, target: _Curator) -> Response:
        """Create, rotate or revoke a token, or change what is granted to a name."""
        curator, body = request.state.caller.name, await _read_json(request)

        def work() -> bytes:
            order = requests.parse_request(_TOKENS, body)
            with _curator_errors(
                lambda: describe_revoked(target, order.name) if order.action == "revoke" else ""
            ):
                return _dump({"name": order.name, **change(order)})

        def change(order: requests.TokenRequest) -> dict[str, Any]:
            match order.action:
                case "create":
                    limit = requests.promise_from_request(order.limit, **target.dataset.promise_context)
                    token = target.create_token(curator, order.name, order.role, days=order.days, limit=limit)
                    return {"token": token}
                case "rotate":
                    return {"token": target.rotate_token(curator, order.name)}
                case "grant":
                    target.grant(curator, order.name, order.role)
                    return {}
                case "withdraw":
                    target.withdraw(curator, order.name)
                    return {}
            return {"revoked": target.revoke_token(curator, order.name)}

        return _json_response(await _middleware(request).run_in_thread(work))

    async def change_stop(self, request: Request, target: _Curator) -> Response:
        """Stop or resume a data set."""
        caller, body = request.state.caller, await _read_json(request)

        def work() -> bytes:
            order = requests.parse_request(_STOP, body)
            with _curator_errors(lambda: describe_stopped(target)):
                (target.stop if order.stopped else target.resume)(caller)
            return _dump(_stop_state(target))

        return _json_response(await _middleware(request).run_in_thread(work))

    # For operators.

    async def metrics(self, request: Request) -> Response:
        """Return counts for Prometheus."""
        middleware = _middleware(request)
        text = await middleware.run_in_thread(middleware.metrics.text)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def health(self, request: Request) -> Response:
        """Return that the process lives."""
        return _json_response(b'{"status": "alive"}')

    async def ready(self, request: Request) -> Response:
        """Return that ledger and engine answer."""
        await _middleware(request).run_in_thread(self._service.ready)
        return _json_response(b'{"status": "ready"}')


def _route(
    path: str,
    endpoint: Endpoint,
    summary: str,
    *,
    description: str = "",
    method: str = "GET",
    role: str = "",
    body: str | None = None,
    codes: Sequence[str] = (),
    model: Any = None,
    as_csv: bool = False,
) -> APIRoute:
    """Return one documented route; see :class:`fastapi.routing.APIRoute` for what FastAPI makes of it.

    Parameters
    ----------
    path, endpoint, method
        Address, coroutine that answers, and HTTP method.
    summary, description : str
        Texts of the document.
    role : {"", "analyst", "curator", "operator"}
        Role that the caller needs, at the data set in the path if there is one; empty for no token.
    body : str, optional
        Name of the component schema of the request body; None for no body.
    codes : sequence of str
        Error codes besides those that every route of this role has.
    model : type, optional
        Model of the response; None for plain text.
    as_csv : bool
        Whether the response can also be CSV.
    """
    all_codes = [*codes, "failed"]
    if role:
        all_codes += ["malformed", "unauthorized", "forbidden", "invalid", "rate-limited"]
    if path.startswith(_DATASET):
        all_codes.append("not-found")
    extra: dict[str, Any] = {"security": [{"token": []}] if role else []}
    if body is not None:
        all_codes += ["too-large", "unsupported-media"]
        schema = {"$ref": f"#/components/schemas/{body}"}
        extra["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    by_status: dict[int | str, list[str]] = {}
    for code in all_codes:
        by_status.setdefault(STATUS[code], []).append(code)
    # FastAPI would document the errors of a plain-text route as plain text.
    plain = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    error: dict[str, Any] = plain if model is None else {"model": responses.ErrorResponse}
    declared: dict[int | str, dict[str, Any]] = {
        status: {**error, "description": " or ".join(sorted(names))}
        for status, names in sorted(by_status.items())
    }
    if as_csv:
        declared[200] = {"content": {"text/csv": {"schema": {"type": "string"}}}}
    return APIRoute(
        path,
        endpoint,
        methods=[method],
        summary=summary,
        description=description or " ",  # else the docstring of the endpoint
        operation_id=f"{method.lower()}-{path.replace('{dataset}/', '').strip('/').replace('/', '-')}",
        tags=[_TAGS[role]],
        response_model=model,
        response_description="The answer.",
        responses=declared,
        openapi_extra=extra,
        response_class=JSONResponse if model is not None else PlainTextResponse,
    )


def _read_only(read: Callable[[DatasetService], Any], *, long: bool = False) -> Endpoint:
    """Return the endpoint that writes what a function of the data set returns; `long` if it may wait."""

    async def endpoint(request: Request, target: _Curator) -> Response:
        def work() -> bytes:
            with _curator_errors():
                return _dump(read(target))

        middleware = _middleware(request)
        return _json_response(await (middleware.run_long if long else middleware.run_in_thread)(work))

    return endpoint


def _attack(target: DatasetService) -> dict[str, Any]:
    return target.attack(patience=min(_PATIENCE, target.config.limits.seconds / 2))


def _stop_state(target: DatasetService) -> dict[str, Any]:
    return {"stopped": target.overview()["stopped"]}


class _WrittenAnswer(NamedTuple):
    """An answer as JSON, with what the metrics count of it."""

    content: bytes
    kind: str
    cached: bool

    @classmethod
    def from_response(cls, kind: str, response: dict[str, Any]) -> _WrittenAnswer:
        return cls(_dump(response), kind, response["cached"])


async def _read_json(request: Request) -> bytes:
    """Return a body of type JSON; a token in it is refused before the body is stored anywhere."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiException(NOT_JSON)
    body = await _middleware(request).read_body(request.scope, request.receive)
    if contains_token(body.decode("latin-1")) or contains_token(request.headers.get("idempotency-key", "")):
        raise ApiException(TOKEN_IN_BODY)
    return body


@contextlib.contextmanager
def _curator_errors(done: Callable[[], str] = str) -> Iterator[None]:
    """Turn errors of ledger and audit log into responses for a curator; `done` says what took effect."""
    try:
        yield
    except (LedgerError, SourceError) as error:
        raise ApiException(curator_error(error, done())) from None


def describe_stopped(target: DatasetService) -> str:
    """Return a sentence if a data set is stopped, even if that could not be logged; otherwise empty."""
    return "" if target.access.stop_record(target.name) is None else "The data set is stopped."


def describe_revoked(target: DatasetService, name: str) -> str:
    """Return a sentence if a name has no valid token, even if that could not be logged; otherwise empty."""
    valid = any(token["name"] == name and token["state"] == "valid" for token in target.tokens())
    return "" if valid else f"{name} has no valid token any more."


def _middleware(request: Request) -> ServiceMiddleware:
    middleware: ServiceMiddleware = request.state.middleware
    return middleware


def _check_key(text: str) -> str:
    try:
        return _KEY.validate_python(text)
    except ValueError:
        raise InvalidRequest((("Idempotency-Key", "it must be 1 to 128 visible ASCII characters"),)) from None


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, allow_nan=False).encode("ascii")


def _json_response(content: bytes) -> Response:
    return Response(content, media_type="application/json")


def _flatten(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a charge of a history as cells of a table."""
    query = entry["asked"]
    question = query.get("said") or json.dumps(query.get("question"))
    return {
        "question": question,
        "value": _flat_value(entry["value"]),
        "sd": _flat_value(entry["sd"]),
        "cost": json.dumps(entry["cost"]),
    }


def _flat_value(value: Any) -> Any:
    """Return a number as it is, and several as JSON."""
    return json.dumps(value) if isinstance(value, list) else value


def csv_response(columns: Sequence[str], rows: Any, name: str) -> Response:
    """Return a response with a table as CSV, to be saved under a name."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_csv_cell, columns))
    writer.writerows([_csv_cell(value) for value in row] for row in rows)
    headers = {"content-disposition": f'attachment; filename="{name}.csv"'}
    return Response(out.getvalue().encode(), media_type="text/csv; charset=utf-8", headers=headers)


def _csv_cell(value: Any) -> Any:
    """Return a cell for CSV, with a quote in front of text that a spreadsheet would evaluate."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return "" if value is None else value
