"""The audit log against its anchor in the ledger: cut, replaced, deleted, set back, edited, rotated."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from discreet.errors import (
    LedgerError,
    LedgerTampered,
    LedgerUnavailable,
    ParameterError,
    SourceError,
)
from discreet.ledger import Ledger, log_verification
from discreet.ledger.records import LogAnchor
from discreet.privacy.promises import PureDP
from discreet.server.audit_log import AnswerEvent, ServiceLog
from discreet.server.config import Config
from discreet.server.service import Service
from tests.cli.run import discreet
from tests.server.conftest import configured, lines_of, running
from tests.server.markup import Visitor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.server.conftest import RunningService


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(Ledger.open(tmp_path / "town.ledger", limit=PureDP(epsilon=10))) as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def answered(log: ServiceLog, ledger: Ledger, answers: int) -> None:
    """Charge and log answers, as a service does."""
    for _ in range(answers):
        receipt = ledger.charge(PureDP(epsilon=0.01), owner="ana", what="count")
        log.write_answers([AnswerEvent("town", "ana", "count", [receipt], cached=False)])


def served(path: Path, ledger: Ledger, answers: int = 3, *, stopped: bool = True) -> ServiceLog:
    """Log a start and some answers, and anchor the end as a service that is stopped does."""
    log = ServiceLog(path)
    log.confirm("town", ledger)
    log.write_start("town", ledger)
    answered(log, ledger, answers)
    if stopped:
        log.anchor({"town": ledger})
    return log


def cut(path: Path, _kept: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def cut_all(path: Path, _kept: Path) -> None:
    path.write_bytes(b"")


def replace(path: Path, _kept: Path) -> None:
    """Put a log that is consistent in itself in its place, longer than the true one."""
    path.unlink()
    log = ServiceLog(path)
    for _ in range(20):
        log.write("refused", who="ana")


def delete(path: Path, _kept: Path) -> None:
    path.unlink()


def set_back(path: Path, kept: Path) -> None:
    """Put an older copy back and go on with it, so that it has as many lines as before."""
    shutil.copy(kept, path)
    log = ServiceLog(path)
    while len(lines_of(path)) < 20:
        log.write("refused", who="ana")


TAMPERING = [cut, cut_all, replace, delete, set_back]


@pytest.mark.parametrize("tamper", TAMPERING, ids=lambda way: way.__name__)
@pytest.mark.parametrize("twin", [False, True], ids=["anchored", "twin"])
def test_a_log_that_is_not_the_anchored_one_is_reported(
    tamper: Callable[[Path, Path], None],
    twin: bool,
    path: Path,
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if twin:  # a service that anchors nothing takes each of them for intact
        monkeypatch.setattr(Ledger, "anchor_log", lambda *_: None)
    served(path, ledger)
    kept = path.with_name("kept.jsonl")
    shutil.copy(path, kept)
    served(path, ledger)
    tamper(path, kept)
    if twin:
        ServiceLog(path).confirm("town", ledger)
        ServiceLog(path).check()
        return
    with pytest.raises(LedgerTampered, match=r"whose hash the ledger keeps, and has not: .*begin"):
        ServiceLog(path).confirm("town", ledger)


def test_an_edit_after_the_anchor_is_reported_at_the_start_and_one_before_it_by_a_check(
    path: Path, ledger: Ledger
) -> None:
    served(path, ledger)
    served(path, ledger, stopped=False)
    text = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(text[:-1]) + text[-1].replace(b'"ana"', b'"bob"'))
    with pytest.raises(LedgerTampered, match="must follow"):
        ServiceLog(path).confirm("town", ledger)
    path.write_bytes(b"".join([text[0], text[1].replace(b'"ana"', b'"bob"'), *text[2:]]))
    log = ServiceLog(path)
    log.confirm("town", ledger)
    with pytest.raises(LedgerTampered, match="Line 2 "):
        log.check()
    with pytest.raises(LedgerTampered, match="Line 2 "):
        log.check_writable()  # a service is not ready


def test_lines_after_the_anchor_are_no_false_alarm_and_name_rows_that_must_be_there(
    path: Path, ledger: Ledger, tmp_path: Path
) -> None:
    served(path, ledger)
    ledger.backup(tmp_path / "older.ledger")
    log = served(path, ledger, stopped=False)  # killed before it anchors
    again = ServiceLog(path)
    again.confirm("town", ledger)
    assert again.check().lines == len(lines_of(path))
    answered(log, ledger, 1)
    with closing(Ledger.open(tmp_path / "older.ledger")) as older, pytest.raises(LedgerTampered, match="row"):
        ServiceLog(path).confirm("town", older)


def test_a_ledger_that_was_replaced_is_refused_and_other_data_sets_are_not_asked(
    path: Path, ledger: Ledger, tmp_path: Path
) -> None:
    served(path, ledger)
    with closing(Ledger.open(tmp_path / "other.ledger", limit=PureDP(epsilon=10))) as other:
        with pytest.raises(LedgerTampered, match="is another one"):
            ServiceLog(path).confirm("town", other)
        log = ServiceLog(path)
        log.confirm("village", other)
        log.write_start("village", other)
        answered(log, other, 2)
        log.confirm("town", ledger)
        log.anchor({"town": ledger})
        log.anchor({"village": other})
        assert ledger.log_anchors().keys() == other.log_anchors().keys()


def test_a_start_verifies_only_what_follows_the_anchor(
    path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = ServiceLog(path)
    log.write_start("town", ledger)
    for number in range(2000):
        log.write("refused", n=number)
    log.anchor({"town": ledger})
    log.write("refused", n=-1)
    parsed: list[bytes] = []
    real = log_verification._parse

    def parse(text: bytes) -> Any:
        parsed.append(text)
        return real(text)

    monkeypatch.setattr(log_verification, "_parse", parse)
    ServiceLog(path).confirm("town", ledger)
    assert len(parsed) <= 6


def test_the_log_is_read_once_for_all_ledgers_and_must_have_the_anchors_of_each(
    path: Path, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = served(path, ledger)
    real, parsed = log_verification._parse, []
    with closing(Ledger.open(tmp_path / "other.ledger", limit=PureDP(epsilon=10))) as other:
        log.write_start("village", other)
        answered(log, other, 5)
        log.anchor({"village": other})
        answered(log, ledger, 200)
        monkeypatch.setattr(
            log_verification,
            "_parse",
            lambda text: parsed.append(text) or real(text),  # type: ignore[func-returns-value]
        )
        log.anchor({"town": ledger, "village": other})
        assert len(parsed) < 230  # and not twice as many
        anchors = ledger.log_anchors()
        assert anchors == other.log_anchors()
        assert next(iter(anchors.values())).line == len(lines_of(path))
        # The line that only the later ledger has anchored is cut off with all that follows it.
        answered(log, ledger, 1)
        kept = path.read_bytes()
        answered(log, ledger, 1)
        log.anchor({"village": other})
        path.write_bytes(kept)
        again = ServiceLog(path)
        again.anchor({"town": ledger})
        with pytest.raises(LedgerTampered, match="must have line"):
            again.anchor({"town": ledger, "village": other})


def test_a_ledger_that_is_away_does_not_keep_others_from_their_anchor(
    path: Path, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = served(path, ledger)
    with closing(Ledger.open(tmp_path / "other.ledger", limit=PureDP(epsilon=10))) as other:
        log.write_start("village", other)
        answered(log, ledger, 1)
        find = Ledger.log_anchors

        def unreachable(one: Ledger) -> Any:
            if one is other:
                raise LedgerUnavailable("away")
            return find(one)

        monkeypatch.setattr(Ledger, "log_anchors", unreachable)
        with pytest.raises(LedgerUnavailable, match="away"):
            log.anchor({"village": other, "town": ledger})
        assert next(iter(ledger.log_anchors().values())).line == len(lines_of(path))
        with pytest.raises(LedgerUnavailable, match="away"):
            log.anchor({"village": other})


def test_a_power_failure_after_an_anchor_loses_no_anchored_line(
    path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    sync, anchor = os.fsync, Ledger.anchor_log

    def note_sync(handle: int) -> None:
        order.append("log")
        sync(handle)

    def note_anchor(ledger: Ledger, last: LogAnchor) -> None:
        order.append("ledger")
        anchor(ledger, last)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Ledger, "anchor_log", note_anchor)
    served(path, ledger)
    assert order == ["log", "ledger"] * 2


def test_a_log_that_is_cut_while_the_service_runs_is_reported_and_nothing_is_charged(
    service: RunningService,
) -> None:
    count = {"kind": "count", "privacy": {"kind": "zcdp", "rho": 0.001}}
    assert service.ask(count).status_code == 200
    operator = service.client("opal")
    service.whole.anchor_log()
    assert "discreet_audit_log_intact 1.0" in operator.get("/metrics").text
    assert "Audit log:" not in Visitor(service, "cura").get("/datasets/town/curator").text
    path = service.folder / "audit.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rstrip().rfind(b"\n") + 1])
    with pytest.raises(LedgerTampered):
        service.whole.anchor_log()  # as the service does every minute
    rows = service.backend.dataset.ledger.head
    refused = service.ask({**count, "where": "age > 40"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "ledger-unavailable")
    assert service.backend.dataset.ledger.head == rows
    assert "discreet_audit_log_intact 0.0" in operator.get("/metrics").text
    assert "Audit log:" in Visitor(service, "cura").get("/datasets/town/curator").text
    assert "Audit log:" not in Visitor(service).get("/datasets/town").text
    path.write_bytes(whole)
    service.whole.anchor_log()
    assert service.ask({**count, "where": "age > 40"}).status_code == 200
    assert "discreet_audit_log_intact 1.0" in operator.get("/metrics").text


def test_an_old_line_that_was_changed_stays_reported_after_the_next_anchor(
    path: Path, ledger: Ledger
) -> None:
    log = served(path, ledger)
    answered(log, ledger, 3)
    log.anchor({"town": ledger})
    kept = path.read_bytes()
    path.write_bytes(kept.replace(b"answer", b"anszer", 1))
    with pytest.raises(LedgerTampered):
        log.check()
    with pytest.raises(LedgerTampered):
        log.anchor({"town": ledger})
    with pytest.raises(LedgerTampered):
        log.require()
    path.write_bytes(kept)
    log.anchor({"town": ledger})
    log.require()


def test_what_one_ledger_has_shown_is_not_settled_by_the_anchor_of_another(
    path: Path, ledger: Ledger, tmp_path: Path
) -> None:
    log = served(path, ledger)
    answered(log, ledger, 3)
    log.anchor({"town": ledger})
    kept = path.read_bytes()
    path.write_bytes(kept[: kept.rstrip().rfind(b"\n") + 1])
    with pytest.raises(LedgerTampered):
        log.anchor({"town": ledger})
    with Ledger.open(tmp_path / "village.ledger") as other:
        log.anchor({"village": other})
        log.anchor({})
        with pytest.raises(LedgerTampered):
            log.require()
    path.write_bytes(kept)
    log.anchor({"town": ledger})
    log.require()


def test_a_log_that_cannot_be_read_for_a_moment_is_not_said_to_be_changed(
    path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = served(path, ledger)
    answered(log, ledger, 3)

    def too_many(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(log_verification, "lock_file", too_many)
        for verify in (log.check, lambda: log.anchor({"town": ledger})):
            with pytest.raises(LedgerUnavailable, match="Too many open files"):
                verify()
    log.require()


# Rotation.


def test_a_rotated_log_is_one_chain_and_old_files_may_be_moved(path: Path, ledger: Ledger) -> None:
    log = served(path, ledger)
    first = log.rotate()
    assert first == path.with_name("audit.jsonl.1")
    answered(log, ledger, 2)
    log.anchor({"town": ledger})
    second = log.rotate()
    assert isinstance(second, Path)
    answered(log, ledger, 1)
    lines = log.check().lines
    assert lines == sum(len(lines_of(file)) for file in path.parent.glob("audit.jsonl*"))
    assert [line["event"] for line in lines_of(path)] == ["rotated", "answer"]
    assert log.last("answer", "town", 99)[-1]["seq"] == 2  # the curator's page sees all files
    ServiceLog(path).confirm("town", ledger)  # the anchor is in the file before
    log.anchor({"town": ledger})
    away = path.parent / "away"
    away.mkdir()
    shutil.move(first, away)
    assert log.check() == (lines, 4)
    text = second.read_text()
    second.write_text(text.replace('"ana"', '"bob"'))
    ServiceLog(path).confirm("town", ledger)
    with pytest.raises(LedgerTampered, match=r"Line 6 .*audit\.jsonl\.5"):
        ServiceLog(path).check()
    second.unlink()
    (away / first.name).rename(first)
    with pytest.raises(LedgerTampered, match=r"Lines 5 to 7 .*audit\.jsonl\.5 "):
        ServiceLog(path).check()


def test_a_new_ledger_under_an_old_name_is_known_after_a_rotation_too(
    path: Path, ledger: Ledger, tmp_path: Path
) -> None:
    log = served(path, ledger)
    log.rotate()
    path.with_name("audit.jsonl.1").unlink()
    with (
        closing(Ledger.open(tmp_path / "other.ledger", limit=PureDP(epsilon=10))) as other,
        pytest.raises(LedgerTampered, match="is another one"),
    ):
        ServiceLog(path).confirm("town", other)


def test_a_log_rotates_by_itself_while_others_write(path: Path, ledger: Ledger) -> None:
    def write(who: int) -> None:
        log = ServiceLog(path, max_bytes=4000)
        for number in range(60):
            log.write("refused", who=str(who), n=number)

    # Every write opens the file anew, and locks belong to opened files: threads stand for processes.
    writers = [threading.Thread(target=write, args=(who,)) for who in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    files = list(path.parent.glob("audit.jsonl*"))
    assert len(files) > 5
    lines = [line for file in files for line in lines_of(file)]
    assert ServiceLog(path).check() == (len(lines), 0)
    seen = sorted((line["who"], line["n"]) for line in lines if line["event"] == "refused")
    assert seen == [(str(who), number) for who in range(3) for number in range(60)]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("step", ["hardlink_to", "rename"])
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_a_rotation_that_is_killed_leaves_a_log_that_goes_on(
    step: str, done: bool, path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = served(path, ledger)
    real: Callable[..., Any] = getattr(Path, step)

    def kill(self: Path, target: Path) -> None:
        if done:
            real(self, target)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Path, step, kill)
        with pytest.raises(Killed):
            log.rotate()
    again = ServiceLog(path)
    again.confirm("town", ledger)
    answered(again, ledger, 1)
    again.anchor({"town": ledger})
    again.rotate()
    assert ServiceLog(path).check().elsewhere == 0
    ServiceLog(path).confirm("town", ledger)
    assert (
        sum(line["event"] == "answer" for file in path.parent.glob("audit.jsonl*") for line in lines_of(file))
        == 4
    )


# While it runs.


def test_a_log_that_is_moved_away_while_it_runs_is_not_begun_anew(path: Path, ledger: Ledger) -> None:
    log = served(path, ledger)
    path.rename(path.with_name("moved"))
    with pytest.raises(LedgerUnavailable, match="was cut, moved or replaced"):
        log.write("refused", who="ana")
    with pytest.raises(LedgerUnavailable):
        log.check_writable()
    path.with_name("moved").rename(path)
    log.check_writable()
    assert lines_of(path)[-1]["event"] == "resume log"
    log.anchor({"town": ledger})


def test_a_new_log_is_begun_on_request_and_the_ledger_says_so(path: Path, ledger: Ledger) -> None:
    served(path, ledger)
    with pytest.raises(ParameterError, match="must not exist"):
        ServiceLog(path).begin([ledger], "op")
    path.unlink()
    ServiceLog(path).begin([ledger], "op")
    served(path, ledger)
    first, second = ledger.log_anchors()
    assert lines_of(path)[0]["others"] == [first]
    assert lines_of(path)[0]["hash"] == second
    ledger.check()


# In the ledger.


def test_anchors_survive_a_backup_and_only_go_forward(path: Path, ledger: Ledger, tmp_path: Path) -> None:
    log = served(path, ledger)
    ledger.backup(tmp_path / "first.backup")
    answered(log, ledger, 1)
    log.anchor({"town": ledger})
    ledger.backup(tmp_path / "second.backup")
    anchors = ledger.log_anchors()
    (anchor,) = anchors.values()
    ledger.anchor_log(LogAnchor(anchor.log, anchor.line - 1, "0" * 64, 1, 0))  # too late: another was faster
    assert ledger.log_anchors() == anchors
    ledger.check()
    for backup in ("first.backup", "second.backup"):
        with closing(Ledger.restore(tmp_path / backup, tmp_path / "restored.ledger")) as restored:
            restored.check()
    with closing(Ledger.open(tmp_path / "restored.ledger")) as restored:
        assert restored.log_anchors() == anchors


def test_an_anchor_says_nothing_but_where_a_line_is(path: Path, ledger: Ledger) -> None:
    served(path, ledger)
    with ledger._store.read() as transaction:
        bodies = [json.loads(row.body) for row in transaction.record()]
    anchors = [body for body in bodies if body["type"] == "audit log"]
    assert {frozenset(body) for body in anchors} == {
        frozenset(("type", "log", "line", "hash", "file", "offset"))
    }
    with pytest.raises((LedgerError, SourceError)):
        log_verification.verify_log(path, [LogAnchor("0" * 64, 1, "0" * 64, 1, 0)])


# The service and its command.


@pytest.mark.parametrize(
    "words", [("create", "carl"), ("create", "carl", "--rho", "0.1"), ("limit", "ana"), ("group", "ana", "a")]
)
def test_no_command_begins_another_log_beside_the_anchored_one(
    tmp_path: Path, path: Path, words: tuple[str, ...]
) -> None:
    config = configured(tmp_path)
    assert discreet("token", *words, cwd=tmp_path).code == 0  # before the first start
    path.unlink()
    with running(tmp_path) as service:
        service.ask({"kind": "count", "privacy": {"kind": "zcdp", "rho": 0.001}})
    kept = path.rename(tmp_path / "kept.jsonl")
    done = discreet("token", words[0], "dora", *words[2:], cwd=tmp_path)
    assert done.code == 1
    assert "must have line" in done.err
    assert "audit-log begin" in done.err
    assert not path.exists()
    kept.rename(path)
    assert discreet("token", words[0], "dora", *words[2:], cwd=tmp_path).code == 0
    Service(Config.load(config)).close()


@pytest.mark.filterwarnings("always::discreet.errors.DiscreetWarning")
def test_a_log_that_begins_beside_tokens_of_another_one_is_said(tmp_path: Path, path: Path) -> None:
    configured(tmp_path)
    assert discreet("token", "create", "carl", cwd=tmp_path).err == ""
    configured(tmp_path, audit_log="other.jsonl")
    done = discreet("token", "create", "dora", cwd=tmp_path)
    assert (done.code, done.out.startswith("dsc_")) == (0, True)
    assert "other.jsonl' of the configuration is not there, though tokens were made before" in done.err
    assert discreet("token", "create", "eve", cwd=tmp_path).err == ""


@pytest.mark.slow
def test_a_service_refuses_a_deleted_log_until_a_new_one_is_begun(tmp_path: Path, path: Path) -> None:
    with running(tmp_path) as service:
        service.ask({"kind": "count", "privacy": {"kind": "zcdp", "rho": 0.001}})
    config = configured(tmp_path)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from discreet.cli import main; main()", "audit-log", *words]
        return subprocess.run(
            [*command, "--config", str(config)], capture_output=True, text=True, check=False
        )

    done = run("check")
    assert "The ledger of town keeps the hash of line 5." in done.stdout, done.stderr
    assert "audit.jsonl.1" in run("rotate").stdout
    assert json.loads(run("check", "--json").stdout)["lines"] == 6
    path.unlink()
    with pytest.raises(LedgerTampered, match="audit-log begin"):
        Service(Config.load(config))
    done = run("check")
    assert done.returncode == 1
    assert "there is no such log" in done.stderr
    assert "audit.jsonl.1 is there" in run("begin").stderr
    path.with_name("audit.jsonl.1").unlink()
    assert run("begin").returncode == 0
    Service(Config.load(config)).close()
    assert json.loads(run("check", "--json").stdout)["datasets"]["town"]["anchored"] == 2
