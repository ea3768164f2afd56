"""The registry: which attack tests what, and one call for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from discreet.audit import (
    ATTACKS,
    Density,
    LawPair,
    MechanismDraws,
    MechanismPair,
    SingleDraws,
    run_audit,
    shift_law,
)
from discreet.errors import ParameterError
from discreet.noise import Stream, discrete_laplace, rounded_gaussian
from discreet.privacy.promises import ErrorFloor, GaussianDP, NoPromise, Promise, PureDP

if TYPE_CHECKING:
    from discreet._types import AnyArray

N = 10_000
CLAIM = PureDP(epsilon=1.0)


def _lattice(value: float, stream: Stream) -> AnyArray:
    return np.asarray((int(value * 2**10) + discrete_laplace(2.0**10, N, stream)) * 2.0**-10)


def _floats(value: float, stream: Stream) -> AnyArray:
    return np.asarray(value + stream.generator().laplace(size=N))


def _trial(mechanism: object, claim: Promise = CLAIM) -> MechanismPair:
    return MechanismPair(mechanism=mechanism, a=0.0, b=1.0, claim=claim, n=N, name="sum")  # type: ignore[arg-type]


def test_all_fitting_attacks_run_and_the_worst_is_returned() -> None:
    good = run_audit(_trial(_lattice), stream=Stream.from_seed(1))
    assert good.verdict == "holds"
    assert good.failure_probability == 1e-6
    assert len(good.details["also"]) == 1
    # Float noise fools the distinguishing attack and not the precision attack.
    bad = run_audit(_trial(_floats), stream=Stream.from_seed(1))
    assert (bad.attack, bad.verdict) == ("precision", "broken")
    assert bad.details["also"][0].startswith("distinguish: holds")
    assert "No sum with this promise" in bad.reason


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_says_what_it_needs_and_runs_on_that_alone(name: str) -> None:
    line = Density(logpdf=lambda x: -np.abs(x) - np.log(2), lower=-40, upper=40, tail=1e-17, breaks=(0.0,))
    pair = LawPair(p=line, q=shift_law(line, 1.0), claim=CLAIM)
    draws = MechanismDraws(draw=lambda stream: rounded_gaussian(9.0, 5, stream), claim=CLAIM, calls=2_000)
    single = SingleDraws(draw=lambda: 1, claim=CLAIM, calls=100)
    for subject in (_trial(_lattice), pair, draws, single):
        result = run_audit(subject, name, stream=Stream.from_seed(1))
        fits = isinstance(subject, ATTACKS[name].subject)
        assert result.verdict == ("holds" if fits else "not tested")
        assert result.attack == name
        if not fits:
            assert "runs on a" in result.reason
    assert ATTACKS[name].about


def test_an_attack_without_randomness_has_no_failure_probability() -> None:
    line = Density(logpdf=lambda x: -np.abs(x) - np.log(2), lower=-40, upper=40, tail=1e-17, breaks=(0.0,))
    result = run_audit(LawPair(p=line, q=shift_law(line, 1.0), claim=CLAIM))
    assert (result.attack, result.verdict, result.failure_probability) == ("density", "holds", 0.0)


def test_a_promise_that_no_attack_tests_is_not_called_kept() -> None:
    silent = run_audit(_trial(_lattice, NoPromise("a test")))
    assert silent.verdict == "not tested"
    assert "no-promise" in silent.reason
    floor = run_audit(_trial(_lattice, ErrorFloor(age=9)), "distinguish")
    assert floor.verdict == "not tested"
    assert "says nothing about error-floor" in floor.reason


def test_unknown_names_and_subjects_without_a_claim_are_refused() -> None:
    with pytest.raises(ParameterError, match="Did you mean 'precision'"):
        run_audit(_trial(_lattice), "precison")
    with pytest.raises(ParameterError, match="must have a claim"):
        run_audit(object())
    with pytest.raises(ParameterError, match="failure_probability of run_audit"):
        run_audit(_trial(_lattice), failure_probability=2.0)


def test_the_failure_probability_is_shared_among_the_attacks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    row = ATTACKS["distinguish"]

    @dataclass(frozen=True)
    class Watched:
        kinds = row.kinds
        subject = row.subject

        def run(self, subject: object, p: float, stream: Stream | None) -> object:
            asked.append(p)
            return row.run(subject, p, stream)

    monkeypatch.setitem(ATTACKS, "distinguish", Watched())
    run_audit(_trial(_lattice), failure_probability=1e-3)
    assert asked == [5e-4]


def test_a_seeded_audit_repeats_itself() -> None:
    first, again = (run_audit(_trial(_lattice), stream=Stream.from_seed(3)) for _ in range(2))
    assert first == again


def test_a_claim_about_many_coordinates_is_taken_as_it_is() -> None:
    def rows(value: float, stream: Stream) -> AnyArray:
        return int(value * 1000) + rounded_gaussian(1000.0, (N, 3), stream)

    claim = GaussianDP(mu=3**0.5)
    assert run_audit(_trial(rows, claim), "distinguish", stream=Stream.from_seed(1)).verdict == "holds"
