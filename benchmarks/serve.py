"""What the service costs beside bare routes: one commits one row to the same store, the other none.

All are asked by the same 64 analysts over keep-alive connections, in turns within one run: on one
process with SQLite, and on two with PostgreSQL for data and ledger. The service answers questions that
nobody asked before (two durable commits, one pass over the table, exact noise), with the padding of answer
times off; how long padded answers take is reported apart. The bare routes are served as `pip install fastapi
uvicorn` does, by h11 on asyncio, whatever else is installed; the one that commits also with parser and event
loop of the service. Afterwards the books are checked against every
answer received. Compared are answers a second, and processor time (user and system) of the server's own
processes for an answer, to which a busy machine adds less; that of PostgreSQL is not in it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from measure import save
from tests.postgres import running_server
from tests.server.concurrent_analysts import ConcurrentAnalysts
from tests.server.processes import served, town_in_postgres
from tests.server.test_concurrency import ANALYSTS, check_books, counts

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 1000.0
ALLOWED = 2.5
PROCESSOR_ALLOWED = 2.0
PLAIN = ("--http", "h11", "--loop", "asyncio")
AS_SERVED = ("--http", "h11", "--loop", "auto")  # as `discreet serve` chooses them
# One route, one row: the least that a service can do that does not forget.
BARE = """
import os, sqlite3, threading
from fastapi import FastAPI
from pydantic import BaseModel

app, store, lock, idle = FastAPI(), os.environ["BARE_STORE"], threading.Lock(), []

class Question(BaseModel):
    kind: str
    where: str
    privacy: dict[str, float | str]

def sqlite_connection():
    made = sqlite3.connect(store, isolation_level=None, check_same_thread=False, timeout=30)
    made.execute("PRAGMA journal_mode = WAL")
    made.execute("PRAGMA synchronous = FULL")
    made.execute("CREATE TABLE IF NOT EXISTS kept (kind TEXT, asked TEXT)")
    return made

def keep_in_sqlite(question):
    with lock:  # SQLite has one writer at a time, and polls; a lock is faster
        used = idle.pop() if idle else sqlite_connection()
        used.execute("BEGIN IMMEDIATE")
        used.execute("INSERT INTO kept VALUES (?, ?)", (question.kind, question.where))
        used.execute("COMMIT")
        idle.append(used)

def keep_in_postgres(question):
    import psycopg
    try:
        used = idle.pop()
    except IndexError:
        used = psycopg.connect(store)
        used.execute("SELECT pg_advisory_xact_lock(1)")  # two processes may create it at once
        used.execute("CREATE TABLE IF NOT EXISTS kept (kind TEXT, asked TEXT)")
    used.execute("INSERT INTO kept VALUES (%s, %s)", (question.kind, question.where))
    used.commit()
    idle.append(used)

def keep_nothing(question):
    pass

keep = keep_nothing if not store else keep_in_postgres if store.startswith("postgresql:") else keep_in_sqlite

@app.post("/v1/datasets/town/query")
def query(question: Question) -> dict[str, float]:
    keep(question)
    return {"value": 1.0, "sd": 1.0}
