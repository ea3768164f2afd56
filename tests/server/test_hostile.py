"""Hostile requests: nothing breaks, nothing is free that must be paid, and no refusal tells about rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.server.conftest import SCHEMA, RunningService, running, write_table
from tests.server.hostile import contents

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

NAMES = [column.name for column in SCHEMA.columns]
LISTS = ["sex", "city", "owner"]
JSON = {"Content-Type": "application/json"}


def write_other_table(folder: Path) -> None:
    """Write as many rows of the same schema: all people are the same, and at the edge."""
    write_table(folder)
    header, *rows = (folder / "town.csv").read_text(encoding="utf-8").splitlines()
    (folder / "town.csv").write_text(
        "\n".join([header, *["120,0,m,,no"] * len(rows)]) + "\n", encoding="utf-8"
    )


def told(response: httpx.Response) -> tuple[int, Any]:
    """Return what a response tells, without what chance or the clock may change."""
    assert response.status_code < 500, response.text
    assert "Traceback" not in response.text
    assert 'File "' not in response.text
    body = response.json()
    if response.status_code == 200:
        return 200, sorted(body)
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "hint", "details", "request_id"}
    return response.status_code, {
        name: body["error"][name] for name in ("code", "message", "hint", "details")
    }


def check_paid(service: RunningService, response: httpx.Response) -> None:
    """Verify that an answer was paid for, unless it is the same for every table."""
    body = response.json()
    if body["cost"]:
        assert body["receipts"]
        for receipt in body["receipts"]:
            assert service.backend.dataset.ledger.entry(receipt).receipt.owner == "ana"


def attack(here: RunningService, there: RunningService, seed: int, count: int, path: str) -> int:
    """Send the same requests to both; return how many were answered."""
    answered = 0
    with here.client() as one, there.client() as other:
        for content in contents(seed, count, NAMES, LISTS):
            first, second = (client.post(path, content=content, headers=JSON) for client in (one, other))
            assert told(first) == told(second), content
            if first.status_code == 200:
                answered += 1
                if path == "/v1/datasets/town/query":
                    check_paid(here, first)
    return answered


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 250), *(pytest.param(s, 2500, marks=pytest.mark.stats) for s in range(2, 8))]
)
def test_hostile_questions_break_nothing_and_refusals_are_the_same_for_every_table(
    tmp_path: Path, seed: int, count: int
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    write_other_table(tmp_path / "there")
    with running(tmp_path / "here") as here, running(tmp_path / "there") as there:
        assert attack(here, there, seed, count, "/v1/datasets/town/query") > count // 20
        assert attack(here, there, seed + 1000, count // 3, "/v1/datasets/town/preview") > count // 30
        here.backend.check()
        log = (tmp_path / "here" / "audit.jsonl").read_text(encoding="utf-8")
        assert here.tokens["ana"] not in log
