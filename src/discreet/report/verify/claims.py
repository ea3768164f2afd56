"""The outside of a folder: which files are there, and whether they are those that were hashed."""

from __future__ import annotations

import math
import re
import stat
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from discreet.errors import DiscreetWarning, ParameterError, SourceError
from discreet.law import law_from_dict
from discreet.privacy import Receipt, promise_from_dict
from discreet.privacy.receipt import canonical, product_version
from discreet.release import method_from_dict
from discreet.report.folder.folder import (
    CSV,
    DATA,
    LARGEST_TEXT,
    OPTIONAL,
    REQUIRED,
    SIGNATURE,
    STATEMENT,
    SUMS,
    derived,
    digest_of,
    read_bytes,
    read_sums,
    signed_by,
    sums_text,
)
from discreet.report.statement.build import promised_blocks
from discreet.report.statement.composition import describe_total, includes_answers
from discreet.report.statement.documents import PRODUCT, ModelStatement, Statement
from discreet.report.statement.table import TableSubject, release_name, table_implementation
from discreet.report.verify._ledger import position_faults, receipt_faults, time_faults
from discreet.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from discreet.law import Law
    from discreet.release import Plan, ReleaseMethod
    from discreet.report.verify._result import Checks

T = TypeVar("T", Statement, ModelStatement)
_MOST_ENTRIES = 100


def find_folder(path: Path) -> Path:
    """Return the folder that was meant: `path`, or ``public`` in it."""
    if not path.is_dir():
        raise SourceError(
            f"path of verify must be a folder, and {str(path)!r} is not. Unpack the release first."
        )
    inside = path / "public"
    return inside if inside.is_dir() and not (path / STATEMENT).exists() else path


