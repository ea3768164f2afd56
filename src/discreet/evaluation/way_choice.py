"""The recommended way to publish a table, by one rule on what every way achieves on the same rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from discreet.evaluation.ways import TITLES
from discreet.formatting import percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.evaluation.ways import Way, WayName

Task = Literal["model", "tables", "means"]
TASKS: dict[Task, str] = {
    "model": "a model of the target",
    "tables": "two-way tables",
    "means": "means",
}
"""Purposes of a recipient, in words."""
CLOSE = 0.02
"""Distance of two outcomes on made-up rows that counts as none: two points."""
SERVES: dict[Task, float] = {"model": 0.03, "tables": 0.05, "means": 0.01}
"""Distance from the best way for a purpose up to which a way serves a purpose beside others."""
CONTENDERS: dict[Task, tuple[WayName, WayName]] = {
    "model": ("model", "synthetic"),
    "tables": ("synthetic", "questions"),
    "means": ("questions", "synthetic"),
}
"""The two ways that are compared for a purpose; of two equal ones the first is taken."""
ORDER: tuple[WayName, ...] = ("synthetic", "model", "questions", "masked", "coarse", "gaussian")
"""Order of the ways where no purpose is stated, and of those that are left where no contender is possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayChoice:
    """The recommended way, and why.

    Attributes
    ----------
    way : str or None
        Name of the recommended way; None where no way is of use.
    task : str or None
        Purpose that was stated; None: as many purposes as possible.
    reason : str
        Reason of the recommendation, in words.
    by_task : dict of str to str
        Best way for each purpose alone.
    """

    way: WayName | None
    task: Task | None
    reason: str
    by_task: dict[Task, WayName]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"way": self.way, "task": self.task, "reason": self.reason, "by_task": dict(self.by_task)}


def task_score(way: Way, task: Task) -> float | None:
    """Return how good a way is for a purpose, larger is better; None where it cannot serve it."""
    if way.why_not or way.stops:
        return None
    if task == "model":
        return way.accuracy
    error = way.table_error if task == "tables" else way.mean_error
    return None if error is None else -error


def best_way(ways: Sequence[Way], task: Task) -> Way | None:
    """Return the way for one purpose: the better contender, or else the best of the others."""
    scores = {way.name: score for way in ways if (score := task_score(way, task)) is not None}
    if not scores:
        return None
    names = [name for name in CONTENDERS[task] if name in scores] or [n for n in ORDER if n in scores]
    best = max(scores[name] for name in names)
    first = next(name for name in names if scores[name] >= best - CLOSE)
    return next(way for way in ways if way.name == first)


def choose_way(
    ways: Sequence[Way], baselines: Mapping[str, float | None], task: Task | None = None
) -> WayChoice:
    """Return the recommended way for a purpose, or for as many purposes as possible.

    Parameters
    ----------
    ways : sequence of Way
        All ways, tried on the same rows.
    baselines : mapping of str to float or None
        Accuracy "unprotected", and that of a "constant", on the same rows.
    task : {"model", "tables", "means"}, optional
        Purpose of the recipient; None: unknown.

    Notes
    -----
    For one purpose, the two of :data:`CONTENDERS` are compared, and equal within two points: relations in
    true rows differ from made-up ones by more than that. Masked rows and rows with noise of their own are
    taken where neither is possible; made-up relations are simpler than true ones, which flatters them. For
    no purpose in particular, a way serves one if it is within :data:`SERVES` of the best contender, and the
    way that serves most is taken.

    Reference
    ---------
    ``docs/decisions/0043-which-way.md``.
    """
    best = {one: way for one in TASKS if (way := best_way(ways, one)) is not None}
    by_task = {one: way.name for one, way in best.items()}
    if task is not None:
        if task not in best:
            return WayChoice(way=None, task=task, reason=f"No way gives {TASKS[task]} here.", by_task=by_task)
        way = best[task]
        reason = f"for {TASKS[task]} it is the best way or about as good ({_figure(way, task)})."
        if task == "model":
            reason += _warn_of_nothing_learned(way, baselines)
        return WayChoice(way=way.name, task=task, reason=reason, by_task=by_task)
    served = {way.name: [one for one, other in best.items() if _serves(way, one, other)] for way in ways}
    most = max(len(tasks) for tasks in served.values())
    if most == 0:
        return WayChoice(way=None, task=None, reason="No way is of use under this promise.", by_task=by_task)
    name = next(name for name in ORDER if len(served[name]) == most)
    way = next(way for way in ways if way.name == name)
    figures = "; ".join(f"{TASKS[one]}: {_figure(way, one)}" for one in served[name])
    reason = f"it serves most purposes at once, close to the best way for each ({figures})."
    if "model" in served[name]:
        reason += _warn_of_nothing_learned(way, baselines)
    return WayChoice(way=name, task=None, reason=reason, by_task=by_task)


def _serves(way: Way, task: Task, best: Way) -> bool:
    """Return whether a way is close enough to the one that is taken for a purpose alone."""
    own, other = task_score(way, task), task_score(best, task)
    return own is not None and other is not None and own >= other - SERVES[task]


def _figure(way: Way, task: Task) -> str:
    """Return the outcome of a way for a purpose, in words."""
    if task == "model":
        return "no accuracy" if way.accuracy is None else f"{percent(way.accuracy)} right"
    error = way.table_error if task == "tables" else way.mean_error
    return f"off by {percent(error or 0.0)}"


def _warn_of_nothing_learned(way: Way, baselines: Mapping[str, float | None]) -> str:
    """Return a sentence where a model is no better than always the same answer, or ""."""
    constant = baselines.get("constant")
    if way.accuracy is None or constant is None or way.accuracy >= constant + CLOSE:
        return ""
    return (
        f" But no model learns anything here: always the same answer is {percent(constant)} right. A larger "
        "epsilon, more rows or fewer columns would help."
    )


def describe_way(name: WayName) -> str:
    """Return a way with its article, for sentences."""
    title = TITLES[name]
    return title if name in ("model", "questions", "gaussian", "masked") else f"a {title}"
