"""Order of all checks of a public folder, for tables and models, and the replay by an auditor."""

from __future__ import annotations

import tempfile
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from discreet import audit
from discreet.arguments import checked_arguments
from discreet.errors import DiscreetWarning, ParameterError
from discreet.noise import Stream
from discreet.noise_law import InvariantLaw, MaskedLaw
from discreet.privacy import Receipt
from discreet.release.kinds import is_masked, is_masked_plan, is_synthetic
from discreet.report.folder.folder import (
    DATA,
    DEPENDENCES,
    MODEL_FILES,
    TABLE_FILES,
    TABLES,
    FolderFiles,
    find_folder,
    holds_model,
)
from discreet.report.statement.documents import Statement
from discreet.report.statement.model_documents import ModelStatement
from discreet.report.verify import _answers, _model
from discreet.report.verify._files import (
    check_container,
    check_derived,
    check_files,
    check_hashes,
    check_readable,
    check_signature,
    read_written_statement,
)
from discreet.report.verify._ledger import check_ledger
from discreet.report.verify._parts import PublishedParts
from discreet.report.verify._result import Checks, Verification
from discreet.report.verify.cells import check_classifier, check_data, first_difference
from discreet.report.verify.claims import (
    check_claims,
    check_risk,
    check_schema,
    differences,
    replan,
    table_charge_faults,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from discreet._types import AnyArray
    from discreet.audit import MemberComparison
    from discreet.learn import Learner
    from discreet.ledger import Ledger
    from discreet.privacy import Promise
    from discreet.release import ReleaseMethod, ReleasePlan
    from discreet.schema import Schema

T = TypeVar("T", Statement, ModelStatement)


@checked_arguments
def verify(
    path: str | os.PathLike[str],
    *,
    key: bytes | None = None,
    source: Any = None,
    public_key: bytes | None = None,
    ledger: Ledger | None = None,
    spark: Any = None,
    progress: Callable[[str], None] | None = None,
) -> Verification:
    """Check a public folder without trusting its author.

    Parameters
    ----------
    path : path
        Public folder of a release or a model, or the folder that holds it.
    key : bytes, optional
        Key of the release, for an auditor; needs `source`.
    source : frame, path or URL, optional
        True table, for a replay; needs `key`.
    public_key : bytes, optional
        Ed25519 public key of the curator in PEM, to check a signature.
    ledger : Ledger, optional
        Ledger that was charged, to check what the statement says about it; without it, that is not
        checkable.
    spark : SparkSession or callable, optional
        Session whose workers read the parts of a released table, for one that this machine is too small for,
        or a function that opens it, which is called if the folder is one of a table. The workers must see the
        folder under the same path. None: this process reads the parts one after the other. A replay, and the
        rows of a synthetic table, are made by this process in any case.
    progress : callable, optional
        Function that is called with the name of each check before it runs.

    Returns
    -------
    Verification
        Results of all checks. What a file cannot show by itself is "not checkable", which is no failure.

    Privacy
    -------
    Without key and source nothing private is read. Checked is that every number follows from what is
    declared, and that the data can come from the stated mechanism. Not checked is that the noise was really
    drawn that way, which only a replay shows.

    Reference
    ---------
    docs/howto/verify-a-release.md

    Examples
    --------
    >>> import tempfile
    >>> from discreet import ApproxDP, Column, Schema, publish_model
    >>> schema = Schema(columns=[Column("age", type="integer", lower=0, upper=99),
    ...                          Column("owner", values=("no", "yes"), closed=True)], target="owner")
    >>> rows = {"age": [20, 70] * 2000, "owner": ["no", "yes"] * 2000}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = publish_model(rows, schema=schema, ledger=False, out=f"{folder}/model",
    ...                          privacy=ApproxDP(1, 1e-6))
    ...     verify(done.public).ok
    True
    """
    if (key is None) != (source is None):
        raise ParameterError(
            "verify needs key and source together, to replay a release, or neither. Give both, or leave both "
            "out."
        )
    folder = find_folder(Path(path))
    checks = Checks(progress)
    if holds_model(folder):
        if key is not None:
            raise ParameterError(
                "key and source of verify are for a released table, and this folder holds a model: its noise "
                "cannot be drawn again. Leave them out."
            )
        if spark is not None:
            raise ParameterError(
                "spark of verify is for a released table, and this folder holds a model, which has no parts. "
                "Leave it out."
            )
        _ModelVerifier(folder, public_key, ledger, spark, checks).run()
    else:
        session = spark() if callable(spark) else spark
        _TableVerifier(folder, public_key, ledger, session, checks, key, source).run()
    return Verification(folder=str(folder), checks=tuple(checks.results))


@dataclass(slots=True)
class _Verifier(ABC, Generic[T]):
    """Verification of one folder: the arguments of the caller, and the results of earlier checks.

    Parameters
    ----------
    folder : Path
        Public folder that is checked.
    public_key : bytes or None
        Ed25519 public key of the curator in PEM; None if the signature is not checked.
    ledger : Ledger or None
        Ledger that was charged; None if it is not available.
    spark : SparkSession or None
        Session whose workers read the parts of a table; None for this process.
    checks : Checks
        Collection that takes the result of every check.
    """

    kind: ClassVar[type[Statement] | type[ModelStatement]]
    files: ClassVar[FolderFiles]

    folder: Path
    public_key: bytes | None
    ledger: Ledger | None
    spark: Any
    checks: Checks
    parts: PublishedParts = field(init=False)
    statement: T = field(init=False)
    schema: Schema = field(init=False)

    @abstractmethod
    def steps(self) -> Sequence[Callable[[], bool | None]]:
        """Return the checks of the content in order; one that returns False ends the verification."""

    @abstractmethod
    def read_statement(self) -> T | None:
        """Return the statement after checking its form; None if it cannot be read."""

    def run(self) -> None:
        """Run all checks: files, hashes, signature and statement first, then those of the content."""
        steps: list[Callable[[], bool | None]] = [self._check_files, self._check_hashes]
        steps += [self._check_signature, self._check_statement, *self.steps()]
        for step in steps:
            if step() is False:
                return

    def _check_files(self) -> bool:
        if not check_files(self.folder, self.checks, self.files):
            return False
        self.parts = PublishedParts(self.folder, self.spark)
        return True

    def _check_hashes(self) -> None:
        check_hashes(self.folder, self.checks, self.files, self.parts)

    def _check_signature(self) -> None:
        check_signature(self.folder, self.public_key, self.checks, self.kind)

    def _check_statement(self) -> bool:
        statement = self.read_statement()
        if statement is None:
            return False
        self.statement = statement
        return True


@dataclass(slots=True)
class _TableVerifier(_Verifier[Statement]):
    """Checks of a released table; with `key` and `source` it is released again."""

    kind = Statement
    files = TABLE_FILES

    key: bytes | None
    source: Any
    method: ReleaseMethod = field(init=False)
    plan: ReleasePlan = field(init=False)
    answers: _answers.AnswerRecord | None = field(init=False)

    def read_statement(self) -> Statement | None:
        return read_written_statement(self.folder, self.checks, Statement)

    def steps(self) -> Sequence[Callable[[], bool | None]]:
        """Return the checks of a table: statement and answers first, then cells and noise."""
        return (
            self._check_derived,
            self._check_schema,
            self._check_method,
            self._check_answers,
            self._check_claims,
            self._check_risk,
            self._check_ledger,
            self._check_data,
            self._check_noise,
            self._add_unchecked,
        )

    def _check_derived(self) -> None:
        check_derived(self.folder, self.statement, self.checks)

    def _check_schema(self) -> bool:
        statement = self.statement
        schema = check_schema(
            statement, self.checks, lambda declared: table_charge_faults(statement, declared)
        )
        if schema is None:
            return False
        self.schema = schema
        return True

    def _check_method(self) -> bool:
        planned = replan(self.statement, self.schema, self.checks)
        if planned is None:
            return False
        self.method, self.plan = planned
        return True

    def _check_answers(self) -> bool:
        """Check the answers of a method that asks questions; without them nothing else can be checked."""
        self.answers = None
        if is_synthetic(self.method) or any((self.folder / name).exists() for name in (TABLES, DEPENDENCES)):
            self.answers = _answers.check_answers(
                self.folder, self.statement, self.schema, self.method, self.checks
            )
        return self.answers is not None or not self.method.asks_questions

    def _check_claims(self) -> None:
        receipts = None if self.answers is None else self.answers.receipts
        check_claims(self.statement, self.schema, self.method, self.plan, self.checks, receipts)

    def _check_ledger(self) -> None:
        with self.checks.attempt("ledger"):
            receipts: Sequence[Receipt] = [Receipt.from_dict(self.statement.composition.receipt)]
            receipts = receipts if self.answers is None else self.answers.receipts
            check_ledger(self.statement.composition, receipts, self.ledger, self.checks)

    def _check_data(self) -> None:
        rows = check_data(self.parts, self.folder, self.statement, self.plan, self.checks)
        if rows is not None:
            check_container(self.parts, self.statement, self.plan, self.checks)
            check_readable(self.parts, self.folder, self.plan, self.checks)
            check_classifier(self.folder, self.plan, self.checks)
            self._check_attacks(rows)

    def _check_risk(self) -> None:
        with self.checks.attempt("risk"):
            check_risk(self.folder, self.statement, self.method, self.plan, self.checks)

    def _check_attacks(self, rows: dict[str, AnyArray]) -> None:
        """Check that the attacks that anyone can run, run again, give the stated results."""
        with self.checks.attempt("attacks"):
            results = [{**guess.to_dict(), "seconds": 0.0} for guess in audit.attack_file(self.plan, rows)]
            stated = any(one.get("on") == "made-up" for one in self.statement.attacks)
            repeated = None if self.answers is None else self.answers.repeated
            made_up: tuple[MemberComparison, ...] = ()
            if stated and repeated is not None:
                made_up = audit.attack_published(repeated, self.statement.what.rows_published)
            elif stated and is_masked(self.method) and is_masked_plan(self.plan):
                made_up = audit.attack_published(self.method, self.plan.n_rows)
            results += [one.to_dict() for one in made_up]
            changes = [at for at, *_ in differences(self.statement.attacks, results, "attacks")]
            wrong = [f"Run again, an attack on this file gives something else ({at})." for at in changes[:1]]
            done = f"{len(results)} attacks, run again, give what the statement says."
            self.checks.settle("attacks", wrong, done)

    def _check_noise(self) -> None:
        """Check the noise by a replay under the key; without one, say what that leaves open."""
        if self.answers is not None and is_synthetic(self.method):
            if self.key is None:
                _answers.add_unchecked_noise_of_answers(self.statement, self.checks)
            else:
                _answers.check_noise_again(
                    self.statement, self.method, self.answers, self.key, self.source, self.checks
                )
        elif self.key is not None:
            check_replay(self.folder, self.statement, self.method, self.key, self.source, self.checks)
        else:
            _add_unchecked_noise(self.statement, self.plan, self.checks)

    def _add_unchecked(self) -> None:
        """Add the facts that only the curator knows, and those that no folder can show."""
        self.checks.add(
            "tuning",
            "not checkable",
            f"The statement says {self.statement.tuning.on_private_rows!r}. Whether the noise was chosen by "
            "looking at private rows, the curator alone knows: that, and what is said about it in words, is "
            "not checkable.",
        )
        self.checks.add(
            "other releases",
            "not checkable",
            "A file cannot show what else was published about the same people: charges outside the ledger, "
            "and the limit of the ledger, are not checkable.",
        )


@dataclass(slots=True)
class _ModelVerifier(_Verifier[ModelStatement]):
    """Checks of a trained model, whose promise is computed again from its queries and charges."""

    kind = ModelStatement
    files = MODEL_FILES

    learner: Learner = field(init=False)
    promises: tuple[Promise, ...] | None = field(init=False)

    def read_statement(self) -> ModelStatement | None:
        return read_written_statement(self.folder, self.checks, ModelStatement)

    def steps(self) -> Sequence[Callable[[], bool | None]]:
        return (
            self._check_card,
            self._check_schema,
            self._check_model,
            self._check_promise,
            self._check_claims,
            self._check_quality,
            self._add_unchecked,
        )

    def _check_card(self) -> None:
        _model.check_model_card(self.folder, self.statement, self.checks)

    def _check_schema(self) -> bool:
        """Check the declared schema and keep it for later checks."""
        statement = self.statement
        schema = check_schema(
            statement,
            self.checks,
            lambda _: _model.model_charge_faults(statement),
            lambda declared: _model.model_schema_faults(statement, declared),
        )
        if schema is None:
            return False
        self.schema = schema
        return True

    def _check_model(self) -> bool:
        learner = _model.check_model_file(self.folder, self.statement, self.schema, self.checks)
        if learner is None:
            return False
        self.learner = learner
        return True

    def _check_promise(self) -> None:
        self.promises = _model.check_promise(self.statement, self.schema, self.learner, self.checks)

    def _check_claims(self) -> None:
        if self.promises is None:
            return
        _model.check_model_claims(self.statement, self.schema, self.learner, self.promises, self.checks)
        check_ledger(
            self.statement.composition, _model.fitted_receipts(self.learner), self.ledger, self.checks
        )

    def _check_quality(self) -> None:
        _model.check_quality(self.statement, self.schema, self.learner, self.checks)
        _model.check_model_page(self.folder, self.statement, self.learner, self.checks)

    def _add_unchecked(self) -> None:
        _model.add_unchecked_of_model(self.statement, self.checks)


def check_replay(
    folder: Path, statement: Statement, method: ReleaseMethod, key: bytes, source: Any, checks: Checks
) -> None:
    """Release the rows again under the key, and compare cell by cell.

    Privacy
    -------
    Batches with other rows than the published ones are a second release with its own noise, which was not
    charged. So the replayed file has no name, and ends with the process. Messages name rows and columns,
    never a cell.
    """
    with checks.attempt("key"):
        if Stream(key).commitment != statement.implementation.key_commitment:
            checks.add("key", "failed", "The key is not the one that the statement commits to.")
            return
        checks.add("key", "passed", "The key is the one that the statement commits to.")
    with checks.attempt("replay"), tempfile.TemporaryFile() as file:
        replayed = Path(f"/dev/fd/{file.fileno()}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DiscreetWarning)  # they are for the curator
            publication = method.publish(
                source,
                replayed,
                shuffle=statement.implementation.shuffled,
                stream=Stream.for_replay(key),
                rows_salt=statement.implementation.rows_salt,
            )
        wrong = []
        if publication.n_read != statement.what.rows_read:
            wrong.append(f"The source has {publication.n_read} rows, not {statement.what.rows_read}.")
        tolerance = method.replay_tolerance
        wrong += first_difference(replayed, folder / DATA, publication.schema, tolerance)
        close = f", numbers to {tolerance:g} of the largest of their column" if tolerance else ""
        checks.settle("replay", wrong, f"The same key and rows give the same file, cell for cell{close}.")


def _add_unchecked_noise(statement: Statement, plan: ReleasePlan, checks: Checks) -> None:
    """Add the facts about its noise that a published table cannot show without the key."""
    checks.add(
        "noise",
        "not checkable",
        "That the noise was drawn in full, and by the stated sampler, is not checkable without the key: "
        "noise that is too small on a column with a wide range, or drawn in floating point and rounded to "
        "the lattice, gives a file like this one. The noise could also have been chosen to encode a "
        "message.",
    )
    checks.add(
        "order",
        "not checkable",
        "That rows are in random order is not checkable without the key: their order could encode a "
        "message too.",
    )
    if any(isinstance(summary.law, InvariantLaw | MaskedLaw) for summary in plan.columns):
        checks.add(
            "digits",
            "not checkable",
            "The numbers of this method are on no lattice: what their last digits encode is not checkable.",
        )
    checks.add(
        "people's words",
        "not checkable",
        "Names, purposes and other words of the curator (what, tuning.why), what was declared and chosen "
        "(schema, parameters), and the commitment to the key can say anything.",
    )
    seeded = statement.implementation.seeded
    checks.add(
        "key",
        "not checkable",
        "SEEDED: anyone who knows the seed can remove the noise. This file protects no one."
        if seeded
        else "That the key was discarded, or is kept secret, is not checkable.",
    )
