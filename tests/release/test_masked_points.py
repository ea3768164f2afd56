"""Points whose classifier is a given one: existence, constructions, reference values."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import optimize, special
from sklearn.linear_model import LogisticRegression

from discreet.errors import PromiseError
from discreet.learn.logistic.problem import problem_for
from discreet.learn.logistic.sensitivity import largest_norm
from discreet.learn.perturbation.mean_loss import minimize
from discreet.noise import Stream, standard_normal
from discreet.release.masked import Task, _equations, make_mask
from discreet.release.masked._points import binary_points, greedy_points, greedy_value
from discreet.release.masked.encoding import apportion, model_shares
from discreet.release.masked.existence import least_records, total_gain
from discreet.release.masked.losses import LOGISTIC

if TYPE_CHECKING:
    from discreet._types import Floats, Ints


def weights_of(n_classes: int, dimension: int, norm: float) -> Floats:
    rows = 1 if n_classes == 2 else n_classes
    found = np.sin(np.arange(1, rows * dimension + 1) ** 1.3).reshape(rows, dimension)
    if rows > 1:
        found -= found.mean(axis=0)
    return np.asarray(found * (norm / np.linalg.norm(found)))


def task_of(weights: Floats, n: int, regularization: float, **other: Any) -> Task:
    n_classes, constant = max(2, len(weights)), other.get("constant", 0.0)

    def labels(w: Floats, penalty: float) -> Ints:
        counts = apportion(model_shares(w, penalty, constant, 1.0), n)
        return np.repeat(np.arange(n_classes), counts)

    usual: dict[str, Any] = {
        "weights": weights,
        "regularization": regularization,
        "radius": 1.0,
        "constant": 0.0,
        "n_records": n,
        "labels": labels,
        "fixed": np.zeros((0, weights.shape[1])),
        "fixed_codes": np.zeros(0, np.int64),
    }
    return Task(**{**usual, **other})


def retrained(points: Floats, codes: Ints, regularization: float) -> Floats:
    """Train scikit-learn's own logistic regression, which knows nothing of ours."""
    model = LogisticRegression(
        C=1 / (regularization * len(points)),
        fit_intercept=False,
        tol=1e-14,
        max_iter=100_000,
        solver="newton-cholesky",
    )
    return np.asarray(model.fit(points, codes).coef_)


CASES = [
    (2, 2, 50, 0.5, 0.5, 0.0),
    (2, 30, 200, 0.5, 0.6, 0.0),
    (2, 30, 1000, 0.01, 4.0, 0.0),
    (2, 5, 1000, 1e-3, 10.0, 0.0),
    (2, 1, 60, 0.5, 0.4, 0.0),
    (2, 6, 400, 0.05, 1.5, 0.3),
    (3, 5, 300, 0.5, 0.6, 0.0),
    (3, 2, 90, 0.5, 0.5, 0.0),
    (3, 5, 300, 0.5, 0.5, 0.4),
    (10, 25, 1000, 0.03, 3.0, 0.0),
    (10, 25, 1000, 0.03, 3.0, 0.2),
]


@pytest.mark.slow
@pytest.mark.parametrize(("n_classes", "d", "n", "penalty", "norm", "constant"), CASES)
def test_the_gradient_is_zero_and_scikit_learn_finds_the_classifier_again(
    n_classes: int, d: int, n: int, penalty: float, norm: float, constant: float
) -> None:
    weights = weights_of(n_classes, d + (constant > 0), norm)
    mask = make_mask(task_of(weights, n, penalty, constant=constant), Stream.from_seed(1))
    assert mask.gradient <= 1e-12
    assert mask.points.shape == (n, d + (constant > 0))
    assert np.linalg.norm(mask.points, axis=1).max() <= 1 + 1e-12
    if constant:
        assert (mask.points[:, -1] == constant).all()
    assert mask.scale == 1.0
    np.testing.assert_allclose(mask.weights, weights, atol=1e-15)
    problem = problem_for(mask.points, mask.codes, penalty, n_classes)
    ours = problem.weights(minimize(problem, 1e-12))
    assert np.abs(ours - weights).max() <= 1e-9
    assert np.abs(retrained(mask.points, mask.codes, penalty) - weights).max() <= 1e-6


