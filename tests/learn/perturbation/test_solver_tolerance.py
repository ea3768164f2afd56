"""Whether a training ends well is known before a row is read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from discreet import ApproxDP, Ledger, NoPromise, PureDP
from discreet.errors import DiscreetError, PromiseError
from discreet.learn import LargeMarginGaussianClassifier, PrivateLogisticRegression
from discreet.learn.large_margin import _training as margin_solver
from discreet.learn.large_margin._bounds import ClasswiseNoise
from discreet.learn.large_margin._problem import MarginProblem
from discreet.learn.logistic.problem import LogisticConstants, problem_for
from discreet.learn.perturbation import mean_loss as logistic_solver
from discreet.learn.perturbation._solvers import GradientDescent
from discreet.learn.perturbation.embedding import Embedding
from discreet.learn.perturbation.mean_loss_constants import make_linear_plan
from discreet.learn.perturbation.noise import (
    LARGEST_EXPONENTIAL,
    LARGEST_NORMAL,
    GaussianVectorNoise,
    SphericalNoise,
    zero_sum_basis,
)
from discreet.noise import Stream
from discreet.noise.deviates import LOG2_BUCKETS, exponential_table, normal_table

ROWS = ("spread", "equal", "on a line", "at both ends", "nearly on a line", "tiny", "zero")
LABELS = ("one class", "one row", "mixed", "separated")


def generator(seed: int) -> Any:
    return Stream.from_seed(seed).generator()


def hostile_rows(kind: str, n: int, d: int, draw: Any) -> Any:
    """Rows of norm at most 1 that solvers find hard."""
    x = draw.standard_normal((n, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    ends = draw.choice([-1.0, 1.0], n)
    if kind == "equal":
        x[:] = x[0]
    elif kind == "on a line":
        x = np.outer(ends * draw.uniform(0, 1, n), x[0])
    elif kind == "at both ends":
        x = np.outer(ends, x[0])
    elif kind == "nearly on a line":
        x = np.outer(ends, x[0]) + 1e-9 * x
    elif kind == "tiny":
        x *= 10.0 ** draw.uniform(-200, 0, (n, 1))
    elif kind == "zero":
        x *= 0.0
    return x * (1 - 2.0**-28)


def hostile_labels(kind: str, x: Any, n_classes: int, draw: Any) -> Any:
    """Labels of every degree of balance."""
    y = np.zeros(len(x), np.int64)
    if kind == "one row":
        y[0] = 1
    elif kind == "mixed":
        y = draw.integers(0, n_classes, len(x))
    elif kind == "separated":
        y = (x[:, 0] > 0).astype(np.int64)
    return y


def neighbors(x: Any, y: Any, n_classes: int, draw: Any) -> tuple[Any, Any]:
    x, y = x.copy(), y.copy()
    at = int(draw.integers(len(x)))
    x[at] = -x[at] if draw.random() < 0.5 else hostile_rows("spread", 1, x.shape[1], draw)[0]
    y[at] = (y[at] + 1) % n_classes
    return x, y


def kind_of(model: Any, x: Any, y: Any) -> str:
    try:
        model.fit(x, y)
    except DiscreetError as error:
        return str(error)
    return "released"


def logistic(n_classes: int, tolerance: float | None = None, **rest: Any) -> PrivateLogisticRegression:
    rest.setdefault("privacy", PureDP(epsilon=1.0))
    return PrivateLogisticRegression(
        norm_bound=1.0, classes=list(range(n_classes)), tolerance=tolerance, random_state=1, **rest
    )


def margin(n_classes: int, tolerance: float | None = None, **rest: Any) -> LargeMarginGaussianClassifier:
    rest.setdefault("privacy", PureDP(epsilon=1.0))
    return LargeMarginGaussianClassifier(
        norm_bound=1.0, classes=list(range(n_classes)), tolerance=tolerance, random_state=1, **rest
    )


def embedded(model: Any, d: int) -> Embedding:
    return Embedding.declare(
        d, bounds=None, norm_bound=1.0, constant=model.intercept_scale, owner=type(model).__name__
    )


def least_tolerance(model: Any, n: int, d: int, n_classes: int) -> float:
    """The least tolerance that is admitted, found by asking."""
    low, high = 1e-18, 1e3
    for _ in range(60):
        middle = math.sqrt(low * high)
        model.set_params(tolerance=middle)
        try:
            model.plan(model._constants(n, n_classes, embedded(model, d)))
            high = middle
        except PromiseError:
            low = middle
    return high


MODELS = [
    (logistic, {"mechanism": "output", "regularization": 1e-5}),
    (logistic, {"mechanism": "output", "regularization": 1e-9, "privacy": NoPromise("a test")}),
    (logistic, {"mechanism": "objective"}),
    (logistic, {"mechanism": "objective", "privacy": ApproxDP(epsilon=0.5, delta=1e-6)}),
    (margin, {"mechanism": "output", "regularization": 0.01}),
    (margin, {"mechanism": "objective", "smoothing": 0.2}),
    (margin, {"mechanism": "objective", "psd": "constrained", "trace_weight": 1.0}),
    (margin, {"mechanism": "output", "components": 2, "centroids": [[0.1, 0.2], [-0.3, 0.0]]}),
]


@pytest.mark.parametrize(("learner", "rest"), MODELS)
def test_neighbors_are_both_released_or_both_refused_at_the_edge(learner: Any, rest: dict[str, Any]) -> None:
    draw = generator(20)
    seen = set()
    for case in range(4 if rest.get("psd") == "constrained" else 12):
        n, d, n_classes = int(draw.choice([1, 2, 40])), 2, int(draw.choice([2, 3]))
        x = hostile_rows(ROWS[case % len(ROWS)], n, d, draw)
        y = hostile_labels(LABELS[case % len(LABELS)], x, n_classes, draw)
        least = least_tolerance(learner(n_classes, **rest), n, d, n_classes)
        for tolerance in (least * (1 - 1e-6), least, 1.5 * least):
            kinds = {
                kind_of(learner(n_classes, tolerance, **rest), *table)
                for table in ((x, y), neighbors(x, y, n_classes, draw))
            }
            assert len(kinds) == 1, kinds
            (kind,) = kinds
            assert kind == "released" or f"tolerance of {type(learner(2)).__name__} must be at least" in kind
            seen.add((tolerance < least, kind == "released"))
    assert seen == {(True, False), (False, True)}


def reaches(problem: Any, tolerance: float) -> bool:
    """The wrong twin: solve, then look at the certificate of what the rows led to."""

    def near(w: Any, gradient: Any) -> bool:
        return bool(float(np.linalg.norm(gradient)) + problem.gradient_error(w) <= tolerance)

    return logistic_solver.newton(problem, near)[1]


def test_a_check_after_the_rows_were_read_would_tell_neighbors_apart() -> None:
    draw = generator(0)
    x = draw.uniform(-1, 1, (200, 5)) / math.sqrt(5)
    y = (x[:, 0] > 0).astype(np.int64)
    other_x, other_y = x.copy(), y.copy()
    other_x[0], other_y[0] = 1 / math.sqrt(5), 1 - y[0]
    tables = [problem_for(a, b, 1e-5, 2) for a, b in ((x, y), (other_x, other_y))]
    tolerances = np.geomspace(1.5e-13, 1e-12, 60)
    apart = [t for t in tolerances if len({reaches(table, float(t)) for table in tables}) == 2]
    assert apart
    assert max(apart) < tables[0].descent.least_tolerance == tables[1].descent.least_tolerance


@pytest.mark.parametrize("seed", range(8))
def test_every_admitted_tolerance_is_reached_on_hostile_rows(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the solvers themselves, too: the steps that are certain are there for what nobody has seen."""
    monkeypatch.setattr(GradientDescent, "run", lambda *_: pytest.fail("the solver came to a halt"))
    draw = generator(seed)
    for _ in range(12):
        n, d, n_classes = (int(draw.choice(some)) for some in ([1, 3, 60, 1500], [1, 2, 6], [2, 3, 5]))
        x = hostile_rows(str(draw.choice(ROWS)), n, d, draw)
        y = hostile_labels(str(draw.choice(LABELS)), x, n_classes, draw)
        tilted = draw.integers(2) * 10 ** draw.uniform(-6, 2)
        flat = 10.0 ** -draw.uniform(0, 11.9)
        problem = problem_for(x, y, 0.5 * flat, n_classes)
        problem.linear_term = tilted * draw.standard_normal(problem.size)
        tolerance = problem.descent.least_tolerance
        w = logistic_solver.minimize(problem, tolerance)
        assert np.linalg.norm(problem.gradient(w)) <= tolerance
        components = int(draw.choice([1, 2]))
        of = MarginProblem(
            x, y, n_classes=n_classes, regularization=max(n * n_classes * flat, 1e-9), smoothing=0.5,
            components=components, proxies=draw.integers(0, components, n),
        )  # fmt: skip
        of.linear_term = tilted * draw.standard_normal(of.size)
        tolerance = of.descent(constrained=False).least_tolerance
        if of.curvature <= 1e11 * of.regularization:
            w = margin_solver.minimize(of, tolerance)
            assert np.linalg.norm(of.value_and_gradient(w)[1]) <= tolerance


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", ROWS)
def test_gradient_steps_arrive_where_newton_halts_at_once(
    n_classes: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = generator(3)
    x = hostile_rows(kind, 30, 3, draw)
    problem = problem_for(x, hostile_labels("one row", x, n_classes, draw), 0.01, n_classes)
    problem.linear_term = draw.standard_normal(problem.size) / 50
    exact = logistic_solver.minimize(problem, problem.descent.least_tolerance)
    monkeypatch.setattr(logistic_solver, "MOST_STEPS", 0)
    for factor in (1.0, 10.0, 1e6, 1e14):
        tolerance = factor * problem.descent.least_tolerance
        found = logistic_solver.minimize(problem, tolerance)
        assert np.linalg.norm(found - exact) <= 2 * tolerance / 0.01


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("components", [1, 2])
def test_gradient_steps_arrive_where_the_margin_solvers_halt_at_once(
    constrained: bool, components: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = generator(4)
    x = hostile_rows("spread", 8, 2, draw)
    of = MarginProblem(
        x, hostile_labels("mixed", x, 3, draw), n_classes=3, regularization=3.0, smoothing=0.5,
        components=components, proxies=draw.integers(0, components, 8), trace=0.5,
    )  # fmt: skip
    of.linear_term = draw.standard_normal(of.size)
    least = of.descent(constrained=constrained).least_tolerance
    exact = margin_solver.minimize(of, least, constrained=constrained)
    for name in ("accelerated_projection", "quasi_newton"):
        monkeypatch.setattr(margin_solver, name, lambda *_, **__: None)
    for factor in (1.0, 100.0, 1e14):
        found = margin_solver.minimize(of, factor * least, constrained=constrained)
        assert np.linalg.norm(found - exact) <= 2 * factor * least / 3.0


@pytest.mark.parametrize(("learner", "module"), [(logistic, logistic_solver), (margin, margin_solver)])
def test_what_was_charged_is_released_even_if_the_solver_fails(
    learner: Any, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = generator(5)
    x = hostile_rows("spread", 20, 2, draw)
    y = hostile_labels("mixed", x, 2, draw)
    monkeypatch.setattr(
        module, *(("MOST_STEPS", 0) if module is logistic_solver else ("quasi_newton", lambda *_: None))
    )
    ledger = Ledger.open(":memory:")
    model = learner(2, mechanism="objective", regularization=1.0, ledger=ledger).fit(x, y)
    assert model.receipt_.ledger == ledger.identity
    assert np.isfinite(model.decision_function(x)).all()


def test_steps_shrink_every_distance_as_fast_as_is_said() -> None:
    # Two directions of curvature 1 and 0.01, by steps that err as much as they may, in the worst direction.
    curved, error = np.array([1.0, 0.01]), 1e-6
    goal = np.array([0.0, 3.0])
    steps = GradientDescent(curvature=1.0, regularization=0.01, norm=3.0, step_error=error)

    def step(w: Any) -> Any:
        return w - curved * (w - goal) - error * np.array([0.0, 1.0])

    for tolerance in (steps.least_tolerance, 1e-4, 1e-2):
        found = steps.run(step, np.zeros(2), tolerance)
        assert np.linalg.norm(found - goal) <= tolerance / 0.01
    assert np.array_equal(steps.run(step, np.zeros(2), 0.03), [0.0, 0.0])
    # Half as many steps would not do.
    w = np.zeros(2)
    for _ in range(steps.most_steps(1e-4) // 2):
        w = step(w)
    assert np.linalg.norm(w - goal) > 1e-4 / 0.01
    with pytest.raises(PromiseError, match=r"tolerance of X must be at least 2\.01e-06"):
        steps.check(1.9e-6, "X")
    with pytest.raises(PromiseError, match="regularization of X must be at least"):
        GradientDescent(curvature=1.0, regularization=1e-13, norm=1.0, step_error=0.0).check(1.0, "X")


def test_no_draw_is_longer_than_the_samplers_allow() -> None:
    assert normal_table().half / 2**LOG2_BUCKETS < LARGEST_NORMAL
    assert (len(exponential_table().thresholds) + 1) / 2**LOG2_BUCKETS < LARGEST_EXPONENTIAL
    noises = [GaussianVectorNoise(dimension=3, sd=0.7), ClasswiseNoise.with_rate(0.3, 4, 3)]
    noises += [SphericalNoise.with_rate(2.0, dimension) for dimension in (1, 2, 30)]
    for seed in range(50):
        for noise in noises:
            drawn = float(np.linalg.norm(noise.draw(Stream.from_seed(seed))))
            assert 0 < drawn < noise.largest_norm


@pytest.mark.parametrize("n_classes", [2, 3, 10, 100, 400])
def test_the_basis_without_its_signs_has_a_norm_below_three(n_classes: int) -> None:
    assert np.linalg.norm(np.abs(zero_sum_basis(n_classes)), 2) < 3


@pytest.mark.parametrize("max_rows", [1, 7])
def test_what_is_planned_holds_for_the_training_itself(max_rows: int) -> None:
    # The plan knows the shape and the longest linear term; the problem has one row more or fewer and a term.
    constants = LogisticConstants(
        n_rows=5000 // max_rows, n_classes=3, dimension=2, max_rows_per_unit=max_rows
    )
    plan = make_linear_plan(constants, PureDP(epsilon=1.0), regularization=None, mechanism="output")
    x = hostile_rows("spread", 5000, 2, generator(1))
    problem = problem_for(x, np.zeros(5000, np.int64), plan.regularization, 3)
    assert problem.descent.least_tolerance <= plan.tolerance
