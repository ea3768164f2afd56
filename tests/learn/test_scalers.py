"""Scaling by declared bounds and by noisy moments: what comes out, and what it costs."""

from __future__ import annotations

import itertools
import math
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from discreet import Column, Schema
from discreet.errors import BudgetExceeded, DataError, ParameterError
from discreet.learn import PrivateScaler, PublicScaler, _scalers
from discreet.learn.budget_schedule import NoiselessSums
from discreet.ledger import Ledger
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, NoPromise, PureDP
from discreet.query import Database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MADE_UP = NoPromise("the rows are made up")
BOUNDS = ([0.0, -5.0], [100.0, 45.0])
X = np.column_stack([40 + 10 * np.sin(np.arange(5000.0)), 2.0 + 0.5 * np.cos(7 * np.arange(5000.0))])


def scaler(privacy: Any = MADE_UP, **rest: Any) -> PrivateScaler:
    return PrivateScaler(**{"privacy": privacy, "bounds": BOUNDS, "random_state": 1, **rest})


def test_without_noise_it_is_the_exact_standardization() -> None:
    fitted = scaler(limit=3.0).fit(X)
    assert fitted.center_ == pytest.approx(X.mean(axis=0), abs=2e-3)
    assert fitted.scale_ == pytest.approx(X.std(axis=0), abs=2e-3)
    expected = np.clip((X - X.mean(axis=0)) / (3 * X.std(axis=0)), -1, 1)
    assert fitted.transform(X) == pytest.approx(expected, abs=2e-3)
    assert fitted.inverse_transform(fitted.transform(X)) == pytest.approx(X, abs=1e-9)


def test_without_noise_robust_scaling_is_by_quartiles() -> None:
    rows = X.copy()
    rows[:50, 1] = 45.0
    fitted = scaler(robust=True).fit(rows)
    low, middle, high = np.quantile(rows, [0.25, 0.5, 0.75], axis=0)
    # Quartiles are middles of cells, 1024 in a range.
    assert fitted.center_ == pytest.approx(middle, abs=0.1)
    assert fitted.scale_ == pytest.approx((high - low) / 1.3489795, abs=0.1)
    assert scaler().fit(rows).scale_[1] > 5 * fitted.scale_[1]


@pytest.mark.parametrize("robust", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "privacy", [PureDP(epsilon=2.0), ApproxDP(epsilon=1.0, delta=1e-6), ZCDP(rho=0.1), GaussianDP(mu=0.5)]
)
def test_with_noise_it_is_near(privacy: Any, robust: bool) -> None:
    exact, noisy = scaler(robust=robust).fit(X), scaler(privacy, robust=robust).fit(X)
    assert noisy.center_ == pytest.approx(exact.center_, abs=3.0)
    assert noisy.scale_ == pytest.approx(exact.scale_, rel=0.5, abs=2.0)
    assert np.abs(noisy.transform(X)).max() <= 1


def test_rows_come_out_between_minus_one_and_one_whatever_goes_in() -> None:
    fitted = scaler(PureDP(epsilon=0.01)).fit(X)
    far = np.array([[1e300, -1e300], [-1e300, 1e300], [50.0, 0.0]])
    assert np.abs(fitted.transform(far)).max() <= 1
    assert np.isfinite(fitted.scale_).all()
    assert (fitted.scale_ >= np.array([100.0, 50.0]) / 1024).all()


def test_a_constant_column_and_a_single_row_are_no_trouble() -> None:
    rows = np.full((1, 2), 3.0)
    for robust in (False, True):
        fitted = scaler(GaussianDP(mu=1.0), robust=robust).fit(rows)
        assert np.isfinite(fitted.transform(rows)).all()


def test_one_question_is_one_charge_and_quartiles_are_one_promise() -> None:
    privacy = GaussianDP(mu=0.5)
    with Ledger.open(":memory:", limit=privacy) as ledger:
        fitted = scaler(privacy, ledger=ledger).fit(X)
        assert ledger.spent().charges == len(fitted.receipts_) == 1
    with Ledger.open(":memory:", limit=privacy) as ledger:
        fitted = scaler(privacy, ledger=ledger, robust=True).fit(X)
        assert ledger.spent().charges == len(fitted.receipts_) == 2 * 10
        with pytest.raises(BudgetExceeded):
            scaler(GaussianDP(mu=0.1), ledger=ledger).fit(X)
    assert fitted.promises_[0].mu == 0.5


