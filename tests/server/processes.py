"""The service as an operator runs it: ``discreet serve`` in processes of its own, which can be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import httpx
import yaml

from discreet.server.access import AccessStore
from discreet.server.audit_log import ServiceLog
from discreet.server.config import Config
from discreet.server.credentials import TokenAdmin
from tests.server.conftest import settings, table, write_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from discreet.privacy import Promise
    from discreet.server.callers import Role

_STARTING = 600.0  # seconds; a busy machine takes its time


def town_in_postgres(url: str) -> str:
    """Put the table into a PostgreSQL database; return what a configuration calls it."""
    import psycopg

    columns = table()
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE TABLE town (age integer, income double precision, sex text, city text, owner text)"
        )
        with connection.cursor().copy(f"COPY town ({', '.join(columns)}) FROM STDIN") as copying:
            for row in zip(*columns.values(), strict=True):
                copying.write_row(row)
    return f"{url}?table=town"


def in_database(url: str) -> dict[str, str]:
    """Put the table into a PostgreSQL database; return settings that keep all but the jobs there."""
    return {
        "table": town_in_postgres(url),
        "schema": "town.schema.yaml",
        "ledger": f"{url}#town",
        "access": f"{url}#access",
        "audit_log": f"{url}#log",
        "jobs": "jobs.db",
    }


class Served:
    """A folder with a configuration, and the processes that serve it.

    Parameters
    ----------
    folder : Path
        Where everything is kept; a table is written if there is none.
    port : int
        Where it listens; 0 lets the system choose.
    **changed
        Of the configuration; there is no seed.
    """

    def __init__(self, folder: Path, **changed: Any) -> None:
        self.folder = folder
        self.port = 0
        if not (folder / "town.csv").exists():
            write_table(folder)
        said = {name: value for name, value in settings(**changed).items() if name not in ("seed", "testing")}
        self.config = folder / "config.yaml"
        self.config.write_text(yaml.safe_dump(said), encoding="utf-8")
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the service; None while it does not run."""
        return None if self._process is None else self._process.pid

    def tokens(self, count: int, dataset: str | None = None, *, first: int = 0) -> list[str]:
        """Make tokens for analysts named a0, a1, ... of one table, the first table if none is named."""
        return self._create([(f"a{first + i}", "analyst") for i in range(count)], dataset)

    def curator(self) -> str:
        """Make the token of a curator."""
        return self._create([("cura", "curator")])[0]

    def _create(self, bearers: list[tuple[str, Role]], dataset: str | None = None) -> list[str]:
        found = Config.load(self.config)
        access, log = AccessStore(found.access), ServiceLog(found.audit_log)
        try:
            admin = TokenAdmin(access, log, self._no_limit)
            return [
                admin.create("test", name, days=1, dataset=dataset or next(iter(found.datasets)), role=role)
                for name, role in bearers
            ]
        finally:
            access.close()
            log.close()

    def _no_limit(
        self, by: str, dataset: str, names: Sequence[str], limit: Promise
    ) -> AbstractContextManager[None]:
        raise AssertionError("no token here has a limit of its own")

    def start(self, before: str = "") -> None:
        """Start it, and wait until it is ready; `before` is Python that its process runs first."""
        said = (self.folder / "stdout.txt").open("w+", encoding="utf-8")
        with said, (self.folder / "stderr.txt").open("a", encoding="utf-8") as told:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    f"{before}\nfrom discreet.cli import main; main()",
                    "serve",
                    str(self.config),
                ],
                stdout=said,
                stderr=told,
                text=True,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        end = time.monotonic() + _STARTING
        while not self._ready():
            assert self._process.poll() is None, (self.folder / "stderr.txt").read_text(encoding="utf-8")
            assert time.monotonic() < end, "the service does not start"
            time.sleep(0.02)

    def _ready(self) -> bool:
        for line in (self.folder / "stdout.txt").read_text(encoding="utf-8").splitlines():
            if " at http" in line:
                self.port = int(line.rpartition(":")[2])
        if not self.port:
            return False
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{self.port}/ready", timeout=5).status_code == 200
        return False

    def kill(self) -> None:
        """End it as a power failure would: SIGKILL, all processes at once."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it quietly."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)
        self._process.wait(_STARTING)
        self._process, self.port = None, 0


@contextlib.contextmanager
def served(folder: Path, **changed: Any) -> Iterator[Served]:
    """Run a service in processes of its own, and end it quietly."""
    service = Served(folder, **changed)
    try:
        service.start()
        yield service
    finally:
        service.stop()
