"""Checks of a statement: every claim computed again from what was declared.

The functions here serve tables and models alike; :mod:`discreet.report.verify._run` has the order of all
checks. The figures of attacks on made-up people follow from public facts too, and are measured again.
"""

from __future__ import annotations

import math
import re
import warnings
from typing import TYPE_CHECKING, Any

from discreet.audit import PublicPrior, Risk, measure_risk
from discreet.errors import DiscreetWarning, ParameterError
from discreet.noise_law import law_from_dict
from discreet.privacy import Receipt, promise_from_dict
from discreet.privacy.receipt import canonical
from discreet.release import method_from_dict
from discreet.release.kinds import is_invariant_plan
from discreet.report.folder.folder import DATA, PRIOR, read_bytes
from discreet.report.statement.build import describe_total, includes_answers, promised_blocks
from discreet.report.statement.documents import PRODUCT, Statement, read_json
from discreet.report.statement.table import TableSubject, release_name, table_implementation
from discreet.report.verify._ledger import (
    is_charged_elsewhere,
    position_faults,
    receipt_faults,
    time_faults,
)
from discreet.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from discreet.noise_law import Law
    from discreet.privacy import Promise
    from discreet.release import ReleaseMethod, ReleasePlan
    from discreet.report.statement.model_documents import ModelStatement
    from discreet.report.verify._result import Checks

RELATIVE_TOLERANCE = 1e-9
"""Largest relative difference between numbers that two machines compute."""
_SMALLER_IS_BETTER = {"epsilon", "delta", "mu", "rho", "total_variation", "fisher_information", "keep"}
_COMMITMENT = re.compile("[0-9a-f]{64}")
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!-]{0,39}|unknown")
_WORDING = {"sentence", "sentences", "law_in_words", "theorems", "deployment"}
_ABSENT = object()
_MOST_PEOPLE = 1_000
_RISK_TOLERANCE = 1e-5
"""Largest difference of two shares that are stated with six decimals and computed on two machines."""
_TRAINED_TOLERANCE = 0.1
"""The same where an attack trains a model: scores nearly equal are told apart by its last digits."""


def check_schema(
    statement: Statement | ModelStatement,
    checks: Checks,
    charge_faults: Callable[[Schema], list[str]],
    other_faults: Callable[[Schema], list[str]] | None = None,
) -> Schema | None:
    """Check what was declared against its digest and the charges.

    Parameters
    ----------
    statement : Statement or ModelStatement
        Statement whose block ``declared`` is read.
    checks : Checks
        Collection that takes the result of the check.
    charge_faults : callable
        Function of the schema that returns the faults of the charges, one sentence each.
    other_faults : callable, optional
        Function of the schema that returns further faults of the statement; None if there are none to find.

    Returns
    -------
    Schema or None
        The declared schema; None if the block is no schema.
    """
    with checks.attempt("schema"):
        schema = Schema.from_dict(statement.declared)
        wrong = []
        if schema.digest != statement.digest:
            wrong.append(
                "The declared schema does not have the digest that the statement says: it was changed."
            )
        wrong += charge_faults(schema)
        if statement.what.dataset != schema.dataset:
            wrong.append("The statement names another data set than the schema.")
        wrong += other_faults(schema) if other_faults is not None else []
        checks.settle("schema", wrong, "It can be read, and is the one that was charged for.")
        return schema
    return None


def table_charge_faults(statement: Statement, schema: Schema) -> list[str]:
    """Return the faults of the text of the schema of a table, and of the schema in its receipt."""
    wrong = []
    if canonical(schema.to_dict()) != canonical(statement.declared):
        wrong.append("The declared schema is not written the way schemas are: it was edited.")
    if statement.composition.receipt.get("schema") != statement.digest:
        wrong.append("The receipt is for another schema than the one declared.")
    return wrong


