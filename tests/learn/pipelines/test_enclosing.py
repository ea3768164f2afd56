"""Every common wrapper of scikit-learn around a private estimator, with what its user must be told."""

from __future__ import annotations

import pickle
import warnings
from typing import TYPE_CHECKING, Any

import joblib  # type: ignore[import-untyped]
import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import AdaBoostClassifier, BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.feature_selection import RFE, SelectFromModel, SelectKBest, SequentialFeatureSelector
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    permutation_test_score,
    validation_curve,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)
from sklearn.semi_supervised import SelfTrainingClassifier

from discreet.errors import ParameterError, PromiseError, PromiseWarning
from discreet.learn import PrivateLogisticRegression, PrivatePCA, PrivateRidge, PrivateScaler, PublicScaler
from discreet.learn.pipelines.enclosing import EnclosedEstimator, find_enclosing, look_standardized
from discreet.ledger import Ledger
from discreet.privacy import ApproxDP, NoPromise, PureDP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

X = np.column_stack([np.sin(np.arange(90.0)), np.cos(3 * np.arange(90.0)), np.arange(90.0) % 7 / 7])
Y = (X[:, 0] + 0.3 * np.sin(5 * np.arange(90.0)) > 0).astype(int)
BOTH = np.column_stack([Y, np.roll(Y, 1)])

SILENT, REFUSED, REPEATS, NOISELESS, TWICE = "silent", "refused", "repeats", "noiseless", "noiseless, repeats"


def model(**rest: Any) -> PrivateLogisticRegression:
    """Return a fast classifier with a promise and without a ledger."""
    given = {"privacy": PureDP(epsilon=1.0), "bounds": (-1, 1), "classes": [0, 1], **rest}
    return PrivateLogisticRegression(**given)


def scaler(**rest: Any) -> PrivateScaler:
    return PrivateScaler(**{"privacy": PureDP(epsilon=1.0), "bounds": (-1, 1), **rest})


class Mean(TransformerMixin, BaseEstimator):
    """A step of someone else that learns a mean."""

    def fit(self, X: Any, y: Any = None) -> Mean:
        self.mean_ = np.mean(X, axis=0)
        return self

    def transform(self, X: Any) -> Any:
        return X - self.mean_


class Hidden(Mean):
    """A step that learns a mean and does not follow the convention of names."""

    def fit(self, X: Any, y: Any = None) -> Hidden:
        self.center = self.mean_ = np.mean(X, axis=0)
        del self.mean_
        return self

    def transform(self, X: Any) -> Any:
        return X - self.center


class Square(TransformerMixin, BaseEstimator):
    """A step of someone else that learns nothing but the number of columns."""

    def fit(self, X: Any, y: Any = None) -> Square:
        self.n_features_in_ = X.shape[1]
        self.is_fitted_ = True
        return self

    def transform(self, X: Any) -> Any:
        return X**2


class Inheriting(FunctionTransformer):
    """A step that inherits a tag that does not hold for it."""

    def fit(self, X: Any, y: Any = None) -> Inheriting:
        self.mean_ = np.mean(X, axis=0)
        return self


