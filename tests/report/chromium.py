"""A real browser for tests: Chromium, spoken to over a pipe, so that nothing has to be installed for it."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.servers import cannot_start

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
    None,
)
_AXE_PACKAGE = importlib.util.find_spec("axe_core_python")
AXE = (
    Path(_AXE_PACKAGE.origin).with_name("axe.min.js")
    if _AXE_PACKAGE is not None and _AXE_PACKAGE.origin
    else None
)
"""The script of axe-core, which checks pages for accessibility; None if it is not installed."""

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


class Browser:
    """One page of a running Chromium."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._rest, self._last = to, back, b"", 0
        self.events: list[dict[str, Any]] = []
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session: str | None = None
        self._session = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command to the page and wait for its answer."""
        return self._call(method, parameters)

    def _call(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            block = os.read(self._back, 1 << 16)
            if not block:
                raise RuntimeError("Chromium has gone")
            self._rest += block
        message, self._rest = self._rest.split(b"\0", 1)
        found: dict[str, Any] = json.loads(message)
        return found

    def size(self, width: int, height: int = 900) -> None:
        """Make the window that large, in pixels of the style sheet."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
            mobile=False,
        )  # fmt: skip

    def media(self, *, dark: bool = False, paper: bool = False) -> None:
        """Choose a dark or light screen, or paper."""
        self.call(
            "Emulation.setEmulatedMedia",
            media="print" if paper else "screen",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )

    def open(self, path: Path, fragment: str = "") -> None:
        """Open a file and wait until it is complete."""
        self.visit(path.resolve().as_uri() + fragment)

    def visit(self, url: str) -> None:
        """Go to an address and wait until the page is complete."""
        # An empty page in between: a mere change of the fragment would not load the file again.
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.wait(f"document.readyState === 'complete' && location.protocol === {url.partition('//')[0]!r}")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true in the page; a busy machine may take minutes, not ten of them."""
        deadline = time.monotonic() + 600
        while not self._now(expression):
            if time.monotonic() > deadline:
                raise RuntimeError(f"never true: {expression}")
            time.sleep(0.02)

    def _now(self, expression: str) -> Any:
        try:
            return self.run(expression)
        except RuntimeError as problem:
            # Between two pages there is nothing to ask.
            if "context" in str(problem) or "navigated" in str(problem):
                return None
            raise

    def click(self, selector: str) -> None:
        """Click in the middle of what a selector names, as a hand does: only where nothing covers it."""
        where = self.run(
            f"""(() => {{
                const found = document.querySelector({json.dumps(selector)});
                if (!found) return "missing";
                found.scrollIntoView({{block: "center", behavior: "instant"}});
                const box = found.getBoundingClientRect();
                const x = box.left + box.width / 2, y = box.top + box.height / 2;
                const top = document.elementFromPoint(x, y);
                return top && (found.contains(top) || top.contains(found)) ? [x, y] : "covered";
            }})()"""
        )
        if not isinstance(where, list):
            raise RuntimeError(f"{selector} cannot be clicked: {where}")
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=where[0], y=where[1], button="left", clickCount=1
            )

    def follow(self, selector: str) -> None:
        """Click on what leads to another page, and wait until that is complete."""
        self.run("window.left = true")
        self.click(selector)
        self.wait("!window.left && document.readyState === 'complete'")

    def write(self, selector: str, text: str) -> None:
        """Replace what stands in a field, as typing does."""
        found = self.run(
            f"""(() => {{
                const found = document.querySelector({json.dumps(selector)});
                if (!found) return false;
                found.focus();
                found.select();
                return document.activeElement === found;
            }})()"""
        )
        if not found:
            raise RuntimeError(f"{selector} cannot be written into")
        self.call("Input.insertText", text=text)

    def choose(self, selector: str, value: str) -> None:
        """Choose from a list."""
        self.run(
            f"""(() => {{
                const found = document.querySelector({json.dumps(selector)});
                found.value = {json.dumps(value)};
                for (const kind of ["input", "change"])
                    found.dispatchEvent(new Event(kind, {{bubbles: true}}));
            }})()"""
        )

    def text(self, selector: str) -> str:
        """Return what a part of the page says to whoever sees it."""
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def run(self, expression: str) -> Any:
        """Evaluate JavaScript in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def violations(self) -> list[str]:
        """Return the rules of axe that the page breaks, each with the elements that break it."""
        if AXE is None:
            cannot_start("axe-core", "axe_core_python is not installed (install discreet[dev])")
        if not self.run("typeof axe === 'object'"):
            self.run(AXE.read_text(encoding="utf-8"))
        found = self.call(
            "Runtime.evaluate",
            expression="axe.run().then((done) => done.violations.map((one) => "
            "`${one.id}: ${one.nodes.map((node) => node.html.slice(0, 120)).join(' | ')}`))",
            awaitPromise=True,
            returnByValue=True,
        )
        broken: list[str] = found["result"]["value"]
        return broken

    def press(self, key: str, code: int) -> None:
        """Press and release a key."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self, path: Path, *, top: float = 0, height: float | None = None) -> None:
        """Save a picture of the page, whole or a part of it."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {
            "x": 0,
            "y": top,
            "width": size["width"],
            "height": height or size["height"] - top,
            "scale": 1,
        }
        shot = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, path: Path) -> None:
        """Print the page, as its style sheet for paper has it."""
        self.call("Emulation.setEmulatedMedia", media="", features=[])
        printed = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        path.write_bytes(base64.b64decode(printed["data"]))

    def requests(self) -> list[str]:
        """Return everything that the page asked for since it was opened."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """Return what the browser logged since the page was opened: errors, refused content."""
        found = []
        for event in self.events:
            if event.get("method") == "Log.entryAdded":
                found.append(str(event["params"]["entry"]["text"]))
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(str(event["params"]["exceptionDetails"]))
        return found


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Run Chromium with a profile of its own; it ends with the block."""
    assert PROGRAM is not None
    read_commands, write_commands = os.pipe()
    read_answers, write_answers = os.pipe()

    def descriptors() -> None:
        # Chromium reads commands from descriptor 3 and writes answers to 4; move ours out of the way first.
        commands, answers = os.dup(read_commands), os.dup(write_answers)
        os.dup2(commands, 3)
        os.dup2(answers, 4)

    process = subprocess.Popen(
        [PROGRAM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
        preexec_fn=descriptors, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(read_commands)
    os.close(write_answers)
    try:
        yield Browser(write_commands, read_answers)
    finally:
        os.close(write_commands)
        os.close(read_answers)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
