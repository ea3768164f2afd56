"""Every way to change a published folder: verify finds it, or says that a folder cannot show it.

A forger here is as clever as can be: after every change the data are hashed again, the statement says so, and
everything that follows from the statement is written anew.
"""

from __future__ import annotations

import datetime
import json
import shutil
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from discreet.ledger import Ledger
from discreet.ledger.records import charge_hash
from discreet.privacy import ApproxDP, GaussianDP, PureDP, Receipt, promise_from_dict
from discreet.release import BoundedRelease, GaussianRelease, LaplaceRelease
from discreet.report.folder.folder import (
    DATA,
    READABLE,
    STATEMENT,
    SUMS,
    data_digests,
    read_statement,
    sign,
    write_public,
)
from discreet.report.folder.folder import write_sums as hash_files
from discreet.report.statement.build import describe_total
from discreet.report.verify import verify
from discreet.schema import Column, Schema
from tests.cli.run import discreet
from tests.contracts.cases import ROWS
from tests.report.published import KEY, METHODS, cells, edit, hash_again, publish, rewrite

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from discreet._types import AnyArray
    from discreet.release import ReleaseMethod

    Forge = Callable[[Path, ReleaseMethod], None]

ON_A_LATTICE = ("bounded", "bounded, additive", "gaussian", "input-perturbation", "laplace")


class Folders:
    """One honest folder of each method, charged to a ledger that has charges before it."""

    def __init__(self, room: Path) -> None:
        self.room = room
        self.methods: dict[str, ReleaseMethod] = {}
        self.ledgers: dict[str, Path] = {}

    def copy(self, name: str, target: Path) -> tuple[Path, ReleaseMethod]:
        """Return a fresh copy, and the method that made it."""
        folder = self.room / name / "public"
        if name not in self.methods:
            (self.room / name).mkdir()
            self.ledgers[name] = self.room / name / "charges.ledger"
            limit = ApproxDP(epsilon=50, delta=1e-3) if name == "gaussian" else None
            with Ledger.open(self.ledgers[name], limit=limit) as ledger:
                for mu in (0.5, 0.75):
                    ledger.charge(GaussianDP(mu=mu), what="a table of wages")
                method = METHODS[name](ledger=None if name == "invariant" else ledger)
                publish(folder, method, ledger=method.ledger)
            self.methods[name] = method
        return shutil.copytree(folder, target / "public"), self.methods[name]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory.mktemp("forged"))


def failed(folder: Path, **rest: Any) -> dict[str, str]:
    return {check.name: check.detail for check in verify(folder, **rest).failures}


# What can be done to the cells.


def forged_cells(change: Callable[[dict[str, AnyArray], ReleaseMethod], None]) -> Forge:
    def forge(folder: Path, method: ReleaseMethod) -> None:
        columns = {name: values.copy() for name, values in cells(folder, method).items()}
        change(columns, method)
        rewrite(folder, method, columns)
        hash_again(folder)

    return forge


@forged_cells
def truth_in_a_thousandth(columns: dict[str, AnyArray], method: ReleaseMethod) -> None:
    plan: Any = method.plan(method.schema, len(columns["age"]))  # type: ignore[arg-type]
    step = _step(plan.numbers)
    columns["age"] += np.asarray(ROWS["age"]) / 120 * step / 1000


@forged_cells
def one_unit_in_the_last_place(columns: dict[str, AnyArray], method: ReleaseMethod) -> None:
    columns["age"][7] = np.nextafter(columns["age"][7], np.inf)


@forged_cells
def a_negative_zero(columns: dict[str, AnyArray], method: ReleaseMethod) -> None:
    columns["age"][7] = -0.0


@forged_cells
def every_row_twice(columns: dict[str, AnyArray], method: ReleaseMethod) -> None:
    for values in columns.values():
        values[50:] = values[:50]


