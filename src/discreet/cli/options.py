"""The options by which plan, release and audit are told about a method: one list, gathered into one value.

The words that several commands share: what an option is called, and what its help says.
"""

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from discreet.schema import Schema

PASSPHRASE = "DISCREET_PASSPHRASE"  # noqa: S105 - the name of an environment variable
TABLE = (
    "A .csv, .tsv, .parquet or .duckdb file, duckdb://FILE?table=NAME, postgresql://...?table=NAME, "
    "or demo:census, demo:clinic."
)
Table = Annotated[str, typer.Argument(help=TABLE, metavar="TABLE")]
SchemaFile = Annotated[
    Path | None,
    typer.Option("--schema", help="What is declared about it. [default: TABLE.schema.yaml beside it]"),
]
Target = Annotated[str | None, typer.Option(help="The column that learners predict, if not the schema's.")]
Protect = Annotated[
    list[str] | None,
    typer.Option(
        help="COLUMN=ERROR: the least root-mean-square error, in its unit, of any guess by somebody who "
        "knows no more than what is declared (of a list: the least chance to be wrong). Repeat it for more "
        "columns.",
        metavar="COLUMN=ERROR",
    ),
]
Epsilon = Annotated[
    float | None, typer.Option(help="Differential privacy for all sensitive columns together.")
]
Delta = Annotated[float | None, typer.Option(help="Goes with --epsilon; well below 1 / rows.")]
AnyEpsilon = Annotated[float | None, typer.Option("--epsilon", help="Differential privacy that is promised.")]
AnyDelta = Annotated[
    float | None,
    typer.Option("--delta", help="Goes with --epsilon, well below 1 / rows: Gaussian noise. Without: pure."),
]
Mu = Annotated[float | None, typer.Option(help="Or else: Gaussian differential privacy.")]
Rho = Annotated[float | None, typer.Option(help="Or else: zero-concentrated differential privacy.")]
Scale = Annotated[
    str | None, typer.Option(help="Noise in each column's unit: one number, or COLUMN=NUMBER,COLUMN=NUMBER.")
]
Regularization = Annotated[float | None, typer.Option(help="The weight lambda of lost utility.")]
Support = Annotated[str | None, typer.Option(help="Half-width of bounded noise; as --scale.")]
InRange = Annotated[bool, typer.Option("--in-range", help="Publish values inside the declared range alone.")]
Learner = Annotated[str | None, typer.Option(help="Whose model is kept: svm, ridge, logistic, ...")]
Variance = Annotated[float | None, typer.Option(help="Of the noise that the learner does not notice.")]
Label = Annotated[str | None, typer.Option(help="'clear' publishes the target as it is, covered by nothing.")]
Clamp = Annotated[bool, typer.Option("--clamp", help="Move noised numbers back into their range.")]
More = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any other option of the method, as NAME=VALUE.", metavar="NAME=VALUE"),
]
AttackRecords = Annotated[
    int,
    typer.Option(
        help="Made-up records that the plan is attacked on; fewer are faster and find less.", min=100
    ),
]
LedgerPlace = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        help="Where what is published about the data set is added up: a file or postgresql://...#NAME. "
        "[default: DATASET.ledger beside the table]",
    ),
]
NoLedger = Annotated[bool, typer.Option("--no-ledger", help="Count nothing; what is published says so.")]
NewLedger = Annotated[
    bool,
    typer.Option(
        "--new-ledger",
        help="Charge a table that is known to another ledger to this one; what is published says so.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def _method_names() -> Iterator[str]:
    from discreet.release import METHODS

    yield from sorted(METHODS)


def _complete_method() -> list[str]:
    return list(_method_names())


Method = Annotated[
    str | None,
    typer.Option(help="How rows are protected. [default: gaussian]", autocompletion=_complete_method),
]


class MethodCommand(TyperCommand):
    """A command whose help lists the methods there are; they are looked up when somebody asks."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Name every method with what it can be told."""
        from discreet.pipeline.options import options_of

        with formatter.section("Methods, and what each can be told"):
            formatter.write_dl([(name, ", ".join(options_of(name))) for name in _method_names()])


def ledger_place(place: str | None, no_ledger: bool) -> Any:
    """Return where to count: a place, None for the usual one, False for nowhere."""
    from discreet.errors import ParameterError

    if place is not None and no_ledger:
        raise ParameterError("--ledger and --no-ledger exclude each other. Give one of them.")
    return False if no_ledger else place


def declared(table: str, schema: Path | None, target: str | None) -> "Schema":
    """Return what is declared about a table; where nothing is, write a draft and say what to fill in."""
    from discreet.errors import SchemaError
    from discreet.pipeline.sources import draft_schema, schema_of, schema_place, unfilled_lines

    place = schema or schema_place(table)
    if schema is None and not place.exists() and not table.startswith("demo:"):
        lines = draft_schema(table, place)
        raise SchemaError(
            f"{table} came without a declaration of what its columns may contain, and {str(place)!r} is a "
            f"draft of it. {_to_fill(lines)} Nothing of that is read off the rows: a bound found in the data "
            "would give away whoever holds it. Then run the same command again."
        )
    try:
        found = schema_of(table, schema)
    except SchemaError as problem:
        if place.is_file() and (lines := unfilled_lines(place.read_text(encoding="utf-8", errors="replace"))):
            raise SchemaError(
                f"{str(place)!r} is not complete. {_to_fill(lines)}", *problem.problems
            ) from None
        raise
    return found if target is None else found.with_target(target)


def _to_fill(lines: tuple[int, ...], most: int = 12) -> str:
    listed = ", ".join(map(str, lines[:most]))
    rest = f" and {len(lines) - most} more" if len(lines) > most else ""
    which = f"line {listed}" if len(lines) == 1 else f"lines {listed}{rest}"
    return f"Replace every ??? ({which}) by what you know from a codebook, a law or an instrument."


def dp_promise_of(
    schema: "Schema",
    *,
    epsilon: float | None,
    delta: float | None,
    mu: float | None,
    rho: float | None,
    queries: int | None = None,
) -> Any:
    """Return the privacy that was asked for, by one of its numbers, or None; `queries` is for limits."""
    from discreet.errors import ParameterError
    from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PosteriorOdds, PureDP

    given = [
        name for name, value in (("--epsilon", epsilon), ("--mu", mu), ("--rho", rho)) if value is not None
    ]
    if len(given) > 1:
        raise ParameterError(f"{' and '.join(given)} exclude each other. Give one of them.")
    if delta is not None and epsilon is None:
        raise ParameterError(
            f"delta must come with an epsilon, and {delta:g} came alone. Give --epsilon too."
        )
    if queries is not None and delta is None:
        raise ParameterError(
            f"queries must come with an epsilon and a delta, and {queries} came without. Give --epsilon and "
            "--delta too."
        )
    about: dict[str, Any] = {"unit": schema.unit, "neighbors": schema.neighbors}
    if epsilon is not None:
        if delta is not None and queries is not None:
            return PosteriorOdds(epsilon=epsilon, delta=delta, queries=queries, **about)
        if delta is not None:
            return ApproxDP(epsilon=epsilon, delta=delta, **about)
        return PureDP(epsilon=epsilon, **about)
    if mu is not None:
        return GaussianDP(mu=mu, **about)
    return None if rho is None else ZCDP(rho=rho, **about)


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """What was typed about a method, as it was typed; each field is an option of the command line."""

    schema: SchemaFile = None
    target: Target = None
    protect: Protect = None
    epsilon: Epsilon = None
    delta: Delta = None
    method: Method = None
    scale: Scale = None
    regularization: Regularization = None
    support: Support = None
    in_range: InRange = False
    learner: Learner = None
    variance: Variance = None
    label: Label = None
    clamp: Clamp = False
    more: More = None

    def read(self, table: str) -> "Asked":
        """Return what it means for a table; where nothing is declared about it, a draft is written."""
        from discreet.pipeline.options import promise_for, read_pairs, read_value

        schema = declared(table, self.schema, self.target)
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


def passphrase_for(path: Path) -> str:
    """Take a passphrase from the environment or ask for it; never from an argument, which others can see."""
    from discreet.errors import ParameterError

    found = os.environ.get(PASSPHRASE)
    if found is not None:
        return found
    if not sys.stdin.isatty():
        raise ParameterError(
            f"--keep-key needs a passphrase, and nobody is there to be asked. Set {PASSPHRASE}, or give "
            "--recipient."
        )
    answer: str = typer.prompt(f"Passphrase for {path}", hide_input=True, confirmation_prompt=True, err=True)
    return answer
