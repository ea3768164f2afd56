"""Engines inside the curator's process, nothing to install: DuckDB by default, arrays for small tables."""

from __future__ import annotations

import contextlib
import tempfile
from collections import deque
from io import BytesIO
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import duckdb
import numpy as np
from sqlglot import exp

from discreet.batching import PACE
from discreet.errors import SourceError, TableChanged
from discreet.query.curation import TABLE, Curation, Version
from discreet.query.engines._curated_rows import Tally, curated_batches, no_room, stored_batches
from discreet.query.engines._kept_copy import KeptCopy, KeptVersion, SealedFile, SharedCopy
from discreet.query.engines.base import ROWS, Engine
from discreet.query.language._sql import SqlText
from discreet.tables import open_table
from discreet.tables.arrow import ArrayStream, StreamBroken, read_stream
from discreet.tables.duckdb import connect, literal, open_cursor, run_over
from discreet.tables.temporary import temporary_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from sqlglot.expressions import Expr as Tree

    from discreet._types import AnyArray

_IN_MEMORY = 2**28  # bytes of curated cells that are kept in memory; a larger table goes to a file
_GROUP_BYTES = 2**26  # of a row group, which is held in memory until it is full
_VECTOR = 2048  # row groups are multiples of it
_LEAST_GROUP, _LARGEST_GROUP = 4096, 122_880  # rows; the larger is the engine's own default
_ONE_THREAD = 122_880  # rows of one group, which DuckDB never shares between threads: others only spin

_ONE, _ZERO = exp.Literal.number(1), exp.Literal.number(0)
_OPTIMIZERS = {
    "unused_columns",
    "expression_rewriter",
    "common_subexpressions",
}  # what helps a small table too


