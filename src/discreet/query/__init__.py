"""A query in, a noisy number out.

Reading order: ``curation`` says what private rows look like to an engine; ``engines`` add integers up;
``language`` is what analysts may write; ``aggregates`` know how far one row can move their sums, ``passes``
how batches of rows become sums; ``calibration`` turns a promise into noise on integers and says what it
costs; ``answers`` has the protocol that learners use and the answer they get; ``answering`` charges, adds
up, draws and stores, with ``together``, ``turns`` and ``slots`` for many callers at once; ``interface`` is
what all databases have in common, ``database`` the one at hand; ``text_query`` plans and runs a typed
query, ``results`` is what it returns. ``vertical`` asks several databases that hold columns of the same
people.
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
    NodeTables,
    SignSketches,
    Sums,
    TreeNode,
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
    "NodeTables",
    "NoisySums",
    "PosteriorOdds",
    "RefinableSums",
    "SignSketches",
    "Sums",
    "TreeNode",
    "VerticalDatabases",
    "aggregate_from_dict",
    "cross_products",
]