def _step(numbers: Any) -> float:
    if hasattr(numbers, "whitening"):
        return float(numbers.whitening._backward[0])
    if hasattr(numbers, "laws"):
        return float((numbers.laws[0].upper - numbers.laws[0].lower) / numbers.laws[0].cells)
    if hasattr(numbers, "densities"):
        return float(numbers.densities[0].step)
    return float(
        numbers.scale[0] / 2**20 if hasattr(numbers, "scale") else numbers._half[0] * numbers.noise.step
    )


CELLS: dict[str, tuple[Forge, str]] = {
    "truth in a thousandth of a step": (truth_in_a_thousandth, "cells"),
    "rows repeated": (every_row_twice, "repeated rows"),
    "one unit in the last place": (one_unit_in_the_last_place, "cells"),
    "a negative zero": (a_negative_zero, "bytes"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "forgery"),
    [
        *((name, forgery) for name in ON_A_LATTICE for forgery in list(CELLS)[:2]),
        *(("gaussian", forgery) for forgery in list(CELLS)[2:]),
    ],
)
def test_no_cell_but_one_that_the_release_writes_is_accepted(
    name: str, forgery: str, folders: Folders, tmp_path: Path
) -> None:
    folder, method = folders.copy(name, tmp_path)
    forge, check = CELLS[forgery]
    forge(folder, method)
    assert check in failed(folder)


@pytest.mark.parametrize("name", ["masked"])
def test_points_of_nobody_do_not_repeat(name: str, folders: Folders, tmp_path: Path) -> None:
    folder, method = folders.copy(name, tmp_path)
    forged_cells(lambda columns, _: [v.__setitem__(slice(0, 2), v[2:4]) for v in columns.values()])(  # type: ignore[arg-type]
        folder, method
    )
    assert "repeated rows" in failed(folder)


FINISHED = Schema(
    dataset="finished",
    columns=[
        Column("age", type="integer", lower=0, upper=120, grid=8),
        Column("day", lower=datetime.date(2020, 1, 1), upper=datetime.date(2021, 1, 1)),
        Column("owner", values=(0, 1)),
    ],
    target="owner",
)
DAYS = np.datetime64("2020-01-01") + np.arange(100)
FINISHING: dict[str, Callable[..., ReleaseMethod]] = {
    "gaussian": lambda **rest: GaussianRelease(privacy=ApproxDP(epsilon=4, delta=1e-6), **rest),
    "laplace": lambda **rest: LaplaceRelease(privacy=PureDP(epsilon=4), **rest),
    "bounded": lambda **rest: BoundedRelease(support={"age": 200.0, "day": 500.0}, **rest),
}


@pytest.mark.parametrize("clamp", [False, True])
@pytest.mark.parametrize("name", FINISHING)
def test_rounded_and_clamped_cells_and_dates_are_what_the_release_writes(
    name: str, clamp: bool, tmp_path: Path
) -> None:
    method = FINISHING[name](schema=FINISHED, clamp=clamp)
    rows = {"age": np.arange(100) + 20, "day": DAYS.astype(object), "owner": np.arange(100) % 2}
    publish(tmp_path / "public", method, rows)
    honest = cells(tmp_path / "public", method)
    plan = method.plan(FINISHED, 100)
    assert not plan.misfits(honest)
    assert verify(tmp_path / "public").ok
    changes: dict[str, tuple[str, Callable[[float], float]]] = {
        "off the grid": ("age", lambda value: value + 1),
        "a unit in the last place": ("age", lambda value: float(np.nextafter(value, np.inf))),
        "a day's last digit": ("day", lambda value: float(np.nextafter(value, np.inf))),
    }
    if clamp or name == "bounded":
        changes["out of reach"] = ("age", lambda _: 8.0 * 1000)
    for column, change in changes.values():
        forged = {key: values.copy() for key, values in honest.items()}
        forged[column][3] = change(forged[column][3])
        assert column in plan.misfits(forged)


# What can be hidden beside the cells.