class DuckDBEngine(Engine):
    """A curated table in a DuckDB instance of our own.

    Parameters
    ----------
    keep : path, optional
        Folder in which an encrypted copy of the curated table is kept, and looked for; None keeps none.
    secret : bytes
        Secret of the ledger, from which the key of a kept copy follows.
    kept_version : KeptVersion, optional
        Place of the version of the rows: with it, only the columns that are stored are read. None reads all.
    shared : Path, optional
        File of the encrypted copy that processes of one service share: the first one that registers the
        table makes it, and the others read it in place of the source. None shares nothing.

    A table of up to 256 MB of curated cells stays in memory, unless a copy is kept or shared. Any other goes
    to a file without a name, which ends with the process or at :meth:`close`. Once it is filled the instance
    can reach no file, network or extension any more, and its configuration is locked.

    Privacy
    -------
    See :class:`~discreet.query.engines.base.Engine`. The table belongs to this process alone, so it cannot
    change between two passes.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    sql: ClassVar[SqlText] = SqlText({}, exponents=True, clamps=True)
    parallel: ClassVar[bool] = True
    _failures = (duckdb.Error, StreamBroken, MemoryError)

    def __init__(
        self,
        *,
        keep: str | os.PathLike[str] | None = None,
        secret: bytes = b"",
        kept_version: KeptVersion | None = None,
        shared: Path | None = None,
    ) -> None:
        """Open an instance of DuckDB in memory."""
        super().__init__()
        self._keep, self._secret, self._kept_version = keep, secret, kept_version
        self._shared = shared
        self._connection = connect()
        # Opened now, because the progress bar cannot be put out once the configuration is locked: one for
        # passes that others wait for, and one for those of the background.
        self._readers = open_cursor(self._connection), open_cursor(self._connection)

    @property
    def _reader(self) -> duckdb.DuckDBPyConnection:
        """Connection for the pass that the present thread makes."""
        return self._readers[PACE.background]

    def _build(self, source: Any, curation: Curation, salt: str) -> Version:
        """Fill the curated table, in memory or in a nameless file, or find it kept, and lock the connection.

        Small tables are served by one thread with few optimizers: planning then costs more than execution.
        """
        if self._kept_version is not None:
            version = self._curate_stored(source, curation, self._kept_version)
        elif self._shared is not None:
            shared = SharedCopy(self._shared, self._secret, source, curation, salt)
            with shared.lock():
                version = self._find_kept(shared, source, salt)
        elif self._keep is None:
            version = self._curate(source, curation, salt)
        else:
            copy = KeptCopy(self._keep, self._secret, source, curation, salt)
            version = self._find_kept(copy, source, salt)
        if version.n_rows <= _ONE_THREAD:
            self._connection.execute("SET GLOBAL threads = 1")
            # Planning then takes longer than execution.
            known = self._connection.execute("SELECT name FROM duckdb_optimizers()").fetchall()
            left_out = ",".join(sorted({str(name) for (name,) in known} - _OPTIMIZERS))
            self._connection.execute(f"SET GLOBAL disabled_optimizers = {literal(left_out)}")
        # From here on the engine sees nothing but the curated table.
        self._connection.execute("SET GLOBAL enable_external_access = false")
        self._connection.execute("SET GLOBAL lock_configuration = true")
        return version

    def _find_kept(self, copy: SealedFile, source: Any, salt: str) -> Version:
        """Attach a copy that was kept of the same rows; if there is none, fill the table and keep it."""
        assert self.curation is not None
        with tempfile.TemporaryFile() as file:
            version = copy.read(file)
            if version is not None:
                # By its descriptor: the file has no name.
                self._attach(f"/dev/fd/{file.fileno()}", "READ_ONLY")
                return version
        # A checkpoint has to find the folder, though not the file, and writes a mark without rows into it.
        with _temporary_place() as folder, self._to_file(self.curation, folder) as held:
            version = self._curate(source, self.curation, salt)
            self._connection.execute("CHECKPOINT large")
            try:
                copy.write(held, version)
            except OSError as problem:
                kind = type(problem).__name__
            else:
                return version
        raise no_room(kind)

    def _curate_stored(self, source: Any, curation: Curation, kept: KeptVersion) -> Version:
        """Fill the table from the stored columns alone; all are read, and the version kept, the first time.

        The cells of the other columns were checked when the version was found.
        """
        known = kept.read(BytesIO())
        version = self._curate(source, curation, "", read_all=known is None)
        if known is None:
            with contextlib.suppress(OSError):  # kept for speed alone
                kept.write(BytesIO(), version)
            return version
        if version.n_rows != known.n_rows or not kept.is_current():
            raise SourceError(
                f"The table {str(source)!r} must stay as it is while it is read, and has changed. Ask again "
                "when no one writes to it."
            )
        return known

    def _curate(self, source: Any, curation: Curation, salt: str, *, read_all: bool = True) -> Version:
        """Fill the curated table from a source, in the attached file, or in memory while it is small.

        Without `read_all` only the stored columns are read, and the version is the number of rows alone.
        """
        tally = Tally(curation)
        names = curation.identifiers()
        with open_table(source, schema=curation.schema) as table:
            read = curated_batches if read_all else stored_batches
            pieces = read(table, curation, tally, salt)
            # Enough is read ahead to know whether the table is small; the rest is streamed.
            head: deque[dict[str, AnyArray]] = deque()
            held = 0
            for piece in pieces:
                head.append(piece)
                held += sum(values.nbytes for values in piece.values())
                if held > _IN_MEMORY:
                    if self._keep is None and self._shared is None:
                        with _temporary_place() as folder:
                            self._to_file(curation, folder).close()
                    break

            def arrays() -> Iterator[list[AnyArray]]:
                while head:
                    piece = head.popleft()
                    yield [piece[name] for name in names]
                for piece in pieces:
                    yield [piece[name] for name in names]

            dtypes = {name: curation.dtype(name) for name in names}
            threads = self._connection.execute("SELECT current_setting('threads')").fetchone()
            assert threads is not None
            # Several threads hold whatever arrived before its turn, which is not bounded by the memory limit
            # but ends at it.
            self._connection.execute("SET GLOBAL threads = 1")
            self._fill(ArrayStream(dtypes, arrays), curation)
            self._connection.execute(f"SET GLOBAL threads = {threads[0]}")
        return tally.version

    def _to_file(self, curation: Curation, folder: Path) -> BinaryIO:
        """Attach a temporary file for the table, whose name is gone before the first row is written.

        Returns
        -------
        file
            The same file, open for reading.
        """
        width = sum(curation.dtype(name).itemsize for name in curation.identifiers())
        rows = max(_LEAST_GROUP, min(_LARGEST_GROUP, _GROUP_BYTES // width // _VECTOR * _VECTOR))
        path = folder / "curated.duckdb"
        try:
            # A log would be opened by name later; what is not kept needs none.
            self._attach(str(path), f"RECOVERY_MODE no_wal_writes, ROW_GROUP_SIZE {rows}")
            file = path.open("rb")
            path.unlink()
        except (duckdb.Error, OSError) as problem:
            kind = type(problem).__name__
        else:
            return file
        raise no_room(kind)

    def _attach(self, path: str, options: str) -> None:
        self._connection.execute(f"ATTACH {literal(path)} AS large ({options})")
        for connection in (self._connection, *self._readers):
            connection.execute("USE large")

    def _fill(self, stream: ArrayStream, curation: Curation) -> None:
        """Create the curated table and insert a stream of arrays, as SMALLINT where values fit."""
        types = {name: curation.kind(name) for name in curation.identifiers()}
        # Numbers of many digits hardly get smaller, and slower to write and to read.
        plain = " USING COMPRESSION UNCOMPRESSED"
        how = {name: "" if kind == "SMALLINT" else plain for name, kind in types.items()}
        defined = ", ".join(f"{name} {kind} NOT NULL{how[name]}" for name, kind in types.items())
        cast = ", ".join(f"CAST({name} AS {kind})" for name, kind in types.items())
        self._connection.execute(f"CREATE TABLE {TABLE} ({defined})")
        command = f"INSERT INTO {TABLE} SELECT {cast} FROM arriving"  # noqa: S608 - ours
        try:
            run_over(self._connection, command, "arriving", stream)
            return
        except duckdb.Error as problem:
            kind = type(problem).__name__
        raise no_room(kind)

    def _total(self, expression: Tree) -> Tree:
        condition = _counted_condition(expression)
        if condition is None:
            return super()._total(expression)
        # Half the time of a sum of zeros and ones; and no count of rows is so large that it must be text.
        return exp.Anonymous(this="COUNT_IF", expressions=[condition])

    def _fetch(self, query: Tree) -> list[tuple[Any, ...]]:
        return self._reader.execute(self.sql.write(query)).fetchall()

    def _probe(self) -> None:
        # Not on a reader, on which another thread may have a result.
        self._connection.execute(f"SELECT 1 FROM {TABLE} LIMIT 0")  # noqa: S608 - ours

    def batches(self, columns: Sequence[str], rows: int = ROWS) -> Iterator[list[AnyArray]]:
        """Yield curated columns, at most ``rows`` rows at a time: int32, or float64 of unrounded numbers."""
        assert self.curation is not None
        kinds = {np.dtype(np.int32): "INTEGER", np.dtype(np.int64): "BIGINT", np.dtype(np.float64): "DOUBLE"}
        selected = ", ".join(f"CAST({name} AS {kinds[self.curation.dtype(name)]})" for name in columns)
        query = f"SELECT {selected} FROM {TABLE}"  # noqa: S608 - names are ours
        with contextlib.closing(read_stream(self._reader.sql(query).__arrow_c_stream__())) as stream:
            for piece, _ in stream:
                for start in range(0, len(piece[0]), rows):
                    yield [values[start : start + rows] for values in piece]

    def close(self) -> None:
        """Forget the curated table."""
        for connection in (*self._readers, self._connection):
            connection.close()


def _counted_condition(expression: Tree) -> Tree | None:
    """Return the condition of an expression that is 1 where it holds and 0 elsewhere; None for others."""
    if isinstance(expression, exp.Cast) and expression.to.this == exp.DataType.Type.BIGINT:
        expression = expression.this
    if not isinstance(expression, exp.Case) or expression.this is not None:
        return None
    (branch, *others), default = expression.args["ifs"], expression.args.get("default")
    if others or branch.args["true"] != _ONE or default != _ZERO:
        return None
    condition: Tree = branch.this
    return condition


@contextlib.contextmanager
def _temporary_place() -> Iterator[Path]:
    """Yield a folder for temporary files; raise the sentence about room for them where none can be made."""
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(temporary_folder())
        except OSError as problem:
            kind = type(problem).__name__
        else:
            yield folder
            return
    raise no_room(kind)


class ArraysEngine(Engine):
    """Engine that keeps the curated table in arrays of this process.

    It is for kernels over rows in memory, where an instance of DuckDB costs more than the sums. Curation and
    fingerprints are those of every engine, so that its integers and the noise on them are the same. Where a
    query needs SQL after all, the rows are registered with DuckDB.

    Privacy
    -------
    See :class:`~discreet.query.engines.base.Engine`. The arrays belong to this process alone, so they cannot
    change between two passes.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    _failures = DuckDBEngine._failures

    def __init__(self) -> None:
        super().__init__()
        self._columns: dict[str, AnyArray] = {}
        self._source: Any = None
        self._salt = ""
        self._sql: DuckDBEngine | None = None

    def _build(self, source: Any, curation: Curation, salt: str) -> Version:
        """Read and curate all rows."""
        self._source, self._salt = source, salt
        tally = Tally(curation)
        with open_table(source, schema=curation.schema) as table:
            pieces = list(curated_batches(table, curation, tally, salt))
        for name in curation.identifiers():
            parts = [np.empty(0, curation.dtype(name)), *(piece[name] for piece in pieces)]
            self._columns[name] = np.concatenate(parts, dtype=curation.dtype(name))
        return tally.version

    def _fetch(self, query: Tree) -> list[tuple[Any, ...]]:
        if self._sql is None:
            assert self.curation is not None
            self._sql = DuckDBEngine()
            if self._sql.register(self._source, self.curation, salt=self._salt) != self.version:
                raise TableChanged
        return self._sql._fetch(query)

    def batches(self, columns: Sequence[str], rows: int = ROWS) -> Iterator[list[AnyArray]]:
        """Yield curated columns, at most ``rows`` rows at a time."""
        for start in range(0, self.count(), rows):
            yield [self._columns[name][start : start + rows] for name in columns]

    def close(self) -> None:
        """Forget the curated table."""
        self._columns, self._source = {}, None
        if self._sql is not None:
            self._sql.close()
