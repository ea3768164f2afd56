"""What was charged for one data set over time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from markupsafe import Markup

from discreet.report import wording
from discreet.report.charts.canvas import figure, label, share, tag

if TYPE_CHECKING:
    from collections.abc import Sequence


def timeline(key: str, charges: Sequence[tuple[str, str]], *, this: int) -> Markup:
    """Draw one dot for each charge, in time; the one of this release is filled.

    Parameters
    ----------
    charges : sequence of (when, what)
        In order; moments in ISO 8601. Where one is none, dots stand equally far apart.
    this : int
        Which of them is this release.
    """
    if len(charges) < 2:
        return Markup("")
    places = _places([when for when, _ in charges])
    shapes = [tag("line", class_="axis", x1="2%", x2="98%", y1=18, y2=18)]
    for k, ((when, what), place) in enumerate(zip(charges, places, strict=True)):
        words = f"{wording.date(when)}: {wording.visible(what)}"
        class_ = "charge this" if k == this else "charge"
        shapes.append(tag("circle", tag("title", words), class_=class_, cx=share(place), cy=18, r=7))
    first, last = charges[0][0], charges[-1][0]
    shapes += [
        label(wording.date(first)[:10], "2%", 44, class_="tick"),
        label(wording.date(last)[:10], "98%", 44, anchor="end", class_="tick"),
    ]
    return figure(
        key,
        *shapes,
        title="Charges to the ledger over time",
        description=f"{len(charges)} charges from {wording.date(first)} to {wording.date(last)}.",
        width=640,
        height=50,
        class_="timeline",
        fluid=True,
    )


def _places(moments: Sequence[str]) -> list[float]:
    """Return places from 0.03 to 0.97."""
    try:
        parsed = [datetime.fromisoformat(moment) for moment in moments]
        times = [(m if m.tzinfo else m.replace(tzinfo=UTC)).timestamp() for m in parsed]
    except ValueError:
        times = [float(k) for k in range(len(moments))]
    first, last = min(times), max(times)
    if not last > first:
        times, first, last = [float(k) for k in range(len(moments))], 0.0, float(max(1, len(moments) - 1))
    return [0.03 + 0.94 * (t - first) / (last - first) for t in times]
