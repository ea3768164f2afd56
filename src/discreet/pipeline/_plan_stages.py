"""Stages of a release before its charge: read, plan, attack on made-up people, judge the risk."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from discreet.audit import (
    PublicPrior,
    attack_claims,
    attack_prior,
    attack_questions,
    measure_risk,
)
from discreet.errors import DataError, RiskTooHigh, SelfAttackFailed
from discreet.formatting import count_noun
from discreet.pipeline._stages import READABLE, check_every_cell
from discreet.pipeline.methods import check_floors
from discreet.query.unit_rows import count_used_rows
from discreet.release.kinds import is_partitioned, is_synthetic
from discreet.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.audit import AuditResult, Guess, Risk
    from discreet.pipeline._stages import StageReport
    from discreet.release import ReleaseMethod, ReleasePlan
    from discreet.schema import Schema


_FEWEST_PEOPLE, _MOST_PEOPLE = 50, 1_000
"""Numbers of made-up people on whom the risk of a release is measured."""
_KINDS = {
    "gaussian": "with Gaussian noise",
    "laplace": "with Laplace noise",
    "bounded": "with noise of bounded support",
    "in-range": "redrawn inside their range",
    "response": "by randomized response",
    "joint-response": "by randomized response together",
    "sampled": "by randomized response, in some of the rows",
    "invariant": "with noise that leaves the learner's model unchanged",
    "spherical": "with spherical noise together",
    "masked": "of points that belong to no real person",
    "masked-svm": "of points that belong to no real person",
    "masked-label": "of their labels",
    "synthetic": "made up from noisy tables of counts",
    "clear": "as they are",
}


def read_table(source: Any, schema: Schema, label: str, report: StageReport) -> int:
    """Return the number of rows, which the schema declares public; refuse a table without any."""
    with open_table(source, schema=schema) as table:
        n_rows = table.count()
        hidden = len(table.names) - len(schema.released)
    if not n_rows:
        raise DataError(f"{label} must have at least one row, and has none.")
    released = count_noun(len(schema.released), "column")
    report(f"{label}: {count_noun(n_rows, 'row')}; {released} to publish, {hidden} kept back")
    return n_rows


def used_length(source: Any, method: ReleaseMethod, schema: Schema, n_rows: int) -> int:
    """Return the number of rows that the method uses, which its statement calls the rows that were read.

    A synthetic release asks about curated rows, of which each unit has at most ``max_rows_per_unit``; other
    methods read all rows and publish fewer.
    """
    if not is_synthetic(method) or schema.id_column is None:
        return n_rows
    with open_table(source, schema=schema) as table:
        return count_used_rows(table, schema)


def public_length(schema: Schema, n_rows: int) -> Any:
    """Return the number of rows; None where it is not public, which only some methods accept."""
    public = schema.neighbors == "replace-one" and schema.row_count == "public"
    return n_rows if public else None


def check_cells(source: Any, schema: Schema, n_rows: int, report: StageReport) -> None:
    """Read every declared cell once, so that a bad one is named before anything is charged."""
    if is_partitioned(source):
        source.check()
    else:
        check_every_cell(source, schema, lambda n_read: report.progress(n_read / n_rows))
    unnamed = sum(c.bounds_source is None for c in schema.released)
    sources = f"; no source is given for the bounds of {count_noun(unnamed, 'column')} (bounds_source)"
    report(READABLE + (sources if unnamed else ""))


def plan_release(
    method: ReleaseMethod, schema: Schema, n_rows: int, floors: Mapping[str, float], report: StageReport
) -> ReleasePlan:
    """Return the plan of a release; refuse one that does not prove the requested error floors.

    Parameters
    ----------
    method : ReleaseMethod
        Method of the release, with its parameters.
    schema : Schema
        Schema that declares the columns of the table.
    n_rows : int
        Public number of rows.
    floors : mapping of str to float
        Requested error floor of each named column, in its unit.
    report : StageReport
        Report of the stage; gets the number of columns by kind of noise.
    """
    plan = method.plan(schema, public_length(schema, n_rows))
    check_floors(plan, floors)
    report(describe_plan(method, plan))
    return plan


def describe_plan(method: ReleaseMethod, plan: ReleasePlan) -> str:
    """Return the number of columns by kind of noise, and what will not be done, in words."""
    kinds = Counter(done.law.kind for done in plan.columns)
    parts = [f"{n} {_KINDS.get(kind, kind)}" for kind, n in kinds.items()]
    # Said before anything is charged.
    return f"{method.name}: " + "; ".join(parts) + "".join(f". {note.rstrip('.')}" for note in plan.notes)


def attack_plan(
    method: ReleaseMethod, plan: ReleasePlan, n_rows: int, n_records: int, report: StageReport
) -> tuple[tuple[Guess, ...], tuple[AuditResult, ...]]:
    """Attack a plan on made-up records, and return the guesses and the audits.

    Parameters
    ----------
    method : ReleaseMethod
        Method of the release, which is rehearsed if it asks questions.
    plan : ReleasePlan
        Plan of the release, with its promises.
    n_rows : int
        Number of rows of the table.
    n_records : int
        Number of made-up records that floors are attacked on.
    report : StageReport
        Report of the stage; gets the number of promises that hold.

    Raises
    ------
    SelfAttackFailed
        An attack does better than is promised. Nothing was charged, drawn or published.
    """
    guesses = attack_prior(
        plan, n=n_records, progress=lambda done, total: report.progress(0.9 * done / total)
    )
    if is_synthetic(method):
        assert method.schema is not None
        audits = attack_questions(method, public_length(method.schema, n_rows))
    else:
        audits = attack_claims(plan)
    broken = [str(guess) for guess in guesses if guess.verdict == "broken"]
    broken += [str(audit) for audit in audits if audit.verdict == "broken"]
    if broken:
        raise SelfAttackFailed(
            "The release is withheld: an attack on made-up records did better than was promised, so our own "
            f"mathematics or code is wrong. Nothing was charged, drawn or published. {broken[0]} Please "
            "report it.",
            broken=tuple(broken),
        )
    floors = len({guess.column for guess in guesses if guess.verdict == "holds"})
    others = len({str(audit.claim) for audit in audits if audit.verdict == "holds"})
    if is_synthetic(method) and others:
        report("rehearsed on made-up rows: the noise is as large as promised")
    elif floors + others:
        proven = f"{count_noun(floors, 'floor')} and {count_noun(others, 'promise')}"
        report(f"attacked on made-up records: {proven} hold")
    elif not plan.row_level:
        report("published rows will be nobody's: there is no record to follow")
    else:
        report("nothing is promised that an attack on made-up records could break")
    return guesses, audits


def assess_risk(
    method: ReleaseMethod,
    plan: ReleasePlan,
    n_rows: int | None,
    n_records: int,
    report: StageReport,
    prior: PublicPrior | None = None,
) -> Risk:
    """Measure on made-up people what a planned release lets an attacker do, and return it.

    Parameters
    ----------
    method : ReleaseMethod
        Method of the release, with its schema.
    plan : ReleasePlan
        Plan of the release by this method.
    n_rows : int or None
        Number of rows of the table; None where nobody knows it here.
    n_records : int
        Number of made-up records that the plan is attacked on; people are a twentieth of it.
    report : StageReport
        Report of the stage; gets the verdict.
    prior : PublicPrior, optional
        Law of public rows that attackers may know.
    """
    assert method.schema is not None
    public = None if n_rows is None else public_length(method.schema, n_rows)
    people = min(max(n_records // 20, _FEWEST_PEOPLE), _MOST_PEOPLE)
    risk = measure_risk(method, plan, public, people=people, prior=prior, progress=report.progress)
    attacks = count_noun(len(risk.attacks), "attack")
    report(f"{attacks} on made-up people; may be published: {risk.verdict}")
    return risk


def check_risk(risk: Risk, accepted: str | None) -> Risk:
    """Return the risk, with the reason for which it is accepted; raise RiskTooHigh if there is none.

    Parameters
    ----------
    risk : Risk
        Risk of the release, as :func:`assess_risk` returns it.
    accepted : str or None
        Reason for which the curator accepts figures above their thresholds; not used where none is.
    """
    if risk.verdict != "no":
        return risk
    if accepted is not None:
        return risk.accept(accepted)
    raise RiskTooHigh(
        f"The release is stopped: {risk.why} {' '.join(risk.advice)} Nothing was charged, drawn or "
        "published. To release it all the same, say why with --accept-risk TEXT, or "
        "RunOptions(accept_risk=...): the statement will hold the reason.",
        risk=risk,
    )
