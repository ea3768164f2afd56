"""The audit log shows every change to it but a cut at its end."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest

from discreet.errors import SourceError
from discreet.ledger.audit_log import AuditLog
from discreet.ledger.log_verification import check_log

if TYPE_CHECKING:
    from pathlib import Path


def written(path: Path, lines: int = 4) -> AuditLog:
    log = AuditLog(path)
    log.begin(what="release of survey")
    for number in range(1, lines):
        log.write("stage", name=f"stage {number}", seconds=0.5)
    return log


def test_lines_say_who_when_and_with_what(tmp_path: Path) -> None:
    written(tmp_path / "survey.audit.jsonl")
    first, second, *_ = map(json.loads, (tmp_path / "survey.audit.jsonl").read_text().splitlines())
    assert first["event"] == "begin"
    assert "@" in first["who"]
    assert {"discreet", "python", "numpy", "duckdb"} <= set(first["versions"])
    assert second["previous"] == first["hash"]
    assert check_log(tmp_path / "survey.audit.jsonl") == 4


def test_a_later_run_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    path = tmp_path / "survey.audit.jsonl"
    written(path)
    written(path)
    assert check_log(path) == 8
    assert path.stat().st_mode & 0o077 == 0


def test_a_release_carries_a_copy_of_everything_so_far(tmp_path: Path) -> None:
    path = tmp_path / "survey.audit.jsonl"
    written(path)
    written(path).copy(tmp_path / "audit.jsonl")
    assert check_log(tmp_path / "audit.jsonl") == 8


def test_a_run_that_nobody_counts_has_a_log_of_its_own(tmp_path: Path) -> None:
    log = AuditLog(None)
    log.begin(what="release")
    log.write("stage", name="read")
    log.copy(tmp_path / "audit.jsonl")
    assert check_log(tmp_path / "audit.jsonl") == 2


@pytest.mark.parametrize("tampering", ["change", "remove", "swap", "insert", "not json", "number"])
def test_tampering_shows(tampering: str, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path)
    lines = path.read_text().splitlines()
    if tampering == "change":
        lines[1] = lines[1].replace("stage 1", "stage 9")
    elif tampering == "remove":
        del lines[1]
    elif tampering == "swap":
        lines[1], lines[2] = lines[2], lines[1]
    elif tampering == "insert":
        lines.insert(1, lines[1])
    elif tampering == "not json":
        lines[2] = "nothing"
    else:
        lines[2] = "7"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(SourceError, match=r"Line [23] "):
        check_log(path)


def test_half_a_line_of_a_power_failure_is_cut_off_by_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path)
    with path.open("a") as file:
        file.write('{"seq": 5, "event": "sta')
    assert check_log(path) == 4
    written(path)
    assert check_log(path) == 8


def test_a_line_longer_than_a_block_is_followed_too(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.write("stage", said="x" * 200_000)
    log.write("stage", said="y")
    assert check_log(tmp_path / "audit.jsonl") == 2


def test_a_last_line_that_is_not_ours_stops_the_run(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path)
    with path.open("a") as file:
        file.write("nothing\n")
    with pytest.raises(SourceError, match="was changed"):
        written(path)


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="audit log"):
        AuditLog(tmp_path / "no" / "audit.jsonl").write("begin")


def _many(path: Path) -> None:
    log = AuditLog(path)
    for number in range(50):
        log.write("stage", number=number)


def test_runs_at_the_same_time_share_one_chain(tmp_path: Path) -> None:
    # Each line opens the file anew, and the lock belongs to the opened file: threads stand for processes.
    runs = [threading.Thread(target=_many, args=(tmp_path / "audit.jsonl",)) for _ in range(3)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert check_log(tmp_path / "audit.jsonl") == 150
