"""Flags that several commands share: their names and help texts, and the groups they are gathered into.

A group is a frozen dataclass whose fields are flags. :func:`expand_flags` puts them in the place of a
parameter that has the group as its type: a command takes a few values, and the command line shows every flag.
"""

import contextlib
import dataclasses
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from discreet.client.database import RemoteDatabase
    from discreet.errors import BudgetExceeded
    from discreet.schema import Schema

PASSPHRASE = "DISCREET_PASSPHRASE"  # noqa: S105 - the name of an environment variable
TABLE = (
    "A .csv, .tsv, .txt, .parquet, .duckdb, .xlsx, .sav or .dta file (FILE?table=NAME for a table or sheet), "
    "a folder of .parquet files, postgresql://...?table=NAME, or demo:census, demo:clinic, demo:hospital."
)
Table = Annotated[str, typer.Argument(help=TABLE, metavar="TABLE")]
SchemaFile = Annotated[
    Path | None,
    typer.Option("--schema", help="Schema of the table. [default: TABLE.schema.yaml beside the table]"),
]
Target = Annotated[str | None, typer.Option(help="The column that learners predict, if not the schema's.")]
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
AnyEpsilon = Annotated[float | None, typer.Option("--epsilon", help="Differential privacy to promise.")]
AnyDelta = Annotated[
    float | None,
    typer.Option(
        "--delta",
        help=(
            "With --epsilon, for Gaussian noise; well below 1 / rows. Without it: pure differential privacy."
        ),
    ),
]
Mu = Annotated[float | None, typer.Option(help="Instead: Gaussian differential privacy.")]
Rho = Annotated[float | None, typer.Option(help="Instead: zero-concentrated differential privacy.")]
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
AttackRecords = Annotated[
    int,
    typer.Option(help="Number of made-up records to attack; fewer are faster and find less.", min=100),
]
LedgerPlace = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        help="Ledger that is charged: a file or postgresql://...#NAME. [default: DATASET.ledger beside "
        "the table]",
    ),
]
NoLedger = Annotated[bool, typer.Option("--no-ledger", help="Charge no ledger; what is published says so.")]
NewLedger = Annotated[
    bool,
    typer.Option(
        "--new-ledger",
        help="Charge this ledger although the table was charged to another one; what is published says so.",
    ),
]
SparkMaster = Annotated[
    str | None, typer.Option(help="Cluster, such as spark://host:7077. [default: as Spark is configured]")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


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
        from discreet.pipeline.options import method_options

        with formatter.section("Methods, and their options"):
            formatter.write_dl([(name, ", ".join(method_options(name))) for name in _method_names()])


@contextlib.contextmanager
def open_service(table: str) -> "Iterator[RemoteDatabase | None]":
    """Yield a table of a service, whose token is in ``DISCREET_TOKEN``; None for any other table.

    Parameters
    ----------
    table : str
        Table as it was named on the command line; one of a service as ``https://HOST/datasets/NAME``.
    """
    if not table.startswith(("http://", "https://")):
        yield None
        return
    from discreet.client import RemoteDatabase, connect
    from discreet.errors import ParameterError

    url, _, name = table.rstrip("/").rpartition("/datasets/")
    if not url:
        with connect(table) as service:
            names = ", ".join(f"{service.url}/datasets/{one.name}" for one in service.datasets())
        raise ParameterError(
            "table of a service must be named by its address, which ends in /datasets/NAME. You may ask "
            f"{names or 'none so far: a curator grants them'}."
        )
    with RemoteDatabase(url, name) as database:
        yield database


def load_declaration(table: str, schema: Path | None, target: str | None) -> "Schema":
    """Return the schema of a table; if there is none, write a draft of it and say what to fill in.

    Parameters
    ----------
    table : str
        Table as it was named on the command line.
    schema : Path or None
        File with the schema; None: the file beside the table.
    target : str or None
        Column to predict, if it is another than the schema's.

    Raises
    ------
    SchemaError
        There is no schema, or it is incomplete or wrong.
    """
    from discreet.errors import SchemaError
    from discreet.pipeline.draft import draft_schema, find_open_lines
    from discreet.pipeline.sources import find_schema, schema_path

    place = schema or schema_path(table)
    if schema is None and not place.exists() and not table.startswith("demo:"):
        lines = draft_schema(table, place).open_lines
        raise SchemaError(
            f"{table} has no schema; a draft was written to {str(place)!r}. {_list_open_lines(lines)} Do "
            "not read bounds off the rows: a bound found in the data reveals the value of a person. Then "
            "run the same command again."
        )
    try:
        loaded = find_schema(table, schema)
    except SchemaError as problem:
        text = place.read_text(encoding="utf-8", errors="replace") if place.is_file() else ""
        if lines := find_open_lines(text):
            raise SchemaError(
                f"{str(place)!r} is not complete. {_list_open_lines(lines)}", *problem.problems
            ) from None
        raise
    return loaded if target is None else loaded.with_target(target)


def _list_open_lines(lines: tuple[int, ...], most: int = 12) -> str:
    """Return which lines of a draft are to be filled in, in words."""
    listed = ", ".join(map(str, lines[:most]))
    rest = f" and {len(lines) - most} more" if len(lines) > most else ""
    which = f"line {listed}" if len(lines) == 1 else f"lines {listed}{rest}"
    return f"Replace every ??? ({which}) by what you know from a codebook, a law or an instrument."


def make_promise(
    schema: "Schema",
    *,
    epsilon: float | None,
    delta: float | None,
    mu: float | None,
    rho: float | None,
    queries: int | None = None,
) -> Any:
    """Return the differential privacy that one of its numbers stands for, or None if none was given.

    Parameters
    ----------
    schema : Schema
        Schema whose unit and neighbors the promise takes.
    epsilon, delta, mu, rho : float or None
        Numbers of the flags of the same names; None: not given.
    queries : int or None
        Number of queries of a limit on posterior odds; None: another limit.
    """
    from discreet.errors import ParameterError
    from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PosteriorOdds, PureDP

    given = [
        name for name, value in (("--epsilon", epsilon), ("--mu", mu), ("--rho", rho)) if value is not None
    ]
    if len(given) > 1:
        raise ParameterError(f"{' and '.join(given)} exclude each other. Give one of them.")
    if delta is not None and epsilon is None:
        raise ParameterError(
            f"delta needs an epsilon, and only delta = {delta:g} was given. Give --epsilon too."
        )
    if queries is not None and delta is None:
        raise ParameterError(
            f"queries needs an epsilon and a delta, and {queries} was given without them. Give --epsilon "
            "and --delta too."
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
class PromiseFlags:
    """Flags of a promise of differential privacy: an epsilon with or without a delta, a mu or a rho."""

    epsilon: AnyEpsilon = None
    delta: AnyDelta = None
    mu: Mu = None
    rho: Rho = None

    def promise(self, schema: "Schema") -> Any:
        """Return the promise, or None if no flag was given."""
        return make_promise(schema, **dataclasses.asdict(self))


def suggest_flag(problem: "BudgetExceeded", privacy: Any) -> None:
    """Say in the error which flag would still fit the budget, if any would.

    Parameters
    ----------
    problem : BudgetExceeded
        Error of the refused charge, whose advice is replaced.
    privacy : Promise
        Promise that the flags asked for.
    """
    from discreet.query.costs import affordable_request

    affordable = affordable_request(privacy, None, problem.scale)
    if affordable is not None:
        # Its delta is the one that was typed.
        name, amount = next((n, x) for n, x in affordable.items() if n != "kind")
        problem.advice = f"--{name} {amount:.15g} would still fit."


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFlags:
    """Flags that name the ledger of a table."""

    ledger: LedgerPlace = None
    no_ledger: NoLedger = False
    new_ledger: NewLedger = False

    @property
    def place(self) -> Any:
        """Place of the ledger: a file or an address, None for the usual file, False for none."""
        from discreet.errors import ParameterError

        if self.ledger is not None and self.no_ledger:
            raise ParameterError("--ledger and --no-ledger exclude each other. Give one of them.")
        return False if self.no_ledger else self.ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutFlags:
    """Flags with texts about a publication, which its statement holds as they are."""

    curator: Annotated[str | None, typer.Option(help="Who publishes; appears in the statement.")] = None
    purpose: Annotated[str | None, typer.Option(help="Purpose; appears in the statement.")] = None
    contact: Annotated[str | None, typer.Option(help="Contact; appears in the statement.")] = None
    license: Annotated[str | None, typer.Option(help="License; appears in the statement.")] = None
    supersedes: Annotated[str | None, typer.Option(help="The publication that this one replaces.")] = None

    def to_dict(self) -> dict[str, str | None]:
        """Return the texts by name, as :func:`discreet.publish` takes them."""
        return dataclasses.asdict(self)


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
        from discreet.pipeline.options import build_promise, read_pairs, read_value

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
        """Refuse names in --set that are no options of the method, or that a flag gives as well.

        Parameters
        ----------
        settings : iterable of str
            Names that --set gives a value.
        given : dict
            Value of each flag that is an option of some method; None where the flag was not given.
        """
        from discreet.errors import ParameterError
        from discreet.pipeline.options import FOR_EPSILON, FOR_FLOORS, check_options

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


def expand_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a command whose type is a group of flags by the flags themselves."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        if dataclasses.is_dataclass(parameter.annotation):
            groups[name] = parameter.annotation
            parameters += inspect.signature(groups[name]).parameters.values()
        else:
            parameters.append(parameter)

    @functools.wraps(command)
    def run(**flags: Any) -> None:
        values = {
            name: group(**{flag: flags.pop(flag) for flag in inspect.signature(group).parameters})
            for name, group in groups.items()
        }
        command(**values, **flags)

    # Keywords alone: the flags of a group may stand before a parameter without a default.
    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in keywords}
    return run


def passphrase_for(path: Path, *, kept: bool) -> str:
    """Return the passphrase of a key file, from the environment or typed at a prompt.

    It is never an argument, which other users of the machine can see.

    Parameters
    ----------
    path : Path
        File with the encrypted key, which the prompt names.
    kept : bool
        Whether the file is about to be written, so that the passphrase is typed twice.
    """
    from discreet.errors import ParameterError

    passphrase = os.environ.get(PASSPHRASE)
    if passphrase is not None:
        return passphrase
    if not sys.stdin.isatty():
        raise ParameterError(
            f"--keep-key needs a passphrase, and there is no terminal to ask for it. Set {PASSPHRASE}, or "
            "give --recipient."
            if kept
            else f"--key needs its passphrase, and there is no terminal to ask for it. Set {PASSPHRASE}."
        )
    answer: str = typer.prompt(f"Passphrase for {path}", hide_input=True, confirmation_prompt=kept, err=True)
    return answer
