"""Exceptions and warnings of discreet.

::

    DiscreetError
    ├── ParameterError      (ValueError)    an argument is outside its domain
    │   ├── ExpressionRefused               an analyst's text is not in the expression language
    │   └── KeyReused                       a request's key was used for another question
    ├── ArgumentError       (TypeError)     a constructor has no argument of that name
    ├── SchemaError         (ValueError)    what was declared is wrong or incomplete
    ├── DataError           (ValueError)    rows do not fit what was declared
    ├── PromiseError        (ValueError)    a promise cannot be kept, read or composed that way
    ├── InsufficientInformation (ValueError) a release has too little information about its label
    ├── NoiseError          (RuntimeError)  drawing would repeat or reveal random numbers
    ├── SourceError         (RuntimeError)  a table cannot be reached, read or written
    │   └── WorkersFailed                   workers of Spark ended before a result; run it again
    ├── BudgetExceeded      (RuntimeError)  the ledger's limit would be passed; nothing was charged
    ├── LedgerError         (RuntimeError)  the ledger cannot be used
    │   ├── NotALedger                      the file or database is something else
    │   ├── OtherLedger                     the table was charged to another ledger before
    │   ├── LedgerUnavailable               disk full, folder read-only, file locked, server gone
    │   └── LedgerTampered                  the record does not agree with itself
    ├── SelfAttackFailed    (RuntimeError)  our own attack beat our own promise; nothing is published
    ├── RiskTooHigh         (RuntimeError)  attackers would gain too much; nothing was charged
    ├── EngineFailed        (RuntimeError)  a question could not be answered; its charge stands
    │   └── TableChanged                    the rows are not those that were registered
    ├── EngineUnavailable   (RuntimeError)  the engine does not answer; nothing was charged
    ├── ServiceError        (RuntimeError)  a service does not answer as one of this version would
    │   ├── AccessRefused                   the token is missing, unknown, expired or not enough
    │   └── ServiceUnavailable              no answer, too many requests, or it was stopped
    └── MissingExtra        (ImportError)   an optional package is needed for this

    DiscreetWarning         (UserWarning)   a result holds, but is weaker than it may seem
    └── PromiseWarning                      a promise may not hold for how a learner is used

A message says which parameter, what it must be and what it was; then the way out. It may quote what
was declared in public, never a row: text that depends on private rows is an unpaid release. The one
exception is :class:`DataError`, which is raised only in the curator's own process and names the place
of a bad cell (line and column), never its content.
"""

from __future__ import annotations

from typing import Any


class DiscreetError(Exception):
    """Base class of all exceptions of discreet."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Some constructors take attributes and no message: a copy, here or in another process, keeps both.
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(kind: type[DiscreetError], args: tuple[Any, ...], attributes: dict[str, Any]) -> DiscreetError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


class ParameterError(DiscreetError, ValueError):
    """An argument is outside its domain."""


class ArgumentError(DiscreetError, TypeError):
    """A constructor has no argument of that name; the message has the nearest one, or the line to write."""


class ExpressionRefused(ParameterError):
    """An analyst's text is not in the expression language. Nothing was charged and no row was read.

    Attributes
    ----------
    construct : str
        First construct in the text that the language does not have.
    hint : str
        Sentence that suggests the nearest construct of the language.
    problem : str
        Sentence that says what is wrong: the message without the hint.

    Parameters
    ----------
    construct, hint : str
        As the attributes of the same names.
    problem : str, optional
        Sentence that says what is wrong; None for one that names the construct.

    Privacy
    -------
    The message depends on the text and on the declared schema alone.
    """

    def __init__(self, construct: str, hint: str, problem: str | None = None) -> None:
        said = problem or f"Not understood: {construct}."
        super().__init__(f"{said} {hint}")
        self.construct = construct
        self.hint = hint
        self.problem = said

    @classmethod
    def not_allowed(cls, construct: str, hint: str) -> ExpressionRefused:
        """Return the error for what has a meaning, but no bounds, too many parts or no row."""
        return cls(construct, hint, f"Not allowed: {construct}.")


class KeyReused(ParameterError):
    """A request's key was used before, for another question. Nothing was charged."""


