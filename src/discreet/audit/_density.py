"""The exact audit: two laws known by formula, compared by numerical integration without any draw.

A law on the line is given by its log density, a law on the integers by its log mass. From two of them
follow the true delta at every epsilon, the largest privacy loss, and, for a law and its own shifts,
the Fisher information. Every number comes with a bound on its numerical error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from discreet.audit._base import AuditResult
from discreet.errors import ParameterError
from discreet.privacy.promises import ApproxDP, Promise, PureDP
from discreet.privacy.roots import find_root

if TYPE_CHECKING:
    from discreet._types import Floats

LogLaw: TypeAlias = Callable[["Floats"], "Floats"]
"""Vectorized logarithm of a density or mass; minus infinity where the law has no mass at all."""

# Nodes and weights on [-1, 1]; the difference of the two rules estimates the error of the finer one.
_FINE, _COARSE = (np.polynomial.legendre.leggauss(m) for m in (24, 16))
_UNIT = 2.0**-53
"""Unit roundoff of a double."""


class Bounded(NamedTuple):
    """A computed number and a bound on its distance from the true one."""

    value: float
    error: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Density:
    """A law on the line, given by its log density on one interval.

    Parameters
    ----------
    logpdf : callable
        Natural logarithm of the density, vectorized.
    lower, upper : float
        Finite ends of the interval that is integrated.
    tail : float
        Upper bound on the mass outside it.
    breaks : tuple of float
        Points at which the density or its slope jumps.
    panels : int
        Number of equal panels of the interval; breaks divide them further.
    accuracy : float
        Bound on the absolute error of ``logpdf``.

    Privacy
    -------
    A formula without data; it is compared with a promise.

    Reference
    ---------
    Integrated by Gauss-Legendre rules of 24 and 16 points on every panel.
    """

    logpdf: LogLaw
    lower: float
    upper: float
    tail: float = 0.0
    breaks: tuple[float, ...] = ()
    panels: int = 200
    accuracy: float = 1e-13

    def __post_init__(self) -> None:
        _check_window("Density", self.lower, self.upper, self.tail)


@dataclass(frozen=True, kw_only=True, eq=False)
class Lattice:
    """A law on the integers, given by its log mass on one window.

    Parameters
    ----------
    logpmf : callable
        Natural logarithm of the mass, vectorized over float arrays of whole numbers.
    lower, upper : int
        First and last integer that is summed.
    tail : float
        Upper bound on the mass outside the window.
    accuracy : float
        Bound on the absolute error of ``logpmf``.

    Privacy
    -------
    A formula without data; it is compared with a promise.

    Reference
    ---------
    Summed term by term.
    """

    logpmf: LogLaw
    lower: int
    upper: int
    tail: float = 0.0
    accuracy: float = 1e-13

    def __post_init__(self) -> None:
        _check_window("Lattice", self.lower, self.upper, self.tail)


Law: TypeAlias = Density | Lattice


@dataclass(frozen=True, kw_only=True, eq=False)
class LawPair:
    """The exact laws of one output under two neighbors, and the promise about them.

    Parameters
    ----------
    p, q : Density or Lattice
        Laws of the theorem under either neighbor, both of one kind. A sampler's distance from them is the
        claim's total variation, which is no allowance for the laws themselves.
    claim : Promise
        A promise of differential privacy.
    name : str
        Noun for the mechanism in messages, such as "release".

    Privacy
    -------
    The audit is as good as the formulas. That the program draws from these laws is tested by sampling, in
    :mod:`discreet.audit._distinguishing`.

    Reference
    ---------
    See :func:`density`.
    """

    p: Law
    q: Law
    claim: Promise
    name: str = "mechanism"

    def __post_init__(self) -> None:
        if type(self.p) is not type(self.q):
            raise ParameterError("p and q of LawPair must be of one kind, both Density or both Lattice.")


def shift_law(law: Law, by: float) -> Law:
    """Return the law of ``x + by``: noise around the neighbor's value."""
    if isinstance(law, Lattice):
        if by != int(by):
            raise ParameterError(f"by of shift_law must be a whole number for a Lattice, was {by!r}.")
        inner = law.logpmf
        return Lattice(
            logpmf=lambda x: inner(x - by),
            lower=law.lower + int(by),
            upper=law.upper + int(by),
            tail=law.tail,
            accuracy=law.accuracy,
        )
    log_density = law.logpdf
    return Density(
        logpdf=lambda x: log_density(x - by),
        lower=law.lower + by,
        upper=law.upper + by,
        tail=law.tail,
        breaks=tuple(b + by for b in law.breaks),
        panels=law.panels,
        accuracy=law.accuracy,
    )


