"""Language of untrusted analysts: queries of one aggregate, with scalar SQL expressions of known bounds.

Reading order, which is the way of a text: ``lexer`` lets the words of the ``vocabulary`` through and nothing
else; ``query`` cuts a text into aggregate, WHERE and GROUP BY, with ``_select`` for SQL and ``_group_by`` for
keys; ``_parser`` finds the ``_parts`` of an expression, which ``_normal_form`` brings into one form
(``nodes``, ``_date_nodes``); ``_lowering`` turns them into a ``_program`` of primitive operations with
bounds, with divisions, roots, EXP and LN in ``_functions`` and dates in ``_calendar``, carried out on arrays
there and in an engine by ``_sql``, with equal bits; ``_expression``
puts these together, and ``_key_cells`` for keys of groups. ``writing`` is the way back to a text.
"""

from __future__ import annotations

from discreet.query.language._expression import Expression, parse
from discreet.query.language._group_by import GroupKey, declared_cells, parse_axis, parse_groups
from discreet.query.language._key_cells import KeyExpression
from discreet.query.language._sql import Stepwise, hoist

__all__ = [
    "Expression",
    "GroupKey",
    "KeyExpression",
    "Stepwise",
    "declared_cells",
    "hoist",
    "parse",
    "parse_axis",
    "parse_groups",
]
