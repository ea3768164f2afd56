"""Noise on integers for a promise."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from discreet.arguments import promise_hint
from discreet.errors import ParameterError, PromiseError
from discreet.noise import discrete_laplace, rounded_gaussian, samplers
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PosteriorOdds, Promise, PureDP
from discreet.privacy.calibration import gaussian_mu, laplace_epsilon, laplace_scale, mu_for_sd, sd_for_mu
from discreet.privacy.receipt import canonical
from discreet.privacy.rounding import (
    check_neighbors,
    exact,
    float_down,
    float_up,
    root_down,
    round_up,
    sampling_delta,
    sqrt_up,
)
from discreet.query.aggregates.base import root_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Floats, Ints
    from discreet.noise import Stream
    from discreet.query.aggregates.base import BoundAggregate
    from discreet.schema import Schema
    from discreet.schema.schema import Neighbors


Law: TypeAlias = Literal["gaussian", "laplace"]
"""Distribution of the noise."""

_LEAST_BITS = 16
_LARGEST_SCALE = 2.0**300  # in integers; the square of a larger one would not be a float
_MOST_BITS = 48  # of a scale on a lattice that is coarser than the integers
_SHORT = 16  # entries of an answer whose noise is kept for the next one alike


class NoiseSource(Protocol):
    """Source of noise: a :class:`~discreet.noise.Pool`, or a seeded stream in tests."""

    def gaussian(self, s: float, n: int = 1) -> Ints:
        """Return `n` rounded Gaussian draws with standard deviation `s`."""

    def laplace(self, scale: float, n: int = 1) -> Ints:
        """Return `n` discrete Laplace draws with scale `scale`."""


class SeededNoise:
    """Noise from a seeded stream: for tests, and marked on the receipt."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def gaussian(self, s: float, n: int = 1) -> Ints:
        """Return `n` rounded Gaussian draws with standard deviation `s`."""
        return rounded_gaussian(s, n, self._stream)

    def laplace(self, scale: float, n: int = 1) -> Ints:
        """Return `n` discrete Laplace draws with scale `scale`."""
        return discrete_laplace(scale, n, self._stream)


