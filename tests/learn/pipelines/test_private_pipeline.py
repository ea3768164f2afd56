"""Pipelines that are checked beforehand and add the promises of their steps up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

from discreet.errors import BudgetExceeded, PromiseError
from discreet.learn import (
    PrivateLogisticRegression,
    PrivatePipeline,
    PrivateRidge,
    PrivateScaler,
    PublicScaler,
    check_pipeline,
    private_pipeline,
)
from discreet.learn.pipelines import private_pipeline as module
from discreet.ledger import Ledger
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, NoPromise, PureDP, Spending

if TYPE_CHECKING:
    from discreet.privacy import Promise

X = np.column_stack([10 + np.sin(np.arange(400.0)), 0.1 * np.cos(3 * np.arange(400.0))])
Y = (X[:, 0] > 10).astype(int)
HALF, ONE = PureDP(epsilon=0.5), PureDP(epsilon=1.0)
MADE_UP = NoPromise("the rows are made up")


def scaler(privacy: Any = HALF, **rest: Any) -> PrivateScaler:
    return PrivateScaler(privacy=privacy, bounds=([0, -1], [100, 1]), random_state=1, **rest)


def model(privacy: Any = ONE, **rest: Any) -> PrivateLogisticRegression:
    given = {"privacy": privacy, "bounds": (-1, 1), "classes": [0, 1], "random_state": 1, **rest}
    return PrivateLogisticRegression(**given)


class Careless(TransformerMixin, BaseEstimator):
    """A step that says nothing of what its fit does."""

    def fit(self, X: Any, y: Any = None) -> Careless:
        return self

    def transform(self, X: Any) -> Any:
        return X


class Stateless(Careless):
    """A step that says that it needs no fit."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


def test_promises_and_receipts_add_up() -> None:
    with Ledger.open(":memory:") as ledger:
        pipeline = private_pipeline(scaler(ledger=ledger), model(ledger=ledger)).fit(X, Y)
        assert isinstance(pipeline, Pipeline)
        assert [type(step).__name__ for _, step in pipeline.steps] == [
            "PrivateScaler",
            "PrivateLogisticRegression",
        ]
        # The logistic model's spherical noise is a point event: epsilons add up, and a delta is read.
        (promise,) = pipeline.promises_
        assert promise.epsilon == pytest.approx(1.5, rel=1e-9)
        assert ledger.spent().charges == len(pipeline.receipts_) == 2
        assert all(receipt.recorded for receipt in pipeline.receipts_)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (GaussianDP(mu=0.3), GaussianDP(mu=0.4), "mu=0.5"),
        (ZCDP(rho=0.5), GaussianDP(mu=1.0), "mu=1.414"),
        (PureDP(epsilon=0.25), PureDP(epsilon=0.5), "epsilon=0.75"),
        (ApproxDP(epsilon=1.0, delta=1e-6), ApproxDP(epsilon=1.0, delta=1e-6), "mu=0.3"),
        (MADE_UP, MADE_UP, "made up"),
    ],
)
def test_the_sum_of_two_scalers(first: Any, second: Any, words: str) -> None:
    again = PrivateScaler(privacy=second, bounds=(-1, 1), random_state=1)
    assert words in repr(private_pipeline(scaler(first), again).fit(X).promises_[0])


def test_kinds_that_differ_are_read_at_the_sum_of_the_deltas() -> None:
    approximate = ApproxDP(epsilon=1.0, delta=1e-6)
    pipeline = private_pipeline(scaler(approximate), model(approximate)).fit(X, Y)
    (promise,) = pipeline.promises_
    parts = [step.promises_ for _, step in pipeline.steps]
    assert isinstance(promise, ApproxDP)
    assert promise.delta <= 2e-6
    total = Spending.from_promises(parts[0]) + Spending.from_promises(parts[1])
    assert total.delta_at(promise.epsilon) <= promise.delta
    assert 1.0 < promise.epsilon <= 2.0


def added_up(pipeline: Any) -> Promise:
    promise: Promise = pipeline.promises_[0]
    return promise


class ForgetfulPipeline(PrivatePipeline):
    """Broken twin: shows the promise of its last step alone."""

    @property
    def promises_(self) -> tuple[Promise, ...]:
        last: tuple[Promise, ...] = self.steps[-1][1].promises_
        return last


@pytest.mark.parametrize("kind", [PrivatePipeline, ForgetfulPipeline])
def test_a_pipeline_that_forgets_a_charge_is_caught(kind: type[PrivatePipeline]) -> None:
    """What a pipeline states is at least what its ledger was charged."""
    with Ledger.open(":memory:") as ledger:
        second = PrivateScaler(privacy=PureDP(epsilon=0.5), bounds=(-1, 1), ledger=ledger)
        pipeline = kind([("first", scaler(ledger=ledger)), ("second", second)]).fit(X)
        stated = added_up(pipeline)
        assert isinstance(stated, PureDP)
        agrees = stated.epsilon >= ledger.spent().epsilon - 1e-12
    assert agrees == (kind is PrivatePipeline)