class Wrapper(ClassifierMixin, BaseEstimator):
    """A wrapper of someone else that fits once."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any) -> Wrapper:
        self.estimator_ = clone(self.estimator).fit(X, y)
        self.classes_ = self.estimator_.classes_
        return self


def plain(X: Any) -> Any:
    return X


AROUND: dict[str, tuple[Callable[[], Any], str]] = {
    # Nothing around it, or steps that learn nothing.
    "alone": (model, SILENT),
    "pipeline of one": (lambda: make_pipeline(model()), SILENT),
    "passthrough": (lambda: Pipeline([("a", "passthrough"), ("b", None), ("model", model())]), SILENT),
    "function": (lambda: make_pipeline(FunctionTransformer(plain), model()), SILENT),
    "normalizer": (lambda: make_pipeline(Normalizer(), model()), SILENT),
    "polynomial": (lambda: make_pipeline(PolynomialFeatures(), model()), SILENT),
    "someone's stateless step": (lambda: make_pipeline(Square(), model()), SILENT),
    "public scaler": (lambda: make_pipeline(PublicScaler(bounds=(-1, 1)), model()), SILENT),
    "private scaler": (lambda: make_pipeline(scaler(), model()), SILENT),
    "frozen scaler": (lambda: make_pipeline(FrozenEstimator(StandardScaler().fit(X)), model()), SILENT),
    "imputer by a constant": (
        lambda: make_pipeline(
            SimpleImputer(strategy="constant", fill_value=0, keep_empty_features=True), model()
        ),
        SILENT,
    ),
    "declared categories": (
        lambda: make_pipeline(
            make_column_transformer(
                (OneHotEncoder(categories=[np.arange(7) / 7]), [2]), remainder="passthrough"
            ),
            model(),
        ),
        SILENT,
    ),
    "selected by a private model": (lambda: make_pipeline(SelectFromModel(model()), model()), SILENT),
    "scaler beside, not before": (lambda: make_union(StandardScaler(), scaler()), SILENT),
    "scaler after": (lambda: make_pipeline(scaler(), StandardScaler()), SILENT),
    "fixed threshold": (lambda: FixedThresholdClassifier(model()), SILENT),
    "someone's wrapper": (lambda: Wrapper(model()), SILENT),
    "bag of one": (lambda: BaggingClassifier(model(), n_estimators=1), SILENT),
    "no promise": (lambda: make_pipeline(StandardScaler(), model(privacy=NoPromise("made up"))), SILENT),
    "no promise, calibrated": (lambda: CalibratedClassifierCV(model(privacy=NoPromise("made up"))), SILENT),
    # Steps that learn before it.
    "scaler": (lambda: make_pipeline(StandardScaler(), model()), REFUSED),
    "range scaler": (lambda: make_pipeline(MinMaxScaler(), model()), REFUSED),
    "robust scaler": (lambda: make_pipeline(RobustScaler(), model()), REFUSED),
    "imputer by the mean": (lambda: make_pipeline(SimpleImputer(), model()), REFUSED),
    "bins": (lambda: make_pipeline(KBinsDiscretizer(2, encode="ordinal"), model()), REFUSED),
    "categories from rows": (lambda: make_pipeline(OneHotEncoder(sparse_output=False), model()), REFUSED),
    "components": (lambda: make_pipeline(PCA(2), model()), REFUSED),
    "selection": (lambda: make_pipeline(SelectKBest(k=2), model()), REFUSED),
    "selected by an exact model": (
        lambda: make_pipeline(SelectFromModel(LogisticRegression()), model()),
        REFUSED,
    ),
    "someone's scaler": (lambda: make_pipeline(Mean(), model()), REFUSED),
    "someone's unconventional scaler": (lambda: make_pipeline(Hidden(), model()), REFUSED),
    "someone's inherited tag": (lambda: make_pipeline(Inheriting(), model()), REFUSED),
    "second step": (
        lambda: make_pipeline(FunctionTransformer(plain), Normalizer(), StandardScaler(), model()),
        REFUSED,
    ),
    "after a private step": (lambda: make_pipeline(scaler(), StandardScaler(), model()), REFUSED),
    "ours without a promise": (
        lambda: make_pipeline(scaler(privacy=NoPromise("no")), model()),
        REFUSED,
    ),
    "nested before": (lambda: make_pipeline(make_pipeline(Normalizer(), StandardScaler()), model()), REFUSED),
    "nested around": (lambda: make_pipeline(StandardScaler(), make_pipeline(Normalizer(), model())), REFUSED),
    "columns": (
        lambda: make_pipeline(
            ColumnTransformer([("s", StandardScaler(), [0]), ("p", "passthrough", [1])]), model()
        ),
        REFUSED,
    ),
    "remainder": (
        lambda: make_pipeline(
            ColumnTransformer([("p", "passthrough", [1])], remainder=StandardScaler()), model()
        ),
        REFUSED,
    ),
    "union": (lambda: make_pipeline(FeatureUnion([("a", Normalizer()), ("b", PCA(1))]), model()), REFUSED),
    "one against the rest after a scaler": (
        lambda: make_pipeline(StandardScaler(), OneVsRestClassifier(model())),
        f"{REFUSED}, {REPEATS}",
    ),
    "someone's wrapper after a scaler": (lambda: make_pipeline(StandardScaler(), Wrapper(model())), REFUSED),
    "private transformer": (
        lambda: make_pipeline(
            StandardScaler(), PrivatePCA(privacy=PureDP(epsilon=1.0), bounds=(-2, 2), n_components=1)
        ),
        REFUSED,
    ),
    "frozen pipeline inside": (
        lambda: make_pipeline(StandardScaler(), FrozenEstimator(Normalizer()), model()),
        REFUSED,
    ),
    # Wrappers that fit more than once.
    "one against the rest": (lambda: OneVsRestClassifier(model()), REPEATS),
    "one against one": (lambda: OneVsOneClassifier(model()), REPEATS),
    "output codes": (lambda: OutputCodeClassifier(model(classes=[-1, 1]), random_state=0), REPEATS),
    "bagging": (lambda: BaggingClassifier(model(), n_estimators=2, random_state=0), REPEATS),
    "voting": (lambda: VotingClassifier([("a", model()), ("b", model(regularization=0.1))]), REPEATS),
    "recursive elimination": (lambda: RFE(model(), n_features_to_select=2), REPEATS),
    "grid": (lambda: GridSearchCV(model(), {"regularization": [0.1, 0.2]}, cv=2), REPEATS),
    "random search": (
        lambda: RandomizedSearchCV(
            model(), {"regularization": [0.1, 0.2, 0.3]}, n_iter=2, cv=2, random_state=0
        ),
        REPEATS,
    ),
    "grid of a clean pipeline": (
        lambda: GridSearchCV(make_pipeline(Normalizer(), model()), {"normalizer__norm": ["l1", "l2"]}, cv=2),
        REPEATS,
    ),
    "pipeline of a grid": (
        lambda: make_pipeline(Normalizer(), GridSearchCV(model(), {"regularization": [0.1, 0.2]}, cv=2)),
        REPEATS,
    ),
    "stacked private models": (
        lambda: StackingClassifier([("a", model())], final_estimator=model(), cv=2),
        REPEATS,
    ),
    # Wrappers that compute from rows without noise.
    "calibrated": (lambda: CalibratedClassifierCV(model(), cv=2), TWICE),
    "tuned threshold": (lambda: TunedThresholdClassifierCV(model(), cv=2), TWICE),
    "stacked": (lambda: StackingClassifier([("a", model())], cv=2), TWICE),
    "self-training": (lambda: SelfTrainingClassifier(model(), max_iter=1), TWICE),
    "voting with an exact model": (
        lambda: VotingClassifier([("a", model()), ("b", LogisticRegression())]),
        NOISELESS,
    ),
    "sequential selection": (
        lambda: SequentialFeatureSelector(model(), n_features_to_select=1, cv=2),
        TWICE,
    ),
}


def listen(action: Callable[[], Any], *, distinct: bool = True) -> str:
    """Return what the user of an action is told; each estimator has a warning of its own."""
    said = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            action()
        except ValueError as error:
            # Searches report the error of all their fits as text.
            if "must not learn from the rows without a promise" not in str(error):
                raise
            said.append(REFUSED)
    texts = [str(one.message) for one in caught if one.category is PromiseWarning]
    if not distinct:
        texts = sorted(set(texts))
    said += [NOISELESS for text in texts if "computes from the rows without noise" in text]
    said += [REPEATS for text in texts if "more than once, and no ledger" in text]
    assert len(set(texts)) == len(texts), "a warning was shown twice"
    assert len(texts) == len(said) - (REFUSED in said)
    return ", ".join(said) or SILENT


@pytest.mark.parametrize("name", AROUND)
def test_the_user_is_told_by_fit_alone(name: str) -> None:
    make, expected = AROUND[name]
    distinct = name not in ("voting", "stacked private models")
    assert listen(lambda: make().fit(X, Y), distinct=distinct) == expected


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "cross_val_score": lambda m: cross_val_score(m, X, Y, cv=2),
    "cross_validate": lambda m: cross_validate(m, X, Y, cv=2),
    "cross_val_predict": lambda m: cross_val_predict(m, X, Y, cv=2),
    "learning_curve": lambda m: learning_curve(m, X, Y, cv=2, train_sizes=[0.5, 1.0]),
    "validation_curve": lambda m: validation_curve(
        m, X, Y, param_name="random_state", param_range=[1, 2], cv=2
    ),
    "permutation_test_score": lambda m: permutation_test_score(m, X, Y, cv=2, n_permutations=1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_fit_several_times_are_named(name: str) -> None:
    with pytest.warns(
        PromiseWarning, match=f"{name} fits PrivateLogisticRegression more than once"
    ) as caught:
        FUNCTIONS[name](model())
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with Ledger.open(":memory:") as ledger:
        assert listen(lambda: FUNCTIONS[name](model(ledger=ledger))) == SILENT
        assert ledger.spent().charges >= 2


@pytest.mark.parametrize("name", sorted(name for name, (_, said) in AROUND.items() if REPEATS in said))
def test_a_ledger_silences_the_warning_about_fits_and_no_other(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.open(":memory:") as ledger:
        plain_model = model
        monkeypatch.setitem(globals(), "model", lambda **rest: plain_model(ledger=ledger, **rest))
        expected = AROUND[name][1].replace(f", {REPEATS}", "").replace(REPEATS, SILENT)
        assert listen(lambda: AROUND[name][0]().fit(X, Y)) == expected


def test_searches_report_that_every_fit_of_a_pipeline_failed() -> None:
    pipeline = make_pipeline(StandardScaler(), model())
    with pytest.warns(PromiseWarning), pytest.raises(ValueError, match="PromiseError: steps of Pipeline"):
        cross_val_score(pipeline, X, Y, cv=2)
    with pytest.warns(PromiseWarning), pytest.raises(PromiseError, match="'standardscaler'"):
        cross_val_score(make_pipeline(StandardScaler(), model()), X, Y, cv=2, error_score="raise")


def test_multi_output_wrappers() -> None:
    assert listen(lambda: MultiOutputClassifier(model()).fit(X, BOTH)) == REPEATS
    assert listen(lambda: ClassifierChain(model()).fit(X, BOTH)) == REPEATS


def test_scaling_of_the_target_is_refused_and_a_function_is_not() -> None:
    ridge = PrivateRidge(privacy=PureDP(epsilon=1.0), bounds=(-1, 1), target_bounds=(0, 2))
    scaled = TransformedTargetRegressor(ridge, transformer=StandardScaler())
    assert listen(lambda: scaled.fit(X, Y.astype(float))) == REFUSED
    logged = TransformedTargetRegressor(ridge, func=np.log1p, inverse_func=np.expm1, check_inverse=False)
    assert listen(lambda: logged.fit(X, Y.astype(float))) == SILENT


def test_boosting_computes_from_rows() -> None:
    class Weighted(PrivateLogisticRegression):
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            return super().fit(X, y)

    learner = Weighted(privacy=PureDP(epsilon=1.0), bounds=(-1, 1), classes=[0, 1])
    assert listen(lambda: AdaBoostClassifier(learner, n_estimators=2).fit(X, Y)) == TWICE


def test_other_ways_to_fit_a_pipeline() -> None:
    pca = PrivatePCA(privacy=PureDP(epsilon=1.0), bounds=(-2, 2), n_components=1)
    assert listen(lambda: make_pipeline(StandardScaler(), pca).fit_transform(X)) == REFUSED
    assert listen(lambda: make_pipeline(PublicScaler(bounds=(-1, 1)), pca).fit_transform(X)) == SILENT


@pytest.mark.parametrize("size", [3, 50])
def test_the_refusal_names_step_and_way_out_and_nothing_is_charged(size: int) -> None:
    rows = np.vstack([X] * size)[: 2 * size]
    with Ledger.open(":memory:") as ledger:
        pipeline = Pipeline([("scale", StandardScaler()), ("model", model(ledger=ledger))])
        with pytest.raises(PromiseError) as caught:
            pipeline.fit(rows, np.arange(len(rows)) % 2)
        assert ledger.spent().charges == 0
    assert str(caught.value) == (
        "steps of Pipeline before PrivateLogisticRegression must not learn from the rows without a promise, "
        "and 'scale' (StandardScaler) does: the promise of PrivateLogisticRegression would not hold. Declare "
        "bounds, by which learners scale; or use PublicScaler(bounds=...), or PrivateScaler(privacy=..., "
        "bounds=...), which pays. A step that was fitted to public rows passes as FrozenEstimator(step). See "
        "docs/howto/preprocess.md."
    )


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (SimpleImputer(), "strategy='constant'"),
        (OneHotEncoder(sparse_output=False), "categories=\\[...\\]"),
        (PCA(2), "Use PrivatePCA"),
        (SelectKBest(k=1), "Choose the columns without these rows"),
        (Mean(), "requires_fit=False"),
    ],
)
def test_the_way_out_is_that_of_the_step(step: Any, words: str) -> None:
    with pytest.raises(PromiseError, match=words):
        make_pipeline(step, model()).fit(X, Y)


def test_a_cached_pipeline_is_told_apart_from_nothing(tmp_path: Path) -> None:
    """A step that comes from a cache was fitted to the rows as well, and a private one is still private."""
    for _ in range(2):
        cached = make_pipeline(StandardScaler(), model(), memory=str(tmp_path))
        assert listen(lambda: cached.fit(X, Y)) == REFUSED  # noqa: B023
        private = make_pipeline(scaler(random_state=1), model(), memory=str(tmp_path))
        assert listen(lambda: private.fit(X, Y)) == SILENT  # noqa: B023


def test_searches_that_derive_from_the_common_base() -> None:
    from sklearn.experimental import enable_halving_search_cv  # noqa: F401
    from sklearn.model_selection import HalvingGridSearchCV

    search = HalvingGridSearchCV(model(), {"regularization": [0.1, 0.2]}, cv=2, min_resources=30)
    assert listen(lambda: search.fit(X, Y)) == REPEATS


def test_imputation_and_outlier_rejection_by_a_private_model() -> None:
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer
    from sklearn.linear_model import RANSACRegressor

    ridge = PrivateRidge(privacy=PureDP(epsilon=1.0), bounds=(-1, 1), target_bounds=(-1, 1))
    holes = np.where(np.arange(X.size).reshape(X.shape) % 50 == 0, np.nan, X)
    imputer = IterativeImputer(ridge, max_iter=1, tol=100.0)
    assert listen(lambda: imputer.fit(holes)) == TWICE
    # It sets a generator as random_state, which no private model takes.
    with pytest.warns(PromiseWarning), pytest.raises(ParameterError, match="random_state"):
        RANSACRegressor(clone(ridge), min_samples=80).fit(X, Y.astype(float))


# The same estimator again, elsewhere, or copied.


def test_a_model_taken_out_of_a_search_is_free_of_it() -> None:
    search = GridSearchCV(model(), {"regularization": [0.1]}, cv=2)
    assert listen(lambda: search.fit(X, Y)) == REPEATS
    assert listen(lambda: search.best_estimator_.fit(X, Y)) == SILENT
    assert listen(lambda: pickle.loads(pickle.dumps(search.best_estimator_)).fit(X, Y)) == SILENT


def test_a_loop_by_hand_is_silent() -> None:
    base = model()
    assert listen(lambda: [clone(base).fit(X[i::2], Y[i::2]) for i in range(2)]) == SILENT
    assert listen(lambda: [base.set_params(random_state=i).fit(X, Y) for i in range(3)]) == SILENT


def test_copies_in_two_places_are_told_apart() -> None:
    first = scaler()
    pipeline = make_pipeline(first, StandardScaler(), clone(first))
    assert listen(lambda: first.fit(X)) == SILENT
    assert listen(lambda: pipeline.fit(X)) == REFUSED
    assert hasattr(first, "center_"), "the first one was fitted, the second refused"


def test_a_pipeline_that_is_only_near_is_no_pipeline_around() -> None:
    def compare(self: Any, estimator: Any) -> Any:
        return estimator.steps[-1][1].fit(X, Y)

    pipeline = make_pipeline(StandardScaler(), model())
    assert listen(lambda: pipeline.fit(X, Y)) == REFUSED
    assert listen(lambda: pipeline.steps[-1][1].fit(X, Y)) == SILENT
    assert listen(lambda: compare(pipeline, pipeline)) == SILENT


def test_a_warning_is_shown_once_for_an_estimator_and_its_copies() -> None:
    base = model()
    assert listen(lambda: cross_val_score(base, X, Y, cv=2)) == REPEATS
    assert listen(lambda: cross_val_score(base, X, Y, cv=2)) == SILENT
    assert listen(lambda: GridSearchCV(base, {"regularization": [0.1]}, cv=2).fit(X, Y)) == REPEATS
    assert listen(lambda: cross_val_score(model(), X, Y, cv=2)) == REPEATS


def test_nothing_of_it_is_in_a_file_or_a_parameter(tmp_path: Path) -> None:
    fitted = clone(model()).fit(X, Y)
    assert not {"_origin", "_enclosing"} & pickle.loads(pickle.dumps(fitted)).__dict__.keys()
    assert fitted.get_params() == model(privacy=fitted.privacy).get_params()
    joblib.dump(fitted, tmp_path / "model")
    assert np.array_equal(joblib.load(tmp_path / "model").coef_, fitted.coef_)


# Threads and processes.


@pytest.fixture
def threads() -> Iterator[None]:
    with joblib.parallel_config("threading", n_jobs=2):
        yield


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(
    "name",
    [
        "one against the rest after a scaler", "one against the rest", "bagging", "calibrated", "grid",
        "stacked", "public scaler", "scaler",
    ],
)  # fmt: skip
def test_threads_see_the_pipeline_of_the_thread_that_started_them(name: str) -> None:
    make, expected = AROUND[name]
    assert listen(lambda: make().fit(X, Y)) == expected


PARALLEL: dict[str, tuple[Callable[[], Any], str]] = {
    "one against the rest": (
        lambda: make_pipeline(StandardScaler(), OneVsRestClassifier(model(), n_jobs=2)),
        f"{REFUSED}, {REPEATS}",
    ),
    "bagging": (
        lambda: make_pipeline(StandardScaler(), BaggingClassifier(model(), n_estimators=2, n_jobs=2)),
        f"{REFUSED}, {REPEATS}",
    ),
    "bagging without": (lambda: BaggingClassifier(model(), n_estimators=2, n_jobs=2), REPEATS),
    "voting": (
        lambda: make_pipeline(StandardScaler(), VotingClassifier([("a", model())], n_jobs=2)),
        REFUSED,
    ),
    "grid": (
        lambda: make_pipeline(
            StandardScaler(), GridSearchCV(model(), {"regularization": [0.1, 0.2]}, cv=2, n_jobs=2)
        ),
        f"{REFUSED}, {REPEATS}",
    ),
    "grid around": (
        lambda: GridSearchCV(
            make_pipeline(StandardScaler(), model()), {"standardscaler__with_std": [True]}, cv=2, n_jobs=2
        ),
        f"{REFUSED}, {REPEATS}",
    ),
    "clean grid": (
        lambda: GridSearchCV(
            make_pipeline(Normalizer(), model()), {"normalizer__norm": ["l1"]}, cv=2, n_jobs=2
        ),
        REPEATS,
    ),
    "calibrated": (lambda: CalibratedClassifierCV(model(), cv=2, n_jobs=2), TWICE),
    "clean": (lambda: make_pipeline(Normalizer(), FixedThresholdClassifier(model())), SILENT),
}


# When a task fails, joblib stops its pool, and the thread that manages the pool may die with a
# KeyError if a task has not been handed out yet. That race is joblib's, and harmless here.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.slow
@pytest.mark.parametrize("name", PARALLEL)
def test_worker_processes_know_what_sent_them(name: str) -> None:
    make, expected = PARALLEL[name]
    assert listen(lambda: make().fit(X, Y)) == expected


@pytest.mark.slow
def test_other_pools_of_processes_know_it_too() -> None:
    make, expected = PARALLEL["one against the rest"]
    with joblib.parallel_config("multiprocessing", n_jobs=2):
        assert listen(lambda: make().fit(X, Y)) == expected


@pytest.mark.slow
def test_a_fitted_model_comes_back_from_a_worker_without_its_past() -> None:
    bag = BaggingClassifier(model(), n_estimators=2, n_jobs=2)
    assert listen(lambda: bag.fit(X, Y)) == REPEATS
    inner = bag.estimators_[0]
    assert listen(lambda: inner.fit(X, Y)) == SILENT
    assert "_enclosing" not in pickle.loads(pickle.dumps(inner)).__dict__


# Declared bounds.


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((-3, 3), True),
        ((-5.0, 5.0), True),
        (([-4, -4], [4, 4]), True),
        (np.array([[-10.0, -10.0], [10.0, 10.0]]), True),
        ((-1, 1), False),
        ((-2.9, 2.9), False),
        ((-11, 11), False),
        ((-3, 4), False),
        ((0, 5), False),
        (([-4, -5], [4, 5]), False),
        (([-4, 0], [4, 4]), False),
        (None, False),
        ("text", False),
        (([], []), False),
        ((-3, [3, 3]), False),
    ],
)
def test_bounds_that_look_standardized(bounds: Any, expected: bool) -> None:
    assert look_standardized(bounds) is expected


@pytest.mark.parametrize("factor", [1.0, 1000.0])
def test_the_warning_about_bounds_never_looks_at_the_rows(factor: float) -> None:
    with pytest.warns(PromiseWarning, match="look like those of standardized columns") as caught:
        model(bounds=(-5, 5)).fit(factor * X, Y)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert listen(lambda: model(bounds=(-60, 50)).fit((X - X.mean(0)) / X.std(0), Y)) == SILENT
    assert listen(lambda: model(bounds=(-5, 5), privacy=NoPromise("made up")).fit(X, Y)) == SILENT


# What the detector reads.


class Untouchable:
    """Rows that fail the test as soon as anything about them is read."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return Untouchable
        raise AssertionError(f"{name} of the rows was read")

    def __array__(self, *_: Any) -> Any:
        raise AssertionError("cells of the rows was read")

    __len__ = __iter__ = __getitem__ = __bool__ = __array__


