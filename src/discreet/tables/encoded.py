"""Tables whose cells are encoded already, such as made-up people: they are read without an engine."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from discreet.tables.table import ROWS, Batch, Table

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from discreet._types import AnyArray, Ints, Words
    from discreet.schema import Schema


class EncodedTable(Table):
    """Rows in memory, encoded as :class:`~discreet.tables.Batch` describes.

    Parameters
    ----------
    columns : mapping of str to array
        Encoded cells of the released columns, within their bounds.
    ids : array of int, optional
        Id of each row; None in a table without ids.
    """

    def __init__(self, columns: Mapping[str, AnyArray], ids: Ints | None = None) -> None:
        self.label = "The encoded table"
        self.names = tuple(columns)
        self._columns = dict(columns)
        self._ids = None if ids is None else [b"%d" % one for one in ids.tolist()]

    def __getitem__(self, name: str) -> AnyArray:
        return self._columns[name]

    def count(self) -> int:
        """Return the number of rows."""
        return len(self._columns[self.names[0]])

    def batches(
        self,
        schema: Schema,
        *,
        rows: int = ROWS,
        names: Container[str] | None = None,
        ids: bool = False,
        id_texts: bool = False,
        id_salt: str = "",
    ) -> Iterator[Batch]:
        """Yield the declared columns as :meth:`Table.batches` does."""
        read = [column.name for column in schema.released if names is None or column.name in names]
        words = self._fingerprints(id_salt) if ids else None
        texts = np.array(self._ids, object) if id_texts else None
        for start in range(0, self.count(), rows):
            part = slice(start, start + rows)
            columns = {name: self._columns[name][part] for name in read}
            yield Batch(
                columns,
                n_rows=len(columns[read[0]]),
                start=start,
                ids=None if words is None else words[part],
                id_texts=None if texts is None else texts[part],
            )

    def read_ids(self, schema: Schema, *, id_salt: str = "") -> Iterator[Words]:
        """Yield the fingerprints of ids, as :attr:`Batch.ids` has them."""
        yield self._fingerprints(id_salt)

    def _fingerprints(self, salt: str) -> Words:
        """Return the fingerprints of ids that engines of SQL compute: the lower half of their MD5."""
        assert self._ids is not None
        begin = hashlib.md5(f"{salt}:".encode() if salt else b"", usedforsecurity=False)
        digests = []
        for one in self._ids:
            digest = begin.copy()
            digest.update(one)
            digests.append(digest.digest())
        return np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)[:, 1].astype(np.uint64)

    def close(self) -> None:
        """Do nothing: the rows belong to whoever made them."""
