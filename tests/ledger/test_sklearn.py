"""A ledger inside scikit-learn's tools: every fit is charged, however the estimator is copied."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import GridSearchCV, cross_val_score

from discreet.errors import BudgetExceeded, LedgerError
from discreet.ledger import Ledger
from discreet.privacy.promises import PureDP

if TYPE_CHECKING:
    from pathlib import Path

X = np.arange(40.0).reshape(20, 2)
y = np.arange(20) % 2


class Majority(ClassifierMixin, BaseEstimator):
    """A model of one number, which charges before it looks."""

    def __init__(self, ledger: Ledger | None = None, weight: float = 1.0) -> None:
        self.ledger = ledger
        self.weight = weight

    def fit(self, X: Any, y: Any) -> Majority:
        assert self.ledger is not None
        self.receipt_ = self.ledger.charge(PureDP(epsilon=0.1), what="majority")
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X: Any) -> Any:
        return np.zeros(len(X), dtype=int)


def test_a_clone_charges_the_same_ledger() -> None:
    ledger = Ledger.open(":memory:")
    assert clone(Majority(ledger)).ledger is ledger
    ledger.close()


def test_five_folds_charge_five() -> None:
    ledger = Ledger.open(":memory:")
    cross_val_score(Majority(ledger), X, y, cv=5)
    assert ledger.spent().charges == 5
    ledger.check()
    ledger.close()


def test_a_search_charges_every_fit() -> None:
    ledger = Ledger.open(":memory:")
    GridSearchCV(Majority(ledger), {"weight": [1.0, 2.0, 3.0]}, cv=5).fit(X, y)
    assert ledger.spent().charges == 3 * 5 + 1
    ledger.close()


def test_a_search_stops_at_the_limit() -> None:
    ledger = Ledger.open(":memory:", limit=PureDP(epsilon=0.3))
    with pytest.raises(BudgetExceeded):
        cross_val_score(Majority(ledger), X, y, cv=5, error_score="raise")
    assert ledger.spent().charges == 3
    ledger.close()


def test_worker_processes_need_a_ledger_on_file() -> None:
    # joblib pickles the estimator for its workers. Its own pool is left out: the thread that
    # manages the pool may die with a KeyError when a task cannot be pickled.
    with Ledger.open(":memory:") as ledger, pytest.raises(LedgerError, match="with a path"):
        pickle.dumps(Majority(ledger))


@pytest.mark.slow
def test_two_jobs_charge_one_ledger_on_file(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "search.ledger") as ledger:
        cross_val_score(Majority(ledger), X, y, cv=4, n_jobs=2, error_score="raise")
        assert ledger.spent().charges == 4
        ledger.check()