class SchemaError(DiscreetError, ValueError):
    """What was declared about a table is wrong or incomplete.

    Parameters
    ----------
    *problems : str
        One sentence or two for each problem, so that a person who corrects a file sees all of them at
        once.

    Attributes
    ----------
    problems : tuple of str
        The same sentences as a tuple, for programs.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return self.problems[0]
        count = f"The schema has {len(self.problems)} errors:"
        return "\n- ".join((count, *self.problems))


class DataError(DiscreetError, ValueError):
    """Rows do not fit what was declared about them.

    Attributes
    ----------
    column : str or None
        Name of the column with the bad cell; None if no single column is meant.
    line : int or None
        Row of the first bad cell, counted as the source counts (1 = first row of data); None if unknown.
    """

    def __init__(self, message: str, *, column: str | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.column = column
        self.line = line


class PromiseError(DiscreetError, ValueError):
    """A promise cannot be kept, read or composed the way it was asked for."""


class InsufficientInformation(DiscreetError, ValueError):
    """A published table has too little information about its label to learn from: it is mostly noise.

    Attributes
    ----------
    statistic : float
        Test statistic of the association between label and features in the published rows.
    critical : float
        Critical value that the statistic must exceed.
    """

    def __init__(self, message: str, *, statistic: float, critical: float) -> None:
        super().__init__(message)
        self.statistic = statistic
        self.critical = critical


class NoiseError(DiscreetError, RuntimeError):
    """Drawing would repeat or reveal random numbers."""


class SourceError(DiscreetError, RuntimeError):
    """A table cannot be reached, read or written."""


class WorkersFailed(SourceError):
    """Workers of Spark ended before their results were there, which says nothing about the table."""


NOTHING_CHARGED = "Nothing was charged."


class BudgetExceeded(DiscreetError, RuntimeError):
    """The charge would pass a limit of the ledger. It was not made, and nothing was drawn.

    The message says which part of the budget the charge takes and which part is left, then what was charged,
    and last what would still fit.

    Attributes
    ----------
    asked, left, limit : float
        Requested, remaining and largest total cost, in the kind named by ``currency``.
    currency : str
        Kind of cost whose cap would be exceeded: ``"rho"``, ``"epsilon"``, ``"delta"``, ...
    scope : str
        Budget that is too small: ``"total"`` or the owner's name.
    scale : float
        Largest part of every mu and epsilon of the charge that would still fit; 0 if nothing would.
    charged : str
        Sentence of the message that says what was charged: nothing, or the passes of a learner before this.
    advice : str
        Last sentence of the message, which says what would still fit; empty where that is not known.
    """

    def __init__(
        self,
        message: str,
        *,
        asked: float,
        left: float,
        limit: float,
        currency: str,
        scope: str,
        scale: float = 0.0,
        charged: str = NOTHING_CHARGED,
        advice: str = "",
    ) -> None:
        """Keep the amounts beside the first sentence of the message."""
        super().__init__(message)
        self.asked = asked
        self.left = left
        self.limit = limit
        self.currency = currency
        self.scope = scope
        self.scale = scale
        self.charged = charged
        self.advice = advice

    @property
    def shortage(self) -> str:
        """First sentence of the message: what the charge takes, and what is left."""
        return super().__str__()

    def __str__(self) -> str:
        """Return the whole message."""
        return " ".join(part for part in (self.shortage, self.charged, self.advice) if part)


class LedgerError(DiscreetError, RuntimeError):
    """The ledger cannot be used."""


class NotALedger(LedgerError):
    """The file or database exists and is something else."""


class OtherLedger(LedgerError):
    """The table was charged to another ledger before. Nothing was charged, and no ledger was made.

    Attributes
    ----------
    ledgers : tuple of str
        Locations of the ledgers that were charged for the table.
    """

    def __init__(self, message: str, *, ledgers: tuple[str, ...]) -> None:
        super().__init__(message)
        self.ledgers = ledgers


class LedgerUnavailable(LedgerError):
    """Disk full, folder read-only, file locked or server gone. Nothing was charged."""


class LedgerTampered(LedgerError):
    """The record does not agree with itself."""


class SelfAttackFailed(DiscreetError, RuntimeError):
    """An attack on artificial records did better than the promise allows: a defect of discreet.

    Attributes
    ----------
    broken : tuple of str
        One sentence for each promise that did not hold.
    """

    def __init__(self, message: str, *, broken: tuple[str, ...]) -> None:
        super().__init__(message)
        self.broken = broken


class RiskTooHigh(DiscreetError, RuntimeError):
    """An attack on made-up people is above its threshold. Nothing was charged, drawn or published.

    Attributes
    ----------
    risk : Risk
        The figures of all attacks, with what would lower them.
    """

    def __init__(self, message: str, *, risk: Any) -> None:
        super().__init__(message)
        self.risk = risk


class EngineFailed(DiscreetError, RuntimeError):
    """A question could not be answered; what was charged for it stands.

    The text is always the same: why an engine stopped may depend on rows.
    """

    def __init__(self) -> None:
        super().__init__(
            "The question could not be answered; the charge stands. Ask it again: the repeat is free."
        )


class TableChanged(EngineFailed):
    """The rows in the engine are not those that were registered. The text is always the same."""

    def __init__(self) -> None:
        DiscreetError.__init__(
            self,
            "The table is not the one that was registered, so nothing is answered; what was charged stands. "
            "Register it again.",
        )


class EngineUnavailable(DiscreetError, RuntimeError):
    """The engine does not answer at the moment, so a question was refused before its charge."""

    def __init__(self) -> None:
        super().__init__(
            "The table does not answer at the moment, so nothing was asked or charged. Ask again in a few "
            "seconds."
        )


class ServiceError(DiscreetError, RuntimeError):
    """A service does not answer as one of this version would."""


class AccessRefused(ServiceError):
    """The token is missing, unknown, expired or not enough for this. Nothing was charged."""


class ServiceUnavailable(ServiceError):
    """The service did not answer, has too many requests, or was stopped by the curator.

    Attributes
    ----------
    may_be_charged : bool
        Whether a query may have been charged although its answer was lost on the way. The same query is
        then free, and gets the answer that was lost.
    wait : float or None
        Seconds that the service asks to wait before the next request; None if it gave no time.
    """

    def __init__(self, message: str, *, may_be_charged: bool = False, wait: float | None = None) -> None:
        super().__init__(message)
        self.may_be_charged = may_be_charged
        self.wait = wait


class MissingExtra(DiscreetError, ImportError):
    """An optional package is needed; the message has the install line."""


class DiscreetWarning(UserWarning):
    """A result holds, but is weaker than its reader may think.

    A warning may depend on private rows. It is shown in the curator's own process alone, like a
    :class:`DataError`, and must not be passed on to anyone else.
    """


class PromiseWarning(DiscreetWarning):
    """A promise may not hold for how a learner is used: fits that no ledger adds up, or suspicious bounds.

    It depends on parameters, declared bounds and the estimators around the learner, never on rows.
    """
