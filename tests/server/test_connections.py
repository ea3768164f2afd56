"""Clients that open connections and send nothing, or half a request, keep nobody from being served."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import ssl
import threading
import time
import types
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn
from uvicorn.server import ServerState

from discreet.server import connections
from discreet.server.connections import ConnectionLimiter, ServiceProtocol, raise_file_limit
from tests.server.processes import served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.server.conftest import RunningService


class Connection:
    """A connection as the limiter sees it."""

    def __init__(self, address: str, *, is_waiting: bool = True) -> None:
        self.address, self.is_waiting, self.closed = address, is_waiting, False
        self.since = 0.0

    def abort(self) -> None:
        self.closed = True


def closed(limiter: ConnectionLimiter, made: list[Any]) -> list[int]:
    """Register connections, of which a closed one leaves at once; return which were closed."""
    for one in made:
        limiter.add(one, one.since)
        for other in made:
            if other.closed:
                limiter.remove(other)
    return [i for i, one in enumerate(made) if one.closed]


def test_of_one_address_the_connection_that_waits_longest_makes_room() -> None:
    made = [
        Connection("a"),
        Connection("a", is_waiting=False),
        Connection("b"),
        Connection("a"),
        Connection("a"),
    ]
    made[3].since = 0.1  # the first has waited for too short a time
    made[4].since = 1.0
    assert closed(ConnectionLimiter(9, 2, body_bytes=1), made) == [0]


def test_beyond_the_total_the_one_that_waits_longest_makes_room_whatever_its_address() -> None:
    made = [Connection("a", is_waiting=False), *(Connection(name) for name in "bcd")]
    assert closed(ConnectionLimiter(3, 2, body_bytes=1), made) == [1]


def test_where_every_connection_has_a_request_in_progress_the_new_one_is_closed() -> None:
    made = [Connection("a", is_waiting=False) for _ in range(3)]
    assert closed(ConnectionLimiter(2, None, body_bytes=1), made) == [2]


def test_of_many_that_are_opened_in_one_turn_those_beyond_the_total_are_closed() -> None:
    made = [Connection("abc"[i % 3]) for i in range(9)]
    for one in made:
        one.since = math.inf  # not read from yet
    assert closed(ConnectionLimiter(4, 4, body_bytes=1), made) == [4, 5, 6, 7, 8]


def test_an_answered_connection_waits_from_then_on() -> None:
    limiter = ConnectionLimiter(2, None, body_bytes=1)
    first, second, third = made = [Connection("a") for _ in range(3)]
    limiter.add(first, 0.0)  # type: ignore[arg-type]
    limiter.add(second, 0.0)  # type: ignore[arg-type]
    limiter.reorder(first, last=True)  # type: ignore[arg-type]
    limiter.add(third, 0.0)  # type: ignore[arg-type]
    assert [one.closed for one in made] == [False, True, False]


class Transport:
    """Remembers what is done with it."""

    def __init__(self, *, unread: int = 0) -> None:
        self.done: list[bytes | str] = []
        self.unread = unread

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return not {"close", "abort"}.isdisjoint(self.done)

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def pause_reading(self) -> None: ...

    def close(self) -> None:
        self.done.append("close")

    def abort(self) -> None:
        self.done.append("abort")


def gather(transport: Any) -> connections._GatheringTransport:
    """Return the transport that gathers what is written to another, in the running loop."""
    return connections._GatheringTransport(transport, asyncio.get_running_loop(), transport.abort)


@pytest.mark.parametrize(
    ("calls", "done"),
    [
        ([("write", b"head"), ("write", b""), ("write", b"body")], [b"headbody"]),
        ([("write", b"")], []),
        ([("write", b"bye"), ("close",)], [b"bye", "close"]),
        ([("write", b"lost"), ("abort",)], ["abort", b"lost"]),
    ],
    ids=["one turn", "nothing", "close", "abort"],
)
def test_what_is_written_in_one_turn_is_sent_together(
    calls: list[tuple[Any, ...]], done: list[bytes | str]
) -> None:
    transport = Transport()

    async def write() -> None:
        gathering = gather(transport)
        for name, *values in calls:
            getattr(gathering, name)(*values)
        await asyncio.sleep(0)

    asyncio.run(write())
    assert transport.done == done


def test_what_is_written_in_two_turns_is_sent_in_order() -> None:
    transport = Transport()

    async def write() -> None:
        gathering = gather(transport)
        for part in (b"1", b"2"):
            gathering.write(part)
            await asyncio.sleep(0)

    asyncio.run(write())
    assert transport.done == [b"1", b"2"]


class Accepted(Transport):
    """A transport of a connection that a listener accepted."""

    def __init__(self, *, serving: bool = True, unread: int = 0) -> None:
        super().__init__(unread=unread)
        self._server = types.SimpleNamespace(is_serving=lambda: serving)

    def get_extra_info(self, _name: str, default: Any = None) -> Any:
        return default


class Encrypted(Transport):
    """A transport with TLS, on top of another."""

    def __init__(self, raw: Accepted) -> None:
        super().__init__()
        self._ssl_protocol = types.SimpleNamespace(_transport=raw)

    def get_extra_info(self, _name: str, default: Any = None) -> Any:
        return default


class Loop:
    """An event loop whose time passes when told."""

    def __init__(self) -> None:
        self.timers: list[types.SimpleNamespace] = []

    def time(self) -> float:
        return 0.0

    def call_soon(self, _function: Any, *_values: Any) -> None:
        """Leave out what a turn does, which no test with this loop is about."""

    def call_later(self, _seconds: float, function: Callable[..., None], *values: Any) -> Any:
        timer = types.SimpleNamespace(run=lambda: function(*values))
        timer.cancel = lambda: self.timers.remove(timer) if timer in self.timers else None
        self.timers.append(timer)
        return timer

    def pass_time(self) -> None:
        """Run what is due, all at once."""
        due, self.timers = self.timers, []
        for timer in due:
            timer.run()


class Application:
    """Answers nothing."""

    def __init__(self) -> None:
        self.connections = ConnectionLimiter(9, None, body_bytes=1)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...


def connect(transport: Any, loop: Any = None) -> ServiceProtocol:
    """Return a protocol that was connected to a transport."""
    config = uvicorn.Config(Application(), log_config=None, proxy_headers=False, interface="asgi3")
    config.load()
    protocol = ServiceProtocol(config, ServerState(), {}, _loop=loop)
    protocol.connection_made(transport)
    return protocol


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(("serving", "done"), [(True, []), (False, ["close"])])
def test_a_connection_accepted_while_the_service_stops_is_closed(
    serving: bool, done: list[str], tls: bool
) -> None:
    accepted = Accepted(serving=serving)
    transport = Encrypted(accepted) if tls else accepted
    connect(transport, Loop())
    assert transport.done == done


def test_the_listener_of_a_connection_with_tls_is_found(certificate: tuple[Path, Path]) -> None:
    found: list[Any] = []

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            found.append(connections._socket_transport(transport)._server)
            transport.close()

    async def accept() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server = await asyncio.get_running_loop().create_server(Protocol, "127.0.0.1", 0, ssl=context)
        trusting = ssl.create_default_context(cafile=certificate[0])
        reader, writer = await asyncio.open_connection(
            *server.sockets[0].getsockname(), ssl=trusting, server_hostname="127.0.0.1"
        )
        await reader.read()
        writer.close()
        await writer.wait_closed()
        server.close()
        assert found == [server]

    asyncio.run(accept())


def test_a_connection_is_closed_once_and_forgotten_when_all_was_read() -> None:
    loop, transport = Loop(), Accepted(unread=100_000)
    protocol = connect(transport, loop)
    protocol.transport.close()
    protocol.connection_lost(None)  # which closes it again
    loop.pass_time()
    assert transport.done == ["close"]


def test_a_closed_connection_whose_answer_is_not_read_is_aborted() -> None:
    loop, transport = Loop(), Accepted(unread=100_000)
    protocol = connect(transport, loop)
    protocol._set_deadline(None)
    protocol.transport.close()
    protocol.resume_writing()  # some of it was read, but not the rest
    loop.pass_time()
    assert transport.done == ["close", "abort"]


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("is_closed", [False, True])
def test_a_client_that_reads_steadily_has_time_for_the_whole_answer(is_closed: bool, tls: bool) -> None:
    loop, raw = Loop(), Accepted(unread=1_000_000)
    transport = Encrypted(raw) if tls else raw
    protocol = connect(transport, loop)
    protocol._set_deadline(None)
    if is_closed:
        protocol.transport.close()
    else:
        protocol.pause_writing()
    for unread in (900_000, 500_000, 400_000):
        raw.unread = unread
        loop.pass_time()
        assert "abort" not in transport.done
    raw.unread = 340_000  # less than 64 kB
    loop.pass_time()
    assert transport.done[-1] == "abort"


@pytest.mark.parametrize(("size", "more"), [(9, b""), (100_000, b""), (9, b"GET / HTTP/1.1\r\n"), (-1, b"")])
def test_a_connection_waits_for_its_client_unless_one_request_is_in_progress(size: int, more: bytes) -> None:
    async def ask() -> bool:
        protocol = connect(Accepted(), asyncio.get_running_loop())
        body = b"x" * size
        protocol.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % abs(size) + body)
        if more:
            protocol.data_received(more)
        protocol._set_deadline(None)
        return protocol.is_waiting

    assert asyncio.run(ask()) == (size < 0 or bool(more))


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


HEADERS = b"POST /v1/datasets/town/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("sent", [b"", b"GET / HT", HEADERS + b"Content-Length: 9\r\n\r\n{"])
@pytest.mark.slow
def test_a_request_that_is_not_finished_in_time_is_closed(
    start: Callable[..., RunningService], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.2)
    service = start(limits={"body_bytes": 1024, "per_minute": 1000})
    with socket.create_connection(_address(service.url), timeout=60) as client:
        client.sendall(sent)
        heard = b""
        with contextlib.suppress(ConnectionResetError):
            while part := client.recv(4096):  # a refusal for want of a token may come first
                heard += part
        assert heard == b"" or heard.startswith(b"HTTP/1.1 401")
    monkeypatch.undo()
    assert httpx.get(f"{service.url}/health").status_code == 200


def unread(service: RunningService) -> socket.socket:
    """Return a connection on which many long answers were asked for, and none is read."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    client.settimeout(60)
    client.connect(_address(service.url))
    client.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
    return client


