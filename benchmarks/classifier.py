"""The classifier that nobody has to choose, beside every other one of ours, DP-EBM and diffprivlib.

    python benchmarks/classifier.py run [--only ours others peers] [--tables adult pima] [--seeds 5]
    python benchmarks/classifier.py report

The first takes hours and goes on where it was stopped; runs are appended to
``benchmarks/results/classifier.jsonl``. The second writes ``benchmarks/results/classifier.json`` and the
tables of ``docs/explanation/classifier-results.md``.

Accuracy on rows kept away from training: one fifth, drawn anew for each of five seeds; on the census the rows
that its publishers kept away. The promise is (epsilon, 1e-6). All learners have their defaults; ranges
are round constants (``classifier_tables.py``). DP-EBM promises add-remove neighbors and two classes only; it
reads the number of rows and the levels of categories off the rows. diffprivlib promises (epsilon, 0), its
forest and its naive Bayes for add-remove neighbors. Each has an environment of its own, the interpreter that
``DISCREET_EBM`` or ``DISCREET_DIFFPRIVLIB`` names, or else one that is made inside this environment, once.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import dataclasses
import itertools
import json
import math
import subprocess
import sys
import time
import zlib
from dataclasses import asdict, astuple, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from classifier_tables import TABLES as EARLIER
from classifier_unseen import FRESH, LATER, PRACTICE, UNSEEN
from measure import save
from peers import PINNED, Peer, versions
from sulq_tables import Registered, Table

from discreet import ApproxDP, learn
from discreet.errors import PromiseError
from discreet.privacy.calibration import gaussian_mu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
RUNS = HERE / "results" / "classifier.jsonl"
PAGE = HERE.parent / "docs" / "explanation" / "classifier-results.md"
BEGIN, END = "% begin results\n", "% end results\n"
EBM = "interpret-core==0.7.8"
EPSILONS = (0.1, 1.0, 10.0)
DELTA = 1e-6
SEEDS = 5
BOTH = ("replace-one", "add-remove")
TABLES = EARLIER | PRACTICE | UNSEEN | LATER | FRESH
GROUPS = ("tables that rules were chosen on", "unseen tables", "tables made later", "fresh tables")
"""Groups of tables, marked by as many stars; of all but the last it was seen where it falls short."""
WHOM = ("the best in hindsight", "DP-EBM", "the best of diffprivlib")
ON_SUMS: dict[str, Callable[..., Any]] = {
    "naive-bayes": learn.PrivateNaiveBayes,
    "gradient-logistic": learn.PrivateGradientLogistic,
    "gradient-logistic in cells": lambda **given: learn.PrivateGradientLogistic(n_bins="auto", **given),
    "id3": learn.PrivateID3Classifier,
}
ON_ROWS = ("logistic", "large-margin-gaussian", "svm")
"""Learners that perturb an objective; they are given the same coordinates, and how long a row can be."""
LARGE, SLOWEST = ("adult", "lending"), "large-margin-gaussian"
SHORT = {
    "naive-bayes": "NB", "gradient-logistic": "GL", "gradient-logistic in cells": "GLc", "id3": "ID3",
    "logistic": "LR", "large-margin-gaussian": "LM", "svm": "SVM",
}  # fmt: skip
DIFFPRIVLIB = ("logistic regression", "naive Bayes", "forest")


@dataclass(frozen=True)
class Run:
    """What is run: a learner on one split of a table under one promise."""

    method: str
    table: str
    epsilon: float
    seed: int
    neighbors: str = "replace-one"


def queue(tables: list[str], seeds: int, only: list[str]) -> Iterator[Run]:
    """Yield all runs, whole seeds one after the other."""
    for seed, table, epsilon in itertools.product(range(seeds), tables, EPSILONS):
        if "ours" in only:
            yield from (Run("classifier", table, epsilon, seed, neighbors) for neighbors in BOTH)
        if "others" in only:
            # Minutes for each fit of a large table, on which splits hardly differ.
            slow = (SLOWEST,) if seed and table in LARGE else ()
            names = (name for name in (*ON_SUMS, *ON_ROWS) if name not in slow)
            yield from (Run(name, table, epsilon, seed) for name in names)
        if "peers" in only:
            yield Run("DP-EBM", table, epsilon, seed, "add-remove")
            yield from (Run(f"diffprivlib {name}", table, epsilon, seed) for name in DIFFPRIVLIB)


class Split:
    """One split of a table, put into an engine once for each relation of neighbors."""

    def __init__(self, table: Table, seed: int) -> None:
        self.table, self.seed = table, seed
        self.train, self.test = table.split(seed)
        self.name = f"{table.name} {0 if table.training else seed}"

    @cache  # noqa: B019 - splits live as long as the program needs them
    def registered(self, neighbors: str) -> Registered:
        """Return the training rows in an engine."""
        schema = dataclasses.replace(self.table.schema, neighbors=neighbors)  # type: ignore[arg-type]
        return Registered(self.train, schema)

    @property
    def vote(self) -> float:
        """Accuracy of naming the class that is most common among the training rows."""
        target = self.table.target
        return float((self.test[target] == self.train[target].mode()[0]).mean())

    def codes(self, rows: Any) -> Any:
        """Return the labels of rows as numbers."""
        levels = sorted(map(str, self.table.schema.column(self.table.target).levels))
        return rows[self.table.target].map({level: code for code, level in enumerate(levels)}).to_numpy()

    def matrices(self) -> dict[str, Any]:
        """Return rows as coordinates for those who know no schema."""
        X, lower, norm = self.table.vectors(self.train)
        return {
            "X": X, "y": self.codes(self.train), "X_test": self.table.vectors(self.test)[0],
            "y_test": self.codes(self.test), "lower": lower, "upper": lower + 1,
            "classes": len(self.table.schema.column(self.table.target).levels), "norm": norm,
        }  # fmt: skip

    def columns(self) -> dict[str, Any]:
        """Return rows as they are for DP-EBM: numbers with their ranges, levels as codes."""
        features = self.table.schema.features
        found: dict[str, Any] = {
            "kinds": ["nominal" if c.is_category else "continuous" for c in features],
            "lower": [0.0 if c.is_category else c.range[0] for c in features],
            "upper": [1.0 if c.is_category else c.range[1] for c in features],
            "y": self.codes(self.train),
            "y_test": self.codes(self.test),
        }
        for name, rows in (("X", self.train), ("X_test", self.test)):
            parts = []
            for c in features:
                if c.is_category:
                    places = {level: code for code, level in enumerate(c.levels)}
                    parts.append([float(places.get(v, -1)) for v in rows[c.name]])
                else:
                    # It refuses missing cells; the middle of the range is public.
                    values = rows[c.name].to_numpy(np.float64).clip(*c.range)
                    parts.append(np.where(np.isnan(values), sum(c.range) / 2, values).tolist())
            found[name] = np.array(parts).T
        return found


def noise_seed(run: Run) -> int:
    """Return a seed of its own for each run: under a common one, luck would be common to all tables."""
    return zlib.crc32(repr(astuple(run)).encode())


def measure_sums(run: Run, split: Split) -> dict[str, Any]:
    """Return what a learner on noisy sums came to; where all its questions are refused, the vote."""
    make = learn.PrivateClassifier if run.method == "classifier" else ON_SUMS[run.method]
    privacy = ApproxDP(epsilon=run.epsilon, delta=DELTA, neighbors=run.neighbors)  # type: ignore[arg-type]
    sums = split.registered(run.neighbors).sums(noise_seed(run))
    started = time.process_time()
    try:
        model = make(privacy=privacy).fit_database(sums)
    except PromiseError:
        return {"accuracy": split.vote, "refused": True}
    seconds = time.process_time() - started
    features = list(split.table.layout.names)
    return {
        "accuracy": float(model.score(split.test[features], split.test[split.table.target])),
        "seconds": seconds,
    }


def measure_rows(run: Run, split: Split) -> dict[str, Any]:
    """Return what a learner that perturbs an objective came to."""
    rows = split.matrices()
    privacy = ApproxDP(epsilon=run.epsilon, delta=DELTA)
    make: Any = learn.METHODS[run.method]
    model = make(
        privacy=privacy, norm_bound=rows["norm"], classes=range(rows["classes"]), random_state=noise_seed(run)
    )
    started = time.process_time()
    model.fit(rows["X"], rows["y"])
    seconds = time.process_time() - started
    return {"accuracy": float(model.score(rows["X_test"], rows["y_test"])), "seconds": seconds}


class Peers:
    """The interpreters of both peers, started when first asked."""

    @cache  # noqa: B019 - there is one
    def ebm(self) -> Peer:
        """Return the interpreter that has DP-EBM."""
        return Peer(_ebm_interpreter(), str(HERE / "classifier_worker.py"))

    @cache  # noqa: B019 - there is one
    def diffprivlib(self) -> Peer:
        """Return the interpreter that has diffprivlib."""
        return Peer()

    def measure(self, run: Run, split: Split) -> dict[str, Any]:
        """Return what a peer came to, that it took too long, or why it failed."""
        job: dict[str, Any] = {"model": run.method.removeprefix("diffprivlib "), "epsilon": run.epsilon}
        if run.method == "DP-EBM":
            peer = self.ebm()
            path = peer.table(split.name, **split.columns())
        else:
            peer = self.diffprivlib()
            rows = split.matrices()
            path = peer.table(split.name, **rows)
            job["norm"] = rows["norm"]
        found = peer.fit(job | {"delta": DELTA, "seed": run.seed, "table": path})
        if found is None or "found" not in found:
            return {"failed": "took too long" if found is None else found["failed"]}
        return {"accuracy": found["found"], "seconds": found["seconds"]}


def _ebm_interpreter() -> str:
    """Return a Python that has interpret-core; make one if none is named."""
    named = os.environ.get("DISCREET_EBM")
    if named:
        return named
    folder = Path(sys.prefix) / "peers" / "ebm"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print("making an environment for DP-EBM", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", EBM, "scikit-learn"], check=True)
        (folder / "ready").touch()
    return str(python)


def can_run(run: Run, table: Table) -> bool:
    """Return whether a learner exists and takes a table of this many classes."""
    if run.method == "classifier":
        return hasattr(learn, "PrivateClassifier")
    if run.method == "svm":
        return hasattr(learn, "PrivateSVM")
    return run.method != "DP-EBM" or len(table.schema.column(table.target).levels) == 2


def read_runs(path: Path) -> dict[Run, dict[str, Any]]:
    """Return all runs on record with what they came to."""
    found: dict[Run, dict[str, Any]] = {}
    if path.exists():
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            found[Run(**{name: entry.pop(name) for name in Run.__dataclass_fields__})] = entry
    return found


def run_all(path: Path, tables: list[str], seeds: int, only: list[str]) -> None:
    """Make every run that is not on record, and append it."""
    done = read_runs(path)
    peers = Peers()
    split: Split | None = None
    made: dict[str, Table] = {}
    for run in queue(tables, seeds, only):
        if run in done:
            continue
        if run.table not in made:
            made[run.table] = TABLES[run.table]()
        table = made[run.table]
        if not can_run(run, table):
            continue
        if split is None or (split.table is not table or split.seed != run.seed):
            split = Split(table, run.seed)
        measure = (
            measure_sums if run.method in (*ON_SUMS, "classifier")
            else measure_rows if run.method in ON_ROWS else peers.measure
        )  # fmt: skip
        found = measure(run, split) | {"vote": split.vote, "n": len(split.train)}
        found = {k: round(v, 5) if isinstance(v, float) else v for k, v in found.items()}
        with path.open("a") as record:
            record.write(json.dumps(asdict(run) | found) + "\n")
        print(*asdict(run).values(), found, flush=True)


def group_of(table: str) -> str:
    """Return what part a table had in the choice of rules."""
    return GROUPS[3 if table in FRESH else 2 if table in LATER else 1 if table in UNSEEN else 0]


def signal(entry: dict[str, Any], table: Table, epsilon: float, neighbors: str = "replace-one") -> float:
    """Return rows for each standard deviation of noise on one cell, the number that steers the classifier."""
    moved = 2 if neighbors == "replace-one" else 1
    return float(entry["n"] * gaussian_mu(epsilon, DELTA) / math.sqrt(moved * len(table.schema.features)))


def _common_seeds(runs: dict[Run, dict[str, Any]], table: str, epsilon: float) -> list[int]:
    """Return the seeds that ours and all others have been run with: splits of a small table differ a lot."""
    methods = ["classifier", *ON_SUMS, *ON_ROWS]
    if table in LARGE:
        methods.remove(SLOWEST)
    seeds = [{seed for seed in range(SEEDS) if Run(m, table, epsilon, seed) in runs} for m in methods]
    return sorted(set.intersection(*(found for found in seeds if found)) if any(seeds) else set())


def _mean(runs: dict[Run, dict[str, Any]], seeds: list[int], *what: Any) -> tuple[float, float, int] | None:
    """Return mean accuracy, its standard error over seeds, and their number; None if there is no run."""
    method, table, epsilon, neighbors = what
    found = [runs.get(Run(method, table, epsilon, seed, neighbors), {}) for seed in seeds]
    values = [one["accuracy"] for one in found if "accuracy" in one]
    if not values:
        return None
    error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
    return float(np.mean(values)), error, len(values)


def summarize(runs: dict[Run, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each table and epsilon: what every learner came to, and the best in hindsight."""
    rows = []
    for name in dict.fromkeys(run.table for run in runs):
        table = TABLES[name]()
        for epsilon in EPSILONS:
            entries = [e for r, e in runs.items() if (r.table, r.epsilon) == (name, epsilon)]
            if not entries:
                continue
            row: dict[str, Any] = {"table": name, "epsilon": epsilon, "group": group_of(name)}
            row["S"] = signal(entries[0], table, epsilon)
            votes = {r.seed: e["vote"] for r, e in runs.items() if (r.table, r.epsilon) == (name, epsilon)}
            seeds = row["seeds"] = _common_seeds(runs, name, epsilon)
            row["vote"] = float(np.mean([votes[seed] for seed in seeds]))
            for neighbors in BOTH:
                row[f"classifier, {neighbors}"] = _mean(runs, seeds, "classifier", name, epsilon, neighbors)
            row["DP-EBM"] = _mean(runs, seeds, "DP-EBM", name, epsilon, "add-remove")
            others = {m: _mean(runs, seeds, m, name, epsilon, "replace-one") for m in (*ON_SUMS, *ON_ROWS)}
            peers = {
                m: _mean(runs, seeds, f"diffprivlib {m}", name, epsilon, "replace-one") for m in DIFFPRIVLIB
            }
            row["others"], row["diffprivlib"] = _best(others), _best(peers)
            rows.append(row)
    return rows


