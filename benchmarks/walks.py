"""Count the modules that one job passes through: how many files somebody opens who follows it.

A module is passed if one of its functions is called between the command, request or charge and its result;
functions that only run while a module is being imported are not followed by anybody and do not count. A Jinja
template that is rendered counts as a module. Every walk has a process of its own.

To see the list of modules of one walk: ``python benchmarks/walks.py query``.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from measure import save

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

BARS = {"release": 107, "query": 64, "learn": 71, "http": 60, "charge": 16}
ROWS = 1_000
PROMISE = ["--epsilon", "1", "--delta", "1e-6"]
RELEASE = ["release", "census.csv", "--method", "gaussian", *PROMISE, "--accept-risk", "public rows"]
LEARN = ["learn", "census.csv", "--model", "id3", "--rho", "1", "--set", "max_depth=2"]
QUERY = ["query", "census.csv", "count where age > 40 by sex", *PROMISE]
_OPTIMIZED = 1  # inspect.CO_OPTIMIZED: a function, not the body of a module or class


class Walk:
    """The modules of the package in which a function was called since the last :meth:`start`."""

    def __init__(self, package: Path) -> None:
        self._root = f"{package}{os.sep}"
        self._skip = len(self._root)
        self.modules: set[str] = set()
        self._recording = True
        threading.setprofile(self._record)
        sys.setprofile(self._record)

    def start(self) -> None:
        """Forget what was called so far."""
        self._recording = True
        self.modules.clear()

    def stop(self) -> None:
        """Record no more."""
        self._recording = False

    def _record(self, frame: FrameType, event: str, _: object) -> None:
        """Record the module of a call; a call from a module's body belongs to its import."""
        code = frame.f_code
        if not self._recording or event != "call" or not code.co_filename.startswith(self._root):
            return
        module = code.co_filename[self._skip :].removesuffix(".py")
        if module in self.modules or not code.co_flags & _OPTIMIZED:
            return
        caller: FrameType | None = frame
        while caller is not None:
            if caller.f_code.co_name == "<module>" and caller.f_code.co_filename.startswith(self._root):
                return
            caller = caller.f_back
        self.modules.add(module)


def _write_table(package: Path) -> None:
    """Write the first rows of the bundled census as CSV, and its schema beside it."""
    import duckdb

    rows = duckdb.read_parquet(str(package / "data" / "census.parquet")).limit(ROWS)
    rows.write_csv("census.csv")
    shutil.copy(package / "data" / "census.schema.yaml", Path.cwd())


def _command(words: list[str]) -> Callable[[Walk], None]:
    def follow(walk: Walk) -> None:
        from discreet.cli.main import main

        sys.argv = ["discreet", *words]
        walk.start()
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                main()
            except SystemExit as stopped:
                if stopped.code:
                    raise

    return follow


def _question(walk: Walk) -> None:
    """Ask a running service one question over HTTP."""
    from tests.server.conftest import running

    with running(Path.cwd()) as service:
        walk.start()
        question = {
            "kind": "count",
            "where": "age > 40",
            "by": ["sex"],
            "privacy": {"kind": "zcdp", "rho": 0.01},
        }
        response = service.ask(question)
        service.logged(1)  # the line in the log follows the response
        walk.stop()
        response.raise_for_status()


def _charge(walk: Walk) -> None:
    """Charge a ledger that is open."""
    from discreet import ZCDP, GaussianDP, Ledger

    with Ledger.open("one.ledger", limit=ZCDP(1.0)) as ledger:
        walk.start()
        ledger.charge(GaussianDP(0.1), owner="ana", what="count")
        walk.stop()


WALKS: dict[str, Callable[[Walk], None]] = {
    "release": _command([*RELEASE, "--out", "out"]),
    "query": _command(QUERY),
    "learn": _command([*LEARN, "--out", "model"]),
    "http": _question,
    "charge": _charge,
}


def _follow(name: str) -> None:
    """Follow one walk in this process and folder, and write its modules to ``walk.json``."""
    from discreet import __file__ as found

    package = Path(found).parent
    _write_table(package)
    walk = Walk(package)
    WALKS[name](walk)
    walk.stop()
    Path("walk.json").write_text(json.dumps(sorted(walk.modules)))


def modules_of(name: str) -> list[str]:
    """Return the modules of one walk, which a process of its own takes in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "DISCREET_STATE": str(Path(folder, "state"))}
        command = [sys.executable, str(Path(__file__).resolve()), name, "--here"]
        subprocess.run(command, cwd=folder, env=environment, check=True)
        modules: list[str] = json.loads(Path(folder, "walk.json").read_text())
        return modules


def main() -> None:
    """Count the modules of every walk, and save the counts with the lists."""
    walks = {name: modules_of(name) for name in WALKS}
    for name, modules in walks.items():
        print(f"{name}: {len(modules)} modules, bar {BARS[name]}")
    save(
        "walks",
        {name: {"modules": len(walks[name]), "bar": BARS[name], "passed": walks[name]} for name in walks},
    )


if __name__ == "__main__":
    if sys.argv[2:] == ["--here"]:
        _follow(sys.argv[1])
    elif sys.argv[1:]:
        print("\n".join(modules_of(sys.argv[1])))
    else:
        main()
