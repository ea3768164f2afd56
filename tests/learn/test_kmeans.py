"""Clusters from noisy sums: exact without noise, near the best with it, and nothing else is looked at."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.cluster import KMeans

from discreet.errors import ParameterError
from discreet.learn import PrivateKMeans
from discreet.learn._centering import shrink_to_zero
from discreet.learn._kmeans import mean_error, merge_centers
from discreet.noise import Stream, standard_normal, uniform_integers
from discreet.privacy import ApproxDP, GaussianDP, NoPromise
from discreet.query import ClusterSums, Database
from discreet.query.curation import Curation
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from discreet._types import Floats

CLASSIC = ApproxDP(epsilon=1.0, delta=1e-6)
EXACT = NoPromise("a comparison")


def table(n: int = 20000, d: int = 4, k: int = 5) -> tuple[Floats, Floats]:
    """Rows around k centers in a part of the unit cube, on the grid of the questions."""
    stream = Stream.from_seed(2)
    centers = 0.15 + 0.5 * uniform_integers(1000, k * d, stream).reshape(k, d) / 1000
    rows = centers[np.arange(n) % k] + 0.03 * standard_normal((n, d), stream)
    return np.round(np.clip(rows, 0, 1) * 2**16) / 2**16, centers


def inertia(X: Floats, centers: Floats) -> float:
    squares = ((X[:, None, :] - centers[None]) ** 2).sum(axis=2)
    return float(squares.min(axis=1).mean())


def test_without_noise_its_passes_are_lloyds() -> None:
    X, _ = table(600)
    start = np.round(np.array([[0.2, 0.2, 0.4, 0.6], [0.6, 0.5, 0.2, 0.3], [0.4, 0.6, 0.6, 0.2]]) * 64) / 64
    ours = PrivateKMeans(n_clusters=3, privacy=EXACT, bounds=(0, 1), init=start, max_iter=3, radius=None).fit(
        X
    )
    centers = start.copy()
    for _ in range(3):
        # scikit-learn's one step of Lloyd; ours has its centers on the grid in between.
        centers = np.round(centers * 2**16) / 2**16
        labels = ((X[:, None] - centers[None]) ** 2).sum(axis=2).argmin(axis=1)
        centers = np.array([X[labels == j].mean(axis=0) for j in range(3)])
    assert ours.cluster_centers_ == pytest.approx(centers, abs=1e-9)
    theirs = KMeans(3, init=start, n_init=1, max_iter=3, tol=0).fit(X)
    assert ours.cluster_centers_ == pytest.approx(theirs.cluster_centers_, abs=1e-4)
    assert (ours.predict(X) == ((X[:, None] - ours.cluster_centers_) ** 2).sum(axis=2).argmin(axis=1)).all()
    assert ours.score(X) == pytest.approx(-len(X) * inertia(X, ours.cluster_centers_))


@pytest.mark.parametrize(("epsilon", "most"), [(0.1, 2.0), (1.0, 1.05), (10.0, 1.01)])
def test_quartiles_over_seeds_are_near_the_best(epsilon: float, most: float) -> None:
    X, centers = table()
    best = inertia(X, centers)
    schema = Schema(columns=[Column(f"x{i}", lower=0, upper=1) for i in range(4)])
    found = []
    with Database(X, schema=schema, random_state=1) as sums:
        for i in range(5):
            privacy = ApproxDP(epsilon=epsilon + i * 1e-9, delta=1e-6)
            model = PrivateKMeans(n_clusters=5, privacy=privacy).fit_database(sums)
            found.append(inertia(X, model.cluster_centers_) / best)
    assert len(set(found)) == 5
    assert np.quantile(found, 0.75) < most


def test_the_error_of_a_center_is_that_of_the_new_mean_and_not_of_the_old() -> None:
    d, rows, R = 3, 5000.0, 2500.0
    old, new = np.full(d, 0.1), np.array([4.0, 3.0, 12.0])
    draws = standard_normal((20000, d + 1), Stream.from_seed(4)) * math.sqrt(R)
    noisy = (rows * new + draws[:, 1:]) / (rows + draws[:, :1])
    measured = math.sqrt(((noisy - new) ** 2).sum(axis=1).mean())
    sd = np.full((1, d), math.sqrt(R))
    ours = mean_error(new[None], np.array([rows]), sd, np.array([math.sqrt(R)]))[0]
    printed = mean_error(old[None], np.array([rows]), sd, np.array([math.sqrt(R)]))[0]
    assert ours == pytest.approx(math.sqrt((new @ new + d) * R) / rows)
    assert measured == pytest.approx(ours, rel=0.02)
    assert measured > 5 * printed


def test_errors_say_how_far_noise_moved_the_centers() -> None:
    X, _ = table(4000, d=4, k=1)
    schema = Schema(columns=[Column(f"x{i}", lower=0, upper=1) for i in range(4)])
    ratio = []
    with Database(X, schema=schema, random_state=1) as sums:
        for i in range(40):
            model = PrivateKMeans(
                n_clusters=1, privacy=GaussianDP(mu=0.2 + i * 1e-9), max_iter=1, radius=0.5, init=[[0.4] * 4]
            ).fit_database(sums)
            missed = float(((model.cluster_centers_[0] - X.mean(axis=0)) ** 2).sum())
            ratio.append(missed / float(model.errors_[0]) ** 2)
    assert 0.6 < np.mean(ratio) < 1.3


def test_empty_clusters_are_answered_with_noise_and_start_anew_in_public() -> None:
    X = np.full((2000, 2), 0.25)
    start = [[0.25, 0.25], [0.9, 0.9]]
    model = PrivateKMeans(
        n_clusters=2, privacy=CLASSIC, bounds=(0, 1), init=start, max_iter=2, random_state=5
    ).fit(X)
    first = np.asarray(model.answers_["pass 1"].value)
    # Bit-identical zeros, or a center kept as it was because no row was near, would show that none was.
    assert (first[1] != 0).all()
    again = PrivateKMeans(
        n_clusters=2, privacy=CLASSIC, bounds=(0, 1), init=start, max_iter=2, random_state=6
    ).fit(X)
    assert np.asarray(again.answers_["pass 1"].value)[1, 0] != first[1, 0]
    assert not np.array_equal(model.cluster_centers_[1], start[1])


def test_a_pass_costs_its_radius_and_not_its_clusters_and_columns() -> None:
    # sulq-sensitivity: the paper charges k (d + 1) = 168; a row moves one cluster, by 4 B^2 at most.
    schema = Schema(columns=[Column(f"x{i}", lower=0, upper=1) for i in range(20)])
    bound = ClusterSums(schema.names, [[0.5] * 20] * 8, 1.0).bind(Curation.from_schema(schema), "replace-one")
    assert bound.squared / 2.0**32 == pytest.approx(4.0, rel=1e-9)
    assert 8 * (20 + 1) / (bound.squared / 2.0**32) == pytest.approx(42, rel=1e-9)


def test_displacements_are_clipped_by_a_schedule_that_shrinks() -> None:
    X, _ = table(3000)
    model = PrivateKMeans(n_clusters=5, privacy=CLASSIC, bounds=(0, 1), random_state=1, max_iter=6).fit(X)
    assert (np.diff(model.radii_) <= 0).all()
    assert model.radii_[-1] == pytest.approx(model.radii_[0] / 2)
    declared = PrivateKMeans(n_clusters=5, privacy=CLASSIC, bounds=(0, 1), radius=0.4, random_state=1).fit(X)
    assert declared.radii_.tolist() == pytest.approx([0.4, 0.28, 0.24, 0.2])


def test_more_centers_than_clusters_are_asked_only_where_noise_permits() -> None:
    X, _ = table(3000)
    sizes = {}
    for mu in (0.01, 100.0):
        model = PrivateKMeans(n_clusters=5, privacy=GaussianDP(mu=mu), bounds=(0, 1), random_state=1).fit(X)
        sizes[mu] = len(np.asarray(model.answers_["pass 1"].value))
        assert model.cluster_centers_.shape == (5, 4)
    assert sizes == {0.01: 5, 100.0: 30}


def test_merging_weighs_centers_and_leaves_out_those_without_rows() -> None:
    centers = np.array([[0.1, 0.1], [0.12, 0.1], [0.9, 0.9], [0.5, 0.5]])
    found = merge_centers(centers, np.array([100.0, 300.0, 50.0, 0.0]), 2)
    assert found[np.argsort(found[:, 0])] == pytest.approx(np.array([[0.115, 0.1], [0.9, 0.9]]))
    assert merge_centers(centers, np.array([1.0, 0.0, 0.0, 0.0]), 2).shape == (2, 2)


def test_shrinking_takes_away_what_noise_explains() -> None:
    sd = np.full((1, 100), 1.0)
    noise = standard_normal((200, 100), Stream.from_seed(8))
    assert np.mean([(shrink_to_zero(row[None], sd) ** 2).sum() for row in noise]) < 5.0
    assert shrink_to_zero(np.full((1, 100), 50.0), sd) == pytest.approx(np.full((1, 100), 50.0), rel=1e-3)
    assert shrink_to_zero(np.array([3.0, 4.0]), np.zeros(2)).tolist() == [3.0, 4.0]


@pytest.mark.parametrize(
    "init",
    [
        "random",
        {"age": [1, 2]},
        [[0.1, 0.2]],
        [[0.1], [0.2, 0.3]],
        [[10**400] * 2] * 2,
        [[None, 1]] * 2,
        3,
        [],
    ],
)
def test_starting_centers_that_fit_no_table_are_refused_with_the_other_parameters(init: Any) -> None:
    # Before anything is asked, and before a file or a page tries to write them.
    with pytest.raises(ParameterError, match=r"init of PrivateKMeans must be .* \(2, n_coordinates\)"):
        PrivateKMeans(n_clusters=2, privacy=CLASSIC, bounds=(0, 1), init=init)._check_parameters()
    PrivateKMeans(n_clusters=2, privacy=CLASSIC, bounds=(0, 1), init=[[0.1] * 3] * 2)._check_parameters()


def test_starting_centers_must_fit() -> None:
    for init in ([[0.5]], [[np.nan, 0.5], [0.1, 0.2]], "far"):
        with pytest.raises(ParameterError, match=r"init of PrivateKMeans must be None or finite numbers"):
            PrivateKMeans(n_clusters=2, privacy=CLASSIC, bounds=(0, 1), init=init).fit(np.zeros((9, 2)))
