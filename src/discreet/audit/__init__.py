"""Tries to break claims: attacks with a stated failure probability, on anything that can be run twice.

``subject`` says what can be attacked; ``bounds`` turns counts and errors into certainty; ``events`` proposes
what to count; ``distinguish``, ``precision``, ``density``, ``enumerated``, ``position`` and ``timing`` attack
promises; ``suite`` knows which of them tests which.

A release is attacked as a whole: ``prior`` (made-up people: the verdict on floors), ``claims`` (made-up
rows: differential privacy), ``file`` (the published file alone), ``rows`` and ``expose`` (real rows:
internal). They share ``targets`` and ``channel`` (the published laws), ``posterior``, ``learned`` and
``linear`` (ways to guess), ``linkage`` and ``membership``, and say what they found as ``guess``.

Answers of a private database are attacked by ``reconstruction``, which reads them back (``answers``), knows
what single rows add to them (``contributions``), guesses cells (``unknown``) and says what no guess can do
(``guessing``).
"""

from discreet.audit._base import AuditResult, MechanismDraws, MechanismPair, SingleDraws
from discreet.audit._bounds import epsilon_lower_bound, mean_bounds
from discreet.audit._claims import attack_claims
from discreet.audit._density import (
    Density,
    Lattice,
    LawPair,
    density,
    fisher_information,
    hockey_stick,
    largest_loss,
    pushforward,
    shifted,
)
from discreet.audit._distinguishing import distinguish
from discreet.audit._enumeration import EveryRow, row_law
from discreet.audit._guess import Guess, Reidentification, max_success_probability, min_error
from discreet.audit._prior import PlannedAttacks, attack_prior
from discreet.audit._published_file import attack_file
from discreet.audit._real_rows import attack_rows
from discreet.audit._reidentification import attack_records
from discreet.audit._sampler_checks import position, precision, timing
from discreet.audit._suite import ATTACKS, Attack, run_audit
from discreet.audit.reconstruction import ReconstructedColumn, Reconstruction, reconstruct

__all__ = [
    "ATTACKS",
    "Attack",
    "AuditResult",
    "Density",
    "EveryRow",
    "Guess",
    "Lattice",
    "LawPair",
    "MechanismDraws",
    "MechanismPair",
    "PlannedAttacks",
    "ReconstructedColumn",
    "Reconstruction",
    "Reidentification",
    "SingleDraws",
    "attack_claims",
    "attack_file",
    "attack_prior",
    "attack_records",
    "attack_rows",
    "density",
    "distinguish",
    "epsilon_lower_bound",
    "fisher_information",
    "hockey_stick",
    "largest_loss",
    "max_success_probability",
    "mean_bounds",
    "min_error",
    "position",
    "precision",
    "pushforward",
    "reconstruct",
    "row_law",
    "run_audit",
    "shifted",
    "timing",
]
