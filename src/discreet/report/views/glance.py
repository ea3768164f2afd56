"""The first thing a reader sees: four numbers that say how the release stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from discreet.report import wording
from discreet.report.views.attacks import exposures
from discreet.report.views.learning import original_scores

if TYPE_CHECKING:
    from discreet.report.findings import Findings
    from discreet.report.statement import Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A number with its name, what it means, and whether that is good (``kind`` as of a badge)."""

    title: str
    amount: str
    note: str
    kind: str = "plain"


def tiles(statement: Statement, findings: Findings) -> list[Tile]:
    """Return the tiles at the head of the internal report."""
    return [
        tile
        for tile in (_floors(findings), _epsilon(statement), _quality(findings), _exposed(findings))
        if tile
    ]


def _floors(findings: Findings) -> Tile | None:
    decided = [g for g in findings.guesses if g["on"] == "prior" and g["verdict"] in ("holds", "broken")]
    if not decided:
        return Tile(title="Floors", amount="none", note="No error floor is proven.", kind="warn")
    all_columns = {str(g["column"]) for g in decided}
    broken = {str(g["column"]) for g in decided if g["verdict"] == "broken"}
    attacks = wording.counted(len(decided), "attack")
    return Tile(
        title="Floors that held",
        amount=f"{len(all_columns) - len(broken):,} of {len(all_columns):,}",
        note=f"against {attacks} on made-up records",
        kind="bad" if broken else "ok",
    )


def _epsilon(statement: Statement) -> Tile:
    numbers = statement.numbers
    if not statement.definition.differential_privacy or numbers.epsilon is None:
        return Tile(
            title="Differential privacy",
            amount="none",
            note="No epsilon is proven for it as a whole.",
            kind="warn",
        )
    delta = f"at δ = {wording.number(numbers.delta, rounding='up')}" if numbers.delta else "pure"
    return Tile(
        title="ε of a whole row",
        amount=wording.number(numbers.epsilon, rounding="up"),
        note=delta + (", large: read the floors" if numbers.epsilon > 8 else ""),
    )


def _quality(findings: Findings) -> Tile | None:
    scores, task = original_scores(findings.learning), findings.learning and findings.learning.task
    if "release" not in scores:
        return None
    said = wording.percent if task == "classification" else wording.number
    others = [
        f"{name} {said(scores[key])}"
        for key, name in (
            ("aware", "knowing the noise law"),
            ("original", "original"),
            ("majority", "no row at all"),
        )
        if key in scores
    ]
    return Tile(
        title="Accuracy" if task == "classification" else "R²",
        amount=said(scores["release"]),
        note=", ".join(others),
    )


def _exposed(findings: Findings) -> Tile | None:
    worst = next(iter(exposures(findings.exposures)), None)
    if worst is None:
        return None
    return Tile(
        title=worst.attack.capitalize(),
        amount=worst.success,
        note=f"{worst.verdict}; by chance {worst.chance}",
        kind=worst.kind,
    )
