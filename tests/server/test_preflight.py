"""What a check of the configuration finds before anything is opened."""

from __future__ import annotations

import datetime
import os
import shutil
import socket
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from discreet.errors import (
    DataError,
    DiscreetWarning,
    LedgerTampered,
    ParameterError,
    SchemaError,
    SourceError,
)
from discreet.ledger import Ledger
from discreet.server import app, preflight
from discreet.server.preflight import check
from tests.cli.run import discreet
from tests.server.conftest import configured, overheard, running, table


def certificate(folder: Path, name: str, passphrase: bytes | None = None) -> None:
    """Write a certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    whose = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    day = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(whose)
        .issuer_name(whose)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(day)
        .not_valid_after(day + datetime.timedelta(days=3650))
        .sign(key, hashes.SHA256())
    )
    (folder / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    encryption = (
        serialization.NoEncryption()
        if passphrase is None
        else serialization.BestAvailableEncryption(passphrase)
    )
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )


COUNT: dict[str, Any] = {"kind": "count", "where": "age > 40", "privacy": {"kind": "zcdp", "rho": 0.5}}


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_table_that_is_not_there_is_said_before_its_schema_is_looked_for(tmp_path: Path) -> None:
    path = configured(tmp_path, table="nowhere.csv")
    with pytest.raises(
        ParameterError, match=r"^datasets\.town\.table of the configuration must be a file .* no '.*nowhere"
    ):
        check(path)


def test_a_check_finds_a_declared_column_that_the_table_has_not(tmp_path: Path) -> None:
    path = configured(tmp_path)
    table = tmp_path / "town.csv"
    table.write_text(table.read_text().replace("income", "salary", 1))
    with pytest.raises(SchemaError, match="must have the declared column 'income'"):
        check(path)


def test_a_check_finds_a_table_without_rows(tmp_path: Path) -> None:
    path = configured(tmp_path)
    table = tmp_path / "town.csv"
    table.write_text(table.read_text().partition("\n")[0] + "\n")
    with pytest.raises(ParameterError, match="must have at least one row"):
        check(path)


def test_a_check_finds_a_cell_at_the_head_of_the_table_and_does_not_quote_it(tmp_path: Path) -> None:
    path = configured(tmp_path)
    table = tmp_path / "town.csv"
    lines = table.read_text().splitlines()
    lines[3] = "classified" + lines[3][lines[3].index(",") :]
    table.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=r"column 'age' must hold .* row 3") as caught:
        check(path)
    assert "classified" not in str(caught.value)


@pytest.mark.parametrize("key", ["ledger", "access", "audit_log", "jobs"])
def test_a_check_finds_folders_that_are_missing_and_folders_instead_of_files(
    tmp_path: Path, key: str
) -> None:
    with pytest.raises(
        ParameterError, match=rf"^(datasets\.town\.)?{key} of the configuration must be in a folder"
    ):
        check(configured(tmp_path, **{key: "nowhere/file"}))
    (tmp_path / "folder").mkdir()
    with pytest.raises(
        ParameterError, match=rf"^(datasets\.town\.)?{key} of the configuration must be a file, and "
    ):
        check(configured(tmp_path, **{key: "folder"}))


def test_a_check_finds_a_folder_for_kept_copies_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(configured(tmp_path, keep="new/folder"))
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").touch()
    wanted = r"^datasets\.town\.keep of the configuration must be a folder that can be written to or created"
    for name in ("file", "file/folder"):
        with pytest.raises(ParameterError, match=wanted):
            check(configured(tmp_path, keep=name))
    (tmp_path / "locked").mkdir()
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "locked" and access(path, mode))
    with pytest.raises(ParameterError, match=wanted):
        check(configured(tmp_path, keep="locked"))
    # A disk that is full is found as for the other files.
    monkeypatch.setattr(preflight, "_check_room", lambda key, folder: rooms.append((key, folder.name)))
    rooms: list[tuple[str, str]] = []
    check(configured(tmp_path, keep="new"))
    assert ("datasets.town.keep", tmp_path.name) in rooms


@pytest.mark.filterwarnings("error")
def test_a_check_warns_of_a_port_that_is_open_past_the_proxy(tmp_path: Path) -> None:
    proxied = {"behind_proxy": True, "address": "https://data.example.org"}
    with pytest.warns(DiscreetWarning, match=r"listen .* is 0\.0\.0\.0:8000.*past the proxy"):
        check(configured(tmp_path, listen="0.0.0.0:8000", **proxied))
    check(configured(tmp_path, listen="127.0.0.1:8000", **proxied))


def test_a_check_loads_certificate_and_key_and_asks_nobody_for_a_passphrase(tmp_path: Path) -> None:
    certificate(tmp_path, "ours")
    certificate(tmp_path, "other")
    certificate(tmp_path, "locked", b"a passphrase")
    (tmp_path / "words.pem").write_text("words")
    for pair in (("ours", "other"), ("locked", "locked")):
        path = configured(tmp_path, tls={"certificate": f"{pair[0]}.pem", "key": f"{pair[1]}.key"})
        with pytest.raises(
            ParameterError, match=r"^tls\.key of the configuration must be the private key of"
        ):
            check(path)
    with pytest.raises(ParameterError, match=r"must be the private key of tls\.certificate"):
        check(configured(tmp_path, tls={"certificate": "words.pem", "key": "ours.key"}))
    with pytest.raises(ParameterError, match=r"^tls\.key of the configuration must be a file"):
        check(configured(tmp_path, tls={"certificate": "ours.pem", "key": "nobodys.key"}))
    assert check(configured(tmp_path, tls={"certificate": "ours.pem", "key": "ours.key"})).tls is not None


def test_a_check_compares_a_ledger_that_exists_and_changes_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        service.ask(COUNT)
    before = files(tmp_path)
    check(configured(tmp_path))
    with pytest.raises(
        ParameterError, match=r"limit .* fixed when the ledger was made.*limit, analyst_limit, rule and"
    ):
        check(configured(tmp_path, limit={"rho": 11.0}))
    with pytest.raises(ParameterError, match=r"owner_limit .* fixed when the ledger was made"):
        check(configured(tmp_path, analyst_limit={"rho": 4.0}))
    assert {name: content for name, content in files(tmp_path).items() if name in before} == before


def test_a_check_leaves_half_a_line_of_the_trail_to_the_start(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        service.ask(COUNT)
    path = tmp_path / "audit.jsonl"
    with path.open("ab") as file:
        file.write(b'{"event":"answer","ro')
    torn = path.read_bytes()
    check(configured(tmp_path))
    assert path.read_bytes() == torn


def test_a_lost_ledger_is_refused_before_an_empty_one_takes_its_place_so_that_a_backup_can(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as service:
        service.ask(COUNT)
        service.backend.dataset.ledger.backup(tmp_path / "kept.ledger")
        tokens = service.tokens
    (tmp_path / "town.ledger").unlink()
    path = configured(tmp_path)
    for begin in (lambda: check(path), lambda: app.serve(path, ready=lambda *_: None)):
        with pytest.raises(LedgerTampered, match=r"row 4 paid for an answer, and is not.*service restore"):
            begin()
    assert not (tmp_path / "town.ledger").exists()
    done = discreet("ledger", "restore", "kept.ledger", "--to", "town.ledger", cwd=tmp_path)
    assert done.code == 0, done.err
    check(path)
    with running(tmp_path, tokens) as service:
        assert service.ask(COUNT).json()["cached"]


def test_a_check_finds_a_ledger_that_went_back(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        service.backend.dataset.ledger.backup(tmp_path / "kept.ledger")
        service.ask(COUNT)
    (tmp_path / "town.ledger").unlink()
    Ledger.restore(tmp_path / "kept.ledger", tmp_path / "town.ledger").close()
    with pytest.raises(LedgerTampered, match=r"must hold row 4.*went back to an earlier state"):
        check(configured(tmp_path))


def test_a_taken_port_is_told_before_the_rows_are_read(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, overheard() as lines:
        path = configured(tmp_path, listen=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(ParameterError, match="must be an address that is free here"):
            app.serve(path, ready=lambda *_: None)
    assert lines == []
    # Nothing was begun: no ledger, no trail that says so.
    assert not (tmp_path / "town.ledger").exists()
    assert not (tmp_path / "audit.jsonl").exists()


def test_who_has_no_configuration_at_hand_is_told_how_to_name_it(tmp_path: Path) -> None:
    done = discreet("token", "list", cwd=tmp_path)
    assert done.code == 1
    assert "Give its path, or set DISCREET_CONFIG" in done.err


def test_a_check_finds_stores_of_other_formats_and_changes_nothing(tmp_path: Path) -> None:
    path = configured(tmp_path)
    with running(tmp_path):
        pass
    for name, statement in (
        ("access.db", "UPDATE about SET format = {}"),
        ("audit.jsonl.jobs", "PRAGMA user_version = {}"),
    ):
        right = 2 if name == "access.db" else 1
        for wrong, words in ((right - 1, "earlier version"), (right + 1, "later version")):
            with closing(sqlite3.connect(tmp_path / name)) as file:
                file.execute(statement.format(wrong))
                file.commit()
            before = (tmp_path / name).read_bytes()
            with pytest.raises(SourceError, match=words):
                check(path)
            assert (tmp_path / name).read_bytes() == before
        with closing(sqlite3.connect(tmp_path / name)) as file:
            file.execute(statement.format(right))
            file.commit()
    check(path)


def test_a_check_looks_for_room_on_the_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = configured(tmp_path)
    free = [0]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free[0]))
    with pytest.raises(ParameterError, match="must be on a disk with 16 MB of room"):
        check(path)
    free[0] = 100 << 20
    with pytest.warns(DiscreetWarning, match="a disk with 100 MB of room"):
        check(path)


def test_a_check_compares_connections_with_the_limit_of_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "permitted_files", lambda: 1024)
    with pytest.warns(DiscreetWarning, match="512 will be used"):
        check(configured(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(configured(tmp_path, limits={"connections": 512}))


def test_a_check_compares_a_ledger_in_postgresql_and_makes_none(tmp_path: Path, postgres_url: str) -> None:
    changed: dict[str, Any] = {"ledger": f"{postgres_url}#town", "access": f"{postgres_url}#access"}
    path = configured(tmp_path, **changed)
    check(path)
    assert Ledger.identity_at(f"{postgres_url}#town") is None
    with running(tmp_path, **changed):
        pass
    check(path)
    with pytest.raises(ParameterError, match="write what the ledger was made with"):
        check(configured(tmp_path, **changed, limit={"rho": 9.0}))
    import psycopg

    with psycopg.connect(postgres_url) as connection:
        connection.execute("DROP SCHEMA discreet_town CASCADE")
    with pytest.raises(LedgerTampered, match="ledger in PostgreSQL must be there"):
        check(configured(tmp_path, **changed))


def test_a_check_finds_an_access_store_that_cannot_be_reached(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="must be a database that can be reached"):
        check(configured(tmp_path, access="postgresql://nobody@127.0.0.1:1/nothing#access"))


def test_several_processes_for_a_table_in_spark_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "open_frame", lambda _: SimpleNamespace(columns=list(table())))
    changed: dict[str, Any] = {"table": "spark://local?table=town.csv", "schema": "town.schema.yaml"}
    with pytest.warns(DiscreetWarning, match=r"is 3, and in Spark, where town is, .* curates them 4 times"):
        check(configured(tmp_path, workers=3, **changed))
    check(configured(tmp_path, **changed))  # a warning would be an error


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # pyspark's own
def test_a_table_in_spark_is_checked_and_served(tmp_path: Path, spark: Any) -> None:
    path = configured(tmp_path)
    table = f"spark://local?table={tmp_path / 'town.csv'}"
    asked = {"kind": "count", "where": "age > 40", "privacy": {"kind": "zcdp", "rho": 0.1}}
    changed: dict[str, Any] = {"table": table, "schema": "town.schema.yaml"}
    check(configured(tmp_path, **changed))
    with running(tmp_path, **changed) as service:
        first, again = service.ask(asked).json(), service.ask(asked).json()
    assert (first["cached"], again["cached"]) == (False, True)
    assert first["cells"] == again["cells"]
    text = (tmp_path / "town.csv").read_text(encoding="utf-8")
    (tmp_path / "town.csv").write_text(text.replace("age", "years", 1), encoding="utf-8")
    with pytest.raises(ParameterError, match=r"^datasets\.town\.table of .* lacks age\. Correct the schema"):
        check(path)