def _best(found: dict[str, Any]) -> dict[str, Any] | None:
    """Return all means with the largest; None if nothing was run."""
    known = {name: value for name, value in found.items() if value is not None}
    if not known:
        return None
    name = max(known, key=lambda key: known[key][0])
    return {"best": name, "accuracy": known[name][0], "all": known}


def count(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers that the classifier is held to."""
    ours = [row for row in rows if row["classifier, replace-one"] is not None]
    counts: dict[str, Any] = {}
    for group in (*GROUPS, "all tables"):
        own = [row for row in ours if group in (row["group"], "all tables")]
        near = [
            row["classifier, replace-one"][0] >= row["others"]["accuracy"] - 0.01
            for row in own
            if row["S"] >= 20 and row["others"]
        ]
        below = [
            f"{row['table']} {row['epsilon']:g}"
            for row in own
            if row["S"] >= 5
            and row["classifier, replace-one"][0] < row["vote"] - 0.01 - 2 * row["classifier, replace-one"][1]
        ]
        counts[group] = {
            "cells with S of 20 or more": len(near),
            "within a point of the best in hindsight": sum(near),
            "more than a point below the vote, S of 5 or more": below,
            "ahead of DP-EBM, points": _ahead(own, "classifier, add-remove", "DP-EBM"),
            "ahead of the best of diffprivlib, points": _ahead(own, "classifier, add-remove", "diffprivlib"),
            "ahead of the best in hindsight, points": _ahead(own, "classifier, replace-one", "others"),
        }
    return counts


def _ahead(rows: list[dict[str, Any]], ours: str, theirs: str) -> dict[str, float]:
    """Return by how many points ours is ahead on the mean over tables, at each epsilon."""
    found = {}
    for epsilon in EPSILONS:
        pairs = [(r[ours][0], r[theirs]) for r in rows if r["epsilon"] == epsilon and r[ours] and r[theirs]]
        if pairs:
            values = [a - (b["accuracy"] if isinstance(b, dict) else b[0]) for a, b in pairs]
            found[f"{epsilon:g}"] = round(100 * float(np.mean(values)), 2)
    return found


def write_table(rows: list[dict[str, Any]]) -> str:
    """Return accuracies at all epsilon as a table of Markdown, one line for each table."""
    lines = [
        "| table | S | vote | best of the others in hindsight | **classifier** | classifier, add-remove "
        "| DP-EBM | diffprivlib |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["table"] for row in rows):
        own = [row for row in rows if row["table"] == name]
        cells = [
            name + "*" * list(GROUPS).index(own[0]["group"]),
            " / ".join(f"{row['S']:.0f}" for row in own),
            _number(own[0]["vote"]),
            " / ".join(
                f"{_number(row['others']['accuracy'])} {SHORT[row['others']['best']]}"
                if row["others"]
                else "-"
                for row in own
            ),
            " / ".join(_bold(row["classifier, replace-one"]) for row in own),
            " / ".join(_number(row["classifier, add-remove"]) for row in own),
            " / ".join(_number(row["DP-EBM"]) for row in own),
            " / ".join(_number(row["diffprivlib"] and row["diffprivlib"]["accuracy"]) for row in own),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _number(value: Any) -> str:
    if value is None:
        return "-"
    number = value[0] if isinstance(value, tuple | list) else value
    return f"{number:.3f}".removeprefix("0")


def _bold(value: Any) -> str:
    return "-" if value is None else f"**{_number(value)}**"


def write_results(rows: list[dict[str, Any]]) -> str:
    """Return the results section of the page: sentences that count, and a table."""
    parts = []
    for group, found in count(rows).items():
        below = found["more than a point below the vote, S of 5 or more"]
        near = found["within a point of the best in hindsight"], found["cells with S of 20 or more"]
        ahead = [_points(found, w) for w in ("the best in hindsight", "DP-EBM", "the best of diffprivlib")]
        sentence = (
            f"- **{group[0].upper()}{group[1:]}.** Where S is 20 or more it is within a point of the best of "
            f"ours in hindsight in {near[0]} of {near[1]} pairs of table and epsilon. On the mean at epsilon "
            f".1 / 1 / 10 it is ahead of that best by {ahead[0]}, and under add-remove neighbors "
            f"of DP-EBM by {ahead[1]} and of the best of diffprivlib by {ahead[2]} points. "
        )
        sentence += (
            f"A point and two standard errors below the vote with S of 5 or more: {', '.join(below)}."
            if below
            else "Nowhere with S of 5 or more is it a point and two standard errors below the vote."
        )
        parts.append(sentence)
    return "\n" + "\n".join(parts) + "\n\n" + write_table(rows) + "\n\n"


def _points(found: dict[str, Any], whom: str) -> str:
    return " / ".join(f"{value:.1f}" for value in found[f"ahead of {whom}, points"].values()) or "-"


def report(path: Path) -> None:
    """Write what was found where it is committed, and print the tables."""
    runs = read_runs(path)
    rows = sorted(summarize(runs), key=lambda row: (list(TABLES).index(row["table"]), row["epsilon"]))
    failed = sorted({f"{r.method} {r.table}: {e['failed']}" for r, e in runs.items() if "failed" in e})
    save(
        "classifier",
        {
            "versions": versions() | {"peers": [EBM, *PINNED]},
            "settings": {
                "delta": DELTA,
                "seeds": SEEDS,
                "unseen": list(UNSEEN),
                "later": list(LATER),
                "fresh": list(FRESH),
            },
            "counts": count(rows),
            "cells": rows,
            "failed": failed,
        },
    )
    text = write_results(rows)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + text + END + rest.partition(END)[2])
    print(text)


def main() -> None:
    """Run what is missing, or report what there is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("run", "report"))
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument(
        "--only", nargs="+", choices=("ours", "others", "peers"), default=("ours", "others", "peers")
    )
    options = parser.parse_args()
    if options.command == "run":
        run_all(options.runs, options.tables, options.seeds, options.only)
    else:
        report(options.runs)


if __name__ == "__main__":
    main()
