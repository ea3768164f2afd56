"""Whether the release serves some people worse than others: the two models within groups of test rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discreet.job.scoring import worth
from discreet.report.findings import Subgroup

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from discreet._typing import AnyArray, Bools, Floats
    from discreet.job.questions import Question
    from discreet.schema import Column, Schema

LEAST_IN_GROUP = 50
MOST_COLUMNS = 4


def by_subgroup(
    schema: Schema,
    rows: Mapping[str, AnyArray],
    guesses: Mapping[str, Floats],
    y: AnyArray,
    question: Question,
) -> list[Subgroup]:
    """Compare the models within each group that is large enough.

    Groups are the levels of the lists, the shortest ones first; without any list, the halves of each
    declared range.

    Parameters
    ----------
    schema : Schema
        Of the published table.
    rows : mapping of str to array
        The true test rows.
    guesses : mapping of str to array
        What the models trained on "original" and "release" predict for them.
    y : array
        The true answers.
    question : Question
        What was asked.
    """
    lists = sorted((c for c in schema.features if c.is_category), key=lambda c: len(c.levels))
    columns = (lists or schema.numeric_features)[:MOST_COLUMNS]
    found = []
    for column in columns:
        for level, inside in _groups(column, rows[column.name]):
            if inside.sum() < LEAST_IN_GROUP:
                continue
            original, release = (
                worth(guesses[name][inside], y[inside], question) for name in ("original", "release")
            )
            if original is not None and release is not None:
                found.append(
                    Subgroup(
                        column=column.name,
                        level=level,
                        rows=int(inside.sum()),
                        original=original,
                        release=release,
                    )
                )
    return found


def _groups(column: Column, values: AnyArray) -> Iterator[tuple[str, Bools]]:
    if column.is_category:
        for code, level in enumerate(column.levels):
            yield ("missing" if level is None else str(level)), np.asarray(values == code)
        return
    lower, upper = column.range
    middle = (lower + upper) / 2
    ends = column.dates(np.array([lower, middle, upper])) if column.type == "date" else (lower, middle, upper)
    low, half, high = (str(end) if column.type == "date" else f"{end:.4g}" for end in ends)
    yield f"{low} to {half}", np.asarray(values <= middle)
    yield f"above {half} to {high}", np.asarray(values > middle)
