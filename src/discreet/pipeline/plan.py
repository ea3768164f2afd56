"""Plans of a release: more and less noise side by side, and a dry run that reads no cell."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.errors import DiscreetError
from discreet.evaluation.learning import choose_meter
from discreet.evaluation.what_if import estimate_sample_size, what_if
from discreet.ledger.audit_log import AuditLog
from discreet.noise import Stream
from discreet.pipeline import _plan_stages
from discreet.pipeline._release_stages import usual_delta
from discreet.pipeline._stages import Stages
from discreet.pipeline.methods import (
    check_declared,
    check_one_target,
    choose_method,
    resolve_declaration,
    resolve_floors,
    resolve_method,
    resolve_promise,
)
from discreet.pipeline.options import RunOptions
from discreet.pipeline.plan_basis import PlanBasis, log_tuning, read_prior, read_sample
from discreet.pipeline.result import Row, build_notes, build_rows, select_sentences
from discreet.pipeline.sources import LedgerPlace, describe_source, find_schema, resolve_source
from discreet.release import SyntheticRelease
from discreet.release.invariant.plan import InvariantPlan, encoded_rows
from discreet.report.statement.build import promised_blocks, total_cost
from discreet.report.statement.table import TableSubject
from discreet.tables import open_table

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from discreet._types import AnyArray
    from discreet.audit import AuditResult, Guess, Risk
    from discreet.evaluation.what_if import SampleSizeEstimate
    from discreet.pipeline._stages import OnProgress
    from discreet.privacy import Promise
    from discreet.release import ReleaseMethod, ReleasePlan
    from discreet.report.findings import WhatIf
    from discreet.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRelease:
    """A release with more and with less noise, and how many rows a learner needs.

    Attributes
    ----------
    positions : list of WhatIf
        Noise, floors, epsilon and accuracy at several factors of the noise, the least noise first.
    measured_on : str
        Rows that the accuracy was measured on, in words; "" where it was not measured.
    schema : Schema
        Schema of the table that would be published; the declared one if published rows belong to no one.
    sample_size : SampleSizeEstimate or None
        Number of rows that a learner needs, or the epsilon; None without a target, or if it does not follow
        from the noise.
    questions : tuple of QuestionPlan
        For a method that asks questions, what it would ask at several promises, the requested one included;
        empty for the others.
    """

    positions: list[WhatIf]
    measured_on: str
    schema: Schema
    sample_size: SampleSizeEstimate | None = None
    questions: tuple[QuestionPlan, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPlan:
    """What a release of made-up rows would ask at one promise, from public facts alone.

    Attributes
    ----------
    requested : bool
        Whether this is the promise that was requested.
    epsilon, delta : float or None
        Promise of the whole release; None where it has no epsilon at this delta.
    error : float or None
        Mean distance in total variation of a column's counts by class, if the whole promise went into them;
        None where the number of rows is not public.
    count_sd, score_sd : float or None
        Standard deviation of such a count, and of a score of dependence, in rows; None where no scores are
        asked for.
    questions : tuple of str
        Names of the questions, in their order.
    tables : int
        Largest number of noisy tables that can be measured.
    notes : tuple of str
        Sentences about what would not be done, and why; a refusal is the only one.
    """

    requested: bool
    epsilon: float | None
    delta: float | None
    error: float | None = None
    count_sd: float | None = None
    score_sd: float | None = None
    questions: tuple[str, ...] = ()
    tables: int = 0
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def plan_noise_levels(
    source: Any,
    *,
    schema: Schema | str | os.PathLike[str] | None = None,
    method: str | ReleaseMethod | None = None,
    privacy: Promise | None = None,
    protect: Mapping[str, float] | None = None,
    ledger: LedgerPlace = None,
    new_ledger: bool = False,
    basis: PlanBasis = PlanBasis(),  # noqa: B008 - frozen
    on_progress: OnProgress | None = None,
    **options: Any,
) -> PlannedRelease:
    """Return plans of a release with more and with less noise.

    Parameters
    ----------
    source, schema, method, privacy, protect, **options
        As for :func:`discreet.publish`.
    ledger, new_ledger
        As for :func:`discreet.publish`; nothing is charged.
    basis : PlanBasis
        Number of rows, and the table that accuracy is measured on.
    on_progress : callable, optional
        Called with "plan" and the share that is done, from 0 to 1.

    Privacy
    -------
    Reads no cell unless `basis` says so. Choosing by that result is tuning on private data, and the statement
    of every later release under the same ledger says so.
    """
    schema, ledger = resolve_declaration(method, schema, ledger)
    declared = find_schema(source, schema)
    floors = resolve_floors(declared, protect)
    promise = resolve_promise(method, declared, privacy=privacy, protect=protect)
    method = choose_method(method, declared, privacy=promise, floors=floors)
    check_declared(method, declared)
    releasing = resolve_method(method, schema=declared, privacy=promise, **options)
    n_rows = basis.n_rows
    if n_rows is None:
        with open_table(resolve_source(source), schema=declared) as table:
            n_rows = max(1, table.count())
    if isinstance(releasing, SyntheticRelease):
        planned = plan_questions(releasing, declared, n_rows)
        return PlannedRelease(positions=[], measured_on="", schema=declared, questions=planned)
    plan = releasing.plan(declared, n_rows)
    shown = plan.schema if plan.row_level else declared
    needed = estimate_sample_size(releasing, declared, n_rows, explained=basis.explained)
    common: dict[str, Any] = {
        "delta": usual_delta(releasing),
        "progress": None if on_progress is None else lambda done: on_progress("plan", done),
    }
    measured, meter = "", None
    if basis.on_rows:
        log_tuning(source, declared, ledger, new_ledger=new_ledger)
        stream = Stream()
        meter = _make_meter(plan, declared, read_sample(resolve_source(source), declared, stream), stream)
        measured = "measured on true rows: internal. The statement of every later release says so."
    elif basis.public_sample is not None and declared.target is not None:
        stream = Stream.from_seed(_SEED)
        sample = read_sample(resolve_source(basis.public_sample), declared, stream)
        meter = _make_meter(plan, declared, sample, stream)
        measured = f"measured on the public table {describe_source(basis.public_sample)}."
    positions = what_if(releasing, declared, n_rows, accuracy=meter, **common)
    return PlannedRelease(positions=positions, measured_on=measured, schema=shown, sample_size=needed)


def _make_meter(
    plan: ReleasePlan, schema: Schema, rows: Mapping[str, AnyArray], stream: Stream
) -> Callable[[ReleasePlan, float], float | None]:
    """Return the meter of accuracy on some rows, encoded as the method publishes them."""
    shown = encoded_rows(schema, rows) if isinstance(plan, InvariantPlan) else plan.truth(rows)
    return choose_meter(plan, shown, stream=stream, seconds=60.0)


_SEED = 20_000_101  # of a public sample, which holds nothing private
_FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


def plan_questions(method: SyntheticRelease, schema: Schema, n_rows: int) -> tuple[QuestionPlan, ...]:
    """Return what a release of made-up rows would ask with less and with more noise. Reads no row.

    Parameters
    ----------
    method : SyntheticRelease
        Method with the requested promise.
    schema : Schema
        Declaration of the table.
    n_rows : int
        Number of rows; not used where it is not public.

    Raises
    ------
    ParameterError
        The requested table would be noise; it says which promise would do.
    """
    promises = tuple(_scale_promise(method.privacy, factor) for factor in _FACTORS)
    return tuple(
        _plan_at(method, promise, schema, n_rows, requested=factor == 1)
        for factor, promise in zip(_FACTORS, promises, strict=True)
    )


def _scale_promise(promise: Any, factor: float) -> Any:
    """Return a promise of the same kind with `factor` times its epsilon or mu, or its square of rho."""
    for name, power in (("epsilon", 1), ("mu", 1), ("rho", 2)):
        if hasattr(promise, name):
            return dataclasses.replace(promise, **{name: getattr(promise, name) * factor**power})
    return promise


def _plan_at(
    method: SyntheticRelease, promise: Any, schema: Schema, n_rows: int, *, requested: bool
) -> QuestionPlan:
    """Return what a release would ask at one promise; a promise that is not the requested one may fail."""
    parameters = method.parameters() | {"privacy": promise.to_dict()}
    other = SyntheticRelease.from_parameters(parameters, schema=schema)
    try:
        plan = other.plan(schema, _plan_stages.public_length(schema, n_rows))
        epsilon, delta = total_cost(plan.promises, other)
    except DiscreetError as problem:
        if requested:
            raise
        epsilon = getattr(promise, "epsilon", None)
        return QuestionPlan(requested=False, epsilon=epsilon, delta=usual_delta(other), notes=(str(problem),))
    asked = plan.questions
    columns = sum(one.expected_size > 1 for one in asked.cells) - (asked.target is not None)
    pairs = columns * (columns - 1) // 2
    return QuestionPlan(
        requested=requested,
        epsilon=epsilon,
        delta=delta,
        error=asked.error,
        count_sd=asked.count_sd,
        score_sd=asked.score_sd,
        questions=tuple(asked.shares),
        tables=columns
        + (0 if "tables" not in asked.shares else pairs if "more tables" in asked.shares else columns - 1),
        notes=asked.notes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What a release would do and promise, without doing it.

    Attributes
    ----------
    plan : ReleasePlan
        Plan that the release would be drawn by.
    guesses, audits : tuple of Guess, tuple of AuditResult
        Attacks on made-up records, and attacks on the other promises.
    risk : Risk
        What attackers would gain, measured on made-up people; a release stops if it is too much.
    rows : tuple of Row
        Lines of the table that the command line prints, one per column to publish.
    notes : tuple of str
        Decisions that no one requested, as of :class:`~discreet.pipeline.result.Published`.
    sentences, open : tuple of str
        Promises in words, and what would not be protected.
    """

    plan: ReleasePlan
    guesses: tuple[Guess, ...]
    audits: tuple[AuditResult, ...]
    risk: Risk
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    sentences: tuple[str, ...]
    open: tuple[str, ...]


