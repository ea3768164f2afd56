"""What the learners find: the clean model without noise, a far better one than plain training with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LinearRegression
from sklearn.metrics import roc_auc_score

from discreet import Column, GaussianRelease, Schema, datasets
from discreet.errors import ParameterError
from discreet.learn import NoiseAwareClassifier, NoiseAwareRidge
from discreet.learn.noise_aware import _learners, estimators
from discreet.noise import Stream
from discreet.noise_law import Clear, ColumnLaw, JointResponseLaw, NoiseLaw, SampledLaw
from discreet.privacy import gaussian_mu
from tests.learn.noise_aware.simulated import coarse, keep, noised, respond

MIDWAY = _learners._balance_intercepts
GENERATOR = Stream.from_seed(11).generator()
MIXING = np.array([[0.5, 0.2, 0.1], [0.0, 0.4, 0.2], [0.1, 0.0, 0.5]])
X = np.clip(GENERATOR.random((20_000, 3)) @ MIXING, 0, 1)
SCORE = 4 * X[:, 0] - 3 * X[:, 1] + X[:, 2]
Y = (SCORE + 0.5 * GENERATOR.standard_normal(20_000) > np.quantile(SCORE, 0.7)).astype(int)
T = 0.2 * SCORE + 0.05 * GENERATOR.standard_normal(20_000)


def without_noise(X: Any) -> NoiseLaw:
    return NoiseLaw(
        columns=tuple(ColumnLaw(name=f"x{j}", lower=0.0, upper=1.0, law=Clear()) for j in range(X.shape[1]))
    )


def test_without_noise_it_is_least_squares() -> None:
    model = NoiseAwareRidge(without_noise(X)).fit(X, T)
    plain = LinearRegression().fit(X, T)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=2e-3)
    np.testing.assert_allclose(model.predict(X[:50]), plain.predict(X[:50]), atol=1e-3)
    assert model.kappa_ == 0
    assert model.scale_ == pytest.approx(1, abs=1e-3)


def test_without_noise_the_discriminants_are_linear_discriminants() -> None:
    model = NoiseAwareClassifier(without_noise(X), model="lda").fit(X, Y)
    plain = LinearDiscriminantAnalysis().fit(X, Y)
    np.testing.assert_allclose(
        model.coef_[1] - model.coef_[0], plain.coef_[0], rtol=2e-2 * np.abs(plain.coef_).max()
    )
    assert (model.predict(X) == plain.predict(X)).mean() > 0.998


def test_slopes_of_noised_columns_come_out_where_plain_ones_vanish() -> None:
    Z, law = noised(X, 0.5, Stream.from_seed(1))
    model = NoiseAwareRidge(law).fit(Z, T)
    clean = LinearRegression().fit(X, T).score(X, T)
    assert model.score(X, T) > 0.8 * clean
    assert LinearRegression().fit(Z, T).score(X, T) < 0.5 * clean


def test_a_noised_target_is_learned_as_well() -> None:
    Z, law = noised(np.column_stack([X, T]), 0.3, Stream.from_seed(2), target=True)
    model = NoiseAwareRidge(law).fit(Z[:, :3], Z[:, 3])
    assert model.score(X, T) > 0.5
    by_name = NoiseAwareRidge(law).fit({f"x{j}": Z[:, j] for j in range(4)})
    np.testing.assert_allclose(by_name.coef_, model.coef_, rtol=1e-9)


def classes(k: int) -> tuple[Any, Any]:
    """Return rows of six lists that depend on one of k classes."""
    generator = Stream.from_seed(21).generator()
    y = generator.integers(0, k, 20_000)
    codes = np.column_stack(
        [
            np.where(generator.random(len(y)) < 0.6, (y + j) % 4, generator.integers(0, 4, len(y)))
            for j in range(6)
        ]
    )
    return codes, y


@pytest.mark.parametrize("model", ["auto", "lda", "nb", "mean"])
@pytest.mark.parametrize("label_epsilon", [None, 2.0])
@pytest.mark.parametrize("k", [2, 3])
def test_classes_are_told_apart_from_two_of_six_randomized_lists(
    model: str, label_epsilon: float | None, k: int
) -> None:
    codes, y = classes(k)
    Z, labels, law = coarse(
        codes,
        [4] * 6,
        epsilon=4.0,
        m=2,
        stream=Stream.from_seed(5),
        classes=k,
        labels=y,
        label_epsilon=label_epsilon,
    )
    learner = NoiseAwareClassifier(law, model=model).fit(Z, labels)
    indicators = np.eye(4)[codes][:, :, :3].reshape(len(y), -1)
    clean = LinearDiscriminantAnalysis().fit(indicators, y).score(indicators, y)
    assert learner.status_ == "ok"
    assert learner.score(codes, y) > clean - 0.03
    assert learner.classes_.tolist() == list(range(k))
    np.testing.assert_allclose(learner.predict_proba(codes[:5]).sum(axis=1), 1.0)


def test_where_no_row_shows_two_columns_they_are_not_believed_as_if_each_said_something_new() -> None:
    generator = Stream.from_seed(23).generator()
    y = generator.integers(0, 2, 30_000)
    noisy = np.where(generator.random(len(y)) < 0.8, y, 1 - y)
    codes = np.repeat(noisy[:, None], 8, axis=1)  # one column, eight times
    Z, labels, law = coarse(codes, [2] * 8, epsilon=2.0, m=1, stream=Stream.from_seed(5), classes=2, labels=y)
    model = NoiseAwareClassifier(law).fit(Z, labels)
    assert (model.status_, model.model_) == ("ok", "mean")

    def off(model: Any) -> float:
        return float(np.abs(model.decision_function(np.array([[0] * 8, [1] * 8]))).mean() / np.log(4))

    # The truth is log 4 for all of them together, and naive Bayes says eight times as much.
    assert off(NoiseAwareClassifier(law, model="nb").fit(Z, labels)) > 6
    assert off(model) < 3


def test_rows_that_pass_by_are_learned_from_as_if_they_were_read_at_once() -> None:
    codes, y = classes(3)
    Z, labels, law = coarse(codes, [4] * 6, epsilon=4.0, m=2, stream=Stream.from_seed(5), classes=3, labels=y)
    whole = NoiseAwareClassifier(law).fit(Z, labels)
    gathering = NoiseAwareClassifier(law).accumulator()
    for start in (0, 7, 9_000, 20_000):
        stop = {0: 7, 7: 9_000, 9_000: 20_000, 20_000: 20_000}[start]
        gathering.see({f"c{j}": Z[start:stop, j] for j in range(6)} | {"label": labels[start:stop]})
    assert gathering.n_rows == 20_000
    model = gathering.fit()
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-12)
    assert (model.predict(codes[:100]) == whole.predict(codes[:100])).all()
    with pytest.raises(ParameterError, match="must be a NoiseLaw that has a target"):
        NoiseAwareClassifier(NoiseLaw(columns=law.features)).accumulator()


def test_a_list_randomized_together_with_the_label_is_read_as_one_answer() -> None:
    codes, y = classes(2)
    pair = respond(codes[:, 0] * 2 + y, 8, 4.0, Stream.from_seed(6))
    law = JointResponseLaw(columns=("c", "y"), levels=8, keep=keep(4.0, 8))
    table = NoiseLaw(
        columns=(
            ColumnLaw(name="c", type="category", levels=(0, 1, 2, 3), law=law),
            ColumnLaw(name="y", type="category", levels=(0, 1), role="target", law=law),
        )
    )
    model = NoiseAwareClassifier(table).fit((pair // 2)[:, None], pair % 2)
    shares = np.array([y[codes[:, 0] == v].mean() for v in range(4)])
    np.testing.assert_allclose(model.predict_proba(np.arange(4)[:, None])[:, 1], shares, atol=0.06)


def test_further_noised_rows_are_classified_as_such() -> None:
    Z, law = noised(X, 0.5, Stream.from_seed(1))
    noisy = NoiseAwareClassifier(law, rows="noised").fit(Z[:15_000], Y[:15_000])
    plain = LinearDiscriminantAnalysis().fit(Z[:15_000], Y[:15_000])
    assert (noisy.predict(Z[15_000:]) == plain.predict(Z[15_000:])).mean() > 0.995
    clean = NoiseAwareClassifier(law).fit(Z[:15_000], Y[:15_000])
    assert clean.score(X[15_000:], Y[15_000:]) > noisy.score(Z[15_000:], Y[15_000:])


def test_frames_files_matrices_and_releases_give_the_same_model(tmp_path: Any) -> None:
    schema = Schema(
        columns=[
            Column("x", lower=0, upper=1),
            Column("job", values=("clerk", "nurse"), required=False),
            Column("y", values=("no", "yes")),
        ],
        target="y",
    )
    job = np.where(X[:, 1] > 0.3, "clerk", "nurse")
    rows = {"x": X[:, 0], "job": job, "y": np.where(Y == 1, "yes", "no")}
    release = GaussianRelease(scale={"x": 0.5}, label="clear", schema=schema, random_state=4).release(rows)
    model = NoiseAwareClassifier().fit(release)
    release.write(tmp_path / "data.parquet")
    law = release.noise_law()
    frame = pd.read_parquet(tmp_path / "data.parquet")
    truth = pd.DataFrame({"x": X[:100, 0], "job": job[:100]})
    for source, y in (
        (tmp_path / "data.parquet", None),
        (frame, None),
        (frame.drop(columns="y"), frame["y"].to_numpy()),
        (frame[["y", "job", "x"]], None),
        (frame[["x", "job"]].to_numpy(dtype=object), frame["y"].to_numpy()),
    ):
        again = NoiseAwareClassifier(law).fit(source, y)
        np.testing.assert_allclose(again.coef_, model.coef_, rtol=1e-9)
        assert (again.predict(truth) == model.predict(truth)).all()
    assert model.score(truth, rows["y"][:100]) > 0.7


def test_scales_never_claim_more_than_the_best_direction() -> None:
    measured = estimators.CrossFit(
        np.array([1.0, 0.1]), np.array([[0.4, 0.6], [1.5, 0.5]]), np.array([0.0, 0.05])
    )
    first, second = estimators.score_scales(measured, together=True)
    assert first == pytest.approx(1)
    assert second == pytest.approx(0.5)
    # Where nobody knows how much columns overlap, least squares: 1 + 1 times less.
    np.testing.assert_allclose(estimators.score_scales(measured, together=False), [0.5, 0.25])
    assert estimators.score_scale(1.0, -0.1, 0.1) == 0
    assert estimators.score_scale(0.01, 1.0, 1.0) == pytest.approx(0.5)


def test_classes_are_not_taken_to_be_farther_apart_than_other_rows_show_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Weights go along with the noise in the means that they were made of; those of other folds do not."""
    generator = Stream.from_seed(41).generator()
    y = (generator.random(3_000) < 0.15).astype(int)
    x = np.clip(0.5 + 0.08 * generator.standard_normal((3_000, 20)), 0, 1)
    x[:, 0] += 0.15 * y

    def too_far() -> Any:
        """Return how much farther from the middle the rarer class seems to be than its true rows are."""
        found = []
        for seed in range(20):
            Z, law = noised(x, 0.3, Stream.from_seed(seed))
            model = NoiseAwareClassifier(law, model="lda", on_weak="rank").fit(Z, y)
            claimed = 2 * (np.log(model.shares_[1]) - model.intercept_[1])
            true = (x[y == 1] - 0.5 - model.center_) @ model.coef_[1]  # coordinates count from mid-range
            found.append(claimed - true.mean())
        return np.array(found)

    fair = too_far()
    monkeypatch.setattr(
        _learners, "_balance_intercepts", lambda weights, moments, sides: MIDWAY(weights, moments)
    )
    own = too_far()
    assert own.mean() > 4 * own.std(ddof=1) / len(own) ** 0.5
    assert abs(fair.mean()) < 0.5 * own.mean()


