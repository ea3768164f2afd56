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
from discreet.privacy.ledger import Ledger
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


def charge_and_draw(url: str, drawn: str) -> None:
    """Charge, then draw, for ever: what is drawn is noted in a file, in one write each."""
    notes = os.open(drawn, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    ledger = Ledger.open(url)
    while True:
        receipt = ledger.charge(CHARGE)
        os.write(notes, f"{receipt.id}\n".encode())
        ledger.store(receipt, receipt.id.encode())


def kill_again_and_again(url: str, drawn: str, cycles: int) -> None:
    """Start a drawing process, kill it at some moment, and so on; the moments fill an interval evenly."""
    # Import everything before the first fork, so that the kills meet charges and not imports.
    Ledger.open(":memory:").close()
    importlib.import_module("discreet.privacy.ledger.postgres")
    importlib.import_module("psycopg")
    span, before = 0.12, 0
    for cycle in range(cycles):
        if cycle % 5 == 4:
            # On a busy machine a child may not live to draw at all: then the kills would prove nothing.
            notes = Path(drawn).stat().st_size if Path(drawn).exists() else 0
            span, before = (span if notes > before else 2 * span), notes
        child = os.fork()
        if child == 0:
            try:
                charge_and_draw(url, drawn)
            finally:
                os._exit(1)
        time.sleep(0.001 + span * (cycle * 0.6180339887498949 % 1))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            raise SystemExit(f"cycle {cycle}: the child ended by itself ({status})")


if __name__ == "__main__":
    kill_again_and_again(sys.argv[1], str(Path(sys.argv[2])), int(sys.argv[3]))
