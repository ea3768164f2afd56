"""Stages of a release, each as one or two functions; :mod:`discreet.pipeline.release` has their order."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.audit import (
    PublicPrior,
    attack_claims,
    attack_members,
    attack_prior,
    attack_published,
    attack_questions,
    attack_records,
    attack_rows,
    measure_risk,
)
from discreet.errors import DataError, RiskTooHigh, SelfAttackFailed
from discreet.evaluation.columns import compare_columns, correlate
from discreet.evaluation.distances import TableTally
from discreet.evaluation.exact_models import check_masked_model
from discreet.evaluation.learning import choose_meter, measure_learning
from discreet.evaluation.samples import PairedSample
from discreet.evaluation.what_if import what_if
from discreet.formatting import count_noun
from discreet.noise import Stream
from discreet.noise_law import SampledLaw
from discreet.pipeline._stages import READABLE, check_every_cell
from discreet.pipeline.options import check_floors
from discreet.pipeline.sources import describe_source, resolve_source
from discreet.privacy import ApproxDP
from discreet.release.masked.method import MaskedRelease
from discreet.release.masked.plan import MaskedPlan
from discreet.release.spark import PartitionedTable
from discreet.release.synthetic import SyntheticRelease
from discreet.report.folder.loading import ATTACKED_ROWS, published_batches
from discreet.report.noisy_tables import read_tables
from discreet.report.statement.composition import USUAL_DELTA
from discreet.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet._types import AnyArray
    from discreet.audit import AuditResult, Guess, MemberComparison, Reidentification, Risk
    from discreet.evaluation.noise_aware import AwareRows
    from discreet.ledger import Ledger
    from discreet.pipeline._stages import StageReport
    from discreet.release import Publication, ReleaseMethod, ReleasePlan
    from discreet.report.findings import Learning, WhatIf
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


def public_length(schema: Schema, n_rows: int) -> Any:
    """Return the number of rows; None where it is not public, which only some methods accept."""
    public = schema.neighbors == "replace-one" and schema.row_count == "public"
    return n_rows if public else None


def check_cells(source: Any, schema: Schema, n_rows: int, report: StageReport) -> None:
    """Read every declared cell once, so that a bad one is named before anything is charged."""
    if isinstance(source, PartitionedTable):
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
    if isinstance(method, SyntheticRelease):
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
    if isinstance(method, SyntheticRelease) and others:
        report("rehearsed on made-up rows: the noise is as large as promised")
    elif floors + others:
        proven = f"{count_noun(floors, 'floor')} and {count_noun(others, 'promise')}"
        report(f"attacked on made-up records: {proven} hold")
    elif not plan.row_level:
        report("published rows will be nobody's: there is no record to follow")
    else:
        report("nothing is promised that an attack on made-up records could break")
    return guesses, audits


def read_prior(public_sample: Any, schema: Schema) -> PublicPrior | None:
    """Return the law of public rows that attackers may know; None where none were declared.

    Parameters
    ----------
    public_sample : path, URL or frame, optional
        Public table with the released columns of the schema; None for none.
    schema : Schema
        Declaration of the table that is protected.
    """
    if public_sample is None:
        return None
    sample = PairedSample(schema, Stream.from_seed(0))
    with open_table(resolve_source(public_sample), schema=schema) as table:
        for batch in table.batches(schema):
            sample(batch, batch)
    label = describe_source(public_sample)
    # The name of a file says which table it is; where it lies is nobody's business.
    return PublicPrior.from_rows(schema, sample.rows, label if "://" in label else Path(label).name)


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


def make_watch(
    pairs: PairedSample, n_rows: int, report: StageReport
) -> Callable[[Mapping[str, AnyArray], Mapping[str, AnyArray]], None]:
    """Return the callback that samples true rows beside published ones, batch by batch."""

    def watch(rows: Mapping[str, AnyArray], published: Mapping[str, AnyArray]) -> None:
        pairs(rows, published)
        report.progress(0.9 * pairs.seen / n_rows)

    return watch


def sample_true_rows(source: Any, schema: Schema, made_up: MadeUpRows | None = None) -> PairedSample:
    """Return a sample of true rows, for a release whose published rows belong to no one.

    Parameters
    ----------
    source : Any
        Table that the rows are drawn from.
    schema : Schema
        Schema that declares the columns of the table.
    made_up : MadeUpRows, optional
        Published rows that stand beside the true ones, in any order; None puts the true rows there too.
    """
    pairs = PairedSample(schema, Stream())
    with open_table(source, schema=schema) as table:
        for batch in table.batches(schema, ids=schema.id_column is not None):
            rows = dict(batch)
            if schema.id_column is not None and batch.ids is not None:
                rows[schema.id_column] = batch.ids
            pairs(rows, batch if made_up is None else made_up.take(batch.n_rows))
    return pairs


class MadeUpRows:
    """Rows of a published file, a number at a time, from the beginning again after its end.

    Parameters
    ----------
    path : Path
        File of data of a release.
    plan : ReleasePlan
        Plan of the release, with the schema and the types of the file.
    """

    def __init__(self, path: Path, plan: ReleasePlan) -> None:
        self._read = partial(published_batches, path, plan.schema, typed=plan.typed)
        self._batches = self._read()
        self._held: dict[str, AnyArray] = {}

    def take(self, n: int) -> dict[str, AnyArray]:
        """Return the next `n` rows, encoded."""
        while not self._held or len(next(iter(self._held.values()))) < n:
            batch = next(self._batches, None)
            if batch is None:
                self._batches = self._read()
                batch = next(self._batches)
            held = self._held or {name: values[:0] for name, values in batch.items()}
            self._held = {name: np.concatenate([held[name], values]) for name, values in batch.items()}
        taken = {name: values[:n] for name, values in self._held.items()}
        self._held = {name: values[n:] for name, values in self._held.items()}
        return taken


def describe_charge(method: ReleaseMethod, publication: Publication, ledger: Ledger | None) -> str:
    """Return where a release was charged, in words."""
    *earlier, last = publication.receipts
    if ledger is None or last.seq is None:
        return "drawn without charging a ledger"
    # The address of a server may hold a password.
    place = "the ledger" if "://" in ledger.url else Path(ledger.url).name
    if earlier:
        assert isinstance(method, SyntheticRelease)
        paid = sum(question["earlier"] for question in method.tables_["questions"])
        count = len(earlier) + 1
        if paid == count:
            return f"nothing charged: {count} questions were, by an earlier run"
        when = f", {paid} of them by an earlier run" if paid else ""
        return f"charged before as {count} rows of {place}{when}"
    return f"charged before as row {last.seq} of {place}"


def measure_worth(
    method: ReleaseMethod,
    schema: Schema,
    plan: ReleasePlan,
    pairs: PairedSample,
    beside: AwareRows,
    n_rows: int,
    report: StageReport,
) -> tuple[Learning | None, list[WhatIf]]:
    """Measure how useful the release is to a learner, and how useful it would be with more or less noise.

    Parameters
    ----------
    method : ReleaseMethod
        Method that drew the release.
    schema : Schema
        Schema that declares the columns of the table.
    plan : ReleasePlan
        Plan that the release was drawn by.
    pairs : PairedSample
        Sample of true rows beside the published ones.
    beside : AwareRows
        Published rows outside of the sample, for a learner that knows the noise law.
    n_rows : int
        Public number of rows.
    report : StageReport
        Report of the stage; gets the scores in words.

    Returns
    -------
    learning : Learning or None
        Scores of the learners; None if no target is declared.
    positions : list of WhatIf
        Noise, floors and accuracy at several factors of the noise.
    """
    stream = Stream()
    learning: Learning | None
    if isinstance(plan, MaskedPlan):
        assert isinstance(method, MaskedRelease)
        assert method.model_ is not None
        learning = check_masked_model(plan, pairs.rows, method.model_)
    else:
        learning = measure_learning(
            plan.schema,
            pairs.rows,
            pairs.published_rows,
            plan=plan,
            stream=stream,
            other_rows=beside,
            progress=lambda done: report.progress(0.6 * done),
        )
    if method.asks_questions:
        # What more or less noise does to such a table does not follow from a factor.
        report(_describe_learning(learning))
        return learning, []
    meter = choose_meter(plan, pairs.rows, stream=stream, published=pairs.published_rows)
    positions = what_if(
        method,
        schema,
        n_rows,
        delta=usual_delta(method),
        accuracy=meter,
        progress=lambda done: report.progress(0.6 + 0.4 * done),
    )
    report(_describe_learning(learning))
    return learning, positions


def usual_delta(method: ReleaseMethod) -> float:
    """Return the delta at which Gaussian noise is stated as an epsilon: the requested or the usual one."""
    privacy = getattr(method, "privacy", None)
    return privacy.delta if isinstance(privacy, ApproxDP) else USUAL_DELTA


def _describe_learning(learning: Learning | None) -> str:
    """Return the score of a model of the release beside those of the original and of the majority."""
    if learning is None:
        return "no target is declared (--target), so nothing is learned"
    scores = {s.trained_on: s for s in learning.scores if s.tested_on == "original"}
    if not scores:
        return f"{learning.target}: {learning.note or 'nothing can be learned'}"
    worth = {
        side: (f"{score.accuracy:.1%}", score.accuracy) if score.accuracy is not None
        else (f"R2 {score.r2:.3f}", score.r2)
        for side, score in scores.items()
        if score.accuracy is not None or score.r2 is not None
    }  # fmt: skip
    # A learner that knows the noise law may be better or worse than one that does not.
    ours = [worth[side] for side in ("release", "aware") if side in worth]
    parts = [f"{max(ours, key=lambda one: one[1] or 0.0)[0]} trained on it"] if ours else []
    parts += [f"{side} {worth[side][0]}" for side in ("original", "majority") if side in worth]
    return f"{learning.target}: {', '.join(parts) or learning.note}"


def attack_real_rows(
    plan: ReleasePlan, pairs: PairedSample, report: StageReport
) -> tuple[tuple[Guess, ...], tuple[Reidentification, ...]]:
    """Attack a sample of real rows; the result is for the curator alone and decides nothing."""
    guesses = attack_rows(
        plan,
        pairs.rows,
        pairs.published_rows,
        progress=lambda done, total: report.progress(0.8 * done / total),
    )
    return guesses, attack_records(plan, pairs.rows, pairs.published_rows, ids=pairs.ids)


def attack_made_up_people(
    method: ReleaseMethod, plan: ReleasePlan, n_rows: int
) -> tuple[MemberComparison, ...]:
    """Attack tables made anew from made-up people; empty where published rows are those of real ones."""
    if isinstance(method, SyntheticRelease):
        return attack_published(method, n_rows)
    if isinstance(method, MaskedRelease) and isinstance(plan, MaskedPlan):
        return attack_published(method, plan.n_rows)
    return ()


def attack_real_people(method: ReleaseMethod, pairs: PairedSample) -> tuple[MemberComparison, ...]:
    """Attack tables made anew from halves of a sample of real rows; for the curator alone."""
    if not isinstance(method, SyntheticRelease | MaskedRelease):
        return ()
    return attack_members(method, pairs.rows, on="rows", ids=pairs.ids)


def describe_attacks(
    plan: ReleasePlan,
    on_rows: tuple[Guess, ...],
    on_file: tuple[Guess, ...],
    exposed: tuple[Reidentification, ...],
    compared: Sequence[MemberComparison],
) -> str:
    """Return how many attacks were run and where their results are, in words."""
    if compared:
        attacks = count_noun(len({one.attack for one in compared}), "attack")
        real = " and real" if any(one.on == "rows" for one in compared) else ""
        return f"{attacks} on tables made anew from made-up{real} people"
    if not plan.row_level:
        return "published rows belong to no real person, and no attack on people was run"
    names = {guess.attack for guess in (*on_rows, *on_file)} | {one.attack for one in exposed}
    columns = {guess.column for guess in (*on_rows, *on_file)}
    kinds, attacked = count_noun(len(names), "kind"), count_noun(len(columns), "column")
    return f"{kinds} of attack on {attacked} of the file and of real rows"


def first_rows(path: Path, schema: Schema, *, typed: bool = False) -> dict[str, AnyArray]:
    """Return the first rows of a published file, encoded; `verify` attacks the same ones again.

    Rows were shuffled before they were written, so the first ones are a random sample.
    """
    parts: list[dict[str, AnyArray]] = []
    n_read = 0
    for batch in published_batches(path, schema, typed=typed):
        parts.append({name: values[: ATTACKED_ROWS - n_read] for name, values in batch.items()})
        n_read += len(next(iter(batch.values())))
        if n_read >= ATTACKED_ROWS:
            break
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def compare_rows(pairs: PairedSample, plan: ReleasePlan) -> dict[str, Any]:
    """Return the comparisons of published and true rows, by the names that findings give them.

    Empty if published rows belong to no one.
    """
    if not plan.row_level:
        return {}
    return {
        "columns": compare_columns(
            pairs.totals.values(),
            {s.column: s.law.unpublished for s in plan.columns if isinstance(s.law, SampledLaw)},
        ),
        "correlations": correlate(plan.schema, pairs.rows, pairs.published_rows),
        "compared_rows": len(next(iter(pairs.rows.values()))),
    }


def compare_tables(
    method: SyntheticRelease, source: Any, schema: Schema, plan: ReleasePlan, path: Path
) -> dict[str, Any]:
    """Return how far a synthetic table is from the rows it was made from, by the names that findings give it.

    Parameters
    ----------
    method : SyntheticRelease
        Method that has just made the table.
    source : Any
        Table that it was made from.
    schema : Schema
        Schema that declares the columns of the table.
    plan : ReleasePlan
        Plan of the release, with the schema and the types of the file.
    path : Path
        File of data of the release.
    """
    tally = TableTally(schema, read_tables(method.tables_, method.model_, plan.notes))
    with open_table(source, schema=schema) as table:
        tally.add_true(table.batches(schema))
    tally.add_made(published_batches(path, plan.schema, typed=plan.typed))
    quality = tally.measure()
    return {
        "quality": quality,
        "columns": tally.compare_columns(),
        "correlations": tally.compare_correlations(),
        "compared_rows": quality.rows,
    }
