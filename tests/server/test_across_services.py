"""Columns of the same people behind two services, each with its own table, ledger, people and noise."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet import Column, Database, GaussianDP, RemoteDatabase, Schema
from discreet.errors import DiscreetError, SchemaError
from discreet.query.vertical import VerticalDatabases
from discreet.schema.serialization import write_yaml
from discreet.server.preflight import check
from tests.server.conftest import RunningService, running, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PEOPLE = np.arange(3000)
DOSE = PEOPLE * 37 % 257 / 256
CELLS = {"dose": DOSE, "cost": DOSE**2}
SEEDS = {"dose": 1, "cost": 2}
MU = GaussianDP(mu=0.5)


def schema_of(name: str, **changed: Any) -> Schema:
    declared: dict[str, Any] = {"id_column": "person", "max_rows_per_unit": 1, **changed}
    columns = [Column("person", role="id"), Column(name, lower=0, upper=1)]
    return Schema(columns=columns, dataset=f"{name}s", **declared)


def written(folder: Path, name: str, ids: Any = PEOPLE, **changed: Any) -> dict[str, Any]:
    """Write a table with its schema, and return what the configuration says about it."""
    place = folder / name
    place.mkdir()
    lines = [
        f"person,{name}",
        *(f"p{who},{cell!r}" for who, cell in zip(ids, CELLS[name].tolist(), strict=True)),
    ]
    (place / "table.csv").write_text("\n".join(lines) + "\n")
    (place / "table.schema.yaml").write_text(schema_of(name, **changed).to_yaml())
    (place / "town.csv").touch()  # so that the usual table is not written
    return {"dataset": f"{name}s", "table": "table.csv", "seed": SEEDS[name], "keep_ids": True}


@contextlib.contextmanager
def both(folder: Path, **changed: Any) -> Iterator[list[RunningService]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(running(folder / name, **{**written(folder, name), **changed}))
            for name in CELLS
        ]


@pytest.mark.slow
def test_two_services_are_asked_as_one_and_each_charges_its_part(tmp_path: Path) -> None:
    with both(tmp_path) as services, contextlib.ExitStack() as stack:
        far = [
            stack.enter_context(
                RemoteDatabase(service.url, next(iter(service.whole.datasets)), service.tokens["ana"])
            )
            for service in services
        ]
        answer = VerticalDatabases(far, key="study 7").correlation(privacy=MU)
        charged = [service.backend.dataset.ledger.spent("ana") for service in services]
        again = VerticalDatabases(far, key="study 7").correlation(privacy=MU)
        assert [service.backend.dataset.ledger.spent("ana") for service in services] == charged
    with contextlib.ExitStack() as stack:
        local = [
            stack.enter_context(
                Database(
                    {"person": [f"p{who}" for who in PEOPLE], name: cells},
                    schema=schema_of(name),
                    keep_ids=True,
                    random_state=SEEDS[name],
                )
            )
            for name, cells in CELLS.items()
        ]
        expected = VerticalDatabases(local, key="study 7").correlation(privacy=MU)
    assert np.array_equal(answer.value, expected.value)
    assert answer.cost == expected.cost
    assert again.cached
    assert np.array_equal(again.value, answer.value)
    truth = np.corrcoef(CELLS["dose"], CELLS["cost"])[0, 1]
    assert abs(np.asarray(answer.value)[0, 1] - truth) < 5 * np.asarray(answer.sd)[0, 1]
    # Each ledger has its part, and together they are what was asked for.
    parts = [float(spent.gaussian) for spent in charged]
    assert all(part > 0 for part in parts)
    assert sum(parts) == pytest.approx(MU.mu**2 / 2, rel=1e-6)


def test_without_the_key_a_service_has_no_ids_to_be_asked_about(tmp_path: Path) -> None:
    with both(tmp_path, keep_ids=False) as services, contextlib.ExitStack() as stack:
        far = [
            stack.enter_context(
                RemoteDatabase(service.url, next(iter(service.whole.datasets)), service.tokens["ana"])
            )
            for service in services
        ]
        with pytest.raises(DiscreetError, match="keep_ids: true in its configuration"):
            VerticalDatabases(far, key="study 7").correlation(privacy=MU)


@pytest.mark.parametrize("changed", [{"id_column": None, "max_rows_per_unit": 1}, {"max_rows_per_unit": 2}])
def test_ids_that_the_schema_does_not_promise_are_refused_before_anything_is_made(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    said = written(tmp_path, "dose", **changed)
    place = tmp_path / "dose"
    content = {key: value for key, value in settings(**said).items() if value is not None}
    (place / "config.yaml").write_text(write_yaml(content))
    before = {path.name for path in place.iterdir()}
    with pytest.raises(SchemaError, match="where ids are kept"):
        check(place / "config.yaml")
    assert {path.name for path in place.iterdir()} == before
    (place / "config.yaml").write_text(write_yaml(settings(**said | {"keep_ids": False, "seed": 1})))
    assert check(place / "config.yaml")


def test_an_id_that_comes_twice_is_refused_at_the_start_without_being_quoted(tmp_path: Path) -> None:
    said = written(tmp_path, "dose", ids=[*PEOPLE[:-1], 1234])
    with (
        pytest.raises(DiscreetError, match="must have every id once") as caught,
        running(tmp_path / "dose", **said),
    ):
        pass
    # The folder of the test has a number, which may be the id.
    assert "1234" not in str(caught.value).replace(str(tmp_path), "")


@pytest.mark.parametrize("version", [None, "of May"])
def test_rows_with_their_ids_are_other_rows_unless_they_are_named_alike(
    tmp_path: Path, version: str | None
) -> None:
    said = {**written(tmp_path, "dose"), "version": version}
    asked = {"kind": "count", "where": "dose > 0.5", "privacy": {"kind": "zcdp", "rho": 0.01}}
    with running(tmp_path / "dose", **{**said, "keep_ids": False}) as service:
        assert not service.ask(asked).json()["cached"]
    with running(tmp_path / "dose", service.tokens, **said) as service:
        assert service.ask(asked).json()["cached"] is (version is not None)
