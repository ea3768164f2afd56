"""Statistics with intervals from what a release has published.

``interface`` is what every kind of release has in common, ``tables`` answers from the noisy counts of a
synthetic release, and ``rows`` from published rows with noise of a known law.
"""

from discreet.release.statistics.interface import ReleaseStatistics, StatisticResult
from discreet.release.statistics.rows import RowStatistics
from discreet.release.statistics.tables import TableStatistics

__all__ = ["ReleaseStatistics", "RowStatistics", "StatisticResult", "TableStatistics"]
