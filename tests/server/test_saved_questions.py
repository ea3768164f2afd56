"""Saved questions: the store, in SQLite and PostgreSQL, and the pages without a script."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from discreet.client import RemoteDatabase
from discreet.errors import ParameterError, ServiceError
from discreet.privacy import ZCDP, ApproxDP
from discreet.query.intervals import interval_width
from discreet.server.access import AccessStore
from discreet.server.pages.forms import AskForm, format_exactness
from discreet.server.saved_questions import MOST_SAVED, MOST_TITLE
from tests.server.markup import Element, Visitor, owes_nothing
from tests.server.test_access import address

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from tests.server.conftest import RunningService

__all__ = ["address"]

ASK = "/datasets/town"
SAVED = "/datasets/town/saved"
RHO = {"privacy": {"kind": "zcdp", "rho": 0.1}}
SCRIPT = "<script>window.pwned = 1</script>"


def test_questions_are_kept_by_owner_and_data_set(address: str) -> None:
    with closing(AccessStore(address)) as store:
        saved = store.saved
        first = saved.save("ana", "town", "older people", "count where age > 64", RHO)
        saved.save("ana", "village", "older people", "count where age > 64", RHO)
        saved.save("ben", "town", "older people", "count", {"sd": 3.0})
    with closing(AccessStore(address)) as store:
        saved = store.saved
        (question,) = saved.list("ana", "town")
        assert question.id == first
        assert question.request == {"kind": "sentence", "text": "count where age > 64", **RHO}
        assert saved.find("ana", "town", first) == question
        for who, where in (("ben", "town"), ("ana", "village")):
            assert saved.find(who, where, first) is None
            assert saved.rename(who, where, first, "mine") is False
            assert saved.delete(who, where, first) is False
        assert saved.rename("ana", "town", first, "old people")
        assert [one.title for one in saved.list("ana", "town")] == ["old people"]
        assert saved.delete("ana", "town", first)
        assert saved.list("ana", "town") == []
        assert len(saved.list("ana", "village")) == len(saved.list("ben", "town")) == 1


def test_number_size_and_names_are_bounded(tmp_path: Path) -> None:
    with closing(AccessStore(tmp_path / "access.db")) as store:
        saved = store.saved
        for title in ("", " ", " a", "a\n", "x" * (MOST_TITLE + 1)):
            with pytest.raises(ParameterError, match="printable"):
                saved.save("ana", "town", title, "count", RHO)
        with pytest.raises(ParameterError, match="characters"):
            saved.save("ana", "town", "long", "x" * 8193, RHO)
        ids = [saved.save("ana", "town", str(k), "count", RHO) for k in range(MOST_SAVED)]
        with pytest.raises(ParameterError, match="Delete one first"):
            saved.save("ana", "town", "one more", "count", RHO)
        saved.save("ben", "town", "one more", "count", RHO)
        with pytest.raises(ParameterError, match="another question as '1'"):
            saved.rename("ana", "town", ids[0], "1")
        assert saved.rename("ana", "town", ids[0], "0")
        saved.delete("ana", "town", ids[0])
        assert saved.save("ana", "town", "1", "count", RHO) == ids[1]
        for text, price in (("count by sex", RHO), ("count", {"sd": 1.0})):
            with pytest.raises(ParameterError, match="another question as '1'"):
                saved.save("ana", "town", "1", text, price)


@pytest.mark.parametrize("amount", ["20", "0.1", "3.14159", "1e-3", "12345.678"])
def test_a_margin_comes_back_as_the_same_noise(amount: str) -> None:
    sd = float(amount) / interval_width("gaussian")
    form = AskForm().with_price({"sd": sd})
    assert (form.exact, float(form.amount)) == ("margin", float(amount))
    assert format_exactness({"privacy": {"kind": "gaussian-dp", "mu": 0.25}}) == "μ = 0.25"
    assert format_exactness({"sd": sd}).startswith("±")


def save(visitor: Visitor, title: str, **fields: str) -> httpx.Response:
    """Save a question from the ask page."""
    return visitor.send(visitor.get(ASK), f"{ASK}/ask", do="save", title=title, **fields)


def entry(page: Element, title: str) -> str:
    """Return the address of the saved question of a title."""
    (item,) = (one for one in page.all("li", class_="saved") if one.one("h2").text == title)
    run = next(f.attributes["action"] for f in item.all("form") if f.attributes["action"].endswith("/run"))
    return run.removesuffix("/run")


def test_a_question_is_saved_run_after_its_price_and_free_from_then_on(service: RunningService) -> None:
    visitor = Visitor(service)
    owes_nothing(visitor.get(SAVED))
    assert "Nothing is saved yet" in visitor.get(SAVED).text
    sent = save(visitor, "older people", where="age > 64", exact="margin", amount="20")
    assert sent.headers["location"] == f"{SAVED}?done=saved"
    assert service.backend.dataset.ledger.spent("ana").charges == 0
    page = visitor.get(f"{SAVED}?done=saved")
    owes_nothing(page)
    assert "±\u00a020 (95 %)" in page.text
    place = entry(page, "older people")
    opened = visitor.send(page, f"{place}/run")
    assert opened.headers["location"] == f"{ASK}?saved={place.rpartition('/')[2]}"
    shown = visitor.get(opened.headers["location"])
    owes_nothing(shown)
    assert "± 20 rows" in shown.one(id="price").text.replace("\u00a0", " ")
    assert service.backend.dataset.ledger.spent("ana").charges == 0
    answer = visitor.send(shown, f"{ASK}/ask", do="ask")
    assert "/answers/" in answer.headers["location"]
    assert service.backend.dataset.ledger.spent("ana").charges == 1
    again = visitor.send(page, f"{place}/run")
    assert "/answers/" in again.headers["location"]
    assert "asked before: free" in visitor.get(again.headers["location"]).text
    assert service.backend.dataset.ledger.spent("ana").charges == 1


def test_a_question_is_found_renamed_and_deleted(service: RunningService) -> None:
    visitor = Visitor(service)
    save(visitor, "older people", where="age > 64")
    save(visitor, "by city", by1="city")
    found = visitor.get(f"{SAVED}?find=AGE+older")
    assert [one.text for one in found.all("h2", class_="saved-name")] == ["older people"]
    assert "contains these words" in visitor.get(f"{SAVED}?find=nothing").text
    page = visitor.get(SAVED)
    place = entry(page, "by city")
    response = visitor.send(page, place, action="rename", title="older people")
    assert response.status_code == 422
    owes_nothing(Visitor.read(response))
    assert visitor.send(page, place, action="rename", title="cities").status_code == 303
    assert entry(visitor.get(SAVED), "cities") == place
    assert visitor.send(page, place, action="nothing").headers["location"] == SAVED
    assert visitor.send(page, place, action="delete").headers["location"] == f"{SAVED}?done=deleted"
    assert [one.text for one in visitor.get(SAVED).all("h2", class_="saved-name")] == ["older people"]
    assert visitor.client.get(f"{ASK}?saved={place.rpartition('/')[2]}").status_code == 404


def test_saved_questions_of_others_cannot_be_told_from_none(service: RunningService) -> None:
    visitor = Visitor(service)
    save(visitor, "older people", where="age > 64")
    place = entry(visitor.get(SAVED), "older people")
    missing = f"{SAVED}/{'0' * 32}"
    for other in (Visitor(service, "ben"), Visitor(service, "cura")):
        assert "Nothing is saved yet" in other.get(SAVED).text
        token = other.csrf()
        for end, fields in (
            ("", {"action": "delete"}),
            ("", {"action": "rename", "title": "x"}),
            ("/run", {}),
        ):
            pages = [other.client.post(one + end, data={"csrf": token, **fields}) for one in (place, missing)]
            assert {page.status_code for page in pages} == {404}
            assert pages[0].text == pages[1].text
        opened = [other.client.get(f"{ASK}?saved={one.rpartition('/')[2]}") for one in (place, missing)]
        assert {page.status_code for page in opened} == {404}
    for end in ("", "/run"):
        assert visitor.client.post(place + end, data={"csrf": "wrong"}).status_code == 403
    assert entry(visitor.get(SAVED), "older people") == place


@pytest.mark.parametrize(
    ("title", "fields", "field"),
    [
        ("", {}, "title"),
        ("x" * 81, {}, "title"),
        ("fine", {"where": "age >"}, "where"),
        ("fine", {"amount": "-1"}, "amount"),
    ],
)
def test_a_question_that_cannot_be_saved_says_why_at_its_field(
    shared_service: RunningService, title: str, fields: dict[str, str], field: str
) -> None:
    visitor = Visitor(shared_service)
    response = save(visitor, title, **fields)
    assert response.status_code == 422
    page = Visitor.read(response)
    owes_nothing(page)
    assert page.one(id=f"{field}-problem").text.strip()
    assert page.one(id="title").attributes["value"] == title
    assert shared_service.whole.access.saved.list("ana", "town") == []


def test_hostile_names_are_text_and_a_question_the_schema_lost_is_shown_as_text(
    service: RunningService,
) -> None:
    visitor = Visitor(service)
    save(visitor, SCRIPT, where="age > 64")
    service.whole.access.saved.save("ana", "town", "lost", "count where height > 180", RHO)
    page = visitor.get(SAVED)
    owes_nothing(page)
    assert SCRIPT in page.text
    place = entry(page, "lost")
    opened = visitor.send(page, f"{place}/run").headers["location"]
    response = visitor.client.get(opened)
    assert response.status_code == 422
    shown = Visitor.read(response)
    owes_nothing(shown)
    assert shown.one("textarea", id="sql").text == "count where height > 180"


# Programs.


def test_programs_save_list_and_delete_what_the_page_shows(shared_service: RunningService) -> None:
    with (
        RemoteDatabase(shared_service.url, "town", shared_service.tokens["ana"]) as table,
        RemoteDatabase(shared_service.url, "town", shared_service.tokens["ben"]) as other,
    ):
        made = table.save_question("older people", "count where age > 64", privacy=ZCDP(rho=0.25))
        assert table.save_question("older people", "count where age > 64", privacy=ZCDP(rho=0.25)) == made
        with pytest.raises(ParameterError, match="another question as 'older people'"):
            table.save_question("older people", "count where age > 65", privacy=ZCDP(rho=0.25))
        with pytest.raises(ParameterError, match="printable"):
            table.save_question(" ", "count where age > 65", sd=3.0)
        with pytest.raises(ParameterError, match="its kind must be one of"):
            table.save_question("approximate", "count by sex", privacy=ApproxDP(epsilon=1.0, delta=1e-6))
        by_sex = table.save_question("by sex", "count by sex", sd=3.0)
        assert table.saved_questions() == [by_sex, made]
        assert (by_sex.sd, by_sex.privacy, made.sd) == (3.0, None, None)
        assert made.privacy == ZCDP(rho=0.25)
        assert other.saved_questions() == []
        other.delete_question(made)
        assert "older people" in Visitor(shared_service).get(SAVED).text
        first, again = (table.query(made.text, privacy=made.privacy, sd=made.sd) for _ in range(2))
        assert first.value == again.value
        assert again.cached
        table.delete_question(made)
        table.delete_question(by_sex.id)
        table.delete_question("0" * 32)
        assert table.saved_questions() == []


@pytest.mark.parametrize(
    "entry",
    [{}, {"id": 1}, {"id": "a", "title": "b", "text": "c", "privacy": {"kind": "zcdp"}, "sd": None}],
)
def test_a_saved_question_that_cannot_be_read_is_refused(
    shared_service: RunningService, entry: dict[str, object]
) -> None:
    with (
        RemoteDatabase(shared_service.url, "town", shared_service.tokens["ana"]) as table,
        pytest.raises(ServiceError, match="saved question that cannot be read"),
    ):
        table._read_question(entry)
