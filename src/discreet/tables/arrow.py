"""Columns of numbers in and out of DuckDB through the Arrow C interface, without pyarrow.

DuckDB returns its results, and accepts tables, as Arrow streams: three C structures and a few function
pointers. :func:`read_stream` turns a stream of numbers and texts into numpy arrays while the query still
runs, so that a table of any length passes through a constant amount of memory; :class:`ArrayStream` is the
opposite direction.

The structures are fixed by the Arrow C data and C stream interface specifications.
"""

from __future__ import annotations

import ctypes
import itertools
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_int, c_int64, c_void_p
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from discreet._types import AnyArray

_FORMATS: dict[bytes, np.dtype[Any]] = {
    b"g": np.dtype(np.float64),
    b"i": np.dtype(np.int32),
    b"l": np.dtype(np.int64),
    b"L": np.dtype(np.uint64),
}
_TEXT = b"u"  # UTF-8 under offsets of 32 bits; read as an object array of bytes
_CODES = {dtype: code for code, dtype in _FORMATS.items()} | {np.dtype(object): b"U"}  # offsets of 64 bits
_STREAM_NAME = b"arrow_array_stream"


class _Schema(Structure):
    pass


class _Array(Structure):
    pass


class _Stream(Structure):
    pass


_ReleaseSchema = CFUNCTYPE(None, POINTER(_Schema))
_ReleaseArray = CFUNCTYPE(None, POINTER(_Array))
_ReleaseStream = CFUNCTYPE(None, POINTER(_Stream))
_GetSchema = CFUNCTYPE(c_int, POINTER(_Stream), POINTER(_Schema))
_GetNext = CFUNCTYPE(c_int, POINTER(_Stream), POINTER(_Array))
_GetLastError = CFUNCTYPE(c_void_p, POINTER(_Stream))

_Schema._fields_ = [
    ("format", c_char_p),
    ("name", c_char_p),
    ("metadata", c_char_p),
    ("flags", c_int64),
    ("n_children", c_int64),
    ("children", POINTER(POINTER(_Schema))),
    ("dictionary", POINTER(_Schema)),
    ("release", _ReleaseSchema),
    ("private_data", c_void_p),
]
_Array._fields_ = [
    ("length", c_int64),
    ("null_count", c_int64),
    ("offset", c_int64),
    ("n_buffers", c_int64),
    ("n_children", c_int64),
    ("buffers", POINTER(c_void_p)),
    ("children", POINTER(POINTER(_Array))),
    ("dictionary", POINTER(_Array)),
    ("release", _ReleaseArray),
    ("private_data", c_void_p),
]
_Stream._fields_ = [
    ("get_schema", _GetSchema),
    ("get_next", _GetNext),
    ("get_last_error", _GetLastError),
    ("release", _ReleaseStream),
    ("private_data", c_void_p),
]

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, c_char_p]
_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.restype = ctypes.py_object
_capsule_new.argtypes = [c_void_p, c_char_p, c_void_p]


class StreamBroken(Exception):
    """Error that the other side of a stream reported; the message is its own and may quote rows."""


def read_stream(capsule: Any) -> Generator[tuple[list[AnyArray], list[int | None]]]:
    """Yield the record batches of an Arrow stream as numpy arrays.

    Parameters
    ----------
    capsule : PyCapsule
        Result of ``__arrow_c_stream__()``; its columns are float64, int32, int64, uint64 or text.

    Yields
    ------
    values : list of ndarray
        One fresh array per column; of text, an object array of its UTF-8 bytes.
    first_null : list of int or None
        Position of the first null in each column, None where there is none.
    """
    stream = ctypes.cast(_capsule_pointer(capsule, _STREAM_NAME), POINTER(_Stream))
    schema = _Schema()
    _check_status(stream, stream.contents.get_schema(stream, byref(schema)))
    try:
        formats = [schema.children[i].contents.format for i in range(schema.n_children)]
        dtypes = [np.dtype(object) if code == _TEXT else _FORMATS[code] for code in formats]
    finally:
        schema.release(byref(schema))
    while True:
        array = _Array()
        _check_status(stream, stream.contents.get_next(stream, byref(array)))
        if not array.release:  # the specification's end of stream
            return
        try:
            pairs = [_copy_column(array, i, dtype) for i, dtype in enumerate(dtypes)]
        finally:
            array.release(byref(array))
        yield [values for values, _ in pairs], [null for _, null in pairs]


def _check_status(stream: Any, code: int) -> None:
    if code:
        address = stream.contents.get_last_error(stream)
        message = ctypes.string_at(address) if address else b"unknown error"
        raise StreamBroken(message.decode("utf-8", "replace"))


