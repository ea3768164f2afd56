"""Releases on Spark: workers read, draw and write parts of a table; the driver plans, charges and commits.

``table`` is the driver's side, ``_tasks`` what workers run, ``_job`` the private files through which both
exchange rows, keys and plans. Spark itself carries the numbers of parts and the names of files.
"""

from __future__ import annotations

from discreet.release.spark.table import PartitionedTable

__all__ = ["PartitionedTable"]
