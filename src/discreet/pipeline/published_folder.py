"""Jobs on a published folder: attacks, further rows from its answers, and the internal report again."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from discreet.audit import attack_file, attack_published
from discreet.errors import ParameterError, SourceError
from discreet.pipeline._output import INTERNAL, PUBLIC, build_folder, explain_os_errors
from discreet.pipeline._release_stages import first_rows
from discreet.pipeline.options import Output
from discreet.pipeline.release import ATTACKS, REPORT
from discreet.release import SyntheticRelease, method_from_dict
from discreet.release.publication import published_fields
from discreet.release.readable import readable_columns, write_readable
from discreet.release.synthetic.repetition import repeat_release
from discreet.report.findings import Findings
from discreet.report.folder.folder import (
    DATA,
    PRIOR,
    READABLE,
    TABLES,
    data_digests,
    date_files,
    find_folder,
    read_bytes,
    read_statement,
    write_public,
)
from discreet.report.folder.model_files import write_answers
from discreet.report.pages.render import write_report
from discreet.report.statement.documents import Method, read_json
from discreet.report.statement.table import describe_draw, release_name
from discreet.schema import Schema
from discreet.tables import write_table

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


def redraw_release(
    tables: Path, *, out: Path, n_records: int | None = None, draw: int = 0, output: Output | None = None
) -> Path:
    """Make another table from the answers of a synthetic release, with its statement. Free.

    Parameters
    ----------
    tables : Path
        File ``tables.json`` in the public folder of a release, or that folder.
    out : Path
        Folder that will hold ``public``; complete at the end, or not there.
    n_records : int, optional
        Number of rows; None for as many as the original table has.
    draw : int
        Index of the draw; 0 draws the rows of the release, as far as they go.
    output : Output, optional
        Whether a release at `out` may be replaced; None for no.

    Returns
    -------
    Path
        The public folder, which :func:`discreet.verify` checks as any other.

    Privacy
    -------
    Reads the public folder alone: answers that were paid for, and what follows from them.
    """
    chosen = output or Output()
    public = find_folder(tables.parent if tables.name == TABLES else tables)
    if not (public / TABLES).is_file():
        raise SourceError(
            f"tables must be the {TABLES} of a synthetic release, or its folder, and {str(tables)!r} is not."
        )
    statement = read_statement(public)
    schema = Schema.from_dict(statement.declared)
    parameters = statement.what.method.parameters | {"n_records": n_records, "draw": draw}
    named = {"name": statement.what.method.name, "parameters": parameters}
    method = method_from_dict(named, schema=schema)
    if not isinstance(method, SyntheticRelease):
        raise ParameterError(f"tables must be of a synthetic release, and this one is {method.name}.")
    document = read_json(read_bytes(public / TABLES), TABLES)
    again, table = repeat_release(method, document, public / DATA)
    seed = again.sampling_seed_
    with build_folder(out, replace=chosen.replace) as draft:
        folder = draft / PUBLIC
        n_rows = write_table(folder / DATA, published_fields(table.schema, typed=True), table.batches())
        write_answers(folder, again)
        if PRIOR in statement.files:
            shutil.copyfile(public / PRIOR, folder / PRIOR)
        n_read: Any = statement.what.rows_read
        write_readable(folder / DATA, folder / READABLE, readable_columns(method.plan(schema, n_read)))
        method.sampling_seed_ = seed
        name = release_name(schema, statement.implementation.key_commitment, method)
        written = Method(name=method.name, parameters=method.parameters())
        what = statement.what.model_copy(
            update={"method": written, "rows_published": n_rows, "release": name}
        )
        steps = [*statement.implementation.post_processing[:-1], describe_draw(seed)]
        made = statement.implementation.model_copy(update={"post_processing": steps})
        files = data_digests(folder)
        attacks = [attack.to_dict() for attack in attack_published(again, n_rows)]
        changed = {"what": what, "implementation": made, "files": files, "attacks": attacks}
        write_public(folder, statement.model_copy(update=changed))
        date_files(folder, statement.what.created)
    return out / PUBLIC


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
