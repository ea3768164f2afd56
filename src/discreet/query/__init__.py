"""Noisy answers about a private table.

Reading order: ``curation`` defines the layout of private rows in an engine, and ``unit_rows`` which rows of a
person are used; ``engines`` compute exact integer sums; ``language`` is what analysts may write;
``aggregates`` know how far one row can move their sums, ``features`` are rows as vectors, and ``passes`` how
batches of them become sums; ``calibration`` turns a promise into noise on integers and its cost; ``answers``
has the protocol that learners use and the answer they get; ``stored_answers`` are what was paid for, and
``execution`` charges, sums, adds noise and stores, for many callers at once. ``interface`` is what all
databases have in common, and ``database`` the one at hand; ``text_query`` plans and runs a text query,
``intervals`` and ``quantiles`` make numbers and intervals of noisy counts, ``results`` is what it returns,
``result_cells`` its numbers, ``result_table`` its numbers in rows and columns, ``result_drawing`` a picture
of them, and ``past_results`` what was paid for before; ``consistency`` adjusts numbers to what is possible,
``combination`` adds and subtracts past results, ``frames`` has tables for notebooks, and ``dummy`` draws rows
from the schema alone. ``vertical`` queries several databases that hold columns of the same people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.lazy_names import load_on_use
from discreet.privacy import PosteriorOdds

if TYPE_CHECKING:
    from discreet.query.aggregates import (
        Aggregate,
        ClassGradients,
        ClusterSums,
        Dependence,
        DistinctUnits,
        GradientSums,
        Gram,
        GroupedSums,
        HalfspaceSums,
        HierarchicalHistogram,
        Histogram,
        JointAggregate,
        Marginals,
        Moments,
        NodeTables,
        PredictionCounts,
        SignSketches,
        Sums,
        TreeNode,
        TreePredictions,
        aggregate_from_dict,
    )
    from discreet.query.answers import Answer, NoisySums, RefinableSums
    from discreet.query.combination import CombinedResult, ResultTerm, combine_results
    from discreet.query.consistency import ConsistentResult
    from discreet.query.costs import CostModel
    from discreet.query.database import Database
    from discreet.query.dummy import dummy_rows
    from discreet.query.frames import Budget, Frame, History
    from discreet.query.interface import PrivateTable
    from discreet.query.language.query import Query, build_query, parse_query
    from discreet.query.previews import LawOption, Preview
    from discreet.query.result_cells import ResultCell
    from discreet.query.results import QueryResult
    from discreet.query.text_query import preview_query, run_query
    from discreet.query.vertical import VerticalDatabases
    from discreet.query.vertical._gram import cross_products


__all__ = [
    "Aggregate",
    "Answer",
    "Budget",
    "ClassGradients",
    "ClusterSums",
    "CombinedResult",
    "ConsistentResult",
    "CostModel",
    "Database",
    "Dependence",
    "DistinctUnits",
    "Frame",
    "GradientSums",
    "Gram",
    "GroupedSums",
    "HalfspaceSums",
    "HierarchicalHistogram",
    "Histogram",
    "History",
    "JointAggregate",
    "LawOption",
    "Marginals",
    "Moments",
    "NodeTables",
    "NoisySums",
    "PosteriorOdds",
    "PredictionCounts",
    "Preview",
    "PrivateTable",
    "Query",
    "QueryResult",
    "RefinableSums",
    "ResultCell",
    "ResultTerm",
    "SignSketches",
    "Sums",
    "TreeNode",
    "TreePredictions",
    "VerticalDatabases",
    "aggregate_from_dict",
    "build_query",
    "combine_results",
    "cross_products",
    "dummy_rows",
    "parse_query",
    "preview_query",
    "run_query",
]

__getattr__ = load_on_use(
    __name__,
    {
        "aggregates": (
            "Aggregate",
            "ClassGradients",
            "ClusterSums",
            "Dependence",
            "DistinctUnits",
            "GradientSums",
            "Gram",
            "GroupedSums",
            "HalfspaceSums",
            "HierarchicalHistogram",
            "Histogram",
            "JointAggregate",
            "Marginals",
            "Moments",
            "NodeTables",
            "PredictionCounts",
            "SignSketches",
            "Sums",
            "TreeNode",
            "TreePredictions",
            "aggregate_from_dict",
        ),
        "answers": ("Answer", "NoisySums", "RefinableSums"),
        "combination": ("CombinedResult", "ResultTerm", "combine_results"),
        "consistency": ("ConsistentResult",),
        "costs": ("CostModel",),
        "database": ("Database",),
        "dummy": ("dummy_rows",),
        "frames": ("Budget", "Frame", "History"),
        "interface": ("PrivateTable",),
        "language.query": ("Query", "build_query", "parse_query"),
        "previews": ("LawOption", "Preview"),
        "result_cells": ("ResultCell",),
        "results": ("QueryResult",),
        "text_query": ("preview_query", "run_query"),
        "vertical": ("VerticalDatabases",),
        "vertical._gram": ("cross_products",),
    },
)
