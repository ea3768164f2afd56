"""Temporary folders end with their process, and only those of processes that are gone are removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from discreet.tables.temporary import lock, lock_leftover, temporary_folder

ABANDONED = "discreet-private-abcdefgh"

HOLD = """
import time
from discreet.tables.temporary import temporary_folder
with temporary_folder() as folder:
    (folder / "rows").write_text("rows")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_a_folder_is_private_and_gone_afterwards(place: Path, error: type[BaseException] | None) -> None:
    def use() -> None:
        with temporary_folder() as folder:
            assert folder.parent == place
            assert folder.stat().st_mode & 0o777 == 0o700
            (folder / "rows").write_text("rows")
            if error is not None:
                raise error

    if error is None:
        use()
    else:
        with pytest.raises(error):
            use()
    assert names(place) == []


@pytest.mark.slow
def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_is_not(place: Path) -> None:
    holders = [subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE) for _ in range(2)]
    folders = []
    for holder in holders:
        assert holder.stdout is not None
        folders.append(Path(holder.stdout.readline().decode().strip()))
    holders[0].kill()
    holders[0].wait()
    assert names(place) == sorted(folder.name for folder in folders)
    with temporary_folder() as mine, temporary_folder() as second:
        assert names(place) == sorted(folder.name for folder in (folders[1], mine, second))
        assert names(folders[1]) == ["rows"]
    holders[1].kill()
    holders[1].wait()
    for holder in holders:
        assert holder.stdout is not None
        holder.stdout.close()


def test_only_what_is_ours_is_removed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = place / "my-rows"
    mine.mkdir()
    (mine / "thesis.tex").write_text("three years of work")
    (place / ABANDONED).symlink_to(mine)
    (place / "discreet-private-afile000").write_text("a file")
    (place / "discreet-private-notes-of-mine").mkdir()
    (place / "discreet-abcdefgh").mkdir()
    (place / "discreet-private-deep0000" / "folder").mkdir(parents=True)
    (place / "discreet-private-link0000").mkdir()
    (place / "discreet-private-link0000" / "link").symlink_to(mine)
    before = names(place)
    with temporary_folder():
        pass
    # A link in an abandoned folder goes with it, and not what it leads to.
    assert set(before) - set(names(place)) == {"discreet-private-link0000"}
    assert names(mine) == ["thesis.tex"]
    (place / "discreet-private-other000").mkdir()
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    with temporary_folder():
        pass
    assert (place / "discreet-private-other000").is_dir()


def test_a_lock_is_held_once_and_not_through_links(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("")
    link.symlink_to(file)
    assert lock_leftover(link, folder=False) is None
    held = lock(file, folder=False)
    assert held is not None
    assert lock(file, folder=False) is None
    assert lock_leftover(tmp_path / "nothing", folder=True) is None
    os.close(held)
    again = lock_leftover(file, folder=False)
    assert again is not None
    os.close(again)
