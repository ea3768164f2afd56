"""The main job: what is charged when, what is written where, and what happens when it is stopped."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import signal
import stat
import subprocess
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from discreet import ApproxDP, Column, ErrorFloor, GaussianRelease, Ledger, PureDP, Schema
from discreet.errors import (
    BudgetExceeded,
    DataError,
    ParameterError,
    PromiseError,
    SchemaError,
    SelfAttackFailed,
    SourceError,
)
from discreet.ledger.log_verification import check_log
from discreet.noise import Stream
from discreet.pipeline import _release_stages, publish
from discreet.pipeline._output import ReleaseKey
from discreet.pipeline.options import KeyEscrow, Output, RunOptions, Signing
from discreet.pipeline.plan import dry_run, plan_noise_levels
from discreet.pipeline.plan_basis import PlanBasis
from discreet.pipeline.published_folder import rebuild_report
from discreet.privacy import receipt
from discreet.query.unit_rows import ledger_salt
from discreet.release import METHODS
from discreet.release.gaussian import GaussianNumbers
from discreet.report.folder.folder import derived
from discreet.report.folder.keys import unseal_key
from discreet.report.statement.build import build_statement
from discreet.report.statement.documents import Statement
from discreet.report.verify import verify
from discreet.tables import Table, open_table
from tests.pipeline.tables import SCHEMA, people

if TYPE_CHECKING:
    from pathlib import Path

    from discreet.pipeline import Published
    from discreet.release.table import TablePlan
    from discreet.report.findings import Stage

STAGES = ["read", "check", "plan", "test", "risk", "release", "learn", "attack", "write"]
PUBLIC = ["README.txt", "SHA256SUMS", "croissant.json", "data.parquet", "datapackage.json", "readable.csv"]
PUBLIC += ["statement.html", "statement.json"]
REPLACE = Output(replace=True)
RUN = RunOptions(attack_records=200)


def released(folder: Path, **changes: Any) -> Published:
    given: dict[str, Any] = {
        "schema": SCHEMA,
        "out": folder / "release",
        "protect": {"age": 9},
        "ledger": folder / "survey.ledger",
        "run": RUN,
        **changes,
    }
    return publish(given.pop("source", people()), **given)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """One release that several tests look at and none changes."""
    return released(tmp_path_factory.mktemp("done"), output=Output(about={"curator": "the office"}))


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_both_folders_hold_what_they_should_and_nothing_else(done: Published) -> None:
    assert sorted(path.name for path in done.public.iterdir()) == PUBLIC
    assert sorted(path.name for path in done.internal.iterdir()) == [
        "attacks.json",
        "audit.jsonl",
        "report.html",
    ]
    assert sorted(path.name for path in done.folder.parent.iterdir()) == [
        "release",
        "survey.audit.jsonl",
        "survey.ledger",
    ]
    with open_table(done.public / "data.parquet") as table:
        assert table.count() == 60
    assert Statement.from_json((done.public / "statement.json").read_bytes()) == done.statement
    assert done.statement.what.curator == "the office"


def test_internal_files_are_for_the_curator_alone(done: Published, tmp_path: Path) -> None:
    again = rebuild_report(done.folder, tmp_path / "report.html")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (*done.internal.iterdir(), again)}
    assert modes == {0o600}


def test_a_stranger_can_check_it(done: Published) -> None:
    found = verify(done.folder)
    assert found.ok, str(found)


def test_the_stages_are_said_in_order_and_logged(tmp_path: Path) -> None:
    said: list[Stage] = []
    shares: list[tuple[str, float]] = []
    released(
        tmp_path,
        run=dataclasses.replace(RUN, on_stage=said.append, on_progress=lambda *one: shares.append(one)),
    )
    assert [stage.name for stage in said] == STAGES
    assert [name for name, share in shares if share == 0] == STAGES
    assert all(0 <= share <= 1 for _, share in shares)
    log = events(tmp_path / "survey.audit.jsonl")
    assert [line["name"] for line in log if line["event"] == "stage"] == STAGES


def test_the_log_says_who_what_from_which_declaration_and_at_what_price(done: Published) -> None:
    log = events(done.internal / "audit.jsonl")
    assert check_log(done.internal / "audit.jsonl") == len(log)
    names = [line["event"] for line in log]
    assert names[0] == "begin"
    assert names.index("promise") < names.index("charged") < names.index("published")
    assert log[0]["schema"] == SCHEMA.digest
    assert log[0]["method"]["name"] == "gaussian"
    charged = log[names.index("charged")]
    assert charged["receipt"] == done.receipt.to_dict()
    assert charged["commitment"] == done.statement.implementation.key_commitment


def test_the_table_names_every_published_column_once(done: Published) -> None:
    assert [row.column for row in done.rows] == ["age", "hours", "sex", "city"]
    age, hours, sex, city = done.rows
    assert age.floor is not None
    assert age.floor >= 9
    assert (age.unit, age.verdict) == ("years", "holds")
    assert (hours.unit, hours.verdict) == ("hours", "holds")
    assert (sex.unit, sex.verdict) == ("of guesses", "holds")
    assert (city.floor, city.verdict) == (None, "public")


def test_what_was_decided_without_being_asked_is_said(done: Published, tmp_path: Path) -> None:
    assert any("gaussian, the default for error floors" in note for note in done.notes)
    assert any("Without a request of their own: 2 columns" in note for note in done.notes)
    private = released(tmp_path, protect=None, privacy=ApproxDP(epsilon=8, delta=1e-6), method="gaussian")
    (split,) = private.notes
    assert "Split of epsilon 8" in split
    assert "age, hours together" in split
    assert "sex 2" in split


def test_attacks_on_real_rows_are_internal_alone(done: Published) -> None:
    grounds = {guess["on"] for guess in done.findings.guesses}
    assert grounds == {"prior", "file", "rows"}
    assert {guess["on"] for guess in done.statement.attacks} == {"file"}
    assert done.findings.exposures
    assert "exposures" not in (done.public / "statement.json").read_text()


# What is charged, and when


def test_nothing_is_drawn_before_the_charge_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    fill = Stream.fill

    def watched(self: Stream, out: Any) -> None:
        if self.seeded:  # no stream but that of the noise is, here
            with Ledger.open(tmp_path / "survey.ledger") as other:
                seen.append(len(other.history()))
        fill(self, out)

    monkeypatch.setattr(ReleaseKey, "stream", lambda self: Stream.from_seed(1))
    monkeypatch.setattr(Stream, "fill", watched)
    released(tmp_path)
    assert seen
    assert set(seen) == {1}


def test_a_second_release_adds_up_and_both_folders_show_it(tmp_path: Path) -> None:
    first = released(tmp_path)
    second = released(tmp_path, output=REPLACE)
    assert first.statement.composition.earlier == []
    (earlier,) = second.statement.composition.earlier
    assert earlier.when == first.receipt.when
    assert "2 charges" in second.statement.composition.total
    assert second.findings.composition == second.statement.composition.total
    assert "2 charges" in (second.internal / "report.html").read_text()
    assert "2 charges" in (second.public / "statement.html").read_text()
    assert second.statement.implementation.key_commitment != first.statement.implementation.key_commitment
    assert first.statement.tuning.on_private_rows == "no"
    assert second.statement.tuning.on_private_rows == "possible"
    with Ledger.open(tmp_path / "survey.ledger") as ledger:
        ledger.check(second.receipt)


def test_a_limit_that_would_be_passed_stops_it_and_is_logged(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "survey.ledger", limit=PureDP(epsilon=3)).close()
    request: dict[str, Any] = {"privacy": PureDP(epsilon=2), "method": "laplace", "protect": None}
    released(tmp_path, **request)
    with pytest.raises(BudgetExceeded):
        released(tmp_path, output=REPLACE, **request)
    assert (tmp_path / "release" / "public" / "statement.json").exists()
    assert events(tmp_path / "survey.audit.jsonl")[-1]["kind"] == "BudgetExceeded"
    with Ledger.open(tmp_path / "survey.ledger") as ledger:
        assert len(ledger.history()) == 1


def test_nothing_is_charged_for_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "release").write_text("my shopping list")
    with pytest.raises(SourceError):
        released(tmp_path)
    assert not (tmp_path / "survey.ledger").exists()


def test_nothing_is_charged_while_a_line_of_the_log_cannot_be_read(tmp_path: Path) -> None:
    released(tmp_path)
    log = tmp_path / "survey.audit.jsonl"
    first, _, *rest = log.read_text().splitlines()
    log.write_text("\n".join([first, "{", *rest]) + "\n")
    with pytest.raises(SourceError, match="log was changed"):
        released(tmp_path, out=tmp_path / "second")
    with Ledger.open(tmp_path / "survey.ledger") as book:
        assert len(book.history()) == 1


def test_nothing_is_charged_for_a_table_with_a_bad_cell(tmp_path: Path) -> None:
    table = people()
    table["sex"] = table["sex"].copy()
    table["sex"][40] = "x"
    closed = SCHEMA.with_columns(dataclasses.replace(SCHEMA.column("sex"), closed=True))
    with pytest.raises(DataError, match=r"'sex'.*row 41") as refused:
        released(tmp_path, source=table, schema=closed)
    assert "'x'" not in str(refused.value)
    with Ledger.open(tmp_path / "survey.ledger") as ledger:
        assert ledger.history() == []
    assert events(tmp_path / "survey.audit.jsonl")[-1]["event"] == "ended"


def test_without_a_ledger_the_statement_says_that_nobody_counts(tmp_path: Path) -> None:
    done = released(tmp_path, ledger=False)
    assert not done.statement.composition.counted
    assert done.statement.tuning.on_private_rows == "possible"
    assert any("No ledger is charged" in note for note in done.notes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["release"]
    assert check_log(done.internal / "audit.jsonl") > 3


def test_the_usual_ledger_is_named_by_the_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    released(tmp_path, ledger=None)
    assert (tmp_path / "survey-2024.ledger").exists()
    nameless = dataclasses.replace(SCHEMA, dataset=None)
    with pytest.raises(SchemaError, match=r"privacy: \{dataset"):
        released(tmp_path, ledger=None, schema=nameless, output=REPLACE)


def test_whoever_compared_noise_on_private_rows_has_it_in_every_later_statement(tmp_path: Path) -> None:
    found = plan_noise_levels(
        people(),
        schema=SCHEMA,
        protect={"age": 9},
        basis=PlanBasis(on_rows=True),
        ledger=tmp_path / "survey.ledger",
    )
    assert "true rows" in found.measured_on
    assert released(tmp_path).statement.tuning.on_private_rows == "yes"


# A method that was made before


@pytest.mark.slow
def test_a_method_made_before_releases_what_its_name_and_parameters_do(tmp_path: Path) -> None:
    by_name = released(tmp_path, method="gaussian", scale=20.0, clamp=True, protect=None)
    method = GaussianRelease(scale=20.0, clamp=True, schema=SCHEMA, random_state=3)
    by_value = released(tmp_path, method=method, schema=None, protect=None, output=REPLACE)
    assert by_value.statement.what.method == by_name.statement.what.method
    assert by_value.statement.numbers.promises == by_name.statement.numbers.promises
    assert by_value.notes == by_name.notes
    assert verify(by_value.public).ok
    assert method.ledger is None
    assert method.random_state == 3
    planned = dry_run(people(), method=method, run=RunOptions(attack_records=200))
    assert [row.noise for row in planned.rows] == [row.noise for row in by_value.rows]


def test_a_method_made_before_is_charged_to_its_ledger_and_leaves_it_open(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "own.ledger") as ledger:
        method = GaussianRelease(privacy=ErrorFloor(age=9), schema=SCHEMA, ledger=ledger)
        done = released(tmp_path, method=method, ledger=None)
        assert ledger.history() == [done.receipt]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"privacy": PureDP(epsilon=1)}, "privacy must be left out"),
        ({"clamp": True}, "clamp must be left out"),
        ({"schema": dataclasses.replace(SCHEMA, dataset="other")}, "schema must be given once"),
    ],
)
def test_a_method_made_before_is_not_told_twice(changes: dict[str, Any], match: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=match):
        released(tmp_path, **{"method": GaussianRelease(scale=20.0, schema=SCHEMA), **changes})
    assert not (tmp_path / "release").exists()


def test_a_method_that_no_one_could_plan_again_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="could not plan it again"):
        released(tmp_path, method=HalfTheNoise(scale=20.0, schema=SCHEMA))


# When our own mathematics is wrong


class HalfTheNoise(GaussianRelease):
    """A wrong twin: promises what it should, and draws half of the noise."""

    name = "half"

    def scaled_plan(self, schema: Schema, n_rows: int, factor: float) -> TablePlan:
        plan = super().scaled_plan(schema, n_rows, factor)
        assert isinstance(plan.numbers, GaussianNumbers)
        less = GaussianNumbers(plan.numbers.columns, plan.numbers.covariance / 4)
        return dataclasses.replace(plan, numbers=less)


def test_a_release_that_fails_its_self_attack_is_withheld_and_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "half", HalfTheNoise)
    with pytest.raises(SelfAttackFailed, match="withheld") as failed:
        released(tmp_path, method="half", run=RunOptions(attack_records=4000))
    assert any(sentence.startswith("age") for sentence in failed.value.broken)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["survey.audit.jsonl", "survey.ledger"]
    with Ledger.open(tmp_path / "survey.ledger") as ledger:
        assert ledger.history() == []
    assert events(tmp_path / "survey.audit.jsonl")[-1]["kind"] == "SelfAttackFailed"


def test_no_attack_on_real_rows_withholds_a_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = people()
    table["age"] = table["age"] * 0 + 30  # everybody is thirty, and whoever knows that is never wrong
    done = released(tmp_path, source=table)
    on_rows = [g for g in done.findings.guesses if g["on"] == "rows" and g["column"] == "age"]
    assert min(g["error"] for g in on_rows) < 9
    assert {g["verdict"] for g in on_rows} <= {"shown"}
    assert done.rows[0].verdict == "holds"


# What leaves does not depend on anybody


def of_neighbors(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Published]:
    """Release two tables that differ in one person, under one key and one clock, with the same noise."""
    monkeypatch.setattr(ReleaseKey, "stream", lambda self: Stream.for_replay(bytes(range(32))))
    # Noise follows from the rows too: without that, the two files differ in one line alone.
    monkeypatch.setattr("discreet.release.keystream.rows_digest", lambda rows: "")
    monkeypatch.setattr(receipt, "now", lambda: "2026-01-01T00:00:00.000000+00:00")
    tables = [people(), people()]
    tables[1]["age"] = tables[1]["age"].copy()
    tables[1]["age"][7] = 90.0
    tables[1]["sex"] = tables[1]["sex"].copy()
    tables[1]["sex"][7] = "f"
    found = []
    for place, table in enumerate(tables):
        (folder / str(place)).mkdir()
        found.append(released(folder / str(place), source=table, ledger=False))
    return found


def differing(a: Any, b: Any, path: str = "") -> set[str]:
    if isinstance(a, dict) and isinstance(b, dict) and set(a) == set(b):
        return set().union(*(differing(a[key], b[key], f"{path}.{key}") for key in a)) if a else set()
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return set().union(*(differing(x, y, f"{path}[]") for x, y in zip(a, b, strict=True))) if a else set()
    return set() if a == b else {path}


FROM_THE_FILE = {
    ".files.data.parquet",
    ".files.readable.csv",
    *(f".attacks[].{name}" for name in ("error", "lower", "upper", "without", "note")),
}


def leaks(pair: list[Published]) -> set[str]:
    """Name everything in the two public folders that differs and does not follow from the released file."""
    a, b = (json.loads((done.public / "statement.json").read_bytes()) for done in pair)
    found = differing(a, b) - FROM_THE_FILE
    for done in pair:
        for name, text in derived(done.statement, done.public).items():
            if (done.public / name).read_bytes() != text.encode():
                found.add(name)
    rows = []
    for done in pair:
        with duckdb.connect() as connection:
            path = str(done.public / "data.parquet")
            rows.append(connection.execute("FROM read_parquet($1)", [path]).fetchall())
    if sum(x != y for x, y in zip(*rows, strict=True)) != 1:
        found.add("data")
    return found


@pytest.mark.parametrize(
    ("name", "stage", "lost"),
    [
        ("discreet.pipeline._release_stages.measure_learning", "learn", "what a learner gets from it"),
        ("discreet.pipeline._release_stages.attack_rows", "attack", "attacks on real rows"),
        ("discreet.pipeline._release_stages.compare_columns", "write", "comparisons of columns"),
        ("discreet.pipeline.release.write_report", "write", "the report"),
    ],
)
def test_what_fails_on_private_rows_alone_is_left_out_and_the_paid_release_is_not(
    name: str, stage: str, lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ValueError("row 7 is Jane Roe")

    monkeypatch.setattr(name, fail)
    said: list[Stage] = []
    done = released(tmp_path, run=dataclasses.replace(RUN, on_stage=said.append))
    assert verify(done.public).ok
    (words,) = (one.said for one in said if one.name == stage)
    assert f"without {lost}, which failed (ValueError in" in words
    assert "Jane" not in words


def test_no_file_tells_how_long_something_took_on_private_rows(done: Published) -> None:
    times = {path.stat().st_mtime_ns for path in (done.public, *done.public.iterdir())}
    created = datetime.fromisoformat(done.statement.what.created)
    assert times == {int(created.timestamp()) * 10**9}


def test_public_folders_of_neighbors_differ_in_the_data_and_what_is_computed_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert leaks(of_neighbors(tmp_path, monkeypatch)) == set()


def test_a_statement_that_tells_of_a_row_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ages: list[float] = []
    make_watch, build = _release_stages.make_watch, build_statement

    def spy(pairs: Any, n_rows: int, report: Any) -> Any:
        watch = make_watch(pairs, n_rows, report)

        def both(rows: Any, published: Any) -> None:
            ages.append(float(rows["age"].max()))
            watch(rows, published)

        return both

    def chatty(*args: Any, **kwargs: Any) -> Statement:
        made: Statement = build(*args, **kwargs)
        return made.model_copy(update={"assumptions": [*made.assumptions, f"Nobody is above {ages[-1]}."]})

    monkeypatch.setattr(_release_stages, "make_watch", spy)
    monkeypatch.setattr("discreet.pipeline.release.build_statement", chatty)
    assert leaks(of_neighbors(tmp_path, monkeypatch)) == {".assumptions[]"}


# Stopped, killed, out of room

KILLED = """
import json, os, signal, sys
from pathlib import Path
from discreet import Ledger
from discreet.pipeline import Output, RunOptions, publish
from tests.pipeline.tables import SCHEMA, people
import discreet.audit.risk, discreet.pipeline.release

