"""Declaration of one column: what its cells may contain, made public before any row is read."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np

from discreet.arguments import CheckedArguments
from discreet.errors import ParameterError, SchemaError
from discreet.schema.column_checks import LARGEST_NUMBER, STEPS, column_problems
from discreet.schema.notation import PYTHON, Notation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray, Floats
    from discreet.schema.dialect import TextFormat

Type: TypeAlias = Literal["number", "integer", "category", "date", "datetime", "id", "text"]
Role: TypeAlias = Literal["sensitive", "target", "public", "id", "drop"]
Scale: TypeAlias = Literal["linear", "log"]
Step: TypeAlias = Literal["hour", "minute", "second"]
Level: TypeAlias = str | int | bool | None  # None is the level of a missing cell


@dataclass(frozen=True, slots=True)
class Protect:
    """Protection requested for one column: exactly one of error and share.

    Parameters
    ----------
    error : float, optional
        Least root-mean-square error of any guess at a cell, in the column's own unit; for a category
        the least probability of a wrong guess. None to use the share.
    share : float, optional
        Share of the table's epsilon that is spent on this column, between 0 and 1; None to use the error.
    """

    _: KW_ONLY
    error: float | None = None
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Column(metaclass=CheckedArguments):
    """Declaration of the values that the cells of one column may have.

    Parameters
    ----------
    name : str
        Name of the column in the table.
    type : {"number", "integer", "category", "date", "datetime", "id", "text"}, optional
        Type of the cells. None infers it: ``values`` make a category, dates or datetimes as bounds a date
        or datetime, bounds a number. Integers are never inferred: give ``type="integer"``, because the error
        that noise enforces on them is smaller.
    lower, upper : float, int, datetime.date or datetime.datetime
        Smallest and largest possible value of a cell. Cells outside are clipped without a warning. Datetimes
        have no time zone; cells that have one are read in UTC.
    values : tuple of str, of int or of bool
        All values that a category may have. Cells with any other value become :attr:`other`.
    role : {"sensitive", "target", "public", "id", "drop"}, default "sensitive"
        Use of the column. Ids and dropped columns are never published.
    required : bool, default True
        Whether no cell may be missing. If not, "missing" is published too, as a level of a category or
        as a flag beside a number, and is randomized like any other value.
    closed : bool, optional
        Whether ``values`` is complete, so that ``"other"`` is not added. By default a target, and a
        list of integers or booleans, is closed; a list of strings is open.
    measure : str, optional
        Name of the column's unit, such as years or EUR.
    protect : Protect, optional
        Protection requested for the column, as ``Protect(error=9)`` or ``Protect(share=0.5)``.
    bounds_source : str, optional
        Authority for the bounds or the list: a codebook, a law, an instrument.
    grid : float, optional
        Public step to which published numbers may be rounded; it divides the range.
    cells : tuple of float, int, datetime.date or datetime.datetime, optional
        For numbers, dates and datetimes, the values at which the second and later classes begin in which
        people think of the column. Synthetic tables and learners on cells count rows by them; None lets them
        cut classes by noisy counts or public rules.
    step : {"hour", "minute", "second"}, optional
        Step to which a datetime is rounded down when it is read, and in which it is counted and protected;
        a minute by default. Only for datetimes.
    scale : {"linear", "log"}, optional
        Scale on which a synthetic table looks for classes: equal differences, or equal ratios where most
        values are small and few are large. None chooses by the range.
    missing_values : tuple of str, optional
        Texts or numbers that stand for a missing cell in this column, such as ``("99",)``; None takes those
        of the table.
    text : TextFormat, optional
        How cells are written where they are text: format of dates, signs in numbers, units, words for true
        and false. None takes the dialect of the table.
    title, description : str, optional
        Title and description for people; None for none.
    notation : Notation
        Notation of error messages: that of Python or of a schema file.

    Privacy
    -------
    Everything here is published unchanged, so nothing here may come from the rows: a bound read off the
    data is a fact about the person who has that value.

    Reference
    ---------
    In a file: a field of Frictionless Table Schema with a ``privacy`` block,
    ``docs/reference/schema.md``.

    Examples
    --------
    >>> Column("age", lower=0, upper=120).width
    120.0
    >>> Column("job", values=("clerk", "nurse"), required=False).levels
    ('clerk', 'nurse', 'other', None)
    """

    largest: ClassVar[float] = LARGEST_NUMBER

    name: str
    _: KW_ONLY
    type: Type | None = None
    lower: float | int | datetime.date | None = None
    upper: float | int | datetime.date | None = None
    values: tuple[Level, ...] | None = None
    role: Role = "sensitive"
    required: bool = True
    closed: bool | None = None
    measure: str | None = None
    protect: Protect | None = None
    bounds_source: str | None = None
    grid: float | None = None
    cells: tuple[float | int | datetime.date, ...] | None = None
    step: Step | None = None
    scale: Scale | None = None
    missing_values: tuple[str, ...] | None = None
    text: TextFormat | None = None
    title: str | None = None
    description: str | None = None
    notation: InitVar[Notation] = PYTHON

    def __post_init__(self, notation: Notation) -> None:
        _normalize(self)
        problems = column_problems(self, notation)
        if problems:
            raise SchemaError(*problems)

    @property
    def is_number(self) -> bool:
        """Whether cells have an order and a distance: numbers, integers, dates and datetimes."""
        return self.type in ("number", "integer", "date", "datetime")

    @property
    def is_whole(self) -> bool:
        """Whether cells are whole numbers: integers, days of dates and steps of datetimes."""
        return self.type in ("integer", "date", "datetime")

    @property
    def is_calendar(self) -> bool:
        """Whether cells are dates or datetimes, which are counted in steps since the lower bound."""
        return self.type in ("date", "datetime")

    @property
    def step_length(self) -> datetime.timedelta:
        """Step in which a date or datetime is counted: a day, or the declared step."""
        return datetime.timedelta(seconds=STEPS.get(str(self.step), 86_400))

    @property
    def unit_name(self) -> str | None:
        """Name of the unit in which cells are counted: as declared, or that of dates and datetimes."""
        if self.measure is not None or not self.is_calendar:
            return self.measure
        return "days" if self.step is None else f"{self.step}s"

    @property
    def is_category(self) -> bool:
        """Whether cells come from a declared list."""
        return self.type == "category"

    @property
    def is_released(self) -> bool:
        """Whether the column is part of what is published; ids and dropped columns are not."""
        return self.role in ("sensitive", "target", "public")

    @property
    def is_closed(self) -> bool:
        """Whether the declared list is complete, so that an unlisted cell is an error."""
        if self.closed is not None:
            return self.closed
        # "other" beside 0 and 1 would turn a column of numbers into one of strings, and an unlisted
        # class is not something a learner can be asked to predict.
        return self.role == "target" or not _describe_texts(self.values or ())[0]

    @property
    def other(self) -> str | None:
        """Level that stands for all unlisted values; None if the list is closed."""
        if not self.is_category or self.is_closed:
            return None
        return _describe_texts(self.values or ())[1]

    @property
    def levels(self) -> tuple[Level, ...]:
        """All values that may be published of a category; ``None`` stands for a missing cell."""
        if not self.is_category:
            return ()
        levels = self.values or ()
        other = self.other
        if other is not None and other not in levels:
            levels += (other,)
        return levels if self.required else (*levels, None)

    @property
    def missing_flag(self) -> str | None:
        """Name of the flag published beside a number that may be missing; None if it may not."""
        return f"{self.name}_missing" if self.is_number and not self.required else None

    @property
    def range(self) -> tuple[float, float]:
        """Bounds as floats; dates and datetimes are counted in steps since the lower bound."""
        lower, upper = self.lower, self.upper
        if not self.is_number or lower is None or upper is None:
            raise ParameterError(
                f"Column {self.name!r} must have bounds for its range to be asked, and has none. "
                "Ask is_number first, and leave dropped columns out."
            )
        if isinstance(lower, datetime.date) or isinstance(upper, datetime.date):
            assert isinstance(lower, datetime.date)
            assert isinstance(upper, datetime.date)
            return 0.0, float((upper - lower) // self.step_length)
        return float(lower), float(upper)

    @property
    def cell_starts(self) -> tuple[float, ...] | None:
        """Declared cells as floats, dates in steps since the lower bound; None where none are declared."""
        if self.cells is None:
            return None
        if self.is_calendar:
            return tuple(self.count_steps(np.array(self.cells, dtype="datetime64[us]")).tolist())
        return tuple(float(edge) for edge in self.cells if not isinstance(edge, datetime.date))

    @property
    def width(self) -> float:
        """Upper minus lower bound, for dates and datetimes in steps."""
        lower, upper = self.range
        return upper - lower

    @property
    def n_integers(self) -> int:
        """Number of possible values of an integer column, a date or a datetime."""
        if not self.is_whole:
            raise ParameterError(
                f"Column {self.name!r} must be of type integer, date or datetime for its values to be "
                f"counted, was {self.type}. Declare type='integer' if its cells are whole numbers."
            )
        return round(self.width) + 1

    @property
    def fill(self) -> float:
        """Public number in place of a missing cell: the middle of the range, rounded down for integers."""
        lower, upper = self.range
        middle = lower + (upper - lower) / 2
        return middle if self.type == "number" else float(np.floor(middle))

    def clip(self, values: AnyArray) -> Floats:
        """Return the numbers clipped to the bounds, without a warning.

        Parameters
        ----------
        values : array of numbers
            Cells of the column; dates as steps since the lower bound, see :meth:`count_steps`.

        Returns
        -------
        array of float64
            NaN means missing and stays NaN; infinities go to the bounds; -0.0 becomes 0.0.
        """
        lower, upper = self.range
        # + 0.0: the sign of a zero is a bit of the original that the bounds do not account for.
        return np.clip(np.asarray(values, dtype=np.float64), lower, upper) + 0.0

    def count_steps(self, moments: AnyArray) -> Floats:
        """Return dates or datetimes as whole steps since the lower bound; a missing one (NaT) becomes NaN."""
        first, step = self._first_moment()
        since = np.asarray(moments, dtype="datetime64[us]") - first
        missing = np.isnat(since)
        whole = np.where(missing, np.timedelta64(0, "us"), since) // step
        return np.where(missing, np.nan, whole.astype(np.float64))

    def moments(self, steps: AnyArray) -> AnyArray:
        """Return steps since the lower bound, rounded, as dates or datetimes; NaN becomes NaT."""
        first, step = self._first_moment()
        counted = np.asarray(steps, dtype=np.float64)
        whole = np.where(np.isnan(counted), 0.0, np.rint(counted)).astype(np.int64)
        found = np.where(np.isnan(counted), np.datetime64("NaT", "us"), first + whole * step)
        return found.astype("datetime64[D]" if self.type == "date" else "datetime64[s]")

    def moment(self, step: float) -> datetime.date:
        """Return a number of steps since the lower bound, rounded, as a date or datetime."""
        return self._lowest_date() + round(step) * self.step_length

    def to_dict(self) -> dict[str, Any]:
        """Return the field of a schema file that declares this column."""
        from discreet.schema._document import field_document

        return field_document(self)

    @classmethod
    def from_dict(cls, field: Mapping[str, Any]) -> Column:
        """Return the column that a field of a schema file declares; the inverse of :meth:`to_dict`."""
        from discreet.schema._document import read_field

        return read_field(field)

    def _first_moment(self) -> tuple[np.datetime64, np.timedelta64]:
        """Return the lower bound and the step of a date or datetime."""
        return np.datetime64(self._lowest_date(), "us"), np.timedelta64(self.step_length, "us")

    def _lowest_date(self) -> datetime.date:
        """Return the lower bound of a date or datetime; refuse other columns."""
        if not self.is_calendar or not isinstance(self.lower, datetime.date):
            raise ParameterError(
                f"Column {self.name!r} must be of type date or datetime to count in steps, was {self.type}. "
                "Declare its bounds as dates or datetimes."
            )
        return self.lower


class _UnclippedColumn(Column):
    __slots__ = ()
    largest: ClassVar[float] = 1e300


@lru_cache(maxsize=64)
def _describe_texts(values: tuple[Level, ...]) -> tuple[bool, str]:
    """Return whether all values are text, and the one that stands for others; a list may be long."""
    texts = [value for value in values if isinstance(value, str)]
    return len(texts) == len(values), next((text for text in texts if text.casefold() == "other"), "other")


def unclipped_column(name: str, *, role: Role = "sensitive", required: bool = True) -> Column:
    """Return a column of numbers that are read without clipping, such as published ones.

    Noise may exceed every range that can be declared, and reading must not clip it.
    """
    largest = _UnclippedColumn.largest
    return _UnclippedColumn(name, lower=-largest, upper=largest, role=role, required=required)


def unbounded_calendar(name: str, step: Step | None, *, required: bool = True) -> Column:
    """Return a column of dates, or with a step of datetimes, under which any of the calendar can be read."""
    if step is None:
        return Column(name, lower=datetime.date.min, upper=datetime.date.max, required=required)
    first, length = datetime.datetime.min, datetime.timedelta(seconds=STEPS[step])
    last = first + (datetime.datetime.max - first) // length * length
    return Column(name, lower=first, upper=last, step=step, required=required)


def _normalize(column: Column) -> None:
    """Convert the parameters to plain numbers and tuples, and infer the type.

    Values that fit no form are left unchanged, for the checks to report.
    """

    def set_field(field: str, value: object) -> None:
        object.__setattr__(column, field, value)

    values: object = column.values
    if isinstance(values, Sequence | np.ndarray) and not isinstance(values, str):
        set_field("values", tuple(_plain(value) for value in values))
    marks: object = column.missing_values
    if isinstance(marks, list):
        set_field("missing_values", tuple(marks))
    if column.type == "id" and column.role == "sensitive":
        set_field("role", "id")
    if column.role == "id":
        set_field("type", "id")
    cells: object = column.cells
    if isinstance(cells, Sequence | np.ndarray) and not isinstance(cells, str):
        whole = column.type == "integer"
        set_field("cells", tuple(_number(_plain(edge), whole=whole) for edge in cells))
    set_field("grid", _plain(column.grid))
    lower, upper = _plain(column.lower), _plain(column.upper)
    if column.type is None:
        if column.values is not None:
            set_field("type", "category")
        elif isinstance(lower, datetime.datetime) or isinstance(upper, datetime.datetime):
            set_field("type", "datetime")
        elif isinstance(lower, datetime.date) or isinstance(upper, datetime.date):
            set_field("type", "date")
        elif lower is not None or upper is not None:
            set_field("type", "number")
        elif column.role == "drop":
            set_field("type", "text")
    if column.type == "datetime" and column.step is None:
        set_field("step", "minute")
    set_field("lower", _number(lower, whole=column.type == "integer"))
    set_field("upper", _number(upper, whole=column.type == "integer"))


def _plain(value: Any) -> Any:
    """Return a numpy scalar as a Python value, so that equal declarations compare and hash as equal."""
    return value.item() if isinstance(value, np.generic) else value


def _number(bound: Any, *, whole: bool) -> Any:
    """Return a bound as int for integers and as float for numbers, 0.0 for -0.0."""
    if isinstance(bound, bool) or not isinstance(bound, int | float):
        return bound
    if whole:
        return int(bound) if isinstance(bound, int) or bound.is_integer() else bound
    try:
        return float(bound) + 0.0
    except OverflowError:  # an int beyond float: the rules call it infinite
        return math.inf if bound > 0 else -math.inf
