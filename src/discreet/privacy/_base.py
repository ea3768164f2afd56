"""Base class of all promises: protected unit, covered columns, readings as (epsilon, delta), dictionaries."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from discreet.arguments import CheckedArguments
from discreet.errors import ParameterError, PromiseError
from discreet.privacy.rounding import exact, finite, float_up, sampling_delta, smallest_epsilon, whole

if TYPE_CHECKING:
    from fractions import Fraction
    from typing import Self

    from discreet.schema.schema import Neighbors

Arithmetic: TypeAlias = Literal["exact", "real"]
Statistic: TypeAlias = Literal["root-mean-square error", "probability of a wrong guess"]

_CHOICES = {
    "neighbors": ("replace-one", "add-remove"),
    "arithmetic": ("exact", "real"),
    "statistic": ("root-mean-square error", "probability of a wrong guess"),
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Promise(metaclass=CheckedArguments):
    """Abstract base of all promises, with the fields that they share.

    Parameters
    ----------
    unit : str
        Protected unit in the singular, such as "person" or "row": neighbors differ in one of them.
    neighbors : {"replace-one", "add-remove"}
        Relation between neighboring tables: one unit exchanged for another, or one more or less.
    covers : tuple of str or None
        Columns to which the promise is restricted: neighbors differ in these alone. None for all that the
        result depends on.
    assumes : tuple of str
        Assumptions as sentences; the promise is void if one of them is false.
    arithmetic : {"exact", "real"}
        "real" if the proof is about real numbers and the program used 64-bit ones.
    total_variation : float
        Largest total variation distance between the sampler's law and the theorem's, over all draws of the
        release; in [0, 1).

    Privacy
    -------
    Read as (epsilon, delta), a sampler within total variation tau of its theorem costs
    ``(1 + exp(epsilon)) * tau`` more delta; every reading includes it.

    Reference
    ---------
    ``docs/explanation/theorems/composition.md``.
    """

    kind: ClassVar[str] = ""

    unit: str = "person"
    neighbors: Neighbors = "replace-one"
    covers: tuple[str, ...] | None = None
    assumes: tuple[str, ...] = ()
    arithmetic: Arithmetic = "exact"
    total_variation: float = 0.0

    def _check_common(self) -> None:
        """Check and normalize the fields that all promises share."""
        name = type(self).__name__
        if not isinstance(self.unit, str) or not self.unit:
            raise ParameterError(
                f"unit of {name} must be a word such as 'row' or 'person', got {self.unit!r}. "
                "A column of that name goes into a mapping: ErrorFloor({'unit': 9})."
            )
        for choice in ("neighbors", "arithmetic"):
            check_choice(name, choice, getattr(self, choice))
        if self.covers is not None:
            set_field(self, "covers", check_names(name, "covers", self.covers))
            if not self.covers:
                raise ParameterError(
                    f"covers of {name} must name at least one column, got none. "
                    "Use covers=None for the whole row, or NoPromise for nothing."
                )
        set_field(self, "assumes", check_names(name, "assumes", self.assumes))
        tau = finite(
            name, "total_variation", self.total_variation, least=0.0, below=1.0,
            way_out="It is the sampler's distance from its law, about 2**-117 per draw.",
        )  # fmt: skip
        set_field(self, "total_variation", tau)

    # Each kind's curve for a perfect sampler; the public readings add the total variation.
    def _ideal_delta(self, epsilon: float) -> float:
        raise self._no_epsilon()

    def _ideal_epsilon(self, delta: float) -> float:
        raise self._no_epsilon()

    def _no_epsilon(self) -> PromiseError:
        return PromiseError(
            f"{type(self).__name__} has no epsilon: it does not bound how far one {self.unit} can "
            "move the probability of a result. Ask for a promise of differential privacy instead."
        )

    def delta_at(self, epsilon: float) -> float:
        """Return the smallest proven delta at `epsilon`, rounded up, total variation included."""
        epsilon = finite(
            f"{type(self).__name__}.delta_at", "epsilon", epsilon, least=0.0,
            way_out="Zero asks for the total variation between neighbors.",
        )  # fmt: skip
        # The curve was rounded up by itself; the sum is exact, and rounded up once more.
        return min(1.0, float_up(exact(self._ideal_delta(epsilon)) + self._sampler_delta(epsilon)))

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest proven epsilon at `delta`, rounded up, total variation included."""
        delta = finite(
            f"{type(self).__name__}.epsilon_at", "delta", delta, least=0.0, below=1.0,
            way_out="A delta of 1 promises nothing.",
        )  # fmt: skip
        return smallest_epsilon(self._ideal_epsilon, delta, exact(self.total_variation))

    def _sampler_delta(self, epsilon: float) -> Fraction:
        return sampling_delta(exact(self.total_variation), epsilon)

    def group(self, m: int, *, unit: str | None = None) -> Promise:
        """Return the promise for a unit that owns up to `m` rows.

        Parameters
        ----------
        m : int
            Largest number of rows per unit; at least 1.
        unit : str, optional
            Name of the larger unit; None for "group of m rows".

        Privacy
        -------
        Changing m rows is m steps of one row each. Pure: ``m epsilon``. Approximate:
        ``(m epsilon, delta (exp(m epsilon) - 1) / (exp(epsilon) - 1))``. Gaussian: ``m mu``.
        Concentrated: ``m**2 rho``. Floors: m-fold Fisher information. The sampler's total variation
        stays, since it compares one table's law with the theorem's law for the same table.

        Reference
        ---------
        Dwork and Roth 2014, theorem 2.2; Bun and Steinke 2016, proposition 1.9.
        """
        m = whole(
            f"{type(self).__name__}.group",
            "m",
            m,
            least=1,
            way_out="It is the largest number of rows that one unit owns.",
        )
        # A group of one is the same promise, and keeps its exact numbers.
        name = unit or (self.unit if m == 1 else f"group of {m} {self.unit}s")
        return dataclasses.replace(self if m == 1 else self._extend_to_group(m), unit=name)

    @abstractmethod
    def _extend_to_group(self, m: int) -> Self:
        """Return the promise for m rows, m at least 2."""

    @abstractmethod
    def sentence(self) -> str:
        """Say the promise in plain language."""

    def _difference(self) -> str:
        return f"Replacing one {self.unit}" if self.neighbors == "replace-one" else (
            f"Adding or removing one {self.unit}"
        )  # fmt: skip

    def _about(self) -> str:
        """Return the end of the plain sentence: covered columns, assumptions and arithmetic."""
        parts = []
        if self.covers is not None:
            parts.append(f"This covers {', '.join(self.covers)} and nothing else.")
        if self.assumes:
            parts.append("Assumed: " + "; ".join(self.assumes) + ".")
        if self.arithmetic == "real":
            parts.append("Proven for real numbers, computed with 64-bit ones.")
        return "".join(f" {part}" for part in parts)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, from which :func:`promise_from_dict` makes an equal promise."""
        values: dict[str, Any] = {"kind": self.kind}
        for name in _field_names(type(self)):
            value = getattr(self, name)
            values[name] = list(value) if isinstance(value, tuple) else value
        return values

    def __repr__(self) -> str:
        # Fields of this kind of promise come first; shared fields only where they differ from their defaults.
        own = [item for item in dataclasses.fields(self) if item.name not in _COMMON]
        shared = [item for item in dataclasses.fields(self) if item.name in _COMMON]
        shown = [f"{item.name}={getattr(self, item.name)!r}" for item in own]
        shown += [
            f"{item.name}={getattr(self, item.name)!r}"
            for item in shared
            if getattr(self, item.name) != item.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


_COMMON = frozenset(item.name for item in dataclasses.fields(Promise))


@cache
def _field_names(kind: type[Promise]) -> tuple[str, ...]:
    """Return the names of the fields of one kind of promise, in their order."""
    return tuple(item.name for item in dataclasses.fields(kind))


def set_field(target: object, name: str, value: object) -> None:
    """Set a field of a frozen dataclass during its construction."""
    object.__setattr__(target, name, value)


def check_names(owner: str, parameter: str, value: Any) -> tuple[str, ...]:
    """Return the names, each once; raise ParameterError if the value is no sequence of names."""
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name for name in value):
        raise ParameterError(
            f"{parameter} of {owner} must be a tuple of strings, got {value!r}. "
            f"For one entry write {parameter}=('name',)."
        )
    # Each once, in the order given: two spellings of one promise must be equal.
    return tuple(dict.fromkeys(value))


def check_choice(owner: str, parameter: str, value: object) -> None:
    """Raise ParameterError unless the value is among the choices of the parameter."""
    if value not in _CHOICES[parameter]:
        raise ParameterError(
            f"{parameter} of {owner} must be one of {', '.join(_CHOICES[parameter])}, "
            f"got {value!r}. Take the one that the proof was written for."
        )


def check_positive(owner: object, name: str, *, below: float | None = None) -> None:
    """Convert a field to float; raise ParameterError unless it is finite, above 0 and below the limit."""
    way_out = "Use NoPromise if nothing is promised."
    value = finite(type(owner).__name__, name, getattr(owner, name), above=0.0, below=below, way_out=way_out)
    set_field(owner, name, value)
