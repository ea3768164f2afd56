"""Spark sessions and data frames, and the probe that asks workers whether they can run this package."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from discreet.errors import MissingExtra, ParameterError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Workers shuffle and keep curated rows on their own disks; a session that is started here encrypts them under
# a key that only lives in its processes. Spark's SQL parser remembers the shape of every statement, and its
# listener the plan of the last thousand: both fill a heap of 1 GB after some 1,700 questions, unless told not
# to. Its web page would show these plans to anyone who reaches the port.
SETTINGS: dict[str, bool | float | int | str | None] = {
    "spark.io.encryption.enabled": "true",
    "spark.io.encryption.keySizeBits": "256",
    "spark.sql.parser.manageParserCaches": "true",
    "spark.sql.parser.parserDfaCacheFlushRatio": "10",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.enabled": "false",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
}
SCHEME = "spark://"
_STORE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_FILES_IN_SQL = re.compile(r"\s*`?(parquet|orc|avro)`?\s*\.", re.IGNORECASE)
"""Files by a path that this process may not see, and files that Spark takes for a table by its own syntax."""
_probed: set[str] = set()  # sessions whose workers have this version
_EQUAL = {"numpy": "numpy", "scipy": "scipy", "duckdb": "DuckDB"}
"""Packages on whose version the drawn noise or the bytes of files depend, as they are called."""
_SLOTS = 8  # probes where the session does not say how many tasks it runs at once


def is_spark_source(source: Any) -> bool:
    """Return whether a source is a Spark data frame or the address of a table in Spark."""
    if isinstance(source, str):
        return source.startswith(SCHEME)
    return type(source).__module__.startswith("pyspark.")


def check_installed() -> None:
    """Raise MissingExtra unless pyspark and pyarrow are installed."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError:
        raise MissingExtra(
            "A table in Spark needs pyspark and pyarrow, which are not installed. Install them with: "
            "pip install 'discreet[spark]'"
        ) from None


def spark_failures() -> tuple[type[BaseException], ...]:
    """Return the exceptions by which a call to Spark fails; their texts may quote rows."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError, OSError


def open_session(master: str | None = None) -> Any:
    """Return the active Spark session, or start one with :data:`SETTINGS`.

    Workers of one that is started on this machine run the Python of this process, unless PYSPARK_PYTHON names
    another.

    Parameters
    ----------
    master : str, optional
        Address of the cluster, such as ``spark://host:7077`` or ``local[2]``; None for the one that Spark is
        configured for.
    """
    check_installed()
    from pyspark.sql import SparkSession

    builder, started = SparkSession.builder, SparkSession.getActiveSession() is None
    if started:
        builder = builder.config(map=SETTINGS)
    if master is not None:
        builder = builder.master(master)
    try:
        session = builder.getOrCreate()
    except Exception as problem:  # errors of Spark, of py4j and of Java
        raise SourceError(
            f"Spark cannot be started{f' at {master!r}' if master else ''} ({type(problem).__name__}). Check "
            "the address, that Java 17 is installed, and that the cluster runs this version of pyspark."
        ) from None
    context = getattr(session, "sparkContext", None)  # a session of Spark Connect has none
    if started and context is not None and context.master.startswith("local"):
        # Spark's own default is the python3 of the path, which need not have this package.
        context.pythonExec = os.environ.get("PYSPARK_PYTHON", sys.executable)
    return session


def open_frame(source: Any) -> Any:
    """Return the data frame of a source, itself or named by a ``spark://`` URL."""
    check_installed()
    from pyspark.sql import SparkSession

    if isinstance(source, str):
        parts = urlsplit(source)
        tables = parse_qs(parts.query).get("table", [])
        if parts.scheme != "spark" or len(tables) != 1:
            raise ParameterError(
                "source of a Spark table must be a data frame or spark://host:port?table=name, was another "
                "text. Use spark://local?table=name for a session on this machine."
            )
        (name,) = tables
        if (_STORE if name.endswith(".parquet") else _FILES_IN_SQL).match(name):
            raise SourceError(
                f"The table {name!r} must be a name in Spark's catalog, or Parquet files by a path that this "
                "process sees too: other files may hold deleted rows of a Delta, Iceberg or Hudi table. Give "
                "its name in the catalog, or a data frame."
            )
        master = None if parts.netloc in ("", "local") else f"{SCHEME}{parts.netloc}"
        if name.endswith(".parquet"):
            return open_parquet(Path(name), master=master)
        session = open_session(master)
        try:
            if name.endswith((".csv", ".csv.gz")):
                return session.read.csv(name, header=True, inferSchema=False)
            return session.table(name)
        except Exception as problem:
            # Errors of Spark, of py4j and of Java; their texts may quote rows.
            raise SourceError(
                f"The table {name!r} cannot be opened in Spark ({type(problem).__name__}). Check its name, "
                "and that all workers see it."
            ) from None
    if hasattr(source, "mapInArrow"):
        return source
    if isinstance(source, SparkSession):
        raise ParameterError(
            "source of a Spark table must be a data frame, was a session. Give session.table('name')."
        )
    raise ParameterError(
        f"source of a SparkEngine must be a Spark data frame or a spark:// URL, was {type(source).__name__}. "
        "Read it with Spark first."
    )


