"""Result of a release: its folders, its promises, and the lines that the command line prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.formatting import count_noun, list_names, plain_number
from discreet.privacy import ApproxDP, ErrorFloor, GaussianDP, PureDP
from discreet.privacy.calibration import gaussian_epsilon, response_epsilon
from discreet.release.kinds import is_coarse_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from discreet.audit import Guess, Risk
    from discreet.privacy import Promise, Receipt
    from discreet.release import ColumnSummary, ReleasePlan
    from discreet.release.coarse import CoarsePlan
    from discreet.report.findings import Findings
    from discreet.report.statement.documents import Definition, Numbers, Statement

_MOST_PARTS = 4  # of an epsilon that is split over columns
CHANCE = "of guesses"
"""Unit of the error of a column with listed values: the share of wrong guesses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the printed table: how well anyone can guess the cells of one published column.

    Attributes
    ----------
    column, unit : str
        Name of the column, and the unit of the errors below.
    noise : str
        Noise that was added to the column, in words.
    without, floor : float or None
        Error of the best guess without the release, and the proven least error with it.
    attack, lower, upper : float or None
        Error of the best attack on records drawn from the floor's prior, with its confidence interval.
    verdict : str
        "holds", "broken", "no floor" or "public".
    """

    column: str
    unit: str
    noise: str
    without: float | None = None
    floor: float | None = None
    attack: float | None = None
    lower: float | None = None
    upper: float | None = None
    verdict: str = "no floor"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A release on disk, with everything that is known about it.

    Attributes
    ----------
    folder, public, internal : Path
        Folder of the release and its two parts. Publish only ``public``.
    statement : Statement
        Content of ``public/statement.json``: every promise with its proof.
    findings : Findings
        Content of ``internal/attacks.json``: attacks and comparisons on real rows.
    risk : Risk
        What attackers gain, measured on made-up people before the charge.
    receipt : Receipt
        Receipt of the charge; it names no ledger if nothing was counted.
    rows : tuple of Row
        Lines of the table that the command line prints, one per published column.
    notes : tuple of str
        Decisions that no one requested: the method, the noise of columns without a request, how epsilon was
        split.
    sentences : tuple of str
        Promises in words; of error floors those that were requested.

    Privacy
    -------
    ``statement`` and ``rows`` depend on the rows of the table through the released file alone; ``findings``
    are about real people.

    Reference
    ---------
    ``docs/reference/cli.md``.

    Examples
    --------
    >>> from discreet import Column, Schema, publish
    >>> schema = Schema(columns=[Column("age", type="integer", lower=17, upper=90, measure="years")])
    >>> rows = {"age": [20, 35, 50, 65] * 250}
    >>> done = publish(rows, schema=schema, protect={"age": 14}, ledger=False, out="made")
    >>> sorted(path.name for path in done.folder.iterdir())
    ['internal', 'public']
    """

    folder: Path
    public: Path
    internal: Path
    statement: Statement
    findings: Findings
    risk: Risk
    receipt: Receipt
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    sentences: tuple[str, ...]


def build_rows(plan: ReleasePlan, guesses: Iterable[Guess]) -> tuple[Row, ...]:
    """Return for each published column its floor and the best attack on made-up records.

    Empty if published rows belong to no one: there is no cell to guess.
    """
    if not plan.row_level:
        return ()
    best: dict[str, Guess] = {}
    for guess in guesses:
        known = best.get(guess.column)
        if known is None or (guess.verdict == "broken", -guess.error) > (
            known.verdict == "broken",
            -known.error,
        ):
            best[guess.column] = guess
    return tuple(_row(plan, done, best.get(done.column)) for done in plan.columns)


def _row(plan: ReleasePlan, done: ColumnSummary, guess: Guess | None) -> Row:
    """Return the line of one column; `guess` is the best attack on it, or None if there is none."""
    column = plan.schema.column(done.column)
    unit = CHANCE if column.is_category else column.unit_name or ""
    if guess is None:
        verdict = "public" if done.law.kind == "clear" else "no floor"
        floor = None if done.floor is None else done.floor.error
        return Row(column=done.column, unit=unit, noise=done.law.words(), floor=floor, verdict=verdict)
    return Row(
        column=done.column,
        unit=unit,
        noise=done.law.words(),
        without=guess.without,
        floor=guess.floor,
        attack=guess.error,
        lower=guess.lower,
        upper=guess.upper,
        verdict=guess.verdict,
    )


