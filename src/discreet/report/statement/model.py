"""Statement of a trained model: the blocks that follow from its schema, passes and charges."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet import learn
from discreet.formatting import format_factor, number, percent, printable
from discreet.learn.paid_score import TOO_FEW_ROWS
from discreet.privacy import Receipt
from discreet.privacy.receipt import installed_versions
from discreet.report.statement.build import (
    VERSIONED,
    arithmetic_of,
    compose_charges,
    describe_randomness,
    total_cost,
)
from discreet.report.statement.documents import Definition, Theorem
from discreet.report.statement.model_documents import (
    ModelComposition,
    ModelImplementation,
    ModelNumbers,
    ModelQuality,
    ModelStatement,
    ModelWhat,
    Pass,
    Trained,
)
from discreet.report.statement.sentences import LARGE_EPSILON, SAMPLERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.learn import Learner
    from discreet.learn.paid_score import ModelScore
    from discreet.ledger import Ledger
    from discreet.privacy import Promise
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
_COMMON = {
    "composition": "what several promises come to together",
    "lattice-sampler": "that the sampler follows its law",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSubject:
    """A trained model as the subject of a statement.

    Parameters
    ----------
    learner : Learner
        Fitted learner, whose class and name are published.
    schema : Schema
        Declared schema of the training rows.
    promises : sequence of Promise
        Promises of the model: ``promises_`` of the learner, or those that a verifier computed again.
    passes : sequence of Pass
        Passes over the rows, each with its query and its charge.
    n_rows : int or None
        Number of training rows; None where that is not public.
    parameters : mapping
        Parameters of the learner as its file has them, as plain JSON values.
    """

    learner: Learner
    schema: Schema
    promises: Sequence[Promise]
    passes: Sequence[Pass]
    n_rows: int | None
    parameters: Mapping[str, Any]

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """Charges of all passes that were made, in their order."""
        return pass_receipts(self.passes)

    def what(self, head: Mapping[str, Any], files: Mapping[str, str]) -> ModelWhat:
        """Return the block about the model, the columns it reads and the one it predicts."""
        learner, schema = self.learner, self.schema
        return ModelWhat(
            release=model_release_name(schema, learner.name, files),
            **head,
            model=Trained(
                name=learner.name, learner=type(learner).__name__, parameters=dict(self.parameters)
            ),
            rows=self.n_rows,
            reads=[column.name for column in schema.features],
            predicts=schema.target if predicts_target(learner) else None,
        )

    def definition(self) -> Definition:
        """Return the kinds of promise that hold, with a sentence for each."""
        epsilon, delta = total_cost(self.promises, self.learner)
        sentences = [
            "Do not take this model for differentially private: no epsilon is proven for it."
            if epsilon is None
            else _total_sentence(self.schema, epsilon, delta)
        ]
        sentences += [promise.sentence() for promise in self.promises]
        return Definition(
            kinds=list(dict.fromkeys(promise.kind for promise in self.promises)),
            differential_privacy=epsilon is not None,
            deployment=DEPLOYMENT,
            sentences=sentences,
        )

    def numbers(self) -> ModelNumbers:
        """Return the promises in full, with the theorems of the learner."""
        epsilon, delta = total_cost(self.promises, self.learner)
        return ModelNumbers(
            promises=[promise.to_dict() for promise in self.promises],
            epsilon=epsilon,
            delta=delta,
            theorems=theorems_of(type(self.learner)),
        )

    def not_protected(self) -> list[str]:
        """Return what a published model does not protect, one sentence each."""
        unit = printable(self.schema.unit)
        count = "The" if self.n_rows is None else "The number of rows, the"
        present = (
            f"That a {unit} is in the table: whoever knows that the table covers somebody knows it still."
        )
        return [
            f"{count} names of the columns, the declared bounds and lists, and what the learner was told.",
            *([present] if self.schema.neighbors == "replace-one" else []),
            "What holds for a whole group and how columns go together: learning that is what a model is for, "
            "and it says something about people who are not in the table as well.",
            "What was known before, or is published elsewhere.",
            _unpaid_scores(self.learner),
            "Rows that the model is shown later.",
            "When each pass was charged, to the minute, and with it about how long passes of minutes took.",
            "Repeated training on the same table: the promises of several models add up, and the ledger "
            "counts.",
        ]

    def quality(self) -> ModelQuality | None:
        """Return how good the model is, where its learner says so; None where it does not."""
        return describe_quality(self.learner)

    def composition(self, ledger: Ledger | Sequence[Receipt] | None) -> ModelComposition:
        """Return the other charges to the same ledger, and the total."""
        return ModelComposition(**compose_charges(self.receipts, self.promises, ledger, plain=False))

    def implementation(self) -> ModelImplementation:
        """Return the block about the sampling of the noise of all passes."""
        paid = [part for part in self.passes if part.receipt is not None]
        seeded = any(part.receipt is not None and part.receipt.get("seeded") for part in paid)
        return ModelImplementation(
            sampler=" ".join(dict.fromkeys(_sampler(part) for part in paid)) or "None: nothing was drawn.",
            arithmetic=arithmetic_of(self.promises),
            randomness=describe_randomness(seeded, "MODEL"),
            seeded=seeded,
            total_variation=sum(promise.total_variation for promise in self.promises),
            timing=TIMING,
            versions=installed_versions(VERSIONED),
        )

    def document(self, **blocks: Any) -> ModelStatement:
        """Return the statement, with the passes."""
        return ModelStatement(**blocks, passes=list(self.passes), quality=self.quality())


def pass_receipts(passes: Sequence[Pass]) -> tuple[Receipt, ...]:
    """Return the receipts of the passes that were charged, in their order."""
    return tuple(Receipt.from_dict(part.receipt) for part in passes if part.receipt is not None)


def model_release_name(schema: Schema, model: str, files: Mapping[str, str]) -> str:
    """Return the name of a published model: data set, learner and the start of the hash of its file."""
    return f"{schema.dataset or 'table'}-{model}-{next(iter(files.values()))[:12]}"


def predicts_target(learner: Learner) -> bool:
    """Return whether a learner predicts the target column."""
    from sklearn.base import is_classifier, is_regressor

    return bool(is_classifier(learner) or is_regressor(learner))


def describe_quality(learner: Learner) -> ModelQuality | None:
    """Return what a classifier says about itself, by public facts and by its paid score.

    None for a model that says nothing: one that is no default classifier and was asked for no score.
    """
    score: ModelScore | None = getattr(learner, "score_", None)
    scored = [] if score is None else _score_sentences(score, learner.classes_.tolist())
    found = None if score is None else score.to_dict()
    if isinstance(learner, learn.PrivateClassifier):
        if learner.paid_score is False:
            scored = ["No score was paid for: how good the model is on its rows is not known."]
        return ModelQuality(
            expected=learner.status_,
            signal=learner.signal_ if math.isfinite(learner.signal_) else None,
            stages=learner.stages_,
            score=found,
            sentences=[learner.status_, *scored],
        )
    if getattr(learner, "paid_score", False) is False:
        return None
    return ModelQuality(
        expected=None, signal=None, stages=None, score=found, sentences=scored or [TOO_FEW_ROWS]
    )


def _score_sentences(score: ModelScore, classes: Sequence[Any]) -> list[str]:
    """Return what a paid score says, rounded so that no interval gets shorter."""
    lower, upper = percent(score.lower, rounding="down"), percent(score.upper, rounding="up")
    sentences = [
        f"The model is right for {percent(score.accuracy)} of the rows that it was trained on; naming the "
        f"most common class for every row is right for {percent(score.vote)}. Both were counted with noise "
        "that the promise covers, so they may be published.",
        f"On new rows from the same population it is right for {lower} to {upper}, with 95 % confidence. The "
        "lower end allows for the score having been taken on training rows.",
        f"The model is {score.verdict}.",
    ]
    if score.table is not None:
        rows = zip(classes, score.table, range(len(classes)), strict=True)
        recalls = [(name, row[k] / sum(row)) for name, row, k in rows if sum(row) > 0]
        found = ", ".join(
            f"{percent(min(max(share, 0.0), 1.0))} of {printable(str(name))!r}" for name, share in recalls
        )
        sentences.append(f"By class, as counted with noise, it names rightly {found}.")
    return sentences


def _unpaid_scores(learner: Learner) -> str:
    """Return a sentence about scores on the training rows that the promise does not cover."""
    if getattr(learner, "score_", None) is not None:
        return (
            "Any other score of this model on the rows that it was trained on: the promise covers the one "
            "that is stated, and whoever publishes another publishes more about these rows, unpaid."
        )
    return (
        "Scores of this model on the rows that it was trained on: they are not in it, and whoever "
        "publishes them publishes more about these rows, unpaid."
    )


def theorems_of(kind: type[Learner]) -> list[Theorem]:
    """Return the theorem pages of a class of learners, then those that all learners share."""
    named = dict.fromkeys(kind.theorems, f"what {kind.__name__} promises")
    return [Theorem(id=page, about=about) for page, about in (named | _COMMON).items()]


def _total_sentence(schema: Schema, epsilon: float, delta: float | None) -> str:
    """Return a sentence about the meaning of the epsilon of a model."""
    unit = printable(schema.unit)
    change = (
        f"replacing the rows of one {unit} by any that the schema allows"
        if schema.neighbors == "replace-one"
        else f"adding or removing the rows of one {unit}"
    )
    up = number(epsilon, digits=4, rounding="up")
    at = "" if delta is None else f" at delta {number(delta, rounding='up')}"
    slack = "" if delta is None else f" and adds at most {number(delta, rounding='up')} to it"
    large = " Such a large epsilon says little." if epsilon > LARGE_EPSILON else ""
    return (
        f"The model has epsilon {up}{at}: {change} multiplies the probability of any model by at most "
        f"{format_factor(epsilon)}{slack}.{large}"
    )


def _sampler(part: Pass) -> str:
    """Return the sampler of one pass: noise on an answer, or of a learner that reads the rows."""
    if part.question is None:
        return ON_ROWS
    assert part.receipt is not None
    pure = any(promise.get("kind") == "pure-dp" for promise in part.receipt.get("promises", ()))
    return SAMPLERS["laplace" if pure else "gaussian"]
