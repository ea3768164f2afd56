"""The slider: what more or less noise would give and cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.report import wording
from discreet.report.charts import slider_ticks, what_if_curve
from discreet.report.charts.curves import factor_axis
from discreet.report.views.columns import is_chance, is_protected
from discreet.report.views.learning import original_scores
from discreet.report.views.table import Table

if TYPE_CHECKING:
    from markupsafe import Markup

    from discreet.report.findings import Findings, WhatIf
    from discreet.report.statement import ColumnNumbers, Statement

_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfView:
    """The slider, the texts of its positions, and the same as a table.

    Attributes
    ----------
    data : mapping
        What the script needs: every text is made here, so that slider and table say the same.
    """

    data: dict[str, Any]
    ticks: Markup
    columns: list[str]
    hidden: int
    quality: str
    curve: Markup
    table: Table

    @property
    def chosen(self) -> dict[str, Any]:
        """The texts of the release as it is."""
        chosen: dict[str, Any] = self.data["positions"][self.data["chosen"]]
        return chosen


def what_if_view(statement: Statement, findings: Findings) -> WhatIfView | None:
    """Word the positions of the slider; None where none were worked out."""
    grid = sorted(findings.what_if, key=lambda at: at.factor)
    if not grid:
        return None
    chosen = min(range(len(grid)), key=lambda k: abs(grid[k].factor - 1.0))
    known = [n for n in statement.numbers.columns if is_protected(n) and n.column in grid[chosen].noise]
    shown = known[:_SHOWN]
    regression = findings.learning is not None and findings.learning.task == "regression"
    quality = "R²" if regression else "Accuracy"
    points = [(at.factor, at.accuracy) for at in grid if at.accuracy is not None]
    scores = original_scores(findings.learning)
    names = {"original": "original rows", "majority": "no row at all"}
    curve = what_if_curve(
        "what-if-curve",
        points,
        chosen=1.0,
        title=f"{quality} against noise",
        levels=[(names[n], scores[n], n) for n in names if n in scores],
    )
    # The script moves the cursor to these places in the picture.
    axis = factor_axis([factor for factor, _ in points]) if curve else None
    positions = [_position(at, shown, quality, here=k == chosen) for k, at in enumerate(grid)]
    if axis is not None:
        for at, position in zip(grid, positions, strict=True):
            position["x"] = round(axis(at.factor), 2)
    return WhatIfView(
        data={"chosen": chosen, "positions": positions},
        ticks=slider_ticks("what-if-ticks", len(grid), chosen),
        columns=[n.column for n in shown],
        hidden=len(known) - len(shown),
        quality=quality,
        curve=curve,
        table=_table(positions, shown, quality),
    )


def _position(at: WhatIf, shown: list[ColumnNumbers], quality: str, *, here: bool) -> dict[str, Any]:
    epsilon = "none" if at.epsilon is None else wording.number(at.epsilon, rounding="up")
    if at.epsilon is not None and at.delta:
        epsilon += f" at δ = {wording.number(at.delta, rounding='up')}"
    if at.accuracy is None:
        accuracy = "not measured"
    else:
        accuracy = wording.percent(at.accuracy) if quality == "Accuracy" else wording.number(at.accuracy)
    columns = [[_noise(at, n), _proven(at, n)] for n in shown]
    factor = wording.number(at.factor)
    first = next((n for n in shown if n.column in at.floors), None)
    said = "The noise as it is" if here else f"{factor} times the noise"
    if first is not None:
        said += f": {wording.name(first.column)} is proven to {_proven(at, first)}"
    said += "" if at.epsilon is None else f"; ε {epsilon}"
    said += (
        "" if at.accuracy is None else f"; {quality.lower() if quality == 'Accuracy' else quality} {accuracy}"
    )
    return {
        "factor": f"{factor}\u00a0×",
        "here": here,
        "epsilon": epsilon,
        "accuracy": accuracy,
        "regularization": "" if at.regularization is None else wording.number(at.regularization),
        "columns": columns,
        "said": said + ".",
    }


def _noise(at: WhatIf, numbers: ColumnNumbers) -> str:
    amount = at.noise.get(numbers.column)
    if amount is None:
        return wording.NONE
    if numbers.law.get("kind") == "response":
        return f"{wording.percent(amount)} changed"
    return wording.quantity(amount, numbers.measure, chance=False)


def _proven(at: WhatIf, numbers: ColumnNumbers) -> str:
    floor = at.floors.get(numbers.column)
    if floor is None:
        return wording.NONE
    chance = is_chance(numbers)
    return wording.quantity(floor, numbers.measure, chance=chance, rounding="down") + (
        " wrong" if chance else ""
    )


def _table(positions: list[dict[str, Any]], shown: list[ColumnNumbers], quality: str) -> Table:
    few = shown[:4]
    rows = [
        [
            p["factor"] + (" (chosen)" if p["here"] else ""),
            p["epsilon"],
            p["accuracy"],
            *(p["columns"][k][1] for k in range(len(few))),
        ]
        for p in positions
    ]
    return Table(
        caption="What if: more or less noise",
        head=("Noise", "ε", quality, *(f"{wording.name(n.column)}, proven" for n in few)),
        rows=rows,
        numbers=range(1, 3 + len(few)),
    )
