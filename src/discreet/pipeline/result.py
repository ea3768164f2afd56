"""What a job returns: where everything is, what was promised, and the lines that are printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.privacy import ApproxDP, ErrorFloor, GaussianDP, PureDP
from discreet.privacy.calibration import gaussian_epsilon, response_epsilon
from discreet.release.coarse import CoarsePlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from discreet.audit import Guess
    from discreet.privacy import Promise, Receipt
    from discreet.release import ColumnSummary, ReleasePlan
    from discreet.report.findings import Findings
    from discreet.report.statement.documents import Definition, Numbers, Statement

CHANCE = "of guesses"
"""The unit of the chance that a guess at a list is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: how well anybody can guess one published column.

    Attributes
    ----------
    column, unit : str
        Its name, and what the errors are counted in.
    without, floor : float or None
        Error of the best guess without the release, and the proven least error with it.
    attack, lower, upper : float or None
        Error of the best attack on records drawn from the floor's prior, with its interval.
    verdict : str
        "holds", "broken", "no floor" or "public".
    noise : str
        What was done to the column.
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
    """A release that is on disk, with everything that is known about it.

    Attributes
    ----------
    folder, public, internal : Path
        Where it is. Only ``public`` may leave the house.
    statement : Statement
        What ``public/statement.json`` says.
    findings : Findings
        What ``internal/attacks.json`` says.
    receipt : Receipt
        What was charged.
    rows : tuple of Row
        The table that the command line prints.
    notes : tuple of str
        What was decided without being asked: the method, what columns without a request got, how epsilon
        was split.
    sentences : tuple of str
        What is promised, in words; of floors those that were asked for.

    Privacy
    -------
    ``statement`` and ``rows`` depend on the rows of the table through the released file alone; ``findings``
    are about real people.

    Reference
    ---------
    ``docs/reference/cli.md``.
    """

    folder: Path
    public: Path
    internal: Path
    statement: Statement
    findings: Findings
    receipt: Receipt
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    sentences: tuple[str, ...]


def rows_of(plan: ReleasePlan, guesses: Iterable[Guess]) -> tuple[Row, ...]:
    """Return the table: for each published column its floor and the best attack on made-up records.

    Empty where published rows are nobody's: there is no cell to guess.
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
    column = plan.schema.column(done.column)
    unit = CHANCE if column.is_category else column.measure or ("days" if column.type == "date" else "")
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


def sentences_of(definition: Definition, numbers: Numbers, asked: Mapping[str, float]) -> tuple[str, ...]:
    """Return what is promised, in words: for the whole, and for each column whose floor was asked for."""
    floors = [column.sentence for column in numbers.columns if column.column in asked]
    return (*definition.sentences, *floors)


def notes_of(
    plan: ReleasePlan,
    *,
    method: str,
    chosen: bool,
    privacy: Promise | None,
    asked: Mapping[str, float],
    counted: bool,
) -> tuple[str, ...]:
    """Say what was decided without being asked."""
    notes = [] if chosen else [f"Method: {method}, the default."]
    protected = [done for done in plan.columns if done.law.kind != "clear"]
    others = [done for done in protected if done.column not in asked]
    if isinstance(privacy, ErrorFloor) and others:
        notes.append(
            f"{_some([done.column for done in others])} asked for nothing and got the same share of what can "
            "be proven for them; see the table. `protect` or `role: public` in the schema changes that."
        )
    if isinstance(privacy, ApproxDP | PureDP) and (parts := _split(plan, privacy)):
        notes.append(f"Split of epsilon {privacy.epsilon:g}: {'; '.join(parts)}.")
    if not counted:
        notes.append("Nobody counts this release (--no-ledger): a second one would halve the noise unseen.")
    return tuple(notes)


def _split(plan: ReleasePlan, privacy: ApproxDP | PureDP) -> list[str]:
    """Say which part of epsilon went where."""
    parts = []
    for promise in plan.promises:
        if promise.covers is None:
            continue
        if isinstance(promise, ApproxDP):
            parts.append(f"{_some(promise.covers)} together {promise.epsilon:.4g}")
        if isinstance(promise, GaussianDP) and isinstance(privacy, ApproxDP):
            epsilon = gaussian_epsilon(promise.mu, privacy.delta)
            parts.append(f"{_some(promise.covers)} together {epsilon:.4g} (mu {promise.mu:.4g})")
    if isinstance(plan, CoarsePlan):
        return [*parts, *_answers(plan)]
    for done in plan.columns:
        if done.epsilon is not None:
            parts.append(f"{done.column} {done.epsilon:.4g}")
        elif done.law.missing_keep is not None:
            flag = response_epsilon(done.law.missing_keep, 2) * (plan.schema.max_rows_per_unit or 1)
            parts.append(f"whether {done.column} is missing {flag:.4g}")
    return parts


def _answers(plan: CoarsePlan) -> list[str]:
    """Say what the answers of a row cost: those that it shows some of are alike."""
    rows = plan.schema.max_rows_per_unit or 1
    sampled = [cell for cell in plan.cells if cell.sampled]
    parts = []
    if sampled:
        shown = f"{plan.picked} of {len(sampled)} columns, picked at random for each row,"
        parts.append(f"{shown} {sampled[0].epsilon * rows:.4g} each")
    for cell in plan.cells:
        if not cell.sampled:
            names = " and ".join(coding.name for coding in cell.codings)
            parts.append(f"{names} {cell.epsilon * rows:.4g}")
    return parts


def _some(names: Sequence[str], most: int = 12) -> str:
    listed = ", ".join(names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"
