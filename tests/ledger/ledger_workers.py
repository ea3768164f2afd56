"""What other processes do to a ledger in its tests."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from discreet.errors import BudgetExceeded
from discreet.ledger import Ledger
from discreet.privacy.promises import PureDP

if TYPE_CHECKING:
    from collections.abc import Callable

CHARGE = PureDP(epsilon=0.01)


def until_refused(url: str, owner: str) -> int:
    """Charge until the ledger refuses; return how often it did not."""
    granted = 0
    with Ledger.open(url, timeout=120) as ledger:
        while True:
            try:
                ledger.charge(CHARGE, owner=owner)
            except BudgetExceeded:
                return granted
            granted += 1


def crowd(charge: Callable[[], object], threads: int) -> int:
    """Let many threads charge at once until each is refused; return how many charges were granted."""
    start = threading.Barrier(threads)

    def one() -> int:
        start.wait()
        granted = 0
        while True:
            try:
                charge()
            except BudgetExceeded:
                return granted
            granted += 1

    with ThreadPoolExecutor(threads) as pool:
        return sum(future.result() for future in [pool.submit(one) for _ in range(threads)])


def charge_and_draw(url: str, drawn: str, threads: int) -> None:
    """Charge, then draw, for ever: what is drawn is noted in a file, in one write each."""
    notes = os.open(drawn, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    ledger = Ledger.open(url)

    def draw() -> None:
        while True:
            receipt = ledger.charge(CHARGE)
            os.write(notes, f"{receipt.id}\n".encode())
            ledger.store(receipt, receipt.id.encode())

    for _ in range(threads - 1):
        threading.Thread(target=draw, daemon=True).start()
    draw()


def kill_again_and_again(url: str, drawn: str, cycles: int, threads: int) -> None:
    """Start a drawing process, kill it at some moment, and so on.

    Moments are counted in what the child has done and not in seconds: however busy the machine is, four
    children of five have drawn twice and are killed somewhere in their next draws, and the fifth somewhere
    between its start and its first draw.
    """
    # Import everything before the first fork, so that the kills meet charges and not imports.
    Ledger.open(":memory:").close()
    importlib.import_module("discreet.ledger.postgres")
    importlib.import_module("psycopg")
    notes = Path(drawn)
    notes.touch()
    beginning = pace = 0.0
    for cycle in range(cycles):
        part = cycle * 0.6180339887498949 % 1
        before = notes.stat().st_size
        start = time.monotonic()
        child = os.fork()
        if child == 0:
            try:
                charge_and_draw(url, drawn, threads)
            finally:
                os._exit(1)
        if cycle % 5 == 4:
            time.sleep(part * beginning)
        else:
            first = _grown(notes, before, child)
            second = _grown(notes, first, child)
            now = time.monotonic()
            beginning, pace = _middle(beginning, now - start), _middle(pace, (now - start) / 2)
            assert second > first > before
            time.sleep(part * pace)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            raise SystemExit(f"cycle {cycle}: the child ended by itself ({status})")


def _middle(average: float, value: float) -> float:
    return (average + value) / 2 if average else value


def _grown(notes: Path, size: int, child: int) -> int:
    """Wait until a child has noted something more."""
    while (found := notes.stat().st_size) <= size:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            raise SystemExit(f"the child ended by itself ({status})")
        time.sleep(0.0005)
    return found


if __name__ == "__main__":
    kill_again_and_again(sys.argv[1], str(Path(sys.argv[2])), int(sys.argv[3]), int(sys.argv[4]))