class Constant(TransformerMixin, BaseEstimator):
    """A step that learns a constant, and passes rows on unseen."""

    def __init__(self, learns: bool = True) -> None:
        self.learns = learns

    def fit(self, X: Any, y: Any = None) -> Constant:
        if self.learns:
            self.mean_ = 0.0
        return self

    def transform(self, X: Any) -> Any:
        return X


class Probe(EnclosedEstimator):
    """A learner that reads nothing beyond its place."""

    def __init__(self, privacy: Any = None, bounds: Any = None, ledger: Any = None) -> None:
        self.privacy = privacy
        self.bounds = bounds
        self.ledger = ledger

    def fit(self, X: Any, y: Any = None) -> Probe:
        self._check_place()
        self.fitted_ = True
        return self


class LookingProbe(Probe):
    """Broken twin: a detector that finds standardized rows by looking at them."""

    def fit(self, X: Any, y: Any = None) -> Probe:
        if abs(np.mean(X)) < 0.1:
            raise PromiseError("the rows look standardized")
        return super().fit(X, y)


def assert_reads_no_row(probe: type[Probe]) -> None:
    """Check that a detector decides as it must without reading a row."""
    rows = Untouchable()
    promise = ApproxDP(epsilon=1.0, delta=1e-6)
    with pytest.raises(PromiseError, match="must not learn from the rows"):
        Pipeline([("a", Constant()), ("b", probe(promise))]).fit(rows)
    Pipeline([("a", Constant(learns=False)), ("b", probe(promise))]).fit(rows)
    with pytest.warns(PromiseWarning, match="standardized"):
        probe(promise, bounds=(-3, 3)).fit(rows)


def test_the_detector_reads_no_row() -> None:
    assert_reads_no_row(Probe)


def test_a_detector_that_looks_at_rows_is_caught() -> None:
    with pytest.raises(AssertionError, match="of the rows was read"):
        assert_reads_no_row(LookingProbe)


def test_parameters_are_checked_first_and_a_learner_alone_finds_nothing() -> None:
    with pytest.raises(ParameterError, match="mechanism"):
        make_pipeline(StandardScaler(), model(mechanism="none")).fit(X, Y)
    assert find_enclosing(model()) == ("", "", "", 0, False)
