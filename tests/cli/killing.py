"""Commands in processes that are killed: a server that forks, so that what they import is loaded once."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOADED = ("discreet.cli.main", "discreet.pipeline", "discreet.pipeline.release", "discreet.pipeline.model",
           "discreet.query.text_query", "discreet.query", "discreet.learn", "discreet.report.verify._run",
           "discreet.server.app", "sqlglot.optimizer.simplify")  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """How a run ended: the status of its process, after how many seconds, and what it wrote."""

    status: int
    seconds: float
    text: str

    @property
    def killed(self) -> bool:
        """Whether it was killed before its end."""
        return os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGKILL


class Killer:
    """Runs commands in a folder of their own and kills them.

    Parameters
    ----------
    folder : Path
        Gets a working folder, a home and a place for temporary files: ``cwd``, ``home``, ``tmp``.
    process : subprocess.Popen
        The server, made by :func:`killer`.
    """

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self.folder = folder
        self.process = process

    def run(
        self,
        *argv: str,
        seconds: float | None = None,
        after: str | None = None,
        until: str | None = None,
        twin: str | None = None,
        limits: dict[str, int] | None = None,
        number: int = signal.SIGKILL,
    ) -> Ended:
        """Run one command.

        Parameters
        ----------
        *argv : str
            Its arguments.
        seconds : float, optional
            When to kill it.
        after : str, optional
            ``module:name``: kill it when this function has returned.
        until : str, optional
            Take it for finished, and kill it, when it has written this.
        twin : str, optional
            ``module:function`` that is called first, to make the command worse than it is.
        limits : dict of str to int, optional
            Resource limits by name.
        number : int
            The signal to kill it by.
        """
        order = {"argv": argv, "seconds": seconds, "after": after, "until": until, "twin": twin,
                 "limits": limits or {}, "signal": int(number)}  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return Ended(**json.loads(self.process.stdout.readline()))


@contextlib.contextmanager
def killer(folder: Path) -> Iterator[Killer]:
    """Start the server for a folder."""
    for name in ("cwd", "home", "tmp"):
        (folder / name).mkdir()
    environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "HOME": str(folder / "home")}
    process = subprocess.Popen(
        [sys.executable, "-c", "from tests.cli.killing import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**environment, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path.cwd())])},
    )
    with process:
        yield Killer(folder, process)
        assert process.stdin is not None
        process.stdin.close()


def main() -> None:
    """Take orders, a line of JSON each, and tell how each run ended."""
    for name in _LOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        order = json.loads(line)
        folder = Path(os.environ["TMPDIR"]).parent
        child = os.fork()
        if not child:
            _command(order, folder)
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(child, child)  # here too: it may be killed before it comes to do so itself
        sys.stdout.write(json.dumps(_watched(child, order, folder / "cwd" / "output.txt")) + "\n")
        sys.stdout.flush()


def _command(order: dict[str, Any], folder: Path) -> None:
    import resource

    from discreet.cli import main as command
    from discreet.query.engines import _duckdb
    from discreet.tables import external_sort

    os.setpgid(0, 0)
    os.chdir(folder / "cwd")
    output = os.open("output.txt", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    # Small tables take the way of large ones: rows go to disk.
    _duckdb._IN_MEMORY = external_sort.MEMORY = 1000
    for name, limit in order["limits"].items():
        resource.setrlimit(getattr(resource, name), (limit, limit))
    if order["twin"]:
        _named(order["twin"])[2]()
    if order["after"]:
        holder, name, function = _named(order["after"])
        setattr(holder, name, _deadly(function, order["signal"]))
    sys.argv = ["discreet", *order["argv"]]
    try:
        command()
    except SystemExit as end:
        sys.stdout.flush()
        os._exit(end.code if isinstance(end.code, int) else 1)
    os._exit(0)


def _named(text: str) -> tuple[Any, str, Callable[..., Any]]:
    module, _, path = text.partition(":")
    *classes, name = path.split(".")
    holder: Any = importlib.import_module(module)
    for part in classes:
        holder = getattr(holder, part)
    return holder, name, getattr(holder, name)


def _deadly(function: Callable[..., Any], number: int) -> Callable[..., Any]:
    def deadly(*given: Any, **named: Any) -> None:
        function(*given, **named)
        os.kill(os.getpid(), number)
        time.sleep(60)

    return deadly


def _watched(child: int, order: dict[str, Any], output: Path) -> dict[str, Any]:
    start = time.monotonic()
    status = 0
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        passed = time.monotonic() - start
        text = output.read_text() if output.exists() else ""
        if ended:
            break
        late = order["seconds"] is not None and passed >= order["seconds"]
        if late or (order["until"] is not None and order["until"] in text):
            os.killpg(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            break
        time.sleep(0.002)
    return {"status": status, "seconds": passed, "text": text}
