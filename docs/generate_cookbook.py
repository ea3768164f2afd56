"""Write the answers of ``docs/howto/cookbook.md``: ``python docs/generate_cookbook.py`` asks every question.

A question is a heading with its number, a sentence, a block of SQL and a block with its answer. All are asked
in their order, with the noise of one seed, so that the page is the same wherever it is written.
"""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet import ZCDP, ApproxDP, Database, Ledger, datasets
from discreet.cli.answers import show_plan, show_values
from discreet.cli.console import Console
from discreet.pipeline.query import QuerySession
from discreet.pipeline.query_plan import plan_queries
from discreet.pipeline.question_file import decode_questions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet.query.results import QueryResult

PAGE = Path(__file__).parent / "howto" / "cookbook.md"
SEED = 1
RHO = 0.01
"""Promise of every question that does not ask for another."""
LIMIT = ApproxDP(epsilon=6, delta=1e-6, unit="patient")
_WIDTH = 62  # characters of an answer on the page
_QUESTION = re.compile(
    r"^### (\d+)\. ([^\n]+)\n\n((?:[^\n]+\n)+)\n```sql\n(.*?)```\n\n```text\n(.*?)```$",
    re.MULTILINE | re.DOTALL,
)
_REPORT = re.compile(r"^```sql\n(-- report.*?)```\n.*?^```text\n(.*?)```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Question:
    """A question of the page.

    Attributes
    ----------
    number, title : str
        Number and title in its heading.
    sql : str
        Statement that asks it.
    sd : float or None
        Standard deviation that it asks for with ``--sd``; None for a promise.
    is_refined : bool
        Whether it pays again for the last answer to the same statement, with ``--refine``.
    answer : str
        Answer on the page.
    """

    number: int
    title: str
    sql: str
    sd: float | None
    is_refined: bool
    answer: str

    @property
    def price(self) -> dict[str, Any]:
        """Arguments of a query that say what is paid."""
        return {"privacy": ZCDP(rho=RHO)} if self.sd is None else {"sd": self.sd}


def read_questions(text: str) -> list[Question]:
    """Return the questions of the page, in their order."""
    found = []
    for number, title, purpose, sql, answer in _QUESTION.findall(text):
        sd = re.search(r"`--sd ([\d.]+)`", purpose)
        refined = "`--refine`" in purpose
        found.append(Question(int(number), title, sql.strip(), float(sd[1]) if sd else None, refined, answer))
    return found


def answer_questions(questions: list[Question]) -> list[QueryResult]:
    """Ask all questions of the bundled table, in their order."""
    table = datasets.load("hospital")
    results: list[QueryResult] = []
    receipts: dict[str, tuple[str, ...]] = {}
    with (
        Ledger.open(":memory:", limit=LIMIT) as ledger,
        Database(table.path, schema=table.schema, ledger=ledger, random_state=SEED) as db,
    ):
        for question in questions:
            refines = receipts[question.sql] if question.is_refined else ()
            result = db.query(question.sql, refines=refines, **question.price)
            receipts[question.sql] = result.receipts
            results.append(result)
    return results


def write_answer(result: QueryResult) -> str:
    """Return an answer as the command line prints it, without its question."""
    with _printed() as lines, Console() as console:
        show_values(console, result, question=False)
        if not result.cost:
            console.line("Cost: nothing. It follows from public facts.")
        elif result.cached:
            console.line("Cost: nothing. The answer was paid for before.")
    wrapped = (textwrap.wrap(line, _WIDTH) if line.endswith(".") else [line] for line in lines)
    return "".join(f"{line.removeprefix('  ')}\n" for part in wrapped for line in part)


def write_plan(report: str) -> str:
    """Return what the command line prints for the file of questions, with ``--dry-run``."""
    with QuerySession("demo:hospital", ledger=False) as session:
        plan = plan_queries(session, decode_questions(report.encode(), "report"), privacy=ZCDP(rho=3 * RHO))
        with _printed() as lines, Console() as console:
            show_plan(console, plan, LIMIT.delta)
    return "".join(f"{line}\n" for line in lines)


@contextlib.contextmanager
def _printed() -> Iterator[list[str]]:
    """Collect what is printed, without blanks at the ends of lines."""
    out = io.StringIO()
    lines: list[str] = []
    with contextlib.redirect_stdout(out):
        yield lines
    lines += [line.rstrip() for line in out.getvalue().splitlines()]


def write_page(text: str) -> str:
    """Return the page with the answers of today."""
    answers = iter(map(write_answer, answer_questions(read_questions(text))))

    def put(found: re.Match[str]) -> str:
        return text[found.start() : found.start(5)] + next(answers) + text[found.end(5) : found.end()]

    page = _QUESTION.sub(put, text)
    report = _REPORT.search(page)
    assert report is not None
    return page[: report.start(2)] + write_plan(report[1]) + page[report.end(2) :]


if __name__ == "__main__":
    PAGE.write_text(write_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
