"""Whether somebody was among the rows of the default classifier, guessed by two who know all others.

    python benchmarks/classifier_membership.py

Two tables differ in one row: a person, and the person that differs most. Each is learned from many times
under epsilon 1 and delta 1e-6, with the score. The *exact* attacker sees every noisy answer and computes the
likelihood of each table, which no attacker on the model can beat. The *shadow* attacker sees the model alone
and compares its margin at the person's row with those of models that were trained on both tables. What is
found is the area under the curve of each, with the area that the promise allows, and how often an attacker
is right about two equally likely tables. Results go to ``benchmarks/results/classifier_membership.json``.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import math
from typing import Any

import numpy as np
from classifier_unseen import plane
from measure import save
from peers import versions
from scipy import stats

from discreet import ApproxDP, Schema, learn
from discreet.learn.budget_schedule import NoiselessSums
from discreet.privacy import NoPromise
from discreet.privacy.calibration import gaussian_mu
from discreet.query import Database

FITS = 400
EPSILON, DELTA = 1.0, 1e-6
FREE = NoPromise("the attacker knows the rows")


class Recorded:
    """A database that keeps what it was asked and what it answered."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.answers: list[tuple[Any, Any]] = []

    def ask(self, aggregate: Any, **options: Any) -> Any:
        """Return the answer of the database, and keep it."""
        answer = self._db.ask(aggregate, **options)
        self.answers.append((aggregate, answer))
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


def fit(rows: Any, schema: Schema, seed: int) -> tuple[Any, list[tuple[Any, Any]]]:
    """Return a model and the answers that it was made of."""
    with Database(rows, schema=schema, random_state=seed) as db:
        recorded = Recorded(db)
        model = learn.PrivateClassifier(privacy=ApproxDP(epsilon=EPSILON, delta=DELTA))
        return model.fit_database(recorded), recorded.answers  # type: ignore[arg-type]


def log_ratio(
    answers: list[tuple[Any, Any]], first: NoiselessSums, second: NoiselessSums
) -> tuple[float, float]:
    """Return the log-likelihood of the second table over the first, and their distance in deviations.

    Noise is Gaussian and the sums are known. The distance has no chance in it but that of the curves that
    later queries are about; the promise is that it is at most mu.
    """
    found = square = 0.0
    for aggregate, answer in answers:
        exact = [np.asarray(sums.ask(aggregate, privacy=FREE).value) for sums in (first, second)]
        value, sd = np.asarray(answer.value), np.asarray(answer.sd)
        terms = np.array([(value - exact[0]) ** 2 - (value - exact[1]) ** 2, 2 * (exact[1] - exact[0]) ** 2])
        terms = terms / (2 * sd**2)
        if value.ndim == 2 and np.array_equal(value, value.T):
            # A matrix of products is symmetric, and has one draw for each pair.
            terms = terms[:, *np.triu_indices(len(value))]
        likely, apart = terms.reshape(2, -1).sum(axis=1)
        found, square = found + float(likely), square + float(apart)
    return found, math.sqrt(square)


def area(out: Any, member: Any) -> float:
    """Return the share of pairs in which the member has the larger statistic, ties as halves."""
    ranks = stats.rankdata(np.concatenate([out, member]))[len(out) :]
    return float((ranks.sum() - len(member) * (len(member) + 1) / 2) / (len(out) * len(member)))


def main() -> None:
    """Fit, attack, and write what was found."""
    table = plane(1000, 4, 1.5, 0.0, 41)
    schema, target = table.schema, table.target
    numbers = [column.name for column in schema.features]
    rows = table.rows.copy()
    person: dict[str, Any] = dict.fromkeys(numbers, 4.0) | {target: "0"}
    other: dict[str, Any] = dict.fromkeys(numbers, -4.0) | {target: "1"}
    tables = []
    for row in (other, person):
        changed = rows.copy()
        for name, value in row.items():
            changed.loc[0, name] = value
        tables.append(changed)
    exact: list[list[float]] = [[], []]
    distances = []
    shadow: list[list[float]] = [[], []]
    seen = tables[1].iloc[:1][numbers]
    with NoiselessSums(tables[0], schema=schema) as first, NoiselessSums(tables[1], schema=schema) as second:
        for seed in range(FITS):
            for which, held in enumerate(tables):
                model, answers = fit(held, schema, 2 * seed + which)
                likely, distance = log_ratio(answers, first, second)
                exact[which].append(likely)
                distances.append(distance)
                shadow[which].append(-float(model.decision_function(seen)[0]))
    half = FITS // 2
    out, member = (np.array(values) for values in shadow)
    # What the attacker learns from the models he trained himself, half of them, is two normal laws.
    laws = [stats.norm(values[:half].mean(), values[:half].std(ddof=1)) for values in (out, member)]
    tests = [laws[1].logpdf(values[half:]) - laws[0].logpdf(values[half:]) for values in (out, member)]
    mu = gaussian_mu(EPSILON, DELTA)
    right = [float(np.mean(np.array(values) * sign > 0)) for values, sign in zip(exact, (-1, 1), strict=True)]
    save(
        "classifier_membership",
        {
            "versions": versions(),
            "settings": {"rows": len(rows), "columns": len(numbers), "epsilon": EPSILON, "delta": DELTA,
                         "fits of each table": FITS, "stages": model.stages_, "passes": len(answers)},
            "area": {"exact": area(*map(np.array, exact)), "shadow": area(*tests),
                     "allowed": float(stats.norm.cdf(mu / math.sqrt(2))),
                     "standard error": math.sqrt(1 / (6 * FITS))},
            "distance": {"mean": float(np.mean(distances)), "largest": max(distances), "allowed": mu},
            "right of two": {"exact": float(np.mean(right)), "allowed": float(stats.norm.cdf(mu / 2))},
        },
    )  # fmt: skip


if __name__ == "__main__":
    main()
