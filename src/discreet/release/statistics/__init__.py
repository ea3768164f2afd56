"""Statistics with intervals from what a release has published.

``interface`` is what every kind of release has in common, ``tables`` answers from the noisy counts of a
synthetic release, and ``rows`` from published rows with noise of a known law. Names are loaded at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.lazy_names import load_on_use

if TYPE_CHECKING:
    from discreet.release.statistics.interface import ReleaseStatistics, StatisticResult
    from discreet.release.statistics.rows import RowStatistics
    from discreet.release.statistics.tables import TableStatistics

__all__ = ["ReleaseStatistics", "RowStatistics", "StatisticResult", "TableStatistics"]

__getattr__ = load_on_use(
    __name__,
    {
        "interface": ["ReleaseStatistics", "StatisticResult"],
        "rows": ["RowStatistics"],
        "tables": ["TableStatistics"],
    },
)
