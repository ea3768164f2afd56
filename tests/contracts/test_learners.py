"""What every registered learner must do, whatever its mathematics."""

from __future__ import annotations

import inspect
import json
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from discreet.errors import DiscreetError, ParameterError, PromiseError, SourceError
from discreet.learn import METHODS, Learner
from discreet.noise import Stream
from discreet.privacy import ApproxDP
from tests.contracts.learner_cases import EXPECTED_FAILURES, LARGER, LEARNERS, X, Y, labels

methods = pytest.mark.parametrize("name", sorted(METHODS))


def outcome(learner: Any, rows: Any) -> Any:
    """Return what a model says of rows: a prediction, or where they are in its coordinates."""
    return (learner.predict if hasattr(learner, "predict") else learner.transform)(rows)


def test_every_learner_has_an_example_and_every_example_a_learner() -> None:
    assert set(LEARNERS) == set(EXPECTED_FAILURES) == set(LARGER) == set(METHODS)
    assert all(METHODS[name].name == name for name in METHODS)


def test_every_expected_failure_has_a_reason() -> None:
    assert all(len(reason) > 20 for reasons in EXPECTED_FAILURES.values() for reason in reasons.values())


@pytest.mark.slow
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [make() for make in LEARNERS.values()],
    expected_failed_checks=lambda learner: dict(EXPECTED_FAILURES[learner.name]),
)
def test_scikit_learn_accepts_it_as_one_of_its_own(estimator: Any, check: Any) -> None:
    check(estimator)


@methods
def test_a_parameter_outside_its_domain_is_named_with_what_it_must_be(name: str) -> None:
    assert METHODS[name]._constraints
    for parameter, domain in METHODS[name]._constraints.items():
        for value in domain.outside:
            assert not domain.contains(value)
            learner = LEARNERS[name](**{parameter: value})
            words = re.escape(
                f"{parameter} of {type(learner).__name__} must be {domain.words}, was {value!r}"
            )
            with pytest.raises(ParameterError, match=words):
                learner.fit(X, labels(name))


@methods
def test_parameters_are_stored_as_given_and_unknown_ones_refused(name: str) -> None:
    learner = LEARNERS[name](**LARGER[name])
    assert {key: learner.get_params()[key] for key in LARGER[name]} == LARGER[name]
    assert clone(learner).get_params() == learner.get_params()
    with pytest.raises(TypeError, match="epsylon"):
        LEARNERS[name](epsylon=1.0)


@methods
@pytest.mark.parametrize("kind", [np.str_, object, int, bool, float])
def test_a_saved_model_is_the_same_model(name: str, kind: type, tmp_path: Path) -> None:
    codes = (Y == "yes").astype(int)
    y = np.where(codes, "yes", "no").astype(kind) if kind in (np.str_, object) else codes.astype(kind)
    learner = LEARNERS[name]().fit(X, labels(name, y))
    learner.save(tmp_path / "model")
    loaded = METHODS[name].load(tmp_path / "model")
    assert type(loaded) is type(learner)
    assert loaded.get_params() == learner.get_params()
    assert np.array_equal(outcome(loaded, X), outcome(learner, X))
    assert outcome(loaded, X).dtype == outcome(learner, X).dtype
    for attribute in learner._saved_attributes:
        assert np.array_equal(getattr(loaded, attribute), getattr(learner, attribute)), attribute
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@methods
@pytest.mark.filterwarnings("ignore:bounds of .* look like:discreet.errors.PromiseWarning")
def test_parameters_and_column_names_survive_the_file(name: str, tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=["age", "height", "day"])
    learner = LEARNERS[name](**LARGER[name]).fit(frame, labels(name))
    learner.save(tmp_path / "model.npz")
    loaded = METHODS[name].load(tmp_path / "model.npz")
    assert loaded.get_params() == learner.get_params()
    assert loaded.feature_names_in_.tolist() == ["age", "height", "day"]
    assert np.array_equal(outcome(loaded, frame), outcome(learner, frame))
    with pytest.raises(ValueError, match="feature names"):
        outcome(loaded, frame.rename(columns={"age": "edge"}))


@methods
def test_nothing_in_the_file_has_an_entry_for_each_training_row(name: str, tmp_path: Path) -> None:
    LEARNERS[name]().fit(X, labels(name)).save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz", allow_pickle=False) as archive:
        header = json.loads(archive["header"].tobytes())
        sizes = {key: archive[key].shape for key in archive.files if key != "header"}
    assert all(len(X) not in shape for shape in sizes.values())
    assert header["learner"] == name


