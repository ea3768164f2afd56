"""Running the service: sockets, processes, and a quiet end."""

from __future__ import annotations

import math
import os
import signal
import socket
from typing import TYPE_CHECKING, Any

from discreet.errors import MissingExtra, ParameterError

try:
    import uvicorn
except ImportError:  # pragma: no cover - said in the words of the package
    raise MissingExtra(
        "uvicorn is needed to run the service, and is not installed. Run `pip install 'discreet[serve]'`."
    ) from None

from discreet.server.app import CONFIG, PARENT, make_app, settle
from discreet.server.monitoring import LOGGING, SHARED, log
from discreet.server.preflight import check
from discreet.server.service import Office
from discreet.tables.temporary import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.server.config import Config

__all__ = ["check", "serve"]

_KEEP_ALIVE = 30  # seconds that an idle connection stays open
_BACKLOG = 2048  # connections that wait to be taken
_REGISTERING = 600  # seconds after which a process that says nothing is taken for dead


def serve(path: str | os.PathLike[str], *, ready: Callable[[str, Office], None]) -> None:
    """Run a service until it is told to end.

    Parameters
    ----------
    path : path
        Of the configuration.
    ready : callable
        Called with the address and the office once nothing can go wrong any more before it listens.

    Raises
    ------
    DiscreetError
        It cannot start: why, and the way out.
    """
    config = check(path)
    # First the address and then the rows: large tables take minutes, and a taken port is told at once.
    listening = _bound(config)
    log("reading", dataset=config.dataset)
    try:
        office = Office(config)
    except BaseException:
        listening.close()
        raise
    _listen(listening, config)
    scheme = "https" if config.tls is not None else "http"
    host, port = listening.getsockname()[:2]
    ready(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}", office)
    # Whoever ends us by a signal gets a quiet end: uvicorn raises it again once all is closed.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    if config.workers == 1:
        server = uvicorn.Server(uvicorn.Config(make_app(office), **_options(config)))
        settle()
        server.run(sockets=[listening])
        return
    office.close()
    os.environ[CONFIG], os.environ[PARENT] = os.fspath(path), str(os.getpid())
    with temporary_folder() as counts:
        os.environ[SHARED] = str(counts)
        uvicorn.run("discreet.server.app:worker", factory=True, fd=listening.fileno(), **_options(config))


def _options(config: Config) -> dict[str, Any]:
    tls = config.tls
    return {
        "workers": config.workers,
        "log_config": LOGGING,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "lifespan": "on",
        "timeout_keep_alive": _KEEP_ALIVE,
        "timeout_graceful_shutdown": math.ceil(config.limits.seconds) + 5,
        # A process that registers a large table does not answer for a while, and must not be replaced.
        "timeout_worker_healthcheck": _REGISTERING,
        "ssl_certfile": None if tls is None else tls.certificate,
        "ssl_keyfile": None if tls is None else tls.key,
    }


def _bound(config: Config) -> socket.socket:
    """Return a socket that has its address; until it listens, whoever comes is turned away."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        made.bind((config.host, config.port))
    except OSError as problem:
        made.close()
        raise _taken(config, problem) from None
    # Heads and bodies leave as they come: otherwise the second waits 40 ms for the first to be acknowledged.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.set_inheritable(True)
    return made


def _listen(bound: socket.socket, config: Config) -> None:
    try:
        bound.listen(_BACKLOG)
    except OSError as problem:
        bound.close()
        raise _taken(config, problem) from None


def _taken(config: Config, problem: OSError) -> ParameterError:
    return ParameterError(
        f"listen of the configuration must be an address that is free here, and {config.listen} is not "
        f"({problem.strerror}). Choose another, or end who listens there."
    )
