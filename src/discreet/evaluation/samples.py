"""Rows about nobody for analysts: to try a question on before it is paid for.

Rows about nobody, from what was declared alone, for those who plan before a cell is read.

What the curator looks at afterwards: a fair sample of true rows beside published ones, totals of all.
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
"""One in so many cells that may be missing is missing, and one in so many answers is drawn at random."""
RULE = (
    "Rows drawn from the schema: every column uniform on what was declared, independent of the others, and "
    f"one number in {ONE_IN} missing where it may be. The target follows a planted rule: the mean of the "
    f"first {MOST_IN_RULE} protected columns (a number by its place in its range, a list by its place in its "
    "levels) is ranked over the rows, and the rank gives the class or the number; one answer in "
    f"{ONE_IN} is random."
)
"""What the rows are, for whoever reads an accuracy that was measured on them."""


def rows_from_schema(schema: Schema, n: int, stream: Stream) -> dict[str, AnyArray]:
    """Draw rows from the schema alone, with a rule that a model can find.

    Parameters
    ----------
    schema : Schema
        What was declared.
    n : int
        How many rows.
    stream : Stream
        Where the random words come from.

    Returns
    -------
    dict of str to array
        Encoded rows; see :data:`RULE`.

    Privacy
    -------
    Nothing is read: the rows are about nobody, and accuracy on them says how noise and learning go
    together, not how well the true table can be learned from.
    """
    rows = {c.name: _cells(c, _uniform(n, stream), stream) for c in schema.released}
    if schema.target is not None:
        column = schema.column(schema.target)
        protected = [c for c in schema.features if c.role == "sensitive"] or list(schema.features)
        if protected:
            places = np.column_stack([_place(c, rows[c.name]) for c in protected[:MOST_IN_RULE]])
            rank = np.empty(n)
            rank[np.argsort(places.mean(axis=1), kind="stable")] = (np.arange(n) + 0.5) / n
            random = uniform_integers(ONE_IN, n, stream) == 0
            rank[random] = _uniform(n, stream)[random]
            rows[column.name] = _answers(column, rank)
    return rows


def _uniform(n: int, stream: Stream) -> Floats:
    return np.asarray((stream.words(n) >> np.uint64(11)) * 2.0**-53)


def _cells(column: Column, share: Floats, stream: Stream) -> AnyArray:
    """Return the cell at each share of what was declared."""
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


def _place(column: Column, values: AnyArray) -> Floats:
    """Return where each cell stands in what was declared, 0 to 1; a missing one in the middle."""
    if column.is_category:
        return np.asarray(values / max(1, len(column.levels) - 1))
    return np.nan_to_num((values - column.range[0]) / column.width, nan=0.5)


def _answers(column: Column, rank: Floats) -> AnyArray:
    n_classes = PredictionTask.from_column(column).n_classes
    if n_classes:
        return np.asarray(np.floor(rank * n_classes).astype(np.int32))
    values = column.range[0] + rank * column.width
    return np.asarray(values if column.type == "number" else np.rint(values))


WATERMARK = "_dummy"
"""A column that is true in every row, so that nobody takes the rows for true ones."""
MAX_DUMMY_ROWS = 100_000


def dummy_rows(schema: Schema, n: int, seed: int) -> dict[str, list[Any]]:
    """Draw rows from the schema alone.

    Parameters
    ----------
    schema : Schema
        What was declared.
    n : int
        How many rows, 1 to :data:`MAX_DUMMY_ROWS`.
    seed : int
        The same seed gives the same rows.

    Returns
    -------
    dict of str to list
        The columns that may be asked about, with values as JSON and text files hold them (a date as
        ``"2024-01-31"``, a missing cell as None), and the column :data:`WATERMARK`.

    Privacy
    -------
    Nothing is read: every column is uniform on what was declared, whatever the true rows hold.

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
    rows = {column.name: _decoded(column, encoded[column.name]) for column in schema.released}
    return {**rows, WATERMARK: [True] * n}


def _decoded(column: Column, values: AnyArray) -> list[Any]:
    """Return cells as a file holds them."""
    if column.is_category:
        return [column.levels[code] for code in values.tolist()]
    if column.type == "date":
        days = np.datetime_as_string(column.dates(values))
        return [None if day == "NaT" else str(day) for day in days]
    whole = column.type == "integer"
    return [None if cell != cell else round(cell) if whole else cell for cell in values.tolist()]


MAX_SAMPLE_ROWS = 20_000
MOST_CELLS = 8_000_000
"""Of true rows and as many of published ones: 64 MB each."""


class PairedSample:
    """A uniform sample of (true, published) rows of a table that passes by once, with totals over all rows.

    Give it to a release as ``publish(watch=pairs)``. Memory does not grow with the number of rows.

    Parameters
    ----------
    schema : Schema
        Of the published table, as ``Plan.schema``.
    stream : Stream
        Decides which rows stay. It must not be the stream of the noise.
    rows : int
        How many rows stay at most; fewer of very wide tables.
    others : callable, optional
        Given the published rows that do not stay, each once: at once, or when another takes its place.

    Attributes
    ----------
    seen : int
        How many rows came by.
    totals : dict of str to ColumnTotals
        Of every published column, over all rows that came by.

    Privacy
    -------
    Holds true rows: for the curator's own eyes, and nothing that is computed from it may leave.

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
        """The true rows of the sample, encoded."""
        return {name: values[: self._held] for name, values in self._kept[0].items()}

    @property
    def published(self) -> dict[str, AnyArray]:
        """The published rows of the same people, in the same order."""
        return {name: values[: self._held] for name, values in self._kept[1].items()}

    @property
    def whole(self) -> bool:
        """Whether every row that came by is in the sample."""
        return self._held == self.seen

    def __call__(self, rows: Encoded, published: Encoded) -> None:
        """Take in a batch.

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
        """Keep the rows with the smallest words."""
        room = min(self._capacity - self._held, len(words))
        if room:
            slots = np.arange(self._held, self._held + room)
            self._store(slots, np.arange(room), rows, published, words)
            self._held += room
        if room == len(words):
            return
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
        self._words[slots] = words[places]
        for kept, side in zip(self._kept, (rows, published), strict=True):
            for name in self._names:
                if name not in kept:
                    kept[name] = np.zeros(self._capacity, side[name].dtype)
                kept[name][slots] = side[name][places]
