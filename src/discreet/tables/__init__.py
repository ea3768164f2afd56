"""Where rows come from and go to: files, frames, DuckDB, PostgreSQL. No privacy in here.

:func:`open_table` takes whatever holds a table and gives a :class:`Table`, whose ``batches`` are
encoded as a schema declares: numbers clipped, categories as codes. :func:`write_table` takes such
batches to a file or database. Both stream: memory does not grow with the number of rows.

Reading order: :mod:`~discreet.tables.table` and :mod:`~discreet.tables._writers` are the two doors;
:mod:`~discreet.tables._encoding` is the one place where a cell becomes a number;
:mod:`~discreet.tables.files`, :mod:`~discreet.tables.sources` and :mod:`~discreet.tables.postgres` are
the sources; :mod:`~discreet.tables.duckdb` and :mod:`~discreet.tables.arrow` run DuckDB under them;
:mod:`~discreet.tables.table` and :mod:`~discreet.tables._external_sort` are what a writer may put in between.
"""

from __future__ import annotations

from discreet.tables._writers import Field, check_target, write_table
from discreet.tables.table import Batch, Table, ahead, open_table

__all__ = ["Batch", "Field", "Table", "ahead", "check_target", "open_table", "write_table"]
