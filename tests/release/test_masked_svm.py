"""Masked points for the support vector machine: other people's solvers find the classifier again."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import optimize

from discreet import MaskedRelease, publish, verify
from discreet.audit import attack_published
from discreet.errors import ParameterError, PromiseError
from discreet.learn.perturbation.mean_loss import minimize
from discreet.noise import Stream
from discreet.privacy import ApproxDP, NoPromise, PureDP
from discreet.release import published_schema
from discreet.release.masked._equations import label_shares
from discreet.release.masked._points import binary_points, greedy_value
from discreet.release.masked.construction import Mask, Task, make_mask
from discreet.release.masked.encoding import apportion, shuffled_codes
from discreet.release.masked.existence import least_records
from discreet.release.masked.losses import LOGISTIC, HingeLoss
from discreet.report.folder.folder import CLASSIFIER
from discreet.report.folder.model_files import read_classifier
from discreet.tables import open_table
from tests.audit.test_masked_members import wide
from tests.contracts.cases import SCHEMA
from tests.golden._entry_points import command
from tests.release.test_masked_job import TABLE, N
from tests.report.published import hash_again

if TYPE_CHECKING:
    from pathlib import Path

    from discreet._types import Floats, Ints
    from discreet.pipeline import Published

SMOOTHINGS = (0.1, 0.5, 1.0)


def retrained(points: Floats, codes: Ints, penalty: float, h: float, n_scores: int) -> Floats:
    """Return what scipy finds, given the loss as it is written down: a minimizer, and a root of its slope."""
    own = np.array([1]) if n_scores == 1 else np.arange(n_scores)
    signs = np.where(codes[:, np.newaxis] == own, 1.0, -1.0)
    d = points.shape[1]

    def value(w: Floats) -> float:
        m = signs * (points @ w.reshape(-1, d).T)
        losses = np.where(m >= 1 + h, 0.0, np.where(m <= 1 - h, 1 - m, (1 + h - m) ** 2 / (4 * h)))
        return float(losses.sum() / len(points) + penalty / 2 * w @ w)

    def slope(w: Floats) -> Floats:
        m = signs * (points @ w.reshape(-1, d).T)
        pulls = np.where(m >= 1 + h, 0.0, np.where(m <= 1 - h, 1.0, (1 + h - m) / (2 * h)))
        return np.asarray((-(signs * pulls).T @ points / len(points)).reshape(-1) + penalty * w)

    rough = optimize.minimize(value, np.zeros(n_scores * d), jac=slope, method="BFGS").x
    found = optimize.root(slope, rough, method="hybr", options={"xtol": 1e-15}).x
    return np.asarray(found.reshape(-1, d))


def weights_of(n_scores: int, d: int, norm: float, seed: int = 1) -> Floats:
    weights = Stream.from_seed(seed).generator().standard_normal((n_scores, d))
    return np.asarray(weights * norm / np.linalg.norm(weights))


def trained_weights(loss: HingeLoss, n_classes: int, d: int, penalty: float, constant: float) -> Floats:
    """Return a machine that was trained on well separated classes, with noise of a tenth of its norm."""
    draw = Stream.from_seed(n_classes).generator()
    codes = draw.integers(n_classes, size=300)
    rows = 0.6 * np.eye(n_classes, d)[codes] + 0.2 * draw.standard_normal((300, d))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    rows = np.hstack([rows * np.sqrt(1 - constant**2), np.full((300, 1), constant)]) if constant else rows
    problem = loss.problem(rows, codes, penalty, n_classes)
    weights = problem.weights(minimize(problem, 1e-9))
    noise = draw.standard_normal(weights.shape)
    return np.asarray(weights + 0.1 * np.linalg.norm(weights) * noise / np.linalg.norm(noise))


def masked(weights: Floats, n: int, penalty: float, h: float, constant: float = 0.0, **rest: Any) -> Mask:
    stream, loss = Stream.from_seed(3), HingeLoss(h)

    def labels(weights: Floats, penalty: float) -> Ints:
        shares = label_shares(weights, penalty, constant, 1.0, loss)
        return shuffled_codes(apportion(shares, n), stream.spawn())

    task = Task(
        weights=weights, regularization=penalty, radius=1.0, constant=constant, n_records=n, labels=labels,
        fixed=np.zeros((0, weights.shape[1])), fixed_codes=np.zeros(0, np.int64), loss=loss,
        free_labels=constant > 0, **rest,
    )  # fmt: skip
    return make_mask(task, Stream.from_seed(4))


@pytest.mark.parametrize("h", SMOOTHINGS)
@pytest.mark.parametrize(
    ("d", "n", "penalty", "norm"),
    [(2, 50, 0.5, 0.5), (30, 200, 0.5, 0.9), (30, 400, 0.01, 4.0), (5, 400, 1e-3, 10.0)],
)
def test_scipy_finds_two_classes_again(d: int, n: int, penalty: float, norm: float, h: float) -> None:
    weights = weights_of(1, d, norm)
    mask = masked(weights, n, penalty, h)
    assert mask.scale == 1.0
    assert mask.gradient <= 1e-14
    assert np.linalg.norm(mask.points, axis=1).max() <= 1 + 1e-12
    assert np.abs(retrained(mask.points, mask.codes, penalty, h, 1) - weights).max() <= 1e-8
    # Every row pulls, and is on the side of its label.
    margins = np.where(mask.codes == 1, 1, -1) * (mask.points @ weights[0])
    assert margins.min() >= 0
    assert margins.max() <= 1 + h - 0.009 * h


@pytest.mark.parametrize("h", SMOOTHINGS)
@pytest.mark.parametrize(
    ("n_classes", "constant", "penalty"), [(2, 0.4, 0.05), (3, 0.0, 0.05), (3, 0.4, 0.02)]
)
def test_scipy_finds_an_intercept_and_several_classes_again(
    n_classes: int, constant: float, penalty: float, h: float
) -> None:
    weights = trained_weights(HingeLoss(h), n_classes, 4, penalty, constant)
    mask = masked(weights, 200, penalty, h, constant)
    assert mask.gradient <= 1e-12
    assert mask.scale == 1.0
    assert np.array_equal(mask.weights, weights)
    found = retrained(mask.points, mask.codes, penalty, h, len(weights))
    assert np.abs(found - weights).max() <= 1e-8
    if constant:
        assert (mask.points[:, -1] == constant).all()


def test_another_smoothing_finds_another_classifier() -> None:
    weights = weights_of(1, 3, 1.5)
    mask = masked(weights, 100, 0.1, 0.5)
    assert np.abs(retrained(mask.points, mask.codes, 0.1, 0.1, 1) - weights).max() > 1e-3


@pytest.mark.parametrize("h", SMOOTHINGS)
def test_a_classifier_that_is_too_long_is_shortened_refused_or_gets_another_penalty(h: float) -> None:
    loss = HingeLoss(h)
    longest = loss.largest_norm(0.1, 1.0)
    weights = weights_of(1, 4, 1.2 * longest)
    short = masked(weights, 60, 0.1, h)
    assert 0.7 < short.scale < 1 / 1.2
    assert np.abs(retrained(short.points, short.codes, 0.1, h, 1) - short.weights).max() <= 1e-8
    with pytest.raises(PromiseError, match="no number of records is enough for it"):
        masked(weights, 60, 0.1, h, infeasible="error")
    other = masked(weights, 60, 0.1, h, infeasible="lambda")
    assert other.regularization < 0.1
    assert np.array_equal(other.weights, weights)
    assert np.abs(retrained(other.points, other.codes, other.regularization, h, 1) - weights).max() <= 1e-8
    # Just inside the bound there are points; logistic regression has none for so long a classifier.
    inside = masked(weights / 1.2 * 0.99, 60, 0.1, h, infeasible="error")
    assert inside.gradient <= 1e-12
    assert longest > 1.3 * LOGISTIC.largest_norm(0.1, 1.0)


def test_shrinking_ends_at_a_machine_that_is_trained_on_points_of_the_ball() -> None:
    # Intercepts that no labels of three classes allow: their sum is forced where no point reaches the band.
    weights = np.hstack([weights_of(3, 3, 0.3), np.array([[0.4], [0.4], [0.4]])])
    mask = masked(weights, 80, 1.0, 0.1, 0.5)
    assert mask.gradient <= 1e-12
    assert np.abs(retrained(mask.points, mask.codes, 1.0, 0.1, 3) - mask.weights).max() <= 1e-8


def test_one_point_lies_on_the_axis_at_the_margin_that_the_penalty_asks_for() -> None:
    points = binary_points(np.array([0.6, -0.8]), np.ones(1), 0.3, 1.0, Stream.from_seed(1), HingeLoss(0.5))
    # a phi(a) = 0.3 with phi = 1 up to a margin of 0.5.
    assert points == pytest.approx(0.3 * np.array([[0.6, -0.8]]), abs=1e-14)


@pytest.mark.parametrize("n_scores", [1, 3])
def test_the_greedy_gradient_is_that_of_its_value(n_scores: int) -> None:
    weights, left = weights_of(n_scores, 3, 2.0), weights_of(n_scores, 3, 0.3, seed=2)
    for x in (np.array([0.1, -0.2, 0.3]), np.array([0.5, 0.4, -0.6])):
        slope = greedy_value(x, 1, weights, left, HingeLoss(0.5))[1]
        by_difference = optimize.approx_fprime(
            x, lambda x: greedy_value(x, 1, weights, left, HingeLoss(0.5))[0], 1e-7
        )
        assert slope == pytest.approx(by_difference, abs=1e-5)


@pytest.mark.slow
def test_greedy_points_come_near_and_fixed_records_count() -> None:
    weights = weights_of(1, 3, 1.0)
    near = masked(weights, 60, 0.2, 0.5, construction="greedy")
    assert near.gradient < 0.02
    fixed = Stream.from_seed(1).generator().standard_normal((20, 3)) / 3
    codes = (fixed @ weights[0] > 0).astype(np.int64)
    assert least_records(weights, 0.2, 1.0, fixed, codes, HingeLoss(0.5)) >= 1
    stream = Stream.from_seed(5)
    task = Task(
        weights=weights, regularization=0.2, radius=1.0, constant=0.0, n_records=80,
        labels=lambda *_: np.arange(80) % 2, fixed=fixed, fixed_codes=codes, loss=HingeLoss(0.5),
    )  # fmt: skip
    mask = make_mask(task, stream)
    assert mask.scale == 1.0
    assert np.abs(retrained(mask.points, mask.codes, 0.2, 0.5, 1) - weights).max() <= 1e-8


# The release.


def release(**rest: Any) -> MaskedRelease:
    given = {"privacy": PureDP(epsilon=4), "learner": "svm", "regularization": 0.1, "norm_bound": 2.0,
             "n_records": 60, "classes": [0, 1], "random_state": 1}  # fmt: skip
    return MaskedRelease(**{**given, **rest})


X = np.column_stack([np.sin(np.arange(300)), np.cos(3.0 * np.arange(300))])


@pytest.mark.parametrize("h", SMOOTHINGS)
def test_the_release_trains_to_its_model(h: float) -> None:
    for codes, classes in (
        ((X[:, 0] > 0).astype(int), [0, 1]),
        (np.digitize(X[:, 0], [-0.5, 0.5]), [0, 1, 2]),
    ):
        method = release(smoothing=h, classes=classes)
        made = method.release(X, codes)
        assert method.model_ is not None
        assert method.regularization_ is not None
        labels = np.asarray(made.target)
        found = retrained(made.data, labels, method.regularization_, h, len(method.model_))
        assert np.abs(found - method.model_).max() <= 1e-8
        (promise,) = made.promises
        assert promise.epsilon_at(1e-9) <= 4


def test_without_noise_the_points_carry_the_machine_of_the_rows() -> None:
    codes = (X[:, 0] > 0.2).astype(int)
    method = release(privacy=NoPromise("made up"), fit_intercept=True)
    made = method.release(X, codes)
    assert method.scale_ == 1.0
    assert method.model_ is not None
    found = retrained(made.data, np.asarray(made.target), 0.1, 0.5, 1)
    assert np.abs(found - method.model_).max() <= 1e-8


@pytest.mark.parametrize("classes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_attacks_know_the_loss_and_find_the_promise_kept(classes: int) -> None:
    method = MaskedRelease(
        privacy=PureDP(epsilon=1), learner="svm", schema=wide(4, classes), regularization=0.05
    )
    results = attack_published(method, 200)
    assert {result.attack for result in results} >= {"margin", "influence"}
    assert not any(result.exceeds_bound for result in results)


def test_parameters_are_checked_and_say_the_learner_and_what_it_has() -> None:
    with pytest.raises(ParameterError, match="learner of MaskedRelease must be one of 'logistic', 'svm'"):
        release(learner="tree")
    with pytest.raises(ParameterError, match=r"smoothing of MaskedRelease must be a number from 0\.001 to 1"):
        release(smoothing=2)
    assert release(smoothing=0.25).parameters()["smoothing"] == 0.25
    logistic = release(learner="logistic").parameters()
    assert logistic["learner"] == "logistic"
    assert "smoothing" not in logistic


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Published:
    return publish(
        TABLE, schema=SCHEMA, method="masked", learner="svm", smoothing=0.25,
        privacy=ApproxDP(epsilon=4, delta=1e-6), n_records=200, ledger=False,
        out=tmp_path_factory.mktemp("job") / "release",
    )  # fmt: skip


def test_a_stranger_finds_nothing_wrong_and_is_told_the_learner(done: Published) -> None:
    result = verify(done.public)
    assert [check for check in result.checks if check.verdict == "failed"] == []
    (said,) = [check.detail for check in result.checks if check.name == "classifier"]
    assert "support vector machine with the Huberized hinge (smoothing 0.25)" in said
    statement = done.statement
    assert statement.what.method.parameters["learner"] == "svm"
    assert (
        "support vector machine with a Huberized hinge of half-width 0.25"
        in statement.numbers.columns[0].sentence
    )
    assert {theorem.id for theorem in statement.numbers.theorems} >= {"svm-existence", "svm-objective"}
    assert statement.what.rows_published == 200


def test_the_data_package_is_all_that_it_takes_to_train(done: Published) -> None:
    package = json.loads((done.public / "datapackage.json").read_text(encoding="utf-8"))
    (fields,) = [one["schema"]["fields"] for one in package["resources"] if one["name"] == "data"]
    laws = {field["name"]: field["privacy"]["law"] for field in fields}
    *names, target = laws
    assert laws["age"]["kind"] == "masked-svm"
    with open_table(done.public / "data.parquet") as table:
        (batch,) = table.batches(published_schema(release_method().plan(SCHEMA, N).schema))
    points = np.column_stack([batch[name] for name in names])
    law = laws["age"]
    classifier = read_classifier(done.public)
    found = retrained(
        points, np.asarray(batch[target]), law["regularization"], law["smoothing"], len(classifier.weights)
    )
    assert np.abs(found - classifier.weights).max() <= 1e-8


def release_method() -> MaskedRelease:
    return MaskedRelease(
        privacy=ApproxDP(epsilon=4, delta=1e-6), learner="svm", smoothing=0.25, n_records=200, schema=SCHEMA
    )


@pytest.mark.slow
@pytest.mark.parametrize("what", ["smoothing", "learner", "weights"])
def test_a_changed_learner_or_classifier_is_found(done: Published, what: str, tmp_path: Path) -> None:
    folder = tmp_path / "public"
    shutil.copytree(done.public, folder)
    if what == "weights":
        content = json.loads((folder / CLASSIFIER).read_text())
        content["weights"][0][0] += 1e-6
        (folder / CLASSIFIER).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    else:
        path = folder / "statement.json"
        text = path.read_text(encoding="utf-8")
        assert '"smoothing": 0.25' in text
        path.write_text(
            text.replace('"smoothing": 0.25', '"smoothing": 0.5')
            if what == "smoothing"
            else text.replace('"learner": "svm"', '"learner": "logistic"'),
            encoding="utf-8",
        )
    hash_again(folder)
    assert any(check.verdict == "failed" for check in verify(folder).checks)


@pytest.mark.slow
def test_the_command_takes_the_learner(tmp_path: Path) -> None:
    done = command(
        "release", "demo:clinic", "--method", "masked", "--learner", "svm", "--set", "n_records=60",
        "--set", "smoothing=0.1", "--epsilon", "3", "--delta", "1e-6", "--out", "masked", cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert command("verify", "masked", cwd=tmp_path).code == 0
