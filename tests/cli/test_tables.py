"""Ordinary bad tables: released with a report, or refused with a sentence that names the place alone."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any

import pytest

from discreet.report.verify import verify
from tests.cli.run import Done, discreet

if TYPE_CHECKING:
    from pathlib import Path

FAST = ("--attack-records", "200")


def field(name: str, type_: str, constraints: dict[str, Any] | None = None, **privacy: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "constraints": constraints or {}, "privacy": privacy}


def number(name: str, low: float = 0, high: float = 10, **privacy: Any) -> dict[str, Any]:
    return field(name, "number", {"minimum": low, "maximum": high}, **privacy)


def listed(name: str, *values: str, **privacy: Any) -> dict[str, Any]:
    return field(name, "string", {"enum": list(values)}, closed=True, **privacy)


def table(folder: Path, text: str, *fields: dict[str, Any], **more: Any) -> None:
    (folder / "t.csv").write_text(text, encoding="utf-8")
    content = {"privacy": {"dataset": "t", **more}, "fields": fields}
    (folder / "t.schema.yaml").write_text(json.dumps(content))  # JSON is YAML


def release(folder: Path, *words: str) -> Done:
    return discreet("release", "t.csv", *words, *FAST, cwd=folder)


def assert_released(folder: Path, *words: str) -> str:
    """Release it, check it as a stranger would, and return the internal report."""
    done = release(folder, *words)
    assert done.code == 0, done.err
    found = verify(folder / "release")
    assert found.ok, str(found)
    report = (folder / "release" / "internal" / "report.html").read_text()
    assert report.startswith("<!doctype html>") or report.startswith("<!DOCTYPE html>")
    return report


def rows(count: int, *cells: str) -> str:
    return "".join(
        ",".join(cell.format(i=i, m=i % 7, c="ab"[i % 2]) for cell in cells) + "\n" for i in range(count)
    )


def test_a_table_of_lists_alone(tmp_path: Path) -> None:
    table(tmp_path, "x,y\n" + rows(40, "{c}", "{c}"), listed("x", "a", "b"), listed("y", "a", "b"))
    assert_released(tmp_path, "--protect", "x=0.2")


def test_a_column_whose_cells_are_all_missing(tmp_path: Path) -> None:
    gone = field("y", "number", {"minimum": 0, "maximum": 1, "required": False})
    nothing = field("z", "string", {"enum": ["a", "b"], "required": False}, closed=True)
    table(tmp_path, "x,y,z\n" + rows(40, "{m}", "", ""), number("x"), gone, nothing)
    assert_released(tmp_path, "--protect", "x=1")


def test_a_table_with_one_row(tmp_path: Path) -> None:
    table(tmp_path, "x,y\n3,a\n", number("x"), listed("y", "a", "b", role="target"))
    assert_released(tmp_path, "--protect", "x=1")


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    table(tmp_path, "x,y\n", number("x"), listed("y", "a", "b"))
    done = release(tmp_path, "--protect", "x=1")
    assert done.code == 1
    assert "at least one row" in done.err


def test_a_target_that_never_changes(tmp_path: Path) -> None:
    table(tmp_path, "x,y\n" + rows(40, "{m}", "a"), number("x"), listed("y", "a", "b", role="target"))
    assert "one class" in assert_released(tmp_path, "--protect", "x=1")


def test_names_of_any_script_with_commas_quotes_and_line_ends(tmp_path: Path) -> None:
    names = ["Größe, in m", 'the "real" age', "年龄", "a=b", "<script>alert(1)</script>"]
    quoted = ",".join('"' + name.replace('"', '""') + '"' for name in names)
    table(
        tmp_path,
        quoted + "\n" + rows(40, "{m}", "{m}", "{m}", "{m}", "{c}"),
        *(number(name) for name in names[:4]),
        listed(names[4], "a", "b"),
    )
    report = assert_released(tmp_path, "--protect", "Größe, in m=1", "--protect", "a=b=1")
    assert "<script>alert" not in report
    assert "年龄" in report


def test_words_in_a_column_of_numbers_are_named_by_line_and_column(tmp_path: Path) -> None:
    table(tmp_path, "x,y\n" + rows(30, "{m}", "{c}") + "Jane,a\n", number("x"), listed("y", "a", "b"))
    done = release(tmp_path, "--protect", "x=1")
    assert done.code == 1
    assert "column 'x'" in done.err
    assert "row 31" in done.err
    assert "Jane" not in done.err


def test_a_value_that_is_not_in_a_closed_list_is_named_by_line_and_column(tmp_path: Path) -> None:
    table(tmp_path, "x,y\n" + rows(30, "{m}", "{c}") + "1,Jane\n", number("x"), listed("y", "a", "b"))
    done = release(tmp_path, "--protect", "x=1")
    assert done.code == 1
    assert "column 'y'" in done.err
    assert "closed: false" in done.err
    assert "Jane" not in done.err


def test_a_name_that_comes_twice_is_refused(tmp_path: Path) -> None:
    table(tmp_path, "x,x\n1,2\n", number("x"))
    done = release(tmp_path, "--protect", "x=1")
    assert done.code == 1
    assert "columns 1 and 2 have the same name" in done.err


def test_ids_never_leave_and_several_rows_of_a_person_are_counted(tmp_path: Path) -> None:
    text = "who,x\n" + "".join(f"p{i // 3},{i % 7}\n" for i in range(60))
    person = field("who", "string", role="id")
    table(tmp_path, text, person, number("x"), id_column="who", max_rows_per_unit=2)
    assert_released(tmp_path, "--protect", "x=1")
    statement = json.loads((tmp_path / "release" / "public" / "statement.json").read_text())
    assert (statement["what"]["rows_read"], statement["what"]["rows_published"]) == (60, 40)
    assert "at most 2 rows of each person are used" in (
        tmp_path / "release" / "public" / "statement.html"
    ).read_text(encoding="utf-8")
    for path in (tmp_path / "release" / "public").iterdir():
        assert b"p19" not in path.read_bytes()


def test_dates(tmp_path: Path) -> None:
    first = datetime.date(2020, 1, 1)
    text = "d,x\n" + "".join(f"{first + datetime.timedelta(days=i)},{i % 7}\n" for i in range(40))
    day = field("d", "date", {"minimum": "2020-01-01", "maximum": "2020-12-31"})
    table(tmp_path, text, day, number("x"))
    assert_released(tmp_path, "--protect", "d=30")


def test_free_text_is_refused_with_the_line_that_drops_it(tmp_path: Path) -> None:
    table(tmp_path, "x,note\n1,Jane was here\n", number("x"), field("note", "string"))
    done = release(tmp_path, "--protect", "x=1")
    assert done.code == 2
    assert "note" in done.err
    assert "role: drop" in done.err
    assert "Jane" not in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("bounded", "--support", "x=4,z=40"),
        ("laplace", "--scale", "3", "--clamp"),
        ("laplace", "--epsilon", "8"),
    ],
)
def test_every_method_can_be_chosen(words: tuple[str, ...], tmp_path: Path) -> None:
    fields = number("x"), number("z", 0, 100), listed("y", "a", "b")
    table(tmp_path, "x,z,y\n" + rows(60, "{m}", "{i}", "{c}"), *fields)
    assert_released(tmp_path, "--method", *words)


def test_a_model_can_be_kept(tmp_path: Path) -> None:
    fields = number("x"), number("z", 0, 100), number("y", role="target")
    table(tmp_path, "x,z,y\n" + rows(60, "{m}", "{i}", "{m}"), *fields)
    assert_released(tmp_path, "--method", "invariant", "--variance", "4", "--learner", "ridge")
    statement = json.loads((tmp_path / "release" / "public" / "statement.json").read_text())
    assert not statement["definition"]["differential_privacy"]


@pytest.mark.slow
@pytest.mark.parametrize("columns", [20, pytest.param(1000, marks=pytest.mark.stats)])
def test_many_columns(columns: int, tmp_path: Path) -> None:
    names = [f"x{j}" for j in range(columns)]
    text = (
        ",".join(names)
        + "\n"
        + "".join(",".join(str((i + j) % 7) for j in range(columns)) + "\n" for i in range(30))
    )
    table(tmp_path, text, *(number(name) for name in names))
    assert_released(tmp_path, "--protect", "x0=1")
