"""``discreet learn``: train and publish a model, with a statement of what it promises."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from discreet.cli import options
from discreet.cli.console import Console
from discreet.cli.options import (
    AboutFlags,
    LedgerFlags,
    PromiseFlags,
    Sign,
    command_line,
    expand_flags,
    make_signing,
)
from discreet.cli.summary import print_promise

if TYPE_CHECKING:
    from discreet.client.database import RemoteDatabase
    from discreet.pipeline.model import ModelPlan, PublishedModel
    from discreet.schema import Schema


DEFAULT_MODEL = "classifier"  # the same as of discreet.pipeline.training, which is slow to load


def _models() -> Iterator[tuple[str, str, str]]:
    """Yield name, summary and options of each model, the default one first."""
    from discreet.pipeline.training import model_options, model_summary, trainable_models

    for name in trainable_models():
        yield name, model_summary(name), ", ".join(model_options(name))


def _complete_model() -> list[str]:
    return [name for name, _, _ in _models()]


class Command(TyperCommand):
    """Command whose help lists the models; they are loaded only when the help is printed."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write every model with its options."""
        with formatter.section("Models, and their parameters for --set"):
            formatter.write_dl(
                [(_mark(name), f"{about} [{settings}]") for name, about, settings in _models()]
            )


def _mark(name: str) -> str:
    """Return the name of a model as lists show it."""
    return f"{name} (default)" if name == DEFAULT_MODEL else name


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFlags:
    """Flags of a model that is to be trained: its declaration, its promise and its parameters."""

    schema: options.SchemaFile = None
    target: options.Target = None
    epsilon: options.AnyEpsilon = None
    delta: options.AnyDelta = None
    mu: options.Mu = None
    rho: options.Rho = None
    score: Annotated[
        bool | None,
        typer.Option(
            "--score/--no-score",
            help="Pay for the accuracy of a classifier on its rows out of the promise. By default only the "
            "model that needs no choices does.",
            show_default=False,
        ),
    ] = None
    more: Annotated[
        list[str] | None,
        typer.Option("--set", help="Parameter of the model, as NAME=VALUE; see below.", metavar="NAME=VALUE"),
    ] = None

    def read(
        self, table: str, model: str, service: "RemoteDatabase | None" = None
    ) -> "tuple[Schema, Any, dict[str, Any]]":
        """Return the schema of a table or service, the promise, and the parameters of the model."""
        from discreet.errors import ParameterError
        from discreet.pipeline.training import check_parameter_names

        parameters = options.read_pairs("--set", self.more or [])
        if self.score is not None:
            if "paid_score" in parameters:
                raise ParameterError("--score and --set paid_score must not be given both. Leave one out.")
            parameters["paid_score"] = self.score
        # Checked before they are passed by name: none may replace schema, promise or ledger.
        check_parameter_names(model, parameters)
        if service is not None and self.schema is not None:
            raise ParameterError("--schema must be left out for a service, which has its own.")
        schema = (
            options.load_declaration(table, self.schema, self.target) if service is None else service.schema
        )
        promise = PromiseFlags(epsilon=self.epsilon, delta=self.delta, mu=self.mu, rho=self.rho)
        return schema, promise.promise(schema), parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFileFlags:
    """Flags about the files of a model and about how it was chosen."""

    sign: Sign = None
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing folder at --out.")] = False
    tuned: Annotated[
        bool, typer.Option("--tuned", help="State that parameters were chosen by looking at private rows.")
    ] = False


