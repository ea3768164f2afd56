"""A machine that tries every order of charges, repeats, owners and crashes against a simple model."""

from __future__ import annotations

import math
import shutil
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from discreet.errors import BudgetExceeded, KeyReused, PromiseError
from discreet.ledger import Ledger
from discreet.privacy.promises import ApproxDP, GaussianDP, Promise, PureDP

if TYPE_CHECKING:
    from discreet.privacy.receipt import Receipt

LIMIT = ApproxDP(epsilon=2.0, delta=1e-6)
OWNER_LIMIT = PureDP(epsilon=0.5)
ORDER = 12.1

pure = st.sampled_from(["0.01", "0.1", "0.25", "0.3"])
delta = st.sampled_from(["1e-8", "3e-7"])
mu = st.sampled_from(["0.01", "0.05", "0.1"])
owners = st.sampled_from([None, "ann", "bob"])
questions = st.sampled_from(["q1", "q2", "q3"])
keys = st.sampled_from(["k1", "k2"])


class Model:
    """What one scope has spent: linear epsilon, delta and squares of mu in fractions, and a divergence."""

    def __init__(self) -> None:
        self.linear = Fraction(0)
        self.delta = Fraction(0)
        self.squares = Fraction(0)
        self.divergence = 0.0
        self.charges = 0

    def add(self, kind: str, *numbers: str) -> None:
        self.charges += 1
        if kind == "gaussian":
            self.squares += Fraction(numbers[0]) ** 2
            self.divergence += ORDER * float(numbers[0]) ** 2 / 2
            return
        self.linear += Fraction(numbers[0])
        keep = 1 / (1 + math.exp(-float(numbers[0])))
        moment = keep**ORDER * (1 - keep) ** (1 - ORDER) + (1 - keep) ** ORDER * keep ** (1 - ORDER)
        self.divergence += math.log(moment) / (ORDER - 1)
        if kind == "point":
            self.delta += Fraction(numbers[1])


class Books(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "machine.ledger"
        self.ledger = Ledger.open(self.path, limit=LIMIT, owner_limit=OWNER_LIMIT, order=ORDER)
        self.model: dict[str | None, Model] = {None: Model(), "ann": Model(), "bob": Model()}
        self.paid: dict[str, set[str | None]] = {}
        self.answers: dict[str, bytes] = {}
        self.keys: dict[tuple[str | None, str], tuple[str, Receipt]] = {}
        self.receipts: list[Receipt] = []

    def charge(
        self,
        promise: Promise,
        owner: str | None,
        *cost: str,
        question: str | None = None,
        request: str | None = None,
    ) -> Receipt | None:
        before = self.ledger.head
        try:
            receipt = self.ledger.charge(promise, owner=owner, question=question, request=request)
        except (BudgetExceeded, PromiseError):
            assert self.ledger.head == before
            return None
        paid = self.paid.get(question, set()) if question is not None else set()
        if not paid:
            self.model[None].add(*cost)
        if owner is not None and owner not in paid:
            self.model[owner].add(*cost)
        if question is not None:
            self.paid[question] = paid | {owner}
        self.receipts.append(receipt)
        return receipt

    @rule(epsilon=pure, owner=owners)
    def pay_pure(self, epsilon: str, owner: str | None) -> None:
        self.charge(PureDP(epsilon=float(epsilon)), owner, "pure", epsilon)

    @rule(epsilon=pure, delta=delta)
    def pay_point(self, epsilon: str, delta: str) -> None:
        promise = ApproxDP(epsilon=float(epsilon), delta=float(delta))
        self.charge(promise, None, "point", epsilon, delta)

    @rule(mu=mu)
    def pay_gaussian(self, mu: str) -> None:
        self.charge(GaussianDP(mu=float(mu)), None, "gaussian", mu)

    @rule(question=questions, owner=owners, answer=st.binary(min_size=1, max_size=3))
    def ask(self, question: str, owner: str | None, answer: bytes) -> None:
        receipt = self.charge(PureDP(epsilon=0.1), owner, "pure", "0.1", question=question)
        if receipt is not None:
            left = self.ledger.store(receipt, answer)
            assert left == self.answers.setdefault(question, left)

    @rule(question=questions, owner=owners)
    def ask_and_crash(self, question: str, owner: str | None) -> None:
        receipt = self.charge(PureDP(epsilon=0.1), owner, "pure", "0.1", question=question)
        if receipt is not None:
            assert receipt.answer == self.answers.get(question)
        self.reopen()

    @rule(question=questions, owner=owners, key=keys)
    def ask_under_a_key(self, question: str, owner: str | None, key: str) -> None:
        known = self.keys.get((owner, key))
        if known is not None and known[0] != question:
            with pytest.raises(KeyReused):
                self.ledger.charge(PureDP(epsilon=0.1), owner=owner, question=question, request=key)
            return
        receipt = self.charge(PureDP(epsilon=0.1), owner, "pure", "0.1", question=question, request=key)
        if receipt is not None:
            assert self.keys.setdefault((owner, key), (question, receipt)) == (question, receipt)

    @rule()
    def reopen(self) -> None:
        # no close: the old handle dies as it is, as in a crash
        self.ledger = Ledger.open(self.path)

    @precondition(lambda self: self.receipts)
    @rule(data=st.data())
    def check_a_receipt(self, data: st.DataObject) -> None:
        self.ledger.check(data.draw(st.sampled_from(self.receipts)))

    @invariant()
    def the_books_are_the_models(self) -> None:
        for owner, model in self.model.items():
            spent = self.ledger.spent(owner)
            assert spent.charges == model.charges
            assert spent.linear.exact == model.linear
            assert spent.point_delta.exact == model.delta
            assert spent.gaussian.exact == model.squares / 2

    @invariant()
    def nobody_overspends(self) -> None:
        total = self.model[None]
        for owner in ("ann", "bob"):
            assert self.model[owner].linear <= Fraction(1, 2)
        if total.charges > 1:  # one charge alone may fill the limit
            assert total.delta <= Fraction("1e-7")
            # The conversion of Balle et al., from the definition.
            log_c = (ORDER - 1) * math.log(1 - 1 / ORDER) - math.log(ORDER)
            delta = math.exp(log_c + (ORDER - 1) * (total.divergence - LIMIT.epsilon))
            assert delta + float(total.delta) <= LIMIT.delta * (1 + 1e-9)

    def teardown(self) -> None:
        self.ledger.check()
        assert len(self.ledger.history()) == len({r.seq for r in self.receipts})
        self.ledger.close()
        shutil.rmtree(self.folder)


Books.TestCase.settings = settings(
    max_examples=15,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestBooks = Books.TestCase


@pytest.mark.stats
def test_the_machine_runs_for_long() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        Books,
        settings=settings(max_examples=300, stateful_step_count=50, deadline=None,
                          suppress_health_check=list(HealthCheck)),
    )  # fmt: skip
