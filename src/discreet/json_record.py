"""Dataclasses of plain values that are written as JSON and read back."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

from discreet.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping


class JsonRecord:
    """JSON round trip of a dataclass whose fields are plain values, under its `kind`."""

    __slots__ = ()
    kind: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, from which :meth:`from_dict` makes an equal value."""
        return {"kind": self.kind, **{item.name: getattr(self, item.name) for item in fields(self)}}  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the value that :meth:`to_dict` wrote; unknown kinds and keys are refused."""
        rest = dict(values)
        names = {item.name for item in fields(cls)}  # type: ignore[arg-type]
        if rest.pop("kind", None) != cls.kind or set(rest) != names:
            odd = ", ".join(sorted(set(rest) ^ names)) or "none"
            raise ParameterError(
                f"values of {cls.__name__}.from_dict must have the kind {cls.kind!r} and the keys "
                f"{', '.join(sorted(names))}; kind {values.get('kind')!r}, missing or unknown keys: {odd}. "
                "Write them with to_dict()."
            )
        return cls(**rest)
