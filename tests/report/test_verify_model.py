"""A model that was changed after it was made, or never was what it says, does not pass."""

from __future__ import annotations

import io
import json
import math
import shutil
import zipfile
from datetime import datetime
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pytest

from discreet import ApproxDP, Column, PrivateClassifier, PureDP, Schema, publish_model, verify
from discreet.errors import ParameterError, SourceError
from discreet.learn import METHODS, paid_score
from discreet.pipeline import Output, RunOptions
from discreet.report.folder._metadata import model_card
from discreet.report.folder.folder import (
    CARD,
    MODEL,
    MODEL_PAGE,
    STATEMENT,
    SUMS,
    derived_of_model,
    digest_of,
    write_sums,
)
from discreet.report.folder.model_files import LARGEST_MODEL, read_archive
from discreet.report.statement.documents import write_json
from discreet.report.statement.model import describe_quality
from discreet.report.statement.model_documents import MODEL_SCHEMA, ModelStatement, model_statement_schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from discreet.report.verify import Verification

SCHEMA = Schema(
    dataset="survey",
    columns=[
        Column("age", type="integer", lower=0, upper=99, measure="years"),
        Column("ward", values=("a", "b", "c")),
        Column("owner", values=("no", "yes"), closed=True),
    ],
    target="owner",
)
ROWS: dict[str, list[Any]] = {
    "age": [(7 * i) % 100 for i in range(600)],
    "ward": ["abc"[i % 3] for i in range(600)],
    "owner": ["yes" if (7 * i) % 100 > 50 else "no" for i in range(600)],
}
MANY = {name: cells * 5 for name, cells in ROWS.items()}
KINDS = ("naive-bayes", "logistic", "large-margin-gaussian", "classifier")
SCORED = ("id3", "svm")
"""Models whose score is paid for besides: one on sums, one on rows."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One folder by a learner on sums, one by a learner on rows; tests do not change them."""
    folder = tmp_path_factory.mktemp("made")
    for name in KINDS:
        publish_model(
            ROWS, model=name, schema=SCHEMA, privacy=ApproxDP(epsilon=1, delta=1e-6),
            ledger=folder / f"{name}.ledger", run=RunOptions(new_ledger=True), out=folder / name,
        )  # fmt: skip
    for name in SCORED:
        publish_model(
            MANY, model=name, schema=SCHEMA, privacy=ApproxDP(epsilon=1, delta=1e-6), paid_score=True,
            ledger=folder / f"{name}.ledger", run=RunOptions(new_ledger=True), out=folder / name,
        )  # fmt: skip
    return {name: folder / name / "public" for name in (*KINDS, *SCORED)}


