"""``croissant.json``: the released table as a Croissant data set, for machine-learning tools.

Croissant 1.1 is JSON-LD over schema.org. Nothing in it is private: it is a function of the statement alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from discreet.report._json import write_json

if TYPE_CHECKING:
    from discreet.report.statement import ColumnNumbers, Statement

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
}
_FORMATS: dict[str, Any] = {
    "data.parquet": "application/x-parquet",
    "data.csv.gz": ["text/csv", "application/gzip"],
}


def croissant(statement: Statement) -> str:
    """Return the content of ``croissant.json``."""
    what, numbers = statement.what, statement.numbers
    protected = [c.column for c in numbers.columns if c.role in ("sensitive", "target")]
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
                "See statement.json for everything that is promised, and dictionary.csv for the noise of "
                "each column.",
            ]
        ),
        "citeAs": f"{what.curator or 'The curator'} ({what.created[:4]}). {what.release}.",
        "version": "1.0.0",
        "datePublished": what.created,
        "isLiveDataset": False,
        "distribution": [_file(name, digest) for name, digest in sorted(statement.files.items())],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "rows",
                "name": "rows",
                "description": f"{what.rows_published} rows, one for each line of the released table.",
                "field": [_field(column) for column in numbers.columns],
            }
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
        "encodingFormat": _FORMATS.get(name, "application/octet-stream"),
        "sha256": digest,
    }


def _field(column: ColumnNumbers) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        # A name may hold anything; an identifier may not.
        "@id": f"rows/{quote(column.column, safe='')}",
        "name": column.column,
        "description": f"{column.sentence} Law of what is published: {column.law_in_words}.",
        "dataType": _DATA_TYPES[column.holds],
        "source": {"fileObject": {"@id": "data.parquet"}, "extract": {"column": column.column}},
    }
