"""Processes of one service share the rows that the first has read, and leave none of them on the disk."""

from __future__ import annotations

import json
import os
import signal
import struct
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from discreet.ledger import Ledger
from tests.server.conftest import ROWS, table, write_table
from tests.server.processes import Served, served, town_in_postgres

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

_LONG = 300.0
COUNT = {"kind": "count", "where": "age > 40", "privacy": {"kind": "zcdp", "rho": 1.0}}
# Half of the rows leave the table after the service has read it, and before it starts its processes.
_SWAP = """
import pathlib
import discreet.server.app as app
run = app.uvicorn.run
def swap(*args, **options):
    {swap}
    run(*args, **options)
app.uvicorn.run = swap
"""
_IN_FILE = "t = pathlib.Path({table!r}); t.write_text(''.join(t.read_text().splitlines(True)[:{lines}]))"
_IN_POSTGRES = (
    "import psycopg; c = psycopg.connect({url!r}, autocommit=True); "
    "c.execute('DELETE FROM town WHERE age > 70'); c.close()"
)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the temporary files of the service."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def answering(service: Served, token: str, known: set[int], count: int) -> tuple[set[int], set[Any]]:
    """Ask until so many processes, none of them known, have answered; return them and their answers."""
    seen: set[int] = set()
    values = set()
    end = time.monotonic() + _LONG
    while len(seen - known) < count:
        assert time.monotonic() < end, "not all processes answer"
        # A new connection each time: the system gives it to one of the processes.
        told = httpx.post(
            f"http://127.0.0.1:{service.port}/v1/datasets/town/query",
            json=COUNT,
            headers={"Authorization": f"Bearer {token}"},
            timeout=60,
        )
        assert told.status_code == 200, told.text
        values.add(told.json()["value"])
        lines = (service.folder / "stderr.txt").read_text(encoding="utf-8").partition("nanobind")[0]
        logged = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
        seen = {line["process"] for line in logged if line["event"] == "request"}
    return seen - known, values


@pytest.mark.parametrize("engine", ["duckdb", "postgresql"])
def test_the_rows_are_read_once_and_are_the_same_in_every_process_for_good(
    tmp_path: Path, temporary: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    write_table(tmp_path)
    changed = {}
    swap = _IN_FILE.format(table=str(tmp_path / "town.csv"), lines=ROWS // 2)
    if engine == "postgresql":
        url = request.getfixturevalue("postgres_url")
        changed = {"table": town_in_postgres(url), "schema": "town.schema.yaml"}
        swap = _IN_POSTGRES.format(url=url)
    service = Served(tmp_path, workers=2, **changed)
    try:
        service.start(_SWAP.format(swap=swap))
        (token,) = service.tokens(1)
        first, values = answering(service, token, set(), 2)
        os.kill(min(first), signal.SIGKILL)  # the service starts another
        _, later = answering(service, token, first, 1)
    finally:
        service.stop()
    with Ledger.open(tmp_path / "town.ledger") as ledger:
        assert ledger.spent().charges == 1  # other rows would be another question
    (value,) = values | later
    true = sum(age > 40 for age in table()["age"])
    assert abs(value - true) < true / 4  # of all rows, and not of the half that is left in the file


def test_what_is_shared_is_encrypted_and_is_gone_after_the_end_or_at_the_start_after_a_kill(
    tmp_path: Path, temporary: Path
) -> None:
    cells = {struct.pack("<d", cell) for cell in table()["income"] if cell is not None and cell != 0}
    with served(tmp_path, workers=2) as service:
        (copy,) = temporary.glob("*/*.curated")
        assert copy.parent.stat().st_mode & 0o777 == 0o700
        service.kill()
        assert copy.exists()
        found = [path for path in temporary.rglob("*") if path.is_file()]
        assert not any(cell in path.read_bytes() for path in found for cell in cells)
        service.start()
        assert not copy.parent.exists()
        assert len(list(temporary.glob("*/*.curated"))) == 1
    assert not list(temporary.glob("discreet-private-*"))