def open_parquet(path: Path, *, session: Any = None, master: str | None = None) -> Any:
    """Return the data frame of a Parquet file, of the files of a folder, or of those of a pattern.

    Parameters
    ----------
    path : Path
        Files as :class:`~discreet.tables.files.ParquetSource` takes them. Spark gets those that were checked,
        by name: it looks for no log of deleted rows, and takes the columns of one file for those of all.
    session : SparkSession, optional
        Session that reads the files. None: the active one, or a new one.
    master : str, optional
        As for :func:`open_session`.

    Raises
    ------
    SourceError
        The files are not there, belong to a Delta, Iceberg or Hudi table, or differ in their columns.
    """
    from discreet.tables.parquet_parts import ParquetParts

    parts = ParquetParts.from_path(path)
    reader = (open_session(master) if session is None else session).read
    if parts.folder_types:
        reader = reader.option("basePath", f"file://{path.absolute()}")  # no pattern, unlike the others
    try:
        return reader.parquet(*(_file_url(file.path) for file in parts.files))
    except spark_failures() as problem:
        raise SourceError(
            f"{parts.label} cannot be opened in Spark ({type(problem).__name__}). Check that all workers see "
            "it under this path."
        ) from None


def _file_url(path: str) -> str:
    """Return the address of a file for Spark, which takes marks of patterns for themselves when escaped."""
    return "file://" + re.sub(r"[\\{}\[\]*?]", r"\\\g<0>", path)


