"""Functions and constructors that answer a misspelt argument with the name that was probably meant."""

from __future__ import annotations

import functools
from abc import ABCMeta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from discreet.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from inspect import Signature

P = ParamSpec("P")
R = TypeVar("R")
_BUDGET_NAMES = ("epsilon", "eps", "delta", "budget")
_OTHER_NAMES = {
    "min": "lower",
    "minimum": "lower",
    "max": "upper",
    "maximum": "upper",
    "categories": "values",
    "enum": "values",
    "levels": "values",
    "sigma": "scale",
    "seed": "random_state",
}
"""Names that other libraries and Frictionless schemas give to an argument of ours."""


class CheckedArguments(ABCMeta):
    """Metaclass whose classes raise ``ArgumentError`` for an unknown or missing argument of a constructor.

    Notes
    -----
    The names are compared only after Python has refused the call, so that a valid call costs nothing, and a
    TypeError from inside the constructor is passed on as it is.
    """

    @property
    def __signature__(cls) -> Signature:
        """Return the constructor's signature, which Python would otherwise take from ``__call__``."""
        import inspect

        _, *others = inspect.signature(cls.__init__).parameters.values()  # type: ignore[misc]
        return inspect.Signature(others)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a new instance, or raise with the arguments that there are."""
        try:
            return super().__call__(*args, **kwargs)
        except TypeError:
            unknown, known = _unknown_arguments(cls, kwargs)
            missing = [] if unknown else _missing_arguments(cls, args, kwargs)
            if not (unknown or missing):
                raise
        # Outside the handler, so that the traceback does not show Python's own message as its context.
        if missing:
            raise ArgumentError(f"{cls.__name__} needs {' and '.join(missing)} too, by position or by name.")
        raise ArgumentError(
            _refusal(f"{cls.__name__} has", unknown[0], kwargs, known, getattr(cls, "accepts", ()))
        )


def checked_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with ``ArgumentError`` for an argument that it does not have."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError:
            unknown, known = _unknown_arguments(function, kwargs)
            if not unknown:
                raise
        raise ArgumentError(_refusal("There is", unknown[0], kwargs, known))

    return call


def nearest(name: object, choices: Iterable[str]) -> str | None:
    """Return the choice spelled most like ``name``, or the shortest that begins with it; None if none is."""
    import difflib

    by_folded = {choice.casefold(): choice for choice in choices}
    folded = str(name).casefold()
    longer = sorted((choice for choice in by_folded if choice.startswith(folded)), key=len)
    close = difflib.get_close_matches(folded, by_folded, n=1) or (longer if len(folded) > 1 else [])
    return by_folded[close[0]] if close else None


def promise_hint(value: object, accepts: Iterable[type] = ()) -> str:
    """Return the sentence that shows how to write a number as a promise.

    Parameters
    ----------
    value : object
        What was given for a promise; a number is taken for an epsilon.
    accepts : iterable of type, optional
        Kinds of promise that are accepted there; all of them if empty.

    Returns
    -------
    str
        The sentence, or "" for what is no number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return f"Write {_promise_lines(value, 1e-6, accepts)}."


def _promise_lines(epsilon: object, delta: object, accepts: Iterable[type]) -> str:
    """Return the promises to write for an epsilon and a delta, of the kinds that are accepted."""
    kinds = {kind.__name__ for kind in accepts} or {"PureDP", "ApproxDP"}
    shown = repr(delta).replace("e-0", "e-")
    lines = {"PureDP": f"PureDP({epsilon!r})", "ApproxDP": f"ApproxDP({epsilon!r}, {shown})"}
    return " or ".join(line for kind, line in lines.items() if kind in kinds)


def _unknown_arguments(called: Callable[..., Any], given: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the given names that a callable does not have, and the names that it has."""
    import inspect

    parameters = inspect.signature(called).parameters
    known = [name for name in parameters if name != "self" and name[0] != "_"]
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return [], known
    return [name for name in given if name not in known], known


def _missing_arguments(called: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> list[str]:
    """Return the names without a default that a call gives no value."""
    import inspect

    try:
        bound = inspect.signature(called).bind_partial(*args, **given).arguments
    except TypeError:  # too many arguments by position: Python's own message says so
        return []
    return [
        name
        for name, parameter in inspect.signature(called).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and name not in bound
    ]


def _refusal(
    beginning: str, name: str, given: dict[str, Any], known: list[str], accepts: Iterable[type] = ()
) -> str:
    """Return the message for an unknown argument: the promise to write, the nearest name, or all names."""
    refused = f"{beginning} no argument {name!r}."
    if name in _BUDGET_NAMES and "privacy" in known:
        epsilon, delta = given.get("epsilon", given.get("eps", 1.0)), given.get("delta", 1e-6)
        return f"{refused} Write privacy={_promise_lines(epsilon, delta, accepts)}."
    other = _OTHER_NAMES.get(name)
    near = other if other in known else nearest(name, known)
    return f"{refused} Did you mean {near!r}?" if near else f"{refused} It has {', '.join(known)}."
