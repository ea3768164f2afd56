"""The one way to ask: routes and pages call an office, and nothing else touches ledger and database.

An :class:`Office` turns a request into questions, has them answered under the caller's name, writes the trail
and says what is left. It knows nothing of HTTP.
"""

from __future__ import annotations

import math
from contextlib import ExitStack, closing
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from discreet.audit.answers import exact_sums
from discreet.batching import Step, run_one
from discreet.errors import BudgetExceeded, DiscreetError, ParameterError, SourceError
from discreet.job.asking import answering, is_free, priced
from discreet.job.costs import prices
from discreet.job.declared import schema_of, table_of
from discreet.job.registry import Recognition
from discreet.job.sentence import read_sentence, sentence_of
from discreet.ledger import Ledger
from discreet.query import Database, Sums
from discreet.query.questions import question_from_dict
from discreet.server import wire
from discreet.server.access import AccessBook, Caller
from discreet.server.answers import answer_wire, model_wire, price_wire, statistical_wire
from discreet.server.books import Books
from discreet.server.learning import Aimed, prepared, targeted
from discreet.server.problems import STOPPED, UNAUTHORIZED, Refusal, fitting, problem_of, too_expensive
from discreet.server.readiness import Readiness
from discreet.server.sizes import check_question, check_sentence, check_size
from discreet.server.tokens import TokenDesk
from discreet.server.trail import Answered, Trail

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from discreet.batching import QueryTask
    from discreet.job.reply import Reply
    from discreet.job.sentence import Sentence
    from discreet.ledger import Entry
    from discreet.privacy import Promise, Receipt
    from discreet.query import Question
    from discreet.schema import Schema
    from discreet.server.access import Scope
    from discreet.server.config import Config

__all__ = ["Caller", "Office"]

MOST_DUMMY = 10_000


