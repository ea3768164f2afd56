"""The one thing that learners ask: noisy sums. Who answers, and what an answer is."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from scipy import special

from discreet.errors import ParameterError
from discreet.noise import Pool, Stream
from discreet.privacy import Ledger, Promise, Receipt
from discreet.privacy.receipt import canonical
from discreet.query.noising import Asked, Draws, Law, Noise, SeededDraws
from discreet.query.paper import PosteriorOdds
from discreet.query.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._typing import Floats
    from discreet.query.curation import Curation
    from discreet.query.engines.base import Engine
    from discreet.query.questions import Bound, Question
    from discreet.schema import Schema
    from discreet.schema.table import Neighbors


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """What a question was answered with.

    Attributes
    ----------
    value : float or array
        The noisy answer, as it is: counts may be negative.
    sd : float or array
        Standard deviation of the noise, of the same shape. Public.
    law : {"gaussian", "laplace"}
        Of the noise.
    cost : tuple of Promise
        What the answer promises, and what was charged for it.
    cached : bool
        Whether it had been paid for before, and is the same answer again.
    receipt : Receipt
        Of the charge.
    labels : tuple or None
        What stands along each axis, where that is a declared list.
    comparison : dict or None
        Under the paper's budget, the variance that each of its theorems asks for.

    Privacy
    -------
    Everything in it may be published, for the cost that it names; the standard deviation and the cost are the
    same for every table. That an answer is cached shows that somebody asked before.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    value: float | Floats
    sd: float | Floats
    law: Law
    cost: tuple[Promise, ...]
    cached: bool
    receipt: Receipt
    labels: tuple[tuple[Any, ...], ...] | None = None
    comparison: Mapping[str, float] | None = None

    def interval(self, level: float = 0.95) -> tuple[float | Floats, float | Floats]:
        """Return the ends between which the exact sum lies with probability ``level``, each entry for itself.

        Only noise is accounted for: what a sample says about a population is another matter.
        """
        if not 0 < level < 1:
            raise ParameterError(f"level of Answer.interval must be between 0 and 1, was {level!r}.")
        if self.law == "gaussian":
            half = float(special.ndtri((1 + level) / 2))
        else:
            half = -np.log1p(-level) / np.sqrt(2)
        return self.value - half * self.sd, self.value + half * self.sd

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "kind": "answer",
            "value": np.asarray(self.value).tolist(),
            "sd": np.asarray(self.sd).tolist(),
            "law": self.law,
            "cost": [promise.to_dict() for promise in self.cost],
            "cached": self.cached,
            "receipt": self.receipt.to_dict(),
            "labels": None if self.labels is None else [[_plain(v) for v in axis] for axis in self.labels],
            "comparison": None if self.comparison is None else dict(self.comparison),
        }


class NoisySums(Protocol):
    """Whoever answers questions with noisy sums: rows in memory, a database, a client of a server.

    Attributes
    ----------
    schema : Schema
        What is public about the table.
    n_rows : int or None
        The number of rows where it is public, else None.
    neighbors : {"replace-one", "add-remove"}
        Which tables the promises make hard to tell apart.
    """

    @property
    def schema(self) -> Schema:
        """What is public about the table."""

    @property
    def n_rows(self) -> int | None:
        """The number of rows where it is public."""

    @property
    def neighbors(self) -> Neighbors:
        """Which tables are hard to tell apart."""

    def ask(
        self,
        question: Question,
        *,
        privacy: Asked | None = None,
        variance: float | None = None,
        owner: str | None = None,
        plan: Sequence[Promise] = (),
    ) -> Answer:
        """Charge, answer, keep the answer; refuse if the plan of what will be asked next does not fit."""

    def cost(
        self, question: Question, *, privacy: Asked | None = None, variance: float | None = None
    ) -> tuple[Promise, ...]:
        """Say what a question would be charged. Free."""

    def expected_sd(
        self, question: Question, *, privacy: Asked | None = None, variance: float | None = None
    ) -> float | Floats:
        """Say how noisy the answer would be. Free."""


