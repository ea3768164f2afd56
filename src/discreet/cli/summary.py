"""Short output about a release or a model, within 80 columns: floors of columns, promise and risk."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.cli.console import Console

if TYPE_CHECKING:
    from discreet.audit import AttackRisk, Risk
    from discreet.formatting import Rounding
    from discreet.pipeline.result import Row
    from discreet.report.statement.documents import Statement

_MOST_ROWS = 5  # lines of a table of columns
_CHANCE = "of guesses"  # the unit of rows of discreet.pipeline.result about lists
_NO_BREAK = "\u00a0"
_ROUNDING: "tuple[Rounding, ...]" = ("nearest", "nearest", "down")
EXIT_RISK = 5
"""Exit code of a release that is stopped because attackers would gain too much."""
_HEADINGS = ("attack", "knows", "right", "without the row", "at most", "")


def print_rows(console: Console, rows: "Sequence[Row]") -> None:
    """Print the best attack on made-up records and the floor of each column; nothing if there is no floor."""
    lines = [
        _Line(
            column=row.column, alike=(row.noise, row.unit, row.floor, row.verdict), measure=row.unit or None,
            chance=row.unit == _CHANCE, errors=(row.attack, row.without or row.attack, row.floor),
            verdict="BROKEN" if row.verdict == "broken" else "",
        )
        for row in rows
        if row.attack is not None
    ]  # fmt: skip
    _print_lines(console, "on records drawn from the prior of its floor", lines)


def print_floors(console: Console, statement: "Statement") -> None:
    """Print what the best attack from the file alone achieves, and then the floor under its prior."""
    from discreet.formatting import is_chance

    best: dict[str, Mapping[str, Any]] = {}
    for guess in statement.attacks:
        if (
            guess.get("on") == "file"
            and guess["error"] < best.get(guess["column"], {"error": math.inf})["error"]
        ):
            best[guess["column"]] = guess
    lines = []
    for numbers in statement.numbers.columns:
        found, floor = best.get(numbers.column), numbers.floor
        if found is not None and floor is not None:
            lines.append(
                _Line(
                    column=numbers.column,
                    alike=(numbers.law_in_words, numbers.measure, floor["error"]),
                    measure=numbers.measure,
                    chance=is_chance(str(found["statistic"])),
                    errors=(found["error"], found["without"], float(floor["error"])),
                )
            )
    _print_lines(console, "from the published file alone", lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """Errors of guesses of one column: of the best attack, without the row, and the floor."""

    column: str
    alike: tuple[Any, ...]
    measure: str | None
    chance: bool
    errors: tuple[float, float, float | None]
    verdict: str = ""

    def cells(self) -> list[str]:
        """Return the errors as text."""
        from discreet.formatting import quantity

        unit = None if self.chance else self.measure
        texts = [
            "none" if error is None else quantity(error, unit, chance=self.chance, rounding=rounding)
            for error, rounding in zip(self.errors, _ROUNDING, strict=True)
        ]
        return [f"{text.replace(_NO_BREAK, ' ')}{' wrong' if self.chance else ''}" for text in texts]


def _print_lines(console: Console, where: str, lines: Sequence[_Line]) -> None:
    """Print errors by column; of columns with the same noise, the one that is guessed best."""
    if not lines:
        return
    groups: dict[tuple[Any, ...], list[_Line]] = {}
    for line in lines:
        groups.setdefault(line.alike, []).append(line)
    rows = []
    for group in groups.values():
        best = min(group, key=lambda line: line.errors[0] / (line.errors[1] or 1.0))
        more = f" and {len(group) - 1} more" if len(group) > 1 else ""
        rows.append((f"{_short(best.column)}{more}", *best.cells(), best.verdict))
    console.line()
    console.paragraph(f"How well anyone guesses a cell, {where}. Whoever knows more may be below the floor.")
    console.table("", ("column", "best attack", "without the row", "floor", ""), rows[:_MOST_ROWS])
    rest = sum(len(group) for group in list(groups.values())[_MOST_ROWS:])
    if rest:
        console.line(f"... and {rest} more columns")


def _short(text: str) -> str:
    from discreet.formatting import shorten

    return shorten(text, 26)


def print_promise(console: Console, notes: Sequence[str], promise: str) -> None:
    """Print the decisions that no one requested, and the promise."""
    console.line()
    for note in notes:
        console.paragraph(note)
    console.paragraph(f"Promise: {promise}")


def print_risk(console: "Console", risk: "Risk") -> None:
    """Print the best attack of each kind in a table, what it gains in a sentence, and the verdict."""
    worst = [
        risk.worst("linkage"),
        risk.worst("membership"),
        risk.worst("attribute inference"),
    ]
    found = [one for one in worst if one is not None]
    if found:
        console.line()
        console.table(
            "What does an attacker gain? (made-up people)", _HEADINGS, map(_format_attack, found), left=2
        )
    console.paragraph(risk.sentence)
    console.paragraph(f"May it be published? {risk.verdict.capitalize()}. {risk.why}")
    if risk.accepted is not None:
        console.paragraph(f"The risk is accepted: {risk.accepted}")


def _format_attack(one: "AttackRisk") -> tuple[str, ...]:
    """Return the cells of one line of the table."""
    from discreet.formatting import count_noun, name, small_percent

    cells = (
        one.attack if one.column is None else f"{one.attack}: {name(one.column)}",
        count_noun(one.known, "column"),
        small_percent(one.success),
        small_percent(one.baseline),
        small_percent(one.threshold),
        "ABOVE" if one.is_above else "",
    )
    return tuple(cell.replace("\u00a0", " ") for cell in cells)
