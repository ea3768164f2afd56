"""Division of one promise into shares for several queries, which together keep it."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

from discreet.errors import ParameterError, PromiseError
from discreet.noise import samplers
from discreet.privacy.calibration._gaussian import gaussian_mu
from discreet.privacy.promises import ZCDP, ApproxDP, GaussianDP, NoPromise, Promise, PureDP
from discreet.privacy.rounding import check_neighbors, exact, float_down, root_down, sampling_delta

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.schema.schema import Neighbors

Privacy: TypeAlias = PureDP | ApproxDP | ZCDP | GaussianDP | NoPromise

_MOST_ENTRIES = 2**24
"""Largest number of entries of an answer, for the total variation of all samplers together."""

_FOR_SAMPLERS = Fraction(1, 10**6)
"""Part of delta reserved for the samplers, as a ledger reserves it when its limit is for Gaussian noise."""


class BudgetSplit:
    """A promise and the share of it that each of several queries gets.

    Parameters
    ----------
    privacy : PureDP, ApproxDP, ZCDP, GaussianDP or NoPromise
        Promise that all queries together must keep.
    weights : mapping of str to float
        Positive weight of each query by its name; they are divided by their sum. They must follow from public
        facts alone: parameters, the schema, the public number of rows.
    unit, neighbors : str
        Protected unit and neighbor relation of the table, as in its schema.
    planned : int, optional
        Number of queries that were planned at first, where some were merged since; None if none were. The
        promise allows for the samplers of all of them.

    Attributes
    ----------
    split : dict of str to float
        Share of rho = mu**2 / 2, or of a pure epsilon, that each query gets; shares add up to 1.
    whole : Promise
        Promise of all queries together, asked or not: whether one is left out may depend on earlier
        answers, so leaving it out does not make the promise better.

    Privacy
    -------
    Gaussian answers of ``mu_1, mu_2, ...`` are together one of ``sqrt(mu_1**2 + mu_2**2 + ...)``, though each
    query may depend on earlier answers; pure ones add up. The shares are rounded down in exact arithmetic, so
    a ledger whose limit is the promise is never overdrawn.

    Reference
    ---------
    docs/explanation/theorems/composition.md.

    Examples
    --------
    >>> from discreet.privacy import GaussianDP
    >>> weights = {"first": 1, "second": 3}
    >>> shares = BudgetSplit(GaussianDP(mu=1), weights, unit="person", neighbors="replace-one")
    >>> shares.split, round(shares["second"].mu, 6)
    ({'first': 0.25, 'second': 0.75}, 0.866025)
    """

    def __init__(
        self,
        privacy: Privacy,
        weights: Mapping[str, float],
        *,
        unit: str,
        neighbors: Neighbors,
        planned: int | None = None,
    ) -> None:
        """Normalize the weights, and compute the promise of all queries with their samplers."""
        # Fractions, so that the shares add up to exactly 1 and no rounding overdraws a ledger.
        exact_weights = {name: Fraction(float(weight)) for name, weight in weights.items()}
        if not exact_weights or min(exact_weights.values()) <= 0:
            raise ParameterError(
                f"weights of BudgetSplit must be above 0, one for each query, were {dict(weights)}. Leave "
                "out what is not asked."
            )
        total = sum(exact_weights.values())
        self._parts = {name: weight / total for name, weight in exact_weights.items()}
        self.split = {name: float(part) for name, part in self._parts.items()}
        self._common: dict[str, Any] = {"unit": unit, "neighbors": neighbors}
        # The size of an answer may not be known yet, so every query is counted with the largest one.
        draws = (len(weights) if planned is None else planned) * _MOST_ENTRIES
        self.whole: Promise
        if isinstance(privacy, NoPromise):
            self.whole = privacy
            return
        check_neighbors(privacy, neighbors, "several questions")
        # Pure promises are kept by Laplace noise, all others by Gaussian noise, whose mu add up in squares.
        if isinstance(privacy, PureDP):
            variation = draws * samplers.LAPLACE_TOTAL_VARIATION
            self.whole = PureDP(epsilon=privacy.epsilon, total_variation=variation, **self._common)
        else:
            variation = draws * samplers.GAUSSIAN_TOTAL_VARIATION
            self.whole = GaussianDP(
                mu=_total_mu(privacy, variation), total_variation=variation, **self._common
            )

    def __getitem__(self, name: str) -> Promise:
        """Return the promise of one query by its name, rounded down."""
        return self.promise_part(name, Fraction(1))

    def merge(self, names: Sequence[str], into: str) -> None:
        """Give the shares of queries that will not be asked to another one that is still to be asked.

        Parameters
        ----------
        names : sequence of str
            Queries that are left out; which ones may depend on earlier answers, as their shares together are
            what they were.
        into : str
            Query that gets their shares; it must not have been asked, and may be a new one.
        """
        given = sum((self._parts.pop(name) for name in names), start=self._parts.get(into, Fraction(0)))
        self._parts[into] = given
        self.split = {name: float(part) for name, part in self._parts.items()}

    def promise_part(self, name: str, fraction: Fraction) -> Promise:
        """Return the promise of a part of one query, which is asked in several; rounded down.

        Parameters
        ----------
        name : str
            Name of the query among the weights.
        fraction : Fraction
            Part of the query's share; those of all its parts add up to 1. It may depend on earlier answers,
            the share may not.
        """
        share = self._parts[name] * fraction
        if isinstance(self.whole, PureDP):
            part = float_down(exact(self.whole.epsilon) * share)
            # A share may be rounded down to 0, for which there is no noise.
            if part > 0:
                return PureDP(epsilon=part, **self._common)
        elif isinstance(self.whole, GaussianDP):
            # Shares are of mu squared, which adds up over queries where mu does not.
            part = root_down(exact(self.whole.mu) ** 2 * share)
            if part > 0:
                return GaussianDP(mu=part, **self._common)
        else:
            return self.whole
        raise PromiseError(
            f"privacy must leave something for each of {len(self._parts)} questions, and {self.whole} does "
            "not. Ask for a weaker promise."
        )


def _total_mu(privacy: ApproxDP | ZCDP | GaussianDP, variation: float) -> float:
    """Return the mu that all queries together may have, once delta for their samplers is reserved."""
    if isinstance(privacy, GaussianDP):
        return privacy.mu
    if isinstance(privacy, ZCDP):
        return root_down(2 * exact(privacy.rho))
    # As a ledger for Gaussian noise does, so that a limit of this promise admits all queries.
    reserved = exact(privacy.delta) * _FOR_SAMPLERS
    if sampling_delta(exact(variation), privacy.epsilon) > reserved:
        raise PromiseError(
            f"delta of privacy must be well above what samplers may err at this epsilon, was "
            f"{privacy.delta:g}. Ask for a larger delta or a smaller epsilon."
        )
    return gaussian_mu(privacy.epsilon, float_down(exact(privacy.delta) - reserved))