def replan(statement: Statement, schema: Schema, checks: Checks) -> tuple[ReleaseMethod, ReleasePlan] | None:
    """Return method and plan, made again from the declared parameters; None if they cannot be made."""
    with checks.attempt("method"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DiscreetWarning)  # they are for the curator
        method = method_from_dict(statement.what.method.model_dump(), schema=schema)
        wrong = []
        if canonical(method.parameters()) != canonical(statement.what.method.parameters):
            wrong.append("The parameters are not written the way parameters are: they were edited.")
        n_rows: Any = statement.what.rows_read
        plan = method.plan(schema, n_rows)
        laws = _stated_laws(statement)
        if laws and laws != {summary.column: summary.law for summary in plan.columns}:
            # Sizes calibrated on another processor may differ in the last digit; the file was drawn with
            # those.
            method = method.with_stated_laws(laws)
            plan = method.plan(schema, n_rows)
        misfit = plan.length_misfit(n_rows, statement.what.rows_published)
        wrong += [] if misfit is None else [misfit]
        checks.settle("method", wrong, f"The {method.name} release can be planned again from its parameters.")
        return method, plan
    return None


def _stated_laws(statement: Statement) -> dict[str, Law]:
    """Return the stated laws of the columns; none if one cannot be read, which another check reports."""
    try:
        return {c.column: law_from_dict(c.law) for c in statement.numbers.columns}
    except (ParameterError, TypeError, KeyError, AttributeError):
        return {}


def check_blocks(claimed: Mapping[str, Any], true: Mapping[str, Any], checks: Checks, right: str) -> None:
    """Check the numbers, bounds and sentences of a statement against those computed again.

    Parameters
    ----------
    claimed, true : mapping of str to JSON values
        Blocks of the statement by name, as they are published and as they must be.
    checks : Checks
        Collection that takes the results "numbers", "bounds" and "wording".
    right : str
        Sentence for the check "numbers" where it passes.
    """
    numbers, words = split_wording(differences(claimed["numbers"], true["numbers"], "numbers"))
    unit = list(differences(claimed["unit"], true["unit"], "unit"))
    checks.settle("numbers", [describe_difference(*d) for d in (*numbers, *unit)], right)
    bounds = list(differences(claimed["bounds"], true["bounds"], "bounds"))
    checks.settle("bounds", [describe_difference(*d) for d in bounds], "They are the ones of the schema.")
    for name in ("definition", "not_protected", "assumptions"):
        words += differences(claimed[name], true[name], name)
    checks.settle(
        "wording", [describe_difference(*d) for d in words], "Every sentence follows from the numbers."
    )


def check_claims(
    statement: Statement,
    schema: Schema,
    method: ReleaseMethod,
    plan: ReleasePlan,
    checks: Checks,
    receipts: Sequence[Receipt] | None = None,
) -> None:
    """Check every number and every sentence that follows from the schema and the parameters.

    Parameters
    ----------
    statement : Statement
        Statement that is checked.
    schema : Schema
        Declared schema of the rows.
    method, plan : ReleaseMethod, ReleasePlan
        Method with the stated parameters, and its plan.
    checks : Checks
        Collection that takes the results.
    receipts : sequence of Receipt, optional
        Receipts of all questions of a method that asks several; None where the statement has the only one.
    """
    claimed = statement.model_dump(mode="json")
    with checks.attempt("numbers"):
        blocks = promised_blocks(TableSubject(plan, method))
        true = {name: json_block(block) for name, block in blocks.items()}
        check_blocks(
            claimed,
            true,
            checks,
            "Every promise, law, epsilon and floor is what the declared parameters give.",
        )
        _add_last_digits({name: claimed[name] for name in true}, true, checks)
    with checks.attempt("implementation"):
        wrong = _implementation_faults(statement, schema, method, plan)
        checks.settle(
            "implementation",
            [describe_difference(*d) for d in wrong],
            "Sampler and lattice are those of the method.",
        )
    with checks.attempt("composition"):
        receipt = Receipt.from_dict(statement.composition.receipt)
        faults = (
            composition_faults(
                statement,
                [receipt],
                receipt.promises,
                plain=True,
                others=lambda: _receipt_faults(statement, receipt, method.describe_charge(schema)),
            )
            if receipts is None
            else composition_faults(statement, receipts, plan.promises, plain=False)
        )
        checks.settle(
            "composition",
            faults,
            "The charges add up to the stated total, and none before the receipt's is missing.",
        )