def quote_name(name: str) -> str:
    """Return the quoted name of a column in Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def probe_workers(session: Any, *, readable: Sequence[Path] = (), writable: Sequence[Path] = ()) -> None:
    """Raise SourceError unless Spark's workers have this version of the package and see the given paths.

    Parameters
    ----------
    session : SparkSession
        Session whose workers are asked, one small task for each slot.
    readable, writable : sequence of Path
        Files that every worker must be able to read, and folders that it must be able to write to. A worker
        with a file or folder of its own under such a name is refused.
    """
    name, slots = "", _SLOTS
    with contextlib.suppress(Exception):  # a session of Spark Connect has no context
        name, slots = session.sparkContext.applicationId, max(1, session.sparkContext.defaultParallelism)
    if name in _probed and not readable and not writable:
        return
    with contextlib.ExitStack() as stack:
        marks = [
            stack.enter_context(tempfile.NamedTemporaryFile(prefix=".probe-", dir=path)).name
            for path in writable
        ]
        task = _make_probe([str(path) for path in readable], marks)
        try:
            answers = session.range(0, slots, 1, slots).mapInArrow(task, "found string").collect()
        except spark_failures() as problem:
            raise SourceError(
                f"Spark's workers cannot run a Python task ({type(problem).__name__}). They need the Python "
                "version of this process, and pyarrow: name such a Python in PYSPARK_PYTHON, and see "
                "docs/howto/other-engines.md."
            ) from None
    for row in answers:
        _check_answer(json.loads(row["found"]))
    if name:
        _probed.add(name)


def _check_answer(found: dict[str, Any]) -> None:
    """Raise SourceError unless a worker has what it needs, in the versions of this process."""
    if found["missing"] is not None:
        package, kind = found["missing"]
        raise SourceError(
            f"Spark's workers cannot import {package} ({kind}). Install discreet[spark] "
            f"{installed_version().split()[0]} on them, or ship an environment with spark.archives: "
            "docs/howto/other-engines.md."
        )
    own = {name: metadata.version(name) for name in _EQUAL} | {"discreet": installed_version()}
    for name, version in own.items():
        if found[name] != version:
            why = "files would have other bytes" if name == "duckdb" else "noise would be drawn otherwise"
            raise SourceError(
                f"Spark's workers run {_EQUAL.get(name, name)} {found[name]}, this process {version}. They "
                f"must be equal: {why}. Install the same version on both."
            )
    for action, path in found["refused"]:
        raise SourceError(
            f"Spark's workers cannot {action} {path!r}, or have another there. All workers must see the "
            "folders of the table and of the release under the same paths, as the user who runs this "
            "command: put both on a shared file system."
        )


def run_on_workers(session: Any, task: Callable[[int], str | bytes], n_tasks: int, kind: str) -> list[Any]:
    """Return the results of a task for each number below `n_tasks`, in no certain order.

    Parameters
    ----------
    session : SparkSession
        Session whose workers run the tasks.
    task : callable
        Function of the number of a task; Spark carries it to its workers, so it must be picklable.
    n_tasks : int
        Number of tasks, which Spark runs in as many partitions.
    kind : {"string", "binary"}
        Type of a result: a text, or bytes.

    Raises
    ------
    Exception
        One of :func:`spark_failures`; its text may quote rows.
    """

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict({"result": [task(number)]})

    rows = session.range(0, n_tasks, 1, n_tasks).mapInArrow(run, f"result {kind}").collect()
    return [row["result"] for row in rows]


@cache
def installed_version() -> str:
    """Return the version of this package and a digest of its source, since two trees may have one version."""
    try:
        version = metadata.version("discreet")
    except metadata.PackageNotFoundError:
        version = "unknown"
    root, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return f"{version} ({digest.hexdigest()[:12]})"


def _make_probe(readable: Sequence[str], marks: Sequence[str]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the task by which a worker says what it has.

    Everything in it is local, so that Spark sends its code and not its name: a worker without this package
    must be able to answer.

    Parameters
    ----------
    readable : sequence of str
        Paths of files, whose ends are compared with those that this process sees.
    marks : sequence of str
        Paths of files that this process has just made, each in a folder that must be writable.
    """

    def hash_end(path: str) -> str:
        import hashlib

        with open(path, "rb") as file:  # noqa: PTH123 - a worker runs no more than it must
            file.seek(-min(4096, file.seek(0, 2)), 2)
            return hashlib.sha256(file.read()).hexdigest()

    ends = {path: hash_end(path) for path in readable}

    def probe(batches: Iterator[Any]) -> Iterator[Any]:
        import importlib
        import importlib.metadata
        import json
        import os
        import tempfile

        import pyarrow as pa

        for _ in batches:
            pass
        missing, refused, versions = None, [], {}
        needed = (
            "numpy",
            "scipy.special",
            "duckdb",
            "cryptography.hazmat.primitives.ciphers",
            "discreet.noise",
        )
        for name in needed:
            package = name.split(".")[0]
            try:
                importlib.import_module(name)
                if package == "discreet":
                    own = importlib.import_module("discreet.tables.spark")
                    versions[package] = own.installed_version()
                else:
                    versions[package] = importlib.metadata.version(package)
            except Exception as problem:  # whatever a broken installation raises
                missing = missing or (package, type(problem).__name__)
        for path, end in ends.items():
            try:
                if hash_end(path) != end:
                    refused.append(("read", path))
            except OSError:
                refused.append(("read", path))
        for mark in marks:
            folder = os.path.dirname(mark)  # noqa: PTH120 - as above
            try:
                hash_end(mark)
                tempfile.TemporaryFile(dir=folder).close()
            except OSError:
                refused.append(("write to", folder))
        found = {"missing": missing, "refused": refused, **versions}
        yield pa.RecordBatch.from_pydict({"found": [json.dumps(found)]})

    return probe
