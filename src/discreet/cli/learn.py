"""``discreet learn``: train a model on a private table, with a statement of what it promises."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from discreet.cli import options
from discreet.cli.console import Console, print_promises
from discreet.cli.release import SIGN_PASSWORD, command_line

if TYPE_CHECKING:
    from discreet.pipeline.model import PublishedModel


def _models() -> Iterator[tuple[str, str, str]]:
    """Yield name, summary and options of each model."""
    from discreet.pipeline.training import model_options, summary_of, trainable

    for name in trainable():
        yield name, summary_of(name), ", ".join(model_options(name))


def _complete_model() -> list[str]:
    return [name for name, _, _ in _models()]


class Command(TyperCommand):
    """A command whose help lists the models there are; they are looked up when somebody asks."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Name every model, and what it can be told."""
        with formatter.section("Models, and what --set can tell each"):
            formatter.write_dl([(name, f"{about} [{told}]") for name, about, told in _models()])


def learn(
    table: Annotated[str | None, typer.Argument(help=options.TABLE, metavar="TABLE")] = None,
    model: Annotated[
        str | None, typer.Option(help="Which model; --list names them.", autocompletion=_complete_model)
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for public/ and internal/.")] = Path("model"),
    schema: options.SchemaFile = None,
    target: options.Target = None,
    epsilon: options.AnyEpsilon = None,
    delta: options.AnyDelta = None,
    mu: options.Mu = None,
    rho: options.Rho = None,
    more: Annotated[
        list[str] | None,
        typer.Option("--set", help="What the model is told, as NAME=VALUE; see below.", metavar="NAME=VALUE"),
    ] = None,
    ledger: options.LedgerPlace = None,
    no_ledger: options.NoLedger = False,
    new_ledger: options.NewLedger = False,
    sign: Annotated[
        Path | None,
        typer.Option(help=f"Sign with this Ed25519 private key (PEM); password in {SIGN_PASSWORD}."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace what is at --out.")] = False,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Say that parameters were chosen by looking at private rows.")
    ] = False,
    curator: Annotated[str | None, typer.Option(help="Who publishes; in the statement.")] = None,
    purpose: Annotated[str | None, typer.Option(help="What for; in the statement.")] = None,
    contact: Annotated[str | None, typer.Option(help="Whom to ask; in the statement.")] = None,
    license: Annotated[str | None, typer.Option(help="Under which terms; in the statement.")] = None,
    supersedes: Annotated[str | None, typer.Option(help="The model that this one replaces.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="Name the models, and do nothing else.")] = False,
    json: options.Json = False,
) -> None:
    """Train a model that promises something to everybody in the table, and say what.

    How good the model is on the private rows is not printed: a score measured on them says something about
    them that nobody paid for. Test it on rows of your own.
    """
    with Console(as_json=json) as console:
        if list_:
            _list(console)
            return
        from discreet.errors import ParameterError
        from discreet.pipeline.model import publish_model
        from discreet.pipeline.options import read_pairs

        if table is None or model is None:
            missing = "a table" if table is None else "--model NAME"
            raise ParameterError(f"discreet learn needs {missing}. `discreet learn --list` names the models.")
        declared = options.declared(table, schema, target)
        done = publish_model(
            table,
            model=model,
            privacy=options.dp_promise_of(declared, epsilon=epsilon, delta=delta, mu=mu, rho=rho),
            out=out,
            schema=declared,
            ledger=options.ledger_place(ledger, no_ledger),
            new_ledger=new_ledger,
            about={
                "curator": curator,
                "purpose": purpose,
                "contact": contact,
                "license": license,
                "supersedes": supersedes,
            },
            sign_with=sign,
            sign_password=os.environ.get(SIGN_PASSWORD),
            replace=replace,
            tuned=tuned,
            command=command_line(),
            say=console.stage,
            progress=console.progress,
            **read_pairs("--set", more or []),
        )
        _show(console, done)


def _list(console: Console) -> None:
    found = list(_models())
    console.table("", ("model", "what it is", "--set"), found, left=3)
    console.json([{"model": name, "about": about, "set": told.split(", ")} for name, about, told in found])


def _show(console: Console, done: "PublishedModel") -> None:
    """Print what was promised and where it is."""
    statement = done.statement
    print_promises(console, (), statement.definition.sentences, statement.not_protected)
    console.line()
    console.paragraph(f"So far: {statement.composition.total}")
    console.line(f"Publish only {done.public}. Anyone can re-check it: discreet verify {done.public}")
    console.line(f"How to use it: {done.public / 'model-card.md'}")
    console.json(
        {
            "public": str(done.public),
            "internal": str(done.internal),
            "release": statement.what.release,
            "model": statement.what.model.name,
            "promises": statement.numbers.promises,
            "epsilon": statement.numbers.epsilon,
            "delta": statement.numbers.delta,
            "cached": done.cached,
            "composition": statement.composition.total,
            "receipts": [receipt.to_dict() for receipt in done.receipts],
        }
    )
