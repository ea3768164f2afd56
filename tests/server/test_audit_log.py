"""The audit log: what it names before an answer is returned, and what happens when it cannot be written."""

from __future__ import annotations

import os
import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from discreet.errors import LedgerTampered, ParameterError
from discreet.query.aggregates import Sums
from discreet.server.config import Config
from discreet.server.service import Service
from tests.server.conftest import Disk, lines_of, running, settings, signed_in

if TYPE_CHECKING:
    from pathlib import Path

    from tests.server.conftest import RunningService

PRIVACY = {"kind": "gaussian-dp", "mu": 0.1}


COUNT = {"kind": "count", "where": "age > 40", "privacy": PRIVACY}


def kept_ledger(folder: Path) -> Path:
    kept = folder / "kept"
    kept.mkdir()
    for path in folder.glob("town.ledger*"):
        shutil.copy(path, kept)
    return kept


def put_back(folder: Path, kept: Path) -> None:
    for path in folder.glob("town.ledger*"):
        path.unlink()
    for path in kept.iterdir():
        shutil.copy(path, folder)


def test_what_the_history_tells_is_in_the_trail_so_that_an_older_ledger_is_refused(
    tmp_path: Path, disk: Disk
) -> None:
    with running(tmp_path) as service:
        tokens = service.tokens
    kept = kept_ledger(tmp_path)
    with running(tmp_path, tokens) as service:
        disk.full = True
        assert service.ask(COUNT).status_code == 503
        client = service.client()
        # It was charged and answered, and as long as nobody can write that down, nobody is told.
        assert service.backend.dataset.ledger.spent().charges == 1
        assert client.get("/v1/datasets/town/history").status_code == 503
        assert client.get("/v1/datasets/town/history?format=csv").status_code == 503
        assert service.client("cura").get("/v1/datasets/town/history").status_code == 503
        disk.full = False
        (entry,) = client.get("/v1/datasets/town/history").json()["entries"]
        assert entry["value"] is not None
        written = lines_of(tmp_path / "audit.jsonl")
        assert client.get("/v1/datasets/town/history").status_code == 200
        assert lines_of(tmp_path / "audit.jsonl") == written  # once is enough
    named = [line for line in written if line["event"] == "answer"]
    assert [(line["asked"], line["rows"][0][1]) for line in named] == [("history", entry["row"])]
    put_back(tmp_path, kept)
    with pytest.raises(LedgerTampered, match="earlier state"):
        Service(Config.from_dict(settings(), tmp_path))


def test_the_page_of_an_answer_that_the_trail_could_not_name_waits_for_it(tmp_path: Path, disk: Disk) -> None:
    with running(tmp_path) as service:
        browser = signed_in(service, "ana")
        disk.full = True
        assert service.ask(COUNT).status_code == 503
        receipt = service.backend.dataset.ledger.entries("ana")[-1].receipt
        assert browser.get(f"/datasets/town/answers/{receipt.id}").status_code == 503
        assert browser.get("/datasets/town/history").status_code == 503
        disk.full = False
        assert browser.get(f"/datasets/town/answers/{receipt.id}").status_code == 200
        answers = [line for line in lines_of(tmp_path / "audit.jsonl") if line["event"] == "answer"]
        assert [row[1] for line in answers for row in line["rows"]] == [receipt.seq]


def test_what_was_named_before_a_restart_is_not_named_again(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        service.ask(COUNT)
        tokens = service.tokens
    with running(tmp_path, tokens) as service:
        assert len(service.client().get("/v1/datasets/town/history").json()["entries"]) == 1
    assert sum(line["event"] == "answer" for line in lines_of(tmp_path / "audit.jsonl")) == 1


def test_a_long_question_is_in_the_trail_by_its_beginning_and_its_hash(service: RunningService) -> None:
    question = Sums([f"age > {k}.5" for k in range(60)]).to_dict()
    assert service.ask({"kind": "statistical", "question": question, "privacy": PRIVACY}).status_code == 200
    line = lines_of(service.folder / "audit.jsonl")[-1]
    assert len(line["asked"]) == 500
    assert len(line["asked_sha256"]) == 64


def test_half_a_line_is_cut_off_and_that_is_written_down(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with running(tmp_path) as service:
        service.ask(COUNT)
        tokens = service.tokens
    with path.open("ab") as file:
        file.write(b'{"event":"answer"')
    with running(tmp_path, tokens) as service:
        assert [line["bytes"] for line in lines_of(path) if line["event"] == "cut"] == [17]
        with path.open("ab") as file:
            file.write(b'{"half')
        # Also while it runs: another process may have been killed.
        curator = service.client("cura")
        assert curator.get("/v1/datasets/town/curator/refusals").status_code == 200
        assert curator.get("/v1/datasets/town/curator/check").json()["intact"]
        assert [line["bytes"] for line in lines_of(path) if line["event"] == "cut"] == [17, 6]


def test_a_check_waits_for_a_line_that_is_being_written(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, half, go = service.folder / "audit.jsonl", threading.Event(), threading.Event()
    real = os.write

    def slowly(handle: int, line: bytes) -> int:
        real(handle, line[:20])
        half.set()
        go.wait(10)
        return 20 + real(handle, line[20:])

    before = service.backend.audit_log.check().lines
    monkeypatch.setattr(os, "write", slowly)
    writer = threading.Thread(target=service.backend.audit_log.write, args=("test",))
    writer.start()
    assert half.wait(10)
    found: list[int] = []
    checker = threading.Thread(target=lambda: found.append(service.backend.audit_log.check().lines))
    checker.start()
    checker.join(0.2)
    assert checker.is_alive()
    go.set()
    writer.join(10)
    checker.join(10)
    assert found == [before + 1] == [len(lines_of(path))]


def test_what_the_trail_cannot_take_is_not_done_or_stays_on_the_safe_side(
    service: RunningService, disk: Disk
) -> None:
    curator, order = service.client("cura"), "/v1/datasets/town/curator/tokens"
    disk.full = True
    assert curator.post("/v1/datasets/town/curator/stop", json={"stopped": True}).status_code == 503
    assert service.backend.access.stop_record("town") is not None  # stopping is never held up
    assert curator.post("/v1/datasets/town/curator/stop", json={"stopped": False}).status_code == 503
    assert service.backend.access.stop_record("town") is not None
    assert curator.post(order, json={"action": "rotate", "name": "ben"}).status_code == 503
    assert service.client("ben").get("/v1/datasets/town/budget").status_code == 200
    assert curator.post(order, json={"action": "create", "name": "dan"}).status_code == 503
    assert curator.post(order, json={"action": "revoke", "name": "ben"}).status_code == 503
    assert service.client("ben").get("/v1/datasets/town/budget").status_code == 401
    disk.full = False
    assert curator.post("/v1/datasets/town/curator/stop", json={"stopped": False}).status_code == 200
    assert service.backend.access.stop_record("town") is None


def test_a_rotation_that_is_refused_is_not_in_the_trail(service: RunningService) -> None:
    with pytest.raises(ParameterError, match="no valid token that could be replaced"):
        service.backend.rotate_token("test", "nobody")
    assert lines_of(service.folder / "audit.jsonl")[-1]["event"] == "token created"
