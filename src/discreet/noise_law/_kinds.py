"""All laws of a column by their kind, and how one is read from a statement."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError
from discreet.noise_law._column import (
    BoundedLaw,
    Clear,
    CorrelatedGaussianLaw,
    GaussianLaw,
    InRangeLaw,
    InvariantLaw,
    JointBoundedLaw,
    JointResponseLaw,
    LaplaceLaw,
    Law,
    ResponseLaw,
    SampledLaw,
    SphericalLaw,
)
from discreet.noise_law._made_up import MaskedLabelLaw, MaskedLaw, MaskedSvmLaw, SyntheticLaw

if TYPE_CHECKING:
    from collections.abc import Mapping


KINDS: dict[str, type[Law]] = {
    law.kind: law
    for law in (
        Clear,
        GaussianLaw,
        LaplaceLaw,
        SphericalLaw,
        BoundedLaw,
        InRangeLaw,
        ResponseLaw,
        JointResponseLaw,
        SampledLaw,
        InvariantLaw,
        MaskedLaw,
        MaskedSvmLaw,
        MaskedLabelLaw,
        SyntheticLaw,
    )
}
"""Class of each law by its ``kind``; a method with a new law adds it here."""


def law_from_dict(values: Mapping[str, Any]) -> Law:
    """Return the law that :meth:`Law.to_dict` wrote; raise ParameterError for unknown kinds and keys."""
    rest = dict(values)
    kind = KINDS.get(str(rest.pop("kind", "")))
    if kind is GaussianLaw and "covariances" in rest:
        kind = CorrelatedGaussianLaw
    if kind is BoundedLaw and "covariances" in rest:
        kind = JointBoundedLaw
    if kind is None or set(rest) != {f.name for f in dataclasses.fields(kind)}:
        raise ParameterError(
            f"The law of a column must be of a kind among {', '.join(sorted(KINDS))} with all of its keys. "
            "It may have been written by a newer version."
        )
    if kind is SampledLaw:
        rest["law"] = law_from_dict(rest["law"])
    return kind(**rest)