def test_quartiles_of_later_columns_must_fit_before_the_first_is_charged() -> None:
    with Ledger.open(":memory:", limit=GaussianDP(mu=0.4)) as ledger:
        with pytest.raises(BudgetExceeded):
            scaler(GaussianDP(mu=0.5), ledger=ledger, robust=True).fit(X)
        assert ledger.spent().charges == 0


# One charge for each answer: what a scaler states is what its ledger was charged.


def forget_a_question(sums: Any, layout: Any, privacy: Any, owner: str | None) -> tuple[Any, Any, Any]:
    """Broken twin: asks for the moments of the first column once more, and states the promise of one."""
    mean, deviation, schedule = _find_moments(sums, layout, privacy, owner)
    first = type(layout).from_schema(sums.schema, layout.names[:1])
    mean[0] = (mean[0] + _find_moments(sums, first, privacy, owner)[0][0]) / 2
    return mean, deviation, schedule


def forget_columns(sums: Any, layout: Any, privacy: Any, owner: str | None) -> tuple[Any, Any, Any]:
    """Broken twin: pays the whole promise for the quartiles of each column, and states it once."""
    parts = [
        _find_quartiles(sums, type(layout).from_schema(sums.schema, [name]), privacy, owner)
        for name in layout.names
    ]
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]), parts[0][2]


_find_moments, _find_quartiles = _scalers._find_moments, _scalers._find_quartiles


def states_what_it_spends(robust: bool) -> bool:
    """Whether a scaler states at least what its ledger was charged."""
    with Ledger.open(":memory:") as ledger:
        fitted = scaler(PureDP(epsilon=1.0), ledger=ledger, robust=robust).fit(X[:50])
        return bool(fitted.promises_[0].epsilon >= ledger.spent().epsilon * (1 - 1e-9))


def test_a_scaler_that_forgets_a_charge_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert states_what_it_spends(robust=False)
    assert states_what_it_spends(robust=True)
    monkeypatch.setattr(_scalers, "_find_moments", forget_a_question)
    monkeypatch.setattr(_scalers, "_find_quartiles", forget_columns)
    assert not states_what_it_spends(robust=False)
    assert not states_what_it_spends(robust=True)


# How far one row reaches, by brute force.

GRID = (0.0, 1.0, 2.0, 3.0)


class Recorder(Database):
    """A database that records each question with the deviation of its noise."""

    asked: list[tuple[Any, Any, Any]]

    def ask(self, question: Any, **rest: Any) -> Any:
        answer = super().ask(question, **rest)
        self.asked.append((question, rest["privacy"], answer.sd))
        return answer


def questions(schema: Schema, rows: Sequence[Sequence[float]], robust: bool) -> list[tuple[Any, Any, Any]]:
    """Return what a scaler asks of a table, with what it pays and the noise it gets."""
    table = {name: np.array([row[i] for row in rows]) for i, name in enumerate(schema.names)}
    with Recorder(table, schema=schema, random_state=1) as sums:
        sums.asked = []
        PrivateScaler(privacy=GaussianDP(mu=1.0), schema=schema, robust=robust).fit_database(sums)
        return sums.asked


def exact_values(asked: Sequence[Any], schema: Schema, rows: Sequence[Sequence[float]]) -> list[Any]:
    """Return the exact answers to the same questions about another table."""
    table = {name: np.array([row[i] for row in rows]) for i, name in enumerate(schema.names)}
    with NoiselessSums(table, schema=schema, random_state=1) as sums:
        return [np.asarray(sums.ask(one, privacy=MADE_UP).value, np.float64).ravel() for one, _, _ in asked]


