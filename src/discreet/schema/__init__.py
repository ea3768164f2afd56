"""Public declarations that precede any row: columns, bounds, lists, neighbors.

Nothing here ever reads a table. A :class:`Schema` is written by a person who knows what a column
may contain (a codebook, a law, an instrument), in Python or in a ``*.schema.yaml`` file, and every
promise of the other packages depends on it. ``column`` and ``schema`` hold the two values;
``column_checks`` and ``schema`` check declarations and suggest corrections, worded for Python or for
a file by ``notation``; ``serialization`` reads and writes text, ``_document`` converts the content of files
to values and back, with ``_document_shape`` for its keys and ``dialect`` for how text is written, and
``rules`` expands what a file says about many columns at once. ``draft`` begins new files, with guesses by
``name_hints`` and what a ``codebook`` says.
"""

from __future__ import annotations

from discreet.schema.column import Column, Level, Protect, Role, Type, unclipped_column
from discreet.schema.dialect import Dialect, TextFormat
from discreet.schema.schema import Neighbors, RowCount, Schema

__all__ = [
    "Column",
    "Dialect",
    "Level",
    "Neighbors",
    "Protect",
    "Role",
    "RowCount",
    "Schema",
    "TextFormat",
    "Type",
    "unclipped_column",
]
