"""From a trained model to its statement: every block is a function of what was declared, asked and paid.

A verifier calls the same functions on promises that it computed itself, and compares.
"""

from __future__ import annotations

import inspect
import math
import re
from typing import TYPE_CHECKING, Any

from sklearn.base import is_classifier, is_regressor

from discreet.formatting import number, printable
from discreet.privacy import NoPromise, Receipt
from discreet.privacy.receipt import product_version
from discreet.report.statement._sentences import LARGE_EPSILON, SAMPLERS
from discreet.report.statement.composition import (
    answered_questions,
    composed,
    draft_position,
    earlier_charge,
    total_cost,
)
from discreet.report.statement.documents import (
    About,
    Definition,
    ModelComposition,
    ModelImplementation,
    ModelNumbers,
    ModelStatement,
    ModelWhat,
    Pass,
    Theorem,
    Trained,
    Tuning,
    Unit,
)
from discreet.report.statement.table import declared_bound, draft_assumptions, installed_versions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.learn import Learner
    from discreet.privacy import Ledger, Promise
    from discreet.schema import Schema

DEPLOYMENT = (
    "Central model: one model was trained on all rows, with noise on everything that it was told about them. "
    "The curator is trusted with the rows."
)
TIMING = (
    "How long the training took may depend on the rows, and when each pass was paid for stands on its "
    "receipt. Nothing protects against somebody on the curator's own machine."
)
ON_ROWS = (
    "Integers of a lattice, by the exact samplers of Gaussian, Laplace and spherical noise, added to what "
    "was trained or to what training minimizes."
)
_THEOREMS = re.compile(r"docs/explanation/theorems/((?:[\w.-]+?\.md(?:,\s+)?)+)")
_COMMON = {
    "composition": "what several promises come to together",
    "lattice-sampler": "that the sampler follows its law",
}


def make_model_statement(
    learner: Learner,
    schema: Schema,
    *,
    parameters: Mapping[str, Any],
    passes: Sequence[Pass],
    n_rows: int | None,
    about: About | None = None,
    ledger: Ledger | None = None,
    tuning: Tuning,
    files: Mapping[str, str],
    created: str,
) -> ModelStatement:
    """Say what is promised about a trained model.

    Parameters
    ----------
    learner : Learner
        Fitted; its ``promises_`` are published.
    schema : Schema
        What was declared about the rows.
    parameters : mapping
        What the learner was told, as its file has it.
    passes : sequence of Pass
        What was asked and paid.
    n_rows : int or None
        How many rows, where that is public.
    about : About, optional
        What only people can say.
    ledger : Ledger, optional
        Where it was charged; earlier charges are listed.
    tuning : Tuning
        Whether parameters were chosen by looking at private rows.
    files : mapping of str to str
        SHA-256 of the model's file.
    created : str
        Universal time, ISO 8601.

    Returns
    -------
    ModelStatement

    Privacy
    -------
    Reads no row. What it says follows from the schema, the parameters, the ledger and paid answers.
    """
    promises: Sequence[Promise] = learner.promises_
    target = schema.target if predicts(learner) else None
    return ModelStatement(
        what=ModelWhat(
            release=release_name(schema, learner.name, files),
            product_version=product_version(),
            created=created,
            dataset=schema.dataset,
            **(about or About()).model_dump(),
            model=Trained(name=learner.name, learner=type(learner).__name__, parameters=dict(parameters)),
            rows=n_rows,
            reads=[column.name for column in schema.features],
            predicts=target,
        ),
        passes=list(passes),
        **drafted_model(learner, schema, promises, passes, n_rows),
        declared=schema.to_dict(),
        digest=schema.digest,
        composition=_composition(promises, passes, ledger),
        tuning=tuning,
        files=dict(files),
    )


def release_name(schema: Schema, model: str, files: Mapping[str, str]) -> str:
    """Return the name of a published model: the data set, the learner and the start of its file's hash."""
    return f"{schema.dataset or 'table'}-{model}-{next(iter(files.values()))[:12]}"


def predicts(learner: Learner) -> bool:
    """Whether a learner predicts a target."""
    return bool(is_classifier(learner) or is_regressor(learner))


def drafted_model(
    learner: Learner, schema: Schema, promises: Sequence[Promise], passes: Sequence[Pass], n_rows: int | None
) -> dict[str, Any]:
    """Return the blocks that follow from the schema, the promises and the receipts, by their names."""
    epsilon, delta = total_cost(promises, learner)
    return {
        "unit": Unit(
            unit=schema.unit,
            neighbors=schema.neighbors,
            max_rows_per_unit=schema.max_rows_per_unit or 1,
            row_count=schema.row_count,
        ),
        "definition": _definition(schema, promises, epsilon, delta),
        "numbers": ModelNumbers(
            promises=[promise.to_dict() for promise in promises],
            epsilon=epsilon,
            delta=delta,
            theorems=theorems_of(type(learner)),
        ),
        "bounds": [declared_bound(column) for column in schema.released],
        "not_protected": not_protected(schema, n_rows),
        "assumptions": draft_assumptions(promises, schema),
        "implementation": _implementation(promises, passes),
    }


