"""Messages about a configuration that is wrong: which key, what it must be, what it was, the way out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import BaseModel

from discreet.arguments import nearest
from discreet.server.dataset_config import LIMITS, MISSING_LIMIT, Limit

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic.fields import FieldInfo

GIVEN_KEYS = ("name", "people_limit")
"""Keys that an entry gets from its place, and not from its writer."""


def describe_errors(problem: ValidationError, source: str, model: type[BaseModel]) -> str:
    """Return one line for each wrong key: what it must be, what it was, the way out.

    Parameters
    ----------
    problem : ValidationError
        What is wrong with the configuration.
    source : str
        Name of its file, for the message.
    model : type
        Model that it was read as.
    """
    lines = []
    errors = problem.errors(include_url=False)
    if any(error["loc"][0] == "people" for error in errors if error["loc"]):
        # Data sets of people who could not be read are not wrong themselves.
        errors = [error for error in errors if error["loc"][:1] != ("datasets",)]
    for error in errors:
        key = ".".join(str(part) for part in error["loc"])
        message = str(error["msg"]).removeprefix("Value error, ")
        if error["type"] == "extra_forbidden":
            message = _describe_unknown_key(error["loc"], model)
        elif error["type"] == "missing":
            message = f"is required. {_MISSING.get(str(error['loc'][-1]), 'Add it.')}"
        elif error["loc"][:1] == ("datasets",) and error["loc"][2:] in (("name",), ("[key]",)):
            key, message = f"datasets.{error['loc'][1]}", _NAME
        elif error["type"] == "value_error" and _is_entry(error["loc"]) and ": " in message:
            # The check of a whole entry names the key before a colon.
            wrong, _, message = message.partition(": ")
            key = f"{key}.{wrong}".removeprefix(".")
        elif error["type"] == "too_short":
            message = f"must not be empty. {_suggestion(error, model)}"
        elif error["type"] != "value_error":
            message = f"{_requirement(error)}{_actual_value(error)}. {_suggestion(error, model)}"
        lines.append(f"{key} of {source} {message}" + "." * (message[-1] not in ".?"))
    return "\n".join(dict.fromkeys(lines))


def _is_entry(loc: tuple[int | str, ...]) -> bool:
    """Return whether an error is about a whole entry, or about the whole configuration."""
    return not loc or loc in (("sign_in",), ("datasets",)) or (len(loc) == 2 and loc[0] != "sign_in")


_NAME = (
    "must be a name of at most 128 letters, digits, dots, underscores and hyphens that begins with a letter "
    "or a digit, since it is part of addresses. Rename it, and `dataset:` of its schema too"
)
_EXPECTED = {
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "path_type": "must be the path of a file",
    "is_instance_of": "must be the path of a file",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "model_type": "must be a mapping of keys to values",
    "dict_type": "must be a mapping of keys to values",
    "list_type": "must be a list",
    "string_pattern_mismatch": "must be a word without spaces",
    "finite_number": "must be a finite number",
}


def _requirement(error: Any) -> str:
    """Return what a value must be."""
    message = str(error["msg"])
    message = message.replace("greater than or equal to", "at least").replace(
        "less than or equal to", "at most"
    )
    return _EXPECTED.get(error["type"]) or re.sub(r"^(Input|String) should", "must", message)


def _actual_value(error: Any) -> str:
    """Return what a value was; nothing where it could hold a password or be long."""
    value = error["input"]
    if value is None:
        return ", was left empty"
    if isinstance(value, bool | int | float):
        return f", was {str(value).lower()}"
    if (
        isinstance(value, str)
        and error["type"] in ("int_type", "float_type", "bool_type", "literal_error")
        and len(value) < 40
    ):
        return f", was the text {value!r}"
    return ""


def _suggestion(error: Any, model: type[BaseModel]) -> str:
    """Return what to write instead of a wrong value."""
    model, keys = _innermost(model, error["loc"])
    if not keys:
        return f"Write {_ENTRIES[error['loc'][0]]} below it."
    if model is Limit:
        return f"Write {LIMITS}."
    key = str(keys[0])
    if key in _FORMS:
        return f"Write {_FORMS[key]}."
    field = _fields(model)[key]
    if field.is_required():
        return _MISSING[key]
    if field.default is None:
        unquoted = error["type"] in ("string_type", "path_type", "is_instance_of")
        return (
            "Put it in quotes, or leave it out."
            if unquoted and error["input"] is not None
            else "Leave it out."
        )
    if isinstance(field.default, bool):
        return f"Leave it out for {str(field.default).lower()}."
    if isinstance(field.default, list):
        return f"The default is [{', '.join(field.default)}]."
    return (
        f"The default is {field.default:g}."
        if isinstance(field.default, float)
        else f"The default is {field.default}."
    )


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a model by the keys of a configuration."""
    return {
        field.alias or name: field for name, field in model.model_fields.items() if name not in GIVEN_KEYS
    }


def _innermost(
    model: type[BaseModel], loc: tuple[int | str, ...]
) -> tuple[type[BaseModel], tuple[int | str, ...]]:
    """Return the innermost model of a wrong key, and the path there; an empty path for an entry itself."""
    while len(loc) > 1 and loc[0] in _fields(model):
        annotation: Any = _fields(model)[str(loc[0])].annotation
        parts = [part for part in (annotation, *get_args(annotation)) if isinstance(part, type)]
        inner = [part for part in parts if issubclass(part, BaseModel)]
        if not inner:
            break
        # Under the key of a mapping there is the name of an entry first.
        model, loc = inner[0], loc[2 if get_origin(annotation) is dict else 1 :]
    return model, loc


_FORMS = {
    "datasets": "a name, and below it table:, ledger: and limit:",
    "people": "a name, and below it ledger: and limit:",
    "limit": LIMITS,
    "analyst_limit": LIMITS,
    "limits": "for instance {per_minute: 120, concurrent: 32}",
    "tls": "{certificate: FILE, key: FILE}",
    "sign_in": "issuer:, client_id: and subjects: or groups: below it",
    "subjects": "{SUBJECT: {DATA SET: analyst}}, or {} for nobody",
    "groups": "{GROUP: {DATA SET: analyst}}, or {} for none",
    "seed": "a whole number, and only in tests",
}
_ENTRIES: dict[int | str, str] = {"datasets": "table:, ledger: and limit:", "people": "ledger: and limit:"}


def _describe_unknown_key(loc: tuple[int | str, ...], model: type[BaseModel]) -> str:
    """Return the message for an unknown key, with the nearest known one."""
    keys = list(_fields(_innermost(model, loc)[0]))
    close = nearest(str(loc[-1]), keys)
    hint = f"Did you mean {close}?" if close else f"The keys are {', '.join(keys)}."
    return f"is not a known key. {hint}"


_MISSING: dict[str, str] = {
    "datasets": "Name each data set, as its schema does, and give its table:, ledger: and limit: below it.",
    "table": "Give a file, a URL or demo:census.",
    "ledger": "Name a file that does not exist yet; it will be created.",
    "limit": MISSING_LIMIT,
    "access": "Name a file for tokens and sessions, which will be created, or a postgresql:// URL.",
    "audit_log": "Name a file for the audit log, which will be created, or a postgresql:// URL.",
    "issuer": "Give the address of the provider, such as https://login.example.org/realms/office.",
    "client_id": "Give the name under which the provider knows this service.",
    "certificate": "Name a PEM file.",
    "key": "Name a PEM file.",
}
