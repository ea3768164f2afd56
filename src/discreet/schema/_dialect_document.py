"""Keys of a schema file that say how a table is written: read from its content, and written to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from discreet.schema.dialect import Dialect, TextFormat
from discreet.schema.notation import TEXT_KEYS

if TYPE_CHECKING:
    from discreet.schema.dialect import FieldDraft


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
