"""Five wrong accountants, each with the computation or check that tells it from the true one."""

from __future__ import annotations

import math
import threading
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import cross_val_score

from discreet.errors import BudgetExceeded
from discreet.ledger import Caps, Ledger
from discreet.privacy.calibration import gaussian_delta, gaussian_epsilon, gaussian_mu, zcdp_rho
from discreet.privacy.composition import Spending
from discreet.privacy.promises import ApproxDP, PureDP
from discreet.privacy.renyi import best_order, pool, pure_cost
from discreet.privacy.rounding import exact, float_down
from tests.ledger.ledger_workers import crowd

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import Floats
    from discreet.privacy.promises import Promise


# --- 1: a split that sums to 1.75 epsilon -----------------------------------------------------


def split(dimension: int, rounds: int) -> tuple[Fraction, Fraction]:
    """Share epsilon 1 between `rounds` counts and `rounds` times `dimension` sums."""
    ratio = Fraction((4 * dimension * 0.225**2) ** (1 / 3))
    unit = 1 / (rounds * (dimension + ratio))
    return unit, ratio * unit  # for each sum, for each count


def k_means(ledger: Ledger, each_sum: float, each_count: float) -> None:
    for _ in range(7):
        ledger.charge([PureDP(epsilon=each_sum)] * 30, what="sums")
        ledger.charge(PureDP(epsilon=each_count), what="counts")


def test_a_split_with_its_parts_swapped_runs_into_the_limit() -> None:
    each_sum, each_count = (float_down(part) for part in split(dimension=30, rounds=7))
    with Ledger.open(":memory:", limit=PureDP(epsilon=1)) as ledger:
        k_means(ledger, each_sum, each_count)
        assert ledger.spent().epsilon == pytest.approx(1)
    twin = 7 * (30 * each_count + each_sum)
    assert twin == pytest.approx(1.75, abs=0.01)
    with Ledger.open(":memory:", limit=PureDP(epsilon=1)) as ledger:
        with pytest.raises(BudgetExceeded):
            k_means(ledger, each_count, each_sum)
        assert ledger.spent().epsilon <= 1


# --- 2: an accountant that clone copies -------------------------------------------------------


class CopiedAccountant:
    """Wrong: an ordinary object, so scikit-learn clones it with the estimator."""

    def __init__(self) -> None:
        self.charges: list[Promise] = []

    def charge(self, promise: Promise) -> None:
        self.charges.append(promise)


class Charging(ClassifierMixin, BaseEstimator):
    def __init__(self, accountant: Any = None) -> None:
        self.accountant = accountant

    def fit(self, X: Any, y: Any) -> Charging:
        self.accountant.charge(PureDP(epsilon=0.1))
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X: Any) -> Any:
        return np.zeros(len(X), dtype=int)


def charged_by_five_folds(accountant: Any, count: Callable[[], int]) -> int:
    X = np.arange(20.0).reshape(10, 2)
    cross_val_score(Charging(accountant), X, np.arange(10) % 2, cv=5, error_score="raise")
    return count()


def test_a_copied_accountant_forgets_every_fold() -> None:
    twin = CopiedAccountant()
    assert charged_by_five_folds(twin, lambda: len(twin.charges)) == 0
    with Ledger.open(":memory:") as ledger:
        assert charged_by_five_folds(ledger, lambda: ledger.spent().charges) == 5


# --- 3: a pure event read as Gaussian ---------------------------------------------------------


def randomized_response_delta(epsilon: float, x: float, k: int) -> float:
    """The true delta at x of k randomized responses: a sum over the number of true reports."""
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    return math.fsum(
        math.comb(k, true) * max(
            0.0,
            keep**true * (1 - keep) ** (k - true)
            - math.exp(x) * keep ** (k - true) * (1 - keep) ** true,
        )
        for true in range(k + 1)
    )  # fmt: skip


