"""The rows on which ways to publish are compared: their cells, pairs and means, and models of them."""

from __future__ import annotations

import dataclasses
import itertools
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from discreet.evaluation._models import FeatureMatrix, PredictionTask, fit_boosted, fit_majority
from discreet.evaluation.scores import accuracy_or_r2
from discreet.privacy import PureDP
from discreet.release import CoarseRelease
from discreet.release.publication import decode_cells
from discreet.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray, Floats, Ints
    from discreet.noise import Stream
    from discreet.release.coarse import CoarsePlan
    from discreet.schema import Column

    Rows = Mapping[str, AnyArray]

MOST_COLUMNS = 60
"""Number of columns among which all pairs are tabulated; of wider tables, the first ones."""


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
    method = CoarseRelease(privacy=PureDP(epsilon=1), per_row=len(plain.features) or None, schema=plain)
    return method.plan(plain, 1)


def as_file(column: Column, values: AnyArray) -> AnyArray:
    """Return encoded cells as a table that is read holds them."""
    return column.moments(values) if column.is_calendar else decode_cells(column, values)
