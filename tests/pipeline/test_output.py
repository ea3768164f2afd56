"""A release's folder is whole or not there, whatever happens to the run."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from discreet.errors import SourceError
from discreet.pipeline._output import build_folder, check_target_folder, forget_key

if TYPE_CHECKING:
    from pathlib import Path

RELEASE = "public/statement.json"


def build(target: Path, *, replace: bool = False, text: str = "new") -> None:
    with build_folder(target, replace=replace) as room:
        (room / RELEASE).write_text(text)


def beside(target: Path) -> list[str]:
    return sorted(entry.name for entry in target.parent.iterdir())


def test_nothing_stands_under_the_name_before_the_end(tmp_path: Path) -> None:
    target = tmp_path / "release"
    with build_folder(target, replace=False) as room:
        (room / RELEASE).write_text("{}")
        assert not target.exists()
        assert room.parent == target.parent
    assert beside(target) == ["release"]
    assert sorted(entry.name for entry in target.iterdir()) == ["internal", "public"]
    assert (target / "internal").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_nothing(error: type[BaseException], tmp_path: Path) -> None:
    target = tmp_path / "release"
    with pytest.raises(error):
        fail(target, error)
    assert beside(target) == []


def fail(target: Path, error: type[BaseException]) -> None:
    with build_folder(target, replace=False) as room:
        (room / RELEASE).write_text("{}")
        raise error


def test_a_release_is_replaced_only_if_asked_and_only_if_it_is_one(tmp_path: Path) -> None:
    target = tmp_path / "release"
    build(target, text="old")
    with pytest.raises(SourceError, match="--replace"):
        build(target)
    assert (target / RELEASE).read_text() == "old"
    build(target, replace=True)
    assert (target / RELEASE).read_text() == "new"
    assert beside(target) == ["release"]
    (target / "thesis.tex").write_text("three years of work")
    with pytest.raises(SourceError, match="holds other files"):
        build(target, replace=True)
    assert (target / "thesis.tex").exists()


def test_an_old_release_stays_when_the_new_one_fails(tmp_path: Path) -> None:
    target = tmp_path / "release"
    build(target, text="old")
    with pytest.raises(ZeroDivisionError), build_folder(target, replace=True):
        raise ZeroDivisionError
    assert (target / RELEASE).read_text() == "old"
    assert beside(target) == ["release"]


@pytest.mark.parametrize("what", ["file", "link", "no parent"])
def test_places_that_cannot_be_used_are_refused_before_anything_is_done(what: str, tmp_path: Path) -> None:
    target = tmp_path / "release"
    if what == "file":
        target.write_text("my shopping list")
    elif what == "link":
        (tmp_path / "elsewhere").mkdir()
        target.symlink_to(tmp_path / "elsewhere")
    else:
        target = tmp_path / "no" / "release"
    with pytest.raises(SourceError):
        check_target_folder(target, replace=True)


def test_an_empty_folder_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "release").mkdir()
    build(tmp_path / "release")
    assert (tmp_path / "release" / RELEASE).exists()


BUILD_AND_WAIT = """
import sys, time
from pathlib import Path
from discreet.pipeline._output import build_folder
with build_folder(Path(sys.argv[1]), replace=True) as room:
    (room / "public" / "statement.json").write_text("half")
    print("built", flush=True)
    time.sleep(60)
"""


def waiting_run(target: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD_AND_WAIT, str(target)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "built\n"
    return process


@pytest.mark.slow
def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path) -> None:
    target = tmp_path / "release"
    with waiting_run(target) as process:
        process.kill()
    assert len(beside(target)) == 1
    assert not target.exists()
    build(target)
    assert beside(target) == ["release"]


@pytest.mark.slow
def test_what_a_living_run_builds_is_not_touched(tmp_path: Path) -> None:
    target = tmp_path / "release"
    with waiting_run(target) as process:
        build(target)
        (room,) = (name for name in beside(target) if name != "release")
        assert (tmp_path / room / RELEASE).read_text() == "half"
        process.kill()


@pytest.mark.slow
def test_an_interrupted_run_cleans_up_behind_itself(tmp_path: Path) -> None:
    with waiting_run(tmp_path / "release") as process:
        process.send_signal(signal.SIGINT)
        process.wait(10)
    assert beside(tmp_path / "release") == []


def test_a_release_that_was_set_aside_by_a_killed_run_is_put_back(tmp_path: Path) -> None:
    target = tmp_path / "release"
    build(target, text="old")
    target.rename(tmp_path / ".release.1-0.old")  # killed between the two renames
    with pytest.raises(SourceError, match="exists already"):
        build(target)
    assert (target / RELEASE).read_text() == "old"
    assert beside(target) == ["release"]


def test_names_that_only_look_alike_are_left_alone(tmp_path: Path) -> None:
    others = (".release.2.5-0.partial", ".release.2.5-0.old", ".release.2023.old")
    for name in (".release2.5-0.partial", ".release.notes", "release.partial", *others):
        (tmp_path / name).mkdir()
    (tmp_path / ".release.partial").write_text("a file")
    before = set(beside(tmp_path / "release"))
    build(tmp_path / "release")
    assert set(beside(tmp_path / "release")) == before | {"release"}


def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "release"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with (
            pytest.raises(SourceError, match="the disk is full"),
            build_folder(target, replace=False) as room,
        ):
            (room / RELEASE).write_bytes(bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert beside(target) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to_is_a_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(SourceError, match="may not"):
            build(tmp_path / "release")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.slow
def test_two_runs_at_once_both_end_well_or_with_a_sentence(tmp_path: Path) -> None:
    target = tmp_path / "release"
    code = (
        "import sys; from pathlib import Path; from discreet.pipeline._output import build_folder\n"
        "for _ in range(15):\n"
        "    with build_folder(Path(sys.argv[1]), replace=True) as room:\n"
        "        (room / 'public' / 'statement.json').write_text('whole')\n"
    )
    runs = [
        subprocess.Popen([sys.executable, "-c", code, str(target)], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    seen = set()
    while any(run.poll() is None for run in runs):
        try:
            seen.add((target / RELEASE).read_text())
        except FileNotFoundError:
            time.sleep(0.001)
    for run in runs:
        _, problem = run.communicate()
        assert run.returncode == 0 or "SourceError" in problem
    assert seen <= {"whole"}
    build(target, replace=True)
    assert beside(target) == ["release"]


def test_a_complete_release_that_is_resumed_loses_its_key_and_the_one_it_replaced(
    tmp_path: Path,
) -> None:
    target, replaced = tmp_path / "release", tmp_path / ".release.999999999-0.old"
    build(target)
    build(replaced)
    record = target / "internal" / "resume.json"
    record.write_text("a key")
    with pytest.raises(SourceError, match="is complete, and nothing is left to resume"):
        forget_key(target, resume=True)
    assert not record.exists()
    assert beside(target) == ["release"]


def test_the_release_of_somebody_else_is_left_to_the_check_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "release"
    build(target)
    plain = type(target).exists

    def exists(path: Path, **options: bool) -> bool:
        if path.name == "resume.json":
            raise PermissionError(13, "Permission denied")
        return plain(path, **options)

    monkeypatch.setattr(type(target), "exists", exists)
    forget_key(target, resume=False)
    with pytest.raises(SourceError, match="exists already"):
        check_target_folder(target, replace=False)
