"""One table, one ledger: a table that is known does not get another ledger unless somebody says so."""

from __future__ import annotations

import os
import pickle
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from discreet import ApproxDP, Column, Ledger, PureDP, Schema, publish, publish_model, verify
from discreet.errors import DiscreetWarning, OtherLedger, SchemaError
from discreet.pipeline import RunOptions, table_registry
from discreet.pipeline.plan import plan_noise_levels
from discreet.pipeline.plan_basis import PlanBasis
from discreet.pipeline.query import query_table
from discreet.pipeline.table_registry import Registry, open_charged_ledger
from discreet.tables.fingerprint import fingerprint_table
from tests.pipeline.test_identity import people, taken, write

if TYPE_CHECKING:
    from collections.abc import Callable

ONE = PureDP(epsilon=1)


def declared(dataset: str = "people-2024", **names: str) -> Schema:
    """Return the declaration of the table, with other names for some columns."""
    return Schema(
        columns=[
            Column(names.get("age", "age"), type="integer", lower=17, upper=90),
            Column(names.get("pay", "pay"), lower=0, upper=100, required=False),
            Column(names.get("sex", "sex"), values=("f", "m"), closed=True, role="target"),
        ],
        dataset=dataset,
    )


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table that was asked one question, which made its ledger."""
    folder = tmp_path / "first"
    folder.mkdir()
    path = write(people(400, 1), folder / "people.csv")
    query_table(path, "count where age > 40", schema=declared(), privacy=ONE)
    return path


def count(path: Any, schema: Schema, **how: Any) -> None:
    """Ask something."""
    query_table(path, "count where age > 50", schema=schema, privacy=ONE, **how)


def release(path: Any, schema: Schema, *, new_ledger: bool = False, **how: Any) -> Any:
    """Release the table."""
    folder = Path(path).parent / "release"
    return publish(
        path,
        schema=schema,
        out=folder,
        method="gaussian",
        privacy=ApproxDP(epsilon=8, delta=1e-6),
        run=RunOptions(attack_records=100, new_ledger=new_ledger),
        **how,
    )


def model(path: Any, schema: Schema, **how: Any) -> Any:
    """Train a model."""
    folder = Path(path).parent / "model"
    return publish_model(
        path, schema=schema, out=folder, model="id3", privacy=ApproxDP(epsilon=1, delta=1e-6), **how
    )


def tuning(path: Any, schema: Schema, **how: Any) -> Any:
    """Look at private rows before a release."""
    return plan_noise_levels(
        path, schema=schema, privacy=ONE, method="laplace", basis=PlanBasis(on_rows=True), **how
    )


@pytest.mark.parametrize("job", [count, release, model, tuning])
def test_a_renamed_data_set_stops_every_job_before_a_ledger_is_made(
    table: Path, job: Callable[..., Any]
) -> None:
    before = sorted(table.parent.iterdir())
    with pytest.raises(
        OtherLedger, match=r"known by its path.*--ledger .*people-2024.ledger.*--new-ledger"
    ) as stop:
        job(table, declared("renamed"))
    assert stop.value.ledgers == (str(table.with_name("people-2024.ledger")),)
    assert sorted(table.parent.iterdir()) == before
    job(table, declared("renamed"), ledger=table.with_name("people-2024.ledger"))
    assert not table.with_name("renamed.ledger").exists()


@pytest.mark.parametrize("job", [count, release, model, tuning])
def test_a_table_without_a_declared_column_is_refused_before_a_ledger_is_made(
    tmp_path: Path, known_tables: Path, job: Callable[..., Any]
) -> None:
    path = write(people(50, 1), tmp_path / "people.csv")
    with pytest.raises(SchemaError, match="declared column 'paid'"):
        job(path, declared(pay="paid"))
    assert list(tmp_path.glob("*.ledger*")) == []
    assert list(tmp_path.glob("*.jsonl")) == []
    assert not (known_tables / "tables.json").exists()
    job(path, declared())


def _moved(table: Path, folder: Path) -> tuple[Any, Schema]:
    return table.rename(folder / table.name), declared()


def _copied(table: Path, folder: Path) -> tuple[Any, Schema]:
    return shutil.copy(table, table.with_name("copy.csv")), declared("copy")


def _converted(table: Path, folder: Path) -> tuple[Any, Schema]:
    return write(taken(people(400, 1), slice(None, None, -1)), folder / "other.parquet"), declared("other")


def _renamed_columns(table: Path, folder: Path) -> tuple[Any, Schema]:
    names = {"age": "years", "pay": "income", "sex": "gender"}
    rows = {names.get(name, name): values for name, values in people(400, 1).items()}
    return write(rows, folder / "t.csv"), declared("other", **names)


def _grown(table: Path, folder: Path) -> tuple[Any, Schema]:
    more = people(20, 2)
    import numpy as np

    rows = {name: np.concatenate([values, more[name]]) for name, values in people(400, 1).items()}
    return write(rows, folder / "t.csv"), declared("other")


def _in_memory(table: Path, folder: Path) -> tuple[Any, Schema]:
    return people(400, 1), declared("other")


@pytest.mark.parametrize("move", [_moved, _copied, _converted, _renamed_columns, _grown, _in_memory])
def test_a_table_is_known_after_every_move(
    table: Path,
    tmp_path: Path,
    move: Callable[[Path, Path], tuple[Any, Schema]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    source, schema = move(table, tmp_path)
    with pytest.raises(OtherLedger, match="known by its rows") as stop:
        open_charged_ledger(source, schema, None)
    earlier = stop.value.ledgers[0]
    book = open_charged_ledger(source, schema, earlier)
    assert book is not None
    book.close()
    # A place that has no ledger yet is a new one, wherever it is.
    with pytest.raises(OtherLedger):
        open_charged_ledger(source, schema, tmp_path / "elsewhere.ledger")


def test_a_ledger_without_recognition_would_start_anew(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_registry.Recognition, "require", lambda self, *, new_ledger: None)
    count(table.rename(tmp_path / "people.csv"), declared("renamed"))
    with Ledger.open(tmp_path / "renamed.ledger") as book:
        assert book.spent().charges == 1


def test_a_table_that_moves_with_its_ledger_goes_on(table: Path, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    for file in table.parent.iterdir():
        file.rename(tmp_path / "second" / file.name)
    count(tmp_path / "second" / table.name, declared())
    with Ledger.open(tmp_path / "second" / "people-2024.ledger") as book:
        assert book.spent().charges == 2
        assert book.others() == []


def test_another_table_in_the_same_folder_has_its_own_ledger(table: Path) -> None:
    count(write(people(400, 2), table.with_name("others.csv")), declared("others"))
    assert table.with_name("others.ledger").exists()


def test_a_new_ledger_says_that_there_is_another_and_so_does_what_is_published(
    table: Path, tmp_path: Path
) -> None:
    with Ledger.open(table.with_name("people-2024.ledger")) as first:
        earlier = first.identity
    moved = table.rename(tmp_path / "people.csv")
    done = release(moved, declared("renamed"), new_ledger=True)
    trained = model(moved, declared("renamed"))  # known by now, and not asked again
    for statement in (done.statement, trained.statement):
        assert statement.composition.other_ledgers == [earlier]
        assert "in this ledger" in statement.composition.total
        assert "charged to 1 other ledger too" in statement.composition.total
    assert verify(done.public).ok
    assert verify(trained.public).ok
    with Ledger.open(tmp_path / "renamed.ledger") as book:
        assert book.others() == [earlier]
        book.check()
        book.note_others([earlier])
        assert book.others() == [earlier]
        copy = tmp_path / "backup.ledger"
        book.backup(copy)
    with Ledger.open(copy) as again:
        assert again.others() == [earlier]


def test_a_statement_that_hides_the_other_ledger_does_not_add_up(table: Path, tmp_path: Path) -> None:
    done = release(table.rename(tmp_path / "people.csv"), declared(), new_ledger=True)
    place = done.public / "statement.json"
    text = place.read_text()
    (identity,) = done.statement.composition.other_ledgers
    place.write_text(text.replace(f'"{identity}"', ""))
    assert not verify(done.public).ok


def test_an_opened_ledger_was_chosen_knowingly_and_is_noted(table: Path, tmp_path: Path) -> None:
    moved = table.rename(tmp_path / "people.csv")
    with Ledger.open(tmp_path / "mine.ledger") as mine:
        count(moved, declared(), ledger=mine)
        assert len(mine.others()) == 1
    with pytest.raises(OtherLedger, match="and 1 more"):
        count(moved, declared("third"))


def test_rows_are_read_once_for_as_long_as_the_file_stays(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Any] = []

    def counted(*given: Any) -> Any:
        read.append(given[0])
        return fingerprint_table(*given)

    monkeypatch.setattr(table_registry, "fingerprint_table", counted)
    count(table, declared())
    assert read == []
    write(people(420, 1), table)
    count(table, declared())
    assert len(read) == 1


def test_a_lost_list_leaves_the_audit_log_beside_the_table(table: Path, known_tables: Path) -> None:
    shutil.rmtree(known_tables)
    with pytest.raises(OtherLedger, match="known by its path"):
        count(table, declared("renamed"))
    count(table, declared())
    release(table, declared())


def test_a_list_that_cannot_be_used_warns_and_stops_nothing(
    tmp_path: Path, known_tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(people(50, 1), tmp_path / "people.csv")
    monkeypatch.setenv(table_registry.STATE, str(path / "no folder"))
    with pytest.warns(DiscreetWarning, match="list of known tables.*DISCREET_STATE"):
        count(path, declared())
    monkeypatch.setenv(table_registry.STATE, str(known_tables))
    Registry(known_tables).key()
    for broken in (b"{", b"[1]", b'[{"ledger": 1}]', b"\xff"):
        (known_tables / "tables.json").write_bytes(broken)
        with pytest.warns(DiscreetWarning, match="holds something else"):
            count(path, declared())


def test_the_list_is_its_owners_alone_and_holds_no_cell(table: Path, known_tables: Path) -> None:
    for file in known_tables.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (known_tables / "fresh").mkdir()
    made = Registry(known_tables / "fresh" / "discreet")
    made.key()
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o700
    _, tables = Registry(known_tables).read()
    assert [entry.path for entry in tables] == [str(table)]
    assert all(len(row) == 16 for row in tables[0].rows)


def test_where_the_list_is_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Registry.from_environment().folder == Path(os.environ[table_registry.STATE])
    monkeypatch.delenv(table_registry.STATE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert Registry.from_environment().folder == tmp_path / "discreet"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Registry.from_environment().folder == tmp_path / ".local" / "state" / "discreet"
    # A container may run under a number that no user has.
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert Registry.from_environment().folder == Path("/.local/state/discreet")


def test_bundled_tables_and_uncounted_work_are_left_alone(
    tmp_path: Path, known_tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        monkeypatch.chdir(tmp_path / place)
        query_table("demo:census", "count where age > 40", privacy=ONE)
    path = write(people(50, 1), tmp_path / "people.csv")
    count(path, declared(), ledger=False)
    count(path, declared(), ledger=":memory:")
    assert not known_tables.exists()


def test_the_stop_can_be_pickled() -> None:
    stop = pickle.loads(pickle.dumps(OtherLedger("known", ledgers=("a", "b"))))
    assert (str(stop), stop.ledgers) == ("known", ("a", "b"))
