"""Spark as the engine, for tables that one machine does not hold: sums by SQL, passes by mapInArrow."""

from __future__ import annotations

import contextlib
import itertools
import json
import operator
import pickle
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sqlglot import exp

from discreet.errors import DataError, DiscreetError, SchemaError, SourceError, WorkersFailed
from discreet.formatting import count_noun
from discreet.query.curation import TABLE, Curation, Version
from discreet.query.engines._curated_rows import missing_ids, repeated_ids
from discreet.query.engines.base import ROWS, Engine, KernelSum
from discreet.query.language._sql import SqlText
from discreet.query.unit_rows import row_digests
from discreet.tables import open_table
from discreet.tables.cell_encoding import id_problem
from discreet.tables.check import count_misfits
from discreet.tables.spark import check_installed, open_frame, probe_workers, quote_name, spark_failures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sqlglot.expressions import Expr as Tree

    from discreet._types import AnyArray, Ints, Words
    from discreet.query.engines.tasks import Kernel
    from discreet.tables import Table

_serial = itertools.count()
_DIGEST = ("digest_0", "digest_1")
_ID_TYPES = {"string", "varchar", "char", "byte", "short", "integer", "long"}


class SparkEngine(Engine):
    """A curated table in a Spark session.

    Give :class:`~discreet.query.database.Database` a Spark data frame, or a URL:
    ``spark://host:port?table=name`` names a cluster and a table of its catalog, or the path of a Parquet or
    CSV file that all workers see; ``spark://local?table=name`` uses the session that is active, or one on
    this machine. A session that is started for a URL encrypts what its workers write to their disks, and
    limits what Spark's SQL parser remembers; for one of your own, see docs/howto/other-engines.md.

    Privacy
    -------
    See :class:`~discreet.query.engines.base.Engine`. The curated rows are computed once and kept by the
    workers; if some are lost, questions fail instead of being answered from rows that were read again.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    distributed: ClassVar[bool] = True
    parallel: ClassVar[bool] = True
    sql: ClassVar[SqlText] = SqlText({"TEXT": "STRING"})

    def __init__(self) -> None:
        super().__init__()
        check_installed()
        # In Python a session that was stopped shows as an attribute of None.
        self._failures = (*spark_failures(), AttributeError)
        self._name = f"{TABLE}_{next(_serial)}"
        self._frame: Any = None

    def _build(self, source: Any, curation: Curation, salt: str) -> Version:
        """Curate the data frame on the workers, keep it as a checkpoint, and return its version.

        Raises
        ------
        DataError
            Cells do not fit what was declared; it names columns and numbers of rows.
        WorkersFailed
            Spark failed; its own message may quote rows, and is dropped.
        """
        # All columns are stored, since the version of the rows is summed over the curated table.
        curation = replace(curation, stored=None)
        frame = open_frame(source)
        probe_workers(frame.sparkSession)
        _check_names(frame, curation)
        _check_id_type(frame, curation)
        try:
            self._frame = self._curate_frame(frame, curation, salt).localCheckpoint(eager=True)
            found = self._frame.filter("problem_ IS NOT NULL").select("problem_").collect()
            if not found:
                self._frame.createOrReplaceTempView(self._name)
                sums, n_rows = self._reduce_kernel(_ChecksumPass(curation))
                repeated = curation.ids and self._repeats(curation.id_identifiers())
                version = Version(n_rows, *(one % 2**64 for one in sums))
        except self._failures as problem:
            # What Spark says may quote rows, and so may the Python worker in it.
            failure = type(problem).__name__
        else:
            if found:
                raise _problem([row["problem_"] for row in found])
            if repeated:
                raise repeated_ids("The Spark data frame", curation)
            return version
        raise WorkersFailed(
            f"Spark ended with {failure} while workers were to build the curated table; its text is withheld "
            "because it may quote rows, and the logs of the workers name the place. Look for full disks and "
            "lost executors, and register the table again."
        )

    def _curate_frame(self, frame: Any, curation: Curation, salt: str) -> Any:
        """Return the data frame of curated cells, with at most ``max_rows_per_unit`` rows of each unit."""
        schema = curation.schema
        names = curation.identifiers()
        limited = schema.id_column is not None
        needed = [column.name for column in schema.released]
        if schema.id_column is not None:
            needed.append(schema.id_column)
        selected = frame.select(*(quote_name(name) for name in needed))
        kinds = {np.dtype(np.int32): "int", np.dtype(np.int64): "bigint", np.dtype(np.float64): "double"}
        declared = ", ".join(f"{name} {kinds[curation.dtype(name)]}" for name in names) + ", problem_ binary"
        if curation.ids:
            assert schema.id_column is not None
            if selected.filter(f"{quote_name(schema.id_column)} IS NULL").head(1):
                raise missing_ids("The Spark data frame", curation)
        if curation.ids or not limited:
            return selected.mapInArrow(_curate(curation), declared)
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        digest = "".join(f", {name} bigint" for name in _DIGEST)
        marked = selected.mapInArrow(_curate(curation, salt), declared + digest)
        order = Window.partitionBy(*curation.unit_identifiers()).orderBy(*_DIGEST, *names)
        ranked = marked.withColumn("rank_", f.row_number().over(order))
        used = f"rank_ <= {schema.max_rows_per_unit} OR problem_ IS NOT NULL"
        return ranked.filter(used).select(*names, "problem_")

    def _repeats(self, ids: Sequence[str]) -> bool:
        from pyspark.sql import functions as f

        return bool(self._frame.groupBy(*ids).count().filter(f.col("count") > 1).head(1))

    def _table(self) -> Tree:
        return exp.Table(this=exp.to_identifier(self._name))

    def _wide(self, expression: Tree) -> Tree:
        # A sum of DECIMAL(20) is a DECIMAL(30); a sum of BIGINT would be a BIGINT, and could overflow.
        wide = exp.Cast(this=expression, to=exp.DataType.build("BIGINT"))
        return exp.Cast(this=wide, to=exp.DataType.build("DECIMAL(20, 0)"))

    def _fetch(self, query: Tree) -> list[tuple[Any, ...]]:
        rows = self._frame.sparkSession.sql(self.sql.write(query)).collect()
        return [tuple(row) for row in rows]

    def _probe(self) -> None:
        """Raise one of Spark's failures unless the session works, and has all parts of the checkpoint."""
        plan = getattr(self._frame, "_jdf", None)
        if plan is None:  # a session of Spark Connect, which tells nothing of its checkpoints
            self._frame.sparkSession.range(1).count()
            return
        rows = plan.queryExecution().logical().rdd()
        held = {one.id(): one.numCachedPartitions() for one in rows.sparkContext().getRDDStorageInfo()}
        if held.get(rows.id(), 0) < rows.getNumPartitions():
            raise OSError("parts of the table are lost")

    def batches(self, columns: Sequence[str], rows: int = ROWS) -> Iterator[list[AnyArray]]:
        """Yield curated columns, at most ``rows`` rows at a time: int32, or float64 of unrounded numbers."""
        assert self.curation is not None
        dtypes = [self.curation.dtype(name) for name in columns]
        shape = ", ".join(f"b{i} binary" for i in range(len(columns)))
        packed = self._frame.select(*columns).mapInArrow(_pack(dtypes), shape)
        for row in packed.toLocalIterator():
            arrays = [np.frombuffer(cell, dtype) for cell, dtype in zip(row, dtypes, strict=True)]
            for start in range(0, len(arrays[0]), rows):
                yield [values[start : start + rows] for values in arrays]

    def _reduce_kernel(self, kernel: Kernel) -> tuple[list[int], int]:
        """Return the sums of a kernel and the number of rows, each worker's part summed by the worker."""
        columns = list(dict.fromkeys(kernel.columns))
        parts = self._frame.select(*columns).mapInArrow(_reduce(kernel, columns), "n bigint, sums string")
        total, n_rows = [0] * kernel.size, 0
        for row in parts.collect():
            n_rows += row["n"]
            total = list(map(operator.add, total, json.loads(row["sums"])))
        return total, n_rows

    def close(self) -> None:
        """Delete the curated table from the workers; the session stays."""
        frame, self._frame = self._frame, None
        if frame is not None:
            with contextlib.suppress(*self._failures):  # the session may be gone, and the rows with it
                frame.sparkSession.catalog.dropTempView(self._name)
                _drop_checkpoint(frame)


