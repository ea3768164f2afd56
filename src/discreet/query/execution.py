"""Noisy sums over a curated table: charge, sum, add noise, store.

Answers are sent at public times, so that response times reveal nothing finer than a slot: the time of an
engine depends on rows, for a branch that no row takes is skipped, and one person more in a block of rows can
change the time of a count by a third. :class:`Slots` round that time up.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from discreet.batching import PACE, BatchExecutor, Step, run_one
from discreet.errors import EngineFailed, EngineUnavailable, ParameterError, TableChanged
from discreet.noise import Pool, Stream
from discreet.privacy import PosteriorOdds, Receipt
from discreet.privacy.receipt import canonical
from discreet.query.answers import Answer
from discreet.query.calibration import SeededNoise
from discreet.query.costs import CostModel, least_charge
from discreet.query.stored_answers import StoredAnswers, cannot_refine, earlier_about

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from discreet.batching import QueryTask
    from discreet.ledger import Account, Ledger
    from discreet.privacy import Promise
    from discreet.query.aggregates.base import Aggregate, BoundAggregate
    from discreet.query.calibration import NoiseSource, QueryNoise
    from discreet.query.curation import Curation
    from discreet.query.engines.base import Engine

_MOST_SUMS = 64  # sums or tables in one pass: DuckDB plans each for half a millisecond, and all callers wait
_BACKGROUND_SUMS = 8  # in one pass of the background: planning them keeps a processor busy for 30 ms
_PLANNING = 4e-6  # seconds in which an engine plans a character of expressions: public, unlike what it takes


class Slots:
    """Lengths of time to whose multiples the time of work on private rows is rounded up.

    Parameters
    ----------
    lengths : float, mapping of str to float, or None
        Seconds: the same for all aggregates, or one for each ``kind`` of aggregate, where a kind that is not
        named gets the longest. None for no rounding.

    Privacy
    -------
    Of the time that an answer took, only the number of slots can be seen. It is the same for all tables on
    which the work takes less than one slot, so choose them several times as long as the work usually takes.
    A slot begins before the wait for other callers, which takes as long as their work, and no caller waits
    for the rest of another's slot. What remains visible: a table that is so slow that one slot more is
    needed, and the load of the machine.

    Reference
    ---------
    docs/explanation/theorems/lattice-sampler.md, "Timing".

    Examples
    --------
    >>> Slots({"sums": 1.0, "gram": 8.0}).length("node tables")
    8.0
    """

    def __init__(self, lengths: float | Mapping[str, float] | None) -> None:
        """Check the lengths, and keep one for each kind of aggregate."""
        named: Mapping[str, Any] = lengths if isinstance(lengths, Mapping) else {"": lengths}
        for kind, length in named.items():
            fits = isinstance(length, int | float) and math.isfinite(length) and length > 0
            if not fits and (lengths is not None or kind):
                raise ParameterError(
                    "slots of a Database must be seconds above 0, the same or one for each kind of question, "
                    f"or None, was {lengths!r}. Take several times what a question usually takes."
                )
        if not named:
            raise ParameterError("slots of a Database must name at least one kind of question, was empty.")
        self._lengths = {kind: float(length) for kind, length in named.items() if length is not None}

    @property
    def longest(self) -> float:
        """Seconds of the longest slot; 0 if there are no slots."""
        return max(self._lengths.values(), default=0.0)

    def length(self, kind: str) -> float | None:
        """Return the seconds of a slot for one kind of aggregate; None if there are no slots."""
        if not self._lengths:
            return None
        return self._lengths.get(kind, self.longest)

    @contextlib.contextmanager
    def slot(self, *kinds: str) -> Iterator[None]:
        """Leave the ``with`` block at the end of a slot, also after an error; the longest slot of several."""
        lengths = [self.length(kind) for kind in kinds]
        length = max((seconds for seconds in lengths if seconds is not None), default=None)
        start = monotonic()
        try:
            yield
        finally:
            if length is not None:
                passed = monotonic() - start
                # Counted from the start and not by the clock: when a query was sent is no secret.
                sleep(max(0.0, math.floor(passed / length + 1) * length - passed))


class QueryOptions(TypedDict, total=False):
    """Keyword arguments of :meth:`QueryExecutor.ask`."""

    privacy: Promise | None
    variance: float | None
    owner: str | None
    plan: Sequence[Promise]
    refines: str | None
    request: str | None
    said: str | None


class QueryExecutor(StoredAnswers):
    """Noisy sums over a curated table in an engine; the base of :class:`~discreet.query.database.Database`.

    Parameters
    ----------
    engine : Engine
        Engine with its curated table registered.
    curation : Curation
        Layout of the curated table.
    ledger : Ledger
        Ledger that is charged, and that stores the answers.
    random_state : int, optional
        Seed of the noise, which makes it public: for tests, and marked on every receipt.
    version : str, optional
        Public name of these rows; a secret fingerprint of them if left out.
    slots : float or mapping of str to float, optional
        Seconds to whose multiples the time of an answer is rounded up: see :class:`Slots`.
    stream : Stream, optional
        Source of the noise, for a curator who keeps its key: every aggregate has noise of its own, which
        follows from the key, the rows, the aggregate and its noise. None draws noise that nobody can repeat.

    Privacy
    -------
    The charge is on disk before the first random number. The exact answer stays in this process; the noisy
    one is stored in the ledger before it is returned, so that a repeat is free and the same, bit for bit. Any
    number of threads may ask at once: the same aggregate is then charged once for each owner, and one draw is
    returned, the one that is stored first. A failure is not refunded; asking again is free. With ``slots``
    an answer or a failure is returned, and entered in the ledger, at the end of a slot; without, its time is
    visible.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md, composition.md.
    """

    def __init__(
        self,
        engine: Engine,
        curation: Curation,
        *,
        ledger: Ledger,
        random_state: int | None = None,
        version: str | None = None,
        slots: float | Mapping[str, float] | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Keep the engine with its table, and the executor of its batches."""
        assert engine.version is not None
        schema = curation.schema
        public = schema.neighbors == "replace-one" and schema.row_count == "public"
        # A fingerprint of private rows must not be written down as it is: see Version.
        shared = "" if ledger.dataset is None else f"{ledger.dataset}: "  # so that no digest is of two tables
        super().__init__(
            CostModel(schema, engine.count() if public else None, curation=curation),
            ledger,
            shared + (version or engine.version.digest(ledger.secret())),
            shared + (version or engine.version.digest(ledger.secret(), units=True)),
        )
        self._slots = Slots(slots)
        self._engine = engine
        self._seeded = random_state is not None or (stream is not None and stream.seeded)
        self._draws: NoiseSource = (
            Pool() if random_state is None else SeededNoise(Stream.from_seed(random_state))
        )
        # Under another table the same key must give other noise: two answers would differ by exact counts.
        self._keyed = None if stream is None else stream.derive(f"rows {_rows_of(engine, stream)}")
        self._passes = _passes_over(engine)
        self._background_passes = _passes_over(engine, background=True) if engine.parallel else self._passes

    @property
    def row_seconds(self) -> float:
        """Seconds in which the engine adds one row to one sum: a public constant, to estimate work."""
        return self._engine.row_seconds

    @property
    def is_distributed(self) -> bool:
        """Whether the rows are on several machines, so that what is made of them is written in parts."""
        return self._engine.distributed

    def accounts(self, owner: str | None) -> list[Account]:
        """Return every budget that a charge to an owner is taken from."""
        return list(self.ledger.charged_accounts(owner).values())

    def _calibrate(
        self,
        question: Aggregate,
        *,
        privacy: Promise | None = None,
        variance: float | None = None,
        owner: str | None = None,
    ) -> tuple[BoundAggregate, QueryNoise]:
        """Return an aggregate bound to the curated table, and the noise that it would get. Free."""
        bound, candidates = self.cost_model.candidates(question, privacy=privacy, variance=variance)
        accounts = self.accounts(owner) if len(candidates) > 1 else ()
        return bound, candidates[least_charge([(noise,) for noise in candidates], accounts)]

    def ask(
        self,
        question: Aggregate,
        *,
        privacy: Promise | None = None,
        variance: float | None = None,
        owner: str | None = None,
        plan: Sequence[Promise] = (),
        refines: str | None = None,
        request: str | None = None,
        said: str | None = None,
    ) -> Answer:
        """Charge and answer an aggregate, and store the answer.

        Parameters
        ----------
        question : Aggregate
            Sums to compute, over the declared columns.
        privacy : PureDP, ApproxDP, ZCDP, GaussianDP or PosteriorOdds
            Promise that the answer keeps, with the unit and neighbors of the schema; None where `variance`
            is given instead. Pure promises get Laplace noise and Gaussian ones Gaussian. For ``ApproxDP`` the
            law with less noise is taken, and under a limit the one that takes less of it.
        variance : float
            Variance of the noise, in the answer's unit squared; None where `privacy` is given. Gaussian
            noise, or under a limit the law that takes less of it.
        owner : str, optional
            Name that is charged beside the total; None charges the total alone.
        plan : sequence of Promise
            Promises that will be asked for next: refused unless all of them fit what the ledger has left.
            They are not charged now.
        refines : str, optional
            Receipt id of an earlier answer to the same aggregate about the same rows, which the owner paid
            for. A new draw is charged, and merged with that answer and all that it refined in turn.
        request : str, optional
            Key of the owner's choice. The same request under the same key gets the same answer, also if rows
            have changed since; another request under it is refused.
        said : str, optional
            Text of the query, for the record.

        Raises
        ------
        BudgetExceeded, EngineUnavailable
            Nothing was charged and nothing was answered.
        EngineFailed
            The charge stands; asking again is free.
        """
        return run_one(
            self.ask_task(
                question,
                privacy=privacy,
                variance=variance,
                owner=owner,
                plan=plan,
                refines=refines,
                request=request,
                said=said,
            )
        )

    def ask_task(self, question: Aggregate, **how: Unpack[QueryOptions]) -> QueryTask[Answer]:
        """Return the task of an aggregate, whose steps are run in one batch with those of other callers.

        Parameters
        ----------
        question, **how
            As for :meth:`ask`.

        Reference
        ---------
        :func:`~discreet.batching.run_batch`.
        """
        privacy, variance, owner = how.get("privacy"), how.get("variance"), how.get("owner")
        refines, request = how.get("refines"), how.get("request")
        bound, noise = self._calibrate(question, privacy=privacy, variance=variance, owner=owner)
        comparison = privacy.comparison() if isinstance(privacy, PosteriorOdds) else None
        if refines is not None and self._keyed is not None:
            raise cannot_refine("be left out where a key is kept, under which a second draw is the first one")
        if noise.promise is None:
            if refines is not None:
                raise cannot_refine("be of an answer with noise, and this question has none")
            return (yield from self._answer_free(question, bound, noise, comparison))
        digest, earlier = self._find_question(bound, noise, refines, owner)
        try:
            self._engine.ensure_ready()
        except (EngineUnavailable, TableChanged):
            # What was paid for is answered by the ledger alone, or is free to ask again.
            if not self.ledger.has_paid(digest, owner):
                raise
        charge = self.ledger.prepare_charge(
            noise.promise,
            owner=owner,
            what=question.kind,
            question=digest,
            schema=self._schema_digest,
            seeded=self._seeded,
            plan=how.get("plan", ()),
            asked={
                "question": question.to_dict(),
                "privacy": None if privacy is None else privacy.to_dict(),
                "variance": variance,
                "refines": refines,
                "said": how.get("said"),
            },
            request=request,
        )
        receipt: Receipt = yield Step(self.ledger.execute, charge)
        stored = receipt.answer
        # Under a key that was used before the rows changed the charge is for those rows.
        if receipt.question != digest and (stored is None or receipt.schema != self._schema_digest):
            raise ParameterError(
                f"request of a question must be a key whose first use was answered under the present schema, "
                f"and {request!r} was used before rows or schema changed. Ask under another key."
            )
        if stored is None:
            noisy = yield Step(self._measure, (question.kind, bound, noise))
            # After the slot: the record shows when an answer was stored. Of several owners who have paid for
            # the same aggregate and drawn noise for it, the first is stored, and all get that answer.
            content = canonical({"n_rows": self.n_rows, "noisy": noisy}).encode()
            stored = yield Step(self.ledger.execute, self.ledger.prepare_answer(receipt, content))
        about = self._about(bound) if receipt.question == digest else earlier_about(receipt)
        answer = self._read_stored(
            stored, bound, noise, receipt, receipt.answer is not None, comparison, about
        )
        return Answer.merge(*earlier, answer) if earlier else answer

    def _measure(
        self, items: Sequence[tuple[str, BoundAggregate, QueryNoise | None]]
    ) -> list[list[int] | Exception]:
        """Return the noisy integers of aggregates, computed within one slot; exact ones without a noise."""
        # The wait for the engine is inside, and the rest of a slot is slept through outside all locks.
        with self._slots.slot(*(kind for kind, _, _ in items)):
            results = self._sum([bound for _, bound, _ in items])
            return [
                exact
                if noise is None or isinstance(exact, Exception)
                else noise.add_noise(exact, self._noise_source(bound, noise))
                for (_, bound, noise), exact in zip(items, results, strict=True)
            ]

    def _sum(self, bounds: Sequence[BoundAggregate]) -> list[list[int] | Exception]:
        """Return the exact integers of aggregates, or the failure of each."""
        if PACE.rest is None:
            return self._passes.submit(bounds)
        return [self._sum_in_parts(bound, PACE.rest) for bound in bounds]

    def _sum_in_parts(self, bound: BoundAggregate, rest: Callable[[float], None]) -> list[int] | Exception:
        """Return the exact integers of one aggregate from short passes, or the failure of one of them.

        Parameters
        ----------
        bound : BoundAggregate
            Aggregate that is summed in the background.
        rest : callable
            Function that sleeps between two passes, for a time that does not follow from theirs.
        """
        # Where rows are on several machines, each pass costs more than planning all sums.
        parts = [bound.wanted] if self._engine.distributed else bound.wanted.split(_BACKGROUND_SUMS)
        integers: list[int] = []
        for number, part in enumerate(parts):
            if number:
                rest(_PLANNING * len(bound.canonical_text) / len(parts))
            (found,) = self._background_passes.submit([bound.part(number, part)])
            if isinstance(found, Exception):
                return found
            integers += found
        return bound.finish(integers, self._engine.count())

    def _noise_source(self, bound: BoundAggregate, noise: QueryNoise) -> NoiseSource:
        """Return the source of the noise of one aggregate; under a kept key, a stream of its own."""
        if self._keyed is None:
            return self._draws
        return SeededNoise(self._keyed.derive(canonical([bound.canonical, noise.canonical()])))

    def _answer_free(
        self,
        question: Aggregate,
        bound: BoundAggregate,
        noise: QueryNoise,
        comparison: Mapping[str, float] | None,
    ) -> QueryTask[Answer]:
        """Return the task of an aggregate that is the same for all neighbors: it only counts public rows."""
        assert self.n_rows is not None
        receipt = Receipt.from_promises(
            (), what=question.kind, schema=self._schema_digest, seeded=self._seeded
        )
        exact = yield Step(self._measure, (question.kind, bound, None))
        return self._answer(bound, noise, exact, self.n_rows, receipt, False, comparison)

    def close(self) -> None:
        """Drop the curated table and close the engine."""
        self._engine.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _passes_over(engine: Engine, *, background: bool = False) -> BatchExecutor[BoundAggregate, list[int]]:
    """Return the executor of passes over the table of an engine, of which one is made at a time."""
    # The work holds the engine and not a database, so that no reference cycle keeps either alive.
    return BatchExecutor(
        partial(_make_pass, engine, background),
        failure=lambda _: EngineFailed(),
        group=lambda bound: type(bound.wanted) if bound.wanted.shares else None,
        weight=lambda bound: bound.wanted.width,
        limit=_MOST_SUMS,
    )


