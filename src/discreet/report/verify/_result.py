"""What a verification found, check by check."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from discreet.errors import DiscreetError
from discreet.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

Verdict: TypeAlias = Literal["passed", "failed", "not checkable"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked.

    Attributes
    ----------
    name : str
        What, in a word or two.
    verdict : {"passed", "failed", "not checkable"}
        "not checkable" is said of what a file cannot show by itself; it is no failure.
    detail : str
        A sentence: what was compared, or what is wrong.
    """

    name: str
    verdict: Verdict
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Every check of a published folder.

    Attributes
    ----------
    folder : str
        Which one.
    checks : tuple of Check
        In the order in which they were made.

    Privacy
    -------
    Made from the published folder alone, it may be shown to anybody. With a key and a source, nothing is
    quoted from the source either; where the two tables differ is named by row and column.
    """

    folder: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
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
    """The checks made so far.

    Attributes
    ----------
    progress : callable or None
        Called with the name of each check before it runs.
    made : list of Check
        The results, in the order in which they were made.
    """

    progress: Callable[[str], None] | None = None
    made: list[Check] = field(default_factory=list)

    def add(self, name: str, verdict: Verdict, detail: str) -> None:
        """Add a result; its text may quote untrusted files, so control characters in it are made visible."""
        self.made.append(Check(name, verdict, printable(detail)))

    def settle(self, name: str, wrong: list[str], right: str) -> None:
        """Add a passed check with the text `right`, or a failed one with the first faults in `wrong`."""
        if wrong:
            more = f" And {len(wrong) - _SHOWN} more." if len(wrong) > _SHOWN else ""
            self.add(name, "failed", " ".join(wrong[:_SHOWN]) + more)
        else:
            self.add(name, "passed", right)

    def attempt(self, name: str) -> CheckRunner:
        """Return a context that runs a check on untrusted files: what it raises is a failure of it."""
        if self.progress is not None:
            self.progress(name)
        return CheckRunner(self, name)


@dataclass(frozen=True, slots=True)
class CheckRunner:
    """A context that turns exceptions into a failed check: a hostile folder must not end in a traceback."""

    checks: Checks
    name: str

    def __enter__(self) -> None:
        """Begin the check."""

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Add a failure for what was raised; its text only if it is ours, as another may quote the file."""
        if problem is None or not isinstance(problem, Exception):
            return False
        ours = isinstance(problem, DiscreetError)
        withheld = f"It could not be checked: reading it stopped with {type(problem).__name__}."
        self.checks.add(self.name, "failed", str(problem) if ours else withheld)
        return True


_SHOWN = 3
