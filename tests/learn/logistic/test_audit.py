"""Every mechanism against its own promise, by exact densities; what was printed or is usual, caught."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import special, stats

from discreet.audit import Density, LawPair, density, distinguish, precision, pushforward
from discreet.learn.logistic.problem import (
    BinaryProblem,
    LogisticConstants,
    LogisticProblem,
    SoftmaxProblem,
    problem_for,
)
from discreet.learn.logistic.sensitivity import gradient_change, largest_gain, largest_gradient_change
from discreet.learn.perturbation.mean_loss import minimize
from discreet.learn.perturbation.mean_loss_constants import make_linear_plan
from discreet.learn.perturbation.mechanisms import (
    ObjectivePerturbation,
    OutputPerturbation,
    TrainingPlan,
    split_epsilon,
)
from discreet.learn.perturbation.noise import GaussianVectorNoise, SphericalNoise
from discreet.noise import SphericalLaplace, Stream
from discreet.privacy import ApproxDP, Promise, PureDP, gaussian_delta

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats

Table = tuple[tuple[float, ...], tuple[int, ...]]

NEIGHBORS: list[tuple[Table, Table]] = [
    (((1.0,), (1,)), ((-1.0,), (1,))),
    (((1.0, 1.0), (1, 1)), ((1.0, 1.0), (1, 0))),
    (((0.0, 0.0, 1.0), (1, 1, 1)), ((0.0, 0.0, 0.0), (1, 1, 1))),
    (((0.5, -0.3, 0.9, 1.0), (1, 0, 1, 0)), ((0.5, -0.3, 0.9, -1.0), (1, 0, 1, 0))),
]
"""Tables of one column, given as rows and classes, that differ in one row."""


def problem_of(table: Table, lam: float) -> LogisticProblem:
    rows, codes = table
    return BinaryProblem(np.array(rows)[:, np.newaxis], np.array(codes), lam)


def constants_of(table: Table, tolerance: float | None = 1e-11) -> LogisticConstants:
    return LogisticConstants(n_rows=len(table[0]), n_classes=2, dimension=1, tolerance=tolerance)


def laplace(center: float, rate: float) -> Density:
    return Density(
        logpdf=lambda x: np.log(rate / 2) - rate * np.abs(x - center),
        lower=center - 80 / rate,
        upper=center + 80 / rate,
        breaks=(center,),
        tail=1e-34,
    )


def normal(center: float, sd: float) -> Density:
    return Density(
        logpdf=lambda x: stats.norm.logpdf(x, center, sd),
        lower=center - 14 * sd,
        upper=center + 14 * sd,
        tail=1e-40,
    )


def on_lattice(plan: OutputPerturbation, table: Table) -> float:
    """Return where the noise is put: the computed minimizer, rounded."""
    (w,) = minimize(problem_of(table, plan.regularization), plan.tolerance)
    return float(np.rint(w / plan.noise.step) * plan.noise.step)


@pytest.mark.parametrize("tight", [True, False])
@pytest.mark.parametrize(("one", "two"), NEIGHBORS)
@pytest.mark.parametrize("lam", [0.02, 0.5])
def test_the_exact_law_of_output_perturbation_keeps_its_epsilon(
    one: Table, two: Table, lam: float, tight: bool
) -> None:
    constants = replace(constants_of(one), tight=tight)
    plan = OutputPerturbation.from_constants(constants, PureDP(epsilon=0.7), lam)
    assert isinstance(plan, OutputPerturbation)
    assert isinstance(plan.noise, SphericalNoise)
    laws = [laplace(on_lattice(plan, table), plan.noise.law.rate) for table in (one, two)]
    (claim,) = plan.promises
    assert isinstance(claim, PureDP)
    result = density(LawPair(p=laws[0], q=laws[1], claim=claim))
    assert result.verdict == "holds"
    assert result.measured is not None
    assert result.measured <= 0.7


@pytest.mark.parametrize(("one", "two"), NEIGHBORS)
def test_the_exact_law_of_gaussian_output_keeps_its_curve(one: Table, two: Table) -> None:
    asked = ApproxDP(epsilon=0.7, delta=1e-5)
    plan = OutputPerturbation.from_constants(constants_of(one), asked, 0.5)
    assert isinstance(plan, OutputPerturbation)
    assert isinstance(plan.noise, GaussianVectorNoise)
    laws = [normal(on_lattice(plan, table), plan.noise.sd) for table in (one, two)]
    (claim,) = plan.promises
    assert claim.delta_at(0.7) <= 1e-5
    assert density(LawPair(p=laws[0], q=laws[1], claim=claim)).verdict == "holds"


def objective_law(table: Table, lam: float, log_noise: Any, reach: float) -> Density:
    """Return the exact law of the minimizer of a randomly tilted objective in one dimension."""
    problem = problem_of(table, lam)
    x, y = np.array(table[0]), np.where(np.array(table[1]) == 1, 1.0, -1.0)
    n = len(x)

    def noise_of(w: Floats) -> Floats:
        return np.asarray((special.expit(-y * x * w[..., np.newaxis]) * y * x).sum(axis=-1) - n * lam * w)

    def slope(w: Floats) -> Floats:
        score = x * w[..., np.newaxis]
        return np.asarray((special.expit(score) * special.expit(-score) * x**2).sum(axis=-1) + n * lam)

    # The same by the program: where the gradient of the tilted objective vanishes.
    at = np.array([0.7])
    assert -n * problem.gradient(at) == pytest.approx(noise_of(at), abs=1e-14)
    assert n * problem.hessian(at)[0] == pytest.approx(slope(at), abs=1e-14)
    far = (reach + 2) / (n * lam)
    (kink,) = minimize(problem, 1e-12)
    return Density(
        logpdf=pushforward(log_noise, noise_of, slope),
        lower=-far,
        upper=far,
        tail=1e-12,
        panels=60,
        breaks=(float(kink),),
        accuracy=1e-12,
    )


@cache
def pure_objective(one: Table, two: Table, lam: float, epsilon: float, *, pay: bool) -> tuple[float, bool]:
    """Return the largest loss of the exact law, and whether the audit calls the claim broken."""
    plan = ObjectivePerturbation.from_constants(constants_of(one), PureDP(epsilon=epsilon), lam)
    assert isinstance(plan, ObjectivePerturbation)
    assert isinstance(plan.term, SphericalNoise)
    if pay:
        lam, rate = plan.regularization, plan.term.law.rate
    else:
        # The term for the whole of epsilon, as if the change of volume were free.
        rate = epsilon / largest_gradient_change(2)
    laws = [
        objective_law(t, lam, lambda b: np.log(rate / 2) - rate * np.abs(b), 40 / rate) for t in (one, two)
    ]
    claim = PureDP(epsilon=(1 - plan.share) * epsilon if pay else epsilon)
    result = density(LawPair(p=laws[0], q=laws[1], claim=claim))
    assert result.measured is not None
    return result.measured, result.verdict == "broken"


@pytest.mark.parametrize(("one", "two"), NEIGHBORS)
@pytest.mark.parametrize(("lam", "epsilon"), [(0.3, 1.0), (0.05, 2.0)])
def test_the_exact_law_of_objective_perturbation_keeps_its_epsilon(
    one: Table, two: Table, lam: float, epsilon: float
) -> None:
    measured, broken = pure_objective(one, two, lam, epsilon, pay=True)
    assert not broken
    assert measured <= epsilon


def test_leaving_out_the_change_of_volume_is_caught() -> None:
    measured, broken = pure_objective(*NEIGHBORS[2], 0.01, 1.0, pay=False)
    assert broken
    assert measured > 1.5


@pytest.mark.parametrize(("one", "two"), NEIGHBORS[1:])
def test_the_exact_law_of_gaussian_objective_perturbation_keeps_its_delta(one: Table, two: Table) -> None:
    asked = ApproxDP(epsilon=1.0, delta=1e-2)
    plan = ObjectivePerturbation.from_constants(constants_of(one), asked, 0.3)
    assert isinstance(plan, ObjectivePerturbation)
    assert isinstance(plan.term, GaussianVectorNoise)
    verdicts = {}
    for name, sd in (("ours", plan.term.sd), ("a tenth", plan.term.sd / 10)):
        laws = [
            objective_law(t, plan.regularization, lambda b, sd=sd: stats.norm.logpdf(b, 0, sd), 9 * sd)
            for t in (one, two)
        ]
        verdicts[name] = density(LawPair(p=laws[0], q=laws[1], claim=asked)).verdict
    assert verdicts["ours"] == "holds"
    if (one, two) == NEIGHBORS[1]:
        assert verdicts["a tenth"] == "broken"


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_loss_in_two_dimensions_stays_below_epsilon_wherever_one_looks(n_classes: int) -> None:
    epsilon, lam, n = 1.0, 0.2, 4
    draw = Stream.from_seed(5).generator()
    dimension = 2 if n_classes == 2 else 1
    left, lam = split_epsilon(
        LogisticConstants(n_rows=n, n_classes=n_classes, dimension=dimension), lam, epsilon
    )
    rate = left / largest_gradient_change(n_classes)
    worst = 0.0
    for _ in range(12):
        rows = draw.standard_normal((n, dimension))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        codes = draw.integers(n_classes, size=n)
        other, relabeled = rows.copy(), codes.copy()
        other[-1] *= -1
        relabeled[-1] = draw.integers(n_classes)
        one, two = problem_for(rows, codes, lam, n_classes), problem_for(other, relabeled, lam, n_classes)
        for w in draw.standard_normal((60, one.size)) * 5:
            loss = rate * n * (np.linalg.norm(two.gradient(w)) - np.linalg.norm(one.gradient(w)))
            loss += np.linalg.slogdet(one.hessian(w))[1] - np.linalg.slogdet(two.hessian(w))[1]
            worst = max(worst, abs(loss))
    assert 0.3 < worst <= epsilon


def test_a_table_exists_for_which_objective_perturbation_spends_nearly_all_of_its_epsilon() -> None:
    # A thousand rows pull across; the one that is replaced is wrong either way, and pulls with or against.
    n, epsilon = 1001, 1.0
    left, lam = split_epsilon(LogisticConstants(n_rows=n, n_classes=2, dimension=2), 0.01, epsilon)
    rate = left / largest_gradient_change(2)
    rows = np.vstack([np.tile([0.0, 1.0], (n - 1, 1)), [-0.3, math.sqrt(0.91)]])
    other = rows.copy()
    other[-1, 1] *= -1
    codes = np.ones(n, np.int64)
    one, two = BinaryProblem(rows, codes, lam), BinaryProblem(other, codes, lam)
    w = np.array([12.0, 0.0])
    loss = rate * n * (np.linalg.norm(one.gradient(w)) - np.linalg.norm(two.gradient(w)))
    loss += np.linalg.slogdet(two.hessian(w))[1] - np.linalg.slogdet(one.hessian(w))[1]
    assert 0.85 * epsilon < loss <= epsilon


@pytest.mark.parametrize("privacy", [PureDP(epsilon=0.5), ApproxDP(epsilon=0.5, delta=1e-6)])
def test_the_two_noises_of_objective_perturbation_share_one_epsilon(privacy: PureDP | ApproxDP) -> None:
    constants = LogisticConstants(n_rows=500, n_classes=3, dimension=4, tolerance=1e-10)
    plan = ObjectivePerturbation.from_constants(constants, privacy, 0.01)
    assert isinstance(plan, ObjectivePerturbation)
    # What is computed has this gradient for the term before rounding; two such points lie on opposite sides.
    error = 1e-10 + plan.term.step * math.sqrt(8) / 2 / 500
    apart = 2 * error / plan.regularization + plan.output.step * math.sqrt(8)
    second = plan.share * 0.5
    first = 0.5 - second
    left, lam = split_epsilon(constants, 0.01, first)
    assert lam == plan.regularization
    (promise,) = plan.promises
    if isinstance(plan.output, SphericalNoise) and isinstance(plan.term, SphericalNoise):
        assert plan.output.law.rate * apart + 2 * plan.output.law.log_density_error <= second
        assert plan.term.law.rate * largest_gradient_change(3) + 2 * plan.term.law.log_density_error <= left
        assert promise.delta_at(0.5) < 2.0**-61
    else:
        assert isinstance(plan.output, GaussianVectorNoise)
        assert promise.delta_at(0.5) <= 1e-6
        assert gaussian_delta(second, apart / plan.output.sd) <= 1e-6 / 64


def test_hiding_the_solvers_error_once_instead_of_twice_is_too_little() -> None:
    # Two points with a gradient of the tolerance, on opposite sides of one minimizer, in a flat direction.
    lam, tolerance = 0.01, 1e-3
    problem = problem_of(((0.0,), (1,)), lam)
    sides = [np.array([s * tolerance / lam * (1 - 1e-9)]) for s in (-1, 1)]
    assert all(np.linalg.norm(problem.gradient(w)) <= tolerance for w in sides)
    rate = SphericalNoise.for_sensitivity(tolerance / lam, 1.0, 1).law.rate
    once = density(
        LawPair(p=laplace(sides[0][0], rate), q=laplace(sides[1][0], rate), claim=PureDP(epsilon=1.0))
    )
    rate = SphericalNoise.for_sensitivity(2 * tolerance / lam, 1.0, 1).law.rate
    twice = density(
        LawPair(p=laplace(sides[0][0], rate), q=laplace(sides[1][0], rate), claim=PureDP(epsilon=1.0))
    )
    assert (once.verdict, twice.verdict) == ("broken", "holds")


def softmax_minimizers(n_classes: int, lam: float, n: int) -> list[Floats]:
    """Return the minimizers of two neighbors that are farther apart than 2 / (lambda N)."""
    lean = 0.15
    norm = math.sqrt(largest_gain(n_classes) / lam)
    length = (1 + largest_gain(n_classes)) / (norm * math.sqrt(n_classes / (n_classes - 1)))
    rows = np.tile([length, 0.0], (n - 1, 1))
    codes = np.append(np.zeros(n - 1, np.int64), n_classes - 1)
    return [
        minimize(SoftmaxProblem(np.vstack([rows, [lean, side]]), codes, lam, n_classes), 1e-11)
        for side in (math.sqrt(1 - lean**2), -math.sqrt(1 - lean**2))
    ]


def test_noise_for_the_constant_printed_for_several_classes_is_caught_and_ours_is_not() -> None:
    lam, n, epsilon = 1e-4, 50_000, 4.0
    one, two = softmax_minimizers(2, lam, n)
    verdicts, losses = [], []
    for change in (2.0, gradient_change(3, lam, tight=False)):
        law = SphericalLaplace(rate=epsilon / (change / (lam * n)), dimension=2)

        def release(w: Floats, stream: Stream, law: SphericalLaplace = law) -> AnyArray:
            # Along the line through both minimizers, where the loss is largest.
            direction = (one - two) / np.linalg.norm(one - two)
            return np.asarray((w + law.integers(20_000, stream) * law.step) @ direction)

        # The exact loss, at any point beyond either minimizer on that line.
        losses.append(law.rate * float(np.linalg.norm(one - two)))
        result = distinguish(
            release, one, two, PureDP(epsilon=epsilon), n=400_000, stream=Stream.from_seed(1)
        )
        verdicts.append(result.verdict)
    assert losses[0] > 1.3 * epsilon
    assert losses[1] <= epsilon
    assert verdicts == ["broken", "holds"]


def test_noise_whose_norm_is_exponential_is_caught() -> None:
    # "||eta|| ~ exp" read as a law of the norm, in five dimensions, at epsilon 0.5 for a distance of 1.
    one, two = np.zeros(5), np.eye(5)[0]
    epsilon = 0.5

    def printed(w: Floats, stream: Stream) -> AnyArray:
        draw = stream.generator()
        direction = draw.standard_normal((10_000, 5))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        noise = direction * draw.exponential(1 / epsilon, (10_000, 1))
        return np.asarray(np.linalg.norm(w + noise - one, axis=1))

    law = SphericalLaplace(rate=epsilon, dimension=5)

    def ours(w: Floats, stream: Stream) -> AnyArray:
        return np.asarray(np.linalg.norm(w + law.integers(10_000, stream) * law.step - one, axis=1))

    claim = PureDP(epsilon=epsilon)
    verdicts = [
        distinguish(m, one, two, claim, n=50_000, stream=Stream.from_seed(1)).verdict for m in (printed, ours)
    ]
    assert verdicts == ["broken", "holds"]
    # The exact loss at a distance r from the first minimizer and 1 from the second: 4 log(1 / r) and more.
    assert 4 * math.log(1 / 1e-2) + epsilon * (1 - 1e-2) > 18


def test_noise_in_floats_is_caught_and_ours_is_not() -> None:
    claim: Promise = ApproxDP(epsilon=1.0, delta=1e-6)
    noise = GaussianVectorNoise(dimension=10_000, sd=4.3, log2_steps=20)

    def in_floats(w: float, stream: Stream) -> AnyArray:
        return w + 4.3 * stream.generator().standard_normal(10_000)

    def ours(w: float, stream: Stream) -> AnyArray:
        return noise.add_to(np.full(10_000, w), stream)

    verdicts = [
        precision(m, 0.0, 1.0, claim, n=50_000, stream=Stream.from_seed(1)).verdict for m in (in_floats, ours)
    ]
    assert verdicts == ["broken", "holds"]


@pytest.mark.parametrize(
    ("half", "mechanism"),
    [
        (True, "objective"),
        (False, "output"),
        pytest.param(True, "output", marks=pytest.mark.slow),
        pytest.param(False, "objective", marks=pytest.mark.slow),
    ],
)
def test_the_whole_training_is_told_apart_only_with_a_fraction_of_its_noise(
    mechanism: Any, half: bool
) -> None:
    one, two = NEIGHBORS[1]
    claim = PureDP(epsilon=1.0)
    plan: TrainingPlan = make_linear_plan(
        constants_of(one, tolerance=None),
        PureDP(epsilon=8.0 if half else 1.0),
        regularization=0.3,
        mechanism=mechanism,
    )

    def train(table: Table, stream: Stream) -> AnyArray:
        return plan.train(problem_of(table, plan.regularization), lambda: stream)

    result = distinguish(train, one, two, claim, n=600, stream=Stream.from_seed(2))
    assert result.verdict == ("broken" if half else "holds")


@pytest.mark.parametrize("dimension", [1, 2, 5, 51, 585])
@pytest.mark.parametrize("sensitivity", [1e-12, 0.3, 1e5])
def test_spherical_noise_pays_for_its_own_lattice(dimension: int, sensitivity: float) -> None:
    noise = SphericalNoise.for_sensitivity(sensitivity, 0.5, dimension)
    law = noise.law
    spent = law.rate * (sensitivity + law.step * math.sqrt(dimension)) + 2 * law.log_density_error
    assert 0.4 < spent <= 0.5


@pytest.mark.parametrize("dimension", [1, 2, 3, 10, 51, 585])
def test_the_finest_lattice_stays_within_what_the_sampler_is_proven_for(dimension: int) -> None:
    law = SphericalNoise.with_rate(0.37, dimension).law
    usual = SphericalLaplace(rate=0.37, dimension=dimension)
    largest = 14 * math.sqrt(dimension + 1) if dimension > 1 else 1.0
    assert law.step < usual.step
    assert largest / (law.rate * law.step) <= 2.0**50
    assert law.log_density_error == usual.log_density_error
    norms = np.linalg.norm(law.integers(500, Stream.from_seed(1)) * law.step, axis=1)
    assert stats.kstest(norms, stats.gamma(dimension, scale=1 / 0.37).cdf).pvalue > 1e-6


def test_gaussian_noise_pays_for_its_own_lattice() -> None:
    for dimension in (1, 40, 5000):
        noise = GaussianVectorNoise.for_sensitivity(0.7, 0.2, dimension)
        spent = (0.7 + noise.step * math.sqrt(dimension)) / noise.sd
        assert 0.19 < spent <= 0.2
        assert math.log2(noise.step) == round(math.log2(noise.step))


def test_what_is_hidden_lies_on_the_lattice_whatever_its_size() -> None:
    noise = SphericalNoise.for_sensitivity(1e-12, 1.0, 2)
    value = np.array([123.456, -1e-9])
    hidden = noise.add_to(value, Stream.from_seed(4))
    assert np.all(np.rint(hidden / noise.step) == hidden / noise.step)
    assert np.abs(hidden - value).max() < 1e-9
