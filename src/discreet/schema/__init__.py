"""What is declared in public before a row is read: columns, bounds, lists, neighbors.

Nothing here ever looks at a table. A :class:`Schema` is written by a person who knows what a column
may contain (a codebook, a law, an instrument), in Python or in a ``*.schema.yaml`` file, and every
promise that the rest of the package makes stands on it. Reading order: ``column`` and ``table`` hold
the two values; ``column_rules`` and ``table_rules`` say when a declaration is wrong and how to mend
it, in the words of a ``dialect``; ``text`` and ``document`` turn files into values, ``writing``
turns values into files; ``draft`` starts a file for somebody to complete.
"""

from __future__ import annotations

from discreet.schema.column import Column, Level, Protect, Role, Type, unclipped_column
from discreet.schema.notation import nearest
from discreet.schema.schema import Neighbors, RowCount, Schema

__all__ = [
    "Column",
    "Level",
    "Neighbors",
    "Protect",
    "Role",
    "RowCount",
    "Schema",
    "Type",
    "nearest",
    "unclipped_column",
]