@pytest.mark.parametrize("k", [1, 2, 5])
def test_pure_events_read_through_their_rho_as_gaussian_claim_too_little(k: int) -> None:
    epsilon = 1.0
    books = Spending()
    for _ in range(k):
        books = books + Spending.from_promises(PureDP(epsilon=epsilon))
    assert float(books.pure_squares) == k * epsilon**2 / 2
    twin_mu = math.sqrt(2 * float(books.pure_squares))
    worst = 0.0
    for x in np.linspace(0.0, k * epsilon * 0.99, 40):
        true = randomized_response_delta(epsilon, float(x), k)
        worst = max(worst, true / gaussian_delta(float(x), twin_mu))
        assert books.delta_at(float(x)) >= true * (1 - 1e-12)
    assert worst > 1.03  # the twin's claim is false


# --- 4: a running minimum trusted by someone who watches --------------------------------------


def watched(
    epsilon: float, looks: int, rho: float, response: Callable[[float], float], *, then: bool
) -> float:
    """The delta at `epsilon` that the best watching analyst reaches, by quadrature.

    The analyst asks Gaussian questions worth ``rho / looks`` each and knows the privacy loss z so far.
    Once, after any look, a randomized response may be asked, of size ``response(rho spent)``; `then`
    says whether Gaussian questions may follow it. Backward in time, the value of a position z is the
    larger of the response now and the mean over the next look.
    """
    step = rho / looks
    sd = math.sqrt(2 * step)
    grid = sd / 10
    below, above = 8 * math.sqrt(2 * rho), epsilon + 9 * math.sqrt(2 * rho) + 1
    z = grid * np.arange(
        -round(below / grid), round(above / grid), dtype=np.float64
    )  # the start, 0, is on it
    offsets = np.arange(-round(9 * sd / grid), round(9 * sd / grid) + 1) * grid
    # z moves by a Gaussian of mean `step` and variance `2 step` under the first table.
    weights = norm.pdf(offsets, loc=step, scale=sd) * grid
    value = gaussian(epsilon - z, step)  # the last look in closed form: no kink to integrate
    for look in range(looks - 1, -1, -1):
        if look < looks - 1:
            padded = np.pad(value, len(offsets) // 2, mode="edge")
            value = np.convolve(padded, weights[::-1], mode="valid")
        size = response(look * step)
        if size > 0:
            left = rho - look * step if then else 0.0
            keep = math.exp(size) / (1 + math.exp(size))
            after = keep * gaussian(epsilon - z - size, left) + (1 - keep) * gaussian(
                epsilon - z + size, left
            )
            value = np.maximum(value, after)
    return float(value[round(below / grid)])


def gain(x: Floats) -> Floats:
    """What is reached when nothing more is asked: the part of the loss above epsilon."""
    return np.where(x < 0, -np.expm1(np.minimum(x, 0.0)), 0.0)


def gaussian(x: Floats, rho: float) -> Floats:
    if rho <= 0:
        return gain(x)
    mu = math.sqrt(2 * rho)
    return np.asarray(norm.cdf(mu / 2 - x / mu) - np.exp(x + norm.logcdf(-mu / 2 - x / mu)))


EPSILON, DELTA = 4.0, 1e-6


def running_minimum(rho: float) -> float:
    """Wrong: the largest response that the smaller of two readings still allows at this moment."""
    exact = EPSILON if rho == 0 else EPSILON - gaussian_epsilon(math.sqrt(2 * rho), DELTA)
    pooled = math.sqrt(max(0.0, 2 * (zcdp_rho(EPSILON, DELTA) - rho)))
    return max(exact, pooled, 0.0)


def test_the_quadrature_knows_the_gaussian_curve() -> None:
    # With no response to choose, watching changes nothing: the closed form must come out.
    rho = gaussian_mu(EPSILON, DELTA) ** 2 / 2
    alone = watched(EPSILON, 32, rho, lambda _: 0.0, then=False)
    assert alone == pytest.approx(DELTA, rel=1e-6)


def test_a_running_minimum_is_beaten_ninefold_by_someone_who_watches() -> None:
    rho = gaussian_mu(EPSILON, DELTA) ** 2 / 2
    reached = watched(EPSILON, 64, rho, running_minimum, then=False)
    assert reached > 9 * DELTA


def response_left(left: Fraction, order: Fraction) -> float:
    """Return the largest randomized response whose Rényi divergence fits what is left of a pool."""
    low, high = 0.0, 60.0
    for _ in range(40 if left > 0 else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if pure_cost(exact(middle), order) <= left else (low, middle)
    return low


def pool_at(order: float) -> Fraction:
    return pool(exact(EPSILON), exact(DELTA) * 9 / 10, exact(order))


def test_one_pool_at_one_order_holds_against_the_same_analyst_and_a_stronger_one() -> None:
    caps = Caps.from_limit(ApproxDP(epsilon=EPSILON, delta=DELTA))
    assert caps.order is not None
    order, whole = exact(caps.order), dict(caps.amounts)["rho"].exact
    reached = watched(
        EPSILON, 64, float(whole), lambda rho: response_left(whole - exact(rho), order), then=False
    )
    assert 0.4 * DELTA < reached <= DELTA
    for part in (Fraction(1, 4), Fraction(3, 4)):  # Gaussian questions may follow a response
        size = response_left(part * whole, order)
        rest = float((1 - part) * whole)

        def same(_: float, size: float = size) -> float:
            return size

        assert watched(EPSILON, 64, rest, same, then=True) <= DELTA


def test_an_order_that_is_chosen_after_seeing_answers_is_beaten() -> None:
    best = best_order(EPSILON, 0.9 * DELTA)
    orders = [order for k in range(-2, 9) if pool_at(order := float(f"{1 + (best - 1) * 2**k:.4g}")) > 0]
    assert len(orders) > 8

    def largest(rho: float) -> float:
        return max(response_left(pool_at(order) - exact(rho), exact(order)) for order in orders)

    assert watched(EPSILON, 64, float(pool_at(best)), largest, then=False) > 1.7 * DELTA


def test_a_rule_that_is_chosen_after_seeing_answers_is_beaten() -> None:
    # Gaussian questions to the last under the Gaussian rule, or a response under the mixed one.
    limit = ApproxDP(epsilon=EPSILON, delta=DELTA)
    gaussian_caps, mixed = Caps.from_limit(limit, rule="gaussian"), Caps.from_limit(limit)
    assert mixed.order is not None
    order, whole = exact(mixed.order), dict(mixed.amounts)["rho"].exact
    most = float(dict(gaussian_caps.amounts)["rho"].exact)
    reached = watched(EPSILON, 64, most, lambda rho: response_left(whole - exact(rho), order), then=False)
    assert reached > 1.15 * DELTA


# --- 5: read, then write ----------------------------------------------------------------------


class ReadThenWrite:
    """Wrong: looks at what is spent in one step and writes the sum in another."""

    def __init__(self, limit: Fraction, meet: threading.Barrier) -> None:
        self.limit = limit
        self.spent = Fraction(0)
        self._meet = meet

    def charge(self, amount: Fraction) -> None:
        seen = self.spent
        if seen + amount > self.limit:
            raise BudgetExceeded("full", asked=0, left=0, limit=0, currency="", scope="")
        self._meet.wait()  # everybody has read before anybody writes
        self.spent = seen + amount


def test_a_crowd_overspends_an_accountant_that_reads_and_then_writes() -> None:
    threads, charges = 8, 10
    twin = ReadThenWrite(Fraction(charges, 100), threading.Barrier(threads))
    granted = crowd(lambda: twin.charge(Fraction(1, 100)), threads)
    assert granted == threads * charges
    with Ledger.open(":memory:", limit=PureDP(epsilon=charges / 100)) as ledger:
        assert crowd(lambda: ledger.charge(PureDP(epsilon=0.01)), threads) == charges
