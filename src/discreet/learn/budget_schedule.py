"""Split of one promise over the passes of a learner, fixed and public before the first pass."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import BudgetExceeded, PromiseError
from discreet.privacy import NoPromise, Promise
from discreet.privacy.budget_split import BudgetSplit
from discreet.query import Answer, Database
from discreet.query.calibration import QueryNoise
from discreet.query.costs import affordable_request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import Floats
    from discreet.privacy.budget_split import Privacy
    from discreet.query import Aggregate, NoisySums


class NoiselessSums(Database):
    """Sums over rows in memory, without noise and without a promise.

    Privacy
    -------
    None: every answer is exact, and is charged as :class:`~discreet.privacy.NoPromise`, which a ledger with
    a limit refuses.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    def ask(
        self,
        question: Aggregate,
        *,
        privacy: Any = None,
        variance: float | None = None,
        owner: str | None = None,
        plan: Sequence[Promise] = (),
        **_: Any,
    ) -> Answer:
        """Return the exact answer, charged as :class:`~discreet.privacy.NoPromise`."""
        if not isinstance(privacy, NoPromise) or variance is not None:
            raise PromiseError(
                f"privacy of NoiselessSums must be a NoPromise, was {type(privacy).__name__}: its answers "
                "have no noise. Use Database."
            )
        receipt = self.ledger.charge(
            privacy, owner=owner, what=question.kind, schema=self.schema.digest, seeded=self._seeded
        )
        bound = question.bind(self.curation, self.neighbors)
        no_noise = QueryNoise(
            law="gaussian", promise=None, scale=0.0, groups=(), group=np.zeros(bound.size, np.int64)
        )
        return self._answer(bound, no_noise, bound.exact(self._engine), self.n_rows, receipt, False, None)

    def expected_sd(
        self,
        question: Aggregate,
        *,
        privacy: Any = None,
        variance: float | None = None,
        owner: str | None = None,
    ) -> float | Floats:
        """Return zeros of the answer's shape: exact answers have no noise."""
        return np.zeros(question.bind(self.curation, self.neighbors).shape)


