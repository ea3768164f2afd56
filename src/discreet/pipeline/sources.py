"""Sources of a job: the table itself, its schema file and draft, its ledger and its audit log."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import parse_qs, urlsplit

from discreet import datasets
from discreet.errors import SchemaError
from discreet.schema import Schema
from discreet.tables.table import duckdb_address

if TYPE_CHECKING:
    from discreet.ledger import Ledger

_ENDINGS = r"\.(parquet|pq|duckdb|db|(csv|tsv|tab|txt)(\.gz)?|xls[xmb]?|ods|z?sav|dta)$"


LedgerPlace: TypeAlias = "Ledger | str | os.PathLike[str] | Literal[False] | None"


def resolve_source(source: Any) -> Any:
    """Return the source as :func:`~discreet.tables.open_table` reads it; a bundled table by its path."""
    return datasets.load(source).path if is_bundled(source) else source


def describe_source(source: Any) -> str:
    """Return the name of a source for people, without any password in it."""
    if isinstance(source, str) and "://" in source:
        parts = urlsplit(source)
        return f"{parts.scheme}://{parts.hostname or ''}{parts.path} ({_source_stem(source)})"
    return os.fspath(source) if isinstance(source, str | os.PathLike) else f"a {type(source).__name__}"


def find_schema(source: Any, schema: Schema | str | os.PathLike[str] | None) -> Schema:
    """Return the schema of a table: the one given, the bundled one, or the file beside it.

    Raises
    ------
    SchemaError
        There is no schema, or it is wrong or incomplete.
    """
    if isinstance(schema, Schema):
        return schema
    if schema is not None:
        return Schema.load(schema)
    if is_bundled(source):
        return datasets.load(source).schema
    place = schema_path(source)
    if place.exists():
        return Schema.load(place)
    raise SchemaError(
        f"{describe_source(source)} must have a schema, and {str(place)!r} does not exist. Bounds read off "
        "the rows would reveal people's values, so they must be declared: start with `discreet init`."
    )


def schema_path(source: Any) -> Path:
    """Return the path of the schema file of a table: beside it, under its name."""
    return _source_folder(source) / f"{_source_stem(source)}.schema.yaml"


def find_ledger(source: Any, schema: Schema, place: str | os.PathLike[str] | None) -> str:
    """Return the path or address of the ledger of a table.

    Parameters
    ----------
    source : Any
        Table that is charged: a path, an address, a frame or a bundled table.
    schema : Schema
        Schema whose ``dataset`` names the ledger if no place is given.
    place : path, URL or None
        Path or address that was given. None: a file beside the table, or in the working folder for frames,
        URLs and bundled tables.
    """
    if place is not None:
        return os.fspath(place)
    if schema.dataset is None:
        raise SchemaError(
            "Schema: privacy.dataset must be given, and was left out: every release of the same table is "
            "added up under that name, because noise averages out. Write privacy: {dataset: <name>-<year>}, "
            "or say where to count with --ledger."
        )
    return str(_source_folder(source) / f"{_safe_file_name(schema.dataset)}.ledger")


def source_path(source: Any) -> str | None:
    """Return the absolute path or the address of a table, without a password.

    None for rows in memory and for bundled tables, which are in no folder of the user's.
    """
    if is_bundled(source) or not isinstance(source, str | os.PathLike):
        return None
    text = os.fspath(source)
    if "://" in text and not text.startswith("duckdb://"):
        parts = urlsplit(text)
        return f"{parts.scheme}://{parts.hostname or ''}{parts.path}?table={_source_stem(text)}"
    path, table = duckdb_address(text)
    return str(path.resolve()) + (f"?table={table}" if table else "")


def log_path(ledger: Ledger | None) -> Path | None:
    """Return the path of the audit log of a ledger; None for a ledger in memory."""
    if ledger is None or ledger.url == ":memory:":
        return None
    if "://" in ledger.url:
        return Path.cwd() / f"{_safe_file_name(urlsplit(ledger.url).fragment or 'discreet')}.audit.jsonl"
    return Path(ledger.url).with_suffix(".audit.jsonl")


def is_bundled(source: Any) -> bool:
    """Return whether a table comes with the package; such tables are public."""
    return isinstance(source, str) and source.startswith(datasets.PREFIX)


def _source_folder(source: Any) -> Path:
    """Return the folder of a file; the working folder for anything else."""
    if is_bundled(source) or not isinstance(source, str | os.PathLike):
        return Path.cwd()
    if isinstance(source, str) and "://" in source and not source.startswith("duckdb://"):
        return Path.cwd()
    path, _ = duckdb_address(os.fspath(source))
    return path.absolute().parent


def _source_stem(source: Any) -> str:
    """Return the name of a table for its files, without its extension."""
    if is_bundled(source):
        return datasets.load(source).name
    if not isinstance(source, str | os.PathLike):
        return "table"
    text = os.fspath(source)
    if "://" in text and not text.startswith("duckdb://"):
        return _safe_file_name(parse_qs(urlsplit(text).query).get("table", ["table"])[0])
    path, table = duckdb_address(text)
    return _safe_file_name(table or re.sub(_ENDINGS, "", path.name, flags=re.IGNORECASE))


def _safe_file_name(identity: str) -> str:
    """Return the identity with everything replaced that a file name may not hold."""
    return re.sub(r"[^\w.-]+", "-", identity).strip(".-") or "table"
