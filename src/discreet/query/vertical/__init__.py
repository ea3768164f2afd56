"""Queries over databases that hold different columns of the same people.

``_database`` queries them; ``_columns`` joins their schemas and splits aggregates by database; ``_gram``
computes Gram matrices from blocks and sketches.
"""

from __future__ import annotations

from discreet.query.vertical._database import VerticalAnswer, VerticalDatabases
from discreet.query.vertical._gram import CrossProducts, cross_products, sketch_variance

__all__ = ["CrossProducts", "VerticalAnswer", "VerticalDatabases", "cross_products", "sketch_variance"]