def _rows_of(engine: Engine, stream: Stream) -> str:
    """Return a name of the rows that a key gives them, the same on every machine."""
    assert engine.version is not None
    return engine.version.digest(bytes.fromhex(stream.salt("rows of questions")), units=True)


def _make_pass(
    engine: Engine, background: bool, take: Callable[[], list[BoundAggregate]]
) -> list[list[int] | Exception]:
    """Return what :func:`_sum_batch` does, on the connection for passes of the background or for others."""
    # By the executor and not by the thread: whoever leads a batch makes a pass for all of its callers.
    before, PACE.background = PACE.background, background
    try:
        return _sum_batch(engine, take)
    finally:
        PACE.background = before


def _sum_batch(engine: Engine, take: Callable[[], list[BoundAggregate]]) -> list[list[int] | Exception]:
    """Return the exact integers of aggregates, summed in one pass, or each in its own if that one fails.

    Privacy
    -------
    The integers of an aggregate are the same in a pass of its own and in a shared one, and no aggregate
    fails because of another caller's.
    """
    bounds = take()
    if len(bounds) > 1:
        with contextlib.suppress(EngineFailed):
            # Aggregates of one canonical form are summed once.
            names = [bound.canonical_text for bound in bounds]
            tasks = {name: bound.wanted for name, bound in zip(names, bounds, strict=True)}
            shared = [*tasks.values()]
            totals = dict(zip(tasks, shared[0].run_tasks(engine, shared), strict=True))
            return [
                bound.finish(totals[name], engine.count()) for name, bound in zip(names, bounds, strict=True)
            ]
    return [_sum_alone(engine, bound) for bound in bounds]


def _sum_alone(engine: Engine, bound: BoundAggregate) -> list[int] | Exception:
    """Return the exact integers of one aggregate, or the failure of the engine."""
    try:
        return bound.exact(engine)
    except EngineFailed as failure:
        return failure
