"""Whether a running service answers, asked on the machine that it runs on."""

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

_SECONDS = 10.0  # more than a service takes to find out that its engine does not answer


def probe(config: Config, *, seconds: float = _SECONDS) -> None:
    """Ask a running service whether its ledger and its engine answer: for health checks.

    Parameters
    ----------
    config : Config
        Of the service: where it listens, and whether by TLS.
    seconds : float
        After which nobody is taken to answer.

    Raises
    ------
    ServiceUnavailable
        Nobody answers there, or a service that is not ready.
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
    # Nothing secret is sent and only a status is read. The certificate names another host than the number
    # that is asked here, and a renewed one on disk is not in use before the next start.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, config.port, timeout=seconds, context=context)


def _local_address(host: str) -> str:
    """Return where a service that listens everywhere is reached from its own machine."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"


TIMEOUT = 5.0
"""Seconds after which an engine that has not answered is taken for gone."""

_INTERVAL = 1.0  # seconds for which what was found is told again: anybody may ask, and a look is a pass


class Readiness:
    """Asks an engine something, at most once in a second and never twice at the same time.

    Parameters
    ----------
    look : callable
        Asks it; raises if it fails.

    Privacy
    -------
    Tells whether there was an answer, never what it was or when it came.
    """

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look
        self._mutex = threading.Lock()
        self._last: _EngineQuery | None = None

    def check(self) -> None:
        """Wait for an answer.

        Raises
        ------
        EngineFailed
            There was none, or not within :data:`TIMEOUT` seconds.
        """
        with self._mutex:
            last = self._last
            if last is None or (last.ended.is_set() and time.monotonic() - last.began >= _INTERVAL):
                last = self._last = _EngineQuery(self._look)
        if not last.ended.wait(TIMEOUT) or last.failed:
            raise EngineFailed


class _EngineQuery:
    def __init__(self, look: Callable[[], object]) -> None:
        self.began = time.monotonic()
        self.ended = threading.Event()
        self.failed = True
        self._look = look
        # A daemon: an engine that never answers must not keep the process from ending.
        threading.Thread(target=self._run, name="look", daemon=True).start()

    def _run(self) -> None:
        # Whatever an engine says when it fails may quote rows, and is told to nobody.
        with contextlib.suppress(Exception):
            self._look()
            self.failed = False
        self.ended.set()