@dataclass(frozen=True, kw_only=True)
class QueryNoise:
    """Noise on the integers of one aggregate, and the promise that it keeps.

    Attributes
    ----------
    law : {"gaussian", "laplace"}
        Distribution of the noise.
    promise : Promise or None
        Promise that is charged; None where the answer is the same for all neighbors, which costs nothing.
    scale : float
        Standard deviation, or Laplace scale, of an entry of precision or weight 1, in integers.
    groups : tuple of (float, int)
        For each group of entries, the scale in lattice steps and the bits by which integers are shifted to
        the left; negative for a lattice that is coarser than the integers.
    group : array of int
        Index of the group of each entry.
    """

    law: Law
    promise: Promise | None
    scale: float
    groups: tuple[tuple[float, int], ...]
    group: Ints

    @classmethod
    def calibrate(
        cls,
        bound: BoundAggregate,
        schema: Schema,
        *,
        privacy: Promise | None = None,
        variance: float | None = None,
        law: Law | None = None,
    ) -> QueryNoise:
        """Return the noise of a promise, or the noise of a variance with the promise that it keeps.

        Parameters
        ----------
        bound : BoundAggregate
            Aggregate on a curated table, with its sensitivity.
        schema : Schema
            Declared unit, neighbors and rows of each unit.
        privacy : PureDP, ApproxDP, ZCDP, GaussianDP or PosteriorOdds, optional
            Promise that the answer keeps; None where `variance` is given instead.
        variance : float, optional
            Variance of the noise, in the answer's unit squared; None where `privacy` is given.
        law : {"gaussian", "laplace"}, optional
            Distribution of the noise, one that the request leaves open; None for the first of
            :meth:`candidates`.

        Notes
        -----
        With ``D`` the square root of ``squared`` and ``r`` the rows of a unit, or 1 for a sensitivity that is
        already of a whole unit, an entry of precision ``p`` gets Gaussian noise of standard deviation
        ``s / sqrt(p)``, which keeps ``mu = r D / s``. With ``A`` for ``absolute``, an entry of weight ``w``
        gets Laplace noise of scale ``b / w``, which keeps ``epsilon = r A / b``. All roundings are towards
        more noise and a larger promise.

        Noise of more than 2**50 integers is drawn on a coarser lattice, to which the sum is rounded down
        first. An entry that is rounded to multiples of ``g`` moves by less than ``g`` more than its sum, so
        ``r D`` grows by ``sqrt(sum p g**2)`` and ``r A`` by ``sum w g``.

        Reference
        ---------
        docs/explanation/theorems/sulq-sensitivity.md.
        """
        if (privacy is None) == (variance is None):
            raise ParameterError(
                "privacy and variance of a question must be given one at a time, and are "
                f"{'both' if privacy is not None else 'neither'}. Give for instance "
                "privacy=ApproxDP(epsilon=1, delta=1e-6)."
            )
        check_row_promise(privacy, schema.neighbors)
        if law is None:
            return cls.candidates(bound, schema, privacy=privacy, variance=variance)[0]
        rows = 1 if bound.by_unit else schema.max_rows_per_unit or 1
        # Several rows of one person may all move the same way.
        squared, absolute = rows**2 * bound.squared, rows * bound.absolute
        if (squared if law == "gaussian" else absolute) == 0:
            if schema.neighbors != "replace-one" or schema.row_count != "public":
                raise ParameterError(
                    "A question must depend on a column where the number of rows is not public, and this one "
                    "does not. Add a condition on a column, even one that holds for every row."
                )
            return cls(law=law, promise=None, scale=0.0, groups=(), group=np.zeros(bound.size, np.int64))
        about = _About(schema.unit, schema.neighbors, _rows_assumed(schema))
        target = privacy if variance is None else _scale_of_variance(variance, bound, law)
        assert target is not None
        sensitivity, relative_to = (
            (absolute, bound.weight) if law == "laplace" else (squared, bound.precision)
        )
        make = _short_noise if bound.size <= _SHORT else _make_noise
        return make(law, target, sensitivity, relative_to, about)

    @classmethod
    def candidates(
        cls,
        bound: BoundAggregate,
        schema: Schema,
        *,
        privacy: Promise | None = None,
        variance: float | None = None,
    ) -> tuple[QueryNoise, ...]:
        """Return the noise of each law that a request leaves open, first the one to take without a limit.

        Parameters
        ----------
        bound, schema, privacy, variance
            As for :meth:`calibrate`.

        Returns
        -------
        tuple of QueryNoise
            For an :class:`ApproxDP` promise both laws, first the one with less noise; for a variance both,
            first the Gaussian, of which more fit any total; for other promises the one that they name.

        Notes
        -----
        Laplace noise of the same epsilon keeps (epsilon, delta), if delta covers what its sampler may err.
        Of vectors the geometric mean of the standard deviations is compared, in which units cancel.
        """
        noises: list[QueryNoise] = []
        errors: list[PromiseError] = []
        for law in _open_laws(bound, privacy, variance):
            try:
                noises.append(cls.calibrate(bound, schema, privacy=privacy, variance=variance, law=law))
            except PromiseError as error:
                errors.append(error)
        if not noises:
            raise errors[0]
        if len(noises) == 1 or noises[0].promise is None:
            return (noises[0],)
        return tuple(sorted(noises, key=cls.log_sd) if privacy is not None else noises)

    def log_sd(self) -> float:
        """Return the sum of the logarithms of the entries' standard deviations, in integers."""
        if self.promise is None:
            return 0.0
        spread = math.sqrt(2) if self.law == "laplace" else 1.0
        sizes = np.bincount(self.group, minlength=len(self.groups)).tolist()
        return math.fsum(
            size * math.log(math.ldexp(spread * scale, -bits))
            for size, (scale, bits) in zip(sizes, self.groups, strict=True)
        )

    def sd(self, bound: BoundAggregate) -> Floats:
        """Return the standard deviation of the noise on each entry, in its own unit."""
        if self.promise is None:
            return np.zeros(bound.size)
        spread = math.sqrt(2) if self.law == "laplace" else 1.0
        scales = np.array([math.ldexp(scale, -bits) for scale, bits in self.groups])
        sds: Floats = spread * scales[self.group] * np.abs(bound.unit)
        return sds

    def add_noise(self, integers: Sequence[int], draws: NoiseSource) -> list[int]:
        """Return the integers with noise, each in steps of its own lattice."""
        if self.promise is None:
            return list(integers)
        draw = draws.gaussian if self.law == "gaussian" else draws.laplace
        if len(self.groups) == 1:
            # The same without looking up places, in a third of the time: a tree has a million counts.
            ((scale, bits),) = self.groups
            drawn = draw(scale, len(integers)).tolist()
            if bits >= 0:
                return [(own << bits) + noise for own, noise in zip(integers, drawn, strict=True)]
            return [(own >> -bits) + noise for own, noise in zip(integers, drawn, strict=True)]
        noisy = list(integers)
        for i, (scale, bits) in enumerate(self.groups):
            places = np.flatnonzero(self.group == i)
            for place, noise in zip(places.tolist(), draw(scale, len(places)).tolist(), strict=True):
                noisy[place] = shift_bits(noisy[place], bits) + noise
        return noisy

    def values(self, noisy: Sequence[int], bound: BoundAggregate, n_rows: int | None) -> Floats:
        """Return the values that noisy integers stand for, by post-processing alone."""
        bits = np.array([bits for _, bits in self.groups] or [0])
        # A whole number is rounded once, however large it is; to shift its bits is exact.
        floats = np.ldexp(np.array(noisy, np.float64), -bits[self.group])
        entries: Floats = floats * bound.unit + (bound.shift * n_rows if n_rows is not None else 0.0)
        return entries

    def canonical(self) -> list[Any]:
        """Return JSON values that fix the noise."""
        return [self.law, self.scale, [list(group) for group in self.groups]]

    @cached_property
    def canonical_text(self) -> str:
        """Canonical JSON of noise and promise."""
        return canonical([self.canonical(), None if self.promise is None else self.promise.to_dict()])


