"""What charges come to exactly, computed without the product: for tests of its caps.

Gaussian events are one Gaussian; a pure event is randomized response; an (epsilon, delta) event gives all
away with probability delta and is randomized response otherwise. Each is the worst event of its kind, so for
costs that were fixed beforehand the divergence computed here is reached. Of a ZCDP event only a Gaussian of
the same rho is counted: a lower bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_ndtr, ndtr

from discreet.privacy.promises import ZCDP, ApproxDP, GaussianDP, PosteriorOdds, PureDP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from discreet._types import Floats
    from discreet.privacy.promises import Promise

_SLACK = 1e-8
"""Relative, for the rounding of this evaluator."""
_ORDERS = (1.001, 1.5, 2.0, 4.0, 16.0, 256.0)


def gaussian_divergence(x: Floats, mu: float) -> Floats:
    """Return the hockey-stick divergence of N(mu, 1) from N(0, 1) at exp(x), for x of any sign."""
    if mu == 0:
        return np.where(x < 0, -np.expm1(np.minimum(x, 0.0)), 0.0)
    upper, lower = log_ndtr(mu / 2 - x / mu), x + log_ndtr(-mu / 2 - x / mu)
    return np.asarray(np.exp(upper) * -np.expm1(np.minimum(lower - upper, 0.0)))


@dataclass
class Composition:
    """Events that were charged, of the worst mechanisms that their promises allow.

    Attributes
    ----------
    rho : float
        Of Gaussian events, and of concentrated ones as Gaussians.
    responses : list of float
        The epsilon of each randomized response.
    log_safe : float
        Logarithm of the probability that no (epsilon, delta) event gave all away.
    variation : float
        Of all samplers.
    charges : int
        How many.
    """

    rho: float = 0.0
    responses: list[float] = field(default_factory=list)
    log_safe: float = 0.0
    variation: float = 0.0
    charges: int = 0

    def add(self, promises: Iterable[Promise]) -> None:
        """Charge the parts of one event."""
        self.charges += 1
        for promise in promises:
            self.variation += promise.total_variation
            match promise:
                case GaussianDP():
                    self.rho += promise.mu**2 / 2
                case ZCDP():
                    self.rho += promise.rho
                case PureDP():
                    self.responses.append(promise.epsilon)
                case ApproxDP():
                    self.responses.append(promise.epsilon)
                    self.log_safe += math.log1p(-promise.delta)

    @property
    def losses(self) -> tuple[Floats, Floats]:
        """Every sum of the responses' privacy losses, and its probability."""
        values, weights = np.zeros(1), np.ones(1)
        for epsilon in self.responses:
            keep = 1 / (1 + math.exp(-epsilon))
            values = np.concatenate([values + epsilon, values - epsilon])
            weights = np.concatenate([weights * keep, weights * (1 - keep)])
        return values, weights

    def delta(self, epsilon: float) -> float:
        """Return the divergence at exp(epsilon), with what samplers within their distance may add."""
        values, weights = self.losses
        beyond = epsilon - values
        # The largest loss often fills epsilon to the last digit; a number is the decimal that it prints.
        beyond[0] = float(Fraction(repr(epsilon)) - sum(Fraction(repr(one)) for one in self.responses))
        private = float(weights @ gaussian_divergence(beyond, math.sqrt(2 * self.rho)))
        return self._with_lost(private) + (1 + math.exp(epsilon)) * self.variation

    def _with_lost(self, probability: float) -> float:
        """Add the probability that all was given away."""
        return -math.expm1(self.log_safe) + math.exp(self.log_safe) * probability

    def odds_tail(self, epsilon: float) -> float:
        """Return how often log-odds between two values of a row rise by more than epsilon."""
        values, weights = self.losses
        mu = math.sqrt(2 * self.rho)
        if mu == 0:
            return self._with_lost(float(weights @ (values > epsilon * (1 + 1e-12))))
        return self._with_lost(float(weights @ ndtr((values + mu**2 / 2 - epsilon) / mu)))

    def renyi(self, order: float) -> float:
        """Return the Renyi divergence of an order."""
        total = order * self.rho
        for epsilon in self.responses:
            kept, other = -math.log1p(math.exp(-epsilon)), -math.log1p(math.exp(epsilon))
            powers = (order * kept + (1 - order) * other, order * other + (1 - order) * kept)
            total += float(np.logaddexp(*powers)) / (order - 1)
        return math.inf if self.log_safe else total

    def excess(self, limit: Promise) -> float:
        """Return how many times the limit the events come to in its worst reading; above 1 it is broken."""
        ratios = [0.0]
        if not isinstance(limit, ApproxDP):
            ratios.append(self.variation / limit.total_variation)
            self = Composition(self.rho, self.responses, self.log_safe, 0.0, self.charges)
        match limit:
            case PureDP():
                ratios.append(sum(self.responses) / limit.epsilon)
                ratios.append(math.inf if self.rho or self.log_safe else 0.0)
            case ApproxDP():
                ratios.append(self.delta(limit.epsilon) / limit.delta)
            case ZCDP():
                ratios += [self.renyi(order) / (order * limit.rho) for order in _ORDERS]
            case GaussianDP():
                at = np.array([0.0, limit.mu / 2, limit.mu**2 / 2 + limit.mu])
                allowed = gaussian_divergence(at, limit.mu)
                ratios += [self.delta(float(x)) / float(most) for x, most in zip(at, allowed, strict=True)]
            case PosteriorOdds():
                ratios.append(self.charges / limit.queries)
                ratios.append(self.odds_tail(limit.epsilon) / limit.delta)
                ratios.append(self.delta(limit.epsilon) / limit.delta)
        return max(ratios) / (1 + _SLACK)
