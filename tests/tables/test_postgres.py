from __future__ import annotations

import builtins
import datetime
import itertools
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import psycopg
import pytest

from discreet.errors import DataError, MissingExtra, ParameterError, SourceError
from discreet.schema import Column, Schema
from discreet.tables import Field, open_table, write_table
from tests.postgres import PASSWORD, USER
from tests.tables.people import whole_chain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NUMBER = Schema(columns=[Column("x", lower=0, upper=1e9)])


def run(url: str, *commands: str) -> None:
    with psycopg.connect(url) as server:
        for command in commands:
            server.execute(command)


MEMORY = """
import sys
import numpy as np
from discreet.schema import Column, Schema
from discreet.tables import open_table
from tests.tables.people import peak_memory
schema = Schema(columns=[Column("x", lower=0, upper=1e9), Column("job", values=("a",))])
with open_table(sys.argv[1]) as table:
    at, before = 1, 0
    for batch in table.batches(schema):
        assert (batch["x"] == np.arange(at, at + batch.n_rows)).all()
        at += batch.n_rows
        before = before or peak_memory()
    print(at - 1, peak_memory() - before)
"""


@pytest.mark.slow
def test_a_long_table_streams_in_order_and_constant_memory(postgres_url: str) -> None:
    n = 700_000
    run(
        postgres_url,
        f"CREATE TABLE t AS SELECT i AS x, repeat('y', 150) AS job FROM generate_series(1, {n}) i",
    )
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, f"{postgres_url}?table=t"], capture_output=True, text=True
    )
    assert done.stderr == ""
    read, grown = map(int, done.stdout.split())
    assert read == n
    assert grown < 50  # MB; the text has 105


def test_count_and_passes_see_one_snapshot(postgres_url: str) -> None:
    run(postgres_url, "CREATE TABLE t AS SELECT 1.0 AS x FROM generate_series(1, 5)")
    with open_table(f"{postgres_url}?table=t") as table:
        run(postgres_url, "INSERT INTO t SELECT 2 FROM generate_series(1, 100)")
        assert table.count() == 5
        assert sum(batch.n_rows for batch in table.batches(NUMBER)) == 5
        run(postgres_url, "DELETE FROM t")
        assert table.count() == 5


def test_leaving_early_keeps_the_snapshot_and_ends_the_copy(postgres_url: str) -> None:
    n = 400_000  # wide enough that the copy is still under way
    run(
        postgres_url,
        f"CREATE TABLE t AS SELECT i AS x, repeat('y', 150) AS job FROM generate_series(1, {n}) i",
    )
    schema = Schema(columns=[*NUMBER.columns, Column("job", values=("a",))])
    with open_table(f"{postgres_url}?table=t") as table:
        for _ in range(2):
            assert len(list(itertools.islice(table.batches(schema, rows=1000), 2))) == 2
            run(postgres_url, "INSERT INTO t VALUES (0)")
        assert table.count() == n
        assert sum(batch.n_rows for batch in table.batches(NUMBER)) == n
    assert not [t for t in threading.enumerate() if t.name == "discreet-pipe"]


def test_the_table_cannot_be_written_to_while_reading(postgres_url: str) -> None:
    run(
        postgres_url,
        "CREATE TABLE log (x int)",
        "CREATE FUNCTION sneak() RETURNS int LANGUAGE sql AS 'INSERT INTO log VALUES (1) RETURNING 1'",
        "CREATE VIEW v AS SELECT sneak() AS x",
    )
    with (
        open_table(f"{postgres_url}?table=v") as table,
        pytest.raises(SourceError, match="ReadOnlySqlTransaction"),
    ):
        list(table.batches(NUMBER))


def test_a_failure_of_the_server_half_way_is_no_short_table(postgres_url: str) -> None:
    run(
        postgres_url,
        "CREATE VIEW v AS SELECT 1 / (500000 - i) + i AS x FROM generate_series(1, 900000) i",
    )
    with (
        open_table(f"{postgres_url}?table=v") as table,
        pytest.raises(SourceError, match="DivisionByZero"),
    ):
        list(table.batches(NUMBER))


def test_what_the_server_quotes_is_withheld(postgres_url: str) -> None:
    run(
        postgres_url,
        "CREATE TABLE t AS SELECT 'SECRET' AS x",
        "CREATE VIEW v AS SELECT x::int FROM t WHERE x::int > 0",
    )
    with open_table(f"{postgres_url}?table=v") as table:
        with pytest.raises(SourceError, match="InvalidTextRepresentation") as caught:
            list(table.batches(NUMBER))
        assert "SECRET" not in whole_chain(caught.value)
        with pytest.raises(SourceError, match="InvalidTextRepresentation") as caught:
            table.count()
        assert "SECRET" not in whole_chain(caught.value)


def test_every_server_type_is_read(postgres_url: str) -> None:
    run(
        postgres_url,
        """CREATE TABLE t AS SELECT 7::int2 AS a, 7::numeric(9, 2) AS b, 7.0::float4 AS c, '7' AS d,
           '7'::varchar(3) AS e, '7'::char(1) AS f, 'NaN'::numeric AS g, 'Infinity'::float8 AS h,
           NULL::text AS i, '' AS j""",
    )
    names = "abcdefghij"
    columns = [Column(name, lower=0, upper=9, required=False) for name in names]
    with open_table(f"{postgres_url}?table=t") as table:
        (batch,) = table.batches(Schema(columns=columns))
        (levels,) = table.batches(Schema(columns=[Column(n, values=("7",)) for n in "abcdef"]))
    found = [batch[name].tolist()[0] for name in names]
    assert found[:6] == [7.0] * 6
    assert found[7] == 9.0
    assert all(np.isnan(found[i]) for i in (6, 8, 9))
    assert [levels[name].tolist() for name in "abcdef"] == [[0]] * 6


