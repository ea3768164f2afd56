"""Checks of a synthetic release: noisy answers, what was decided by them, the rows, and their replay."""

from __future__ import annotations

import contextlib
import datetime
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.noise import Stream
from discreet.privacy import Receipt, Spending, promise_from_dict
from discreet.privacy.receipt import canonical
from discreet.query.aggregates import aggregate_from_dict
from discreet.query.calibration import QueryNoise
from discreet.query.curation import Curation
from discreet.release import method_from_dict
from discreet.release.kinds import is_synthetic
from discreet.release.publication import published_fields
from discreet.release.synthetic.repetition import repeat_release
from discreet.report.folder.folder import DATA, DEPENDENCES, TABLES, read_bytes
from discreet.report.folder.model_files import write_compact_json
from discreet.report.statement.documents import read_json
from discreet.report.verify.cells import first_difference
from discreet.report.verify.claims import describe_difference, differences
from discreet.tables import write_table
from discreet.tables.files import ParquetSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import Floats
    from discreet.release import ReleaseMethod
    from discreet.release.synthetic import SyntheticRelease
    from discreet.report.statement.documents import Statement
    from discreet.report.verify._result import Checks
    from discreet.schema import Schema

_DIGEST = re.compile("[0-9a-f]{64}")
_FILES = (TABLES, DEPENDENCES)


@dataclass(slots=True)
class AnswerRecord:
    """Noisy answers of a release as its folder holds them.

    Attributes
    ----------
    document : mapping
        Content of ``tables.json``, as it was read.
    receipts : tuple of Receipt
        Receipts of the questions, in their order.
    repeated : SyntheticRelease or None
        Release that was repeated from the answers; None until it was, or if that is impossible.
    """

    document: Mapping[str, Any]
    receipts: tuple[Receipt, ...]
    repeated: SyntheticRelease | None = None


def check_answers(
    folder: Path, statement: Statement, schema: Schema, method: ReleaseMethod, checks: Checks
) -> AnswerRecord | None:
    """Check the noisy answers of a synthetic release and make its rows again; refuse such files elsewhere.

    Every question, share, standard deviation and row must follow from what is declared and from the answers
    before it. No key is needed.

    Parameters
    ----------
    folder : Path
        Public folder that is checked.
    statement : Statement
        Statement of the release.
    schema : Schema
        Declared schema of the rows.
    method : ReleaseMethod
        Method with the stated parameters; gets the seed of the rows.
    checks : Checks
        Collection that takes the results.

    Returns
    -------
    AnswerRecord or None
        Answers with their receipts; None for other methods, or if they cannot be read.
    """
    there = [name for name in _FILES if (folder / name).exists()]
    if not is_synthetic(method):
        if there:
            checks.add("answers", "failed", f"{there[0]} is no file of a release by this method.")
        return None
    if missing := [name for name in _FILES if name not in there]:
        checks.add("answers", "failed", f"{missing[0]} is missing: a synthetic table is published with it.")
        return None
    record = None
    with checks.attempt("answers"):
        content = read_bytes(folder / TABLES)
        document = read_json(content, TABLES)
        if write_compact_json(document).encode("utf-8") != content:
            checks.add("answers", "failed", f"{TABLES} is not written the way answers are: it was edited.")
            return None
        questions = document["questions"]
        record = AnswerRecord(document, tuple(Receipt.from_dict(one["receipt"]) for one in questions))
        wrong = [*_head_faults(document, statement, schema), *_noise_faults(record, statement, schema)]
        checks.settle(
            "answers",
            wrong,
            f"The shares of {len(questions)} questions come to the promise; every standard deviation follows "
            "from share, precision and sensitivity, and is what its receipt was charged for.",
        )
    if record is not None:
        _check_rows(folder, schema, method, record, checks)
    return record


def _head_faults(document: Mapping[str, Any], statement: Statement, schema: Schema) -> list[str]:
    """Return the differences of schema, number of rows and promise from those of the statement."""
    stated = {
        "schema": schema.to_dict(),
        "neighbors": schema.neighbors,
        "rows": statement.what.rows_read,
        "promise": statement.numbers.promises[0] if len(statement.numbers.promises) == 1 else None,
    }
    found = {name: document[name] for name in stated}
    return [describe_difference(*d) for d in differences(found, stated, TABLES)]


