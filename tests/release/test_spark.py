"""Releases on Spark: the bits of one process, one charge, and files that count only when all are there."""

from __future__ import annotations

import itertools
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet import (
    ApproxDP,
    BoundedRelease,
    CoarseRelease,
    Column,
    ErrorFloor,
    GaussianRelease,
    InputPerturbation,
    InvariantRelease,
    LaplaceRelease,
    Ledger,
    MaskedRelease,
    PureDP,
    Schema,
)
from discreet.errors import DataError, ParameterError, SchemaError, SourceError
from discreet.noise import Stream
from discreet.release.spark import PartitionedTable, table
from discreet.tables.fingerprint import fingerprint_table
from discreet.tables.table import ROWS, open_table
from tests.servers import cannot_start, no_spark
from tests.workers import InProcessSession, select

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from discreet.release import ReleaseMethod

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # pyspark's own, about newer pandas

N = ROWS + 20_000
"""Rows of three files: two batches, and the second begins inside of a file."""
NUMBERS = [Column("age", type="integer", lower=17, upper=90), Column("income", lower=0, upper=1000, grid=10)]
LISTS = [
    Column("owner", values=("no", "yes")),
    Column("day", lower=date(2020, 1, 1), upper=date(2020, 12, 31)),
]
SCHEMA = Schema(dataset="spark", columns=[*NUMBERS, *LISTS])
METHODS: dict[str, Callable[..., ReleaseMethod]] = {
    "gaussian": lambda **common: GaussianRelease(privacy=ApproxDP(epsilon=4, delta=1e-7), **common),
    "laplace": lambda **common: LaplaceRelease(privacy=PureDP(epsilon=9), **common),
    "bounded": lambda **common: BoundedRelease(privacy=ErrorFloor(age=9), **common),
    "in-range": lambda **common: BoundedRelease(privacy=PureDP(epsilon=9), in_range=True, **common),
    "coarse": lambda **common: CoarseRelease(privacy=PureDP(epsilon=9), **common),
    "input-perturbation": lambda **common: InputPerturbation(privacy=PureDP(epsilon=4), **common),
}


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    why = no_spark()
    if why is not None:
        cannot_start("Spark", why)
    monkeypatch.setattr(table, "part_batches", lambda n_rows: 1)


def _write_files(folder: Path, n_rows: int = N, ids: int = 1) -> Path:
    """Write made-up rows as three files, of which none ends where a batch does."""
    folder.mkdir()
    cuts = [0, n_rows // 5, n_rows // 2, n_rows]
    for number, (start, stop) in enumerate(itertools.pairwise(cuts)):
        rows = select(
            f"SELECT i // {ids} AS id, 17 + i % 74 AS age, (i * 7919 % 1000)::DOUBLE AS income, "
            "CASE WHEN i % 3 = 0 THEN 'no' ELSE 'yes' END AS owner, "
            f"DATE '2020-01-01' + (i % 366)::INTEGER AS day FROM range({start}, {stop}) AS rows(i)"
        )
        rows.write_parquet(f"{folder}/part-{number}.parquet", row_group_size=10_000)
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write_files(tmp_path_factory.mktemp("spark") / "files")


@pytest.fixture
def opened(files: Path, tmp_path: Path) -> Callable[..., PartitionedTable]:
    def open_parts(session: Any = None, schema: Schema = SCHEMA, source: Any = files) -> PartitionedTable:
        return PartitionedTable(source, schema, tmp_path / "work", session=session or InProcessSession())

    return open_parts


def _read(path: Path) -> list[Any]:
    """Return the columns of a published table in the order of its rows."""
    place = f"{path}/*.parquet" if path.is_dir() else str(path)
    columns = select(f"SELECT * FROM read_parquet('{place}')").fetchnumpy()
    return [np.asarray(values) for values in columns.values()]


def _assert_equal(one: Path, other: Path) -> None:
    pairs = list(zip(_read(one), _read(other), strict=True))
    assert all(np.array_equal(a, b) for a, b in pairs)
    assert len(pairs[0][0]) > ROWS


def _charged(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "spark.ledger", limit=ApproxDP(epsilon=8, delta=1e-6))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n != "gaussian")) for n in METHODS]
)
def test_parts_hold_the_rows_of_one_process_in_their_order(
    name: str, opened: Callable[..., PartitionedTable], files: Path, tmp_path: Path
) -> None:
    made = METHODS[name](schema=SCHEMA, random_state=3)
    publication = made.publish_parts(opened(), tmp_path / "parts")
    one = METHODS[name](schema=SCHEMA, random_state=3).publish(files, tmp_path / "one.parquet")
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == [
        "part-00000.parquet",
        "part-00001.parquet",
    ]
    assert (publication.n_rows, publication.n_read, publication.commitment) == (N, N, one.commitment)
    _assert_equal(tmp_path / "parts", tmp_path / "one.parquet")


