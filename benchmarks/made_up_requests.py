"""Requests made up from the OpenAPI document by schemathesis, 1,500 examples for each operation and caller.

Each operation is a run of its own with a limit of time, so that a slow one does not stop the others; the
record says what each run found and which were cut. Stopping a data set is left out for curators: nothing more
would be answered after it. Run it from the root: ``python -m benchmarks.made_up_requests``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from tests.server.conftest import running

RESULTS = Path(__file__).parent / "results" / "made_up_requests.json"
_METHODS = ("get", "post", "put", "patch", "delete")
_CALLERS = ("ana", "cura")
_LEFT_OUT = {("cura", "/v1/datasets/{dataset}/curator/stop")}


def run_operation(
    url: str, token: str, folder: Path, path: str, method: str, examples: int, seconds: float
) -> dict[str, object]:
    """Let schemathesis loose on one operation, and return what it made and found."""
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "run", f"{url}/openapi.json", "--no-color",
        "--generation-deterministic", "-H", f"Authorization: Bearer {token}",
        "--exclude-checks", "positive_data_acceptance", "--phases", "coverage,fuzzing",
        "--max-examples", str(examples), "--suppress-health-check", "all",
        "--include-name", f"{method.upper()} {path}",
    ]  # fmt: skip
    started = time.monotonic()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=folder, check=False, timeout=seconds,
            env={**os.environ, "COLUMNS": "200"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"path": path, "method": method, "cut_after_seconds": seconds}
    made = re.findall(r"(\d+) generated", done.stdout)
    return {
        "path": path,
        "method": method,
        "requests": int(made[0]) if made else None,
        "seconds": round(time.monotonic() - started, 1),
        "passed": done.returncode == 0,
        **({} if done.returncode == 0 else {"output": done.stdout[-4000:]}),
    }


def main() -> None:
    """Run every operation for an analyst and a curator, and write the record after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=1500)
    parser.add_argument("--seconds", type=float, default=120.0, help="limit of time of one operation")
    parser.add_argument("--callers", nargs="*", choices=_CALLERS, default=_CALLERS)
    parser.add_argument(
        "--paths", nargs="*", help="paths to run again, such as those that were cut; all others stay recorded"
    )
    options = parser.parse_args()
    record: dict[str, Any] = {"examples": options.examples, "callers": {}}
    if options.paths or set(options.callers) < set(_CALLERS):
        record = json.loads(RESULTS.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        for who in options.callers:
            known = record["callers"].get(who, [])
            runs = [run for run in known if options.paths and run["path"] not in options.paths]
            record["callers"][who] = runs
            with tempfile.TemporaryDirectory() as name, running(Path(name), new_ledger=True) as service:
                document = httpx.get(f"{service.url}/openapi.json").json()
                for path, operations in document["paths"].items():
                    if options.paths and path not in options.paths:
                        continue
                    for method in _METHODS:
                        if method in operations and (who, path) not in _LEFT_OUT:
                            runs.append(
                                run_operation(
                                    service.url,
                                    service.tokens[who],
                                    Path(name),
                                    path,
                                    method,
                                    options.examples,
                                    options.seconds,
                                )
                            )
                            RESULTS.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
                service.backend.check()


if __name__ == "__main__":
    main()