def _make_noise(
    law: Law, request: Promise | float, sensitivity: int, relative_to: tuple[int, ...], about: _About
) -> QueryNoise:
    """Return the noise of one law.

    Parameters
    ----------
    law : {"gaussian", "laplace"}
        Distribution of the noise.
    request : Promise or float
        Promise that the answer keeps, or the scale of an entry of precision or weight 1, in integers.
    sensitivity : int
        Square of the distance by which one unit moves the answer; under Laplace noise its absolute change.
    relative_to : tuple of int
        Precision of each entry; under Laplace noise its weight.
    about : _About
        Unit, neighbors and assumptions that the promise states.
    """
    size, by = len(relative_to), Counter(relative_to)

    def scales(sensitivity: int) -> tuple[float, Promise, dict[int, float]]:
        """Return the scale of an entry of precision or weight 1, its promise, and all scales."""
        if law == "laplace":
            scale, pure = _laplace(request, sensitivity, size, about)
            return scale, pure, {w: scale if w == 1 else round_up(Fraction(scale) / w) for w in by}
        scale, gaussian = _gaussian(request, sensitivity, size, about)
        relative = {p: scale if p == 1 else sqrt_up(Fraction(scale) ** 2 / p) for p in by}
        return scale, gaussian, relative

    scale, promise, relative = scales(sensitivity)
    bits = {kind: _lattice_bits(one) for kind, one in relative.items()}
    coarse = {kind: 2**-finer for kind, finer in bits.items() if finer < 0}
    if coarse:
        if law == "laplace":
            sensitivity += sum(by[w] * w * g for w, g in coarse.items())
        else:
            distance = root_up(sensitivity) + root_up(sum(by[p] * p * g**2 for p, g in coarse.items()))
            sensitivity = distance**2
        scale, promise, relative = scales(sensitivity)
    kinds = sorted(relative)
    index = {kind: i for i, kind in enumerate(kinds)}
    group = np.zeros(size, np.int64)
    if len(kinds) > 1:
        group[:] = [index[kind] for kind in relative_to]
    group.flags.writeable = False  # several answers share it
    return QueryNoise(
        law=law,
        promise=promise,
        scale=scale,
        groups=tuple(_lattice(relative[kind], bits[kind]) for kind in kinds),
        group=group,
    )