def test_rows_of_a_person_are_limited_as_in_one_process(
    opened: Callable[..., PartitionedTable], tmp_path: Path
) -> None:
    files = _write_files(tmp_path / "files", ids=3)
    schema = Schema(
        dataset="spark",
        columns=[*NUMBERS, Column("id", role="id")],
        id_column="id",
        max_rows_per_unit=2,
    )
    method = GaussianRelease(privacy=ApproxDP(epsilon=4, delta=1e-7), schema=schema, random_state=3)
    publication = method.publish_parts(opened(schema=schema, source=files), tmp_path / "parts")
    one = method.publish(files, tmp_path / "one.parquet")
    assert publication.n_rows == one.n_rows < N
    assert publication.n_read == N
    assert publication.rows_salt == one.rows_salt
    pairs = zip(_read(tmp_path / "parts"), _read(tmp_path / "one.parquet"), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)


def test_repeated_attempts_give_the_same_rows_and_only_one_of_them_counts(
    opened: Callable[..., PartitionedTable], files: Path, tmp_path: Path
) -> None:
    made = METHODS["gaussian"](schema=SCHEMA, random_state=3)
    with_twins = opened(InProcessSession(attempts=2))
    made.publish_parts(with_twins, tmp_path / "parts")
    made.publish(files, tmp_path / "one.parquet")
    _assert_equal(tmp_path / "parts", tmp_path / "one.parquet")
    assert len(list((tmp_path / "parts").iterdir())) == 2
    with_twins.close()
    assert not (tmp_path / "work").exists()


def test_workers_take_the_fingerprint_that_one_process_takes(
    opened: Callable[..., PartitionedTable], files: Path
) -> None:
    key = bytes(range(32))
    few = Schema(columns=[SCHEMA.column("age"), SCHEMA.column("owner")])  # the same rows in all parts
    for schema in (SCHEMA, few):
        parts = opened(InProcessSession(attempts=2), schema=schema)
        assert parts.fingerprint(key) == fingerprint_table(files, schema, key)
    assert key not in b"".join(cloudpickle_tasks(parts.session))
    with pytest.raises(SchemaError, match="must have the declared column 'agee'"):
        opened(schema=Schema(columns=[Column("agee", lower=0, upper=1)])).fingerprint(key)


def test_rows_that_change_after_the_check_are_never_drawn(
    opened: Callable[..., PartitionedTable], tmp_path: Path
) -> None:
    files = _write_files(tmp_path / "files")
    parts = opened(source=files)
    parts.check()
    changed = select(f"SELECT * REPLACE (age + (id = {N - 1})::INT AS age) FROM '{files}/part-2.parquet'")
    changed.write_parquet(str(files / "part-2.parquet"))
    with _charged(tmp_path) as ledger:
        method = METHODS["gaussian"](schema=SCHEMA, ledger=ledger)
        with pytest.raises(SourceError, match="The source has changed"):
            method.publish_parts(parts, tmp_path / "parts")
    assert not (tmp_path / "parts").exists()
    assert not [path for path in (tmp_path / "work").iterdir() if path.name.startswith(("drawn-1", "part-"))]


