"""A coarse release through the main job: a stranger checks it, learns from it, and spots forgeries."""

from __future__ import annotations

import datetime
import functools
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet import ApproxDP, Column, NoiseAwareClassifier, PureDP, Schema, load_release, publish, verify
from discreet.errors import ParameterError
from discreet.evaluation.learning import measure_learning
from discreet.evaluation.noise_aware import REFUSED, AwareModel, AwareRows, published_law
from discreet.evaluation.tallies import PairedSample
from discreet.noise import Stream
from discreet.pipeline import KeyEscrow, Output, RunOptions
from discreet.release import CoarseRelease, GaussianRelease
from discreet.report.folder.keys import unseal_key
from discreet.report.pages.render import statement_page
from discreet.report.verify._noise_tests import column_tests
from discreet.tables import open_table
from tests.report.reading import read_page

if TYPE_CHECKING:
    from pathlib import Path

    from discreet._types import AnyArray
    from discreet.pipeline import Published
    from discreet.report.findings import Learning

N = 12_000
SCHEMA = Schema(
    dataset="coarse-job",
    columns=[
        Column("age", type="integer", lower=17, upper=90, measure="years"),
        Column("hours", type="integer", lower=0, upper=99),
        Column("gain", lower=0, upper=50_000, required=False),
        Column("job", values=("clerk", "nurse", "pilot"), closed=True),
        Column("region", values=("north", "south"), role="public", closed=True),
        Column("income", values=("low", "high")),
    ],
    target="income",
)
PHRASE = "correct horse battery staple"

pytestmark = pytest.mark.slow


def table(n: int = N) -> dict[str, Any]:
    generator = Stream.from_seed(11).generator()
    age, hours = generator.integers(17, 91, n), generator.integers(0, 100, n)
    job = generator.integers(0, 3, n)
    rich = (age - 17) / 73 + hours / 99 + 0.4 * (job == 2) + 0.2 * generator.standard_normal(n) > 1.2
    gain = np.where(generator.random(n) < 0.2, np.nan, 50_000 * generator.random(n))
    return {
        "age": age,
        "hours": hours,
        "gain": gain,
        "job": np.array(["clerk", "nurse", "pilot"])[job],
        "region": np.array(["north", "south"])[generator.integers(0, 2, n)],
        "income": np.where(rich, "high", "low"),
    }


TABLE = table()


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Published:
    return publish(
        {name: values[:5_000] for name, values in TABLE.items()},
        schema=SCHEMA,
        method="coarse",
        privacy=PureDP(epsilon=6),
        cuts={"age": [30, 45, 60]},
        ledger=False,
        out=tmp_path_factory.mktemp("job") / "release",
        run=RunOptions(attack_records=2_000),
    )


def test_a_stranger_finds_nothing_wrong(done: Published) -> None:
    assert verify(done.public).failures == ()


def test_the_statement_says_what_a_row_shows_and_what_that_promises(done: Published) -> None:
    statement = done.statement
    assert statement.numbers.epsilon is not None
    assert 5.999 < statement.numbers.epsilon <= 6
    assert statement.numbers.delta is None
    assert {theorem.id for theorem in statement.numbers.theorems} >= {"coarse-response", "noise-aware"}
    age = statement.numbers.columns[0]
    assert age.levels == ["17 to 29", "30 to 44", "45 to 59", "60 to 90", "not published"]
    assert "any of the 4 values that it is published with" in age.sentence
    assert age.without == 0.75
    assert "which columns a row shows" in " ".join(statement.not_protected).lower()
    assert "1 of 4 columns, picked at random for each row, 3 each; income 3" in " ".join(done.notes)
    assert {row.verdict for row in done.rows} == {"holds", "public"}


def test_the_report_shows_a_model_that_knows_the_law_beside_one_that_does_not(done: Published) -> None:
    learning = done.findings.learning
    assert learning is not None
    found = {s.trained_on: s.accuracy for s in learning.scores if s.tested_on == "original"}
    assert found["majority"] is not None
    assert found["aware"] is not None
    assert found["aware"] > found["majority"] + 0.15
    page = (done.internal / "report.html").read_text(encoding="utf-8")
    assert "knowing its noise law" in page


def test_comparisons_leave_out_what_is_not_published(done: Published) -> None:
    (age,) = [c for c in done.findings.columns if c.column == "age"]
    assert age.labels == ["17 to 29", "30 to 44", "45 to 59", "60 to 90"]
    assert sum(age.release) == pytest.approx(1)
    # An epsilon of 3 keeps 87 % of the cells, so that hardly anything moves.
    assert age.distance < 0.1


