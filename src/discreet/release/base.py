"""Base class of all release methods, and their parameters as plain JSON values.

Every method reads rows, plans, charges, draws and writes, always in that order.
"""

from __future__ import annotations

import hashlib
import inspect
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from discreet.arguments import CheckedArguments
from discreet.errors import DataError, ParameterError, SchemaError, SourceError
from discreet.noise import Stream
from discreet.privacy import Promise, Receipt, promise_from_dict
from discreet.privacy.receipt import canonical
from discreet.query.unit_rows import LABEL, check_matrix_allowed, ledger_salt, limited_batches
from discreet.release._rows import (
    count_rows,
    draw_in_memory,
    frame_library,
    is_matrix,
    read_bare_matrix,
    read_limited,
    read_matrix,
)
from discreet.release.keystream import BatchStreams
from discreet.release.publication import Publication, Release, ReleasePlan, published_fields
from discreet.tables import check_target, open_table, prefetch, write_table
from discreet.tables.external_sort import word_order

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from discreet._types import AnyArray, Bools, Floats
    from discreet.ledger import Ledger
    from discreet.noise_law import Law
    from discreet.release.publication import Encoded
    from discreet.release.spark import PartitionedTable
    from discreet.schema import Column, Schema
    from discreet.tables import Table

    Watch = Callable[[Encoded, Encoded], None]

LEAST_NOISE, LARGEST_NOISE = 1e-12, 1e15
"""Least and largest size of noise, in ranges of its column: less is lost in rounding, more is useless."""
_NOT_PARAMETERS = ("self", "schema", "bounds", "ledger", "random_state")


def parameter_names(kind: type[ReleaseMethod]) -> tuple[str, ...]:
    """Return the names of the parameters that describe a method, in the order of its constructor."""
    names = inspect.signature(kind.__init__).parameters
    return tuple(name for name in names if name not in _NOT_PARAMETERS)


def collect_parameters(method: ReleaseMethod, **instead: Any) -> dict[str, Any]:
    """Return every parameter that is not None as a JSON value; ``instead`` replaces some of them."""
    given = {name: getattr(method, name) for name in parameter_names(type(method))} | instead
    return {
        name: _to_json(value, f"{name} of {type(method).__name__}")
        for name, value in given.items()
        if value is not None
    }


def check_noise(columns: Sequence[Column], amounts: Floats, what: str) -> None:
    """Raise if amounts of noise, or errors, are out of proportion to the ranges of their columns.

    Parameters
    ----------
    columns : sequence of Column
        Columns that the amounts belong to.
    amounts : array of shape (n_columns,)
        Sizes of noise or errors, in the units of the columns.
    what : str
        Name of the quantity, for the error.
    """
    with np.errstate(over="ignore"):
        ratios = amounts / np.array([c.width for c in columns])
    for column, ratio in zip(columns, ratios, strict=True):
        if not LEAST_NOISE <= ratio <= LARGEST_NOISE:
            raise ParameterError(
                f"{what} of column {column.name!r} must be between {LEAST_NOISE:g} and {LARGEST_NOISE:g} "
                f"times its range of {column.width:g}, and what was asked for makes it {ratio:.3g} times "
                f"that. Ask for {'more' if ratio < 1 else 'less'} noise, or declare the range that the "
                "column can have."
            )


def _to_json(value: Any, where: str) -> Any:
    """Return one value as plain JSON; raise if it has no such form."""
    if isinstance(value, Promise):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): _to_json(part, where) for key, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_to_json(part, where) for part in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ParameterError(
        f"{where} must be something that can be written down for others to check, was "
        f"{type(value).__name__}. Give it by name."
    )


ORDER = "\0order"  # no column of a table can have this name

ALWAYS_OPEN = (
    "the number of rows, the names of the columns, and the declared bounds and lists",
    "that a person is in the table: whoever knows that the table covers somebody knows it still",
    "what holds for a whole group and how columns go together: learning that is what the release is for, and "
    "it says something about people who are not in the table as well",
    "what was known before, or is published elsewhere",
)
"""Facts that no released table hides, whatever the method."""


