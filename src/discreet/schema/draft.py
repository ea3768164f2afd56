"""The start of a schema file: names, types, and a mark wherever a person must fill something in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.errors import ParameterError
from discreet.schema.text import write_word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HEAD = """\
# A draft. Replace every ??? by what you know from a codebook, a law or an instrument, never by what
# you see in the rows: this file is published. Names and types are all that was read from the table.
privacy:
  dataset: ???  # a lasting name, the same for every version of this table: survey-2024
  unit: person  # whom a promise protects
  # If one person has several rows, say which column tells them and how many rows of one to use:
  # id_column: person_id
  # max_rows_per_unit: 5
  neighbors: replace-one  # or add-remove
  row_count: public  # or private
missingValues: [""]  # what stands for an empty cell in a text file
fields:
"""
_ROLES = "sensitive, target, public, id or drop"
_BOUNDED = """\
      minimum: ???  # the smallest value anybody may have
      maximum: ???  # the largest
"""
_LISTED = """\
      enum: ???  # everything it may hold, ["one", "two"]; free text cannot be protected: role: drop
"""
_BODIES = {
    "number": _BOUNDED,
    "integer": _BOUNDED,
    "date": _BOUNDED.replace("the smallest value anybody may have", "the earliest possible day"),
    "string": _LISTED,
    "boolean": "",
}


def draft(types: Mapping[str, str]) -> str:
    """Return the text of a schema file for columns of these names and types."""
    return _HEAD + "".join(line for name, type_ in types.items() for line in _field(name, type_))


def _field(name: str, type_: str) -> Iterator[str]:
    if type_ not in _BODIES:
        raise ParameterError(
            f"Schema.draft: the type of column {name!r} must be one of {', '.join(_BODIES)}, was "
            f"{type_!r}. Call free text, times and nested values string: they can only be dropped."
        )
    yield f"  - name: {write_word(name)}\n    type: {type_}\n    constraints:\n{_BODIES[type_]}"
    yield "      required: true  # false if cells may be empty\n    privacy:\n"
    yield f"      role: sensitive  # {_ROLES}\n"
    if _BODIES[type_]:
        yield "      bounds_source: ???  # who says so: codebook, law, instrument\n"
    if _BODIES[type_] is not _LISTED and type_ in ("number", "integer"):
        yield "      # measure: years  # the unit people say\n"
