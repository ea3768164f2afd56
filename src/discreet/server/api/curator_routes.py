"""Routes for the curator of a data set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads annotations
from starlette.responses import Response  # noqa: TC002 - FastAPI reads annotations

from discreet.server.api import requests, responses
from discreet.server.api.route import (
    DATASET,
    READ_CODES,
    CuratorDataset,
    curator_errors,
    documented_route,
    dump,
    json_response,
    middleware_of,
    read_json,
)
from discreet.server.dataset_service import DatasetService

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi.routing import APIRoute

    from discreet.server.api.route import Endpoint

_TOKENS: TypeAdapter[Any] = TypeAdapter(requests.TokenRequest)
_MANY_TOKENS: TypeAdapter[Any] = TypeAdapter(requests.TokensRequest)
_ALLOCATION: TypeAdapter[Any] = TypeAdapter(requests.AllocationRequest)
_STOP: TypeAdapter[Any] = TypeAdapter(requests.StopRequest)
_PATIENCE = 60.0  # seconds that a program waits for an attack


async def change_token(request: Request, target: CuratorDataset) -> Response:
    """Create, rotate or revoke a token, or change what is granted to a name."""
    curator, body = request.state.caller.name, await read_json(request)

    def work() -> bytes:
        order = requests.parse_request(_TOKENS, body)
        with curator_errors(lambda: describe_revoked(target, order.name) if order.action == "revoke" else ""):
            return dump({"name": order.name, **change(order)})

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

    return json_response(await middleware_of(request).run_in_thread(work))


async def create_tokens(request: Request, target: CuratorDataset) -> Response:
    """Create tokens for several names."""
    curator, body = request.state.caller.name, await read_json(request)

    def work() -> bytes:
        order = requests.parse_request(_MANY_TOKENS, body)
        limit = requests.promise_from_request(order.limit, **target.dataset.promise_context)
        with curator_errors():
            made = target.create_tokens(curator, order.names, order.role, days=order.days, limit=limit)
        return dump({"tokens": made})

    return json_response(await middleware_of(request).run_in_thread(work))


async def change_allocation(request: Request, target: CuratorDataset) -> Response:
    """Set the limit of an analyst or a group, or the group of an analyst."""
    curator, body = request.state.caller.name, await read_json(request)

    def work() -> bytes:
        order = requests.parse_request(_ALLOCATION, body)
        with curator_errors():
            if isinstance(order, requests.GroupAllocationRequest):
                target.allocations.set_group(curator, order.name, order.group)
            else:
                limit = requests.promise_from_request(order.limit, **target.dataset.promise_context)
                target.allocations.set_limit(curator, order.kind, order.name, limit)
            return dump(target.list_allocations())

    return json_response(await middleware_of(request).run_in_thread(work))


async def change_stop(request: Request, target: CuratorDataset) -> Response:
    """Stop or resume a data set."""
    caller, body = request.state.caller, await read_json(request)

    def work() -> bytes:
        order = requests.parse_request(_STOP, body)
        with curator_errors(lambda: describe_stopped(target)):
            (target.stop if order.stopped else target.resume)(caller)
        return dump(_stop_state(target))

    return json_response(await middleware_of(request).run_in_thread(work))


def _read_only(read: Callable[[DatasetService], Any], *, long: bool = False) -> Endpoint:
    """Return the endpoint that writes what a function of the data set returns; `long` if it may wait."""

    async def endpoint(request: Request, target: CuratorDataset) -> Response:
        def work() -> bytes:
            with curator_errors():
                return dump(read(target))

        middleware = middleware_of(request)
        return json_response(await (middleware.run_long if long else middleware.run_in_thread)(work))

    return endpoint


def _attack(target: DatasetService) -> dict[str, Any]:
    return target.attack(patience=min(_PATIENCE, target.config.limits.seconds / 2))


def _stop_state(target: DatasetService) -> dict[str, Any]:
    return {"stopped": target.overview()["stopped"]}


def describe_stopped(target: DatasetService) -> str:
    """Return a sentence if a data set is stopped, even if that could not be logged; otherwise empty."""
    return "" if target.access.stop_record(target.name) is None else "The data set is stopped."


def describe_revoked(target: DatasetService, name: str) -> str:
    """Return a sentence if a name has no valid token, even if that could not be logged; otherwise empty."""
    valid = any(token["name"] == name and token["state"] == "valid" for token in target.tokens())
    return "" if valid else f"{name} has no valid token any more."


def curator_routes() -> list[APIRoute]:
    """Return the routes of this module, in the order of the document."""
    return [
        documented_route(
            f"{DATASET}/curator/overview", _read_only(DatasetService.overview), "Overview of the data set",
            role="curator", codes=READ_CODES, model=responses.OverviewResponse,
        ),
        documented_route(
            f"{DATASET}/curator/spending", _read_only(DatasetService.spending_history),
            "Spending over time",
            role="curator", codes=READ_CODES, model=responses.SpendingResponse,
        ),
        documented_route(
            f"{DATASET}/curator/refusals",
            _read_only(lambda target: {"refusals": target.refusals()}), "Latest refused requests",
            role="curator", model=responses.RefusalsResponse,
        ),
        documented_route(
            f"{DATASET}/curator/check", _read_only(DatasetService.check),
            "Check the ledger and the audit log",
            role="curator", codes=READ_CODES, model=responses.CheckResponse,
        ),
        documented_route(
            f"{DATASET}/curator/attack", _read_only(_attack, long=True),
            "Run the reconstruction attack",
            description="Reconstructs cells from all answers so far and compares them with the true rows: "
            "its result is for curators only.",
            role="curator", codes=("engine-failed", *READ_CODES), model=responses.AttackResponse,
        ),
        documented_route(
            f"{DATASET}/curator/tokens", _read_only(lambda target: {"tokens": target.tokens()}),
            "All tokens of the data set", role="curator", model=responses.TokensResponse,
        ),
        documented_route(
            f"{DATASET}/curator/tokens", change_token, "Create, rotate or revoke a token",
            description="Also grants a role on the data set to a name, or withdraws it.",
            method="POST", role="curator", body="TokenRequest", codes=READ_CODES,
            model=responses.TokenResponse,
        ),
        documented_route(
            f"{DATASET}/curator/tokens/many", create_tokens, "Create tokens for several names",
            description="All of them or none are created; each is valid at this data set alone.",
            method="POST", role="curator", body="TokensRequest", codes=READ_CODES,
            model=responses.TokenListResponse,
        ),
        documented_route(
            f"{DATASET}/curator/allocations", _read_only(DatasetService.list_allocations),
            "Limits of analysts and groups", role="curator", codes=READ_CODES,
            model=responses.AllocationsResponse,
        ),
        documented_route(
            f"{DATASET}/curator/allocations", change_allocation, "Change a limit or a group",
            description="A limit of an analyst or group is an allocation inside that of the data set, which "
            "stays as it is. It counts from the next charge on, for what was spent before too.",
            method="POST", role="curator", body="AllocationRequest", codes=READ_CODES,
            model=responses.AllocationsResponse,
        ),
        documented_route(
            f"{DATASET}/curator/stop", _read_only(_stop_state), "Whether the data set is stopped",
            role="curator", model=responses.StopResponse,
        ),
        documented_route(
            f"{DATASET}/curator/stop", change_stop, "Stop or resume the data set",
            description="A stopped data set answers no question, also after a restart, until it is resumed.",
            method="POST", role="curator", body="StopRequest", codes=READ_CODES,
            model=responses.StopResponse,
        ),
    ]  # fmt: skip
