"""Files that follow from a statement alone: data package and Croissant metadata of a table, card of a model.

The data dictionary of a released table is a Frictionless data package, ``datapackage.json``.
"""

from __future__ import annotations

import inspect
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from discreet import learn
from discreet.formatting import count_noun, date, name, number, printable
from discreet.report.statement.documents import write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from discreet.report.statement.documents import ColumnNumbers, DeclaredBound, Statement
    from discreet.report.statement.model_documents import ModelStatement

PROFILE = "https://datapackage.org/profiles/2.0/"
_CAUTIONS = {
    "noise": "Numbers of readable.csv are clamped to their declared ranges and rounded, so that means and "
    "variances of columns with noise are biased: take them from data.parquet by discreet.load_release.",
    "synthetic": "Rows are made up, and do not show how uncertain a number is: take counts, shares and means "
    "with intervals from tables.json by discreet.load_release.",
    "masked": "Numbers of readable.csv are rounded, which moves the model: train on data.parquet.",
    "invariant": "Numbers of readable.csv are clamped and rounded, which moves the model: train on "
    "data.parquet.",
    "clear": "Cells are those of data.parquet.",
}
_TYPES = {
    "number": "number", "integer": "integer", "text": "string", "boolean": "boolean", "date": "date",
    "datetime": "datetime",
}  # fmt: skip
_JSON_FILES = {
    "tables.json": "Every noisy answer with its standard deviation.",
    "model.json": "The model from which the rows are drawn, made of these answers.",
    "prior.json": "Counts of public rows that attackers were assumed to know, for the figures of the risk.",
}
_TERMS = (
    "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field", "fileObject",
    "fileProperty", "fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath", "key", "md5",
    "parentField", "path", "recordSet", "references", "regex", "repeated", "replace", "samplingRate",
    "separator", "source", "subField", "transform",
)  # fmt: skip
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    **{term: f"cr:{term}" for term in _TERMS},
}
_DATA_TYPES = {
    "number": "cr:Float64",
    "integer": "cr:Int64",
    "text": "sc:Text",
    "boolean": "sc:Boolean",
    "date": "sc:Date",
    "datetime": "sc:DateTime",
}
_FORMATS: dict[str, Any] = {
    "data.parquet": "application/x-parquet",
    "readable.csv": "text/csv",
    "tables.json": "application/json",
    "model.json": "application/json",
    "prior.json": "application/json",
}
_FILE_SET = {
    "@type": "cr:FileSet",
    "@id": "data.parquet",
    "name": "data.parquet",
    "encodingFormat": _FORMATS["data.parquet"],
    "includes": "data.parquet/*.parquet",
}
"""Parts of a table that is a folder of files, as one source of records."""
_LONGEST = 200  # characters of a parameter that are shown; the statement has all of them


def rows_kind(statement: Statement) -> str:
    """Return which rows a release has: made up (two kinds), true ones with noise, or true ones without."""
    kinds = {str(column.law["kind"]) for column in statement.numbers.columns}
    for kind in ("synthetic", "masked", "invariant"):
        if any(found.startswith(kind) for found in kinds):
            return kind
    return "clear" if kinds <= {"clear"} else "noise"


def caution(statement: Statement) -> str:
    """Return what a recipient has to know about the readable copy, in one sentence."""
    return _CAUTIONS[rows_kind(statement)]


def readable_type(column: ColumnNumbers) -> str:
    """Return what the cells of a column are in the readable copy: as declared, unless copied as they are."""
    return column.holds if column.step is None else column.type