"""


@contextlib.contextmanager
def bare(
    folder: Path, store: str, workers: int, options: tuple[str, ...] = PLAIN
) -> Iterator[tuple[int, int]]:
    """Run the bare route, which commits nothing without a store; yield its port and its process id.

    Parameters
    ----------
    folder : Path
        Where its source is written.
    store : str
        File or URL of the database; empty for none.
    workers : int
        Number of processes.
    options : tuple of str
        Parser and event loop, as options of uvicorn.
    """
    (folder / "bare.py").write_text(BARE)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "bare:app", "--port", str(port), "--workers", str(workers),
         "--no-access-log", "--log-level", "error", *options],
        cwd=folder, env={**os.environ, "BARE_STORE": store},
    )  # fmt: skip
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        time.sleep(2)  # the second worker
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(30)


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process and of its living descendants, from Linux's accounting."""
    times, children = {}, {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = place.read_text().rpartition(")")[2].split()
            number = int(place.parent.name)
            children.setdefault(int(fields[1]), []).append(number)
            times[number] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    found, rest = 0.0, [pid]
    while rest:
        one = rest.pop()
        found += times.get(one, 0.0)
        rest += children.get(one, [])
    return found


def told(analysts: ConcurrentAnalysts, processor: float) -> dict[str, float]:
    """Return throughput, latencies and processor time of concurrent analysts."""
    return {
        "answers": len(analysts.answered()),
        "processor_ms": round(1000 * processor / len(analysts.answered()), 3),
        "per_second": round(analysts.per_second(), 1),
        "p50_ms": round(analysts.milliseconds(0.5), 1),
        "p99_ms": round(analysts.milliseconds(0.99), 1),
    }


def compared(
    folder: Path, seconds: float, table: str, ledger: str, bare_store: str, workers: int
) -> dict[str, Any]:
    """Ask both in turns, with the service and the bare route each up only while it is asked."""
    changed: dict[str, Any] = {
        "table": table,
        "schema": "town.schema.yaml",
        "ledger": ledger,
        "workers": workers,
        "limit": {"rho": LIMIT},
        "analyst_limit": {"rho": LIMIT},
        "limits": {"per_minute": 10**6, "concurrent": 256},
    }
    # Both stores hold the same rows, which would be recognized and refused a second ledger.
    os.environ["DISCREET_STATE"] = str(folder / "state")
    tokens = ["x"] * ANALYSTS
    endless = [counts(i) for i in range(ANALYSTS)]
    said, ours = [], []
    routes = {
        "bare": (bare_store, PLAIN),
        "bare as served": (bare_store, AS_SERVED),
        "bare without a commit": ("", PLAIN),
    }
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in (*routes, "service")}
    for turn in range(2):
        for name, (store, options) in routes.items():
            with bare(folder, store, workers, options) as (port, pid):
                before = processor_seconds(pid)
                asking = ConcurrentAnalysts(port, "/v1/datasets/town/query", tokens, counts)
                turns[name].append(told(asking.ask_for(seconds / 2), processor_seconds(pid) - before))
        with served(folder, **changed) as service:
            if turn == 0:
                known = service.tokens(ANALYSTS)
            asked = ConcurrentAnalysts(
                service.port, "/v1/datasets/town/query", known, lambda analyst: endless[analyst]
            )
            assert service.pid is not None
            before = processor_seconds(service.pid)
            ours.append(asked.ask_for(seconds / 2))
            turns["service"].append(told(asked, processor_seconds(service.pid) - before))
            said += asked.exchanges
    charged = check_books(str(folder / ledger) if "://" not in ledger else ledger, said, LIMIT)
    statuses = sorted({one.status for one in said})
    assert statuses == [200], f"some were not answered: {statuses}"
    answers = sum(len(analysts.answered()) for analysts in ours)
    assert charged == answers, "charges and answers differ"

    def mean(name: str, key: str) -> float:
        return sum(turn[key] for turn in turns[name]) / len(turns[name])

    return {
        **turns,
        "charges": charged,
        "ratio": round(mean("bare", "per_second") / mean("service", "per_second"), 2),
        "allowed": ALLOWED,
        "processor_ratio": round(mean("service", "processor_ms") / mean("bare", "processor_ms"), 2),
        "processor_ratio_as_served": round(
            mean("service", "processor_ms") / mean("bare as served", "processor_ms"), 2
        ),
        "processor_ratio_without_a_commit": round(
            mean("service", "processor_ms") / mean("bare without a commit", "processor_ms"), 2
        ),
        "processor_allowed": PROCESSOR_ALLOWED,
    }


def padded(folder: Path, seconds: float) -> dict[str, Any]:
    """Ask a service that pads its answers to slots of a second."""
    changed: dict[str, Any] = {
        "limit": {"rho": LIMIT},
        "analyst_limit": {"rho": LIMIT},
        "slots": 1.0,
        "limits": {"per_minute": 10**6, "concurrent": 256},
    }
    os.environ["DISCREET_STATE"] = str(folder / "state")
    with served(folder, **changed) as service:
        analysts = ConcurrentAnalysts(
            service.port, "/v1/datasets/town/query", service.tokens(ANALYSTS), counts
        ).ask_for(seconds)
        processor = processor_seconds(service.pid or 0)  # with that of its start
    return {"slot_seconds": 1.0, **told(analysts, processor)}


def main(seconds: float = 60.0) -> None:
    """Measure both stores, and the padded service."""
    result: dict[str, Any] = {"analysts": ANALYSTS, "seconds": seconds}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name in ("sqlite", "postgres", "padded"):
            (place / name).mkdir()
        result["sqlite, one process"] = compared(
            place / "sqlite", seconds, "town.csv", "town.ledger", str(place / "sqlite" / "bare.db"), 1
        )
        print(result["sqlite, one process"])
        with running_server() as server, server.database() as url:
            result["postgresql, two processes"] = compared(
                place / "postgres", seconds, town_in_postgres(url), f"{url}#town", url, 2
            )
        print(result["postgresql, two processes"])
        result["padded to slots"] = padded(place / "padded", min(seconds, 20.0))
        print(result["padded to slots"])
    save("serve", result)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    main(parser.parse_args().seconds)