def test_ids_that_change_after_the_check_are_refused_and_give_no_keystream(
    opened: Callable[..., PartitionedTable], tmp_path: Path
) -> None:
    files = _write_files(tmp_path / "files")
    schema = Schema(
        dataset="spark", columns=[*NUMBERS, Column("id", role="id")], id_column="id", max_rows_per_unit=1
    )
    method = GaussianRelease(privacy=ApproxDP(epsilon=4, delta=1e-7), schema=schema, random_state=3)
    method.publish_parts(opened(schema=schema, source=files), tmp_path / "first")
    parts = opened(schema=schema, source=files)
    parts.check()
    changed = select(f"SELECT * REPLACE (id + {N} AS id) FROM '{files}/part-2.parquet'")
    changed.write_parquet(str(files / "part-2.parquet"))
    with pytest.raises(SourceError, match="The source has changed"):
        method.publish_parts(parts, tmp_path / "second")
    # Every row is used still: with other names for people the bits are the same.
    method.publish_parts(opened(schema=schema, source=files), tmp_path / "third")
    _assert_equal(tmp_path / "first", tmp_path / "third")


def _open_people(files: Path, tmp_path: Path) -> tuple[Schema, PartitionedTable]:
    """Return a schema by which two rows of a person are used, and the checked table."""
    schema = Schema(
        dataset="spark", columns=[*NUMBERS, Column("id", role="id")], id_column="id", max_rows_per_unit=2
    )
    parts = PartitionedTable(files, schema, tmp_path / "work", session=InProcessSession())
    parts.check()
    return schema, parts


