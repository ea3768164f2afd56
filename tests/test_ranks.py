"""Ranks with ties."""

import numpy as np
from scipy.stats import rankdata

from discreet.noise import Stream
from discreet.ranks import rank_values


def test_ranks_equal_those_of_scipy() -> None:
    values = (Stream.from_seed(3).words(5000) % np.uint64(700)).astype(np.float64) / 7
    assert (rank_values(values) == rankdata(values)).all()
    assert rank_values(np.array([])).size == 0
