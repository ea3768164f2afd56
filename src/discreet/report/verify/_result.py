"""Results of a verification, check by check."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from discreet.errors import DiscreetError, WorkersFailed
from discreet.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

Verdict: TypeAlias = Literal["passed", "failed", "not checkable"]


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check.

    Attributes
    ----------
    name : str
        Name of the check, one or two words.
    verdict : {"passed", "failed", "not checkable"}
        Outcome; "not checkable" is for what a file cannot show by itself, and is no failure.
    detail : str
        Sentence that says what was compared, or what is wrong.
    """

    name: str
    verdict: Verdict
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Results of all checks of a published folder.

    Attributes
    ----------
    folder : str
        Path of the checked folder.
    checks : tuple of Check
        Results in the order of the checks.

    Privacy
    -------
    Made from the published folder alone, it may be shown to anyone. With a key and a source, nothing is
    quoted from the source either; where the two tables differ is named by row and column.

    Examples
    --------
    >>> from discreet import Column, Schema, publish, verify
    >>> schema = Schema(columns=[Column("age", type="integer", lower=17, upper=90)])
    >>> rows = {"age": [20, 35, 50, 65] * 250}
    >>> done = publish(rows, schema=schema, protect={"age": 14}, ledger=False, out="made")
    >>> verify("made/public").ok
    True
    """

    folder: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """Checks that failed."""
        return tuple(check for check in self.checks if check.verdict == "failed")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "kind": "discreet-verification",
            "folder": self.folder,
            "ok": self.ok,
            "checks": [
                {"name": check.name, "verdict": check.verdict, "detail": check.detail}
                for check in self.checks
            ],
        }

    def __str__(self) -> str:
        return "\n".join(f"{check.verdict:>13}  {check.name}: {check.detail}" for check in self.checks)


@dataclass(slots=True)
class Checks:
    """Results of the checks made so far.

    Attributes
    ----------
    progress : callable or None
        Function that is called with the name of each check before it runs; None for silence.
    results : list of Check
        Results in the order of the checks.
    """

    progress: Callable[[str], None] | None = None
    results: list[Check] = field(default_factory=list)

    def add(self, name: str, verdict: Verdict, detail: str) -> None:
        """Add a result; its text may quote untrusted files, so control characters in it are made visible."""
        self.results.append(Check(name, verdict, printable(detail)))

    def settle(self, name: str, wrong: list[str], right: str) -> None:
        """Add a passed check with the text `right`, or a failed one with the first faults in `wrong`."""
        if wrong:
            more = f" And {len(wrong) - _SHOWN} more." if len(wrong) > _SHOWN else ""
            self.add(name, "failed", " ".join(wrong[:_SHOWN]) + more)
        else:
            self.add(name, "passed", right)

    def attempt(self, name: str) -> CheckRunner:
        """Return a context that runs a check on untrusted files and turns exceptions into a failure."""
        if self.progress is not None:
            self.progress(name)
        return CheckRunner(self, name)


@dataclass(frozen=True, slots=True)
class CheckRunner:
    """Context that turns exceptions into a failed check, so that no folder can cause a traceback."""

    checks: Checks
    name: str

    def __enter__(self) -> None:
        """Begin the check."""

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Add a failure for an exception; that Spark's workers are gone says nothing about the folder."""
        if not isinstance(problem, Exception) or isinstance(problem, WorkersFailed):
            return False
        self.checks.add(self.name, "failed", describe_failure(problem))
        return True


def describe_failure(problem: Exception) -> str:
    """Return why a check could not be completed; a foreign text is withheld, as it may quote the file."""
    if isinstance(problem, DiscreetError):
        return str(problem)
    return f"It could not be checked: reading it stopped with {type(problem).__name__}."


_SHOWN = 3
