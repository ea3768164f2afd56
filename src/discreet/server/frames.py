"""What a service tells, for people with a notebook: answers, prices and tables that become frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf

from discreet.errors import MissingExtra
from discreet.privacy import Promise, promise_from_dict

Number: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Noise: TypeAlias = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Whole: TypeAlias = Annotated[int, Field(strict=True, ge=0)]


def _promise(value: Any) -> Any:
    return promise_from_dict(value) if isinstance(value, Mapping) else value


Promised: TypeAlias = Annotated[InstanceOf[Promise], BeforeValidator(_promise)]


class Frame:
    """Named columns of equal length, for the library of your choice.

    Parameters
    ----------
    columns : mapping of str to sequence
        The cells, column by column.
    """

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        self.columns: dict[str, list[Any]] = {name: list(cells) for name, cells in columns.items()}

    @classmethod
    def of_rows(cls, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Frame:
        """Make one of rows that have these names."""
        return cls({name: [row.get(name) for row in rows] for name in names})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def __repr__(self) -> str:
        return f"Frame({len(self)} rows: {', '.join(self.columns)})"

    def to_pandas(self) -> Any:
        """Return a pandas data frame."""
        return _package("pandas").DataFrame(self.columns)

    def to_polars(self) -> Any:
        """Return a polars data frame; columns whose cells are lists keep them as Python objects."""
        polars = _package("polars")
        nested = [
            name for name, cells in self.columns.items() if any(isinstance(c, list | dict) for c in cells)
        ]
        # Cells of one column may be whole numbers in one row and not in the next.
        return polars.DataFrame(
            self.columns, strict=False, schema_overrides=dict.fromkeys(nested, polars.Object)
        )


class _Told(BaseModel):
    # A newer service may say more than is understood here; nothing that is missing is made up.
    model_config = ConfigDict(frozen=True, extra="ignore", arbitrary_types_allowed=True)


class Cell(_Told):
    """One number of an answer; value and ends are None for a mean over too few rows."""

    key: tuple[str, ...]
    value: Number | None
    sd: Noise | None
    lower: Number | None
    upper: Number | None


class Interval(_Told):
    """Where the exact number lies, for all that noise does, with probability ``level``."""

    level: Annotated[float, Field(gt=0, lt=1)]
    lower: Number | None
    upper: Number | None


class Amounts(_Told):
    """One budget, in the currencies of its limit; without a limit nothing can be said to be left."""

    limit: Promised | None
    spent: dict[str, Number]
    left: dict[str, Number] | None


class Budget(_Told):
    """What the holder of a token, and everybody together, may spend, has spent and has left."""

    own: Amounts | None
    total: Amounts | None
    collusion: str | None = None


class RemoteAnswer(_Told):
    """What a service answered to a sentence.

    Attributes
    ----------
    question, measure, by
        The question as it was understood, the unit of its answer, the columns of its groups.
    cells : tuple of Cell
        One, or one for each group, also for those that no row is in.
    value, sd, interval
        Of an answer without groups.
    law : str
        Of the noise.
    cost, cost_words, cached
        What the answer promises and was charged, in words too; whether it had been paid for before.
    receipts, parts
        Ids of the charges, and of what was merged into a refined answer.
    remaining : mapping
        What is left, and for how many more like this.

    Privacy
    -------
    Everything in it may be published, for the cost that it names.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    kind: Literal["answer"]
    question: str | dict[str, Any]
    measure: str | None
    by: tuple[str, ...]
    cells: tuple[Cell, ...]
    value: Number | None
    sd: Noise | None
    interval: Interval | None
    law: str | None
    cost: tuple[Promised, ...]
    cost_words: str
    cached: bool
    receipts: tuple[str, ...]
    parts: tuple[tuple[str, ...], ...] = ()
    remaining: dict[str, Any]

    @property
    def frame(self) -> Frame:
        """The cells, one row each."""
        keys = {name: [cell.key[i] for cell in self.cells] for i, name in enumerate(self.by)}
        told = {
            name: [getattr(cell, name) for cell in self.cells] for name in ("value", "sd", "lower", "upper")
        }
        # A column of the table may have one of our names.
        return Frame({**keys, **{f"noisy {n}" if n in keys else n: cells for n, cells in told.items()}})

    def to_pandas(self) -> Any:
        """Return the cells as a pandas data frame."""
        return self.frame.to_pandas()

    def to_polars(self) -> Any:
        """Return the cells as a polars data frame."""
        return self.frame.to_polars()


class RemotePrice(_Told):
    """What a sentence would cost, and how noisy its answer would be. Nothing was charged.

    Attributes
    ----------
    question, sql, measure
        The question as it was understood, in both of its forms; the unit of its answer.
    sd, margin : float or None
        Of the noise, and how far it may be off at 95 %; None if that depends on what is not public.
    cost, cost_words
        What would be charged.
    more : int or None
        How many like this what is left would pay for.
    free : bool
        Whether nothing would be charged: the holder of the token has paid for it already, or it follows from
        what is public.
    """

    kind: Literal["price"]
    question: str | dict[str, Any]
    sql: str | None = None
    measure: str | None
    sd: Noise | None
    margin: Noise | None
    cost: tuple[Promised, ...]
    cost_words: str
    remaining: dict[str, Any]
    more: Whole | None
    free: bool = False


def _package(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise MissingExtra(
            f"A frame of {name} needs {name}, which is not installed. Install it with: pip install {name}"
        ) from None