# Cached, because most questions to a service are counts under the same few promises.
_short_noise = lru_cache(maxsize=512)(_make_noise)


def _open_laws(bound: BoundAggregate, privacy: Promise | None, variance: float | None) -> tuple[Law, ...]:
    """Return the laws by which a request may be answered."""
    if variance is not None:
        # Entries of other precisions than 1 must get the same variances by both laws.
        alike = all(w * w == p for w, p in set(zip(bound.weight, bound.precision, strict=True)))
        return ("gaussian", "laplace") if alike else ("gaussian",)
    if isinstance(privacy, ApproxDP):
        return ("gaussian", "laplace")
    return ("laplace",) if _is_pure(privacy) else ("gaussian",)


def _is_pure(privacy: Promise | None) -> bool:
    if isinstance(privacy, PosteriorOdds):
        return privacy.theorem == "theorem 5"
    return isinstance(privacy, PureDP)


class _About(NamedTuple):
    """Unit and neighbors that a promise protects, and its assumptions."""

    unit: str
    neighbors: Neighbors
    assumes: tuple[str, ...]


def _rows_assumed(schema: Schema) -> tuple[str, ...]:
    """Return how many rows of a unit a promise covers, as text, where the schema has an id column."""
    if schema.id_column is None:
        return ()
    most = schema.max_rows_per_unit
    one = most == 1
    used = f"at most {most} row{'' if one else 's'} of each {schema.unit} {'is' if one else 'are'} used"
    known = ("how many rows each unit has is public",) if schema.neighbors == "replace-one" else ()
    return (used, *known)


@lru_cache(maxsize=1024)
def _gaussian(target: Promise | float, squared: int, size: int, about: _About) -> tuple[float, GaussianDP]:
    """Return the standard deviation, in integers, of an entry of precision 1, and its promise.

    Cached, because many aggregates are asked under the same few promises.
    """
    distance = sqrt_up(Fraction(squared))
    variation = size * samplers.GAUSSIAN_TOTAL_VARIATION
    if isinstance(target, float):
        scale = target
    elif isinstance(target, PosteriorOdds):
        scale = sd_for_mu(target.gaussian_share, distance)
    else:
        scale = sd_for_mu(mu_of(target, variation), distance)
    if scale > _LARGEST_SCALE:
        raise _too_wide()
    mu = mu_for_sd(distance, scale)
    return scale, GaussianDP(mu=mu, total_variation=variation, **about._asdict())


@lru_cache(maxsize=1024)
def _laplace(target: Promise | float, absolute: int, size: int, about: _About) -> tuple[float, PureDP]:
    """Return the scale, in integers, of an entry of weight 1, and its promise."""
    variation = size * samplers.LAPLACE_TOTAL_VARIATION
    if isinstance(target, float):
        scale = target
    else:
        assert isinstance(target, PureDP | ApproxDP | PosteriorOdds)
        if isinstance(target, ApproxDP):
            _delta_left(target, variation)
        epsilon = target.pure_share if isinstance(target, PosteriorOdds) else target.epsilon
        scale = laplace_scale(float_up(Fraction(absolute)), epsilon)
    if scale > _LARGEST_SCALE:
        raise _too_wide()
    epsilon = laplace_epsilon(float_up(Fraction(absolute)), scale)
    return scale, PureDP(epsilon=epsilon, total_variation=variation, **about._asdict())


