"""What programs can fetch: every address under ``/v1``, and what an operator's tools look at."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import TypeAdapter
from starlette.responses import Response

from discreet.errors import LedgerError, SourceError
from discreet.server import wire
from discreet.server.access import has_token
from discreet.server.problems import FORBIDDEN, NOT_JSON, TOKEN_IN_BODY, Refusal, told_to_curator

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from starlette.requests import Request

    from discreet.batching import QueryTask
    from discreet.server.guard import Guard
    from discreet.server.office import Office

    Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

_TOKENS: TypeAdapter[Any] = TypeAdapter(wire.TokenOrder)
_STOP: TypeAdapter[Any] = TypeAdapter(wire.StopOrder)
_KEY: TypeAdapter[str] = TypeAdapter(wire.IdempotencyKey)
_MOST_HISTORY = 10_000


class Routes:
    """The endpoints of one office.

    Parameters
    ----------
    office : Office
        Whom they ask.
    """

    def __init__(self, office: Office) -> None:
        self._office = office
        self._about = _dumped(office.about())

    def table(self) -> dict[tuple[str, str], Endpoint]:
        """Return every endpoint by path and method."""
        return {
            ("/v1/query", "POST"): self.query,
            ("/v1/preview", "POST"): self.preview,
            ("/v1/schema", "GET"): self.schema,
            ("/v1/budget", "GET"): self.budget,
            ("/v1/history", "GET"): self.history,
            ("/v1/dummy", "GET"): self.dummy,
            ("/v1/curator/overview", "GET"): self._looked(self._office.overview),
            ("/v1/curator/spending", "GET"): self._looked(self._office.spending),
            ("/v1/curator/refusals", "GET"): self._looked(self._refusals),
            ("/v1/curator/check", "GET"): self._looked(self._office.check),
            ("/v1/curator/attack", "GET"): self._looked(self._office.attack),
            ("/v1/curator/tokens", "GET"): self._looked(self._tokens),
            ("/v1/curator/tokens", "POST"): self.order_token,
            ("/v1/curator/stop", "GET"): self._looked(self._stopped),
            ("/v1/curator/stop", "POST"): self.order_stop,
            ("/metrics", "GET"): self.metrics,
            ("/health", "GET"): self.health,
            ("/ready", "GET"): self.ready,
        }

    # Questions.

    async def query(self, request: Request) -> Response:
        """Answer a question."""
        guard, who = _guard(request), request.state.caller
        body = await self._json(request)
        key = request.headers.get("idempotency-key")

        def flow() -> QueryTask[_Told | wire.Training]:
            asked, named = wire.read(wire.QUESTION, body), None if key is None else _key(key)
            if isinstance(asked, wire.Training):
                return asked
            told = yield from self._office.asking(who, asked, key=named)
            return _Told.of(asked.kind, told)

        found = await guard.question(flow())
        if isinstance(found, wire.Training):
            # Asks many questions: no clerk has the time.
            model = found
            found = await guard.long(lambda: _Told.of(model.kind, self._office.ask(who, model)))
        guard.metrics.answer(found.kind, found.cached)
        return _answered(found.content)

    async def preview(self, request: Request) -> Response:
        """Say what a question would cost."""
        guard, who = _guard(request), request.state.caller
        body = await self._json(request)

        def work() -> bytes:
            return _dumped(self._office.preview(who, wire.read(wire.QUESTION, body)))

        return _answered(await guard.desk(work))

    # What is public, and what is one's own.

    async def schema(self, request: Request) -> Response:
        """Say what is public about the table."""
        return _answered(self._about)

    async def budget(self, request: Request) -> Response:
        """Say what may be spent, was spent and is left."""
        who = request.state.caller
        return _answered(await _guard(request).desk(lambda: _dumped(self._office.budget(who))))

    async def history(self, request: Request) -> Response:
        """Return what the caller paid for; of a curator, what anybody did."""
        asked = _Asked(request, ("after", "first", "last", "format", "analyst"))
        who, analyst = request.state.caller, request.query_params.get("analyst")
        after, last = asked.whole("after", 0, 2**62), asked.whole("last", 1000, _MOST_HISTORY, least=1)
        first = asked.whole("first", 0, _MOST_HISTORY, least=1) or None
        if first is not None and "last" in request.query_params:
            raise wire.Invalid((("first", "it must not be given with last"),))
        form = asked.choice("format", ("json", "csv"))
        if analyst not in (None, who.name) and not who.is_curator:
            raise Refusal(FORBIDDEN)

        def work() -> Response:
            found = self._office.history_page(who, analyst=analyst, after=after, last=last, first=first)
            if form == "csv":
                flat = [{**entry, **_flat(entry)} for entry in found["entries"]]
                columns = ("receipt", "when", "who", "question", "value", "sd", "law", "cost")
                return _csv(columns, ([row[name] for name in columns] for row in flat), "history")
            return _answered(_dumped(found))

        return await _guard(request).desk(work)

    async def dummy(self, request: Request) -> Response:
        """Return made-up rows."""
        asked = _Asked(request, ("n", "seed", "format"))
        n, seed = asked.whole("n", 100, 2**31), asked.whole("seed", 0, 2**63 - 1)
        form = asked.choice("format", ("json", "csv"))

        def work() -> Response:
            rows = self._office.dummy(n, seed)
            if form == "csv":
                return _csv(tuple(rows), zip(*rows.values(), strict=True), "dummy")
            return _answered(_dumped({"kind": "dummy", "n": n, "seed": seed, "rows": rows}))

        return await _guard(request).desk(work)

    # For the curator.

    def _looked(self, look: Callable[[], Any]) -> Endpoint:
        def work() -> bytes:
            with _telling():
                return _dumped(look())

        async def endpoint(request: Request) -> Response:
            return _answered(await _guard(request).desk(work))

        return endpoint

    def _refusals(self) -> dict[str, Any]:
        return {"refusals": self._office.refusals()}

    def _tokens(self) -> dict[str, Any]:
        return {"tokens": self._office.tokens()}

    def _stopped(self) -> dict[str, Any]:
        return {"stopped": self._office.overview()["stopped"]}

    async def order_token(self, request: Request) -> Response:
        """Create, rotate or revoke a token."""
        who, body = request.state.caller.name, await self._json(request)

        def work() -> bytes:
            order = wire.read(_TOKENS, body)
            with _telling(lambda: revoked(self._office, order.name) if order.action == "revoke" else ""):
                return ordered(order)

        def ordered(order: wire.TokenOrder) -> bytes:
            told: dict[str, Any] = {"name": order.name}
            if order.action == "create":
                limit = wire.promise_of(order.limit, **self._office.whom)
                told["token"] = self._office.create_token(
                    who, order.name, order.scope, days=order.days, limit=limit
                )
            elif order.action == "rotate":
                told["token"] = self._office.rotate_token(who, order.name)
            else:
                told["revoked"] = self._office.revoke_token(who, order.name)
            return _dumped(told)

        return _answered(await _guard(request).desk(work))

    async def order_stop(self, request: Request) -> Response:
        """Turn the stop switch."""
        who, body = request.state.caller, await self._json(request)

        def work() -> bytes:
            order = wire.read(_STOP, body)
            with _telling(lambda: stopped(self._office)):
                (self._office.stop if order.stopped else self._office.resume)(who)
            return _dumped(self._stopped())

        return _answered(await _guard(request).desk(work))

    # For whoever keeps it running.

    async def metrics(self, request: Request) -> Response:
        """Return counts for Prometheus."""
        guard = _guard(request)
        text = await guard.desk(guard.metrics.text)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def health(self, request: Request) -> Response:
        """Say that the process lives."""
        return _answered(b'{"status": "alive"}')

    async def ready(self, request: Request) -> Response:
        """Say that ledger and engine answer."""
        await _guard(request).desk(self._office.ready)
        return _answered(b'{"status": "ready"}')

    async def _json(self, request: Request) -> bytes:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refusal(NOT_JSON)
        body = await _guard(request).body(request.scope, request.receive)
        if has_token(body.decode("latin-1")) or has_token(request.headers.get("idempotency-key", "")):
            raise Refusal(TOKEN_IN_BODY)
        return body


class _Told(NamedTuple):
    """An answer, written."""

    content: bytes
    kind: str
    cached: bool

    @classmethod
    def of(cls, kind: str, told: dict[str, Any]) -> _Told:
        return cls(_dumped(told), kind, told["cached"])


class _Asked:
    """What stands after the ? of an address, checked."""

    def __init__(self, request: Request, known: Sequence[str]) -> None:
        self._given: Mapping[str, str] = request.query_params
        unknown = [name for name in self._given if name not in known]
        if unknown:
            raise wire.Invalid(tuple((name, "there is no such parameter") for name in unknown))

    def whole(self, name: str, default: int, most: int, *, least: int = 0) -> int:
        text = self._given.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
            raise wire.Invalid(((name, f"it must be a whole number from {least} to {most}"),))
        return int(text)

    def choice(self, name: str, known: Sequence[str]) -> str:
        text = self._given.get(name, known[0])
        if text not in known:
            raise wire.Invalid(((name, f"it must be one of {', '.join(known)}"),))
        return text


@contextlib.contextmanager
def _telling(done: Callable[[], str] = str) -> Iterator[None]:
    """Tell a curator what is wrong with ledger or audit log, and what took effect all the same."""
    try:
        yield
    except (LedgerError, SourceError) as error:
        raise Refusal(told_to_curator(error, done())) from None


def stopped(office: Office) -> str:
    """Say that a service is stopped, if it is: that holds whether or not it could be written down."""
    return "" if office.access.stopped() is None else "The service is stopped."


def revoked(office: Office, name: str) -> str:
    """Say that nobody comes in by a name, if so: that holds whether or not it could be written down."""
    valid = any(token["name"] == name and token["state"] == "valid" for token in office.tokens())
    return "" if valid else f"{name} has no valid token any more."


def _guard(request: Request) -> Guard:
    found: Guard = request.state.guard
    return found


def _key(text: str) -> str:
    try:
        return _KEY.validate_python(text)
    except ValueError:
        raise wire.Invalid((("Idempotency-Key", "it must be 1 to 128 visible ASCII characters"),)) from None


def _dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, allow_nan=False).encode("ascii")


def _answered(content: bytes) -> Response:
    return Response(content, media_type="application/json")


def _flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    asked = entry["asked"]
    question = asked.get("said") or json.dumps(asked.get("question"))
    return {
        "question": question,
        "value": _plain(entry["value"]),
        "sd": _plain(entry["sd"]),
        "cost": json.dumps(entry["cost"]),
    }


def _plain(value: Any) -> Any:
    """Return a number as it is, and several as JSON."""
    return json.dumps(value) if isinstance(value, list) else value


def _csv(columns: Sequence[str], rows: Any, name: str) -> Response:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_cell, columns))
    writer.writerows([_cell(value) for value in row] for row in rows)
    headers = {"content-disposition": f'attachment; filename="{name}.csv"'}
    return Response(out.getvalue().encode(), media_type="text/csv; charset=utf-8", headers=headers)


def _cell(value: Any) -> Any:
    """Write a cell; text that a spreadsheet would run is marked as text."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return "" if value is None else value
