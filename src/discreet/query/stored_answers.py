"""Answers that were paid for and stored in the ledger: found again, and merged with those they refine."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import LedgerError, ParameterError
from discreet.privacy import PosteriorOdds, Receipt, promise_from_dict
from discreet.privacy.receipt import canonical
from discreet.query.aggregates import aggregate_from_dict
from discreet.query.answers import Answer, unwrap_scalar
from discreet.query.costs import CostedTable, CostModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.ledger import Entry, Ledger
    from discreet.query.aggregates.base import Aggregate, BoundAggregate
    from discreet.query.calibration import QueryNoise

_MOST_PARTS = 64  # draws in one answer: each is read from the ledger at every refinement
_MOST_SEARCHED = 100  # charges that are searched for an earlier answer


class StoredAnswers(CostedTable):
    """Answers about the rows of a table as they are now, which the ledger holds.

    Parameters
    ----------
    cost_model : CostModel
        Cost of aggregates on the table, with its schema and curation.
    ledger : Ledger
        Ledger that holds the answers.
    version : str
        Public name of the rows, or a fingerprint of them under the key of the ledger.
    unit_version : str
        The same of the rows with the people that they belong to.
    """

    def __init__(self, cost_model: CostModel, ledger: Ledger, version: str, unit_version: str) -> None:
        """Keep the ledger, and the names under which it holds answers about these rows."""
        super().__init__(cost_model)
        self.ledger = ledger
        self._version, self._unit_version = version, unit_version
        self._schema_digest = cost_model.schema.digest

    def recall(self, receipt: str, *, owner: str | None = None) -> Answer:
        """Return an answer that was paid for, merged with those it refined. Free.

        Parameters
        ----------
        receipt : str
            Id of its receipt.
        owner : str, optional
            Name that must have paid for it; None accepts any.
        """
        return Answer.merge(*(answer for *_, answer in self._chain(receipt, owner)))

    def find_answer(self, question: Aggregate, *, owner: str | None = None) -> Answer | None:
        """Return the newest answer to an aggregate about these rows that was paid for, at any price. Free.

        Parameters
        ----------
        question : Aggregate
            Sums that were computed, over the declared columns.
        owner : str, optional
            Name that must have paid for it; None accepts any.

        Returns
        -------
        Answer or None
            None if it is not among the last 100 charges.

        Privacy
        -------
        Read from the ledger. With an owner it reveals nothing about the queries of others.
        """
        about = self._about(question.bind(self.curation, self.neighbors))
        for entry in reversed(self.ledger.entries(owner, last=_MOST_SEARCHED)):
            if entry.answer is not None and (entry.asked or {}).get("question") == question.to_dict():
                with contextlib.suppress(ParameterError):  # answered under an earlier schema
                    answer = self.recall(entry.receipt.id, owner=owner)
                    if answer.about == about:
                        return answer
        return None

    def _find_question(
        self, bound: BoundAggregate, noise: QueryNoise, refines: str | None, owner: str | None
    ) -> tuple[str, list[Answer]]:
        """Return the digest under which an aggregate is charged, and the answers that it refines."""
        earlier = [] if refines is None else self._find_refined(refines, bound, owner)
        return self._digest(bound, noise, earlier[-1].receipt.question if earlier else None), earlier

    def _digest(self, bound: BoundAggregate, noise: QueryNoise, refined: str | None) -> str:
        """Return the digest of rows, schema, aggregate, noise and refined answer: the same for repeats."""
        # By the digest and not by the receipt: two owners who refine the same answer share the draw.
        return _digest(
            canonical([self._version_for(bound), self._schema_digest]),
            bound.canonical_text,
            noise.canonical_text,
            canonical(refined),
        )

    def _about(self, bound: BoundAggregate) -> str:
        """Return the digest of what an aggregate sums: see :attr:`Answer.about`."""
        fixed = ["about", self._version_for(bound), self._schema_digest, self.neighbors]
        return _digest(canonical(fixed), bound.canonical_text)

    def _version_for(self, bound: BoundAggregate) -> str:
        """Return the name of the rows, and of whose they are where an aggregate depends on it."""
        return self._unit_version if bound.by_unit else self._version

    def _chain(self, receipt: str, owner: str | None) -> list[tuple[BoundAggregate, QueryNoise, Answer]]:
        """Return an answer and all that it refined, oldest first, as the ledger stored them."""
        chain: list[tuple[BoundAggregate, QueryNoise, Answer]] = []
        following: str | None = receipt
        while following is not None:
            entry = self._entry(following, owner)
            asked, stored = entry.asked, entry.answer
            if asked is None or stored is None:
                raise cannot_refine("be of a question that was answered, and this was not")
            if entry.receipt.schema != self._schema_digest:
                raise cannot_refine("be of an answer under the present schema, and the schema has changed")
            privacy = None if asked["privacy"] is None else promise_from_dict(asked["privacy"])
            bound, noise = self.cost_model.calibrate_charged(
                aggregate_from_dict(asked["question"]),
                entry.receipt.promises,
                privacy=privacy,
                variance=asked["variance"],
            )
            if (noise.promise,) != entry.receipt.promises:
                raise cannot_refine("be of an answer by this version of the product, and is of another")
            comparison = privacy.comparison() if isinstance(privacy, PosteriorOdds) else None
            chain.append(
                (bound, noise, self._read_stored(stored, bound, noise, entry.receipt, True, comparison))
            )
            following = asked["refines"]
        bound, noise, oldest = chain[-1]
        if self._digest(bound, noise, None) != oldest.receipt.question:
            # About rows as they once were: to be merged only with one another.
            about = earlier_about(oldest.receipt)
            chain = [(b, n, dataclasses.replace(answer, about=about)) for b, n, answer in chain]
        return chain[::-1]

    def _find_refined(self, receipt: str, bound: BoundAggregate, owner: str | None) -> list[Answer]:
        """Return the answers that a new draw is merged with, if they are about the same sums."""
        chain = self._chain(receipt, owner)
        before = None
        for part, noise, answer in chain:
            if part.canonical != bound.canonical:
                raise cannot_refine("be of an answer to the same question, and is of one to another")
            if self._digest(part, noise, before) != answer.receipt.question:
                raise cannot_refine("be of an answer about the same rows, and the rows have changed")
            before = answer.receipt.question
        if len(chain) == _MOST_PARTS:
            raise cannot_refine(f"be of an answer of fewer than {_MOST_PARTS} draws, and this has them")
        return [answer for *_, answer in chain]

    def _entry(self, receipt: str, owner: str | None) -> Entry:
        """Return the ledger's entry of a receipt; refuses one of another owner."""
        try:
            entry = self.ledger.entry(receipt)
        except LedgerError:
            entry = None
        # A charge of another owner is refused like one that does not exist.
        if entry is None or (owner is not None and entry.receipt.owner != owner):
            raise cannot_refine("name a charge of the same owner in this ledger, and does not")
        return entry

    def _read_stored(
        self,
        stored: bytes,
        bound: BoundAggregate,
        noise: QueryNoise,
        receipt: Receipt,
        cached: bool,
        comparison: Mapping[str, float] | None,
        about: str | None = None,
    ) -> Answer:
        """Return the answer of a stored text, with the number of rows of that time."""
        content = json.loads(stored)
        return self._answer(
            bound, noise, content["noisy"], content["n_rows"], receipt, cached, comparison, about
        )

    def _answer(
        self,
        bound: BoundAggregate,
        noise: QueryNoise,
        noisy: list[int],
        n_rows: int | None,
        receipt: Receipt,
        cached: bool,
        comparison: Mapping[str, float] | None,
        about: str | None = None,
    ) -> Answer:
        """Return the answer that noisy integers stand for, without the stored text on its receipt."""
        entries = noise.values(noisy, bound, n_rows)
        return Answer(
            value=unwrap_scalar(bound.arrange(entries, np.nan if n_rows is None else n_rows)),
            sd=unwrap_scalar(bound.arrange(noise.sd(bound), 0.0)),
            law=noise.law,
            cost=() if noise.promise is None else (noise.promise,),
            cached=cached,
            receipt=receipt if receipt.answer is None else dataclasses.replace(receipt, answer=None),
            labels=bound.labels,
            comparison=comparison,
            about=about or self._about(bound),
        )


def _digest(first: str, *more: str) -> str:
    """Return the SHA-256 of a list in canonical JSON, given the list of its first values and the others."""
    return hashlib.sha256(f"{first[:-1]},{','.join(more)}]".encode()).hexdigest()


def earlier_about(receipt: Receipt) -> str:
    """Return the :attr:`Answer.about` of a charge whose rows have changed since."""
    return hashlib.sha256(canonical(["about", receipt.question]).encode()).hexdigest()


def cannot_refine(must: str) -> ParameterError:
    """Return the error for a receipt whose answer cannot be refined."""
    return ParameterError(
        f"refines of a question must {must}. Give the id of the receipt of your own earlier answer, or leave "
        "it out."
    )