def written(options: str, select: str = "*") -> Forge:
    def forge(folder: Path, method: ReleaseMethod) -> None:
        other = folder.parent / "other.parquet"
        duckdb.sql(f"COPY (SELECT {select} FROM '{folder / DATA}') TO '{other}' (FORMAT parquet, {options})")
        other.replace(folder / DATA)
        _hash_bytes(folder)

    return forge


def _hash_bytes(folder: Path) -> None:
    """Hash the data as they are: the forger does not want them written again."""
    edit(folder, lambda values: values.update(files=data_digests(folder)))
    write_public(folder, read_statement(folder))


def gap(folder: Path, method: ReleaseMethod) -> None:
    content = (folder / DATA).read_bytes()
    footer = int.from_bytes(content[-8:-4], "little") + 8
    (folder / DATA).write_bytes(content[:-footer] + b"somebody" + content[-footer:])
    _hash_bytes(folder)


def readable(change: Callable[[list[bytes]], list[bytes]]) -> Forge:
    def forge(folder: Path, method: ReleaseMethod) -> None:
        lines = (folder / READABLE).read_bytes().split(b"\n")
        (folder / READABLE).write_bytes(b"\n".join(change(lines)))
        _hash_bytes(folder)

    return forge


def first_age(text: bytes) -> Callable[[list[bytes]], list[bytes]]:
    return lambda lines: [lines[0], text + b"," + lines[1].split(b",", 1)[1], *lines[2:]]


CONTAINERS: dict[str, Forge] = {
    "notes in Parquet": written("COMPRESSION zstd, KV_METADATA {who: 'somebody'}"),
    "another compression": written("COMPRESSION snappy"),
    "NaN for NULL": written("COMPRESSION zstd", "* REPLACE (coalesce(income, 'nan'::DOUBLE) AS income)"),
    "a gap in Parquet": gap,
    "a changed readable cell": readable(first_age(b"33")),
    "digits in a readable cell": readable(first_age(b"34.0")),
    "an unclamped readable cell": readable(first_age(b"-36")),
    "a dropped readable row": readable(lambda lines: [*lines[:7], *lines[8:]]),
    "a doubled readable row": readable(lambda lines: [*lines[:-1], lines[-2], b""]),
    "swapped readable rows": readable(lambda lines: [lines[0], lines[2], lines[1], *lines[3:]]),
    "other line ends": readable(lambda lines: [line + b"\r" for line in lines[:-1]] + [b""]),
    "a note after the rows": readable(lambda lines: [*lines, b"# somebody"]),
}


@pytest.mark.parametrize("forgery", CONTAINERS)
def test_nothing_is_hidden_beside_the_cells(forgery: str, folders: Folders, tmp_path: Path) -> None:
    folder, method = folders.copy("gaussian", tmp_path)
    CONTAINERS[forgery](folder, method)
    found = failed(folder)
    assert found.keys() & {"bytes", "cells", READABLE}, found


@pytest.mark.parametrize("forgery", ["notes in Parquet", "a gap in Parquet", "a changed readable cell"])
def test_another_version_of_the_engine_is_no_way_out(forgery: str, folders: Folders, tmp_path: Path) -> None:
    folder, method = folders.copy("gaussian", tmp_path)
    edit(folder, lambda values: values["implementation"]["versions"].update(duckdb="0.0.1"))
    _hash_bytes(folder)
    plain = {check.name: check.verdict for check in verify(folder).checks}
    assert plain["bytes"] == "not checkable"
    CONTAINERS[forgery](folder, method)
    assert failed(folder).keys() & {"bytes", READABLE}


# What can be done to the statement.


def forged(change: Callable[[dict[str, Any]], None]) -> Forge:
    def forge(folder: Path, method: ReleaseMethod) -> None:
        edit(folder, change)
        write_public(folder, read_statement(folder))

    return forge


