"""Attacks that anybody can run on a published folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.audit import attack_file
from discreet.errors import ParameterError
from discreet.job.steps import first_rows
from discreet.release import method_from_dict
from discreet.report.folder.folder import DATA, find_folder, read_statement
from discreet.schema import Schema

if TYPE_CHECKING:
    from pathlib import Path

    from discreet.audit import Guess


def attack_folder(folder: Path) -> tuple[Guess, ...]:
    """Attack the published file of a release, knowing its statement and nothing else.

    Privacy
    -------
    Reads the public folder alone.
    """
    public = find_folder(folder)
    statement = read_statement(public)
    if statement.what.rows_read < 1:
        raise ParameterError("statement.json must speak of at least one row, and does not.")
    schema = Schema.from_dict(statement.declared)
    method = method_from_dict(statement.what.method.model_dump(), schema=schema)
    plan = method.plan(schema, statement.what.rows_read)
    return attack_file(plan, first_rows(public / DATA, plan.schema))
