"""Synthetic tables against the rows they were made from: a learner, total variation, time.

    python benchmarks/synthetic.py adult --epsilons 0.1 1 4 10 --seeds 1 2 3 [--cut] [--no-target]
    python benchmarks/synthetic.py coverage --epsilons 0.1 1 10 --seeds $(seq 150)

Prints for each epsilon the mean over seeds of the AUC of gradient boosting trained on the made-up rows and
tested on true ones, the total variation of one, two and three columns between both tables in the declared
cells, the mean error of column means in standard deviations, and the CPU seconds of registration, questions,
model and sampling. Every run is added to ``results/synthetic.jsonl``; means of all recorded runs, and how
often intervals of means hold, are written to ``results/synthetic.json``. Tables are looked for in the folder
that ``DISCREET_DATA`` names, by default ``shared/data`` beside the repository. ``synthetic_cost.py`` measures
time and memory by themselves.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from discreet import ApproxDP, Column, Schema
from discreet.noise import Stream
from discreet.release.statistics import TableStatistics
from discreet.release.synthetic import SyntheticRelease

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FOLDER = Path(os.environ.get("DISCREET_DATA") or Path(__file__).parents[2] / "shared" / "data")
RESULTS = Path(__file__).with_name("results") / "synthetic.json"
RUNS = RESULTS.with_suffix(".jsonl")
MOST_TUPLES = 200
FEW_VALUES = 16
LENDING = (
    "loan_amnt", "term", "int_rate", "installment", "grade", "emp_length", "home_ownership", "annual_inc",
    "verification_status", "purpose", "addr_state", "dti", "delinq_2yrs", "inq_last_6mths", "open_acc",
    "pub_rec", "revol_bal", "revol_util", "total_acc", "loan_status",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A table with its schema, cells of its numbers, and how it is split."""

    rows: Any
    schema: Schema
    cells: dict[str, tuple[float, ...]]
    training: int | None = None

    def split(self, seed: int) -> tuple[Any, Any]:
        """Return the rows to make a table of, and those to test on."""
        if self.training is not None:
            return self.rows.iloc[: self.training], self.rows.iloc[self.training :]
        order = Stream.from_seed(seed).generator().permutation(len(self.rows))
        cut = len(self.rows) * 4 // 5
        return self.rows.iloc[order[:cut]], self.rows.iloc[order[cut:]]


def adult() -> Case:
    """1994 census, 13 columns: without weight and without the number that repeats the education."""
    facts = json.loads((FOLDER / "adult.schema.json").read_text())
    rows = pd.read_parquet(FOLDER / "adult.parquet")
    columns = []
    for fact in facts["columns"]:
        name = fact["name"]
        if name in ("fnlwgt", "education_num", "education-num", "split"):
            continue
        if fact["kind"] == "numeric":
            columns.append(Column(name, type="integer", lower=fact["lower"], upper=fact["upper"]))
        else:
            columns.append(
                Column(name, values=tuple(fact["categories"]), closed=True, required=not fact["nullable"])
            )
    named = {column.name.replace("-", "_"): column.name for column in columns}
    cells: dict[str, tuple[float, ...]] = {
        named["age"]: tuple(range(20, 85, 5)),
        named["hours_per_week"]: (10, 20, 30, 35, 40, 41, 45, 50, 55, 60, 70, 80),
        named["capital_gain"]: (
            1,
            1000,
            2000,
            3000,
            4000,
            5000,
            7000,
            8000,
            10000,
            15000,
            20000,
            50000,
            99999,
        ),
        named["capital_loss"]: (1, 500, 1000, 1400, 1600, 1700, 1800, 1900, 2000, 2200, 2500, 3000),
    }
    target = "income"
    if target not in named:
        raise KeyError(target)
    return Case(rows[list(named.values())], Schema(columns=columns, target=target), cells, 32_561)


