"""One promise spread over the passes of a learner, by a split that is public before the first."""

from __future__ import annotations

import math
from decimal import ROUND_DOWN, Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from discreet.errors import BudgetExceeded, ParameterError, PromiseError
from discreet.noise import gaussian, laplace
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, NoPromise, Promise, PureDP
from discreet.privacy.amounts import exact, float_down
from discreet.privacy.calibrate import gaussian_mu
from discreet.privacy.reading import root_down, sampling_delta
from discreet.query import Answer, LocalSums
from discreet.query.noising import Noise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._typing import Floats
    from discreet.query import NoisySums, Question

Privacy: TypeAlias = PureDP | ApproxDP | ZCDP | GaussianDP | NoPromise

_MOST_ENTRIES = 2**24
"""Entries that a question may have at most, for what samplers may err together."""

_FOR_SAMPLERS = Fraction(1, 10**6)
"""Part of delta kept for the samplers: what a ledger keeps whose whole limit is for Gaussian noise."""


class ExactSums(LocalSums):
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
        question: Question,
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
                "no noise. Use LocalSums."
            )
        receipt = self.ledger.charge(
            privacy, owner=owner, what=question.kind, schema=self.schema.digest, seeded=self._seeded
        )
        bound = question.bind(self._curation, self.neighbors)
        silent = Noise(
            law="gaussian", promise=None, scale=0.0, groups=(), group=np.zeros(bound.size, np.int64)
        )
        return self._answer(bound, silent, bound.exact(self._engine), self.n_rows, receipt, False, None)

    def expected_sd(
        self, question: Question, *, privacy: Any = None, variance: float | None = None
    ) -> float | Floats:
        """Return zeros."""
        return np.zeros(question.bind(self._curation, self.neighbors).shape)


class Passes:
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
    Gaussian passes of ``mu_1, mu_2, ...`` are together one of ``sqrt(mu_1**2 + mu_2**2 + ...)``, though each
    question depends on earlier answers; pure ones add up. The shares are rounded down in exact
    arithmetic, so a ledger whose limit is the promise is never overdrawn. A pass is charged only if all that
    are still to come fit what the ledger has left as well: nobody pays for half a model.

    Reference
    ---------
    docs/explanation/theorems/composition.md, sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet.query import Histogram
    >>> from discreet.schema import Column, Schema
    >>> schema = Schema(columns=[Column("n", type="integer", lower=0, upper=3)])
    >>> with LocalSums({"n": [1, 2, 2]}, schema=schema, random_state=1) as sums:
    ...     passes = Passes(sums, GaussianDP(mu=1), {"first": 1, "second": 3})
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
        weights = {name: Fraction(float(share)) for name, share in shares.items()}
        if not weights or min(weights.values()) <= 0:
            raise ParameterError(
                f"shares of Passes must be above 0, one for each pass, were {dict(shares)}. Leave a pass out."
            )
        total = sum(weights.values())
        self._shares = {name: weight / total for name, weight in weights.items()}
        self.split = {name: float(share) for name, share in self._shares.items()}
        if isinstance(privacy, NoPromise) != isinstance(sums, ExactSums):
            raise PromiseError(
                "privacy of a learner must be a promise where a database is asked, was NoPromise: it answers "
                "with noise alone. Use fit on rows to learn without a promise."
            )
        common: dict[str, Any] = {"unit": sums.schema.unit, "neighbors": sums.neighbors}
        draws = len(weights) * _MOST_ENTRIES
        self._common = common
        self._promise: Promise
        if isinstance(privacy, NoPromise):
            self._promise = privacy
        elif isinstance(privacy, PureDP):
            variation = draws * laplace.TOTAL_VARIATION
            self._promise = PureDP(epsilon=privacy.epsilon, total_variation=variation, **common)
        else:
            variation = draws * gaussian.TOTAL_VARIATION
            self._promise = GaussianDP(mu=_mu(privacy, variation), total_variation=variation, **common)
        self.promises = (self._promise,)

    def privacy(self, name: str) -> Promise:
        """Return what one pass is asked to promise."""
        if isinstance(self._promise, PureDP):
            part = exact(self._promise.epsilon) * self._shares[name]
            return PureDP(epsilon=float_down(part), **self._common)
        if isinstance(self._promise, GaussianDP):
            squared = exact(self._promise.mu) ** 2 * self._shares[name]
            return GaussianDP(mu=root_down(squared), **self._common)
        return self._promise

    def ask(self, name: str, question: Question) -> Answer:
        """Ask the question of one pass, once.

        Raises
        ------
        BudgetExceeded
            This pass and those to come do not fit what the ledger has left. Says which were paid for.
        """
        assert name not in self.answers
        later = [self.privacy(other) for other in self._shares if other not in (*self.answers, name)]
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
        if problem.currency == "rho" and isinstance(self._promise, GaussianDP):
            mu = _four_digits(self._promise.mu * math.sqrt(share))
            if mu > 0:
                return f"GaussianDP(mu={mu!r}) would fit."
        if problem.currency == "epsilon" and isinstance(self._promise, PureDP):
            epsilon = _four_digits(self._promise.epsilon * share)
            if epsilon > 0:
                return f"PureDP(epsilon={epsilon!r}) would fit."
        return "Ask for a weaker promise of another kind, or begin a new ledger with new rows."

    def expected_sd(self, name: str, question: Question) -> Floats:
        """Say how noisy the answer of a pass would be. Free."""
        return np.asarray(self.sums.expected_sd(question, privacy=self.privacy(name)), np.float64)


def _four_digits(value: float) -> float:
    """Round down to four digits: more would only be read off, and the last is lost to rounding anyway."""
    if value <= 0:
        return 0.0
    with localcontext() as context:
        context.prec, context.rounding = 4, ROUND_DOWN
        return float(+Decimal(value))


def _mu(privacy: ApproxDP | ZCDP | GaussianDP, variation: float) -> float:
    """Return the mu that all passes together may come to."""
    if isinstance(privacy, GaussianDP):
        return privacy.mu
    if isinstance(privacy, ZCDP):
        return root_down(2 * exact(privacy.rho))
    kept = exact(privacy.delta) * _FOR_SAMPLERS
    if sampling_delta(exact(variation), privacy.epsilon) > kept:
        raise PromiseError(
            f"delta of privacy must be well above what samplers may err at this epsilon, was "
            f"{privacy.delta:g}. Ask for a larger delta or a smaller epsilon."
        )
    return gaussian_mu(privacy.epsilon, float_down(exact(privacy.delta) - kept))
