"""Workbooks, and tables of SPSS and Stata."""

from __future__ import annotations

import datetime
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xlsxwriter

from discreet.errors import MissingExtra, SourceError
from discreet.schema import Column, Dialect, Schema, TextFormat
from discreet.tables import open_table
from tests.tables.people import same

if TYPE_CHECKING:
    from pathlib import Path

DAY = datetime.date(2024, 3, 1)
SCHEMA = Schema(
    columns=[
        Column("person", role="id"),
        Column("weight", lower=0, upper=200, required=False, text=TextFormat(censored="half")),
        Column("seen", lower=datetime.date(2024, 1, 1), upper=datetime.date(2024, 12, 31), required=False),
        Column("smokes", values=(False, True), required=False),
        Column("q1", type="integer", lower=1, upper=5, required=False, missing_values=("99",)),
    ],
    id_column="person",
    max_rows_per_unit=1,
    dialect=Dialect(header_row=3),
)


def write_workbook(path: Path, *, sheets: tuple[str, ...] = ("Data",)) -> None:
    """A sheet with a title, names with blanks around them, mixed cells, a blank row, and an error."""
    with xlsxwriter.Workbook(path) as book:
        date = book.add_format({"num_format": "dd.mm.yyyy"})
        for name in sheets:
            sheet = book.add_worksheet(name)
            sheet.write(0, 0, "Export of 2024")
            sheet.write_row(2, 0, ["person", "weight ", "seen", "smokes", "q1"])
            sheet.write_row(3, 0, [1, 70.5])
            sheet.write_datetime(3, 2, datetime.datetime(2024, 3, 1), date)
            sheet.write_boolean(3, 3, True)
            sheet.write(3, 4, 99)
            sheet.write_row(5, 0, [2, "<0.5", "", "", 4])
            sheet.write_formula(6, 1, "=NA()", None, "#N/A")
            sheet.write(6, 0, 3)
        book.add_worksheet("Empty")


def read(source: Any, schema: Schema) -> dict[str, Any]:
    with open_table(source, schema=schema) as table:
        (batch,) = table.batches(schema, ids=True)
    return dict(batch)


def test_a_sheet_is_read_by_types_and_its_text_by_the_dialect(tmp_path: Path) -> None:
    write_workbook(tmp_path / "t.xlsx")
    found = read(tmp_path / "t.xlsx", SCHEMA)
    nan = np.nan
    assert same(found["weight"], np.array([70.5, 0.25, nan]))
    assert same(found["seen"], np.array([60.0, nan, nan]))
    assert same(found["smokes"], np.array([1, 2, 2], np.int32))
    assert same(found["q1"], np.array([nan, 4.0, nan]))
    with open_table(tmp_path / "t.xlsx") as table:
        draft = table.draft()
    assert draft.dialect is not None
    assert draft.dialect.header_row == 3
    types = [field.type for field in draft.fields.values()]
    assert types == ["integer", "number", "date", "boolean", "integer"]


def test_a_workbook_with_several_tables_must_be_given_with_a_sheet(tmp_path: Path) -> None:
    write_workbook(tmp_path / "t.xlsx", sheets=("One", "Two words"))
    with pytest.raises(SourceError, match=r"file\.xlsx\?table=name; it has 'One', 'Two words', 'Empty'"):
        open_table(tmp_path / "t.xlsx")
    assert len(read(f"{tmp_path}/t.xlsx?table=Two words", SCHEMA)["q1"]) == 3
    with pytest.raises(SourceError, match="must have the sheet 'Three'"):
        open_table(f"{tmp_path}/t.xlsx?table=Three")
    (tmp_path / "u.xlsx").write_bytes(b"PK\x03\x04 SECRET")
    with pytest.raises(SourceError, match="must be a workbook"):
        open_table(tmp_path / "u.xlsx")


@pytest.mark.parametrize("ending", ["sav", "dta"])
def test_value_labels_become_the_list(tmp_path: Path, ending: str) -> None:
    pyreadstat = pytest.importorskip("pyreadstat")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"sex": [1.0, 2.0, np.nan], "scale": [0.0, 5.0, 10.0], "age": [33.0, 44.0, 50.0]})
    labels = {"sex": {1: "male", 2: "female", 99: "no answer"}, "scale": {0: "not at all", 10: "completely"}}
    write = pyreadstat.write_sav if ending == "sav" else pyreadstat.write_dta
    path = tmp_path / f"t.{ending}"
    write(frame, str(path), variable_value_labels=labels, column_labels=["Sex of the person", "", ""])
    with open_table(path) as table:
        fields = table.draft().fields
    assert fields["sex"].values == ("male", "female", "no answer")
    assert fields["sex"].title == "Sex of the person"
    assert (fields["scale"].values, fields["scale"].type) == (None, "integer")
    schema = Schema(
        columns=[
            Column("sex", values=fields["sex"].values, closed=True, required=False),
            Column("scale", type="integer", lower=0, upper=10),
        ]
    )
    with open_table(path, schema=schema) as table:
        (batch,) = table.batches(schema)
    assert batch["sex"].tolist() == [0, 1, 3]
    assert batch["scale"].tolist() == [0.0, 5.0, 10.0]
    path.write_bytes(b"SECRET")
    with pytest.raises(SourceError, match="table of SPSS or Stata"):
        open_table(path)


@pytest.mark.parametrize(
    ("name", "module", "extra"), [("t.xlsx", "python_calamine", "excel"), ("t.sav", "pyreadstat", "stat")]
)
def test_an_extra_that_is_absent_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str, extra: str
) -> None:
    (tmp_path / name).write_bytes(b"x")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf'pip install "discreet\[{extra}\]"'):
        open_table(tmp_path / name)