@dataclass(frozen=True, slots=True)
class Contents:
    """Which files a folder holds.

    Attributes
    ----------
    required, optional : tuple of str
        What must be there, and what may be.
    content : str
        The file that all is about, which may be large.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...]
    content: str

    @property
    def known(self) -> tuple[str, ...]:
        """All names."""
        return self.required + self.optional


RELEASE = Contents(REQUIRED, OPTIONAL, DATA)


def check_files(folder: Path, checks: Checks, contents: Contents = RELEASE) -> bool:
    """Check that the files are there, plain, and the only ones; say whether it makes sense to go on."""
    wrong, present, plain = [], set(), True
    for count, entry in enumerate(folder.iterdir()):
        if count == _MOST_ENTRIES:
            wrong.append("The folder holds far more than a release.")
            plain = False
            break
        present.add(entry.name)
        if entry.name not in contents.known:
            wrong.append(f"{entry.name[:100]!r} is no file of a release.")
        elif not stat.S_ISREG(entry.lstat().st_mode):
            wrong.append(f"{entry.name} is a link or something else than a plain file.")
            plain = False
        elif entry.name not in (contents.content, CSV) and entry.lstat().st_size > LARGEST_TEXT:
            wrong.append(f"{entry.name} is larger than any such file of a release.")
            plain = False
    missing = [name for name in contents.required if name not in present]
    wrong += [f"{name} is missing." for name in missing]
    checks.settle("files", wrong, f"{len(present)} files are there, and nothing else.")
    return plain and not {contents.content, STATEMENT} & set(missing)


def check_hashes(folder: Path, checks: Checks, contents: Contents = RELEASE) -> None:
    """Check that every file has the hash that ``SHA256SUMS`` says."""
    with checks.guarded("hashes"):
        content = read_bytes(folder / SUMS)
        listed = read_sums(content)
        there = {name for name in contents.known if (folder / name).exists()} - {SUMS, SIGNATURE}
        wrong = [f"{name} is not listed in {SUMS}." for name in sorted(there - set(listed))]
        for name, digest in sorted(listed.items()):
            if name not in there:
                wrong.append(f"{name} is listed in {SUMS} and not there.")
            elif digest_of(folder / name) != digest:
                wrong.append(f"{name} was changed: it is not the file that was hashed.")
        if sums_text(listed).encode("ascii") != content:
            wrong.append(f"{SUMS} is not written the way lists of hashes are: it was edited.")
        checks.settle("hashes", wrong, f"{len(listed)} files are the ones that were hashed.")


def check_signature(folder: Path, public_key: bytes | None, checks: Checks, kind: type[T]) -> None:
    """Check who signed the hashes, and say what is signed with them: charge, ledger and time."""
    with checks.guarded("signature"):
        signed = (folder / SIGNATURE).exists()
        if public_key is None:
            detail = (
                "The folder is signed; give the curator's public key to check by whom."
                if signed
                else "The folder is not signed: whoever could change a file could change its hash as well."
            )
            checks.add("signature", "not checkable", detail)
        elif not signed:
            checks.add("signature", "failed", "A public key was given, and the folder is not signed.")
        elif signed_by(folder, public_key):
            bound = signed_facts(kind.from_json(read_bytes(folder / STATEMENT)))
            checks.add(
                "signature", "passed", f"The hashes were signed by the owner of the key, and so {bound}."
            )
        else:
            checks.add(
                "signature", "failed", "The signature is not by the owner of the key, or not of these hashes."
            )


def signed_facts(statement: Statement | ModelStatement) -> str:
    """Say which facts about time and ledger whoever signs a folder signs with it."""
    charges = (
        [statement.composition.receipt]
        if isinstance(statement, Statement)
        else [part.receipt for part in statement.passes if part.receipt is not None]
    )
    position = statement.composition.position
    head = (
        "that no ledger counted it"
        if position is None
        else f"the ledger's row {position.head_row} with the hash {position.head[:12]}..."
    )
    listed = ", ".join(str(receipt.get("id")) for receipt in charges)
    return f"were the time {statement.what.created}, the receipt {listed}, and {head}"


def read_claims(folder: Path, checks: Checks, kind: type[T]) -> T | None:
    """Read the statement; None if it is none."""
    with checks.guarded("statement"):
        content = read_bytes(folder / STATEMENT)
        statement = kind.from_json(content)
        wrong = []
        if statement.to_json().encode("utf-8") != content:
            wrong.append(f"{STATEMENT} is not written the way statements are: it was edited.")
        checks.settle("statement", wrong, "It is complete, and valid under its JSON Schema.")
        written, here = statement.what.product_version, product_version()
        if written != here:
            checks.add(
                "version",
                "not checkable",
                f"The statement was written by version {written[:20]}, and this is {here}. Where nothing but "
                "the wording differs below, verify it with that version.",
            )
        return statement
    return None


def check_derived(folder: Path, statement: Statement, checks: Checks) -> None:
    """Check that the files that follow from the statement say what it says."""
    with checks.guarded("derived files"):
        content = derived(statement)
        wrong = [
            f"{name} does not say what {STATEMENT} says."
            for name, text in sorted(content.items())
            if read_bytes(folder / name) != text.encode("utf-8")
        ]
        listed = ", ".join(sorted(content))
        checks.settle("derived files", wrong, f"{listed} say what {STATEMENT} says.")


RELATIVE = 1e-9
"""How far a number may be from the one that another machine computes."""
_SMALLER_IS_BETTER = {"epsilon", "delta", "mu", "rho", "total_variation", "fisher_information", "keep"}
_COMMITMENT = re.compile("[0-9a-f]{64}")
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!-]{0,39}|unknown")
_WORDING = {"sentence", "sentences", "law_in_words", "theorems", "deployment"}


def check_schema(statement: Statement, checks: Checks) -> Schema | None:
    """Check what was declared against its digest and the receipt; return it, or None if it is no schema."""
    with checks.guarded("schema"):
        schema = Schema.from_dict(statement.declared)
        wrong = []
        if schema.digest != statement.digest:
            wrong.append(
                "The declared schema does not have the digest that the statement says: it was changed."
            )
        if canonical(schema.to_dict()) != canonical(statement.declared):
            wrong.append("The declared schema is not written the way schemas are: it was edited.")
        if statement.composition.receipt.get("schema") != statement.digest:
            wrong.append("The receipt is for another schema than the one declared.")
        if statement.what.dataset != schema.dataset:
            wrong.append("The statement names another data set than the schema.")
        checks.settle("schema", wrong, "It can be read, and is the one that was charged for.")
        return schema
    return None


def replan(statement: Statement, schema: Schema, checks: Checks) -> tuple[ReleaseMethod, Plan] | None:
    """Make the method and its plan again from the declared parameters; None if they cannot be made."""
    with checks.guarded("method"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DiscreetWarning)  # for the curator, who has seen them
        method = method_from_dict(statement.what.method.model_dump(), schema=schema)
        wrong = []
        if canonical(method.parameters()) != canonical(statement.what.method.parameters):
            wrong.append("The parameters are not written the way parameters are: they were edited.")
        plan = method.plan(schema, statement.what.rows_read)
        laws = _stated_laws(statement)
        if laws and laws != {summary.column: summary.law for summary in plan.columns}:
            # Sizes that were calibrated on another processor may differ in a last digit; the file has theirs.
            method = method.as_stated(laws)
            plan = method.plan(schema, statement.what.rows_read)
        misfit = plan.length_misfit(statement.what.rows_read, statement.what.rows_published)
        wrong += [] if misfit is None else [misfit]
        checks.settle("method", wrong, f"The {method.name} release can be planned again from its parameters.")
        return method, plan
    return None


def _stated_laws(statement: Statement) -> dict[str, Law]:
    """Return the laws of the columns; none if one cannot be read, which the numbers will tell."""
    try:
        return {c.column: law_from_dict(c.law) for c in statement.numbers.columns}
    except (ParameterError, TypeError, KeyError, AttributeError):
        return {}


def check_claims(
    statement: Statement, schema: Schema, method: ReleaseMethod, plan: Plan, checks: Checks
) -> None:
    """Check every number and every sentence that follows from the schema and the parameters."""
    claimed = statement.model_dump(mode="json")
    with checks.guarded("numbers"):
        blocks = promised_blocks(TableSubject(plan, method))
        true = {name: plain(block) for name, block in blocks.items()}
        numbers, words = split_words(differences(claimed["numbers"], true["numbers"], "numbers"))
        unit = list(differences(claimed["unit"], true["unit"], "unit"))
        checks.settle(
            "numbers",
            [told(*d) for d in (*numbers, *unit)],
            "Every promise, law, epsilon and floor is what the declared parameters give.",
        )
        bounds = list(differences(claimed["bounds"], true["bounds"], "bounds"))
        checks.settle("bounds", [told(*d) for d in bounds], "They are the ones of the schema.")
        for name in ("definition", "not_protected", "assumptions"):
            words += differences(claimed[name], true[name], name)
        checks.settle("wording", [told(*d) for d in words], "Every sentence follows from the numbers.")
        _say_last_digits({name: claimed[name] for name in true}, true, checks)
    with checks.guarded("implementation"):
        mine, said = _implementation(statement, method, plan), claimed["implementation"]
        wrong = list(version_faults(said["versions"], mine["versions"], statement.what.product_version))
        mine["versions"] = said["versions"]  # those of the curator's machine
        if schema.id_column is not None and _COMMITMENT.fullmatch(said["rows_salt"] or ""):
            mine["rows_salt"] = said["rows_salt"]  # follows from a secret; a replay shows that it was used
        wrong += differences(said, mine, "implementation")
        release = release_name(schema, statement.implementation.key_commitment)
        if statement.what.release != release:
            wrong.append(("what.release", statement.what.release, release))
        if statement.what.product != PRODUCT:
            wrong.append(("what.product", statement.what.product, PRODUCT))
        if not _COMMITMENT.fullmatch(statement.implementation.key_commitment):
            wrong.append(("implementation.key_commitment", said["key_commitment"], "a SHA-256"))
        checks.settle(
            "implementation", [told(*d) for d in wrong], "Sampler and lattice are those of the method."
        )
    with checks.guarded("composition"):
        checks.settle(
            "composition",
            _composition(statement, method.charged_as(schema)),
            "The charges add up to the stated total, and none before the receipt's is missing.",
        )


def _implementation(statement: Statement, method: ReleaseMethod, plan: Plan) -> dict[str, Any]:
    stated = statement.implementation
    block = table_implementation(
        plan,
        method,
        seeded=bool(statement.composition.receipt.get("seeded")),
        commitment=stated.key_commitment,
        shuffled=stated.shuffled,
    )
    return block.model_dump(mode="json")


def version_faults(
    said: dict[str, str], mine: dict[str, str], product: str
) -> Iterator[tuple[str, Any, Any]]:
    """Yield what is no version, or that of something else than decides about noise."""
    if set(said) != set(mine):
        yield "implementation.versions", sorted(said), sorted(mine)
    for name, version in sorted(said.items()):
        if not _VERSION.fullmatch(version):
            yield f"implementation.versions.{name}", version, "a version"
    if said.get(PRODUCT) != product:
        yield f"implementation.versions.{PRODUCT}", said.get(PRODUCT), product


def _say_last_digits(claimed: Any, true: Any, checks: Checks) -> None:
    """Say how many numbers are not the very ones computed here: there is room in their last digits."""
    inexact = sum(1 for _ in differences(claimed, true, "", exactly=True))
    if inexact:
        checks.add(
            "last digits",
            "not checkable",
            f"{inexact} numbers of the statement differ from those computed here by less than a part in "
            "10^9. Another processor may compute them so; 23 bits of something else could stand in each.",
        )


def _composition(statement: Statement, what: str) -> list[str]:
    stated = statement.composition
    receipt = Receipt.from_dict(stated.receipt)
    wrong = [
        *receipt_faults(receipt, plain=True),
        *position_faults(stated, [receipt], plain=True),
        *time_faults(statement.what.created, [receipt]),
    ]
    fixed = {"what": what, "owner": None, "question": None, "version": statement.what.product_version}
    wrong += [
        told(f"receipt.{name}", getattr(receipt, name), true)
        for name, true in fixed.items()
        if getattr(receipt, name) != true
    ]
    wrong += [
        told(*d)
        for d in differences(
            [promise.to_dict() for promise in receipt.promises],
            statement.numbers.promises,
            "receipt.promises",
        )
    ]
    if (stated.counted, stated.ledger) != (receipt.recorded, receipt.ledger):
        wrong.append("The receipt is of another ledger than the statement says.")
    past = [[promise_from_dict(promise) for promise in charge.promises] for charge in stated.earlier]
    steered = includes_answers([charge.what for charge in stated.earlier])
    total, following = describe_total(
        past,
        receipt.promises,
        counted=stated.counted,
        limit=stated.limit,
        steered=steered,
        others=len(stated.other_ledgers),
    )
    for name, said, true in (("total", stated.total, total), ("next", stated.next, following)):
        if said != true:
            wrong.append(told(f"composition.{name}", said, true))
    return wrong


def differences(claimed: Any, true: Any, at: str, *, exactly: bool = False) -> Iterator[tuple[str, Any, Any]]:
    """Yield where two JSON values differ: path, what is claimed, what is true.

    Numbers may be off by a part in 10^9 unless they are compared `exactly`; the mean of noise by that part of
    its standard deviation, because it may be the rounding that is left of 0.
    """
    if isinstance(claimed, dict) and isinstance(true, dict):
        for key in sorted(set(claimed) | set(true)):
            one, other = claimed.get(key, _ABSENT), true.get(key, _ABSENT)
            if key == "mean" and not exactly and _same_mean(one, other, true.get("variance")):
                continue
            yield from differences(one, other, f"{at}.{key}", exactly=exactly)
    elif isinstance(claimed, list) and isinstance(true, list):
        if len(claimed) != len(true):
            yield f"{at} (its length)", len(claimed), len(true)
            return
        for i, (one, other) in enumerate(zip(claimed, true, strict=True)):
            named = one.get("column", i) if isinstance(one, dict) else i
            yield from differences(one, other, f"{at}[{named}]", exactly=exactly)
    elif not (repr(claimed) == repr(true) if exactly else _same(claimed, true)):
        yield at, claimed, true


def _same(claimed: Any, true: Any) -> bool:
    if isinstance(claimed, float) and isinstance(true, float):
        close = math.isclose(claimed, true, rel_tol=RELATIVE, abs_tol=0.0)
        return close and math.copysign(1.0, claimed) == math.copysign(1.0, true)
    return type(claimed) is type(true) and bool(claimed == true)


def _same_mean(claimed: Any, true: Any, variance: Any) -> bool:
    if not all(isinstance(value, float) for value in (claimed, true, variance)) or not variance >= 0:
        return False
    return bool(abs(claimed - true) <= RELATIVE * math.sqrt(variance))


def split_words(
    found: Iterator[tuple[str, Any, Any]],
) -> tuple[list[tuple[str, Any, Any]], list[tuple[str, Any, Any]]]:
    """Tell numbers from the sentences around them."""
    numbers: list[tuple[str, Any, Any]] = []
    words: list[tuple[str, Any, Any]] = []
    for difference in found:
        parts = difference[0].replace("[", ".").split(".")
        (words if _WORDING & set(parts) else numbers).append(difference)
    return numbers, words


def told(at: str, claimed: Any, true: Any) -> str:
    """Say what a statement claims, and what it must say instead."""
    said, should = (_shown(value) for value in (claimed, true))
    better = ""
    if isinstance(claimed, int | float) and isinstance(true, int | float):
        smaller = at.rpartition(".")[2] in _SMALLER_IS_BETTER
        if (claimed < true) == smaller:
            better = ", which promises more than is kept"
    return f"{at} says {said} and must say {should}{better}."


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = f"{value:.12g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def plain(block: Any) -> Any:
    """Return a block of a statement as plain JSON values."""
    if isinstance(block, list):
        return [plain(part) for part in block]
    return block.model_dump(mode="json") if hasattr(block, "model_dump") else block


_ABSENT = object()