def dry_run(
    source: Any,
    *,
    schema: Schema | str | os.PathLike[str] | None = None,
    target: str | None = None,
    method: str | ReleaseMethod | None = None,
    privacy: Promise | None = None,
    protect: Mapping[str, float] | None = None,
    run: RunOptions = RunOptions(),  # noqa: B008 - frozen
    **options: Any,
) -> DryRun:
    """Check the declaration, plan the release and attack the plan; charge, draw and write nothing.

    Parameters
    ----------
    source, schema, target, method, privacy, protect, run, **options
        As for :func:`discreet.publish`. Nothing is charged, and a risk above the thresholds stops nothing.

    Returns
    -------
    DryRun

    Privacy
    -------
    Reads no cell: only the names and types of the columns and the number of rows, which a release shows.
    """
    schema, _ = resolve_declaration(method, schema, None)
    declared = find_schema(source, schema)
    check_one_target(method, target)
    declared = declared if target is None else declared.with_target(target)
    floors = resolve_floors(declared, protect)
    promise = resolve_promise(method, declared, privacy=privacy, protect=protect)
    named, method = method is not None, choose_method(method, declared, privacy=promise, floors=floors)
    check_declared(method, declared)
    releasing = resolve_method(method, schema=declared, privacy=promise, **options)
    stages = Stages(AuditLog(None), on_stage=run.on_stage, on_progress=run.on_progress)
    with stages.stage("read") as report:
        n_rows = _plan_stages.read_table(resolve_source(source), declared, describe_source(source), report)
    opened = open_table(resolve_source(source), schema=declared)
    with stages.stage("check") as report, opened as table:
        # Compares names and types with the declaration; cells would be read by going through the batches.
        table.batches(declared, ids=declared.id_column is not None)
        report("every declared column is there; no cell was looked at")
    with stages.stage("plan") as report:
        plan = _plan_stages.plan_release(releasing, declared, n_rows, floors, report)
    with stages.stage("test") as report:
        guesses, audits = _plan_stages.attack_plan(releasing, plan, n_rows, run.attack_records, report)
    with stages.stage("risk") as report:
        prior = read_prior(run.public_sample, declared)
        risk = _plan_stages.assess_risk(releasing, plan, n_rows, run.attack_records, report, prior)
    blocks = promised_blocks(TableSubject(plan, releasing))
    return DryRun(
        plan=plan,
        guesses=guesses,
        audits=audits,
        risk=risk,
        rows=build_rows(plan, guesses),
        notes=build_notes(
            plan,
            method=releasing.name,
            chosen=named,
            privacy=promise,
            floors=floors,
            counted=True,
        ),
        sentences=select_sentences(blocks["definition"], blocks["numbers"], floors),
        open=tuple(blocks["not_protected"]),
    )
