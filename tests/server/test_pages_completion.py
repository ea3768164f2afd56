"""Suggestions of the pages follow from the schema, for those who may ask about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.server.markup import Visitor

if TYPE_CHECKING:
    from tests.server.conftest import RunningService


@pytest.mark.parametrize(
    ("text", "start", "options"),
    [
        ("count where ci", 12, ["city"]),
        ("count where city = 'T", 19, ["'Thun'"]),
        # A character that browsers count as two.
        ("count where city <> '😀' AND ow", 29, ["owner"]),
        ("count where city = 'x", 19, []),
    ],
)
def test_suggestions_are_of_the_schema(
    shared_service: RunningService, text: str, start: int, options: list[str]
) -> None:
    found = Visitor(shared_service).client.get("/datasets/town/complete", params={"text": text}).json()
    assert found == {"start": start, "options": options}


def test_suggestions_are_for_those_who_may_ask_and_never_very_long(shared_service: RunningService) -> None:
    stranger = shared_service.client(None)
    assert stranger.get("/datasets/town/complete", params={"text": "c"}).status_code == 303
    client = Visitor(shared_service).client
    assert client.get("/datasets/nowhere/complete", params={"text": "c"}).status_code == 404
    found = client.get("/datasets/town/complete", params={"text": "count where " + "(" * 20_000})
    assert len(found.json()["options"]) <= 50