@pytest.mark.slow
def test_the_three_lines_on_the_public_page_learn_from_it(done: Published) -> None:
    code = "".join(read_page(statement_page(done.statement)).one("learn").strings())
    assert len(code.strip().splitlines()) == 3
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code + "print(model.status_)"],
        cwd=done.public,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == "ok"


def test_rows_of_one_s_own_are_brought_into_the_values_of_the_release(done: Published) -> None:
    release = load_release(done.public)
    mine = {name: values[:500] for name, values in TABLE.items() if name != "income"}
    coarse = release.coarsen(mine)
    assert set(coarse) == set(mine)
    ages = TABLE["age"][:500]
    assert coarse["age"][ages < 30].tolist() == ["17 to 29"] * int((ages < 30).sum())
    assert [cell is None for cell in coarse["gain"]] == np.isnan(mine["gain"]).tolist()
    model = NoiseAwareClassifier().fit(release)
    assert np.mean(model.predict(coarse) == TABLE["income"][:500]) > 0.7


def test_an_auditor_with_the_key_replays_it_and_finds_a_changed_row(tmp_path: Path) -> None:
    few = {name: values[:600] for name, values in TABLE.items()}
    done = publish(
        few,
        schema=SCHEMA,
        method="coarse",
        privacy=PureDP(epsilon=6),
        joint=("job", "income"),
        ledger=False,
        out=tmp_path / "release",
        output=Output(escrow=KeyEscrow(tmp_path / "key", PHRASE)),
        run=RunOptions(attack_records=500),
    )
    key = unseal_key(tmp_path / "key", passphrase=PHRASE)
    assert verify(done.public, key=key, source=few).failures == ()
    # Everybody ten years older: some of those whose age is shown are in another bin.
    older = {**few, "age": np.minimum(few["age"] + 10, 90)}
    assert [check.name for check in verify(done.public, key=key, source=older).failures] == ["replay"]


@pytest.mark.parametrize("column", ["age", "job"])
def test_cells_that_were_never_randomized_do_not_pass_the_stranger_s_test(column: str) -> None:
    rows = {**TABLE, "age": np.full(N, 20), "job": np.full(N, "clerk")}
    method = CoarseRelease(privacy=PureDP(epsilon=6), schema=SCHEMA, random_state=1)
    release = method.release(rows)
    plan = method.plan(SCHEMA, N)
    (summary,) = [s for s in plan.columns if s.column == column]
    (test,) = column_tests(plan.schema.column(column), summary)
    test.update(release.columns[column])
    assert test.faults(30.0) == []
    shown = release.decoded(column) != "not published"
    (test,) = column_tests(plan.schema.column(column), summary)
    test.update(np.where(shown, 0, release.columns[column]))
    assert test.faults(30.0)
    (test,) = column_tests(plan.schema.column(column), summary)
    test.update(release.columns[column][shown])  # rows that say nothing were left out
    assert any("'not published'" in sentence for sentence in test.faults(30.0))


def encoded(rows: dict[str, Any]) -> dict[str, AnyArray]:
    with open_table(rows) as opened:
        (batch,) = opened.batches(SCHEMA)
    return dict(batch)


def measured(method: CoarseRelease | GaussianRelease, n: int) -> Learning:
    rows = encoded({name: values[:n] for name, values in TABLE.items()})
    plan = method.plan(SCHEMA, n)
    truth = plan.truth(rows)
    published = plan.draw(rows, Stream.from_seed(3))
    found = measure_learning(
        plan.schema, truth, published, plan=plan, stream=Stream.from_seed(4), seconds=0.0
    )
    assert found is not None
    return found


def test_knowing_the_law_is_worth_several_points() -> None:
    found = measured(CoarseRelease(privacy=PureDP(epsilon=6), schema=SCHEMA), N)
    worth = {s.trained_on: s.accuracy or 0.0 for s in found.scores if s.tested_on == "original"}
    assert worth["original"] - worth["aware"] < 0.03 < worth["aware"] - worth["release"]


