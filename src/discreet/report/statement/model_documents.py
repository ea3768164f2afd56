"""The privacy statement that is published with a model."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from discreet.formatting import list_names
from discreet.report.statement.documents import (
    Charges,
    DeclaredBound,
    Definition,
    Document,
    EarlierCharge,
    LedgerPosition,
    PublicationHead,
    Record,
    Theorem,
    Tuning,
    Unit,
    write_json,
)

MODEL_KIND = "discreet-model-statement"
MODEL_SCHEMA = "model-statement.schema.json"
"""Name of the JSON Schema of a model's statement, a file of this package."""


class Trained(Record):
    """Which learner it was, with what it was told.

    Attributes
    ----------
    name, learner : str
        In :data:`discreet.learn.METHODS`, and its class.
    parameters : mapping
        What was given or has a default; what it shall promise is ``privacy``.
    """

    name: str
    learner: str
    parameters: dict[str, Any]


class ModelWhat(PublicationHead):
    """What was published, by whom and what for.

    Attributes
    ----------
    rows : int or None
        How many rows it was trained on; None where that is not public.
    reads : list of str
        Columns that it reads.
    predicts : str or None
        The column that it predicts; None if it predicts none.
    """

    model: Trained
    rows: int | None = Field(ge=1)
    reads: list[str]
    predicts: str | None = None


class Pass(Record):
    """One look at the rows.

    Attributes
    ----------
    name : str
        Name of the pass, which says what it was for.
    share : float or None
        Which part of the promise it has: of rho, or of a pure epsilon. None where the learner saw the rows.
    question : mapping or None
        What was asked, as :func:`discreet.query.question_from_dict` reads it; None where the learner saw the
        rows themselves and put noise on its result, or if the pass was left out.
    receipt : mapping or None
        What was charged; None if it was left out, which the promise does not count on.
    """

    name: str
    share: float | None = Field(gt=0, le=1)
    question: dict[str, Any] | None = None
    receipt: dict[str, Any] | None = None


class ModelNumbers(Record):
    """The promises in full, with the theorems they come from."""

    promises: list[dict[str, Any]]
    epsilon: float | None = None
    delta: float | None = None
    theorems: list[Theorem]


class ModelComposition(Charges):
    """What else was charged in the same ledger, and what that adds up to."""

    counted: bool
    ledger: str | None = None
    position: LedgerPosition | None = None
    earlier: list[EarlierCharge]
    total: str
    limit: str | None = None
    next: str
    other_ledgers: list[str] = Field(default_factory=list)


class ModelImplementation(Record):
    """How the noise was made."""

    sampler: str
    arithmetic: str
    randomness: str
    seeded: bool
    total_variation: float
    timing: str
    versions: dict[str, str]


class ModelQuality(Record):
    """What is said about how good a model is: by public facts, and as far as the promise paid for it.

    Attributes
    ----------
    expected : str or None
        What was to be expected before anything was paid for, and which stages ran; None for models other than
        the default classifier, which do not say so.
    signal : float or None
        Number of rows over the noise on one count, on which the rules of the learner are; None without noise,
        and for other models.
    stages : int or None
        How many stages ran; None for other models.
    score : mapping or None
        Paid accuracy on the training rows, as ``ModelScore.to_dict`` writes it; None if there is none.
    sentences : list of str
        The same in words.
    """

    expected: str | None
    signal: float | None
    stages: int | None
    score: dict[str, Any] | None
    sentences: list[str]


class ModelStatement(Document):
    """A privacy statement of a model.

    Attributes
    ----------
    passes : list of Pass
        What was asked of the rows, and what was paid.
    quality : ModelQuality or None
        How good the model is, where its learner says so; left out where it does not.
    declared : mapping
        The whole schema, as :meth:`discreet.Schema.to_dict` writes it, and ``digest`` its hash.
    files : mapping of str to str
        SHA-256 of the model's file.

    Privacy
    -------
    May be published: nothing in it depends on private rows but through answers that were paid for.
    """

    kind: Literal["discreet-model-statement"] = "discreet-model-statement"
    version: Literal[1] = 1
    what: ModelWhat
    unit: Unit
    definition: Definition
    passes: list[Pass]
    numbers: ModelNumbers
    declared: dict[str, Any]
    digest: str
    bounds: list[DeclaredBound]
    not_protected: list[str]
    assumptions: list[str]
    composition: ModelComposition
    tuning: Tuning
    implementation: ModelImplementation
    quality: ModelQuality | None = None
    files: dict[str, str]

    def _repr_html_(self) -> str:
        """Return the main facts and the promises in words, for a notebook."""
        from discreet.html_tables import draw_facts  # only a notebook draws

        facts = {
            "model": self.what.model.name,
            "predicts": self.what.predicts or "",
            "from": list_names(self.what.reads),
            "protects": f"each {self.unit.unit} ({self.unit.neighbors})",
        }
        return draw_facts("Privacy statement", facts.items(), notes=self.definition.sentences)

    # A return type would replace the published JSON Schema by its own.
    @model_serializer(mode="wrap")
    def _leave_out_quality(self, write: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]  # noqa: ANN202
        """Write no empty block, so that statements of other models are as they were."""
        content = write(self)
        if content.get("quality") is None:
            content.pop("quality", None)
        return content


def model_statement_schema() -> str:
    """Return the JSON Schema of a model's statement, as it is published in the package."""
    schema = ModelStatement.model_json_schema(mode="serialization")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "A privacy statement of discreet about a model, version 1"
    return write_json(schema)
