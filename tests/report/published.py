"""Small public folders, honest and forged."""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.audit import attack_file
from discreet.errors import DiscreetError
from discreet.noise import Stream
from discreet.release import BoundedRelease, method_from_dict, published_schema
from discreet.release.publication import published_fields
from discreet.release.readable import readable_columns, write_readable
from discreet.report.folder.folder import (
    DATA,
    READABLE,
    STATEMENT,
    data_digests,
    read_statement,
    write_public,
)
from discreet.report.folder.model_files import write_answers, write_classifier
from discreet.report.folder.published_cells import published_batches
from discreet.report.statement.build import build_statement
from discreet.report.statement.documents import About, Statement, Tuning
from discreet.report.statement.table import TableSubject
from discreet.schema import Schema
from discreet.tables import open_table, write_table
from tests.contracts.cases import RELEASES, ROWS, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from discreet._types import AnyArray
    from discreet.ledger import Ledger
    from discreet.release import ReleaseMethod

KEY = bytes(range(32))
LEAST_ROWS = 50
CREATED = "2026-01-01T00:00:00+00:00"
TUNING = Tuning(on_private_rows="no", why="The noise was chosen before the table was opened.")
METHODS: dict[str, Callable[..., ReleaseMethod]] = {
    **RELEASES,
    "bounded, additive": lambda **rest: BoundedRelease(
        support={"age": 200.0, "income": 3e5}, **{"schema": SCHEMA, **rest}
    ),
}


def publish(
    folder: Path,
    method: ReleaseMethod,
    rows: Mapping[str, Any] = ROWS,
    *,
    key: bytes = KEY,
    about: About | None = None,
    ledger: Ledger | None = None,
    written_by: ReleaseMethod | None = None,
) -> Statement:
    """Publish a table into an empty folder; `written_by` is the method that really draws, if another."""
    folder.mkdir(parents=True, exist_ok=True)
    publication = (written_by or method).publish(dict(rows), folder / DATA, stream=Stream.for_replay(key))
    write_answers(folder, written_by or method)
    write_readable(folder / DATA, folder / READABLE, readable_columns(publication))
    statement = build_statement(
        TableSubject(
            publication,
            method,
            attack_file(method.plan(method.schema or SCHEMA, publication.n_read or 0), cells(folder, method)),
        ),
        about=about,
        ledger=ledger,
        tuning=TUNING,
        files=data_digests(folder),
    )
    write_classifier(folder, written_by or method, publication.schema)
    write_public(folder, statement)
    return statement


def cells(folder: Path, method: ReleaseMethod) -> dict[str, AnyArray]:
    """Read the published cells, encoded."""
    plan = method.plan(method.schema or SCHEMA, LEAST_ROWS)
    schema = plan.schema
    if plan.typed:
        batches = list(published_batches(folder / DATA, schema, typed=True))
    else:
        with open_table(folder / DATA) as table:
            batches = [dict(batch) for batch in table.batches(published_schema(schema))]
    return {c.name: np.concatenate([batch[c.name] for batch in batches]) for c in schema.released}


def rewrite(folder: Path, method: ReleaseMethod, columns: Mapping[str, AnyArray]) -> None:
    """Put other cells into ``data.parquet``."""
    plan = method.plan(method.schema or SCHEMA, LEAST_ROWS)
    write_table(folder / DATA, published_fields(plan.schema, typed=plan.typed), [columns], replace=True)


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the text of the statement, and nothing else."""
    values = json.loads((folder / STATEMENT).read_bytes())
    change(values)
    (folder / STATEMENT).write_text(Statement.model_validate(values).to_json(), encoding="utf-8")


def hash_again(folder: Path) -> None:
    """Do what a forger can: make the copy again, hash the data, say so in the statement, and so on."""
    statement = read_statement(folder)
    schema = Schema.from_dict(statement.declared)
    method = method_from_dict(statement.what.method.model_dump(), schema=schema)
    with contextlib.suppress(DiscreetError):  # where the forgery is no such table, the old copy stays
        plan = method.plan(schema, statement.what.rows_read or 0)
        write_readable(folder / DATA, folder / READABLE, readable_columns(plan))
    edit(folder, lambda values: values.update(files=data_digests(folder)))
    write_public(folder, read_statement(folder))


@functools.cache
def _honest(name: str, where: Path) -> Path:
    folder = where / name
    publish(folder, METHODS[name]())
    return folder


def honest(name: str, factory: Path, target: Path) -> Path:
    """Return a fresh copy of the folder that a method publishes; it is made once."""
    return shutil.copytree(_honest(name, factory), target / "public")
