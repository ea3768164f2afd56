"""``discreet release`` and ``discreet demo``: what is printed, and how each ending is told."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from discreet import GaussianRelease, Ledger, Schema
from discreet.cli.main import _report_error
from discreet.cli.options import command_line
from discreet.ledger.log_verification import check_log
from discreet.release import METHODS
from discreet.release.gaussian import GaussianNumbers
from discreet.report.verify import verify
from discreet.tables import Table, open_table
from tests.cli.run import discreet

if TYPE_CHECKING:
    from pathlib import Path

    from discreet.release.table import TablePlan

PEOPLE = "person,age,hours,sex\n" + "".join(
    f"p{i},{17 + 7 * i % 73},{13 * i % 100},{'fm'[i % 2]}\n" for i in range(60)
)
DECLARED = """\
privacy: {dataset: survey-2024}
fields:
  - {name: person, type: string, privacy: {role: drop}}
  - {name: age, type: integer, constraints: {minimum: 17, maximum: 90}, privacy: {measure: years}}
  - {name: hours, type: number, constraints: {minimum: 0, maximum: 100}, privacy: {measure: hours}}
  - {name: sex, type: string, constraints: {enum: [f, m]}, privacy: {closed: true}}
"""
FAST = ("--attack-records", "200")


@pytest.fixture
def survey(tmp_path: Path) -> Path:
    """A folder with a table and its declaration."""
    (tmp_path / "people.csv").write_text(PEOPLE)
    (tmp_path / "people.schema.yaml").write_text(DECLARED)
    return tmp_path


def release(cwd: Path, *more: str, **environment: str) -> Any:
    return discreet("release", "people.csv", "--protect", "age=9", *FAST, *more, cwd=cwd, **environment)


def test_a_release_prints_its_stages_the_table_and_what_is_promised_and_what_not(survey: Path) -> None:
    done = release(survey)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    stages = [re.split(r"\s+", line.strip())[0] for line in lines if re.search(r"\d\.\d s$", line)]
    assert stages == ["read", "check", "plan", "test", "risk", "release", "learn", "attack", "write"]
    assert max(map(len, lines)) <= 80
    assert len(lines) < 45
    head = next(line for line in lines if line.startswith("column"))
    assert re.split(r"\s{2,}", head.strip()) == ["column", "best attack", "without the row", "floor"]
    assert re.search(r"^age .* ± 9 years *$", done.out, re.MULTILINE)
    assert "Method: gaussian, the default for error floors." in done.out
    assert "Without a request of their own: 2 columns" in done.out
    assert done.out.index("Promise: ") < done.out.index("What is not protected: ")
    assert "Publish only release/public; to check it: discreet verify release/public" in done.out
    assert (survey / "survey-2024.ledger").exists()
    assert verify(survey / "release").ok
    with open_table(survey / "release" / "public" / "data.parquet") as table:
        assert table.names == ("age", "hours", "sex")


def test_json_is_one_object_and_nothing_else(survey: Path) -> None:
    done = release(survey, "--json", "--method", "gaussian", "--epsilon", "4", "--delta", "1e-6")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert [column["column"] for column in found["columns"]] == ["age", "hours", "sex"]
    assert found["epsilon"] <= 4
    assert any("Split of epsilon 4" in note for note in found["notes"])
    done = release(survey, "--json")
    assert done.code == 1
    assert json.loads(done.out)["error"]["exit"] == 1
    assert "exists already" in done.err


def test_a_table_without_a_declaration_gets_a_draft_and_exit_code_two(survey: Path) -> None:
    (survey / "people.schema.yaml").unlink()
    done = release(survey)
    assert done.code == 2
    assert "people.schema.yaml" in done.err
    draft = (survey / "people.schema.yaml").read_text()
    open_lines = [str(n) for n, line in enumerate(draft.splitlines(), 1) if "???" in line.split("#")[0]]
    assert f"(lines {', '.join(open_lines)})" in done.err
    again = release(survey)
    assert again.code == 2
    assert "is not complete" in again.err
    assert "minimum is still ???. Write constraints: {minimum: <smallest possible>}" in again.err
    assert not (survey / "release").exists()
    assert not list(survey.glob("*.ledger"))


def test_a_wrong_declaration_is_exit_code_two_with_the_line_to_write(survey: Path) -> None:
    (survey / "people.schema.yaml").write_text(DECLARED.replace("maximum: 90", "maximum: 9"))
    done = release(survey)
    assert done.code == 2
    assert "'age'" in done.err
    assert "Write" in done.err


def test_a_declaration_that_was_named_and_is_not_there_is_not_drafted(survey: Path) -> None:
    done = release(survey, "--schema", "other.yaml")
    assert done.code == 2
    assert not (survey / "other.yaml").exists()


def test_a_budget_that_does_not_allow_it_is_exit_code_four(survey: Path) -> None:
    made = discreet("ledger", "create", "small.ledger", "--epsilon", "1", cwd=survey)
    assert made.code == 0, made.err
    done = discreet(
        "release", "people.csv", "--method", "laplace", "--epsilon", "2", "--ledger", "small.ledger", *FAST,
        cwd=survey,
    )  # fmt: skip
    assert done.code == 4
    assert not (survey / "release").exists()
    with Ledger.open(survey / "small.ledger") as ledger:
        assert ledger.history() == []
    check_log(survey / "small.audit.jsonl")


class HalfTheNoise(GaussianRelease):
    """A wrong twin: promises what it should, and draws half of the noise."""

    name = "half"

    def scaled_plan(self, schema: Schema, n_rows: int, factor: float) -> TablePlan:
        plan = super().scaled_plan(schema, n_rows, factor)
        assert isinstance(plan.numbers, GaussianNumbers)
        less = GaussianNumbers(plan.numbers.columns, plan.numbers.covariance / 4)
        return dataclasses.replace(plan, numbers=less)


@pytest.mark.parametrize("command", ["release", "audit"])
def test_a_failed_self_attack_is_exit_code_three(
    command: str, survey: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "half", HalfTheNoise)
    words = (command, "people.csv", "--protect", "age=9", "--method", "half", "--attack-records", "4000")
    done = discreet(*words, cwd=survey)
    assert done.code == 3
    assert "withheld" in done.err
    assert not (survey / "release").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("release",),
        ("release", "people.csv", "--no-such-option"),
        ("relase", "people.csv"),
        ("release", "people.csv", "--epsilon", "much"),
        ("ledger", "burn"),
    ],
)
def test_wrong_usage_is_not_taken_for_a_wrong_declaration(words: tuple[str, ...], survey: Path) -> None:
    done = discreet(*words, cwd=survey)
    assert done.code == 1
    assert done.err


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("--protect", "age"), "--protect must be name=value"),
        (("--protect", "agee=9"), "Did you mean 'age'"),
        (("--support", "3"), "'support' is no option of the method gaussian"),
        (("--set", "gentleness=3"), "'gentleness' is no option"),
        (
            ("--set", "schema=other.yaml"),
            "--set must name an option of the method, was 'schema'. Give --schema",
        ),
        (("--set", "privacy=1"), "'privacy' is no option of the method gaussian"),
        (("--set", "out=1"), "'out' is no option of the method gaussian"),
        (("--scale", "3", "--set", "scale=4"), "--scale and --set scale=... exclude each other"),
        (("--clamp", "--set", "clamp=false"), "--clamp and --set clamp=... exclude each other"),
        (("--method", "gausian"), "Did you mean 'gaussian'"),
        (("--method", "gaussian", "--epsilon", "1"), "--delta"),
        (("--protect", "hours=60"), "hours"),
        (("--ledger", "x.ledger", "--no-ledger"), "exclude each other"),
        (("--keep-key", "k"), "DISCREET_PASSPHRASE"),
        (("--out", "no/release"), "Make it first"),
        (("--target", "ages"), "Did you mean 'age'"),
    ],
)
def test_other_endings_are_a_sentence_and_exit_code_one(
    words: tuple[str, ...], match: str, survey: Path
) -> None:
    done = release(survey, *words)
    assert done.code == 1
    assert match in done.err
    assert not (survey / "release").exists()


def test_an_error_that_should_not_happen_is_a_sentence_that_quotes_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyError) as raised:
        raise KeyError("Jane Doe, 44")
    assert _report_error(raised.value) == 1
    shown = capsys.readouterr().err
    assert "KeyError" in shown
    assert "DISCREET_DEBUG" in shown
    assert "Jane" not in shown
    monkeypatch.setattr(sys, "argv", ["discreet", "release", "people.csv", "--json"])
    assert _report_error(raised.value) == 1
    told = json.loads(capsys.readouterr().out)["error"]
    assert (told["kind"], told["exit"]) == ("KeyError", 1)
    assert "Jane" not in told["message"]


def test_a_dry_run_reads_no_cell_and_leaves_nothing(survey: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a cell was read")

    monkeypatch.setattr(Table, "_read_pieces", refuse)
    before = sorted(survey.iterdir())
    done = release(survey, "--dry-run")
    assert done.code == 0, done.err
    assert "on records drawn from the prior of its floor" in " ".join(done.out.split())
    assert "no cell was read" in done.out
    assert sorted(survey.iterdir()) == before
    assert release(survey).code == 1


@pytest.mark.slow
def test_a_kept_key_takes_its_passphrase_from_the_environment_and_replays(survey: Path) -> None:
    phrase = "correct horse battery staple"
    done = release(survey, "--keep-key", "release.key", DISCREET_PASSPHRASE=phrase)
    assert done.code == 0, done.err
    assert phrase not in done.out + (survey / "release" / "internal" / "audit.jsonl").read_text()
    words = ("verify", "release/public", "--key", "release.key", "--source", "people.csv")
    assert discreet(*words, cwd=survey, DISCREET_PASSPHRASE=phrase).code == 0
    assert discreet(*words, cwd=survey, DISCREET_PASSPHRASE="wrong horse battery").code == 1
    assert discreet(*words, cwd=survey).code == 1


def test_a_recipient_without_a_key_to_keep_is_refused(survey: Path) -> None:
    before = sorted(survey.iterdir())
    done = release(survey, "--recipient", "auditor.pem")
    assert done.code == 1
    assert "--recipient needs --keep-key" in done.err
    assert sorted(survey.iterdir()) == before


def test_a_password_in_the_address_of_a_table_is_not_written_down(survey: Path) -> None:
    address = "postgresql://jane:secret@localhost:1/db?table=people"
    done = discreet("release", address, "--schema", "people.schema.yaml", "--protect", "age=9", cwd=survey)
    assert done.code == 1
    assert "secret" not in done.err + (survey / "survey-2024.audit.jsonl").read_text()


def test_a_password_in_the_address_of_a_ledger_is_not_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = "postgresql://jane:secret@localhost/db#NAME", "postgresql://h/db?password=secret&table=t"
    monkeypatch.setattr(sys, "argv", ["discreet", "release", other, "--ledger", one, f"--ledger={one}"])
    assert command_line() == (
        "discreet release 'postgresql://h/db?&table=t' --ledger 'postgresql://localhost/db#NAME' "
        "'--ledger=postgresql://localhost/db#NAME'"
    )


@pytest.mark.slow
def test_a_terminated_run_removes_what_it_built(survey: Path) -> None:
    code = "import sys; sys.argv[0] = 'discreet'; from discreet.cli import main; main()"
    words = [sys.executable, "-c", code, "release", "people.csv", "--protect", "age=9"]
    with subprocess.Popen(words, cwd=survey, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    assert process.returncode == 143
    deadline = time.monotonic() + 120
    while list(survey.glob(".release*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not list(survey.glob("*release*"))
    assert not list(survey.glob(".release*"))


def test_the_demo_begins_with_a_synthetic_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Only what sets the demo apart; the README's test runs it whole.
    seen: list[Any] = []

    def publish(source: str, **given: Any) -> None:
        seen.append((source, given))
        raise KeyboardInterrupt

    monkeypatch.setattr("discreet.pipeline.release.publish", publish)
    assert discreet("demo", cwd=tmp_path).code == 130
    ((source, given),) = seen
    assert (source, given["method"]) == ("demo:census", "synthetic")
    assert os.fspath(given["out"]) == os.path.join("demo-release", "synthetic")  # noqa: PTH118