def data_package(statement: Statement) -> str:
    """Return the content of ``datapackage.json``: a function of the statement alone.

    Privacy
    -------
    Says what the statement says, and nothing else.
    """
    what, files = statement.what, statement.files
    columns, bounds = statement.numbers.columns, {bound.column: bound for bound in statement.bounds}
    rows = count_noun(what.rows_published, "row")
    package: dict[str, Any] = {
        "$schema": PROFILE + "datapackage.json",
        "name": _identifier(what.release),
        "title": what.release,
        "description": " ".join(filter(None, [what.purpose, *statement.definition.sentences])),
        "created": what.created,
        "resources": [
            {
                **_resource("readable", "readable.csv", files),
                "description": f"{rows} to read and plot. {caution(statement)}",
                "type": "table",
                "format": "csv",
                "mediatype": "text/csv",
                "encoding": "utf-8",
                "schema": _schema([_readable_field(c, bounds.get(c.column)) for c in columns]),
            },
            {
                **_resource("data", "data.parquet", files),
                "description": f"{rows} as published, with all digits; a missing cell is a null.",
                "type": "table",
                "format": "parquet",
                "mediatype": "application/vnd.apache.parquet",
                "schema": _schema([_published_field(c) for c in columns]),
            },
            *(
                {
                    **_resource(name.removesuffix(".json"), name, files),
                    "description": described,
                    "format": "json",
                    "mediatype": "application/json",
                }
                for name, described in _JSON_FILES.items()
                if name in files
            ),
        ],
    }
    if what.curator is not None:
        package["contributors"] = [{"title": what.curator, "roles": ["publisher"]}]
    if what.license is not None:
        package["licenses"] = [_license(what.license)]
    return write_json(package)


def _resource(name: str, path: str, files: Mapping[str, str]) -> dict[str, Any]:
    parts = sorted(part for part in files if part.startswith(f"{path}/"))
    if parts:  # a table in parts, whose hashes are in the statement
        return {"name": name, "path": parts}
    return {"name": name, "path": path, "hash": f"sha256:{files.get(path, '')}"}


def _schema(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "$schema": PROFILE + "tableschema.json",
        "fields": fields,
        "missingValues": [""],
    }


def _readable_field(column: ColumnNumbers, bound: DeclaredBound | None) -> dict[str, Any]:
    """Return a column of the readable copy, whose cells fulfill the declared constraints."""
    kind = readable_type(column)
    constraints = _constraints(column)
    if column.levels is None:
        ends: tuple[Any, ...] = (column.lower, column.upper)
        if kind in ("date", "datetime") and bound is not None:
            ends = (bound.lower, bound.upper)
        elif kind == "integer":
            ends = tuple(None if end is None else int(end) for end in ends)
        constraints |= {
            key: end for key, end in zip(("minimum", "maximum"), ends, strict=True) if end is not None
        }
    field = _field(column, kind, constraints)
    if kind == "datetime":
        field["format"] = "%Y-%m-%d %H:%M:%S"
    return field if column.step is None else field | {"privacy": {"step": column.step}}


def _published_field(column: ColumnNumbers) -> dict[str, Any]:
    """Return a column of the published file with its noise law and what that proves."""
    stated = column.model_dump(
        include={"role", "law", "law_in_words", "origin", "floor", "without", "epsilon"}
    )
    return _field(column, column.holds, _constraints(column)) | {
        "privacy": {key: value for key, value in stated.items() if value is not None}
    }


def _field(column: ColumnNumbers, kind: str, constraints: dict[str, Any]) -> dict[str, Any]:
    unit = {} if column.measure is None or column.levels is not None else {"unit": column.measure}
    return {
        "name": column.column,
        "type": _TYPES[kind],
        "description": column.sentence,
        **unit,
        "constraints": constraints,
    }


def _constraints(column: ColumnNumbers) -> dict[str, Any]:
    if column.levels is None:
        # A number that only some rows show is empty in the others.
        return {"required": not column.missing and column.law["kind"] != "sampled"}
    listed = [level for level in column.levels if level is not None]
    return {"required": len(listed) == len(column.levels), "enum": listed}


