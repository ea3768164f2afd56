"""Where the declaration of a table is, where its ledger is kept, and how to start a declaration."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qs, urlsplit

from discreet import datasets
from discreet.errors import SchemaError, SourceError
from discreet.ledger import Ledger
from discreet.schema import Schema
from discreet.schema.notation import UNFILLED
from discreet.tables import open_table
from discreet.tables.table import duckdb_address

LedgerPlace: TypeAlias = Ledger | str | os.PathLike[str] | Literal[False] | None


def table_of(source: Any) -> Any:
    """Return what :func:`~discreet.tables.open_table` reads; a bundled table by its path."""
    return datasets.load(source).path if is_bundled(source) else source


def label_of(source: Any) -> str:
    """Return what people call a source, without any password in it."""
    if isinstance(source, str) and "://" in source:
        parts = urlsplit(source)
        return f"{parts.scheme}://{parts.hostname or ''}{parts.path} ({_stem_of(source)})"
    return os.fspath(source) if isinstance(source, str | os.PathLike) else f"a {type(source).__name__}"


def schema_of(source: Any, schema: Schema | str | os.PathLike[str] | None) -> Schema:
    """Return the declaration of a table: the one given, the bundled one, or the file beside it.

    Raises
    ------
    SchemaError
        If there is none, or it is wrong or incomplete.
    """
    if isinstance(schema, Schema):
        return schema
    if schema is not None:
        return Schema.load(schema)
    if is_bundled(source):
        return datasets.load(source).schema
    place = schema_place(source)
    if place.exists():
        return Schema.load(place)
    raise SchemaError(
        f"{label_of(source)} must come with a declaration of what its columns may contain, and "
        f"{str(place)!r} does not exist. Bounds read off the rows would give away whoever holds them, so a "
        "person declares them: start with `discreet init`."
    )


def schema_place(source: Any) -> Path:
    """Return where the declaration of a table is looked for and drafted: beside it, under its name."""
    return _folder_of(source) / f"{_stem_of(source)}.schema.yaml"


def draft_schema(source: Any, path: Path, *, replace: bool = False) -> tuple[int, ...]:
    """Write the start of a declaration, names and types alone; return the lines to be filled in."""
    with open_table(table_of(source)) as table:
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
    return unfilled_lines(text)


def unfilled_lines(text: str) -> tuple[int, ...]:
    """Return the numbers of the lines that are still open."""
    lines = enumerate(text.splitlines(), 1)
    return tuple(number for number, line in lines if UNFILLED in line.partition("#")[0])


def ledger_place(source: Any, schema: Schema, place: str | os.PathLike[str] | None) -> str:
    """Return where the ledger of a table is.

    Parameters
    ----------
    source : Any
        The table.
    schema : Schema
        Whose ``dataset`` names the ledger when no place is given.
    place : path, URL or None
        None: a file beside the table, or in the working folder for frames, URLs and bundled tables.
    """
    if place is not None:
        return os.fspath(place)
    if schema.dataset is None:
        raise SchemaError(
            "Schema: privacy.dataset must be given, and was left out: every release of the same table is "
            "added up under that name, because noise averages out. Write privacy: {dataset: <name>-<year>}, "
            "or say where to count with --ledger."
        )
    return str(_folder_of(source) / f"{_file_name(schema.dataset)}.ledger")


def path_of(source: Any) -> str | None:
    """Return the absolute path or the address of a table, without a password.

    None for rows in memory and for bundled tables, which are at no place of their own.
    """
    if is_bundled(source) or not isinstance(source, str | os.PathLike):
        return None
    text = os.fspath(source)
    if "://" in text and not text.startswith("duckdb://"):
        parts = urlsplit(text)
        return f"{parts.scheme}://{parts.hostname or ''}{parts.path}?table={_stem_of(text)}"
    path, table = duckdb_address(text)
    return str(path.resolve()) + (f"?table={table}" if table else "")


def log_place(ledger: Ledger | None) -> Path | None:
    """Return where the lasting audit log is: beside a ledger on file."""
    if ledger is None or ledger.url == ":memory:":
        return None
    if "://" in ledger.url:
        return Path.cwd() / f"{_file_name(urlsplit(ledger.url).fragment or 'discreet')}.audit.jsonl"
    return Path(ledger.url).with_suffix(".audit.jsonl")


def is_bundled(source: Any) -> bool:
    """Say whether a table is one of those that come with the package, which are public."""
    return isinstance(source, str) and source.startswith(datasets.PREFIX)


def _folder_of(source: Any) -> Path:
    """Return the folder of a file; the working folder for anything else."""
    if is_bundled(source) or not isinstance(source, str | os.PathLike):
        return Path.cwd()
    if isinstance(source, str) and "://" in source and not source.startswith("duckdb://"):
        return Path.cwd()
    path, _ = duckdb_address(os.fspath(source))
    return path.absolute().parent


def _stem_of(source: Any) -> str:
    if is_bundled(source):
        return datasets.load(source).name
    if not isinstance(source, str | os.PathLike):
        return "table"
    text = os.fspath(source)
    if "://" in text and not text.startswith("duckdb://"):
        return _file_name(parse_qs(urlsplit(text).query).get("table", ["table"])[0])
    path, table = duckdb_address(text)
    return _file_name(table) if table else re.sub(r"\.(parquet|duckdb|db|(csv|tsv)(\.gz)?)$", "", path.name)


def _file_name(identity: str) -> str:
    """Return a name that may stand in any folder."""
    return re.sub(r"[^\w.-]+", "-", identity).strip(".-") or "table"