def mu_of(privacy: Promise | None, variation: float) -> float:
    """Return the largest mu that keeps a promise, for samplers with an error in total variation."""
    if isinstance(privacy, GaussianDP):
        return privacy.mu
    if isinstance(privacy, ZCDP):
        return root_down(2 * exact(privacy.rho))
    assert isinstance(privacy, ApproxDP)
    return gaussian_mu(privacy.epsilon, _delta_left(privacy, variation))


def _delta_left(privacy: ApproxDP, variation: float) -> float:
    """Return delta less what samplers with an error in total variation may add to it, rounded down."""
    left = float_down(exact(privacy.delta) - sampling_delta(exact(variation), privacy.epsilon))
    if left > 0:
        return left
    raise PromiseError(
        f"delta of {privacy} must be above what the sampler itself may err, and is not. Ask for a larger one."
    )


def check_row_promise(privacy: Promise | None, neighbors: Neighbors) -> None:
    """Refuse a promise that is not about whole rows under these neighbors."""
    if privacy is None:
        return
    if not isinstance(privacy, PureDP | ApproxDP | ZCDP | GaussianDP | PosteriorOdds):
        raise PromiseError(
            f"privacy of a question must be PureDP, ApproxDP, ZCDP, GaussianDP or PosteriorOdds, was "
            f"{type(privacy).__name__}. "
            + (promise_hint(privacy) or "An answer is about the whole table: ask for differential privacy.")
        )
    if privacy.covers is not None:
        raise PromiseError(
            f"privacy of a question must be about whole rows, and covers {', '.join(privacy.covers)} alone. "
            "Leave covers out."
        )
    check_neighbors(privacy, neighbors, "a question")


def _scale_of_variance(variance: float, bound: BoundAggregate, law: Law) -> float:
    """Return the scale of a law of an entry of precision 1, in integers, for a variance; rounded up."""
    if not (isinstance(variance, int | float) and math.isfinite(variance) and variance > 0):
        raise ParameterError(f"variance of a question must be a number above 0, was {variance!r}.")
    if not bound.plain_unit:
        raise ParameterError(
            "variance of a question must be of entries in one unit, and this one has several. Give privacy=."
        )
    # A Laplace distribution of scale b has the variance 2 b**2.
    of_scale = 2 if law == "laplace" else 1
    return sqrt_up(Fraction(variance) / (of_scale * Fraction(bound.plain_unit) ** 2))


def shift_bits(integer: int, bits: int) -> int:
    """Return an integer in steps of a lattice that is finer by some bits; rounded down if it is coarser."""
    return integer << bits if bits >= 0 else integer >> -bits


def _lattice_bits(scale: float) -> int:
    """Return the bits by which a lattice step is finer than an integer; negative for a coarser one."""
    exponent = math.frexp(scale)[1]
    if scale > samplers.LARGEST_SCALE:
        return _MOST_BITS - exponent
    return max(0, _LEAST_BITS + 1 - exponent)


def _lattice(scale: float, bits: int) -> tuple[float, int]:
    """Return the scale in lattice steps, with the bits by which a lattice step is finer than an integer."""
    steps = math.ldexp(scale, bits)
    if steps > samplers.LARGEST_SCALE:
        raise _too_wide()
    return steps, bits


def _too_wide() -> PromiseError:
    return PromiseError(
        "privacy of a question must leave noise that can be drawn, and asks for more. "
        "Ask for a weaker promise, or about fewer columns: nothing could be read off such an answer."
    )