class BudgetSchedule:
    """Passes of one learner, each paid with its share of one promise.

    Parameters
    ----------
    sums : NoisySums
        Object that answers noisy sums: a :class:`~discreet.query.Database`, a remote one, or
        :class:`NoiselessSums`.
    privacy : PureDP, ApproxDP, ZCDP, GaussianDP or NoPromise
        Promise of all passes together.
    shares : mapping of str to float
        Positive weight of each pass; they are divided by their sum. They must follow from public facts alone:
        parameters, the schema, the public number of rows.
    owner : str, optional
        Name that is charged beside the total of the ledger; None charges the total alone.
    planned : int, optional
        As for :class:`~discreet.privacy.budget_split.BudgetSplit`.

    Attributes
    ----------
    split : dict of str to float
        Part of rho = mu**2 / 2, or of a pure epsilon, that each pass gets.
    promises : tuple of Promise
        Promises that hold for all passes together, made or not: whether a pass is left out may depend on
        earlier answers, so leaving it out does not make the promise better.
    answers : dict of str to Answer
        Answers of the passes made so far, by name.

    Privacy
    -------
    As of :class:`~discreet.privacy.budget_split.BudgetSplit`. A pass is charged only if all later ones fit
    the rest of the ledger's budget as well: half a model is never paid for.

    Reference
    ---------
    docs/explanation/theorems/composition.md, sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet.query import Histogram
    >>> from discreet.schema import Column, Schema
    >>> schema = Schema(columns=[Column("n", type="integer", lower=0, upper=3)])
    >>> with Database({"n": [1, 2, 2]}, schema=schema, random_state=1) as sums:
    ...     passes = BudgetSchedule(sums, GaussianDP(mu=1), {"first": 1, "second": 3})
    ...     answer = passes.ask("second", Histogram("n"))
    >>> passes.split, round(answer.cost[0].mu, 6)
    ({'first': 0.25, 'second': 0.75}, 0.866025)
    """

    def __init__(
        self,
        sums: NoisySums,
        privacy: Privacy,
        shares: Mapping[str, float],
        *,
        owner: str | None = None,
        planned: int | None = None,
    ) -> None:
        """Split the promise over the passes; nothing is charged yet.

        Raises
        ------
        PromiseError
            If there is no promise although the sums have noise, or the reverse.
        """
        self.sums = sums
        self.answers: dict[str, Answer] = {}
        self._owner = owner
        self._privacy = privacy
        # Exact sums would break a promise, and a database answers nothing without one.
        if isinstance(privacy, NoPromise) != isinstance(sums, NoiselessSums):
            raise PromiseError(
                "privacy of a learner must be a promise where a database is asked, was NoPromise: it answers "
                "with noise alone. Use fit on rows to learn without a promise."
            )
        self._shares = BudgetSplit(
            privacy, shares, unit=sums.schema.unit, neighbors=sums.neighbors, planned=planned
        )
        self.split = self._shares.split
        self.promises = (self._shares.whole,)

    def privacy(self, name: str) -> Promise:
        """Return the promise of one pass."""
        return self._shares[name]

    def merge(self, names: Sequence[str], into: str) -> None:
        """Give the shares of passes that will not be made to a later pass, before it is made.

        Parameters
        ----------
        names : sequence of str
            Passes that are left out; which ones may depend on earlier answers.
        into : str
            Pass that gets their shares; it may be a new one.
        """
        assert not {into, *names} & set(self.answers)
        self._shares.merge(names, into)
        self.split = self._shares.split

    def ask(self, name: str, question: Aggregate) -> Answer:
        """Return the answer to the query of one pass, which can be made once.

        Parameters
        ----------
        name : str
            Name of the pass in ``shares``.
        question : Aggregate
            Query that the pass pays for.

        Raises
        ------
        BudgetExceeded
            If this pass and the later ones exceed the rest of the ledger's budget. The message lists the
            passes that were paid for.
        """
        return self.ask_parts(name, [question], [1])[0]

    def ask_parts(self, name: str, questions: Sequence[Aggregate], weights: Sequence[int]) -> list[Answer]:
        """Return the answers to the query of one pass that is asked in parts, each for its part of the share.

        Parameters
        ----------
        name : str
            Name of the pass in ``shares``.
        questions : sequence of Aggregate
            Queries that the pass pays for.
        weights : sequence of int
            Weight of each query in the share of the pass. In proportion to its part of the squared
            sensitivity, or of the absolute one under a pure promise, the noise is that of one query.
        """
        assert name not in self.answers
        parts = [self.part_privacy(name, weights, i) for i in range(len(questions))]
        later = [self.privacy(other) for other in self.split if other not in (*self.answers, name)]
        answers: list[Answer] = []
        for i, question in enumerate(questions):
            # Refused unless all that is still to come fits too: half a model is paid for and of no use.
            plan = [*parts[i + 1 :], *later]
            try:
                answers.append(self.sums.ask(question, privacy=parts[i], owner=self._owner, plan=plan))
            except BudgetExceeded as problem:
                self._explain(problem)
                raise
        self.answers[name] = answers[-1]
        return answers

    def part_privacy(self, name: str, weights: Sequence[int], index: int) -> Promise:
        """Return the promise of one part of a pass that is asked in parts."""
        # A fraction: floats of the parts might add up to more than the pass.
        return self._shares.promise_part(name, Fraction(weights[index], sum(weights)))

    def _explain(self, problem: BudgetExceeded) -> None:
        """Say in the error which passes were paid for, or which promise of the whole fit would still fit."""
        if self.answers:
            problem.charged = f"The passes before ({', '.join(self.answers)}) are paid for and kept."
            problem.advice = "Fit again with the same parameters once there is room, and they are free."
            problem.scale = 0.0  # with another promise the passes before would have to be paid for again
            return
        affordable = affordable_request(self._privacy, None, problem.scale)
        if affordable is not None:
            numbers = ", ".join(f"{name}={value!r}" for name, value in affordable.items() if name != "kind")
            problem.advice = f"{type(self._privacy).__name__}({numbers}) would still fit."

    def expected_sd(self, name: str, question: Aggregate) -> Floats:
        """Return the standard deviation that the answer of a pass would have; nothing is charged."""
        return np.asarray(self.sums.expected_sd(question, privacy=self.privacy(name)), np.float64)
