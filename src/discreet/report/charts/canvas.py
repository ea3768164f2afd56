"""Elements of an SVG picture, and the frame that makes them one picture."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from discreet.report import wording

if TYPE_CHECKING:
    from collections.abc import Iterable


def tag(element: str, *children: Markup | str, **attributes: object) -> Markup:
    """Write one element.

    Parameters
    ----------
    *children : Markup or str
        Markup stays as it is; plain text is made visible and escaped.
    **attributes : object
        ``class_`` is written ``class``, other underscores become hyphens; None is left out. Numbers must be
        finite: a picture without a place for a number must not be drawn.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_attribute(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if not children:
        return Markup(f"<{element}{written}/>")  # noqa: S704 - names are ours, values escaped
    inside = "".join(_child(child) for child in children)
    return Markup(f"<{element}{written}>{inside}</{element}>")  # noqa: S704 - likewise


def coordinate(value: float) -> str:
    """Write a place in a picture, to a hundredth; the same number is always written alike."""
    if not math.isfinite(value):
        raise AssertionError(f"a coordinate must be finite, was {value!r}")
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def share(value: float) -> str:
    """Write a place as a part of the picture's width, from 0 to 1."""
    return coordinate(100 * min(1.0, max(0.0, value))) + "%"


def figure(
    key: str,
    *children: Markup,
    title: str,
    description: str,
    width: float,
    height: float,
    class_: str = "",
    fluid: bool = False,
) -> Markup:
    """Frame a picture.

    Parameters
    ----------
    key : str
        Unique on the page; the ids of title and description are made from it.
    width, height : float
        In pixels of the style sheet.
    fluid : bool
        Places are parts of the width, which follows the page; otherwise the whole picture shrinks with it.
    """
    size: dict[str, object] = {"height": height}
    if fluid:
        size["width"] = "100%"
    else:
        size["viewBox"] = f"0 0 {coordinate(width)} {coordinate(height)}"
        size["width"] = width
    return tag(
        "svg",
        tag("title", title, id=f"{key}-title"),
        tag("desc", description, id=f"{key}-desc"),
        *children,
        class_=f"chart {class_}".strip(),
        role="img",
        aria_labelledby=f"{key}-title {key}-desc",
        **size,
    )


def path(points: Iterable[tuple[float, float]], **attributes: object) -> Markup:
    """Draw straight lines from point to point."""
    joined = "L".join(f"{coordinate(x)} {coordinate(y)}" for x, y in points)
    return tag("path", d=f"M{joined}", **attributes)


def label(
    text: str, x: float | str, y: float, *, anchor: str | None = None, class_: str | None = None
) -> Markup:
    """Write a word into a picture."""
    return tag("text", text, x=x, y=y, text_anchor=anchor, class_=class_)


def _attribute(value: object) -> str:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return coordinate(value)
    return wording.visible(str(value))


def _child(child: Markup | str) -> Markup:
    return child if isinstance(child, Markup) else escape(wording.visible(child))
