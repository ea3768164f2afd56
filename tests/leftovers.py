"""Looks for private cells in everything that is left on disk.

A :class:`Traces` knows the cells of a table in every form in which this package holds them: as text, as
floats, scaled, as curated integers, in columns and in records. It looks at every byte of every file, also
through gzip, zstd and Parquet and through a DuckDB database.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa

from discreet.query.curation import Curation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet._types import AnyArray, Words
    from discreet.schema import Schema

_MIX = np.uint64(0x9E3779B97F4A7C15)
_FEW = 3  # so many binary finds may be chance: below 1e-7 for one, hence below 1e-20 for three
_DIGITS = 12
_ZSTD = b"\x28\xb5\x2f\xfd"
_EMPTY_DATABASE = 3 * 4096  # the headers of a DuckDB file; whatever is longer has blocks of rows


class Traces:
    """What the cells of a private table would look like.

    Parameters
    ----------
    columns : dict of str to array
        The table. Numbers need many digits, texts need 8 characters or more; columns of fewer values are
        looked for as curated integers only.
    schema : Schema
        What was declared about it.
    """

    def __init__(self, columns: dict[str, AnyArray], schema: Schema) -> None:
        texts = [c for c in columns.values() if c.dtype.kind == "U"]
        self._texts = {str(cell).encode() for c in texts for cell in c if len(cell) >= 8}
        numbers = {name: c for name, c in columns.items() if c.dtype.kind == "f"}
        self._digits = {_digits(repr(float(cell)).encode()) for c in numbers.values() for cell in c}
        eight, sixteen = [], []
        for name, values in numbers.items():
            lower, upper = schema.column(name).range
            share = (values - lower) / (upper - lower)
            for form in (values, values - lower, share, 2 * share - 1, values / upper):
                eight += [form.view(np.uint64), form.byteswap().view(np.uint64)]
            sixteen.append(_pairs(np.frombuffer(values.astype(np.float32).tobytes(), np.uint64)))
        curation = Curation.from_schema(schema)
        arrays = curation.encode({column.name: _cells(columns[column.name], column) for column in curation})
        # Unrounded numbers are looked for as floats; these are the integers beside them.
        encoded = {name: cells for name, cells in arrays.items() if cells.dtype.kind == "i"}
        varied = [codes for codes in encoded.values() if len(np.unique(codes)) > len(codes) // 2]
        in_rows = [codes.astype(np.int64).view(np.uint64) for codes in varied]
        sixteen += [_mixed(one, other) for one, other in itertools.pairwise(in_rows)]
        for codes in varied:
            for start in range(4):
                whole = codes[start : start + (len(codes) - start) // 4 * 4]
                words = np.ascontiguousarray(whole).view(np.uint64)
                sixteen.append(_mixed(words[::2], words[1::2]))
            wide = (codes.astype(np.int64), codes.astype(np.float64))
            sixteen += [_pairs(values.view(np.uint64)) for values in wide]
        self._eight = _Words(np.concatenate(eight))
        self._sixteen = _Words(np.concatenate(sixteen))
        self._codes = {int(code) for c in encoded.values() if len(np.unique(c)) > 1000 for code in c}

    def found_in(self, *places: Path, but: tuple[Path, ...] = ()) -> dict[str, str]:
        """Look at all files below some places; return what was found where, nothing if all is well."""
        found = {}
        for place in places:
            for path in sorted(place.rglob("*")):
                if path.is_symlink() or not path.is_file() or path in but:
                    continue
                told = self._in_file(path)
                if told is not None:
                    found[str(path.relative_to(place))] = told
        return found

    def _in_file(self, path: Path) -> str | None:
        content = path.read_bytes()
        for form, part in [("as it is", content), *_unpacked(content)]:
            told = self.in_bytes(part)
            if told is not None:
                return f"{told}, {form}"
        if content[8:12] == b"DUCK":
            return self._in_database(path)
        if content[-4:] == b"PAR1" and self._share_of_cells(f"FROM read_parquet('{path}')"):
            return "cells, in Parquet"
        return None

    def in_bytes(self, content: bytes) -> str | None:
        """Look for cells in some bytes; say as what they are there, None if they are not."""
        if self._texts & set(re.findall(rb"[\w-]{8,}", content)):
            return "texts"
        if self._digits & {_digits(number) for number in re.findall(rb"\d+\.\d{6,}", content)}:
            return "numbers as text"
        hits = 0
        for start in range(8):
            rest = (len(content) - start) // 8
            if rest < 1:
                break
            words = np.frombuffer(content, np.uint64, count=rest, offset=start)
            hits += self._eight.count(words) + self._sixteen.count(_pairs(words))
        return None if hits < _FEW else "binary cells"

    def _in_database(self, path: Path) -> str | None:
        """Read a DuckDB file as whoever finds it would: with its log, tables and all."""
        if path.stat().st_size > _EMPTY_DATABASE:
            return "blocks of rows, in a DuckDB file"
        with tempfile.TemporaryDirectory() as room:
            for file in (path, path.with_name(f"{path.name}.wal")):
                if file.exists():
                    shutil.copy(file, room)
            with contextlib.suppress(duckdb.Error), duckdb.connect(Path(room, path.name)) as connection:
                for (table,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
                    if self._share_of_cells(f'FROM "{table}"', connection):
                        return "cells, in a DuckDB table"
        return None

    def _share_of_cells(self, query: str, connection: Any = duckdb) -> bool:
        """Say whether a column of a table is made of private cells."""
        try:
            read = connection.execute(query).fetchnumpy()
        except duckdb.Error:
            return False
        for column in read.values():
            values = np.asarray(column)
            if values.dtype.kind in "iu" and len(values) and values.max() > 1000:
                if np.isin(values, list(self._codes)).mean() > 0.9:
                    return True
            elif self.in_bytes(values.tobytes()) or self.in_bytes(",".join(map(str, values)).encode()):
                return True
        return False


class _Words:
    """Some words of 64 bits, which are found quickly: most others are told apart by 24 of their bits."""

    def __init__(self, words: Words) -> None:
        self._words = np.unique(words)
        self._seen = np.zeros(2**24, bool)
        self._seen[self._places(self._words)] = True

    def _places(self, words: Words) -> Words:
        return (words * _MIX) >> np.uint64(40)

    def count(self, words: Words) -> int:
        """Count the words that are among them."""
        likely = words[self._seen[self._places(words)]]
        at = np.minimum(np.searchsorted(self._words, likely), len(self._words) - 1)
        return int((self._words[at] == likely).sum())


def _cells(values: AnyArray, column: Any) -> AnyArray:
    """Give cells the form in which tables hand them out."""
    if not column.is_category:
        return values.astype(np.float64)
    places = {str(level): place for place, level in enumerate(column.levels)}
    return np.array([places[str(value)] for value in values], np.int32)


def _digits(text: bytes) -> bytes:
    return text.replace(b".", b"").lstrip(b"0")[:_DIGITS]


def _mixed(first: Words, second: Words) -> Words:
    """Give pairs of words names of 64 bits; all bits count, since those of small numbers are mostly 0."""
    return _scattered(first) * np.uint64(3) + _scattered(second)


def _scattered(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _pairs(words: Words) -> Words:
    return _mixed(words[:-1], words[1:])


def _unpacked(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield what can be unpacked in some bytes, as far as it goes."""
    for place in re.finditer(rb"\x1f\x8b\x08", content):
        with contextlib.suppress(zlib.error):
            yield "in gzip", zlib.decompressobj(31).decompress(content[place.start() :])
    for place in re.finditer(re.escape(_ZSTD), content):
        stream = pa.CompressedInputStream(pa.py_buffer(content[place.start() :]), "zstd")
        parts = []
        with contextlib.suppress(OSError):  # what follows the frame is no zstd
            while part := stream.read(512):
                parts.append(part)
        yield "in zstd", b"".join(parts)
