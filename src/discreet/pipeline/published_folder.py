"""Jobs on a published folder: attacks that anyone can run, and the internal report written again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from discreet.audit import attack_file
from discreet.errors import ParameterError, SourceError
from discreet.pipeline._output import INTERNAL, PUBLIC, explain_os_errors
from discreet.pipeline._release_stages import first_rows
from discreet.pipeline.release import ATTACKS, REPORT
from discreet.release import method_from_dict
from discreet.report.findings import Findings
from discreet.report.folder.folder import DATA, find_folder, read_bytes, read_statement
from discreet.report.pages.render import write_report
from discreet.schema import Schema

if TYPE_CHECKING:
    from pathlib import Path

    from discreet.audit import Guess


def attack_folder(folder: Path) -> tuple[Guess, ...]:
    """Attack the published file of a release with the knowledge of its statement alone.

    Parameters
    ----------
    folder : Path
        A ``public`` folder, or the folder that holds one.

    Returns
    -------
    tuple of Guess
        Error that each attacker expects, by column and attack.

    Privacy
    -------
    Reads the public folder alone.
    """
    public = find_folder(folder)
    statement = read_statement(public)
    n_rows: Any = statement.what.rows_read
    if n_rows is not None and n_rows < 1:
        raise ParameterError("statement.json must speak of at least one row, and does not.")
    schema = Schema.from_dict(statement.declared)
    method = method_from_dict(statement.what.method.model_dump(), schema=schema)
    plan = method.plan(schema, n_rows)
    return attack_file(plan, first_rows(public / DATA, plan.schema, typed=plan.typed))


def rebuild_report(folder: Path, out: Path | None = None) -> Path:
    """Write the internal report of a release again, and return its path.

    Parameters
    ----------
    folder : Path
        Folder of the release, with ``public`` and ``internal`` in it.
    out : Path, optional
        File to write; None: ``internal/report.html`` in `folder`.

    Privacy
    -------
    Reads no row; the report is internal all the same, because attacks on real rows are in it.
    """
    if not (folder / INTERNAL).is_dir() or not (folder / PUBLIC).is_dir():
        raise SourceError(
            f"folder must be a release with {PUBLIC} and {INTERNAL} in it, and {str(folder)!r} is not. The "
            "report is made from both."
        )
    statement = read_statement(folder / PUBLIC)
    try:
        findings = Findings.model_validate_json(read_bytes(folder / INTERNAL / ATTACKS))
    except ValidationError:
        raise SourceError(
            f"{str(folder / INTERNAL / ATTACKS)!r} must be the findings of a release by this version, and is "
            "not. Release the table again."
        ) from None
    place = out or folder / INTERNAL / REPORT
    with explain_os_errors(place):
        write_report(place, statement, findings)
        place.chmod(0o600)
    return place
