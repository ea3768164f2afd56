"""A Spark session whose workers are the process that runs the tests, and queries that make its tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import duckdb

if TYPE_CHECKING:
    from collections.abc import Callable


class InProcessSession:
    """Session whose workers are this process, and whose tasks may run twice, in any order."""

    def __init__(self, *, attempts: int = 1, change: Callable[[list[Any]], list[Any]] = list) -> None:
        self.sparkContext = SimpleNamespace(applicationId="", defaultParallelism=1)
        self.tasks: list[Any] = []
        self._attempts = attempts
        self._change = change

    def range(self, start: int, stop: int, *_: int) -> InProcessSession:
        self._numbers = range(start, stop)
        return self

    def mapInArrow(self, task: Any, _: str) -> InProcessSession:  # noqa: N802 - the name in pyspark
        self._task = task
        self.tasks.append(task)
        return self

    def collect(self) -> list[dict[str, Any]]:
        rows = []
        for number in reversed(self._numbers):
            for _ in range(self._attempts):
                import pyarrow as pa

                batch = pa.RecordBatch.from_pydict({"id": [number]})
                (result,) = self._task(iter([batch]))
            rows.append({result.schema.names[0]: result.column(0)[0].as_py()})
        return self._change(rows) if "result" in rows[0] else rows


def select(query: str) -> duckdb.DuckDBPyRelation:
    """Return the rows of a query."""
    rows = duckdb.sql(query)
    assert rows is not None
    return rows