def add_up_again(values: dict[str, Any]) -> None:
    """Rewrite the totals, as a forger who has removed or changed charges does."""
    stated = values["composition"]
    past = [[promise_from_dict(part) for part in charge["promises"]] for charge in stated["earlier"]]
    receipt = Receipt.from_dict(stated["receipt"])
    stated["total"], stated["next"] = describe_total(
        past, list(receipt.promises), counted=stated["counted"], limit=stated["limit"]
    )


def chain_again(values: dict[str, Any]) -> None:
    """Compute the hash of the receipt again, and the ledger's head."""
    stated = values["composition"]
    receipt = Receipt.from_dict(stated["receipt"])
    stated["receipt"]["hash"] = charge_hash(receipt, stated["position"]["previous"])
    stated["position"]["head"] = stated["receipt"]["hash"]


def without_earlier(values: dict[str, Any]) -> None:
    values["composition"]["earlier"] = []
    add_up_again(values)


def without_earlier_renumbered(values: dict[str, Any]) -> None:
    without_earlier(values)
    receipt = values["composition"]["receipt"]
    receipt["seq"] = 2  # the hash of the row is another then, and the forger leaves it
    receipt["id"] = f"{receipt['ledger'][:12]}-2"
    values["composition"]["position"].update(head_row=2, others={"open": 1})


def without_ledger(values: dict[str, Any]) -> None:
    without_earlier(values)
    values["composition"].update(ledger=None, counted=False, position=None, limit=None)
    values["composition"]["receipt"].update(ledger=None, seq=None, hash=None)
    add_up_again(values)


def smaller_earlier(values: dict[str, Any]) -> None:
    values["composition"]["earlier"][0]["row"] = values["composition"]["earlier"][1]["row"]


def at(*path: str, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(values: dict[str, Any]) -> None:
        for key in path[:-1]:
            values = values[key]
        values[path[-1]] = to

    return change


def renamed_as(kind: str) -> Callable[[dict[str, Any]], None]:
    def change(values: dict[str, Any]) -> None:
        without_earlier(values)
        values["composition"]["position"]["others"][kind] = 2

    return change


STATEMENTS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "earlier charges removed": (without_earlier, "composition"),
    "earlier charges removed, row renumbered": (without_earlier_renumbered, "composition"),
    "earlier charges called kept answers": (renamed_as("answer"), "composition"),
    "earlier charges called something new": (renamed_as("note"), "composition"),
    "a charge listed twice": (smaller_earlier, "composition"),
    "the ledger denied": (without_ledger, "composition"),
    "the words of a service": (at("composition", "service", to="Nobody else asks."), "composition"),
    "no position": (at("composition", "position", to=None), "composition"),
    "a zeroed receipt hash": (at("composition", "receipt", "hash", to="0" * 64), "composition"),
    "another receipt hash": (at("composition", "receipt", "hash", to="a1" * 32), "composition"),
    "another hash before": (at("composition", "position", "previous", to="a1" * 32), "composition"),
    "another head": (at("composition", "position", "head", to="a1" * 32), "composition"),
    "a head before the charge": (at("composition", "position", "head_row", to=2), "composition"),
    "backdated": (at("what", "created", to="2020-01-01T00:00:00+00:00"), "composition"),
    "from the future": (at("what", "created", to="2999-01-01T00:00:00+00:00"), "composition"),
    "a backdated receipt": (
        at("composition", "receipt", "when", to="2020-01-01T00:00:00+00:00"),
        "composition",
    ),
    "words on the receipt": (at("composition", "receipt", "what", to="somebody is 34"), "composition"),
    "an owner on the receipt": (at("composition", "receipt", "owner", to="somebody"), "composition"),
    "another row count": (at("what", "rows_published", to=99), "row count"),
    "a version of something": (at("implementation", "versions", "who", to="somebody"), "implementation"),
    "words for a version": (at("implementation", "versions", "numpy", to="somebody is 34"), "implementation"),
    "a parameter written otherwise": (at("what", "method", "parameters", "clamp", to=0), "method"),
}