def test_the_model_that_knows_the_law_learns_from_everybody_whom_it_is_not_tested_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 3_000
    monkeypatch.setattr("discreet.pipeline.release.PairedSample", functools.partial(PairedSample, rows=1_000))
    done = publish(
        {name: values[:n] for name, values in TABLE.items()},
        schema=SCHEMA,
        method="coarse",
        privacy=PureDP(epsilon=6),
        ledger=False,
        out=tmp_path / "release",
        run=RunOptions(attack_records=2_000),
    )
    learning = done.findings.learning
    assert learning is not None
    rows = {s.trained_on: s.train_rows for s in learning.scores if s.tested_on == "original"}
    assert (learning.train_rows, learning.test_rows) == (700, 300)
    assert rows == {"original": 700, "release": 700, "majority": 700, "aware": n - 300}
    page = (done.internal / "report.html").read_text(encoding="utf-8")
    assert "Training rows" in page
    assert f"{n - 300:,}" in page


def test_sums_of_a_release_as_it_passes_by_are_those_of_its_file(tmp_path: Path) -> None:
    few = {name: values[:3_000] for name, values in TABLE.items()}
    rows = {**few, "born": np.repeat(np.datetime64("2001-02-03"), 3_000), "gain": few["gain"]}
    day = Column("born", lower=datetime.date(2000, 1, 1), upper=datetime.date(2009, 12, 31), role="public")
    schema = Schema(columns=[*SCHEMA.columns, day], target="income")
    for method in (
        CoarseRelease(privacy=PureDP(epsilon=8), schema=schema, random_state=1),
        GaussianRelease(privacy=ApproxDP(epsilon=40, delta=1e-6), schema=schema, random_state=1),
    ):
        plan = method.plan(schema, 3_000)
        seen = AwareRows(plan, 3_000, Stream.from_seed(1))
        path = tmp_path / f"{method.name}.parquet"

        def watch(truth: Any, published: Any, seen: AwareRows = seen) -> None:
            seen.see(published)

        method.publish(rows, path, shuffle=False, watch=watch)
        model = seen.fit()
        assert isinstance(model, AwareModel)
        assert seen.n_rows == 3_000
        read = NoiseAwareClassifier(published_law(plan)).fit(path)
        np.testing.assert_allclose(model.estimator.coef_, read.coef_, rtol=1e-9)


def test_of_a_very_long_and_wide_table_some_rows_are_left_out_at_random(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = CoarseRelease(privacy=PureDP(epsilon=6), schema=SCHEMA).plan(SCHEMA, N)
    published = plan.draw(encoded(TABLE), Stream.from_seed(3))
    seen = AwareRows(plan, N, Stream.from_seed(4))
    assert seen._gathering is not None
    monkeypatch.setattr("discreet.evaluation.noise_aware.MOST_PRODUCTS", seen._gathering.work * N / 4)
    some = AwareRows(plan, N, Stream.from_seed(4))
    for rows in (seen, some):
        rows.see(published)
    assert seen.n_rows == N
    assert abs(some.n_rows - N / 4) < 5 * (N * 3 / 16) ** 0.5


def test_a_failure_of_the_learner_does_not_stop_a_release_that_is_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("discreet.learn.noise_aware._moments.MomentSums.add", fail)
    few = {name: values[:300] for name, values in TABLE.items()}
    done = publish(
        few,
        schema=SCHEMA,
        method="coarse",
        privacy=PureDP(epsilon=6),
        ledger=False,
        out=tmp_path / "release",
        run=RunOptions(attack_records=1_000),
    )
    assert verify(done.public).failures == ()
    learned = next(s.said for s in done.findings.stages if s.name == "learn")
    assert "without what a learner gets from it, which failed (ZeroDivisionError" in learned


def test_a_learner_that_refuses_says_so_and_has_no_score() -> None:
    found = measured(CoarseRelease(privacy=PureDP(epsilon=0.2), schema=SCHEMA), 400)
    assert REFUSED in found.note
    assert "aware" not in {s.trained_on for s in found.scores}


def test_a_law_that_cannot_be_corrected_for_has_no_second_model() -> None:
    found = measured(GaussianRelease(privacy=None, scale=5.0, clamp=True, schema=SCHEMA), 400)
    assert {s.trained_on for s in found.scores} == {"original", "release", "majority"}


def test_a_masked_release_has_no_rows_to_coarsen(tmp_path: Path) -> None:
    few = {name: values[:300] for name, values in TABLE.items()}
    done = publish(
        few,
        schema=SCHEMA,
        method="masked",
        privacy=PureDP(epsilon=4),
        regularization=0.1,
        ledger=False,
        out=tmp_path / "release",
    )
    with pytest.raises(ParameterError, match=r"rows of PublishedTable\.coarsen"):
        load_release(done.public).coarsen(few)
    assert json.loads((done.public / "statement.json").read_text())["what"]["method"]["name"] == "masked"
