"""Requests made up from the OpenAPI document by schemathesis, 1,500 examples for each operation and caller.

Each operation is a run of its own with a limit of time, so that a slow one does not stop the others; the
record says what each run found, how often it was answered with which status, and which were cut. An analyst
tries what is for curators with a tenth of the examples, since each ends at the same refusal; stopping a data
set comes last, and an operator asks what is for operators alone. Run it from the root:
``python -m benchmarks.made_up_requests``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.server.conftest import running
from tests.server.made_up import SETTINGS, STOP, make_up_requests

from discreet.server.api.openapi import openapi_document

if TYPE_CHECKING:
    from tests.server.conftest import RunningService

RESULTS = Path(__file__).parent / "results" / "made_up_requests.json"
CALLERS = ("cura", "opal", "ana")
_FOR_OPERATORS = ("/metrics", "/v1/reload")


def operations(who: str) -> list[tuple[str, str]]:
    """Return method and path of every operation that a caller tries: all, but for the operator."""
    paths = openapi_document()["paths"]
    found = [(method, path) for path in paths for method in paths[path]]
    # First what only reads: a check and an attack take longer, the more was charged.
    found.sort(key=lambda operation: (operation[0] != "get", operation == STOP))
    return [one for one in found if who != "opal" or one[1] in _FOR_OPERATORS]


def run_operation(
    service: RunningService, who: str, path: str, method: str, examples: int, seconds: float
) -> dict[str, object]:
    """Let schemathesis loose on one operation, and return what it made and found."""
    if who == "ana" and "/curator/" in path:
        examples //= 10
    run: dict[str, object] = {"path": path, "method": method, "examples": examples}
    started = time.monotonic()
    only = ("--include-name", f"{method.upper()} {path}")
    try:
        made, answers = make_up_requests(service, who, service.folder, examples, *only, seconds=seconds)
    except subprocess.TimeoutExpired:
        return {**run, "cut_after_seconds": seconds}
    except AssertionError as problem:
        return {**run, "passed": False, "output": str(problem)[-4000:]}
    statuses = {
        str(status): number
        for (*operation, status), number in sorted(answers.items())
        if operation == [method, path]
    }
    return {
        **run,
        "requests": made,
        "statuses": statuses,
        "seconds": round(time.monotonic() - started, 1),
        "passed": True,
    }


def main() -> None:
    """Run every operation for each caller, and write the record after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=1500)
    parser.add_argument("--seconds", type=float, default=600.0, help="limit of time of one operation")
    parser.add_argument("--callers", nargs="*", choices=CALLERS, default=CALLERS)
    parser.add_argument(
        "--paths", nargs="*", help="paths to run again, such as those that were cut; all others stay recorded"
    )
    options = parser.parse_args()
    record: dict[str, Any] = {"examples": options.examples, "callers": {}}
    if options.paths or set(options.callers) < set(CALLERS):
        record = json.loads(RESULTS.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        for who in options.callers:
            known = record["callers"].get(who, [])
            runs = [run for run in known if options.paths and run["path"] not in options.paths]
            record["callers"][who] = runs
            with (
                tempfile.TemporaryDirectory() as name,
                running(Path(name), new_ledger=True, **SETTINGS) as service,
            ):
                service.client("opal")
                for method, path in operations(who):
                    if not options.paths or path in options.paths:
                        runs.append(
                            run_operation(service, who, path, method, options.examples, options.seconds)
                        )
                        RESULTS.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
                service.backend.check()


if __name__ == "__main__":
    main()
