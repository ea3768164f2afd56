"""Shape of a schema file: the keys of its blocks, and the sentences for whatever has another shape.

The keys that say how a table is written are read into a dialect and text formats here, and written from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from discreet.arguments import nearest
from discreet.schema.dialect import Dialect, TextFormat
from discreet.schema.notation import TEXT_KEYS, UNFILLED, quote_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet.schema.dialect import FieldDraft

FIELD_TYPES = ("string", "number", "integer", "boolean", "date", "datetime")
OTHER_TYPE_WORDS = {
    "bool": "boolean", "category": "string", "categorical": "string",
    "double": "number", "enum": "string", "float": "number", "int": "integer", "str": "string",
    "text": "string", "timestamp": "datetime", "varchar": "string", "year": "integer",
}  # fmt: skip
_FILLINGS = {
    "minimum": "<smallest possible>",
    "maximum": "<largest possible>",
    "enum": "[<first>, <second>]",
    "bounds_source": "<who says so>",
    "censored": "<missing, limit or half>",
    "format": "<%d/%m/%Y or %m/%d/%Y>",
    "proposals": "confirmed",
    "max_rows_per_unit": "<most rows of one person>",
    "dataset": "<name>-<year>",
    "fields": "[{name: <name>, type: <type>}]",
}
_Names = Annotated[list[str], BeforeValidator(lambda key: [key] if isinstance(key, str) else key)]
_MUST_BE = {
    "model_type": ("a block of keys and values", "{<key>: <value>}"),
    "list_type": ("a list", "[<first>, <second>]"),
    "string_type": ("a string", '"<text>"'),
    "literal_error": ("schema", "schema"),
}


class KeyBlock(BaseModel):
    """A block of keys and values, in which a key that is not known is an error."""

    model_config = ConfigDict(extra="forbid", strict=True)


class DialectBlock(KeyBlock):
    """The block ``dialect`` of a table."""

    delimiter: Any = None
    encoding: Any = None
    decimal_char: Any = Field(default=None, alias="decimalChar")
    group_char: Any = Field(default=None, alias="groupChar")
    header: Any = True
    header_rows: Any = Field(default=[1], alias="headerRows")
    skip_blank_rows: Any = Field(default=False, alias="skipBlankRows")


class TextKeys(KeyBlock):
    """The keys of a field that say how its cells are written."""

    date_format: Any = Field(default=None, alias="format")
    decimal_char: Any = Field(default=None, alias="decimalChar")
    group_char: Any = Field(default=None, alias="groupChar")
    true_values: list[Any] = Field(default=[], alias="trueValues")
    false_values: list[Any] = Field(default=[], alias="falseValues")
    units: list[Any] = []
    censored: Any = None
    missing_values: list[Any] | None = Field(default=None, alias="missingValues")


def read_dialect(block: DialectBlock | None) -> Dialect | None:
    """Return the dialect that a block declares; None where there is no block."""
    if block is None:
        return None
    rows = block.header_rows
    return Dialect(
        delimiter=block.delimiter,
        encoding=block.encoding,
        decimal_char=block.decimal_char,
        group_char=block.group_char,
        header=block.header,
        header_row=rows[0] if isinstance(rows, list) and len(rows) == 1 else rows,
        skip_blank_rows=block.skip_blank_rows,
    )


def read_text_format(keys: TextKeys) -> TextFormat | None:
    """Return the format that the keys of a field declare; None where there are none."""
    given = {name: getattr(keys, name) for name in TEXT_KEYS}
    if given["date_format"] == "default":  # Frictionless's word for ISO 8601
        given["date_format"] = None
    return TextFormat(**given) if any(value not in (None, []) for value in given.values()) else None


def dialect_document(dialect: Dialect | None) -> dict[str, Any] | None:
    """Return the block that declares a dialect; None for none."""
    if dialect is None:
        return None
    pairs = {
        "delimiter": dialect.delimiter,
        "encoding": dialect.encoding,
        "decimalChar": dialect.decimal_char,
        "groupChar": dialect.group_char,
        "header": None if dialect.header else False,
        "headerRows": None if dialect.header_row == 1 else [dialect.header_row],
        "skipBlankRows": dialect.skip_blank_rows or None,
    }
    return {key: value for key, value in pairs.items() if value is not None}


def text_document(text: TextFormat | None, missing_values: tuple[str, ...] | None) -> dict[str, Any]:
    """Return the keys of a field that say how its cells are written."""
    pairs: dict[str, Any] = {}
    for name, key in TEXT_KEYS.items() if text is not None else ():
        value = getattr(text, name)
        if value not in (None, ()):
            pairs[key] = list(value) if isinstance(value, tuple) else value
    if missing_values is not None:
        pairs["missingValues"] = list(missing_values)
    return pairs


def draft_keys(field: FieldDraft) -> dict[str, Any]:
    """Return the keys of a field for what a table says of one column."""
    keys: dict[str, Any] = {} if field.title is None else {"title": field.title}
    keys |= text_document(field.text, field.missing_values)
    if field.values is not None:
        keys["constraints"] = {"enum": list(field.values)}
        keys["privacy"] = {"bounds_source": "labels in the file"}
    return keys


_Model = TypeVar("_Model", bound=KeyBlock)


class _Constraints(KeyBlock):
    minimum: Any = None
    maximum: Any = None
    enum: list[Any] | None = None
    required: Any = True


class _Protect(KeyBlock):
    error: Any = None
    share: Any = None


class _FieldPrivacy(KeyBlock):
    role: Any = "sensitive"
    closed: Any = None
    measure: Any = None
    protect: _Protect | None = None
    bounds_source: Any = None
    grid: Any = None
    cells: list[Any] | None = None
    step: Any = None
    scale: Any = None


class FieldSettings(TextKeys):
    """Keys of a field that defaults and patterns may give too."""

    type: str | None = None
    title: Any = None
    description: Any = None
    constraints: _Constraints = _Constraints()
    privacy: _FieldPrivacy = _FieldPrivacy()


class FieldBlock(FieldSettings):
    """Keys of a field, with its name."""

    name: str


class _TablePrivacy(KeyBlock):
    kind: Literal["schema"] = "schema"
    dataset: Any = None
    unit: Any = "person"
    id_column: Any = None
    max_rows_per_unit: Any = None
    neighbors: Any = "replace-one"
    row_count: Any = "public"


class TableBlock(KeyBlock):
    """Keys of a whole file; fields are checked one by one."""

    fields: list[Any]
    profile: str | None = Field(default=None, alias="$schema")  # Frictionless's own version mark
    title: Any = None
    description: Any = None
    missing_values: list[Any] = Field(default=[""], alias="missingValues")
    dialect: DialectBlock | None = None
    primary_key: _Names = Field(default=[], alias="primaryKey")
    proposals: Any = None
    defaults: Any = None
    patterns: list[Any] = Field(default=[])
    privacy: _TablePrivacy = _TablePrivacy()


def find_unfilled(content: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every value that still is the mark of a draft."""
    if path and content == UNFILLED:
        yield path
    elif isinstance(content, Mapping):
        for key, value in content.items():
            yield from find_unfilled(value, (*path, str(key)))