def _implementation_faults(
    statement: Statement, schema: Schema, method: ReleaseMethod, plan: ReleasePlan
) -> list[tuple[str, Any, Any]]:
    """Return the differences of the implementation block and the release name from those of the method."""
    stated = statement.implementation
    claimed = stated.model_dump(mode="json")
    true = table_implementation(
        plan,
        method,
        seeded=bool(statement.composition.receipt.get("seeded")),
        commitment=stated.key_commitment,
        shuffled=stated.shuffled,
    ).model_dump(mode="json")
    wrong = list(version_faults(claimed["versions"], true["versions"], statement.what.product_version))
    true["versions"] = claimed["versions"]  # they are those of the machine of the curator
    if schema.id_column is not None and _COMMITMENT.fullmatch(claimed["rows_salt"] or ""):
        true["rows_salt"] = claimed["rows_salt"]  # follows from a secret; a replay shows that it was used
    wrong += differences(claimed, true, "implementation")
    wrong += name_faults(statement, release_name(schema, stated.key_commitment, method))
    # Whoever answers questions has the key: an analyst cannot commit to it.
    is_known = bool(stated.key_commitment) or not method.asks_questions
    if is_known and not _COMMITMENT.fullmatch(stated.key_commitment):
        wrong.append(("implementation.key_commitment", claimed["key_commitment"], "a SHA-256"))
    return wrong


