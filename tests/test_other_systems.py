"""Without what Windows does not have: which parts work there, and which are refused in words."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from discreet import file_system

if TYPE_CHECKING:
    from pathlib import Path

PRELUDE = """
import importlib.abc, os, sys, types

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in {"fcntl", "resource", "termios", "tty", "pty", "pwd", "grp"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in ("fcntl", "resource", "termios", "tty", "pwd", "grp"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Hidden())
import asyncio, multiprocessing, concurrent.futures, tempfile, subprocess  # the standard library may use them
missing = "fork register_at_fork geteuid getuid fchmod O_NOFOLLOW O_NONBLOCK O_DIRECTORY"
for name in missing.split():
    if hasattr(os, name):
        delattr(os, name)
locked = set()
windows = types.ModuleType("msvcrt")
windows.LK_NBLCK, windows.LK_UNLCK = 2, 0
def locking(handle, mode, count):
    assert count == 1 and os.lseek(handle, 0, os.SEEK_CUR) == 1 << 40
    key = os.fstat(handle).st_ino
    if mode and key in locked:
        raise OSError(36, "Resource deadlock avoided")
    (locked.add if mode else locked.discard)(key)
    if mode:
        locked.discard(key)  # a closed handle ends its lock; this program never holds two
windows.locking = locking
sys.modules["msvcrt"] = windows
"""
PROGRAM = """
import numpy as np
import discreet
for name in discreet.__all__:
    getattr(discreet, name)
from discreet import ApproxDP, Column, ErrorFloor, GaussianRelease, Schema, publish, read
from discreet.errors import SourceError
with read("demo:clinic", ledger="clinic.ledger") as clinic:
    first = clinic.query("count where diagnosis = 'M'", privacy=ApproxDP(1, 1e-6, unit="patient"))
    again = clinic.query("count where diagnosis = 'M'", privacy=ApproxDP(1, 1e-6, unit="patient"))
assert again.cached and first.cells[0].value == again.cells[0].value
schema = Schema(columns=[Column("age", lower=0, upper=100)])
release = GaussianRelease(privacy=ErrorFloor(age=9), schema=schema).release({"age": np.arange(50.0)})
release.write("release.parquet")
try:
    publish({"age": np.arange(50.0)}, schema=schema, protect={"age": 9}, ledger=False, out="folder")
except SourceError as refused:
    assert "Windows Subsystem for Linux" in str(refused), refused
else:
    raise AssertionError("published")
question = ["demo:clinic", "count where diagnosis = 'M'", "--epsilon", "1", "--delta", "1e-6"]
sys.argv = ["discreet", "query", *question, "--ledger", "clinic.ledger"]
from discreet.cli import main
main()
from discreet.server.connections import raise_file_limit
assert raise_file_limit() == 2**16
"""


@pytest.mark.slow
def test_questions_and_releases_in_memory_work_and_folders_are_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "paid for before" in done.stdout
    assert not (tmp_path / "folder").exists()
    assert b"\r\n" not in b"".join(path.read_bytes() for path in tmp_path.glob("*.jsonl"))


def test_a_lock_is_refused_while_another_handle_has_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    first, second = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)
    assert file_system.lock_file(first)
    assert not file_system.lock_file(second, wait=False)
    file_system.unlock_file(first)
    assert file_system.lock_file(second, wait=False)
    assert not file_system.lock_file(first, shared=True, wait=False)
    os.close(second)
    assert file_system.lock_file(first, shared=True, wait=False)
    os.close(first)


@pytest.mark.parametrize("wait", [False, True])
def test_a_lock_without_fcntl_is_one_byte_behind_the_end(
    tmp_path: Path, wait: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    class Windows:
        LK_NBLCK, LK_UNLCK = 2, 0

        @staticmethod
        def locking(handle: int, mode: int, count: int) -> None:
            calls.append(mode)
            assert (os.lseek(handle, 0, os.SEEK_CUR), count) == (1 << 40, 1)
            if len(calls) == 1:
                raise OSError

    monkeypatch.setitem(sys.modules, "msvcrt", Windows)
    monkeypatch.setattr(file_system, "fcntl", None)
    path = tmp_path / "file"
    path.write_bytes(b"content")
    handle = os.open(path, os.O_RDWR)
    os.lseek(handle, 3, os.SEEK_SET)
    assert file_system.lock_file(handle, wait=wait) is wait
    file_system.unlock_file(handle)
    assert os.read(handle, 10) == b"tent"  # where it was
    assert path.read_bytes() == b"content"
    assert calls == ([2, 2, 0] if wait else [2, 0])
    os.close(handle)
