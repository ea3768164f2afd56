"""Side-by-side timing: what is compared runs interleaved in one process, and ratios are kept."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RESULTS = Path(__file__).parent / "results"


def interleaved(tasks: Mapping[str, Callable[[], object]], rounds: int = 7) -> dict[str, float]:
    """Return the least processor time of each task over ``rounds`` rounds, one of each per round.

    The least is the time with the fewest interruptions by other programs; taking all tasks in turn lets
    a slow minute of the machine touch each of them.
    """
    best = dict.fromkeys(tasks, float("inf"))
    for task in tasks.values():
        task()
    for _ in range(rounds):
        for name, task in tasks.items():
            start = time.process_time()
            task()
            best[name] = min(best[name], time.process_time() - start)
    return best


def peak_memory_mb() -> float:
    """Return the largest resident size of this process so far, in MB (getrusage would count the parent's)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def save(name: str, result: dict[str, Any]) -> None:
    """Write one benchmark's result where it is committed: whole, or not at all."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(result, indent=2, sort_keys=True) + "\n")
    draft.replace(path)