def _drop_checkpoint(frame: Any) -> None:
    """Delete the rows of a checkpoint, which ``frame.unpersist`` leaves until Java collects its garbage."""
    plan = getattr(frame, "_jdf", None)
    if plan is not None:  # a session of Spark Connect drops its checkpoints with the data frame
        plan.queryExecution().logical().rdd().unpersist(True)


def _check_names(frame: Any, curation: Curation) -> None:
    needed = [column.name for column in curation.columns]
    if curation.schema.id_column is not None:
        needed.append(curation.schema.id_column)
    absent = [name for name in needed if name not in frame.columns]
    if absent:
        raise SourceError(
            f"The Spark data frame must have the declared column {absent[0]!r}, and has not. Rename its "
            "columns, or declare role: drop."
        )


def _check_id_type(frame: Any, curation: Curation) -> None:
    name = curation.schema.id_column
    if name is None:
        return
    kind = frame.schema[name].dataType
    whole = kind.typeName() == "decimal" and kind.scale == 0
    if not whole and kind.typeName() not in _ID_TYPES:
        raise SchemaError(id_problem(name, kind.simpleString()))


def _curate(curation: Curation, salt: str | None = None) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the function by which a worker curates its rows; with a salt, it hashes them too.

    Cells that do not fit are counted, and any other error of this package is returned, in a row of its own:
    an exception would be tried again, and its text be in the logs of Spark.
    """

    def curate(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for rows in _join(batches):
            with open_table(pa.Table.from_batches(rows)) as table:
                try:
                    yield from _curated_pieces(table, curation, salt)
                except DiscreetError as problem:
                    misfits = (
                        count_misfits(table, curation.schema) if isinstance(problem, DataError) else None
                    )
                    columns = {name: np.zeros(1, curation.dtype(name)) for name in curation.identifiers()}
                    columns["problem_"] = np.array([pickle.dumps(misfits or problem)], object)
                    if salt is not None:
                        columns |= dict.fromkeys(_DIGEST, np.zeros(1, np.int64))
                    yield pa.RecordBatch.from_pydict(columns)

    return curate


def _join(batches: Iterator[Any]) -> Iterator[list[Any]]:
    """Yield Spark's Arrow batches in groups of about :data:`ROWS` rows: opening a group takes time."""
    held: list[Any] = []
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
        if sum(one.num_rows for one in held) >= ROWS:
            yield held
            held = []
    if held:
        yield held


