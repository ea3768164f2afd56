"""Release of a table of no one's rows, made from noisy tables of counts under a central promise.

``cells`` divides every column, ``plan`` shares out the promise by public facts, ``questions`` asks and
records, ``selection`` decides which tables are worth their noise, ``projection`` and ``tree`` make counts and
a model of noisy answers, ``synthesis`` runs all of it, ``sampling`` and ``values`` draw rows, and ``method``
is the release. After the answers everything is deterministic: ``arithmetic`` says how.
"""

from discreet.release.synthetic.method import SyntheticRelease, SyntheticTable, regenerate
from discreet.release.synthetic.plan import SyntheticPlan

__all__ = ["SyntheticPlan", "SyntheticRelease", "SyntheticTable", "regenerate"]
