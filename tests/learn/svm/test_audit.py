"""Every mechanism of the private machine against its own promise, by exact densities; wrong twins caught."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
from scipy import stats

from discreet.audit import Density, LawPair, density, distinguish, pushforward
from discreet.learn.perturbation.mean_loss import minimize
from discreet.learn.perturbation.mean_loss_constants import make_linear_plan
from discreet.learn.perturbation.mechanisms import ObjectivePerturbation, OutputPerturbation, split_epsilon
from discreet.learn.perturbation.noise import GaussianVectorNoise, SphericalNoise, gaussian_term_scale
from discreet.learn.svm.loss import gradient_change, in_band, jacobian_cost, mean_supremum, pull
from discreet.learn.svm.problem import HingeProblem, SvmConstants
from discreet.noise import Stream
from discreet.privacy import ApproxDP, PureDP, gaussian_delta
from tests.learn.logistic.test_audit import laplace, normal

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats

Table = tuple[tuple[float, ...], tuple[int, ...]]
Twin = Literal["ours", "no volume", "logistic volume", "one row"]

NEIGHBORS: list[tuple[Table, Table]] = [
    (((1.0,), (1,)), ((-1.0,), (1,))),
    (((1.0, 1.0), (1, 1)), ((1.0, 1.0), (1, 0))),
    (((0.0, 0.0, 1.0), (1, 1, 1)), ((0.0, 0.0, 0.0), (1, 1, 1))),
    (((0.5, -0.3, 0.9, 1.0), (1, 0, 1, 0)), ((0.5, -0.3, 0.9, -1.0), (1, 0, 1, 0))),
]
"""Tables of one column, given as rows and classes, that differ in one row."""


def problem_of(table: Table, lam: float, h: float) -> HingeProblem:
    rows, codes = table
    return HingeProblem(np.array(rows)[:, np.newaxis], np.array(codes), lam, 2, h)


def constants_of(table: Table, h: float) -> SvmConstants:
    return SvmConstants(n_rows=len(table[0]), n_classes=2, dimension=1, tolerance=1e-11, smoothing=h)


def objective_law(table: Table, lam: float, h: float, log_noise: Any, reach: float) -> Density:
    """Return the exact law of the minimizer of a randomly tilted objective in one dimension.

    Its density jumps wherever a row enters or leaves the band on which the hinge is bent.
    """
    problem = problem_of(table, lam, h)
    x, y = np.array(table[0]), np.where(np.array(table[1]) == 1, 1.0, -1.0)
    n = len(x)

    def noise_of(w: Floats) -> Floats:
        return np.asarray((pull(y * x * w[..., np.newaxis], h) * y * x).sum(axis=-1) - n * lam * w)

    def slope(w: Floats) -> Floats:
        bent = in_band(y * x * w[..., np.newaxis], h)
        return np.asarray((bent * x**2).sum(axis=-1) / (2 * h) + n * lam)

    # The same by the program: where the gradient of the tilted objective vanishes.
    for at in (np.array([0.7]), np.array([-1.2]), np.array([1.1])):
        assert -n * problem.gradient(at) == pytest.approx(noise_of(at), abs=1e-14)
        assert n * problem.hessian(at)[0] == pytest.approx(slope(at), abs=1e-14)
    far = (reach + 2) / (n * lam)
    (peak,) = minimize(problem, 1e-11)
    kinks = [side / value for value in (y * x)[x != 0] for side in (1 - h, 1 + h) if side > 0]
    assert not any(x) or any(abs(kink) < far for kink in kinks)
    breaks = sorted({round(float(b), 15) for b in (peak, *kinks) if abs(b) < far})
    return Density(
        logpdf=pushforward(log_noise, noise_of, slope),
        lower=-far,
        upper=far,
        tail=1e-12,
        panels=60,
        breaks=tuple(breaks),
        accuracy=1e-11,
    )


@pytest.mark.parametrize(("one", "two"), NEIGHBORS)
def test_the_exact_law_of_output_perturbation_keeps_its_promise(one: Table, two: Table) -> None:
    for asked in (PureDP(epsilon=0.7), ApproxDP(epsilon=0.7, delta=1e-5)):
        plan = OutputPerturbation.from_constants(constants_of(one, 0.5), asked, 0.5)
        centers = [
            float(np.rint(minimize(problem_of(t, 0.5, 0.5), 1e-11)[0] / plan.noise.step) * plan.noise.step)
            for t in (one, two)
        ]
        if isinstance(plan.noise, SphericalNoise):
            laws = [laplace(center, plan.noise.law.rate) for center in centers]
        else:
            assert isinstance(plan.noise, GaussianVectorNoise)
            laws = [normal(center, plan.noise.sd) for center in centers]
        (claim,) = plan.promises
        assert density(LawPair(p=laws[0], q=laws[1], claim=claim)).verdict == "holds"


@cache
def pure_objective(
    one: Table, two: Table, lam: float, epsilon: float, h: float, twin: Twin = "ours"
) -> tuple[float, bool]:
    """Return the largest loss of the exact law, and whether the audit calls the claim broken."""
    plan = ObjectivePerturbation.from_constants(constants_of(one, h), PureDP(epsilon=epsilon), lam)
    assert isinstance(plan.term, SphericalNoise)
    n, claimed = len(one[0]), epsilon
    if twin == "ours":
        lam, rate, claimed = plan.regularization, plan.term.law.rate, (1 - plan.share) * epsilon
    elif twin == "no volume":
        rate = epsilon / gradient_change(2)
    elif twin == "logistic volume":
        rate = (epsilon - math.log1p(1 / (4 * n * lam))) / gradient_change(2)
    else:
        rate = epsilon - jacobian_cost(2, h, lam, n)
    laws = [
        objective_law(t, lam, h, lambda b: np.log(rate / 2) - rate * np.abs(b), 40 / rate) for t in (one, two)
    ]
    result = density(LawPair(p=laws[0], q=laws[1], claim=PureDP(epsilon=claimed)))
    assert result.measured is not None
    return result.measured, result.verdict == "broken"


@pytest.mark.parametrize(("one", "two"), NEIGHBORS)
@pytest.mark.parametrize(("lam", "epsilon", "h"), [(0.3, 1.0, 0.5), (0.05, 2.0, 0.1), (0.1, 1.5, 1.0)])
def test_the_exact_law_of_objective_perturbation_keeps_its_epsilon_across_the_kinks(
    one: Table, two: Table, lam: float, epsilon: float, h: float
) -> None:
    measured, broken = pure_objective(one, two, lam, epsilon, h)
    assert not broken
    assert measured <= epsilon


@pytest.mark.parametrize(
    ("twin", "neighbors", "lam", "epsilon", "h"),
    [
        ("no volume", 2, 0.01, 1.0, 0.5),
        ("logistic volume", 2, 1.0, 1.0, 0.1),
        ("one row", 0, 1.0, 1.0, 0.5),
    ],
)
def test_forgotten_curvature_and_half_of_the_change_are_caught(
    twin: Twin, neighbors: int, lam: float, epsilon: float, h: float
) -> None:
    measured, broken = pure_objective(*NEIGHBORS[neighbors], lam, epsilon, h, twin)
    assert broken
    assert measured > 1.1 * epsilon
    assert not pure_objective(*NEIGHBORS[neighbors], lam, epsilon, h)[1]


@pytest.mark.parametrize("h", [0.1, 0.5])
@pytest.mark.parametrize(("one", "two"), NEIGHBORS[1:])
def test_the_exact_law_of_gaussian_objective_perturbation_keeps_its_delta(
    one: Table, two: Table, h: float
) -> None:
    asked = ApproxDP(epsilon=1.0, delta=1e-2)
    plan = ObjectivePerturbation.from_constants(constants_of(one, h), asked, 0.3)
    assert isinstance(plan.term, GaussianVectorNoise)
    verdicts = {}
    for name, sd in (("ours", plan.term.sd), ("a fifth", plan.term.sd / 5)):
        laws = [
            objective_law(t, plan.regularization, h, lambda b, sd=sd: stats.norm.logpdf(b, 0, sd), 9 * sd)
            for t in (one, two)
        ]
        verdicts[name] = density(LawPair(p=laws[0], q=laws[1], claim=asked)).verdict
    assert verdicts["ours"] == "holds"
    if (one, two) == NEIGHBORS[1]:
        assert verdicts["a fifth"] == "broken"


def loss_at(one: HingeProblem, two: HingeProblem, rate: float, w: Floats) -> float:
    """Return the exact log-ratio of two densities of minimizers, with a spherical linear term."""
    n = one.n_rows
    loss = rate * n * (np.linalg.norm(two.gradient(w)) - np.linalg.norm(one.gradient(w)))
    return float(loss + np.linalg.slogdet(one.hessian(w))[1] - np.linalg.slogdet(two.hessian(w))[1])


@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_the_loss_in_several_dimensions_stays_below_epsilon_wherever_one_looks(n_classes: int) -> None:
    epsilon, n, h = 1.0, 4, 0.5
    draw = Stream.from_seed(5).generator()
    dimension = 2 if n_classes == 2 else 1
    of = SvmConstants(n_rows=n, n_classes=n_classes, dimension=dimension, smoothing=h)
    left, lam = split_epsilon(of, 0.2, epsilon)
    rate = left / of.gradient_change
    worst = 0.0
    for _ in range(12):
        rows = draw.standard_normal((n, dimension))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        codes = draw.integers(n_classes, size=n)
        other, relabeled = rows.copy(), codes.copy()
        other[-1] *= -1
        relabeled[-1] = draw.integers(n_classes)
        one = HingeProblem(rows, codes, lam, n_classes, h)
        two = HingeProblem(other, relabeled, lam, n_classes, h)
        for w in draw.standard_normal((60, one.size)) * 2:
            worst = max(worst, abs(loss_at(one, two, rate, w)))
    assert 0.3 < worst <= epsilon


@pytest.mark.parametrize("n_classes", [3, 5])
def test_noise_for_one_class_in_place_of_all_is_caught(n_classes: int) -> None:
    # Far along the direction in which all scores of the replaced row pull together.
    epsilon, n, h = 1.0, 50, 0.5
    of = SvmConstants(n_rows=n, n_classes=n_classes, dimension=1, smoothing=h)
    rows, codes = np.append(np.zeros(n - 1), 1.0)[:, np.newaxis], np.zeros(n, np.int64)
    one, two = (HingeProblem(side * rows, codes, 1.0, n_classes, h) for side in (1, -1))
    # Away from the bands of both rows: only the linear term tells them apart.
    w = 0.1 * one.signs[-1]
    assert loss_at(one, two, (epsilon - of.jacobian_cost(1.0)) / of.gradient_change, w) <= epsilon
    wrong = loss_at(one, two, epsilon / 2, w)
    assert abs(wrong) > 1.3 * epsilon
    # The determinants multiply over classes: paid for once, the volume alone spends more than all of it.
    left, lam = split_epsilon(of, 1e-6, epsilon)
    rows[-1], still = 1.0, HingeProblem(0 * rows, codes, lam, n_classes, h)
    bent = HingeProblem(rows, codes, lam, n_classes, h)
    w = 1.0 * bent.signs[-1]
    assert loss_at(bent, still, left / of.gradient_change, w) <= epsilon
    once = 1 / (2 * h * n * math.expm1(epsilon / 2))
    bent, still = (HingeProblem(side * rows, codes, once, n_classes, h) for side in (1, 0))
    volume = np.linalg.slogdet(bent.hessian(w))[1] - np.linalg.slogdet(still.hessian(w))[1]
    assert volume > 1.4 * epsilon


def gaussian_losses(n_classes: int, sd: float, lam: float, n: int, draws: int) -> Floats:
    """Return exact losses at minimizers drawn under the first of two neighbors with one column."""
    rows, codes = np.append(np.zeros(n - 1), 1.0)[:, np.newaxis], np.zeros(n, np.int64)
    signs = np.where(np.arange(n_classes) == 0, 1.0, -1.0)
    b = sd * Stream.from_seed(8).generator().standard_normal((draws, n_classes))

    def tilt(w: Floats, side: float) -> Floats:
        return np.asarray(pull(side * signs * w, 0.5) * side * signs - n * lam * w)

    # The minimizer solves tilt(w) = b, a rising function of one number for each class.
    low, high = ((side * np.abs(b) + side) / (n * lam) for side in (-1.0, 1.0))
    for _ in range(60):
        middle = (low + high) / 2
        above = tilt(middle, 1.0) > b
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    w = (low + high) / 2
    assert HingeProblem(rows, codes, lam, n_classes, 0.5).gradient(w[0]) * -n == pytest.approx(b[0], abs=1e-8)
    volume = [np.log(n * lam + in_band(side * signs * w, 0.5)).sum(axis=1) for side in (1.0, -1.0)]
    other = tilt(w, -1.0)
    return np.asarray(((other**2).sum(axis=1) - (b**2).sum(axis=1)) / (2 * sd**2) + volume[0] - volume[1])


def test_gaussian_terms_of_several_classes_keep_their_delta_and_one_class_alone_does_not() -> None:
    n_classes, n, lam, epsilon, delta = 5, 50, 1.0, 1.0, 0.01
    of = SvmConstants(n_rows=n, n_classes=n_classes, dimension=1)
    draws = 20_000
    verdicts = []
    for change, mean, classes in (
        (of.gradient_change, of.mean_supremum, n_classes),
        (gradient_change(2), mean_supremum(2), 2),
    ):
        sd = gaussian_term_scale(change, mean, epsilon - jacobian_cost(classes, 0.5, lam, n), delta)
        losses = gaussian_losses(n_classes, sd, lam, n, draws)
        spent = float(np.maximum(-np.expm1(epsilon - losses), 0.0).mean())
        # Means of numbers between 0 and 1: Hoeffding's bound at a false alarm of 1e-9.
        verdicts.append(spent - math.sqrt(math.log(1e9) / (2 * draws)) > delta)
    assert verdicts == [False, True]


@pytest.mark.parametrize("privacy", [PureDP(epsilon=0.5), ApproxDP(epsilon=0.5, delta=1e-6)])
def test_the_two_noises_of_objective_perturbation_share_one_epsilon(privacy: PureDP | ApproxDP) -> None:
    constants = SvmConstants(n_rows=500, n_classes=3, dimension=4, tolerance=1e-10)
    plan = ObjectivePerturbation.from_constants(constants, privacy, 0.1)
    error = 1e-10 + plan.term.step * math.sqrt(12) / 2 / 500
    apart = 2 * error / plan.regularization + plan.output.step * math.sqrt(12)
    second = plan.share * 0.5
    left, lam = split_epsilon(constants, 0.1, 0.5 - second)
    assert lam == plan.regularization == 0.1
    if isinstance(plan.output, SphericalNoise) and isinstance(plan.term, SphericalNoise):
        assert plan.output.law.rate * apart + 2 * plan.output.law.log_density_error <= second
        assert plan.term.law.rate * 2 * math.sqrt(3) + 2 * plan.term.law.log_density_error <= left
    else:
        assert isinstance(plan.output, GaussianVectorNoise)
        assert gaussian_delta(second, apart / plan.output.sd) <= 1e-6 / 64
    assert plan.promises[0].delta_at(0.5) <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["output", "objective"])
@pytest.mark.parametrize("half", [False, True])
def test_the_whole_training_is_told_apart_only_with_a_fraction_of_its_noise(
    mechanism: Any, half: bool
) -> None:
    one, two = NEIGHBORS[1]
    of = SvmConstants(n_rows=2, n_classes=2, dimension=1)
    plan = make_linear_plan(of, PureDP(epsilon=8.0 if half else 1.0), regularization=1.0, mechanism=mechanism)

    def train(table: Table, stream: Stream) -> AnyArray:
        return plan.train(problem_of(table, plan.regularization, 0.5), lambda: stream)

    result = distinguish(train, one, two, PureDP(epsilon=1.0), n=600, stream=Stream.from_seed(2))
    assert result.verdict == ("broken" if half else "holds")