def census() -> tuple[Any, list[int], Any]:
    """Return the bundled census with numbers cut at round places, all columns."""
    bundled = datasets.load("census")
    frame = pd.read_parquet(bundled.path)
    cuts = {
        "age": (25, 35, 45, 55, 65), "education_num": (9, 10, 13, 14), "hours_per_week": (35, 41, 50),
        "capital_gain": (1, 5000), "capital_loss": (1,),
    }  # fmt: skip
    codes, levels = [], []
    for column in bundled.schema.features:
        cells = frame[column.name]
        if column.is_number:
            if column.name not in cuts:
                continue
            codes.append(np.digitize(cells.to_numpy(float), cuts[column.name]))
            levels.append(len(cuts[column.name]) + 1)
        elif column.name == "native_country":
            codes.append((cells == "United-States").to_numpy().astype(int))
            levels.append(2)
        else:
            names = [level for level in column.levels if level is not None]
            found = cells.astype(object).map({name: i for i, name in enumerate(names)})
            codes.append(found.fillna(len(names)).to_numpy(int))
            levels.append(len(names) + 1)
    target = bundled.schema.column(bundled.schema.target or "")
    return np.column_stack(codes), levels, (frame[target.name] == target.levels[-1]).to_numpy().astype(int)


TRAIN = 32_561
"""So many rows of the census come first and are for training, as its own split has it."""


