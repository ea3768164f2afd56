"""The client and a real service."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from discreet import Database, GaussianDP, PureDP, RemoteDatabase, errors
from discreet.errors import (
    AccessRefused,
    BudgetExceeded,
    ExpressionRefused,
    ParameterError,
    ServiceUnavailable,
)
from discreet.query import Histogram, Sums
from tests.server.stand_in import MU

if TYPE_CHECKING:
    from tests.server.conftest import RunningService


def test_a_sentence_and_its_select_are_one_question_with_cells_and_frames(
    shared_service: RunningService,
) -> None:
    with RemoteDatabase(shared_service.url, "town", shared_service.tokens["ana"]) as db:
        words = db.query("mean(age) where income > 10000 by sex", privacy=MU)
        select = db.query("SELECT AVG(age), sex FROM t WHERE income > 10000 GROUP BY sex", privacy=MU)
        assert not words.cached
        assert select.cached
        assert select.cells == words.cells
        assert words.group_by == ("sex",)
        assert [cell.key for cell in words.cells] == [("f",), ("m",), ("other",)]
        assert len(words.receipts) == len(words.cost) == 1
        frame = words.to_pandas()
        assert list(frame.columns) == ["sex", "value", "sd", "lower", "upper"]
        assert frame["value"][0] == words.cells[0].value
        assert words.to_polars()["value"].to_list() == [cell.value for cell in words.cells]
        assert not words.is_readable(words.cells[2])
        single = db.query("sum(age)", sd=50.0)
        (cell,) = single.cells
        assert (single.value, single.sd, single.interval().lower) == (cell.value, cell.sd, cell.lower)
        assert single.frame.columns["value"] == [single.value]


def test_a_price_is_free_and_is_what_is_charged(service: RunningService) -> None:
    with RemoteDatabase(service.url, "town", service.tokens["ana"]) as db:
        price = db.preview("count where age > 40 by sex", privacy=MU)
        assert price.sql is not None
        assert "GROUP BY sex" in price.sql
        assert db.budget().own is not None
        assert service.backend.dataset.ledger.spent("ana").charges == 0
        answer = db.query(price.sql, privacy=MU)
        assert (answer.question, answer.cost, answer.cells[0].sd) == (price.question, price.cost, price.sd)
        assert price.cost == db.cost(Histogram("sex", {}, "age > 40"), privacy=MU)
        left = service.backend.dataset.ledger.remaining("ana")
        own = db.budget().own
        assert own is not None
        assert (own.left, own.spent["charges"]) == (left, 1)
        assert price.more is not None
        assert price.more > 1


def test_history_and_made_up_rows_are_frames(service: RunningService) -> None:
    with (
        RemoteDatabase(service.url, "town", service.tokens["ana"]) as db,
        RemoteDatabase(service.url, "town", service.tokens["ben"]) as other,
    ):
        paid = db.query("count where age > 40", privacy=MU)
        asked = db.histogram("sex", privacy=PureDP(epsilon=0.5))
        other.count("age > 4", privacy=MU)
        history = db.history()
        assert history.columns["value"] == [paid.value, np.asarray(asked.value).tolist()]
        assert history.columns["receipt"] == [*paid.receipts, asked.receipt.id]
        assert history.columns["question"][0] == "count where 40 < age"
        assert history.columns["cost"] == ["μ = 0.5", "ε = 0.5"]
        assert len(db.history(after=history.columns["row"][0])) == 1
        assert len(history.to_pandas()) == len(history.to_polars()) == len(history) == 2
        made_up = db.dummy(40, seed=7)
        assert set(made_up.columns) == {column.name for column in db.schema.columns} | {"_dummy"}
        assert all(made_up.columns["_dummy"])
        assert made_up.columns == db.dummy(40, seed=7).columns != db.dummy(40, seed=8).columns
        assert len(made_up.to_pandas()) == made_up.to_polars().height == 40
        # A program that was tried on them runs on them.
        with Database(made_up.to_pandas(), schema=db.schema) as local:
            assert local.ask(Sums("age > 40"), privacy=MU).sd == db.expected_sd(Sums("age > 40"), privacy=MU)


def test_a_refined_answer_is_the_merge_and_is_paid_once(service: RunningService) -> None:
    with RemoteDatabase(service.url, "town", service.tokens["ana"]) as db:
        first = db.ask(Sums("age > 40"), privacy=MU)
        finer = db.ask(Sums("age > 40"), privacy=GaussianDP(mu=1.0), refines=first.receipt.id)
        assert finer.parts == (first.receipt.id, finer.receipt.id)
        assert np.ravel(finer.sd)[0] == pytest.approx((np.ravel(first.sd)[0] ** -2 + 1) ** -0.5, rel=1e-9)
        again = db.ask(Sums("age > 40"), privacy=GaussianDP(mu=1.0), refines=first.receipt.id)
        assert (again.value, again.sd, again.cached) == (finer.value, finer.sd, True)
        assert service.backend.dataset.ledger.spent("ana").charges == 2
        said = db.query("count where age > 40", privacy=GaussianDP(mu=0.3), refines=[finer.receipt.id])
        assert said.parts == ((first.receipt.id, finer.receipt.id, said.receipts[0]),)


def test_real_refusals_come_back_as_themselves(service: RunningService) -> None:
    with RemoteDatabase(service.url, "town", service.tokens["ana"]) as db:
        with pytest.raises(ExpressionRefused) as told:
            db.query("count where age > (select 3)", privacy=MU)
        assert told.value.construct
        assert told.value.hint
        with pytest.raises(BudgetExceeded, match="left") as short:
            db.ask(Sums("age > 40"), privacy=GaussianDP(mu=50.0))
        assert short.value.asked > short.value.left > 0
        with pytest.raises(ParameterError, match="refines"):
            db.ask(Sums("age > 40"), privacy=MU, refines="0123456789ab-7")
        assert service.backend.dataset.ledger.spent("ana").charges == 0
        service.client("cura").post(
            "/v1/datasets/town/curator/stop", json={"stopped": True}
        ).raise_for_status()
        with pytest.raises(ServiceUnavailable, match=r"stopped.*Nothing was charged"):
            db.ask(Sums("age > 40"), privacy=MU)
        service.client("cura").post(
            "/v1/datasets/town/curator/stop", json={"stopped": False}
        ).raise_for_status()
        db.ask(Sums("age > 40"), privacy=MU)
        service.backend.revoke_token("test", "ana")
        with pytest.raises(AccessRefused):
            db.ask(Sums("age > 40"), privacy=MU)
        with pytest.raises(AccessRefused):
            RemoteDatabase(service.url, "town", "guessed")


PAGE = Path(__file__).parents[2] / "docs" / "howto" / "ask-a-service.md"


@pytest.mark.slow
def test_the_program_of_the_page_runs(service: RunningService) -> None:
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 7
    program = "\n".join(blocks).replace("https://data.example.org", service.url)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=os.environ | {"DISCREET_TOKEN": service.tokens["ana"]},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"GROUP BY sex would cost μ = .*; enough is left for \d+ like it", done.stdout)
    assert done.stderr == ""
    raised = set(re.findall(r"^\| (`\w+`(?:, `\w+`)?) \|", page, re.MULTILINE))
    named = {name for cell in raised for name in re.findall(r"\w+", cell)}
    assert len(named) == 9
    assert all(issubclass(getattr(errors, name), errors.DiscreetError) for name in named)
