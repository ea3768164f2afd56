"""Joint tables hold every table that they are made for, and count it as it would be counted alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from discreet.noise import Stream
from discreet.query.joint_tables import count_tables, join_tables

SIZES = [3, 12, 1, 5, 12, 12, 12, 2, 300, 300]


@pytest.mark.parametrize("n_rows", [0, 7, 5000])
def test_counts_are_those_of_each_table_alone(n_rows: int) -> None:
    draws = Stream.from_seed(4).generator()
    codes = [draws.integers(0, size, n_rows).astype(np.uint16) for size in SIZES]
    pairs = [pair[::-1] if sum(pair) % 3 else pair for pair in itertools.combinations(range(10), 2)]
    tables = [*pairs, (4,), (7, 1, 3), (0, 7, 2)]
    for table, counts in zip(tables, count_tables(codes, SIZES, tables), strict=True):
        shape = [SIZES[column] for column in table]
        place = np.ravel_multi_index([codes[column].astype(int) for column in table], shape)
        np.testing.assert_array_equal(counts, np.bincount(place, minlength=int(np.prod(shape))))


def test_many_tables_of_two_columns_are_inside_few_joint_tables() -> None:
    tables = list(itertools.combinations(range(20), 2))
    joined = join_tables(tables, [12] * 20, 10**6)
    assert sorted(i for joint in joined for i in joint.inside) == list(range(190))
    assert len(joined) < 60
    assert max(joint.size for joint in joined) <= 2**15
    # Joint tables of more cells than rows would take longer than the rows.
    assert all(joint.size <= 500 or len(joint.inside) == 1 for joint in join_tables(tables, [12] * 20, 2000))
