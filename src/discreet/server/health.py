"""Health of a service: the probe of a running one, and the readiness check of its engine."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import ssl
import threading
import time
from typing import TYPE_CHECKING

from discreet.errors import EngineFailed, ParameterError, ServiceUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.server.config import Config

_SECONDS = 10.0  # longer than a service takes to find that its engine does not answer

TIMEOUT = 5.0
"""Seconds after which an engine that has not answered counts as failed."""

_INTERVAL = 1.0  # seconds for which a result is reused: /ready is open to all, and a check reads the table


def probe(config: Config, *, seconds: float = _SECONDS) -> None:
    """Request ``/ready`` of a running service on this machine, for health checks.

    Parameters
    ----------
    config : Config
        Configuration of the service, which says where it listens and whether by TLS.
    seconds : float
        Timeout of the request in seconds.

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
    connection = _connection(config, seconds)
    try:
        connection.request("GET", "/ready")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException):
        raise ServiceUnavailable(
            f"The service of {config.dataset} must answer at {config.listen}, and does not. Start it, or see "
            "its log."
        ) from None
    finally:
        connection.close()
    if status != http.HTTPStatus.OK:
        raise ServiceUnavailable(
            f"The service of {config.dataset} must be ready, and is not (status {status}). Its ledger or its "
            "engine does not answer: see its log."
        )


def _connection(config: Config, seconds: float) -> http.client.HTTPConnection:
    host = _local_address(config.host)
    if config.tls is None:
        return http.client.HTTPConnection(host, config.port, timeout=seconds)
    # Nothing secret is sent and only a status is read. The certificate names the public host, not this
    # address, and a renewed one on disk is not in use before the next start.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, config.port, timeout=seconds, context=context)


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
    """Readiness check of an engine, run at most once per second and never twice at the same time.

    Parameters
    ----------
    query : callable
        Function without arguments that queries the engine, and raises if that fails.

    Privacy
    -------
    Reveals whether there was an answer, never its value or its time.
    """

    def __init__(self, query: Callable[[], object]) -> None:
        self._query = query
        self._mutex = threading.Lock()
        self._last: _EngineQuery | None = None

    def check(self) -> None:
        """Wait for an answer of the engine.

        Raises
        ------
        EngineFailed
            The query failed, or took longer than :data:`TIMEOUT` seconds.
        """
        with self._mutex:
            last = self._last
            if last is None or (last.ended.is_set() and time.monotonic() - last.began >= _INTERVAL):
                last = self._last = _EngineQuery(self._query)
        if not last.ended.wait(TIMEOUT) or last.failed:
            raise EngineFailed


class _EngineQuery:
    """One query of the engine, on a thread of its own."""

    def __init__(self, query: Callable[[], object]) -> None:
        self.began = time.monotonic()
        self.ended = threading.Event()
        self.failed = True
        self._query = query
        # A daemon: an engine that never answers must not keep the process from ending.
        threading.Thread(target=self._run, name="readiness", daemon=True).start()

    def _run(self) -> None:
        # The text of an engine's error may quote rows, so it is dropped.
        with contextlib.suppress(Exception):
            self._query()
            self.failed = False
        self.ended.set()
