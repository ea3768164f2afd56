"""Tries to break claims: attacks with a stated failure probability, on anything that can be run twice.

``subject`` says what can be attacked; ``bounds`` turns counts into certainty; ``events`` proposes what to
count; ``distinguish``, ``precision``, ``density``, ``position`` and ``timing`` are the attacks; ``suite``
knows which of them tests which promise.
"""

from discreet.audit.bounds import epsilon_lower_bound
from discreet.audit.density import (
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
from discreet.audit.distinguish import distinguish
from discreet.audit.position import position
from discreet.audit.precision import precision
from discreet.audit.result import AuditResult
from discreet.audit.subject import Draws, SingleDraws, Trial
from discreet.audit.suite import ATTACKS, Attack, run_audit
from discreet.audit.timing import timing

__all__ = [
    "ATTACKS",
    "Attack",
    "AuditResult",
    "Density",
    "Draws",
    "Lattice",
    "LawPair",
    "SingleDraws",
    "Trial",
    "density",
    "distinguish",
    "epsilon_lower_bound",
    "fisher_information",
    "hockey_stick",
    "largest_loss",
    "position",
    "precision",
    "pushforward",
    "run_audit",
    "shifted",
    "timing",
]
