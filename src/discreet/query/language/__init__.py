"""What an untrusted analyst may ask of one row: scalar SQL with known bounds.

Reading order, which is the way of a text: ``words`` and ``scan`` let the words of the language through
and nothing else; ``parser`` finds nodes, which ``normal`` brings into one form (``nodes``);
``lowering`` turns them into a ``program`` of primitive operations with ``interval`` bounds, with
``elementary`` for powers, exponential and logarithm; ``sql`` and ``evaluate`` carry a program out in an
engine and on arrays, with equal bits; ``language`` is the door; ``groups`` reads GROUP BY.
"""

from __future__ import annotations

from discreet.query.language._expression import Expression, parse
from discreet.query.language._group_by import GroupKey, declared_cells, parse_groups
from discreet.query.language._sql import Stepwise, hoist

__all__ = ["Expression", "GroupKey", "Stepwise", "declared_cells", "hoist", "parse", "parse_groups"]