def _noise_faults(record: AnswerRecord, statement: Statement, schema: Schema) -> list[str]:
    """Return the faults of noise, charges and shares of the questions."""
    curation, wrong = Curation.from_schema(schema), []
    for one, receipt in zip(record.document["questions"], record.receipts, strict=True):
        where = f"{TABLES}[{str(one['name'])[:40]}]"
        question = aggregate_from_dict(one["question"])
        bound = question.bind(curation, schema.neighbors)
        noise = QueryNoise.calibrate(bound, schema, privacy=promise_from_dict(one["promise"]))
        true: dict[str, Any] = {
            "sd": np.ravel(bound.arrange(noise.sd(bound), 0.0)).tolist(),
            "law": noise.law,
            "charged": [] if noise.promise is None else [noise.promise.to_dict()],
            "what": question.kind,
            "schema": schema.digest,
            "seeded": statement.implementation.seeded,
            # A service may be of another version than the program that asks it.
            "version": receipt.version if receipt.owner else statement.what.product_version,
        }
        found = {
            "sd": one["sd"],
            "law": one["law"],
            "charged": [promise.to_dict() for promise in receipt.promises],
            **{name: getattr(receipt, name) for name in ("what", "schema", "seeded", "version")},
        }
        wrong += [describe_difference(*d) for d in differences(found, true, where)]
        if not _is_plain(receipt):
            wrong.append(f"{where} has a receipt whose time or question is none.")
        values = np.array(one["values"], np.float64)
        if len(values) != len(true["sd"]) or not _is_on_lattice(
            values, noise, bound, record.document["rows"]
        ):
            wrong.append(f"{where} has counts that its noise cannot have led to (off its lattice).")
    spent = [promise for receipt in record.receipts for promise in receipt.promises]
    whole = Spending.from_promises([promise_from_dict(record.document["promise"])])
    paid = sum((Spending.from_promises([promise]) for promise in spent), Spending())
    if paid.rho > whole.rho * (1 + 1e-9) or paid.epsilon_at(1e-6) > whole.epsilon_at(1e-6) * (1 + 1e-9):
        wrong.append("The charges of the questions come to more than the promise.")
    last = record.receipts[-1].to_dict() if record.receipts else None
    if canonical(last) != canonical(statement.composition.receipt):
        wrong.append(f"The receipt of the last question in {TABLES} is not the one in the statement.")
    return wrong


def _is_plain(receipt: Receipt) -> bool:
    """Return whether time and question of a receipt are what they are called."""
    asked = receipt.question is None if not receipt.recorded else _is_digest(receipt.question)
    try:
        return asked and datetime.datetime.fromisoformat(receipt.when).utcoffset() == datetime.timedelta()
    except (TypeError, ValueError):
        return False


def _is_digest(text: Any) -> bool:
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def _is_on_lattice(values: Floats, noise: QueryNoise, bound: Any, n_rows: int | None) -> bool:
    """Return whether values are whole numbers of steps of the lattices that their noise is drawn on."""
    if noise.promise is None:
        return True
    entries = (values - (bound.shift * n_rows if n_rows is not None else 0.0)) / bound.unit
    bits = np.array([bits for _, bits in noise.groups])[noise.group]
    steps = np.ldexp(entries, bits)
    return bool((steps == np.rint(steps)).all())