def _curated_pieces(table: Table, curation: Curation, salt: str | None) -> Iterator[Any]:
    """Yield the rows of a table as Arrow batches of the curated table."""
    import pyarrow as pa

    for rows in table.batches(
        curation.schema,
        ids=curation.has_units,
        id_texts=salt is not None,
        id_salt=curation.id_salt(salt or ""),
    ):
        arrays = curation.encode(rows)
        if rows.ids is not None:
            arrays |= curation.encode_ids(rows.ids)
        columns = {name: pa.array(values) for name, values in arrays.items()}
        columns["problem_"] = pa.nulls(rows.n_rows, pa.binary())
        if salt is not None:
            digests = row_digests(curation, salt, rows)
            columns |= {
                name: pa.array(_in_order(words)) for name, words in zip(_DIGEST, digests, strict=True)
            }
        yield pa.RecordBatch.from_pydict(columns)


def _in_order(words: Words) -> Ints:
    """Return words as integers with a sign, which Spark has, in the same order."""
    return (words ^ np.uint64(2**63)).view(np.int64)


def _problem(cells: Iterable[bytes]) -> DiscreetError:
    """Return the error of what workers found while they curated their rows."""
    misfits: Counter[tuple[str, str, str]] = Counter()
    for cell in cells:
        found = pickle.loads(cell)  # noqa: S301 - what this package wrote on a worker
        if isinstance(found, DiscreetError):
            return found
        misfits += found
    sentences = [
        f"Column {column!r} must {must} in every row, and does not in {count_noun(n, 'row')}. {way_out}"
        for (column, must, way_out), n in sorted(misfits.items())
    ]
    return DataError(
        " ".join(["The Spark data frame is not as declared.", *sentences]), column=min(misfits)[0]
    )


@dataclass(frozen=True, slots=True)
class _ChecksumPass:
    """The sums of the fingerprints of rows, as :meth:`Curation.checksums` gives them."""

    curation: Curation
    size: int = 2

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read."""
        return tuple(dict.fromkeys((*self.curation.exact_identifiers(), *self.curation.unit_identifiers())))

    def __call__(self, arrays: Sequence[AnyArray]) -> Ints:
        """Return the sum over some rows."""
        sums = self.curation.checksums(dict(zip(self.columns, arrays, strict=True)))
        return np.array(sums, np.uint64).view(np.int64)


def _pack(dtypes: Sequence[np.dtype[Any]]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the function by which a worker packs each column of a batch into one binary cell."""

    def pack(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            cells = [batch.column(i).to_numpy().astype(d).tobytes() for i, d in enumerate(dtypes)]
            yield pa.RecordBatch.from_pydict({f"b{i}": pa.array([cell]) for i, cell in enumerate(cells)})

    return pack


def _reduce(kernel: Kernel, columns: Sequence[str]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the function that a worker runs on its batches: the number of rows and the sums of a kernel."""
    places = [columns.index(name) for name in kernel.columns]

    def reduce(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        total, n_rows = KernelSum(kernel.size), 0
        for batch in batches:
            arrays = [column.to_numpy() for column in batch.columns]
            for start in range(0, batch.num_rows, ROWS):
                part = [arrays[i][start : start + ROWS] for i in places]
                n_rows += len(part[0])
                total.add(kernel(part))
        sums = [json.dumps(total.integers())]
        yield pa.RecordBatch.from_pydict({"n": pa.array([n_rows], pa.int64()), "sums": sums})

    return reduce
