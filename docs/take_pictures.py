"""Take the pictures of the tutorials with Chromium: ``PYTHONPATH=src:. python docs/take_pictures.py``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.report.chromium import Browser, browser
from tests.server.conftest import running

from discreet import ApproxDP, publish, publish_model

if TYPE_CHECKING:
    from tests.server.conftest import RunningService

IMAGES = Path(__file__).parent / "tutorial" / "images"
LIMITS = {"limit": {"epsilon": 4, "delta": 1e-6}, "analyst_limit": {"epsilon": 2, "delta": 1e-6}}
READY = "document.getElementById('price').className === 'price ready'"


def picture_service(page: Browser, service: RunningService) -> None:
    """Ask for a count and a mean, and take a picture of the second answer."""
    page.size(1280)
    page.visit(f"{service.url}/login")
    page.write("#token", service.tokens["ana"])
    page.follow("button.primary")
    for verb, of, where in (
        ("count", "", "age > 40 AND income = '>50K'"),
        ("mean", "hours_per_week", "sex = 'Female' AND age > 30"),
    ):
        page.wait(READY)
        page.choose("#verb", verb)
        if of:
            page.write("#of", of)
        page.write("#where", where)
        page.write("#amount", "0.005")
        page.wait(READY)
        page.follow("#ask-button")
    page.wait(READY)
    page.picture(IMAGES / "service.png", height=955)


def picture_report(page: Browser, report: Path) -> None:
    """Take pictures of the first page of a report, of the what-if slider and of what was learned."""
    page.size(1180)
    page.open(report)
    page.picture(
        IMAGES / "report.png",
        height=page.run("document.querySelector('.front').getBoundingClientRect().bottom"),
    )
    for section, height in (("what-if", 1144), ("learning", 1360)):
        top = page.run(f"document.getElementById('{section}').getBoundingClientRect().top + scrollY")
        page.picture(IMAGES / f"{section}.png", top=top, height=height)


def picture_quality(page: Browser, report: Path) -> None:
    """Take pictures of the quality of a synthetic table: its top, the errors of pairs, and the tree."""
    page.size(820)
    page.open(report)
    start = page.run("document.getElementById('quality').getBoundingClientRect().top + scrollY")
    page.picture(IMAGES / "synthetic.png", top=start, height=720)
    box = "document.querySelector('[aria-labelledby^={}]').getBoundingClientRect()"
    top = page.run(box.format("pair-errors") + ".top + scrollY") - 190
    bottom = page.run(box.format("dependence-tree") + ".bottom + scrollY") + 20
    page.picture(IMAGES / "quality.png", top=top, height=bottom - top)


def picture_effects(page: Browser, path: Path) -> None:
    """Take a picture of the first effects on the page of a classifier."""
    page.size(880)
    page.open(path)
    top = page.run("document.querySelector('#effects .pictures').getBoundingClientRect().top + scrollY")
    page.picture(IMAGES / "effects.png", top=top - 12, height=520)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with browser(folder / "profile") as page:
            page.media()
            with running(
                folder, dataset="uci-adult", table="demo:census", seed=None, testing=False, **LIMITS
            ) as one:
                picture_service(page, one)
            publish(
                "demo:census",
                out=folder / "release",
                protect={"age": 14},
                ledger=False,
            )
            picture_report(page, folder / "release" / "internal" / "report.html")
            publish(
                "demo:census",
                out=folder / "synthetic",
                method="synthetic",
                privacy=ApproxDP(epsilon=1, delta=1e-6),
                ledger=False,
            )
            picture_quality(page, folder / "synthetic" / "internal" / "report.html")
            publish_model(
                "demo:census", out=folder / "model", privacy=ApproxDP(epsilon=1, delta=1e-6), ledger=False
            )
            picture_effects(page, folder / "model" / "public" / "model.html")
