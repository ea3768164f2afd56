"""Spark sessions and data frames, and the probe that asks workers whether they can run this package."""

from __future__ import annotations

import contextlib
import json
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
_probed: set[str] = set()  # sessions whose workers have this version
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

    Parameters
    ----------
    master : str, optional
        Address of the cluster, such as ``spark://host:7077`` or ``local[2]``; None for the one that Spark is
        configured for.
    """
    check_installed()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    if SparkSession.getActiveSession() is None:
        builder = builder.config(map=SETTINGS)
    if master is not None:
        builder = builder.master(master)
    try:
        return builder.getOrCreate()
    except Exception as problem:  # errors of Spark, of py4j and of Java
        raise SourceError(
            f"Spark cannot be started{f' at {master!r}' if master else ''} ({type(problem).__name__}). Check "
            "the address, that Java 17 is installed, and that the cluster runs this version of pyspark."
        ) from None


def open_frame(source: Any) -> Any:
    """Return the data frame of a source, itself or named by a ``spark://`` URL."""
    check_installed()
    from pyspark.sql import SparkSession

    from discreet.tables.files import check_no_log, list_parquet

    if isinstance(source, str):
        parts = urlsplit(source)
        tables = parse_qs(parts.query).get("table", [])
        if parts.scheme != "spark" or len(tables) != 1:
            raise ParameterError(
                "source of a Spark table must be a data frame or spark://host:port?table=name, was another "
                "text. Use spark://local?table=name for a session on this machine."
            )
        (name,) = tables
        if name.endswith(".parquet") and Path(name).exists():
            label = f"The table {name!r}"
            check_no_log(list_parquet(Path(name), label), label)
        session = open_session(None if parts.netloc in ("", "local") else f"{SCHEME}{parts.netloc}")
        try:
            if name.endswith(".parquet"):
                return session.read.parquet(name)
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
        Files that every worker must be able to read, and folders that it must be able to write to.
    """
    own, name, slots = installed_version(), "", _SLOTS
    with contextlib.suppress(Exception):  # a session of Spark Connect has no context
        name, slots = session.sparkContext.applicationId, max(1, session.sparkContext.defaultParallelism)
    if name in _probed and not readable and not writable:
        return
    task = _make_probe([str(path) for path in readable], [str(path) for path in writable])
    try:
        answers = session.range(0, slots, 1, slots).mapInArrow(task, "found string").collect()
    except spark_failures() as problem:
        raise SourceError(
            f"Spark's workers cannot run a Python task ({type(problem).__name__}). They need the Python "
            "version of this process, and pyarrow: see docs/howto/other-engines.md."
        ) from None
    for found in (json.loads(row["found"]) for row in answers):
        if found["missing"] is not None:
            raise SourceError(
                f"Spark's workers have no {found['missing']} (ModuleNotFoundError). Install discreet[spark] "
                f"{own} on them, or ship an environment with spark.archives: "
                "docs/howto/other-engines.md."
            )
        if found["discreet"] != own:
            raise SourceError(
                f"Spark's workers run discreet {found['discreet']}, this process {own}. They must be equal: "
                "noise would be drawn otherwise. Install the same version on both."
            )
        if found["duckdb"] != metadata.version("duckdb"):
            raise SourceError(
                f"Spark's workers run DuckDB {found['duckdb']}, this process {metadata.version('duckdb')}. "
                "They must be equal: files would have other bytes. Install the same version on both."
            )
        for action, path in found["refused"]:
            raise SourceError(
                f"Spark's workers cannot {action} {path!r}. All workers must see the folders of the table "
                "and of the release under the same paths, as the user who runs this command: put both on a "
                "shared file system."
            )
    if name:
        _probed.add(name)


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


def installed_version() -> str:
    """Return the installed version of this package, "unknown" when it runs from a source tree."""
    try:
        return metadata.version("discreet")
    except metadata.PackageNotFoundError:
        return "unknown"


def _make_probe(readable: Sequence[str], writable: Sequence[str]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the task by which a worker says what it has.

    Everything in it is local, so that Spark sends its code and not its name: a worker without this package
    must be able to answer.
    """

    def probe(batches: Iterator[Any]) -> Iterator[Any]:
        import importlib.metadata
        import importlib.util
        import json
        import os

        import pyarrow as pa

        for _ in batches:
            pass
        needed = ("discreet", "numpy", "duckdb", "cryptography")
        missing = next((name for name in needed if importlib.util.find_spec(name) is None), None)
        versions = {}
        for name in ("discreet", "duckdb"):
            try:
                versions[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                versions[name] = "unknown"
        refused = [("read", path) for path in readable if not os.access(path, os.R_OK)]
        refused += [("write to", path) for path in writable if not os.access(path, os.W_OK | os.X_OK)]
        found = {"missing": missing, "refused": refused, **versions}
        yield pa.RecordBatch.from_pydict({"found": [json.dumps(found)]})

    return probe
