"""Drafts of schema files for a table: from names and types, a codebook, and a paid estimate of bounds."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.errors import SourceError
from discreet.pipeline.private_bounds import BoundsRequest, estimate_bounds
from discreet.pipeline.sources import resolve_source
from discreet.schema import Schema
from discreet.schema.codebook import read_codebook
from discreet.schema.draft import open_numbers
from discreet.schema.notation import UNFILLED
from discreet.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.pipeline.sources import LedgerPlace
    from discreet.schema.dialect import TableDraft


@dataclass(frozen=True, kw_only=True)
class DraftOptions:
    """What is known about a table beside its names and types, and what may be paid for.

    Attributes
    ----------
    codebook : path, URL or None
        Table with one line for each column, as :func:`~discreet.schema.codebook.read_codebook` reads it.
    privacy : mapping of str to object
        Keys of the ``privacy`` block that are known, such as ``dataset``.
    accept_proposals : bool
        Whether ranges proposed by names are confirmed.
    epsilon, delta : float or None
        Promise of a private estimate of the bounds that are still open; no epsilon, no estimate.
    ledger : Ledger, path, URL or None
        Ledger that is charged for the estimate; None for the file beside the table.
    """

    codebook: str | None = None
    privacy: Mapping[str, Any] | None = None
    accept_proposals: bool = False
    epsilon: float | None = None
    delta: float | None = None
    ledger: LedgerPlace = None


@dataclass(frozen=True, kw_only=True)
class DraftReport:
    """What a draft leaves to a person.

    Attributes
    ----------
    open_lines : tuple of int
        Numbers of the lines with ``???``, from 1 on.
    unknown : tuple of str
        Names in the codebook that no column of the table has.
    estimated, unproven : tuple of str
        Columns whose bounds were estimated, and those of which the noisy counts proved none.
    """

    open_lines: tuple[int, ...]
    unknown: tuple[str, ...] = ()
    estimated: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()


def draft_schema(
    source: Any,
    path: Path,
    *,
    replace: bool = False,
    header: bool | None = None,
    options: DraftOptions | None = None,
) -> DraftReport:
    """Write a draft of a schema, and return what is left to be filled in.

    Parameters
    ----------
    source : Any
        Table whose columns are named in the draft; no row is read, except for a private estimate.
    path : Path
        File that will hold the draft.
    replace : bool
        Whether a file that exists may be overwritten.
    header : bool, optional
        Whether the first line of a text file holds names; None to decide by its looks.
    options : DraftOptions, optional
        Codebook, declarations and private estimate; None for names and types alone.

    Privacy
    -------
    Names, types and the codebook are public. An estimate of bounds is charged before it is drawn.

    Reference
    ---------
    docs/explanation/theorems/private-bounds.md.
    """
    options = options or DraftOptions()
    with open_table(resolve_source(source), header=header) as table:
        if table.names_look_like_data and header is None:
            raise SourceError(
                f"{table.label} must say whether its first line holds names, and in it are both words and "
                "numbers or dates. Names are published with the schema. Pass --header if it holds names, "
                "--no-header if it holds a row."
            )
        found = table.draft()
    known = {} if options.codebook is None else _read_codebook(options.codebook, found)
    unknown = tuple(name for name in known if name not in found.fields)
    if path.exists() and not replace:
        raise _exists(path)
    wanted, estimated = _estimate(source, found, known, options)
    text = Schema.draft(
        found.fields,
        declared={name: {**known.get(name, {}), **estimated.get(name, {})} for name in found.fields},
        privacy=options.privacy,
        accept_proposals=options.accept_proposals,
        dialect=found.dialect,
        missing_values=found.missing_values,
    )
    _write(path, text, replace=replace)
    return DraftReport(
        open_lines=find_open_lines(text),
        unknown=unknown,
        estimated=tuple(estimated),
        unproven=tuple(name for name in wanted if name not in estimated),
    )


def _read_codebook(place: str, found: TableDraft) -> dict[str, dict[str, Any]]:
    """Return what a codebook says, under the names of the table's columns where they differ in case alone."""
    with open_table(place, header=True) as table:
        fields = read_codebook(itertools.chain([table.names], table.texts()), Path(place).name)
    names = {name.casefold(): name for name in found.fields}
    known = {}
    for name, field in fields.items():
        if "missingValues" in field:
            field["missingValues"] = [*found.missing_values, *field["missingValues"]]
        known[name if name in found.fields else names.get(name.casefold(), name)] = field
    return known


def _estimate(
    source: Any, found: TableDraft, known: Mapping[str, Mapping[str, Any]], options: DraftOptions
) -> tuple[tuple[str, ...], dict[str, dict[str, Any]]]:
    """Return the columns whose bounds are open, and the estimated bounds of some; none without a promise."""
    privacy = dict(options.privacy or {})
    fields = open_numbers(found.fields, known, privacy.get("id_column"))
    if options.epsilon is None or not fields:
        return (), {}
    table: dict[str, Any] = {"privacy": privacy, "missingValues": list(found.missing_values)}
    request = BoundsRequest(
        epsilon=options.epsilon,
        delta=options.delta,
        table=table,
        dialect=found.dialect,
        ledger=options.ledger,
    )
    return tuple(fields), estimate_bounds(source, fields, request)


def _write(path: Path, text: str, *, replace: bool) -> None:
    """Write a draft; a file that exists is overwritten only if it may be."""
    try:
        with path.open("w" if replace else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as problem:
        raise SourceError(
            f"The draft {str(path)!r} cannot be written ({problem.strerror}). Choose another place with "
            "--out."
        ) from None


def _exists(path: Path) -> SourceError:
    return SourceError(
        f"The file {str(path)!r} exists already. Complete it, or pass --replace to start again."
    )


def find_open_lines(text: str) -> tuple[int, ...]:
    """Return the numbers of the lines that are still to be filled in."""
    lines = enumerate(text.splitlines(), 1)
    return tuple(number for number, line in lines if UNFILLED in line.partition("#")[0])
