"""Parts of every route: documentation, the data set in its path, its body and its response.

A route declares parameters, request body, response model and error codes; the OpenAPI document is
generated from them. An endpoint of a data set gets it by a dependency, which finds it for the caller by the
role that it needs. Endpoints return finished responses, so nothing is validated twice.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Path
from fastapi.routing import APIRoute
from pydantic import BeforeValidator
from starlette.requests import Request  # noqa: TC002 - FastAPI reads annotations
from starlette.responses import JSONResponse, PlainTextResponse, Response

from discreet.batching import PART, give_way
from discreet.errors import LedgerError, SourceError
from discreet.server.api import responses
from discreet.server.callers import contains_token
from discreet.server.dataset_service import DatasetService
from discreet.server.errors import NOT_JSON, STATUS, TOKEN_IN_BODY, ApiException, curator_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
    from typing import TypeAlias

    from discreet.server.callers import Role
    from discreet.server.middleware import ServiceMiddleware

    Endpoint: TypeAlias = Callable[..., Awaitable[Response]]

READ_CODES = ("busy", "ledger-unavailable")
DATASET = "/v1/datasets/{dataset}"
_TAGS = {"": "operations", "analyst": "analysts", "curator": "curators", "operator": "operations"}


def _dataset_for(role: Role) -> Any:
    """Return the dependency that finds the data set in the path for a caller with a role on it."""

    async def find(
        request: Request, dataset: Annotated[str, Path(description="Name of the data set.")]
    ) -> DatasetService:
        return middleware_of(request).service.find(request.state.caller, dataset, role)

    return Depends(find)


AnalystDataset = Annotated[DatasetService, _dataset_for("analyst")]
CuratorDataset = Annotated[DatasetService, _dataset_for("curator")]


class ServiceRoute(APIRoute):
    """A route whose endpoint is given the request, texts of path and headers, and the data set in the path.

    FastAPI's solver for all that an endpoint may take works longer than it takes to read the request. A route
    with parameters in its query string has them validated by it; the others need no validation.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the coroutine function that answers a request."""
        declared, endpoint = self.dependant, self.endpoint
        if declared.query_params:
            return super().get_route_handler()
        in_path = [(one.name, one.alias) for one in declared.path_params]
        in_headers = [(one.name, one.alias) for one in declared.header_params]
        finders = [(str(one.name), one.call) for one in declared.dependencies]

        async def handle(request: Request) -> Response:
            arguments: dict[str, Any] = {name: request.path_params[alias] for name, alias in in_path}
            for name, alias in in_headers:
                arguments[name] = request.headers.get(alias)
            for name, find in finders:
                arguments[name] = await find(request, request.path_params["dataset"])  # type: ignore[misc]
            response: Response = await endpoint(request, **arguments)
            return response

        return handle


def documented_route(
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
    name = path.replace("{dataset}/", "").strip("/{}").replace("/{", "-").replace("/", "-")
    all_codes = [*codes, "failed"]
    if role:
        all_codes += ["malformed", "unauthorized", "forbidden", "invalid", "rate-limited"]
    if path.startswith(DATASET):
        all_codes.append("not-found")
    extra: dict[str, Any] = {"security": [{"token": []}] if role else []}
    if body is not None:
        all_codes += ["request-timeout", "too-large", "unsupported-media"]
        schema = {"$ref": f"#/components/schemas/{body}"}
        extra["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    by_status: dict[int | str, list[str]] = {}
    for code in all_codes:
        by_status.setdefault(STATUS[code], []).append(code)
    # FastAPI would document the errors of a plain-text route as plain text.
    plain = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorResponse"}}}}
    error: dict[str, Any] = plain if model is None else {"model": responses.ErrorResponse}
    declared: dict[int | str, dict[str, Any]] = {
        status: {**error, "description": " or ".join(sorted(names))}
        for status, names in sorted(by_status.items())
    }
    if as_csv:
        declared[200] = {"content": {"text/csv": {"schema": {"type": "string"}}}}
    return ServiceRoute(
        path,
        endpoint,
        methods=[method],
        summary=summary,
        description=description or " ",  # else the docstring of the endpoint
        operation_id=f"{method.lower()}-{name}",
        tags=[_TAGS[role]],
        response_model=model,
        response_description="The answer.",
        responses=declared,
        openapi_extra=extra,
        response_class=JSONResponse if model is not None else PlainTextResponse,
    )


async def read_json(request: Request) -> bytes:
    """Return a body of type JSON; a token in it is refused before the body is stored anywhere."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiException(NOT_JSON)
    body = await middleware_of(request).read_body(request.scope, request.receive)
    if contains_token(body.decode("latin-1")) or contains_token(request.headers.get("idempotency-key", "")):
        raise ApiException(TOKEN_IN_BODY)
    return body


@contextlib.contextmanager
def curator_errors(done: Callable[[], str] = str) -> Iterator[None]:
    """Turn errors of ledger and audit log into responses for a curator; `done` says what took effect."""
    try:
        yield
    except (LedgerError, SourceError) as error:
        raise ApiException(curator_error(error, done())) from None


def middleware_of(request: Request) -> ServiceMiddleware:
    """Return the middleware that a request came through."""
    middleware: ServiceMiddleware = request.state.middleware
    return middleware


def dump(value: Any) -> bytes:
    """Return a value as JSON in ASCII."""
    return _dumps(value).encode("ascii")


def dump_answer(answer: dict[str, Any]) -> bytes:
    """Return an answer as JSON in ASCII, a long one in parts.

    All threads of the process wait while ``json`` writes one value: a tenth of a second for 60,000 cells.
    """
    cells = answer.get("cells")
    if cells is not None and len(cells) <= PART:
        return dump(answer)
    return "".join(_parts(answer)).encode("ascii")


def _parts(value: Any) -> Iterator[str]:
    """Yield the JSON text of a value in pieces, each written in a short time."""
    if isinstance(value, dict) and value:
        before = "{"
        for name, one in value.items():
            yield f"{before}{_dumps(name)}: "
            yield from _parts(one)
            before = ", "
        yield "}"
    elif isinstance(value, list) and value and isinstance(value[0], list):
        before = "["
        for one in value:
            yield before
            yield from _parts(one)
            before = ", "
        yield "]"
    elif isinstance(value, list) and len(value) > PART:
        before = "["
        for start in range(0, len(value), PART):
            give_way()
            yield before + _dumps(value[start : start + PART])[1:-1]
            before = ", "
        yield "]"
    else:
        yield _dumps(value)


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False)


def json_response(content: bytes) -> Response:
    """Return a response with JSON that is written already."""
    return Response(content, media_type="application/json")


def whole_number(least: int, most: int) -> BeforeValidator:
    """Return a validator of whole numbers in plain decimal digits; pydantic's own accepts more."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
            raise ValueError(f"it must be a whole number from {least} to {most}")
        return int(text)

    return BeforeValidator(read)


def bounds_schema(least: int, most: int) -> dict[str, Any]:
    """Return the bounds of a number as JSON Schema."""
    return {"minimum": least, "maximum": most}
