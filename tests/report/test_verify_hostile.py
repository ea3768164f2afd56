"""Folders that somebody made to confuse: every one is a failed check, none a traceback."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from discreet.report.folder.folder import (
    DATA,
    LARGEST_TEXT,
    PACKAGE,
    PAGE,
    READABLE,
    README,
    SIGNATURE,
    STATEMENT,
    SUMS,
    data_digests,
    write_sums,
)
from discreet.report.verify import verify
from tests.report.published import honest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="module")
def factory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("releases")


@pytest.fixture
def public(factory: Path, tmp_path: Path) -> Path:
    return honest("gaussian", factory, tmp_path)


def causes(folder: Path) -> dict[str, str]:
    found = verify(folder)
    assert not found.ok
    return {check.name: check.detail for check in found.failures}


def linked(folder: Path, name: str) -> None:
    outside = folder.parent / f"outside-{name}"
    (folder / name).rename(outside)
    (folder / name).symlink_to(outside)


@pytest.mark.parametrize("name", [DATA, STATEMENT, SUMS, PACKAGE, READABLE])
def test_a_link_is_refused_although_it_leads_to_the_right_file(name: str, public: Path) -> None:
    linked(public, name)
    assert f"{name} is a link" in causes(public)["files"]


@pytest.mark.parametrize("name", [DATA, STATEMENT, PAGE])
def test_a_pipe_that_never_ends_is_not_waited_for(name: str, public: Path) -> None:
    (public / name).unlink()
    os.mkfifo(public / name)
    assert f"{name} is a link or something other" in causes(public)["files"]


@pytest.mark.parametrize("name", [DATA, READABLE, STATEMENT, SUMS, PAGE, README, PACKAGE])
def test_a_missing_file_is_named(name: str, public: Path) -> None:
    (public / name).unlink()
    assert f"{name} is missing" in causes(public)["files"]


def test_an_extra_file_is_named_and_a_folder_with_thousands_is_not_listed(public: Path) -> None:
    (public / "key.pem").write_text("x")
    assert "'key.pem' is no file of a release" in causes(public)["files"]
    for number in range(200):
        (public / str(number)).touch()
    assert "And" in causes(public)["files"]


@pytest.mark.parametrize("name", [STATEMENT, PACKAGE, PAGE, SUMS, README])
def test_a_file_that_would_fill_the_memory_is_not_read(name: str, public: Path) -> None:
    with (public / name).open("r+b") as file:
        file.truncate(LARGEST_TEXT + 1)  # a hole: it takes no room on disk
    assert f"{name} is larger than any such file" in causes(public)["files"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[" * 50_000,
        b'{"a":' * 50_000,
        b'{"kind": "discreet-statement"}',
        b"\x80\x81",
        b'{"a": 1e999}',
        b'{"a": Infinity}',
    ],
)
def test_what_is_no_statement_is_a_failed_check(content: bytes, public: Path) -> None:
    (public / STATEMENT).write_bytes(content)
    write_sums(public)
    assert set(causes(public)) == {"statement"}


def test_a_statement_in_another_layout_was_edited(public: Path) -> None:
    values = json.loads((public / STATEMENT).read_bytes())
    (public / STATEMENT).write_text(json.dumps(values))
    write_sums(public)
    assert "it was edited" in causes(public)["statement"]


def test_hashes_that_lead_out_of_the_folder_are_refused(public: Path) -> None:
    with (public / SUMS).open("a") as file:
        file.write("0" * 64 + "  ../../etc/passwd\n")
    assert "a plain name" in causes(public)["hashes"]


def test_a_hash_that_is_missing_or_one_too_many_is_named(public: Path) -> None:
    lines = (public / SUMS).read_text().splitlines(keepends=True)
    (public / SUMS).write_text("".join(lines[1:]))
    assert "is not listed" in causes(public)["hashes"]
    (public / SUMS).write_text("".join(lines) + "0" * 64 + "  ghost.csv\n")
    assert "ghost.csv is listed in SHA256SUMS and not there" in causes(public)["hashes"]


def test_a_signature_of_the_wrong_size_is_a_failed_check(public: Path) -> None:
    (public / SIGNATURE).write_bytes(bytes(10_000))
    found = verify(public, public_key=b"no key at all")
    assert {check.name for check in found.failures} == {"signature"}


def damaged(content: bytes, kind: str) -> bytes:
    if kind == "cut short":
        return content[: len(content) // 2]
    if kind == "only the marks":
        return b"PAR1" + bytes(64) + b"PAR1"
    if kind == "a footer that is too long":
        return content[:-8] + (2**31 - 1).to_bytes(4, "little") + b"PAR1"
    if kind == "noise inside":
        return content[:40] + bytes(byte ^ 0x5A for byte in content[40:-8]) + content[-8:]
    return kind.encode()


@pytest.mark.parametrize(
    "kind", ["cut short", "only the marks", "a footer that is too long", "noise inside", "", "plain text"]
)
def test_a_damaged_table_is_a_failed_check_and_never_a_traceback(kind: str, public: Path) -> None:
    (public / DATA).write_bytes(damaged((public / DATA).read_bytes(), kind))
    found = causes(public)
    assert {"hashes", "data files"} <= set(found)
    assert {"columns", "cells"} & set(found)


OTHER_TABLES = {
    "nested columns": "SELECT {'a': 1} AS age, [1, 2] AS income, 'x' AS job, 'y' AS region, 0 AS owner",
    "text for numbers": "SELECT 'old' AS age, 'rich' AS income, 'nurse' AS job, 'x' AS region, 0 AS owner",
    "no rows": "SELECT 1.5::DOUBLE AS age, 1.5::DOUBLE AS income, 'nurse' AS job, 'north' AS region, "
    "0::BIGINT AS owner WHERE false",
    "an undeclared level": "SELECT 1.5::DOUBLE AS age, 1.5::DOUBLE AS income, 'spy' AS job, 'north' AS "
    "region, 0::BIGINT AS owner",
    "an infinite cell": "SELECT 'inf'::DOUBLE AS age, 'nan'::DOUBLE AS income, NULL::VARCHAR AS job, "
    "'north' AS region, 0::BIGINT AS owner",
    "a missing cell": "SELECT NULL::DOUBLE AS age, 1.5::DOUBLE AS income, NULL::VARCHAR AS job, "
    "'north' AS region, NULL::BIGINT AS owner",
    "one column": "SELECT 1 AS age",
}


@pytest.mark.parametrize("kind", OTHER_TABLES)
def test_a_table_of_another_kind_is_a_failed_check(kind: str, public: Path) -> None:
    (public / DATA).unlink()
    duckdb.sql(f"COPY ({OTHER_TABLES[kind]}) TO '{public / DATA}' (FORMAT parquet)")
    found = causes(public)
    assert {"columns", "cells", "row count"} & set(found)
    if kind == "an undeclared level":
        assert "'job'" in found["cells"]
        assert "spy" not in str(found)


@pytest.mark.parametrize(
    "content",
    [b"", b"\n" * 10_000, b"a,b\n1,2\n", b"\xff" * 3_000_000],
    ids=["empty", "empty lines", "another table", "one long line"],
)
def test_a_damaged_csv_file_is_a_failed_check(content: bytes, public: Path) -> None:
    (public / READABLE).write_bytes(content)
    assert READABLE in causes(public)


def set_parameter(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda values: values["what"]["method"]["parameters"].update({name: value})


def set_bound(value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda values: values["declared"]["fields"][0]["constraints"].update(maximum=value)


CRAFTED: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "a method that nobody knows": (lambda v: v["what"]["method"].update(name="os.system"), "method"),
    "a parameter that nobody knows": (set_parameter("schema", {}), "method"),
    "a promise that is none": (set_parameter("privacy", {"kind": "pure-dp"}), "method"),
    "a matrix of weights that does not fit": (set_parameter("weights", [[1.0] * 50] * 50), "method"),
    "a label that nobody knows": (set_parameter("label", "none"), "method"),
    "a range beyond all numbers": (set_bound(10**400), "schema"),
    "a range of a million million": (set_bound(10**12), "schema"),
    "rows beyond all tables": (lambda v: v["what"].update(rows_read=10**18), "numbers"),
    "fewer than no rows": (lambda v: v["what"].update(rows_read=-1, rows_published=-1), "statement"),
    "no columns": (lambda v: v["declared"].update(fields=[]), "schema"),
    "fields that are none": (lambda v: v["declared"].update(fields=[1, None, "x"]), "schema"),
    "a receipt that is none": (
        lambda v: v["composition"].update(receipt={"schema": v["digest"]}),
        "composition",
    ),
    "a file somewhere else": (lambda v: v["files"].update({"../../etc/passwd": "0" * 64}), "data files"),
    "a product of another name": (lambda v: v["what"].update(product="certified"), "implementation"),
    "a commitment to no key": (
        lambda v: v["implementation"].update(key_commitment="none"),
        "implementation",
    ),
    "an attack that is none": (lambda v: v["attacks"].append({"attack": None}), "attacks"),
}


def test_a_name_cannot_give_orders_to_the_terminal_of_whoever_verifies(public: Path) -> None:
    values = json.loads((public / STATEMENT).read_bytes())
    values["numbers"]["columns"][0]["law"]["\x1b[2JAll is well"] = 1
    (public / STATEMENT).write_text(json.dumps(values), encoding="utf-8")
    found = str(verify(public))
    assert "All is well" in found
    assert "\x1b" not in found


@pytest.mark.parametrize("kind", CRAFTED)
def test_a_crafted_statement_is_a_failed_check_that_is_named(kind: str, public: Path) -> None:
    change, cause = CRAFTED[kind]
    values = json.loads((public / STATEMENT).read_bytes())
    change(values)
    (public / STATEMENT).write_text(
        json.dumps(values, sort_keys=True, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    write_sums(public)
    found = causes(public)
    assert cause in found, found
    assert "Traceback" not in str(found)
    assert data_digests(public)
