from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet import ApproxDP, BoundedRelease, Column, ErrorFloor, GaussianRelease, Ledger, Schema
from discreet.audit import Guess
from discreet.errors import ParameterError
from discreet.formatting import number
from discreet.noise_law import KINDS
from discreet.privacy import GaussianDP, NoPromise, PureDP
from discreet.query import Database
from discreet.release import LaplaceRelease
from discreet.report.statement import documents as statement_module
from discreet.report.statement.build import build_statement
from discreet.report.statement.documents import STATEMENT_SCHEMA, About, Statement, statement_schema
from discreet.report.statement.model import _total_sentence
from discreet.report.statement.sentences import DEPLOYMENT, SAMPLERS, THEOREMS, total_sentence
from discreet.report.statement.table import TableSubject
from tests.contracts.cases import OF_NOBODY, ROWS, SCHEMA
from tests.report.published import CREATED, METHODS, TUNING, publish

if TYPE_CHECKING:
    from discreet.release import ReleaseMethod

ROOT = Path(__file__).resolve().parents[2]
AGES = Schema(columns=[Column("age", lower=17, upper=90, measure="years")], dataset="ages")
FEW = {"age": np.array([20.0, 40.0, 60.0])}


def stated(
    method: ReleaseMethod, rows: dict[str, Any], tmp_path: Path, *, attacks: Any = (), **rest: Any
) -> Statement:
    publication = method.publish(rows, tmp_path / "data.parquet", replace=True)
    return build_statement(
        TableSubject(publication, method, attacks), tuning=TUNING, files={}, created=CREATED, **rest
    )


@pytest.fixture(scope="module")
def statements(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Statement]:
    return {
        name: stated(make(), dict(ROWS), tmp_path_factory.mktemp("stated")) for name, make in METHODS.items()
    }


names = pytest.mark.parametrize("name", METHODS)


def test_the_published_json_schema_is_the_one_of_the_statement() -> None:
    package = Path(statement_module.__file__).parents[1]
    assert (package / STATEMENT_SCHEMA).read_text(encoding="utf-8") == statement_schema()


def test_every_block_of_a_statement_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "statement.md").read_text(encoding="utf-8")
    blocks = json.loads(statement_schema())
    wanted = set(blocks["properties"]) | {
        name for block in blocks["$defs"].values() for name in block["properties"]
    }
    missing = [name for name in sorted(wanted) if f"`{name}`" not in page]
    assert missing == []


@names
def test_a_statement_is_read_back_as_it_was_written_byte_for_byte(
    name: str, statements: dict[str, Statement]
) -> None:
    text = statements[name].to_json()
    again = Statement.from_json(text.encode())
    assert again == statements[name]
    assert again.to_json() == text
    assert list(json.loads(text)) == sorted(json.loads(text))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"kind": "discreet-statement", "kind": "x"}', "twice"),
        (b'{"what": NaN}', "no number"),
        (b'{"what": ' + b"[" * 100_000, "nested too deeply"),
        (b"\xff\xfe", "UTF-8"),
        (b'{"kind": "discreet-statement",}', "line 1"),
        (b'{"kind": "another thing"}', "kind"),
        (b"[]", "statement of this version"),
        (b'{"version": ' + b"9" * 10_000 + b"}", "plain JSON"),
    ],
)
def test_what_is_no_statement_is_refused_with_the_reason(content: bytes, why: str) -> None:
    with pytest.raises(ParameterError, match=why):
        Statement.from_json(content)


def test_a_key_that_nobody_knows_is_refused(statements: dict[str, Statement]) -> None:
    values = json.loads(statements["gaussian"].to_json())
    values["what"]["epsilon"] = 0.1
    with pytest.raises(ParameterError, match=r"what\.epsilon"):
        Statement.from_json(json.dumps(values).encode())


def test_the_sentence_of_a_floor_is_the_one_that_is_true(tmp_path: Path) -> None:
    made = stated(GaussianRelease(privacy=ErrorFloor(age=9), schema=AGES), FEW, tmp_path)
    (column,) = made.numbers.columns
    assert column.sentence == (
        "Whoever knows more about a person, such as how age goes with the other columns, may guess age "
        "better than this: if it could equally well be anything from 17 to 90, no method can guess it from "
        "this file with a root-mean-square error below 9 years."
    )
    assert column.floor is not None
    assert column.without == pytest.approx(73 / 12**0.5)


