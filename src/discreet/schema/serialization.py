"""Reading and writing of schema files as YAML and JSON, with a strict subset of YAML.

YAML 1.1 turns ``NO`` into false, ``1:30`` into ninety, ``01234`` into 668 and ``1e5`` into a
string, each of which can silently change a list of categories. Here a plain word is a string unless
it is ``true``, ``false``, ``null``, or a decimal number without a leading zero; dates stay strings
until a column is declared as a date. Repeated keys, anchors, tags, deep nesting and huge files
are errors: no description of a table needs them, and each is a known way to hide something or to
stall a parser.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, ClassVar

import yaml

from discreet.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping
    from pathlib import Path

_LONGEST_FILE = 4_000_000  # characters: some ten thousand columns, or a list of 200,000 values
_DEEPEST = 20

# Types of a plain word besides a string, each with its pattern and first characters.
_MEANINGS = (
    ("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false|True|False)$"), "tfTF"),
    ("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), "-+0123456789"),
    (
        "tag:yaml.org,2002:float",
        re.compile(
            r"^(?:[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
        ),
        "-+.0123456789",
    ),
)


class _Loader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """Safe loader with the types above and without repeated keys."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return a mapping; raise an error for a repeated key, of which YAML would keep the last."""
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise yaml.MarkedYAMLError(problem="a key is no string", problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} stands twice in one block",
                    problem_mark=key.start_mark,
                )
            seen.add(key.value)
        constructed: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return constructed


class _Dumper(yaml.SafeDumper):
    """Safe dumper that quotes strings which this or a standard loader would read as another type."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent lists inside mappings."""
        super().increase_indent(flow, False)


for _tag, _pattern, _first in _MEANINGS:
    _Loader.add_implicit_resolver(_tag, _pattern, list(_first))
    _Dumper.add_implicit_resolver(_tag, _pattern, list(_first))


def read_file(path: Path) -> dict[str, Any]:
    """Return the content of a schema file: JSON if its name ends in ``.json``, YAML otherwise."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SchemaError(
            f"Schema.load: path must be a file that can be read, was {str(path)!r} "
            f"({error.strerror}). Start one with `discreet init TABLE`."
        ) from error
    except UnicodeDecodeError as error:
        raise SchemaError(
            f"The schema file {path.name!r} must be text in UTF-8, and byte {error.start} is not. "
            "Save it as UTF-8."
        ) from error
    return read_json(text) if path.suffix.casefold() == ".json" else read_yaml(text)


def read_yaml(text: str) -> dict[str, Any]:
    """Return the content of YAML text, a mapping at the top."""
    _check_length(text)
    try:
        depth = 0
        for event in yaml.parse(text, Loader=_Loader):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise _yaml_error("an anchor (& or *) is used", event)
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                raise _yaml_error(f"it is nested more than {_DEEPEST} deep", event)
        content = yaml.load(text, Loader=_Loader)  # noqa: S506, a subclass of the safe loader
    except (yaml.YAMLError, ValueError) as error:
        raise SchemaError(_yaml_sentence(error)) from None
    return _check_mapping(content)


def _yaml_error(problem: str, event: Any) -> yaml.MarkedYAMLError:
    """Return a problem at an event of the parser as the error that the parser itself would raise there."""
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def read_json(text: str) -> dict[str, Any]:
    """Return the content of JSON text, an object at the top."""
    _check_length(text)
    try:
        content = json.loads(text, object_pairs_hook=_check_unique_keys)
    except RecursionError:
        raise SchemaError(
            f"The schema file is nested more than {_DEEPEST} deep. Write it as in the reference."
        ) from None
    except ValueError as error:
        where = f"line {error.lineno} " if isinstance(error, json.JSONDecodeError) else ""
        what = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise SchemaError(
            f"The schema file must be JSON, and {where}is not: {what}. Correct it, or write YAML."
        ) from None
    return _check_mapping(content)


def write_yaml(content: Mapping[str, Any]) -> str:
    """Return YAML text that this and every other YAML parser reads as the same content."""
    return yaml.dump(
        dict(content),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=100,
        default_flow_style=None,
    )


def write_flow(value: Any) -> str:
    """Return a value in YAML on one line, with quotes only where they are necessary."""
    text: str = yaml.dump(
        [value], Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1e9, default_flow_style=True
    )
    return text.strip()[1:-1]


def _check_length(text: str) -> None:
    if len(text) > _LONGEST_FILE:
        raise SchemaError(
            f"The schema file must have at most {_LONGEST_FILE:,} characters, has {len(text):,}. "
            "Leave out long descriptions, or describe a narrower table."
        )


def _check_mapping(content: object) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise SchemaError(
            f"The schema file must hold keys and values, was a {type(content).__name__}. "
            "Begin it with `fields:`."
        )
    return content


def _check_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one block")
    return content


def _yaml_sentence(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1} " if mark is not None else ""
    what = getattr(error, "problem", None) or "a sign or a number in it cannot be read"
    return f"The schema file must be plain YAML, and {where}is not: {what}. Correct it."
