"""Processor time of whole commands on 1,000 rows, beside an interpreter that only loads numpy and DuckDB.

Modules are compiled before the first round that counts, as they are after an installation by pip. Nothing
is said about threads, as in most shells: loading numpy alone then starts a BLAS with one for each processor.
To measure another source tree in turn, give its path: ``python benchmarks/startup.py ../before/src``.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import duckdb
from measure import save

import discreet

SOURCE = Path(discreet.__file__).parent.parent
ROWS, ROUNDS = 1_000, 5
BARS = {"help": 0.12, "query": 0.5, "verify": 0.8, "plan": 1.2, "release": 2.5}  # seconds
COMPILED = Path(tempfile.gettempdir()) / "discreet-startup"
RELEASE = ["release", "hospital.csv", "--protect", "age=9", "--accept-risk", "made-up rows", "--out", "out"]
PROMISE = ["--epsilon", "1", "--delta", "1e-6"]


def _write_table(folder: Path) -> None:
    """Write the first rows of the bundled hospital stays as CSV, and its schema beside it."""
    data = SOURCE / "discreet" / "data"
    rows = duckdb.read_parquet(str(data / "hospital.parquet")).limit(ROWS)
    rows.write_csv(str(folder / "hospital.csv"))
    shutil.copy(data / "hospital.schema.yaml", folder)


def _processor_time(arguments: list[str], source: Path, folder: Path) -> float:
    """Run the interpreter in ``folder`` to its end, and return the processor seconds that it took."""
    said = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    environment = {
        **said,
        "PYTHONPATH": str(source),
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(COMPILED),
        "DISCREET_STATE": str(folder / "state"),
    }
    pid = os.fork()
    if pid == 0:
        os.chdir(folder)
        output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.execve(sys.executable, [sys.executable, *arguments], environment)  # noqa: S606
    _, status, used = os.wait4(pid, 0)
    if status:
        raise RuntimeError((folder / "output.txt").read_text())
    return used.ru_utime + used.ru_stime


def _measure_round(source: Path) -> dict[str, float]:
    """Return the seconds of each command, in a folder and under a ledger of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_table(folder)
        commands = {
            "help": ["--help"],
            "query": ["query", "hospital.csv", "count where age > 40", *PROMISE],
            "plan": ["plan", "hospital.csv", *PROMISE],
            "release": RELEASE,
            "synthetic release": ["release", "hospital.csv", *PROMISE, "--out", "made"],
            "verify": ["verify", "out/public"],
        }
        bare = _processor_time(["-c", "import numpy, duckdb"], source, folder)
        commands_used = {
            each: _processor_time(["-m", "discreet", *words], source, folder)
            for each, words in commands.items()
        }
        return {"python, numpy and duckdb": bare, **commands_used}


def main() -> None:
    """Measure this source tree, and a second one in turn if its path is given."""
    trees = {"now": SOURCE} | ({"before": Path(sys.argv[1]).resolve()} if len(sys.argv) > 1 else {})
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    for counts in [False] + [True] * ROUNDS:
        for name, source in trees.items():
            times = _measure_round(source)
            if counts:
                rounds[name].append(times)
    result: dict[str, Any] = {
        f"{name}, processor s": {
            each: round(statistics.median(one[each] for one in times), 3) for each in times[0]
        }
        for name, times in rounds.items()
    }
    result["bars, processor s"] = BARS
    for name, times in result.items():
        print(name, times)
    save("startup", {"rows": ROWS, **result})


if __name__ == "__main__":
    main()