def test_a_floor_is_printed_rounded_down_and_an_epsilon_rounded_up(tmp_path: Path) -> None:
    made = stated(GaussianRelease(scale=33.3, schema=AGES), FEW, tmp_path)
    (column,) = made.numbers.columns
    printed = re.search(r"error below ([\d.]+) years", column.sentence)
    assert printed is not None
    assert column.floor is not None
    assert float(printed[1]) <= column.floor["error"] < float(printed[1]) + 0.1
    said = re.search(r"has epsilon ([\d.,]+) at delta", made.definition.sentences[0])
    assert said is not None
    assert made.numbers.epsilon is not None
    assert made.numbers.epsilon <= float(said[1].replace(",", "")) < made.numbers.epsilon * 1.001


def _printed(pattern: str, sentence: str) -> Decimal:
    found = re.search(pattern + r" ([\d.,]*\d)", sentence)
    assert found is not None, sentence
    return Decimal(found[1].replace(",", ""))


def test_the_floor_of_a_list_is_printed_rounded_down(tmp_path: Path) -> None:
    schema = Schema(columns=[Column("job", values=("a", "b", "c"), closed=True)], dataset="jobs")
    rows = {"job": np.array(["a", "b", "c"], dtype=object)}
    nearest_is_above = 0
    for epsilon in (0.5, 0.8, 1.1, 1.4, 1.7):
        made = stated(LaplaceRelease(privacy=PureDP(epsilon=epsilon), schema=schema), rows, tmp_path)
        (column,) = made.numbers.columns
        assert column.floor is not None
        error = Decimal(repr(column.floor["error"])) * 100
        assert error - Decimal("0.1") < _printed("wrong less than", column.sentence) <= error
        nearest_is_above += round(error, 1) > error
    assert nearest_is_above  # what rounding to nearest would print is caught


def test_the_factor_of_an_epsilon_is_printed_rounded_up() -> None:
    nearest_is_below = 0
    for step in range(1, 200):
        epsilon = step / 10
        factor = Decimal(repr(epsilon)).exp()
        said = [total_sentence(epsilon, 1e-6, "person"), _total_sentence(AGES, epsilon, 1e-6)]
        for sentence in said:
            assert _printed("by at most", sentence) >= factor
        nearest_is_below += Decimal(number(math.exp(epsilon)).replace(",", "")) < factor
    assert nearest_is_below > 50
    for sentence in (total_sentence(20.00001, None, "person"), _total_sentence(AGES, 20.00001, None)):
        assert "at most exp(20.01)." in sentence


def test_whole_numbers_dates_and_lists_are_named_as_such(tmp_path: Path) -> None:
    import datetime

    schema = Schema(
        columns=[
            Column("age", type="integer", lower=17, upper=90),
            Column("born", lower=datetime.date(1930, 1, 1), upper=datetime.date(2010, 12, 31)),
            Column("job", values=("clerk", "nurse"), closed=True),
        ],
        unit="household",
    )
    rows = {
        "age": np.array([20, 30]),
        "born": np.array(["1950-01-01", "1990-01-01"], "datetime64[D]"),
        "job": np.array(["nurse", "clerk"]),
    }
    method = GaussianRelease(privacy=ErrorFloor(age=9), schema=schema)
    age, born, job = stated(method, rows, tmp_path).numbers.columns
    assert "Whoever knows more about one household" in age.sentence
    assert "if it could equally well be any whole number from 17 to 90" in age.sentence
    assert "any day from 1930-01-01 to 2010-12-31" in born.sentence
    assert "days" in born.sentence
    assert (born.holds, born.origin, born.measure) == ("number", "1930-01-01", "days")
    assert "any of the 2 declared values" in job.sentence
    assert "of the time" in job.sentence


@names
def test_only_a_release_with_an_epsilon_for_all_of_it_is_called_differentially_private(
    name: str, statements: dict[str, Statement]
) -> None:
    made = statements[name]
    private = name not in ("invariant", "bounded, additive")
    assert made.definition.differential_privacy is private
    assert (made.numbers.epsilon is not None) is private
    assert (
        "Do not take this release for differentially private" in made.definition.sentences[0]
    ) is not private


def test_a_delta_that_is_not_small_is_said_and_not_sold_as_an_epsilon(
    statements: dict[str, Statement],
) -> None:
    made = statements["bounded, additive"]
    assert any(promise.get("delta", 0.0) > 0.5 for promise in made.numbers.promises)
    assert made.numbers.epsilon is None
    assert any("adds at most 0.8" in sentence for sentence in made.definition.sentences)


def test_narrow_noise_of_bounded_support_says_that_it_has_no_epsilon(tmp_path: Path) -> None:
    made = stated(BoundedRelease(support=9.0, schema=AGES), FEW, tmp_path)
    said = " ".join(made.definition.sentences)
    assert "No privacy is promised: additive noise of bounded support excludes values" in said


