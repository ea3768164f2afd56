"""Noise laws: the public distribution of each published cell given the true one.

``_column`` has the laws of single columns, ``_made_up`` those of rows that are no one's, and ``_table`` the
law of a whole table with its declared ranges and lists. Statements publish them, and noise-aware learners
correct for them.
"""

from discreet.noise_law._column import (
    Additive,
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
    short,
)
from discreet.noise_law._made_up import MaskedLabelLaw, MaskedLaw, MaskedSvmLaw, SyntheticLaw
from discreet.noise_law._table import KINDS, ColumnLaw, NoiseLaw, law_from_dict

__all__ = [
    "KINDS",
    "Additive",
    "BoundedLaw",
    "Clear",
    "ColumnLaw",
    "CorrelatedGaussianLaw",
    "GaussianLaw",
    "InRangeLaw",
    "InvariantLaw",
    "JointBoundedLaw",
    "JointResponseLaw",
    "LaplaceLaw",
    "Law",
    "MaskedLabelLaw",
    "MaskedLaw",
    "MaskedSvmLaw",
    "NoiseLaw",
    "ResponseLaw",
    "SampledLaw",
    "SphericalLaw",
    "SyntheticLaw",
    "law_from_dict",
    "short",
]
