"""Risk of synthetic and masked tables: attacks on tables that are made anew from made-up people."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.audit._made_up_people import LAWS
from discreet.audit._members import attack_members, largest_success
from discreet.audit._public_prior import describe_prior
from discreet.audit.risk import AttackRisk, state_attack
from discreet.formatting import percent, small_percent
from discreet.release.synthetic import SyntheticRelease

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray
    from discreet.audit._made_up_people import Game
    from discreet.audit._members import MemberComparison
    from discreet.audit.risk import RiskAttack
    from discreet.release import ReleasePlan
    from discreet.release.masked.method import MaskedRelease

_KNOWS_ALL = "all columns of a person, everything that is published, and other people of the same kind"
_ENOUGH, _MOST_RUNS = 600, 8
"""People whom attacks on made tables need for a narrow interval, and the most tables made for them."""


def attack_made_tables(
    method: SyntheticRelease | MaskedRelease, plan: ReleasePlan, game: Game
) -> tuple[list[AttackRisk], list[str]]:
    """Attack people in tables that are made anew from made-up rows, and others."""
    size, n_rows, known = game.made_rows, game.n_rows, len(game.schema.released)
    if isinstance(method, SyntheticRelease):
        # Other rows from the same answers have the same risk.
        method = copy.copy(method)
        method.draw = 0
    each = min(game.schema.max_rows_per_unit or 1, size)
    found, left_out = list[AttackRisk](), list[str]()
    for law in game.laws[1:]:
        people = game.stream.derive("people" if law in LAWS else f"people of {law.name}")
        _, rows = law.draw_units(game.schema, 2 * size // each, each, people)
        results = _repeat_attacks(method, rows, np.arange(2 * size // each * each) // each, game)
        stated = _state_results(results, plan, size, known)
        source = describe_prior(game).get(law.name)
        if source is not None:
            stated = [replace(one, prior=law.name, knowledge=f"{_KNOWS_ALL}, and {source}") for one in stated]
        found += stated
    if n_rows is None or size < n_rows:
        of = "a table whose number of rows is not public" if n_rows is None else f"one of {n_rows:,} rows"
        left_out.append(
            f"People are attacked in a table made of {size:,} made-up rows, where they are found more easily "
            f"than in {of}."
        )
    if not any(one.attack == "linkage" for one in found):
        left_out.append("Linkage and attribute inference: no published row is that of a person.")
    if not found:
        left_out.append(
            "Membership: the made-up rows are too few, or rows of the table are published as they are."
        )
    return found, left_out


def _state_results(
    found: Sequence[MemberComparison], plan: ReleasePlan, size: int, known: int
) -> list[AttackRisk]:
    """Return the attacks on made tables as risks: linkage, membership and attribute inference."""
    areas = [one for one in found if one.members is None]
    attacks = [_membership_of(max(areas, key=lambda one: one.value), size, known)] if areas else []
    named = {one.attack: one for one in found}
    if "exact match" in named:
        linkage = _difference_of("linkage", named["exact match"], plan, size, known)
        inference = _difference_of("attribute inference", named["guessed cells"], plan, size, known - 1)
        attacks = [linkage, *attacks, inference]
    return attacks


def _repeat_attacks(
    method: SyntheticRelease | MaskedRelease, rows: dict[str, AnyArray], ids: AnyArray, game: Game
) -> tuple[MemberComparison, ...]:
    """Attack several tables of few people each, and return the means; none where no table can be made."""
    runs = [attack_members(method, rows, on="made-up", ids=ids, stream=game.stream.derive("attack 0"))]
    if not runs[0]:
        return ()
    more = min(_MOST_RUNS, math.ceil(_ENOUGH / runs[0][0].n))
    for k in range(1, more):
        again = attack_members(method, rows, on="made-up", ids=ids, stream=game.stream.derive(f"attack {k}"))
        runs += [again] if again else []
    return tuple(_mean_of(one) for one in zip(*runs, strict=True))


def _mean_of(runs: Sequence[MemberComparison]) -> MemberComparison:
    """Return one attack on several tables as one result, with the interval of its mean."""
    first, n = runs[0], len(runs)
    value = math.fsum(one.value for one in runs) / n
    reach = math.sqrt(math.fsum((one.upper - one.value) ** 2 for one in runs)) / n
    means: dict[str, Any] = {}
    if first.members is not None:
        for name in ("members", "others"):
            means[name] = math.fsum(getattr(one, name) for one in runs) / n
    return replace(first, value=value, lower=value - reach, upper=value + reach, n=first.n * n, **means)


def _membership_of(found: MemberComparison, size: int, known: int) -> AttackRisk:
    """Return the best of the attacks that tell people in a table from others."""
    return state_attack(
        attack="membership", known=known, knowledge=_KNOWS_ALL, prior="correlated",
        success=found.value, lower=max(0.0, found.lower), baseline=found.chance,
        # What is proven narrows what is measured.
        upper=max(found.value, min(found.upper, found.bound)),
        bound=found.bound, n=found.n, n_rows=size, failure_probability=found.failure_probability,
        sentence="Somebody who knows all columns of a person tells people in the table from others in "
        f"{percent(found.value)} of pairs; by chance, in {percent(0.5)}.",
    )  # fmt: skip


def _difference_of(
    attack: RiskAttack, found: MemberComparison, plan: ReleasePlan, size: int, known: int
) -> AttackRisk:
    """Return an attack that may be right about people who are not in the table, too."""
    assert found.members is not None
    assert found.others is not None
    shares = [small_percent(found.members), small_percent(found.others)]
    sentence = (
        f"A published row has all cells of a person in the table in {shares[0]} of cases, and of others in "
        f"{shares[1]}."
        if attack == "linkage"
        else "Somebody who knows all columns of a person but one guesses it, by the row that is most alike, "
        f"right in {shares[0]} of cases, and for people who are not in the table in {shares[1]}."
    )
    return state_attack(
        attack=attack, known=known, knowledge=_KNOWS_ALL, prior="correlated",
        success=found.members, lower=min(max(0.0, found.others + found.lower), found.members),
        upper=max(min(1.0, found.others + found.upper), found.members), baseline=found.others,
        bound=min(largest_success(one, found.others) for one in plan.promises), n=found.n, n_rows=size,
        failure_probability=found.failure_probability, sentence=sentence,
    )  # fmt: skip