def test_rows_of_people_are_chosen_before_the_charge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema, parts = _open_people(_write_files(tmp_path / "files", ids=3), tmp_path)

    def no_memory(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(table, "kept_rows", no_memory)
    with _charged(tmp_path) as ledger:
        with pytest.raises(MemoryError):
            METHODS["gaussian"](schema=schema, ledger=ledger).publish_parts(parts, tmp_path / "parts")
        assert not list(ledger.history())


def test_rows_are_not_chosen_by_ids_that_were_there_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By other ids more rows of a person would be used than are declared, and no task would see these ids."""
    files = _write_files(tmp_path / "files", ids=3)
    schema, parts = _open_people(files, tmp_path)
    other = _write_files(tmp_path / "other", ids=1)
    monkeypatch.setattr(table, "open_table", lambda _, **options: open_table(other, **options))
    with _charged(tmp_path) as ledger:
        with pytest.raises(SourceError, match="The source has changed"):
            METHODS["gaussian"](schema=schema, ledger=ledger).publish_parts(parts, tmp_path / "parts")
        assert not list(ledger.history())


@pytest.mark.parametrize("name", ["invariant", "masked"])
def test_a_method_that_needs_all_rows_is_refused_before_the_charge(
    name: str, opened: Callable[..., PartitionedTable], tmp_path: Path
) -> None:
    number, target = Column("age", lower=17, upper=90), Column("owner", values=("no", "yes"), role="target")
    schema = Schema(dataset="spark", columns=[number, target])
    with _charged(tmp_path) as ledger:
        methods: dict[str, ReleaseMethod] = {
            "invariant": InvariantRelease(
                learner="svm", variance=0.25, scales="range", schema=schema, ledger=ledger
            ),
            "masked": MaskedRelease(
                privacy=PureDP(epsilon=4), regularization=0.1, schema=schema, ledger=ledger
            ),
        }
        with pytest.raises(ParameterError, match="needs all rows in one process, and the source has 85,536"):
            methods[name].publish_parts(opened(schema=schema), tmp_path / "parts")
        assert not list(ledger.history())


def test_a_release_with_the_same_bits_is_charged_once(
    opened: Callable[..., PartitionedTable], tmp_path: Path
) -> None:
    key = Stream().words(4).tobytes()

    def lost(rows: list[Any]) -> list[Any]:
        raise OSError("the cluster is gone")

    with _charged(tmp_path) as ledger:
        method = METHODS["gaussian"](schema=SCHEMA, ledger=ledger)
        parts = opened()
        parts.check()
        parts.session = InProcessSession(change=lost)
        with pytest.raises(SourceError, match="--resume"):
            method.publish_parts(parts, tmp_path / "parts", stream=Stream.for_replay(key))
        assert len(list(ledger.history())) == 1
        first = method.publish_parts(opened(), tmp_path / "a", stream=Stream.for_replay(key))
        again = method.publish_parts(opened(), tmp_path / "b", stream=Stream.for_replay(key))
        assert first.receipt.seq == again.receipt.seq
        assert len(list(ledger.history())) == 1
        # Another plan under the same key is another release.
        other = GaussianRelease(privacy=ApproxDP(epsilon=1, delta=1e-7), schema=SCHEMA, ledger=ledger)
        other.publish_parts(opened(), tmp_path / "c", stream=Stream.for_replay(key))
        assert len(list(ledger.history())) == 2
    _assert_equal(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize(
    "change", [lambda rows: rows[1:], lambda rows: [rows[0], rows[0]]], ids=["lost", "doubled"]
)
def test_lost_and_doubled_parts_are_not_committed(
    change: Callable[[list[Any]], list[Any]], opened: Callable[..., PartitionedTable], tmp_path: Path
) -> None:
    parts = opened()
    parts.check()
    parts.session = InProcessSession(change=change)
    with pytest.raises(ParameterError, match="other parts than the 2"):
        METHODS["gaussian"](schema=SCHEMA).publish_parts(parts, tmp_path / "parts")
    assert not (tmp_path / "parts").exists()


def cloudpickle_tasks(session: InProcessSession) -> list[bytes]:
    """Return all tasks of a session as Spark would send them."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    return [cloudpickle.dumps(task) for task in session.tasks]


def test_spark_carries_neither_key_nor_plan_nor_rows(
    opened: Callable[..., PartitionedTable], tmp_path: Path
) -> None:
    session, stream = InProcessSession(), Stream.from_seed(3)
    METHODS["gaussian"](schema=SCHEMA).publish_parts(opened(session), tmp_path / "parts", stream=stream)
    sent = cloudpickle_tasks(session)
    assert len(sent) == 4
    assert all(stream.derive_key("parts") not in task for task in sent)
    assert all(len(task) < 8_000 and b"income" not in task for task in sent)
    jobs = [path for path in (tmp_path / "work").iterdir() if path.suffix == ".job"]
    assert {path.name for path in jobs} == {"check.job", "draw.job", "write.job"}
    assert {path.stat().st_mode & 0o777 for path in jobs} == {0o600}
    assert (tmp_path / "work").stat().st_mode & 0o777 == 0o700
    assert stream.derive_key("parts") in (tmp_path / "work" / "draw.job").read_bytes()


def test_a_bad_cell_is_named_by_its_row_in_the_whole_table_before_the_charge(
    opened: Callable[..., PartitionedTable], tmp_path: Path
) -> None:
    schema = Schema(dataset="spark", columns=[*NUMBERS, Column("owner", values=("no", "never"), closed=True)])
    files = _write_files(tmp_path / "files")
    select(
        f"SELECT * REPLACE (CASE WHEN id = {N - 9} THEN 'x' ELSE 'no' END AS owner) "
        f"FROM read_parquet('{files}/*.parquet')"
    ).write_parquet(str(tmp_path / "bad.parquet"))
    with _charged(tmp_path) as ledger:
        method = METHODS["gaussian"](schema=schema, ledger=ledger)
        with pytest.raises(DataError, match=rf"column 'owner' must hold .* in row {N - 8} ") as caught:
            method.publish_parts(opened(schema=schema, source=tmp_path / "bad.parquet"), tmp_path / "parts")
        assert not list(ledger.history())
    assert (caught.value.column, caught.value.line) == ("owner", N - 8)


def test_a_worker_of_another_version_is_no_error_of_the_rows(
    opened: Callable[..., PartitionedTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("discreet.release.spark._job.installed_version", lambda: "0.0.1")
    with pytest.raises(SourceError, match=r"worker of Spark runs discreet 0\.0\.1"):
        opened().check()


def test_files_that_differ_in_a_type_are_refused(
    opened: Callable[..., PartitionedTable], tmp_path: Path
) -> None:
    files = _write_files(tmp_path / "files", 100)
    other = select(f"SELECT * REPLACE (age::VARCHAR AS age) FROM '{files}/part-1.parquet'")
    other.write_parquet(str(files / "part-1.parquet"))
    with pytest.raises(SourceError, match=r"'age' is VARCHAR in 'part-1.parquet' and BIGINT in 'part-0"):
        opened(source=files)


def test_files_may_have_their_columns_in_another_order(
    opened: Callable[..., PartitionedTable], files: Path, tmp_path: Path
) -> None:
    other = _write_files(tmp_path / "files")
    turned = select(f"SELECT day, owner, income, age, id FROM '{files}/part-1.parquet'")
    turned.write_parquet(str(other / "part-1.parquet"))
    made = METHODS["gaussian"](schema=SCHEMA, random_state=3)
    made.publish_parts(opened(source=other), tmp_path / "parts")
    made.publish(files, tmp_path / "one.parquet")
    _assert_equal(tmp_path / "parts", tmp_path / "one.parquet")


@pytest.mark.slow
def test_workers_of_spark_give_the_rows_of_one_process(
    spark: Any, files: Path, opened: Callable[..., PartitionedTable], tmp_path: Path
) -> None:
    made = METHODS["gaussian"](schema=SCHEMA, random_state=3)
    made.publish_parts(opened(spark), tmp_path / "parts")
    made.publish(files, tmp_path / "one.parquet")
    _assert_equal(tmp_path / "parts", tmp_path / "one.parquet")


@pytest.mark.slow
def test_rows_are_not_staged_where_workers_see_another_folder(
    spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(table, "probe_workers", _refuse)
    with pytest.raises(SourceError, match="refused"):
        PartitionedTable(spark.range(3), SCHEMA, tmp_path / "work")
    assert not list((tmp_path / "work").iterdir())


def _refuse(*_: Any, **__: Any) -> None:
    raise SourceError("refused")


@pytest.mark.slow
def test_a_data_frame_is_staged_and_released(
    spark: Any, files: Path, opened: Callable[..., PartitionedTable], tmp_path: Path
) -> None:
    frame = spark.read.parquet(str(files)).repartition(3)
    parts = opened(source=frame)
    made = METHODS["coarse"](schema=SCHEMA, random_state=3)
    assert made.publish_parts(parts, tmp_path / "parts").n_rows == N
    made.publish(parts.path, tmp_path / "one.parquet")
    _assert_equal(tmp_path / "parts", tmp_path / "one.parquet")
    parts.close()
    assert not parts.path.exists()


@pytest.mark.slow
def test_staged_rows_are_in_groups_of_which_a_task_reads_few(
    spark: Any, opened: Callable[..., PartitionedTable]
) -> None:
    rows = spark.range(0, 3 * ROWS, 1, 1).selectExpr(
        "17 + id % 74 AS age",
        "CAST(id % 1000 AS DOUBLE) AS income",
        "'no' AS owner",
        "DATE '2020-01-01' AS day",
    )
    parts = opened(source=rows)
    sizes = select(f"SELECT DISTINCT row_group_num_rows FROM parquet_metadata('{parts.path}/*.parquet')")
    assert {size for (size,) in sizes.fetchall()} == {2 * ROWS, ROWS}