@pytest.mark.slow
@pytest.mark.parametrize("forgery", STATEMENTS)
def test_no_statement_but_an_honest_one_is_accepted(forgery: str, folders: Folders, tmp_path: Path) -> None:
    folder, method = folders.copy("gaussian", tmp_path)
    change, check = STATEMENTS[forgery]
    forged(change)(folder, method)
    assert check in failed(folder)


def test_an_unknown_key_a_file_or_a_line_too_many_is_found(folders: Folders, tmp_path: Path) -> None:
    folder, _ = folders.copy("gaussian", tmp_path)
    values = json.loads((folder / STATEMENT).read_bytes())
    for place in (values, values["what"], values["composition"]["receipt"], values["declared"]):
        place["who"] = "somebody"
        (folder / STATEMENT).write_text(json.dumps(values, sort_keys=True, indent=2) + "\n")
        hash_files(folder)
        assert not verify(folder).ok
        del place["who"]
    folder, _ = folders.copy("gaussian", tmp_path / "second")
    lines = (folder / SUMS).read_text().splitlines(keepends=True)
    for content in ("".join(reversed(lines)), "".join(lines).replace("\n", "\r\n"), "".join(lines)[:-1]):
        (folder / SUMS).write_text(content, newline="")
        assert "hashes" in failed(folder)


# What a folder alone cannot show: it passes, the output says so, and key or ledger find it.


def another_order(columns: dict[str, AnyArray], method: ReleaseMethod) -> None:
    for name, values in columns.items():
        columns[name] = values[::-1].copy()


def other_noise(columns: dict[str, AnyArray], method: ReleaseMethod) -> None:
    plan: Any = method.plan(method.schema, len(columns["age"]))  # type: ignore[arg-type]
    whitening = plan.numbers.whitening
    place = np.rint((columns["age"] - whitening.lower[0]) / whitening._backward[0]) + 1
    columns["age"] = place * whitening._backward[0] + whitening.lower[0]


def another_story(values: dict[str, Any]) -> None:
    """Call earlier charges something of which a ledger may have as many as it likes."""
    renamed_as("owner limit")(values)


def another_past(values: dict[str, Any]) -> None:
    stated = values["composition"]
    for charge in stated["earlier"]:
        charge["promises"] = [{**part, "mu": part["mu"] / 10} for part in charge["promises"]]
    add_up_again(values)


def another_time(values: dict[str, Any]) -> None:
    values["what"]["created"] = values["composition"]["receipt"]["when"] = "2020-01-01T00:00:00+00:00"
    chain_again(values)


def another_limit(values: dict[str, Any]) -> None:
    values["composition"]["limit"] = "epsilon = 1"
    add_up_again(values)


def another_number(values: dict[str, Any]) -> None:
    values["numbers"]["columns"][0]["without"] *= 1 + 1e-12


OPEN: dict[str, tuple[Forge, str, str]] = {
    "the order of rows": (forged_cells(another_order), "order", "key"),
    "the noise": (forged_cells(other_noise), "noise", "key"),
    "charges called limits": (forged(another_story), "ledger", "ledger"),
    "smaller charges before": (forged(another_past), "ledger", "ledger"),
    "every time backdated": (forged(another_time), "ledger", "ledger"),
    "another limit": (forged(another_limit), "ledger", "ledger"),
    "the last digits of a number": (forged(another_number), "last digits", ""),
    "words of the curator": (forged(at("what", "purpose", to="somebody is 34")), "people's words", ""),
}
"""What verify says that it cannot see, and who can."""


