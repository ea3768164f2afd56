"""Statements of real plans with invented findings: what the pages are drawn from before any job has run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from discreet import Column, ErrorFloor, Schema
from discreet.datasets import load
from discreet.privacy import GaussianDP, NoPromise, Receipt
from discreet.release import GaussianRelease, InvariantRelease, Publication
from discreet.report.findings import (
    ColumnComparison,
    Correlations,
    Findings,
    Learning,
    Score,
    Stage,
    Subgroup,
    TableQuality,
    WhatIf,
)
from discreet.report.noisy_tables import CountedColumn, MeasuredTables, TableNoise, TreeEdge
from discreet.report.pages._columns import is_chance
from discreet.report.statement.build import build_statement
from discreet.report.statement.documents import About, Statement, Tuning
from discreet.report.statement.table import TableSubject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.privacy import Promise
    from discreet.release import ReleaseMethod
    from discreet.report.statement.documents import ColumnNumbers

WHEN = "2026-03-02T09:30:00.000000+00:00"
HOSTILE = (
    "<script>alert(1)</script>",
    "\"quoted\" & 'both'",
    "\u202eevil\u202c",
    "</style></script><!--",
    "ζυγός 体重 👩🏽‍⚕️ وزن",
    "{{ 7 * 7 }}{% raw %}",
    "long " * 38 + "name",
)


CONTROLS = "two\nlines\tand\x00nothing"  # a schema refuses it; a statement that was written by hand may not


def receipt(promises: Sequence[Promise], *, seq: int, when: str, what: str, seeded: bool = False) -> Receipt:
    """A charge as a ledger would have recorded it."""
    return Receipt(
        id=f"charge-{seq}", what=what, when=when, promises=tuple(promises), ledger="0f2c9a", seq=seq,
        hash="ab" * 32, version="0.1.0", seeded=seeded,
    )  # fmt: skip


def statement_of(
    method: ReleaseMethod, n_rows: int, *, seeded: bool = False, earlier: Sequence[Receipt] = ()
) -> Statement:
    """The statement of a release that was planned and never drawn."""
    assert method.schema is not None
    plan = method.plan(method.schema, n_rows)
    charge = receipt(
        plan.promises, seq=len(earlier) + 1, when=WHEN, what=f"{method.name} release", seeded=seeded
    )
    publication = Publication(
        n_rows=n_rows, n_read=n_rows, schema=plan.schema, promises=plan.promises, receipt=charge,
        summary=plan.columns, commitment="c0ffee" * 10 + "c0de",
    )  # fmt: skip
    return build_statement(
        TableSubject(publication, method),
        about=About(
            curator="Office of Statistics", purpose="research into incomes", contact="data@example.org",
            license="CC BY 4.0",
        ),
        ledger=[*earlier, charge],
        tuning=Tuning(on_private_rows="no", why="The floor was asked for beforehand."),
        files={"data.parquet": "5e" * 32, "readable.csv": "7a" * 32},
        created=WHEN,
    )  # fmt: skip


def census() -> tuple[Statement, Findings]:
    """The demonstration: census rows with a floor of nine years on age."""
    schema = load("census").schema
    before = [
        receipt([GaussianDP(mu=0.5)], seq=1, when="2025-04-01T10:00:00+00:00", what="noisy sums for a map"),
        receipt([GaussianDP(mu=0.8)], seq=2, when="2025-11-20T16:20:00+00:00", what="table of wages"),
    ]
    statement = statement_of(
        GaussianRelease(privacy=ErrorFloor(age=9), schema=schema), 48_842, earlier=before
    )
    return statement, findings_for(statement)


def clinic() -> tuple[Statement, Findings]:
    """The invariant release, which gives nearly everybody away."""
    method = InvariantRelease(learner="svm", variance=0.01, schema=load("clinic").schema)
    statement = statement_of(method, 569)
    findings = findings_for(statement)
    exposed = {
        "kind": "exposed", "attack": "linkage", "success": 0.982, "lower": 0.968, "upper": 0.992,
        "chance": 1 / 569, "n": 569, "failure_probability": 1e-6,
        "knowledge": "the exact row of somebody and the published model",
        "sentence": "By the exact score alone, which this release keeps for every row, 559 of 569 people are "
        "found again.",
    }  # fmt: skip
    return statement, findings.model_copy(update={"exposures": [exposed]})


def one_number(**parts: Any) -> tuple[Statement, Findings]:
    """A table of one number and nothing else."""
    schema = Schema(columns=[Column("weight", lower=0, upper=200, measure="kg", **parts)])
    statement = statement_of(GaussianRelease(scale=20.0, schema=schema), 1000)
    return statement, findings_for(statement)


def lists_only() -> tuple[Statement, Findings]:
    """A table without a number."""
    schema = Schema(
        columns=[
            Column("color", values=("red", "green")),
            Column("owner", values=(False, True), role="target"),
        ]
    )
    statement = statement_of(GaussianRelease(privacy=ErrorFloor(color=0.3), schema=schema), 50)
    return statement, findings_for(statement)


def hostile() -> tuple[Statement, Findings]:
    """Names that try to leave their place."""
    columns = [Column(name, lower=0, upper=10, measure=name) for name in HOSTILE]
    columns.append(Column("level", values=HOSTILE, bounds_source=HOSTILE[0]))
    schema = Schema(
        columns=[*columns, Column("y", values=("<b>never</b>", "yes"), role="target")],
        title=HOSTILE[0],
        unit=HOSTILE[3],
    )
    statement = statement_of(GaussianRelease(scale=3.0, schema=schema), 100)
    first, *others = statement.numbers.columns
    numbers = statement.numbers.model_copy(
        update={"columns": [first.model_copy(update={"column": CONTROLS, "sentence": CONTROLS}), *others]}
    )
    statement = statement.model_copy(update={"numbers": numbers})
    findings = findings_for(statement)
    command = f"discreet release {HOSTILE[3]}"
    return statement, findings.model_copy(
        update={"command": command, "quality": quality_of([*HOSTILE, CONTROLS, "y"], target="y")}
    )


def quality_of(names: Sequence[str], *, target: str | None = None) -> TableQuality:
    """Errors of a synthetic table in which every second column hangs on the one before it."""
    others = [name for name in names if name != target]
    measured = MeasuredTables(
        target=target,
        declared_target=target,
        rows=1000.0,
        columns=[
            CountedColumn(column=name, cells=3 + k % 4, has_inside=k % 2 == 0) for k, name in enumerate(names)
        ]
        + [CountedColumn(column="words", cells=1, levels=90, merged=70, has_inside=True)],
        tables=[TableNoise(columns=[name], cells=4, sd=13.0) for name in others]
        + [TableNoise(columns=others[k : k + 2], cells=16, sd=20.0) for k in range(0, len(others) - 1, 2)],
        edges=[
            TreeEdge(first=others[k], second=others[k + 1], rows=None if k else 310.0)
            for k in range(0, len(others) - 1, 2)
        ],
        questions=["one", "scores", "tables"],
        notes=["At this promise there is no second round of tables."],
    )  # fmt: skip
    return TableQuality(
        measured=measured, rows=1000, made_rows=900,
        one_way=[0.01 * k for k in range(len(names))], one_way_chance=[0.02] * len(names),
        two_way=[[0.003 * i * (j + 1) for j in range(i)] for i in range(len(names))], two_way_chance=0.04,
        means=dict.fromkeys(names, 0.01), correlation_error=0.05,
    )  # fmt: skip


def synthetic() -> tuple[Statement, Findings]:
    """Sixty-five columns of a synthetic table, one more than are drawn in pairs."""
    statement, findings = one_number()
    names = [f"column {k}" for k in range(65)]
    return statement, findings.model_copy(update={"quality": quality_of(names, target="column 3")})


def wide(n_columns: int = 300) -> tuple[Statement, Findings]:
    """Many columns, of which a few are planned and the others like them."""
    few = [Column(f"x{j}", lower=0, upper=1 + j, measure="mm") for j in range(7)]
    statement = statement_of(GaussianRelease(scale=0.5, schema=Schema(columns=few)), 2000)
    names = [f"x{j:04d}" for j in range(n_columns)]
    like = {name: k % len(few) for k, name in enumerate(names)}
    promises = [{**p, "covers": names} for p in statement.numbers.promises]
    for promise in promises:
        if "columns" in promise:
            promise["columns"] = {name: promise["columns"][f"x{k}"] for name, k in like.items()}
    numbers = statement.numbers
    columns = [numbers.columns[k].model_copy(update={"column": name}) for name, k in like.items()]
    wider = {
        "numbers": numbers.model_copy(update={"columns": columns, "promises": promises}),
        "bounds": [statement.bounds[k].model_copy(update={"column": name}) for name, k in like.items()],
    }
    statement = statement.model_copy(update=wider)
    return statement, findings_for(statement)


def seeded() -> tuple[Statement, Findings]:
    """A release for tests."""
    schema = Schema(columns=[Column("weight", lower=0, upper=200)])
    statement = statement_of(GaussianRelease(scale=20.0, schema=schema, random_state=1), 10, seeded=True)
    return statement, findings_for(statement)


def bare() -> tuple[Statement, Findings]:
    """Nothing found, nobody named, no ledger."""
    statement, _ = one_number()
    none = About().model_dump()
    composition = statement.composition.model_copy(
        update={"counted": False, "ledger": None, "earlier": [], "total": "Nobody counted.", "limit": None}
    )
    what = statement.what.model_copy(update={**none, "dataset": None})
    return statement.model_copy(update={"what": what, "composition": composition}), Findings()


def without_floors() -> tuple[Statement, Findings]:
    """Nothing is promised and nothing is proven."""
    statement, findings = one_number()
    promise = NoPromise(reason="the noise was drawn by hand <b>and lost</b>").to_dict()
    definition = statement.definition.model_copy(
        update={"kinds": ["no-promise"], "differential_privacy": False, "sentences": ["Nothing is promised."]}
    )
    columns = [
        n.model_copy(update={"floor": None, "without": None, "epsilon": None, "sentence": "No floor."})
        for n in statement.numbers.columns
    ]
    numbers = statement.numbers.model_copy(
        update={"promises": [promise], "epsilon": None, "delta": None, "columns": columns, "theorems": []}
    )
    guesses = [{**g, "floor": None, "verdict": "no floor"} for g in findings.guesses]
    what_if = [
        w.model_copy(update={"floors": {}, "epsilon": None, "accuracy": None}) for w in findings.what_if
    ]
    return (
        statement.model_copy(update={"definition": definition, "numbers": numbers}),
        findings.model_copy(update={"guesses": guesses, "what_if": what_if}),
    )


def all_missing() -> tuple[Statement, Findings]:
    """A column without a single cell: no mean, no bars."""
    statement, findings = one_number(required=False)
    empty = ColumnComparison(
        column="weight", kind="number", distance=0.0, labels=[], original=[], release=[],
        missing_original=1.0, missing_release=0.8,
    )  # fmt: skip
    return statement, findings.model_copy(update={"columns": [empty]})


def one_row() -> tuple[Statement, Findings]:
    """One person: every share is 0 or 1, correlations are 0, nothing to learn from."""
    schema = Schema(columns=[Column("a", lower=0, upper=1), Column("b", lower=0, upper=1)])
    statement = statement_of(GaussianRelease(scale=1.0, schema=schema), 1)
    flat = [[1.0, 0.0], [0.0, 1.0]]
    return statement, findings_for(statement).model_copy(
        update={
            "compared_rows": 1,
            "correlations": Correlations(columns=["a", "b"], original=flat, release=flat),
            "what_if": [WhatIf(factor=1.0, noise={"a": 1.0, "b": 1.0}, floors={})],
        }
    )


def constant_target() -> tuple[Statement, Findings]:
    """All rows have one class: no AUC, no calibration, no curve."""
    statement, findings = lists_only()
    learning = Learning(
        target="owner", task="classification", model="logistic regression", train_rows=40, test_rows=10,
        scores=[
            Score(trained_on="original", tested_on="original", accuracy=1.0, lower=1.0, upper=1.0),
            Score(trained_on="release", tested_on="original", accuracy=1.0, lower=1.0, upper=1.0),
            Score(trained_on="majority", tested_on="original", accuracy=1.0, lower=1.0, upper=1.0),
        ],
        note="The target has one class in these rows.",
    )  # fmt: skip
    return statement, findings.model_copy(update={"learning": learning})


def regression() -> tuple[Statement, Findings]:
    """A number as target."""
    schema = Schema(
        columns=[Column("x", lower=0, upper=1), Column("y", lower=-5, upper=5, role="target", measure="m/s")]
    )
    statement = statement_of(GaussianRelease(scale={"x": 0.3, "y": 1.0}, schema=schema), 300)
    learning = Learning(
        target="y", task="regression", model="ridge regression", train_rows=200, test_rows=100,
        scores=[
            Score(trained_on="original", tested_on="original", r2=0.62, rmse=0.9),
            Score(trained_on="release", tested_on="original", r2=-0.08, rmse=1.5),
            Score(trained_on="release", tested_on="release", r2=0.3, rmse=1.7),
        ],
        equals_share=0.004,
        curve=[(0.01, -0.02), (0.1, 0.4), (1.0, 0.62)],
    )  # fmt: skip
    return statement, findings_for(statement).model_copy(update={"learning": learning})


def broken() -> tuple[Statement, Findings]:
    """An attack got below a floor."""
    statement, findings = one_number()
    guesses = [
        {**g, "error": 11.0, "lower": 10.8, "upper": 11.2, "verdict": "broken"} if g["on"] == "prior" else g
        for g in findings.guesses
    ]
    return statement, findings.model_copy(update={"guesses": guesses})


CASES = {
    "census": census,
    "clinic": clinic,
    "one number": one_number,
    "lists only": lists_only,
    "hostile": hostile,
    "synthetic": synthetic,
    "wide": wide,
    "seeded": seeded,
    "bare": bare,
    "without floors": without_floors,
    "all missing": all_missing,
    "one row": one_row,
    "constant target": constant_target,
    "regression": regression,
    "broken": broken,
}
"""Every odd table that the pages must be able to show."""


def findings_for(statement: Statement) -> Findings:
    """Invent findings that fit a statement; the same ones each time."""
    columns = [n for n in statement.numbers.columns if n.law["kind"] != "clear"]
    numbers = [n for n in columns if not is_chance(n)]
    return Findings(
        guesses=[g for k, n in enumerate(columns) for g in _guesses(n, k)],
        audits=_audits(statement),
        exposures=_exposures(),
        learning=_learning(statement),
        what_if=_what_if(columns),
        columns=[_compared(n, k) for k, n in enumerate(columns)],
        correlations=_correlations([n.column for n in numbers[:60]]) if len(numbers) > 1 else None,
        compared_rows=20_000,
        stages=[
            Stage(name="read", said="48,842 rows, 15 columns, 2 dropped", seconds=0.12),
            Stage(name="attack", said="best of 6 attacks per column", seconds=25.3),
        ],
        command="discreet release demo:census --target income --protect age=9 --out release/",
        composition="Three charges so far; the total is given below.",
    )


def _guesses(numbers: ColumnNumbers, k: int) -> list[dict[str, Any]]:
    floor = None if numbers.floor is None else float(numbers.floor["error"])
    without = numbers.without or 1.0
    base = floor if floor is not None else 0.6 * without
    chance = is_chance(numbers)
    tried = [
        (
            "posterior mean" if not chance else "most likely level",
            "prior",
            1.003,
            "the declared range and the noise law",
        ),
        ("rounding", "prior", 1.04, "the declared range, and that cells are whole numbers"),
        ("shrinkage", "file", 0.99, "the published file alone"),
        (
            "learned from other columns",
            "rows",
            0.86 + 0.03 * (k % 5),
            "the distribution of all columns together",
        ),
    ]
    return [
        {
            "kind": "guess", "attack": attack, "column": numbers.column,
            "statistic": "probability of a wrong guess" if chance else "root-mean-square error",
            "measure": numbers.measure, "error": factor * base, "lower": 0.985 * factor * base,
            "upper": min(1.015 * factor * base, 1.0) if chance else 1.015 * factor * base,
            "failure_probability": 1e-6, "without": without if on == "prior" else 0.8 * without,
            "floor": floor,
            "verdict": ("holds" if floor is not None else "no floor") if on == "prior" else "shown",
            "on": on, "knowledge": knowledge, "n": 20_000, "seconds": 0.4, "note": "",
        }
        for attack, on, factor, knowledge in tried
    ]  # fmt: skip


def _audits(statement: Statement) -> list[dict[str, Any]]:
    return [
        {
            "kind": "audit-result", "attack": "distinguish", "claim": claim, "verdict": "holds",
            "reason": "No set of outputs told two extreme rows apart better than promised.",
            "quantity": "epsilon at delta 1e-05", "measured": 3.2, "allowed": "inf" if k else 4.1,
            "failure_probability": 1e-6, "n": 200_000, "knowledge": "all rows but one", "details": {},
        }
        for k, claim in enumerate(p for p in statement.numbers.promises if p["kind"].endswith("dp"))
    ]  # fmt: skip


def _exposures() -> list[dict[str, Any]]:
    common = {"kind": "exposed", "n": 2000, "failure_probability": 1e-6}
    return [
        {
            **common, "attack": "linkage", "success": 0.031, "lower": 0.019, "upper": 0.047, "chance": 0.0005,
            "knowledge": "the exact row of somebody who is in the table",
            "sentence": "Of 2,000 people whose whole row is known, 62 are found again in the published file.",
        },
        {
            **common, "attack": "membership", "success": 0.507, "lower": 0.48, "upper": 0.534, "chance": 0.5,
            "knowledge": "the exact row of somebody, and the schema",
            "sentence": "Whether somebody is in the table is guessed right 50.7 % of the time, as by a coin.",
        },
    ]  # fmt: skip


def _learning(statement: Statement) -> Learning | None:
    target = next((n for n in statement.numbers.columns if n.role == "target"), None)
    if target is None or not is_chance(target):
        return None
    bins = [(j + 0.5) / 10 for j in range(10)]
    return Learning(
        target=target.column,
        task="classification",
        model="gradient boosting",
        train_rows=39_073,
        test_rows=9_769,
        scores=[
            Score(
                trained_on="original", tested_on="original", accuracy=0.871, lower=0.864, upper=0.878,
                auc=0.925, calibration=[(b, b + 0.02 * math.sin(7 * b), 0.1) for b in bins],
            ),
            Score(
                trained_on="release", tested_on="original", accuracy=0.822, lower=0.814, upper=0.83,
                auc=0.861, calibration=[(b, 0.5 + 0.8 * (b - 0.5), 0.1) for b in bins],
            ),
            Score(trained_on="release", tested_on="release", accuracy=0.664, lower=0.65, upper=0.68, auc=0.7),
            Score(trained_on="majority", tested_on="original", accuracy=0.761, lower=0.75, upper=0.77),
        ],
        equals_share=0.046,
        curve=[(0.01, 0.801), (0.03, 0.816), (0.1, 0.835), (0.3, 0.856), (1.0, 0.871)],
        subgroups=[
            Subgroup(column="sex", level="Female", rows=3_231, original=0.931, release=0.896),
            Subgroup(column="sex", level="Male", rows=6_538, original=0.841, release=0.785),
            Subgroup(column="race", level="Black", rows=921, original=0.926, release=0.93),
            Subgroup(column="race", level="Amer-Indian-Eskimo", rows=94, original=0.904, release=0.82),
        ],
    )  # fmt: skip


def _what_if(columns: Sequence[ColumnNumbers]) -> list[WhatIf]:
    positions = []
    for j in range(-5, 6):
        factor = 2 ** (j / 2)
        noise, floors = {}, {}
        for n in columns:
            law = n.law
            if law["kind"] == "response":
                changed = (1 - law["keep"]) * factor / (1 + (1 - law["keep"]) * (factor - 1))
                noise[n.column] = floors[n.column] = changed
            else:
                noise[n.column] = math.sqrt(law.get("variance") or 1.0) * factor
                if n.floor is not None and n.without:
                    ratio = n.floor["error"] / n.without
                    odds = ratio**2 / (1 - ratio**2) * factor**2
                    floors[n.column] = n.without * math.sqrt(odds / (1 + odds))
        positions.append(
            WhatIf(
                factor=factor, noise=noise, floors=floors, epsilon=31.4 / factor, delta=1e-6,
                accuracy=0.761 + 0.11 / (1 + 0.8 * factor), regularization=1 / factor**4,
            )
        )  # fmt: skip
    return positions


def _compared(numbers: ColumnNumbers, k: int) -> ColumnComparison:
    if numbers.levels is not None:
        labels = ["missing" if level is None else str(level) for level in numbers.levels]
        raw = [1 / (1 + j) for j in range(len(labels))]
        original = [x / sum(raw) for x in raw]
        release = [0.7 * x + 0.3 / len(labels) for x in original]
        return ColumnComparison(
            column=numbers.column, kind="list", distance=0.12 + 0.01 * k, labels=labels, original=original,
            release=release, missing_original=0.02 if numbers.missing else 0.0,
            missing_release=0.04 if numbers.missing else 0.0,
        )  # fmt: skip
    low, high = numbers.lower or 0.0, numbers.upper or 1.0
    n_bins = 20
    middles = [low + (high - low) * (j + 0.5) / n_bins for j in range(n_bins)]
    labels = [f"< {low:g}", *(f"{m:.4g}" for m in middles), f"> {high:g}"]
    shape = [0.0, *(math.exp(-(((j - 6) / 4) ** 2)) for j in range(n_bins)), 0.0]
    wider = [0.5, *(math.exp(-(((j - 7) / 7) ** 2)) for j in range(n_bins)), 0.3]
    mean = low + 0.3 * (high - low)
    return ColumnComparison(
        column=numbers.column, kind="number", measure=numbers.measure, distance=0.08 + 0.017 * (k % 9),
        labels=labels, original=[x / sum(shape) for x in shape], release=[x / sum(wider) for x in wider],
        original_mean=mean, original_sd=0.15 * (high - low), release_mean=mean * 1.001,
        release_sd=0.22 * (high - low), outside=0.09,
    )  # fmt: skip


def _correlations(names: list[str]) -> Correlations:
    count = len(names)
    original = [
        [1.0 if i == j else 0.9 * math.sin(1 + i * j + i + j) for j in range(count)] for i in range(count)
    ]
    release = [[1.0 if i == j else 0.5 * original[i][j] for j in range(count)] for i in range(count)]
    return Correlations(columns=names, original=original, release=release)