class Office:
    """A private table, its ledger, and the people who may ask.

    Parameters
    ----------
    config : Config
        As an operator wrote it.

    Attributes
    ----------
    config : Config
        The same.
    dataset : str
        Its name.
    schema : Schema
        What is public about the table.
    ledger : Ledger
        What was paid.
    database : Database
        Who answers.
    access : AccessBook
        Who may ask.
    trail : Trail
        What happened.
    books : Books
        What was paid, told for people.

    Privacy
    -------
    A question is charged to its caller and to the total before the engine is asked, and its answer is in the
    ledger and its row in the trail before it leaves, the first time and whenever it is told again. A token
    that was revoked and a switch that was turned meanwhile end what asks several questions before the next of
    them, and hold back what was answered. Whatever is refused is refused for reasons that follow
    from the request, the schema and the ledger. A ledger of another data set, or one that went back to an
    earlier state, is refused at the start.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.dataset = config.dataset
        declared = declared_in(config)
        with ExitStack() as opened:
            self.access = opened.enter_context(closing(AccessBook(config.access)))
            self.trail = Trail(config.audit_log)
            known = known_table(config, declared)
            self.ledger = opened.enter_context(closing(open_ledger(config, declared)))
            self.trail.confirm(self.ledger)
            known.require(new_ledger=config.new_ledger)
            known.note(self.ledger)
            self.database = opened.enter_context(closing(self._registered(declared)))
            if self.database.n_rows == 0:
                raise SourceError("table of the configuration must have at least one row, and has none.")
            self.schema: Schema = self.database.schema
            self.trail.write(
                "start", dataset=self.dataset, schema=self.schema.digest, seeded=config.seed is not None
            )
            self._opened = opened.pop_all()
        self.books = Books(self)
        self._tokens = TokenDesk(
            self.access, self.trail, lambda: self.ledger, gaussian_share=config.gaussian_share
        )
        self.whom: dict[str, Any] = {"unit": self.schema.unit, "neighbors": self.schema.neighbors}
        self._read = lru_cache(maxsize=512)(self._sentence)
        self._readiness = Readiness(self._look)

    def _registered(self, declared: Schema) -> Database:
        config = self.config
        return Database(
            table_of(config.table),
            schema=declared,
            ledger=self.ledger,
            random_state=config.seed,
            version=config.version,
            keep_ids=config.keep_ids,
            slots=config.slots,
        )

    # Asking.

    def ask(self, who: Caller, request: Any, *, key: str | None = None) -> dict[str, Any]:
        """Answer a request.

        Parameters
        ----------
        who : Caller
            Who is charged.
        request : wire.Question
            What is asked.
        key : str, optional
            Sent again with the same key, a request is never charged twice. Models have none: training one
            again asks the same questions again, which are free as long as the rows are the same.

        Returns
        -------
        dict
            The answer as it goes over the wire.

        Raises
        ------
        DiscreetError, Refusal
            As :func:`~discreet.server.problems.problem_of` tells them.
        """
        return run_one(self.asking(who, request, key=key))

    def asking(self, who: Caller, request: Any, *, key: str | None = None) -> QueryTask[dict[str, Any]]:
        """Return the flow of a request, which is carried out together with those of others.

        Parameters
        ----------
        who, request, key
            As for :meth:`ask`. A model is trained in one piece, whoever waits.
        """
        try:
            self._check_running()
            match request:
                case wire.Statistical():
                    told, receipts = yield from self._statistical(who, request, key)
                case wire.Training():
                    told, receipts = self._model(who, request)
                case _:
                    told, receipts = yield from self._sentence_answer(who, request, key)
            self._check_may(who)
        except (DiscreetError, Refusal) as problem:
            self.note_refusal(who, problem_of(problem).code, asked_words(request))
            raise
        yield Step(self.trail.answered, Answered(who.name, told["question"], receipts, told["cached"]))
        return told

    def preview(self, who: Caller, request: Any) -> dict[str, Any]:
        """Say what a request would cost and how noisy its answer would be. Free.

        What the caller has paid for is free; of a model, which chooses its questions as it learns, that is
        not told.
        """
        privacy = wire.promise_of(request.privacy, **self.whom)
        if isinstance(request, wire.Statistical):
            return self._statistical_price(who, request, privacy)
        if isinstance(request, wire.Training):
            assert privacy is not None
            schema = targeted(self.schema, request.target)
            prepared(request, schema, privacy)
            left = self.books.remaining(who, (privacy,))
            return price_wire(request.kind, None, (privacy,), left, learner=request.kind)
        asked, sd = self.sentence(request), request.sd_or_none()
        reply = priced(self.schema, self.database.n_rows, asked, privacy=privacy, sd=sd)
        free = is_free(self.database, asked, privacy=privacy, sd=sd, owner=who.name, refines=request.refines)
        return price_wire(str(asked), reply, reply.cost, self._left(who, reply), sql=asked.sql, free=free)

    def sentence(self, request: Any) -> Sentence:
        """Return the question that a request is; refuses what is beyond the language, or too large."""
        asked = self._asked(request)
        check_sentence(asked, self.database.curation, self.config.limits.cells)
        return asked

    def _asked(self, request: Any) -> Sentence:
        match request:
            case wire.Said():
                return self._read(request.text)
            case wire.HistogramWire():
                axes = tuple((name, tuple(request.edges.get(name, ()))) for name in request.columns)
                for name in request.edges:
                    if name not in request.columns:
                        raise ParameterError(
                            f"edges of a histogram must be of its columns, and {name!r} is not one of them."
                        )
                verb = "count" if request.expression is None else "sum"
                return self._read(verb, request.expression, request.where, axes)
        axes = tuple(
            (axis, ()) if isinstance(axis, str) else (axis.column, tuple(axis.edges)) for axis in request.by
        )
        return self._read(request.kind, getattr(request, "expression", None), request.where, axes)

    def _sentence(self, *parts: Any) -> Sentence:
        if len(parts) == 1:
            return read_sentence(parts[0], self.schema)
        verb, expression, where, axes = parts
        by = [{"column": name, "edges": list(edges)} if edges else name for name, edges in axes]
        return sentence_of(verb, expression, where, by, self.schema)

    def _sentence_answer(
        self, who: Caller, request: Any, key: str | None
    ) -> QueryTask[tuple[dict[str, Any], Sequence[Receipt]]]:
        asked = self.sentence(request)
        privacy, sd = wire.promise_of(request.privacy, **self.whom), request.sd_or_none()
        try:
            reply = yield from answering(
                self._aimed(who, self.schema),
                asked,
                privacy=privacy,
                sd=sd,
                owner=who.name,
                refines=request.refines,
                request=key,
            )
        except BudgetExceeded as problem:
            quoted = priced(self.schema, self.database.n_rows, asked, privacy=privacy, sd=sd)
            raise self._too_expensive(who, problem, quoted.cost, privacy, sd) from None
        return answer_wire(reply, self.books.remaining(who, reply.cost, reply.receipts)), reply.receipts

    def _statistical(
        self, who: Caller, request: wire.Statistical, key: str | None
    ) -> QueryTask[tuple[dict[str, Any], Sequence[Receipt]]]:
        privacy = wire.promise_of(request.privacy, **self.whom)
        plan = [wire.promise_of(promise, **self.whom) for promise in request.plan]
        question = self._question(request, privacy)
        try:
            answer = yield from self.database.asking(
                question,
                privacy=privacy,
                variance=request.variance,
                owner=who.name,
                plan=plan,  # type: ignore[arg-type]
                refines=_refined(request),
                request=key,
            )
        except BudgetExceeded as problem:
            sd = None if request.variance is None else math.sqrt(request.variance)
            raise self._too_expensive(who, problem, (), privacy, sd) from None
        left = self.books.remaining(who, answer.cost, [answer.receipt])
        return statistical_wire(request.question, answer, left), [answer.receipt]

    def _statistical_price(
        self, who: Caller, request: wire.Statistical, privacy: Promise | None
    ) -> dict[str, Any]:
        question = self._question(request, privacy)
        cost = self.database.cost(question, privacy=privacy, variance=request.variance)
        spread = self.database.expected_sd(question, privacy=privacy, variance=request.variance)
        free = self.database.is_free(
            question, privacy=privacy, variance=request.variance, owner=who.name, refines=_refined(request)
        )
        left = self.books.remaining(who, cost)
        return price_wire(request.question, None, cost, left, sd=spread, free=free)

    def _question(self, request: wire.Statistical, privacy: Promise | None) -> Question:
        """Return the question of a request, laid out once: whatever is wrong with it shows here."""
        try:
            question = question_from_dict(request.question)
            check_question(question, self.database.curation, self.config.limits.cells)
            bound, _ = self.database.fit(question, privacy=privacy, variance=request.variance)
            check_size(bound.size, self.config.limits.cells)
        except DiscreetError:
            raise
        except Exception:
            # Nothing here has seen a row: values of some wrong type, in places without a check of their own.
            raise ParameterError(
                "question of a statistical request must be what the library's to_dict() writes, and is not."
            ) from None
        return question

    def _too_expensive(
        self,
        who: Caller,
        problem: BudgetExceeded,
        cost: tuple[Promise, ...],
        privacy: Promise | None,
        sd: float | None,
    ) -> Refusal:
        """Say what would fit both budgets; they may be limited in different currencies."""
        left, currency = self.books.remaining(who, ()), problem.currency
        accounts = (account for account in (left["own"], left["total"]) if account is not None)
        least = min(account.get(currency, problem.left) for account in accounts)
        # A mean by groups is refused at the first of its two questions, and both must fit.
        asked = max(problem.asked, prices(cost).get(currency, 0.0))
        fits = fitting(privacy, sd, currency, least / asked if asked > 0 else 0.0)
        return Refusal(too_expensive(problem, asked=asked, fits=fits))

    def _model(self, who: Caller, request: wire.Training) -> tuple[dict[str, Any], Sequence[Receipt]]:
        privacy = wire.promise_of(request.privacy, **self.whom)
        schema = targeted(self.schema, request.target)
        learner = prepared(request, schema, privacy)
        learner.fit_database(self._aimed(who, schema), owner=who.name)
        left = self.books.remaining(who, learner.promises_)
        return model_wire(request, learner, left), learner.receipts_

    def _left(self, who: Caller, reply: Reply) -> dict[str, Any]:
        return self.books.remaining(who, reply.cost)

    def _aimed(self, who: Caller, schema: Schema) -> Any:
        return Aimed(self.database, schema, before=lambda: self._check_may(who))

    def _check_running(self) -> None:
        if self.access.stopped() is not None:
            raise Refusal(STOPPED)

    def _check_may(self, who: Caller) -> None:
        """Refuse whoever was let in and may not ask any more, or not now."""
        self._check_running()
        if not self.access.still(who):
            raise Refusal(UNAUTHORIZED)

    def note_refusal(self, who: Caller | None, code: str, asked: str) -> None:
        """Write down that something was refused."""
        self.trail.write("refused", who=None if who is None else who.name, code=code, asked=asked[:500])

    # What is public.

    def about(self) -> dict[str, Any]:
        """Return what everybody who may ask may know about the table."""
        return {
            "dataset": self.dataset,
            "schema": self.schema.to_dict(),
            "n_rows": self.database.n_rows,
            "neighbors": self.schema.neighbors,
            "unit": self.schema.unit,
            "digest": self.schema.digest,
            "collusion": self.books.collusion,
            "seeded": self.config.seed is not None,
        }

    def dummy(self, n: int, seed: int) -> dict[str, list[Any]]:
        """Return made-up rows, drawn from the schema alone. Free."""
        if not 1 <= n <= MOST_DUMMY:
            raise ParameterError(f"n of dummy rows must be from 1 to {MOST_DUMMY}, was {n}.")
        from discreet.job.dummy import dummy_rows

        return dummy_rows(self.schema, n, seed)

    def budget(self, who: Caller) -> dict[str, Any]:
        """Return what somebody, and everybody together, may spend, have spent and have left."""
        return self.books.budget(who)

    def history(self, who: Caller, *, last: int, analyst: str | None = None) -> list[dict[str, Any]]:
        """Return what somebody paid for last, without the answers; a curator may see everybody's."""
        return self.books.history(self.ledger.entries(_whose(who, analyst), last=last))

    def history_page(
        self,
        who: Caller,
        *,
        last: int,
        first: int | None = None,
        analyst: str | None = None,
        after: int = 0,
    ) -> dict[str, Any]:
        """Return what somebody paid for, with its answers, as far as a page goes.

        Parameters
        ----------
        who : Caller
            Whose; a curator may see everybody's.
        last : int
            Charges at most, the newest.
        first : int, optional
            Instead: charges at most, the oldest, so that pages can follow each other.
        analyst : str, optional
            Whose, if a curator looks.
        after : int
            Only rows of the ledger past this one.
        """
        owner = _whose(who, analyst)
        if first is None:
            entries: Iterable[Entry] = self.ledger.entries(owner, last=last, after=after)
            more = False
        else:
            # Answers are read one by one, as the page fills.
            receipts = self.ledger.history(owner, after=after, first=first + 1)
            entries = (self.ledger.entry(receipt.id) for receipt in receipts[:first])
            more = len(receipts) > first
        page, told = self.books.page(entries, more=more)
        self.trail.recalled(who.name, told)
        return page

    # For the curator.

    def overview(self) -> dict[str, Any]:
        """Return what the service is, and how it stands."""
        return self.books.overview()

    def spending(self) -> dict[str, Any]:
        """Return what was spent over time, by whom."""
        return self.books.spending()

    def refusals(self, most: int = 200) -> list[dict[str, Any]]:
        """Return what was refused last, newest first."""
        return [
            {"when": line["time"], "who": line["who"], "code": line["code"], "asked": line["asked"]}
            for line in self.trail.last("refused", most)
        ]

    def check(self) -> dict[str, Any]:
        """Verify ledger and trail."""
        self.ledger.check()
        self.trail.confirm(self.ledger)
        lines = self.trail.check()
        rows, head = self.ledger.head
        return {"intact": True, "rows": rows, "head": head, "trail_lines": lines}

    def attack(self) -> dict[str, Any]:
        """Return what an attacker could rebuild from all answers so far: never shown to analysts."""
        return self.books.attack()

    def stop(self, by: Caller) -> None:
        """Answer nothing from now on, in all processes, also after a restart."""
        self.access.stop(by.name)
        self.trail.write("stop", who=by.name)

    def resume(self, by: Caller) -> None:
        """Answer again; only if that could be written down."""
        self.trail.write("resume", who=by.name)
        self.access.resume(by.name)

    def tokens(self) -> list[dict[str, Any]]:
        """Return what is known of all tokens; the tokens themselves are known to nobody."""
        return self._tokens.listed()

    def create_token(
        self, by: str, name: str, scope: Scope = "analyst", *, days: float = 90, limit: Promise | None = None
    ) -> str:
        """Make a token, with a limit of its bearer's own if one is given, and return it: shown once."""
        return self._tokens.create(by, name, scope, days=days, limit=limit)

    def rotate_token(self, by: str, name: str) -> str:
        """Replace somebody's token, and return the new one: shown once."""
        return self._tokens.rotate(by, name)

    def revoke_token(self, by: str, name: str) -> int:
        """Revoke somebody's tokens, from now on; return how many were valid."""
        return self._tokens.revoke(by, name)

    # Operations.

    def ready(self) -> bool:
        """Say whether ledger and engine answer, and the trail can be written to."""
        self.ledger.head  # noqa: B018 - reads the ledger
        self.trail.look()
        self._readiness.check()
        return True

    def _look(self) -> None:
        """Have the engine count its rows, which is the least that can be asked of it."""
        bound, _ = self.database.fit(Sums("TRUE"), variance=1.0)
        exact_sums(self.database, bound)

    def close(self) -> None:
        """Let go of everything."""
        self._opened.close()