@methods
def test_a_file_that_would_run_code_or_is_something_else_is_refused(name: str, tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "executed",))

    model = METHODS[name]
    path = tmp_path / "model.npz"
    path.write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(SourceError, match="not a saved model"):
        model.load(path)
    np.savez(path, allow_pickle=True, header=np.array([Harmful()], dtype=object))
    with pytest.raises(SourceError, match="not a saved model"):
        model.load(path)
    assert not (tmp_path / "executed").exists()
    for content in (b"", b"PK\x03\x04 not quite", b"text"):
        path.write_bytes(content)
        with pytest.raises(SourceError, match="not a saved model"):
            model.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.txt", "nothing")
    with pytest.raises(SourceError, match="not a saved model"):
        model.load(path)
    with pytest.raises(SourceError, match="cannot be read"):
        model.load(tmp_path / "absent")


@methods
def test_a_model_of_another_kind_or_a_later_format_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    LEARNERS[name]().fit(X, labels(name)).save(path)
    with np.load(path, allow_pickle=False) as archive:
        arrays = {key: archive[key] for key in archive.files}
    header = json.loads(arrays.pop("header").tobytes())
    for change, words in (
        ({"learner": "other"}, "kind 'other'"),
        ({"format": 99}, "format 99"),
        ({"kind": "other"}, "not a saved model"),
        ({"fitted": {**header["fitted"], "predict": 1}}, "is not a model that"),
        ({"parameters": []}, "is not a model that"),
        ({"parameters": {"unheard_of": 1}}, "does not know"),
    ):
        text = json.dumps({**header, **change}).encode()
        np.savez(path, header=np.frombuffer(text, np.uint8), **arrays)
        with pytest.raises(SourceError, match=words):
            METHODS[name].load(path)


@methods
def test_a_model_that_cannot_be_written_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    learner = LEARNERS[name]().fit(X, labels(name))
    with pytest.raises(SourceError, match="cannot be written"):
        learner.save(tmp_path / "absent" / "model.npz")
    (tmp_path / "taken").mkdir()
    with pytest.raises(SourceError, match="cannot be written"):
        learner.save(tmp_path / "taken")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@methods
def test_a_learner_that_is_not_fitted_has_nothing_to_save(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        LEARNERS[name]().save(tmp_path / "model.npz")


@methods
def test_errors_are_ours_and_never_quote_a_cell(name: str) -> None:
    secret = X.copy()
    secret[7, 1] = 271828.182845
    secret[9, 2] = np.nan
    with pytest.raises(DiscreetError, match="row 10, column 3") as caught:
        LEARNERS[name]().fit(secret, labels(name))
    assert "271828" not in str(caught.value)


@methods
def test_a_learner_without_noise_draws_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draws: list[int] = []
    monkeypatch.setattr(Stream, "fill", lambda *_: draws.append(1))
    learner = LEARNERS[name]()
    if "privacy" not in learner.get_params():
        learner.fit(X, labels(name))
        assert not draws


@methods
def test_documentation_says_what_is_protected_and_where_it_is_proven(name: str) -> None:
    text = inspect.getdoc(METHODS[name]) or ""
    for section in ("Parameters", "Attributes", "Privacy", "Reference", "Examples"):
        assert f"\n{section}\n---" in text


@methods
def test_every_fitted_attribute_is_documented(name: str) -> None:
    learner = LEARNERS[name]().fit(X, labels(name))
    text = inspect.getdoc(METHODS[name]) or ""
    fitted = {key for key in vars(learner) if key.endswith("_")} - {"n_features_in_", "feature_names_in_"}
    assert fitted
    assert {key for key in fitted if not re.search(rf"^[\w, ]*\b{key}(,| :)", text, re.MULTILINE)} == set()


@methods
def test_a_promise_is_refused_after_a_step_that_learned_from_the_rows(name: str) -> None:
    learner = LEARNERS[name]()
    if "privacy" not in learner.get_params():
        return
    learner.set_params(privacy=ApproxDP(epsilon=1.0, delta=1e-6))
    with pytest.raises(PromiseError, match=f"before {type(learner).__name__} must not learn from the rows"):
        make_pipeline(StandardScaler(), learner).fit(X, labels(name))


@methods
def test_it_is_a_learner(name: str) -> None:
    assert isinstance(LEARNERS[name](), Learner)
