"""Reading and writing tables: files, frames, DuckDB, PostgreSQL; nothing here concerns privacy.

:func:`open_table` returns a :class:`Table` for anything that holds one; its ``batches`` are encoded as a
schema declares: numbers clipped, categories as codes. :func:`write_table` writes such batches to a file or
database. Both stream: memory does not grow with the number of rows.

:mod:`~discreet.tables.table` reads and :mod:`~discreet.tables.writers` writes;
:mod:`~discreet.tables.cell_encoding` is the only module where a cell becomes a number;
:mod:`~discreet.tables.files`, :mod:`~discreet.tables.sources` and :mod:`~discreet.tables.postgres` are
the sources; :mod:`~discreet.tables.duckdb` and :mod:`~discreet.tables.arrow` run DuckDB under them;
:mod:`~discreet.tables.external_sort` sorts rows before they are written, and
:mod:`~discreet.tables.temporary` keeps temporary files.
"""

from __future__ import annotations

from discreet.tables.sources import prefetch
from discreet.tables.table import Batch, Table, open_table
from discreet.tables.writers import Field, check_target, write_table

__all__ = ["Batch", "Field", "Table", "check_target", "open_table", "prefetch", "write_table"]
