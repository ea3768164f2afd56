from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow
import pytest
from docs.make_hospital import draw_stays
from pyarrow import parquet

from discreet import datasets
from discreet.errors import ParameterError

if TYPE_CHECKING:
    from discreet.schema import Column

ROWS = {"census": 48_842, "clinic": 569, "hospital": 19_630}
README = Path(datasets.__file__).with_name("data") / "README.md"


@pytest.fixture(params=datasets.names())
def dataset(request: pytest.FixtureRequest) -> datasets.BundledDataset:
    return datasets.load(request.param)


def outside(column: Column) -> str:
    name = f'"{column.name}"'
    if column.type == "date":
        return f"{name} < DATE '{column.lower}' OR {name} > DATE '{column.upper}'"
    if column.is_number:
        lower, upper = column.range
        return f"{name} < {lower!r} OR {name} > {upper!r}"
    listed = ", ".join(f"'{value}'" for value in column.values or ())
    return f"{name} NOT IN ({listed})"


def query(dataset: datasets.BundledDataset, sql: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        rows: list[tuple[object, ...]] = connection.execute(
            sql.replace("TABLE", f"read_parquet('{dataset.path}')")
        ).fetchall()
    return rows


def test_a_bundled_table_is_found_with_and_without_the_prefix() -> None:
    assert datasets.names() == ("census", "clinic", "hospital")
    assert datasets.load("demo:census") is datasets.load("census")


def test_an_unknown_table_is_answered_with_the_choices() -> None:
    with pytest.raises(
        ParameterError, match=r"one of census, clinic, hospital, was 'demo:censos'\. Did you mean demo:census"
    ):
        datasets.load("demo:censos")
    with pytest.raises(ParameterError, match="Give a path for a table of your own"):
        datasets.load("xyz")


def test_the_schema_declares_the_columns_of_the_file_in_order(dataset: datasets.BundledDataset) -> None:
    described = query(dataset, "DESCRIBE SELECT * FROM TABLE")
    assert tuple(row[0] for row in described) == dataset.schema.names
    assert query(dataset, "SELECT count(*) FROM TABLE") == [(ROWS[dataset.name],)]


def test_the_files_are_those_that_the_readme_describes(dataset: datasets.BundledDataset) -> None:
    digest = hashlib.sha256(dataset.path.read_bytes()).hexdigest()
    readme = README.read_text("utf-8")
    rows = f"{ROWS[dataset.name]:,}"
    assert re.search(rf"`{dataset.name}\.parquet` \| {rows} \| \d+ \| `{digest}`", readme)
    assert dataset.source.rsplit(" ", 1)[1] in readme
    assert dataset.license == "CC BY 4.0"
    assert dataset.title == dataset.schema.title


def test_bounds_have_a_reason_and_are_round(dataset: datasets.BundledDataset) -> None:
    for column in dataset.schema.released:
        assert column.bounds_source, column.name
        if column.is_number and column.type != "date":
            lower, upper = column.range
            assert float(f"{upper:.2g}") == upper, column.name
            assert lower in (0, 1, 10, 17), column.name


def test_few_cells_lie_outside_of_what_was_declared(dataset: datasets.BundledDataset) -> None:
    for column in dataset.schema.released:
        if column.name == "native_country":  # lists one country on purpose
            continue
        [(share,)] = query(dataset, f"SELECT avg(CAST(coalesce({outside(column)}, false) AS INT)) FROM TABLE")
        assert isinstance(share, float)
        assert share <= 0.01, column.name
        if column.is_closed and column.is_category:
            assert share == 0, column.name


def test_cells_are_empty_only_where_that_is_declared(dataset: datasets.BundledDataset) -> None:
    for column in dataset.schema.released:
        [(empty,)] = query(dataset, f'SELECT count(*) FROM TABLE WHERE "{column.name}" IS NULL')
        assert (empty == 0) is column.required, column.name


def test_education_is_dropped_because_its_number_says_the_same() -> None:
    census = datasets.load("census")
    pairs = query(census, "SELECT count(DISTINCT (education, education_num)) FROM TABLE")
    assert pairs == [(16,)]
    assert [c.name for c in census.schema.columns if not c.is_released] == ["fnlwgt", "education"]


def test_each_patient_of_the_clinic_has_one_row() -> None:
    clinic = datasets.load("clinic")
    assert query(clinic, "SELECT count(DISTINCT id) FROM TABLE") == [(ROWS["clinic"],)]
    assert (clinic.schema.id_column, clinic.schema.max_rows_per_unit) == ("id", 1)


def test_patients_of_the_hospital_have_several_stays_and_no_more_than_declared() -> None:
    hospital = datasets.load("hospital")
    stays = query(
        hospital, "SELECT max(n), sum(n), count(*) FROM (SELECT count(*) n FROM TABLE GROUP BY patient)"
    )
    assert stays == [(hospital.schema.max_rows_per_unit, ROWS["hospital"], 14_000)]


def test_the_hospital_is_what_its_script_draws() -> None:
    assert pyarrow.table(draw_stays()).equals(parquet.read_table(datasets.load("hospital").path))


def test_the_bundled_tables_are_small_enough_to_ship() -> None:
    assert sum(datasets.load(name).path.stat().st_size for name in datasets.names()) < 700_000