def _numeric(
    name: str, target: str, drop: Sequence[str] = (), target_of: Callable[[Any], Any] | None = None
) -> Case:
    """Return a table whose numbers are bounded by their published extremes, cut into ten cells each."""
    rows = pd.read_parquet(FOLDER / f"{name}.parquet").drop(columns=list(drop))
    if target_of is not None:
        rows[target] = target_of(rows[target])
    return _cut(rows, target)


def _cut(rows: Any, target: str) -> Case:
    """Return a table with cells at the tenths of its numbers, or at each value where there are few."""
    columns, cells = [], {}
    for column in rows.columns:
        values = rows[column]
        if column == target or not pd.api.types.is_numeric_dtype(values) or values.nunique() <= 2:
            levels = tuple(sorted(str(v) for v in values.dropna().unique()))
            rows[column] = values.astype(object).where(values.isna(), values.astype(str))
            columns.append(Column(str(column), values=levels, closed=True, required=not values.isna().any()))
            continue
        whole = pd.api.types.is_integer_dtype(values)
        low, high = values.min(), values.max()
        columns.append(
            Column(
                str(column),
                type="integer" if whole else "number",
                lower=low,
                upper=high,
                required=not values.isna().any(),
            )
        )
        cuts = sorted({float(v) for v in values.dropna().quantile(np.linspace(0.1, 0.9, 9)).round(6)})
        if whole:
            cuts = sorted({float(np.ceil(v)) for v in cuts})
        elif values.nunique() <= FEW_VALUES:
            cuts = sorted(float(v) for v in values.dropna().unique())
        inside = tuple(v for v in cuts if low < v <= high)
        if inside and not (whole and high - low < 16):
            cells[str(column)] = inside
    return Case(rows, Schema(columns=columns, target=target), cells)


def lending() -> Case:
    """Loans of 2007 to 2011, 20 columns known when a loan is made; the target is whether it was lost."""
    rows = pd.read_parquet(FOLDER / "lending_club_2007_2011.parquet")[list(LENDING)]
    rows["loan_status"] = rows["loan_status"].str.contains("Charged Off").astype(int)
    return _cut(rows, "loan_status")


CASES: dict[str, Callable[[], Case]] = {
    "adult": adult,
    "lending": lending,
    "abalone": lambda: _numeric("abalone", "rings", target_of=lambda rings: (rings > 9).astype(int)),
    "waveform": lambda: _numeric("waveform", "class"),
    "splice": lambda: _numeric("splice", "class", drop=("instance",)),
    "german": lambda: _numeric("german_credit", "class"),
    "segment": lambda: _numeric("segment", "class", drop=("split", "region_pixel_count")),
    "pima": lambda: _numeric("pima_diabetes", "class"),
    "australian": lambda: _numeric("australian_credit", "class"),
    "mammographic": lambda: _numeric("mammographic_masses", "severity"),
    "transfusion": lambda: _numeric("blood_transfusion", "donated_march_2007"),
    "breast": lambda: _numeric("breast_cancer_wisconsin", "class", drop=("sample_code_number",)),
}


def encode(case: Case, rows: Any) -> dict[str, Any]:
    """Return the columns of a frame as numbers: codes of levels, missing as NaN."""
    encoded = {}
    for column in case.schema.released:
        values = rows[column.name]
        if column.is_category:
            places = {level: code for code, level in enumerate(column.levels)}
            missing = places.get(None, -1)
            encoded[column.name] = np.array(
                [missing if v is None or v != v else places[v] for v in values.tolist()], np.int64
            )
        else:
            encoded[column.name] = values.to_numpy(np.float64, na_value=np.nan)
    return encoded


def to_cells(case: Case, encoded: dict[str, Any]) -> dict[str, Any]:
    """Return the cell of every value in the declared cells."""
    found = {}
    for column in case.schema.released:
        values = encoded[column.name]
        if not column.is_category:
            edges = case.cells.get(column.name)
            if edges is None:
                edges = tuple(np.arange(column.range[0] + 1, column.range[1] + 1))
            codes = np.searchsorted(np.array(edges), values, side="right")
            values = np.where(np.isnan(values), len(edges) + 1, codes)
        found[column.name] = values.astype(np.int64)
    return found