@pytest.mark.parametrize("robust", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_one_replaced_row_moves_all_answers_together_by_at_most_one_promise(robust: bool) -> None:
    """Brute force: the length of the change in deviations of the noise is at most mu, over all neighbors."""
    schema = Schema(columns=[Column("a", lower=0, upper=3), Column("b", lower=0, upper=3)])
    asked = questions(schema, [(1.0, 2.0), (0.0, 3.0)], robust)
    assert sum(privacy.mu**2 for _, privacy, _ in asked) <= 1.0 + 1e-12
    corners = list(itertools.product(GRID if not robust else (0.0, 1.4, 3.0), repeat=2))
    values = {row: exact_values(asked, schema, [(1.0, 2.0), row]) for row in corners}
    # A public number of rows has no noise, and no neighbor changes it.
    sds = [np.where(np.asarray(sd) > 0, sd, np.inf).ravel() for _, _, sd in asked]
    lengths = [
        math.sqrt(
            sum(
                float((((u - v) / sd) ** 2).sum()) for u, v, sd in zip(values[a], values[b], sds, strict=True)
            )
        )
        for a, b in itertools.combinations(corners, 2)
    ]
    # The noise is calibrated on a grid, which makes it a little larger than needed; no row is in the way of
    # quartiles as much as it could be at every step.
    assert (0.3 if robust else 0.95) < max(lengths) <= 1.0
    # Broken twin: noise for one column where two are asked for.
    halved = [length * math.sqrt(2) for length in lengths]
    assert robust or max(halved) > 1.0


# Declared columns, bad input, files.


def test_frames_schemas_and_databases(tmp_path: Path) -> None:
    schema = Schema(
        columns=[
            Column("age", lower=0, upper=120),
            Column("day", type="date", lower=date(2020, 1, 1), upper=date(2020, 12, 31)),
        ]
    )
    frame = pd.DataFrame({"age": [20.0, 40.0] * 50, "day": pd.to_datetime(["2020-02-01", "2020-04-01"] * 50)})
    fitted = PrivateScaler(privacy=MADE_UP, schema=schema).fit(frame)
    assert fitted.transform(frame)[:2, 0] == pytest.approx([-0.25, 0.25], abs=1e-3)
    assert fitted.get_feature_names_out().tolist() == ["age", "day"]
    fitted.save(tmp_path / "scaler")
    loaded = PrivateScaler.load(tmp_path / "scaler")
    assert np.array_equal(loaded.transform(frame), fitted.transform(frame))
    with Database(frame, schema=schema, random_state=1) as db:
        noisy = PrivateScaler(privacy=GaussianDP(mu=1.0)).fit_database(db, columns=["age"])
    assert noisy.center_.shape == (1,)


def test_bad_input() -> None:
    mixed = Schema(columns=[Column("a", lower=0, upper=1), Column("b", values=("x", "y"))])
    with pytest.raises(ParameterError, match="'b' is a category"):
        PrivateScaler(privacy=MADE_UP, schema=mixed).fit(pd.DataFrame({"a": [0.5], "b": ["x"]}))
    with pytest.raises(ParameterError, match="bounds or schema of PrivateScaler must be given"):
        PrivateScaler(privacy=PureDP(epsilon=1.0)).fit(X)
    with pytest.raises(ParameterError, match="bounds of PublicScaler"):
        PublicScaler(bounds=([0, 1, 2], [1, 2, 3])).fit(X)
    with pytest.raises(DataError, match="row 2, column 1"):
        PublicScaler(bounds=(0, 1)).fit_transform([[0.0, 1.0], [math.nan, 1.0]])
    for value in (0.5, -1, math.inf, "3", True):
        with pytest.raises(ParameterError, match="limit of PrivateScaler must be a number from 1 to 1000"):
            scaler(limit=value).fit(X)


def test_the_public_scaler_keeps_nothing_of_the_rows() -> None:
    first, second = (PublicScaler(bounds=(0, 1)).fit(rows) for rows in (X, -X[:3]))
    assert vars(first) == vars(second)


@pytest.mark.slow
@parametrize_with_checks([PublicScaler(bounds=(-9, 9)), PrivateScaler(privacy=MADE_UP)])  # type: ignore[untyped-decorator]
def test_scikit_learn_accepts_them_as_its_own(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
def test_the_noise_on_a_mean_is_the_one_that_is_stated() -> None:
    """A mean of 150 fits is within 7 deviations of the exact one, which fails falsely below 1e-11."""
    rows = X[:200]
    exact = scaler().fit(rows).center_
    fits = [scaler(GaussianDP(mu=1.0), random_state=seed).fit(rows) for seed in range(150)]
    sd = np.asarray(fits[0].answers_["moments"].sd)[1:3] / 200 * np.array([100.0, 50.0])
    error = np.mean([fit.center_ for fit in fits], axis=0) - exact
    assert (np.abs(error) < 7 * sd / math.sqrt(150) + 1e-3).all()
