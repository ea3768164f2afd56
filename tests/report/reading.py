"""A strict reader of our own pages: what a browser would forgive, it refuses."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"meta", "input", "br", "hr", "link", "img"}
_BLOCKS = {
    "p", "div", "dl", "ul", "ol", "table", "pre", "section", "article", "figure", "details",
    "h1", "h2", "h3", "h4",
}  # fmt: skip


@dataclass
class Element:
    """One element of a page with what is inside it."""

    tag: str
    attributes: dict[str, str]
    parent: Element | None = None
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text inside, white space collapsed."""
        return " ".join(" ".join(self.strings()).split())

    def strings(self) -> list[str]:
        """The pieces of text inside, in order."""
        return [s for c in self.children for s in ([c] if isinstance(c, str) else c.strings())]

    def all(self, tag: str | None = None, class_: str | None = None) -> list[Element]:
        """Every element inside with that tag and that class."""
        found, waiting = [], [self]
        while waiting:
            element = waiting.pop()
            classes = element.attributes.get("class", "").split()
            if element is not self and tag in (None, element.tag) and class_ in (None, *classes):
                found.append(element)
            waiting += [child for child in reversed(element.children) if not isinstance(child, str)]
        return found

    def one(self, id_: str) -> Element:
        """The element with that id."""
        (found,) = [e for e in self.all() if e.attributes.get("id") == id_]
        return found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("document", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"an attribute is given twice on {tag}"
        if tag in _BLOCKS:
            assert not any(e.tag in ("p", "span", "h2", "h3", "h4") for e in self.open), (
                f"{tag} inside a line of text"
            )
        element = Element(tag, {name: value or "" for name, value in attrs}, self.open[-1])
        self.open[-1].children.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert any(e.tag == "svg" for e in self.open) or tag == "svg", (
            f"{tag} closes itself outside a picture"
        )
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"{tag} closes {self.open[-1].tag}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment in the page")


def read_page(text: str) -> Element:
    """Read a page; what is not balanced is an error."""
    assert text.startswith("<!DOCTYPE html>\n")
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert len(reader.open) == 1, f"left open: {[e.tag for e in reader.open[1:]]}"
    return reader.root