def pushforward(log_noise: LogLaw, noise_of: LogLaw, derivative: LogLaw) -> LogLaw:
    """Return the log density of an output that determines its noise, by the change of variables.

    Parameters
    ----------
    log_noise : callable
        Log density of the noise, vectorized.
    noise_of : callable
        The noise ``b(theta)`` that makes ``theta`` the output.
    derivative : callable
        The derivative ``b'(theta)`` of the noise by the output.

    Notes
    -----
    ``log f(theta) = log_noise(b(theta)) + log |b'(theta)|``. For a model trained with a random linear term,
    the gradient vanishes at the output ``theta``, so that the noise is a function of it.
    """

    def logpdf(theta: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            jacobian = np.log(np.abs(derivative(theta)))
        return np.asarray(log_noise(noise_of(theta)) + jacobian)

    return logpdf


def hockey_stick(p: Law, q: Law, epsilon: float) -> Bounded:
    """Return the true delta of ``p`` against ``q`` at ``epsilon``, in this direction only.

    Parameters
    ----------
    p, q : Density or Lattice
        Laws of the output under the two neighbors, both of one kind.
    epsilon : float
        Point of the privacy curve, at least 0.

    Returns
    -------
    Bounded
        For integers the error is certified, given the accuracy of the law's own logarithms. For a density
        it adds the difference of two quadrature rules on every panel and the distance of both totals from 1.

    Privacy
    -------
    The smallest delta with which the pair is (epsilon, delta)-DP in this direction.

    Notes
    -----
    ``delta = sup_S P(S) - exp(epsilon) Q(S)``, which is the sum or integral of
    ``max(0, p(x) - exp(epsilon) q(x))``. Mass outside the window of ``p`` adds at most its tail.

    Reference
    ---------
    Balle and Wang (2018), theorem 5.
    """
    growth = math.exp(epsilon)
    if isinstance(p, Lattice) and isinstance(q, Lattice):
        x = np.arange(min(p.lower, q.lower), max(p.upper, q.upper) + 1, dtype=np.float64)
        mass_p, mass_q = np.exp(p.logpmf(x)), np.exp(q.logpmf(x))
        value = float(np.maximum(mass_p - growth * mass_q, 0.0).sum())
        # An absolute error of a logarithm is a relative error of the mass, and masses add up to at most 1.
        error = math.expm1(p.accuracy + 4 * _UNIT) + growth * math.expm1(q.accuracy + 4 * _UNIT)
        # Outside the window of p the integrand is at most p itself.
        return Bounded(value, error + p.tail + x.size * _UNIT * value)
    assert isinstance(p, Density)
    assert isinstance(q, Density)
    edges = _edges(p, q, epsilon)

    def positive(x: Floats) -> Floats:
        return np.maximum(np.exp(p.logpdf(x)) - growth * np.exp(q.logpdf(x)), 0.0)

    value, error = _integrate(positive, edges)
    # A formula that does not integrate to 1 is no density: what is missing or too much counts as error.
    for law, weight in ((p, 1.0), (q, growth)):
        # Over the law's own interval: its tail bounds the mass outside.
        inner = edges[(edges >= law.lower) & (edges <= law.upper)]
        total, rough = _integrate(lambda x, law=law: np.exp(law.logpdf(x)), inner)  # type: ignore[misc]
        error += weight * (max(0.0, abs(total - 1) - law.tail) + rough + math.expm1(law.accuracy))
    # The last term covers rounding of numbers of order 1.
    return Bounded(value, error + p.tail + 64 * _UNIT)


def largest_loss(p: Law, q: Law) -> Bounded:
    """Return the largest ``log(p(x) / q(x))`` on the window of ``p``, infinite where only ``q`` vanishes.

    Notes
    -----
    A density is read at the quadrature nodes inside its interval, so for it the result is a lower bound on
    the supremum; the breaks should mark where the loss is largest.
    """
    if isinstance(p, Lattice):
        assert isinstance(q, Lattice)
        x = np.arange(p.lower, p.upper + 1, dtype=np.float64)
        log_p, log_q = p.logpmf(x), q.logpmf(x)
    else:
        assert isinstance(q, Density)
        x = _nodes(_edges(p, q, None), _FINE)[0].reshape(-1)
        x = x[(x > p.lower) & (x < p.upper)]
        log_p, log_q = p.logpdf(x), q.logpdf(x)
    # Outputs that p cannot produce have no loss.
    possible = log_p > -np.inf
    loss = np.where(np.isneginf(log_q[possible]), np.inf, log_p[possible] - log_q[possible])
    return Bounded(float(loss.max()), p.accuracy + q.accuracy + 4 * _UNIT)


def fisher_information(law: Density) -> Bounded:
    """Return the Fisher information of a shift of ``law``: the mean square slope of its log density.

    Privacy
    -------
    An error floor rests on this number: no unbiased estimate of a value published with this noise has a
    variance below its reciprocal.

    Notes
    -----
    ``I = integral of (d/dx log f(x))**2 f(x) dx``. Slopes are taken by the five-point rule
    ``(8 (g(x+h) - g(x-h)) - (g(x+2h) - g(x-2h))) / (12 h)`` with ``g = log f``, to a relative 1e-8.

    Reference
    ---------
    The Cramér-Rao inequality.
    """
    edges = _edges(law, law, None)

    def slope_squared(x: Floats) -> Floats:
        # Narrow beside the distance to the panel's ends, beyond which the slope may jump.
        h = np.minimum(x - edges[:-1, np.newaxis], edges[1:, np.newaxis] - x) / 100
        log = law.logpdf
        slope = (8 * (log(x + h) - log(x - h)) - (log(x + 2 * h) - log(x - 2 * h))) / (12 * h)
        density = np.exp(log(x))
        return np.where(density > 0, np.square(np.where(density > 0, slope, 0.0)) * density, 0.0)

    with np.errstate(invalid="ignore"):
        value, error = _integrate(slope_squared, edges)
    # The second term is the error of the five-point rule, which the quadrature rules share.
    return Bounded(value, error + 1e-8 * value)


def density(pair: LawPair, *, epsilons: tuple[float, ...] | None = None) -> AuditResult:
    """Compare the exact privacy curve of two laws with a claim, in both directions.

    Parameters
    ----------
    pair : LawPair
        The laws and the claim.
    epsilons : tuple of float, optional
        Points at which a claim with a privacy curve is compared; by default 33 points from 0 up to where
        the claim's delta falls below 1e-12.

    Returns
    -------
    AuditResult
        Against pure DP, ``measured`` is the largest loss; otherwise the true delta at the epsilon where
        it exceeds the claim by most.

    Privacy
    -------
    For one output on the line or on the integers the result is exact, not a bound. The verdict is
    "broken" only if the excess is larger than the numerical error.

    Reference
    ---------
    Balle and Wang (2018), theorem 5: delta is the integral of ``max(0, p - exp(epsilon) q)``.

    Examples
    --------
    >>> from scipy import stats
    >>> from discreet.audit import Density, LawPair, density, shift_law
    >>> from discreet.privacy.promises import GaussianDP
    >>> noise = Density(logpdf=stats.norm.logpdf, lower=-12, upper=12, tail=1e-32)
    >>> density(LawPair(p=noise, q=shift_law(noise, 1.0), claim=GaussianDP(mu=1.0))).verdict
    'holds'
    >>> density(LawPair(p=noise, q=shift_law(noise, 1.0), claim=GaussianDP(mu=0.99))).verdict
    'broken'
    """
    claim = pair.claim
    directions = ((pair.p, pair.q), (pair.q, pair.p))
    if isinstance(claim, PureDP):
        losses = [largest_loss(p, q) for p, q in directions]
        worst = max(losses, key=lambda loss: loss.value)
        quantity, measured, allowed, error = "largest privacy loss", worst.value, claim.epsilon, worst.error
        broken = measured - error > allowed
    else:
        if epsilons is None:
            epsilons = _default_epsilons(claim)
        points = [(e, hockey_stick(p, q, e)) for e in epsilons for p, q in directions]
        # The point at which the curve exceeds the claim by most, numerical error taken off.
        epsilon, worst = max(points, key=lambda x: x[1].value - x[1].error - claim.delta_at(x[0]))
        quantity, measured, error = f"delta at epsilon {epsilon:.4g}", worst.value, worst.error
        allowed = claim.delta_at(epsilon)
        broken = measured - error > allowed
    return AuditResult(
        attack="density",
        claim=claim,
        verdict="broken" if broken else "holds",
        reason=f"The exact law of the {pair.name} {'exceeds' if broken else 'keeps'} the promise.",
        quantity=quantity,
        measured=measured,
        allowed=allowed,
        knowledge="everything but which of the two inputs was used, and the noise",
        details={"error": error},
    )


def _default_epsilons(claim: Promise) -> tuple[float, ...]:
    """Return the claim's own epsilon, or 33 points up to where its delta is negligible."""
    if isinstance(claim, ApproxDP):
        return (claim.epsilon,)
    top = 1.0
    while claim.delta_at(top) > 1e-12 and top < 256:
        top *= 2
    return tuple(top * i / 32 for i in range(33))


def _check_window(name: str, lower: float, upper: float, tail: float) -> None:
    if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper and 0 <= tail < 1):
        raise ParameterError(
            f"lower and upper of {name} must be finite and in order and its tail a probability; "
            f"were {lower!r}, {upper!r} and {tail!r}. Cut the law where its mass is negligible."
        )