class ReleaseMethod(metaclass=CheckedArguments):
    """Method that publishes a whole table.

    Subclasses store their parameters in ``__init__`` and implement :meth:`plan`; reading, charging and
    drawing happen here, in this order, so that no method can draw before the charge.

    Parameters
    ----------
    schema : Schema, optional
        Declaration of the table. Exactly one of ``schema`` and ``bounds`` is needed.
    bounds : (lower, upper), optional
        Declared range of a bare matrix: two numbers, or two vectors with one entry for each column.
    ledger : Ledger, optional
        Ledger that is charged before the first random bit is drawn; None charges nothing.
    random_state : int, optional
        Seed for tests and examples alone: the receipt is marked, and anyone who knows the seed can remove the
        noise.
    """

    name: ClassVar[str]
    asks_questions: ClassVar[bool] = False
    """Whether several questions are asked and charged, each with its receipt, instead of one release."""
    replay_tolerance: ClassVar[float] = 0.0
    """Largest error of a replayed number, as a share of the largest number of its column."""

    def __init__(
        self,
        *,
        schema: Schema | None = None,
        bounds: tuple[Any, Any] | None = None,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        """Check that the table is declared in exactly one way."""
        if (schema is None) == (bounds is None):
            raise ParameterError(
                f"{type(self).__name__} needs exactly one of schema and bounds. "
                "Declare what the columns may contain; it is never read off the rows."
            )
        self.schema = schema
        self.bounds = bounds
        self.ledger = ledger
        self.random_state = random_state

    @abstractmethod
    def plan(self, schema: Schema, n_rows: int) -> ReleasePlan:
        """Return noise and promises of a release, from the schema and the public number of rows."""

    @abstractmethod
    def scaled_plan(self, schema: Schema, n_rows: int, factor: float) -> ReleasePlan:
        """Return the plan with ``factor`` times the noise, for what-if tables; with 1 it is :meth:`plan`."""

    def parameters(self) -> dict[str, Any]:
        """Return the parameters, without table, ledger and key, as plain JSON values.

        :func:`~discreet.release.method_from_dict` returns the method again, so that a reader of a statement
        can repeat the plan.
        """
        return collect_parameters(self)

    def plan_digest(self, n_rows: int) -> str:
        """Return the SHA-256, in hexadecimal, of the parameters and the number of rows.

        Computed from requested parameters, not from calibrated ones: processors differ in the last digits of
        a calibrated scale, and a replay must get the same bits on each.
        """
        facts = {"name": self.name, "parameters": self._noise_parameters(), "rows": n_rows}
        return hashlib.sha256(canonical(facts).encode()).hexdigest()

    def _noise_parameters(self) -> dict[str, Any]:
        """Return the parameters that the keystream of the noise depends on, as plain JSON values."""
        return self.parameters()

    @classmethod
    def from_parameters(cls, values: Mapping[str, Any], **common: Any) -> Self:
        """Return the method with given :meth:`parameters`; ``common`` are schema, ledger and the like."""
        unknown = sorted(set(values) - set(parameter_names(cls)))
        if unknown:
            raise ParameterError(
                f"{unknown[0]!r} is no parameter of {cls.__name__}; it has {', '.join(parameter_names(cls))}."
            )
        arguments = dict(values)
        if arguments.get("privacy") is not None:
            arguments["privacy"] = promise_from_dict(arguments["privacy"])
        return cls(**arguments, **common)

    def with_stated_laws(self, laws: Mapping[str, Law]) -> Self:
        """Return the method with the sizes of noise that published laws state, where they match its own.

        Only sizes that are calibrated to a floor can differ in the last digit between processors.
        """
        return self

    def not_protected(self, schema: Schema) -> tuple[str, ...]:
        """Return what a release by this method does not protect, as clauses without a full stop."""
        public = [c.name for c in schema.released if c.role == "public"]
        if not public:
            return ALWAYS_OPEN
        return (
            *ALWAYS_OPEN,
            f"the columns declared public, which are published as they are: {', '.join(public)}",
        )

    def release(self, X: Any, y: AnyArray | None = None, *, shuffle: bool | None = None) -> Release:
        """Publish a table: plan, charge, then draw.

        Parameters
        ----------
        X : matrix, frame, path, URL or mapping of names to arrays
            Rows to publish. A matrix holds the numeric features in the order of the schema; anything else is
            read by name. Values outside the declared bounds are clipped silently.
        y : array, optional
            Target of a matrix, as values of its declared list; -1 and 1 where only bounds are given.
        shuffle : bool, optional
            Whether rows are returned in random order. By default those of a table are, because their order
            identifies people, and those of a matrix are not, because other arrays go with them.

        Returns
        -------
        Release
        """
        stream = self._stream()
        schema, rows, kept = self._read(X, y, self._rows_salt(stream))
        check_publishable(schema, type(self).__name__)
        n_rows = count_rows(rows)
        plan = self.plan(schema, n_rows)
        receipt = self._charge(plan.promises, schema, stream.seeded)
        streams = self._streams(stream, schema, n_rows)
        columns, words = draw_in_memory(plan, rows, kept, streams)
        if shuffle if shuffle is not None else not is_matrix(X):
            order = word_order(words)
            columns = {name: values[order] for name, values in columns.items()}
        return Release(
            columns=columns,
            schema=plan.schema,
            promises=plan.promises,
            receipt=receipt,
            summary=plan.columns,
            commitment=stream.commitment,
            library=frame_library(X),
        )

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
        """Release a table straight into a file, a batch at a time, in constant memory.

        Parameters
        ----------
        source : frame, path or URL
            Table to publish, read by name as the schema declares.
        target : path or URL
            Address of the released table, which is written whole or not at all.
        shuffle : bool
            Whether rows are written in random order.
        replace : bool
            Whether ``target`` is overwritten if it exists.
        stream : Stream, optional
            Source of randomness, for a curator who keeps the key. A key is spent by its first release, and
            refused afterwards, before anything is charged; ``Stream.for_replay(key)`` draws the same release
            again. By default a fresh one, forgotten when the release is done.
        watch : callable, optional
            Function that is called with the true rows of every batch, in the values of the published table,
            and with the published ones, row by row in the same order, in a thread of its own. True rows have
            fingerprints of ids under the name of the id column, if there is one. Its arguments are for the
            curator alone. Not called where published rows belong to no person
            (``ReleasePlan.row_level``).
        rows_salt : str, optional
            Salt that decides which rows are kept of a unit that has too many: for an auditor, who finds it in
            the statement. By default derived from the ledger, or without one from the key.

        Returns
        -------
        Publication
        """
        schema = self._require_schema()
        check_publishable(schema, type(self).__name__)
        check_target(target, replace=replace)
        stream = self._stream(stream)
        with open_table(source, schema=schema) as table:
            n_rows = table.count()
            if not n_rows:
                raise DataError(f"{type(self).__name__}.publish needs at least one row, the table has none.")
            plan = self.plan(schema, n_rows)
            # Before the charge: a key that was used already must cost nothing.
            stream.spend(f"{type(self).__name__}.publish")
            receipt = self._charge(plan.promises, schema, stream.seeded)
            salt = self._rows_salt(stream) if rows_salt is None else rows_salt
            streams = self._streams(stream, schema, n_rows)
            batches = self._draw_batches(plan, table, schema, salt, streams, shuffle=shuffle, watch=watch)
            written = write_table(
                target,
                published_fields(plan.schema),
                prefetch(batches),
                replace=replace,
                order_by=ORDER if shuffle else None,
            )
        return _describe_publication(plan, n_rows, written, receipt, stream, salt)

    def publish_parts(
        self,
        table: PartitionedTable,
        target: str | Path,
        *,
        stream: Stream | None = None,
        watch: Watch | None = None,
    ) -> Publication:
        """Release a table into a folder of Parquet files, drawn and written by the workers of Spark.

        The rows and their order are those of :meth:`publish` under the same key. Only for methods that noise
        each row by itself. A release that was interrupted is not charged again: under the same key, plan and
        rows it gives the same bits.

        Parameters
        ----------
        table : PartitionedTable
            Table to publish, with the Spark session whose workers read it.
        target : path
            Folder of the released table, which must not exist; it is there once all parts are written.
        stream : Stream, optional
            As for :meth:`publish`.
        watch : callable, optional
            As for :meth:`publish`, but called with up to 16 batches, which are drawn again in this process.

        Returns
        -------
        Publication
        """
        schema = self._require_schema()
        check_publishable(schema, type(self).__name__)
        if Path(target).exists():
            raise SourceError(f"The folder {str(target)!r} exists already. Remove it, or choose another.")
        stream = self._stream(stream)
        plan = self.plan(schema, table.n_rows)
        table.check_method(plan, type(self).__name__)
        table.check()
        salt = self._rows_salt(stream)
        table.limit_rows(salt)
        stream.spend(f"{type(self).__name__}.publish_parts")
        digest = self.plan_digest(table.n_rows)
        # A name that only the key gives: it is published, and must say nothing about rows.
        question = stream.salt(canonical(["release in parts", digest, schema.digest, table.digest]))
        receipt = self._charge(plan.promises, schema, stream.seeded, question)
        table.is_paid = True
        written = table.draw(plan, Path(target), stream, plan_digest=digest)
        if watch is not None:
            table.watch(watch, Stream())
        return _describe_publication(plan, table.n_rows, written, receipt, stream, salt)

    def _draw_batches(
        self,
        plan: ReleasePlan,
        table: Table,
        schema: Schema,
        salt: str,
        streams: BatchStreams,
        *,
        shuffle: bool,
        watch: Watch | None,
    ) -> Generator[dict[str, AnyArray], None, None]:
        """Yield the published batches, each with a random word for every row to sort by."""
        for number, (batch, kept) in enumerate(limited_batches(table, schema, salt)):
            rows: Encoded = batch
            if kept is not None:
                rows = {name: values[kept] for name, values in batch.items()}
            noise, order = streams.batch(rows, part=0, batch=number)
            columns = plan.draw(rows, noise)
            if watch is not None:
                truth = plan.truth(rows)
                if schema.id_column is not None and batch.ids is not None:
                    truth = {**truth, schema.id_column: batch.ids[kept]}
                watch(truth, columns)
            if shuffle:
                columns[ORDER] = order.words(count_rows(columns))
            yield columns

    def _require_schema(self) -> Schema:
        """Return the schema; raise if only bounds were given."""
        if self.schema is None:
            raise ParameterError(
                f"{type(self).__name__}.publish needs schema=, and only bounds= was given. "
                "A table is read by the names of its columns."
            )
        return self.schema

    def _stream(self, given: Stream | None = None) -> Stream:
        """Return the source of randomness: the given stream, a seeded one, or a fresh one."""
        if given is None:
            return Stream() if self.random_state is None else Stream.from_seed(self.random_state)
        if self.random_state is not None:
            raise ParameterError(
                f"{type(self).__name__} takes randomness from random_state or from stream, and was given "
                "both. Leave random_state out: it is for tests."
            )
        return given

    def describe_charge(self, schema: Schema) -> str:
        """Return the description of a release in its ledger and on its receipt."""
        return f"{self.name} release of {schema.dataset or 'a table'}"

    def _streams(self, stream: Stream, schema: Schema, n_rows: int) -> BatchStreams:
        return BatchStreams(stream.derive("parts"), plan=self.plan_digest(n_rows), schema=schema.digest)

    def _rows_salt(self, stream: Stream) -> str:
        """Return the salt that decides which rows of a unit are kept; empty where every row is a unit."""
        if self.schema is None or self.schema.id_column is None:
            return ""
        return stream.salt(LABEL) if self.ledger is None else ledger_salt(self.ledger, self.schema)

    def _charge(
        self, promises: tuple[Promise, ...], schema: Schema, seeded: bool, question: str | None = None
    ) -> Receipt:
        """Charge the promises to the ledger and return the receipt; without a ledger, an unrecorded one."""
        what = self.describe_charge(schema)
        if self.ledger is None:
            return Receipt.from_promises(promises, what=what, schema=schema.digest, seeded=seeded)
        return self.ledger.charge(promises, what=what, schema=schema.digest, seeded=seeded, question=question)

    def _read(self, X: Any, y: AnyArray | None, salt: str) -> tuple[Schema, Encoded, Bools | None]:
        """Return schema, encoded rows, and a mask of the rows used; no mask where every row is a unit."""
        if self.schema is None:
            return read_bare_matrix(X, y, self.bounds)
        if is_matrix(X):
            check_matrix_allowed(self.schema, f"X of {type(self).__name__}.release")
            schema, rows = read_matrix(np.asarray(X), y, self.schema)
            return schema, rows, None
        if y is not None:
            raise ParameterError(
                f"y of {type(self).__name__}.release must be left out unless X is a matrix. "
                "A table holds its target as a column."
            )
        with open_table(X, schema=self.schema) as table:
            rows, kept = read_limited(table, self.schema, salt)
        if not rows:
            raise DataError(f"{type(self).__name__}.release needs at least one row, the table has none.")
        return self.schema, rows, kept


def _describe_publication(
    plan: ReleasePlan, n_read: int, n_rows: int, receipt: Receipt, stream: Stream, salt: str
) -> Publication:
    """Return the facts about a table that was drawn by a plan and written."""
    return Publication(
        n_rows=n_rows,
        n_read=n_read,
        schema=plan.schema,
        promises=plan.promises,
        receipt=receipt,
        summary=plan.columns,
        commitment=stream.commitment,
        rows_salt=salt or None,
    )


def check_publishable(schema: Schema, where: str) -> None:
    """Raise if the schema hides the number of rows, which a published table shows."""
    if schema.neighbors != "replace-one" or schema.row_count != "public":
        raise SchemaError(
            f"schema of {where} must say neighbors: replace-one and row_count: public, said "
            f"{schema.neighbors} and {schema.row_count}. A released table shows its length; use queries "
            "where the length is secret."
        )
