"""Flags that several commands share: their names and help texts, and the groups they are gathered into.

A group is a frozen dataclass whose fields are flags. :func:`expand_flags` puts them in the place of a
parameter that has the group as its type: a command takes a few values, and the command line shows every flag.
"""

import contextlib
import dataclasses
import functools
import inspect
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from discreet.client.database import RemoteDatabase
    from discreet.errors import BudgetExceeded
    from discreet.ledger import Ledger
    from discreet.pipeline.options import Signing
    from discreet.schema import Schema

PASSPHRASE = "DISCREET_PASSPHRASE"  # noqa: S105 - the name of an environment variable
SIGN_PASSWORD = "DISCREET_SIGN_PASSWORD"  # noqa: S105 - the name of an environment variable
_SECRET = re.compile(r"(://)[^/?#]*@|([?&])[^=&#]*pass[^=&#]*=[^&#]*", re.IGNORECASE)
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
Sign = Annotated[
    Path | None,
    typer.Option(help=f"Sign with this Ed25519 private key (PEM); password in {SIGN_PASSWORD}."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


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
    from discreet.pipeline.sources import find_schema, schema_path

    place = schema or schema_path(table)
    if schema is None and not place.exists() and not table.startswith("demo:"):
        from discreet.pipeline.draft import draft_schema

        lines = draft_schema(table, place).open_lines
        raise SchemaError(
            f"{table} has no schema; a draft was written to {str(place)!r}. {_list_open_lines(lines)} Do "
            "not read bounds off the rows: a bound found in the data reveals the value of a person. Then "
            "run the same command again."
        )
    try:
        loaded = find_schema(table, schema)
    except SchemaError as problem:
        from discreet.pipeline.draft import find_open_lines

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
        if self.ledger is not None and self.ledger.lower() in ("none", "no", "off", "false"):
            raise ParameterError(
                f"--ledger {self.ledger} must name a file or an address. To charge no ledger, write "
                f"--no-ledger; for a file of that name, write --ledger ./{self.ledger}."
            )
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


def command_line() -> str:
    """Return the command line that runs this again, without passwords in the addresses of table or ledger."""
    words = [_SECRET.sub(r"\1\2", word) if "://" in word else word for word in sys.argv[1:]]
    return shlex.join(["discreet", *words])


def make_signing(key: Path | None) -> "Signing | None":
    """Return the key that signs, with its password from the environment; None if none was given."""
    from discreet.pipeline.options import Signing

    return None if key is None else Signing(key, os.environ.get(SIGN_PASSWORD))


def read_value(text: str) -> Any:
    """Return the typed value of an option: a number, a truth value, name=number pairs, JSON, or a text.

    Examples
    --------
    >>> read_value("2.5"), read_value("age=3,hours=1e1"), read_value("svm")
    (2.5, {'age': 3, 'hours': 10.0}, 'svm')
    """
    from discreet.errors import ParameterError

    text = text.strip()
    if "=" in text and not text.startswith(("{", "[", '"')):
        pairs = [part.rpartition("=") for part in text.split(",")]
        if not all(name.strip() and mark for name, mark, _ in pairs):
            raise ParameterError(f"An option must be a value or name=value,name=value, was {text!r}.")
        return {name.strip(): read_value(value) for name, _, value in pairs}
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except ParameterError:
        raise
    except ValueError:
        return text


def read_pairs(option: str, texts: list[str]) -> dict[str, Any]:
    """Read texts ``name=value`` of an option; the name may hold an equals sign, the value may not."""
    from discreet.errors import ParameterError

    pairs: dict[str, Any] = {}
    for text in texts:
        name, mark, value = text.rpartition("=")
        if not mark or not name or not value.strip():
            raise ParameterError(f"{option} must be name=value, was {text!r}. For example {option} age=9.")
        if name in pairs:
            raise ParameterError(f"{option} must name {name!r} once, and names it twice.")
        pairs[name] = read_value(value)
    return pairs


def _refuse_constant(word: str) -> Any:
    from discreet.errors import ParameterError

    raise ParameterError(f"An option must be a finite number, was {word}.")


def open_existing_ledger(place: str) -> "Ledger":
    """Return an opened ledger; refuse a place without one instead of making it."""
    from discreet.errors import LedgerError
    from discreet.ledger import Ledger

    if "://" not in place and not Path(place).exists():
        raise LedgerError(
            f"There is no ledger {place!r}. It is made by the first release, or with `discreet ledger "
            "create`."
        )
    return Ledger.open(place)