def test_a_real_is_the_number_that_its_bits_are(postgres_url: str) -> None:
    run(postgres_url, "CREATE TABLE t AS SELECT 0.1::float4 AS x")
    with open_table(f"{postgres_url}?table=t") as table:
        assert next(iter(table.batches(NUMBER)))["x"].tolist() == [float(np.float32(0.1))]


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
def test_moments_that_only_the_server_knows_go_to_the_bounds(postgres_url: str, kind: str) -> None:
    last = {"date": "5874897-12-31"}.get(kind, "294276-12-31 23:59:59")
    moments = ["0044-03-15 BC", "-infinity", None, "2001-06-01", last, "infinity"]
    values = ", ".join("(NULL)" if moment is None else f"('{moment}')" for moment in moments)
    # The server's own zone is that of the process which started it.
    made = f"CREATE TABLE t AS SELECT x::{kind} FROM (VALUES {values}) AS v(x)"
    run(postgres_url, "SET TimeZone = 'UTC'", made)
    day = datetime.date if kind == "date" else datetime.datetime
    column = Column("x", lower=day(2001, 1, 1), upper=day(2001, 12, 31), required=False)
    with open_table(f"{postgres_url}?table=t") as table:
        (batch,) = table.batches(Schema(columns=[column]))
    top = column.width
    np.testing.assert_array_equal(batch["x"], [0, 0, np.nan, top * 151 / 364, top, top])


def test_a_bad_cell_is_named_by_its_row(postgres_url: str) -> None:
    run(postgres_url, "CREATE TABLE t (x text)", "INSERT INTO t VALUES ('1'), ('SECRET')")
    with open_table(f"{postgres_url}?table=t") as table, pytest.raises(DataError) as caught:
        list(table.batches(NUMBER))
    assert (caught.value.column, caught.value.line) == ("x", 2)
    assert "SECRET" not in str(caught.value)


def test_schemas_and_hostile_table_names_are_found(postgres_url: str) -> None:
    run(postgres_url, 'CREATE SCHEMA "S.x"', 'CREATE TABLE "S.x"."t;""q" AS SELECT 4 AS x')
    old, new = quote('"S.x"."t;""q"'), quote('"S.x"."new;"')
    url = f"{postgres_url}?connect_timeout=9&table={old}"
    with open_table(url) as table:
        assert next(iter(table.batches(NUMBER)))["x"].tolist() == [4.0]
    target = f"{postgres_url}?table={new}"
    assert write_table(target, [Field("x")], [{"x": np.ones(2)}]) == 2
    with open_table(target) as table:
        assert table.count() == 2


@pytest.mark.parametrize("tail", ["", "?table=", "?table=a.b.c", "?table=a&table=b", "?table=a..b"])
def test_a_url_must_name_one_table(tail: str) -> None:
    with pytest.raises((ParameterError, SourceError), match="table"):
        open_table(f"postgresql://localhost/db{tail}")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"@127.0.0.1": "@127.0.0.1:1?"}, "or no server answers"),
        ({PASSWORD: "wrong-" + PASSWORD}, "the server there does not"),
        ({USER: "nobody-" + USER}, "the server there does not"),
        ({"/test_": "/no_such_"}, "the server there does not"),
        ({"?table=t": "?table=absent"}, "does not exist"),
        ({"?table=t": "?table=absent.t"}, ""),
        ({"?table=t": "?nonsense=1&table=t"}, "or no server answers"),
    ],
)
@pytest.mark.parametrize("verb", ["read", "write"])
def test_what_goes_wrong_is_told_without_user_or_password(
    postgres_url: str, change: Mapping[str, str], told: str, verb: str
) -> None:
    url = f"{postgres_url}?table=t"
    for old, new in change.items():
        if new.endswith("?"):
            host, _, rest = url.partition(old)
            url = f"{host}{new[:-1]}{rest[rest.index('/') :]}"
        else:
            url = url.replace(old, new)
    if verb == "write" and url.endswith("=absent"):
        return  # that one is allowed
    with pytest.raises(SourceError) as caught:
        open_table(url) if verb == "read" else write_table(url, [Field("x")], [{"x": np.ones(1)}])
    said = str(caught.value) + repr(caught.value.__cause__)
    assert PASSWORD not in said
    assert USER not in said
    assert "The table" in said
    assert told in said


def test_a_lack_of_rights_is_named(postgres_url: str) -> None:
    run(
        postgres_url,
        "CREATE TABLE t AS SELECT 1 AS x",
        "CREATE ROLE guest_of_tables LOGIN PASSWORD 'guest'",
    )
    url = postgres_url.replace(f"{USER}:{PASSWORD}", "guest_of_tables:guest") + "?table=t"
    try:
        with pytest.raises(SourceError, match="InsufficientPrivilege"):
            open_table(url)
        with pytest.raises(SourceError, match="InsufficientPrivilege"):
            write_table(url, [Field("x")], [{"x": np.ones(1)}], replace=True)
    finally:
        run(postgres_url, "DROP ROLE guest_of_tables")


def test_names_too_long_for_the_server_are_refused_before_it_cuts_them() -> None:
    with pytest.raises(Exception, match="63 bytes"):
        write_table("postgresql://localhost/db?table=t", [Field("é" * 32)], [])


def test_without_psycopg_the_install_line_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def no_driver(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "psycopg":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", no_driver)
    url = "postgresql://localhost/db?table=t"
    calls: Sequence[Any] = (
        lambda: open_table(url),
        lambda: write_table(url, [Field("x")], [{"x": np.ones(1)}]),
    )
    for call in calls:
        with pytest.raises(MissingExtra, match=r"discreet\[postgres\]"):
            call()
