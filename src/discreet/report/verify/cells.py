"""Checks of the published cells: columns, support, moments, repeats, and the classifier of a masked table."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.noise.linear_algebra import product
from discreet.release.kinds import is_masked_plan
from discreet.release.publication import published_fields
from discreet.report.folder.folder import (
    CLASSIFIER,
    DATA,
    DATA_FILES,
    is_part,
    part_names,
    read_bytes,
)
from discreet.report.folder.model_files import Classifier
from discreet.report.folder.published_cells import ATTACKED_ROWS, published_batches
from discreet.report.verify._noise_tests import FAILURE, RepeatTest, column_tests
from discreet.tables.files import ParquetSource

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from discreet._types import AnyArray
    from discreet.release import ReleasePlan
    from discreet.release.masked.plan import MaskedPlan
    from discreet.report.statement.documents import Statement
    from discreet.report.verify._noise_tests import ColumnTest
    from discreet.report.verify._parts import PublishedParts
    from discreet.report.verify._result import Checks
    from discreet.schema import Schema


def check_data(
    parts: PublishedParts, folder: Path, statement: Statement, plan: ReleasePlan, checks: Checks
) -> dict[str, AnyArray] | None:
    """Check the table against the plan, file by file; return its first rows, None if it cannot be read."""
    with checks.attempt("data files"):
        wrong = [
            f"{name} is not the file that the statement speaks of."
            for name, digest in sorted(statement.files.items())
            if not (name in DATA_FILES or is_part(name))
            or not (folder / name).is_file()
            or parts.digest(name) != digest
        ]
        present = {name for name in DATA_FILES if (folder / name).is_file()} | set(part_names(folder))
        wrong += [
            f"The statement does not speak of {name}." for name in sorted(present - set(statement.files))
        ]
        checks.settle("data files", wrong, "They are the ones that the statement speaks of.")
    with checks.attempt("columns"):
        fields = published_fields(plan.schema, typed=plan.typed)
        expected = [(field.name, field.sql_type) for field in fields]
        looks = list(parts.map(_read_footer))
        wrong = [
            f"Column {place}{f' of {name}' if is_part(name) else ''} is {_column(have)} and must be "
            f"{_column(want)}."
            for name, (actual, _) in zip(parts.names, looks, strict=True)
            for place, (have, want) in enumerate(zip_longest(actual, expected), 1)
            if have != want
        ]
        checks.settle(
            "columns", wrong, f"{len(fields)} columns have the names, types and order of the schema."
        )
        if wrong:
            return None
        counts = [n_rows for _, n_rows in looks]
        n_rows, stated = sum(counts), statement.what.rows_published
        wrong = [] if n_rows == stated else [f"The table has {n_rows} rows, and the statement says {stated}."]
        checks.settle("row count", wrong, f"The table has {n_rows} rows.")
    with checks.attempt("cells"):
        return _check_cells(parts, counts, plan, checks)
    return None


def _read_footer(path: Path) -> tuple[list[tuple[str, str]], int]:
    """Return name and type of each column of a file, and its number of rows."""
    with contextlib.closing(ParquetSource(path)) as source:
        return list(zip(source.names, source.sql_types, strict=True)), source.count()


def _column(look: tuple[str, str] | None) -> str:
    return "none" if look is None else f"{look[0][:60]!r} ({look[1][:20]})"


@dataclass(slots=True)
class CellSummary:
    """What the cells of consecutive rows of a table show, in the memory of a batch.

    Attributes
    ----------
    misfits : dict of str to str
        Column that holds a cell that the mechanism cannot publish, and what that is.
    tests : list of ColumnTest
        Tests of the columns.
    repeats : RepeatTest
        Test of repeated rows.
    first : list of dict of str to array
        Those of the rows that are among the first of the table, for the attacks.
    """

    misfits: dict[str, str]
    tests: list[ColumnTest]
    repeats: RepeatTest
    first: list[dict[str, AnyArray]]

    @classmethod
    def from_file(cls, path: Path, start: int, plan: ReleasePlan) -> CellSummary:
        """Read a file of a table in one pass; `start` is the number of rows in the files before it."""
        made = cls(
            misfits={},
            tests=[
                test
                for summary in plan.columns
                for test in column_tests(plan.schema.column(summary.column), summary)
            ],
            repeats=RepeatTest(plan.noised_columns(), plan.repeat_chance(), start),
            first=[],
        )
        for batch in published_batches(path, plan.schema, typed=plan.typed):
            made._add_misfits(plan.misfits(batch) | _clear_column_misfits(batch, plan))
            for test in made.tests:
                test.update(batch[test.column])
            made.repeats.update(batch)
            if start < ATTACKED_ROWS:
                made.first.append({name: values[: ATTACKED_ROWS - start] for name, values in batch.items()})
            start += len(next(iter(batch.values())))
        return made

    def merge(self, later: CellSummary) -> None:
        """Add the rows of the next file."""
        self._add_misfits(later.misfits)
        for test, its in zip(self.tests, later.tests, strict=True):
            test.merge(its)
        self.repeats.merge(later.repeats)
        self.first += later.first

    def _add_misfits(self, misfits: Mapping[str, str]) -> None:
        for name, why in misfits.items():
            self.misfits.setdefault(name, why)


def _check_cells(
    parts: PublishedParts, counts: list[int], plan: ReleasePlan, checks: Checks
) -> dict[str, AnyArray]:
    """Check support, moments and repeated rows in one pass; return the first rows, for the attacks."""
    starts = [0, *accumulate(counts[:-1])]
    summaries = parts.map(partial(CellSummary.from_file, plan=plan), starts)
    cells = next(summaries)
    for summary in summaries:
        cells.merge(summary)
    wrong = [f"Column {name!r} holds {why}." for name, why in cells.misfits.items()]
    checks.settle(
        "cells", wrong, "Every cell is one that the mechanism can publish (support, lattice, levels)."
    )
    _check_moments(cells.tests, checks)
    if cells.repeats.is_informative:
        faults = cells.repeats.faults()
        checks.settle("repeated rows", faults, "No rows repeat that noise keeps from repeating.")
    return {c.name: np.concatenate([some[c.name] for some in cells.first]) for c in plan.schema.released}


def _check_moments(tests: list[ColumnTest], checks: Checks) -> None:
    """Add the result of all column tests, at a joint failure probability of ``FAILURE``."""
    if not tests:
        checks.add("moments", "not checkable", "The law of this release bounds no moment of a column.")
        return
    u = math.log(sum(test.bounds for test in tests) / FAILURE)
    wrong = [sentence for test in tests for sentence in test.faults(u)]
    columns = len({test.column for test in tests})
    checks.settle(
        "moments",
        wrong,
        f"Means, spreads and shares of {columns} columns are what range and noise allow; an honest file "
        f"fails this once in {1 / FAILURE:.0e}.",
    )


def _clear_column_misfits(batch: dict[str, AnyArray], plan: ReleasePlan) -> dict[str, str]:
    """Return the columns without noise that hold undeclared values, each with the reason."""
    misfits = {}
    clear = {summary.column for summary in plan.columns if summary.law.kind == "clear"}
    for column in plan.schema.released:
        if column.name not in clear or not column.is_number:
            continue
        values = batch[column.name][~np.isnan(batch[column.name])]
        lower, upper = column.range
        if ((values < lower) | (values > upper)).any():
            misfits[column.name] = "values outside the declared range"
        elif column.type != "number" and (values != np.rint(values)).any():
            misfits[column.name] = "values that are not whole"
    return misfits


def first_difference(
    one: Path, other: Path, schema: Schema, tolerance: float = 0.0, *, typed: bool = False
) -> list[str]:
    """Return the first difference of two published files, by row and column; empty if there is none.

    Numbers may differ by ``tolerance`` times the largest number of their column in the batch, for methods
    whose last digits depend on the linear algebra of the processor.
    """
    start = 0
    for here, there in zip_longest(
        published_batches(one, schema, typed=typed), published_batches(other, schema, typed=typed)
    ):
        n_rows = [0 if batch is None else len(next(iter(batch.values()))) for batch in (here, there)]
        rows = min(n_rows)
        places = [
            (int(differs.argmax()), column.name)
            for column in schema.released
            if rows
            and (
                differs := _find_differences(here[column.name][:rows], there[column.name][:rows], tolerance)
            ).any()
        ]
        if places:
            row, name = min(places)
            return [f"{other.name} differs first in row {start + row + 1}, column {name!r}."]
        if n_rows[0] != n_rows[1]:
            return [f"{other.name} has {'fewer' if n_rows[1] < n_rows[0] else 'more'} rows."]
        start += rows
    return []


def _find_differences(one: AnyArray, other: AnyArray, tolerance: float) -> Any:
    """Return, row by row, whether two columns differ; missing cells agree with each other."""
    if one.dtype.kind == "f":
        missing = np.isnan(one), np.isnan(other)
        if tolerance:
            room = tolerance * float(np.max(np.abs(one), initial=0.0, where=~missing[0]))
            return (np.abs(one - other) > room) | (missing[0] != missing[1])
        return (one != other) & ~(missing[0] & missing[1])
    return one != other


ALLOWED = 2e-12
"""Largest gradient: ``LARGEST_GRADIENT`` of the construction, and as much for another order of sums."""
_BLOCK = 1 << 10


def check_classifier(folder: Path, plan: ReleasePlan, checks: Checks) -> None:
    """Check that a masked table and its classifier belong together, and that no other release has one.

    The gradient of the published problem, computed from every published cell, has to vanish at the published
    weights. A cell that is changed by ``t`` moves it by about ``t`` over the number of rows, so that only
    changes as small as rounding remain unnoticed.

    Privacy
    -------
    Reads published files alone. Rows and classifier that were changed together, so that they fit again, are
    another masked table, which only the key can tell from the first.

    Reference
    ---------
    docs/explanation/theorems/masked-existence.md
    """
    there = (folder / CLASSIFIER).exists()
    if not is_masked_plan(plan):
        if there:
            checks.add("classifier", "failed", f"{CLASSIFIER} is no file of a release by this method.")
        return
    if not there:
        checks.add("classifier", "failed", f"{CLASSIFIER} is missing: a masked table is published with it.")
        return
    with checks.attempt("classifier"):
        content = read_bytes(folder / CLASSIFIER)
        classifier = Classifier.from_json(content)
        n_classes = len(plan.target.levels)
        wrong = []
        if classifier.to_json().encode("utf-8") != content:
            wrong.append(f"{CLASSIFIER} is not written the way classifiers are: it was edited.")
        elif classifier.columns != plan.encoding.names or len(classifier.weights) != (
            1 if n_classes == 2 else n_classes
        ):
            wrong.append(f"{CLASSIFIER} is for other columns or classes than the table's.")
        elif classifier.regularization != plan.regularization:
            wrong.append(f"The regularization in {CLASSIFIER} is not the one that the method has.")
        if wrong:
            checks.settle("classifier", wrong, "")
            return
        gradient = gradient_norm(folder, plan, classifier)
        if plan.points.construction != "direct":
            checks.add(
                "classifier",
                "not checkable",
                f"The gradient at the published classifier is {gradient:.2g}. Points made one by one come "
                "only near zero, so that this shows nothing.",
            )
            return
        if not gradient <= ALLOWED:
            wrong.append(
                f"The gradient at the published classifier is {gradient:.2g}, and must be below "
                f"{ALLOWED:.0g}: rows, labels or classifier were changed."
            )
        checks.settle(
            "classifier",
            wrong,
            f"Trained on the rows, {plan.loss.words} finds the published classifier: the gradient there is "
            f"{gradient:.1g}.",
        )


def gradient_norm(folder: Path, plan: MaskedPlan, classifier: Classifier) -> float:
    """Return the norm of the gradient of the mean loss and the penalty, from the published cells."""
    total, n = np.zeros_like(classifier.weights), 0
    for batch in published_batches(folder / DATA, plan.schema):
        points = np.column_stack([batch[name] for name in classifier.columns])
        codes = np.asarray(batch[plan.target.name], np.int64)
        for start in range(0, len(codes), _BLOCK):
            block = slice(start, start + _BLOCK)
            residuals = plan.loss.residuals(product(points[block], classifier.weights.T), codes[block])
            total += residuals.T @ points[block]
        n += len(codes)
    return float(np.linalg.norm(classifier.regularization * classifier.weights - total / max(n, 1)))
