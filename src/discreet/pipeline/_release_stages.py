"""Stages of a release from its charge on; :mod:`discreet.pipeline.release` has the order of all stages."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.audit import (
    attack_members,
    attack_published,
    attack_records,
    attack_rows,
)
from discreet.evaluation.columns import compare_columns, correlate
from discreet.evaluation.exact_models import check_masked_model
from discreet.evaluation.learning import choose_meter, measure_learning
from discreet.evaluation.tallies import PairedSample, TableTally
from discreet.evaluation.what_if import what_if
from discreet.formatting import count_noun
from discreet.noise import Stream
from discreet.noise_law import SampledLaw
from discreet.privacy import ApproxDP
from discreet.release.kinds import is_masked, is_masked_plan, is_synthetic
from discreet.report.folder.published_cells import ATTACKED_ROWS, published_batches
from discreet.report.noisy_tables import read_tables
from discreet.report.statement.build import USUAL_DELTA
from discreet.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet._types import AnyArray
    from discreet.audit import Guess, MemberComparison, Reidentification
    from discreet.evaluation.noise_aware import AwareRows
    from discreet.ledger import Ledger
    from discreet.pipeline._stages import StageReport
    from discreet.release import Publication, ReleaseMethod, ReleasePlan, SyntheticRelease
    from discreet.report.findings import Learning, WhatIf
    from discreet.schema import Schema


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
        assert is_synthetic(method)
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
    if is_masked_plan(plan):
        assert is_masked(method)
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
    if is_synthetic(method):
        return attack_published(method, n_rows)
    if is_masked(method) and is_masked_plan(plan):
        return attack_published(method, plan.n_rows)
    return ()


def attack_real_people(method: ReleaseMethod, pairs: PairedSample) -> tuple[MemberComparison, ...]:
    """Attack tables made anew from halves of a sample of real rows; for the curator alone."""
    if not (is_synthetic(method) or is_masked(method)):
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
    """Return how far a synthetic table is from the rows it was made from, by the names in findings."""
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
