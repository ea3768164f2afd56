"""People made up like public rows: the law against the rows, its file, and a risk that it changes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from discreet import Column, Schema
from discreet.audit import PublicPrior, measure_risk
from discreet.audit._made_up_people import CELLS, grid_rows
from discreet.errors import ParameterError
from discreet.noise import Stream
from discreet.pipeline.options import RunOptions
from discreet.pipeline.release import publish
from discreet.release import GaussianRelease
from discreet.report.verify import verify

SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=0, upper=99),
        Column("pay", lower=0, upper=1, required=False),
        Column("job", values=("a", "b", "c"), closed=True),
    ],
    dataset="people",
)


def public_rows(n: int = 2_000) -> dict[str, Any]:
    """Return rows of whom the old have job c and high pay; pay is missing for one in five."""
    g = Stream.from_seed(1).generator()
    age = np.floor(100 * g.uniform(size=n) ** 2)
    pay = np.clip(age / 100 + g.normal(0, 0.05, n), 0, 1)
    pay[g.uniform(size=n) < 0.2] = np.nan
    return {"age": age, "pay": pay, "job": np.where(age > 60, 2, g.integers(0, 2, n)).astype(np.int32)}


def test_people_are_like_the_public_rows() -> None:
    rows = public_rows()
    law = PublicPrior.from_rows(SCHEMA, rows, "people-2019.csv")
    place, made = law.draw(SCHEMA, 20_000, Stream.from_seed(2))
    assert law.nodes == 8
    assert made["age"].mean() == pytest.approx(rows["age"].mean(), abs=1)
    assert np.isnan(made["pay"]).mean() == pytest.approx(0.2, abs=0.03)
    shares = [np.bincount(x["job"], minlength=3) / len(x["job"]) for x in (rows, made)]
    assert shares[0] == pytest.approx(shares[1], abs=0.03)
    known = ~np.isnan(made["pay"])
    assert np.corrcoef(made["age"][known], made["pay"][known])[0, 1] > 0.85
    # The grid has the probabilities of the draws, which likelihoods rest on.
    for column in SCHEMA.columns:
        weights = law.cell_weights(column)
        assert weights.shape == (CELLS + 1, 8)
        assert weights.sum(axis=0) == pytest.approx(1)
    middle = grid_rows(SCHEMA)["job"][:CELLS]
    for z in range(8):
        expected = np.bincount(middle, law.cell_weights(SCHEMA.column("job"))[:CELLS, z], minlength=3)
        assert np.bincount(made["job"][place == z], minlength=3) / (place == z).sum() == pytest.approx(
            expected, abs=0.06
        )


def test_json_round_trip_and_refusals() -> None:
    law = PublicPrior.from_rows(SCHEMA, public_rows(), "people-2019.csv")
    written = json.loads(json.dumps(law.to_dict()))
    again = PublicPrior.from_dict(written, SCHEMA)
    assert again.to_dict() == law.to_dict()
    with pytest.raises(ParameterError, match="at least 100 rows"):
        PublicPrior.from_rows(SCHEMA, public_rows(99), "few")
    changes: tuple[dict[str, Any], ...] = ({"rows": 7}, {"columns": {}}, {"columns": 3}, {"source": None})
    for change in changes:
        with pytest.raises(ParameterError, match="public prior"):
            PublicPrior.from_dict({**written, **change}, SCHEMA)
    written["columns"]["job"]["counts"][0][0] -= 10**6
    with pytest.raises(ParameterError, match="count each of its rows once"):
        PublicPrior.from_dict(written, SCHEMA)


def test_what_public_rows_tell_is_no_gain() -> None:
    """Whoever knows that the old have job c guesses it without the table, and rare people are linked."""
    method: Any = GaussianRelease(scale={"age": 20.0, "pay": 0.2}, schema=SCHEMA)
    plan = method.plan(SCHEMA, 500)
    prior = PublicPrior.from_rows(SCHEMA, public_rows(), "people-2019.csv")
    plain, declared = (measure_risk(method, plan, 500, people=200, prior=law) for law in (None, prior))
    assert {one.prior for one in plain.attacks} <= {"independent", "correlated"}
    for one in plain.attacks:
        # The worst figure counts, so another law never lowers it.
        worst, before = declared.worst(one.attack), plain.worst(one.attack)
        assert worst is not None
        assert before is not None
        assert worst.gain >= before.gain - 1e-9
    told = [one for one in declared.attacks if one.prior == "declared"]
    assert told
    assert all("the public table people-2019.csv of 2,000 rows" in one.knowledge for one in told)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["gaussian", "synthetic"])
def test_a_declared_prior_is_published_and_verified(tmp_path: Path, method: str) -> None:
    rows = public_rows()
    sample = tmp_path / "people-2019.csv"
    lines = [
        f"{age:.0f},{'' if np.isnan(pay) else repr(float(pay))},{'abc'[job]}"
        for age, pay, job in zip(rows["age"], rows["pay"], rows["job"], strict=True)
    ]
    sample.write_text("age,pay,job\n" + "\n".join(lines) + "\n", encoding="utf-8")
    from discreet.privacy import ApproxDP

    done = publish(
        sample, schema=SCHEMA, method=method, privacy=ApproxDP(epsilon=1.0, delta=1e-6), ledger=False,
        out=tmp_path / "out",
        run=RunOptions(attack_records=2_000, public_sample=sample, accept_risk="for a test"),
    )  # fmt: skip
    assert "prior.json" in done.statement.files
    assert "prior.json" in (done.public / "README.txt").read_text(encoding="utf-8")
    assert any(one.prior == "declared" for one in done.risk.attacks)
    assert not [check for check in verify(done.public).checks if check.verdict == "failed"]
    # Another prior, with the hashes made anew, is found by measuring again.
    from discreet.report.folder.folder import digest_of, write_sums

    file, statement = done.public / "prior.json", done.public / "statement.json"
    changed = json.loads(file.read_text(encoding="utf-8"))
    job = changed["columns"]["job"]["counts"]
    changed["columns"]["job"]["counts"] = [[sum(one), 0, 0] for one in job]
    before = digest_of(file)
    file.write_text(json.dumps(changed), encoding="utf-8")
    text = statement.read_text(encoding="utf-8")
    statement.write_text(text.replace(before, digest_of(file)), encoding="utf-8")
    write_sums(done.public)
    failed = {check.name for check in verify(done.public).checks if check.verdict == "failed"}
    assert "risk" in failed