def _whose(who: Caller, analyst: str | None) -> str | None:
    """Return whose history somebody sees: their own, or that which a curator asks for."""
    return analyst if who.is_curator else who.name


def declared_in(config: Config) -> Schema:
    """Return the schema that a configuration names; refuses one of another data set."""
    declared = schema_of(config.table, config.schema_file)
    if declared.dataset is not None and declared.dataset != config.dataset:
        raise ParameterError(
            f"dataset of the configuration must be the schema's, {declared.dataset!r}, was "
            f"{config.dataset!r}. Correct one of them: the ledger goes by it."
        )
    return declared


def known_table(config: Config, declared: Schema) -> Recognition:
    """Return what is known about the table of a service and its ledger, which is not made."""
    return Recognition(config.table, declared, Ledger.identity_at(config.ledger))


def open_ledger(config: Config, declared: Schema) -> Ledger:
    """Open the ledger of a service, making it if it is not there; refuses one of another data set."""
    ledger = Ledger.open(
        config.ledger,
        limit=config.limit.promise(declared),
        owner_limit=None if config.analyst_limit is None else config.analyst_limit.promise(declared),
        gaussian_share=config.gaussian_share,
    )
    try:
        ledger.bind(config.dataset)
    except BaseException:
        ledger.close()
        raise
    return ledger


def _refined(request: wire.Statistical) -> str | None:
    """Return the receipt of the answer that a statistical question refines."""
    if len(request.refines) > 1:
        raise ParameterError(
            "refines of a statistical question must name one receipt, and named "
            f"{len(request.refines)}. Give that of the answer to refine."
        )
    return request.refines[0] if request.refines else None


def asked_words(request: Any) -> str:
    """Say in a line what a request asks."""
    match request:
        case wire.Said():
            return request.text
        case wire.Statistical():
            return f"statistical {request.question.get('kind')}"
        case wire.Training():
            return request.kind
        case wire.HistogramWire():
            return f"histogram of {', '.join(request.columns)}"
    words = str(request.kind) + (f" of {request.expression}" if hasattr(request, "expression") else "")
    return words + (f" where {request.where}" if request.where else "")