def _identifier(text: str) -> str:
    """Return a text with the characters of a name in a data package."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-") or "table"


def _license(text: str) -> dict[str, str]:
    """Return the curator's word for the terms: an address, or a title with a name made of it."""
    if re.match(r"https?://", text):
        return {"path": text}
    return {"name": re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-") or "other", "title": text}


def croissant(statement: Statement) -> str:
    """Return the content of ``croissant.json``."""
    what, numbers = statement.what, statement.numbers
    rows = count_noun(what.rows_published, "row")
    protected = [c.column for c in numbers.columns if c.role in ("sensitive", "target")]
    in_parts = "data.parquet" not in statement.files
    described: dict[str, Any] = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": [
            "http://mlcommons.org/croissant/1.1",
            "http://mlcommons.org/croissant/RAI/1.0",
        ],
        "name": what.release,
        "description": " ".join(
            [
                what.purpose or f"A table of {what.rows_published} rows, released by discreet.",
                *statement.definition.sentences,
                "See statement.json for everything that is promised, and datapackage.json for the noise "
                "of each column.",
            ]
        ),
        "citeAs": f"{what.curator or 'The curator'} ({what.created[:4]}). {what.release}.",
        "version": "1.0.0",
        "datePublished": what.created,
        "isLiveDataset": False,
        "distribution": [_file(name, digest) for name, digest in sorted(statement.files.items())]
        + [_FILE_SET] * in_parts,
        "recordSet": [
            _record_set(
                "rows",
                f"{rows} as published.",
                [(c, "data.parquet", c.holds) for c in numbers.columns],
                source="fileSet" if in_parts else "fileObject",
            ),
            _record_set(
                "readable",
                f"{rows} to read and plot. {caution(statement)}",
                [(c, "readable.csv", readable_type(c)) for c in numbers.columns],
            ),
        ],
        "rai:personalSensitiveInformation": protected,
        "rai:dataLimitations": statement.not_protected,
        "rai:dataManipulationProtocol": statement.implementation.sampler,
    }
    if what.curator is not None:
        described["creator"] = {"@type": "sc:Organization", "name": what.curator}
    if what.license is not None:
        described["license"] = what.license
    return write_json(described)


def _file(name: str, digest: str) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": name,
        "encodingFormat": _FORMATS.get(name.partition("/")[0], "application/octet-stream"),
        "sha256": digest,
    }


def _record_set(
    name: str, text: str, columns: list[tuple[ColumnNumbers, str, str]], source: str = "fileObject"
) -> dict[str, Any]:
    """Return a record set: for each column, the file that it is read from and what its cells are there."""
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": text,
        "field": [
            {
                "@type": "cr:Field",
                # A name may hold anything; an identifier may not.
                "@id": f"{name}/{quote(column.column, safe='')}",
                "name": column.column,
                "description": f"{column.sentence} Law of what is published: {column.law_in_words}.",
                "dataType": _DATA_TYPES[kind],
                "source": {source: {"@id": file}, "extract": {"column": column.column}},
            }
            for column, file, kind in columns
        ],
    }


def model_card(statement: ModelStatement) -> str:
    """Return the content of ``model-card.md``.

    Privacy
    -------
    Says what the statement says, and nothing else.
    """
    return "\n".join(_lines(statement)) + "\n"


