"""What ways to publish are compared on: rows with their cells, pairs and means, and the noise of answers.

Before a table is read the rows are made up, with relations that are declared. The noise is that of answers to
many questions under one promise.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from discreet.evaluation._models import (
    FeatureMatrix,
    PredictionTask,
    accuracy_or_r2,
    fit_boosted,
    fit_majority,
)
from discreet.privacy import PureDP
from discreet.query.aggregates import Marginals, Moments
from discreet.query.dummy import ONE_IN, cells_at_shares, remove_cells, uniform_shares
from discreet.release.publication import decode_cells
from discreet.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.noise import Stream
    from discreet.privacy import ApproxDP
    from discreet.query import Database
    from discreet.release.coarse import CoarsePlan
    from discreet.schema import Column

    Rows = Mapping[str, AnyArray]

EXPLAINED = 0.25
"""Default share of the target's variance that the true columns explain: a cautious guess."""
MOST_COLUMNS = 60
"""Number of columns among which all pairs are tabulated; of wider tables, the first ones."""
CORRELATION = 0.3
"""Correlation of any two features on the normal scale."""
MADE_UP = (
    "made-up rows, not yours: half of the cells are in the lowest quarter of their declared range or list, "
    f"any two columns are correlated by {CORRELATION:g} on the normal scale, and one number in {ONE_IN} is "
    "missing where it may be"
)
"""Description of the rows, printed beside everything that was measured on them."""


class ComparedRows:
    """Rows that every way publishes, and unseen rows that models are tested on.

    Parameters
    ----------
    schema : Schema
        Declaration of the table.
    train, test : mapping of str to array
        Encoded rows of the released columns: those that are published, and those of other people.
    stream : Stream
        Source of all noise and of the seeds of models.

    Notes
    -----
    Two-way tables count the cells of a coarse release: the values of a list, and a few parts of a number's
    range, which follow from the declaration.
    """

    def __init__(self, schema: Schema, train: Rows, test: Rows, stream: Stream) -> None:
        """Cut the columns into cells and count every pair of them."""
        self.schema, self.train, self.test, self.stream = schema, train, test, stream
        self.n_rows = len(next(iter(train.values())))
        protected = [c for c in schema.released if c.role != "public"]
        self.columns = protected[:MOST_COLUMNS]
        self.pairs = list(itertools.combinations([c.name for c in self.columns], 2))
        self.numbers = [c for c in self.columns if not c.is_category]
        self._cells = _plan_cells(schema)
        self.sizes = {c.name: len(self._cells.schema.column(c.name).levels) for c in self.columns}
        self.codes = self.find_cells(train)
        self.tables = [self.count(self.codes, pair) for pair in self.pairs]
        self.means = {c.name: self.mean(c, train[c.name]) for c in self.numbers}

    def find_cells(self, rows: Rows) -> dict[str, Ints]:
        """Return the place of the cell of each row, by column; numbers beyond their range are at its end."""
        inside = {
            c.name: rows[c.name] if c.is_category else np.clip(rows[c.name], *c.range) for c in self.columns
        }
        return {name: codes.astype(np.int64) for name, codes in self._cells.truth(inside).items()}

    def count(self, codes: Mapping[str, Ints], pair: tuple[str, str]) -> Floats:
        """Return the shares of rows in the cells of two columns."""
        first, second = (self.sizes[name] for name in pair)
        joint = codes[pair[0]] * second + codes[pair[1]]
        return np.bincount(joint, minlength=first * second).reshape(first, second) / max(1, len(joint))

    def mean(self, column: Column, values: AnyArray) -> float:
        """Return the mean of the known cells as a share of the range; its middle without any."""
        known = values[~np.isnan(values)]
        return float((known.mean() - column.range[0]) / column.width) if len(known) else 0.5

    def table_error(self, tables: list[Floats]) -> float | None:
        """Return the mean distance in total variation from the true two-way tables."""
        errors = [np.abs(made - true).sum() / 2 for made, true in zip(tables, self.tables, strict=True)]
        return float(np.mean(errors)) if errors else None

    def mean_error(self, means: Mapping[str, float]) -> float | None:
        """Return the mean error of the means, as a share of the range; a mean beyond it is at its end."""
        errors = [abs(min(max(means[name], 0.0), 1.0) - true) for name, true in self.means.items()]
        return float(np.mean(errors)) if errors else None

    @cached_property
    def task(self) -> PredictionTask | None:
        """Target as a prediction task; None where there is none, or no column to predict it from."""
        if self.schema.target is None or not self.schema.features:
            return None
        return PredictionTask.from_column(self.schema.column(self.schema.target))

    def boosted_accuracy(self, schema: Schema, train: Rows, test: Rows) -> float | None:
        """Return the accuracy of boosted trees that are trained on published rows."""
        if self.task is None:
            return None
        features = FeatureMatrix(schema)
        task = PredictionTask.from_column(schema.column(self.task.column.name))
        y = task.targets(train)
        known = task.is_present(y)
        seed = int(self.stream.derive("trees").words(1)[0] >> np.uint64(33))
        model = fit_boosted(features.matrix(train)[known], y[known], task, features, seed)
        return self.score(model.predict(features.matrix(test)))

    def score(self, predicted: Floats) -> float | None:
        """Return the accuracy, or R2, of predictions for the test rows."""
        assert self.task is not None
        y = self.task.targets(self.test)
        known = self.task.is_present(y)
        return accuracy_or_r2(predicted[known], y[known], self.task)

    def baselines(self) -> dict[str, float | None]:
        """Return the accuracy without any protection, and that of the most common class or the mean."""
        if self.task is None:
            return {"unprotected": None, "constant": None}
        y = self.task.targets(self.train)
        constant = fit_majority(y[self.task.is_present(y)], self.task)
        return {
            "unprotected": self.boosted_accuracy(self.schema, self.train, self.test),
            "constant": self.score(constant.predict(np.zeros((len(next(iter(self.test.values()))), 1)))),
        }

    def as_table(self) -> dict[str, AnyArray]:
        """Return the published rows as a table holds them, with ids where the schema declares them."""
        columns = {c.name: as_file(c, self.train[c.name]) for c in self.schema.released}
        if self.schema.id_column is not None:
            people = np.arange(self.n_rows) // (self.schema.max_rows_per_unit or 1)
            column = self.schema.column(self.schema.id_column)
            columns[column.name] = people if column.type == "integer" else people.astype(str).astype(object)
        return columns

    @property
    def seed(self) -> int:
        """Seed of the noise of methods that take one."""
        return int(self.stream.derive("noise").words(1)[0] >> np.uint64(33))