def test_names_can_be_given_and_copies_are_checked_again() -> None:
    pipeline = private_pipeline(("scale", scaler()), model())
    assert [name for name, _ in pipeline.steps] == ["scale", "privatelogisticregression"]
    copy = clone(pipeline)
    assert isinstance(copy, PrivatePipeline)
    copy.set_params(scale=StandardScaler())
    with pytest.raises(PromiseError, match="'scale'"):
        copy.fit(X, Y)


def test_a_pipeline_is_refused_before_its_first_step_is_charged() -> None:
    with Ledger.open(":memory:") as ledger:
        steps = [("a", scaler(ledger=ledger)), ("b", StandardScaler()), ("c", model(ledger=ledger))]
        with pytest.raises(PromiseError, match="'b'"):
            PrivatePipeline(steps).fit(X, Y)
        assert ledger.spent().charges == 0


def test_a_ledger_stops_the_second_step() -> None:
    with Ledger.open(":memory:", limit=ApproxDP(epsilon=1.2, delta=1e-6)) as ledger:
        pipeline = private_pipeline(scaler(ledger=ledger), model(ledger=ledger))
        with pytest.raises(BudgetExceeded):
            pipeline.fit(X, Y)


RIDGE = PrivateRidge(privacy=PureDP(epsilon=1.0), bounds=(-1, 1), target_bounds=(0, 1))
BROKEN: dict[str, tuple[Any, str]] = {
    "step before": (make_pipeline(StandardScaler(), model()), "'standardscaler' .StandardScaler. does"),
    "step that says nothing": (make_pipeline(Careless(), model()), "requires_fit=False"),
    "step between": (make_pipeline(scaler(), StandardScaler(), model()), "'standardscaler'"),
    "exact model after": (make_pipeline(scaler(), LogisticRegression()), "LogisticRegression"),
    "no promise before": (make_pipeline(scaler(MADE_UP), model()), "'privatescaler'"),
    "columns": (
        make_pipeline(make_column_transformer((StandardScaler(), [0])), model()),
        "'standardscaler'",
    ),
    "grid of a pipeline": (GridSearchCV(make_pipeline(StandardScaler(), model()), {}), "ledger of the"),
    "grid": (GridSearchCV(model(), {}), "ledger of the PrivateLogisticRegression in GridSearchCV"),
    "pipeline of a grid": (make_pipeline(Normalizer(), GridSearchCV(model(), {})), "ledger of the"),
    "calibrated": (CalibratedClassifierCV(model()), "must not compute from the rows without noise"),
    "vote": (VotingClassifier([("a", model()), ("b", LogisticRegression())]), "without noise"),
    "target": (TransformedTargetRegressor(RIDGE, transformer=StandardScaler()), "'transformer'"),
}
WHOLE: dict[str, Any] = {
    "learner": model(),
    "steps": make_pipeline(
        FunctionTransformer(), Stateless(), PublicScaler(bounds=(0, 1)), scaler(), model()
    ),
    "frozen": make_pipeline(FrozenEstimator(StandardScaler().fit(X)), model()),
    "words": Pipeline([("a", "passthrough"), ("b", None), ("c", model())]),
    "exact": make_pipeline(StandardScaler(), LogisticRegression()),
    "no promise": make_pipeline(StandardScaler(), model(MADE_UP)),
    "target": TransformedTargetRegressor(RIDGE, func=np.log1p, inverse_func=np.expm1),
    "someone's step, fitted": make_pipeline(Careless(), model()).fit(X, Y),
    "nothing": Normalizer(),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_voids_a_promise_is_refused_beforehand(name: str) -> None:
    pipeline, words = BROKEN[name]
    with pytest.raises(PromiseError, match=words):
        check_pipeline(pipeline)


@pytest.mark.parametrize("name", WHOLE)
def test_what_keeps_a_promise_passes(name: str) -> None:
    check_pipeline(WHOLE[name])


def test_wrappers_with_a_ledger_pass_but_cannot_be_added_up() -> None:
    with Ledger.open(":memory:") as ledger:
        wrapped = OneVsRestClassifier(model(ledger=ledger))
        check_pipeline(make_pipeline(Normalizer(), wrapped))
        with pytest.raises(PromiseError, match="must be learners themselves"):
            private_pipeline(Normalizer(), wrapped)


def test_the_module_is_found_under_its_package() -> None:
    assert module.check_pipeline is check_pipeline
