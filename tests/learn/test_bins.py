"""Public grids, and cells that are declared in the schema."""

from __future__ import annotations

import datetime
import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from discreet.learn import PrivateGradientLogistic, PrivateID3Classifier, PrivateNaiveBayes
from discreet.learn._bins import Bins, grid_level, public_grid
from discreet.learn.feature_map import FeatureMap
from discreet.privacy import ApproxDP, GaussianDP
from discreet.schema import Column, Schema


def numbers(lower: float, upper: float, level: int) -> list[float]:
    return [round(edge, 6) for edge in public_grid(Column("x", lower=lower, upper=upper), level)]


def test_a_column_from_zero_has_its_bound_apart_and_cells_that_grow() -> None:
    assert numbers(0, 64, 0) == [0.0, 4.0, 16.0, 32.0]
    assert numbers(0, 64, 1) == [0.0, 0.25, 1.0, 4.0, 8.0, 16.0, 24.0, 32.0, 48.0]
    assert len(numbers(0, 64, 2)) == 16
    finest = public_grid(Column("x", lower=0, upper=64), 3)
    assert finest[0] == 64 * 2.0**-30
    assert {64 * 2.0**-k for k in range(1, 13)} | {4.0 * i for i in range(1, 16)} == set(finest[1:])
    # The first cell is the bound and nothing else.
    cells = Bins(
        FeatureMap.from_schema(Schema(columns=[Column("x", lower=0, upper=64)])),
        {"x": public_grid(Column("x", lower=0, upper=64), 0)},
    )
    rows = np.array([[-5.0], [0.0], [1e-6], [4.0], [64.0]])
    assert cells.codes(rows).ravel().tolist() == [0, 0, 1, 2, 4]


def test_a_column_up_to_zero_is_the_mirror_image() -> None:
    for level in range(4):
        right = np.array(public_grid(Column("x", lower=0, upper=64), level))
        left = np.array(public_grid(Column("x", lower=-64, upper=0), level))
        assert np.allclose(np.sort(-left), right, rtol=0, atol=1e-12)
        values = np.arange(-640, 1)
        positive = public_grid(Column("x", type="integer", lower=0, upper=640), level)
        negative = public_grid(Column("x", type="integer", lower=-640, upper=0), level)
        together = {
            tuple(part)
            for _, part in itertools.groupby(values, key=lambda v: np.searchsorted(negative, v, "right"))
        }
        mirrored = {
            tuple(sorted(-v for v in part))
            for _, part in itertools.groupby(
                -values[::-1], key=lambda v: np.searchsorted(positive, v, "right")
            )
        }
        assert together == mirrored


def test_a_range_around_zero_has_equal_widths() -> None:
    assert numbers(-4, 4, 0) == [-2, 0, 2]
    assert numbers(-4, 4, 1) == [-3, -2, -1, 0, 1, 2, 3]
    assert [len(numbers(-4, 4, level)) for level in range(4)] == [3, 7, 15, 31]


@pytest.mark.parametrize(("level", "most"), [(0, 6), (1, 12), (2, 20), (3, 63)])
def test_a_whole_number_with_few_values_has_a_cell_for_each(level: int, most: int) -> None:
    few = Column("x", type="integer", lower=3, upper=3 + most)
    assert public_grid(few, level) == tuple(float(v) for v in range(4, 4 + most))
    many = public_grid(Column("x", type="integer", lower=3, upper=4 + most), level)
    assert len(many) < most
    assert many[0] == 4.0
    assert all(edge == int(edge) for edge in many)
    day = datetime.date(2020, 1, 1)
    dates = Column("x", lower=day, upper=day + datetime.timedelta(days=most))
    assert len(public_grid(dates, level)) == most


def test_the_level_follows_from_rows_per_noise() -> None:
    assert [grid_level(s, 2) for s in (0.0, 44.9, 45.0, 149.0, 150.0, 700.0, math.inf)] == [
        0,
        0,
        1,
        1,
        2,
        3,
        3,
    ]
    assert [grid_level(s, 6) for s in (134.0, 135.0)] == [0, 1]


def declared() -> Schema:
    day = datetime.date(2020, 1, 1)
    columns = [
        Column("pay", lower=0, upper=1000, cells=(0.5, 100, 500)),
        Column("since", lower=day, upper=datetime.date(2029, 12, 31), cells=(datetime.date(2020, 1, 11),)),
        Column("age", type="integer", lower=0, upper=100, cells=(18, 65)),
        Column("rest", lower=0, upper=1),
        Column("owner", values=("no", "yes"), role="target"),
    ]
    return Schema(columns=columns)


def test_cells_of_the_schema_are_used_unless_edges_are_given() -> None:
    layout = FeatureMap.from_schema(declared())
    cells = Bins.from_features(layout, {"age": (30,)}, 4)
    assert cells.edges == {
        "pay": (0.5, 100.0, 500.0),
        "since": (10.0,),
        "age": (30.0,),
        "rest": (0.25, 0.5, 0.75),
    }
    assert Bins.from_dict(cells.to_dict()).sizes == {"pay": 4, "since": 2, "age": 2, "rest": 4}


def test_every_learner_on_cells_takes_those_of_the_schema() -> None:
    i = np.arange(60)
    rows = pd.DataFrame(
        {
            "pay": i * 13.0,
            "since": [datetime.date(2020, 1, 1) + datetime.timedelta(days=int(k)) for k in i],
            "age": i,
            "rest": i / 60,
        }
    )
    owner = np.where(i % 3 == 0, "yes", "no")
    promise = GaussianDP(mu=5.0)
    for model in (
        PrivateNaiveBayes(privacy=promise, schema=declared(), random_state=1),
        PrivateNaiveBayes(privacy=promise, schema=declared(), n_bins=3, random_state=1),
        PrivateID3Classifier(privacy=promise, schema=declared(), max_depth=1, random_state=1),
        PrivateGradientLogistic(privacy=promise, schema=declared(), n_bins="auto", random_state=1),
    ):
        edges = model.fit(rows, owner).cells_.edges  # type: ignore[union-attr]
        assert edges["pay"] == (0.5, 100.0, 500.0)
        assert edges["since"] == (10.0,)
        assert edges["age"] == (18.0, 65.0)


def test_mostly_empty_columns_are_learned_from() -> None:
    # What helps is whether a value is 0: equal widths put nearly all rows into the first cell.
    i = np.arange(4000)
    owner = np.where(i % 5 < 2, "yes", "no")
    rows = {}
    for j in range(10):
        share = np.where(owner == "yes", 45, 20)
        filled = (i * 7919 + j * 104_729) // 5 % 100 < share
        rows[f"x{j}"] = np.where(filled, 0.1 + (i * 31 % 89) / 89, 0.0)
    matrix = np.column_stack(list(rows.values()))
    given: dict[str, Any] = {
        "privacy": ApproxDP(epsilon=1.0, delta=1e-6),
        "bounds": (0, 20),
        "classes": ["no", "yes"],
    }
    grid = PrivateNaiveBayes(random_state=1, **given).fit(matrix, owner)
    widths = PrivateNaiveBayes(random_state=1, n_bins=8, **given).fit(matrix, owner)
    assert grid.score(matrix, owner) > widths.score(matrix, owner) + 0.1