def select_sentences(
    definition: Definition, numbers: Numbers, floors: Mapping[str, float]
) -> tuple[str, ...]:
    """Return the promises in words: of the whole release, and of each column whose floor was requested."""
    columns = [column.sentence for column in numbers.columns if column.column in floors]
    return (*definition.sentences, *columns)


def build_notes(
    plan: ReleasePlan,
    *,
    method: str,
    chosen: bool,
    privacy: Promise | None,
    floors: Mapping[str, float],
    counted: bool,
) -> tuple[str, ...]:
    """Return the decisions that no one requested, one sentence each.

    Parameters
    ----------
    plan : ReleasePlan
        Plan that the release was drawn by.
    method : str
        Name of the method that was used.
    chosen : bool
        Whether the caller named the method.
    privacy : Promise or None
        Promise that was requested; None: options of the method set the noise.
    floors : mapping of str to float
        Requested error floor of each named column, in its unit.
    counted : bool
        Whether the release is charged to a ledger.
    """
    asked = "error floors" if isinstance(privacy, ErrorFloor) else "an epsilon"
    notes = [*([] if chosen else [f"Method: {method}, the default for {asked}."]), *plan.notes]
    protected = [done for done in plan.columns if done.law.kind != "clear"]
    others = [done for done in protected if done.column not in floors]
    if isinstance(privacy, ErrorFloor) and others:
        notes.append(
            f"Without a request of their own: {count_noun(len(others), 'column')}, each with the same share "
            "of what can be proven for it (`protect` and `role: public` in the schema change that)."
        )
    if isinstance(privacy, ApproxDP | PureDP) and (parts := _split(plan, privacy)):
        more = f"; {len(parts) - _MOST_PARTS} more in the statement" if len(parts) > _MOST_PARTS else ""
        split = "; ".join(parts[:_MOST_PARTS])
        notes.append(f"Split of epsilon {_up(privacy.epsilon, digits=6)}: {split}{more}.")
    if not counted:
        notes.append(
            "No ledger is charged for this release (--no-ledger): a second release would halve the "
            "variance of the noise without any record of it."
        )
    return tuple(notes)


def _split(plan: ReleasePlan, privacy: ApproxDP | PureDP) -> list[str]:
    """Return the part of epsilon that each column or group of columns got, in words."""
    parts = []
    for promise in plan.promises:
        if promise.covers is None:
            continue
        if isinstance(promise, ApproxDP):
            parts.append(f"{list_names(promise.covers)} together {_up(promise.epsilon)}")
        if isinstance(promise, GaussianDP) and isinstance(privacy, ApproxDP):
            epsilon = gaussian_epsilon(promise.mu, privacy.delta)
            parts.append(f"{list_names(promise.covers)} together {_up(epsilon)} (mu {_up(promise.mu)})")
    if is_coarse_plan(plan):
        return [*parts, *_split_of_cells(plan)]
    for done in plan.columns:
        if done.epsilon is not None:
            parts.append(f"{done.column} {_up(done.epsilon)}")
        elif done.law.missing_keep is not None:
            flag = response_epsilon(done.law.missing_keep, 2) * (plan.schema.max_rows_per_unit or 1)
            parts.append(f"whether {done.column} is missing {_up(flag)}")
    return parts


def _split_of_cells(plan: CoarsePlan) -> list[str]:
    """Return the epsilon of each coarse cell in words; cells that are sampled have the same one."""
    rows = plan.schema.max_rows_per_unit or 1
    sampled = [cell for cell in plan.cells if cell.sampled]
    parts = []
    if sampled:
        shown = f"{plan.picked} of {len(sampled)} columns, picked at random for each row,"
        parts.append(f"{shown} {_up(sampled[0].epsilon * rows)} each")
    for cell in plan.cells:
        if not cell.sampled:
            names = " and ".join(coding.name for coding in cell.codings)
            parts.append(f"{names} {_up(cell.epsilon * rows)}")
    return parts


def _up(cost: float, *, digits: int = 4) -> str:
    return plain_number(cost, digits=digits, rounding="up")
