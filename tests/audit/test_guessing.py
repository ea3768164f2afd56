"""Nobody guesses better than a promise allows, and some promises are met exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, special

from discreet.audit._guess import max_success_probability, min_error
from discreet.errors import ParameterError
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PureDP

MUS = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0)


def best_of_two(mu: float, share: float) -> float:
    """Return how often the best guess is right between two Gaussian means, of which one has a share."""
    # Choose the first where its density, times its share, is larger: below a threshold.
    cut = mu / 2 + math.log(share / (1 - share)) / mu
    return share * float(special.ndtr(cut)) + (1 - share) * float(special.ndtr(mu - cut))


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("share", [0.5, 0.6, 0.9])
def test_between_two_values_the_best_guess_from_one_gaussian_number_meets_the_bound(
    mu: float, share: float
) -> None:
    exact = best_of_two(mu, share)
    bound = max_success_probability(GaussianDP(mu=mu), [share, 1 - share])
    assert exact <= bound <= exact + 2e-4
    if exact > share + 1e-3:
        assert max_success_probability(GaussianDP(mu=0.9 * mu), [share, 1 - share]) < exact


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("levels", [2, 5])
def test_randomized_response_does_not_pass_the_bound_and_meets_it_for_two(
    epsilon: float, levels: int
) -> None:
    kept = math.exp(epsilon) / (math.exp(epsilon) + levels - 1)
    bound = max_success_probability(PureDP(epsilon=epsilon), [1 / levels] * levels)
    assert bound >= kept
    if levels == 2:
        assert bound <= kept + 1e-9


def test_one_of_many_gaussian_means_is_guessed_no_better_than_the_bound() -> None:
    # A number for each of five values, of which one is mu / sqrt(2) higher: any two are mu apart.
    for mu in MUS:
        height = mu / math.sqrt(2)

        def right(x: float, height: float = height) -> float:
            return math.exp(-((x - height) ** 2) / 2) / math.sqrt(2 * math.pi) * float(special.ndtr(x)) ** 4

        exact, _ = integrate.quad(right, -12, 14)
        assert exact <= max_success_probability(GaussianDP(mu=mu), [0.2] * 5)


def test_a_promise_of_nothing_much_allows_the_largest_share_and_no_more() -> None:
    assert max_success_probability(PureDP(epsilon=1e-9), [0.7, 0.2, 0.1]) == pytest.approx(0.7, abs=1e-8)
    assert 0.999 < max_success_probability(GaussianDP(mu=70.0, total_variation=1e-33), [0.7, 0.2, 0.1]) <= 1.0
    assert max_success_probability(GaussianDP(mu=1.0), [1.0]) == 1.0


def test_other_promises_are_read_as_their_curves() -> None:
    half = [0.5, 0.5]
    assert max_success_probability(ApproxDP(epsilon=1.0, delta=0.1), half) == pytest.approx(
        max_success_probability(PureDP(epsilon=1.0), half) * 0.9 + 0.1, abs=1e-9
    )
    assert max_success_probability(ZCDP(rho=0.5), half) > max_success_probability(GaussianDP(mu=1.0), half)


@pytest.mark.parametrize("mu", MUS)
def test_the_best_guess_at_one_of_two_numbers_does_not_go_below_the_floor(mu: float) -> None:
    def left(x: float) -> float:
        a, b = math.exp(-(x**2) / 2), math.exp(-((x - mu) ** 2) / 2)
        return 0.5 * a * b / (a + b) / math.sqrt(2 * math.pi) if a + b else 0.0

    # Of two numbers at distance 1, equally likely: the standard deviation is 1/2.
    square, _ = integrate.quad(left, -12, 12 + mu, points=[0.0, mu], limit=200)
    floor = min_error(GaussianDP(mu=mu), sd=0.5, width=1.0)
    assert 0 < floor <= math.sqrt(square)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0])
def test_randomized_response_on_two_numbers_does_not_go_below_the_floor(epsilon: float) -> None:
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    square = keep * (1 - keep)  # the posterior is keep or 1 - keep, whatever is answered
    assert min_error(PureDP(epsilon=epsilon), sd=0.5, width=1.0) <= math.sqrt(square)


def test_a_number_hidden_among_many_columns_is_guessed_no_better_than_the_floor() -> None:
    # A category of k levels, each with a number of its own, is asked as a histogram: any two levels are mu
    # apart, and the number is guessed far better than from its own noisy value.
    numbers = np.linspace(-1, 1, 9)
    for mu in (0.1, 0.3, 0.6):
        draws = special.ndtri((np.arange(20_000)[:, None] * np.sqrt(np.arange(2, 11)) + 0.37) % 1)
        height = mu / math.sqrt(2)
        squares = []
        for true in range(9):
            seen = draws + height * (np.arange(9) == true)
            weights = np.exp(seen * height)
            guess = weights @ numbers / weights.sum(axis=1)
            squares.append(np.mean((guess - numbers[true]) ** 2))
        floor = min_error(GaussianDP(mu=mu), sd=float(numbers.std()), width=2.0)
        assert floor < math.sqrt(np.mean(squares)) < numbers.std()


def test_the_sampler_s_own_error_lowers_the_floor() -> None:
    exact = min_error(GaussianDP(mu=0.5), sd=1.0, width=4.0)
    rough = min_error(GaussianDP(mu=0.5, total_variation=0.01), sd=1.0, width=4.0)
    assert rough == pytest.approx(math.sqrt(exact**2 - 0.16), abs=1e-9)
    assert min_error(GaussianDP(mu=0.5, total_variation=0.5), sd=1.0, width=4.0) == 0.0


def test_wrong_arguments_are_refused() -> None:
    for shares in ([], [0.5, 0.4], [1.2, -0.2]):
        with pytest.raises(ParameterError, match="shares of max_success_probability"):
            max_success_probability(PureDP(epsilon=1.0), shares)
    for sd, width in ((2.0, 1.0), (-1.0, 1.0), (math.nan, 1.0)):
        with pytest.raises(ParameterError, match="sd and width of min_error"):
            min_error(PureDP(epsilon=1.0), sd=sd, width=width)
