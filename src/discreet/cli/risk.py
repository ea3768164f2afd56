"""The table of attacks on made-up people, and the exit code of a release that is stopped by it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from discreet.audit import AttackRisk, Risk
    from discreet.cli.console import Console

EXIT_RISK = 5
"""Exit code of a release that is stopped because attackers would gain too much."""
_HEADINGS = ("attack", "knows", "right", "without the row", "at most", "")


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
