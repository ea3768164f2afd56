"""The parameters of a method as plain JSON values, so that a stranger can plan what was planned."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ParameterError
from discreet.privacy import Promise

if TYPE_CHECKING:
    from discreet.release.base import ReleaseMethod

_NOT_PARAMETERS = ("self", "schema", "bounds", "ledger", "random_state")


def parameter_names(kind: type[ReleaseMethod]) -> tuple[str, ...]:
    """Return the parameters of a method that say what is done, in the order of its constructor."""
    names = inspect.signature(kind.__init__).parameters
    return tuple(name for name in names if name not in _NOT_PARAMETERS)


def parameters_of(method: ReleaseMethod, **instead: Any) -> dict[str, Any]:
    """Return every parameter that is not None; ``instead`` has those that need a form of their own."""
    given = {name: getattr(method, name) for name in parameter_names(type(method))} | instead
    return {
        name: _plain(value, f"{name} of {type(method).__name__}")
        for name, value in given.items()
        if value is not None
    }


def _plain(value: Any, where: str) -> Any:
    """Write one value in JSON."""
    if isinstance(value, Promise):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): _plain(part, where) for key, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(part, where) for part in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ParameterError(
        f"{where} must be something that can be written down for others to check, was "
        f"{type(value).__name__}. Give it by name."
    )