def name_faults(statement: Statement | ModelStatement, release: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences of the stated names of release and product from the right ones."""
    what = statement.what
    for at, claimed, true in (
        ("what.release", what.release, release),
        ("what.product", what.product, PRODUCT),
    ):
        if claimed != true:
            yield at, claimed, true


def version_faults(
    claimed: dict[str, str], expected: dict[str, str], product: str
) -> Iterator[tuple[str, Any, Any]]:
    """Yield entries that are no version, or not one of the packages that the noise depends on."""
    if set(claimed) != set(expected):
        yield "implementation.versions", sorted(claimed), sorted(expected)
    for name, version in sorted(claimed.items()):
        if not _VERSION.fullmatch(version):
            yield f"implementation.versions.{name}", version, "a version"
    if claimed.get(PRODUCT) != product:
        yield f"implementation.versions.{PRODUCT}", claimed.get(PRODUCT), product


def _add_last_digits(claimed: Any, true: Any, checks: Checks) -> None:
    """Add the number of stated numbers that differ in the last digits, where data could be hidden."""
    inexact = sum(1 for _ in differences(claimed, true, "", exactly=True))
    if inexact:
        checks.add(
            "last digits",
            "not checkable",
            f"{inexact} numbers of the statement differ from those computed here by less than a part in "
            "10^9. Another processor may compute them so; 23 bits of something else could stand in each.",
        )


def composition_faults(
    statement: Statement | ModelStatement,
    receipts: Sequence[Receipt],
    promises: Sequence[Promise],
    *,
    plain: bool,
    others: Callable[[], list[str]] = list,
) -> list[str]:
    """Return what is wrong with the charges that a statement lists, and with their total.

    Parameters
    ----------
    statement : Statement or ModelStatement
        Statement whose block ``composition`` is checked.
    receipts : sequence of Receipt
        Charges of the statement itself.
    promises : sequence of Promise
        Promises of these charges together.
    plain : bool
        Whether a receipt holds all that its row of the ledger does, as that of a table does.
    others : callable
        Function that returns further faults of the receipts, listed before those of the total.
    """
    stated = statement.composition
    counted = bool(receipts) and all(receipt.recorded for receipt in receipts)
    wrong = [fault for receipt in receipts for fault in receipt_faults(receipt, plain=plain)]
    wrong += position_faults(stated, receipts, plain=plain)
    wrong += time_faults(statement.what.created, receipts)
    wrong += others()
    if (stated.counted, stated.ledger) != (counted, receipts[0].ledger if counted else None):
        subject = "The receipt is" if plain else "The receipts are"
        wrong.append(f"{subject} of another ledger than the statement says.")
    elsewhere = is_charged_elsewhere(stated, receipts)
    if stated.service is not None and not elsewhere:
        wrong.append("It says what a service counts, and was charged to none (composition.service).")
    total, following = describe_total(
        [[promise_from_dict(promise) for promise in charge.promises] for charge in stated.earlier],
        promises,
        counted=stated.counted if plain else counted,
        limit=stated.limit,
        steered=includes_answers([charge.what for charge in stated.earlier]),
        others=len(stated.other_ledgers),
        alone=elsewhere,
    )
    for name, claimed, true in (("total", stated.total, total), ("next", stated.next, following)):
        if claimed != true:
            wrong.append(describe_difference(f"composition.{name}", claimed, true))
    return wrong


def _receipt_faults(statement: Statement, receipt: Receipt, what: str) -> list[str]:
    """Return the differences of a receipt from one for this release; `what` describes the charge."""
    fixed = {"what": what, "owner": None, "question": None, "version": statement.what.product_version}
    if DATA not in statement.files and re.fullmatch("[0-9a-f]{64}", receipt.question or ""):
        # The key names the charge of a release in parts, so that it can be resumed.
        del fixed["question"]
    wrong = [
        describe_difference(f"receipt.{name}", getattr(receipt, name), true)
        for name, true in fixed.items()
        if getattr(receipt, name) != true
    ]
    charged = [promise.to_dict() for promise in receipt.promises]
    promised = differences(charged, statement.numbers.promises, "receipt.promises")
    return wrong + [describe_difference(*d) for d in promised]


def differences(claimed: Any, true: Any, at: str, *, exactly: bool = False) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences of two JSON values: path, claimed value, true value.

    Numbers may be off by a part in 10^9 unless they are compared `exactly`; the mean of noise by that part of
    its standard deviation, because it may be a rounding error around 0.
    """
    if isinstance(claimed, dict) and isinstance(true, dict):
        for key in sorted(set(claimed) | set(true)):
            one, other = claimed.get(key, _ABSENT), true.get(key, _ABSENT)
            if key == "mean" and not exactly and _is_same_mean(one, other, true.get("variance")):
                continue
            yield from differences(one, other, f"{at}.{key}", exactly=exactly)
    elif isinstance(claimed, list) and isinstance(true, list):
        if len(claimed) != len(true):
            yield f"{at} (its length)", len(claimed), len(true)
            return
        for i, (one, other) in enumerate(zip(claimed, true, strict=True)):
            named = one.get("column", i) if isinstance(one, dict) else i
            yield from differences(one, other, f"{at}[{named}]", exactly=exactly)
    elif not (repr(claimed) == repr(true) if exactly else _is_same(claimed, true)):
        yield at, claimed, true


def _is_same(claimed: Any, true: Any) -> bool:
    if isinstance(claimed, float) and isinstance(true, float):
        close = math.isclose(claimed, true, rel_tol=RELATIVE_TOLERANCE, abs_tol=0.0)
        return close and math.copysign(1.0, claimed) == math.copysign(1.0, true)
    return type(claimed) is type(true) and bool(claimed == true)


def _is_same_mean(claimed: Any, true: Any, variance: Any) -> bool:
    if not all(isinstance(value, float) for value in (claimed, true, variance)) or not variance >= 0:
        return False
    return bool(abs(claimed - true) <= RELATIVE_TOLERANCE * math.sqrt(variance))


def split_wording(
    items: Iterator[tuple[str, Any, Any]],
) -> tuple[list[tuple[str, Any, Any]], list[tuple[str, Any, Any]]]:
    """Return differences in numbers, and those in the sentences around them."""
    numbers: list[tuple[str, Any, Any]] = []
    words: list[tuple[str, Any, Any]] = []
    for difference in items:
        parts = difference[0].replace("[", ".").split(".")
        (words if _WORDING & set(parts) else numbers).append(difference)
    return numbers, words


def describe_difference(at: str, claimed: Any, true: Any) -> str:
    """Return a sentence with the claimed and the true value at a path of a statement."""
    claimed_text, true_text = (_format_value(value) for value in (claimed, true))
    better = ""
    if isinstance(claimed, int | float) and isinstance(true, int | float):
        smaller = at.rpartition(".")[2] in _SMALLER_IS_BETTER
        if (claimed < true) == smaller:
            better = ", which promises more than is kept"
    return f"{at} says {claimed_text} and must say {true_text}{better}."


def _format_value(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = f"{value:.12g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def json_block(block: Any) -> Any:
    """Return a block of a statement as plain JSON values."""
    if isinstance(block, list):
        return [json_block(part) for part in block]
    return block.model_dump(mode="json") if hasattr(block, "model_dump") else block


def check_risk(
    folder: Path, statement: Statement, method: ReleaseMethod, plan: ReleasePlan, checks: Checks
) -> None:
    """Measure the risk of a release again, and compare it with the stated one.

    Parameters
    ----------
    folder : Path
        Public folder, with the law of public rows that attackers were assumed to know, if there is one.
    statement : Statement
        Statement whose block ``risk`` is checked.
    method, plan : ReleaseMethod, ReleasePlan
        Method with the stated parameters, and its plan.
    checks : Checks
        Collection that takes the result of the check.
    """
    if statement.risk is None:
        checks.add("risk", "not checkable", "The statement has no figures of attacks on made-up people.")
        return
    stated = Risk.from_dict(statement.risk)
    if not 0 < stated.people <= _MOST_PEOPLE:
        people = f"risk.people must be from 1 to {_MOST_PEOPLE:,}, and is {stated.people}."
        checks.settle("risk", [people], "")
        return
    assert method.schema is not None
    prior = None
    if PRIOR in statement.files:
        prior = PublicPrior.from_dict(read_json(read_bytes(folder / PRIOR), PRIOR), method.schema)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DiscreetWarning)  # they are for the curator
        again = measure_risk(method, plan, statement.what.rows_read, people=stated.people, prior=prior)
    trained = is_invariant_plan(plan)
    expected = {**again.to_dict(), "accepted": stated.accepted}
    wrong = [
        f"Measured again, {at} is something else."
        for at in risk_differences(stated.to_dict(), expected, trained=trained)
    ]
    if stated.stops:
        wrong.append("The risk is above its thresholds, and no reason is given for which it was accepted.")
    if stated.accepted is not None and stated.verdict != "no":
        wrong.append("A risk below its thresholds needs no reason for which it was accepted.")
    done = f"{len(again.attacks)} attacks on made-up people, run again, give what the statement says."
    checks.settle("risk", wrong[:3], done)


def risk_differences(stated: Any, again: Any, *, trained: bool = False, at: str = "risk") -> Iterator[str]:
    """Yield where two JSON values differ by more than another processor explains.

    Parameters
    ----------
    stated, again : JSON value
        Figures of a statement, and the same measured again.
    trained : bool
        Whether attacks train a model, so that shares, and numbers in texts, depend on its last digits.
    at : str
        Path of the two values, for messages.
    """
    if isinstance(stated, dict) and isinstance(again, dict) and stated.keys() == again.keys():
        for key, value in stated.items():
            yield from risk_differences(value, again[key], trained=trained, at=f"{at}.{key}")
    elif isinstance(stated, list) and isinstance(again, list) and len(stated) == len(again):
        for place, (one, other) in enumerate(zip(stated, again, strict=True)):
            yield from risk_differences(one, other, trained=trained, at=f"{at}[{place}]")
    elif isinstance(stated, float) and isinstance(again, float):
        if not abs(stated - again) <= (_TRAINED_TOLERANCE if trained else _RISK_TOLERANCE):
            yield at
    elif isinstance(stated, str) and isinstance(again, str) and trained:
        if _without_numbers(stated) != _without_numbers(again):
            yield at
    elif stated != again:
        yield at


def _without_numbers(text: str) -> str:
    return re.sub(r"\d[\d.,]*", "#", text)
