"""What newcomers, operators and hostile analysts stumble over: each finds the way out in what is said."""

from __future__ import annotations

import datetime
import json
import os
import re
import socket
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from discreet.errors import (
    DataError,
    ExpressionRefused,
    LedgerError,
    LedgerTampered,
    ParameterError,
    SchemaError,
)
from discreet.job.sentence import read_sentence
from discreet.privacy import Ledger
from discreet.report.charts.bars import spending_steps
from discreet.schema import Column, Schema
from discreet.schema.text import write_yaml
from discreet.server import run, wire
from discreet.server.config import Config
from discreet.server.openapi import openapi
from discreet.server.pages.columns import column_views
from discreet.server.pages.governing import refusal_lines
from discreet.server.preflight import check
from discreet.server.reference import reference_page
from tests.cli.run import discreet
from tests.server.conftest import SCHEMA, overheard, running, settings, write_table
from tests.server.markup import Visitor
from tests.server.test_review import Disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server.conftest import Service

COUNT: dict[str, Any] = {"kind": "count", "where": "age > 40", "privacy": {"kind": "zcdp", "rho": 0.5}}


def configured(folder: Path, **changed: Any) -> Path:
    """Write a configuration, and its table if there is none."""
    if not (folder / "town.csv").exists():
        write_table(folder)
    path = folder / "config.yaml"
    path.write_text(write_yaml({k: v for k, v in settings(**changed).items() if v is not None}))
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# What a configuration says.


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"dataset": 2024}, "dataset of {} must be text, was 2024. Name the data set"),
        ({"limit": 4}, "limit of {} must be keys and values, was 4. Write {{epsilon: 1}}, "),
        ({"limit": {"epsilon": "4"}}, "limit.epsilon of {} must be a number, was the text '4'. Write {{eps"),
        ({"limit": {"epsilon": -4}}, "limit.epsilon of {} must be greater than 0, was -4. Write {{epsilon"),
        ({"limits": {"concurrent": 2.5}}, "limits.concurrent of {} must be a whole number, was 2.5. Write "),
        ({"tls": "a.pem"}, "tls of {} must be keys and values. Write {{certificate: FILE, key: FILE}}."),
        ({"listen": 8000}, "listen of {} must be an address and a port, such as 127.0.0.1:8000 or "),
        ({"workers": "2"}, "workers of {} must be a whole number, was the text '2'. The usual is 1."),
        ({"behind_proxy": "yes"}, "behind_proxy of {} must be true or false, was the text 'yes'. Leave it"),
        ({"version": 2024}, "version of {} must be text, was 2024. Put it in quotes, or leave it out."),
        ({"version": ""}, "version of {} must not be empty."),
        ({"session_hours": 0}, "session_hours of {} must be greater than 0, was 0. The usual is 8.0."),
        (
            {"slots": {"sumz": 1.0}},
            "slots of {} must name kinds of questions, and sumz is none. Did you mean",
        ),
        ({"slots": {"everything": 1.0}}, "slots of {} must name kinds of questions, and everything is none."),
    ],
)
def test_a_wrong_value_is_named_with_what_it_was_and_the_way_out(
    tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    path = configured(tmp_path, **changed)
    with pytest.raises(ParameterError) as caught:
        Config.load(path)
    said = str(caught.value)
    assert said.startswith(told.format(path))
    assert "instance of" not in said
    assert said[-1] in ".?"


def test_no_password_is_quoted_from_a_value_that_is_wrong(tmp_path: Path) -> None:
    path = configured(tmp_path, ledger="postgresql://me:secret@host/db#x", table=["postgresql://me:secret@h"])
    with pytest.raises(ParameterError, match="table of ") as caught:
        Config.load(path)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words\n", "a: 1\na: 2\n", "\tb: 1\n"])
def test_a_configuration_that_is_no_mapping_is_not_taken_for_a_schema(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ParameterError, match="must be YAML, and is not: it must ") as caught:
        Config.load(path)
    assert "schema" not in str(caught.value)
    assert "fields" not in str(caught.value)


def test_a_configuration_in_another_encoding_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes("dataset: Köniz\n".encode("latin-1"))
    with pytest.raises(ParameterError, match=r"must be text in UTF-8, and byte 10 is not\. Save it as UTF-8"):
        Config.load(path)


@pytest.mark.parametrize(
    ("key", "other"),
    [
        ("audit_log", "access"),
        ("access", "ledger"),
        ("audit_log", "ledger"),
        ("ledger", "table"),
        ("access", "table"),
    ],
)
def test_no_file_serves_two_purposes(tmp_path: Path, key: str, other: str) -> None:
    path = configured(tmp_path, **{key: f"./{settings()[other]}"})
    with pytest.raises(ParameterError, match=rf"^{key} of .* is the one that {other} names"):
        Config.load(path)


# What a check finds before anything is opened.


def test_a_table_that_is_not_there_is_said_before_its_schema_is_looked_for(tmp_path: Path) -> None:
    path = configured(tmp_path, table="nowhere.csv")
    with pytest.raises(ParameterError, match=r"^table of the configuration must be a file .* no '.*nowhere"):
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


@pytest.mark.parametrize("key", ["ledger", "access", "audit_log"])
def test_a_check_finds_folders_that_are_missing_and_folders_instead_of_files(
    tmp_path: Path, key: str
) -> None:
    with pytest.raises(ParameterError, match=rf"^{key} of the configuration must be in a folder"):
        check(configured(tmp_path, **{key: "nowhere/file"}))
    (tmp_path / "folder").mkdir()
    with pytest.raises(ParameterError, match=rf"^{key} of the configuration must be a file, and "):
        check(configured(tmp_path, **{key: "folder"}))


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


@pytest.mark.filterwarnings("error")
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
        LedgerError, match=r"limit .* fixed when the ledger was made.*limit, analyst_limit and"
    ):
        check(configured(tmp_path, limit={"rho": 11.0}))
    with pytest.raises(LedgerError, match=r"owner_limit .* fixed when the ledger was made"):
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
        service.office.ledger.backup(tmp_path / "kept.ledger")
        tokens = service.tokens
    (tmp_path / "town.ledger").unlink()
    path = configured(tmp_path)
    for begin in (lambda: check(path), lambda: run.serve(path, ready=lambda *_: None)):
        with pytest.raises(LedgerTampered, match=r"row 3 paid for an answer, and is not.*ledger restore"):
            begin()
    assert not (tmp_path / "town.ledger").exists()
    done = discreet("ledger", "restore", "kept.ledger", "--to", "town.ledger", cwd=tmp_path)
    assert done.code == 0, done.err
    check(path)
    with running(tmp_path, tokens) as service:
        assert service.ask(COUNT).json()["cached"]


