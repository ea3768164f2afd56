"""Release of few values of each column, randomized, and of some columns of each row.

``_codings`` maps declared columns to few values, ``_plan`` randomizes them and picks the columns that a row
shows, and ``_method`` is the release.
"""

from discreet.release.coarse._method import CoarseRelease
from discreet.release.coarse._plan import CoarsePlan

__all__ = ["CoarsePlan", "CoarseRelease"]
