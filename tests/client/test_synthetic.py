"""Synthetic tables through a service: an analyst makes the table that the curator would make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from discreet import Database, RemoteDatabase
from discreet.privacy import GaussianDP
from discreet.release.synthetic import SyntheticRelease, regenerate
from tests.server.conftest import SCHEMA, running, write_table

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_a_table_made_through_a_service_is_the_one_made_at_hand(tmp_path: Path) -> None:
    write_table(tmp_path)
    far, here = (SyntheticRelease(GaussianDP(mu=0.9), schema=SCHEMA) for _ in range(2))
    with (
        running(tmp_path) as service,
        RemoteDatabase(service.url, service.tokens["ana"]) as remote,
        Database(tmp_path / "town.csv", schema=SCHEMA, random_state=1) as database,
    ):
        made, same = far.release_database(remote), here.release_database(database)
        spent = service.backend.dataset.ledger.spent("ana")
        assert spent.charges == len(far.receipts_) == len(far.plan_.shares)
        # Once more is free, and the same.
        again = SyntheticRelease(GaussianDP(mu=0.9), schema=SCHEMA).release_database(remote)
        assert service.backend.dataset.ledger.spent("ana") == spent
    replayed = regenerate(far, far.tables_)
    for column, values in made.columns.items():
        for other in (same, again, replayed):
            assert values.tobytes() == other.columns[column].tobytes()
