"""The options by which plan, release and audit are told about a method: one list, gathered into one value."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.cli import words

if TYPE_CHECKING:
    from discreet.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """What was typed about a method, as it was typed; each field is an option of the command line."""

    schema: words.SchemaFile = None
    target: words.Target = None
    protect: words.Protect = None
    epsilon: words.Epsilon = None
    delta: words.Delta = None
    method: words.Method = None
    scale: words.Scale = None
    regularization: words.Regularization = None
    support: words.Support = None
    in_range: words.InRange = False
    learner: words.Learner = None
    variance: words.Variance = None
    label: words.Label = None
    clamp: words.Clamp = False
    more: words.More = None

    def read(self, table: str) -> "Asked":
        """Return what it means for a table; where nothing is declared about it, a draft is written."""
        from discreet.job.options import promise_for, read_pairs, read_value

        schema = words.declared(table, self.schema, self.target)
        floors = read_pairs("--protect", self.protect or [])
        given: dict[str, Any] = {
            "scale": None if self.scale is None else read_value(self.scale),
            "regularization": self.regularization,
            "support": None if self.support is None else read_value(self.support),
            "in_range": self.in_range or None,
            "learner": self.learner,
            "variance": self.variance,
            "label": self.label,
            "clamp": self.clamp or None,
            **read_pairs("--set", self.more or []),
        }
        return Asked(
            schema=schema,
            method=self.method,
            privacy=promise_for(schema, protect=floors, epsilon=self.epsilon, delta=self.delta),
            protect=floors,
            options={name: value for name, value in given.items() if value is not None},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a release shall be.

    Attributes
    ----------
    schema : Schema
        What is declared.
    method : str or None
        Its name; None for the default.
    privacy : Promise or None
        What shall be promised.
    protect : dict of str to float
        The floors that were asked for.
    options : dict
        Other parameters of the method.
    """

    schema: "Schema"
    method: str | None
    privacy: Any
    protect: dict[str, float]
    options: dict[str, Any]

    @property
    def request(self) -> dict[str, Any]:
        """All of it, as :func:`discreet.publish` and its parts take it."""
        return {
            "schema": self.schema,
            "method": self.method,
            "privacy": self.privacy,
            "protect": self.protect,
            **self.options,
        }


def about_a_method(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of :class:`Typed` in the place of its parameter ``typed``."""
    shared = inspect.signature(Typed).parameters

    @functools.wraps(command)
    def run(**given: Any) -> None:
        typed = Typed(**{name: given.pop(name) for name in shared})
        command(typed=typed, **given)

    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        parameters += shared.values() if name == "typed" else [parameter]
    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    run.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in keyword}
    return run
