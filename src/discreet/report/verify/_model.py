"""Checks of a published model: its file, its promise from queries and charges, and every sentence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet import learn
from discreet.learn.budget_schedule import BudgetSchedule
from discreet.learn.feature_map import FeatureMap
from discreet.learn.paid_score import ModelScore, ScoreCounts
from discreet.privacy import ApproxDP, NoPromise, Promise, PureDP, Receipt, Spending, promise_from_dict
from discreet.query.aggregates import aggregate_from_dict
from discreet.query.calibration import QueryNoise
from discreet.query.curation import Curation
from discreet.report.folder._metadata import model_card
from discreet.report.folder.folder import (
    CARD,
    MODEL,
    MODEL_PAGE,
    STATEMENT,
    derived_of_model,
    digest_of,
    read_bytes,
)
from discreet.report.folder.model_files import read_archive
from discreet.report.statement.build import USUAL_DELTA, promised_blocks, total_cost
from discreet.report.statement.model import (
    ModelSubject,
    describe_quality,
    model_release_name,
    pass_receipts,
    predicts_target,
)
from discreet.report.verify.claims import (
    RELATIVE_TOLERANCE,
    check_blocks,
    composition_faults,
    describe_difference,
    differences,
    json_block,
    name_faults,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from discreet.learn import Learner
    from discreet.report.statement.model_documents import ModelStatement, Pass
    from discreet.report.verify._result import Checks
    from discreet.schema import Schema

_MOST_PASSES = 1000  # more than any learner plans
_SAMPLER_DELTA = 1e-9  # largest delta of a pure promise, from the error of the sampler


def check_model_card(folder: Path, statement: ModelStatement, checks: Checks) -> None:
    """Check that the model card says what the statement says."""
    with checks.attempt("model card"):
        same = read_bytes(folder / CARD) == model_card(statement).encode("utf-8")
        wrong = [] if same else [f"{CARD} does not say what {STATEMENT} says."]
        checks.settle("model card", wrong, f"{CARD} says what {STATEMENT} says.")


def check_model_page(folder: Path, statement: ModelStatement, learner: Learner, checks: Checks) -> None:
    """Check that the page with the effects of columns is there for a classifier alone, and is its own."""
    has_page = isinstance(learner, learn.PrivateClassifier)
    present = (folder / MODEL_PAGE).exists()
    if not has_page and not present:
        return
    with checks.attempt("model page"):
        if not (has_page and present):
            state = "missing" if has_page else "there, and such a model has no page"
            checks.add("model page", "failed", f"{MODEL_PAGE} is {state}.")
            return
        expected = derived_of_model(statement, learner)[MODEL_PAGE]
        same = read_bytes(folder / MODEL_PAGE) == expected.encode("utf-8")
        wrong = [] if same else [f"{MODEL_PAGE} does not show what {MODEL} and {STATEMENT} hold."]
        checks.settle("model page", wrong, f"{MODEL_PAGE} shows what {MODEL} and {STATEMENT} hold.")


def check_quality(statement: ModelStatement, schema: Schema, learner: Learner, checks: Checks) -> None:
    """Check what is said about how good a model is, and that its score is about this very model."""
    true = describe_quality(learner)
    # A score that was paid for and is not stated would be kept from readers.
    paid = any(part.name == "score" and part.question is not None for part in statement.passes)
    if true is None and statement.quality is None and not paid:
        return
    with checks.attempt("quality"):
        claimed = None if statement.quality is None else json_block(statement.quality)
        stated = differences(claimed, None if true is None else json_block(true), "quality")
        wrong = [describe_difference(*d) for d in stated]
        faults = _score_faults if hasattr(learner, "fit_database") else _counted_score_faults
        wrong += faults(statement, schema, learner)
        checks.settle("quality", wrong, "It follows from the model and from what was paid for.")


def _score_faults(statement: ModelStatement, schema: Schema, model: Any) -> list[str]:
    """Return where the score of a learner on noisy sums is not about its model, or not as precise as said."""
    passes = {part.name: part for part in statement.passes if part.question is not None}
    score = getattr(model, "score_", None)
    paid = "score" in passes and model.paid_score is not False
    if paid != (score is not None):
        return ["There must be a score where one was paid for, and only there."]
    if score is None:
        return []
    target = model._database_target(schema)
    assert target is not None
    asked = aggregate_from_dict(passes["score"].question or {})
    if asked != model._count_query(target, by_class=model._by_table):
        return ["The score that was paid for is about another model than the published one."]
    rows = statement.what.rows
    if rows is None:
        return []  # Only the model knew how many rows to divide by.
    right = np.array(score.accuracy * rows if score.table is None else score.table)
    counts = _with_noise(right, passes["score"], schema)
    classes = _with_noise(np.array([score.vote * rows]), passes["classes"], schema)
    again = ModelScore.from_counts(counts, classes, rows, model._n_parameters)
    earlier = ModelScore.from_counts(counts, classes, rows, None)
    # A score that an earlier version published is as honest as its own rule.
    if not list(differences(score.to_dict(), earlier.to_dict(), "score")):
        return []
    return [describe_difference(*d) for d in differences(score.to_dict(), again.to_dict(), "score")]


def _counted_score_faults(statement: ModelStatement, schema: Schema, model: Any) -> list[str]:
    """Return where the score of a learner on rows is not there, or not as precise as its part of epsilon."""
    rows = statement.what.rows
    if rows is None:
        return ["A score of rows that were counted needs their number, which is not stated."]
    score, noise = getattr(model, "score_", None), model._score_noise(rows, len(model.classes_))
    if (score is None) != (noise is None):
        return ["There must be a score where one was paid for, and only there."]
    if score is None:
        return []
    again = noise.score(score.accuracy * rows, np.array([score.vote * rows]), rows, model._n_parameters)
    return [describe_difference(*d) for d in differences(score.to_dict(), again.to_dict(), "score")]


def _with_noise(value: Any, part: Pass, schema: Schema) -> ScoreCounts:
    """Return counts with the noise that the query of a pass has under its promise."""
    bound = aggregate_from_dict(part.question or {}).bind(Curation.from_schema(schema), schema.neighbors)
    assert part.receipt is not None
    (promise,) = (promise_from_dict(one) for one in part.receipt["promises"])
    noise = QueryNoise.calibrate(bound, schema, privacy=promise)
    return ScoreCounts(value, noise.sd(bound).reshape(bound.shape), noise.law)


def model_charge_faults(statement: ModelStatement) -> list[str]:
    """Return the passes whose receipts are for another schema than the one declared."""
    wrong = []
    for part in statement.passes:
        # A learner that reads rows is charged for a matrix: its receipt has no schema of its own.
        receipt = part.receipt if part.question is not None else None
        if receipt is not None and receipt.get("schema") != statement.digest:
            wrong.append(f"The receipt of {part.name[:40]!r} is for another schema than the one declared.")
    return wrong


def model_schema_faults(statement: ModelStatement, schema: Schema) -> list[str]:
    """Return the faults of the stated columns and number of rows, given the schema."""
    wrong = []
    if statement.what.reads != [column.name for column in schema.features]:
        wrong.append("The statement names other columns that are read than the schema has.")
    public = schema.neighbors == "replace-one" and schema.row_count == "public"
    if (statement.what.rows is not None) != public:
        wrong.append("The number of rows must be said where the schema calls it public, and only there.")
    return wrong


def check_model_file(
    folder: Path, statement: ModelStatement, schema: Schema, checks: Checks
) -> Learner | None:
    """Return the model after comparing its file with the statement; None if it cannot be loaded."""
    with checks.attempt("model"):
        trained = statement.what.model
        archive = read_archive(folder / MODEL)
        wrong = [f"{MODEL} holds {name!r}, which nothing in it refers to." for name in archive.unreferenced]
        if statement.files != {MODEL: digest_of(folder / MODEL)}:
            wrong.append(f"{MODEL} is not the file that the statement is about.")
        kind = learn.METHODS.get(trained.name)
        if kind is None or kind.__name__ != trained.learner or archive.learner != trained.name:
            checks.add("model", "failed", f"{MODEL} does not hold a model of the kind that is stated.")
            return None
        learner = kind.load(folder / MODEL)
        allowed = {*kind._saved_attributes, "n_features_in_", "feature_names_in_"}
        wrong += [
            f"{MODEL} holds {name!r}, which is no attribute of a {trained.name}."
            for name in sorted(set(archive.fitted) - allowed)
        ]
        if not isinstance(getattr(learner, "privacy", None), Promise) or isinstance(
            learner.privacy, NoPromise
        ):
            checks.add("model", "failed", "The learner was asked for no promise.")
            return None
        learner._check_parameters()
        faults = [
            *differences(trained.parameters, archive.plain_parameters, "what.model.parameters"),
            *differences(
                statement.numbers.promises, [p.to_dict() for p in learner.promises_], "numbers.promises"
            ),
            *differences(
                [part.receipt for part in statement.passes if part.receipt is not None],
                [receipt.to_dict() for receipt in fitted_receipts(learner)],
                "passes",
            ),
        ]
        wrong += [describe_difference(*difference) for difference in faults]
        wrong += _layout_faults(learner, schema)
        if statement.what.predicts != (schema.target if predicts_target(learner) else None):
            wrong.append("what.predicts must be the target of the schema where the model predicts one.")
        checks.settle(
            "model", wrong, f"It can be loaded, and holds what a {trained.name} has and nothing else."
        )
        return learner
    return None


def fitted_receipts(learner: Any) -> tuple[Receipt, ...]:
    """Return the receipts of a fitted learner: several, or the single one of a learner that reads rows."""
    receipts = getattr(learner, "receipts_", None)
    return tuple(receipts) if receipts is not None else (learner.receipt_,)


def _layout_faults(learner: Any, schema: Schema) -> list[str]:
    """Return a fault if the columns of the model are not those declared."""
    declared = FeatureMap.from_schema(schema)
    own = getattr(learner, "layout_", None)
    fits = learner.n_features_in_ == declared.size if own is None else own.to_dict() == declared.to_dict()
    return [] if fits else ["The model reads other columns, or other bounds, than the schema declares."]


def check_promise(
    statement: ModelStatement, schema: Schema, learner: Learner, checks: Checks
) -> tuple[Promise, ...] | None:
    """Return the promise computed again from queries and charges; None if that is impossible."""
    with checks.attempt("promise"):
        sums = hasattr(learner, "fit_database")
        promises, wrong = (_promise_on_sums if sums else _promise_on_rows)(statement, schema, learner)
        claimed = statement.numbers.promises
        wrong += [
            describe_difference(*d)
            for d in differences(claimed, [p.to_dict() for p in promises], "numbers.promises")
        ]
        receipts = [part.receipt for part in statement.passes if part.receipt is not None]
        if len({receipt.get("ledger") for receipt in receipts}) > 1:
            wrong.append("The receipts are of several ledgers.")
        checks.settle(
            "promise",
            wrong,
            f"It follows from what was asked of the rows in {len(receipts)} passes, and from their price."
            if sums
            else "It is what was asked for and charged.",
        )
        return promises
    return None


def _promise_on_sums(
    statement: ModelStatement, schema: Schema, learner: Any
) -> tuple[tuple[Promise, ...], list[str]]:
    """Return the promise and the faults of a learner on noisy sums.

    The noise for the share of each pass is calibrated again, and must cost what its receipt says.
    """
    shares = {part.name: part.share for part in statement.passes if part.share is not None}
    wrong = ["Every pass must be there once, with its share."] if len(shares) < len(statement.passes) else []
    # Only what is public about the sums is needed to split a promise.
    public: Any = SimpleNamespace(schema=schema, neighbors=schema.neighbors)
    passes = BudgetSchedule(public, learner.privacy, shares)
    passes = BudgetSchedule(public, learner.privacy, shares, planned=_planned_passes(statement, passes))
    wrong += [describe_difference(*d) for d in differences(shares, passes.split, "passes")]
    wrong += [describe_difference(*d) for d in differences(shares, dict(learner.split_), "passes")]
    curation = Curation.from_schema(schema)
    for part in statement.passes:
        if (part.question is None) != (part.receipt is None):
            wrong.append(f"The pass {part.name[:40]!r} must have a question and a receipt, or neither.")
        if part.question is None or part.receipt is None:
            continue
        bound = aggregate_from_dict(part.question).bind(curation, schema.neighbors)
        noise = QueryNoise.calibrate(bound, schema, privacy=passes.privacy(part.name))
        true = [] if noise.promise is None else [noise.promise.to_dict()]
        wrong += [
            describe_difference(*d)
            for d in differences(part.receipt["promises"], true, f"passes[{part.name}]")
        ]
    return passes.promises, wrong


def _planned_passes(statement: ModelStatement, passes: BudgetSchedule) -> int:
    """Return how many passes the stated promise allows for, at least those that were made.

    Passes may be merged once earlier answers are known. The promise still allows for the samplers of all that
    were planned, so that it holds however the answers fall out; a larger number only weakens it.
    """
    made = len(passes.split)
    stated = sum(float(promise.get("total_variation", 0.0)) for promise in statement.numbers.promises)
    for_made = sum(promise.total_variation for promise in passes.promises)
    planned = round(stated / for_made * made) if for_made else made
    return max(made, min(planned, _MOST_PASSES))


def _promise_on_rows(
    statement: ModelStatement, schema: Schema, learner: Any
) -> tuple[tuple[Promise, ...], list[str]]:
    """Return the promise and the faults of a learner that reads rows, by its charges and its plan."""
    promises = tuple(promise_from_dict(promise) for promise in statement.numbers.promises)
    wrong = _charge_faults(statement.passes, promises)
    rows = statement.what.rows
    from discreet.learn.perturbation.base import PerturbedClassifier

    if isinstance(learner, PerturbedClassifier) and rows is not None:
        promises = learner.recompute_promises(rows) or promises
    epsilon, delta = total_cost(promises, learner)
    requested = learner.privacy
    allowed = requested.delta if isinstance(requested, ApproxDP) else _SAMPLER_DELTA
    most = requested.epsilon if isinstance(requested, PureDP | ApproxDP) else None
    if most is not None and (
        epsilon is None or epsilon > most * (1 + RELATIVE_TOLERANCE) or (delta or 0.0) > allowed
    ):
        wrong.append(f"The model promises less than was asked for: epsilon {epsilon}, delta {delta}.")
    for promise in promises:
        if (promise.unit, promise.neighbors) != (schema.unit, schema.neighbors):
            wrong.append("The promise is about another unit, or other neighbors, than the schema says.")
    return promises, wrong


def _charge_faults(passes: Sequence[Pass], promises: tuple[Promise, ...]) -> list[str]:
    """Return where the charges of a learner that reads rows differ from its promise."""
    if not passes or any(p.receipt is None or p.question is not None or p.share is not None for p in passes):
        return ["A model that saw the rows itself must have receipts, and neither questions nor shares."]
    paid = [Receipt.from_dict(part.receipt).promises for part in passes if part.receipt is not None]
    if len(paid) == 1:
        charged, promised = ([promise.to_dict() for promise in side] for side in (paid[0], promises))
        return [describe_difference(*d) for d in differences(charged, promised, f"passes[{passes[0].name}]")]
    # Several charges compose to less than their sum in a way only the learner knows; none may exceed the
    # whole.
    at = max(USUAL_DELTA, *(getattr(promise, "delta", 0.0) for promise in promises))
    whole = sum((Spending.from_promises(promise) for promise in promises), Spending()).epsilon_at(at)
    return [
        f"The charge for {part.name[:40]!r} is more than the model promises."
        for part, charges in zip(passes, paid, strict=True)
        if Spending.from_promises(charges).epsilon_at(at) > whole * (1 + RELATIVE_TOLERANCE)
    ]


def check_model_claims(
    statement: ModelStatement,
    schema: Schema,
    learner: Learner,
    promises: tuple[Promise, ...],
    checks: Checks,
) -> None:
    """Check every number and every sentence that follows from the schema, the promises and the receipts."""
    claimed = statement.model_dump(mode="json")
    with checks.attempt("numbers"):
        subject = ModelSubject(
            learner=learner,
            schema=schema,
            promises=promises,
            passes=statement.passes,
            n_rows=statement.what.rows,
            parameters=statement.what.model.parameters,
        )
        blocks = {**promised_blocks(subject), "implementation": subject.implementation()}
        true = {name: json_block(block) for name, block in blocks.items()}
        true["implementation"]["versions"] = claimed["implementation"]["versions"]
        check_blocks(claimed, true, checks, "Epsilon and delta follow from the promise.")
        wrong = list(differences(claimed["implementation"], true["implementation"], "implementation"))
        wrong += name_faults(statement, model_release_name(schema, learner.name, statement.files))
        checks.settle(
            "implementation",
            [describe_difference(*d) for d in wrong],
            "Sampler and name are those of the model.",
        )
    with checks.attempt("composition"):
        faults = composition_faults(statement, pass_receipts(statement.passes), promises, plain=False)
        checks.settle("composition", faults, "The charges add up to the stated total.")


def add_unchecked_of_model(statement: ModelStatement, checks: Checks) -> None:
    """Add the facts that the folder of a model cannot show."""
    seeded = statement.implementation.seeded
    checks.add(
        "noise",
        "not checkable",
        "SEEDED: anyone who knows the seed can remove the noise. This model protects no one."
        if seeded
        else "That the noise was drawn in full, by the stated sampler, and that the model was trained on the "
        "stated rows, is not checkable from a model.",
    )
    checks.add(
        "tuning",
        "not checkable",
        f"The statement says {statement.tuning.on_private_rows!r}. Whether parameters were chosen by looking "
        "at private rows, the curator alone knows.",
    )
    checks.add(
        "other releases",
        "not checkable",
        "A model cannot show what else was published about the same people: charges outside the ledger, and "
        "the limit of the ledger, are not checkable.",
    )
