"""Drafts of schema files for a table: from names and types, and from a codebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from discreet.errors import SourceError
from discreet.pipeline.sources import resolve_source
from discreet.schema import Schema
from discreet.schema.notation import UNFILLED
from discreet.tables import open_table

if TYPE_CHECKING:
    from pathlib import Path


def draft_schema(source: Any, path: Path, *, replace: bool = False, header: bool = False) -> tuple[int, ...]:
    """Write a draft of a schema with names and types alone, and return the lines to be filled in.

    Parameters
    ----------
    source : Any
        Table whose columns are named in the draft; no row is read.
    path : Path
        File that will hold the draft.
    replace : bool
        Whether a file that exists may be overwritten.
    header : bool
        Whether the first line of a text file is known to hold names, even if some are numbers or dates.

    Returns
    -------
    tuple of int
        Numbers of the lines with ``???``, from 1 on.
    """
    with open_table(resolve_source(source)) as table:
        if table.names_look_like_data and not header:
            raise SourceError(
                f"{table.label} must begin with a line of column names, and in its first line are numbers or "
                "dates. Names are published with the schema, and that line is never read as a row. Add a "
                "line of names before it; if it does hold names, say so with --header."
            )
        text = Schema.draft(table.types)
    try:
        with path.open("w" if replace else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise SourceError(
            f"The file {str(path)!r} exists already. Complete it, or pass --replace to start again."
        ) from None
    except OSError as problem:
        raise SourceError(
            f"The draft {str(path)!r} cannot be written ({problem.strerror}). Choose another place with "
            "--out."
        ) from None
    return find_open_lines(text)


def find_open_lines(text: str) -> tuple[int, ...]:
    """Return the numbers of the lines that are still to be filled in."""
    lines = enumerate(text.splitlines(), 1)
    return tuple(number for number, line in lines if UNFILLED in line.partition("#")[0])
