"""The commands around the main job: init, plan, audit, report, verify, ledger, help and completion."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from docs.generate_reference import cli_page

from discreet import Schema
from discreet.evaluation.ways import TITLES
from discreet.ledger.log_verification import check_log
from discreet.release import METHODS
from discreet.tables import Table
from tests.cli.run import discreet
from tests.cli.test_release import DECLARED, PEOPLE

FAST = ("--attack-records", "200")
CLI_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table, its declaration and a release; tests do not change it."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "people.csv").write_text(PEOPLE)
    (folder / "people.schema.yaml").write_text(DECLARED)
    done = discreet("release", "people.csv", "--protect", "age=9", *FAST, cwd=folder)
    assert done.code == 0, done.err
    return folder


# init


def test_init_drafts_names_and_types_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(PEOPLE)
    done = discreet("init", "people.csv", cwd=tmp_path)
    assert done.code == 0, done.err
    text = (tmp_path / "people.schema.yaml").read_text()
    assert re.findall(r"name: (\w+)\n +type: (\w+)", text) == [
        ("person", "string"),
        ("age", "integer"),
        ("hours", "integer"),
        ("sex", "string"),
    ]
    assert "89" not in text  # the largest age in the rows
    assert discreet("init", "people.csv", cwd=tmp_path).code == 1
    assert discreet("init", "people.csv", "--replace", cwd=tmp_path).code == 0


@pytest.mark.parametrize(
    "first",
    ["34,SECRETNAME,77123", "SECRETNAME,1984-03-02,a", "'x';-1,5;y", "SECRETNAME\t12.03.1984\tb"],
)
def test_init_takes_no_row_for_a_header_and_shows_none(tmp_path: Path, first: str) -> None:
    (tmp_path / "people.csv").write_text(f"{first}\n{first}\n")
    done = discreet("init", "people.csv", cwd=tmp_path)
    assert done.code == 1
    assert "Pass --header if it holds names, --no-header if it holds a row." in done.err
    cells = [cell for cell in re.split(r"[,;\t]", first) if len(cell) > 2]
    assert not [cell for cell in cells if cell in done.out + done.err]
    assert not (tmp_path / "people.schema.yaml").exists()
    # Who knows that they are names says so; a line of names before them needs no word.
    assert discreet("init", "people.csv", "--header", cwd=tmp_path).code == 0
    sign = next(sign for sign in "\t;," if sign in first)
    (tmp_path / "named.csv").write_text(f"age{sign}year 2{sign}c3\n{first}\n")
    assert discreet("init", "named.csv", cwd=tmp_path).code == 0


@pytest.mark.parametrize("options", [(), ("--no-header",)])
def test_init_numbers_the_columns_of_a_file_without_names(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "people.csv").write_text("34,51\n77,SECRETNAME\n")
    assert discreet("init", "people.csv", *options, cwd=tmp_path).code == 0
    text = (tmp_path / "people.schema.yaml").read_text()
    assert "header: false" in text
    assert re.findall(r"name: (\w+)", text) == ["column_1", "column_2"]
    assert "SECRETNAME" not in text


def test_no_message_shows_a_row_that_is_read_as_names(tmp_path: Path) -> None:
    (tmp_path / "people.schema.yaml").write_text(DECLARED)
    for rows in ("34,SECRETNAME,77123\n51,x,y\n", "SECRETNAME,b,SECRETNAME\n51,x,y\n"):
        (tmp_path / "people.csv").write_text(rows)
        done = discreet("query", "people.csv", "count(*)", "--epsilon", "1", "--no-ledger", cwd=tmp_path)
        assert done.code in (1, 2)
        assert "add a line of" in done.err
        assert "SECRETNAME" not in done.out + done.err
        assert "77123" not in done.out + done.err


def test_init_tells_programs_where_to_fill_in(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(PEOPLE)
    found = json.loads(discreet("init", "people.csv", "--out", "p.yaml", "--json", cwd=tmp_path).out)
    lines = (tmp_path / "p.yaml").read_text().splitlines()
    assert found["lines_to_fill"]
    assert all("???" in lines[number - 1] for number in found["lines_to_fill"])
    assert discreet("init", "no.csv", cwd=tmp_path).code == 1
    assert discreet("init", "people.csv", "--out", "no/p.yaml", cwd=tmp_path).code == 1


def test_a_draft_that_was_filled_in_can_be_released(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(PEOPLE)
    discreet("init", "people.csv", cwd=tmp_path)
    text = (tmp_path / "people.schema.yaml").read_text()
    text = text.replace("dataset: ???", "dataset: survey").replace("minimum: ???", "minimum: 0")
    text = text.replace("maximum: ???", "maximum: 120").replace("bounds_source: ???", "bounds_source: law")
    text = text.replace("proposals: ???", "proposals: confirmed")
    text = text.replace("constraints:\n      enum: ???", "privacy:\n      role: drop", 1)
    text = text.replace("enum: ???", "enum: [f, m]")
    (tmp_path / "people.schema.yaml").write_text(text)
    assert Schema.load(tmp_path / "people.schema.yaml").dataset == "survey"
    done = discreet("release", "people.csv", "--protect", "age=9", "--dry-run", *FAST, cwd=tmp_path)
    assert done.code == 0, done.err


# plan


def test_a_plan_reads_no_cell_and_writes_nothing(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a cell was read")

    monkeypatch.setattr(Table, "_read_pieces", refuse)
    before = sorted(made.iterdir())
    levels = ("plan", "people.csv", "--method", "gaussian", "--protect", "age=9")
    done = discreet(*levels, cwd=made)
    assert done.code == 0, done.err
    assert "<- chosen" in done.out
    assert "Recommended" not in done.out, "only the comparison of all ways recommends one"
    assert re.search(r"^noise +age +hours +sex +epsilon +lambda *$", done.out, re.MULTILINE)
    assert re.search(r"^x 1 +[\d.]+ / 9 ", done.out, re.MULTILINE)
    assert sorted(made.iterdir()) == before
    found = json.loads(discreet(*levels, "--json", cwd=made).out)
    factors = [position["factor"] for position in found["positions"]]
    assert factors == sorted(factors)
    assert 1.0 in factors


def test_a_plan_without_a_method_shows_the_ways_and_recommends_one(tmp_path: Path) -> None:
    # There is no table: with --rows it is not even opened.
    (tmp_path / "people.schema.yaml").write_text(DECLARED)
    done = discreet("plan", "people.csv", "--rows", "3000", "--protect", "age=9", cwd=tmp_path)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    table = lines[2:9]
    assert [line.split("  ")[0] for line in table] == ["way", *TITLES.values()]
    assert all(len(line.rstrip()) <= 80 for line in table)
    assert "\nmodel: R2 on unseen rows, at most 1. tables:" in done.out  # no class is declared
    assert re.search(r"^rows with noise +error floors, local", done.out, re.MULTILINE)
    assert re.search(r"^ - a model: A model predicts a target, and none is declared", done.out, re.MULTILINE)
    assert "made-up rows, not yours" in done.out
    assert re.search(r"^Recommended: .*because", done.out, re.MULTILINE)
    asked = ("--epsilon", "2", "--delta", "1e-5", "--task", "means", "--rows", "3000", "--json")
    found = json.loads(discreet("plan", "people.csv", *asked, cwd=tmp_path).out)
    assert [way["name"] for way in found["ways"]] == list(TITLES)
    assert found["recommended"]["way"] == "questions"
    assert found["recommended"]["command"] == "discreet query people.csv --epsilon 2 --delta 1e-5"
    assert found["promise"]["delta"] == 1e-5


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("--method", "gaussian"), "--protect age=7"),
        (("--scale", "3"), "--scale is an option of a method"),
    ],
)
def test_a_plan_of_nothing_says_how_to_ask(words: tuple[str, ...], match: str, made: Path) -> None:
    done = discreet("plan", "people.csv", *words, cwd=made)
    assert done.code == 1
    assert match in done.err


# audit, report, verify


def test_an_audit_of_a_folder_attacks_what_anybody_sees(made: Path) -> None:
    found = json.loads(discreet("audit", "release", "--json", cwd=made).out)
    assert {guess["on"] for guess in found["guesses"]} == {"file"}
    statement = json.loads((made / "release" / "public" / "statement.json").read_text())
    assert [guess | {"seconds": 0.0} for guess in found["guesses"]] == statement["attacks"]
    printed = discreet("audit", "release/public", cwd=made).out
    assert "from the published file alone" in printed
    assert "interval" not in printed  # an expectation has none


def test_an_audit_of_a_plan_charges_nothing(made: Path) -> None:
    before = sorted(made.iterdir())
    done = discreet(
        "audit", "people.csv", "--method", "gaussian", "--epsilon", "4", "--delta", "1e-6", *FAST, cwd=made
    )
    assert done.code == 0, done.err
    assert "distinguish" in done.out
    assert sorted(made.iterdir()) == before


def test_a_report_is_drawn_again_without_the_rows(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "release", tmp_path / "release")
    page = tmp_path / "release" / "internal" / "report.html"
    before = page.read_bytes()
    page.unlink()
    assert discreet("report", "release", cwd=tmp_path).code == 0
    assert page.read_bytes() == before
    assert discreet("report", "release", "--out", "again.html", cwd=tmp_path).code == 0
    (tmp_path / "release" / "internal" / "attacks.json").write_text("{}")
    (tmp_path / "release" / "internal" / "attacks.json").write_text('{"kind": "something else"}')
    done = discreet("report", "release", cwd=tmp_path)
    assert done.code == 1
    assert "must be the findings" in done.err


def test_verify_passes_what_is_whole_and_fails_what_was_changed(made: Path, tmp_path: Path) -> None:
    done = discreet("verify", "release/public", cwd=made)
    assert done.code == 0, done.out
    assert "nothing failed" in done.out
    assert "not checkable" in done.out
    shutil.copytree(made / "release" / "public", tmp_path / "public")
    page = tmp_path / "public" / "datapackage.json"
    page.write_text(page.read_text().replace("age", "edad"))
    done = discreet("verify", "public", "--json", cwd=tmp_path)
    assert done.code == 1
    found = json.loads(done.out)
    assert not found["ok"]
    assert any(
        "datapackage.json" in check["detail"] for check in found["checks"] if check["verdict"] == "failed"
    )
    assert discreet("verify", "no-such-folder", cwd=tmp_path).code == 1


def test_verify_starts_no_spark_for_a_folder_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str | None] = []
    monkeypatch.setattr("discreet.tables.spark.open_session", opened.append)
    done = discreet("verify", "no-such-folder", "--spark", cwd=tmp_path)
    assert done.code == 1
    assert "must be a folder" in done.err
    assert not opened


# ledger


def test_a_ledger_is_shown_checked_and_exported(made: Path, tmp_path: Path) -> None:
    shown = discreet("ledger", "show", "survey-2024.ledger", cwd=made)
    assert shown.code == 0, shown.err
    assert "gaussian release of survey-2024" in shown.out
    found = json.loads(discreet("ledger", "show", "survey-2024.ledger", "--json", cwd=made).out)
    (charge,) = found["charges"]
    receipt = "release/public/statement.json"
    checked = discreet("ledger", "check", "survey-2024.ledger", "--receipt", receipt, cwd=made)
    assert checked.code == 0, checked.err
    exported = discreet("ledger", "export", "survey-2024.ledger", cwd=made)
    assert json.loads(exported.out) == charge
    out = tmp_path / "charges.jsonl"
    assert discreet("ledger", "export", "survey-2024.ledger", "--out", str(out), cwd=made).code == 0
    assert json.loads(out.read_text()) == charge
    assert discreet("ledger", "export", "survey-2024.ledger", "--out", str(out), cwd=made).code == 1
    assert check_log(made / "survey-2024.audit.jsonl") > 0


def test_asking_about_a_ledger_that_is_not_there_makes_none(tmp_path: Path) -> None:
    for command in ("show", "check", "export"):
        done = discreet("ledger", command, "no.ledger", cwd=tmp_path)
        assert done.code == 1
        assert "no ledger" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_is_made_with_a_limit_once(tmp_path: Path) -> None:
    assert discreet("ledger", "create", "a.ledger", cwd=tmp_path).code == 1
    done = discreet("ledger", "create", "a.ledger", "--epsilon", "3", "--delta", "1e-6", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "epsilon = 3" in done.out
    assert discreet("ledger", "create", "a.ledger", "--rho", "1", cwd=tmp_path).code == 1
    left = json.loads(discreet("ledger", "show", "a.ledger", "--json", cwd=tmp_path).out)["remaining"]
    assert left


def test_a_receipt_of_another_ledger_is_refused(made: Path, tmp_path: Path) -> None:
    discreet("ledger", "create", "a.ledger", "--epsilon", "3", cwd=tmp_path)
    receipt = str(made / "release" / "public" / "statement.json")
    assert discreet("ledger", "check", "a.ledger", "--receipt", receipt, cwd=tmp_path).code == 1
    (tmp_path / "not.json").write_text("nothing")
    assert discreet("ledger", "check", "a.ledger", "--receipt", "not.json", cwd=tmp_path).code == 1


# help, completion, documentation


def test_help_lists_every_command_and_the_exit_codes(tmp_path: Path) -> None:
    done = discreet("--help", cwd=tmp_path)
    assert done.code == 0
    for word in ("init", "plan", "release", "audit", "report", "verify", "ledger", "demo", "Exit codes"):
        assert word in done.out


@pytest.mark.parametrize("command", ["release", "plan", "audit"])
def test_help_lists_every_method_of_the_registry(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "later", METHODS["gaussian"])
    done = discreet(command, "--help", cwd=tmp_path)
    assert done.code == 0
    for name in METHODS:
        assert re.search(rf"^  {name} ", done.out, re.MULTILINE), name


@pytest.mark.slow
def test_the_shell_completes_commands_and_methods(tmp_path: Path) -> None:
    code = "import sys; sys.argv[0] = 'discreet'; from discreet.cli import main; main()"
    for typed, expected in (("discreet rel", "release"), ("discreet release t.csv --method gau", "gaussian")):
        words = {"_DISCREET_COMPLETE": "complete_bash", "COMP_WORDS": typed}
        words["COMP_CWORD"] = str(typed.count(" "))
        done = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | words, capture_output=True, text=True, cwd=tmp_path
        )
        assert done.stdout.split() == [expected], done.stderr


def test_version_is_that_of_the_package(tmp_path: Path) -> None:
    done = discreet("--version", cwd=tmp_path)
    assert (done.code, done.out, done.err) == (0, f"discreet {metadata.version('discreet')}\n", "")
    assert "--version" in discreet("--help", cwd=tmp_path).out


def test_the_reference_page_is_what_the_program_says() -> None:
    assert CLI_PAGE.read_text() == cli_page(), "run: python docs/generate_reference.py"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="NOT CHECKED: there is no /dev/full here")
def test_a_full_disk_under_the_output_is_said_and_fails(made: Path) -> None:
    shows = [sys.executable, "-c", "from discreet.cli.main import run; run()", "ledger", "show"]
    (ledger,) = made.glob("*.ledger")
    whole = subprocess.run([*shows, str(ledger)], capture_output=True, text=True)
    assert whole.returncode == 0
    assert "gaussian" in whole.stdout
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*shows, str(ledger)], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("discreet: There is no space left to write to.")
    # The process ends at once, and still flushes what waits in a pipe.
    assert subprocess.run([*shows, str(ledger)], stdout=subprocess.PIPE).stdout.decode() == whole.stdout
