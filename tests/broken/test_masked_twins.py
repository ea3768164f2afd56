"""Masked data as the paper prints them, and other ways to get them wrong: each is caught, ours is not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.audit import distinguish
from discreet.noise import Stream
from discreet.privacy import ApproxDP, NoPromise, PureDP
from discreet.release import GaussianRelease, MaskedRelease
from discreet.report.folder.folder import CLASSIFIER, read_statement, write_public
from discreet.report.verify import verify
from discreet.schema import Column, Schema
from tests.report.published import cells, hash_again, publish, rewrite

if TYPE_CHECKING:
    from pathlib import Path

    from discreet._types import AnyArray
    from discreet.privacy import Promise
    from discreet.release.masked.plan import MaskedPlan

SCHEMA = Schema(
    dataset="twins",
    columns=[
        Column("a", lower=-1, upper=1),
        Column("b", lower=-1, upper=1),
        Column("y", values=("no", "yes"), role="target"),
    ],
)
N = 12
ROWS: dict[str, AnyArray] = {
    "a": np.sin(np.arange(N)),
    "b": np.cos(3.0 * np.arange(N)),
    "y": np.array(["no", "yes", "no"] * 4),
}
OTHER_LABEL = {**ROWS, "y": np.array([*ROWS["y"][:-1], "yes"])}
OTHER_ROW = {**ROWS, "a": np.array([*ROWS["a"][:-1], -ROWS["a"][-1]])}
CLAIM = PureDP(epsilon=1)
RUNS = 240


class TrueLabels(MaskedRelease):
    """Publishes the true labels beside the points, and claims what it would claim without them."""

    def scaled_plan(self, schema: Schema, n_rows: int, factor: float) -> MaskedPlan:
        plan = super().scaled_plan(schema, n_rows, factor)
        honest = plan.promises, plan.columns
        plan.labels = replace(plan.labels, source="true")
        plan.points = replace(plan.points, n_records=None)
        plan.promises, plan.columns = honest
        return plan


def method(kind: type[MaskedRelease] = MaskedRelease, **other: Any) -> MaskedRelease:
    usual: dict[str, Any] = {
        "privacy": CLAIM,
        "regularization": 0.5,
        "fit_intercept": False,
        "n_records": N,
        "schema": SCHEMA,
    }
    return kind(**{**usual, **other})


def outputs(made: MaskedRelease) -> Any:
    """Return a mechanism for the auditor: all cells of one published table, in the order they came in."""

    def run(rows: dict[str, AnyArray], stream: Stream) -> AnyArray:
        codes = {**rows, "y": np.searchsorted(["no", "yes"], rows["y"])}
        plan = made.plan(SCHEMA, N)
        drawn = [plan.draw(codes, stream.spawn()) for _ in range(RUNS // 4)]
        return np.array([np.concatenate([columns[c] for c in ("a", "b", "y")]) for columns in drawn])

    return run


def verdict(made: MaskedRelease, a: Any, b: Any, claim: Promise = CLAIM) -> str:
    return distinguish(outputs(made), a, b, claim, n=RUNS, stream=Stream.from_seed(1)).verdict


@pytest.mark.parametrize(
    ("labels", "other"),
    [
        pytest.param("prior", OTHER_ROW, id="prior-row"),
        pytest.param("noisy_counts", OTHER_LABEL, id="noisy_counts-label"),
        pytest.param("prior", OTHER_LABEL, marks=pytest.mark.slow, id="prior-label"),
        pytest.param("noisy_counts", OTHER_ROW, marks=pytest.mark.slow, id="noisy_counts-row"),
    ],
)
def test_the_right_release_holds(labels: str, other: Any) -> None:
    assert verdict(method(labels=labels), ROWS, other) == "holds"


def test_true_labels_that_are_claimed_to_be_protected_are_caught() -> None:
    assert verdict(method(TrueLabels), ROWS, OTHER_LABEL) == "broken"
    # Said to be published, they are no part of the promise: what is left of it holds.
    honest = method(labels="true", n_records=None)
    (promise,) = honest.plan(SCHEMA, N).promises
    assert promise.covers == ("a", "b")
    assert verdict(honest, ROWS, OTHER_ROW) == "holds"


@pytest.mark.slow
def test_records_of_the_table_that_are_claimed_to_be_public_are_caught() -> None:
    def run(rows: Any, stream: Stream) -> AnyArray:
        twin = method(initial={name: values[-2:] for name, values in rows.items()})
        return np.asarray(outputs(twin)(rows, stream))

    result = distinguish(run, ROWS, OTHER_ROW, CLAIM, n=RUNS // 2, stream=Stream.from_seed(1))
    assert result.verdict == "broken"


def test_a_release_that_takes_its_initial_set_from_the_table_claims_no_privacy_for_it() -> None:
    promises = method(sensitive="yes", n_records=None).plan(SCHEMA, N).promises
    assert any(isinstance(promise, NoPromise) and promise.unit == "person" for promise in promises)
    assert all(promise.unit == "person whose y is yes" for promise in promises[:-1])


def test_a_stranger_sees_that_labels_are_not_those_of_the_public_shares(tmp_path: Path) -> None:
    made = method()
    publish(tmp_path / "honest", made, ROWS)
    publish(tmp_path / "forged", made, ROWS, written_by=method(TrueLabels))
    good, forged = (
        {check.name: check.verdict for check in verify(tmp_path / name).checks}
        for name in ("honest", "forged")
    )
    assert "failed" not in good.values()
    assert forged["moments"] == "failed"


def test_a_stranger_sees_points_outside_the_ball_and_a_wrong_number_of_them(tmp_path: Path) -> None:
    made = method()
    publish(tmp_path / "wide", made, ROWS, written_by=method(radius=5.0))
    publish(tmp_path / "more", made, ROWS, written_by=method(n_records=N + 6))
    wide, more = (
        {check.name: check.verdict for check in verify(tmp_path / name).checks} for name in ("wide", "more")
    )
    assert wide["cells"] == "failed"
    assert more["method"] == "failed"


def test_a_larger_promise_than_the_noise_keeps_is_caught_by_planning_again(tmp_path: Path) -> None:
    publish(tmp_path / "a", method(), ROWS, written_by=method(privacy=PureDP(epsilon=4)))
    found = {check.name: check.verdict for check in verify(tmp_path / "a").checks}
    assert found["numbers"] == "failed"


def forged(folder: Path, change: Any) -> dict[str, str]:
    """Change the published cells, hash everything again as a forger can, and have a stranger look."""
    made = method()
    publish(folder, made, ROWS)
    columns = cells(folder, made)
    change(columns)
    rewrite(folder, made, columns)
    hash_again(folder)
    return {check.name: check.verdict for check in verify(folder).checks}


def test_a_changed_cell_is_found_though_every_hash_was_made_again(tmp_path: Path) -> None:
    def one_cell(columns: dict[str, AnyArray]) -> None:
        columns["a"][3] -= np.copysign(1e-8, columns["a"][3])  # towards the center of the ball

    def one_label(columns: dict[str, AnyArray]) -> None:
        first, second = columns["y"].tolist().index(0), columns["y"].tolist().index(1)
        columns["y"][[first, second]] = columns["y"][[second, first]]

    untouched = forged(tmp_path / "honest", lambda columns: None)
    assert "failed" not in untouched.values()
    assert untouched["classifier"] == "passed"
    for number, change in enumerate((one_cell, one_label)):
        found = forged(tmp_path / str(number), change)
        assert found["hashes"] == "passed"
        assert [name for name, verdict in found.items() if verdict == "failed"] == ["classifier"]


def test_a_changed_or_missing_classifier_is_found(tmp_path: Path) -> None:
    def look(folder: Path) -> str:
        write_public(folder, read_statement(folder))
        return {check.name: check.verdict for check in verify(folder).checks}["classifier"]

    folder = tmp_path / "public"
    publish(folder, method(), ROWS)
    good = json.loads((folder / CLASSIFIER).read_bytes())
    (row,) = good["weights"]
    for change in (
        {"weights": [[row[0] * (1 + 1e-9), row[1]]]},
        {"weights": [[*row, 0.0]]},
        {"columns": ["b", "a"]},
        {"regularization": 0.4},
        {"kind": "another"},
        {"weights": "none"},
    ):
        (folder / CLASSIFIER).write_text(json.dumps({**good, **change}), encoding="utf-8")
        assert look(folder) == "failed"
    (folder / CLASSIFIER).unlink()
    assert look(folder) == "failed"


def test_greedy_points_are_not_called_exact_and_other_methods_have_no_classifier(tmp_path: Path) -> None:
    publish(tmp_path / "greedy", method(construction="greedy"), ROWS)
    found = {check.name: check.verdict for check in verify(tmp_path / "greedy").checks}
    assert found["classifier"] == "not checkable"
    assert "failed" not in found.values()
    noised = GaussianRelease(privacy=ApproxDP(epsilon=1, delta=1e-6), schema=SCHEMA)
    publish(tmp_path / "noised", noised, ROWS)
    assert "classifier" not in {check.name for check in verify(tmp_path / "noised").checks}
    (tmp_path / "noised" / CLASSIFIER).write_text("{}", encoding="utf-8")
    write_public(tmp_path / "noised", read_statement(tmp_path / "noised"))
    assert {check.name: check.verdict for check in verify(tmp_path / "noised").checks}[
        "classifier"
    ] == "failed"
