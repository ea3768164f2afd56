"""Release of a table of no one's rows, made from noisy tables of counts under a central promise.

``cells`` divides every column, ``plan`` shares out the promise by public facts, ``questions`` asks and
records, ``selection`` decides which tables are worth their noise, ``projection`` and ``tree`` make counts and
a model of noisy answers, ``synthesis`` runs all of it, ``rows`` draws the table with ``sampling``,
``method`` is the release, and ``repetition`` makes it again from what was published. After the answers
everything is deterministic: ``arithmetic`` says how.
"""

from discreet.release.synthetic.columns import SyntheticTable
from discreet.release.synthetic.method import SyntheticRelease
from discreet.release.synthetic.plan import SyntheticPlan
from discreet.release.synthetic.repetition import regenerate

__all__ = ["SyntheticPlan", "SyntheticRelease", "SyntheticTable", "regenerate"]
