from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest

from discreet import ApproxDP, Column, GaussianRelease, Schema
from discreet.errors import ParameterError, SourceError
from discreet.report.folder.folder import DATA, PAGE, READABLE, STATEMENT
from discreet.report.verify import verify
from discreet.report.verify.cells import first_difference
from tests.contracts.cases import BY_QUESTIONS, IN_LEVELS, OF_NOBODY, RELEASES, ROWS, SCHEMA
from tests.report.published import KEY, METHODS, cells, edit, hash_again, honest, publish, rewrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from discreet._types import AnyArray
    from discreet.report.verify import Verification

OTHER_KEY = bytes(32)
names = pytest.mark.parametrize("name", METHODS)
registered = pytest.mark.parametrize("name", RELEASES)


def of_each_kind(names: Iterable[str]) -> pytest.MarkDecorator:
    """Run a test for one method of each kind, and for all others in the slow tier."""
    quick = {"gaussian", "coarse", "synthetic"}
    marked = (name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names)
    return pytest.mark.parametrize("name", list(marked))


@pytest.fixture(scope="session")
def factory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("releases")


@pytest.fixture
def public(name: str, factory: Path, tmp_path: Path) -> Path:
    return honest(name, factory, tmp_path)


def failed(found: Verification) -> set[str]:
    return {check.name for check in found.failures}


def detail(found: Verification, name: str) -> str:
    (check,) = (check for check in found.checks if check.name == name)
    return check.detail


@names
def test_what_every_method_publishes_is_verified_and_what_a_file_cannot_show_is_named(public: Path) -> None:
    found = verify(public)
    assert found.ok, found
    open_ = {check.name: check.detail for check in found.checks if check.verdict == "not checkable"}
    assert {"noise", "key", "tuning", "other releases", "signature"} <= set(open_)
    assert "the key" in open_["noise"]


@of_each_kind(METHODS)
def test_the_key_and_the_source_give_the_same_file_again(public: Path) -> None:
    found = verify(public, key=KEY, source=dict(ROWS))
    assert found.ok, found
    assert {"key", "replay"} <= {check.name for check in found.checks if check.verdict == "passed"}


@of_each_kind(METHODS)
def test_another_source_under_the_same_key_is_found_by_row_and_column_without_quoting_a_cell(
    public: Path, name: str
) -> None:
    age = np.array(ROWS["age"])
    # One year is not published where ages are binned, nor is the age of every row.
    age[slice(None) if name in IN_LEVELS else 17] += 30 if name in IN_LEVELS else 1
    found = verify(public, key=KEY, source={**ROWS, "age": age})
    assert failed(found) == {"replay"}
    # Answers are compared, not rows, where rows are made from answers.
    assert ("question" if name in BY_QUESTIONS else "column 'age'") in detail(found, "replay")


