"""The prompt of ``discreet query``: each question is previewed, paid for on request, and answered."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.cli.answers import (
    describe_free,
    show_plan,
    show_results,
    show_values,
    write_chart,
    write_results_csv,
)
from discreet.cli.console import Console, describe_unexpected
from discreet.cli.line_editor import LineReader
from discreet.cli.options import make_promise

if TYPE_CHECKING:
    from discreet.ledger import Account
    from discreet.pipeline.query import QuerySession
    from discreet.privacy import Promise
    from discreet.query.results import QueryResult
    from discreet.schema import Column

_CONTINUED = "...> "
_PAY = "Pay? [Y/n] "
_MOST_CHARGES = 20  # that \history lists unless told otherwise
_MOST_VALUES = 8  # of a category that \d lists
_MOST_CHARACTERS = 100_000  # of one statement over several lines

HELP = {
    "\\d": ("", "columns that may be asked about"),
    "\\privacy": ("epsilon=0.1 [delta=1e-6] | mu=0.2 | rho=0.01", "promise of each answer"),
    "\\sd": ("20", "instead: standard deviation of each count or sum"),
    "\\budget": ("", "what was spent and what is left"),
    "\\history": ("[20]", "newest charges of the ledger"),
    "\\refine": ("", "pay for the last answer again, and merge the two"),
    "\\i": ("FILE", "ask a file of questions, paid together"),
    "\\csv": ("FILE", "write the last answers as CSV"),
    "\\plot": ("FILE.svg", "draw the last answers"),
    "\\confirm": ("on | off", "whether to ask before paying"),
    "\\?": ("", "this list"),
    "\\q": ("", "leave, as Ctrl-D does"),
}
"""Commands of the prompt, each with its argument and what it does; named as in psql where that has them."""
_ALIASES = {"columns": "d", "schema": "d", "help": "?", "h": "?", "quit": "q", "exit": "q", "s": "history"}
_BARE = ("help", "quit", "exit")  # also without a backslash, as in psql


class Prompt:
    """Loop that reads questions and commands until the person leaves.

    Parameters
    ----------
    session : QuerySession
        Session of the table that is asked.
    console : Console
        Console that prints answers and errors.
    reader : LineReader
        Reader of the lines that are typed.
    privacy : Promise or None
        Promise of each answer at the start; None if it is yet to be set.
    sd : float or None
        Standard deviation of each count or sum instead; None where `privacy` is given.
    delta : float
        Delta at which Gaussian noise is stated as an epsilon.
    confirm : bool
        Whether to ask before each payment.

    Privacy
    -------
    Whatever is shown before the payment follows from the schema, the public number of rows and what was paid
    for. A question that is cancelled or answered with no is not charged.
    """

    def __init__(
        self,
        session: "QuerySession",
        console: Console,
        reader: LineReader,
        *,
        privacy: "Promise | None" = None,
        sd: float | None = None,
        delta: float,
        confirm: bool = True,
    ) -> None:
        """Keep the session, the price and the commands."""
        self._session, self._console, self._reader = session, console, reader
        self._privacy, self._sd, self._delta, self._confirms = privacy, sd, delta, confirm
        self._last: list[QueryResult] = []
        self._asked = ""
        self._commands: dict[str, Callable[[str], None]] = {
            "d": self._show_columns,
            "privacy": self._set_privacy,
            "sd": self._set_sd,
            "budget": self._show_budget,
            "history": self._show_history,
            "refine": self._refine,
            "i": self._ask_file,
            "csv": self._write_csv,
            "plot": self._plot,
            "confirm": self._set_confirm,
            "?": self._show_help,
        }

    def run(self, table: str) -> None:
        """Read and answer until the person leaves; an error is shown, and the next question is read."""
        from discreet.errors import DiscreetError

        name = _table_name(table)
        self._greet(name, self._session.account())
        while True:
            text = None
            try:
                text = self._read_question(name)
                if self._handle(text):
                    return
            except EOFError:
                self._console.line()
                return
            except KeyboardInterrupt:
                self._console.line()
                if text is not None:
                    self._say("Cancelled; nothing was paid.")
            except UnicodeDecodeError:
                self._say("The line is not text in UTF-8, so it was not read. Type it again.")
            except DiscreetError as problem:
                self._say(str(problem))
            except Exception as problem:
                # Any other error ends the question, not the session; its text may quote rows.
                self._say(describe_unexpected(problem))

    def _handle(self, text: str) -> bool:
        """Ask the questions of a line or run its command; return whether to leave."""
        from discreet.pipeline.question_file import split_questions

        line = text.strip()
        named = self._command_name(line)
        if named is None:
            for question in split_questions(text):
                self._ask(question.text)
            return False
        name, argument = named
        if name == "q":
            return True
        if name not in self._commands:
            from discreet.arguments import nearest

            close = nearest(f"\\{name}", tuple(HELP))
            meant = f"Did you mean {close}? " if close else ""
            self._say(f"There is no command \\{name}. {meant}\\? lists the commands.")
        else:
            self._commands[name](argument)
        return False

    def _command_name(self, line: str) -> tuple[str, str] | None:
        """Return the name of a command and its argument; None for a question."""
        found = re.fullmatch(r"(?:\\|\.(?=[a-z]))(\S*)\s*(.*?);?", line, re.DOTALL)
        if found is None:
            columns = {column.name.casefold() for column in self._session.schema.released}
            word = line.rstrip(";").casefold()
            return (_ALIASES[word], "") if word in _BARE and word not in columns else None
        name = found[1].lower()
        return _ALIASES.get(name, name), found[2].strip()

    # Reading.

    def _read_question(self, name: str) -> str:
        """Return the next command or question; a SELECT goes on until a semicolon or an empty line."""
        text = self._reader.read(self._prompt_text(name))
        if re.match(r"\s*(select|with)\b", text, re.IGNORECASE):
            while not text.rstrip().endswith(";") and len(text) < _MOST_CHARACTERS:
                more = self._reader.read(_CONTINUED, text)
                if not more.strip():
                    break
                text = f"{text}\n{more}"
        if text.strip():
            self._reader.remember(text.strip())
        return text

    def _prompt_text(self, name: str) -> str:
        """Return the name of the table and what is left of its budget."""
        from discreet.errors import DiscreetError
        from discreet.query.costs import describe_left

        try:
            account = self._session.account()
        except DiscreetError:  # the question itself will say why
            return f"{name}> "
        if account is None or account.used is None:
            return f"{name}, no limit> "
        left = describe_left(account.used).removesuffix(" is left").replace("\u00a0", " ")
        return f"{name}, {left} left> "

    def _pays(self) -> bool:
        """Return whether the person agrees to pay."""
        while self._confirms:
            reply = self._reader.confirm(_PAY).strip().lower()
            if reply in ("n", "no"):
                self._say("Not asked; nothing was paid.")
                return False
            if reply in ("", "y", "yes"):
                break
            self._say("Type y to pay, or n.")
        return True

    # Questions.

    def _ask(self, question: str) -> None:
        """Show what a question costs, and answer it once it may be paid for."""
        from discreet.formatting import printable
        from discreet.query.language.query import parse_query

        understood = parse_query(question, self._session.schema)
        self._console.line(printable(str(understood)))
        if not self._has_price():
            return
        preview = self._session.preview(question, privacy=self._privacy, sd=self._sd, exact=True)
        if preview.cost and not preview.is_free:
            self._console.line(f"  {preview.margin_words}")
            if not self._show_cost(preview.cost, preview.remaining) or not self._pays():
                return
        else:
            self._say(describe_free(preview) or "")
        self._show_answer(question)

    def _refine(self, _argument: str) -> None:
        """Pay for another answer to the last question, and merge the two."""
        from discreet.formatting import printable

        receipts = self._last[0].receipts if len(self._last) == 1 else ()
        if not receipts:
            self._say("There is no answer that was paid for alone. Ask a question first.")
            return
        if not self._has_price():
            return
        preview = self._session.preview(self._asked, privacy=self._privacy, sd=self._sd)
        self._console.line(f"{printable(preview.question)}, again")
        if self._show_cost(preview.cost, preview.remaining) and self._pays():
            self._show_answer(self._asked, receipts)

    def _show_answer(self, question: str, refines: Sequence[str] = ()) -> None:
        """Charge and print an answer; Ctrl-C from here on may come after the charge."""
        result = self._charge(
            lambda: self._session.query(question, privacy=self._privacy, sd=self._sd, refines=refines)
        )
        if result is not None:
            show_values(self._console, result, question=False)
            self._last, self._asked = [result], question

    def _ask_file(self, argument: str) -> None:
        """Show what the questions of a file cost together, and answer them once they may be paid for."""
        from discreet.pipeline.query_plan import plan_queries, run_plan
        from discreet.pipeline.question_file import read_questions

        if not argument:
            self._say("Name the file: \\i questions.sql")
            return
        questions = read_questions(Path(argument).expanduser())
        if not self._has_price():
            return
        plan = plan_queries(self._session, questions, privacy=self._privacy, sd=self._sd)
        show_plan(self._console, plan, self._delta)
        if plan.cost and not (self._fits(plan.cost, plan.remaining) and self._pays()):
            return
        results = self._charge(lambda: run_plan(self._session, plan))
        if results is not None:
            self._last = results
            show_results(self._console, results, self._session.account(), self._delta)

    def _charge(self, work: "Callable[[], Any]") -> Any:
        """Return what is charged and answered; None if it was stopped."""
        from discreet.errors import BudgetExceeded

        try:
            return work()
        except KeyboardInterrupt:
            self._session.close()  # a query that was cut off may have left its engine in any state
            self._console.line()
            self._say("Stopped. If it was charged already, the same question is free.")
            return None
        except BudgetExceeded as problem:
            problem.advice = self._describe_affordable(problem.scale)
            raise

    def _has_price(self) -> bool:
        if self._privacy is None and self._sd is None:
            self._say(
                "Say what an answer may cost: \\privacy epsilon=0.1, or with Gaussian noise \\privacy "
                "epsilon=0.1 delta=1e-6. Or say how noisy a count or sum may be: \\sd 20"
            )
            return False
        return True

    def _show_cost(self, cost: "tuple[Promise, ...]", remaining: Any) -> bool:
        """Print a cost and the part of the budget that it takes; return whether it fits."""
        from discreet.query.costs import describe_cost, describe_takes, takes_all

        text = describe_cost(cost, self._delta)
        takes = None if remaining is None else remaining["takes"]
        if takes is None:
            self._say(f"Cost: {text}.")
        elif takes_all(remaining):
            self._say(f"Cost: all of the budget ({text}); nothing could be asked after it.")
        else:
            self._say(f"Cost: {describe_takes(takes)} ({text}).")
        return self._fits(cost, remaining)

    def _fits(self, cost: "tuple[Promise, ...]", remaining: Any) -> bool:
        """Return whether the budget allows a cost; if not, say what it would allow."""
        account = self._session.account()
        if account is None or remaining is None or remaining["more"] != 0:
            return True
        advice = self._describe_affordable(account.scale(cost[:1], cost[1:]))
        self._say(f"That is more than is left; nothing was paid. {advice}")
        return False

    def _describe_affordable(self, scale: float) -> str:
        """Return the command for the largest promise, or the least sd, that would still fit."""
        from discreet.query.costs import affordable_request

        found = affordable_request(self._privacy, self._sd, scale)
        if found is None:
            return "Nothing like it would fit any more."
        if "sd" in found:
            return f"\\sd {found['sd']:.15g} would still fit."
        named = " ".join(f"{name}={value:.15g}" for name, value in found.items() if name != "kind")
        return f"\\privacy {named} would still fit."

    # Settings.

    def _set_privacy(self, argument: str) -> None:
        """Set the promise of each answer, or show it."""
        from discreet.privacy.promises import describe_promise

        if argument:
            numbers = _read_parameters(argument)
            if numbers is None:
                self._say("Write the promise as \\privacy epsilon=0.1 delta=1e-6, mu=0.2 or rho=0.01.")
                return
            self._privacy, self._sd = make_promise(self._session.schema, **numbers), None
        if self._privacy is not None:
            self._say(f"Each answer: {describe_promise(self._privacy.to_dict())}.")
        elif self._sd is not None:
            self._say(f"Each count or sum: standard deviation {self._sd:g}.")
        else:
            self._has_price()

    def _set_sd(self, argument: str) -> None:
        """Set the standard deviation of each count or sum, or show it."""
        if argument:
            number = _read_number(argument)
            if number is None or number <= 0:
                self._say("Write a number above 0, in the unit of the answer: \\sd 20")
                return
            self._privacy, self._sd = None, number
        self._set_privacy("")

    def _set_confirm(self, argument: str) -> None:
        """Set whether to ask before paying, or show it."""
        if argument and argument not in ("on", "off"):
            self._say("Write \\confirm on or \\confirm off.")
            return
        self._confirms = self._confirms if not argument else argument == "on"
        self._say("Each payment is confirmed." if self._confirms else "Answers are paid without asking.")

    # Showing.

    def _greet(self, name: str, account: "Account | None") -> None:
        columns = len(self._session.schema.released)
        self._say(f"{name}: {columns} columns. \\? lists the commands, Tab completes, \\q leaves.")
        if account is None or account.caps is None:
            self._say(
                "There is no limit: answers are counted, and none is refused. `discreet ledger create` makes "
                "a ledger with a limit."
            )

    def _show_help(self, _argument: str) -> None:
        rows = [(f"{name} {argument}".strip(), what) for name, (argument, what) in HELP.items()]
        self._console.table("", ("", ""), rows, left=2)
        self._say(
            "A question in words ends with the line: count where age > 40, mean(age) by sex. A SELECT ends "
            "with a semicolon or an empty line. Before an answer is paid for you see what it costs and how "
            "noisy it will be; Ctrl-C cancels. A question that was paid for is free."
        )

    def _show_columns(self, _argument: str) -> None:
        from discreet.formatting import printable
        from discreet.query.language.lexer import write_name

        rows = [
            (printable(write_name(column.name)), column.type or "", _describe_domain(column))
            for column in self._session.schema.released
        ]
        self._console.table("", ("column", "type", "declared"), rows, left=3)

    def _show_budget(self, _argument: str) -> None:
        self._say(self._session.describe_budget() or "Nothing was charged yet, and there is no limit.")

    def _show_history(self, argument: str) -> None:
        """List the newest charges of the ledger."""
        from discreet.formatting import printable

        last = _read_number(argument) if argument else _MOST_CHARGES
        if last is None or last < 1:
            self._say("Write how many charges to list: \\history 20")
            return
        rows = self._session.history(int(min(last, 1_000_000)))
        if not rows:
            self._say("Nothing was charged yet.")
            return
        shown = [tuple(map(printable, row)) for row in rows]
        self._console.table("", ("row", "when", "question", "cost"), shown, left=4)

    def _write_csv(self, argument: str) -> None:
        """Write the last answers to a file."""
        from discreet.errors import SourceError

        if self._has_file(argument, "\\csv answer.csv"):
            (first, *others) = self._last
            text = write_results_csv(self._last) if others else first.to_csv()
            try:
                Path(argument).expanduser().write_text(text, encoding="utf-8")
            except OSError as problem:
                raise SourceError(
                    f"The file {argument!r} cannot be written ({problem.strerror}). Choose another place."
                ) from None

    def _plot(self, argument: str) -> None:
        """Draw the last answers to a file, or to numbered files if there are several."""
        if self._has_file(argument, "\\plot answer.svg"):
            path = Path(argument).expanduser()
            for number, result in enumerate(self._last, 1):
                write_chart(result, path if len(self._last) == 1 else path.with_stem(f"{path.stem}-{number}"))

    def _has_file(self, argument: str, example: str) -> bool:
        if not self._last:
            self._say("There is no answer yet. Ask a question first.")
        elif not argument:
            self._say(f"Name the file: {example}")
        return bool(self._last and argument)

    def _say(self, text: str) -> None:
        """Print sentences; each line of the text begins a new one."""
        from discreet.formatting import printable

        for line in text.split("\n"):
            self._console.paragraph(printable(line))


def _table_name(table: str) -> str:
    """Return a short name of a table for the prompt, without a password that its address may hold."""
    from discreet.formatting import printable, shorten
    from discreet.pipeline.sources import schema_path

    return shorten(printable(schema_path(table).name.removesuffix(".schema.yaml")), 24)


def _describe_domain(column: "Column") -> str:
    """Return what was declared about the cells of a column."""
    from discreet.formatting import name

    missing = "" if column.required else ", may be missing"
    if column.is_category:
        levels = [name(str(level)) for level in column.levels if level is not None]
        more = f", and {len(levels) - _MOST_VALUES} more" if len(levels) > _MOST_VALUES else ""
        return f"{', '.join(levels[:_MOST_VALUES])}{more}{missing}"
    low, high = (end if column.is_calendar else f"{end:g}" for end in (column.lower, column.upper))
    unit = f" {name(column.measure)}" if column.measure else ""
    return f"{low} to {high}{unit}{missing}"


def _read_parameters(text: str) -> "dict[str, Any] | None":
    """Return the numbers of a promise by name, None for those left out; None if the text is none."""
    numbers: dict[str, Any] = dict.fromkeys(("epsilon", "delta", "mu", "rho"))
    found = re.findall(r"([a-z]+)\s*[= ]\s*([^\s,]+)[\s,]*", text.lower())
    if not found or re.sub(r"([a-z]+)\s*[= ]\s*([^\s,]+)[\s,]*", "", text.lower()):
        return None
    for name, value in found:
        number = _read_number(value)
        if name not in numbers or numbers[name] is not None or number is None:
            return None
        numbers[name] = number
    return numbers


def _read_number(text: str) -> float | None:
    """Return a finite number; None for any other text."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None
