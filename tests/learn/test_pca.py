"""Components from a noisy Gram matrix: exact without noise, marked where noise made them up."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.decomposition import PCA, TruncatedSVD

from discreet.errors import ParameterError
from discreet.learn import PrivatePCA
from discreet.learn._pca import noise_floor
from discreet.noise import Stream, standard_normal
from discreet.privacy import ApproxDP, GaussianDP, NoPromise, PureDP
from discreet.query import Database, Gram
from discreet.query.curation import Curation
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from discreet._types import Floats

CLASSIC = ApproxDP(epsilon=1.0, delta=1e-6)
EXACT = NoPromise("a comparison")
GRID = 2.0**-16


def table(n: int = 4000, d: int = 6, seed: int = 1) -> Floats:
    """Rows near a plane of two dimensions, away from the middle of the unit cube."""
    stream = Stream.from_seed(seed)
    turn = np.linalg.qr(standard_normal((d, d), stream))[0]
    spread = np.array([0.12, 0.08] + [0.01] * (d - 2))
    rows = 0.3 + (standard_normal((n, d), stream) * spread) @ turn
    return np.asarray(np.clip(rows, 0, 1))


def unit_cube(X: Floats, low: float = 0, high: float = 1) -> Database:
    """Register rows once; fits of slightly different promises then get noise of their own."""
    schema = Schema(columns=[Column(f"x{i}", lower=low, upper=high) for i in range(X.shape[1])])
    return Database(X, schema=schema, random_state=1)


def captured(X: Floats, components: Floats) -> float:
    """Return which part of the best possible variance components have."""
    covariance = np.cov(X.T)
    best = np.sort(np.linalg.eigvalsh(covariance))[::-1][: len(components)].sum()
    return float(np.trace(components @ covariance @ components.T) / best)


def test_without_noise_it_is_scikit_learns_pca_of_the_curated_rows() -> None:
    X = np.round(table(500) * 2**16) / 2**16
    ours = PrivatePCA(privacy=EXACT, bounds=(0, 1)).fit(X)
    theirs = PCA().fit(X)
    assert ours.explained_variance_ == pytest.approx(theirs.explained_variance_, rel=1e-6)
    assert ours.mean_ == pytest.approx(theirs.mean_, abs=1e-12)
    assert ours.singular_values_ == pytest.approx(theirs.singular_values_, rel=1e-6)
    assert np.abs(np.sum(ours.components_ * theirs.components_, axis=1)) == pytest.approx(1.0, abs=1e-6)
    assert ours.noise_floor_ == 0.0
    assert ours.distinguishable_.all()
    assert np.abs(ours.transform(X)) == pytest.approx(np.abs(theirs.transform(X)), abs=1e-6)
    assert ours.inverse_transform(ours.transform(X)) == pytest.approx(X, abs=1e-9)
    assert ours.get_feature_names_out().tolist() == [f"privatepca{i}" for i in range(6)]


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 3.0), (0.25, 4.0), (-9.0, -1.0)])
def test_uncentered_without_noise_it_is_the_svd_wherever_zero_is(bounds: tuple[float, float]) -> None:
    low, high = bounds
    X = low + (high - low) * np.round(table(300) * 2**16) / 2**16
    ours = PrivatePCA(n_components=3, privacy=EXACT, bounds=bounds, centered=False).fit(X)
    theirs = TruncatedSVD(3, algorithm="arpack", random_state=0).fit(X)
    assert ours.singular_values_ == pytest.approx(theirs.singular_values_, rel=1e-4)
    assert np.abs(np.sum(ours.components_ * theirs.components_, axis=1)) == pytest.approx(1.0, abs=1e-4)
    assert (ours.mean_ == 0).all()
    # Zero inside the range is a center that costs nothing; outside, sums are asked for beside the products.
    assert (np.asarray(ours.answers_["gram"].value).shape == (6, 6)) == (low <= 0 <= high)


def test_columns_count_in_their_own_units_or_in_their_ranges() -> None:
    X = np.round(table(500) * 2**16) / 2**16
    width = np.array([1.0, 2.0, 10.0, 0.1, 1.0, 100.0])
    raw = PrivatePCA(privacy=EXACT, bounds=(np.zeros(6), width)).fit(X * width)
    assert raw.explained_variance_ == pytest.approx(
        PCA().fit(X * width).explained_variance_, rel=1e-4, abs=1e-9
    )
    ranged = PrivatePCA(privacy=EXACT, bounds=(np.zeros(6), width), range_units=True).fit(X * width)
    assert ranged.explained_variance_ == pytest.approx(PCA().fit(X).explained_variance_, rel=1e-4, abs=1e-9)
    assert ranged.inverse_transform(ranged.transform(X * width)) == pytest.approx(X * width, abs=1e-9)


@pytest.mark.parametrize(("epsilon", "least"), [(0.1, 0.6), (1.0, 0.98), (10.0, 0.999)])
def test_quartiles_over_seeds_are_near_the_best(epsilon: float, least: float) -> None:
    X = table(20000)
    with unit_cube(X) as sums:
        found = [
            captured(
                X,
                PrivatePCA(n_components=2, privacy=ApproxDP(epsilon=epsilon + i * 1e-9, delta=1e-6))
                .fit_database(sums)
                .components_,
            )
            for i in range(5)
        ]
    assert len(set(found)) == 5
    assert np.quantile(found, 0.25) > least


def test_a_learned_center_and_radius_beat_the_whole_box_by_far() -> None:
    X = table(4000)
    scores: dict[Any, list[float]] = {"auto": [], None: []}
    with unit_cube(X, -4, 5) as sums:
        for radius, found in scores.items():
            for i in range(5):
                privacy = ApproxDP(epsilon=1.0 + i * 1e-9, delta=1e-6)
                model = PrivatePCA(n_components=2, privacy=privacy, radius=radius).fit_database(sums)
                found.append(captured(X, model.components_))
    assert np.median(scores["auto"]) > np.median(scores[None]) + 0.1


def test_components_that_noise_made_up_are_marked() -> None:
    constant = np.full((3000, 5), 0.5)
    with unit_cube(constant) as sums:
        models = [PrivatePCA(privacy=GaussianDP(mu=0.2 + i * 1e-9)).fit_database(sums) for i in range(40)]
    believed = sum(int(model.distinguishable_.any()) for model in models)
    assert believed <= 2
    # The error of the center shows as a component too: a floor without it believes in more of them,
    gram = [np.asarray(model.answers_["gram"].sd) / 2999 for model in models]
    bare = sum(
        int((m.explained_variance_ > noise_floor(sd)).any()) for m, sd in zip(models, gram, strict=True)
    )
    assert bare > believed
    # and a floor of one standard deviation in nearly all.
    single = sum(int((m.explained_variance_ > sd.max()).any()) for m, sd in zip(models, gram, strict=True))
    assert single > 30
    strong = PrivatePCA(privacy=CLASSIC, bounds=(0, 1), random_state=1).fit(table(20000))
    assert strong.distinguishable_.tolist()[:2] == [True, True]
    assert strong.noise_floor_ > 0


def test_the_noise_floor_is_where_the_spectrum_of_noise_ends() -> None:
    for d in (1, 4, 30):
        sd = np.full((d, d), 1 / math.sqrt(2))
        np.fill_diagonal(sd, 1.0)
        top = []
        for seed in range(40):
            noise = standard_normal((d, d), Stream.from_seed(seed)) * sd
            noise = np.triu(noise) + np.triu(noise, 1).T
            top.append(float(np.linalg.eigvalsh(noise)[-1]))
        assert np.mean(np.array(top) < noise_floor(sd)) > 0.9
        assert noise_floor(sd) <= 4 * max(float(np.mean(top)), 1.0)


def test_a_matrix_costs_its_radius_and_not_its_number_of_entries() -> None:
    # sulq-sensitivity: the paper charges d^2 + d; rows of length B move the matrix by 2 B^4.
    d, radius = 50, 1.0
    schema = Schema(columns=[Column(f"x{i}", lower=0, upper=1) for i in range(d)])
    bound = Gram(schema.names, None, radius, False).bind(Curation.from_schema(schema), "replace-one")
    tight = bound.squared * GRID**4
    assert tight == pytest.approx(2.0, rel=1e-9)
    assert (d**2 + d) / tight == pytest.approx(1275, rel=1e-9)


def test_the_number_of_rows_may_be_private() -> None:
    names = [f"x{i}" for i in range(6)]
    schema = Schema(columns=[Column(name, lower=0, upper=1) for name in names], neighbors="add-remove")
    X = table(20000)
    with Database(X, schema=schema, random_state=1) as sums:
        assert sums.n_rows is None
        privacy = dataclasses.replace(CLASSIC, neighbors="add-remove")
        centered = PrivatePCA(n_components=2, privacy=privacy).fit_database(sums)
        plain = PrivatePCA(n_components=2, privacy=privacy, centered=False).fit_database(sums)
    assert captured(X, centered.components_) > 0.98
    assert set(plain.answers_) == {"region", "gram"}


def test_pure_promises_are_kept_with_laplace_noise() -> None:
    X = table(20000)
    model = PrivatePCA(n_components=2, privacy=PureDP(epsilon=10.0), bounds=(0, 1), random_state=1).fit(X)
    assert {answer.law for answer in model.answers_.values()} == {"laplace"}
    assert captured(X, model.components_) > 0.9


def test_more_components_than_coordinates_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"n_components of PrivatePCA must be at most .* 2, was 3"):
        PrivatePCA(n_components=3, privacy=GaussianDP(mu=1.0), bounds=(0, 1)).fit(np.zeros((9, 2)))
