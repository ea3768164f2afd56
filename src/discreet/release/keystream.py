"""Random streams of the noise of a table, one for each batch, by key, plan, position and content.

A key that served two tables, or one table at two scales, would let the noise be subtracted. So the keystream
of a batch depends on everything that its noise is for: the same rows at the same position under the same plan
get the same bits, whatever process draws them, and anything else gets independent ones. Random words that
hide nothing, as those of synthetic rows and of attacks on made-up people, follow from public text instead.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.noise import Stream
from discreet.privacy.receipt import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray


class BatchStreams:
    """Random streams of one release of one table.

    Parameters
    ----------
    parts : Stream
        ``derive("parts")`` of the stream of the release: all that a process that draws a part has to know.
    plan : str
        SHA-256 of the plan of the release, in hexadecimal.
    schema : str
        SHA-256 of the schema of the table, in hexadecimal.

    Privacy
    -------
    Given a key, distinct rows, places, plans or schemas have independent noise if HMAC-SHA256 is a
    pseudorandom function and SHA-256 collision resistant; the law of each batch stays that of its plan.
    Equal ones have the same noise, which tells nothing that one of them does not tell.

    Notes
    -----
    ``K_parts = HMAC(key, "parts")``, ``K_batch = HMAC(K_parts, canonical([plan, schema, part, batch,
    SHA-256(rows)]))``; noise and order are ``Stream(K_batch).derive("noise")`` and ``.derive("order")``.

    Reference
    ---------
    docs/explanation/theorems/keystreams.md
    """

    def __init__(self, parts: Stream, *, plan: str, schema: str) -> None:
        self._parts = parts
        self._plan = plan
        self._schema = schema

    def batch(
        self, rows: Mapping[str, AnyArray], *, part: int, batch: int, digest: str | None = None
    ) -> tuple[Stream, Stream]:
        """Return the streams for the noise and for the order of one batch.

        Parameters
        ----------
        rows : mapping of str to array
            Encoded rows that noise is drawn for, without those that were left out.
        part : int
            Number of the part of the source, from 0; a source read by one process is one part.
        batch : int
            Number of the batch in its part, from 0.
        digest : str, optional
            :func:`rows_digest` of the rows, where it is known already.

        Returns
        -------
        noise, order : Stream
        """
        return self._derive_streams(digest or rows_digest(rows), part, batch)

    def whole(self, rows: Mapping[str, AnyArray]) -> tuple[Stream, Stream]:
        """Return the streams for noise and order of a method that needs all rows at once."""
        return self._derive_streams(rows_digest(rows), None, None)

    def _derive_streams(self, digest: str, part: int | None, batch: int | None) -> tuple[Stream, Stream]:
        facts = [self._plan, self._schema, part, batch, digest]
        stream = self._parts.derive(canonical(facts))
        return stream.derive("noise"), stream.derive("order")


def rows_digest(rows: Mapping[str, AnyArray]) -> str:
    """Return the SHA-256, in hexadecimal, of encoded rows; it is private, as they are.

    Notes
    -----
    Hashes the columns in the order of their names: name, type and bytes, each preceded by its length as a
    64-bit number, so that no two tables have the same encoding.
    """
    digest = hashlib.sha256()
    for name in sorted(rows):
        values = np.ascontiguousarray(rows[name])
        for piece in (name.encode(), values.dtype.str.encode()):
            digest.update(len(piece).to_bytes(8, "little"))
            digest.update(piece)
        digest.update(values.nbytes.to_bytes(8, "little"))
        digest.update(values.data)
    return digest.hexdigest()


def sampling_stream(label: str, *parts: Any) -> Stream:
    """Return the stream of public random words that follows from some text."""
    text = canonical(["discreet synthetic", label, *parts])
    return Stream(hashlib.sha256(text.encode()).digest())