def _plan_cells(schema: Schema) -> CoarsePlan:
    """Return the plan of a coarse release in which every row shows every column: its values are the cells."""
    # Without wishes about privacy, which some columns of a coarse release cannot fulfill.
    columns = tuple(
        dataclasses.replace(c, protect=None)
        for c in schema.columns
        if c.is_released and c.name != schema.id_column
    )
    plain = Schema(columns=columns, target=schema.target)
    from discreet.release import CoarseRelease  # loaded here: the share above is read without tables

    method = CoarseRelease(privacy=PureDP(epsilon=1), per_row=len(plain.features) or None, schema=plain)
    return method.plan(plain, 1)


def as_file(column: Column, values: AnyArray) -> AnyArray:
    """Return encoded cells as a table that is read holds them."""
    return column.moments(values) if column.is_calendar else decode_cells(column, values)


def related_rows(schema: Schema, n: int, stream: Stream, *, explained: float) -> dict[str, AnyArray]:
    """Draw encoded rows from the schema alone, with columns that go together and explain the target.

    Parameters
    ----------
    schema : Schema
        Declared columns, with their bounds or levels.
    n : int
        Number of rows to draw.
    stream : Stream
        Source of the random words.
    explained : float
        Share of the target's variance that the features explain on the normal scale, from 0 to 1.

    Returns
    -------
    dict of str to array
        Encoded released columns.

    Notes
    -----
    With ``z`` a hidden factor of the row, ``e_j`` and ``u`` independent of it and all standard normal, a
    feature is ``x_j = sqrt(r) z + sqrt(1 - r) e_j`` with the correlation ``r``, and the target is
    ``sqrt(R) s + sqrt(1 - R) u`` with ``s`` the sum of all features divided by its standard deviation and
    ``R`` the explained share. A cell stands at the square of the normal distribution function of its number,
    as a share of its declared range or list: half of all cells are in the lowest quarter, as in most tables
    there are more small numbers than large ones. On cells that are uniform, the middle would be the right
    guess of a mean, and methods that say nothing would look good.

    Privacy
    -------
    No row is read.
    """
    factor = math.sqrt(CORRELATION) * _normal(n, stream)
    features = [c for c in schema.released if c.name != schema.target]
    rows, total = {}, np.zeros(n)
    for column in features:
        place = factor + math.sqrt(1 - CORRELATION) * _normal(n, stream)
        total += place
        rows[column.name] = remove_cells(column, cells_at_shares(column, _shares(place)), stream)
    if schema.target is not None:
        k = max(1, len(features))
        signal = total / math.sqrt(k + k * (k - 1) * CORRELATION)
        place = math.sqrt(explained) * signal + math.sqrt(1 - explained) * _normal(n, stream)
        rows[schema.target] = _target_cells(schema.column(schema.target), place)
    return {column.name: rows[column.name] for column in schema.released}


def _normal(n: int, stream: Stream) -> Floats:
    """Return standard normal numbers by their quantiles: exact noise is for what is protected."""
    # Half a step of the doubles above 0, where the quantile is infinite.
    return np.asarray(special.ndtri(uniform_shares(n, stream) + 2.0**-54))


def _shares(place: Floats) -> Floats:
    """Return the place of cells in their range or list, from 0 to below 1."""
    return np.asarray(np.minimum(special.ndtr(place) ** 2, 1 - 2.0**-53))


def _target_cells(column: Column, place: Floats) -> AnyArray:
    """Return the encoded cells of the target, none of them missing."""
    classes = sum(level is not None for level in column.levels) if column.is_category else 0
    if not classes:
        return cells_at_shares(column, _shares(place))
    return np.asarray(np.floor(_shares(place) * classes).astype(np.int32))


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
    return [table + _draw_noise(table.shape, sd / n_rows, privacy, stream) for table in tables]


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
    noise = _draw_noise((len(means),), 1.0, privacy, stream) * sd / n_rows
    return {name: value + float(error) for (name, value), error in zip(means.items(), noise, strict=True)}


def _draw_noise(shape: tuple[int, ...], sd: float, privacy: PureDP | ApproxDP, stream: Stream) -> AnyArray:
    """Return Gaussian noise, or Laplace noise for a pure epsilon; inexact, as it protects no one here."""
    shares = uniform_shares(math.prod(shape), stream) + 2.0**-54
    if isinstance(privacy, PureDP):
        centered = shares - 0.5
        drawn = -np.sign(centered) * np.log1p(-2 * np.abs(centered)) / math.sqrt(2)
    else:
        drawn = special.ndtri(shares)
    return np.asarray(sd * drawn.reshape(shape))
