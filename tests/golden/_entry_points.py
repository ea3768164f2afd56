"""Every name of the product that the fingerprint needs and that a rename may touch, in one place.

The cases themselves use only what stays: names of the package, of ``discreet.noise``, ``discreet.privacy``,
``discreet.learn`` and ``discreet.release``, the command line, and the wire. Whoever moves a module or renames
a class changes the right-hand sides here and nothing else.
"""

from __future__ import annotations

import contextlib
import io
import os
import pkgutil
import signal
import sys
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import discreet
from discreet.cli import build_app, main
from discreet.noise_law import ColumnLaw as column_law  # noqa: N813
from discreet.noise_law import GaussianLaw as gaussian_law  # noqa: N813
from discreet.noise_law import NoiseLaw as noise_law  # noqa: N813
from discreet.noise_law import ResponseLaw as response_law  # noqa: N813
from discreet.privacy.receipt import package_version, product_version
from discreet.query import Answer, aggregate_from_dict
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

__all__ = [
    "Answer",
    "App",
    "Column",
    "Done",
    "Schema",
    "aggregate_from_dict",
    "calibrate",
    "column_law",
    "command",
    "gaussian_law",
    "load_everything",
    "noise_law",
    "package_version",
    "product_version",
    "query",
    "response_law",
    "service_app",
    "typer_app",
]

_OPTIONAL = ("spark",)
"""Parts of names of modules that need a package which need not be installed."""


def load_everything() -> None:
    """Import every module of the product, so that what is replaced in modules is replaced in all of them."""
    for module in pkgutil.walk_packages(discreet.__path__, "discreet."):
        if "__main__" in module.name or any(part in module.name for part in _OPTIONAL):
            continue
        import_module(module.name)


# The command line.

typer_app = build_app()


class Done(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


def command(*arguments: str, cwd: Path) -> Done:
    """Run a command of the product in this process, in a folder, and return its exit code and output."""
    out, err = io.StringIO(), io.StringIO()
    handler = signal.getsignal(signal.SIGTERM)
    with (
        contextlib.chdir(cwd),
        mock.patch.object(sys, "argv", ["discreet", *arguments]),
        mock.patch.dict(os.environ, {"COLUMNS": "110", "NO_COLOR": "1", "TERM": "dumb"}),
        mock.patch.object(warnings, "showwarning", warnings.showwarning),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        finally:
            signal.signal(signal.SIGTERM, handler)
    return Done(code, out.getvalue(), err.getvalue())


# The private database.


def query(database: Any, aggregate: Mapping[str, Any], **how: Any) -> Any:
    """Ask a database for an aggregate that is written as on the wire, and return its answer."""
    return database.ask(aggregate_from_dict(aggregate), **how)


def calibrate(database: Any, aggregate: Mapping[str, Any], **how: Any) -> tuple[list[Any], Any]:
    """Return what an aggregate would cost, as promises, and its expected standard deviation."""
    asked = aggregate_from_dict(aggregate)
    return list(database.cost(asked, **how)), database.expected_sd(asked, **how)


# The service.


class App(NamedTuple):
    """An application, and what cases do with it beside sending requests."""

    asgi: Any
    tokens: dict[str, str]
    failing: Callable[[str], AbstractContextManager[Any]]


@contextlib.contextmanager
def service_app(folder: Path, settings: Mapping[str, Any], people: Mapping[str, Any]) -> Iterator[App]:
    """Yield the ASGI application of a service on a folder, with tokens of people by name.

    Parameters
    ----------
    folder : Path
        Folder with the table and its schema, where the service keeps its files.
    settings : mapping
        Configuration as in the service's file.
    people : mapping of str to str
        Role, ``analyst``, ``curator`` or ``operator``, of each name that gets a token.

    Notes
    -----
    ``failing(part)`` makes the ``engine``, the ``ledger`` or the ``program`` itself fail inside a block.
    """
    from discreet.errors import EngineFailed, LedgerUnavailable
    from discreet.server import monitoring
    from discreet.server.app import make_app
    from discreet.server.config import Config
    from discreet.server.service import Service

    with mock.patch.object(monitoring, "write_line"):
        service = Service(Config.from_dict(settings, folder))
        (only,) = service.datasets.values()
        tokens = {
            name: service.tokens.create(
                "test", name, days=90, dataset="*" if role == "operator" else only.name, role=role
            )
            for name, role in people.items()
        }

        def failing(part: str) -> AbstractContextManager[Any]:
            where, name, error = {
                "engine": (only.dataset.database, "ask_task", EngineFailed()),
                "ledger": (
                    only.dataset.ledger,
                    "execute",
                    LedgerUnavailable("the disk is full: /secret/place"),
                ),
                "program": (only, "ask_task", RuntimeError("row 17 has the secret 4711")),
            }[part]
            return mock.patch.object(where, name, side_effect=error)

        yield App(make_app(service), tokens, failing)
