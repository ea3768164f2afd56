"""``discreet learn``: every model through the command line, and how each refusal is told."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet import ApproxDP, Ledger, PureDP, Schema, datasets, load_model, publish_model, verify
from discreet.errors import ParameterError
from discreet.learn import METHODS, Learner
from discreet.ledger.log_verification import check_log
from discreet.pipeline import KeyEscrow, Output, RunOptions, SparkOptions
from discreet.pipeline.training import model_options, trainable_models
from discreet.report.statement.model_documents import ModelStatement
from discreet.tables import open_table
from tests.cli.run import discreet
from tests.cli.test_query import DECLARED, PEOPLE

if TYPE_CHECKING:
    from pathlib import Path

PRICE = ("--epsilon", "4", "--delta", "1e-6")
TOLD = {"kmeans": ("--set", "n_clusters=2"), "ridge": ("--target", "age"), "id3": ("--set", "max_depth=2")}


@pytest.fixture
def survey(tmp_path: Path) -> Path:
    """A folder with a table and its declaration."""
    (tmp_path / "people.csv").write_text(PEOPLE)
    (tmp_path / "people.schema.yaml").write_text(DECLARED)
    return tmp_path


def learn(cwd: Path, *arguments: str, table: str = "people.csv") -> Any:
    return discreet("learn", table, *arguments, cwd=cwd)


def clinic_rows(n: int = 20) -> tuple[Schema, dict[str, np.ndarray[Any, Any]]]:
    """The first bundled rows, as somebody would have them in a frame."""
    data = datasets.load("clinic")
    with open_table(data.path) as table:
        batch = next(iter(table.batches(data.schema)))
    named = {}
    for column in data.schema.released:
        cells = batch[column.name][:n]
        named[column.name] = np.array(column.levels)[cells] if column.is_category else cells
    return data.schema, named


@pytest.mark.parametrize("name", sorted(trainable_models()))
def test_every_model_is_trained_verified_and_used_on_bundled_rows(name: str, tmp_path: Path) -> None:
    target = ("--target", "radius_mean") if name == "ridge" else ()
    told = () if name == "ridge" else TOLD.get(name, ())
    done = learn(tmp_path, "--model", name, *PRICE, *target, *told, table="demo:clinic")
    assert done.code == 0, done.err
    stages = [line.split()[0] for line in done.out.splitlines() if re.search(r"\d\.\d s$", line)]
    is_default = name == "classifier"
    assert stages == ["check", *(["plan"] if is_default else []), "learn", "write"]
    assert done.out.index("Promise: ") < done.out.index("what is not protected")
    assert ("The model is right for" in done.out) == is_default
    public = tmp_path / "model" / "public"
    assert sorted(p.name for p in public.iterdir()) == [
        "SHA256SUMS",
        "model-card.md",
        *(["model.html"] if is_default else []),
        "model.npz",
        "statement.json",
    ]
    assert [p.name for p in (tmp_path / "model" / "internal").iterdir()] == ["audit.jsonl"]
    check_log(tmp_path / "model" / "internal" / "audit.jsonl")
    checked = discreet("verify", "model", cwd=tmp_path)
    assert checked.code == 0, checked.out
    assert "nothing failed" in checked.out

    model = load_model(tmp_path / "model")
    schema, rows = clinic_rows()
    aim = "radius_mean" if name == "ridge" else schema.target
    shown = {column: cells for column, cells in rows.items() if column != aim}
    if hasattr(model, "predict"):
        predicted = model.predict(_frame(shown))
        assert len(predicted) == 20
        assert np.array_equal(model.predict(shown), predicted)  # a mapping will do as well
        if name not in ("ridge", "kmeans"):
            assert set(predicted) <= {"B", "M"}
    else:
        assert model.transform(_frame(shown)).shape[0] == 20


def _frame(rows: dict[str, Any]) -> Any:
    import pandas as pd

    return pd.DataFrame(rows)


@pytest.mark.parametrize("name", ["classifier", "id3", "logistic", "naive-bayes"])
def test_what_was_learned_is_worth_something(name: str, tmp_path: Path) -> None:
    price = ("--epsilon", "20", "--delta", "1e-6", "--no-ledger")
    done = learn(tmp_path, "--model", name, *price, table="demo:clinic")
    assert done.code == 0, done.err
    schema, rows = clinic_rows(569)
    assert schema.target is not None
    truth = rows.pop(schema.target)
    assert np.mean(load_model(tmp_path / "model").predict(_frame(rows)) == truth) > 0.85


def test_without_a_model_it_is_the_classifier_and_its_score_is_stated(survey: Path) -> None:
    done = learn(survey, "--target", "sex", *PRICE)
    assert done.code == 0, done.err
    said = " ".join(done.out.split())
    # What to expect is said before the charge, and the score after it.
    assert said.index(" plan With 4,000 rows and epsilon 4 expect") < said.index(" learn classifier, ")
    statement = ModelStatement.from_json((survey / "model/public/statement.json").read_bytes())
    assert statement.what.model.name == "classifier"
    assert statement.quality is not None
    assert statement.quality.score is not None
    for sentence in statement.quality.sentences[1:]:
        assert " ".join(sentence.split()) in said
    card = (survey / "model/public/model-card.md").read_text()
    assert "(model.html)" in card
    assert "is stated above" in card
    assert any(sentence.startswith("Any other score of this model") for sentence in statement.not_protected)
    found = json.loads(learn(survey, "--target", "sex", *PRICE, "--out", "b", "--json").out)
    assert found["quality"] == statement.quality.model_dump(mode="json")
    assert found["cached"]


@pytest.mark.parametrize("model", ["naive-bayes", "logistic"])
def test_other_classifiers_pay_for_their_score_if_asked(survey: Path, model: str) -> None:
    done = learn(survey, "--model", model, "--target", "sex", "--score", *PRICE)
    assert done.code == 0, done.err
    said = " ".join(done.out.split())
    statement = ModelStatement.from_json((survey / "model/public/statement.json").read_bytes())
    assert statement.quality is not None
    for sentence in statement.quality.sentences:
        assert " ".join(sentence.split()) in said
    assert "as pictures" not in said
    assert verify(survey / "model").ok
    plain = learn(survey, "--model", model, "--target", "sex", *PRICE, "--out", "b")
    assert "How good it is" not in plain.out


def test_a_classifier_without_score_and_floor_says_both(survey: Path) -> None:
    chosen = ("--set", "paid_score=false", "--set", "floor=false")
    done = learn(survey, "--target", "sex", *chosen, *PRICE)
    assert done.code == 0, done.err
    said = " ".join(done.out.split())
    assert "The floor is off: the model may be worse than naming the most common class." in said
    assert "No score was paid for" in said
    assert "The model is right for" not in said
    statement = ModelStatement.from_json((survey / "model/public/statement.json").read_bytes())
    assert statement.quality is not None
    assert statement.quality.score is None
    assert any(sentence.startswith("Scores of this model") for sentence in statement.not_protected)
    assert "score" not in [part.name for part in statement.passes]
    assert verify(survey / "model").ok


def test_a_poor_table_is_warned_of_before_it_is_charged(survey: Path) -> None:
    discreet("ledger", "create", "b.ledger", "--epsilon", "0.001", "--delta", "1e-6", cwd=survey)
    price = ("--epsilon", "0.002", "--delta", "1e-6", "--ledger", "b.ledger")
    done = learn(survey, "--target", "sex", *price)
    assert done.code == 4
    said = " ".join(re.sub(r" +\d+\.\d s$", "", done.out, flags=re.MULTILINE).split())
    assert "even the most common class may be named wrongly" in said
    assert not (survey / "model").exists()


def test_a_dry_run_says_what_to_expect_and_changes_nothing(survey: Path) -> None:
    # A cell that cannot be read shows that none is.
    (survey / "people.csv").write_text(PEOPLE.replace(",45,", ",forty,"))
    before = sorted(survey.iterdir())
    done = learn(survey, "--target", "sex", *PRICE, "--dry-run", "--json")
    assert done.code == 0, done.err
    plan = json.loads(done.out)
    assert plan["n_rows"] == PEOPLE.count("\n") - 1
    assert sum(plan["shares"].values()) == pytest.approx(1.0)
    assert "expect" in plan["expectation"]
    secret = DECLARED.replace("dataset: survey-2024", "dataset: s, neighbors: add-remove, row_count: private")
    (survey / "people.schema.yaml").write_text(secret)
    done = learn(survey, "--target", "sex", *PRICE, "--dry-run")
    assert "private and paid for first" in " ".join(done.out.split())
    assert f"{PEOPLE.count(chr(10)) - 1:,}" not in done.out
    assert sorted(survey.iterdir()) == before


def test_a_model_has_no_key_to_keep(tmp_path: Path) -> None:
    escrow = KeyEscrow("key", "correct horse battery")
    with pytest.raises(ParameterError, match="escrow must be None for a model"):
        publish_model(
            "demo:clinic",
            model="id3",
            privacy=PureDP(epsilon=1),
            out=tmp_path / "m",
            output=Output(escrow=escrow),
        )


def test_a_model_is_not_trained_on_workers_of_spark(tmp_path: Path) -> None:
    run = RunOptions(spark=SparkOptions(master="local[2]"))
    with pytest.raises(ParameterError, match="spark must be None for a model"):
        publish_model("demo:clinic", privacy=PureDP(epsilon=1), out=tmp_path / "m", run=run)
    assert list(tmp_path.iterdir()) == []
    assert list(tmp_path.iterdir()) == []


def test_a_model_through_python_is_the_same_thing(tmp_path: Path) -> None:
    done = publish_model(
        "demo:clinic", model="naive-bayes", privacy=ApproxDP(epsilon=1, delta=1e-6), ledger=False,
        out=tmp_path / "m", n_bins=4, output=Output(about={"curator": "the ward"}),
    )  # fmt: skip
    assert done.statement.what.curator == "the ward"
    assert done.statement.numbers.epsilon == pytest.approx(1, rel=1e-4)
    assert not done.statement.composition.counted
    assert not any(receipt.recorded for receipt in done.receipts)
    assert done.statement == ModelStatement.from_json((done.public / "statement.json").read_bytes())
    assert verify(done.public).ok


def test_the_ledger_is_charged_and_the_receipts_are_in_it(survey: Path) -> None:
    done = learn(survey, "--model", "id3", "--target", "sex", "--set", "max_depth=2", *PRICE, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert len(found["receipts"]) == 2
    with Ledger.open(survey / "survey-2024.ledger") as book:
        spent = book.spent()
    assert spent.charges == 2
    assert spent.epsilon_at(1e-6) <= 4
    place = "model/public/statement.json"
    assert discreet("ledger", "check", "survey-2024.ledger", "--receipt", place, cwd=survey).code == 0
    statement = json.loads((survey / place).read_text())
    statement["passes"][1]["receipt"]["hash"] = "0" * 64
    (survey / "forged.json").write_text(json.dumps(statement))
    forged = discreet("ledger", "check", "survey-2024.ledger", "--receipt", "forged.json", cwd=survey)
    assert forged.code == 1
    again = learn(survey, "--model", "id3", "--target", "sex", "--set", "max_depth=2", *PRICE, "--out", "b")
    said = " ".join(re.sub(r" +\d+\.\d s$", "", again.out, flags=re.MULTILINE).split())
    assert "the same model again, free" in said
    assert (survey / "b/public/model.npz").read_bytes() == (survey / "model/public/model.npz").read_bytes()


@pytest.mark.parametrize("model", ["id3", "logistic"])
def test_a_model_that_is_too_dear_is_told_by_which_flag_it_would_fit(survey: Path, model: str) -> None:
    discreet("ledger", "create", "b.ledger", "--epsilon", "1", "--delta", "1e-6", cwd=survey)

    def train(epsilon: str) -> Any:
        chosen = ("--model", model, "--target", "sex", "--ledger", "b.ledger")
        return learn(survey, *chosen, "--epsilon", epsilon, "--delta", "1e-6", "--out", "c")

    done = train("3")
    assert done.code == 4
    assert re.search(
        r"Not enough budget: this takes [\d,.]+.% of it and 100\.0.% is left\. Nothing was charged\. "
        r"--epsilon [\d.]+ would still fit\.",
        done.err,
    )
    again = train(re.findall(r"--epsilon ([\d.]+) would", done.err)[0])
    assert again.code == 0, again.err


def test_earlier_charges_are_in_the_statement(survey: Path) -> None:
    query = discreet("query", "people.csv", "count where age > 40", "--mu", "0.5", cwd=survey)
    assert query.code == 0
    done = learn(survey, "--model", "logistic", "--target", "sex", "--epsilon", "1", "--json")
    assert done.code == 0, done.err
    statement = json.loads((survey / "model/public/statement.json").read_text())
    (earlier,) = statement["composition"]["earlier"]
    assert earlier["promises"][0]["mu"] == pytest.approx(0.5)
    assert statement["composition"]["total"].startswith("2 charges in this ledger, this one included")
    assert statement["tuning"]["on_private_rows"] == "possible"
    assert verify(survey / "model").ok


def test_whether_rows_are_public_is_the_schemas_to_say(survey: Path) -> None:
    secret = DECLARED.replace("dataset: survey-2024", "dataset: s, neighbors: add-remove, row_count: private")
    (survey / "people.schema.yaml").write_text(secret)
    done = learn(survey, "--model", "id3", "--target", "sex", "--set", "max_depth=1", *PRICE)
    assert done.code == 0, done.err
    statement = json.loads((survey / "model/public/statement.json").read_text())
    assert statement["what"]["rows"] is None
    assert statement["unit"]["neighbors"] == "add-remove"
    assert "4,000" not in (survey / "model/public/model-card.md").read_text()
    assert verify(survey / "model").ok
    refused = learn(survey, "--model", "logistic", "--target", "sex", *PRICE, "--out", "b")
    assert (refused.code, "replace-one" in refused.err) == (2, True)


def test_several_rows_of_one_person_are_covered_or_refused(survey: Path) -> None:
    several = DECLARED.replace(
        "dataset: survey-2024", "dataset: s, id_column: person, max_rows_per_unit: 2"
    ).replace("role: drop", "role: id")
    (survey / "people.schema.yaml").write_text(several)
    refused = learn(survey, "--model", "logistic", "--target", "sex", *PRICE)
    assert (refused.code, "max_rows_per_unit: 1" in refused.err) == (2, True)
    done = learn(survey, "--model", "naive-bayes", "--target", "sex", *PRICE)
    assert done.code == 0, done.err
    assert verify(survey / "model").ok


def test_a_signed_model_shows_who_signed(survey: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (survey / "key.pem").write_bytes(pem)
    (survey / "public.pem").write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    assert (
        learn(survey, "--model", "pca", "--set", "n_components=1", "--mu", "1", "--sign", "key.pem").code == 0
    )
    done = discreet("verify", "model", "--public-key", "public.pem", cwd=survey)
    assert done.code == 0
    assert "signed by the owner" in done.out
    (survey / "model/public/SHA256SUMS").write_text(
        (survey / "model/public/SHA256SUMS").read_text().replace("a", "b", 1)
    )
    assert discreet("verify", "model", "--public-key", "public.pem", cwd=survey).code == 1


# Refusals.


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--model", "idd3", *PRICE), 1, "Did you mean 'id3'?"),
        (("--model", "svm-exact", *PRICE), 1, "promises nothing"),
        ((*PRICE,), 1, "target of the model classifier must be a column, and none is declared"),
        (("--target", "age", *PRICE), 1, "predict the number with --model ridge"),
        (("--target", "sex", "--set", "paid_score=perhaps", *PRICE), 1, "True, False or 'table'"),
        (("--target", "sex", "--score", "--set", "paid_score=true", *PRICE), 1, "must not be given both"),
        (("--model", "ridge", "--score", "--target", "age", *PRICE), 1, "has no accuracy that could be paid"),
        (("--model", "kmeans", "--no-score", *PRICE), 1, "has no accuracy that could be paid"),
        (("--target", "sex"), 1, "it has no default. Give --epsilon"),
        (("--model", "id3", "--target", "sex"), 1, "it has no default. Give --epsilon"),
        (("--model", "id3", *PRICE), 1, "Name one (--target COLUMN"),
        (("--model", "id3", "--target", "sexx", *PRICE), 1, "Did you mean 'sex'?"),
        (("--model", "id3", "--target", "age", *PRICE), 1, "a target that is a category"),
        (("--model", "logistic", "--target", "age", *PRICE), 1, "a list of at least two values"),
        (("--model", "ridge", "--target", "sex", *PRICE), 1, "a target that is a number"),
        (("--model", "logistic", "--target", "sex", "--mu", "1"), 1, "must be a PureDP, an ApproxDP"),
        (("--model", "kmeans", "--set", "n_cluster=3", *PRICE), 1, "Did you mean 'n_clusters'?"),
        (("--model", "kmeans", "--set", "n_clusters=0", *PRICE), 1, "from 1 to 1024, was 0"),
        (("--model", "kmeans", "--set", "n_clusters", *PRICE), 1, "--set must be name=value"),
        (("--model", "kmeans", "--set", "random_state=1", *PRICE), 1, "The model kmeans has no parameter"),
        (("--model", "kmeans", "--set", "schema=x.yaml", *PRICE), 1, "has no parameter 'schema'"),
        (("--model", "kmeans", "--epsilon", "1", "--rho", "1"), 1, "exclude each other"),
        (("--model", "pca", *PRICE, "--out", "no/where"), 1, "folder that exists"),
    ],
)
def test_wrong_requests_are_refused_with_a_way_out_and_nothing_is_left(
    survey: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = learn(survey, *arguments)
    assert (done.code, said in done.err) == (code, True), done.err
    assert not (survey / "model").exists()
    assert not [p for p in survey.iterdir() if p.name.endswith(".partial")]
    with Ledger.open(survey / "survey-2024.ledger") as book:
        assert book.spent().charges == 0


def test_a_budget_that_is_used_up_leaves_no_model(survey: Path) -> None:
    discreet("ledger", "create", "b.ledger", "--epsilon", "1", "--delta", "1e-6", cwd=survey)
    done = learn(survey, "--model", "naive-bayes", "--target", "sex", *PRICE, "--ledger", "b.ledger")
    assert done.code == 4
    assert "Not enough budget: this takes " in done.err
    assert not (survey / "model").exists()


@pytest.mark.parametrize("name", ["id3", "logistic"])
def test_a_bad_cell_or_an_empty_table_is_named_before_anything_is_paid(survey: Path, name: str) -> None:
    for content, said in (
        ("person,age,hours,sex\n", "must have at least one row"),
        ("person,age,hours,sex\np,wizened,4,f\n", "row 1"),
        ("person,age,hours,sex\np,20,4,unlisted\n", "sex"),
        ("person,age,hours\np,20,4\n", "sex"),
    ):
        (survey / "people.csv").write_text(content)
        done = learn(survey, "--model", name, "--target", "sex", *PRICE)
        assert done.code in (1, 2)
        assert said in done.err
        assert "wizened" not in done.err
        assert "unlisted" not in done.err
    with Ledger.open(survey / "survey-2024.ledger") as book:
        assert book.spent().charges == 0


def test_cells_outside_their_bounds_are_moved_and_nobody_says_that_they_fit(survey: Path) -> None:
    (survey / "people.csv").write_text("person,age,hours,sex\n" + "p,20,4,f\nq,999,4,m\n" * 40)
    done = learn(survey, "--model", "naive-bayes", "--target", "sex", *PRICE)
    assert done.code == 0, done.err
    # Lines break where the terminal does.
    said = " ".join((done.out + done.err).split())
    assert "outside its bounds is" in re.sub(r"\d+\.\d s ", "", said)
    assert "every cell fits" not in said
    assert "999" not in said


def test_a_folder_is_replaced_only_if_asked(survey: Path) -> None:
    arguments = ("--model", "pca", "--set", "n_components=1", "--mu", "1")
    assert learn(survey, *arguments).code == 0
    assert "exists already" in learn(survey, *arguments).err
    assert learn(survey, *arguments, "--replace").code == 0


def test_what_cannot_be_saved_is_refused_before_it_is_paid(
    survey: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("discreet.learn._pca.PrivatePCA._constraints", {})
    monkeypatch.setattr(Learner, "_check_parameters", lambda _: None)
    done = learn(survey, "--model", "pca", "--set", 'radius={"a": 1}', "--mu", "1")
    assert (done.code, "must be plain numbers or text to be saved" in done.err) == (1, True)
    assert not (survey / "survey-2024.ledger").exists()


# Help and lists.


def test_the_list_and_the_help_name_every_model_with_a_line(tmp_path: Path) -> None:
    assert set(trainable_models()) == set(METHODS) - {
        name for name, kind in METHODS.items() if "privacy" not in kind._get_param_names()
    }
    listed = discreet("learn", "--list", cwd=tmp_path)
    helped = discreet("learn", "--help", cwd=tmp_path)
    found = json.loads(discreet("learn", "--list", "--json", cwd=tmp_path).out)
    assert [one["model"] for one in found] == [
        "classifier",
        *sorted(set(trainable_models()) - {"classifier"}),
    ]
    assert [one["model"] for one in found if one["default"]] == ["classifier"]
    assert listed.out.splitlines()[1].startswith("classifier (default) ")
    assert all(one["about"].endswith(".") for one in found)
    for name in trainable_models():
        assert re.search(rf"^{name} ", listed.out, re.MULTILINE)
        assert name in helped.out
        assert not {"privacy", "ledger", "random_state", "schema"} & set(model_options(name))
    assert "was not paid for" in " ".join(helped.out.split())


@pytest.mark.slow
def test_a_reader_who_leaves_stops_nothing(survey: Path) -> None:
    code = "from discreet.cli import main; main()"
    for arguments in (
        ("init", "people.csv", "--out", "x.yaml"),
        ("learn", "people.csv", "--model", "pca", "--set", "n_components=1", "--mu", "1"),
        ("learn", "--list", "--json"),
    ):
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            cwd=survey,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read()
        process.stderr.close()
        assert (process.wait(), said) == (0, b"")
    assert (survey / "x.yaml").exists()
    assert (survey / "model" / "public").exists()