@pytest.mark.parametrize("forgery", OPEN)
def test_what_a_folder_cannot_show_is_said_and_found_by_whoever_has_key_or_ledger(
    forgery: str, folders: Folders, tmp_path: Path
) -> None:
    folder, method = folders.copy("gaussian", tmp_path)
    forge, check, who = OPEN[forgery]
    forge(folder, method)
    alone = verify(folder)
    assert alone.ok, alone.failures
    assert (check, "not checkable") in [(one.name, one.verdict) for one in alone.checks]
    if who == "key":
        assert "replay" in failed(folder, key=KEY, source=dict(ROWS))
    elif who == "ledger":
        with Ledger.open(folders.ledgers["gaussian"]) as ledger:
            assert set(failed(folder, ledger=ledger)) == {"ledger"}


@pytest.mark.parametrize("name", METHODS)
def test_an_honest_folder_passes_with_its_ledger_and_names_what_only_that_can_show(
    name: str, folders: Folders, tmp_path: Path
) -> None:
    folder, method = folders.copy(name, tmp_path)
    assert verify(folder).ok, verify(folder).failures
    if method.ledger is None:
        return
    with Ledger.open(folders.ledgers[name]) as ledger:
        found = {check.name: check.verdict for check in verify(folder, ledger=ledger).checks}
    assert found["ledger"] == "passed"


def test_another_ledger_is_refused(folders: Folders, tmp_path: Path) -> None:
    folder, _ = folders.copy("gaussian", tmp_path)
    with Ledger.open(":memory:") as ledger:
        assert "another ledger" in failed(folder, ledger=ledger)["ledger"]


def test_the_command_takes_the_ledger_and_makes_none(folders: Folders, tmp_path: Path) -> None:
    folder, method = folders.copy("gaussian", tmp_path)
    place = folders.ledgers["gaussian"]
    assert discreet("verify", str(folder), "--ledger", str(place), cwd=tmp_path).code == 0
    assert discreet("verify", str(folder), "--ledger", str(tmp_path / "none.ledger"), cwd=tmp_path).code == 1
    assert not (tmp_path / "none.ledger").exists()
    forged(another_past)(folder, method)
    assert discreet("verify", str(folder), cwd=tmp_path).code == 0
    assert discreet("verify", str(folder), "--ledger", str(place), cwd=tmp_path).code == 1


# What a signature binds.


def another_place(values: dict[str, Any]) -> None:
    values["composition"]["position"]["previous"] = "a1" * 32
    chain_again(values)


@pytest.mark.parametrize("part", ["receipt", "head", "time", "data"])
def test_a_signature_binds_receipt_head_and_time(part: str, folders: Folders, tmp_path: Path) -> None:
    folder, method = folders.copy("gaussian", tmp_path)
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    sign(folder, key)
    bound = {check.name: check.detail for check in verify(folder, public_key=pem).checks}["signature"]
    statement = read_statement(folder)
    position = statement.composition.position
    assert position is not None
    for said in (statement.composition.receipt["id"], position.head[:12], statement.what.created):
        assert said in bound
    changes: Mapping[str, Forge] = {
        "receipt": forged(another_place),
        "head": forged(lambda values: values["composition"]["position"].update(head_row=9, head="a1" * 32)),
        "time": forged(another_time),
        "data": forged_cells(another_order),
    }  # fmt: skip
    changes[part](folder, method)
    assert set(failed(folder, public_key=pem)) == {"signature"}
    assert verify(folder).ok


@pytest.mark.stats
@pytest.mark.parametrize("forgery", [*CONTAINERS, *STATEMENTS])
@pytest.mark.parametrize("name", [name for name in METHODS if name != "invariant"])
def test_every_forgery_is_found_in_every_method(
    name: str, forgery: str, folders: Folders, tmp_path: Path
) -> None:
    if forgery == "NaN for NULL" and name in ("coarse", "masked"):
        pytest.skip("no missing numbers")
    if forgery == "a parameter written otherwise" and name in ("coarse", "masked", "input-perturbation"):
        pytest.skip("no such parameter")
    folder, method = folders.copy(name, tmp_path)
    if forgery in CONTAINERS:
        CONTAINERS[forgery](folder, method)
    else:
        forged(STATEMENTS[forgery][0])(folder, method)
    assert not verify(folder).ok
