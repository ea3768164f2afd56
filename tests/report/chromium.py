"""A real browser for tests: Chromium, spoken to over a pipe, so that nothing has to be installed for it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
    None,
)
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
        # An empty page in between: a mere change of the fragment would not load the file again.
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri() + fragment)
        deadline = time.monotonic() + 30
        while self.run("document.readyState + location.protocol") != "completefile:":
            if time.monotonic() > deadline:
                raise RuntimeError("the page did not load in 30 s")
            time.sleep(0.02)

    def run(self, expression: str) -> Any:
        """Evaluate JavaScript in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

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
