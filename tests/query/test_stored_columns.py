"""Questions about few columns: the same answers and versions, no other column read where that is safe."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet import Column, Database, GaussianDP, Ledger, Schema
from discreet.errors import DataError, ParameterError, SourceError
from discreet.pipeline.query import QuerySession
from discreet.query.engines import _duckdb, _kept_copy
from discreet.query.language.query import parse_query
from discreet.tables import Table, open_table, write_table

if TYPE_CHECKING:
    from pathlib import Path

    from discreet._types import AnyArray

PRIVACY = GaussianDP(mu=1)
SCHEMA = Schema(
    columns=[
        Column("x", lower=0, upper=1),
        Column("age", type="integer", lower=17, upper=90, required=False),
        Column('a "odd" name', values=("clerk", "nurse")),
        Column("Age band", values=(0, 1, 2)),
    ]
)
QUESTIONS = (
    "count",
    "count where age > 40",
    "count where age IS NOT NULL",
    "sum(x)",
    'mean(age), sum(x) where "a ""odd"" name" = \'clerk\'',
    'mean(x) by "Age band"',
    "median(age)",
    "variance(x)",
    'count by age (30, 60), "a ""odd"" name"',
    "ratio(x, age)",
    'SELECT "Age band", COUNT(*) FROM t WHERE x > .5 GROUP BY "Age band" ORDER BY COUNT(*) DESC LIMIT 2',
    "count where CASE WHEN age > 30 THEN x ELSE 0 END > .25",
)


def rows(n: int = 600) -> dict[str, AnyArray]:
    i = np.arange(n)
    age = 17.0 + i % 74
    age[::7] = np.nan
    two, three = (i % 2).astype(np.int32), (i % 3).astype(np.int32)
    return {"x": (i % 97) / 96, "age": age, 'a "odd" name': two, "Age band": three}


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table in a file that counts as large, and as old enough for its version to be kept."""
    monkeypatch.setattr(_kept_copy, "_SETTLED", -(10**12))
    monkeypatch.setattr(_kept_copy, "LARGE", 0)
    write_table(tmp_path / "people.parquet", SCHEMA, [rows()])
    return tmp_path / "people.parquet"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Names of the columns of every table that an engine fills; None for all columns."""
    passes: list[Any] = []

    def watch(name: str) -> None:
        read = getattr(_duckdb, name)

        def watched(table: Table, curation: Any, *rest: Any) -> Any:
            passes.append(None if name == "curated_batches" else curation.stored)
            return read(table, curation, *rest)

        monkeypatch.setattr(_duckdb, name, watched)

    watch("curated_batches")
    watch("stored_batches")
    return passes


def ask(table: Path, question: str, ledger: str = "a.ledger") -> Any:
    place = table.parent / ledger
    with QuerySession(table, schema=SCHEMA, ledger=place, new_ledger=True) as session:
        return session.query(question, privacy=PRIVACY)


def kept_files(table: Path) -> list[Path]:
    return sorted(table.parent.glob("*.rows"))


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_about_few_columns_is_the_question_about_all(table: Path, question: str) -> None:
    first, second = ask(table, question), ask(table, question)
    ledger = Ledger.open(table.parent / "a.ledger")
    with ledger, Database(table, schema=SCHEMA, ledger=ledger) as whole:
        third = whole.query(question, privacy=PRIVACY)
        exact = whole.query(question, privacy=GaussianDP(mu=1e6))
    few = parse_query(question, SCHEMA).columns or ("x",)
    with Database(table, schema=SCHEMA, columns=few) as part:
        again = part.query(question, privacy=GaussianDP(mu=1e6))
    assert not second.charged
    assert not third.charged
    assert first.cells == second.cells == third.cells
    for one, other in zip(exact.cells, again.cells, strict=True):
        assert one.value == pytest.approx(other.value, abs=1e-2)


def test_only_the_first_question_reads_all_columns(table: Path, reads: list[Any]) -> None:
    ask(table, "sum(x)")
    ask(table, 'mean(x) by "Age band"')
    ask(table, "count where x > .9")
    assert reads == [None, {"x", "Age band"}, {"x"}]


def test_columns_that_are_not_named_are_not_read(table: Path) -> None:
    with open_table(table, schema=SCHEMA) as opened:
        (batch,) = opened.batches(SCHEMA, names={"age"})
    assert list(batch) == ["age"]


def test_a_second_question_about_other_columns_in_a_session_has_all_read(
    table: Path, reads: list[Any]
) -> None:
    with QuerySession(table, schema=SCHEMA, ledger=table.parent / "a.ledger") as session:
        for question in ("sum(x)", "count where x > .3", "mean(age)", 'count by "Age band"'):
            assert session.query(question, privacy=PRIVACY).charged
    assert reads == [None, None]


@pytest.mark.parametrize("restored", [False, True])
def test_changed_rows_are_read_anew_also_under_the_time_and_size_of_the_old_ones(
    table: Path, reads: list[Any], restored: bool
) -> None:
    """The time of change cannot be set back by who owns the file: a manifest without it fails here."""
    ask(table, "sum(x)")
    before = table.stat()
    changed = rows()
    changed["x"][0] = 0.5
    write_table(table, SCHEMA, [changed], replace=True)
    if restored:
        os.utime(table, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert table.stat().st_mtime_ns == before.st_mtime_ns
    assert ask(table, "sum(x)").charged
    assert reads == [None, None]


def test_a_file_that_changes_while_it_is_read_is_refused(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(table, "sum(x)")
    read = _kept_copy.KeptVersion.read

    def read_and_change(self: Any, into: Any) -> Any:
        version = read(self, into)
        changed = rows()
        changed["x"][0] = 0.5
        write_table(table, SCHEMA, [changed], replace=True)
        return version

    monkeypatch.setattr(_kept_copy.KeptVersion, "read", read_and_change)
    with pytest.raises(SourceError, match="must stay as it is"):
        ask(table, "count where age > 40")
    with Ledger.open(table.parent / "a.ledger") as ledger:
        assert len(ledger.entries()) == 1


def test_a_kept_version_is_sealed_and_private(table: Path, reads: list[Any]) -> None:
    ask(table, "sum(x)")
    (file,) = kept_files(table)
    assert file.stat().st_mode & 0o777 == 0o600
    with Database(table, schema=SCHEMA) as whole:
        version = whole._engine.version
    assert version is not None
    content = file.read_bytes()
    assert str(version.checksum).encode() not in content
    assert b"people.parquet" not in content
    # One byte changed, and the table is read anew instead.
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    del reads[:]
    ask(table, "count where x > .1")
    ask(table, "count where x > .2")
    assert reads == [None, {"x"}]


def test_the_version_of_another_ledger_is_of_no_use(table: Path, reads: list[Any]) -> None:
    ask(table, "sum(x)")
    ask(table, "sum(x)", ledger="b.ledger")
    assert reads == [None, None]
    assert len(kept_files(table)) == 2


def test_no_version_is_kept_of_a_small_table(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_kept_copy, "LARGE", 2**26)
    ask(table, "sum(x)")
    assert not kept_files(table)


def test_rows_of_people_are_chosen_by_all_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[Any]
) -> None:
    """Which rows of a person are used follows from all cells, so that all are read each time."""
    monkeypatch.setattr(_kept_copy, "LARGE", 0)
    schema = Schema(
        columns=[
            Column("x", lower=0, upper=1),
            Column("y", lower=0, upper=1),
            Column("who", type="id", role="id"),
        ],
        id_column="who",
        max_rows_per_unit=1,
    )
    path = tmp_path / "visits.csv"
    path.write_text("x,y,who\n" + "".join(f"{i % 7 / 7},{i % 11 / 11},{i % 40}\n" for i in range(200)))
    with (
        Ledger.open(tmp_path / "a.ledger") as ledger,
        Database(path, schema=schema, ledger=ledger) as whole,
        Database(path, schema=schema, ledger=ledger, columns=["x"]) as part,
    ):
        assert part._engine.version == whole._engine.version
        assert whole.sum("x", privacy=PRIVACY).value == part.sum("x", privacy=PRIVACY).value
    assert set(reads) == {None}
    assert not kept_files(path)


def test_a_column_that_is_not_stored_is_refused_before_the_charge(table: Path) -> None:
    with (
        Ledger.open(table.parent / "a.ledger") as ledger,
        Database(table, schema=SCHEMA, ledger=ledger, columns=["x"]) as part,
    ):
        for question in ("mean(age)", 'count by "Age band"'):
            with pytest.raises(ParameterError, match="columns that are stored"):
                part.query(question, privacy=PRIVACY)
        assert not ledger.entries()


def test_cells_of_other_columns_are_checked_before_the_first_answer(table: Path) -> None:
    table.with_name("people.csv").write_text('x,age,"a ""odd"" name",Age band\n.5,40,clerk,7\n')
    with pytest.raises(DataError, match="Age band"):
        ask(table.with_name("people.csv"), "sum(x)")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"columns": ["wrong"]}, "released columns"),
        ({"columns": []}, "at least one"),
        ({"columns": ["x"], "keep": "kept"}, "left out with keep"),
    ],
)
def test_columns_that_make_no_sense_are_refused(table: Path, options: dict[str, Any], match: str) -> None:
    with (
        Ledger.open(table.parent / "a.ledger") as ledger,
        pytest.raises(ParameterError, match=match),
    ):
        Database(table, schema=SCHEMA, ledger=ledger, **options)
