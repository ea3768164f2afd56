"""The paper's (epsilon, delta, T) as a limit: T questions, and not one more."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from discreet import Column, Database, Schema
from discreet.errors import BudgetExceeded, LedgerError, ParameterError, PromiseError
from discreet.learn import PrivateKMeans
from discreet.ledger import Caps, Ledger
from discreet.noise import Stream, uniform_integers
from discreet.privacy.calibration import odds_rho
from discreet.privacy.composition import Spending
from discreet.privacy.promises import (
    ZCDP,
    ApproxDP,
    GaussianDP,
    PosteriorOdds,
    PureDP,
    promise_from_dict,
)
from discreet.query import CostModel, Sums
from tests.ledger.ledger_workers import crowd

SCHEMA = Schema(columns=[Column("age", lower=0, upper=100), Column("sex", values=("f", "m"))])
ROWS = {"age": [20.0, 30.0, 44.5, 71.0] * 5, "sex": ["f", "m"] * 10}


def test_a_limit_travels_and_stays(tmp_path: Path) -> None:
    limit = PosteriorOdds(epsilon=1, delta=1e-6, queries=5)
    assert promise_from_dict(json.loads(json.dumps(limit.to_dict()))) == limit
    caps = Caps.from_limit(limit)
    assert Caps.from_dict(json.loads(json.dumps(caps.to_dict()))) == caps
    with Ledger.open(tmp_path / "odds.ledger", limit=limit) as ledger:
        assert ledger.remaining() == caps.left(Spending())
        assert (ledger.remaining() or {})["queries"] == 5
        assert str(ledger.guarantee()) == "log-odds = 1, delta = 1e-06, 5 questions (replace-one, person)"
        said = ledger.guarantee().sentence()
        assert "5 questions" in said
        assert "by more than a factor of 2.72 with probability at most 1e-06" in said
        assert ledger.guarantee().delta_at(1) == pytest.approx(1e-6)  # it implies (1, 1e-6)-privacy
    with Ledger.open(tmp_path / "odds.ledger", limit=limit) as ledger:
        ledger.check()
    for other in (PosteriorOdds(epsilon=1, delta=1e-6, queries=6), ApproxDP(epsilon=1, delta=1e-6)):
        with pytest.raises(LedgerError, match=r"limit of Ledger.open must be the one fixed"):
            Ledger.open(tmp_path / "odds.ledger", limit=other)


@settings(deadline=None, max_examples=80)
@given(
    epsilon=st.floats(1e-3, 20),
    delta=st.floats(1e-12, 0.5),
    queries=st.integers(1, 40),
    theorem=st.sampled_from(["corrected", "theorem 5"]),
    upper=st.floats(1e-3, 1e6),
)
def test_every_budget_pays_for_exactly_its_questions(
    epsilon: float, delta: float, queries: int, theorem: str, upper: float
) -> None:
    limit = PosteriorOdds(epsilon=epsilon, delta=delta, queries=queries, theorem=theorem)  # type: ignore[arg-type]
    schema = Schema(columns=[Column("x", lower=0, upper=upper), Column("y", lower=0, upper=1)])
    costs = [CostModel(schema, 3).cost(Sums(column), privacy=limit)[0] for column in ("x", "y")]
    caps, books = Caps.from_limit(limit), Spending()
    for k in range(queries):
        books = caps.admit(books, Spending.from_promises(costs[k % 2]), scope="total")
    more = Spending.from_promises(GaussianDP(mu=1e-9) if theorem == "corrected" else PureDP(epsilon=1e-9))
    with pytest.raises(BudgetExceeded, match="and nothing is left") as refusal:
        caps.admit(books, more, scope="total")
    assert (refusal.value.currency, refusal.value.asked, refusal.value.left) == ("queries", 1, 0)


@pytest.mark.parametrize("theorem", ["corrected", "theorem 5"])
def test_a_database_answers_so_many_questions(theorem: str) -> None:
    limit = PosteriorOdds(epsilon=1, delta=1e-6, queries=4, theorem=theorem)  # type: ignore[arg-type]
    ledger = Ledger.open(":memory:", limit=limit)
    with Database(ROWS, schema=SCHEMA, ledger=ledger) as db:
        first = db.sum("age", privacy=limit)
        db.count("age > 30", privacy=limit)
        db.histogram(["sex"], privacy=limit)  # a vector counts once: its noise covers all its cells together
        assert db.sum("age", privacy=limit).value == first.value  # a repeat that is free does not count
        assert (ledger.remaining() or {})["queries"] == 1
        db.sum("age / 2", privacy=limit)
        with pytest.raises(BudgetExceeded) as refusal:
            db.sum("age / 3", privacy=limit)
        assert (refusal.value.asked, refusal.value.left, refusal.value.limit) == (1, 0, 4)
        assert refusal.value.currency == "queries"
        db.count("age > 30", privacy=limit)  # and stays free
        ledger.check()
    # The promise is that of all four answers together, exactly.
    assert Spending.from_promises(first.cost).charges == 1
    with Ledger.open(":memory:", limit=limit) as many:
        with pytest.raises(BudgetExceeded, match=r"takes 125\.0.% of its queries and 100\.0.% is left"):
            many.charge(first.cost[0], plan=[first.cost[0]] * 4)
        many.charge(first.cost[0], plan=[first.cost[0]] * 3)


def test_a_learner_that_needs_more_questions_than_are_left_is_told_before_it_pays() -> None:
    ledger = Ledger.open(":memory:", limit=PosteriorOdds(epsilon=1, delta=1e-6, queries=3))
    with Database(ROWS, schema=SCHEMA, ledger=ledger) as db:
        learner = PrivateKMeans(n_clusters=2, max_iter=5, privacy=GaussianDP(mu=0.01), schema=SCHEMA)
        with pytest.raises(BudgetExceeded, match="queries"):
            learner.fit_database(db)
    assert ledger.spent().charges == 0


def test_only_what_the_theorem_covers_is_charged() -> None:
    rho = odds_rho(1, 1e-6)
    caps = Caps.from_limit(PosteriorOdds(epsilon=1, delta=1e-6, queries=10))
    books = caps.admit(Spending(), Spending.from_promises(PureDP(epsilon=math.sqrt(rho))), scope="total")
    assert caps.left(books)["rho"] == pytest.approx(rho / 2)  # a pure event counts as its rho
    with pytest.raises(BudgetExceeded, match="Not enough budget: "):
        caps.admit(books, Spending.from_promises(GaussianDP(mu=math.sqrt(1.01 * rho))), scope="total")
    for other in (ZCDP(rho=rho / 10), ApproxDP(epsilon=0.01, delta=1e-9)):
        with pytest.raises(PromiseError, match=r"must be of a kind that the limit log-odds = 1.* can add up"):
            caps.admit(Spending(), Spending.from_promises(other), scope="total")
    laplace = Caps.from_limit(PosteriorOdds(epsilon=1, delta=1e-6, queries=10, theorem="theorem 5"))
    with pytest.raises(PromiseError, match="Gaussian"):
        laplace.admit(Spending(), Spending.from_promises(GaussianDP(mu=0.01)), scope="total")
    for theorem in ("theorem 1", "theorem 4", "dp exact", "dp concentrated"):
        with pytest.raises(ParameterError, match="theorem of a limit must be 'corrected'"):
            Caps.from_limit(PosteriorOdds(epsilon=1, delta=1e-6, queries=10, theorem=theorem))
    with pytest.raises(ParameterError, match="neighbors of PosteriorOdds must be 'replace-one'"):
        PosteriorOdds(epsilon=1, delta=1e-6, queries=10, neighbors="add-remove")
    with pytest.raises(PromiseError, match="Charge what its noise costs"):
        Spending.from_promises(PosteriorOdds(epsilon=1, delta=1e-6, queries=10))
    with pytest.raises(PromiseError, match="no rule for a group of 2"):
        PosteriorOdds(epsilon=1, delta=1e-6, queries=10).group(2)


def test_log_odds_after_a_pure_answer_are_as_the_proof_says() -> None:
    # 4,000 channels from 4 values of a row to 5 answers, each answer's probabilities within a factor of
    # exp(e); beliefs in and outside f of any weights; every true row.
    stream = Stream.from_seed(5)

    def draws(*shape: int) -> np.ndarray:
        return uniform_integers(2**31, math.prod(shape), stream).reshape(shape) / 2**31

    n = 4000
    channel = draws(n, 5)[:, None, :] * np.exp(3 * draws(n, 1, 1) * draws(n, 4, 5)) + 1e-9
    channel /= channel.sum(axis=2, keepdims=True)
    ratio = np.log(channel.max(axis=1) / channel.min(axis=1)).max(axis=1)
    weights = draws(n, 2, 4) ** 4 + 1e-12
    weights /= weights.sum(axis=2, keepdims=True)
    inside, outside = (np.einsum("nv,nva->na", weights[:, k], channel) for k in (0, 1))
    rise = np.log(inside / outside)
    mean = np.einsum("nva,na->nv", channel, rise)
    assert (mean.max(axis=1) <= ratio**2 / 2 + 1e-12).all()
    worst = 0.0
    for t in (0.1, 0.5, 1.0, 2.0, 5.0):
        moved = np.exp(t * (rise[:, None, :] - mean[:, :, None]))
        spread = np.log(np.einsum("nva,nva->nv", channel, moved)).max(axis=1)
        worst = max(worst, float((spread / (t**2 * ratio**2 / 2)).max()))
    assert 0.2 < worst <= 1


# --- any order, any number of writers -------------------------------------------------------------

TOTAL, OWN = 6, 3
LIMIT = PosteriorOdds(epsilon=1, delta=1e-6, queries=TOTAL)
OWNER_LIMIT = PosteriorOdds(epsilon=2, delta=1e-6, queries=OWN)
SMALL, LARGE = GaussianDP(mu=1e-4), GaussianDP(mu=LIMIT.gaussian_share)
people = st.sampled_from([None, "ann", "bob"])


class Counting(RuleBasedStateMachine):
    """Charges, repeats, plans, owners and restarts against a count."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "counting.ledger"
        self.ledger = Ledger.open(self.path, limit=LIMIT, owner_limit=OWNER_LIMIT)
        self.counts: dict[str | None, int] = {None: 0, "ann": 0, "bob": 0}
        self.payers: dict[str, set[str | None]] = {}

    def room(self, scopes: set[str | None], n: int) -> bool:
        return all(self.counts[scope] + n <= (TOTAL if scope is None else OWN) for scope in scopes)

    def pay(self, scopes: set[str | None], planned: int, **how: object) -> None:
        cost = how.pop("cost")
        if not self.room(scopes, 1 + planned):
            with pytest.raises(BudgetExceeded, match="of its queries"):
                self.ledger.charge(cost, plan=[SMALL] * planned, **how)  # type: ignore[arg-type]
            return
        self.ledger.charge(cost, plan=[SMALL] * planned, **how)  # type: ignore[arg-type]
        for scope in scopes:
            self.counts[scope] += 1

    @rule(owner=people, cost=st.sampled_from([SMALL, LARGE]), planned=st.integers(0, 2))
    def charge(self, owner: str | None, cost: GaussianDP, planned: int) -> None:
        self.pay({None, owner}, planned, cost=cost, owner=owner)

    @rule(owner=people, question=st.sampled_from(["q1", "q2", "q3"]))
    def ask(self, owner: str | None, question: str) -> None:
        payers = self.payers.setdefault(question, set())
        if owner in payers or (owner is None and payers):
            self.ledger.charge(SMALL, owner=owner, question=question)  # free, however full
            return
        scopes = {None, owner} if not payers else {owner}
        before = dict(self.counts)
        self.pay(scopes, 0, cost=SMALL, owner=owner, question=question)
        if self.counts != before:
            payers.add(owner)

    @rule()
    def restart(self) -> None:
        self.ledger = Ledger.open(self.path, limit=LIMIT)

    @invariant()
    def counted(self) -> None:
        for scope, count in self.counts.items():
            assert self.ledger.spent(scope).charges == count
            assert (self.ledger.remaining(scope) or {})["queries"] == (
                TOTAL if scope is None else OWN
            ) - count

    def teardown(self) -> None:
        self.ledger.check()
        self.ledger.close()
        shutil.rmtree(self.folder)


TestCounting = Counting.TestCase
TestCounting.settings = settings(
    max_examples=8, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.slow
def test_counting_goes_on_for_long() -> None:
    run_state_machine_as_test(Counting, settings=settings(TestCounting.settings, max_examples=60))


def test_many_writers_at_once_get_so_many_answers(tmp_path: Path) -> None:
    limit = PosteriorOdds(epsilon=1, delta=1e-6, queries=25)
    place = tmp_path / "crowd.ledger"
    with Ledger.open(place, limit=limit) as one, Ledger.open(place, limit=limit, timeout=120) as other:
        turn = iter(range(10**6))
        granted = crowd(lambda: (one, other)[next(turn) % 2].charge(GaussianDP(mu=limit.gaussian_share)), 8)
        assert granted == 25
        assert one.spent().charges == 25
        assert set((other.remaining() or {}).values()) >= {0.0}
        one.check()
