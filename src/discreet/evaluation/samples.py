"""A paired sample of true and published rows for evaluation, with totals over all rows; internal."""

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
"""Largest number of true cells, and of published cells, in a sample: 64 MB each."""


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
    ids : array or None
        Fingerprint of the id of the person of each row in the sample; None where the rows have none.
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
    >>> pairs.seen, pairs.rows["age"].size, (pairs.published_rows["age"] - pairs.rows["age"]).tolist()
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
        self._ids: Words | None = None
        self._kept: tuple[dict[str, AnyArray], dict[str, AnyArray]] = ({}, {})
        self.totals = {column.name: ColumnTotals(column) for column in schema.released}

    @property
    def rows(self) -> dict[str, AnyArray]:
        """True rows of the sample, encoded."""
        return {name: values[: self._held] for name, values in self._kept[0].items()}

    @property
    def published_rows(self) -> dict[str, AnyArray]:
        """Published rows of the same people, in the same order."""
        return {name: values[: self._held] for name, values in self._kept[1].items()}

    @property
    def ids(self) -> Words | None:
        """Fingerprint of the id of the person of each row in the sample; None where the rows have none."""
        return None if self._ids is None else self._ids[: self._held]

    @property
    def whole(self) -> bool:
        """Whether every row so far is in the sample."""
        return self._held == self.seen

    def __call__(self, rows: Encoded, published: Encoded) -> None:
        """Add a batch of rows.

        Parameters
        ----------
        rows, published : mapping of str to array
            True and published rows of the same people in the same order; true rows may have the fingerprint
            of the person under the name of the id column.
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
            # Free slots are filled whatever the words: they compete only for a full sample.
            slots = np.arange(self._held, self._held + room)
            self._store(slots, np.arange(room), rows, published, words)
            self._held += room
        if room == len(words):
            return
        # Only rows with a smaller word than the largest of the sample can enter it.
        below = room + np.flatnonzero(words[room:] < self._words.max())
        pool = np.concatenate([self._words, words[below]])
        stays = np.zeros(pool.size, np.bool_)
        # The smallest words of all so far, whichever batch they came in: a uniform sample without knowing n.
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
        if self.schema.id_column is not None and self.schema.id_column in rows:
            if self._ids is None:
                self._ids = np.zeros(self._capacity, np.uint64)
            self._ids[slots] = rows[self.schema.id_column][places]
        for kept, side in zip(self._kept, (rows, published), strict=True):
            for name in self._names:
                if name not in kept:
                    kept[name] = np.zeros(self._capacity, side[name].dtype)
                kept[name][slots] = side[name][places]