@pytest.mark.slow
def test_a_client_that_does_not_read_its_answers_is_closed(
    start: Callable[..., RunningService], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "READ_SECONDS", 0.2)
    with unread(start()) as client:
        time.sleep(1)
        heard = 0
        with contextlib.suppress(ConnectionResetError):
            while part := client.recv(2**20):
                heard += len(part)
    assert heard < 100 * 100_000  # else it waits, and all of them are sent


@pytest.mark.slow
def test_clients_that_do_not_read_their_answers_make_room(start: Callable[..., RunningService]) -> None:
    service = start(limits={"connections": 16, "connections_per_address": 16})
    with contextlib.ExitStack() as clients:
        for _ in range(16):
            clients.enter_context(unread(service))
        time.sleep(1)
        for _ in range(20):
            assert httpx.get(f"{service.url}/health", timeout=60).status_code == 200


def test_without_a_token_little_of_a_body_is_read(shared_service: RunningService) -> None:
    response = httpx.post(f"{shared_service.url}/login", data={"token": "x" * 20_000})
    assert response.status_code == 413


@contextlib.contextmanager
def attack(url: str, count: int, sent: bytes, *, flood: bool) -> Iterator[None]:
    """Hold many connections on which something was sent, or on which bytes are sent without end."""
    over, sockets = threading.Event(), []

    def connect() -> None:
        with contextlib.suppress(OSError):
            client = socket.create_connection(_address(url), timeout=10)
            sockets.append(client)
            client.sendall(sent)

    def keep_on() -> None:
        while not over.is_set():
            for client in sockets[:]:
                with contextlib.suppress(OSError):
                    client.settimeout(0.002)
                    client.sendall(b"x" * 65_536 if flood else b"X")
            for _ in range(8):  # those that were closed come back
                time.sleep(0.01)
                connect()
                if len(sockets) > count:
                    sockets.pop(0).close()

    for _ in range(count):
        connect()
    threads = [threading.Thread(target=keep_on, daemon=True)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(120)
        for client in sockets:
            client.close()


ATTACKS = [
    ("half-open", 1200, b"", False),
    ("slow header", 1200, b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ", False),
    ("large body", 200, HEADERS + b"Content-Length: 1000000000000\r\n\r\n", True),
    (
        "large form",
        200,
        b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n",
        True,
    ),
]
"""Name, number of connections, what each sends first, and whether more follows without end."""


@pytest.mark.parametrize(
    ("count", "sent", "flood"), [one[1:] for one in ATTACKS], ids=[one[0] for one in ATTACKS]
)
@pytest.mark.slow
def test_health_and_the_stop_switch_answer_under_attack(
    tmp_path: Path, count: int, sent: bytes, flood: bool
) -> None:
    assert raise_file_limit() > 4 * count, "this system permits too few open files"
    with served(tmp_path) as service:
        url = f"http://127.0.0.1:{service.port}"
        curator = {"Authorization": f"Bearer {service.curator()}"}
        with attack(url, count, sent, flood=flood):
            for stopped in (True, False) * 5:
                # A new connection each, which the attack must not keep out.
                assert httpx.get(f"{url}/health", timeout=30).status_code == 200
                body = {"stopped": stopped}
                answer = httpx.post(
                    f"{url}/v1/datasets/town/curator/stop", json=body, headers=curator, timeout=30
                )
                assert answer.status_code == 200