def test_the_gradient_is_that_of_the_problem_by_finite_differences() -> None:
    weights = weights_of(3, 4, 0.6)
    mask = make_mask(task_of(weights, 60, 0.5), Stream.from_seed(2))
    problem = problem_for(mask.points, mask.codes, 0.5, 3)
    flat = (np.asarray(problem.basis) @ weights).reshape(-1)  # type: ignore[attr-defined]
    least = problem.value(flat)
    for direction in np.eye(len(flat)):
        ahead, behind = (problem.value(flat + step * direction) for step in (1e-4, -1e-4))
        assert abs(ahead - behind) / 2e-4 < 1e-7
        assert min(ahead, behind) > least


def test_one_point_is_the_published_one() -> None:
    points = binary_points(np.array([0.3, -0.4]), np.ones(1), 0.5, 1.0, Stream.from_seed(1))
    np.testing.assert_allclose(points, [[0.350959053171, -0.467945404228]], atol=1e-12)
    assert np.linalg.norm(points) == pytest.approx(0.584931755285, abs=1e-12)


def test_all_labels_agree_with_the_classifier_and_points_have_room_beside_its_axis() -> None:
    weights = weights_of(2, 10, 0.6)
    mask = make_mask(task_of(weights, 400, 0.5), Stream.from_seed(3))
    scores = mask.points @ weights[0]
    assert ((scores > 0) == (mask.codes == 1)).all()
    across = mask.points - np.outer(scores, weights[0]) / np.sum(weights**2)
    assert np.linalg.norm(across, axis=1).mean() > 0.3
    wrong = retrained(mask.points, 1 - mask.codes, 0.5)  # the paper's signs lead to the opposite
    cosine = float(np.sum(wrong * weights) / np.linalg.norm(wrong) / np.linalg.norm(weights))
    assert cosine == pytest.approx(-1, abs=1e-3)


def test_no_points_exist_beyond_the_largest_norm_and_the_bound_is_sharp() -> None:
    # The best gradient over any points anywhere, for a classifier that is too long.
    weights = np.array([0.9, 0.0])
    best = optimize.minimize_scalar(lambda m: -m * special.expit(-m), bounds=(0, 5), method="bounded")
    left = (0.5 * weights @ weights + best.fun) / 0.9
    assert left == pytest.approx(0.140595, abs=1e-6)
    with pytest.raises(PromiseError, match="no number of records is enough"):
        make_mask(task_of(weights[None], 100, 0.5, infeasible="error"), Stream.from_seed(1))
    longest = largest_norm(0.5)
    for part, exists in ((0.9999, True), (1.0001, False)):
        task = task_of(np.array([[longest * part, 0.0]]), 50, 0.5, infeasible="error")
        if exists:
            assert make_mask(task, Stream.from_seed(1)).gradient <= 1e-12
        else:
            with pytest.raises(PromiseError, match=r"norm is 0\.6749 at a regularization of 0\.5"):
                make_mask(task, Stream.from_seed(1))


@pytest.mark.parametrize("norm", [math.sqrt(0.3 / 0.5), 5.0])
def test_a_classifier_that_is_too_long_is_shortened_or_gets_another_penalty(norm: float) -> None:
    weights = weights_of(2, 4, norm)
    shorter = make_mask(task_of(weights, 200, 0.5), Stream.from_seed(1))
    assert shorter.gradient <= 1e-12
    assert shorter.scale < 1
    np.testing.assert_allclose(shorter.weights, shorter.scale * weights, rtol=1e-12)
    other = make_mask(task_of(weights, 200, 0.5, infeasible="lambda"), Stream.from_seed(1))
    np.testing.assert_array_equal(other.weights, weights)
    assert other.regularization < 0.5
    assert np.abs(retrained(other.points, other.codes, other.regularization) - weights).max() < 1e-6