def _copy_column(batch: _Array, index: int, dtype: np.dtype[Any]) -> tuple[AnyArray, int | None]:
    """Return a copy of a column of a record batch, and the position of its first null or None."""
    column = batch.children[index].contents
    # A parent may be a slice of its children: its offset counts on top of theirs.
    start, length = column.offset + batch.offset, batch.length
    if length == 0:
        return np.empty(0, dtype), None
    if dtype.hasobject:
        values = _copy_texts(column, start, length)
    else:
        values = _memory_view(column.buffers[1], start * dtype.itemsize, length, dtype).copy()
    if column.null_count == 0 or not column.buffers[0]:
        return values, None
    first = start // 8
    packed = _memory_view(column.buffers[0], first, (start + length + 7) // 8 - first, np.dtype(np.uint8))
    valid = np.unpackbits(packed, bitorder="little")[start - 8 * first :][:length]
    null = int(valid.argmin())
    return values, None if valid[null] else null


def _copy_texts(column: _Array, start: int, length: int) -> AnyArray:
    ends = _memory_view(column.buffers[1], start * 4, length + 1, np.dtype(np.int32)).tolist()
    held = ctypes.string_at(column.buffers[2] + ends[0], ends[-1] - ends[0]) if ends[-1] > ends[0] else b""
    texts = np.empty(length, object)
    texts[:] = [held[a - ends[0] : b - ends[0]] for a, b in itertools.pairwise(ends)]
    return texts


def _text_buffers(texts: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return the places where texts end, after a first 0, and their bytes one after the other."""
    content = b"".join(texts)
    ends = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=ends[1:])
    return ends, np.frombuffer(content or b"\0", np.uint8)


def _memory_view(address: int, skip: int, length: int, dtype: np.dtype[Any]) -> AnyArray:
    memory = (ctypes.c_char * (length * dtype.itemsize)).from_address(address + skip)
    return np.frombuffer(memoryview(memory), dtype)


class ArrayStream:
    """Batches of numpy arrays as an object that DuckDB can scan like a table.

    Parameters
    ----------
    dtypes : mapping of str to dtype
        Name and type of each column: float64, int32, int64, uint64, or object for texts as UTF-8 bytes.
    start : callable
        Function called once for each scan, which returns an iterator over lists of arrays, one per column.

    Attributes
    ----------
    failure : BaseException or None
        Exception that the iterator raised. The scan then ends like a complete one: its caller must check
        here before it uses the result, as :func:`~discreet.tables.duckdb.run_over` does.

    Notes
    -----
    A structure belongs to its receiver until that side calls its ``release``; until then ``_kept`` holds
    the Python objects that own its memory, under the number in ``private_data``. Keep this object until the
    connection that scans it is closed.

    A failure is not reported to DuckDB: a COPY to CSV that receives one may wait forever for tasks of its
    own that it has just dropped.
    """

    def __init__(
        self,
        dtypes: Mapping[str, np.dtype[Any]],
        start: Callable[[], Iterator[list[AnyArray]]],
    ) -> None:
        """Store the columns, and make the callbacks that C code will call."""
        self.failure: BaseException | None = None
        self._names = [name.encode() for name in dtypes]
        self._dtypes = [np.dtype(dtype) for dtype in dtypes.values()]
        self._start = start
        self._kept: dict[int, Any] = {}
        self._last = 0
        # Callbacks live as long as this object, which outlives the query that scans it.
        self._release_schema = _ReleaseSchema(self._release)
        self._release_array = _ReleaseArray(self._release)
        self._release_stream = _ReleaseStream(self._release)
        self._get_last_error = _GetLastError(lambda _: None)  # there is never one

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Return a capsule with a new Arrow stream over the batches."""
        batches = self._start()

        def get_schema(_: Any, out: Any) -> int:
            self._fill_schema(out.contents)
            return 0

        def get_next(_: Any, out: Any) -> int:
            try:
                columns = next(batches, None)
                if columns is not None:
                    self._fill_array(out.contents, columns)
                    return 0
            except BaseException as failure:
                # Nothing may be raised through C; the writer raises it again.
                self.failure = failure
            out.contents.release = _ReleaseArray()
            return 0

        stream = _Stream(
            get_schema=_GetSchema(get_schema),
            get_next=_GetNext(get_next),
            get_last_error=self._get_last_error,
            release=self._release_stream,
        )
        stream.private_data = self._keep((stream, stream.get_schema, stream.get_next))
        return _capsule_new(ctypes.addressof(stream), _STREAM_NAME, None)

    def _keep(self, owners: object) -> int:
        self._last += 1
        self._kept[self._last] = owners
        return self._last

    def _release(self, pointer: Any) -> None:
        structure = pointer.contents
        for i in range(getattr(structure, "n_children", 0)):
            child = structure.children[i]
            if child.contents.release:
                child.contents.release(child)
        self._kept.pop(structure.private_data, None)
        structure.release = type(structure.release)()

    def _fill_schema(self, out: _Schema) -> None:
        """Write the schema of a record batch: a struct with one child per column."""
        children = []
        for name, dtype in zip(self._names, self._dtypes, strict=True):
            child = _Schema(format=_CODES[dtype], name=name, release=self._release_schema)
            child.private_data = self._keep((child, name))
            children.append(child)
        pointers = (POINTER(_Schema) * len(children))(*map(ctypes.pointer, children))
        out.format, out.name, out.metadata, out.flags = b"+s", b"", None, 0
        out.n_children, out.children = len(children), pointers
        out.dictionary = POINTER(_Schema)()
        out.release = self._release_schema
        out.private_data = self._keep((children, pointers))

    def _fill_array(self, out: _Array, columns: list[AnyArray]) -> None:
        """Write a record batch whose buffers are the memory of the arrays, without a copy."""
        length = len(columns[0])
        children = []
        for values, dtype in zip(columns, self._dtypes, strict=True):
            values = np.ascontiguousarray(values, dtype)
            if values.shape != (length,):
                raise ValueError(f"columns of one batch differ in shape: {values.shape}")
            memory = _text_buffers(values) if dtype.hasobject else (values,)
            buffers = (c_void_p * (1 + len(memory)))(None, *(part.ctypes.data for part in memory))
            child = _Array(
                length=length, n_buffers=len(buffers), buffers=buffers, release=self._release_array
            )
            child.private_data = self._keep((child, buffers, memory))
            children.append(child)
        pointers = (POINTER(_Array) * len(children))(*map(ctypes.pointer, children))
        buffers = (c_void_p * 1)(None)
        out.length, out.null_count, out.offset = length, 0, 0
        out.n_buffers, out.buffers = 1, buffers
        out.n_children, out.children = len(children), pointers
        out.dictionary = POINTER(_Array)()
        out.release = self._release_array
        out.private_data = self._keep((children, pointers, buffers))
