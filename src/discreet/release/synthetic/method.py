"""Release of a table of no one's rows, made from noisy tables of counts."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from discreet.arguments import promise_hint
from discreet.errors import DataError, ParameterError, PromiseError
from discreet.ledger import Ledger
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, Promise, PureDP
from discreet.privacy.budget_split import BudgetSplit
from discreet.query import Database
from discreet.query.curation import Curation
from discreet.query.engines import kernel_engine_for
from discreet.query.execution import QueryExecutor
from discreet.query.unit_rows import check_matrix_allowed
from discreet.release._rows import is_matrix, read_matrix
from discreet.release.base import ALWAYS_OPEN, ReleaseMethod, collect_parameters
from discreet.release.keystream import sampling_stream
from discreet.release.publication import Publication, decode_cells, published_fields
from discreet.release.synthetic.cells import plain_edges
from discreet.release.synthetic.columns import SyntheticTable
from discreet.release.synthetic.plan import (
    SyntheticReleasePlan,
    make_plan,
    publishable_schema,
    summarize_columns,
)
from discreet.release.synthetic.public import PublicRows
from discreet.release.synthetic.questions import Questions, check_service
from discreet.release.synthetic.rows import draw_rows, sampling_seed
from discreet.release.synthetic.selection import NoiseBudget
from discreet.release.synthetic.synthesis import synthesize
from discreet.tables import check_target, write_table
from discreet.tables.parquet_parts import write_parts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from discreet._types import AnyArray
    from discreet.noise import Stream
    from discreet.query import NoisySums
    from discreet.release.base import Watch
    from discreet.release.synthetic.columns import DrawnColumns
    from discreet.release.synthetic.plan import SyntheticPlan
    from discreet.schema import Schema

GROUPS = (
    "this table is about groups. Nobody's row is in it; what it says about a group of people is true of its "
    "members, in the table or not"
)
KEPT_GROUPS = (
    "the other columns are about groups. Their cells are nobody's; what they say about a group of people is "
    "true of its members, in the table or not"
)
NO_FLOOR = (
    "the value of a person by itself: no error floor is promised, because the count of a well-filled cell is "
    "published almost exactly"
)
AGAIN = (
    "further releases of the same table: what they ask anew is charged, adds up in the ledger, and averages "
    "noise out. More rows, or other rows, from the same tables.json cost nothing"
)


class SyntheticRelease(ReleaseMethod):
    """A table of no one's rows under a central promise, made from noisy tables of counts.

    A few questions are asked through noisy sums: counts of every column with the target, how much pairs of
    columns depend on each other, the tables of those that matter most, and where the model made of them is
    still wrong. The rows are drawn from the noisy answers alone.

    Parameters
    ----------
    privacy : ApproxDP, GaussianDP, ZCDP or PureDP
        Promise of the whole table; ``ApproxDP(1, 1e-6)`` if left out.
    schema : Schema
        Declaration of the table: bounds, lists, target, neighbors.
    target : str, bool or None
        Column that matters most, given which the others are modelled; None takes that of the schema, False
        models all columns alike.
    cells : mapping of str to sequence, optional
        For numbers and dates, the values at which the second and later cells begin, in place of those that
        the schema declares. Columns with neither are cut by noisy counts.
    n_records : int, optional
        Number of rows that are made; None for as many as the table has, or is estimated to have.
    draw : int
        Index of the draw of rows; others than 0 give further tables from the same answers, for nothing.
    shares : mapping of str to float, optional
        Weights of questions in the promise, in place of the usual ones; None for these.
    anyway : bool
        Whether a table is made even if it is expected to be noise.
    keep_public : bool
        Whether columns declared public are kept as they are, row by row, and the others drawn given them.
        Otherwise they are made up like the others, and protected like them.
    ledger : Ledger, optional
        Ledger that every question is charged to; None counts charges in memory, under no limit.
    random_state : int, optional
        Seed for tests and examples alone: it makes the noise public.

    Attributes
    ----------
    plan_ : SyntheticPlan
        Cells, target and shares, from public facts alone.
    tables_ : dict
        All questions with their noisy answers and standard deviations, as plain JSON values.
    model_ : dict
        Tree of dependences and further tables, as plain JSON values.
    promises_ : tuple of Promise
        Promise that the table keeps.
    receipts_ : tuple of Receipt
        Receipts of the questions, in their order.
    n_rows_ : int
        Number of rows of the table, public or estimated.
    sampling_seed_ : str
        Public seed of the rows, which follows from the last receipt.

    Privacy
    -------
    The promise is kept by all columns together: every question is charged its share of it, fixed by public
    facts, before its noise is drawn. All that follows an answer is post-processing of it, the rows included.
    No error floor is promised: what the table says about a group holds for its members.

    Reference
    ---------
    docs/explanation/theorems/marginals.md, composition.md.

    Examples
    --------
    >>> from discreet import ApproxDP, Column, Schema
    >>> columns = [Column("old", values=(0, 1)), Column("ill", values=(0, 1), role="target")]
    >>> schema = Schema(columns=columns)
    >>> method = SyntheticRelease(ApproxDP(epsilon=1, delta=1e-6), schema=schema, random_state=1)
    >>> made = method.release({"old": [0, 1, 1, 1] * 250, "ill": [0, 1, 1, 0] * 250})
    >>> {name: len(values) for name, values in made.columns.items()}
    {'old': 1000, 'ill': 1000}
    """

    name: ClassVar[str] = "synthetic"
    accepts: ClassVar[tuple[type[Promise], ...]] = (ApproxDP, GaussianDP, ZCDP, PureDP)
    asks_questions: ClassVar[bool] = True

    def __init__(
        self,
        privacy: ApproxDP | GaussianDP | ZCDP | PureDP | None = None,
        *,
        schema: Schema | None = None,
        target: str | bool | None = None,
        cells: Mapping[str, Sequence[Any]] | None = None,
        n_records: int | None = None,
        draw: int = 0,
        shares: Mapping[str, float] | None = None,
        anyway: bool = False,
        keep_public: bool = True,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        """Store the parameters; refuses promises about single rows and errors."""
        super().__init__(schema=schema, ledger=ledger, random_state=random_state)
        neighbors = self._require_schema().neighbors
        promise = ApproxDP(epsilon=1.0, delta=1e-6, neighbors=neighbors) if privacy is None else privacy
        if not isinstance(promise, ApproxDP | GaussianDP | ZCDP | PureDP):
            raise PromiseError(
                "privacy of SyntheticRelease must be ApproxDP, GaussianDP, ZCDP or PureDP, was "
                f"{type(promise).__name__}. "
                + (
                    promise_hint(promise, self.accepts)
                    or "A least error is promised by GaussianRelease, LaplaceRelease and the other methods "
                    "that add noise to rows."
                )
            )
        if n_records is not None and (isinstance(n_records, bool) or n_records < 1):
            raise ParameterError(f"n_records of SyntheticRelease must be at least 1, was {n_records!r}.")
        if isinstance(draw, bool) or not isinstance(draw, int) or draw < 0:
            raise ParameterError(f"draw of SyntheticRelease must be a whole number from 0 on, was {draw!r}.")
        self.privacy = promise
        self.draw = draw
        self.target = target
        self.cells = None if cells is None else {name: plain_edges(edges) for name, edges in cells.items()}
        self.n_records = n_records
        self.shares = None if shares is None else dict(shares)
        self.anyway = anyway
        self.keep_public = keep_public

    def plan(self, schema: Schema, n_rows: int | None) -> SyntheticReleasePlan:
        """Return promise and schema of a release; refuses one that would be noise."""
        promise, plan = self._plan(schema, n_rows)
        return SyntheticReleasePlan(publishable_schema(schema), promise, plan, self.n_records)

    def scaled_plan(self, schema: Schema, n_rows: int, factor: float) -> SyntheticReleasePlan:
        """Return :meth:`plan`: how good a table is at other noise does not follow from a factor."""
        return self.plan(schema, n_rows)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters, without table, ledger and key, as plain JSON values."""
        cells = self.cells or {}
        plain = {name: list(edges) for name, edges in cells.items()}
        return collect_parameters(self, cells=plain or None)

    def not_protected(self, schema: Schema) -> tuple[str, ...]:
        """Return what a release by this method does not protect, as clauses without a full stop."""
        public = schema.neighbors == "replace-one" and schema.row_count == "public"
        kept = [c.name for c in schema.released if c.role == "public" and self.keep_public]
        open_facts = ALWAYS_OPEN if public else ALWAYS_OPEN[2:]
        if not kept:
            return (GROUPS, *open_facts, NO_FLOOR, AGAIN)
        named = f"the columns declared public, whose rows are kept as they are: {', '.join(kept)}"
        return (named, KEPT_GROUPS, *open_facts, NO_FLOOR, AGAIN)

    def _plan(self, schema: Schema, n_rows: int | None) -> tuple[Promise, SyntheticPlan]:
        """Return the promise of all questions together, and what will be asked."""
        whole = BudgetSplit(self.privacy, {"all": 1}, unit=schema.unit, neighbors=schema.neighbors).whole
        plan = make_plan(
            schema,
            n_rows,
            whole,
            requested=self.privacy,
            target=self.target,
            cells=self.cells,
            shares=self.shares,
            anyway=self.anyway,
            keep_public=self.keep_public,
        )
        if plan.public and self.n_records not in (None, n_rows):
            raise ParameterError(
                f"n_records of SyntheticRelease must be left out where rows of public columns are kept, was "
                f"{self.n_records!r}. Have them made up like the others with keep_public=False."
            )
        # The sampler's share of delta grows with the number of questions.
        split = BudgetSplit(self.privacy, plan.shares, unit=schema.unit, neighbors=schema.neighbors)
        if not plan.public:
            return split.whole, plan
        covers = tuple(column.name for column in schema.released if column.name not in plan.public)
        return dataclasses.replace(split.whole, covers=covers), plan

    def release(self, X: Any, y: AnyArray | None = None, *, shuffle: bool | None = None) -> SyntheticTable:
        """Make a table from rows in memory or in a file: plan, charge and ask, then draw.

        Parameters
        ----------
        X : matrix, frame, path, URL or mapping of names to arrays
            Rows that are asked about. A matrix holds the numeric features in the order of the schema.
        y : array, optional
            Target of a matrix, as values of its declared list; None where there is none.
        shuffle : bool, optional
            Accepted as by other methods and not used: rows are always in random order.
        """
        source: Any = X
        schema = self._require_schema()
        if is_matrix(X):
            check_matrix_allowed(schema, "X of SyntheticRelease.release")
            schema, rows = read_matrix(np.asarray(X), y, schema)
            source = {name: decode_cells(schema.column(name), values) for name, values in rows.items()}
        elif y is not None:
            raise ParameterError(
                "y of SyntheticRelease.release must be left out unless X is a matrix. A table holds its "
                "target as a column."
            )
        with Database(
            source,
            schema=schema,
            ledger=self.ledger,
            engine=kernel_engine_for(source),
            random_state=self.random_state,
        ) as database:
            return self._make(database, counted=self.ledger is not None, public=source)

    def publish(
        self,
        source: Any,
        target: str | Path,
        *,
        shuffle: bool = True,
        replace: bool = False,
        stream: Stream | None = None,
        watch: Watch | None = None,
        rows_salt: str | None = None,
    ) -> Publication:
        """Make a table and write it to a file, with the declared types of its columns.

        Answers that an interrupted release has paid for are taken from the ledger, and are free.

        Parameters
        ----------
        source : frame, path, URL or Spark session
            Rows that are asked about, in an engine that :class:`~discreet.query.Database` knows.
        target, replace, rows_salt
            As for :meth:`ReleaseMethod.publish`.
        stream : Stream, optional
            Source of the noise, for a curator who keeps the key: noise of a question follows from the key,
            the rows and the question. By default a fresh one, forgotten when the release is done.
        shuffle, watch
            Accepted as by other methods and not used: rows are nobody's, and in random order.

        Returns
        -------
        Publication
        """
        schema = self._require_schema()
        check_target(target, replace=replace)
        stream = self._stream(stream)
        salt = self._rows_salt(stream) if rows_salt is None else rows_salt
        with self.open_rows(source, stream=stream, rows_salt=salt) as sums:
            self._plan(schema, sums.n_rows)
            # Before the charge: a key that was used already must cost nothing.
            stream.spend(f"{type(self).__name__}.publish")
            made = self._make(sums, counted=self.ledger is not None, public=source)
        done = self._write(made, target, sums.n_rows, replace=replace)
        return dataclasses.replace(done, commitment=stream.commitment, rows_salt=salt or None)

    def publish_database(
        self,
        sums: NoisySums,
        target: str | Path,
        *,
        owner: str | None = None,
        replace: bool = False,
        public: Any = None,
        in_parts: bool = False,
    ) -> Publication:
        """Make a table from noisy sums alone and write it to a file.

        Parameters
        ----------
        sums : NoisySums
            Table that answers questions for a price: a database at hand, or one behind a service.
        target, replace
            As for :meth:`publish`.
        owner : str, optional
            Name that is charged beside the total; None charges the total alone.
        public : frame, path, URL or mapping of names to arrays, optional
            Table with the columns declared public, as for :meth:`release_database`.
        in_parts : bool
            Whether `target` becomes a folder of Parquet files of about a million rows; it must not exist.

        Returns
        -------
        Publication
            Without a commitment: whoever answers has the key of the noise.
        """
        check_target(target, replace=replace)
        made = self.release_database(sums, owner=owner, public=public)
        return self._write(made, target, sums.n_rows, replace=replace, in_parts=in_parts)

    def _write(
        self,
        made: SyntheticTable,
        target: str | Path,
        n_read: int | None,
        *,
        replace: bool,
        in_parts: bool = False,
    ) -> Publication:
        """Write a table with the declared types of its columns, and return what is known of it."""
        fields, batches = published_fields(made.schema, typed=True), made.batches()
        return Publication(
            n_rows=write_parts(target, fields, batches)
            if in_parts
            else write_table(target, fields, batches, replace=replace),
            n_read=n_read,
            schema=made.schema,
            promises=made.promises,
            receipt=made.receipt,
            summary=made.summary,
            commitment=made.commitment,
            earlier=self.receipts_[:-1],
            typed=True,
        )

    def open_rows(self, source: Any, *, stream: Stream, rows_salt: str) -> QueryExecutor:
        """Return the rows in their engine, which answers with noise under the key of a stream.

        Parameters
        ----------
        source : frame, path, URL or Spark session
            Rows that are asked about.
        stream : Stream
            Source of the noise of every question.
        rows_salt : str
            Salt that decides which rows are kept of a unit that has too many; empty where every row is one.
        """
        curation = Curation.from_schema(self._require_schema())
        engine = kernel_engine_for(source)
        try:
            engine.register(source, curation, salt=rows_salt)
            ledger = Ledger.open(":memory:") if self.ledger is None else self.ledger
            return QueryExecutor(engine, curation, ledger=ledger, stream=stream)
        except BaseException:
            # Also when interrupted: the caller has no reference to close the engine by.
            engine.close()
            raise

    def release_database(
        self, sums: NoisySums, *, owner: str | None = None, public: Any = None
    ) -> SyntheticTable:
        """Make a table from noisy sums alone: a database at hand, or one behind a service.

        Parameters
        ----------
        sums : NoisySums
            Table that answers questions for a price.
        owner : str, optional
            Name that is charged beside the total; None charges the total alone.
        public : frame, path, URL, mapping of names to arrays, or PublicRows
            Table with the columns declared public, whose rows are kept; not read where there are none. A
            database, and a service above all, does not hand out rows.

        Raises
        ------
        ParameterError
            If the table would be noise at this promise; nothing was charged.
        BudgetExceeded
            If all questions together exceed what the ledger has left; nothing was charged.
        """
        return self._make(sums, owner=owner, public=public)

    def _make(
        self, sums: NoisySums, *, owner: str | None = None, counted: bool = True, public: Any = None
    ) -> SyntheticTable:
        """Plan, ask and draw; without a ledger that counts, the receipts name none."""
        whole, self.plan_ = self._plan(sums.schema, sums.n_rows)
        check_service(sums, self.plan_.cells)
        questions = Questions(sums, self.privacy, self.plan_.shares, owner=owner, counted=counted)
        self.promises_ = (whole,)
        budget = NoiseBudget.from_promise(self.promises_[0], sums.neighbors, sums.schema.max_rows_per_unit)
        kept = self._read_public(sums, public)
        self._synthesis = synthesize(questions, self.plan_, budget, kept)
        self._schema = sums.schema
        self.n_rows_ = round(self._synthesis.n)
        # Kept rows are outside of the promise, which the answers alone do not say.
        self.tables_ = {**questions.to_dict(), "promise": whole.to_dict()}
        self.receipts_ = questions.receipts
        self.model_ = self._synthesis.to_dict()
        self._digest = questions.digest()
        last = self.receipts_[-1] if self.receipts_ else None
        self.sampling_seed_ = sampling_seed(last, self._digest, self.draw)
        columns = self.generate(self.n_records, seed=self.draw)
        return SyntheticTable(
            columns=columns,
            schema=publishable_schema(sums.schema),
            promises=self.promises_,
            receipt=self.receipts_[-1] if self.receipts_ else self._charge((), sums.schema, False),
            summary=summarize_columns(columns, self.plan_),
            commitment="",
        )

    def _read_public(self, sums: NoisySums, public: Any) -> PublicRows | None:
        """Return the rows that are kept; refuses none, or another number of them, before anything is paid."""
        names = self.plan_.public
        if not names:
            return None
        if public is None:
            raise ParameterError(
                f"public of release_database must be a table with the columns whose rows are kept "
                f"({', '.join(names)}), and was left out: noisy sums do not hand out rows. Nothing was "
                "charged. Give it, or have these columns made up like the others with keep_public=False."
            )
        given = isinstance(public, PublicRows)
        rows: PublicRows = public if given else PublicRows.from_source(public, sums.schema, names)
        if rows.n != sums.n_rows:
            raise DataError(
                f"public of release_database must have the {sums.n_rows} rows of the table, and has "
                f"{rows.n}. Nothing was charged."
            )
        return rows

    def generate(
        self, n: int | None = None, where: Mapping[str, Any] | None = None, seed: int = 0
    ) -> DrawnColumns:
        """Return rows drawn from the published answers, encoded. Free.

        Parameters
        ----------
        n : int, optional
            Number of rows; None for as many as the table has.
        where : mapping of str to level, optional
            Value of some columns that all rows shall have; for a number, any value of the cell that they
            shall lie in.
        seed : int
            Index of the draw; 0 draws the rows of the release.
        """
        made = self._synthesis
        if made.public is not None and (where or n not in (None, made.public.n)):
            raise ParameterError(
                "n and where of SyntheticRelease.generate must be left out where rows of public columns are "
                "kept: there is one row for each of them. Select among the rows instead."
            )
        size = round(made.n) if n is None else n
        if size < 1:
            raise ParameterError(f"n of SyntheticRelease.generate must be at least 1, was {n!r}.")
        receipt = self.receipts_[-1] if self.receipts_ else None
        key = sampling_seed(receipt, self._digest, seed)
        stream = sampling_stream("rows", self._digest, key, size)
        return draw_rows(made, size, where or {}, stream)
