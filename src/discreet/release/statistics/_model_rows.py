"""Made-up rows of a release, from which the model's value of a statistic is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discreet.query.language.cell_masks import subject_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray, Floats
    from discreet.query.curation import Curation
    from discreet.query.language import Expression


class ModelRows:
    """Rows that stand for the model: what they say has no interval.

    Parameters
    ----------
    rows : mapping of str to array
        Encoded columns by name: codes of levels, numbers with NaN where missing, days since the first.
    curation : Curation
        Layout of the curated table.
    """

    def __init__(self, rows: Mapping[str, AnyArray], curation: Curation) -> None:
        self._rows, self._curation = rows, curation
        self.size = len(next(iter(rows.values())))
        arrays: dict[str, AnyArray] = {"": np.zeros(self.size, np.int64)}
        for column in curation.columns:
            encoded = column.encode(rows[column.name])
            arrays[column.name] = encoded[column.exact]
            if column.flag is not None:
                arrays[f"{column.name}_missing"] = encoded[column.flag]
        self._arrays = arrays

    def chosen(self, where: Expression | None) -> AnyArray:
        """Return which rows fulfill a condition."""
        if where is None or where.is_constant:
            return np.full(self.size, where is None or where.lower > 0)
        return where.evaluate(self._arrays) > 0

    def share(self, where: Expression | None) -> float:
        """Return the share of rows that fulfill a condition."""
        return float(self.chosen(where).mean())

    def numbers(self, name: str) -> Floats:
        """Return a column as numbers, NaN where it is missing."""
        column = self._curation.column(name)
        cells = np.asarray(self._rows[name])
        if not column.is_category:
            return cells.astype(np.float64)
        levels = [float(x) if isinstance(x, int) else np.nan for x in column.levels]
        return np.array(levels)[cells.astype(np.int64)]

    def mean(self, subject: Expression, where: Expression | None) -> float:
        """Return the mean of a condition or of a column over the rows that fulfill another condition."""
        chosen = self.chosen(where)
        if not chosen.any():
            return float("nan")
        if subject.is_condition:
            return float(self.chosen(subject)[chosen].mean())
        (name,) = subject_columns(subject)
        return float(np.nanmean(self.numbers(name)[chosen]))

    def correlation(self, first: str, second: str) -> float:
        """Return the correlation of two columns over rows in which both are known."""
        one, other = self.numbers(first), self.numbers(second)
        known = ~np.isnan(one) & ~np.isnan(other)
        if known.sum() < 2 or not one[known].std() or not other[known].std():
            return float("nan")
        return float(np.corrcoef(one[known], other[known])[0, 1])
