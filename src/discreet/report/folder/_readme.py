"""Words for recipients of a released table: ``README.txt``."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from discreet.formatting import count_noun, printable
from discreet.noise_law import (
    Additive,
    Clear,
    InvariantLaw,
    JointResponseLaw,
    MaskedLaw,
    ResponseLaw,
    SampledLaw,
    SyntheticLaw,
    law_from_dict,
)
from discreet.report.folder._metadata import caution, readable_type, rows_kind
from discreet.tables.duckdb import identifier, literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from discreet.report.statement.documents import ColumnNumbers, Statement

_WIDTH = 100
_FILES = {
    "readable.csv": "the table for people, spreadsheets and statistics programs",
    "data.parquet": "the table as published, with every digit: for load_release and for learning",
    "tables.json": "the noisy counts that the rows are made from, each with its standard deviation",
    "model.json": "which columns the rows take to be related",
    "prior.json": "counts of public rows that attackers were assumed to know, for the figures of the risk",
    "classifier.json": "the released classifier that training on the rows finds again",
    "datapackage.json": "columns, types, ranges and noise laws, as a Frictionless data package",
    "croissant.json": "the same for tools of machine learning, as Croissant metadata",
    "statement.html": "the promise, the noise and the attacks, to read; statement.json holds the same",
    "SHA256SUMS": "hashes of all files: sha256sum -c SHA256SUMS",
}
_ROWS = {
    "synthetic": "made up from noisy tables of counts: they belong to nobody.",
    "masked": "made up so that one learner finds the released classifier again: they belong to nobody.",
    "invariant": "of the original table, with noise that one learner does not notice.",
    "noise": "of the original table, with noise on every protected cell.",
    "clear": "of the original table, as they are.",
}
_NUMBERS = "NUMBERS WITH INTERVALS"
_CORRECTED = (
    "The noise law of each column is public, so that counts, shares, means and correlations of the true "
    "rows can be estimated from data.parquet without bias, each with a 95 % interval. In Python, after pip "
    "install discreet:"
)
_OTHERS = (
    "Where a law does not allow a number, load_release says why. The laws are in datapackage.json for other "
    "programs; statement.html shows how to correct for them in pandas."
)
_MADE_UP = (
    "Counts, shares, means, correlations and cross tables with a 95 % interval, from all noisy tables at "
    "once. In Python, after pip install discreet:"
)
_TRAINING = {
    "masked": "{learner} on data.parquet finds the classifier in classifier.json again: on all columns, with "
    "all digits (not on readable.csv), without another intercept and with the penalty in datapackage.json. "
    "Your own rows become coordinates by scale * cell + shift, which are there too. The rows say nothing "
    "else about the table: their means, counts and correlations are not those of people.",
    "invariant": "{learner} finds the same model on data.parquet, with all digits (not on readable.csv), as "
    "on the original rows. The noise depends on the rows, so that no other statistic can be corrected.",
}
_OTHER_TYPE = re.compile(r"[-+]?[0-9.].*|inf(inity)?|nan|na|true|false|[tf]", re.IGNORECASE | re.DOTALL)
"""Labels that programs may take for numbers, days or truth values."""
_OTHER_TYPE_IN_SQL = re.compile(_OTHER_TYPE.pattern + "|yes|no|[yn]", re.IGNORECASE | re.DOTALL)


def readme(statement: Statement) -> str:
    """Return the content of ``README.txt``: what the table is, how to load it, what to compute from it.

    Privacy
    -------
    Says what the statement says, and nothing else.
    """
    kind, columns = rows_kind(statement), statement.numbers.columns
    left_out = {"tables.json", "model.json", "prior.json"} - set(statement.files)
    if kind != "masked":
        left_out.add("classifier.json")
    rows = count_noun(statement.what.rows_published, "row")
    said = [f"{rows} {_ROWS[kind]}", *statement.not_protected[: kind == "synthetic"]]
    return _template("readme.txt").format(
        release=printable(statement.what.release),
        rows=_fill(said),
        promise=_fill(statement.definition.sentences),
        files="\n".join(f"{name:<18}{what}" for name, what in _FILES.items() if name not in left_out),
        pandas=_indent(_pandas_lines(columns)),
        r=_indent(_r_lines(columns)),
        sql=_indent(_sql_lines(columns)),
        use=_use(statement, kind),
    )


def _pandas_lines(columns: Sequence[ColumnNumbers]) -> list[str]:
    """Return three lines that read the table with pandas."""
    options = ['"readable.csv"', "keep_default_na=False", 'na_values=[""]']
    if dates := _of_type(columns, "date") + _of_type(columns, "datetime"):
        options.append(f"parse_dates=[{', '.join(map(_quote, dates))}]")
    if texts := _ambiguous(columns, _OTHER_TYPE):
        options.append(f"dtype={{{', '.join(f'{_quote(name)}: str' for name in texts)}}}")
    return ["import pandas", f"rows = pandas.read_csv({', '.join(options)})", "print(rows.describe())"]


def _r_lines(columns: Sequence[ColumnNumbers]) -> list[str]:
    """Return three lines that read the table with R."""
    classes = [f'{_quote(name)} = "Date"' for name in _of_type(columns, "date")]
    classes += [f'{_quote(name)} = "POSIXct"' for name in _of_type(columns, "datetime")]
    classes += [f'{_quote(name)} = "character"' for name in _ambiguous(columns, _OTHER_TYPE)]
    options = ['"readable.csv"', 'na.strings = ""', "check.names = FALSE", 'encoding = "UTF-8"']
    if classes:
        options.append(f"colClasses = c({', '.join(classes)})")
    return [f"rows <- read.csv({', '.join(options)})", "str(rows)", "summary(rows)"]


def _sql_lines(columns: Sequence[ColumnNumbers]) -> list[str]:
    """Return three lines that read the table with DuckDB."""
    types = [f"{literal(name)}: 'VARCHAR'" for name in _ambiguous(columns, _OTHER_TYPE_IN_SQL)]
    given = f", types = {{{', '.join(types)}}}" if types else ""
    shown = next((c.column for c in columns if c.levels is not None), None)
    grouped = "" if shown is None else f"{identifier(shown)}, "
    return [
        f"CREATE TABLE released AS FROM read_csv('readable.csv'{given});",
        "DESCRIBE released;",
        f"SELECT {grouped}count(*) AS n FROM released GROUP BY ALL ORDER BY n DESC;",  # noqa: S608 - quoted
    ]


def _of_type(columns: Iterable[ColumnNumbers], kind: str) -> list[str]:
    return [column.column for column in columns if readable_type(column) == kind]


def _ambiguous(columns: Iterable[ColumnNumbers], pattern: re.Pattern[str]) -> list[str]:
    """Return the columns of text with a label that a program may take for something else."""
    return [
        column.column
        for column in columns
        if column.holds == "text" and any(pattern.fullmatch(str(level)) for level in column.levels or ())
    ]


def _use(statement: Statement, kind: str) -> str:
    """Return what the rows are good for, with lines that compute a number or train a model."""
    columns = statement.numbers.columns
    if kind in ("masked", "invariant"):
        laws = [law_from_dict(column.law) for column in columns]
        learner = next(law.learner for law in laws if isinstance(law, MaskedLaw | InvariantLaw))
        return _fill([_TRAINING[kind].format(learner=learner[0].upper() + learner[1:])], "TRAIN ON IT")
    if kind == "clear":
        return _fill(["No noise was added: use the table as it is."], "USE IT")
    listed = next((c.column for c in columns if c.levels is not None and _is_countable(c)), None)
    number = next((c.column for c in columns if c.levels is None and _has_mean(c)), None)
    lines = ["import discreet", 'release = discreet.load_release(".")']
    if listed is not None:
        lines.append(f"print(release.count(by=[{_quote(listed)}]))")
    if number is not None:
        lines.append(f"print(release.mean({_quote(number)}))")
    if kind == "synthetic":
        names = [c.column for c in columns if c.levels is not None] or [columns[0].column]
        tables = _template("readme-tables.txt").format(column=_quote(names[0]))
        return f"{_fill([caution(statement), _MADE_UP], _NUMBERS)}\n{_indent(lines)}\n\n{tables.rstrip()}"
    return f"{_fill([caution(statement), _CORRECTED], _NUMBERS)}\n{_indent(lines)}\n{_fill([_OTHERS])}"


def _is_countable(column: ColumnNumbers) -> bool:
    """Return whether rows can be counted by a list without bias."""
    law = law_from_dict(column.law)
    inner = law.law if isinstance(law, SampledLaw) else law
    return isinstance(inner, ResponseLaw | JointResponseLaw | Clear | SyntheticLaw)


def _has_mean(column: ColumnNumbers) -> bool:
    """Return whether the mean of a number can be estimated without bias."""
    law = law_from_dict(column.law)
    return isinstance(law, Clear | SyntheticLaw) or (isinstance(law, Additive) and not law.clamped)


def _template(name: str) -> str:
    return (Path(__file__).parents[1] / "templates" / name).read_text(encoding="utf-8").rstrip() + "\n"


def _fill(sentences: Iterable[str], title: str | None = None) -> str:
    """Return sentences as paragraphs of short lines, one each, under a title."""
    lines = [textwrap.fill(printable(sentence), _WIDTH) for sentence in sentences]
    return "\n".join(lines if title is None else [title, *lines])


def _indent(lines: Iterable[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)


def _quote(name: str) -> str:
    """Return a string of Python and of R; hidden characters are escaped."""
    return json.dumps(name, ensure_ascii=printable(name) != name)
