"""Where rows come from and go to: files, frames, DuckDB, PostgreSQL. No privacy in here.

:func:`open_table` takes whatever holds a table and gives a :class:`Table`, whose ``batches`` are
encoded as a schema declares: numbers clipped, categories as codes. :func:`write_table` takes such
batches to a file or database. Both stream: memory does not grow with the number of rows.

Reading order: :mod:`~discreet.tables.table` and :mod:`~discreet.tables.write` are the two doors;
:mod:`~discreet.tables.encode` is the one place where a cell becomes a number;
:mod:`~discreet.tables.files`, :mod:`~discreet.tables.frames` and :mod:`~discreet.tables.postgres` are
the sources; :mod:`~discreet.tables.engine` and :mod:`~discreet.tables.arrow` run DuckDB under them;
:mod:`~discreet.tables.ahead` and :mod:`~discreet.tables.sorting` are what a writer may put in between.
"""

from __future__ import annotations

from discreet.tables.ahead import ahead
from discreet.tables.table import Batch, Table, open_table
from discreet.tables.write import Field, check_target, write_table

__all__ = ["Batch", "Field", "Table", "ahead", "check_target", "open_table", "write_table"]