def test_a_census_at_a_local_epsilon_of_eight_is_learned_without_choosing_columns() -> None:
    codes, levels, y = census()
    Z, labels, law = coarse(
        codes[:TRAIN], levels, epsilon=8.0, m=2, stream=Stream.from_seed(1), classes=2, labels=y[:TRAIN]
    )
    model = NoiseAwareClassifier(law).fit(Z, labels)
    assert model.status_ == "ok"
    assert model.score(codes[TRAIN:], y[TRAIN:]) >= 0.843
    assert roc_auc_score(y[TRAIN:], model.decision_function(codes[TRAIN:])) >= 0.895


def test_fourteen_noised_numbers_beat_the_majority_that_plain_training_votes_for() -> None:
    frame = pd.read_parquet(datasets.load("census").path)
    y = (frame.pop("income") == ">50K").to_numpy().astype(int)
    rows = np.column_stack(
        [
            c.to_numpy(float) if pd.api.types.is_numeric_dtype(c) else pd.factorize(c, sort=True)[0]
            for _, c in frame.items()
        ]
    ).astype(float)
    rows = (rows - rows.min(axis=0)) / np.ptp(rows, axis=0)
    assert rows.shape == (48_842, 14)
    scale = 14**0.5 / gaussian_mu(32, 1e-5)
    assert scale == pytest.approx(0.77, abs=0.005)
    Z, law = noised(rows[:TRAIN], scale, Stream.from_seed(1))
    model = NoiseAwareClassifier(law).fit(Z, y[:TRAIN])
    plain = LinearDiscriminantAnalysis().fit(Z, y[:TRAIN])
    assert model.score(rows[TRAIN:], y[TRAIN:]) >= 0.800
    assert plain.score(rows[TRAIN:], y[TRAIN:]) <= 0.766


def test_sampling_is_part_of_the_law() -> None:
    _, _, law = coarse(
        np.zeros((5, 3), np.int64), [2, 2, 2], epsilon=1.0, m=2, stream=Stream.from_seed(1), classes=2,
        labels=np.zeros(5, np.int64),
    )  # fmt: skip
    assert law.column_sample == (2, 3)
    assert isinstance(law.columns[0].law, SampledLaw)