@names
def test_every_theorem_that_a_statement_names_has_a_page(name: str, statements: dict[str, Statement]) -> None:
    pages = {page.stem for page in (ROOT / "docs" / "explanation" / "theorems").glob("*.md")}
    named = {theorem.id for theorem in statements[name].numbers.theorems}
    assert named
    assert named <= pages


def test_every_law_has_its_sampler_its_model_and_its_theorems() -> None:
    laws = set(KINDS) - {"clear"}
    assert laws <= set(SAMPLERS)
    assert laws <= set(DEPLOYMENT)
    assert laws <= set(THEOREMS)


@names
def test_bounds_and_open_things_are_said_for_every_column_that_was_declared(
    name: str, statements: dict[str, Statement]
) -> None:
    made = statements[name]
    assert [bound.column for bound in made.bounds] == [column.name for column in SCHEMA.released]
    assert any("number of rows" in sentence for sentence in made.not_protected)
    assert name in OF_NOBODY or any("region" in sentence for sentence in made.not_protected)
    assert all(sentence[0].isupper() and sentence.endswith(".") for sentence in made.not_protected)


def test_a_second_release_of_the_same_data_set_lists_the_first_and_adds_it_up(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ages.ledger", limit=ApproxDP(epsilon=10, delta=1e-5))
    method = GaussianRelease(privacy=ApproxDP(epsilon=1, delta=1e-6), schema=AGES, ledger=ledger)
    first = stated(method, FEW, tmp_path, ledger=ledger)
    second = stated(method, FEW, tmp_path, ledger=ledger)
    third_party = stated(method, FEW, tmp_path, ledger=ledger.history())
    assert first.composition.earlier == []
    assert first.composition.counted
    assert [charge.what for charge in second.composition.earlier] == ["gaussian release of ages"]
    assert second.composition.earlier[0].promises == first.numbers.promises
    assert first.composition.total.startswith("Alone in this ledger: epsilon 1 at delta")
    assert second.composition.total.startswith("2 charges in this ledger, this one included: epsilon 1.4")
    assert len(third_party.composition.earlier) == 2
    assert "epsilon = 10, delta = 1e-05" in str(second.composition.limit)
    assert "would bring the total to: epsilon 1.8" in second.composition.next


def test_after_questions_that_answers_could_steer_the_total_is_the_limit_and_not_the_sum(
    tmp_path: Path,
) -> None:
    limited = Ledger.open(tmp_path / "ages.ledger", limit=ApproxDP(epsilon=10, delta=1e-5))
    free = Ledger.open(tmp_path / "free.ledger")
    for ledger in (limited, free):
        method = GaussianRelease(privacy=ApproxDP(epsilon=1, delta=1e-6), schema=AGES, ledger=ledger)
        with Database(FEW, schema=AGES, ledger=ledger) as db:
            db.sum("age", privacy=GaussianDP(mu=0.1))
        made = stated(method, FEW, tmp_path, ledger=ledger).composition
        assert [charge.what for charge in made.earlier] == ["sums"]
        if ledger is limited:
            assert "guaranteed is the limit of the ledger" in made.total
            assert "epsilon = 10, delta = 1e-05" in made.total
            assert "epsilon 1." not in made.total + made.next
        else:
            assert "no guarantee" in made.total


def test_no_floor_is_left_after_a_release_that_proves_none(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ages.ledger")
    method = GaussianRelease(scale=9, schema=AGES, ledger=ledger)
    stated(method, FEW, tmp_path, ledger=ledger)
    second = stated(method, FEW, tmp_path, ledger=ledger)
    assert "error floors (van Trees) age" in second.composition.total
    ledger.charge(NoPromise("the model may give anybody away"), what="another kind of release")
    fourth = stated(method, FEW, tmp_path, ledger=ledger)
    assert "floor" not in fourth.composition.total + fourth.composition.next


def test_an_epsilon_over_several_charges_names_what_some_of_them_leave_out(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "owners.ledger")
    schema = Schema(columns=[*AGES.columns, Column("owner", values=("no", "yes"), role="target")])
    rows = {**FEW, "owner": np.array(["no", "yes", "no"])}
    totals = []
    for label in ("randomized", "randomized", "clear"):
        method = GaussianRelease(
            privacy=ApproxDP(epsilon=1, delta=1e-6), schema=schema, label=label, ledger=ledger
        )
        totals.append(stated(method, rows, tmp_path, ledger=ledger).composition.total)
    assert ["not every charge covers owner" in total for total in totals] == [False, False, True]


def test_charges_after_this_one_and_of_other_ledgers_are_not_listed_as_earlier(tmp_path: Path) -> None:
    ours, theirs = Ledger.open(tmp_path / "a.ledger"), Ledger.open(tmp_path / "b.ledger")
    theirs.charge(ApproxDP(epsilon=1, delta=1e-6), what="something else")
    method = GaussianRelease(scale=9, schema=AGES, ledger=ours)
    publication = method.publish(FEW, tmp_path / "data.parquet")
    ours.charge(ApproxDP(epsilon=1, delta=1e-6), what="later")
    history = [*ours.history(), *theirs.history()]
    made = build_statement(TableSubject(publication, method), tuning=TUNING, files={}, ledger=history)
    assert made.composition.earlier == []


@pytest.mark.parametrize("id_column", [None, "who"])
def test_where_rows_are_put_together_by_person_their_number_is_assumed_public(
    id_column: str | None, tmp_path: Path
) -> None:
    columns = [*AGES.columns, Column("who", role="id")]
    schema = Schema(columns=columns, id_column=id_column, max_rows_per_unit=1 if id_column else None)
    rows = {**FEW, "who": np.array([1, 1, 2])}
    made = stated(GaussianRelease(scale=9, schema=schema), rows, tmp_path)
    assert made.what.rows_read == 3  # however few are published
    assert ("How many rows each unit has is public." in made.assumptions) == (id_column is not None)


def test_a_release_that_nobody_counts_says_so(statements: dict[str, Statement]) -> None:
    composition = statements["gaussian"].composition
    assert not composition.counted
    assert "Nobody counts" in composition.total
    assert "No ledger would notice" in composition.next


def test_a_seed_is_shouted(tmp_path: Path) -> None:
    made = stated(GaussianRelease(scale=9, schema=AGES, random_state=1), FEW, tmp_path)
    assert made.implementation.seeded
    assert made.implementation.randomness.startswith("SEEDED")
    assert "PROTECTS NOBODY" in made.implementation.randomness


def test_what_happened_to_the_numbers_after_the_noise_is_said(tmp_path: Path) -> None:
    made = stated(GaussianRelease(scale=9, schema=AGES, clamp=True), FEW, tmp_path)
    assert any(
        "age moved back into its declared range" in done for done in made.implementation.post_processing
    )
    assert any("random order" in done for done in made.implementation.post_processing)


def test_what_only_people_can_say_is_published_as_it_stands(tmp_path: Path) -> None:
    about = About(curator="A census", purpose="Teaching", license="CC-BY-4.0", supersedes="ages-0")
    made = stated(GaussianRelease(scale=9, schema=AGES), FEW, tmp_path, about=about)
    assert (made.what.curator, made.what.purpose, made.what.supersedes) == ("A census", "Teaching", "ages-0")


def guess(on: str) -> Guess:
    values = Guess(
        attack="shrinkage", column="age", statistic="root-mean-square error", measure="years", error=9.5,
        lower=9.4, upper=9.6, failure_probability=0.0, without=21.0, floor=9.0, verdict="shown", on="file",
        knowledge="the file", n=3, seconds=1.25,
    ).to_dict()  # fmt: skip
    return Guess.from_dict({**values, "on": on})


def test_how_long_an_attack_took_is_not_published_and_attacks_on_rows_are_refused(tmp_path: Path) -> None:
    method = GaussianRelease(scale=9, schema=AGES)
    made = stated(method, FEW, tmp_path, attacks=[guess("file")])
    assert [attack["seconds"] for attack in made.attacks] == [0.0]
    for on in ("rows", "prior"):
        with pytest.raises(ParameterError, match="on the published file"):
            stated(method, FEW, tmp_path, attacks=[guess(on)])


def test_a_method_that_was_made_with_bare_bounds_has_no_statement(tmp_path: Path) -> None:
    publication = GaussianRelease(scale=9, schema=AGES).publish(FEW, tmp_path / "data.parquet")
    with pytest.raises(ParameterError, match="schema="):
        TableSubject(publication, GaussianRelease(scale=9, bounds=(17, 90)))


@pytest.mark.parametrize("name", ["gaussian", "laplace", "bounded"])
def test_neighboring_tables_under_one_key_differ_in_data_hashes_and_attacks_alone(
    name: str, tmp_path: Path
) -> None:
    rows = {**ROWS, "age": np.array([*ROWS["age"][:-1], 3])}
    first = publish(tmp_path / "a", METHODS[name](), ROWS)
    second = publish(tmp_path / "b", METHODS[name](), rows)
    one, other = (json.loads(made.to_json()) for made in (first, second))
    for made in (one, other):
        for name_ in ("id", "when"):  # when it was charged: two releases may fall into two minutes
            del made["composition"]["receipt"][name_]
        del made["what"]["created"]
    assert {block for block in one if one[block] != other[block]} == {"attacks", "files"}
