"""What the curator looks at afterwards: a fair sample of true rows beside published ones, totals of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import ParameterError
from discreet.evaluation.columns import ColumnTotals

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import AnyArray, Ints, Words
    from discreet.noise import Stream
    from discreet.release.publication import Encoded
    from discreet.schema import Schema

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
                f"rows of Pairs must be at least 1, was {rows}. Leave it out for {MAX_SAMPLE_ROWS:,}."
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
