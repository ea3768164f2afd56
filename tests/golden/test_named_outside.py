"""Every name that checks from outside call exists, takes what they pass and returns what they read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import discreet
from discreet import noise, privacy
from discreet.learn import METHODS as LEARNERS
from tests.golden._entry_points import command
from tests.golden.release_cases import LINEAR, MIXED, rows

if TYPE_CHECKING:
    from pathlib import Path

X = np.column_stack([np.sin(np.arange(60.0)), np.cos(3 * np.arange(60.0))])
Y = (X[:, 0] > 0).astype(int)


def test_samplers_return_arrays_of_the_stated_type() -> None:
    assert noise.rounded_gaussian(1000, 5).dtype == np.int64
    assert noise.discrete_laplace(1000.0, 5).dtype == np.int64
    assert noise.spherical_laplace(2.0, 3, 5).shape == (5, 3)


def test_calibration_functions_invert_each_other() -> None:
    mu = privacy.gaussian_mu(1.0, 1e-6)
    assert privacy.gaussian_delta(1.0, mu) == pytest.approx(1e-6)
    assert privacy.gaussian_epsilon(mu, 1e-6) == pytest.approx(1.0)


def test_ledger_is_opened_charged_read_and_checked(tmp_path: Path) -> None:
    with discreet.Ledger.open(tmp_path / "a.ledger", limit=discreet.ZCDP(rho=1.0)) as ledger:
        ledger.charge(discreet.ZCDP(rho=0.25), owner="ana")
        assert ledger.spent().rho == pytest.approx(0.25)
        assert ledger.spent(owner="ana").rho == pytest.approx(0.25)
        ledger.check()


def test_svm_has_the_stated_attributes() -> None:
    model = discreet.RegularizedSVM(theta=1.0, rho=0.01).fit(X, Y)
    assert model.coef_.size == 2
    assert model.dual_coef_.size == len(Y)
    assert model.gap_ >= 0
    assert model.intercept_ is not None


@pytest.mark.parametrize("name", [*MIXED, *LINEAR])
def test_release_has_data_target_promises_and_receipt(name: str) -> None:
    made: Any = (MIXED | LINEAR)[name]().release(rows())
    for attribute in ("data", "target", "promises", "receipt"):
        assert hasattr(made, attribute)


def test_masked_release_has_the_model_that_it_is_masked_for() -> None:
    method = discreet.MaskedRelease(
        privacy=discreet.PureDP(epsilon=4), regularization=0.1, norm_bound=2.0, n_records=40, classes=[0, 1],
        bounds=(-1.0, 1.0), random_state=1,
    )  # fmt: skip
    made = method.release(X, Y)
    assert made.data.shape[0] == 40
    assert method.model_ is not None


def test_invariant_release_takes_a_learner_and_a_variance() -> None:
    made = discreet.InvariantRelease(
        learner="svm", variance=0.25, bounds=(-1.0, 1.0), random_state=1
    ).release(X, 2 * Y - 1)
    assert made.data.shape == X.shape


@pytest.mark.parametrize(
    "name", ["logistic", "svm", "large-margin-gaussian", "id3", "naive-bayes", "perceptron"]
)
def test_classifier_fits_predicts_scores_and_states_its_promises(name: str) -> None:
    model: Any = LEARNERS[name](
        privacy=discreet.ApproxDP(epsilon=9, delta=1e-6), bounds=(-1.0, 1.0), classes=[0, 1], random_state=1
    )
    model.fit(X, Y)
    assert model.predict(X).shape == Y.shape
    assert 0 <= model.score(X, Y) <= 1
    assert model.promises_
    assert hasattr(model, "fit_database") == (name not in ("logistic", "svm", "large-margin-gaussian"))


def test_database_sums_counts_and_makes_histograms(tmp_path: Path) -> None:
    schema = discreet.Schema(
        columns=[discreet.Column("age", lower=0, upper=120), discreet.Column("sex", values=("f", "m"))]
    )
    ledger = discreet.Ledger.open(tmp_path / "a.ledger", limit=discreet.ZCDP(rho=1.0))
    source = {"age": np.arange(100.0), "sex": np.array(["f", "m"] * 50, dtype=object)}
    cost = discreet.ZCDP(rho=0.01)
    with ledger, discreet.Database(source, schema=schema, ledger=ledger) as database:
        for result in (database.sum("age", privacy=cost), database.count("age > 40", privacy=cost)):
            assert type(result).__name__ == "QueryResult"
            assert isinstance(result.value, float)
            assert isinstance(result.sd, float)
            assert result.receipt is not None
            lower, upper = result.interval(0.9)
            assert lower < upper
        assert type(database.histogram(["sex"], privacy=cost)).__name__ == "Answer"


@pytest.mark.parametrize(
    "name",
    [
        "init",
        "plan",
        "release",
        "audit",
        "report",
        "verify",
        "learn",
        "query",
        "serve",
        "token",
        "ledger",
        "demo",
    ],
)
def test_command_exists(name: str, tmp_path: Path) -> None:
    assert command(name, "--help", cwd=tmp_path).code == 0
