"""DuckDB instances that tests use one after another: to start one takes longer than most of them.

Only instances as `discreet.tables.duckdb.connect` makes them are lent. A test gets a connection of its own;
when it closes it, the instance is emptied and waits for the next one.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Self

import duckdb

_start = duckdb.connect
_LEFT = """
    SELECT 'TABLE', table_name FROM duckdb_tables() WHERE NOT internal
    UNION ALL SELECT 'VIEW', view_name FROM duckdb_views() WHERE NOT internal
    UNION ALL SELECT 'DATABASE', database_name FROM duckdb_databases() WHERE NOT internal
    UNION ALL SELECT 'LOCKED', '' WHERE current_setting('lock_configuration')
"""


class _Lent:
    """A connection to an instance, which goes back when it is closed or forgotten."""

    def __init__(self, lender: _Lender, instance: duckdb.DuckDBPyConnection) -> None:
        self._lender, self._instance = lender, instance
        self._connection = instance.cursor()
        self._closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def execute(self, *arguments: Any, **options: Any) -> Self:
        self._connection.execute(*arguments, **options)
        return self

    def close(self) -> None:
        # Also the connections that were opened from it are closed.
        self._connection.close()
        if not self._closed:
            self._closed = True
            self._lender.take_back(self._instance)

    def __del__(self) -> None:
        self.close()


class _Lender:
    """Stands in for `duckdb.connect`; `open` says whether instances are lent now."""

    def __init__(self) -> None:
        self.open = False
        self._lock = threading.Lock()
        self.idle: list[duckdb.DuckDBPyConnection] = []

    def __call__(self, database: Any = ":memory:", *arguments: Any, **options: Any) -> Any:
        config = options.get("config") or {}
        if not (self.open and database == ":memory:" and "threads" in config):
            return _start(database, *arguments, **options)
        with self._lock:
            instance = self.idle.pop() if self.idle else None
        if instance is None:
            instance = _start(database, *arguments, **options)
            # What is read from a path stays in an instance, and the next test may write that path anew.
            instance.execute("SET GLOBAL enable_external_file_cache = false")
        instance.execute(f"SET GLOBAL threads = {config['threads']}")
        return _Lent(self, instance)

    def take_back(self, instance: duckdb.DuckDBPyConnection) -> None:
        """Empty an instance and keep it, or end one that is locked, has a file, or is not to be lent now."""
        left = instance.execute(_LEFT).fetchall() if self.open else []
        if [one for one in left if one[0] in ("DATABASE", "LOCKED")] != [("DATABASE", "memory")]:
            instance.close()
            return
        for kind, name in left:
            if kind != "DATABASE":
                instance.execute(f'DROP {kind} "{name}"')
        with self._lock:
            self.idle.append(instance)

    def close(self) -> None:
        """End the instances that nobody uses: a process that is forked must not inherit them."""
        with self._lock, contextlib.ExitStack() as stack:
            while self.idle:
                stack.callback(self.idle.pop().close)


LENDER = _Lender()
