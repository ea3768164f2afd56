"""Few values of each column, randomized, of some columns of each row.

``codings`` is the public map to few values, ``cells`` randomizes them, ``plan`` picks what a row shows, and
``method`` is the release.
"""

from discreet.release.coarse._method import CoarseRelease
from discreet.release.coarse._plan import CoarsePlan

__all__ = ["CoarsePlan", "CoarseRelease"]
