"""A stranger re-checks a model: the file, the promise from what was asked and paid, and every sentence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from discreet.learn import METHODS
from discreet.learn.layout import Layout
from discreet.learn.passes import Passes
from discreet.learn.perturbed.classifier import PerturbedClassifier
from discreet.privacy import ApproxDP, NoPromise, Promise, PureDP, Receipt, Spending, promise_from_dict
from discreet.query.curation import Curation
from discreet.query.noising import Noise
from discreet.query.questions import question_from_dict
from discreet.report.folder._metadata import model_card
from discreet.report.folder.folder import (
    CARD,
    MODEL,
    MODEL_OPTIONAL,
    MODEL_REQUIRED,
    STATEMENT,
    digest_of,
    read_bytes,
)
from discreet.report.folder.model_files import read_archive
from discreet.report.statement.build import promised_blocks
from discreet.report.statement.composition import USUAL_DELTA, describe_total, includes_answers, total_cost
from discreet.report.statement.documents import PRODUCT, ModelStatement, Pass
from discreet.report.statement.model import ModelSubject, model_release_name, predicts_target
from discreet.report.verify._ledger import check_ledger, position_faults, receipt_faults, time_faults
from discreet.report.verify.claims import (
    RELATIVE,
    Contents,
    check_files,
    check_hashes,
    check_signature,
    differences,
    plain,
    read_claims,
    split_words,
    told,
)
from discreet.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from discreet.learn import Learner
    from discreet.privacy import Ledger
    from discreet.report.verify._result import Checks

CONTENTS = Contents(MODEL_REQUIRED, MODEL_OPTIONAL, MODEL)
_SAMPLERS_MAY = 1e-9  # of delta, where a pure promise was asked for and the sampler itself errs


def check_model_folder(
    folder: Path, public_key: bytes | None, checks: Checks, ledger: Ledger | None = None
) -> None:
    """Check the folder of a model."""
    if not check_files(folder, checks, CONTENTS):
        return
    check_hashes(folder, checks, CONTENTS)
    check_signature(folder, public_key, checks, ModelStatement)
    statement = read_claims(folder, checks, ModelStatement)
    if statement is None:
        return
    _check_card(folder, statement, checks)
    schema = _check_schema(statement, checks)
    learner = None if schema is None else _check_file(folder, statement, schema, checks)
    if schema is None or learner is None:
        return
    promises = _check_promise(statement, schema, learner, checks)
    if promises is not None:
        _check_claims(statement, schema, learner, promises, checks)
        check_ledger(statement.composition, _receipts(learner), ledger, checks)
    _say_what_is_open(statement, checks)


def _check_card(folder: Path, statement: ModelStatement, checks: Checks) -> None:
    with checks.guarded("model card"):
        same = read_bytes(folder / CARD) == model_card(statement).encode("utf-8")
        wrong = [] if same else [f"{CARD} does not say what {STATEMENT} says."]
        checks.settle("model card", wrong, f"{CARD} says what {STATEMENT} says.")


def _check_schema(statement: ModelStatement, checks: Checks) -> Schema | None:
    """Check what was declared against its digest and the receipts; return it, or None if it is no schema."""
    with checks.guarded("schema"):
        schema = Schema.from_dict(statement.declared)
        wrong = []
        if schema.digest != statement.digest:
            wrong.append(
                "The declared schema does not have the digest that the statement says: it was changed."
            )
        for part in statement.passes:
            # A learner that sees the rows is charged for a matrix: its receipt is about the promise alone.
            asked = part.receipt if part.question is not None else None
            if asked is not None and asked.get("schema") != statement.digest:
                wrong.append(
                    f"The receipt of {part.name[:40]!r} is for another schema than the one declared."
                )
        if statement.what.dataset != schema.dataset:
            wrong.append("The statement names another data set than the schema.")
        if statement.what.reads != [column.name for column in schema.features]:
            wrong.append("The statement names other columns that are read than the schema has.")
        public = schema.neighbors == "replace-one" and schema.row_count == "public"
        if (statement.what.rows is not None) != public:
            wrong.append("The number of rows must be said where the schema calls it public, and only there.")
        checks.settle("schema", wrong, "It can be read, and is the one that was charged for.")
        return schema
    return None


def _check_file(folder: Path, statement: ModelStatement, schema: Schema, checks: Checks) -> Learner | None:
    """Load the model, and compare what it holds with what the statement says; None if it cannot be loaded."""
    with checks.guarded("model"):
        trained = statement.what.model
        archive = read_archive(folder / MODEL)
        wrong = [f"{MODEL} holds {name!r}, which nothing in it refers to." for name in archive.unnamed]
        if statement.files != {MODEL: digest_of(folder / MODEL)}:
            wrong.append(f"{MODEL} is not the file that the statement is about.")
        kind = METHODS.get(trained.name)
        if kind is None or kind.__name__ != trained.learner or archive.learner != trained.name:
            checks.add("model", "failed", f"{MODEL} does not hold a model of the kind that is stated.")
            return None
        learner = kind.load(folder / MODEL)
        allowed = {*kind.saved, "n_features_in_", "feature_names_in_"}
        wrong += [
            f"{MODEL} holds {name!r}, which is no attribute of a {trained.name}."
            for name in sorted(set(archive.fitted) - allowed)
        ]
        if not isinstance(getattr(learner, "privacy", None), Promise) or isinstance(
            learner.privacy, NoPromise
        ):
            checks.add("model", "failed", "The learner was asked for no promise.")
            return None
        learner.check_parameters()
        found = [
            *differences(trained.parameters, archive.told, "what.model.parameters"),
            *differences(
                statement.numbers.promises, [p.to_dict() for p in learner.promises_], "numbers.promises"
            ),
            *differences(
                [part.receipt for part in statement.passes if part.receipt is not None],
                [receipt.to_dict() for receipt in _receipts(learner)],
                "passes",
            ),
        ]
        wrong += [told(*difference) for difference in found]
        wrong += _layout(learner, schema)
        if statement.what.predicts != (schema.target if predicts_target(learner) else None):
            wrong.append("what.predicts must be the target of the schema where the model predicts one.")
        checks.settle(
            "model", wrong, f"It can be loaded, and holds what a {trained.name} has and nothing else."
        )
        return learner
    return None


def _receipts(learner: Any) -> tuple[Receipt, ...]:
    found = getattr(learner, "receipts_", None)
    return tuple(found) if found is not None else (learner.receipt_,)


def _layout(learner: Any, schema: Schema) -> list[str]:
    """Compare the columns that the model knows with those declared."""
    declared = Layout.of(schema)
    own = getattr(learner, "layout_", None)
    fits = learner.n_features_in_ == declared.size if own is None else own.to_dict() == declared.to_dict()
    return [] if fits else ["The model reads other columns, or other bounds, than the schema declares."]


def _check_promise(
    statement: ModelStatement, schema: Schema, learner: Learner, checks: Checks
) -> tuple[Promise, ...] | None:
    """Compute the promise again from what was asked and paid; return it, or None if that cannot be done."""
    with checks.guarded("promise"):
        sums = hasattr(learner, "fit_database")
        promises, wrong = (_on_sums if sums else _on_rows)(statement, schema, learner)
        claimed = statement.numbers.promises
        wrong += [told(*d) for d in differences(claimed, [p.to_dict() for p in promises], "numbers.promises")]
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


def _on_sums(
    statement: ModelStatement, schema: Schema, learner: Any
) -> tuple[tuple[Promise, ...], list[str]]:
    """Lay every question out again: noise for its share of the promise must cost what its receipt says."""
    shares = {part.name: part.share for part in statement.passes if part.share is not None}
    wrong = ["Every pass must be there once, with its share."] if len(shares) < len(statement.passes) else []
    # Only what is public about the sums is needed to split a promise.
    public: Any = SimpleNamespace(schema=schema, neighbors=schema.neighbors)
    passes = Passes(public, learner.privacy, shares)
    wrong += [told(*d) for d in differences(shares, passes.split, "passes")]
    wrong += [told(*d) for d in differences(shares, dict(learner.split_), "passes")]
    curation = Curation.of(schema)
    for part in statement.passes:
        if (part.question is None) != (part.receipt is None):
            wrong.append(f"The pass {part.name[:40]!r} must have a question and a receipt, or neither.")
        if part.question is None or part.receipt is None:
            continue
        bound = question_from_dict(part.question).bind(curation, schema.neighbors)
        noise = Noise.fit(bound, schema, privacy=passes.privacy(part.name))
        true = [] if noise.promise is None else [noise.promise.to_dict()]
        wrong += [told(*d) for d in differences(part.receipt["promises"], true, f"passes[{part.name}]")]
    return passes.promises, wrong


def _on_rows(
    statement: ModelStatement, schema: Schema, learner: Any
) -> tuple[tuple[Promise, ...], list[str]]:
    """Compare the promise with what was asked and charged and, where it can be made again, with the plan."""
    promises = tuple(promise_from_dict(promise) for promise in statement.numbers.promises)
    wrong = _charges(statement.passes, promises)
    rows = statement.what.rows
    if isinstance(learner, PerturbedClassifier) and rows is not None:
        promises = learner.replanned(rows) or promises
    epsilon, delta = total_cost(promises, learner)
    asked = learner.privacy
    allowed = asked.delta if isinstance(asked, ApproxDP) else _SAMPLERS_MAY
    most = asked.epsilon if isinstance(asked, PureDP | ApproxDP) else None
    if most is not None and (epsilon is None or epsilon > most * (1 + RELATIVE) or (delta or 0.0) > allowed):
        wrong.append(f"The model promises less than was asked for: epsilon {epsilon}, delta {delta}.")
    for promise in promises:
        if (promise.unit, promise.neighbors) != (schema.unit, schema.neighbors):
            wrong.append("The promise is about another unit, or other neighbors, than the schema says.")
    return promises, wrong


def _charges(passes: Sequence[Pass], promises: tuple[Promise, ...]) -> list[str]:
    """Compare the charges of a learner that saw the rows with its promise: the same if it is one charge."""
    if not passes or any(p.receipt is None or p.question is not None or p.share is not None for p in passes):
        return ["A model that saw the rows itself must have receipts, and neither questions nor shares."]
    paid = [Receipt.from_dict(part.receipt).promises for part in passes if part.receipt is not None]
    if len(paid) == 1:
        charged, promised = ([promise.to_dict() for promise in side] for side in (paid[0], promises))
        return [told(*d) for d in differences(charged, promised, f"passes[{passes[0].name}]")]
    # Several are less than their sum in ways that only the learner knows; none may be more than the whole.
    at = max(USUAL_DELTA, *(getattr(promise, "delta", 0.0) for promise in promises))
    whole = sum((Spending.of(promise) for promise in promises), Spending()).epsilon_at(at)
    return [
        f"The charge for {part.name[:40]!r} is more than the model promises."
        for part, charges in zip(passes, paid, strict=True)
        if Spending.of(charges).epsilon_at(at) > whole * (1 + RELATIVE)
    ]


def _check_claims(
    statement: ModelStatement,
    schema: Schema,
    learner: Learner,
    promises: tuple[Promise, ...],
    checks: Checks,
) -> None:
    """Check every number and every sentence that follows from the schema, the promises and the receipts."""
    claimed = statement.model_dump(mode="json")
    with checks.guarded("numbers"):
        subject = ModelSubject(
            learner=learner,
            schema=schema,
            promises=promises,
            passes=statement.passes,
            n_rows=statement.what.rows,
            parameters=statement.what.model.parameters,
        )
        blocks = {**promised_blocks(subject), "implementation": subject.implementation()}
        true = {name: plain(block) for name, block in blocks.items()}
        true["implementation"]["versions"] = claimed["implementation"]["versions"]
        numbers, words = split_words(differences(claimed["numbers"], true["numbers"], "numbers"))
        unit = list(differences(claimed["unit"], true["unit"], "unit"))
        checks.settle(
            "numbers", [told(*d) for d in (*numbers, *unit)], "Epsilon and delta follow from the promise."
        )
        bounds = list(differences(claimed["bounds"], true["bounds"], "bounds"))
        checks.settle("bounds", [told(*d) for d in bounds], "They are the ones of the schema.")
        for name in ("definition", "not_protected", "assumptions"):
            words += differences(claimed[name], true[name], name)
        checks.settle("wording", [told(*d) for d in words], "Every sentence follows from the numbers.")
        made = list(differences(claimed["implementation"], true["implementation"], "implementation"))
        release = model_release_name(schema, learner.name, statement.files)
        for at, said, should in (
            ("what.release", statement.what.release, release),
            ("what.product", statement.what.product, PRODUCT),
        ):
            if said != should:
                made.append((at, said, should))
        checks.settle("implementation", [told(*d) for d in made], "Sampler and name are those of the model.")
    with checks.guarded("composition"):
        wrong = _composition(statement, promises)
        checks.settle("composition", wrong, "The charges add up to the stated total.")


def _composition(statement: ModelStatement, promises: tuple[Promise, ...]) -> list[str]:
    stated = statement.composition
    receipts = [Receipt.from_dict(part.receipt) for part in statement.passes if part.receipt is not None]
    counted = bool(receipts) and all(receipt.recorded for receipt in receipts)
    wrong = [fault for receipt in receipts for fault in receipt_faults(receipt, plain=False)]
    wrong += position_faults(stated, receipts, plain=False)
    wrong += time_faults(statement.what.created, receipts)
    if (stated.counted, stated.ledger) != (counted, receipts[0].ledger if counted else None):
        wrong.append("The receipts are of another ledger than the statement says.")
    past = [[promise_from_dict(promise) for promise in charge.promises] for charge in stated.earlier]
    total, following = describe_total(
        past,
        list(promises),
        counted=counted,
        limit=stated.limit,
        steered=includes_answers([charge.what for charge in stated.earlier]),
        others=len(stated.other_ledgers),
    )
    for name, said, true in (("total", stated.total, total), ("next", stated.next, following)):
        if said != true:
            wrong.append(told(f"composition.{name}", said, true))
    return wrong


def _say_what_is_open(statement: ModelStatement, checks: Checks) -> None:
    seeded = statement.implementation.seeded
    checks.add(
        "noise",
        "not checkable",
        "SEEDED: whoever knows the seed can remove the noise. This model protects nobody."
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
