"""Statement of a published table: the blocks that follow from its publication, or from a plan of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.audit import Guess
from discreet.errors import ParameterError
from discreet.privacy import ErrorFloor, NoPromise, Receipt
from discreet.privacy.receipt import installed_versions
from discreet.release import Publication
from discreet.release.publication import published_fields
from discreet.release.readable import ReadableColumn
from discreet.report.statement.build import (
    LARGEST_DELTA,
    VERSIONED,
    arithmetic_of,
    compose_charges,
    describe_randomness,
    sentence_from,
    total_cost,
)
from discreet.report.statement.documents import (
    ColumnNumbers,
    Composition,
    Definition,
    Implementation,
    Method,
    Numbers,
    Statement,
    Theorem,
    What,
)
from discreet.report.statement.sentences import (
    DEPLOYMENT,
    LATTICES,
    SAMPLERS,
    THEOREMS,
    TIMING,
    TIMING_OF_QUESTIONS,
    attacker_sentence,
    column_sentence,
    floors_sentence,
    total_sentence,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.audit import MemberComparison, Risk
    from discreet.ledger import Ledger
    from discreet.privacy import Promise
    from discreet.release import ColumnSummary, ReleaseMethod
    from discreet.release.publication import ReleasePlan
    from discreet.schema import Column, Schema
    from discreet.tables import Field

_HOLDS = {
    "DOUBLE": "number", "BIGINT": "integer", "VARCHAR": "text", "BOOLEAN": "boolean", "DATE": "date",
    "TIMESTAMP": "datetime",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableSubject:
    """A published table as the subject of a statement; a plan has its promised blocks alone.

    Parameters
    ----------
    planned : Publication or Plan
        Published table, or the plan of one that is not published yet.
    method : ReleaseMethod
        Method that published or planned it; made with ``schema=``.
    attacks : sequence of Guess or MemberComparison
        Attacks on the published file, or on people drawn from published answers; others depend on private
        rows or on chance and are refused.
    shuffled : bool
        Whether rows were published in random order.
    risk : Risk, optional
        What attackers gain, measured on made-up people; None leaves the block out.
    """

    planned: Publication | ReleasePlan
    method: ReleaseMethod
    attacks: Sequence[Guess | MemberComparison] = ()
    shuffled: bool = True
    risk: Risk | None = None

    def __post_init__(self) -> None:
        if self.method.schema is None:
            raise ParameterError(
                "method of TableSubject must have been made with schema=, and was made with bounds=. "
                "A statement publishes what was declared."
            )
        if any(attack.on not in ("file", "made-up") for attack in self.attacks):
            raise ParameterError(
                "attacks of TableSubject must be those on the published file. Others are internal: leave "
                "them out."
            )

    @property
    def schema(self) -> Schema:
        """Declared schema of the method."""
        assert self.method.schema is not None
        return self.method.schema

    @property
    def promises(self) -> tuple[Promise, ...]:
        """Promises of the publication or the plan."""
        return self.planned.promises

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """Charges of the publication, in their order: one, or one for each question."""
        return self._publication.receipts

    @property
    def _publication(self) -> Publication:
        assert isinstance(self.planned, Publication)
        return self.planned

    def what(self, head: Mapping[str, Any], files: Mapping[str, str]) -> What:
        """Return the block about the publication, named by the start of the commitment to its key."""
        publication = self._publication
        return What(
            release=release_name(self.schema, publication.commitment, self.method),
            **head,
            method=Method(name=self.method.name, parameters=self.method.parameters()),
            rows_read=publication.n_read,
            rows_published=publication.n_rows,
        )

    def definition(self) -> Definition:
        """Return the kinds of promise that hold, with a sentence for each."""
        promises = self.promises
        epsilon, delta = total_cost(promises, self.method)
        sentences = []
        if epsilon is None:
            sentences.append(
                "Do not take this release for differentially private: no epsilon is proven for all of its "
                f"columns together at a delta of at most {LARGEST_DELTA:g}."
            )
        else:
            sentences.append(total_sentence(epsilon, delta, promises[0].unit))
        floors = [promise for promise in promises if isinstance(promise, ErrorFloor)]
        sentences += [promise.sentence() for promise in promises if not isinstance(promise, ErrorFloor)]
        sentences += [floors_sentence(promise) for promise in floors]
        if not floors:
            sentences.append("No error floor is proven for any column.")
        if self.method.asks_questions:
            sentences += filter(None, (attacker_sentence(promise, epsilon) for promise in promises))
        return Definition(
            kinds=list(dict.fromkeys(promise.kind for promise in promises)),
            differential_privacy=epsilon is not None,
            deployment=DEPLOYMENT[_law_kinds(self.planned)[0]],
            sentences=sentences,
        )

    def numbers(self) -> Numbers:
        """Return every number per column and in total, with the theorems that prove it."""
        epsilon, delta = total_cost(self.promises, self.method)
        published = self.planned.schema
        fields = {field.name: field for field in published_fields(published, typed=self.planned.typed)}
        return Numbers(
            promises=[promise.to_dict() for promise in self.promises],
            epsilon=epsilon,
            delta=delta,
            columns=[
                column_numbers(
                    published.column(summary.column), summary, fields[summary.column], self.schema.unit
                )
                for summary in _summaries(self.planned)
            ],
            theorems=_theorems(self.planned),
        )

    def not_protected(self) -> list[str]:
        """Return what the method does not protect, one sentence each."""
        return [sentence_from(clause) for clause in self.method.not_protected(self.schema)]

    def composition(self, ledger: Ledger | Sequence[Receipt] | None) -> Composition:
        """Return the other charges to the same ledger, and the total."""
        receipt = self._publication.receipt
        if self.method.asks_questions:
            charges = compose_charges(self.receipts, self.promises, ledger, plain=False)
        else:
            charges = compose_charges([receipt], receipt.promises, ledger, plain=True)
        return Composition(receipt=receipt.to_dict(), **charges)

    def implementation(self) -> Implementation:
        """Return the block about the sampling of the noise in the published file."""
        publication = self._publication
        return table_implementation(
            publication,
            self.method,
            seeded=publication.receipt.seeded,
            commitment=publication.commitment,
            shuffled=self.shuffled,
        )

    def document(self, **blocks: Any) -> Statement:
        """Return the statement, without the times that attacks took."""
        attacks = [
            dataclasses.replace(attack, seconds=0.0).to_dict()
            if isinstance(attack, Guess)
            else attack.to_dict()
            for attack in self.attacks
        ]
        risk = None if self.risk is None else self.risk.to_dict()
        return Statement(**blocks, risk=risk, attacks=attacks)


def release_name(schema: Schema, commitment: str, method: ReleaseMethod) -> str:
    """Return the name of a release: the data set, and the start of the commitment to the key.

    Rows that are made from answers are named by their seed, which the same answers always give.
    """
    mark = getattr(method, "sampling_seed_", "") if method.asks_questions else commitment
    return f"{schema.dataset or 'table'}-{mark[:12]}"


def describe_draw(seed: str) -> str:
    """Return how the rows were made from noisy answers, as an entry of the post-processing."""
    return f"rows drawn from tables.json with the public seed {seed}"


def column_numbers(column: Column, summary: ColumnSummary, field: Field, unit: str) -> ColumnNumbers:
    """Return law, floor, epsilon and sentence of one published column."""
    numeric = column.is_number
    as_steps = column.is_calendar and field.type == "number"
    without = None if summary.floor is None or summary.prior is None else summary.prior.largest
    step = ReadableColumn.from_column(column, summary.law, field).step
    return ColumnNumbers(
        column=column.name,
        role=column.role,
        type=str(column.type),
        holds=_HOLDS[field.sql_type],
        measure=column.unit_name if as_steps else column.measure,
        origin=str(column.lower) if as_steps else None,
        lower=column.range[0] if numeric else None,
        upper=column.range[1] if numeric else None,
        step=None if step is None else float(step),
        levels=None if numeric else list(column.levels),
        missing=not column.required,
        law=summary.law.to_dict(),
        law_in_words=summary.law.words(),
        epsilon=summary.epsilon,
        floor=None if summary.floor is None else dataclasses.asdict(summary.floor),
        without=without,
        sentence=column_sentence(column, summary, unit),
    )


def table_implementation(
    planned: ReleasePlan | Publication,
    method: ReleaseMethod,
    *,
    seeded: bool,
    commitment: str,
    shuffled: bool,
) -> Implementation:
    """Return the block about the sampling of the noise of a table, and the post-processing.

    Parameters
    ----------
    planned : Publication or Plan
        Publication, or the plan that a verifier made again.
    method : ReleaseMethod
        Method that published or planned it.
    seeded : bool
        Whether the noise follows from a seed, so that it protects no one.
    commitment : str
        SHA-256 of the key of the noise, in hexadecimal digits.
    shuffled : bool
        Whether rows were published in random order.
    """
    kinds, schema = _law_kinds(planned), method.schema
    afterwards = []
    if schema is not None and schema.id_column is not None:
        most = schema.max_rows_per_unit
        afterwards.append(f"rows of one {schema.unit} beyond {most} left out, chosen by a salted hash")
    if method.asks_questions:
        afterwards.append(describe_draw(getattr(method, "sampling_seed_", "")))
    elif shuffled:
        afterwards.append("rows put in random order under the key")
    for summary in _summaries(planned):
        if getattr(summary.law, "clamped", False):
            afterwards.append(f"{summary.column} moved back into its declared range after the noise")
        if grid := getattr(summary.law, "grid", None):
            afterwards.append(f"{summary.column} rounded to steps of {grid:g} after the noise")
    if (precision := getattr(method, "precision", None)) is not None:
        decimals = " decimals" if isinstance(precision, int) else ""
        afterwards.append(f"numbers rounded to {precision}{decimals}")
    return Implementation(
        sampler=" ".join(dict.fromkeys(SAMPLERS[kind] for kind in kinds)),
        arithmetic=arithmetic_of(planned.promises),
        lattice=" ".join(dict.fromkeys(LATTICES[kind] for kind in kinds if kind in LATTICES)) or "None.",
        randomness=describe_randomness(seeded, "FILE"),
        key_commitment=commitment,
        seeded=seeded,
        shuffled=shuffled,
        rows_salt=getattr(planned, "rows_salt", None),
        total_variation=sum(promise.total_variation for promise in planned.promises),
        post_processing=afterwards,
        timing=TIMING_OF_QUESTIONS if method.asks_questions else TIMING,
        versions=installed_versions(VERSIONED),
    )


def _summaries(planned: ReleasePlan | Publication) -> tuple[ColumnSummary, ...]:
    """Return the summaries of the columns: ``summary`` of a publication, ``columns`` of a plan."""
    return planned.summary if isinstance(planned, Publication) else planned.columns


def _law_kinds(planned: ReleasePlan | Publication) -> list[str]:
    """Return the kinds of noise law in use, without "clear"."""
    laws = [summary.law for summary in _summaries(planned)]
    kinds = [law.kind for law in laws if law.kind != "clear"]
    if any(law.missing_keep is not None for law in laws):
        kinds.append("response")
    return list(dict.fromkeys(kinds))


def _theorems(planned: ReleasePlan | Publication) -> list[Theorem]:
    """Return the theorem pages of the laws and promises in use, each once, in the order of the laws."""
    pages: dict[str, str] = {}
    for kind in _law_kinds(planned):
        pages |= THEOREMS[kind]
    if any(isinstance(promise, ErrorFloor) for promise in planned.promises):
        pages |= THEOREMS["floor"]
    if not all(isinstance(promise, NoPromise) for promise in planned.promises):
        pages |= THEOREMS["total"]
    return [Theorem(id=page, about=about) for page, about in pages.items()]
