"""Which steps learn from rows, told by class, parameters and state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.feature_selection import RFE, SelectFromModel, VarianceThreshold
from sklearn.impute import KNNImputer, MissingIndicator, SimpleImputer
from sklearn.kernel_approximation import (
    AdditiveChi2Sampler,
    Nystroem,
    PolynomialCountSketch,
    RBFSampler,
    SkewedChi2Sampler,
)
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import (
    Binarizer,
    MaxAbsScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    QuantileTransformer,
    SplineTransformer,
    TargetEncoder,
)
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection

from discreet.learn import PrivateLogisticRegression, PrivatePCA
from discreet.learn.pipelines.steps import find_reader, parts_of
from discreet.privacy import NoPromise, PureDP

X = np.column_stack([np.arange(40.0) % 7, np.arange(40.0) % 3])
Y = (X[:, 0] > 3).astype(int)
MODEL = PrivateLogisticRegression(privacy=PureDP(epsilon=1.0), bounds=(0, 7), classes=[0, 1])
DECLARED = [list(range(7)), list(range(3))]

PUBLIC: list[Any] = [
    None,
    "passthrough",
    "drop",
    OneHotEncoder(categories=DECLARED),
    OrdinalEncoder(categories=DECLARED),
    SimpleImputer(strategy="constant", fill_value=0, keep_empty_features=True),
    MissingIndicator(features="all"),
    SplineTransformer(knots=np.array([[0.0, 0.0], [3.0, 1.0], [7.0, 3.0]])),
    RBFSampler(gamma=0.5),
    SkewedChi2Sampler(),
    AdditiveChi2Sampler(),
    PolynomialCountSketch(),
    GaussianRandomProjection(n_components=1),
    SparseRandomProjection(n_components=1),
    Binarizer(),
    HashingVectorizer(),
    SelectFromModel(MODEL),
    RFE(MODEL),
    PrivatePCA(privacy=PureDP(epsilon=1.0), bounds=(0, 7)),
]
READERS: list[Any] = [
    OneHotEncoder(),
    OneHotEncoder(categories=DECLARED, min_frequency=2),
    OrdinalEncoder(categories=DECLARED, max_categories=2),
    SimpleImputer(),
    SimpleImputer(strategy="constant", fill_value=0),
    SimpleImputer(strategy="constant", fill_value=0, keep_empty_features=True, add_indicator=True),
    MissingIndicator(),
    KNNImputer(),
    SplineTransformer(),
    SplineTransformer(knots="quantile"),
    RBFSampler(gamma="scale"),
    Nystroem(n_components=2),
    MaxAbsScaler(),
    PowerTransformer(),
    QuantileTransformer(n_quantiles=5),
    TargetEncoder(cv=2),
    TfidfVectorizer(),
    VarianceThreshold(),
    SelectFromModel(LogisticRegression()),
    PrivatePCA(privacy=NoPromise("made up")),
]


@pytest.mark.parametrize("step", PUBLIC, ids=repr)
def test_steps_that_learn_nothing_pass(step: Any) -> None:
    assert find_reader("step", step, fitted=False) is None


@pytest.mark.parametrize("step", READERS, ids=repr)
def test_steps_that_learn_are_found(step: Any) -> None:
    assert find_reader("step", step, fitted=False) is not None
    if not isinstance(step, TfidfVectorizer | PrivatePCA):
        assert find_reader("step", step.fit(X, Y), fitted=True) is not None


class Odd:
    """A step that is no estimator of scikit-learn."""

    def fit(self, X: Any, y: Any = None) -> Odd:
        self.mean = np.mean(X)
        self.mean_ = self.mean
        return self


class Counting(BaseEstimator):
    """A step that keeps what is public: the number of columns, and that it was fitted."""

    def fit(self, X: Any, y: Any = None) -> Counting:
        self._n_columns = X.shape[1]
        self.fitted_ = True
        self.output_ = None
        return self


def test_odd_steps() -> None:
    assert find_reader("step", Odd().fit(X), fitted=True) is not None
    assert find_reader("step", Odd(), fitted=False) is not None
    assert find_reader("step", Counting().fit(X), fitted=True) is None


def test_parameters_are_searched_and_data_is_not() -> None:
    class Holder(BaseEstimator):
        def __init__(self, estimators: Any = None, table: Any = None, rows: Any = None) -> None:
            self.estimators = estimators
            self.table = table
            self.rows = rows

    holder = Holder([("a", MODEL), ("b", None)], {"c": MODEL}, [[0.0]] * 5000)
    assert [name for name, _ in parts_of(holder)] == ["a", "c"]
    assert parts_of(Holder) == parts_of(3) == []