@expand_flags
def learn(
    table: Annotated[
        str | None,
        typer.Argument(
            help=f"{options.TABLE} Also the address of a service, https://..., with a token in "
            "DISCREET_TOKEN, for models that need no rows.",
            metavar="TABLE",
        ),
    ] = None,
    *,
    model: Annotated[
        str,
        typer.Option(help="Which model to train; --list lists them.", autocompletion=_complete_model),
    ] = DEFAULT_MODEL,
    out: Annotated[Path, typer.Option(help="Folder for public/ and internal/.")] = Path("model"),
    training: TrainingFlags,
    ledger: LedgerFlags,
    files: ModelFileFlags,
    about: AboutFlags,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show what would be asked, its cost and what to expect; read no cell."
        ),
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the models and exit.")] = False,
    json: options.Json = False,
) -> None:
    """Train a model that protects everyone in the table. A statement says what is promised.

    Without --model this is a classifier that needs no choices. It says what to expect before anything is
    charged, and a twentieth of its promise pays for its accuracy, which is printed with an interval;
    --no-score leaves that out. Other classifiers spend a tenth of their promise on it with --score. Without
    it the accuracy on the private rows is not printed: it would reveal something about them that was not paid
    for. Test such models on rows of your own.
    """
    with Console(as_json=json) as console, ExitStack() as opened:
        if list_:
            _list_models(console)
            return
        from discreet.errors import BudgetExceeded, ParameterError
        from discreet.pipeline.model import plan_model, publish_model
        from discreet.pipeline.options import Output, RunOptions

        if table is None:
            raise ParameterError("discreet learn needs a table. `discreet learn --list` lists the models.")
        database = opened.enter_context(options.open_service(table))
        schema, promise, parameters = training.read(table, model, database)
        if dry_run:
            _show_plan(
                console,
                plan_model(
                    table if database is None else database,
                    model=model,
                    privacy=promise,
                    schema=schema if database is None else None,
                    target=None if database is None else training.target,
                    **parameters,
                ),
            )
            return
        try:
            result = publish_model(
                table if database is None else database,
                model=model,
                privacy=promise,
                out=out,
                schema=schema if database is None else None,
                target=None if database is None else training.target,
                ledger=ledger.place,
                output=Output(replace=files.replace, about=about.to_dict(), signing=make_signing(files.sign)),
                run=RunOptions(
                    tuned=files.tuned,
                    command=command_line(),
                    new_ledger=ledger.new_ledger,
                    on_stage=console.stage,
                    on_progress=console.progress,
                ),
                **parameters,
            )
        except BudgetExceeded as problem:
            options.suggest_flag(problem, promise)
            raise
        _show(console, result)


def _list_models(console: Console) -> None:
    """Print name, summary and options of every model."""
    models = list(_models())
    rows = [(_mark(name), about, settings) for name, about, settings in models]
    console.table("", ("model", "what it is", "--set"), rows, left=3)
    console.json(
        [
            {"model": name, "about": about, "set": settings.split(", "), "default": name == DEFAULT_MODEL}
            for name, about, settings in models
        ]
    )


def _show_plan(console: Console, plan: "ModelPlan") -> None:
    """Print what a training would ask and cost, and what to expect of the model."""
    from discreet.formatting import format_share

    rows = [(name, format_share(share)) for name, share in plan.shares.items()]
    if rows:
        console.table("", ("query", "share of the promise"), rows, left=1)
    console.paragraph(f"Cost of the whole model: {plan.promise}.")
    if plan.expectation is None:
        console.paragraph(f"The model {plan.model} does not say what to expect before it is trained.")
    else:
        console.paragraph(plan.expectation)
    console.line("Dry run: no cell was read, and nothing was charged, drawn or written.")
    console.json(
        {
            "dry_run": True,
            "model": plan.model,
            "promise": plan.promise.to_dict(),
            "n_rows": plan.n_rows,
            "shares": dict(plan.shares),
            "expectation": plan.expectation,
        }
    )


def _show(console: Console, result: "PublishedModel") -> None:
    """Print the promises of a model and where its folders are."""
    from discreet.report.statement.sentences import quote_promise

    statement = result.statement
    quality = statement.quality
    if quality is not None:
        console.line()
        console.line("How good it is")
        # What was to be expected has been printed before the charge.
        said = 0 if quality.expected is None else 1
        for sentence in quality.sentences[said:] or quality.sentences:
            console.paragraph(sentence, bullet=" - ")
    print_promise(console, (), quote_promise(statement))
    console.paragraph(f"So far: {statement.composition.total}")
    card = result.public / "model-card.md"
    console.paragraph(f"How to use it, and what is not protected: {card}")
    if quality is not None and quality.expected is not None:
        console.line(f"What each column does, as pictures: {result.public / 'model.html'}")
    console.line(f"Publish only {result.public}; to check it: discreet verify {result.public}")
    console.json(
        {
            "public": str(result.public),
            "internal": str(result.internal),
            "release": statement.what.release,
            "model": statement.what.model.name,
            "promises": statement.numbers.promises,
            "epsilon": statement.numbers.epsilon,
            "delta": statement.numbers.delta,
            "cached": result.cached,
            "quality": None if quality is None else quality.model_dump(mode="json"),
            "composition": statement.composition.total,
            "receipts": [receipt.to_dict() for receipt in result.receipts],
        }
    )
