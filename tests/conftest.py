"""What tests of several rooms share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.postgres import PostgresServer, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test process's own."""
    with running_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database that exists for one test."""
    with postgres_server.database() as url:
        yield url
