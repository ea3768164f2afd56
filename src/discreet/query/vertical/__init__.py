"""Databases that hold different columns of the same people, asked together.

``_database`` asks them; ``_columns`` joins their schemas and deals aggregates to their owners; ``_gram`` puts
Gram matrices together from blocks and sketches.
"""

from __future__ import annotations

from discreet.query.vertical._database import VerticalAnswer, VerticalDatabases
from discreet.query.vertical._gram import CrossProducts, cross_products, sketch_variance

__all__ = ["CrossProducts", "VerticalAnswer", "VerticalDatabases", "cross_products", "sketch_variance"]