def count_cells(case: Case) -> dict[str, int]:
    """Return the number of cells of every column, that of missing values included."""
    counts = {}
    for column in case.schema.released:
        if column.is_category:
            counts[column.name] = len(column.levels)
        else:
            edges = case.cells.get(column.name)
            inner = int(column.range[1] - column.range[0]) if edges is None else len(edges)
            counts[column.name] = inner + 1 + (not column.required)
    return counts


def total_variation(first: dict[str, Any], second: dict[str, Any], width: int) -> float:
    """Return the mean distance of the tables of `width` columns each."""
    tuples = list(itertools.combinations(first, width))
    if len(tuples) > MOST_TUPLES:
        order = Stream.from_seed(width).generator().permutation(len(tuples))[:MOST_TUPLES]
        tuples = [tuples[i] for i in order]
    distances = []
    for names in tuples:
        sizes = [int(max(first[n].max(), second[n].max())) + 1 for n in names]
        tables = []
        for cells in (first, second):
            place = np.ravel_multi_index([cells[n] for n in names], sizes)
            tables.append(np.bincount(place, minlength=int(np.prod(sizes))) / len(place))
        distances.append(np.abs(tables[0] - tables[1]).sum() / 2)
    return float(np.mean(distances))


def auc(case: Case, training: dict[str, Any], test: dict[str, Any]) -> float:
    """Return the AUC on test rows of gradient boosting that was trained on others."""
    target = case.schema.target
    assert target is not None
    features = [c.name for c in case.schema.released if c.name != target]
    model = HistGradientBoostingClassifier(max_iter=100, random_state=0)
    labels = training[target]
    if len(np.unique(labels)) < 2:
        return 0.5
    model.fit(np.column_stack([training[n] for n in features]), labels)
    found = model.predict_proba(np.column_stack([test[n] for n in features]))
    classes = np.arange(len(case.schema.column(target).levels))
    # A class that no row was made of has probability 0.
    scores = np.zeros((len(found), len(classes)))
    scores[:, model.classes_.astype(np.int64)] = found
    if len(classes) == 2:
        return float(roc_auc_score(test[target], scores[:, 1]))
    return float(roc_auc_score(test[target], scores, multi_class="ovr", labels=classes))


def measure(
    case: Case, epsilon: float, seed: int, *, cut: bool = False, target: bool = True
) -> dict[str, float]:
    """Return the figures of one release."""
    training, test = case.split(seed)
    method = SyntheticRelease(
        ApproxDP(epsilon=epsilon, delta=1e-6),
        schema=case.schema,
        cells=None if cut else case.cells,
        target=None if target else False,
        anyway=True,
        random_state=1000 + seed,
    )
    started = time.process_time()
    made = method.release(training)
    seconds = time.process_time() - started
    true, tested = encode(case, training), encode(case, test)
    columns = {name: np.asarray(values) for name, values in made.columns.items()}
    first, second = to_cells(case, true), to_cells(case, columns)
    numbers = [c.name for c in case.schema.released if not c.is_category]
    errors = [
        abs(np.nanmean(columns[n]) - np.nanmean(true[n])) / max(np.nanstd(true[n]), 1e-12) for n in numbers
    ]
    return {
        "auc": auc(case, columns, tested),
        **{f"tv{k}": total_variation(first, second, k) for k in (1, 2, 3)},
        "mean": float(np.mean(errors)) if errors else 0.0,
        "edges": len(method.model_["tree"]) - sum(parent is None for parent, _ in method.model_["tree"]),
        "further": len(method.model_["further"]),
        "cpu": seconds,
    }


