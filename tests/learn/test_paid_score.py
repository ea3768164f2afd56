"""The paid score of every classifier: what it counts, what it costs, and what its interval covers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import special, stats

from discreet.audit import distinguish
from discreet.errors import BudgetExceeded, ParameterError
from discreet.learn import METHODS, PrivateLogisticRegression, PrivateNaiveBayes, PrivatePerceptron
from discreet.learn.paid_score import ModelScore, ScoreCounts, half_width, is_worth_asking
from discreet.learn.perturbation.base import ScoreNoise
from discreet.ledger import Ledger
from discreet.noise import Stream
from discreet.pipeline.training import check_parameter_names
from discreet.privacy import ApproxDP, GaussianDP, NoPromise, PureDP, Spending
from discreet.query import Database
from discreet.schema import Column, Schema
from tests.learn.noisy_sums import townsfolk, townsfolk_schema

if TYPE_CHECKING:
    import pandas as pd

    from discreet._types import AnyArray, Floats, Ints

ON_SUMS: dict[str, dict[str, Any]] = {
    "naive-bayes": {},
    "id3": {"max_depth": 3},
    "gradient-logistic": {},
    "gradient-logistic in cells": {"n_bins": "auto"},
    "perceptron": {},
}
ON_ROWS = ("logistic", "svm", "large-margin-gaussian")
EXACT = NoPromise("the rows are made up")
ONE = ApproxDP(epsilon=1.0, delta=1e-6)


def on_sums(name: str, **given: Any) -> Any:
    """Return a learner on noisy sums that pays for its score."""
    kind: Any = METHODS[name.partition(" ")[0]]
    return kind(**{"paid_score": True, **ON_SUMS[name], **given})


def on_rows(name: str, **given: Any) -> Any:
    """Return a learner on rows that pays for its score."""
    kind: Any = METHODS[name]
    return kind(**{"paid_score": True, "bounds": (0, 1), "classes": [0, 1], **given})


def grouped() -> tuple[pd.DataFrame, Schema]:
    """Townsfolk in three groups, which follow from their ages and jobs."""
    rows = townsfolk(3000)
    ages = rows["age"].to_numpy() + 20 * (rows["job"] == "nurse")
    rows["group"] = np.array(["b", "a", "c"])[(ages > 25).astype(int) + (ages > 55)]
    schema = Schema(columns=[*townsfolk_schema().columns, Column("group", values=("c", "a", "b"))])
    return rows, schema.with_target("group")


def made_up(n: int, stream: Stream) -> tuple[Floats, Ints]:
    """Rows whose class follows from four numbers, with an accuracy of about three quarters at best."""
    uniform = (stream.words(5 * n) >> np.uint64(11)).astype(float).reshape(5, n) * 2.0**-53
    odds = 3 * (uniform[0] - 0.5) + 2 * (uniform[1] - 0.5) + 2 * (uniform[2] > 0.7) - 0.6
    return uniform[:4].T.copy(), (uniform[4] < special.expit(odds)).astype(np.int64)


# What it counts.


@pytest.mark.parametrize("name", ON_SUMS)
@pytest.mark.parametrize("classes", [2, 3])
def test_without_noise_it_is_the_accuracy_of_the_model_on_its_rows(name: str, classes: int) -> None:
    rows, schema = (townsfolk(3000), townsfolk_schema()) if classes == 2 else grouped()
    if name == "perceptron" and classes == 3:
        pytest.skip("it has two classes")
    labels = rows[str(schema.target)]
    model = on_sums(name, privacy=EXACT, schema=schema).fit(rows, labels)
    features = rows[[column.name for column in schema.features]]
    assert model.score_.accuracy == np.mean(model.predict(features) == labels)
    assert model.score_.vote == labels.value_counts().max() / len(rows)
    table = on_sums(name, privacy=EXACT, schema=schema, paid_score="table").fit(rows, labels).score_.table
    named = model.predict(features)
    for true, row in zip(model.classes_, table, strict=True):
        assert row == [np.sum((labels == true) & (named == other)) for other in model.classes_]


@pytest.mark.parametrize("name", ON_ROWS)
def test_rows_are_counted_exactly_where_there_is_no_noise(name: str) -> None:
    X, y = made_up(500, Stream.from_seed(1))
    model = on_rows(name, privacy=EXACT).fit(X, y)
    assert model.score_.accuracy == model.score(X, y)
    assert model.score_.vote == max(y.mean(), 1 - y.mean())
    assert on_rows(name, privacy=EXACT, paid_score=False).fit(X, y).score_ is None


@pytest.mark.parametrize("name", [*ON_SUMS, *ON_ROWS])
def test_with_noise_it_is_within_six_deviations(name: str) -> None:
    X, y = made_up(4000, Stream.from_seed(2))
    make = on_sums if name in ON_SUMS else on_rows
    model = make(name, privacy=ONE, bounds=(0, 1), classes=[0, 1], random_state=3).fit(X, y)
    sd = float(model.answers_["score"].sd) if name in ON_SUMS else math.sqrt(2) * 20
    assert abs(model.score_.accuracy - model.score(X, y)) <= 6 * sd / len(X)
    assert model.score_.accuracy != model.score(X, y)
    assert type(model.score_).from_dict(model.score_.to_dict()) == model.score_


@pytest.mark.parametrize("name", ["naive-bayes", "id3"])
def test_a_number_of_rows_that_is_private_is_the_sum_of_the_classes(name: str) -> None:
    rows, schema = townsfolk(3000), townsfolk_schema("add-remove")
    with Database(rows, schema=schema, random_state=5) as db:
        privacy = GaussianDP(mu=0.5, neighbors="add-remove")
        model = on_sums(name, privacy=privacy).fit_database(db)
    counted, right = model.answers_["classes"].value, model.answers_["score"].value
    assert model.score_.accuracy == right / counted.sum()
    # The interval has the noise of both.
    known = ModelScore.from_counts(
        ScoreCounts(right, model.answers_["score"].sd, "gaussian"),
        ScoreCounts(counted, model.answers_["classes"].sd, "gaussian"),
        float(counted.sum()),
        model._n_parameters,
    )
    assert model.score_.upper > known.upper
    few = townsfolk(150)
    with Database(few, schema=schema, random_state=5) as db:
        model = on_sums(name, privacy=privacy).fit_database(db)
    assert model.score_ is None
    assert "score" in model.split_
    assert "score" not in model.answers_


# What it costs.


@pytest.mark.parametrize("name", ON_SUMS)
def test_the_score_is_a_part_of_the_promise(name: str) -> None:
    X, y = made_up(4000, Stream.from_seed(2))
    limited = Ledger.open(":memory:", limit=ONE)
    given = {"privacy": ONE, "bounds": (0, 1), "classes": [0, 1], "random_state": 3}
    model = on_sums(name, ledger=limited, **given).fit(X, y)
    assert math.fsum(model.split_.values()) == pytest.approx(1)
    assert (model.split_["score"], model.split_["classes"]) == pytest.approx((0.05, 0.05))
    with pytest.raises(BudgetExceeded):
        on_sums(name, ledger=limited, **given).fit(X, 1 - y)


@pytest.mark.parametrize("name", ON_ROWS)
@pytest.mark.parametrize("privacy", [ONE, PureDP(epsilon=1.0)])
def test_training_and_score_together_are_one_charge_of_the_promise(name: str, privacy: Any) -> None:
    X, y = made_up(4000, Stream.from_seed(2))
    limited = Ledger.open(":memory:", limit=ApproxDP(epsilon=1.0, delta=1e-6))
    model = on_rows(name, privacy=privacy, ledger=limited, random_state=3).fit(X, y)
    assert model.receipt_.promises == model.promises_
    spent = Spending.from_promises(model.promises_)
    assert 0.9 < spent.epsilon_at(1e-6) <= 1.0
    assert len(limited.history()) == 1
    without = on_rows(name, privacy=privacy, paid_score=False, random_state=3).fit(X, y)
    assert len(without.promises_) == 1
    assert model.recompute_promises(len(X)) == model.promises_


class UnpaidScore(PrivateLogisticRegression):
    """A twin that gives the whole promise to the training and counts the score beside it."""

    def _training_privacy(self, n_rows: int, n_classes: int) -> Any:
        return self.privacy


def test_a_score_beside_the_promise_is_caught() -> None:
    X, y = made_up(4000, Stream.from_seed(2))
    given: dict[str, Any] = {"privacy": ONE, "bounds": (0, 1), "classes": [0, 1], "paid_score": True}
    limited = Ledger.open(":memory:", limit=ONE)
    with pytest.raises(BudgetExceeded):
        UnpaidScore(ledger=limited, **given).fit(X, y)
    assert not limited.history()
    PrivateLogisticRegression(ledger=limited, **given).fit(X, y)


def test_no_model_is_paid_for_without_its_score() -> None:
    X, y = made_up(4000, Stream.from_seed(2))
    small = Ledger.open(":memory:", limit=ApproxDP(epsilon=0.95, delta=1e-6))
    with pytest.raises(BudgetExceeded):
        on_rows("svm", privacy=ONE, ledger=small).fit(X, y)
    with pytest.raises(BudgetExceeded):
        on_sums("naive-bayes", privacy=ONE, bounds=(0, 1), classes=[0, 1], ledger=small).fit(X, y)
    assert not small.history()


def counted(noise: ScoreNoise, table: tuple[int, list[int]], stream: Stream) -> AnyArray:
    right, classes = table
    score = noise.count(right, np.array(classes), 1, stream)
    return np.array([[score.accuracy, score.vote]])


@pytest.mark.slow
def test_the_counts_of_a_learner_on_rows_have_the_noise_of_their_promise() -> None:
    noise = ScoreNoise.from_privacy(PureDP(epsilon=20.0), 2)
    (promise,) = noise.promises
    half = ScoreNoise(noise.right / 2, noise.classes / 2, noise.promises)
    # One row is replaced: it was wrong and of the first class, and is right and of the second.
    held, other = (300, [200, 400]), (301, [199, 401])
    verdicts = {}
    for name, one in (("honest", noise), ("twin", half)):

        def draw(table: Any, stream: Stream, one: ScoreNoise = one) -> AnyArray:
            return counted(one, table, stream)

        found = distinguish(
            draw, held, other, promise, n=4000, failure_probability=1e-9, stream=Stream.from_seed(1)
        )
        verdicts[name] = found.verdict
    assert verdicts == {"honest": "holds", "twin": "broken"}


def test_the_scales_are_the_sensitivities_over_their_parts_of_epsilon() -> None:
    noise = ScoreNoise.from_privacy(PureDP(epsilon=2.0), 3)
    (promise,) = noise.promises
    assert isinstance(promise, PureDP)
    assert 1 / noise.right + 2 / noise.classes <= promise.epsilon <= 0.2
    assert (noise.right, noise.classes) == pytest.approx((10.0, 20.0))
    rest = noise.rest_of(ONE)
    assert isinstance(rest, ApproxDP)
    assert rest.epsilon == pytest.approx(0.9)
    assert rest.delta < ONE.delta


# Whether it is asked, and what is refused.


@pytest.mark.parametrize("name", [*ON_SUMS, *ON_ROWS])
def test_a_score_that_would_tell_nothing_is_not_asked(name: str) -> None:
    X, y = made_up(200, Stream.from_seed(2))
    make = on_sums if name in ON_SUMS else on_rows
    given = {"privacy": ONE, "bounds": (0, 1), "classes": [0, 1], "random_state": 3}
    model = make(name, **given).fit(X, y)
    assert model.score_ is None
    # All of the promise goes to the model.
    plain = make(name, paid_score=False, **given).fit(X, y)
    assert model.promises_ == plain.promises_
    assert np.array_equal(model.predict(X), plain.predict(X))


def test_rows_that_are_clipped_cannot_be_scored() -> None:
    X, y = made_up(2000, Stream.from_seed(2))
    for name in ("perceptron", "gradient-logistic"):
        ledger = Ledger.open(":memory:")
        with pytest.raises(ParameterError, match=r"radius of .* must be left out where a score is paid for"):
            on_sums(
                name, privacy=ONE, bounds=(0, 1), classes=[0, 1], radius=0.1, ledger=ledger
            ).fit(X, y)  # fmt: skip
        assert not ledger.history()
    PrivatePerceptron(privacy=ONE, bounds=(0, 1), classes=[0, 1], radius=0.1, random_state=1).fit(X, y)


@pytest.mark.parametrize("name", ["ridge", "pca", "kmeans"])
def test_a_model_without_classes_has_no_accuracy_to_pay_for(name: str) -> None:
    with pytest.raises(ParameterError, match=f"The model {name} names no classes, so it has no accuracy"):
        check_parameter_names(name, ["paid_score"])


# What its interval covers.


@pytest.mark.parametrize("ratio", [0.01, 0.3, 1.0, 3.0, 100.0])
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_the_half_width_covers_noise_and_sampling_together(law: str, ratio: float) -> None:
    # The exact probability, by integration over noise of deviation 1; sampling has 1 / ratio.
    half = half_width(1.0, ratio**-2, law)
    noise = stats.laplace(scale=2**-0.5) if law == "laplace" else stats.norm()
    places = noise.ppf((np.arange(200_000) + 0.5) / 200_000)
    inside = stats.norm.cdf((half - places) * ratio) - stats.norm.cdf((-half - places) * ratio)
    assert 0.9499 <= inside.mean() <= 0.957
    if law == "laplace" and ratio >= 1:
        too_short = half_width(1.0, ratio**-2, "gaussian")
        twin = stats.norm.cdf((too_short - places) * ratio) - stats.norm.cdf((-too_short - places) * ratio)
        assert twin.mean() < 0.9499


def test_an_interval_of_a_tenth_is_the_widest() -> None:
    assert is_worth_asking(0.0, 97, "gaussian")
    assert not is_worth_asking(0.0, 96, "gaussian")
    assert is_worth_asking(40.0, 1000, "gaussian")
    assert not is_worth_asking(46.0, 1000, "laplace")
    assert is_worth_asking(40.0, math.inf, "laplace")


def coverage(name: str, epsilon: float, n: int, fits: int, narrow: float = 1.0) -> float:
    """Return how often the interval of the score, its noise taken for a part of it, covers the truth."""
    stream = Stream.from_seed(4)
    test, truth = made_up(40_000, stream)
    make = on_sums if name in ON_SUMS else on_rows
    held = 0
    for seed in range(fits):
        rows, y = made_up(n, stream)
        privacy = ApproxDP(epsilon=epsilon, delta=1e-6)
        model = make(name, privacy=privacy, bounds=(0, 1), classes=[0, 1], random_state=seed).fit(rows, y)
        score = model.score_
        accuracy = np.mean(model.predict(test) == truth)
        middle = score.accuracy
        lower, upper = middle - narrow * (middle - score.lower), middle + narrow * (score.upper - middle)
        held += bool(lower <= accuracy <= upper)
    return held / fits


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ON_SUMS, *ON_ROWS])
@pytest.mark.parametrize(("epsilon", "n"), [(1.0, 1500), (10.0, 700)])
def test_the_interval_covers_the_accuracy_on_new_rows(name: str, epsilon: float, n: int) -> None:
    # 95 % are meant; the seeds are fixed.
    assert coverage(name, epsilon, n, 60) >= 0.9


@pytest.mark.slow
def test_an_interval_for_half_of_the_noise_does_not_cover() -> None:
    for name in ("naive-bayes", "logistic"):
        assert coverage(name, 1.0, 1500, 60, narrow=0.5) < 0.9


def test_an_unpaid_score_is_no_attribute_of_a_saved_model(tmp_path: Any) -> None:
    X, y = made_up(2000, Stream.from_seed(2))
    given: dict[str, Any] = {"privacy": ONE, "bounds": (0, 1), "classes": [0, 1], "random_state": 3}
    for paid in (False, True):
        model = PrivateNaiveBayes(paid_score=paid, **given).fit(X, y)
        model.save(tmp_path / f"{paid}.npz")
        assert PrivateNaiveBayes.load(tmp_path / f"{paid}.npz").score_ == model.score_
