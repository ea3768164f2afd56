"""The tiers of the tests: fast ones start no process, and only long checks leave anything to chance."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from discreet.noise import Stream
from tests.keys import KEYS
from tests.tiers import ProcessStarted, with_processes, without_processes

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-c", "pass"]


def fork() -> None:
    if not os.fork():
        os._exit(0)


STARTS: dict[str, Callable[[], object]] = {
    "run": lambda: subprocess.run(COMMAND, check=True),
    "shell": lambda: os.system("true"),
    "spawn": lambda: os.posix_spawn(COMMAND[0], COMMAND, {}),
    "fork": fork,
    "pool": lambda: multiprocessing.get_context("fork").Pool(1),
    "worker": lambda: multiprocessing.get_context("spawn").Process(target=print).start(),
}


@pytest.mark.parametrize("way", STARTS)
def test_a_process_in_a_fast_test_is_refused_and_named(way: str) -> None:
    with pytest.raises(ProcessStarted, match="mark it slow"), without_processes():
        STARTS[way]()


def test_a_refusal_that_somebody_swallows_fails_the_test_all_the_same() -> None:
    with (
        pytest.raises(ProcessStarted, match=r"subprocess\.Popen"),
        without_processes(),
        contextlib.suppress(Exception),
    ):
        subprocess.run(COMMAND, check=True)


@pytest.mark.slow
def test_a_server_of_the_session_and_a_slow_test_may_start_processes() -> None:
    subprocess.run(COMMAND, check=True)
    with without_processes(), with_processes():
        subprocess.run(COMMAND, check=True)


def test_fresh_keys_of_a_test_follow_from_its_name() -> None:
    drawn = []
    for name in ("one", "one", "two"):
        with KEYS.of(name):
            drawn.append([Stream().commitment for _ in range(3)])
    assert drawn[0] == drawn[1]
    assert len({*drawn[0], *drawn[2]}) == 6


@pytest.mark.slow
def test_fresh_keys_of_processes_come_from_the_system() -> None:
    code = "from discreet.noise import Stream; print(Stream().commitment)"
    drawn = {subprocess.check_output([sys.executable, "-c", code]) for _ in range(2)}
    for _ in range(2):
        receiver, sender = os.pipe()
        if not os.fork():
            os.write(sender, Stream().commitment.encode())
            os._exit(0)
        os.close(sender)
        with os.fdopen(receiver, "rb") as pipe:
            drawn.add(pipe.read())
        os.wait()
    assert len(drawn) == 4
    assert KEYS.name is not None


def test_every_tier_is_run_by_a_target_and_the_default_ones_by_continuous_integration() -> None:
    make = (ROOT / "Makefile").read_text()
    run = dict(re.findall(r'^(\w+): .*\n.* -m pytest .*-m "?([^"\n]+)"?$', make, re.MULTILINE))
    assert run == {"test": "not slow and not stats", "slow": "slow and not stats", "stats": "stats"}
    targets = re.findall(r"^make (.*)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert {"check", "test", "slow"} <= set(" ".join(targets).split())