def _lines(statement: ModelStatement) -> Iterator[str]:
    """Yield the lines of a model card, in the order of its sections."""
    what, model = statement.what, statement.what.model
    yield f"# {_text(what.release)}\n"
    kind = learn.METHODS.get(model.name)
    summary = "" if kind is None else (inspect.getdoc(kind) or "").partition("\n")[0]
    yield f"`{_code(model.name)}` ({_code(model.learner)}). {summary}\n"
    yield from _about(statement)
    if statement.quality is not None:
        yield "\n## How good it is\n"
        yield from (f"- {_text(sentence)}" for sentence in statement.quality.sentences)
        if (signal := statement.quality.signal) is not None:
            yield f"- Signal: {number(signal)} rows for each standard deviation of noise on a count."
        if statement.quality.expected is not None:
            yield "\n[model.html](model.html) shows the effect of each column as a picture, with its noise."
    yield "\n## What is promised\n"
    yield from (f"- {_text(sentence)}" for sentence in statement.definition.sentences)
    yield f"- {_text(statement.definition.deployment)}"
    yield f"\nSo far: {_text(statement.composition.total)}"
    yield f"\nTuning on private rows: {statement.tuning.on_private_rows}. {_text(statement.tuning.why)}"
    yield "\n## What is not protected\n"
    yield from (f"- {_text(sentence)}" for sentence in statement.not_protected)
    yield "\n## How to use it\n"
    columns = f"a frame with the columns {', '.join(f'`{_code(c)}`' for c in what.reads)}"
    yield f"`rows` is {columns}; cells are clipped to what is declared below.\n"
    yield "```python\nfrom discreet import load_model"
    yield 'model = load_model("public")  # this folder; reading it runs no code'
    yield f"model.{'predict' if kind is None or hasattr(kind, 'predict') else 'transform'}(rows)\n```\n"
    if statement.quality is None or statement.quality.score is None:
        yield "Its accuracy on the training rows was not measured. Test it on rows of your own."
    else:
        yield "Its accuracy on the training rows is stated above. Test it on rows of your own as well."
    yield ("\n## Parameters\n")
    yield "| parameter | value |\n|---|---|"
    for parameter, value in sorted(model.parameters.items()):
        text = json.dumps(value, ensure_ascii=False, sort_keys=True)
        shown = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
        yield f"| `{_code(parameter)}` | `{_code(shown)}` |"
    yield "\n## What was asked of the rows\n"
    yield "| pass | part of the promise | charged |\n|---|---|---|"
    for part in statement.passes:
        paid = "not asked" if part.receipt is None else _receipt(part.receipt)
        share = "-" if part.share is None else number(part.share)
        yield f"| {_text(part.name)} | {share} | {paid} |"
    yield "\n## What is declared about the rows\n"
    yield "| column | may hold | who says so |\n|---|---|---|"
    for bound in statement.bounds:
        yield f"| `{_code(bound.column)}` | {_describe_values(bound)} | {_text(bound.source or '')} |"
    yield f"\nSchema: `{_code(statement.digest)}`. Model: `{_code(next(iter(statement.files.values())))}`."
    yield "Anyone can re-check all of this: `discreet verify public`."


def _about(statement: ModelStatement) -> Iterator[str]:
    what = statement.what
    rows = "a number of rows that is not public" if what.rows is None else count_noun(what.rows, "row")
    yield f"- Trained on {rows} of {_text(what.dataset or 'a table')}, {date(what.created)}."
    yield f"- Predicts `{_code(what.predicts)}`." if what.predicts else "- Predicts no column."
    unit = _text(statement.unit.unit)
    used = f"at most {count_noun(statement.unit.max_rows_per_unit, 'row')} of each {unit}"
    yield f"- Protected is one {unit} ({statement.unit.neighbors}); used are {used}."
    for word in ("curator", "purpose", "contact", "license", "supersedes"):
        if value := getattr(what, word):
            yield f"- {word.capitalize()}: {_text(value)}"


def _receipt(receipt: dict[str, object]) -> str:
    seq = receipt.get("seq")
    return "without a ledger" if seq is None else f"row {seq} of the ledger"


def _describe_values(bound: DeclaredBound) -> str:
    if bound.values is not None:
        listed = ", ".join(str(value) for value in bound.values)
        words = listed if len(listed) <= _LONGEST else f"{len(bound.values)} declared values"
    else:
        words = f"{bound.lower} to {bound.upper}"
    return _text(words + (", or nothing" if bound.missing else ""))


def _text(words: str) -> str:
    """Return an untrusted text for Markdown: on one line, with all markup escaped."""
    shown = name(printable(words))
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#!&" else c for c in shown)


def _code(words: str | None) -> str:
    """Return a text for use between backticks, which it cannot end."""
    return name(printable(words or "")).replace("`", "'").replace("|", "\\|")