def _edges(p: Density, q: Density, epsilon: float | None) -> Floats:
    """Return panel edges: a grid, the ends, the breaks, and where the loss crosses ``epsilon``.

    Notes
    -----
    The loss is ``log p(x) - log q(x)``. With ``epsilon`` None its crossings are left out.
    """
    ends = {p.lower, p.upper, q.lower, q.upper, *p.breaks, *q.breaks}
    lower, upper = min(p.lower, q.lower), max(p.upper, q.upper)
    grid = np.linspace(lower, upper, max(p.panels, q.panels) + 1)
    edges = np.unique(np.concatenate([grid, [e for e in ends if lower <= e <= upper]]))
    if epsilon is None:
        return edges

    def gap(x: float) -> float:
        at = np.array([x])
        return float((p.logpdf(at) - q.logpdf(at))[0]) - epsilon

    # Inside each panel both laws are smooth, so that the integrand has a kink only where the gap
    # changes sign; panels are narrow enough to change it at most once.
    fine = _nodes(edges, _COARSE)[0].reshape(-1)
    with np.errstate(invalid="ignore"):
        sign = np.sign(p.logpdf(fine) - q.logpdf(fine) - epsilon)
    turns = np.flatnonzero((sign[1:] * sign[:-1]) == -1)
    roots = [find_root(gap, fine[i], fine[i + 1], xtol=1e-14) for i in turns]
    return np.unique(np.concatenate([edges, roots]))


def _nodes(edges: Floats, rule: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Return points and weights of a Gauss rule on every panel, one row each."""
    half = np.diff(edges)[:, np.newaxis] / 2
    middle = (edges[1:] + edges[:-1])[:, np.newaxis] / 2
    return middle + half * rule[0], half * rule[1]


def _integrate(f: Callable[[Floats], Floats], edges: Floats) -> tuple[float, float]:
    """Return the integral over all panels and its error: the differences of the two rules, added up.

    The last term of the error covers rounding.
    """
    fine, coarse = (np.sum(f(x) * w, axis=1) for x, w in (_nodes(edges, rule) for rule in (_FINE, _COARSE)))
    total = math.fsum(fine)
    return total, float(np.abs(fine - coarse).sum()) + 8 * edges.size * _UNIT * abs(total)
