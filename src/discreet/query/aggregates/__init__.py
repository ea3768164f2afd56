"""Aggregates: sums over rows, each with the exact integer sensitivity of its whole vector.

An aggregate is a small frozen value that travels as JSON. :meth:`Aggregate.bind` lays it out on a curated
table: which integers are summed, how far one row can move them together, which noise each entry gets
relative to the others, and what one integer is worth. Nothing here sees a row or draws a number.

``base`` has what aggregates share, and sums of expressions; ``histogram`` histograms and the tables of
decision trees; ``_joint`` sums of several expressions by group, and several aggregates in one answer;
``_marginals`` many tables at once, and ``_dependence`` how far tables are from public ones; ``_hierarchy``
counts of trees, for quantiles; ``_people`` numbers of people, who may have several rows; ``_moments`` means
and spreads; ``_vectors`` Gram matrices, clusters, halfspaces and gradients; ``_predictions`` and
``_tree_predictions`` how many rows a model gets right; ``_sketches`` sums under signs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError
from discreet.query.aggregates._dependence import Dependence
from discreet.query.aggregates._hierarchy import BoundHierarchy, HierarchicalHistogram
from discreet.query.aggregates._joint import GroupedSums, JointAggregate
from discreet.query.aggregates._marginals import Marginals
from discreet.query.aggregates._moments import Moments
from discreet.query.aggregates._people import DistinctUnits
from discreet.query.aggregates._predictions import ClassGradients, PredictionCounts
from discreet.query.aggregates._sketches import SignSketches
from discreet.query.aggregates._tree_predictions import TreePredictions
from discreet.query.aggregates._vectors import ClusterSums, GradientSums, Gram, HalfspaceSums
from discreet.query.aggregates.base import MOST_CELLS, Aggregate, BoundAggregate, Sums
from discreet.query.aggregates.histogram import Histogram, NodeTables, TreeNode

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "AGGREGATES",
    "MOST_CELLS",
    "Aggregate",
    "BoundAggregate",
    "BoundHierarchy",
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
]

AGGREGATES: dict[str, type[Aggregate]] = {
    kind.kind: kind
    for kind in (
        Sums,
        Histogram,
        HierarchicalHistogram,
        GroupedSums,
        JointAggregate,
        NodeTables,
        Moments,
        Gram,
        ClusterSums,
        HalfspaceSums,
        GradientSums,
        SignSketches,
        DistinctUnits,
        Marginals,
        Dependence,
        PredictionCounts,
        TreePredictions,
        ClassGradients,
    )
}


def aggregate_from_dict(values: Mapping[str, Any]) -> Aggregate:
    """Return the aggregate that :meth:`Aggregate.to_dict` wrote; refuses unknown kinds and keys.

    Examples
    --------
    >>> from discreet.query import Sums, aggregate_from_dict
    >>> aggregate_from_dict(Sums("age").to_dict()) == Sums("age")
    True
    """
    rest = dict(values)
    kind = AGGREGATES.get(str(rest.pop("kind", None)))
    if kind is None:
        raise ParameterError(
            f"kind of a question must be one of {', '.join(AGGREGATES)}, was {values.get('kind')!r}. It may "
            "have been written by a newer version."
        )
    try:
        if kind is NodeTables:
            rest["nodes"] = tuple(TreeNode(**node) for node in rest["nodes"])
        if kind is JointAggregate:
            rest["parts"] = tuple(aggregate_from_dict(part) for part in rest["parts"])
        return kind(**rest)
    except (TypeError, KeyError, ValueError) as problem:
        if isinstance(problem, ParameterError):
            raise
        raise ParameterError(
            f"values of a {kind.kind} question must be what its to_dict() writes, and are not."
        ) from None
