"""Attacks on privacy claims, each with a stated probability of a false alarm.

Mechanisms: ``_base`` holds the subjects and results of attacks, ``_bounds`` turns counts and errors into
confidence bounds. ``_distinguishing``, ``_sampler_checks``, ``_density`` and ``_enumeration`` attack
promises; ``_suite`` chooses the attack that tests a given promise, of a mechanism or of a whole release.

Releases: ``_prior`` attacks error floors on records drawn from the prior, ``_published_file`` uses the
published file alone, ``_real_rows`` and ``_reidentification`` use real rows and are internal. They share
``targets`` (published columns), ``channel`` (likelihood of a published cell), ``_closed_form_guess`` and
``_learned_guess`` (estimators of true cells), and report in the classes of ``_guess``.

Synthetic tables: ``_rehearsal`` attacks the questions of a release on made-up rows before it is charged,
``_members`` compares people in a table with others, in tables that ``_shadow_tables`` makes anew.

Risk: ``_risk_measurement`` measures what a release lets an attacker do before it is charged, and ``risk``
holds the result. ``_made_up_people`` draws the people, ``_mixture`` has the law of a stranger's cell;
``_row_risk`` attacks rows that are noised cell by cell, ``_unit_risk`` people with several of them, and
``_table_risk`` whole tables: those whose cells share noise, and those that a release makes anew.

Query answers: ``reconstruction`` attacks the answers of a private database. ``stored_answers`` reads them,
``_contributions`` computes what single rows add to them, as ``_contribution_arrays``;
``_linear_reconstruction`` guesses cells, and ``_guess`` bounds what differential privacy lets a guess reach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.lazy_names import load_on_use

if TYPE_CHECKING:
    from discreet.audit._base import AuditResult, MechanismDraws, MechanismPair, SingleDraws
    from discreet.audit._bounds import epsilon_lower_bound, mean_bounds
    from discreet.audit._density import (
        Density,
        Lattice,
        LawPair,
        density,
        fisher_information,
        hockey_stick,
        largest_loss,
        pushforward,
        shift_law,
    )
    from discreet.audit._distinguishing import distinguish
    from discreet.audit._enumeration import EveryRow, row_law
    from discreet.audit._guess import (
        Guess,
        Reidentification,
        max_roc_area,
        max_success_probability,
        min_error,
    )
    from discreet.audit._made_up_people import PublicPrior
    from discreet.audit._members import MemberComparison, attack_members, attack_published
    from discreet.audit._prior import PlannedAttacks, attack_prior
    from discreet.audit._published_file import attack_file
    from discreet.audit._real_rows import attack_rows
    from discreet.audit._rehearsal import attack_questions
    from discreet.audit._reidentification import attack_records
    from discreet.audit._risk_measurement import measure_risk
    from discreet.audit._sampler_checks import check_timing, position, precision
    from discreet.audit._suite import ATTACKS, Attack, attack_claims, run_audit
    from discreet.audit.reconstruction import ReconstructedColumn, Reconstruction, reconstruct
    from discreet.audit.risk import AttackRisk, Risk


__all__ = [
    "ATTACKS",
    "Attack",
    "AttackRisk",
    "AuditResult",
    "Density",
    "EveryRow",
    "Guess",
    "Lattice",
    "LawPair",
    "MechanismDraws",
    "MechanismPair",
    "MemberComparison",
    "PlannedAttacks",
    "PublicPrior",
    "ReconstructedColumn",
    "Reconstruction",
    "Reidentification",
    "Risk",
    "SingleDraws",
    "attack_claims",
    "attack_file",
    "attack_members",
    "attack_prior",
    "attack_published",
    "attack_questions",
    "attack_records",
    "attack_rows",
    "check_timing",
    "density",
    "distinguish",
    "epsilon_lower_bound",
    "fisher_information",
    "hockey_stick",
    "largest_loss",
    "max_roc_area",
    "max_success_probability",
    "mean_bounds",
    "measure_risk",
    "min_error",
    "position",
    "precision",
    "pushforward",
    "reconstruct",
    "row_law",
    "run_audit",
    "shift_law",
]

__getattr__ = load_on_use(
    __name__,
    {
        "_base": ("AuditResult", "MechanismDraws", "MechanismPair", "SingleDraws"),
        "_bounds": ("epsilon_lower_bound", "mean_bounds"),
        "_density": (
            "Density",
            "Lattice",
            "LawPair",
            "density",
            "fisher_information",
            "hockey_stick",
            "largest_loss",
            "pushforward",
            "shift_law",
        ),
        "_distinguishing": ("distinguish",),
        "_enumeration": ("EveryRow", "row_law"),
        "_guess": ("Guess", "Reidentification", "max_roc_area", "max_success_probability", "min_error"),
        "_made_up_people": ("PublicPrior",),
        "_members": ("MemberComparison", "attack_members", "attack_published"),
        "_prior": ("PlannedAttacks", "attack_prior"),
        "_published_file": ("attack_file",),
        "_real_rows": ("attack_rows",),
        "_rehearsal": ("attack_questions",),
        "_reidentification": ("attack_records",),
        "_risk_measurement": ("measure_risk",),
        "_sampler_checks": ("check_timing", "position", "precision"),
        "_suite": ("ATTACKS", "Attack", "attack_claims", "run_audit"),
        "reconstruction": ("ReconstructedColumn", "Reconstruction", "reconstruct"),
        "risk": ("AttackRisk", "Risk"),
    },
)
