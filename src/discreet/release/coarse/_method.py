"""Release of few values per column by randomized response, for models at a small local epsilon."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from discreet.arguments import promise_hint
from discreet.errors import ParameterError, PromiseError
from discreet.noise_law import Clear
from discreet.privacy import PureDP
from discreet.privacy.calibration import group_epsilon
from discreet.release.base import ReleaseMethod
from discreet.release.coarse._codings import Coding, build_coding, check_names
from discreet.release.coarse._plan import CoarseCell, CoarsePlan
from discreet.release.publication import ColumnSummary
from discreet.release.table import (
    AVERAGES_OUT,
    INDEPENDENT,
    KNOWS_MORE,
    LABEL_CLEAR,
    ROWS_KNOWN,
    floor_promise,
)

if TYPE_CHECKING:
    from discreet.ledger import Ledger
    from discreet.privacy import Promise
    from discreet.release.coarse._codings import Cuts, Groups
    from discreet.release.table import Label
    from discreet.schema import Column, Schema

TWO_FROM = 4.0
"""Epsilon for the columns of one row from which on a row shows two of them by default; below, one."""
LABEL_SHARE = 0.5
MOST_COMBINATIONS = 1 << 20
"""Largest number of combinations of columns that are randomized together."""
_SPARED = 1 - 2.0**-40
"""Factor that leaves the last binary digits unused, so that the sum of rounded parts is below epsilon."""
TOGETHER = (
    "columns that are randomized together are independent of each other under the prior; correlated ones "
    "lower each other's floor"
)


class CoarseRelease(ReleaseMethod):
    """Publish few values of each column, randomized, and of each row a few columns.

    Numbers are binned at public cut points and lists grouped as declared. Each row then shows some of its
    columns, picked at random; every cell that is shown goes through randomized response. So epsilon is spent
    on few informative cells in place of many uninformative ones: with
    :class:`~discreet.NoiseAwareClassifier`, which knows the law, models can be learned at a local epsilon at
    which noised numbers teach nothing.

    Parameters
    ----------
    privacy : PureDP
        Promise about all columns of a row together, the label included.
    cuts : mapping of str to sequence of numbers, optional
        Lower ends of all values but the first, for numbers and dates: ``{"age": [25, 35, 45, 55, 65]}``. By
        default its range is cut into equal parts, so that it has six values, "missing" among them; one from 0
        on (or nearly) to 1,000 or more into parts of which each is twice as wide as the one before.
    groups : mapping of str to mapping of str to sequence, optional
        Levels of a list that are published under one name; other levels stay as they are.
    per_row : int, optional
        Number of columns that each row shows. By default one, and two from an epsilon of four on; "not
        published" stands in the others.
    joint : sequence of str, optional
        Columns that are randomized together, as one list of all combinations; the target may be one of them.
        Worth it for two or three columns of few values, at a small epsilon.
    label : {"randomized", "clear"}
        Whether the target is randomized, or published as it is and covered by no promise.
    label_share : float
        Share of epsilon for the target (and for columns randomized together with it); above 0, below 1.
    schema, bounds, ledger, random_state
        As for :class:`~discreet.release.base.ReleaseMethod`. Cut points and groups are public and must not be
        read off the rows.

    Privacy
    -------
    Pure local differential privacy: each row is randomized by itself, and the epsilons of the cells that it
    shows add up to what is promised. Which columns a row shows is drawn independently of the row and is
    public, so that it neither costs nor saves anything. Floors are about the value that is published, a bin
    or group, not about the number in it. With ``label="clear"`` no promise covers the target.

    Reference
    ---------
    docs/explanation/theorems/coarse-response.md

    Examples
    --------
    >>> from discreet import Column, PureDP, Schema
    >>> from discreet.release import CoarseRelease
    >>> schema = Schema(
    ...     columns=[Column("age", type="integer", lower=17, upper=90), Column("owner", values=(0, 1))],
    ...     target="owner",
    ... )
    >>> method = CoarseRelease(privacy=PureDP(epsilon=2), cuts={"age": [25, 45, 65]}, schema=schema)
    >>> method.plan(schema, 1000).schema.column("age").levels
    ('17 to 24', '25 to 44', '45 to 64', '65 to 90')
    """

    name: ClassVar[str] = "coarse"
    accepts: ClassVar[tuple[type[Promise], ...]] = (PureDP,)

    def __init__(
        self,
        *,
        privacy: PureDP | None = None,
        cuts: Cuts | None = None,
        groups: Groups | None = None,
        per_row: int | None = None,
        joint: Sequence[str] | None = None,
        label: Label = "randomized",
        label_share: float = LABEL_SHARE,
        schema: Schema | None = None,
        bounds: tuple[Any, Any] | None = None,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        """Check each parameter and store it in plain form."""
        super().__init__(schema=schema, bounds=bounds, ledger=ledger, random_state=random_state)
        if privacy is None:
            raise ParameterError("privacy of CoarseRelease must be a PureDP, was None: it has no default.")
        if not isinstance(privacy, PureDP):
            raise PromiseError(
                f"privacy of CoarseRelease must be a PureDP, was {type(privacy).__name__}. "
                + (
                    promise_hint(privacy, self.accepts)
                    or "Randomized answers have an epsilon and no delta; for a floor, choose the epsilon by "
                    "the plan."
                )
            )
        if label not in ("randomized", "clear"):
            raise ParameterError(f"label of CoarseRelease must be 'randomized' or 'clear', was {label!r}.")
        if not isinstance(label_share, int | float) or not 0 < label_share < 1:
            raise ParameterError(
                f"label_share of CoarseRelease must lie between 0 and 1, was {label_share!r}. A half is "
                "usual."
            )
        if per_row is not None and (isinstance(per_row, bool) or not isinstance(per_row, int) or per_row < 1):
            raise ParameterError(
                f"per_row of CoarseRelease must be a whole number of at least 1, was {per_row!r}."
            )
        self.privacy = privacy
        self.cuts = _check_mapping("cuts", cuts)
        self.groups = _check_mapping("groups", groups)
        self.per_row = per_row
        self.joint = _check_joint(joint)
        self.label = label
        self.label_share = float(label_share)

    def not_protected(self, schema: Schema) -> tuple[str, ...]:
        """Return what a release by this method does not protect, as clauses without a full stop."""
        clear = self.label == "clear" and schema.target is not None
        return (
            *super().not_protected(schema),
            *((f"the target {schema.target!r}, which is published as it is",) if clear else ()),
            "which columns a row shows: that was drawn at random and says nothing about the row",
            KNOWS_MORE,
            AVERAGES_OUT,
        )

    def plan(self, schema: Schema, n_rows: int) -> CoarsePlan:
        """Return the plan: what each row shows, with which probability it is true, and the promises."""
        return self.scaled_plan(schema, n_rows, 1.0)

    def scaled_plan(self, schema: Schema, n_rows: int, factor: float) -> CoarsePlan:
        """Return the plan with the log odds of every cell divided by ``factor``, for what-if tables."""
        rows = schema.max_rows_per_unit or 1
        cells, picked = self._build_cells(schema, rows)
        if factor != 1.0:
            cells = tuple(cell.scaled(factor) for cell in cells)
        return self._build_plan(schema, cells, picked, rows)

    def _build_cells(self, schema: Schema, rows: int) -> tuple[tuple[CoarseCell, ...], int]:
        """Return the cells and the number that a row shows: epsilon goes to the label first, then to them."""
        label_answers, other_answers = self._split_answers(schema)
        epsilon = self.privacy.epsilon * _SPARED / rows
        share = self._label_share(schema)
        spent = 0.0 if not label_answers else epsilon if not other_answers else share * epsilon
        rest = epsilon - spent
        picked = self.per_row or (1 if rest < TWO_FROM * _SPARED else 2)
        if other_answers and picked > len(other_answers):
            if self.per_row is not None:
                raise ParameterError(
                    f"per_row of CoarseRelease must be at most {len(other_answers)}, the number of answers "
                    f"that a row can show, was {self.per_row}."
                )
            picked = len(other_answers)
        if picked < len(other_answers):
            other_answers = [tuple(coding.to_sampled() for coding in codings) for codings in other_answers]
        cells = [CoarseCell.for_epsilon(codings, rest / picked) for codings in other_answers]
        cells += [CoarseCell.for_epsilon(codings, spent) for codings in label_answers]
        return tuple(cells), picked

    def _split_answers(self, schema: Schema) -> tuple[list[tuple[Coding, ...]], list[tuple[Coding, ...]]]:
        """Return the answers that every row shows, with the label, and those that it shows some of."""
        protected = [
            c
            for c in schema.released
            if c.role == "sensitive" or (c.role == "target" and self.label == "randomized")
        ]
        if not protected:
            raise ParameterError(
                "schema of CoarseRelease must have a sensitive column, and all of its columns are public. "
                "There is nothing to protect."
            )
        cuts, groups = self.cuts or {}, self.groups or {}
        check_names("cuts", cuts, [c for c in protected if c.is_number], "numbers")
        check_names("groups", groups, [c for c in protected if c.is_category], "lists")
        check_names("joint", dict.fromkeys(self.joint or ()), protected, "columns")
        codings = {c.name: build_coding(c, cuts, groups) for c in protected}
        answer_names: list[tuple[str, ...]] = [
            (c.name,) for c in protected if c.name not in (self.joint or ())
        ]
        if self.joint:
            answer_names.append(tuple(self.joint))
        answers = [tuple(codings[name] for name in unit) for unit in answer_names]
        for unit, answer in zip(answer_names, answers, strict=True):
            combinations = math.prod(coding.levels for coding in answer)
            if combinations > MOST_COMBINATIONS:
                raise ParameterError(
                    f"joint of CoarseRelease must have at most {MOST_COMBINATIONS} combinations, and "
                    f"{' and '.join(unit)} have {combinations}. Take fewer columns, or fewer values of each."
                )
        labelled = [any(coding.column.role == "target" for coding in answer) for answer in answers]
        return (
            [answer for answer, is_label in zip(answers, labelled, strict=True) if is_label],
            [answer for answer, is_label in zip(answers, labelled, strict=True) if not is_label],
        )

    def _label_share(self, schema: Schema) -> float:
        """Return the share of epsilon for the label, from the schema or from ``label_share``."""
        for column in schema.released:
            share = column.protect.share if column.protect else None
            if share is None:
                continue
            if column.role != "target":
                raise ParameterError(
                    f"The protect share of {column.name!r} must be left out for CoarseRelease, was {share:g}"
                    ": every column that a row shows has the same part. Only the target's can be set."
                )
            if not share < 1:
                raise ParameterError(
                    f"The protect share of the target {column.name!r} must be below 1 for CoarseRelease, was "
                    f"{share:g}. Something must be left for the columns."
                )
            return share
        return self.label_share

    def _build_plan(
        self, schema: Schema, cells: tuple[CoarseCell, ...], picked: int, rows: int
    ) -> CoarsePlan:
        """Return the plan for given cells.

        Notes
        -----
        The epsilon of a row is the sum over the cells that it always shows and the ``picked`` largest of the
        others.
        """
        sampled_epsilons = [cell.epsilon for cell in cells if cell.sampled]
        n_sampled = len(sampled_epsilons)
        # A row shows any `picked` of the answers: at worst the most expensive ones.
        most_expensive = sorted(sampled_epsilons, reverse=True)[:picked]
        label_epsilons = [cell.epsilon for cell in cells if not cell.sampled]
        total = math.fsum((*most_expensive, *label_epsilons)) * (1 + 2.0**-50)
        clear = self.label == "clear" and schema.target is not None
        assumes = (LABEL_CLEAR,) * clear + (ROWS_KNOWN,) * (schema.id_column is not None)
        common: dict[str, Any] = {"unit": schema.unit, "assumes": assumes}
        summaries = {
            coding.name: ColumnSummary(
                column=coding.name,
                law=cell.law(coding, picked, n_sampled),
                epsilon=group_epsilon(cell.epsilon, rows),
                floor=cell.floor(coding, picked / n_sampled if cell.sampled else 1.0, rows),
                prior=coding.prior,
            )
            for cell in cells
            for coding in cell.codings
        }
        columns = tuple(
            summaries.get(c.name, ColumnSummary(column=c.name, law=Clear())) for c in schema.released
        )
        floors = {s.column: s.floor for s in columns if s.floor is not None}
        joint_assumption = (TOGETHER,) * any(len(cell.codings) > 1 for cell in cells)
        return CoarsePlan(
            schema=_published_schema(schema, {c.name: c for cell in cells for c in cell.codings}),
            cells=cells,
            picked=picked,
            columns=columns,
            promises=(
                PureDP(
                    epsilon=group_epsilon(total, rows),
                    covers=tuple(s.column for s in columns if s.column in summaries),
                    **common,
                ),
                *floor_promise(schema, floors, (*assumes, INDEPENDENT, *joint_assumption)),
            ),
        )


def _published_schema(schema: Schema, codings: Mapping[str, Coding]) -> Schema:
    """Return the schema of the released table; unpublished columns stay as declared."""

    def as_published(column: Column) -> Column:
        coding = codings.get(column.name)
        return column if coding is None else coding.published

    return dataclasses.replace(schema, columns=[as_published(c) for c in schema.columns])


def _check_mapping(parameter: str, given: Any) -> Any:
    """Return a parameter given by column name as plain lists and dicts; raise if it is no mapping."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise ParameterError(
            f"{parameter} of CoarseRelease must be a mapping of column names, was {type(given).__name__}."
        )
    return {
        name: dict(value) if isinstance(value, Mapping) else _check_list(parameter, name, value)
        for name, value in given.items()
    }


def _check_list(parameter: str, name: str, value: Any) -> list[Any]:
    """Return a given sequence as a list, dates as ISO text; raise if it is no sequence."""
    if isinstance(value, str) or (not isinstance(value, Sequence) and not hasattr(value, "tolist")):
        raise ParameterError(f"{parameter} of CoarseRelease for {name!r} must be a list, was {value!r}.")
    return [part.isoformat() if hasattr(part, "isoformat") else part for part in value]


def _check_joint(given: Any) -> tuple[str, ...] | None:
    """Return the columns that are randomized together; raise unless they are two or more names."""
    if given is None:
        return None
    names = tuple(part.strip() for part in given.split(",")) if isinstance(given, str) else tuple(given)
    if len(names) < 2 or len(set(names)) != len(names) or not all(isinstance(n, str) for n in names):
        raise ParameterError(
            f"joint of CoarseRelease must name at least two columns, each once, was {given!r}. "
            "Leave it out to randomize every column by itself."
        )
    return names
