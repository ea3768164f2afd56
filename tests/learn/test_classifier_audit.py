"""The classifier attacked: two neighbors told apart by all it publishes, and the coverage of its score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from scipy import special

from discreet.audit import distinguish
from discreet.learn import PrivateClassifier
from discreet.learn.budget_schedule import NoiselessSums
from discreet.noise import Stream
from discreet.privacy import ApproxDP, GaussianDP, NoPromise
from discreet.query import Database
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats

SMALL = Schema(
    columns=[
        Column("x", lower=0, upper=1, cells=(0.25, 0.5, 0.75)),
        Column("y", values=(0, 1), role="target"),
    ]
)
HELD: dict[str, list[Any]] = {"x": [0.1, 0.4, 0.6, 0.9] * 100, "y": [0, 0, 1, 1] * 100}
OTHER = {"x": [0.9, *HELD["x"][1:]], "y": [1, *HELD["y"][1:]]}
MU = GaussianDP(mu=0.3)


def published(model: PrivateClassifier) -> Floats:
    """Return all numbers of a model in one vector."""
    curves = [curve.values.ravel() for curve in model.curves_.values()]
    score = [] if model.score_ is None else [model.score_.accuracy]
    return np.concatenate([*curves, model.weights_, model.slopes_.ravel(), model.intercept_, score])


def fit(table: Any, stream: Stream, promise: GaussianDP = MU) -> AnyArray:
    """Fit a model with a seed of the stream, and return what it publishes."""
    seed = int(stream.words(1)[0]) % 2**31
    with Database(table, schema=SMALL, random_state=seed) as db:
        model = PrivateClassifier(privacy=promise).fit_database(db)
    assert (model.stages_, model.score_ is None) == (2, False)
    return published(model)[None]


@pytest.mark.slow
def test_neighbors_are_told_apart_no_better_than_promised() -> None:
    result = distinguish(fit, HELD, OTHER, MU, n=120, failure_probability=1e-9, stream=Stream.from_seed(1))
    assert result.verdict == "holds"


@pytest.mark.slow
def test_a_model_with_the_noise_of_another_promise_is_caught() -> None:
    def other(table: Any, stream: Stream) -> AnyArray:
        return fit(table, stream, GaussianDP(mu=9.0))

    assert distinguish(other, HELD, OTHER, MU, n=70, stream=Stream.from_seed(1)).verdict == "broken"


@pytest.mark.slow
def test_a_model_of_exact_tables_is_caught() -> None:
    def exact(table: Any, stream: Stream) -> AnyArray:
        with NoiselessSums(table, schema=SMALL) as sums:
            model = PrivateClassifier(privacy=NoPromise("a twin without noise")).fit_database(sums)
        return published(model)[None]

    assert distinguish(exact, HELD, OTHER, MU, n=60, stream=Stream.from_seed(1)).verdict == "broken"


def made_up(n: int, stream: Stream) -> tuple[pd.DataFrame, AnyArray]:
    """Rows whose class follows from four numbers, with an accuracy of about three quarters at best."""
    uniform = (stream.words(5 * n) >> np.uint64(11)).astype(float).reshape(5, n) * 2.0**-53
    odds = 3 * (uniform[0] - 0.5) + 2 * (uniform[1] - 0.5) + 2 * (uniform[2] > 0.7) - 0.6
    rows = pd.DataFrame({f"x{i}": uniform[i] for i in range(4)})
    return rows, (uniform[4] < special.expit(odds)).astype(int)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "n"), [(1.0, 700), (10.0, 700), (1.0, 3000)])
def test_the_interval_of_the_score_covers_the_accuracy_on_new_rows(epsilon: float, n: int) -> None:
    stream = Stream.from_seed(4)
    test, truth = made_up(40_000, stream)
    held, fits = 0, 70
    for seed in range(fits):
        rows, y = made_up(n, stream)
        model = PrivateClassifier(
            privacy=ApproxDP(epsilon=epsilon, delta=1e-6), bounds=(0, 1), classes=[0, 1], random_state=seed
        ).fit(rows.to_numpy(), y)
        assert model.score_ is not None
        accuracy = np.mean(model.predict(test.to_numpy()) == truth)
        held += model.score_.lower <= accuracy <= model.score_.upper
    # 95 % are meant; fewer than 56 of 70 would come by chance once in 10^9.
    assert held >= 56
    assert held / fits >= 0.9
