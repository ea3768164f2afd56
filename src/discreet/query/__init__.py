"""A question in, a noisy number out.

Reading order: ``curation`` says what private rows look like to an engine; ``engines`` add integers up;
``expression`` is what analysts may write; ``questions`` know how far one row can move their sums,
``passes`` how batches of rows become sums; ``noising`` turns a promise into noise on integers; ``sums`` is
the protocol that learners ask and the answer they get; ``pricing`` says what that costs; ``answering``
charges, adds up, draws and keeps, with ``together``, ``turns`` and ``slots`` for many who ask at once;
``local`` and ``database`` are who answers, with ``verbs`` for people; ``paper`` has the theorems.
``vertical`` asks several databases that have columns of the same people, which ``owners`` are behind, with
``signs`` for everybody, ``cross`` products from sketches, and the ``blocks`` of a matrix.
"""

from __future__ import annotations

from discreet.privacy import PosteriorOdds
from discreet.query.aggregates import (
    Aggregate,
    ClusterSums,
    GradientSums,
    Gram,
    HalfspaceSums,
    Histogram,
    Moments,
    Node,
    NodeTables,
    SignSketches,
    Sums,
    aggregate_from_dict,
)
from discreet.query.answers import Answer, NoisySums, RefinableSums
from discreet.query.calibration import CostModel
from discreet.query.database import Database
from discreet.query.vertical import VerticalDatabases
from discreet.query.vertical._gram import cross_products

__all__ = [
    "Aggregate",
    "Answer",
    "ClusterSums",
    "CostModel",
    "Database",
    "GradientSums",
    "Gram",
    "HalfspaceSums",
    "Histogram",
    "Moments",
    "Node",
    "NodeTables",
    "NoisySums",
    "PosteriorOdds",
    "RefinableSums",
    "SignSketches",
    "Sums",
    "VerticalDatabases",
    "aggregate_from_dict",
    "cross_products",
]
