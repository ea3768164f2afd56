"""Many threads, many processes, and processes that die: nobody overspends, nothing drawn is unpaid."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from discreet.errors import LedgerUnavailable
from discreet.ledger import Ledger
from discreet.privacy.promises import PureDP
from tests.ledger.ledger_workers import CHARGE, crowd, until_refused

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "ledger.json"


def note(name: str, **counts: int) -> None:
    """Add what a long run counted to the results that the documentation quotes."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[name] = counts
    RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return str(tmp_path / "crowd.ledger")
    return f"{request.getfixturevalue('postgres_url')}#crowd"


def threads_against_one_limit(place: str, threads: int, charges: int) -> int:
    with Ledger.open(place, limit=PureDP(epsilon=charges / 100), timeout=300) as ledger:
        granted = crowd(lambda: ledger.charge(CHARGE, owner="ann"), threads)
        assert granted == charges == ledger.spent().charges == ledger.spent("ann").charges
        ledger.check()
    return granted


def processes_against_one_limit(place: str, processes: int, charges: int) -> int:
    with Ledger.open(place, limit=PureDP(epsilon=charges / 100), timeout=300) as ledger:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
            each = list(pool.map(until_refused, [place] * processes, [f"p{i}" for i in range(processes)]))
        assert sum(each) == charges == ledger.spent().charges
        for i, granted in enumerate(each):
            assert ledger.spent(f"p{i}").charges == granted
        ledger.check()
    return sum(each)


def kills(place: str, drawn: Path, cycles: int, threads: int = 1) -> tuple[int, int]:
    """Kill a drawing process again and again; return how many draws and charges there were."""
    if "://" in place:  # a server takes longer to make a ledger than a child lives
        Ledger.open(place).close()
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "tests.ledger.ledger_workers", place, str(drawn), str(cycles), str(threads)],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with Ledger.open(place) as ledger:
        ledger.check()
        charged = {receipt.id for receipt in ledger.history()}
        noted = drawn.read_text().splitlines()
        assert set(noted) <= charged
        assert len(noted) == len(set(noted))
        # a kill loses at most the draws that were under way, one in each thread
        assert len(charged) - len(noted) <= cycles * threads
        assert ledger.spent().charges == len(charged)
    return len(noted), len(charged)


def test_threads_never_overspend(place: str) -> None:
    threads_against_one_limit(place, threads=64, charges=100)


@pytest.mark.slow
def test_processes_never_overspend(place: str) -> None:
    processes_against_one_limit(place, processes=2, charges=40)


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_nothing_drawn_unpaid(place: str, tmp_path: Path) -> None:
    drawn, _ = kills(place, tmp_path / "drawn", cycles=25)
    assert drawn >= 40  # two for each child that was killed between draws


@pytest.mark.slow
def test_a_kill_while_threads_share_a_commit_leaves_nothing_drawn_unpaid(place: str, tmp_path: Path) -> None:
    drawn, _ = kills(place, tmp_path / "drawn", cycles=15, threads=8)
    assert drawn >= 24


@pytest.mark.stats
def test_sixty_four_threads_never_overspend(place: str) -> None:
    granted = threads_against_one_limit(place, threads=64, charges=2_000)
    note(f"threads, {_kind(place)}", threads=64, limit=2_000, granted=granted)


@pytest.mark.stats
def test_eight_processes_never_overspend(place: str) -> None:
    granted = processes_against_one_limit(place, processes=8, charges=2_000)
    note(f"processes, {_kind(place)}", processes=8, limit=2_000, granted=granted)


@pytest.mark.stats
def test_three_hundred_kills_of_eight_threads_leave_nothing_drawn_unpaid(place: str, tmp_path: Path) -> None:
    drawn, charged = kills(place, tmp_path / "drawn", cycles=300, threads=8)
    note(f"kills of 8 threads, {_kind(place)}", kills=300, charged=charged, drawn=drawn, drawn_unpaid=0)


@pytest.mark.stats
def test_five_hundred_kills_leave_nothing_drawn_unpaid(place: str, tmp_path: Path) -> None:
    drawn, charged = kills(place, tmp_path / "drawn", cycles=500)
    note(f"kills, {_kind(place)}", kills=500, charged=charged, drawn=drawn, drawn_unpaid=0)


def test_processes_that_open_a_new_ledger_at_once_share_it(place: str) -> None:
    # nobody made it before: all of them try to
    handles: list[Ledger] = []

    def opening() -> None:
        handles.append(Ledger.open(place, limit=PureDP(epsilon=1)))

    _all_at_once(opening, 8)
    assert len({ledger.identity for ledger in handles}) == 1
    assert len(handles) == 8
    for ledger in handles:
        ledger.charge(CHARGE)
    assert handles[0].spent().charges == 8
    for ledger in handles:
        ledger.close()


def test_one_question_asked_by_all_at_once_is_charged_once(place: str) -> None:
    answers: list[bytes] = []
    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger:

        def asking() -> None:
            receipt = ledger.charge(CHARGE, question="q", owner="ann")
            answers.append(receipt.answer or ledger.store(receipt, str(len(answers)).encode()))

        _all_at_once(asking, 16)
        assert len(answers) == 16
        assert len(set(answers)) == 1
        assert ledger.spent().charges == ledger.spent("ann").charges == 1
        ledger.check()


@pytest.mark.slow
def test_a_ledger_goes_on_after_a_fork(place: str) -> None:
    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger:
        ledger.charge(CHARGE)
        child = os.fork()
        if child == 0:
            try:
                ledger.charge(CHARGE)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        ledger.charge(CHARGE)
        assert ledger.spent().charges == 3
        ledger.check()


@pytest.mark.slow
def test_a_ledger_in_memory_does_not_cross_a_fork() -> None:
    ledger = Ledger.open(":memory:", limit=PureDP(epsilon=1))
    child = os.fork()
    if child == 0:
        try:
            ledger.charge(CHARGE)
        except LedgerUnavailable:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    ledger.close()


def _all_at_once(task: Callable[[], None], threads: int) -> None:
    from threading import Barrier, Thread

    start = Barrier(threads)

    def run() -> None:
        start.wait()
        task()

    running = [Thread(target=run) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def _kind(place: str) -> str:
    return "PostgreSQL" if "://" in place else "SQLite"
