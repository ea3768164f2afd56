"""Connections of the service: how many may be open, and how long a client may take to send a request."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

HEADER_SECONDS = 10.0
"""Seconds that a client has for the headers of a request, from its first byte or the opening on."""

READ_SECONDS = 60.0
"""Seconds that a client has for reading 64 kB of what was sent to it, or the rest if it is less."""

_BODY_RATE = 50_000  # bytes per second that a client must reach with the largest body that is permitted
_GRACE = 0.5  # seconds that a connection may wait before another one of its address takes its place
_READ_BYTES = 2**16  # bytes that a client must read in the time for reading
_TURNS = 3  # turns of the event loop between accepting a connection and reading from it
_MOST_FILES = 2**16


class ConnectionLimiter:
    """Open connections of one process, by address.

    A connection beyond a limit is accepted, and the one that has been waiting longest for its client is
    closed instead (beyond the limit of one address, if it has waited for half a second): of many clients that
    send nothing, the earlier ones make room for the later ones, and a client that sends its request at once
    is served. A client that does not read its answer makes room too. Only if every connection has a request
    in progress, or all that have none are too new to have been read from, is the newest one closed.

    Parameters
    ----------
    most : int
        Maximum number of open connections.
    per_address : int or None
        Maximum number from one address; None behind a proxy, where all connections are the proxy's.
    body_bytes : int
        Largest body of a request, from which the time for sending it follows.
    """

    def __init__(self, most: int, per_address: int | None, *, body_bytes: int) -> None:
        self.body_seconds = HEADER_SECONDS + body_bytes / _BODY_RATE
        self.most_discarded = body_bytes
        self._most, self._per_address = most, per_address
        # Ordered: those that began to wait for their client earlier come first.
        self._all: OrderedDict[ServiceProtocol, None] = OrderedDict()
        self._by_address: dict[str, OrderedDict[ServiceProtocol, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: ServiceProtocol, now: float) -> None:
        """Register a connection opened now, and close one that waits for its client if there are too many."""
        same = self._by_address.setdefault(connection.address, OrderedDict())
        same[connection] = self._all[connection] = None
        if self._per_address is not None and len(same) > self._per_address:
            # A client whose first bytes are still on their way keeps its place as long as there is room.
            _close_longest_waiting(same, before=now - _GRACE)
        if len(self._all) > self._most:
            _close_longest_waiting(self._all, before=math.inf)

    def reorder(self, connection: ServiceProtocol, *, last: bool) -> None:
        """Note that a connection begins to wait for its next request, or is the next one to close.

        Parameters
        ----------
        connection : ServiceProtocol
            Connection that was added before.
        last : bool
            True if it begins to wait; False if it may be closed before all others.
        """
        if connection in self._all:
            self._all.move_to_end(connection, last=last)
            self._by_address[connection.address].move_to_end(connection, last=last)

    def remove(self, connection: ServiceProtocol) -> None:
        """Forget a closed connection."""
        self._all.pop(connection, None)
        same = self._by_address.get(connection.address, OrderedDict())
        same.pop(connection, None)
        if not same:
            self._by_address.pop(connection.address, None)


def _close_longest_waiting(connections: OrderedDict[ServiceProtocol, None], *, before: float) -> None:
    """Close the connection that waits longest for its client, since before a time.

    If none waits at all, the newest is closed; so it is where those that wait were opened in this turn of the
    event loop, unless they have time.
    """
    longest = next((one for one in connections if one.is_waiting and one.since < math.inf), None)
    if longest is not None:
        if longest.since < before:
            longest.abort()
    elif before == math.inf or not any(one.is_waiting for one in connections):
        next(reversed(connections)).abort()


def _socket_transport(transport: Any) -> Any:
    """Return the transport below TLS, for which asyncio has no public name; without TLS, the same one."""
    return getattr(getattr(transport, "_ssl_protocol", None), "_transport", transport)


class _GatheringTransport:
    """A transport that sends all that is written in one turn of the event loop by one call of the system.

    uvicorn writes the headers of a response and its body one after the other.

    Parameters
    ----------
    transport : Transport
        Transport of the connection, which does everything else.
    loop : AbstractEventLoop
        Event loop of the connection.
    abort : callable
        Function that closes the connection at once, if its client does not read.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, abort: Callable[[], None]
    ) -> None:
        self._transport, self._loop, self._abort = transport, loop, abort
        self._layers = {transport, _socket_transport(transport)}
        self._parts: list[bytes] = []
        self._unread: asyncio.TimerHandle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send some bytes at the end of this turn."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        """Send what was written and close the connection, even if the client does not read it."""
        self._flush()
        # uvicorn closes a lost connection again, by which one with TLS forgets its buffers.
        if not self._transport.is_closing():
            self._transport.close()
            if self._unread_bytes():
                self.wait_for_reader()

    def wait_for_reader(self) -> None:
        """Close the connection as soon as its client reads too slowly."""
        self.stop_waiting_for_reader()
        self._unread = self._loop.call_later(READ_SECONDS, self._check_reader, self._unread_bytes())

    def _check_reader(self, before: int) -> None:
        # A whole answer is one write: until most of it is read, only its rest tells that a client reads.
        if before - self._unread_bytes() < _READ_BYTES:
            self._abort()
        else:
            self.wait_for_reader()

    def _unread_bytes(self) -> int:
        """Return how many bytes the system has not taken yet; with TLS, most are below it."""
        return sum(one.get_write_buffer_size() for one in self._layers)

    def stop_waiting_for_reader(self) -> None:
        """Leave the client as much time for reading as it takes."""
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _flush(self) -> None:
        data = b"".join(self._parts)
        self._parts.clear()
        if data:
            self._transport.write(data)


class ServiceProtocol(H11Protocol):
    """A connection whose client must send a request within a time limit; see :class:`ConnectionLimiter`.

    The limiter is that of the application (``ServiceMiddleware.connections``). The time for the headers is
    10 seconds, that for the body follows from the largest body that is permitted. A connection between two
    requests is closed by uvicorn after its time for idle connections.
    """

    def __init__(self, config: Any, *others: Any, **options: Any) -> None:
        super().__init__(config, *others, **options)
        self._limiter: ConnectionLimiter = config.loaded_app.connections
        self._deadline: asyncio.TimerHandle | None = None
        self._phase: Any = None
        self.since = math.inf  # when it began to wait for its client, in seconds of the event loop
        self._discarded = 0
        self._aborted = False

    @property
    def address(self) -> str:
        """Address of the client, without its port; empty if there is none."""
        return "" if self.client is None else self.client[0]

    @property
    def is_waiting(self) -> bool:
        """Whether the client has to send or to read something before the service can go on.

        One that sent several requests at once counts too, since others have not been answered at all.
        """
        if self._aborted:
            return False
        # Reading is paused for a long body too, which a request in progress has.
        has_sent_more = self.flow.read_paused and bool(self.conn.trailing_data[0])
        stopped = self.flow.write_paused or has_sent_more or self.transport.is_closing()
        return stopped or self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    @property
    def _is_answered(self) -> bool:
        """Whether the client is still sending a body although its request was answered, as a refusal is."""
        return self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE

    def connection_made(self, transport: Any) -> None:
        """Register the connection, and wait for the headers of its first request."""
        super().connection_made(transport)
        self._gathering = _GatheringTransport(transport, self.loop, self.abort)
        self.transport = self._gathering  # type: ignore[assignment]
        self._limiter.add(self, self.loop.time())
        self._set_deadline(HEADER_SECONDS)
        self._begin_to_wait(_TURNS)
        listener = getattr(_socket_transport(transport), "_server", None)  # which has no public name
        if listener is not None and not listener.is_serving():
            # Accepted in the turn in which the service stopped: uvicorn has told all others to end by then,
            # and would wait for this one as long as its client sends requests.
            self.shutdown()

    def _begin_to_wait(self, turns: int) -> None:
        """Note the time after some turns of the event loop, when bytes that have arrived are read.

        A busy loop must not count against the client.
        """
        if turns:
            self.loop.call_soon(self._begin_to_wait, turns - 1)
        else:
            self.since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._limiter.remove(self)
        self._set_deadline(None)
        super().connection_lost(exc)
        self._gathering.stop_waiting_for_reader()

    def pause_writing(self) -> None:
        """Wait until the client has read most of what was sent, but not without end."""
        super().pause_writing()
        self.since = self.loop.time()
        self._limiter.reorder(self, last=True)
        self._gathering.wait_for_reader()

    def resume_writing(self) -> None:
        """Go on, since the client has read most of what was sent."""
        if not self.transport.is_closing():  # else it has to read the rest in time
            self._gathering.stop_waiting_for_reader()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request, within the time for its headers and for its body."""
        super().data_received(data)
        phase = self.conn.their_state
        if phase is not self._phase:
            self._discarded = 0
        if phase is not self._phase or (phase is h11.IDLE and self._deadline is None):
            self._set_deadline(
                {h11.IDLE: HEADER_SECONDS, h11.SEND_BODY: self._limiter.body_seconds}.get(phase)
            )
        self._phase = phase
        if self._is_answered:
            # The rest of the body is dropped, so that the client reads its answer; but not without end.
            self._discarded += len(data)
            if self._discarded > self._limiter.most_discarded:
                self.flow.pause_reading()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request, or for the rest of a body that is dropped."""
        super().on_response_complete()
        self.since = self.loop.time()
        self._limiter.reorder(self, last=not self._is_answered)
        if self._is_answered:
            self._set_deadline(HEADER_SECONDS)

    def abort(self) -> None:
        """Close the connection at once."""
        self._aborted = True
        self.transport.abort()

    def _set_deadline(self, seconds: float | None) -> None:
        """Close the connection after some seconds, instead of what was set before; None for never."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.abort)


def permitted_files() -> int:
    """Return how many files the system permits this process to open, at most 65,536."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return _MOST_FILES
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)


def raise_file_limit() -> int:
    """Allow this process as many open files as the system permits, at most 65,536; return how many."""
    most = permitted_files()
    try:
        import resource
    except ImportError:
        return most
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return _MOST_FILES if soft == resource.RLIM_INFINITY else soft