def not_protected(schema: Schema, n_rows: int | None) -> list[str]:
    """Say what stays open."""
    unit = printable(schema.unit)
    count = "The" if n_rows is None else "The number of rows, the"
    return [
        f"{count} names of the columns, the declared bounds and lists, and what the learner was told.",
        *(
            [f"That a {unit} is in the table: whoever knows that the table covers somebody knows it still."]
            if schema.neighbors == "replace-one"
            else []
        ),
        "What holds for a whole group and how columns go together: learning that is what a model is for, and "
        "it says something about people who are not in the table as well.",
        "What was known before, or is published elsewhere.",
        "Scores of this model on the rows that it was trained on: they are not in it, and whoever publishes "
        "them publishes more about these rows, unpaid.",
        "Rows that the model is shown later.",
        "When each pass was charged, to the minute, and with it about how long passes of minutes took.",
        "Repeated training on the same table: the promises of several models add up, and the ledger counts.",
    ]


def theorems_of(kind: type[Learner]) -> list[Theorem]:
    """Return the pages that the learner's own documentation names, and those that all share."""
    text = " ".join((inspect.getdoc(kind) or "").split())
    own = [page for found in _THEOREMS.findall(text) for page in re.findall(r"([\w.-]+?)\.md", found)]
    named = dict.fromkeys(own, f"what {kind.__name__} promises")
    return [Theorem(id=page, about=about) for page, about in (named | _COMMON).items()]


def _definition(
    schema: Schema, promises: Sequence[Promise], epsilon: float | None, delta: float | None
) -> Definition:
    sentences = [
        "Do not take this model for differentially private: no epsilon is proven for it."
        if epsilon is None
        else _total(schema, epsilon, delta)
    ]
    sentences += [promise.sentence() for promise in promises]
    return Definition(
        kinds=list(dict.fromkeys(promise.kind for promise in promises)),
        differential_privacy=epsilon is not None,
        deployment=DEPLOYMENT,
        sentences=sentences,
    )


def _total(schema: Schema, epsilon: float, delta: float | None) -> str:
    unit = printable(schema.unit)
    change = (
        f"replacing the rows of one {unit} by any that the schema allows"
        if schema.neighbors == "replace-one"
        else f"adding or removing the rows of one {unit}"
    )
    up = number(epsilon, digits=4, rounding="up")
    at = "" if delta is None else f" at delta {number(delta, rounding='up')}"
    growth = number(math.exp(epsilon), rounding="up") if epsilon < 20 else f"exp({up})"
    slack = "" if delta is None else f" and adds at most {number(delta, rounding='up')} to it"
    large = " Such a large epsilon says little." if epsilon > LARGE_EPSILON else ""
    return (
        f"The model has epsilon {up}{at}: {change} multiplies the probability of any model by at most "
        f"{growth}{slack}.{large}"
    )


def _implementation(promises: Sequence[Promise], passes: Sequence[Pass]) -> ModelImplementation:
    receipts = [part for part in passes if part.receipt is not None]
    laws = [_sampler(part) for part in receipts]
    seeded = any(part.receipt is not None and part.receipt.get("seeded") for part in passes)
    return ModelImplementation(
        sampler=" ".join(dict.fromkeys(laws)) or "None: nothing was drawn.",
        arithmetic="real" if any(p.arithmetic == "real" for p in promises) else "exact",
        randomness=(
            "SEEDED: the noise follows from a seed, and whoever knows it can remove it. "
            "THIS MODEL PROTECTS NOBODY; it is for tests."
            if seeded
            else "AES-256 in counter mode under a key of 256 bits that the operating system drew."
        ),
        seeded=seeded,
        total_variation=sum(promise.total_variation for promise in promises),
        timing=TIMING,
        versions=installed_versions(),
    )


def _row(receipt: Receipt) -> int:
    return receipt.seq or 0


def _sampler(part: Pass) -> str:
    if part.question is None:
        return ON_ROWS
    assert part.receipt is not None
    pure = any(promise.get("kind") == "pure-dp" for promise in part.receipt.get("promises", ()))
    return SAMPLERS["laplace" if pure else "gaussian"]


def _composition(
    promises: Sequence[Promise], passes: Sequence[Pass], ledger: Ledger | None
) -> ModelComposition:
    receipts = [Receipt.from_dict(part.receipt) for part in passes if part.receipt is not None]
    own = {receipt.id for receipt in receipts}
    counted = bool(receipts) and all(receipt.recorded for receipt in receipts)
    last = max((receipt.seq for receipt in receipts if receipt.seq is not None), default=0)
    history = ledger.history() if ledger is not None and counted else []
    earlier = [past for past in history if past.id not in own and past.seq is not None and past.seq < last]
    limit = None
    if ledger is not None and counted:
        guarantee = ledger.guarantee()
        limit = None if isinstance(guarantee, NoPromise) else str(guarantee)
    others = ledger.others() if ledger is not None and counted else []
    total, following = composed(
        [list(past.promises) for past in earlier],
        list(promises),
        counted=counted,
        limit=limit,
        steered=answered_questions([past.what for past in earlier]),
        others=len(others),
    )
    return ModelComposition(
        counted=counted,
        ledger=receipts[0].ledger if counted else None,
        position=draft_position(max(receipts, key=_row), ledger, plain=False)
        if ledger is not None and counted
        else None,
        earlier=[earlier_charge(past) for past in earlier],
        total=total,
        limit=limit,
        next=following,
        other_ledgers=others,
    )
