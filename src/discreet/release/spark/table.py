"""Driver of a release on Spark: a table in Parquet files, the tasks on its parts, and their files."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import DataError, DiscreetError, ParameterError, SourceError
from discreet.query.unit_rows import kept_rows
from discreet.release.base import ORDER
from discreet.release.spark._job import DrawJob, JobFile, SampleJob, SourceJob, WriteJob, part_batches
from discreet.release.spark._tasks import SOURCE_CHANGED, draw_batches, run_task
from discreet.tables.fingerprint import merge_samples, sample_digests
from discreet.tables.parquet_parts import ParquetParts, part_name
from discreet.tables.spark import (
    check_installed,
    is_spark_source,
    open_frame,
    open_session,
    probe_workers,
    quote_name,
    run_on_workers,
    spark_failures,
)
from discreet.tables.table import ROWS, open_table

if TYPE_CHECKING:
    import os

    from discreet.noise import Stream
    from discreet.release.base import Watch
    from discreet.release.publication import ReleasePlan
    from discreet.schema import Schema

_WATCHED = 16
"""Most batches that the driver draws again, to compare them with their true rows."""
_STAGED = "staged"
_STAGED_OPTIONS = {
    "compression": "none",
    "parquet.block.row.count.limit": str(2 * ROWS),
    "parquet.dictionary.page.size": str(1 << 16),
}
"""How Spark writes staged rows: in small groups, since a task reads those of its part alone; without
compression, since they are read twice and removed; and with dictionaries for lists, not for measured numbers.
"""


class PartitionedTable:
    """Table in Parquet files of which the workers of Spark read, draw and write parts.

    Parameters
    ----------
    source : path, Spark data frame or spark:// URL
        Parquet file, folder or pattern of files that all workers see. Declared columns of a data frame or of
        a table in Spark are first written to Parquet files in `folder`.
    schema : Schema
        Declaration of the columns.
    folder : path
        Private folder for keys and rows of the release, which all workers see; made if it is not there, and
        removed by :meth:`close`.
    session : SparkSession, optional
        Session whose workers are used. None: the active one, or a new one.
    master : str, optional
        Address of the cluster where a session is started; None for Spark's own setting.

    Attributes
    ----------
    n_rows : int
        Number of rows, by the footers of the files.
    parts : ParquetParts
        Files of the table.
    is_paid : bool
        Whether a release of it was charged, so that it may be drawn.

    Privacy
    -------
    Spark carries the numbers of parts and the names of files. Rows, plan and key pass through `folder`, which
    only its owner can read. Keystreams of batches are those of a release in one process, so that repeated
    attempts of a task give the same bits (docs/decisions/0059-releases-on-spark.md).

    Reference
    ---------
    docs/howto/release-with-spark.md

    Examples
    --------
    >>> from discreet import Column, ErrorFloor, GaussianRelease, Schema
    >>> schema = Schema(columns=[Column("age", type="integer", lower=17, upper=90)])
    >>> table = PartitionedTable("rows/*.parquet", schema, "private", master="local[2]")  # doctest: +SKIP
    >>> method = GaussianRelease(privacy=ErrorFloor(age=9), schema=schema)
    >>> done = method.publish_parts(table, "made")  # doctest: +SKIP
    """

    def __init__(
        self,
        source: Any,
        schema: Schema,
        folder: str | os.PathLike[str],
        *,
        session: Any = None,
        master: str | None = None,
    ) -> None:
        """Make the private folder, stage rows that are in no files, and read the footers of the files."""
        check_installed()
        self.schema = schema
        self.folder = Path(folder).absolute()
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if is_spark_source(source):
            frame = open_frame(source)
            self.session = frame.sparkSession
            # Before rows are written: to a worker's own disk they would be lost.
            probe_workers(self.session, writable=[self.folder])
            source = self._stage(frame)
        else:
            self.session = open_session(master) if session is None else session
        self.path = Path(source)
        self.parts = ParquetParts.from_path(self.path)
        self.n_rows = self.parts.n_rows
        self.is_paid = False
        self._digests: tuple[str, ...] = ()
        self._id_digests: tuple[str, ...] = ()
        self._n_used = self.n_rows
        self._drawn: DrawJob | None = None

    def _stage(self, frame: Any) -> Path:
        """Write the declared columns of a data frame to Parquet files; those of an earlier run are kept.

        Rows are staged because a data frame need not return them in the same order twice: a repeated task
        would lose some, and publish others twice, with two noises.
        """
        place, done = self.folder / _STAGED, self.folder / _STAGED / "_SUCCESS"
        if done.exists():
            return place
        shutil.rmtree(place, ignore_errors=True)
        names = [c.name for c in self.schema.released]
        if self.schema.id_column is not None:
            names.append(self.schema.id_column)
        absent = [name for name in names if name not in frame.columns]
        if absent:
            raise SourceError(
                f"The Spark data frame must have the declared column {absent[0]!r}, and has not. Rename its "
                "columns, or declare role: drop."
            )
        try:
            rows = frame.select(*map(quote_name, names))
            rows.write.options(**_STAGED_OPTIONS).parquet(place.as_uri())
        except spark_failures() as problem:
            raise SourceError(
                f"The Spark data frame cannot be written to {str(place)!r} ({type(problem).__name__}). All "
                "workers must see the folder of the release: put it on a shared file system."
            ) from None
        return place

    @property
    def digest(self) -> str:
        """SHA-256 over all declared cells and ids in their order: private; :meth:`check` finds it."""
        return hashlib.sha256("".join(self._digests).encode()).hexdigest()

    def check_method(self, plan: ReleasePlan, name: str) -> None:
        """Refuse a method that does not noise each row by itself, before anything is charged."""
        if not plan.is_row_wise:
            raise ParameterError(
                f"{name} needs all rows in one process, and the source has {self.n_rows:,} for the workers "
                "of Spark. Take gaussian, laplace, bounded, coarse or input-perturbation, make a synthetic "
                "table of it, or release a declared subset without Spark."
            )

    def fingerprint(self, key: bytes) -> tuple[str, ...]:
        """Return what :func:`~discreet.tables.fingerprint.fingerprint_table` returns, read by the workers.

        Raises
        ------
        SchemaError, DataError, SourceError
            The table lacks a declared column, has a cell that does not fit, or cannot be read.
        """
        if not self.n_rows:
            return ()
        with self.parts.open_rows(0, 1) as table:
            table.batches(self.schema)  # refuses at once a schema that does not fit
        self._probe()
        job = SampleJob(
            schema=self.schema,
            parts=self.parts,
            batches=part_batches(self.n_rows),
            key=key,
            folder=self.folder,
        )
        results = self._run("sample", job, job.n_parts)
        return sample_digests(merge_samples([np.load(self.folder / each["name"]) for each in results]), key)

    def check(self) -> None:
        """Read every declared cell on the workers; raise DataError at the first that does not fit.

        The digests of the rows and their ids stay, and :meth:`draw` refuses rows that are others.
        """
        if self._digests:
            return
        if not self.n_rows:
            raise DataError(f"{self.parts.label} must have at least one row, and has none.")
        self._probe()
        job = SourceJob(schema=self.schema, parts=self.parts, batches=part_batches(self.n_rows))
        results = self._run("check", job, job.n_parts)
        if sum(result["rows"] for result in results) != self.n_rows:
            raise SourceError(SOURCE_CHANGED)
        self._digests = tuple(result["digest"] for result in results)
        self._id_digests = tuple(result["ids"] for result in results)

    def limit_rows(self, salt: str) -> None:
        """Find which rows of a unit are used, in this process, and store the mask for the workers.

        Before the charge: what ends here for lack of memory must not be paid for. The ids must be those that
        were checked, which :meth:`draw` finds again, so that no unit has more rows than are declared.

        Parameters
        ----------
        salt : str
            Salt that decides which rows are kept of a unit that has too many.
        """
        if self.schema.id_column is None:
            return
        with open_table(self.path, schema=self.schema) as table:
            ids, kept = kept_rows(table, self.schema, salt)
        n_rows = part_batches(self.n_rows) * ROWS
        starts = range(0, len(ids), n_rows)
        digests = (hashlib.sha256(ids[start : start + n_rows].data).hexdigest() for start in starts)
        if tuple(digests) != self._id_digests:
            raise SourceError(SOURCE_CHANGED)
        np.save(self.folder / "kept.npy", kept)
        self._n_used = int(kept.sum())

    def draw(self, plan: ReleasePlan, target: Path, stream: Stream, *, plan_digest: str) -> int:
        """Draw and write all parts on the workers, and commit their files; return the number of rows.

        Parameters
        ----------
        plan : ReleasePlan
            Noise of the release, which is paid for.
        target : Path
            Folder that will hold the parts; it must not exist.
        stream : Stream
            Source of randomness of the release.
        plan_digest : str
            Digest of the plan, as :meth:`ReleaseMethod.plan_digest` returns it.
        """
        job = DrawJob(
            schema=self.schema,
            parts=self.parts,
            batches=part_batches(self.n_rows),
            plan=plan,
            plan_digest=plan_digest,
            key=stream.derive_key("parts"),
            digests=self._digests,
            folder=self.folder,
        )
        drawn = self._run("draw", job, job.n_parts)
        layout = tuple((name, dtype) for name, dtype in drawn[0]["layout"])
        runs = tuple((result["name"], tuple(result["counts"])) for result in drawn)
        writing = WriteJob(**vars(job), layout=layout, drawn=runs)
        written = self._run("write", writing, job.n_written)
        n_rows: int = sum(result["rows"] for result in written)
        if n_rows != self._n_used or sum(result["rows"] for result in drawn) != self._n_used:
            raise SourceError(
                f"The workers drew {n_rows:,} rows of {self._n_used:,}. Nothing was published; run the same "
                "command with --resume."
            )
        target.mkdir()
        for result in written:
            (self.folder / result["name"]).rename(target / part_name(result["part"]))
        self._drawn = job
        return n_rows

    def watch(self, watch: Watch, stream: Stream) -> None:
        """Draw some batches again in this process, and call `watch` with their true and published rows.

        Parameters
        ----------
        watch : callable
            As for :meth:`ReleaseMethod.publish`; its arguments are for the curator alone.
        stream : Stream
            Source of the choice of batches. It must not be the stream of the release.
        """
        assert self._drawn is not None
        job, n_batches = self._drawn, -(-self.n_rows // ROWS)
        chosen = np.sort(np.argsort(stream.words(n_batches))[:_WATCHED])
        for number in chosen.tolist():
            for rows, columns, _ in draw_batches(
                job, self.parts.read_batches(self.schema, number, number + 1)
            ):
                del columns[ORDER]
                watch(job.plan.truth(rows), columns)

    def close(self) -> None:
        """Remove the private folder with everything in it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _probe(self) -> None:
        """Refuse workers that lack the package, the files of the table or the private folder."""
        readable = [Path(file.path) for file in self.parts.files[:1]]
        probe_workers(self.session, readable=readable, writable=[self.folder])

    def _run(self, name: str, job: SourceJob, n_tasks: int) -> list[dict[str, Any]]:
        """Run one kind of task for every part; return the results in the order of the parts."""
        file = JobFile.write(job, self.folder, f"{name}.job")
        try:
            texts = run_on_workers(self.session, partial(run_task, name, file), n_tasks, "string")
        except spark_failures() as problem:
            # What Spark says may quote rows.
            failure = type(problem).__name__
        else:
            results = [json.loads(text) for text in texts]
            for result in results:
                if "error" in result:
                    # It is what this package wrote on a worker.
                    found: DiscreetError = pickle.loads(bytes.fromhex(result["error"]))  # noqa: S301
                    raise found
            results.sort(key=lambda result: int(result["part"]))
            if [result["part"] for result in results] != list(range(n_tasks)):
                raise ParameterError(f"Spark returned other parts than the {n_tasks} that were asked for.")
            return results
        raise SourceError(
            f"Spark ended with {failure} while workers were to {name} parts; its text is withheld because it "
            "may quote rows, and the logs of the workers name the place. If the release was paid for, run "
            "the same command with --resume."
        )