def test_several_classes_that_are_too_long_are_shortened_too() -> None:
    mask = make_mask(task_of(weights_of(4, 6, 30.0), 300, 0.5), Stream.from_seed(1))
    assert mask.gradient <= 1e-12
    assert 0 < mask.scale < 0.1
    with pytest.raises(PromiseError, match="no number of records is enough"):
        make_mask(task_of(weights_of(4, 6, 30.0), 300, 0.5, infeasible="error"), Stream.from_seed(1))


def test_weights_that_do_not_sum_to_zero_are_centered() -> None:
    weights = weights_of(3, 4, 0.5)
    mask = make_mask(task_of(weights + 3.0, 90, 0.5), Stream.from_seed(1))
    np.testing.assert_allclose(mask.weights, weights, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2])
def test_few_points_and_a_classifier_of_zero_are_possible(n: int) -> None:
    for norm in (0.0, 0.4):
        mask = make_mask(task_of(weights_of(2, 3, 1.0) * norm, n, 0.5), Stream.from_seed(1))
        assert mask.gradient <= 1e-12


def test_fixed_records_stay_and_the_least_number_of_others_is_named() -> None:
    i = np.arange(1.0, 121.0)
    rows = np.column_stack([np.sin(i), np.cos(3 * i), np.sin(5 * i)]) / 2
    codes = (np.arange(120) % 3).astype(np.int64)
    rows[codes == 1, 0] += 0.3
    rows[codes == 2, 1] -= 0.3
    problem = problem_for(rows, codes, 0.05, 3)
    weights = problem.weights(minimize(problem, 1e-12))
    others = codes != 2
    fixed: dict[str, Any] = {"fixed": rows[others], "fixed_codes": codes[others]}
    same = np.full(40, 2)
    mask = make_mask(
        task_of(weights, 40, 0.05, labels=lambda w, p: same, infeasible="error", **fixed), Stream.from_seed(1)
    )
    assert mask.gradient <= 1e-12
    np.testing.assert_array_equal(mask.points[:80], rows[others])
    assert np.abs(retrained(mask.points, mask.codes, 0.05) - weights).max() < 1e-6
    # Fixed records of the wrong class pull away, and it takes so many more to make up for that.
    wrong = {"fixed": rows[others], "fixed_codes": 1 - codes[others] % 2}
    least = int(least_records(weights, 0.05, 1.0, wrong["fixed"], wrong["fixed_codes"]))
    assert least > 1
    need = 0.05 * np.sum(weights**2)
    most = special.lambertw(2 / math.e).real
    short = 80 * need - total_gain(weights, wrong["fixed"], wrong["fixed_codes"])
    assert (least - 1) * (most - need) < short <= least * (most - need)
    with pytest.raises(PromiseError, match=f"at least {least:,} records beside the 80 fixed ones"):
        make_mask(
            task_of(weights, least - 1, 0.05, infeasible="error", **wrong),
            Stream.from_seed(1),
        )


def test_beside_fixed_records_points_are_spread_and_not_a_few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    # The paper's example in the plane: three classes, the third one sensitive.
    codes = np.repeat([0, 1, 2], 100)
    centers = np.array([[0.0, 1.5], [1.0, 1.0], [1.0, -1.0]])
    rows = (centers[codes] + 0.5 * standard_normal((300, 2), Stream.from_seed(2))) / 4
    problem = problem_for(rows, codes, 0.01, 3)
    weights = problem.weights(minimize(problem, 1e-12))
    same = np.full(100, 2)
    task = task_of(weights, 100, 0.01, labels=lambda w, p: same, fixed=rows[:200], fixed_codes=codes[:200])

    def places() -> int:
        mask = make_mask(task, Stream.from_seed(2))
        assert mask.scale == 1.0
        assert mask.gradient <= 1e-12
        return len(np.unique((mask.points[200:] * 20).round(), axis=0))

    assert places() > 20
    # A linear program alone finds points as well, but all in a few places.
    monkeypatch.setattr(_equations, "tilted_start", lambda system, q: None)
    assert places() < 15


