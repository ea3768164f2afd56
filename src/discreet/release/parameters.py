"""The parameters of a method as plain JSON values, so that a stranger can plan what was planned."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ParameterError
from discreet.privacy import Promise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._typing import Floats
    from discreet.release.base import ReleaseMethod
    from discreet.schema import Column

LEAST_NOISE, LARGEST_NOISE = 1e-12, 1e15
"""Of noise, in ranges of its column: less is undone by rounding, and more is noise alone."""
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


def check_noise(columns: Sequence[Column], amounts: Floats, what: str) -> None:
    """Refuse amounts of noise, or errors, that are out of all proportion to the ranges of their columns."""
    with np.errstate(over="ignore"):
        ratios = amounts / np.array([c.width for c in columns])
    for column, ratio in zip(columns, ratios, strict=True):
        if not LEAST_NOISE <= ratio <= LARGEST_NOISE:
            raise ParameterError(
                f"{what} of column {column.name!r} must be between {LEAST_NOISE:g} and {LARGEST_NOISE:g} "
                f"times its range of {column.width:g}, and what was asked for makes it {ratio:.3g} times "
                f"that. Ask for {'more' if ratio < 1 else 'less'} noise, or declare the range that the "
                "column can have."
            )


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