def unfilled_sentence(where: str, path: tuple[str, ...]) -> str:
    line = _line(path, _FILLINGS.get(path[-1], f"<{path[-1]}>"))
    return f"{where}: {'.'.join(path)} is still {UNFILLED}. Write {line}."


def _line(path: tuple[int | str, ...], value: str) -> str:
    """Return the line that sets a value at a path."""
    *blocks, key = path
    line = f"{key}: {value}"
    for block in reversed(blocks):
        line = f"{block}: {{{line}}}"
    return line


def validate_shape(model: type[_Model], content: object, where: str, problems: list[str]) -> _Model | None:
    """Return the content as a model, or None; append the errors of its shape to the problems.

    Unknown keys are reported and then removed, so that the rest is checked too.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        findings = error.errors()
    problems += [_shape_sentence(model, where, finding) for finding in findings]
    if any(finding["type"] != "extra_forbidden" for finding in findings):
        return None
    return model.model_validate(_remove_paths(content, {finding["loc"] for finding in findings}))


def _remove_paths(content: Any, paths: set[tuple[int | str, ...]]) -> Any:
    """Return nested mappings without the keys at these paths."""
    if not isinstance(content, Mapping):
        return content
    deeper = {key: {path[1:] for path in paths if path[0] == key} for key in content}
    return {key: _remove_paths(value, deeper[key]) for key, value in content.items() if () not in deeper[key]}


def _shape_sentence(model: type[BaseModel], where: str, finding: Mapping[str, Any]) -> str:
    """Return an error of pydantic as a sentence with the line that corrects it."""
    *blocks, key = finding["loc"] or ("",)
    if finding["type"] == "extra_forbidden":
        keys = [field.alias or name for name, field in _nested_model(model, blocks).model_fields.items()]
        inside = f"{'.'.join(map(str, blocks))} " if blocks else ""
        close = nearest(key, keys)
        way = f"Did you mean {close!r}?" if close else f"The keys are {', '.join(keys)}."
        return f"{where}: {inside}has no key {quote_value(key)}. {way}"
    path = ".".join(map(str, finding["loc"])) or "it"
    if finding["type"] == "missing":
        line = _line(finding["loc"], _FILLINGS.get(key, f"<{key}>"))
        return f"{where}: {path} must be given, and was left out. Write {line}."
    must, example = _MUST_BE.get(finding["type"], ("as in the reference", "<value>"))
    line = _line(finding["loc"], example) if finding["loc"] else f"- {example}"
    return f"{where}: {path} must be {must}, was {quote_value(finding['input'])}. Write {line}."


def _nested_model(model: type[BaseModel], blocks: list[str]) -> type[BaseModel]:
    """Return the model of a nested block by the names of its blocks."""
    for block in blocks:
        annotation = model.model_fields[block].annotation
        models = [annotation, *get_args(annotation)]
        model = next(m for m in models if isinstance(m, type) and issubclass(m, BaseModel))
    return model
