"""Noise of answers to many questions under one promise, for plans."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from discreet.privacy import PureDP
from discreet.query.aggregates import Marginals, Moments
from discreet.query.dummy import uniform_shares

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats
    from discreet.noise import Stream
    from discreet.privacy import ApproxDP
    from discreet.query import Database


def noisy_tables(
    database: Database,
    pairs: Sequence[tuple[str, str]],
    tables: Sequence[Floats],
    n_rows: int,
    privacy: PureDP | ApproxDP,
    stream: Stream,
) -> list[Floats]:
    """Return two-way tables of shares with the noise that they have if all are asked for at once.

    Parameters
    ----------
    database : Database
        Table whose schema and neighbors decide the noise; no answer is asked for.
    pairs : sequence of (str, str)
        Columns of each table.
    tables : sequence of array
        Shares of rows in the cells of each table, without noise.
    n_rows : int
        Number of rows of the table.
    privacy : PureDP or ApproxDP
        Promise of all tables together.
    stream : Stream
        Source of the noise.

    Notes
    -----
    The noise depends on the number of tables and not on their cells, so that each number is cut in half here.
    """
    if not pairs:
        return []
    schema = database.schema
    names = dict.fromkeys(name for pair in pairs for name in pair)
    edges = {
        name: [schema.column(name).range[0] + math.ceil(schema.column(name).width / 2)]
        for name in names
        if not schema.column(name).is_category
    }
    # All tables have the same precision, and so all cells the same noise.
    sd = float(np.ravel(database.expected_sd(Marginals(pairs, edges=edges), privacy=privacy))[0])
    return [table + _draw(table.shape, sd / n_rows, privacy, stream) for table in tables]


def noisy_means(
    database: Database, means: Mapping[str, float], n_rows: int, privacy: PureDP | ApproxDP, stream: Stream
) -> dict[str, float]:
    """Return means, as shares of the range, with the noise that they have if all are asked for at once.

    Parameters
    ----------
    database, n_rows, privacy, stream
        As for :func:`noisy_tables`.
    means : mapping of str to float
        Mean of each number as a share of its range, without noise.
    """
    if not means:
        return {}
    sd = np.ravel(database.expected_sd(Moments(tuple(means)), privacy=privacy))[1 : 1 + len(means)]
    noise = _draw((len(means),), 1.0, privacy, stream) * sd / n_rows
    return {name: value + float(error) for (name, value), error in zip(means.items(), noise, strict=True)}


def _draw(shape: tuple[int, ...], sd: float, privacy: PureDP | ApproxDP, stream: Stream) -> AnyArray:
    """Return Gaussian noise, or Laplace noise for a pure epsilon; inexact, as it protects no one here."""
    shares = uniform_shares(math.prod(shape), stream) + 2.0**-54
    if isinstance(privacy, PureDP):
        centered = shares - 0.5
        drawn = -np.sign(centered) * np.log1p(-2 * np.abs(centered)) / math.sqrt(2)
    else:
        drawn = special.ndtri(shares)
    return np.asarray(sd * drawn.reshape(shape))
