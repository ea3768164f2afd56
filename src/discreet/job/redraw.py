"""The internal report once more, from what a release left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from discreet.errors import SourceError
from discreet.job.folders import INTERNAL, PUBLIC, explained
from discreet.job.main import ATTACKS, REPORT
from discreet.report.findings import Findings
from discreet.report.folder.folder import read_bytes, read_statement
from discreet.report.pages.render import write_report

if TYPE_CHECKING:
    from pathlib import Path


def redraw(folder: Path, out: Path | None = None) -> Path:
    """Draw the internal report of a release again; return where it is.

    Parameters
    ----------
    folder : Path
        With ``public`` and ``internal`` in it.
    out : Path, optional
        By default ``internal/report.html``.

    Privacy
    -------
    Reads no row; the report is internal all the same.
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
    with explained(place):
        write_report(place, statement, findings)
        place.chmod(0o600)
    return place
