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


def draft_schema(
    source: Any, path: Path, *, replace: bool = False, header: bool | None = None
) -> tuple[int, ...]:
    """Write a draft of a schema with names and types alone, and return the lines to be filled in.

    Parameters
    ----------
    source : Any
        Table whose columns are named in the draft; no row is read.
    path : Path
        File that will hold the draft.
    replace : bool
        Whether a file that exists may be overwritten.
    header : bool, optional
        Whether the first line of a text file holds names; None to decide by its looks.

    Returns
    -------
    tuple of int
        Numbers of the lines with ``???``, from 1 on.
    """
    with open_table(resolve_source(source), header=header) as table:
        if table.names_look_like_data and header is None:
            raise SourceError(
                f"{table.label} must say whether its first line holds names, and in it are both words and "
                "numbers or dates. Names are published with the schema. Pass --header if it holds names, "
                "--no-header if it holds a row."
            )
        found = table.draft()
    text = Schema.draft(found.fields, dialect=found.dialect, missing_values=found.missing_values)
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
