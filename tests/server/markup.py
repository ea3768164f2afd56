"""A browser without a script: pages as trees, forms sent as they stand, and what every page owes."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from tests.server.conftest import RunningService

_EMPTY = {"meta", "link", "input", "br", "hr", "img"}
_SPOKEN = ("aria-labelledby", "aria-describedby", "for")


@dataclass
class Element:
    """One element of a page."""

    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    def all(self, tag: str | None = None, **wanted: str) -> Iterator[Element]:
        """Yield every element inside with these attributes; ``class_`` names one of its classes."""
        for child in self.children:
            if isinstance(child, Element):
                if (tag is None or child.tag == tag) and child.has(wanted):
                    yield child
                yield from child.all(tag, **wanted)

    def one(self, tag: str | None = None, **wanted: str) -> Element:
        """Return the only such element."""
        found = list(self.all(tag, **wanted))
        assert len(found) == 1, f"{len(found)} of <{tag}> {wanted}"
        return found[0]

    def has(self, wanted: dict[str, str]) -> bool:
        """Whether it has these attributes."""
        for name, value in wanted.items():
            if name == "class_":
                if value not in self.attributes.get("class", "").split():
                    return False
            elif self.attributes.get(name.replace("_", "-")) != value:
                return False
        return True

    @property
    def text(self) -> str:
        """Everything it says."""
        return "".join(child if isinstance(child, str) else child.text for child in self.children)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, {name: value or "" for name, value in attrs})
        assert len(made.attributes) == len(attrs), f"an attribute of <{tag}> comes twice"
        self._open[-1].children.append(made)
        if tag not in _EMPTY:
            self._open.append(made)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


def read(text: str) -> Element:
    """Read a page; every element must be closed where it was opened."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader._open == [reader.root]
    return reader.root


class Visitor:
    """Somebody who is logged in, with a browser that knows no script."""

    def __init__(self, service: RunningService, who: str | None = "ana") -> None:
        self.client = service.client(None)
        if who is not None:
            sent = self.client.post("/login", data={"token": service.tokens[who]})
            assert sent.status_code == 303, sent.text

    def get(self, path: str, status: int = 200) -> Element:
        """Load a page."""
        response = self.client.get(path)
        assert response.status_code == status, response.text[:2000]
        return read(response.text)

    @staticmethod
    def read(response: httpx.Response) -> Element:
        """Read the page in a response."""
        return read(response.text)

    def csrf(self) -> str:
        """Return what forms of this session carry."""
        return (
            self.get("/datasets/town")
            .one("form", action="/logout")
            .one("input", name="csrf")
            .attributes["value"]
        )

    def fill(self, page: Element, action: str, /, **changed: str) -> dict[str, str]:
        """Return the fields of a form as the page shows them, some of them changed."""
        form = next(page.all("form", action=action))
        sent: dict[str, str] = {}
        for item in form.all():
            name = item.attributes.get("name")
            if name is None or item.tag == "button":
                continue
            if item.tag == "select":
                options = list(item.all("option"))
                chosen = [o for o in options if "selected" in o.attributes] or options[:1]
                sent[name] = chosen[0].attributes["value"]
            elif item.tag == "textarea":
                sent[name] = item.text
            elif item.attributes.get("type") != "radio" or "checked" in item.attributes:
                sent[name] = item.attributes.get("value", "")
        return {**sent, **changed}

    def send(self, page: Element, action: str, /, **changed: str) -> httpx.Response:
        """Send a form of a page."""
        return self.client.post(action, data=self.fill(page, action, **changed))

    def ask(self, **changed: str) -> Element:
        """Ask from a fresh page, and follow to the answer."""
        response = self.send(self.get("/datasets/town"), "/datasets/town/ask", do="ask", **changed)
        assert response.status_code == 303, response.text[:3000]
        return self.get(response.headers["location"])


def owes_nothing(page: Element) -> None:
    """Check what every page owes to its policy and to whoever cannot see it."""
    ids = [item.attributes["id"] for item in page.all() if "id" in item.attributes]
    assert len(ids) == len(set(ids)), "an id comes twice"
    assert page.one("html").attributes["lang"] == "en"
    assert page.one("head").one("title").text.strip()
    assert len(list(page.all("main"))) == 1
    assert len(list(page.all("h1"))) == 1
    for item in page.all():
        _keeps_the_policy(item)
        for name in _SPOKEN:
            for target in item.attributes.get(name, "").split():
                assert target in ids, f"{name} of <{item.tag}> names {target}, which is not there"
    labeled = {label.attributes["for"] for label in page.all("label")}
    for kind in ("input", "select", "textarea"):
        for item in page.all(kind):
            if item.attributes.get("type") != "hidden" and "hidden" not in item.attributes:
                assert item.attributes["id"] in labeled, f"{item.attributes} has no label"
    for table in page.all("table"):
        assert table.one("caption").text.strip()
        assert all("scope" in head.attributes for head in table.all("th"))
    for picture in page.all("svg"):
        assert (
            "aria-labelledby" in picture.attributes
            or picture.attributes.get("aria-hidden") == "true"
            or ("viewbox" in picture.attributes and "preserveaspectratio" in picture.attributes)
        )
    for button in page.all("button"):
        assert button.text.strip()


def _keeps_the_policy(item: Element) -> None:
    if item.tag == "script":
        assert item.attributes["src"].startswith("/static/")
        assert not item.text.strip()
    assert item.tag not in ("style", "iframe", "object", "embed", "base")
    for name, value in item.attributes.items():
        assert not name.startswith("on"), f"{name} of <{item.tag}>"
        assert name != "style", f"<{item.tag}> has a style of its own"
        if name in ("src", "href", "action", "formaction"):
            assert value.startswith(("/", "#")), f"{name}={value}"
            assert not value.startswith("//")