def _check_rows(
    folder: Path, schema: Schema, method: SyntheticRelease, record: AnswerRecord, checks: Checks
) -> None:
    """Ask the same questions of the recorded answers, make the rows again, and compare both."""
    with checks.attempt("decisions"), contextlib.closing(ParquetSource(folder / DATA)) as source:
        # As many rows as there are, whatever a hostile folder says: only these are compared.
        there = max(source.count(), 1)
        stated = method.n_records or record.document["rows"]
        given = method.parameters() | ({} if stated == there else {"n_records": there})
        sized = method_from_dict({"name": method.name, "parameters": given}, schema=schema)
        assert is_synthetic(sized)
        again, table = repeat_release(sized, record.document, folder / DATA)
        record.repeated, method.sampling_seed_ = again, again.sampling_seed_
        wrong = [
            f"{name} is not what the answers in {TABLES} lead to."
            for name, content in ((TABLES, again.tables_), (DEPENDENCES, again.model_))
            if read_bytes(folder / name) != write_compact_json(content).encode("utf-8")
        ]
        checks.settle(
            "decisions",
            wrong,
            "Cells, pairs, tables and precisions of every question follow from the answers before it.",
        )
        with checks.attempt("rows"), tempfile.TemporaryDirectory(prefix="discreet-") as room:
            copy = Path(room) / DATA
            write_table(copy, published_fields(table.schema, typed=True), table.batches())
            wanted = again.n_rows_ if method.n_records is None else method.n_records
            short = [] if wanted == there else [f"{wanted} rows were to be made, and {there} are there."]
            checks.settle(
                "rows",
                short or first_difference(copy, folder / DATA, table.schema, typed=True),
                f"Made again from {TABLES} and the seed {method.sampling_seed_[:12]}..., which follows from "
                "the last receipt, the rows are the published ones, cell for cell.",
            )


def check_noise_again(
    statement: Statement,
    method: SyntheticRelease,
    record: AnswerRecord,
    key: bytes,
    source: Any,
    checks: Checks,
) -> None:
    """Ask every recorded question of the true rows again, with noise under the key, and compare answers.

    Privacy
    -------
    Other rows than those of the release get other noise, and what is compared is told by question alone.
    """
    with checks.attempt("key"):
        if not statement.implementation.key_commitment:
            checks.add("key", "failed", "The noise is of a database or service that answered, not of a key.")
            return
        if Stream(key).commitment != statement.implementation.key_commitment:
            checks.add("key", "failed", "The key is not the one that the statement commits to.")
            return
        checks.add("key", "passed", "The key is the one that the statement commits to.")
    with checks.attempt("replay"):
        wrong, earlier = list[str](), list[str]()
        salt = statement.implementation.rows_salt or ""
        with method.open_rows(source, stream=Stream.for_replay(key), rows_salt=salt) as sums:
            if sums.n_rows != statement.what.rows_read:
                wrong.append(f"The source has {sums.n_rows} rows, not {statement.what.rows_read}.")
            for one in record.document["questions"]:
                question = aggregate_from_dict(one["question"])
                answer = sums.ask(question, privacy=promise_from_dict(one["promise"]))
                if np.ravel(answer.value).tolist() == one["values"]:
                    continue
                (earlier if one["earlier"] else wrong).append(
                    f"The answer to the question {str(one['name'])[:40]!r} is not the exact one with noise "
                    "of this key."
                )
        n_questions = len(record.receipts)
        if earlier and not wrong:
            checks.add(
                "replay",
                "not checkable",
                f"{len(earlier)} of {n_questions} answers were paid for by an earlier run of the same "
                "release, under another key, which alone can show their noise. The others are exact counts "
                "with noise of this key.",
            )
            return
        checks.settle(
            "replay",
            [*wrong, *earlier],
            f"Each of {n_questions} answers, less the noise that the key gives, is the exact count of the "
            "source.",
        )


def add_unchecked_noise_of_answers(statement: Statement, checks: Checks) -> None:
    """Add what the folder of a synthetic release cannot show without the key."""
    seeded = statement.implementation.seeded
    for name, detail in (
        (
            "noise",
            "That noise was drawn at all, and in full, only the key and the source show (--key --source): "
            f"{TABLES} with exact counts, or with noise that was chosen, would look like this one.",
        ),
        (
            "people's words",
            "Names, purposes and other words of the curator (what, tuning.why), what was declared and chosen "
            "(schema, parameters), and the commitment to the key can say anything.",
        ),
        (
            "key",
            "SEEDED: anyone who knows the seed can remove the noise. This file protects no one."
            if seeded
            else "That the key was discarded, or is kept secret, is not checkable.",
        ),
    ):
        checks.add(name, "not checkable", detail)