def test_a_check_finds_a_ledger_that_went_back(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        service.office.ledger.backup(tmp_path / "kept.ledger")
        service.ask(COUNT)
    (tmp_path / "town.ledger").unlink()
    Ledger.restore(tmp_path / "kept.ledger", tmp_path / "town.ledger").close()
    with pytest.raises(LedgerTampered, match=r"must hold row 3.*went back to an earlier state"):
        check(configured(tmp_path))


def test_a_taken_port_is_told_before_the_rows_are_read(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, overheard() as lines:
        path = configured(tmp_path, listen=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(ParameterError, match="must be an address that is free here"):
            run.serve(path, ready=lambda *_: None)
    assert lines == []
    # Nothing was begun: no ledger, no trail that says so.
    assert not (tmp_path / "town.ledger").exists()
    assert not (tmp_path / "audit.jsonl").exists()


# What an analyst is told.


@pytest.mark.parametrize(
    ("price", "words"),
    [
        ({"privacy": {"kind": "zcdp", "rho": 6}}, "At most rho 5 would fit"),
        ({"privacy": {"kind": "gaussian-dp", "mu": 4}}, "At most mu 3.162 would fit"),
        ({"privacy": {"kind": "approx-dp", "epsilon": 30, "delta": 1e-6}}, "At most epsilon 1"),
        ({"sd": 0.01}, "Noise with an sd of 0.3163 or more would fit"),
    ],
)
def test_a_budget_that_is_too_small_says_in_words_what_would_fit_and_that_does(
    service: Service, price: dict[str, Any], words: str
) -> None:
    asked = {"kind": "count", "where": "age > 40", **price}
    error = service.ask(asked).json()["error"]
    assert error["hint"].startswith(f"Nothing was charged. {words}")
    assert error["hint"].endswith("what is left for you.")
    fits = error["details"]["fits"]
    again = {"sd": fits["sd"]} if "sd" in fits else {"privacy": fits}
    assert service.ask({"kind": "count", "where": "age > 40", **again}).status_code == 200


def test_a_mean_by_groups_that_is_too_dear_names_what_all_of_it_costs_and_whose_limit_it_is(
    service: Service,
) -> None:
    asked = {"kind": "mean", "expression": "age", "by": ["sex"], "privacy": {"kind": "zcdp", "rho": 7}}
    error = service.ask(asked).json()["error"]
    assert (
        "asks for 7, and 5 of 5 is left" in error["message"] or "asks for 7, and 10 of 10" in error["message"]
    )
    assert "your own limit" in error["message"] or "whole data set" in error["message"]


def test_a_key_that_is_sent_again_with_another_question_is_told_in_the_words_of_the_request(
    service: Service,
) -> None:
    service.ask(COUNT, **{"Idempotency-Key": "k1"})
    error = service.ask({**COUNT, "where": "age > 41"}, **{"Idempotency-Key": "k1"}).json()["error"]
    assert error["code"] == "key-reused"
    assert error["message"].startswith("Idempotency-Key of the request must be new")
    assert "Ledger" not in json.dumps(error)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"kind": "cnt"}, "kind of the request must be as documented, and is not: it must be one of count, "),
        ({"kind": "count", "privacy": {"kind": "gdp"}}, "its kind must be one of pure-dp, approx-dp, zcdp, "),
        ({"kind": "count", "privacy": {"rho": 1}}, "privacy of the request .* its kind is required"),
        (
            {"kind": "count", "privacy": {"kind": "zcdp", "rho": 0}},
            "it must be greater than or equal to 0.00",
        ),
        ({"kind": "count", "sd": 1, "privacy": {"kind": "zcdp", "rho": 1}}, "be given, and both were"),
        ({"kind": "count", "sd": 1, "refines": ["' OR 1"]}, "the id of a receipt, such as 0a1b2c3d4e5f-7"),
    ],
)
def test_a_request_that_is_wrong_is_told_in_words_of_ours(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(wire.Invalid, match=told) as caught:
        wire.read(wire.QUESTION, json.dumps(asked).encode())
    assert not {"input", "tag", "pattern", "validation"} & set(str(caught.value).lower().split())


def test_nobody_is_given_their_own_history_under_the_name_of_another(service: Service) -> None:
    service.ask(COUNT, "ben")
    client = service.client("ana")
    assert client.get("/v1/history", params={"analyst": "ben"}).status_code == 403
    assert client.get("/v1/history", params={"analyst": "ana"}).json()["entries"] == []


# What a curator is told.


@pytest.fixture
def unwritable(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service whose audit log is on a disk that is full."""
    disk = Disk()
    monkeypatch.setattr(os, "write", disk.write)
    disk.full = True
    yield service
    disk.full = False


def test_a_curator_learns_that_the_stop_took_effect_although_it_could_not_be_written_down(
    unwritable: Service,
) -> None:
    client = unwritable.client("cura")
    stopped = client.post("/v1/curator/stop", json={"stopped": True})
    assert stopped.status_code == 503
    assert stopped.json()["error"]["message"].startswith("The service is stopped. audit_log ")
    assert stopped.json()["error"]["hint"] == "Make room, or repair it."
    assert unwritable.office.access.stopped() is not None
    # Starting again is not done unless it is written down, and is not said to be.
    resumed = client.post("/v1/curator/stop", json={"stopped": False}).json()["error"]["message"]
    assert resumed.startswith("The service is stopped. ")


def test_a_curator_learns_that_a_token_is_revoked_and_that_none_was_made(unwritable: Service) -> None:
    client = unwritable.client("cura")
    revoked = client.post("/v1/curator/tokens", json={"action": "revoke", "name": "ben"})
    assert revoked.json()["error"]["message"].startswith("ben has no valid token any more. audit_log ")
    assert unwritable.client("ben").get("/v1/budget").status_code == 401
    made = client.post("/v1/curator/tokens", json={"action": "create", "name": "zoe"})
    assert made.json()["error"]["message"].startswith("audit_log ")
    page = Visitor(unwritable, "cura")
    told = page.client.post("/curator/stop", data={"csrf": page.csrf(), "stopped": "yes"})
    assert told.status_code == 503
    assert "The service is stopped." in told.text


def test_analysts_are_told_nothing_about_files(unwritable: Service) -> None:
    error = unwritable.ask(COUNT).json()["error"]
    assert error["code"] == "ledger-unavailable"
    assert "audit" not in json.dumps(error)
    assert str(unwritable.folder) not in json.dumps(error)


def test_a_curators_check_says_which_line_was_changed_also_to_programs(service: Service) -> None:
    service.ask(COUNT)
    path = service.folder / "audit.jsonl"
    path.write_text(path.read_text().replace('"who":"ana"', '"who":"bob"'))
    error = service.client("cura").get("/v1/curator/check").json()["error"]
    assert error["code"] == "ledger-unavailable"
    assert "must follow from the line before" in error["message"]


def test_a_name_with_a_slash_has_its_page_too(service: Service) -> None:
    service.tokens["a/b"] = service.office.create_token("test", "a/b")
    service.ask(COUNT, "a/b")
    curator = Visitor(service, "cura")
    links = re.findall(r'href="(/curator/analysts/a[^"]*b)"', curator.client.get("/curator").text)
    assert len(links) == 1
    page = curator.client.get(links[0])
    assert page.status_code == 200
    assert "count where" in page.text


def test_who_has_no_configuration_at_hand_is_told_how_to_name_it(tmp_path: Path) -> None:
    done = discreet("token", "list", cwd=tmp_path)
    assert done.code == 1
    assert "Name it, or set DISCREET_CONFIG" in done.err


# What pages show.

ADMITTED = Schema(
    columns=[
        Column("admitted", lower=datetime.date(2020, 1, 1), upper=datetime.date(2024, 12, 31)),
        Column("ward", values=("north", "south")),
        Column("stays", type="integer", lower=0, upper=9),
    ],
    dataset="clinic",
)


def test_an_average_of_dates_is_in_days() -> None:
    assert read_sentence("mean(admitted)", ADMITTED).measure == "days"
    assert read_sentence("mean(stays)", ADMITTED).measure is None


def test_amounts_of_the_picture_of_spending_are_above_what_would_hide_them() -> None:
    drawn = str(
        spending_steps("k", [("2026-01-01T10:00:00Z", 1.0), ("2026-01-02T10:00:00Z", 4.0)], None, "ρ")
    )
    area = drawn.index('class="area"')
    ticks = [place for place in range(len(drawn)) if drawn.startswith('class="tick"', place)]
    assert len(ticks) > 3
    assert min(ticks) > area


def test_a_long_question_does_not_fill_the_curators_page() -> None:
    refused = {"when": "2026-01-01T10:00:00Z", "who": "eve", "code": "refused"}
    long, none = refusal_lines([{**refused, "asked": "(" * 500}, {**refused, "asked": ""}])
    assert len(long["what"]) == 160
    assert long["what"].endswith("…")
    assert none["what"] == "nothing that could be read"


def test_wide_tables_of_the_reference_scroll_in_their_frame_and_not_the_page() -> None:
    page = reference_page(openapi("town"))
    for table in re.findall(r"<table.*?</caption>", page, re.DOTALL):
        if "Codes with their" not in table:
            assert f'tabindex="0">\n{table}' in page
    assert page.count("<table") > 20
    assert page.count("<div") == page.count("</div>")


def test_columns_say_what_their_lists_show() -> None:
    views = {view.name: view for view in column_views(ADMITTED)}
    assert views["admitted"].range == "2020-01-01 to 2024-12-31; averages count days since the first"
    assert views["ward"].range.startswith("one of 2 values")
    assert ("or other" in views["ward"].range) == (len(views["ward"].levels) == 3)
    assert SCHEMA.column("sex").values == ("f", "m")


# What is not there, or not now.


@pytest.mark.parametrize(("path", "status"), [("/nowhere", 404), ("/ask", 405), ("/curator/nowhere", 404)])
def test_a_browser_that_is_lost_is_shown_a_page_and_a_program_an_error(
    shared_service: Service, path: str, status: int
) -> None:
    page = shared_service.client(None).get(path, headers={"accept": "text/html,*/*;q=0.8"})
    assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert "<h1" in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    told = shared_service.client(None).get(path)
    assert (told.status_code, told.headers["content-type"]) == (status, "application/json")


def test_a_program_is_told_in_json_what_is_not_there_whatever_it_accepts(shared_service: Service) -> None:
    told = shared_service.client("ana").get("/v1/nowhere", headers={"accept": "text/html"})
    assert (told.status_code, told.json()["error"]["code"]) == (404, "not-found")


def test_a_service_whose_trail_cannot_be_written_is_not_ready_and_its_operator_sees_why(
    service: Service,
) -> None:
    path = service.office.trail.path
    assert service.client(None).get("/ready").status_code == 200
    moved = path.rename(path.with_suffix(".moved"))
    path.mkdir()
    assert service.client(None).get("/ready").status_code == 503
    assert (
        service.ask(
            {"kind": "count", "where": None, "privacy": {"kind": "pure-dp", "epsilon": 0.1}}
        ).status_code
        == 503
    )
    (*_, reason) = [line for line in service.logged(3) if line["event"] == "unavailable"]
    assert reason["kind"] == "LedgerUnavailable"
    assert str(path) in reason["reason"]
    path.rmdir()
    moved.rename(path)
    assert service.client(None).get("/ready").status_code == 200


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Straße = 'Öschweg'", 'Did you mean "Straße"?'),
        ("Raucher? = 1", 'Did you mean "Raucher?"?'),
        ("nothing > 1", 'There are "Straße", "Raucher?", age.'),
        ("`age` > 1", "double quotes"),
        ("ß > 1", "double quotes"),
    ],
)
def test_names_with_other_signs_are_hinted_at_as_they_must_be_written(text: str, hint: str) -> None:
    schema = Schema(
        columns=[
            Column("Straße", values=("Öschweg", "Ring")),
            Column("Raucher?", type="integer", lower=0, upper=1),
            Column("age", type="integer", lower=0, upper=120),
        ]
    )
    with pytest.raises(ExpressionRefused) as refused:
        read_sentence(f"count where {text}", schema)
    assert hint in str(refused.value)
    read_sentence("""count where "Straße" = 'Öschweg' AND "Raucher?" = 1""", schema)
