"""The same seed gives the same bits under every kernel of the linear algebra, and verify agrees."""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.audit import measure_risk
from discreet.noise import BoundedDensity, Stream, standard_normal
from discreet.noise.linear_algebra import least_squares, product, row_space, symmetric_eigen
from discreet.privacy import ApproxDP, ErrorFloor
from discreet.privacy.rounding import shorter_up
from discreet.release import BoundedRelease, GaussianRelease, InvariantRelease, LaplaceRelease, ReleaseMethod
from discreet.report.verify import verify
from discreet.report.verify.claims import risk_differences
from tests.contracts.cases import ROWS, SCHEMA
from tests.report.published import KEY, METHODS, publish

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
KERNELS = ("Haswell", "SkylakeX", "Prescott")
CALIBRATED: dict[str, Callable[..., ReleaseMethod]] = {
    "bounded, floor": lambda **rest: BoundedRelease(privacy=ErrorFloor(age=20), schema=SCHEMA, **rest),
    "bounded, priced": lambda **rest: BoundedRelease(
        privacy=ErrorFloor(age=20), regularization=50.0, schema=SCHEMA, **rest
    ),
    "gaussian, floor": lambda **rest: GaussianRelease(privacy=ErrorFloor(age=20), schema=SCHEMA, **rest),
    "gaussian, correlated": lambda **rest: GaussianRelease(
        privacy=ApproxDP(epsilon=4, delta=1e-6),
        weights=[[2e-8, 3e-13], [3e-13, 4e-17]],
        schema=SCHEMA,
        **rest,
    ),
    "laplace, floor": lambda **rest: LaplaceRelease(privacy=ErrorFloor(age=20), schema=SCHEMA, **rest),
}
ALL = {**METHODS, **CALIBRATED}
RISKS = {
    "invariant, svm": lambda: InvariantRelease(learner="svm", variance=0.25, schema=SCHEMA),
    **{name: ALL[name] for name in ("masked", "bounded", "gaussian", "input-perturbation", "coarse")},
}
QUICK = ("bounded, floor", "gaussian, correlated", "laplace, floor", "masked")


def digests(names: list[str]) -> dict[str, str]:
    """Release under a seed, and hash every bit of what comes out."""
    found = {}
    for name in names:
        columns = ALL[name](random_state=5).release(dict(ROWS)).columns
        bits = hashlib.sha256()
        for column in sorted(columns):
            bits.update(np.ascontiguousarray(columns[column]).tobytes())
        found[name] = bits.hexdigest()
    return found


