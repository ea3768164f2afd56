"""Running the service: sockets, processes, and a quiet end."""

from __future__ import annotations

import math
import os
import signal
import socket
import tempfile
from typing import TYPE_CHECKING, Any

from discreet.errors import MissingExtra, ParameterError

try:
    import uvicorn
except ImportError:  # pragma: no cover - said in the words of the package
    raise MissingExtra(
        "uvicorn is needed to run the service, and is not installed. Run `pip install 'discreet[serve]'`."
    ) from None

from discreet.job.declared import table_of
from discreet.server.app import CONFIG, PARENT, make_app
from discreet.server.config import Config
from discreet.server.office import Office, declared_in
from discreet.server.telling import LOGGING, SHARED
from discreet.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Callable

_KEEP_ALIVE = 30  # seconds that an idle connection stays open
_REGISTERING = 600  # seconds after which a process that says nothing is taken for dead


def check(path: str | os.PathLike[str]) -> Config:
    """Verify a configuration as far as that changes nothing: keys, schema, table, certificate.

    Raises
    ------
    DiscreetError
        Says what is wrong, and the way out.
    """
    config = Config.load(path)
    declared_in(config)
    with open_table(table_of(config.table)):
        pass
    for key, place in (("access", config.access), ("audit_log", config.audit_log)):
        if not (place.parent.is_dir() and os.access(place.parent, os.W_OK)):
            raise ParameterError(
                f"{key} of the configuration must be in a folder that can be written to, and "
                f"{str(place.parent)!r} is not. Make it, or name another."
            )
    if config.tls is not None:
        for key, place in (("certificate", config.tls.certificate), ("key", config.tls.key)):
            if not os.access(place, os.R_OK):
                raise ParameterError(
                    f"tls.{key} of the configuration must be a file that can be read, and {str(place)!r} is "
                    "not."
                )
    return config


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
    office = Office(config)
    listening = _socket(config)
    scheme = "https" if config.tls is not None else "http"
    host, port = listening.getsockname()[:2]
    ready(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}", office)
    # Whoever ends us by a signal gets a quiet end: uvicorn raises it again once all is closed.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    if config.workers == 1:
        uvicorn.Server(uvicorn.Config(make_app(office), **_options(config))).run(sockets=[listening])
        return
    office.close()
    os.environ[CONFIG], os.environ[PARENT] = os.fspath(path), str(os.getpid())
    with tempfile.TemporaryDirectory(prefix="discreet-") as counts:
        os.environ[SHARED] = counts
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


def _socket(config: Config) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        made = socket.create_server((config.host, config.port), family=family, backlog=2048)
    except OSError as problem:
        raise ParameterError(
            f"listen of the configuration must be an address that is free here, and {config.listen} is not "
            f"({problem.strerror}). Choose another, or end who listens there."
        ) from None
    # Heads and bodies leave as they come: otherwise the second waits 40 ms for the first to be acknowledged.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.set_inheritable(True)
    return made
