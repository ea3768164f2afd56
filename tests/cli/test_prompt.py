"""The prompt: what is shown before an answer is paid for, what is charged, and what ends it."""

from __future__ import annotations

import contextlib
import io
import stat
from typing import TYPE_CHECKING

import pytest

from discreet.cli.console import Console
from discreet.cli.line_editor import LineEditor, append_history, history_path, read_history
from discreet.cli.prompt import HELP, Prompt
from discreet.ledger import Ledger
from discreet.pipeline.query import QuerySession
from discreet.privacy import ApproxDP, PureDP
from discreet.schema import Schema
from tests.cli.run import discreet
from tests.cli.test_query import DECLARED, PEOPLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

Line = str | type[BaseException] | UnicodeDecodeError
LIMIT = ApproxDP(epsilon=1, delta=1e-6)


class Script:
    """Lines that a person would type, and the prompts that were shown for them."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = list(lines)
        self.prompts: list[str] = []
        self.remembered: list[str] = []

    def read(self, prompt: str, before: str = "") -> str:
        self.prompts.append(prompt)
        line = self.lines.pop(0) if self.lines else EOFError
        if not isinstance(line, str):
            raise line
        return line

    confirm = read

    def remember(self, question: str) -> None:
        self.remembered.append(question)


@pytest.fixture
def survey(tmp_path: Path) -> Iterator[Path]:
    """A folder with a table, its declaration and a ledger with a limit."""
    (tmp_path / "people.csv").write_text(PEOPLE)
    (tmp_path / "people.schema.yaml").write_text(DECLARED)
    with Ledger.open(tmp_path / "survey-2024.ledger", limit=LIMIT):
        pass
    with contextlib.chdir(tmp_path):
        yield tmp_path


def converse(*lines: Line, epsilon: float | None = 0.1, confirm: bool = True) -> tuple[str, Script]:
    """Return what a session printed, and its script; every line was read."""
    script = Script(lines)
    privacy = None if epsilon is None else PureDP(epsilon=epsilon)
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        Console() as console,
        QuerySession("people.csv") as session,
    ):
        Prompt(session, console, script, privacy=privacy, delta=1e-6, confirm=confirm).run("people.csv")
    assert not script.lines
    return out.getvalue(), script


def charges() -> int:
    with Ledger.open("survey-2024.ledger") as ledger:
        return ledger.spent().charges


def test_cost_and_noise_are_shown_before_an_answer_is_paid_for(survey: Path) -> None:
    out, script = converse("40 < AGE", "y", "count where age > 40", "\\q")
    shown = out.split("count where 40 < age\n")
    assert shown[1].startswith("  would be ± 30 rows at 95 %\nCost: ")
    assert "of the budget (ε = 0.1).\n" in shown[1]
    assert "rows (95 %: " in shown[1]
    assert "Free: it was paid for before" in shown[2]  # and answered without asking
    assert shown[1].splitlines()[2] == shown[2].splitlines()[1]
    first, pay, second, last = script.prompts
    assert (first, pay) == ("people, 100.0 % left> ", "Pay? [Y/n] ")
    assert second == last != first
    assert charges() == 1
    assert script.remembered == ["40 < AGE", "count where age > 40", "\\q"]


@pytest.mark.parametrize("reply", ["n", "No", KeyboardInterrupt, EOFError])
def test_what_is_not_agreed_to_is_not_paid(survey: Path, reply: Line) -> None:
    converse("count where age > 40", reply)
    assert charges() == 0
    assert not (survey / "survey-2024.audit.jsonl").exists()


def test_a_reply_that_is_neither_yes_nor_no_is_asked_for_again(survey: Path) -> None:
    out, script = converse("count where age > 40", "where", "maybe", "")
    assert out.count("Type y to pay, or n.") == 2
    assert script.prompts.count("Pay? [Y/n] ") == 3
    assert charges() == 1


def test_payment_without_asking_is_an_option(survey: Path) -> None:
    _, script = converse("count where age > 40", "\\confirm on", "age > 41", "n", confirm=False)
    assert script.prompts.count("Pay? [Y/n] ") == 1
    assert charges() == 1


BAD_LINES: list[Line] = [
    "",
    "   ",
    ";",
    "count where agee > 3",
    "mean(age) where",
    "🙂" * 50,
    "x" * 20_000,
    "'; DROP TABLE people; --",
    "\x00\x1b[31m\udcff",
    "((((((((((",
    "\\",
    "\\\\",
    "\\nonsense",
    "\\privacy epsilon=-1",
    "\\privacy epsilon=nan",
    "\\privacy epsilon=1 mu=2",
    "\\privacy gamma=1",
    "\\privacy 1e",
    "\\sd none",
    "\\sd -4",
    "\\sd inf",
    "\\history x",
    "\\i",
    "\\i nowhere.sql",
    "\\i .",
    "\\csv x.csv",
    "\\plot x.svg",
    "\\refine",
    "\\confirm perhaps",
    KeyboardInterrupt,
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
]


def test_no_line_ends_the_session_or_is_charged(survey: Path) -> None:
    out, script = converse(*BAD_LINES)
    assert len(script.prompts) == len(BAD_LINES) + 1
    assert "Did you mean age?" in out
    assert "\x1b" not in out
    assert "Internal error" not in out
    assert charges() == 0


def test_an_error_of_our_own_is_told_without_its_text(survey: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("row 17 holds 42")

    monkeypatch.setattr(QuerySession, "preview", fail)
    out, _ = converse("count where age > 40", "\\budget")
    assert "Internal error (RuntimeError" in out
    assert "row 17" not in out
    assert "of the budget is used" in out


def test_ctrl_c_while_a_question_is_answered_says_that_it_may_be_charged(
    survey: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask: Callable[..., object] = QuerySession.query

    def interrupt(*given: object, **how: object) -> None:
        ask(*given, **how)
        monkeypatch.setattr(QuerySession, "query", ask)
        raise KeyboardInterrupt

    monkeypatch.setattr(QuerySession, "query", interrupt)
    out, _ = converse("count where age > 40", "y", "count where age > 40")
    stopped, free = out.index("If it was charged already"), out.index("Free: it was paid for before")
    assert stopped < free < out.index("rows (95 %")
    assert charges() == 1


def test_a_promise_can_be_set_and_must_be(survey: Path) -> None:
    out, _ = converse(
        "age > 40", "\\privacy", "\\privacy rho=0.001", "\\sd 20", "age > 40", "y", epsilon=None
    )
    assert out.count("Say what an answer may cost: \\privacy epsilon=0.1") == 2
    assert "Each answer: ρ = 0.001." in out
    assert "Each count or sum: standard deviation 20." in out
    assert "would be ± 40 rows" in out or "would be ± 39" in out
    assert charges() == 1


def test_what_the_budget_does_not_allow_is_told_with_what_it_would(survey: Path) -> None:
    out, script = converse("count where age > 40", "\\privacy epsilon=3 delta=1e-6", "age > 40", epsilon=3)
    assert "Pay? [Y/n] " not in script.prompts
    told = " ".join(out.split())
    assert "That is more than is left; nothing was paid. \\privacy epsilon=" in told
    assert " delta=1e-06 would still fit." in told
    assert charges() == 0


def test_a_select_goes_on_until_its_semicolon_or_an_empty_line(survey: Path) -> None:
    out, script = converse(
        "SELECT sex,", "COUNT(*)", "FROM people GROUP BY sex; -- by sex;", "y", epsilon=0.1
    )
    assert script.prompts[1:3] == ["...> ", "...> "]
    assert "count by sex\n" in out
    out, script = converse("select count(*) from people where age > 40", "", "n")
    assert "count where 40 < age\n" in out


def test_the_rows_may_have_changed_since_a_question_was_paid_for(survey: Path) -> None:
    converse("count where age > 40", "y")
    (survey / "people.csv").write_text(PEOPLE.replace("p0,17,", "p0,89,"))
    _, script = converse("count where age > 40", "n")
    assert "Pay? [Y/n] " in script.prompts
    assert charges() == 1


def test_an_answer_is_refined_written_and_drawn(survey: Path) -> None:
    out, _ = converse("count by sex", "y", "\\refine", "y", "\\csv a.csv", "\\plot a.svg")
    assert "Merged from 2 answers" in out
    assert charges() == 2
    lines = (survey / "a.csv").read_text().splitlines()
    assert lines[0].startswith("sex,value,sd,lower,upper")
    assert [line.partition(",")[0] for line in lines[1:]] == ["f", "m", "x"]
    assert (survey / "a.svg").read_text().startswith("<svg")


def test_a_file_is_asked_as_one_plan(survey: Path) -> None:
    (survey / "q.sql").write_text("count where age > 40\nmean(hours) by sex\n")
    out, script = converse("\\i q.sql", "n", "\\i q.sql", "y", "\\csv all.csv")
    assert script.prompts.count("Pay? [Y/n] ") == 2
    assert "Together: ε = 0.1." in out
    assert charges() == 2
    assert (survey / "all.csv").read_text().startswith("question,sex,value,sd,lower,upper\n")


def test_columns_budget_history_and_help_are_listed(survey: Path) -> None:
    out, _ = converse("\\d", "\\budget", "\\history", "age > 40", "y", "\\history 1", "\\?", ".help", "help")
    assert "17 to 90 years" in out
    assert "f, m, x" in out
    assert "0.0 % of the budget is used" in out.replace("\u00a0", " ")
    assert "Nothing was charged yet." in out
    assert "count where 40 < age" in out
    assert out.count("pay for the last answer again") == 3
    for name in HELP:
        assert name in out


@pytest.mark.parametrize("leave", ["\\q", "quit", "exit;", ".quit"])
def test_ways_to_leave(survey: Path, leave: str) -> None:
    converse(leave)


# History.


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DISCREET_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def test_the_history_is_for_its_owner_alone_and_of_bounded_length(state: Path) -> None:
    assert read_history() == []
    for i in range(2010):
        append_history(f"age > {i}")
    kept = read_history()
    assert (len(kept), kept[-1]) == (1000, "age > 2009")
    assert read_history() == kept
    assert len(history_path().read_text().splitlines()) == 1000
    assert stat.S_IMODE(history_path().stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    history_path().write_bytes(b"\xff\xfe\ncount\n")
    assert read_history()[-1] == "count"


@pytest.mark.parametrize("kept", [True, False])
def test_a_session_can_leave_no_history(state: Path, kept: bool) -> None:
    schema = Schema.from_yaml(DECLARED)
    with LineEditor(schema, (), keep_history=kept) as editor:
        editor.remember("SELECT COUNT(*)\nFROM t;")
    assert read_history() == (["SELECT COUNT(*) FROM t;"] if kept else [])
    assert state.exists() == kept


def test_a_folder_that_cannot_be_written_does_not_stop_a_session(state: Path) -> None:
    state.write_text("a file")
    append_history("count")
    assert read_history() == []


@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--json",), ("--csv",)])
def test_without_a_terminal_a_question_must_be_given(survey: Path, more: tuple[str, ...]) -> None:
    done = discreet("query", "people.csv", "--epsilon", "1", *more, cwd=survey)
    assert done.code == 1
    assert "QUESTION must be given" in done.err
    assert "--file - to read them from standard input" in done.err
