"""Copies of curated tables: found by the next start, of the same files alone, of no use without the key."""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet import Column, Database, GaussianDP, Ledger, Schema
from discreet.errors import ParameterError, SourceError
from discreet.query.engines import _duckdb, _kept_copy, engine_for
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.tables import open_table, write_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from discreet._types import AnyArray

PRIVACY = GaussianDP(mu=1)
SCHEMA = Schema(
    columns=[
        Column("x", lower=0, upper=1),
        Column("age", type="integer", lower=17, upper=90, required=False),
        Column("job", values=("clerk", "nurse")),
    ]
)
MARK = 0.734_512_345_678_9


def rows(n: int = 500) -> dict[str, AnyArray]:
    i = np.arange(n)
    age = 17.0 + i % 74
    age[::7] = np.nan
    return {"x": np.where(i % 5 == 0, MARK, (i % 97) / 96), "age": age, "job": (i % 2).astype(np.int32)}


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table in a file that counts as old enough to be kept."""
    monkeypatch.setattr(_kept_copy, "_SETTLED", -(10**12))
    write_table(tmp_path / "people.parquet", SCHEMA, [rows()])
    return tmp_path / "people.parquet"


class Start:
    """What a start of a database found: its version, an answer, and whether the source was read."""

    def __init__(self, table: Path, ledger: str = "a.ledger", schema: Schema = SCHEMA) -> None:
        self.reads = 0

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.reads += 1
            return open_table(*args, **kwargs)

        with pytest.MonkeyPatch.context() as patch, Ledger.open(table.parent / ledger) as charged:
            patch.setattr(_duckdb, "open_table", counted)
            with Database(table, schema=schema, ledger=charged, keep=table.parent / "kept") as db:
                self.version = db._engine.version
                self.answer = db.sum("x", privacy=PRIVACY)
                assert isinstance(db._engine, DuckDBEngine)
                self.cells = [
                    np.concatenate(c).tolist() for c in zip(*db._engine.batches(["c0", "v0"]), strict=True)
                ]


def copies(table: Path) -> list[Path]:
    return sorted((table.parent / "kept").iterdir())


def test_the_next_start_finds_the_copy_and_reads_no_row_of_the_source(table: Path) -> None:
    first, second = Start(table), Start(table)
    assert (first.reads, second.reads) == (1, 0)
    assert second.version == first.version
    assert second.cells == first.cells
    assert second.answer.cached
    assert second.answer.value == first.answer.value
    (copy,) = copies(table)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert copy.parent.stat().st_mode & 0o777 == 0o700


def test_a_copy_shows_no_cell(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Start(table)
    (copy,) = copies(table)
    assert struct.pack("<d", MARK) not in copy.read_bytes()
    copy.unlink()

    class Plain:
        """A broken twin: it seals nothing."""

        def __init__(self, _: bytes) -> None:
            pass

        def encrypt(self, _: bytes, block: bytes, __: bytes) -> bytes:
            return block

    monkeypatch.setattr(_kept_copy, "AESGCM", Plain)
    Start(table)
    assert struct.pack("<d", MARK) in copies(table)[0].read_bytes()


def _flip(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data[: -(len(data) % 2**20)],  # at the end of a block, or nearly
        lambda data: _flip(data, 20),  # the salt
        lambda data: _flip(data, 60),
        lambda data: _flip(data, len(data) - 40),
        lambda data: data + b"more",
        lambda data: b"",
    ],
)
def test_a_damaged_copy_is_not_used_and_is_replaced(table: Path, damage: Callable[[bytes], bytes]) -> None:
    first = Start(table)
    (copy,) = copies(table)
    copy.write_bytes(damage(copy.read_bytes()))
    second, third = Start(table), Start(table)
    assert (second.reads, third.reads) == (1, 0)
    assert first.version == second.version == third.version


def test_a_changed_file_another_schema_and_another_ledger_get_copies_of_their_own(table: Path) -> None:
    first = Start(table)
    other = Start(table, schema=Schema(columns=[Column("x", lower=0, upper=2), *SCHEMA.columns[1:]]))
    assert other.reads == 1
    assert Start(table, "b.ledger").reads == 1
    assert len(copies(table)) == 3
    changed = rows()
    changed["x"][3] = 0.25
    table.unlink()
    write_table(table, SCHEMA, [changed])
    second = Start(table)
    assert second.reads == 1
    assert second.version != first.version
    assert len(copies(table)) == 3
    assert Start(table).reads == 0


def test_a_copy_under_the_name_of_another_is_not_used(table: Path) -> None:
    Start(table)
    (mine,) = copies(table)
    wide = Schema(columns=[Column("x", lower=0, upper=2), *SCHEMA.columns[1:]])
    wanted = Start(table, schema=wide)
    (theirs,) = set(copies(table)) - {mine}
    theirs.write_bytes(mine.read_bytes())
    again = Start(table, schema=wide)
    assert (again.reads, again.version) == (1, wanted.version)


def test_a_file_that_was_just_written_or_changes_meanwhile_is_not_kept(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_kept_copy, "_SETTLED", 10**12)  # the next write might get the same time
    Start(table)
    assert copies(table) == []
    monkeypatch.setattr(_kept_copy, "_SETTLED", -(10**12))
    curate = DuckDBEngine._curate

    def changing(engine: DuckDBEngine, *args: Any) -> Any:
        version = curate(engine, *args)
        with table.open("ab") as file:
            file.write(b"PAR1")
        return version

    monkeypatch.setattr(DuckDBEngine, "_curate", changing)
    Start(table)
    assert copies(table) == []


class Shared:
    """What a process finds that shares the rows of a table: its version, and whether it read the source."""

    def __init__(self, table: Path, ledger: str = "a.ledger", schema: Schema = SCHEMA) -> None:
        self.reads = 0

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.reads += 1
            return open_table(*args, **kwargs)

        copy = table.parent / "shared" / "people.curated"
        copy.parent.mkdir(exist_ok=True)
        with pytest.MonkeyPatch.context() as patch, Ledger.open(table.parent / ledger) as charged:
            patch.setattr(_duckdb, "open_table", counted)
            engine = engine_for(table, shared=copy, secret=charged.secret())
            with Database(table, schema=schema, ledger=charged, engine=engine) as db:
                self.version = engine.version
                self.answer = db.sum("x", privacy=PRIVACY)
                self.cells = [np.concatenate(c).tolist() for c in zip(*engine.batches(["v0"]), strict=True)]


def test_processes_share_the_rows_that_the_first_has_read_whatever_becomes_of_the_source(
    tmp_path: Path,
) -> None:
    table = tmp_path / "people.parquet"
    write_table(table, SCHEMA, [rows()])  # just now: no time of a file is compared
    first = Shared(table)
    table.unlink()
    write_table(table, SCHEMA, [rows(400)])
    second = Shared(table)
    assert (first.reads, second.reads) == (1, 0)
    assert second.version == first.version
    assert second.cells == first.cells
    assert second.answer.cached
    (copy,) = tmp_path.glob("shared/*.curated")
    assert copy.stat().st_mode & 0o777 == 0o600
    assert struct.pack("<d", MARK) not in copy.read_bytes()


@pytest.mark.parametrize(
    "other",
    [
        {"ledger": "b.ledger"},
        {"schema": Schema(columns=[Column("x", lower=0, upper=2), *SCHEMA.columns[1:]])},
    ],
)
def test_a_shared_copy_under_another_schema_or_ledger_is_not_used(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    table = tmp_path / "people.parquet"
    write_table(table, SCHEMA, [rows()])
    Shared(table)
    assert Shared(table, **other).reads == 1


def test_a_shared_copy_that_cannot_be_read_is_not_replaced_by_other_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "people.parquet"
    write_table(table, SCHEMA, [rows()])
    Shared(table)
    (copy,) = tmp_path.glob("shared/*.curated")
    before = copy.read_bytes()

    def too_many(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(_kept_copy.SharedCopy, "_open_blocks", too_many)
    with pytest.raises(SourceError, match="Look for a full disk or too many open files"):
        Shared(table)
    assert copy.read_bytes() == before


def test_a_shared_copy_for_which_there_is_no_room_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "people.parquet"
    write_table(table, SCHEMA, [rows()])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(_kept_copy.SharedCopy, "_cipher", full)
    with pytest.raises(SourceError, match="has room"):
        Shared(table)


def test_keeping_is_refused_where_no_later_start_would_find_the_copy(tmp_path: Path) -> None:
    for arguments in ({"source": rows()}, {"ledger": None}, {"engine": DuckDBEngine()}):
        given: dict[str, Any] = {"source": tmp_path / "people.parquet", "ledger": Ledger.open(":memory:")}
        given |= arguments
        with pytest.raises(ParameterError, match="keep of a Database must be left out"):
            Database(given.pop("source"), schema=SCHEMA, keep=tmp_path / "kept", **given)
    with pytest.raises(ParameterError, match="not in files"):
        Database(
            "postgresql://127.0.0.1/x?table=y",
            schema=SCHEMA,
            keep=tmp_path / "kept",
            ledger=Ledger.open(":memory:"),
        )
    assert not (tmp_path / "kept").exists()
