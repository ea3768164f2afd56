"""Health of a service: the probe of a running one, and the readiness check of its engine."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING

from discreet.errors import ParameterError, ServiceUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.server.config import Config

_SECONDS = 10.0  # /ready waits for the ledger and for no query

INTERVAL = 5.0
"""Seconds between two readiness checks, and after which an engine that has not answered counts as failed."""

LOST = 300.0
"""Seconds of failed checks in a row after which an engine is lost: it does not come back by itself."""


def probe(config: Config) -> None:
    """Request ``/ready`` of a running service on this machine, for health checks.

    Parameters
    ----------
    config : Config
        Configuration of the service, which says where it listens and whether by TLS.

    Raises
    ------
    ServiceUnavailable
        No service answers at the address, or its ledger or engine does not.
    """
    if config.port == 0:
        raise ParameterError(
            f"listen of the configuration must name a port for a health check, was {config.listen}. Port 0 "
            "is another one at every start: choose one."
        )
    connection = _connection(config)
    try:
        connection.request("GET", "/ready")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException):
        raise ServiceUnavailable(
            f"The service must answer at {config.listen}, and does not. Start it, or see its log."
        ) from None
    finally:
        connection.close()
    if status != http.HTTPStatus.OK:
        raise ServiceUnavailable(
            f"The service must be ready, and is not (status {status}). A ledger or an engine does not "
            "answer: see its log."
        )


def require_stopped(config: Config) -> None:
    """Refuse to go on while something listens at the address of a service.

    Parameters
    ----------
    config : Config
        Configuration of the service; with port 0, which is another one at every start, nothing is known.

    Raises
    ------
    ParameterError
        The service runs.
    """
    if config.port == 0:
        return
    try:
        socket.create_connection((_local_address(config.host), config.port), timeout=_SECONDS).close()
    except OSError:
        return
    raise ParameterError(
        f"The service must be stopped first, and something listens at {config.listen}. Stop it, and start it "
        "again afterwards."
    )


def _connection(config: Config) -> http.client.HTTPConnection:
    host = _local_address(config.host)
    if config.tls is None:
        return http.client.HTTPConnection(host, config.port, timeout=_SECONDS)
    # Nothing secret is sent and only a status is read. The certificate names the public host, not this
    # address, and a renewed one on disk is not in use before the next start.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, config.port, timeout=_SECONDS, context=context)


def _local_address(host: str) -> str:
    """Return the address at which a service that listens on `host` is reached from its own machine."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"


class Readiness:
    """Readiness check of an engine in the background, at fixed intervals and never twice at the same time.

    A check begins at one tick of the clock, and its result is published at the next; one that has not ended
    by then counts as failed until it does. Before the first result the engine counts as ready, because
    opening a data set has just read it.

    Parameters
    ----------
    query : callable
        Function without arguments that queries the engine, and raises if that fails.
    interval : float
        Seconds between two ticks; at least the longest slot, so that no finer times are revealed.

    Privacy
    -------
    A check waits for the queries of others, so its time is theirs. Nobody waits for it, and what is revealed
    changes at ticks alone: whether a check ended within one interval, and whether with an error, never its
    value or its time.
    """

    def __init__(self, query: Callable[[], object], *, interval: float = INTERVAL) -> None:
        self._query = query
        self._interval = interval
        self._running: _EngineQuery | None = None
        self._failed = self._slow = False
        self._errors = 0  # checks in a row that ended with an error
        self._closed = threading.Event()
        # A daemon, like the thread of a query: an engine that never answers must not keep a process alive.
        self._clock = threading.Thread(target=self._run, name="readiness clock", daemon=True)
        self._clock.start()

    @property
    def is_answering(self) -> bool:
        """Whether the last published result was an answer of the engine, within one interval."""
        return not (self._failed or self._slow)

    @property
    def is_slow(self) -> bool:
        """Whether the last published result was that a check had not ended within one interval."""
        return self._slow

    @property
    def is_lost(self) -> bool:
        """Whether every check of the last five minutes failed; one that is slow is not lost."""
        return self._errors * self._interval >= LOST

    def tick(self) -> None:
        """Publish the result of the check begun at an earlier tick, and begin another if it has ended."""
        last = self._running
        self._slow = last is not None and not last.ended.is_set()
        if last is not None and not self._slow:
            self._failed = last.failed
            self._errors = self._errors + 1 if last.failed else 0
        if not self._slow:
            self._running = _EngineQuery(self._query)

    def close(self) -> None:
        """Stop the clock; a check under way ends by itself."""
        self._closed.set()

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            # Ticks are counted from the start: the time that a tick takes must not move the next one.
            due = max(due + self._interval, time.monotonic())
            if self._closed.wait(due - time.monotonic()):
                return
            self.tick()


class _EngineQuery:
    """One query of the engine, on a thread of its own."""

    def __init__(self, query: Callable[[], object]) -> None:
        self.ended = threading.Event()
        self.failed = True
        self._query = query
        threading.Thread(target=self._run, name="readiness", daemon=True).start()

    def _run(self) -> None:
        # The text of an engine's error may quote rows, so it is dropped.
        with contextlib.suppress(Exception):
            self._query()
            self.failed = False
        self.ended.set()