@pytest.mark.parametrize("name", ["gaussian"])
def test_replay_keeps_what_it_draws_in_a_file_without_a_name(
    public: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of other rows it would be a second release, which nobody paid for.
    from discreet.report.verify import _run

    seen, place = [], tmp_path / "temporary"
    place.mkdir()

    def compare(one: Path, other: Path, schema: Any, tolerance: float) -> list[str]:
        seen.append([*place.iterdir(), one.stat().st_size > 0, one.stat().st_nlink])
        return first_difference(one, other, schema, tolerance)

    monkeypatch.setattr("tempfile.tempdir", str(place))
    monkeypatch.setattr(_run, "first_difference", compare)
    assert verify(public, key=KEY, source=dict(ROWS)).ok
    assert seen == [[True, 0]]


@pytest.mark.parametrize("name", ["gaussian"])
def test_another_key_is_named_before_anything_is_replayed(public: Path) -> None:
    found = verify(public, key=OTHER_KEY, source=dict(ROWS))
    assert failed(found) == {"key"}
    assert "replay" not in {check.name for check in found.checks}


# --- forgeries --------------------------------------------------------------------------------------------


def one_changed_cell(folder: Path, name: str) -> None:
    method = METHODS[name]()
    columns = cells(folder, method)
    columns["age"] = columns["age"].copy()
    if name in IN_LEVELS:
        hidden = method.plan(SCHEMA, 1).schema.column("age").levels.index("not published")
        columns["age"][3] = 0 if columns["age"][3] == hidden else hidden
    else:
        columns["age"][3] += 1 if name in BY_QUESTIONS else 0.123456789
    rewrite(folder, method, columns)


def a_changed_epsilon(folder: Path, name: str) -> None:
    def change(values: dict[str, Any]) -> None:
        numbers = values["numbers"]
        promise = numbers["promises"][0]
        if promise["kind"] == "no-promise":
            promise.clear()
            promise.update(kind="pure-dp", epsilon=1.0, unit="person", neighbors="replace-one", covers=None)
            promise.update(assumes=[], arithmetic="exact", total_variation=0.0)
            numbers["epsilon"] = 1.0
            return
        for amount in {"epsilon", "mu", "delta"} & set(promise):
            promise[amount] /= 2
        numbers["epsilon"] /= 2

    edit(folder, change)


def a_changed_bound(folder: Path, name: str) -> None:
    edit(folder, lambda values: values["bounds"][0].update(upper=100))


def a_swapped_column(folder: Path, name: str) -> None:
    method = METHODS[name]()
    columns = cells(folder, method)
    columns["age"], columns["income"] = columns["income"], columns["age"]
    if name in BY_QUESTIONS:
        columns["age"] = np.nan_to_num(np.rint(columns["age"]))  # the file has the declared types
    rewrite(folder, method, columns)


def a_deleted_row(folder: Path, name: str) -> None:
    method = METHODS[name]()
    rewrite(folder, method, {column: values[1:] for column, values in cells(folder, method).items()})


def a_statement_for_another_file(folder: Path, name: str) -> None:
    other = folder.with_name("other")
    publish(other, METHODS[name](), key=OTHER_KEY)
    (folder / STATEMENT).write_bytes((other / STATEMENT).read_bytes())


FORGERIES: dict[str, tuple[Callable[[Path, str], None], str, str]] = {
    "one changed cell": (one_changed_cell, DATA, "cells"),
    "a changed epsilon": (a_changed_epsilon, STATEMENT, "numbers"),
    "a changed bound": (a_changed_bound, STATEMENT, "bounds"),
    "a swapped column": (a_swapped_column, DATA, "cells"),
    "a deleted row": (a_deleted_row, DATA, "row count"),
    "a statement for another file": (a_statement_for_another_file, STATEMENT, "attacks"),
}
"""What is done, the file that then has another hash, and the check that finds it without any hash."""


@pytest.mark.parametrize("name", ["gaussian", "invariant"])
@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forgery_is_not_the_file_that_was_hashed(forgery: str, public: Path, name: str) -> None:
    forge, file, _ = FORGERIES[forgery]
    forge(public, name)
    found = verify(public)
    assert f"{file} was changed" in detail(found, "hashes")
    if file == DATA or forge is a_statement_for_another_file:
        assert "not the file that the statement speaks of" in detail(found, "data files")


@of_each_kind(RELEASES)
@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forgery_is_found_although_everything_was_hashed_again(
    forgery: str, public: Path, name: str
) -> None:
    forge, _, cause = FORGERIES[forgery]
    forge(public, name)
    hash_again(public)
    found = verify(public)
    assert not {"hashes", "data files", "derived files"} & failed(found), found
    if name in BY_QUESTIONS and cause in ("cells", "attacks"):
        cause = "rows" if cause == "cells" else "implementation"
    elif name in OF_NOBODY and cause in ("cells", "attacks"):
        # Points of nobody have no lattice, and no cell to attack: other ones are another release, which a
        # hash and the key tell, and no law of a cell.
        return
    if name == "invariant" and cause == "cells":
        cause = "attacks"  # noise without a lattice; what anybody computes from the file tells all the same
    assert cause in failed(found), found


@pytest.mark.parametrize("name", ["gaussian"])
def test_the_cause_of_a_forgery_is_said_in_words(public: Path, name: str) -> None:
    for forge in (one_changed_cell, a_changed_epsilon, a_changed_bound):
        forge(public, name)
    hash_again(public)
    found = verify(public)
    assert "Column 'age' holds values that the noise cannot have led to" in detail(found, "cells")
    assert "numbers.epsilon says" in detail(found, "numbers")
    assert "promises more than is kept" in detail(found, "numbers")
    assert detail(found, "bounds") == "bounds[age].upper says 100 and must say 120."
    a_deleted_row(public, name)
    hash_again(public)
    assert detail(verify(public), "row count") == "The table has 99 rows, and the statement says 100."


@pytest.mark.parametrize("name", ["gaussian"])
def test_the_two_files_of_data_must_hold_the_same_cells(public: Path, name: str) -> None:
    lines = (public / READABLE).read_bytes().split(b"\n")
    lines[4] = lines[3]
    (public / READABLE).write_bytes(b"\n".join(lines))
    assert detail(verify(public), READABLE) == (
        "readable.csv is not the clamped and rounded copy of data.parquet: line 5 differs."
    )


@pytest.mark.parametrize(("factor", "fine"), [(1 - 1e-8, False), (1 + 1e-8, False), (1 - 1e-12, True)])
@pytest.mark.parametrize("name", ["gaussian"])
def test_a_number_may_be_off_by_what_another_machine_rounds_and_by_no_more(
    factor: float, fine: bool, public: Path
) -> None:
    def change(values: dict[str, Any]) -> None:
        for promises in (values["numbers"]["promises"], values["composition"]["receipt"]["promises"]):
            promises[0]["mu"] *= factor

    edit(public, change)
    hash_again(public)
    assert ("numbers" not in failed(verify(public))) is fine


@registered
def test_a_sentence_that_the_numbers_do_not_say_is_found(public: Path) -> None:
    def change(values: dict[str, Any]) -> None:
        values["definition"]["sentences"][0] = "Nobody can learn anything about anybody."

    edit(public, change)
    hash_again(public)
    assert failed(verify(public)) == {"wording"}


@pytest.mark.parametrize("name", ["gaussian"])
def test_better_parameters_that_agree_with_the_claim_do_not_agree_with_the_lattice(
    public: Path, tmp_path: Path
) -> None:
    """The forger writes an honest statement for twice the noise, over data with the noise they have."""
    better = GaussianRelease(privacy=ApproxDP(epsilon=2, delta=1e-6), schema=SCHEMA)
    publish(tmp_path / "better", better)
    (public / STATEMENT).write_bytes((tmp_path / "better" / STATEMENT).read_bytes())
    hash_again(public)
    found = failed(verify(public))
    assert "cells" in found
    assert "numbers" not in found


def narrow(values: dict[str, Any]) -> None:
    values["bounds"][0]["upper"] = 100
    values["declared"]["fields"][0]["constraints"]["maximum"] = 100


def narrow_with_digest_and_receipt(values: dict[str, Any]) -> None:
    narrow(values)
    values["digest"] = Schema.from_dict(values["declared"]).digest
    values["composition"]["receipt"]["schema"] = values["digest"]


@pytest.mark.parametrize(
    ("change", "cause"), [(narrow, "schema"), (narrow_with_digest_and_receipt, "numbers")]
)
@registered
def test_a_bound_changed_everywhere_it_stands_is_found_by_what_follows_from_it(
    change: Callable[[dict[str, Any]], None], cause: str, public: Path
) -> None:
    edit(public, change)
    hash_again(public)
    assert cause in failed(verify(public))


@pytest.mark.parametrize("name", ["laplace"])
def test_columns_in_another_order_are_named(public: Path) -> None:
    duckdb.sql(
        f"COPY (SELECT income, age, job, region, owner FROM '{public / DATA}') TO '{public / DATA}.x' "
        "(FORMAT parquet)"
    )
    (public / f"{DATA}.x").replace(public / DATA)
    hash_again(public)
    assert "Column 1 is 'income' (DOUBLE) and must be 'age' (DOUBLE)" in detail(verify(public), "columns")


# --- noise that is not what it says -----------------------------------------------------------------------


def forged(folder: Path, change: Callable[[AnyArray], AnyArray], n_rows: int = 4_000) -> dict[str, AnyArray]:
    """Publish one wide column whose noise, in lattice steps, a curator changed before adding it."""
    schema = Schema(columns=[Column("income", lower=0, upper=200_000, measure="EUR")])
    rows = {"income": np.linspace(0, 200_000, n_rows)}

    class Cheating(GaussianRelease):
        def plan(self, schema: Schema, n_rows: int) -> Any:
            plan = super().plan(schema, n_rows)
            numbers = plan.numbers
            whitening = numbers.whitening  # type: ignore[union-attr]

            def release(matrix: AnyArray, stream: Any) -> AnyArray:
                true = whitening.quantize(matrix)
                drawn = whitening.release(matrix, stream)
                noise = np.rint((drawn - whitening.lower) * whitening._forward) - true
                return np.asarray(whitening.restore((true + np.rint(change(noise))).astype(np.int64)))

            numbers.release = release  # type: ignore[method-assign,union-attr]
            return plan

    honest_, cheating = (kind(scale=20_000, schema=schema) for kind in (GaussianRelease, Cheating))
    publish(folder, honest_, rows, written_by=cheating)
    return rows


CHEATS: dict[str, Callable[[AnyArray], AnyArray]] = {
    "half of it": lambda noise: noise / 2,
    "another source, put on the lattice": lambda noise: np.roll(noise, 1) * (1 + 1e-5),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_noise_on_a_wide_column_that_is_not_the_stated_one_passes_alone_and_fails_with_the_key(
    cheat: str, tmp_path: Path
) -> None:
    rows = forged(tmp_path / "public", CHEATS[cheat])
    alone = verify(tmp_path / "public")
    assert alone.ok, alone
    assert "not checkable without the key" in detail(alone, "noise")
    assert failed(verify(tmp_path / "public", key=KEY, source=rows)) == {"replay"}


@pytest.mark.parametrize(
    ("change", "words"),
    [(lambda noise: noise + 9 * 2**20, "farther out"), (lambda noise: 9 * noise, "varies more")],
)
def test_noise_that_cannot_be_is_found_from_the_file_alone(
    change: Callable[[AnyArray], AnyArray], words: str, tmp_path: Path
) -> None:
    forged(tmp_path / "public", change)
    assert words in detail(verify(tmp_path / "public"), "moments")


# --- the way it is called ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gaussian"])
def test_the_folder_above_is_understood_and_what_is_checked_is_told(public: Path) -> None:
    told: list[str] = []
    assert verify(public.parent, progress=told.append).ok
    assert told.index("hashes") < told.index("numbers") < told.index("attacks")


@pytest.mark.parametrize("name", ["gaussian"])
def test_a_page_that_says_something_else_is_found(public: Path) -> None:
    page = (public / PAGE).read_text(encoding="utf-8")
    (public / PAGE).write_text(page.replace("person", "nobody", 1), encoding="utf-8")
    assert {"hashes", "derived files"} <= failed(verify(public))


@pytest.mark.parametrize("name", ["gaussian"])
def test_a_verification_is_plain_json_and_a_table_of_lines(public: Path) -> None:
    found = verify(public)
    values = found.to_dict()
    assert values["ok"] is True
    assert [check["name"] for check in values["checks"]] == [check.name for check in found.checks]
    assert str(found).splitlines()[0].split() == ["passed", "files:", *found.checks[0].detail.split()]


def test_a_key_without_a_source_and_a_folder_that_is_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="key and source together"):
        verify(tmp_path, key=KEY)
    with pytest.raises(SourceError, match="must be a folder"):
        verify(tmp_path / "nowhere")