def measure_coverage(epsilon: float, seeds: Sequence[int]) -> dict[str, float]:
    """Return how often intervals of the means of Adult hold, from tables and from rows taken as data."""
    case = adult()
    rows, _ = case.split(0)
    names = [column.name for column in case.schema.released if not column.is_category]
    held, as_data = [], []
    for seed in seeds:
        method = SyntheticRelease(
            ApproxDP(epsilon=epsilon, delta=1e-6),
            schema=case.schema,
            cells=case.cells,
            random_state=5000 + seed,
        )
        made = method.release(rows)
        statistics = TableStatistics(method.tables_)
        for name in names:
            (found,) = statistics.mean(name).cells
            assert found.lower is not None
            assert found.upper is not None
            values, true = np.asarray(made.columns[name]), rows[name].mean()
            held.append(found.lower <= true <= found.upper)
            as_data.append(abs(values.mean() - true) <= 1.96 * values.std() / len(values) ** 0.5)
    return {"means": len(held), "tables": float(np.mean(held)), "rows as data": float(np.mean(as_data))}


def describe(run: dict[str, Any]) -> str:
    """Return the name under which runs with other seeds are averaged."""
    how = [word for word, said in (("private cuts", run["cut"]), ("no target", not run["target"])) if said]
    return ", ".join([f"{run['table']}, epsilon {run['epsilon']:g}", *how])


def read_runs() -> dict[str, dict[str, Any]]:
    """Return all recorded runs by their settings, a later one in place of an earlier one."""
    lines = RUNS.read_text().splitlines() if RUNS.exists() else []
    runs = [json.loads(line) for line in lines]
    return {f"{describe(run)}, seed {run['seed']}": run for run in runs}


def record(kind: str, found: dict[str, dict[str, float]], digits: int = 3) -> None:
    """Write figures down, beside those of other kinds."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    rounded = {what: {k: round(v, digits) for k, v in one.items()} for what, one in found.items()}
    RESULTS.write_text(json.dumps({**known, kind: rounded}, indent=2, sort_keys=True) + "\n")


def average(runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the means of runs that differ by their seeds, and how many there are."""
    means = {name: float(np.mean([run["figures"][name] for run in runs])) for name in runs[0]["figures"]}
    return {"seeds": len(runs), **means}


def main() -> None:
    """Measure what is asked for, print it, and record it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", choices=[*sorted(CASES), "coverage"], nargs="+")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 1, 4, 10])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--cut", action="store_true", help="cut numbers by noisy counts, not as declared")
    parser.add_argument("--no-target", action="store_true", help="model all columns alike")
    parser.add_argument("--no-record", action="store_true", help="print alone, and write nothing down")
    parser.add_argument("--resume", action="store_true", help="leave out what is recorded already")
    options = parser.parse_args()
    for table in options.tables:
        if table == "coverage":
            held = {f"epsilon {e:g}": measure_coverage(e, options.seeds) for e in options.epsilons}
            print(held)
            if not options.no_record:
                record("intervals of means of Adult", held)
            continue
        measure_table(table, options)


def measure_table(table: str, options: argparse.Namespace) -> None:
    """Measure one table at all epsilons and seeds, and print the means over seeds."""
    try:
        case = CASES[table]()
    except FileNotFoundError as problem:
        print(f"{table} is left out: {Path(str(problem.filename)).name} is not in DISCREET_DATA.")
        return
    for epsilon in options.epsilons:
        runs = []
        for seed in options.seeds:
            run: dict[str, Any] = {"table": table, "epsilon": epsilon, "seed": seed}
            run |= {"cut": options.cut, "target": not options.no_target}
            known = read_runs().get(f"{describe(run)}, seed {seed}") if options.resume else None
            figures = measure(case, epsilon, seed, cut=run["cut"], target=run["target"]) if not known else {}
            run = known or run | {"figures": {name: round(value, 5) for name, value in figures.items()}}
            runs.append(run)
            if not known and not options.no_record:
                with RUNS.open("a") as lines:
                    lines.write(json.dumps(run) + "\n")
        named = ", ".join(f"{k} {v:.3f}" for k, v in average(runs).items())
        print(f"{describe(runs[0])}: {named}", flush=True)
    if not options.no_record:
        groups: dict[str, list[dict[str, Any]]] = {}
        for run in read_runs().values():
            groups.setdefault(describe(run), []).append(run)
        record("quality", {what: average(runs) for what, runs in groups.items()})


if __name__ == "__main__":
    main()