@pytest.fixture
def copies(made: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        shutil.copytree(made[name], tmp_path / "public")
        return tmp_path / "public"

    return copy


def rewritten(folder: Path, change: Callable[[dict[str, Any]], object]) -> Verification:
    """Change a statement the way a careful forger does: the card and all hashes fit again."""
    content = json.loads((folder / STATEMENT).read_text())
    content["files"] = {MODEL: digest_of(folder / MODEL)}
    release = f"{content['what']['dataset']}-{content['what']['model']['name']}"
    content["what"]["release"] = f"{release}-{content['files'][MODEL][:12]}"
    change(content)
    (folder / STATEMENT).write_text(write_json(content))
    try:
        statement = ModelStatement.from_json((folder / STATEMENT).read_bytes())
        (folder / CARD).write_text(model_card(statement))
        if (folder / MODEL_PAGE).exists():
            learner = METHODS["classifier"].load(folder / MODEL)
            (folder / MODEL_PAGE).write_text(derived_of_model(statement, learner)[MODEL_PAGE])
    except (ParameterError, SourceError):
        pass
    (folder / SUMS).unlink()
    write_sums(folder)
    return verify(folder)


def repacked(folder: Path, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> None:
    """Change the model's file: its header and its arrays."""
    with np.load(folder / MODEL) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(arrays.pop("header").tobytes())
    change(header, arrays)
    text = json.dumps(header).encode()
    with (folder / MODEL).open("wb") as file:
        np.savez(file, header=np.frombuffer(text, np.uint8), **arrays)


def failed(found: Verification) -> set[str]:
    return {check.name for check in found.failures}


@pytest.mark.parametrize("name", [*KINDS, *SCORED])
def test_an_honest_model_passes_and_so_does_one_that_was_only_written_again(
    name: str, copies: Callable[[str], Path]
) -> None:
    folder = copies(name)
    assert verify(folder).ok
    assert verify(folder.parent).ok
    assert rewritten(folder, lambda content: None).ok


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("file", [MODEL, STATEMENT, CARD])
def test_one_changed_byte_fails_and_names_the_file(
    name: str, file: str, copies: Callable[[str], Path]
) -> None:
    folder = copies(name)
    content = bytearray((folder / file).read_bytes())
    # Of a text a letter within a sentence, which can still be read.
    content[len(content) // 2 if file == MODEL else content.index(b" the ") + 1] ^= 1
    (folder / file).write_bytes(content)
    found = verify(folder)
    assert not found.ok
    assert any(check.name == "hashes" and file in check.detail for check in found.failures)


def _epsilon(content: dict[str, Any]) -> None:
    content["numbers"]["epsilon"] = 0.5


def _promise(content: dict[str, Any]) -> None:
    for promise in content["numbers"]["promises"]:
        for key in ("mu", "epsilon"):
            if key in promise:
                promise[key] /= 2


def _privacy(content: dict[str, Any]) -> None:
    content["what"]["model"]["parameters"]["privacy"]["epsilon"] = 0.5


def _receipt(content: dict[str, Any]) -> None:
    for promise in content["passes"][0]["receipt"]["promises"]:
        for key in ("mu", "epsilon"):
            if key in promise:
                promise[key] /= 2


def _bound(content: dict[str, Any]) -> None:
    content["declared"]["fields"][0]["constraints"]["maximum"] = 50


def _sentence(content: dict[str, Any]) -> None:
    content["definition"]["sentences"][0] = "This model is perfectly private."


def _open(content: dict[str, Any]) -> None:
    content["not_protected"].pop()


def _total(content: dict[str, Any]) -> None:
    content["composition"]["total"] = "Alone in this ledger: epsilon 0.1."


def _uncounted(content: dict[str, Any]) -> None:
    content["composition"]["counted"] = False


def _name(content: dict[str, Any]) -> None:
    content["what"]["model"]["name"] = "id3"


def _reads(content: dict[str, Any]) -> None:
    content["what"]["reads"] = ["age"]


def _rows(content: dict[str, Any]) -> None:
    content["what"]["rows"] = None


def _unit(content: dict[str, Any]) -> None:
    content["unit"]["max_rows_per_unit"] = 9


def _sampler(content: dict[str, Any]) -> None:
    content["implementation"]["sampler"] = "The best there is."


def _seeded(content: dict[str, Any]) -> None:
    content["implementation"]["seeded"] = True


def _other_bytes(content: dict[str, Any]) -> None:
    content["files"] = {MODEL: "0" * 64}


def _more(content: dict[str, Any]) -> None:
    content["trust"] = "me"


def _no_passes(content: dict[str, Any]) -> None:
    content["passes"] = []


FORGED: dict[Callable[[dict[str, Any]], None], str] = {
    _epsilon: "numbers",
    _promise: "promise",
    _privacy: "model",
    _receipt: "promise",
    _bound: "schema",
    _sentence: "wording",
    _open: "wording",
    _total: "composition",
    _uncounted: "composition",
    _name: "model",
    _reads: "schema",
    _rows: "schema",
    _unit: "numbers",
    _sampler: "implementation",
    _seeded: "implementation",
    _other_bytes: "model",
    _more: "statement",
    _no_passes: "promise",
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("forge", FORGED, ids=lambda forge: forge.__name__)
def test_a_forged_statement_fails_at_the_check_it_concerns(
    name: str, forge: Callable[[dict[str, Any]], None], copies: Callable[[str], Path]
) -> None:
    found = rewritten(copies(name), forge)
    assert FORGED[forge] in failed(found), str(found)
    assert "hashes" not in failed(found)


def test_a_smaller_epsilon_forged_everywhere_does_not_fit_the_questions(
    copies: Callable[[str], Path],
) -> None:
    folder = copies("naive-bayes")

    def halve(promise: dict[str, Any]) -> None:
        for key in ("mu", "epsilon"):
            if key in promise:
                promise[key] /= 2

    def in_file(header: dict[str, Any], _: dict[str, Any]) -> None:
        halve(header["parameters"]["privacy"])
        for promise in header["fitted"]["promises_"]:
            halve(promise)

    repacked(folder, in_file)

    def in_statement(content: dict[str, Any]) -> None:
        halve(content["what"]["model"]["parameters"]["privacy"])
        for promise in content["numbers"]["promises"]:
            halve(promise)

    found = rewritten(folder, in_statement)
    (check,) = (check for check in found.failures if check.name == "promise")
    assert "mu says" in check.detail


def test_a_smaller_epsilon_forged_everywhere_does_not_fit_the_plan_of_a_model_on_rows(
    copies: Callable[[str], Path],
) -> None:
    folder = copies("logistic")

    def shrink(values: Any) -> None:
        if isinstance(values, dict):
            for key in ("epsilon", "mu"):
                if isinstance(values.get(key), float):
                    values[key] /= 2
            for value in values.values():
                shrink(value)
        elif isinstance(values, list):
            for value in values:
                shrink(value)

    def in_file(header: dict[str, Any], _: dict[str, Any]) -> None:
        shrink(header["fitted"])  # what was promised and charged, not what was asked for

    repacked(folder, in_file)

    def in_statement(content: dict[str, Any]) -> None:
        shrink(content["numbers"])
        shrink(content["passes"])

    assert "promise" in failed(rewritten(folder, in_statement))


def test_a_question_that_fits_no_schema_fails(copies: Callable[[str], Path]) -> None:
    def fewer(content: dict[str, Any]) -> None:
        content["passes"][0]["question"]["nodes"][0]["attributes"] = ["height"]

    assert "promise" in failed(rewritten(copies("naive-bayes"), fewer))


@pytest.mark.parametrize("name", KINDS)
def test_a_file_that_carries_more_than_a_model_is_caught(name: str, copies: Callable[[str], Path]) -> None:
    folder = copies(name)

    def smuggle(_: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays["rows"] = np.arange(600)

    repacked(folder, smuggle)
    found = rewritten(folder, lambda content: None)
    assert any("'rows'" in check.detail for check in found.failures)


@pytest.mark.parametrize("name", KINDS)
def test_an_attribute_that_no_such_model_has_is_caught(name: str, copies: Callable[[str], Path]) -> None:
    folder = copies(name)
    repacked(folder, lambda header, _: header["fitted"].update(X_=[1, 2, 3]))
    assert "model" in failed(rewritten(folder, lambda content: None))


@pytest.mark.parametrize("name", KINDS)
def test_a_file_with_code_in_it_is_not_run(name: str, copies: Callable[[str], Path], tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (tmp_path.joinpath("ran").touch, ())

    folder = copies(name)
    array = np.empty(1, dtype=object)
    array[0] = Evil()
    with (folder / MODEL).open("wb") as file:
        np.savez(file, header=array)
    found = rewritten(folder, lambda content: None)
    assert "model" in failed(found)
    assert not (tmp_path / "ran").exists()


def test_a_file_that_unpacks_to_far_more_is_not_unpacked(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("header.npy", "w", force_zip64=True) as entry,
    ):
        block = bytes(1 << 24)
        for _ in range(LARGEST_MODEL // len(block) + 1):
            entry.write(block)
    (tmp_path / MODEL).write_bytes(packed.getvalue())
    with pytest.raises(SourceError, match="far more"):
        read_archive(tmp_path / MODEL)


@pytest.mark.parametrize("missing", [MODEL, STATEMENT, CARD, SUMS])
def test_a_missing_file_is_named(missing: str, copies: Callable[[str], Path]) -> None:
    folder = copies("logistic")
    (folder / missing).unlink()
    found = verify(folder)
    assert any(f"{missing} is missing" in check.detail for check in found.failures)


def test_a_link_or_a_stranger_in_the_folder_is_named(copies: Callable[[str], Path]) -> None:
    folder = copies("logistic")
    (folder / "rows.csv").write_text("1")
    assert any("'rows.csv' is no file" in check.detail for check in verify(folder).failures)
    (folder / "rows.csv").unlink()
    (folder / CARD).unlink()
    (folder / CARD).symlink_to("/etc/hostname")
    assert "files" in failed(verify(folder))


def test_a_model_cannot_be_replayed(made: dict[str, Path]) -> None:
    with pytest.raises(ParameterError, match="for a released table"):
        verify(made["logistic"], key=bytes(32), source=ROWS)


def test_words_of_a_curator_cannot_act_as_markup(tmp_path: Path) -> None:
    done = publish_model(
        ROWS, model="naive-bayes", schema=SCHEMA, privacy=PureDP(epsilon=1), ledger=False,
        out=tmp_path / "m", output=Output(about={"curator": "x\n# Not private <b>at all</b> [here](http://x)"}),
    )  # fmt: skip
    card = (done.public / CARD).read_text()
    assert "\n# Not" not in card
    assert "<b>" not in card
    assert verify(done.public).ok


@pytest.mark.parametrize("name", KINDS)
def test_another_librarys_validator_accepts_it_and_no_forged_block(name: str, made: dict[str, Path]) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(model_statement_schema()))
    statement = json.loads((made[name] / STATEMENT).read_text())
    assert list(validator.iter_errors(statement)) == []
    for forged in (
        {**statement, "trust": "me"},
        {key: value for key, value in statement.items() if key != "tuning"},
        {**statement, "passes": [{**statement["passes"][0], "share": 2}]},
    ):
        assert list(validator.iter_errors(forged))


def test_the_json_schema_in_the_package_is_the_real_one() -> None:
    from importlib.resources import files

    stored = files("discreet.report").joinpath(MODEL_SCHEMA).read_text(encoding="utf-8")
    assert stored == model_statement_schema()


def test_a_learner_without_a_promise_is_refused_by_the_verifier(
    copies: Callable[[str], Path],
) -> None:
    folder = copies("logistic")
    assert "svm-exact" in METHODS
    none = {"kind": "no-promise", "reason": "why not"}

    def unpromised(header: dict[str, Any], _: dict[str, Any]) -> None:
        old = header["parameters"]["privacy"]
        kept = {
            k: old[k] for k in ("unit", "neighbors", "covers", "assumes", "arithmetic", "total_variation")
        }
        header["parameters"]["privacy"] = {**kept, **none}

    repacked(folder, unpromised)
    assert "model" in failed(rewritten(folder, lambda content: None))


@pytest.mark.parametrize("name", KINDS)
def test_no_receipt_tells_how_long_a_pass_took_on_private_rows(made: dict[str, Path], name: str) -> None:
    statement = json.loads((made[name] / STATEMENT).read_text())
    times = [part["receipt"]["when"] for part in statement["passes"]] + [statement["what"]["created"]]
    for time in times:
        moment = datetime.fromisoformat(time)
        assert (moment.second, moment.microsecond) == (0, 0)
    assert any("to the minute" in words for words in statement["not_protected"])


# What is said about how good a classifier is.


def _better_score(header: dict[str, Any], _: object) -> None:
    header["fitted"]["score_"]["accuracy"] += 0.05


def _narrow_score(header: dict[str, Any], _: object) -> None:
    score = header["fitted"]["score_"]
    score["lower"] = score["accuracy"] - 1e-4


def _no_score(header: dict[str, Any], _: object) -> None:
    header["fitted"]["score_"] = None


def _other_curve(header: dict[str, Any], arrays: dict[str, Any]) -> None:
    curves = header["fitted"]["curves_"]
    used = list(curves)[int(np.abs(arrays["weights_"]).argmax())]
    curves[used]["values"][0][0] += 0.25


@pytest.mark.parametrize("change", [_better_score, _narrow_score, _no_score, _other_curve])
def test_a_score_that_is_not_that_of_the_model_is_caught_even_if_all_files_agree(
    change: Callable[[dict[str, Any], dict[str, Any]], object], copies: Callable[[str], Path]
) -> None:
    folder = copies("classifier")
    repacked(folder, change)
    stated = describe_quality(PrivateClassifier.load(folder / MODEL))
    assert stated is not None
    quality = stated.model_dump(mode="json")
    found = rewritten(folder, lambda content: content.update(quality=quality))
    assert "quality" in failed(found)
    assert "model page" not in failed(found)


def test_a_score_by_the_rule_of_earlier_versions_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = paid_score.training_allowance
    with monkeypatch.context() as earlier:
        earlier.setattr(paid_score, "training_allowance", lambda error, n_rows, _: now(error, n_rows, None))
        privacy = ApproxDP(epsilon=1, delta=1e-6)
        done = publish_model(ROWS, schema=SCHEMA, privacy=privacy, ledger=False, out=tmp_path / "model")
    assert done.statement.quality is not None
    assert done.statement.quality.score is not None
    assert verify(done.public).ok


def _unpaid(header: dict[str, Any], _: object) -> None:
    header["parameters"]["paid_score"] = False


@pytest.mark.parametrize("change", [_better_score, _narrow_score, _no_score, _unpaid])
@pytest.mark.parametrize("name", SCORED)
def test_a_forged_score_of_another_model_is_caught_even_if_all_files_agree(
    name: str,
    change: Callable[[dict[str, Any], dict[str, Any]], object],
    copies: Callable[[str], Path],
) -> None:
    folder = copies(name)
    repacked(folder, change)
    stated = describe_quality(METHODS[name].load(folder / MODEL))

    def state(content: dict[str, Any]) -> None:
        content["what"]["model"]["parameters"]["paid_score"] = change is not _unpaid
        content.pop("quality")
        if stated is not None:
            content["quality"] = stated.model_dump(mode="json")

    found = failed(rewritten(folder, state))
    assert found & {"quality", "promise"}
    assert not found & {"model", "model card"}


@pytest.mark.parametrize("name", SCORED)
def test_a_paid_score_stands_in_card_and_statement(name: str, made: dict[str, Path]) -> None:
    statement = ModelStatement.from_json((made[name] / STATEMENT).read_bytes())
    assert statement.quality is not None
    assert statement.quality.score is not None
    assert (statement.quality.expected, statement.quality.stages) == (None, None)
    card = (made[name] / CARD).read_text()
    assert "## How good it is" in card
    assert "model.html" not in card
    assert "95 % confidence" in card
    assert not (made[name] / MODEL_PAGE).exists()


def test_what_is_said_about_a_score_is_what_the_model_says(copies: Callable[[str], Path]) -> None:
    def flatter(content: dict[str, Any]) -> None:
        content["quality"]["sentences"][-1] = "The model is perfect."

    assert failed(rewritten(copies("classifier"), flatter)) == {"quality"}


def test_a_statement_without_the_block_fails_and_so_does_a_block_where_none_belongs(
    copies: Callable[[str], Path], made: dict[str, Path]
) -> None:
    stated = json.loads((made["classifier"] / STATEMENT).read_text())["quality"]
    found = rewritten(copies("naive-bayes"), lambda content: content.update(quality=stated))
    assert "quality" in failed(found)


@pytest.mark.parametrize("name", ["classifier", "naive-bayes"])
def test_a_page_is_there_for_a_classifier_alone(
    name: str, copies: Callable[[str], Path], made: dict[str, Path]
) -> None:
    folder = copies(name)
    if name == "classifier":
        (folder / MODEL_PAGE).unlink()
    else:
        shutil.copy(made["classifier"] / MODEL_PAGE, folder)
    (folder / SUMS).unlink()
    write_sums(folder)
    assert failed(verify(folder)) == {"model page"}


def test_a_page_that_shows_something_else_is_caught(copies: Callable[[str], Path]) -> None:
    folder = copies("classifier")
    page = (folder / MODEL_PAGE).read_text()
    (folder / MODEL_PAGE).write_text(page.replace("log-odds of <b>", "log-odds for <b>"))
    (folder / SUMS).unlink()
    write_sums(folder)
    assert failed(verify(folder)) == {"model page"}


@pytest.mark.parametrize("nonsense", [math.nan, 1e308, "high"])
def test_a_model_whose_curves_are_nonsense_fails_and_ends(
    nonsense: Any, copies: Callable[[str], Path]
) -> None:
    folder = copies("classifier")
    repacked(
        folder, lambda header, _: header["fitted"]["curves_"]["age"]["values"].__setitem__(0, [nonsense] * 2)
    )
    assert not verify(folder).ok