# As in the tests themselves: `verify` measures the risk again, and compares the limits.
discreet.audit.risk.LIMITS = dict.fromkeys(discreet.audit.risk.LIMITS, 1.0)

def run(folder, stage, how):
    def progress(name, share):
        if name == stage:
            os.kill(os.getpid(), how)
    publish(people(), schema=SCHEMA, out=folder / "release", protect={"age": 9},
            ledger=folder / "survey.ledger", output=Output(replace=True),
            run=RunOptions(attack_records=200, accept_risk="The rows are made up.", on_progress=progress))

folder, seen = Path(sys.argv[1]), []
for word in sys.argv[2:]:
    stage, how = word.split(":")
    child = os.fork()
    if not child:
        try:
            run(folder, stage, getattr(signal, how))
        except KeyboardInterrupt:
            os._exit(130)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    with Ledger.open(folder / "survey.ledger") as ledger:
        charges = len(ledger.history())
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("survey"))
    seen.append([stage, how, status, charges, names])
run(folder, "no such stage", 0)
print(json.dumps(seen))
"""


@pytest.mark.slow
def test_a_stop_in_any_stage_leaves_no_release_and_a_rerun_works(tmp_path: Path) -> None:
    words = [f"{stage}:SIGKILL" for stage in STAGES]
    words += [f"{stage}:SIGINT" for stage in ("check", "release", "write")]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    charges = 0
    for stage, how, status, counted, names in json.loads(done.stdout):
        charges += STAGES.index(stage) > STAGES.index("release")
        assert counted == charges
        if how == "SIGKILL":
            assert os.WTERMSIG(status) == signal.SIGKILL
            (left,) = names  # its own folder; that of the one killed before is gone
            assert left.startswith(".release.")
        else:
            assert os.waitstatus_to_exitcode(status) == 130
            assert names == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "release",
        "survey.audit.jsonl",
        "survey.ledger",
    ]
    found = verify(tmp_path / "release")
    assert found.ok, str(found)
    check_log(tmp_path / "survey.audit.jsonl")


@pytest.mark.parametrize("room", [2_000, 30_000])
def test_a_full_disk_is_a_sentence_and_leaves_no_release(room: int, tmp_path: Path) -> None:
    Ledger.open(tmp_path / "survey.ledger").close()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        with pytest.raises(SourceError, match=r"full|larger than allowed"):
            released(tmp_path, source=people(3000), ledger=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["survey.ledger"]


# Keys and signatures


def test_a_kept_key_replays_the_release_and_a_forgotten_one_is_gone(tmp_path: Path) -> None:
    phrase = "correct horse battery staple"
    done = released(tmp_path, output=Output(escrow=KeyEscrow(tmp_path / "release.key", phrase)))
    assert stat.S_IMODE((tmp_path / "release.key").stat().st_mode) == 0o600
    key = unseal_key(tmp_path / "release.key", passphrase=phrase)
    assert Stream(key).commitment == done.statement.implementation.key_commitment
    found = verify(done.public, key=key, source=people())
    assert found.ok, str(found)
    changed = people()
    changed["age"][3] = 60.0
    assert not verify(done.public, key=key, source=changed).ok


@pytest.mark.slow
def test_a_kept_key_replays_which_rows_of_a_person_stayed(tmp_path: Path) -> None:
    phrase = "correct horse battery staple"
    schema = dataclasses.replace(
        SCHEMA, columns=[*SCHEMA.columns, Column("who", role="id")], id_column="who", max_rows_per_unit=2
    )
    rows = {**people(), "who": np.arange(60) // 4}
    escrow = KeyEscrow(tmp_path / "release.key", phrase)
    done = released(tmp_path, source=rows, schema=schema, output=Output(escrow=escrow))
    ledger = Ledger.open(tmp_path / "survey.ledger")
    assert done.statement.implementation.rows_salt == ledger_salt(ledger, schema)
    assert done.statement.what.rows_published == 30
    for path in done.public.iterdir():
        assert ledger.secret().hex().encode() not in path.read_bytes()
    key = unseal_key(tmp_path / "release.key", passphrase=phrase)
    found = verify(done.public, key=key, source=rows)
    assert found.ok, str(found)


@pytest.mark.parametrize(
    ("output", "error"),
    [
        (Output(escrow=KeyEscrow("release.key", "correct horse battery", __file__)), ParameterError),
        (Output(escrow=KeyEscrow("release.key")), ParameterError),
        (Output(escrow=KeyEscrow("release.key", "short")), ParameterError),
        (Output(escrow=KeyEscrow("no/release.key", "correct horse battery")), SourceError),
        (Output(signing=Signing("no.pem")), SourceError),
        (Output(signing=Signing(__file__)), ParameterError),
        (Output(escrow=KeyEscrow("release.key", recipient=__file__)), ParameterError),
        (Output(about={"motto": "trust us"}), ParameterError),
    ],
)
def test_what_cannot_be_kept_or_said_is_refused_before_anything_is_paid(
    output: Output, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error):
        released(tmp_path, output=output)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["release/release.key", "release/internal/release.key"])
def test_a_key_is_not_kept_in_the_folder_that_is_replaced(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match="outside of the release"):
        released(tmp_path, output=Output(replace=True, escrow=KeyEscrow(place, "correct horse battery")))
    with Ledger.open(tmp_path / "survey.ledger") as book:
        assert len(book.history()) == 1


def test_the_key_of_a_release_that_failed_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the disk broke")

    monkeypatch.setattr(ReleaseKey, "keep", _then(ReleaseKey.keep, fail))
    with pytest.raises(RuntimeError):
        released(tmp_path, output=Output(escrow=KeyEscrow(tmp_path / "release.key", "correct horse battery")))
    assert not (tmp_path / "release.key").exists()


def _then(first: Any, second: Any) -> Any:
    def both(self: Any) -> None:
        first(self)
        second()

    return both


def test_a_signature_names_the_curator(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "curator.pem").write_bytes(pem)
    done = released(tmp_path, output=Output(signing=Signing(tmp_path / "curator.pem")))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert verify(done.public, public_key=public).ok


# Before a cell is read


def test_a_rehearsal_reads_no_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a cell was read")

    monkeypatch.setattr(Table, "_read_pieces", refuse)
    done = dry_run(people(), schema=SCHEMA, protect={"age": 9}, run=RunOptions(attack_records=200))
    assert [row.column for row in done.rows] == ["age", "hours", "sex", "city"]
    assert done.sentences
    assert done.open
    with pytest.raises(AssertionError):
        publish(people(), schema=SCHEMA, protect={"age": 9}, ledger=False, out="no-such-release")


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"protect": None}, ParameterError, "needs an amount of privacy"),
        ({"protect": {"age": 30}}, PromiseError, "age"),
        ({"method": "gausian"}, ParameterError, "Did you mean 'gaussian'"),
        ({"support": 3}, ParameterError, "no option of the method gaussian"),
        ({"privacy": PureDP(epsilon=1), "method": "gaussian"}, PromiseError, "--delta"),
        ({"privacy": PureDP(epsilon=1)}, ParameterError, "--method gaussian"),
        ({"target": "ages"}, ParameterError, "Did you mean 'age'"),
        (
            {"schema": dataclasses.replace(SCHEMA, neighbors="add-remove")},
            SchemaError,
            "neighbors: replace-one",
        ),
        (
            {"schema": Schema(dataset="s", columns=[Column("weight", lower=0, upper=300)]), "protect": None},
            ParameterError,
            "--protect weight=30",
        ),
        (
            {
                "schema": Schema(dataset="s", columns=[Column("weight", lower=0, upper=300)]),
                "protect": {"weight": 9},
            },
            SchemaError,
            "must have the declared column 'weight'",
        ),
    ],
)
def test_refusals_say_what_to_change_and_leave_nothing(
    changes: dict[str, Any], error: type[Exception], match: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=match):
        released(tmp_path, **changes)
    assert not (tmp_path / "release").exists()


def test_the_report_can_be_drawn_again(done: Published, tmp_path: Path) -> None:
    place = rebuild_report(done.folder, tmp_path / "again.html")
    assert place.read_bytes() == (done.internal / "report.html").read_bytes()
    with pytest.raises(SourceError, match="must be a release"):
        rebuild_report(tmp_path)
