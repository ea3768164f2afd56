"""Tables and stand-ins that tests of learners on noisy sums share."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from discreet.privacy import GaussianDP, Promise
from discreet.query import Database
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from discreet._types import Floats
    from discreet.query import Aggregate, Answer
    from discreet.schema.schema import Neighbors


def townsfolk_schema(neighbors: Neighbors = "replace-one", target: str = "owner") -> Schema:
    """Numbers, one that may be missing, categories of which one has a level that nobody has."""
    schema = Schema(
        columns=[
            Column("age", type="integer", lower=0, upper=79),
            Column("income", type="integer", lower=0, upper=4096, required=False),
            Column("share", lower=0, upper=1),
            Column("job", values=("clerk", "nurse", "smith", "diver"), closed=True),
            Column("town", values=("Aix", "Bern"), required=False, closed=True),
            Column("owner", values=("no", "yes"), role="sensitive"),
        ],
        neighbors=neighbors,
    )
    return schema.with_target(target)


def townsfolk(n: int) -> pd.DataFrame:
    """Rows that depend on one another; deterministic, and on the grid of the questions."""
    i = np.arange(n)
    age = i * 31 % 80
    income = (i * 7919 % 64) ** 2 % 4097
    job = np.array(["clerk", "nurse", "smith"])[i * 13 % 3]
    town = np.array(["Aix", "Bern", None], dtype=object)[i // 5 % 3]
    share = (i * 37 % 257) / 256
    owner = np.where((age > 35) ^ ((job == "nurse") & (share > 0.5)) ^ (i % 11 == 0), "yes", "no")
    missing = i % 9 == 4
    return pd.DataFrame(
        {
            "age": age,
            "income": np.where(missing, np.nan, income),
            "share": share,
            "job": job,
            "town": town,
            "owner": owner,
        }
    )


class ReplayedAnswers:
    """Gives the answers that another table got, without a look at its own rows."""

    def __init__(self, sums: Database, answers: list[Answer], asked: list[dict[str, Any]]) -> None:
        self._sums = sums
        self._answers = list(answers)
        self._asked = list(asked)
        self.schema, self.n_rows, self.neighbors = sums.schema, sums.n_rows, sums.neighbors

    def ask(self, question: Aggregate, **_: Any) -> Answer:
        assert question.to_dict() == self._asked.pop(0)
        return self._answers.pop(0)

    def cost(self, question: Aggregate, **rest: Any) -> tuple[Promise, ...]:
        return self._sums.cost(question, **rest)

    def expected_sd(self, question: Aggregate, **rest: Any) -> float | Floats:
        return self._sums.expected_sd(question, **rest)


class RecordingDatabase(Database):
    """Remembers what it was asked and answered."""

    def ask(self, question: Aggregate, **rest: Any) -> Answer:
        answer = super().ask(question, **rest)
        self.__dict__.setdefault("recorded", []).append((question.to_dict(), answer))
        return answer


def about_the_table(model: Any, schema: Schema) -> Any:
    """Let a learner promise something about the neighbors of a schema."""
    return model.set_params(privacy=dataclasses.replace(model.privacy, neighbors=schema.neighbors))


def fitted_on_answers_alone(model: Any, again: Any, schema: Schema) -> tuple[Any, Any]:
    """Fit a model, then another like it to the same answers in front of a table with other rows."""
    with RecordingDatabase(townsfolk(3000), schema=schema, random_state=5) as first:
        about_the_table(model, schema).fit_database(first)
        recorded = first.__dict__["recorded"]
    with Database(townsfolk(6000).iloc[3000:], schema=schema) as other:
        replay = ReplayedAnswers(
            other, [answer for _, answer in recorded], [question for question, _ in recorded]
        )
        about_the_table(again, schema).fit_database(replay)
    return model, again


def fitted_in_memory_and_in_an_engine(make: Any, schema: Schema) -> tuple[Any, Any]:
    """Fit a model to rows in memory and to the same rows in a database, with the same keystream."""
    rows = townsfolk(3000)
    with Database(rows, schema=schema, random_state=9) as local:
        first = about_the_table(make(), schema).fit_database(local)
    with Database(rows, schema=schema, random_state=9) as database:
        second = about_the_table(make(), schema).fit_database(database)
    return first, second


def spent(answers: dict[str, Answer]) -> float:
    """Return the mu that all answers of a learner come to together."""
    found = 0.0
    for answer in answers.values():
        (promise,) = answer.cost
        assert isinstance(promise, GaussianDP)
        found += promise.mu**2
    return float(np.sqrt(found))
