"""What the invariant release refuses and what it warns of, in the words that a curator reads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.errors import (
    DataError,
    DiscreetError,
    DiscreetWarning,
    ParameterError,
    PromiseError,
    SchemaError,
)
from discreet.learn import RegularizedSVM
from discreet.noise import Stream, standard_normal
from discreet.noise_law import InvariantLaw
from discreet.privacy import ApproxDP, ErrorFloor, PureDP
from discreet.release.invariant import (
    InvariantRelease,
    LearnerSolution,
    NetworkLearner,
    RidgeLearner,
    SVMLearner,
)
from discreet.schema import Column, Schema
from tests.release.invariant_tables import d20, random_table, released_rows, wdbc

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats

THETA, RHO = 1.0, 0.01


def with_target(values: tuple[Any, ...], n_columns: int = 12, **more: Any) -> Schema:
    columns = [Column(f"c{j}", lower=-9, upper=9) for j in range(n_columns)]
    return Schema(columns=[*columns, Column("k", values=values)], target="k", **more)


@pytest.mark.parametrize("variance", [0, -1.0, np.nan, np.inf, "much", True])
def test_a_variance_outside_its_domain_is_refused(variance: Any) -> None:
    with pytest.raises(ParameterError, match="variance of InvariantRelease must be a finite number above 0"):
        InvariantRelease(variance=variance, bounds=(0, 1))


@pytest.mark.parametrize("privacy", [ApproxDP(epsilon=1, delta=1e-6), PureDP(epsilon=1), ErrorFloor(age=9)])
def test_an_epsilon_is_refused_with_the_reason(privacy: Any) -> None:
    with pytest.raises(
        PromiseError, match="no epsilon exists for any delta below 1, and no error floor holds"
    ):
        InvariantRelease(variance=1.0, privacy=privacy, bounds=(0, 1))


def test_parameters_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ParameterError, match="must be left out with learner='gram'"):
        InvariantRelease(learner="gram", variance=1.0, bounds=(0, 1))
    with pytest.raises(ParameterError, match="outward of InvariantRelease must be False unless"):
        InvariantRelease(learner="ridge", variance=1.0, outward=True, bounds=(0, 1))
    with pytest.raises(ParameterError, match="precision of InvariantRelease must be a number of decimals"):
        InvariantRelease(variance=1.0, precision="low", bounds=(0, 1))  # type: ignore[arg-type]
    for learner in ("tree", RidgeLearner, 3):
        with pytest.raises(ParameterError, match="learner of InvariantRelease must be one of svm, ridge"):
            InvariantRelease(learner=learner, variance=1.0, bounds=(0, 1))  # type: ignore[arg-type]


@pytest.mark.parametrize("scales", [[1.0], [0.0] * 12, [np.nan] * 12, {"x1": 1.0}, {"y": 3.0}, "wide", 3])
def test_scales_that_do_not_fit_are_refused(scales: Any) -> None:
    with pytest.raises(ParameterError, match="scales of InvariantRelease must"):
        released_rows(*random_table(), scales=scales)


def test_one_column_is_refused_because_its_score_is_the_column() -> None:
    X, y = random_table()
    with pytest.raises(DataError, match=r"at least two sensitive columns.*published unchanged"):
        released_rows(X[:, :1], y)


def test_a_single_support_vector_is_refused_because_it_would_be_published_unchanged() -> None:
    X = np.array([[1.0, 0.0], [-4.0, 1.0], [-5.0, -2.0], [3.0, 1.0]])
    y = np.array([1, -1, -1, 1])
    learner = SVMLearner(theta=1.0, rho=1.0)
    assert np.count_nonzero(learner.solve(X, (y > 0).astype(int), 2).derivatives) == 1
    with pytest.raises(DataError, match=r"single support vector.*published unchanged"):
        released_rows(X, y, learner=learner)


def test_a_row_that_loses_most_of_its_noise_is_worth_a_warning() -> None:
    X, y = d20()
    with pytest.warns(DiscreetWarning, match="loses 50% of its noise"):
        released_rows(X, y)


def test_a_model_without_weights_is_kept_and_worth_a_warning() -> None:
    # Every row comes with both labels: nothing can be learned.
    X = np.repeat(standard_normal((20, 3), Stream.from_seed(1)), 2, axis=0)
    y = np.tile([1, -1], 20)
    with pytest.warns(DiscreetWarning, match="All weights of the model are zero"):
        released = released_rows(X, y)
    # Whole rows are noised, no direction is kept.
    assert np.linalg.matrix_rank(released - X) == 3
    assert np.abs(RegularizedSVM(theta=THETA, rho=RHO).fit(released, y).coef_).max() < 1e-9


def test_as_many_outputs_as_columns_leave_no_direction() -> None:
    X = standard_normal((200, 3), Stream.from_seed(1))
    labels = np.argmax(np.column_stack([X, -X.sum(axis=1)]) + X[:, [1, 2, 0, 0]], axis=1)
    with pytest.raises(DataError, match="have rank 3 for 3 sensitive columns: no invariant noise exists"):
        InvariantRelease(learner="multinomial", variance=1.0, schema=with_target((0, 1, 2, 3), 3)).release(
            X, labels
        )


class Unsettled:
    """A learner that stopped early."""

    wants = "two classes"

    def __init__(self, *, unique: bool = True, residual: float = 1e-8) -> None:
        self.unique = unique
        self.residual = residual

    def solve(self, X: Floats, y: AnyArray, n_classes: int) -> LearnerSolution:
        exact = SVMLearner().solve(X, y, n_classes)
        return replace(exact, residual=self.residual, outward=None)


@pytest.mark.parametrize("residual", [2e-9, 1e-3, np.nan])
def test_a_model_that_is_not_solved_is_refused(residual: float) -> None:
    with pytest.raises(DataError, match="must be solved to a residual of 1e-09"):
        released_rows(*random_table(), learner=Unsettled(residual=residual))
    released_rows(*random_table(), learner=Unsettled(residual=9e-10))


def test_a_network_that_is_not_settled_is_released_with_a_warning() -> None:
    X, y = random_table()
    rng = Stream.from_seed(9)
    layers = [standard_normal((12, 3), rng), standard_normal((3, 1), rng)]
    learner = NetworkLearner(layers, [np.zeros(3), np.zeros(1)], activation="tanh", output="two classes")
    method = InvariantRelease(learner=learner, variance=1.0, bounds=(-9, 9), random_state=1)
    with pytest.warns(DiscreetWarning, match="The network is not stationary"):
        released = method.release(X, y)
    assert np.abs((released.data - X) @ layers[0]).max() < 1e-10
    assert any("stationary point" in line for line in released.promises[0].assumes)
    law = released.summary[0].law
    assert isinstance(law, InvariantLaw)
    assert law.learner == "NetworkLearner"


@pytest.mark.parametrize("learner", ["svm", "logistic"])
def test_one_class_is_refused(learner: str) -> None:
    X, _ = random_table()
    with pytest.raises(DataError, match="rows of every declared class, and has them of 1 of 2"):
        released_rows(X, np.ones(len(X), int), learner=learner)
    method = InvariantRelease(learner="multinomial", variance=1.0, schema=with_target((0, 1, 2)))
    with pytest.raises(DataError, match="has them of 2 of 3"):
        method.release(X, (X[:, 0] > 0).astype(int))


def test_labels_other_than_minus_one_and_one_need_a_schema() -> None:
    X, y = random_table()
    with pytest.raises(DataError, match="must hold -1 and 1 alone when bounds are given"):
        released_rows(X, (y > 0).astype(int))
    with pytest.raises(ParameterError, match="one entry for each of the 200 rows"):
        released_rows(X, y[:-1])
    with pytest.raises(ParameterError, match="InvariantRelease needs a target, and the table has none"):
        InvariantRelease(variance=1.0, bounds=(-9, 9)).release(X)
    with pytest.raises(SchemaError, match="target of InvariantRelease must be two classes"):
        InvariantRelease(variance=1.0, schema=with_target((0, 1, 2))).release(X, (y > 0).astype(int))
    method = InvariantRelease(learner="ridge", variance=1.0, schema=with_target(("a", "b")))
    with pytest.raises(SchemaError, match="must be a number, or classes that are whole numbers"):
        method.release(X, np.where(y > 0, "a", "b"))


def test_a_number_that_is_missing_is_no_target() -> None:
    X, _ = random_table()
    y = X[:, 0].copy()
    y[3] = np.nan
    for settings in ({"learner": "ridge"}, {"learner": "gram", "variance": None}):
        with pytest.raises(DataError, match="must hold a finite number in every row") as caught:
            released_rows(X, y, **settings)
        assert caught.value.line == 4


@pytest.mark.parametrize("bad", [np.nan])
def test_a_missing_cell_in_a_matrix_names_its_column(bad: float) -> None:
    X, y = random_table()
    X = X.copy()
    X[5, 2] = bad
    with pytest.raises(DataError, match="'x3'"):
        released_rows(X, y)


def test_infinities_are_clipped_to_the_bounds() -> None:
    X, y = random_table()
    X = np.clip(X, -1, 1)
    wild = np.where(X == 1, np.inf, X)
    assert np.array_equal(released_rows(X, y, bounds=(-1, 1)), released_rows(wild, y, bounds=(-1, 1)))


def test_public_numbers_may_not_be_missing_and_something_must_be_sensitive() -> None:
    X, y = random_table()
    schema = with_target((-1, 1))
    public = [replace(c, role="public") if c.name != "k" else c for c in schema.columns]
    with pytest.raises(ParameterError, match="must have a sensitive column"):
        InvariantRelease(variance=1.0, schema=replace(schema, columns=public)).release(X, y)
    public[0] = replace(public[0], required=False)
    with pytest.raises(SchemaError, match="'c0' must be required for an invariant release"):
        InvariantRelease(variance=1.0, schema=replace(schema, columns=public)).release(X, y)


@pytest.mark.parametrize("precision", [6, 4, 2, "float32"])
def test_fewer_digits_are_published_only_with_a_warning(precision: Any) -> None:
    X, y = wdbc()
    with pytest.warns(DiscreetWarning, match="moves the model .* Publish all 17 digits"):
        released = released_rows(X, y, precision=precision)
    if precision == "float32":
        assert np.array_equal(released, released.astype(np.float32))
    else:
        assert np.array_equal(released, released.round(precision))
    before, after = (RegularizedSVM(theta=THETA, rho=RHO).fit(rows, y).coef_ for rows in (X, released))
    moved = np.abs(before - after).max()
    expected = {6: (1e-9, 1e-5), 4: (1e-6, 1e-3), 2: (1e-4, 1e-1), "float32": (1e-9, 1e-5)}[precision]
    assert expected[0] < moved < expected[1]


def test_a_declared_grid_is_not_applied_and_said_so() -> None:
    X, y = random_table()
    schema = with_target((-1, 1))
    columns = [replace(c, grid=0.5) if c.name == "c0" else c for c in schema.columns]
    method = InvariantRelease(variance=1.0, schema=replace(schema, columns=columns), random_state=1)
    with pytest.warns(DiscreetWarning, match="declared grid is not applied"):
        released = method.release(X, y).data
    assert not np.array_equal(released[:, 0] * 2, np.rint(released[:, 0] * 2))


def test_tables_at_the_edge() -> None:
    X, y = random_table()
    # A constant column, and every row twice.
    odd = np.column_stack([X, np.full(len(X), 2.0)])
    odd, labels = np.vstack([odd, odd]), np.concatenate([y, y])
    before, after = (
        RegularizedSVM(theta=THETA, rho=RHO).fit(rows, labels).coef_
        for rows in (odd, released_rows(odd, labels))
    )
    assert np.abs(before - after).max() < 1e-9
    # Fewer rows than columns.
    wide, few = X[:10], y[:10]
    assert len(set(few)) == 2
    before, after = (
        RegularizedSVM(theta=THETA, rho=RHO).fit(rows, few).coef_ for rows in (wide, released_rows(wide, few))
    )
    assert np.abs(before - after).max() < 1e-9


def test_tables_past_the_edge() -> None:
    X, y = random_table()
    with pytest.raises(DataError, match="rows of every declared class, and has them of 1 of 2"):
        released_rows(X[:1], y[:1])
    with pytest.raises(DataError, match="row"):
        released_rows(X[:0], y[:0])
    with pytest.raises(DataError, match="needs at least 15 rows for 12 sensitive columns, had 14"):
        released_rows(X[:14], y[:14], learner="gram", variance=None)
    with pytest.warns(DiscreetWarning, match="hardly more rows than columns"):
        released_rows(X[:15], y[:15], learner="gram", variance=None)


def test_ridge_on_a_single_row_says_the_same_of_every_row() -> None:
    X = np.array([[1.0, 2.0, 3.0]])
    with pytest.warns(DiscreetWarning, match="All weights of the model are zero"):
        released = released_rows(X, np.array([5.0]), learner="ridge")
    assert np.abs(released - X).min() > 0.1


def test_no_refusal_quotes_a_row() -> None:
    X = np.array([[1.25, 0.5], [-4.75, 1.0], [-5.5, -2.0], [3.125, 1.0]])
    y = np.array([1, -1, -1, 1])
    with pytest.raises(DiscreetError) as caught:
        released_rows(X, y, learner=SVMLearner(theta=1.0, rho=1.0))
    assert not any(str(value) in str(caught.value) for value in X.reshape(-1) if value % 1)
