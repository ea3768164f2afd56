"""Nothing observable has changed since the fingerprint was recorded."""

from __future__ import annotations

import pytest

from tests.golden.fingerprint import GROUPS, computed, differences, read_record
from tests.servers import cannot_start


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if group.slow else (), id=name)
        for name, group in GROUPS.items()
    ],
)
def test_fingerprint_equals_the_record(name: str) -> None:
    absent = GROUPS[name].absent
    why = None if absent is None else absent()
    if why is not None:
        cannot_start("PostgreSQL", why)
    assert differences(read_record()[name], computed(name)) == []


def test_record_names_no_module_and_every_group() -> None:
    record = read_record()
    assert list(record) == list(GROUPS)
    assert sum(map(len, record.values())) >= 200
    assert not [case for cases in record.values() for case in cases if "discreet." in case]
