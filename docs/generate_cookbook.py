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

from discreet import ZCDP, Database, Ledger, datasets
from discreet.cli.answers import show_values
from discreet.cli.console import Console

if TYPE_CHECKING:
    from discreet.query.results import QueryResult

PAGE = Path(__file__).parent / "howto" / "cookbook.md"
SEED = 1
RHO = 0.01
"""Promise of every question that does not ask for another."""
LIMIT = {"epsilon": 6.0, "delta": 1e-6}
_WIDTH = 62  # characters of an answer on the page
_QUESTION = re.compile(
    r"^### (\d+)\. ([^\n]+)\n\n((?:[^\n]+\n)+)\n```sql\n(.*?)```\n\n```text\n(.*?)```$",
    re.MULTILINE | re.DOTALL,
)


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
        Ledger.open(":memory:") as ledger,
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
    out = io.StringIO()
    with contextlib.redirect_stdout(out), Console() as console:
        show_values(console, result, question=False)
    lines = [line.rstrip().removeprefix("  ") for line in out.getvalue().splitlines()]
    if not result.cost:
        lines.append("Cost: nothing. It follows from public facts.")
    wrapped = (textwrap.wrap(line, _WIDTH) if line.endswith(".") else [line] for line in lines)
    return "".join(f"{line}\n" for part in wrapped for line in part)


def write_page(text: str) -> str:
    """Return the page with the answers of today."""
    answers = iter(map(write_answer, answer_questions(read_questions(text))))

    def put(found: re.Match[str]) -> str:
        return text[found.start() : found.start(5)] + next(answers) + text[found.end(5) : found.end()]

    return _QUESTION.sub(put, text)


if __name__ == "__main__":
    PAGE.write_text(write_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
