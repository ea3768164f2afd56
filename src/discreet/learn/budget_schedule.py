"""One promise spread over the passes of a learner, by a split that is public before the first."""

from __future__ import annotations

import math
from decimal import ROUND_DOWN, Decimal, localcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import BudgetExceeded, PromiseError
from discreet.privacy import GaussianDP, NoPromise, Promise, PureDP
from discreet.privacy.budget_split import BudgetSplit
from discreet.query import Answer, Database
from discreet.query.calibration import QueryNoise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import Floats
    from discreet.privacy.budget_split import Privacy
    from discreet.query import Aggregate, NoisySums


class NoiselessSums(Database):
    """Sums over rows in memory without noise and without a promise: what tests compare with.

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
        """Answer exactly."""
        if not isinstance(privacy, NoPromise) or variance is not None:
            raise PromiseError(
                f"privacy of ExactSums must be a NoPromise, was {type(privacy).__name__}: its answers have "
                "no noise. Use Database."
            )
        receipt = self.ledger.charge(
            privacy, owner=owner, what=question.kind, schema=self.schema.digest, seeded=self._seeded
        )
        bound = question.bind(self.curation, self.neighbors)
        silent = QueryNoise(
            law="gaussian", promise=None, scale=0.0, groups=(), group=np.zeros(bound.size, np.int64)
        )
        return self._answer(bound, silent, bound.exact(self._engine), self.n_rows, receipt, False, None)

    def expected_sd(
        self, question: Aggregate, *, privacy: Any = None, variance: float | None = None
    ) -> float | Floats:
        """Return zeros."""
        return np.zeros(question.bind(self.curation, self.neighbors).shape)


class BudgetSchedule:
    """The questions of one learner, each paid with its share of one promise.

    Parameters
    ----------
    sums : NoisySums
        Who answers.
    privacy : PureDP, ApproxDP, ZCDP, GaussianDP or NoPromise
        What all passes together shall promise.
    shares : mapping of str to float
        A positive weight for each pass; they are divided by their sum. They must follow from public things
        alone: parameters, the schema, the public number of rows.
    owner : str, optional
        Who is charged beside the total.

    Attributes
    ----------
    split : dict of str to float
        Which part of rho = mu**2 / 2, or of a pure epsilon, each pass gets.
    promises : tuple of Promise
        What holds for all passes together, asked or not: whether a pass is left out may depend on earlier
        answers, so leaving it out does not make the promise better.
    answers : dict of str to Answer
        Of the passes so far.

    Privacy
    -------
    That of :class:`~discreet.privacy.budget_split.BudgetSplit`. A pass is charged only if all that are still to come fit
    what the ledger has left as well: nobody pays for half a model.

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
        self, sums: NoisySums, privacy: Privacy, shares: Mapping[str, float], *, owner: str | None = None
    ) -> None:
        self.sums = sums
        self.answers: dict[str, Answer] = {}
        self._owner = owner
        if isinstance(privacy, NoPromise) != isinstance(sums, NoiselessSums):
            raise PromiseError(
                "privacy of a learner must be a promise where a database is asked, was NoPromise: it answers "
                "with noise alone. Use fit on rows to learn without a promise."
            )
        self._shares = BudgetSplit(privacy, shares, unit=sums.schema.unit, neighbors=sums.neighbors)
        self.split = self._shares.split
        self.promises = (self._shares.whole,)

    def privacy(self, name: str) -> Promise:
        """Return what one pass is asked to promise."""
        return self._shares[name]

    def ask(self, name: str, question: Aggregate) -> Answer:
        """Ask the question of one pass, once.

        Raises
        ------
        BudgetExceeded
            This pass and those to come do not fit what the ledger has left. Says which were paid for.
        """
        assert name not in self.answers
        later = [self.privacy(other) for other in self.split if other not in (*self.answers, name)]
        try:
            answer = self.sums.ask(question, privacy=self.privacy(name), owner=self._owner, plan=later)
        except BudgetExceeded as problem:
            refused = self._refused(problem, 1 + len(later))
        else:
            self.answers[name] = answer
            return answer
        raise refused

    def _refused(self, problem: BudgetExceeded, passes: int) -> BudgetExceeded:
        """Say what is left, what would fit, and what has been paid for."""
        which = "its one pass" if passes == 1 else f"{passes} passes"
        paid = ", ".join(self.answers)
        if paid:
            which += " that are still to come"
            way = (
                f"The passes before ({paid}) are paid for and kept: fit again with the same parameters once "
                "there is room, and they are free."
            )
        else:
            way = f"Nothing was charged. {self._fitting(problem)}"
        return BudgetExceeded(
            f"privacy of a learner must fit what its ledger has left, and does not: {which} ask for "
            f"{problem.currency} {problem.asked:.6g}, and {problem.left:.6g} is left for {problem.scope!r}. "
            f"{way}",
            asked=problem.asked,
            left=problem.left,
            limit=problem.limit,
            currency=problem.currency,
            scope=problem.scope,
        )

    def _fitting(self, problem: BudgetExceeded) -> str:
        """Name the largest promise, to four digits, that the ledger still has room for."""
        share = problem.left / problem.asked if problem.asked else 0.0
        (promise,) = self.promises
        if problem.currency == "rho" and isinstance(promise, GaussianDP):
            mu = _four_digits(promise.mu * math.sqrt(share))
            if mu > 0:
                return f"GaussianDP(mu={mu!r}) would fit."
        if problem.currency == "epsilon" and isinstance(promise, PureDP):
            epsilon = _four_digits(promise.epsilon * share)
            if epsilon > 0:
                return f"PureDP(epsilon={epsilon!r}) would fit."
        return "Ask for a weaker promise of another kind, or begin a new ledger with new rows."

    def expected_sd(self, name: str, question: Aggregate) -> Floats:
        """Say how noisy the answer of a pass would be. Free."""
        return np.asarray(self.sums.expected_sd(question, privacy=self.privacy(name)), np.float64)


def _four_digits(value: float) -> float:
    """Round down to four digits: more would only be read off, and the last is lost to rounding anyway."""
    if value <= 0:
        return 0.0
    with localcontext() as context:
        context.prec, context.rounding = 4, ROUND_DOWN
        return float(+Decimal(value))
