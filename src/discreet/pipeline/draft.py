"""Drafts of schema files for a table: from names and types, a codebook, and a paid estimate of bounds.

The estimate is made of noisy counts of public cells, which are charged before they are drawn.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet import formatting
from discreet.errors import PromiseError, SourceError
from discreet.pipeline.query import QuerySession
from discreet.pipeline.sources import resolve_source
from discreet.privacy import ApproxDP, PureDP
from discreet.query.aggregates import Marginals
from discreet.query.costs import CostModel
from discreet.query.range_cells import FAILURE, EstimatedRange, RangeCells, estimate_range, noise_limit
from discreet.schema import Schema
from discreet.schema.codebook import read_codebook
from discreet.schema.draft import open_numbers
from discreet.schema.notation import UNFILLED
from discreet.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from discreet.pipeline.sources import LedgerPlace
    from discreet.query.calibration import Law
    from discreet.schema.dialect import Dialect, TableDraft


_NOTICED = 20  # a cell with this part of the rows has to be noticed
_CLOSE = 1.05  # factor between an epsilon that is recommended and one that is too small
_LARGEST_EPSILON = 1000.0


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


@dataclass(frozen=True, kw_only=True)
class BoundsRequest:
    """What is paid for bounds, and under which declaration of the table.

    Attributes
    ----------
    epsilon : float
        Promise of all columns together.
    delta : float or None
        With it the noise is Gaussian; None for Laplace noise and pure differential privacy.
    table : mapping of str to object
        Keys of a schema file about the table: ``missingValues``, and ``privacy`` with dataset, unit,
        neighbors, id column and rows of a unit.
    dialect : Dialect or None
        How the table is written as text; None where it is no text.
    ledger : Ledger, path, URL or None
        Ledger that is charged; None for the file beside the table.
    """

    epsilon: float
    delta: float | None
    table: Mapping[str, Any]
    dialect: Dialect | None = None
    ledger: LedgerPlace = None

    def promise(self, schema: Schema, epsilon: float) -> ApproxDP | PureDP:
        """Return the promise with another epsilon, about the unit and the neighbors of a schema."""
        about: dict[str, Any] = {"unit": schema.unit, "neighbors": schema.neighbors}
        if self.delta is None:
            return PureDP(epsilon=epsilon, **about)
        return ApproxDP(epsilon=epsilon, delta=self.delta, **about)

    @property
    def law(self) -> Law:
        """Distribution of the noise."""
        return "laplace" if self.delta is None else "gaussian"


def estimate_bounds(
    source: Any, fields: Mapping[str, Mapping[str, Any]], request: BoundsRequest
) -> dict[str, dict[str, Any]]:
    """Charge for noisy counts of public cells, and return the bounds that they prove as keys of fields.

    Parameters
    ----------
    source : path, URL, frame or "demo:census"
        Table as :func:`discreet.tables.open_table` reads it, or a bundled one.
    fields : mapping of str to mapping
        For every column of numbers or dates to be estimated, its type and other keys that say how it is read.
    request : BoundsRequest
        Promise, ledger and what is declared about the table.

    Returns
    -------
    dict of str to dict
        Constraints, and where they are from with the receipt; a column without proven bounds is left out.

    Raises
    ------
    PromiseError
        With this promise no cell of a twentieth of the public number of rows would be noticed. Nothing was
        charged.

    Privacy
    -------
    One answer of :class:`~discreet.query.aggregates.Marginals`, one table for each column, charged before it
    is drawn; what is returned follows from the noisy counts alone. Every column has the same noise.

    Reference
    ---------
    docs/explanation/theorems/private-bounds.md.
    """
    cells = {name: RangeCells.from_type(name, str(field["type"])) for name, field in fields.items()}
    schema = replace(_wide_schema(cells, fields, request.table), dialect=request.dialect)
    question = bounds_question(cells)
    n_cells = max(len(one.ends) for one in cells.values())
    _check_epsilon(source, schema, question, request, n_cells)
    with QuerySession(source, schema=schema, ledger=request.ledger) as session:
        database = session.open(charged=True)
        answer = database.ask(question, privacy=request.promise(schema, request.epsilon))
        counts = question.split(np.asarray(answer.value), database.curation)
        n_rows = database.n_rows if schema.row_count == "public" else None
    limit = noise_limit(float(np.ravel(answer.sd)[0]), answer.law, n_cells, len(cells))
    found = {
        name: estimate_range(one, noisy, limit, n_rows)
        for (name, one), noisy in zip(cells.items(), counts, strict=True)
    }
    paid = f"epsilon {formatting.number(request.epsilon)}" + (
        "" if request.delta is None else f", delta {request.delta:g}"
    )
    return {
        name: _declare(cells[name], range_, f"private estimate, {paid}, receipt {answer.receipt.id}")
        for name, range_ in found.items()
        if range_ is not None
    }


def bounds_question(cells: Mapping[str, RangeCells]) -> Marginals:
    """Return the one question whose answer bounds follow from: the counts of all cells of each column."""
    return Marginals([(name,) for name in cells], edges={name: one.starts for name, one in cells.items()})


def _wide_schema(
    cells: Mapping[str, RangeCells], fields: Mapping[str, Mapping[str, Any]], table: Mapping[str, Any]
) -> Schema:
    """Return the schema under which the cells are counted: the widest bounds, and the column of ids."""
    columns: list[dict[str, Any]] = [{**fields[name], **one.column.to_dict()} for name, one in cells.items()]
    id_column = table["privacy"].get("id_column")
    if id_column is not None:
        columns.append({"name": id_column, "privacy": {"role": "id"}})
    return Schema.from_dict({**table, "fields": columns})


def _check_epsilon(
    source: Any, schema: Schema, question: Marginals, request: BoundsRequest, n_cells: int
) -> None:
    """Refuse a promise that is too strong to notice cells with many rows; by public facts alone."""
    if schema.row_count != "public" or schema.neighbors != "replace-one":
        return
    with open_table(resolve_source(source), schema=schema) as table:
        n_rows = table.count()
    model, columns = CostModel(schema, n_rows), len(question.tables)

    def rows_needed(epsilon: float) -> float:
        sd = model.expected_sd(question, privacy=request.promise(schema, epsilon))
        return noise_limit(float(np.ravel(sd)[0]), request.law, n_cells, columns)

    needed = rows_needed(request.epsilon)
    if needed <= n_rows / _NOTICED:
        return
    least = _least_epsilon(lambda epsilon: rows_needed(epsilon) <= n_rows / _NOTICED, request.epsilon)
    must = "larger" if least is None else f"at least {formatting.number(least, digits=2, rounding='up')}"
    raise PromiseError(
        f"--epsilon of private bounds must be {must} for "
        f"{formatting.count_noun(columns, 'column')} and {n_rows:,} rows, was {request.epsilon:g}: values "
        f"would be noticed only where {needed:,.0f} rows have them. Declare more bounds in a codebook, so "
        "that fewer are estimated, or give more."
    )


def _least_epsilon(is_enough: Callable[[float], bool], too_small: float) -> float | None:
    """Return an epsilon that is enough, up to 5 % above the least; None if even a very large one is not."""
    low, high = too_small, 2 * too_small
    while not is_enough(high):
        low, high = high, 2 * high
        if high > _LARGEST_EPSILON:
            return None
    while high > _CLOSE * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _declare(cells: RangeCells, found: EstimatedRange, source: str) -> dict[str, Any]:
    """Return the keys of a field that declare estimated bounds, and where they are from."""
    outside = formatting.percent(found.outside, digits=2, rounding="up").replace("\xa0", " ")
    declared = replace(cells.column, lower=found.lower, upper=found.upper).to_dict()["constraints"]
    sure = f"with probability {1 - FAILURE:g} at most {outside} of rows are outside"
    return {
        "constraints": {key: declared[key] for key in ("minimum", "maximum")},
        "privacy": {"bounds_source": f"{source}; {sure}"},
    }