class EngineSums:
    """Noisy sums over a curated table in an engine; :class:`Database` and :class:`LocalSums` are made of it.

    Parameters
    ----------
    engine : Engine
        With its table registered.
    curation : Curation
        The layout.
    ledger : Ledger, optional
        What is charged; one in memory, without a limit, if left out.
    random_state : int, optional
        A seed, which makes the noise public: for tests, and marked on every receipt.
    version : str, optional
        A public name for these rows; a secret fingerprint of them if left out.
    slots : float or mapping of str to float, optional
        Seconds by which answers are seen to take: see :class:`~discreet.query.slots.Slots`.

    Privacy
    -------
    The charge is on disk before the first random number. The exact answer stays in this process; the noisy
    one is stored in the ledger before it leaves, so that a repeat is free and the same, bit for bit. One
    question is answered at a time. A failure is not refunded; asking again is free. With ``slots`` an answer
    or a failure leaves, and is entered in the ledger, at the end of a slot; without, its time is open.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md, composition.md.
    """

    def __init__(
        self,
        engine: Engine,
        curation: Curation,
        *,
        ledger: Ledger | None = None,
        random_state: int | None = None,
        version: str | None = None,
        slots: float | Mapping[str, float] | None = None,
    ) -> None:
        assert engine.version is not None
        self._slots = Slots(slots)
        self.ledger = Ledger.open(":memory:") if ledger is None else ledger
        self._engine = engine
        self._curation = curation
        self._seeded = random_state is not None
        self._draws: Draws = Pool() if random_state is None else SeededDraws(Stream.from_seed(random_state))
        # A fingerprint of private rows must not be written down as it is: see Version.
        self._version = version or engine.version.digest(self.ledger.secret())
        self._schema_digest = curation.schema.digest
        self._lock = threading.Lock()

    @property
    def schema(self) -> Schema:
        """What is public about the table."""
        return self._curation.schema

    @property
    def curation(self) -> Curation:
        """How its columns are laid out. Public."""
        return self._curation

    @property
    def neighbors(self) -> Neighbors:
        """Which tables are hard to tell apart."""
        return self.schema.neighbors

    @property
    def n_rows(self) -> int | None:
        """The number of rows where it is public, else None."""
        public = self.neighbors == "replace-one" and self.schema.row_count == "public"
        return self._engine.count() if public else None

    def cost(
        self, question: Question, *, privacy: Asked | None = None, variance: float | None = None
    ) -> tuple[Promise, ...]:
        """Say what a question would be charged. Free, and the same for every table."""
        _, noise = self._prepared(question, privacy, variance)
        return () if noise.promise is None else (noise.promise,)

    def expected_sd(
        self, question: Question, *, privacy: Asked | None = None, variance: float | None = None
    ) -> float | Floats:
        """Say how noisy the answer would be, in its own unit. Free, and the same for every table."""
        bound, noise = self._prepared(question, privacy, variance)
        return _shaped(bound.arrange(noise.sd(bound), 0.0))

    def ask(
        self,
        question: Question,
        *,
        privacy: Asked | None = None,
        variance: float | None = None,
        owner: str | None = None,
        plan: Sequence[Promise] = (),
    ) -> Answer:
        """Charge a question, answer it, and keep the answer.

        Parameters
        ----------
        question : Question
            What to sum.
        privacy : PureDP, ApproxDP, ZCDP, GaussianDP or PosteriorOdds
            What the answer shall promise. Pure promises get Laplace noise, all others Gaussian. Unit and
            neighbors are the schema's.
        variance : float
            Instead of a promise: of the noise, in the answer's unit squared.
        owner : str, optional
            Who asks: charged beside the total.
        plan : sequence of Promise
            What will be asked after this: the question is refused unless all of it fits what the ledger has
            left. It is not charged now.

        Raises
        ------
        BudgetExceeded
            Nothing was charged and nothing was answered.
        EngineFailed
            The charge stands; asking again is free.
        """
        bound, noise = self._prepared(question, privacy, variance)
        comparison = privacy.comparison() if isinstance(privacy, PosteriorOdds) else None
        if noise.promise is None:
            return self._free(question, bound, noise, comparison)
        digest = self._digest(bound, noise)
        with self._lock:
            receipt = self.ledger.charge(
                noise.promise,
                owner=owner,
                what=question.kind,
                question=digest,
                schema=self._schema_digest,
                seeded=self._seeded,
                plan=plan,
            )
            stored, cached = receipt.answer, receipt.answer is not None
            if stored is None:
                with self._slots.slot(question.kind):
                    noisy = noise.added(bound.exact(self._engine), self._draws)
                # After the slot: the record shows when an answer was stored.
                stored = self.ledger.store(receipt, json.dumps(noisy).encode("ascii"))
        return self._answer(bound, noise, json.loads(stored), receipt, cached, comparison)

    def _prepared(
        self, question: Question, privacy: Asked | None, variance: float | None
    ) -> tuple[Bound, Noise]:
        bound = question.bind(self._curation, self.neighbors)
        return bound, Noise.fit(bound, self.schema, privacy=privacy, variance=variance)

    def _free(
        self, question: Question, bound: Bound, noise: Noise, comparison: Mapping[str, float] | None
    ) -> Answer:
        """Answer what is the same for every neighbor: only the public number of rows is in it."""
        if self.n_rows is None:
            raise ParameterError(
                "A question must depend on a column where the number of rows is not public, and this one "
                "does not. Ask for the number of rows under add-remove neighbors."
            )
        receipt = Receipt.unrecorded((), what=question.kind, schema=self._schema_digest, seeded=self._seeded)
        with self._lock, self._slots.slot(question.kind):
            exact = bound.exact(self._engine)
        return self._answer(bound, noise, exact, receipt, False, comparison)

    def _digest(self, bound: Bound, noise: Noise) -> str:
        assert noise.promise is not None
        noised = [noise.canonical(), noise.promise.to_dict()]
        fixed = [self._version, self._schema_digest, bound.canonical, noised]
        return hashlib.sha256(canonical(fixed).encode()).hexdigest()

    def _answer(
        self,
        bound: Bound,
        noise: Noise,
        noisy: list[int],
        receipt: Receipt,
        cached: bool,
        comparison: Mapping[str, float] | None,
    ) -> Answer:
        n_rows = self.n_rows
        entries = noise.values(noisy, bound, n_rows)
        return Answer(
            value=_shaped(bound.arrange(entries, np.nan if n_rows is None else n_rows)),
            sd=_shaped(bound.arrange(noise.sd(bound), 0.0)),
            law=noise.law,
            cost=() if noise.promise is None else (noise.promise,),
            cached=cached,
            receipt=dataclasses.replace(receipt, answer=None),
            labels=bound.labels,
            comparison=comparison,
        )

    def close(self) -> None:
        """Drop the curated table and let go of the engine."""
        self._engine.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _shaped(values: Floats) -> float | Floats:
    return float(values) if values.ndim == 0 else values


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [None if np.isinf(v) else v for v in value]
    return value
