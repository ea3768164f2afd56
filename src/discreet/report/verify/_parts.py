"""Files of a published table, and the tasks that are run on each of them, here or on the workers of Spark."""

from __future__ import annotations

import pickle
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from discreet.errors import SourceError, WorkersFailed
from discreet.report.folder.folder import DATA, digest_of, part_names
from discreet.report.verify._result import describe_failure
from discreet.tables.spark import check_installed, probe_workers, run_on_workers, spark_failures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

T = TypeVar("T")


class PublishedParts:
    """Files of a published table in the order of its rows: one file, or those of a folder of parts.

    Parameters
    ----------
    folder : Path
        Public folder, in which the files of the table are plain files with consecutive names.
    session : SparkSession, optional
        Session whose workers run the tasks; None: this process runs them, one file after the other.

    Attributes
    ----------
    names : list of str
        Names of the files in the folder.

    Notes
    -----
    A check of a table is a task for each file and a merge of the results in the order of the files. Both
    ways run the same tasks and merge in the same order, so that they find the same to the last bit.
    """

    def __init__(self, folder: Path, session: Any = None) -> None:
        """List the files; ask the workers whether they have this package and can read the first file."""
        self._folder, self._session = folder.absolute(), session
        self.names = part_names(folder) or [DATA]
        self.paths = [self._folder / name for name in self.names]
        self._digests: dict[str, str] = {}
        if session is not None:
            check_installed()
            probe_workers(session, readable=self.paths[:1])

    def digest(self, name: str) -> str:
        """Return the SHA-256 of a file of the folder, which is computed once."""
        if name not in self._digests and name in self.names:
            self._digests |= zip(self.names, self.map(digest_of), strict=True)
        elif name not in self._digests:
            self._digests[name] = digest_of(self._folder / name)
        return self._digests[name]

    def map(self, task: Callable[..., T], *arguments: Sequence[Any]) -> Iterator[T]:
        """Yield the results of a task for each file, in the order of the files.

        Parameters
        ----------
        task : callable
            Function of the path of a file, and of one element of each of `arguments`. Spark carries it to its
            workers, so it and its results must be picklable.
        arguments : sequence
            Further arguments, an element for each file.

        Raises
        ------
        WorkersFailed
            Spark ended before all results were there. This says nothing about the files, so it is no result
            of a check.
        """
        calls = list(zip(self.paths, *arguments, strict=True))
        if self._session is None:
            for call in calls:
                yield task(*call)
            return
        try:
            results = run_on_workers(self._session, partial(_run_task, task, calls), len(calls), "binary")
        except spark_failures() as problem:
            raise WorkersFailed(
                f"Spark ended with {type(problem).__name__} while workers checked parts, so the folder was "
                "not verified. The logs of the workers name the place; run the command again, or without "
                "--spark."
            ) from None
        # The content is what this package, in the version of this process, wrote on a worker.
        found = sorted((pickle.loads(result) for result in results), key=lambda one: int(one[0]))  # noqa: S301
        if [number for number, *_ in found] != list(range(len(calls))):
            raise WorkersFailed(f"Spark returned other parts than the {len(calls)} that were asked for.")
        for _, failure, result in found:
            if failure is not None:
                raise SourceError(failure)
            yield result


def _run_task(task: Callable[..., Any], calls: Sequence[tuple[Any, ...]], number: int) -> bytes:
    """Run the task for one file on a worker; an exception is a result, so that Spark does not try again."""
    try:
        return pickle.dumps((number, None, task(*calls[number])))
    except Exception as problem:
        return pickle.dumps((number, describe_failure(problem), None))
