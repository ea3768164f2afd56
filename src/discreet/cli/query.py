"""``discreet query``: queries on a private table: one, a file of them, or at a prompt."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli import options
from discreet.cli.answers import (
    plan_fields,
    show_plan,
    show_preview,
    show_result,
    show_results,
    write_chart,
    write_results_csv,
)
from discreet.cli.console import Console, write_out
from discreet.cli.options import LedgerFlags, PromiseFlags, expand_flags

if TYPE_CHECKING:
    from discreet.pipeline.query import QuerySession
    from discreet.pipeline.question_file import WrittenQuestion

DELTA = 1e-6
"""Delta at which Gaussian noise is stated as an epsilon, unless ``--delta`` names another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFlags:
    """Flags that choose the form of the answers, or a preview of them."""

    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the cost and the noise of the answer; read no cell."),
    ] = False
    json: options.Json = False
    csv: Annotated[
        bool,
        typer.Option("--csv", help="Print CSV instead of text: names of the groups, value, lower, upper."),
    ] = False
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Draw the answer with its intervals to this file as well; for a file of questions, one "
            "chart each, numbered.",
            metavar="FILE.svg",
        ),
    ] = None

    def check(self) -> None:
        """Refuse forms that exclude each other."""
        from discreet.errors import ParameterError

        if self.json and self.csv:
            raise ParameterError("--json and --csv exclude each other. Give one of them.")
        if self.dry_run and (self.csv or self.plot):
            given = "--csv" if self.csv else "--plot"
            raise ParameterError(
                f"{given} and --dry-run exclude each other: a dry run has no answer. Leave one of them out."
            )
        if self.plot is not None and self.plot.suffix.lower() != ".svg":
            raise ParameterError(
                f"--plot must name a file that ends with .svg, was {str(self.plot)!r}. Charts are written as "
                "SVG."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFlags:
    """Flags of a file of questions."""

    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            help="Instead of QUESTION: a file of questions, or - for standard input; one on each line, or "
            "each ended by a semicolon; -- begins a comment. All are paid together or none is: they share "
            "the promise equally.",
            metavar="FILE",
        ),
    ] = None
    each: Annotated[
        bool, typer.Option("--each", help="With --file: every question gets the whole promise, not a share.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFlags:
    """Flags of the prompt."""

    yes: Annotated[
        bool, typer.Option("--yes", help="At the prompt: pay without being asked before each answer.")
    ] = False
    no_history: Annotated[
        bool,
        typer.Option(
            "--no-history",
            help="At the prompt: do not keep the questions of this session for the next one. They are kept "
            "in the folder DISCREET_STATE, for you alone; answers are not.",
        ),
    ] = False


@expand_flags
def query(
    table: options.Table,
    question: Annotated[
        str | None,
        typer.Argument(
            help="COUNT, SUM(x), MEAN(x), STDDEV(x), VARIANCE(x), MEDIAN(x), QUANTILE(x, 0.9), RATIO(x, y) "
            "or COUNT(DISTINCT id), one or several with commas, then [WHERE condition] [BY column, ...] "
            "[ORDER BY ...] [LIMIT n]; an expression alone is summed, so a condition alone is counted. To "
            "group by a number, list where its intervals begin: BY age (30, 45, 60). Put column names that "
            "are not plain words in double quotes. Or write SQL: SELECT AVG(x), ... FROM name [WHERE ...] "
            "[GROUP BY ...] [ORDER BY ...] [LIMIT n]. Without a question, and on a terminal, a prompt asks "
            "for them.",
            metavar="QUESTION",
        ),
    ] = None,
    *,
    schema: options.SchemaFile = None,
    promise: PromiseFlags,
    sd: Annotated[
        float | None,
        typer.Option(help="Instead: standard deviation of the noise, in the unit of the count or sum."),
    ] = None,
    refine: Annotated[
        list[str] | None,
        typer.Option(
            "--refine",
            help="Receipt of an earlier answer to the same query: pay for another answer and merge the two.",
            metavar="RECEIPT",
        ),
    ] = None,
    file: FileFlags,
    ledger: LedgerFlags,
    output: OutputFlags,
    prompt: PromptFlags,
) -> None:
    """Query a private table: mean(age) by sex. Each answer is charged to the ledger.

    Repeating a query on the same rows is free and returns the same answer. All declared groups are answered,
    including empty ones. Intervals are at 95 % and for the noise alone, not for sampling from a population.
    """
    from discreet.pipeline.query import QuerySession

    output.check()
    questions = None if file.file is None else _read_file(file.file, question, refine)
    prompted = question is None and questions is None
    if prompted:
        _check_terminal(
            other=output.dry_run or output.json or output.csv or output.plot or refine or file.each
        )
    declared = options.load_declaration(table, schema, None)
    privacy = promise.promise(declared)
    delta = promise.delta or DELTA
    with (
        Console(as_json=output.json or output.csv) as console,
        QuerySession(table, schema=declared, ledger=ledger.place, new_ledger=ledger.new_ledger) as session,
    ):
        if prompted:
            from discreet.cli.line_editor import LineEditor
            from discreet.cli.prompt import HELP, Prompt

            with LineEditor(declared, tuple(HELP), keep_history=not prompt.no_history) as editor:
                Prompt(
                    session, console, editor, privacy=privacy, sd=sd, delta=delta, confirm=not prompt.yes
                ).run(table)
        elif questions is not None:
            asked = {"privacy": privacy, "sd": sd, "each": file.each}
            _answer_file(console, session, questions, asked, delta, output)
        elif output.dry_run:
            assert question is not None
            show_preview(console, session.preview(question, privacy=privacy, sd=sd), delta)
        else:
            assert question is not None
            with _advice(privacy, sd):
                result = session.query(question, privacy=privacy, sd=sd, refines=refine or ())
            if output.plot is not None:
                write_chart(result, output.plot)
            if output.csv:
                write_out(result.to_csv())
            else:
                show_result(console, result, delta)


def _read_file(file: str, question: str | None, refine: Any) -> "tuple[WrittenQuestion, ...]":
    """Return the questions of a file, or of standard input for ``-``."""
    from discreet.errors import ParameterError
    from discreet.pipeline.question_file import decode_questions, read_questions

    if question is not None or refine:
        given = "--refine" if refine else "QUESTION"
        raise ParameterError(f"--file and {given} exclude each other. Give one of them.")
    if file == "-":
        return decode_questions(sys.stdin.buffer.read(), "standard input")
    return read_questions(file)


def _check_terminal(*, other: Any) -> None:
    """Refuse to open a prompt where nobody can type, or where a flag asks for one answer."""
    from discreet.errors import ParameterError

    if other or not (sys.stdin.isatty() and sys.stdout.isatty()):
        why = "with these flags" if other else "where there is no terminal to type it at"
        raise ParameterError(
            f"QUESTION must be given {why}, and was left out. Give a question, a file of questions with "
            "--file FILE, or --file - to read them from standard input."
        )


def _answer_file(
    console: Console,
    session: "QuerySession",
    questions: "tuple[WrittenQuestion, ...]",
    asked: dict[str, Any],
    delta: float,
    output: OutputFlags,
) -> None:
    """Answer the questions of a file together, or show what they would cost."""
    from discreet.pipeline.query_plan import plan_queries, run_plan

    plan = plan_queries(session, questions, **asked)
    if output.dry_run:
        show_plan(console, plan, delta)
        console.line("Dry run: no cell was read, and nothing was charged or drawn.")
        console.json({"dry_run": True, **plan_fields(plan)})
        return
    with _advice(asked["privacy"], asked["sd"]):
        results = run_plan(session, plan)
    if output.plot is not None:
        for number, result in enumerate(results, 1):
            write_chart(result, output.plot.with_stem(f"{output.plot.stem}-{number}"))
    if output.csv:
        write_out(write_results_csv(results))
    else:
        show_results(console, results, session.account(), delta)


@contextmanager
def _advice(privacy: Any, sd: float | None) -> Iterator[None]:
    """Name the flag that would still fit, if the budget does not allow what was asked for."""
    from discreet.errors import BudgetExceeded
    from discreet.query.costs import affordable_request

    try:
        yield
    except BudgetExceeded as problem:
        affordable = affordable_request(privacy, sd, problem.scale)
        if affordable is not None:
            # Its delta is the one that was typed.
            name, amount = next((n, x) for n, x in affordable.items() if n != "kind")
            problem.advice = f"--{name} {amount:.15g} would still fit."
        raise