def under(kernel: str, task: str, *arguments: str) -> str:
    """Run a task of this module in a process of its own, with another kernel."""
    environment = {
        **os.environ,
        "OPENBLAS_CORETYPE": kernel,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.release.test_processors", task, *arguments],
        cwd=ROOT, env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.slow
def test_calibrated_noise_and_masked_points_have_the_same_bits_under_two_kernels() -> None:
    one, other = (json.loads(under(kernel, "digests", *QUICK)) for kernel in ("Prescott", "Haswell"))
    assert one == other
    assert len(set(one.values())) == len(QUICK)


def risks(names: list[str]) -> dict[str, Any]:
    """Return the figures of attacks on made-up people that the statement of each method would carry."""
    found = {}
    for name in names:
        method = RISKS[name]()
        found[name] = measure_risk(method, method.plan(SCHEMA, 500), 500, people=50).to_dict()
    return found


@pytest.mark.slow
def test_published_risks_are_the_same_under_two_kernels() -> None:
    """Otherwise ``verify``, which measures them again, would refuse an honest folder on another machine."""
    one, other = (json.loads(under(kernel, "risks", *RISKS)) for kernel in ("Prescott", "Haswell"))
    found = {
        name: list(risk_differences(one[name], other[name], trained="invariant" in name)) for name in RISKS
    }
    assert found == {name: [] for name in RISKS}


def test_a_forged_figure_of_a_trained_attack_differs_and_last_digits_do_not() -> None:
    stated = {"success": 0.84, "sentence": "found in 84% of cases", "verdict": "no"}
    nearly = {"success": 0.80, "sentence": "found in 80.1% of cases", "verdict": "no"}
    assert list(risk_differences(stated, nearly, trained=True)) == []
    assert list(risk_differences(stated, nearly)) == ["risk.success", "risk.sentence"]
    for forged in (
        {"success": 0.7},
        {"success": math.nan},
        {"sentence": "found in 84% of years"},
        {"verdict": "yes"},
    ):
        assert list(risk_differences({**stated, **forged}, nearly, trained=True)) == [
            f"risk.{next(iter(forged))}"
        ]


@pytest.mark.stats
def test_every_method_has_the_same_bits_under_every_kernel() -> None:
    names = [name for name in ALL if name != "invariant"]  # real noise: replayed to a stated tolerance
    found = [json.loads(under(kernel, "digests", *names)) for kernel in KERNELS]
    assert found[0] == found[1] == found[2]


@pytest.mark.stats
@pytest.mark.parametrize("kernel", KERNELS)
def test_an_honest_folder_is_verified_and_replayed_under_every_kernel(kernel: str, tmp_path: Path) -> None:
    for name in ALL:
        publish(tmp_path / name, ALL[name]())
    assert json.loads(under(kernel, "verify", str(tmp_path))) == {name: [] for name in ALL}


@pytest.mark.parametrize("regularization", [0.0, 3.0])
def test_the_mean_of_symmetric_noise_is_zero_and_no_rounding(regularization: float) -> None:
    assert BoundedDensity(lower=-7.3, upper=7.3, regularization=regularization).mean == 0.0
    assert BoundedDensity(lower=-7.0, upper=7.3, regularization=regularization).mean != 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bounded, floor", "gaussian, floor", "laplace, floor"])
def test_a_calibrated_size_has_few_digits_and_another_processors_is_accepted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = ALL[name]().plan(SCHEMA, 100)
    law = plan.columns[0].law
    size = getattr(law, "upper", None) or getattr(law, "sd", None) or getattr(law, "scale")  # noqa: B009
    assert shorter_up(size) == size
    # As if the other processor had rounded to the next number of 24 bits.
    monkeypatch.setattr(
        "discreet.privacy.floors.shorter_up", lambda x: shorter_up(shorter_up(x) * (1 + 1e-8))
    )
    publish(tmp_path / "public", ALL[name]())
    monkeypatch.undo()
    found = verify(tmp_path / "public", key=KEY, source=dict(ROWS))
    assert found.ok, found.failures


def test_small_linear_algebra_is_right() -> None:
    stream = Stream.from_seed(1)
    for size in (1, 2, 7):
        root = standard_normal((size, size), stream) * 10.0 ** np.linspace(-3, 3, size)
        positive = root.T @ root
        values, vectors = symmetric_eigen(positive)
        np.testing.assert_allclose(vectors * values @ vectors.T, positive, rtol=1e-9, atol=1e-13 * values[-1])
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(size), atol=1e-14)
        side = standard_normal((size, 2), stream)
        np.testing.assert_allclose(least_squares(np.eye(size) + positive / values[-1], side),
                                   np.linalg.solve(np.eye(size) + positive / values[-1], side))  # fmt: skip
    wide = standard_normal((4, 6), stream)
    wide -= wide.mean(axis=0)
    basis = row_space(wide, 1e-13)
    assert basis.shape == (3, 6)
    np.testing.assert_allclose(product(product(wide, basis.T), basis), wide, atol=1e-14)
    assert row_space(np.zeros((2, 3)), 1e-13).shape == (0, 3)


@pytest.mark.parametrize(
    "name", ["bounded", "bounded, additive", "gaussian", "input-perturbation", "laplace"]
)
def test_nothing_but_what_the_release_writes_is_a_possible_cell(name: str) -> None:
    """Between two written numbers no other double is possible: a cell carries no bit beside its place."""
    plan = METHODS[name]().plan(SCHEMA, 100)
    written = plan.draw({**_encoded(), "age": np.full(400, 60.0)}, Stream.from_seed(3))["age"]
    numbers = plan.numbers  # type: ignore[attr-defined]
    j = [column.name for column in numbers.columns].index("age")

    def possible(values: np.ndarray) -> np.ndarray:
        matrix = np.column_stack(
            [values if i == j else np.full(len(values), np.nan) for i in range(len(numbers.columns))]
        )
        return np.asarray(numbers.is_possible(matrix)[:, j])

    assert possible(written).all()
    nearest = written
    for _ in range(3):
        nearest = np.nextafter(nearest, np.inf)
        assert not (possible(nearest) & ~np.isin(nearest, written)).any()
    step = np.diff(np.unique(written)).min()
    assert not possible(written + np.linspace(1e-6, 1e-3, len(written)) * min(step, 1e-5)).any()
    assert not possible(np.array([np.inf, -np.inf, np.nan, -0.0])).any()


def _encoded() -> dict[str, np.ndarray]:
    return {
        "income": np.full(400, 1e5),
        "job": np.zeros(400, np.int32),
        "region": np.zeros(400, np.int32),
        "owner": np.zeros(400, np.int32),
    }


def _verified(folder: Path) -> dict[str, list[str]]:
    found = {}
    for name in ALL:
        failures = verify(folder / name, key=KEY, source=dict(ROWS)).failures
        found[name] = [f"{check.name}: {check.detail}" for check in failures]
    return found


if __name__ == "__main__":
    task, *rest = sys.argv[1:]
    tasks: dict[str, Callable[[list[str]], Any]]
    tasks = {"digests": digests, "risks": risks, "verify": lambda rest: _verified(Path(rest[0]))}
    sys.stdout.write(json.dumps(tasks[task](rest)))
