"""A backup of a whole service is of one moment and checked, and restoring it sets nothing back."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from discreet.cli.main import build_app
from discreet.errors import DiscreetError, LedgerError, LedgerTampered, ParameterError, SourceError
from discreet.ledger import Ledger
from discreet.ledger.audit_log import AuditLog
from discreet.ledger.log_verification import log_identity
from discreet.server import access_database, upgrade
from discreet.server.access import AccessStore
from discreet.server.audit_log import ServiceLog
from discreet.server.backup import JOBS, LOG, Manifest, back_up_service
from discreet.server.config import Config
from discreet.server.jobs import JobStore
from discreet.server.restore import restore_service
from discreet.server.sign_in import Identity, SignInConfig
from discreet.server.upgrade import read_formats, upgrade_stores
from tests.cli.run import discreet
from tests.server.conftest import SCHEMA, RunningService, configured, running

if TYPE_CHECKING:
    from collections.abc import Iterator

RHO = {"kind": "zcdp", "rho": 1e-4}


def count(number: int) -> dict[str, Any]:
    """Return a question that no other number asks."""
    return {"kind": "count", "where": f"income < {100 * number + 7}", "privacy": RHO}


def two_tables(folder: Path, **changed: Any) -> dict[str, Any]:
    """Return a configuration with two tables about the same people and one with a ledger of its own."""
    (folder / "live").mkdir()
    (folder / "plain.schema.yaml").write_text(replace(SCHEMA, dataset=None).to_yaml())
    entry = {"table": "town.csv", "schema": "plain.schema.yaml", "new_ledger": True}
    return {
        "people": {"residents": {"ledger": "live/residents.ledger", "limit": {"rho": 10.0}}},
        "datasets": {
            "north": {**entry, "people": "residents"},
            "south": {**entry, "people": "residents"},
            "west": {**entry, "ledger": "live/west.ledger", "limit": {"rho": 10.0}},
        },
        "access": "live/access.sqlite",
        "audit_log": "live/audit.jsonl",
        **changed,
    }


@pytest.fixture(params=["files", "postgresql"])
def prepared(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, dict[str, Any]]:
    """Return a configuration file of three data sets, and what it says; stores are in files or PostgreSQL."""
    monkeypatch.setenv("DISCREET_STATE", str(tmp_path / "state"))
    said = two_tables(tmp_path)
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
        said["people"]["residents"]["ledger"] = f"{url}#residents"
        said["access"] = f"{url}#access"
    return configured(tmp_path, **said), said


def ask(service: RunningService, name: str, number: int) -> int:
    """Ask one data set, and return the status."""
    return service.client("ana").post(f"/v1/datasets/{name}/query", json=count(number)).status_code


def admit(service: RunningService, *names: str) -> None:
    """Let Ana ask more data sets."""
    for name in names:
        service.whole.tokens.grant("test", "ana", name, "analyst")
    service.tokens["ana"] = service.whole.tokens.create("test", "ana", days=9)


@pytest.fixture
def asked(prepared: tuple[Path, dict[str, Any]]) -> Iterator[tuple[RunningService, Path]]:
    """Run the service, with answers on every data set."""
    path, said = prepared
    with running(path.parent, **said) as service:
        admit(service, "south", "west")
        for name in ("north", "south", "west"):
            assert ask(service, name, 1) == 200
        yield service, path


def lost(path: Path) -> Config:
    """Remove everything that a service keeps, in files and in PostgreSQL, and return its configuration."""
    config = Config.load(path)
    shutil.rmtree(path.parent / "live")
    (path.parent / "live").mkdir()
    for address in {config.access, *(entry.ledger for entry in config.datasets.values())}:
        forget(address)
    return config


def forget(address: str) -> None:
    """Remove a store, in files or in PostgreSQL."""
    if "://" not in address:
        for file in Path(address).parent.glob(f"{Path(address).name}*"):
            file.unlink()
        return
    import psycopg

    url, _, name = address.partition("#")
    with psycopg.connect(url) as connection:
        connection.execute(f"DROP SCHEMA discreet_{name} CASCADE".encode())


def test_everything_that_was_lost_is_restored_and_the_service_goes_on(
    asked: tuple[RunningService, Path], tmp_path: Path
) -> None:
    service, path = asked
    service.whole.access.stop("west", "cura")
    browser = service.whole.access
    caller = browser.find(service.tokens["ana"])
    assert caller is not None
    secret = browser.open_session(caller, hours=1)
    service.whole.jobs.create("north", "ana", "count", "a question", key=None, digest=b"")
    manifest = back_up_service(path, tmp_path / "copy")
    before = {name: one.dataset.ledger.head for name, one in service.whole.datasets.items()}
    assert {name: (one.rows, one.head) for one in manifest.ledgers for name in one.datasets} == before
    assert sorted(len(one.datasets) for one in manifest.ledgers) == [1, 2]
    tokens = dict(service.tokens)
    service.whole.close()

    config = lost(path)
    restored = restore_service(tmp_path / "copy", config, by="test", digest=manifest.digest)
    assert restored.ledgers == {name: rows for name, (rows, _) in before.items()}
    assert (restored.log, restored.access, restored.jobs) == (True, True, True)
    for name, entry in config.datasets.items():
        with Ledger.open(entry.ledger) as ledger:
            ledger.check()
            assert ledger.head == before[name]
    with closing(AccessStore(config.access)) as access:
        assert access.session(secret) is not None
        assert access.stop_record("west") is not None
        # New tokens get numbers of their own.
        assert access.find(access.create("new", days=1)) is not None
    with closing(JobStore(config.jobs)) as jobs:
        assert [job.question for job in jobs.jobs_of("north", "ana")] == ["a question"]
    said = json.loads(json.dumps(two_tables_of(path)))
    with running(path.parent, tokens, **said) as again:
        response = again.client("ana").post("/v1/datasets/north/query", json=count(1))
        assert response.json()["cached"]  # the key of the ledger is back, so what was paid stays paid
        assert ask(again, "west", 1) == 423
        assert again.client("cura").get("/v1/datasets/north/curator/check").json()["intact"]


def two_tables_of(path: Path) -> dict[str, Any]:
    """Return what the configuration of a test says, as it was written."""
    from discreet.schema.serialization import read_yaml

    content: dict[str, Any] = read_yaml(path.read_text())
    return {**content, "slots": "off"}


def test_a_backup_while_questions_are_asked_is_consistent_in_itself(
    asked: tuple[RunningService, Path], tmp_path: Path
) -> None:
    """Each copy of the log names only rows of the copies, and has what they anchor: that is checked."""
    service, path = asked
    over = threading.Event()
    statuses: set[int] = set()

    def asking(name: str) -> None:
        number = 2
        while not over.is_set():
            statuses.add(ask(service, name, number))
            service.whole.anchor_log()
            number += 1

    threads = [threading.Thread(target=asking, args=(name,)) for name in ("north", "west")]
    for thread in threads:
        thread.start()
    try:
        heads = [back_up_service(path, tmp_path / f"copy{i}").ledgers for i in range(5)]
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert statuses == {200}
    assert heads[0] != heads[-1]
    for i in range(5):
        assert Manifest.load(tmp_path / f"copy{i}").digest


def test_copies_of_two_moments_are_noticed(
    asked: tuple[RunningService, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check above is not blind: with answers between the two copies, there is no backup."""
    service, path = asked

    def late(self: Any, target: Path) -> None:
        # A twin that copies the log as it is later, not as of the moment of the ledgers.
        assert ask(service, "north", 99) == 200
        for suffix in self.files:
            name = path.parent / "live" / f"audit.jsonl{suffix}"
            shutil.copyfile(name, target.with_name(target.name + suffix))

    monkeypatch.setattr("discreet.ledger.audit_log.LogSnapshot.copy", late)
    with pytest.raises(LedgerTampered, match="must hold row"):
        back_up_service(path, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert not list(tmp_path.glob(".copy*"))


def test_a_service_that_went_on_is_not_set_back(asked: tuple[RunningService, Path], tmp_path: Path) -> None:
    service, path = asked
    back_up_service(path, tmp_path / "copy")
    assert ask(service, "north", 2) == 200
    heads = {name: one.dataset.ledger.head for name, one in service.whole.datasets.items()}
    service.whole.close()
    config = Config.load(path)
    restored = restore_service(tmp_path / "copy", config, by="test")
    assert set(restored.ledgers.values()) == {0}
    assert (restored.log, restored.access, restored.jobs) == (False, False, False)
    for name, entry in config.datasets.items():
        with Ledger.open(entry.ledger) as ledger:
            rows, digest = heads[name]
            ledger.confirm(rows, digest)


def test_a_ledger_for_which_the_log_knows_a_later_answer_is_not_restored(
    asked: tuple[RunningService, Path], tmp_path: Path
) -> None:
    service, path = asked
    back_up_service(path, tmp_path / "copy")
    assert ask(service, "west", 2) == 200
    service.whole.close()
    config = Config.load(path)
    forget(config.datasets["west"].ledger)
    with pytest.raises(LedgerTampered, match="must hold row"):
        restore_service(tmp_path / "copy", config, by="test")
    assert not (path.parent / "live" / "west.ledger").exists()


def test_a_lost_log_of_which_a_ledger_knows_a_later_line_is_refused_before_anything_is_written(
    asked: tuple[RunningService, Path], prepared: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    service, path = asked
    back_up_service(path, tmp_path / "copy")
    assert ask(service, "west", 2) == 200
    service.whole.close()
    config = Config.load(path)
    for address in (str(config.audit_log), config.access, config.datasets["north"].ledger):
        forget(address)
    left = sorted(file.name for file in (path.parent / "live").iterdir())
    with pytest.raises(LedgerTampered, match=r"knows a later line.*audit-log begin"):
        restore_service(tmp_path / "copy", config, by="test")
    assert sorted(file.name for file in (path.parent / "live").iterdir()) == left
    assert access_database.read_format(config.access) is None
    # The way out that the message names, which makes no empty ledger in place of the lost one.
    done = discreet("audit-log", "begin", cwd=tmp_path)
    assert done.code == 0, done.err
    assert Ledger.identity_at(config.datasets["north"].ledger) is None
    restored = restore_service(tmp_path / "copy", config, by="test")
    assert (restored.log, restored.access) == (False, True)
    assert restored.ledgers["west"] == 0 < restored.ledgers["north"]
    with running(path.parent, service.tokens, **prepared[1]) as again:
        assert [ask(again, name, 1) for name in ("north", "south", "west")] == [200] * 3
        assert discreet("audit-log", "check", cwd=tmp_path).code == 0


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder, without the sizes that SQLite shares between processes."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith("-shm")}


def test_a_ledger_of_which_a_new_log_names_later_rows_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    said = two_tables(tmp_path)
    path = configured(tmp_path, **said)
    with running(tmp_path, **said) as service:
        admit(service, "west")
        back_up_service(path, tmp_path / "copy")
        assert ask(service, "north", 1) == 200
    config = Config.load(path)
    forget(str(config.audit_log))
    done = discreet("audit-log", "begin", cwd=tmp_path)
    assert done.code == 0, done.err
    with running(tmp_path, service.tokens, **said) as service:
        assert ask(service, "west", 2) == 200
    for address in (config.datasets["west"].ledger, config.access):
        forget(address)
    before = contents(tmp_path / "live")
    with pytest.raises(LedgerTampered, match="must hold row"):
        restore_service(tmp_path / "copy", config, by="test")
    assert contents(tmp_path / "live") == before


@pytest.mark.parametrize("logged", [True, False], ids=["log", "no log"])
def test_an_old_log_is_not_put_back_beside_a_ledger_that_is_later_than_the_backup(
    tmp_path: Path, logged: bool
) -> None:
    said = two_tables(tmp_path)
    path = configured(tmp_path, **said)
    with running(tmp_path, **said) as service:
        pass
    back_up_service(path, tmp_path / "copy")
    old_log = (tmp_path / "live" / "audit.jsonl").read_bytes()
    late = {"ledger": "live/late.ledger", "limit": {"rho": 10.0}}
    said["datasets"]["late"] = {**said["datasets"]["west"], **late}
    path = configured(tmp_path, **said)
    with running(tmp_path, service.tokens, **said) as service:
        admit(service, "late")
        assert ask(service, "late", 1) == 200
    config = Config.load(path)
    for name in ("north", "west"):
        forget(config.datasets[name].ledger)
    for address in (str(config.audit_log), config.access):
        forget(address)
    if logged:  # somebody put the old log back by hand
        config.audit_log.write_bytes(old_log)  # type: ignore[union-attr]
    before = contents(tmp_path / "live")
    with pytest.raises(LedgerTampered, match="audit-log begin"):
        restore_service(tmp_path / "copy", config, by="test")
    assert contents(tmp_path / "live") == before
    # The way out that the message names.
    forget(str(config.audit_log))
    done = discreet("audit-log", "begin", cwd=tmp_path)
    assert done.code == 0, done.err
    assert restore_service(tmp_path / "copy", config, by="test").access
    with running(tmp_path, service.tokens, **said) as again:
        admit(again, "late")
        assert ask(again, "late", 1) == 200
        assert discreet("audit-log", "check", cwd=tmp_path).code == 0


@pytest.mark.parametrize(("copy", "name"), [(LOG, "audit.jsonl"), (JOBS, "audit.jsonl.jobs")])
def test_a_file_that_appears_during_a_restore_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy: str, name: str
) -> None:
    path = configured(tmp_path)
    with running(tmp_path):
        pass
    back_up_service(path, tmp_path / "copy")
    config = Config.load(path)
    forget(str(config.audit_log))
    assert not (tmp_path / name).exists()
    real = shutil.copyfile

    def meanwhile(source: Path, draft: Path) -> None:
        real(source, draft)
        if source.name == copy:
            (tmp_path / name).write_text("of another")

    monkeypatch.setattr(shutil, "copyfile", meanwhile)
    with pytest.raises(SourceError, match="has appeared since"):
        restore_service(tmp_path / "copy", config, by="test")
    assert (tmp_path / name).read_text() == "of another"
    assert not list(tmp_path.glob(".*.restored"))


def test_another_log_is_not_taken_for_one_that_was_begun_anew(
    asked: tuple[RunningService, Path], tmp_path: Path
) -> None:
    service, path = asked
    back_up_service(path, tmp_path / "copy")
    service.whole.close()
    config = Config.load(path)
    forget(str(config.audit_log))
    with closing(ServiceLog(config.audit_log)) as log:
        # Nobody asked for it: no ledger has its line.
        log.write("begin", who="eve", others=[log_identity(tmp_path / "copy" / "audit.jsonl")])
    with pytest.raises(LedgerTampered, match="this is another log"):
        restore_service(tmp_path / "copy", config, by="test")


def test_no_command_makes_an_empty_ledger_in_place_of_a_lost_one(
    copied: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "service"
    shutil.copytree(copied[0].parent, folder)
    ledger = Path(Config.load(folder / "config.yaml").datasets["town"].ledger)
    forget(str(ledger))
    for words in (
        ("token", "limit", "ana", "--rho", "0.1"),
        ("token", "group", "ana", "office"),
        ("token", "create", "dora", "--rho", "0.1"),
        ("audit-log", "check"),
        ("audit-log", "rotate"),
    ):
        done = discreet(*words, cwd=folder)
        assert (done.code, "service restore" in done.err) == (1, True), (words, done.err)
        assert not ledger.exists()


def test_what_was_revoked_after_the_backup_is_revoked_again(
    asked: tuple[RunningService, Path], tmp_path: Path
) -> None:
    service, path = asked
    person = Identity("https://login.example.org", "1", "Ada")
    cookie = service.whole.access.sign_in(person, attempt="once", hours=8)
    back_up_service(path, tmp_path / "copy")
    service.whole.tokens.revoke("cura", person.name)
    service.whole.tokens.revoke("cura", "ben")
    service.whole.tokens.withdraw("cura", "ana", "south")
    service.whole.datasets["west"].stop(service.whole.access.find(service.tokens["cura"]))  # type: ignore[arg-type]
    ana, ben = service.tokens["ana"], service.tokens["ben"]
    service.whole.close()
    config = Config.load(path)
    forget(config.access)
    restored = restore_service(tmp_path / "copy", config, by="test")
    assert len(restored.revoked) == 4
    admitted = SignInConfig(issuer=person.issuer, client_id="c", subjects={"1": {"north": "analyst"}})
    with closing(AccessStore(config.access, sign_in=admitted)) as access:
        assert access.person(person.name) is not None
        assert access.session(cookie or "") is None
        assert access.find(ben) is None
        caller = access.find(ana)
        assert caller is not None
        assert caller.role("south") is None
        assert caller.role("north") == "analyst"
        assert access.stop_record("west") is not None


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Return the configuration of a service that has ended, and its backup."""
    folder = tmp_path_factory.mktemp("copied")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DISCREET_STATE", str(folder / "state"))
        path = configured(folder)
        with running(folder) as service:
            assert service.ask(count(1)).status_code == 200
        back_up_service(path, folder / "copy")
        yield path, folder / "copy"


@pytest.mark.parametrize("change", ["bit", "cut", "extra", "missing", "manifest", "other"])
def test_a_backup_that_was_changed_is_refused(copied: tuple[Path, Path], tmp_path: Path, change: str) -> None:
    path, copy = copied
    shutil.copytree(copy, tmp_path / "copy")
    file = tmp_path / "copy" / "town.ledger"
    content = bytearray(file.read_bytes())
    digest = None
    if change == "bit":
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    elif change == "cut":
        file.write_bytes(content[:-1])
    elif change == "extra":
        (tmp_path / "copy" / "more").write_text("")
    elif change == "missing":
        (tmp_path / "copy" / "town.ledger.version-key").unlink()
    elif change == "manifest":
        (tmp_path / "copy" / "manifest.json").write_text("{")
    else:
        digest = "0" * 64
    with pytest.raises(SourceError, match="must"):
        restore_service(tmp_path / "copy", Config.load(path), by="test", digest=digest)


def test_a_backup_of_a_later_format_is_refused_in_a_sentence(
    copied: tuple[Path, Path], tmp_path: Path
) -> None:
    path, copy = copied
    shutil.copytree(copy, tmp_path / "copy")
    manifest = tmp_path / "copy" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 2, "version": "9.9"}))
    with pytest.raises(SourceError, match=r"must have format 1, and has 2\. Use .* 9\.9\."):
        restore_service(tmp_path / "copy", Config.load(path), by="test")


def test_a_second_ledger_beside_the_first_is_refused(copied: tuple[Path, Path], tmp_path: Path) -> None:
    path, copy = copied
    other = configured(tmp_path, ledger="elsewhere.ledger")
    with pytest.raises(ParameterError, match="must not be at two places"):
        restore_service(copy, Config.load(other), by="test")
    assert not (tmp_path / "elsewhere.ledger").exists()
    assert path.exists()


def test_data_sets_that_share_a_ledger_in_the_backup_share_it_after_it(tmp_path: Path) -> None:
    said = two_tables(tmp_path)
    path = configured(tmp_path, **said)
    with running(tmp_path, **said):
        pass
    back_up_service(path, tmp_path / "copy")
    config = lost(path)
    apart = {**said["datasets"], "south": {**said["datasets"]["west"], "ledger": "live/south.ledger"}}
    apart["south"]["limit"] = {"rho": 9.0}
    other = Config.load(configured(tmp_path, **{**said, "datasets": apart}))
    with pytest.raises(ParameterError, match="must be shared with the same data sets"):
        restore_service(tmp_path / "copy", other, by="test")
    assert not list((tmp_path / "live").iterdir())
    assert set(restore_service(tmp_path / "copy", config, by="test").ledgers) == {"north", "south", "west"}


def test_an_earlier_log_is_not_mixed_with_that_of_the_backup(
    copied: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "service"
    shutil.copytree(copied[0].parent, folder)
    back_up_service(folder / "config.yaml", tmp_path / "copy")
    lines = (folder / "audit.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "audit.jsonl").write_bytes(b"".join(lines[:2]))
    with pytest.raises(LedgerTampered, match="earlier state of the log"):
        restore_service(tmp_path / "copy", Config.load(folder / "config.yaml"), by="test")


def test_nothing_is_written_over_and_a_full_disk_leaves_nothing(
    copied: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, copy = copied
    with pytest.raises(ParameterError, match="does not exist yet"):
        back_up_service(path, copy)

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(SourceError, match="No space left"):
        back_up_service(path, tmp_path / "copy")
    assert not list(tmp_path.iterdir())


def test_a_service_without_a_ledger_is_refused(tmp_path: Path) -> None:
    path = configured(tmp_path)
    with pytest.raises(LedgerError, match="must be there to be backed up"):
        back_up_service(path, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert not (tmp_path / "town.ledger").exists()


def test_rotated_files_of_the_log_are_part_of_the_backup(tmp_path: Path) -> None:
    path = configured(tmp_path)
    with running(tmp_path) as service:
        service.whole.audit_log.rotate()
        assert service.ask(count(1)).status_code == 200
    manifest = back_up_service(path, tmp_path / "copy")
    assert {"audit.jsonl", "audit.jsonl.1"} <= manifest.files.keys()
    for file in tmp_path.glob("audit.jsonl*"):
        file.unlink()
    config = Config.load(path)
    restore_service(tmp_path / "copy", config, by="test")
    assert ServiceLog(config.audit_log).check() == (manifest.log_lines + 1, 0)  # and that it was restored


def test_lines_wait_for_a_snapshot_of_the_log_to_be_released(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "log")
    log.write("one")
    writer = threading.Thread(target=AuditLog(tmp_path / "log").write, args=("two",))
    with log.snapshot() as held:
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
        held.release()
        writer.join(60)
        assert not writer.is_alive()
        held.copy(tmp_path / "copy")
    assert (tmp_path / "copy").read_text().count("\n") == 1


# The commands.


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command in this process, and return what it printed."""
    build_app()(list(arguments), standalone_mode=False)
    return capsys.readouterr().out


def test_commands_back_up_and_restore(
    copied: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "service"
    shutil.copytree(copied[0].parent, folder)
    config = str(folder / "config.yaml")
    said = run(capsys, "service", "backup", "--out", str(tmp_path / "copy"), "--config", config)
    assert "Ledger of town: " in said
    digest = said.partition("SHA-256 of its manifest: ")[2].split()[0]
    (folder / "access.db").unlink()
    restored = json.loads(
        run(
            capsys,
            "service",
            "restore",
            str(tmp_path / "copy"),
            "--config",
            config,
            "--digest",
            digest,
            "--json",
        )
    )
    assert restored["access"]
    assert restored["ledgers"] == {"town": 0}


def test_commands_that_replace_files_are_refused_while_the_service_listens(
    copied: tuple[Path, Path], tmp_path: Path
) -> None:
    with running(tmp_path) as service:
        path = configured(tmp_path, listen=service.url.removeprefix("http://"))
        for arguments in (["restore", str(copied[1])], ["upgrade", "--backup", str(tmp_path / "b")]):
            with pytest.raises(ParameterError, match="must be stopped first"):
                build_app()(["service", *arguments, "--config", str(path)], standalone_mode=False)


# Formats.

ACCESS_1 = """
CREATE TABLE about (format INTEGER NOT NULL, latest REAL NOT NULL);
CREATE TABLE tokens (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, scope TEXT NOT NULL, digest BLOB NOT NULL UNIQUE,
    created REAL NOT NULL, expires REAL NOT NULL, revoked REAL);
CREATE TABLE sessions (
    digest BLOB PRIMARY KEY, token INTEGER NOT NULL REFERENCES tokens (id), form TEXT NOT NULL,
    expires REAL NOT NULL);
CREATE TABLE switch (stopped INTEGER NOT NULL, who TEXT NOT NULL, since REAL NOT NULL);
INSERT INTO about VALUES (1, 1000.0);
"""


def write_first_formats(folder: Path) -> dict[str, str]:
    """Put access and jobs in the formats of the first versions into a folder; return tokens by name."""
    from discreet.server.callers import digest

    tokens = {name: f"dsc_{name:-<43}" for name in ("ana", "cura", "gone")}
    with closing(sqlite3.connect(folder / "access.db")) as file:
        file.executescript(ACCESS_1)
        for number, (name, scope, revoked) in enumerate(
            [("ana", "analyst", None), ("cura", "curator", None), ("gone", "curator", 5.0)], 1
        ):
            row = (number, name, scope, digest(tokens[name]), 1000.0, 9e9, revoked)
            file.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        file.execute("INSERT INTO sessions VALUES (?, 1, 'form', 9e9)", (digest("cookie"),))
        file.execute("INSERT INTO switch VALUES (1, 'cura', 900.0)")
        file.commit()
    JobStore(folder / "audit.jsonl.jobs").close()
    with closing(sqlite3.connect(folder / "audit.jsonl.jobs")) as file:
        file.execute("PRAGMA user_version = 0")
    return tokens


@pytest.fixture
def old(copied: tuple[Path, Path], tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """Return the configuration of a service whose access and jobs have their first formats, and tokens."""
    folder = tmp_path / "service"
    shutil.copytree(copied[0].parent, folder)
    for file in (*folder.glob("access.db*"), *folder.glob("audit.jsonl.jobs*")):
        file.unlink()
    return folder / "config.yaml", write_first_formats(folder)


def test_files_of_earlier_formats_are_refused_unchanged_and_upgraded_after_a_backup(
    old: tuple[Path, dict[str, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, tokens = old
    folder = path.parent
    before = {name: (folder / name).read_bytes() for name in ("access.db", "audit.jsonl.jobs")}
    for opening in (lambda: AccessStore(folder / "access.db"), lambda: JobStore(folder / "audit.jsonl.jobs")):
        with pytest.raises(SourceError, match=r"that of an earlier version.*discreet service upgrade"):
            opening()
    assert {name: (folder / name).read_bytes() for name in before} == before

    upgrade = ("service", "upgrade", "--config", str(path), "--backup")
    said = run(capsys, *upgrade, str(tmp_path / "old"))
    assert "format 1 is now format" in said
    assert "format 0 is now format" in said
    assert (Manifest.load(tmp_path / "old").access_format, Manifest.load(tmp_path / "old").jobs_format) == (
        1,
        0,
    )
    with closing(AccessStore(folder / "access.db")) as access:
        ana, cura = access.find(tokens["ana"]), access.find(tokens["cura"])
        assert ana is not None
        assert cura is not None
        assert (ana.grants, cura.grants) == ({"town": "analyst"}, {"town": "curator"})
        assert access.find(tokens["gone"]) is None
        assert access.grants("gone") == {"gone": {}}
        assert {token.dataset for token in access.tokens()} == {"town"}
        session = access.session("cookie")
        assert session is not None
        assert session.caller == ana
        stopped = access.stop_record("town")
        assert stopped is not None
        assert (stopped.caller, stopped.since) == ("cura", 900.0)
        assert access.now() >= 1000.0
    JobStore(folder / "audit.jsonl.jobs").close()
    assert ServiceLog(folder / "audit.jsonl").check().lines > Manifest.load(tmp_path / "old").log_lines

    said = run(capsys, *upgrade, str(tmp_path / "again"))
    assert "Nothing was changed" in said
    assert not (tmp_path / "again").exists()


def test_an_upgraded_file_has_the_tables_of_a_new_one(
    old: tuple[Path, dict[str, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = old

    def columns(file: Path) -> dict[str, list[tuple[Any, ...]]]:
        with closing(sqlite3.connect(file)) as opened:
            names = opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            return {
                name: opened.execute("SELECT * FROM pragma_table_info(?)", (name,)).fetchall()
                for (name,) in names
            }

    run(capsys, "service", "upgrade", "--config", str(path), "--backup", str(tmp_path / "old"))
    for store in (tmp_path / "new", path.parent / "access.db"):
        AccessStore(store).close()  # creates tables that were added since
    assert columns(path.parent / "access.db") == columns(tmp_path / "new")


def _next_step(execute: Any, _config: Config) -> None:
    execute("ALTER TABLE grants ADD COLUMN since INTEGER NOT NULL DEFAULT 0")
    execute("UPDATE grants SET since = ? WHERE name = ?", (7, "ana"))
    execute("UPDATE about SET format = 3")


def test_a_step_to_the_next_format_is_the_same_in_a_file_and_in_postgresql(
    copied: tuple[Path, Path], tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config.load(copied[0])
    addresses = [str(tmp_path / "access.db"), f"{postgres_url}#discreet_next"]
    tokens: dict[str, str] = {}
    for address in addresses:
        with closing(AccessStore(address)) as access:
            tokens[address] = access.create("ana", days=1, grants={"town": "analyst"})
    monkeypatch.setattr(access_database, "FORMAT", 3)
    for address in addresses:
        changed = config.model_copy(update={"access": address})
        (store,) = [one for one in read_formats(changed) if one.key == "access"]
        assert (store.written, store.known) == (2, 3)
        with pytest.raises(SourceError, match="Nothing was changed"):
            upgrade_stores(changed, [store])  # there is no such step

        def failing(execute: Any, config: Config) -> None:
            _next_step(execute, config)
            execute("SELECT nothing FROM nowhere")

        for step, works in ((failing, False), (_next_step, True)):
            monkeypatch.setitem(upgrade._STEPS, "access", {2: step})
            with nullcontext() if works else pytest.raises(SourceError, match="Nothing was changed"):
                upgrade_stores(changed, [store])
            assert access_database.read_format(address) == (3 if works else 2)
        with closing(AccessStore(address)) as access:
            assert access._database.rows("SELECT name, since FROM grants") == [("ana", 7)]
            assert access.find(tokens[address]) is not None
        monkeypatch.setitem(upgrade._STEPS, "access", {})


def test_an_upgrade_that_fails_changes_nothing(old: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    path, _ = old
    before = (path.parent / "access.db").read_bytes()
    with closing(sqlite3.connect(path.parent / "access.db")) as file:
        file.execute("CREATE TABLE grants (x)")
    changed = (path.parent / "access.db").read_bytes()
    with pytest.raises(SourceError, match="Nothing was changed"):
        build_app()(
            ["service", "upgrade", "--config", str(path), "--backup", str(tmp_path / "old")],
            standalone_mode=False,
        )
    assert (path.parent / "access.db").read_bytes() == changed != before


@pytest.mark.parametrize("store", ["access", "jobs", "ledger"])
def test_files_of_later_formats_are_refused_in_a_sentence(
    copied: tuple[Path, Path], tmp_path: Path, store: str
) -> None:
    folder = tmp_path / "service"
    shutil.copytree(copied[0].parent, folder)
    name = {"access": "access.db", "jobs": "audit.jsonl.jobs", "ledger": "town.ledger"}[store]
    with closing(sqlite3.connect(folder / name)) as file:
        file.execute("UPDATE about SET format = 9" if store == "access" else "PRAGMA user_version = 9")
        file.commit()
    before = (folder / name).read_bytes()
    sentence = "of a later version" if store != "ledger" else "ledger of format 9"
    with pytest.raises(DiscreetError, match=sentence):
        build_app()(
            ["service", "upgrade", "--config", str(folder / "config.yaml"), "--backup", str(tmp_path / "b")],
            standalone_mode=False,
        )
    assert (folder / name).read_bytes() == before
    assert not (tmp_path / "b").exists()
