"""Bounds on what noise costs: the known values, and noise that is measured against them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import special, stats

from discreet.errors import ParameterError
from discreet.learn.logistic.problem import problem_for
from discreet.learn.logistic.sensitivity import LARGEST_SOFTMAX, gradient_change
from discreet.learn.logistic.utility import (
    input_utility,
    output_utility,
    printed_input_utility,
    printed_output_utility,
)
from discreet.learn.perturbation.mean_loss import minimize
from discreet.noise import Stream, spherical_laplace, standard_normal

if TYPE_CHECKING:
    from discreet._types import Floats, Ints

PAPER: dict[str, Any] = {"dimension": 30, "regularization": 0.5, "epsilon": 1.0, "failure": 0.05}


def rows(n: int, d: int, n_classes: int = 2) -> tuple[Floats, Ints]:
    X = standard_normal((n, d), Stream.from_seed(n + d)) / math.sqrt(d)
    y = np.arange(n) % n_classes
    X[:, 0] += 0.3 * (y - (n_classes - 1) / 2)
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0), y


def test_proposition_2_has_the_known_values_as_printed_and_as_corrected() -> None:
    assert printed_output_utility(n_rows=200, **PAPER) == pytest.approx(11.05, abs=0.002)
    assert output_utility(n_rows=200, **PAPER) == pytest.approx(0.2345, abs=5e-5)
    # By hand: the published quantile of Gamma(30), the scale 2 / (lambda N epsilon), lambda + 1/4.
    assert output_utility(n_rows=200, **PAPER) == pytest.approx(
        (39.540972 * 2 / 100) ** 2 * 0.75 / 2, rel=1e-7
    )


def test_the_tight_constant_and_several_classes_enter_as_they_should() -> None:
    loose, tight = (output_utility(n_rows=200, tight=tight, **PAPER) for tight in (False, True))
    assert loose / tight == pytest.approx((2 / gradient_change(2, 0.5)) ** 2, rel=1e-9)
    three = output_utility(n_rows=200, n_classes=3, **PAPER)
    quantile = float(special.gammaincinv(60, 0.95))
    assert three == pytest.approx((quantile * LARGEST_SOFTMAX / 100) ** 2 * 1.0 / 2, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 3])
def test_what_is_lost_stays_below_the_corrected_bound_and_near_it(n_classes: int) -> None:
    n, d, lam, epsilon = 200, 10, 0.5, 1.0
    X, y = rows(n, d, n_classes)
    problem = problem_for(X, y, lam, n_classes)
    w = minimize(problem, 1e-11)
    change = gradient_change(n_classes, lam, tight=False)
    draws = spherical_laplace(epsilon * lam * n / change, problem.size, 4000, Stream.from_seed(1))
    lost = np.array([problem.value(w + noise) - problem.value(w) for noise in draws])
    given: dict[str, Any] = {"n_rows": n, "dimension": d, "regularization": lam, "epsilon": epsilon}
    bound = output_utility(failure=0.05, n_classes=n_classes, **given)
    over = int(np.sum(lost > bound))
    # At most one in twenty, up to the luck of 4,000 draws; and no more than three times too much.
    assert stats.binom.sf(over - 1, len(lost), 0.05) > 1e-9
    assert bound < 3 * float(np.quantile(lost, 0.95))


def test_proposition_5_as_printed_is_passed_and_ours_is_not() -> None:
    # The step of its proof: the mean of the norms of the noise of 500 rows, for one column.
    n, failure, epsilon = 500, 0.5, 1.0
    norms = (
        np.abs(spherical_laplace(epsilon / 2, 1, 200 * n, Stream.from_seed(2))).reshape(200, n).mean(axis=1)
    )
    printed = 2 * math.log(1 / failure) / epsilon
    corrected = float(special.gammaincinv(n, 1 - failure)) * 2 / (epsilon * n)
    assert np.mean(norms > printed) == 1.0
    assert stats.binom.sf(int(np.sum(norms > corrected)) - 1, 200, failure) > 1e-9
    given: dict[str, Any] = {"dimension": 1, "regularization": 0.5, "epsilon": epsilon, "failure": failure}
    mean_only = (corrected / 0.5) ** 2 * (0.5 + 0.25) / 2
    assert input_utility(n_rows=n, norm=0.0, **given) == pytest.approx(mean_only, rel=1e-9)
    # Even with a smaller factor for the curvature, the corrected one is larger.
    assert input_utility(n_rows=n, norm=0.0, **given) > printed_input_utility(**given)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_noise_on_rows_costs_less_than_the_corrected_bound(n_classes: int) -> None:
    n, d, lam, epsilon = 300, 3, 0.5, 20.0
    X, y = rows(n, d, n_classes)
    problem = problem_for(X, y, lam, n_classes)
    w = minimize(problem, 1e-11)
    given: dict[str, Any] = {"n_rows": n, "dimension": d, "regularization": lam, "epsilon": epsilon}
    public = input_utility(failure=0.05, n_classes=n_classes, **given)
    known = input_utility(failure=0.05, n_classes=n_classes, norm=float(np.linalg.norm(w)), **given)
    assert known <= public
    for seed in range(20):
        noised = X + spherical_laplace(epsilon / 2, d, n, Stream.from_seed(seed))
        found = minimize(problem_for(noised, y, lam, n_classes), 1e-9)
        assert problem.value(found) - problem.value(w) < known


def test_the_two_propositions_differ_in_how_they_go_with_the_rows() -> None:
    few, many = (output_utility(n_rows=n, **PAPER) for n in (100, 1000))
    assert few / many == pytest.approx(100, rel=1e-9)
    few, many = (input_utility(n_rows=n, **PAPER) for n in (100, 10_000))
    assert 1 < few / many < 1.1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_rows": 0}, "n_rows"),
        ({"dimension": 0}, "dimension"),
        ({"regularization": 0.0}, "regularization"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"failure": 1.0}, "failure"),
        ({"failure": math.nan}, "failure"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=f"^{message} of a utility bound"):
        output_utility(**{"n_rows": 100, **PAPER, **wrong})