def test_the_greedy_objective_is_the_published_one() -> None:
    value, slope = greedy_value(np.array([0.2, -0.1]), 1, np.array([[1.0, -2.0]]), np.array([[0.05, 0.07]]))
    assert value == pytest.approx(0.017860453746626235, abs=1e-17)
    np.testing.assert_allclose(slope, [0.093468346967, 0.046140458115], atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_the_greedy_gradient_is_the_derivative(n_classes: int) -> None:
    weights, left = weights_of(n_classes, 4, 2.0), weights_of(n_classes, 4, 1.0)[:, ::-1]
    x = np.array([0.3, -0.2, 0.5, 0.1])
    for code in range(n_classes):
        _, slope = greedy_value(x, code, weights, left)
        steps = [
            (greedy_value(x + h, code, weights, left)[0] - greedy_value(x - h, code, weights, left)[0]) / 2e-6
            for h in 1e-6 * np.eye(4)
        ]
        np.testing.assert_allclose(slope, steps, atol=1e-8)


def test_the_greedy_construction_gets_there_point_by_point() -> None:
    weights = weights_of(2, 5, 0.5)
    task = task_of(weights, 60, 0.5, construction="greedy")
    mask = make_mask(task, Stream.from_seed(1))
    assert mask.gradient < 1e-10
    assert np.linalg.norm(mask.points, axis=1).max() <= 1
    # As printed, without a pace and without a ball: most points end at the origin, a few far outside.
    codes = task.labels(weights, 0.5)
    printed = greedy_points(weights, codes, 0.5, Stream.from_seed(1), radius=None, pace=False)
    size = np.linalg.norm(printed, axis=1)
    assert np.mean(size < 0.1) > 0.25
    assert size.max() > 20
    assert np.mean(np.linalg.norm(mask.points, axis=1) < 0.1) == 0


def test_gains_peak_where_they_should() -> None:
    margins = np.linspace(-5, 10, 100_001)
    assert margins[LOGISTIC.gain(margins).argmax()] == pytest.approx(1.2784645427610738, abs=1e-3)
    assert LOGISTIC.gain(margins).max() == pytest.approx(0.2784645427610738, abs=1e-8)


@pytest.mark.parametrize(
    ("shares", "n", "counts"), [([1, 1, 1], 4, [2, 1, 1]), ([0.2, 0.8], 7, [1, 6]), ([0, 3], 5, [0, 5])]
)
def test_labels_are_apportioned_by_largest_remainders(shares: list[float], n: int, counts: list[int]) -> None:
    assert apportion(shares, n).tolist() == counts


def test_the_same_stream_makes_the_same_points() -> None:
    task = task_of(weights_of(3, 4, 0.5), 60, 0.5)
    first, again, other = (make_mask(task, Stream.from_seed(seed)).points for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert dataclasses.is_dataclass(task)


@pytest.mark.stats
@pytest.mark.parametrize(
    ("n_classes", "d", "n"), [(2, 100, 1_000_000), (2, 10, 100_000), (10, 100, 100_000), (10, 100, 1_000_000)]
)
def test_large_masks_are_exact_too(n_classes: int, d: int, n: int) -> None:
    weights = weights_of(n_classes, d, 3.0)
    mask = make_mask(task_of(weights, n, 0.01), Stream.from_seed(1))
    assert mask.gradient <= 1e-12
    assert np.linalg.norm(mask.points, axis=1).max() <= 1 + 1e-12
    # scikit-learn's lbfgs ends about 1e-6 away for two classes, whatever its tolerance; Newton's does not.
    solver = "newton-cholesky" if n_classes == 2 else "lbfgs"
    model = LogisticRegression(
        C=1 / (0.01 * n), fit_intercept=False, tol=1e-9, max_iter=10_000, solver=solver
    )
    assert np.abs(model.fit(mask.points, mask.codes).coef_ - mask.weights).max() <= 1e-6
