"""Rows for evaluation: drawn from the schema alone, or a paired sample of true and published rows.

:func:`rows_from_schema` serves plans that are made before a cell is read, and :func:`dummy_rows` analysts who
try a query before they pay for it. :class:`PairedSample` keeps true rows beside published ones; internal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ParameterError
from discreet.evaluation._models import PredictionTask
from discreet.evaluation.columns import ColumnTotals
from discreet.noise import Stream, uniform_integers

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import AnyArray, Floats, Ints, Words
    from discreet.release.publication import Encoded
    from discreet.schema import Column, Schema

MOST_IN_RULE = 5
ONE_IN = 10
"""One in this many optional cells is missing, and one in this many targets is drawn at random."""
RULE = (
    "Rows drawn from the schema: every column uniform on what was declared, independent of the others, and "
    f"one number in {ONE_IN} missing where it may be. The target follows a planted rule: the mean of the "
    f"first {MOST_IN_RULE} protected columns (a number by its place in its range, a list by its place in its "
    "levels) is ranked over the rows, and the rank gives the class or the number; one answer in "
    f"{ONE_IN} is random."
)
"""Description of the rows, for readers of an accuracy that was measured on them."""
WATERMARK = "_dummy"
"""Name of a column that is true in every row, so that the rows are not mistaken for real ones."""
MAX_DUMMY_ROWS = 100_000
MAX_SAMPLE_ROWS = 20_000
MOST_CELLS = 8_000_000
"""Largest number of true cells, and of published cells, in a sample: 64 MB each."""


def rows_from_schema(schema: Schema, n: int, stream: Stream) -> dict[str, AnyArray]:
    """Draw rows from the schema alone, with a planted rule that a model can learn.

    Parameters
    ----------
    schema : Schema
        Declared columns of the table.
    n : int
        Number of rows to draw.
    stream : Stream
        Source of the random words.

    Returns
    -------
    dict of str to array
        Encoded rows, distributed as :data:`RULE` says.

    Privacy
    -------
    No data is read. Accuracy on these rows shows the effect of noise on learning, not how well the true table
    can be learned from.
    """
    rows = {c.name: _cells(c, _uniform(n, stream), stream) for c in schema.released}
    if schema.target is not None:
        column = schema.column(schema.target)
        protected = [c for c in schema.features if c.role == "sensitive"] or list(schema.features)
        if protected:
            used = protected[:MOST_IN_RULE]
            positions = np.column_stack([_relative_position(c, rows[c.name]) for c in used])
            rank = np.empty(n)
            rank[np.argsort(positions.mean(axis=1), kind="stable")] = (np.arange(n) + 0.5) / n
            random = uniform_integers(ONE_IN, n, stream) == 0
            rank[random] = _uniform(n, stream)[random]
            rows[column.name] = _targets(column, rank)
    return rows


def _uniform(n: int, stream: Stream) -> Floats:
    """Draw n numbers, uniform on the multiples of 2**-53 in [0, 1)."""
    return np.asarray((stream.words(n) >> np.uint64(11)) * 2.0**-53)


def _cells(column: Column, share: Floats, stream: Stream) -> AnyArray:
    """Return the cell at each quantile of the uniform law on the declared values; some of them missing."""
    if column.is_category:
        return np.asarray(np.floor(share * len(column.levels)).astype(np.int32))
    lower, upper = column.range
    if column.type == "number":
        values = lower + share * (upper - lower)
    else:
        values = lower + np.floor(share * column.n_integers)
    if not column.required:
        values[uniform_integers(ONE_IN, len(share), stream) == 0] = np.nan
    return np.asarray(values)


def _relative_position(column: Column, values: AnyArray) -> Floats:
    """Return the position of each cell in the declared range or list, 0 to 1; 0.5 for a missing number."""
    if column.is_category:
        return np.asarray(values / max(1, len(column.levels) - 1))
    return np.nan_to_num((values - column.range[0]) / column.width, nan=0.5)


def _targets(column: Column, rank: Floats) -> AnyArray:
    """Return the class or number of each rank from 0 to 1."""
    n_classes = PredictionTask.from_column(column).n_classes
    if n_classes:
        return np.asarray(np.floor(rank * n_classes).astype(np.int32))
    values = column.range[0] + rank * column.width
    return np.asarray(values if column.type == "number" else np.rint(values))


def dummy_rows(schema: Schema, n: int, seed: int) -> dict[str, list[Any]]:
    """Draw rows from the schema alone, decoded as in a file.

    Parameters
    ----------
    schema : Schema
        Declared columns of the table.
    n : int
        Number of rows to draw, from 1 to :data:`MAX_DUMMY_ROWS`.
    seed : int
        Seed of the draw; the same seed gives the same rows.

    Returns
    -------
    dict of str to list
        The columns that may be queried, with values as JSON and text files hold them (a date as
        ``"2024-01-31"``, a missing cell as None), and the column :data:`WATERMARK`.

    Privacy
    -------
    No data is read: every column is uniform on its declared values, whatever the true rows are.

    Examples
    --------
    >>> from discreet.schema import Column, Schema
    >>> schema = Schema(columns=[Column("age", type="integer", lower=0, upper=9)])
    >>> rows = dummy_rows(schema, 3, seed=1)
    >>> list(rows), rows["_dummy"], all(0 <= age <= 9 for age in rows["age"])
    (['age', '_dummy'], [True, True, True], True)
    """
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MAX_DUMMY_ROWS:
        raise ParameterError(f"n of dummy_rows must be a whole number from 1 to {MAX_DUMMY_ROWS}, was {n!r}.")
    if WATERMARK in schema.names:
        raise ParameterError(
            f"schema of dummy_rows must not declare a column {WATERMARK!r}, by which made-up rows are told "
            "from true ones, and does. Rename the column."
        )
    encoded = rows_from_schema(schema, n, Stream.from_seed(seed))
    rows = {column.name: _decode_cells(column, encoded[column.name]) for column in schema.released}
    return {**rows, WATERMARK: [True] * n}


def _decode_cells(column: Column, values: AnyArray) -> list[Any]:
    """Return encoded cells as the values of a file, None for missing ones."""
    if column.is_category:
        return [column.levels[code] for code in values.tolist()]
    if column.type == "date":
        days = np.datetime_as_string(column.dates(values))
        return [None if day == "NaT" else str(day) for day in days]
    whole = column.type == "integer"
    return [None if cell != cell else round(cell) if whole else cell for cell in values.tolist()]


class PairedSample:
    """A uniform sample of (true, published) rows of a stream of batches, with totals over all rows.

    Give it to a release as ``publish(watch=pairs)``. Memory does not grow with the number of rows.

    Parameters
    ----------
    schema : Schema
        Schema of the published table, as ``ReleasePlan.schema``.
    stream : Stream
        Source of the choice of rows. It must not be the stream of the noise.
    rows : int
        Largest number of rows in the sample; fewer for very wide tables.
    others : callable, optional
        Function called with the published rows that are not in the sample, each once: when they come, or
        when another row replaces them.

    Attributes
    ----------
    seen : int
        Number of rows that were added so far.
    totals : dict of str to ColumnTotals
        Totals of every published column, over all rows so far.

    Privacy
    -------
    Holds true rows: nothing that is computed from it may leave the curator.

    Reference
    ---------
    Every row draws a 64-bit word and the rows with the smallest words stay, so every subset is equally
    likely, up to the chance that two of the words at the border are equal (below ``seen / 2**64``).

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import Column, Schema
    >>> from discreet.noise import Stream
    >>> pairs = PairedSample(Schema(columns=[Column("age", lower=0, upper=120)]), Stream.from_seed(1), rows=3)
    >>> for start in (0, 50):
    ...     ages = np.arange(start, start + 50.0)
    ...     pairs({"age": ages}, {"age": ages + 0.5})
    >>> pairs.seen, pairs.rows["age"].size, (pairs.published["age"] - pairs.rows["age"]).tolist()
    (100, 3, [0.5, 0.5, 0.5])
    """

    def __init__(
        self,
        schema: Schema,
        stream: Stream,
        *,
        rows: int = MAX_SAMPLE_ROWS,
        others: Callable[[Encoded], None] | None = None,
    ) -> None:
        """Set up an empty sample."""
        if rows < 1:
            raise ParameterError(
                f"rows of PairedSample must be at least 1, was {rows}. Leave it out for {MAX_SAMPLE_ROWS:,}."
            )
        self.schema = schema
        self.seen = 0
        self._names = [column.name for column in schema.released]
        self._capacity = min(rows, max(1, MOST_CELLS // len(self._names)))
        self._stream = stream
        self._others = others
        self._words: Words = np.empty(self._capacity, np.uint64)
        self._held = 0
        self._kept: tuple[dict[str, AnyArray], dict[str, AnyArray]] = ({}, {})
        self.totals = {column.name: ColumnTotals(column) for column in schema.released}

    @property
    def rows(self) -> dict[str, AnyArray]:
        """True rows of the sample, encoded."""
        return {name: values[: self._held] for name, values in self._kept[0].items()}

    @property
    def published(self) -> dict[str, AnyArray]:
        """Published rows of the same people, in the same order."""
        return {name: values[: self._held] for name, values in self._kept[1].items()}

    @property
    def whole(self) -> bool:
        """Whether every row so far is in the sample."""
        return self._held == self.seen

    def __call__(self, rows: Encoded, published: Encoded) -> None:
        """Add a batch of rows.

        Parameters
        ----------
        rows, published : mapping of str to array
            True and published rows of the same people in the same order.
        """
        n = len(rows[self._names[0]])
        for side in (rows, published):
            if any(len(side[name]) != n for name in self._names):
                raise ParameterError(
                    "PairedSample needs true and published rows of the same people, one for one."
                )
        for name in self._names:
            self.totals[name].add(rows[name], published[name])
        self.seen += n
        self._choose(rows, published, self._stream.words(n))

    def _choose(self, rows: Encoded, published: Encoded, words: Words) -> None:
        """Keep the rows with the smallest words, among the sample and a batch.

        Parameters
        ----------
        rows, published : mapping of str to array
            True and published rows of the batch.
        words : array of uint64
            Random word of each row of the batch.
        """
        room = min(self._capacity - self._held, len(words))
        if room:
            slots = np.arange(self._held, self._held + room)
            self._store(slots, np.arange(room), rows, published, words)
            self._held += room
        if room == len(words):
            return
        # Only rows with a smaller word than the largest of the sample can enter it.
        below = room + np.flatnonzero(words[room:] < self._words.max())
        pool = np.concatenate([self._words, words[below]])
        stays = np.zeros(pool.size, np.bool_)
        stays[np.argpartition(pool, self._capacity - 1)[: self._capacity]] = True
        slots, comes = np.flatnonzero(~stays[: self._capacity]), below[stays[self._capacity :]]
        if self._others is not None:
            passes = np.ones(len(words), np.bool_)
            passes[:room] = passes[comes] = False
            gone = self._kept[1]
            self._others({n: np.concatenate([gone[n][slots], published[n][passes]]) for n in self._names})
        self._store(slots, comes, rows, published, words)

    def _store(self, slots: Ints, places: Ints, rows: Encoded, published: Encoded, words: Words) -> None:
        """Write the rows at some places of a batch into slots of the sample."""
        self._words[slots] = words[places]
        for kept, side in zip(self._kept, (rows, published), strict=True):
            for name in self._names:
                if name not in kept:
                    kept[name] = np.zeros(self._capacity, side[name].dtype)
                kept[name][slots] = side[name][places]
