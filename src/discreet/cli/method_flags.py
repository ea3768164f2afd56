"""Flags of a release method, and the request for a release that they make."""

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from discreet.cli.options import SchemaFile, Target, load_declaration, read_pairs, read_value

if TYPE_CHECKING:
    from discreet.schema import Schema

Protect = Annotated[
    list[str] | None,
    typer.Option(
        help="COLUMN=ERROR: the smallest root-mean-square error, in the column's unit, of any guess by an "
        "attacker who knows only what is declared (for a list: the smallest probability of a wrong "
        "guess). Repeat it for more columns.",
        metavar="COLUMN=ERROR",
    ),
]
Epsilon = Annotated[
    float | None, typer.Option(help="Differential privacy for all sensitive columns together.")
]
Delta = Annotated[float | None, typer.Option(help="Requires --epsilon; well below 1 / rows.")]
Scale = Annotated[
    str | None, typer.Option(help="Noise in each column's unit: one number, or COLUMN=NUMBER,COLUMN=NUMBER.")
]
Regularization = Annotated[float | None, typer.Option(help="Weight lambda of lost utility.")]
Support = Annotated[str | None, typer.Option(help="Half-width of bounded noise; as --scale.")]
Joint = Annotated[
    str | None, typer.Option(help="Two or three columns that share bounded noise, as 'age,hours'.")
]
InRange = Annotated[bool, typer.Option("--in-range", help="Publish only values inside the declared range.")]
Learner = Annotated[
    str | None,
    typer.Option(
        help=(
            "Learner whose model an invariant release keeps: svm, ridge, logistic, ...; or for which masked "
            "rows are made: logistic or svm."
        )
    ),
]
Variance = Annotated[
    float | None, typer.Option(help=("Variance of the noise that leaves the learner's model unchanged."))
]
Label = Annotated[str | None, typer.Option(help="'clear' publishes the target unprotected.")]
Clamp = Annotated[bool, typer.Option("--clamp", help="Clamp noisy numbers to their range.")]
Cells = Annotated[
    Path | None,
    typer.Option(
        help="File (YAML or JSON) with the values at which cells of numbers and dates begin, by column. "
        "[default: cut by noisy counts]"
    ),
]
Anyway = Annotated[
    bool, typer.Option("--anyway", help="Make a synthetic table even if it is expected to be noise.")
]
NoKeepPublic = Annotated[
    bool,
    typer.Option(
        "--no-keep-public",
        help="Make up the columns declared public like the others, in place of keeping their rows.",
    ),
]
More = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any other option of the method, as NAME=VALUE.", metavar="NAME=VALUE"),
]


def _method_names() -> Iterator[str]:
    from discreet.release import METHODS

    yield from sorted(METHODS)


def _complete_method() -> list[str]:
    return list(_method_names())


Method = Annotated[
    str | None,
    typer.Option(
        help="How rows are protected. [default: synthetic for --epsilon, gaussian for --protect]",
        autocompletion=_complete_method,
    ),
]


class MethodCommand(TyperCommand):
    """Command whose help lists the methods; they are loaded only when the help is printed."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write every method with its options."""
        from discreet.pipeline.methods import method_options

        with formatter.section("Methods, and their options"):
            formatter.write_dl([(name, ", ".join(method_options(name))) for name in _method_names()])


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodFlags:
    """Flags of a release method, as they were typed."""

    schema: SchemaFile = None
    target: Target = None
    protect: Protect = None
    epsilon: Epsilon = None
    delta: Delta = None
    method: Method = None
    scale: Scale = None
    regularization: Regularization = None
    support: Support = None
    joint: Joint = None
    in_range: InRange = False
    learner: Learner = None
    variance: Variance = None
    label: Label = None
    clamp: Clamp = False
    cells: Cells = None
    anyway: Anyway = False
    no_keep_public: NoKeepPublic = False
    more: More = None

    def read(self, table: str, schema: "Schema | None" = None) -> "ReleaseRequest":
        """Return the request for a table; if the table has no schema, a draft of it is written.

        Parameters
        ----------
        table : str
            Table as it was named on the command line.
        schema : Schema, optional
            Schema that is known already, as that of a service; None reads that of the table.
        """
        from discreet.pipeline.methods import build_promise

        settings = read_pairs("--set", self.more or [])
        if schema is None:
            schema = load_declaration(table, self.schema, self.target)
        floors = read_pairs("--protect", self.protect or [])
        given: dict[str, Any] = {
            "scale": None if self.scale is None else read_value(self.scale),
            "regularization": self.regularization,
            "support": None if self.support is None else read_value(self.support),
            "joint": None if self.joint is None else [name.strip() for name in self.joint.split(",")],
            "in_range": self.in_range or None,
            "learner": self.learner,
            "variance": self.variance,
            "label": self.label,
            "clamp": self.clamp or None,
            "cells": None if self.cells is None else read_cells(self.cells),
            "anyway": self.anyway or None,
            "keep_public": False if self.no_keep_public else None,
        }
        self._check_settings(settings, given)
        return ReleaseRequest(
            schema=schema,
            method=self.method,
            privacy=build_promise(schema, protect=floors, epsilon=self.epsilon, delta=self.delta),
            protect=floors,
            options={name: value for name, value in (given | settings).items() if value is not None},
        )

    def _check_settings(self, settings: Iterable[str], given: dict[str, Any]) -> None:
        """Refuse names in --set that are no options of the method, or that a flag gives as well."""
        from discreet.errors import ParameterError
        from discreet.pipeline.methods import FOR_EPSILON, FOR_FLOORS, check_options

        for name in settings:
            flag = "--no-keep-public" if name == "keep_public" else f"--{name.replace('_', '-')}"
            if given.get(name) is not None:
                raise ParameterError(f"{flag} and --set {name}=... exclude each other. Give one of them.")
            if name in {field.name for field in dataclasses.fields(self)} - {"more", *given}:
                raise ParameterError(f"--set must name an option of the method, was {name!r}. Give {flag}.")
        check_options(self.method or (FOR_FLOORS if self.epsilon is None else FOR_EPSILON), settings)


def read_cells(path: Path) -> dict[str, list[Any]]:
    """Return where cells begin, by column, from a file of YAML or JSON."""
    import yaml

    from discreet.errors import ParameterError, SourceError

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise SourceError(
            f"--cells must be a file that can be read, and {str(path)!r} is not ({type(problem).__name__})."
        ) from None
    except yaml.YAMLError:
        content = None
    if not isinstance(content, dict) or not all(isinstance(edges, list) for edges in content.values()):
        raise ParameterError(
            f"--cells must be a file with a list of values for each column, such as `age: [20, 30, 40]`, and "
            f"{str(path)!r} is something else."
        )
    return {str(name): edges for name, edges in content.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequest:
    """Request for a release, read from flags.

    Attributes
    ----------
    schema : Schema
        Schema that declares the columns of the table.
    method : str or None
        Name of the release method; None: the one that follows from the promise.
    privacy : Promise or None
        Promise that was requested; None: other options set the noise.
    protect : dict of str to float
        Requested error floor of each named column, in its unit.
    options : dict
        Other parameters of the method, by name.
    """

    schema: "Schema"
    method: str | None
    privacy: Any
    protect: dict[str, float]
    options: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the keyword arguments of :func:`discreet.publish` and its parts."""
        return {
            "schema": self.schema,
            "method": self.method,
            "privacy": self.privacy,
            "protect": self.protect,
            **self.options,
        }
