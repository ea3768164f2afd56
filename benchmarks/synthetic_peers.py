"""Our synthetic release beside MST and AIM: the same rows, cells, promise and neighbors, settings untouched.

    python benchmarks/synthetic_peers.py run --runs RUNS.jsonl
    python benchmarks/synthetic_peers.py report --runs RUNS.jsonl

The first takes hours and goes on where it was stopped, by default after the runs that are committed in
``benchmarks/results/synthetic_peers.jsonl``; the second writes
``benchmarks/results/synthetic_peers.json`` and the tables of ``docs/explanation/synthetic-peers.md``.

The peers are those of dpmm, in an environment of their own: the interpreter that ``DISCREET_DPMM`` names, or
else one that is made inside this environment, once. They run with their default settings and iterations, on
one processor, and are given up after :data:`LIMITS` processor seconds, which is recorded. Rows and cells
are those of ``synthetic.py``, so are the measures: AUC of gradient boosting trained on made-up rows and
tested on others, and total variation of one, two and three columns. Every measure is taken on cells, for the
peers make nothing finer; the AUC of our rows as published is noted beside it.

Promises. Ours is replace-one. The peers promise add-remove: a replaced row moves two cells of a table, which
doubles the zCDP of their Gaussian noise, and the L1 score of a pair by two, which makes four times that of
their exponential mechanism. MST spends 2/3 and 1/3: it keeps our promise if its zCDP is divided by
2/3 * 2 + 1/3 * 4 = 8/3. AIM spends .9 and .1 of every round but the first, 1/16 of .9, which is Gaussian
alone: :data:`DIVISORS`. Runs under add-remove need no such factor; some are made to show what it is worth.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from synthetic import Case

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "explanation" / "synthetic-peers.md"
BEGIN, END = "% begin results\n", "% end results\n"
PINNED = ("dpmm==0.1.9",)
CHOSEN_ON = ("adult", "abalone", "waveform", "german")
"""Tables by which defaults of ours were chosen."""
UNTOUCHED = ("lending", "segment", "splice", "pima", "transfusion", "mammographic")
"""Tables that took no part in any choice."""
TABLES = (
    "adult",
    "lending",
    "abalone",
    "segment",
    "pima",
    "transfusion",
    "mammographic",
    "german",
    "waveform",
    "splice",
)
SMALL = ("abalone", "pima", "mammographic", "transfusion", "breast")
"""Tables of at most ten columns, on which AIM is run."""
ORDER = tuple(dict.fromkeys(TABLES + SMALL))
EPSILONS = (1.0, 4.0, 0.1, 10.0)
DELTA = 1e-6
SEEDS = 5
AIM_AFTER = 60
"""Runs of MST that come before the first one of AIM."""
LIMITS = {"mst": 1800, "aim": 1200}
DIVISORS = {"mst": 8 / 3, "aim": 0.9 / 16 * 2 + (1 - 0.9 / 16) * (0.9 * 2 + 0.1 * 4)}
MEASURES = ("auc", "tv1", "tv2", "tv3", "cpu")


@dataclass(frozen=True)
class Run:
    """What is run: a method on one split of a table under one promise."""

    method: str
    table: str
    epsilon: float
    seed: int
    neighbors: str = "replace-one"


def queue() -> Iterator[Run]:
    """Yield all runs of peers, those that tell most first."""
    seeds = range(SEEDS)
    mst = [Run("mst", t, e, s) for e, s, t in itertools.product(EPSILONS, seeds, TABLES)]
    aim = [Run("aim", t, e, s) for s, e, t in itertools.product(range(3), EPSILONS[:2], SMALL)]
    others = [Run("mst", t, 1.0, s, "add-remove") for s, t in itertools.product(seeds, TABLES)]
    yield from mst[:AIM_AFTER]
    yield from aim
    yield from mst[AIM_AFTER:]
    yield from others


def ours() -> Iterator[Run]:
    """Yield the same runs of ours, with the target and without one."""
    seen = dict.fromkeys(replace(run, method="ours") for run in queue())
    yield from seen
    yield from (replace(run, method="ours without target") for run in seen)


def interpreter() -> str:
    """Return a Python that has dpmm; make one if none is named."""
    named = os.environ.get("DISCREET_DPMM")
    if named:
        return named
    folder = Path(sys.prefix) / "peers" / "dpmm"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print("making an environment for dpmm", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PINNED], check=True)
        (folder / "ready").touch()
    return str(python)


def judge(case: Case, training: Any, test: Any, codes: dict[str, Any]) -> dict[str, float]:
    """Return the measures of made-up cells."""
    import synthetic

    true = synthetic.to_cells(case, synthetic.encode(case, training))
    tested = synthetic.to_cells(case, synthetic.encode(case, test))
    found = {"auc": synthetic.auc(case, codes, tested)}
    return found | {f"tv{k}": synthetic.total_variation(true, codes, k) for k in (1, 2, 3)}


def measure_ours(run: Run, case: Case) -> dict[str, Any]:
    """Return what our release came to, through `Database`, with lattice noise."""
    import synthetic

    from discreet import ApproxDP
    from discreet.release.synthetic import SyntheticRelease

    training, test = case.split(run.seed)
    method = SyntheticRelease(
        ApproxDP(epsilon=run.epsilon, delta=DELTA, neighbors=run.neighbors),  # type: ignore[arg-type]
        schema=replace(case.schema, neighbors=run.neighbors),  # type: ignore[arg-type]
        cells=case.cells,
        target=None if run.method == "ours" else False,
        n_records=len(training),
        anyway=True,
        random_state=1000 + run.seed,
    )
    started = time.process_time()
    made = method.release(training)
    seconds = time.process_time() - started
    columns = {name: np.asarray(values) for name, values in made.columns.items()}
    found = judge(case, training, test, synthetic.to_cells(case, columns))
    published = synthetic.auc(case, columns, synthetic.encode(case, test))
    return found | {"cpu": seconds, "auc of values": published}


def measure_peer(run: Run, case: Case) -> dict[str, Any]:
    """Return what a peer came to, or that it was given up, or why it failed."""
    import synthetic

    training, test = case.split(run.seed)
    true = synthetic.to_cells(case, synthetic.encode(case, training))
    counts = synthetic.count_cells(case)
    divisor = DIVISORS[run.method] if run.neighbors == "replace-one" else 1.0
    job = asdict(run) | {"delta": DELTA, "divisor": divisor, "limit": LIMITS[run.method]}
    with tempfile.TemporaryDirectory() as name:
        paths = [Path(name) / part for part in ("job.json", "codes.npz", "made.npz")]
        paths[0].write_text(json.dumps(job))
        np.savez(paths[1], codes=np.column_stack([true[c] for c in counts]), cells=list(counts.values()))
        # Nothing of ours is seen by the other interpreter, and no thread but its own is started.
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [interpreter(), str(HERE / "synthetic_worker.py"), *map(str, paths)],
            env=kept | threads, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode < 0:
            return {"unfinished": LIMITS[run.method], "signal": -done.returncode}
        if done.returncode:
            return {"failed": done.stderr.strip().splitlines()[-1][:300]}
        made = np.load(paths[2], allow_pickle=False)
        codes = {c: made["codes"][:, i].astype(np.int64) for i, c in enumerate(counts)}
        return judge(case, training, test, codes) | {"cpu": float(made["seconds"])}


def read_runs(path: Path) -> dict[Run, dict[str, Any]]:
    """Return all runs on record with what they came to."""
    found: dict[Run, dict[str, Any]] = {}
    if path.exists():
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            found[Run(**{name: entry.pop(name) for name in Run.__dataclass_fields__})] = entry
    return found


def run_all(path: Path, which: str) -> None:
    """Make every run that is not on record, and append it."""
    import synthetic

    done = read_runs(path)
    cases: dict[str, Case] = {}
    wanted = ours() if which == "ours" else queue() if which == "peers" else itertools.chain(ours(), queue())
    for run in wanted:
        if run in done:
            continue
        if run.table not in cases:
            cases[run.table] = synthetic.CASES[run.table]()
        measure = measure_ours if run.method.startswith("ours") else measure_peer
        found = measure(run, cases[run.table])
        with path.open("a") as record:
            record.write(json.dumps(asdict(run) | {k: _short(v) for k, v in found.items()}) + "\n")
        print(run, found, flush=True)


def _short(value: Any) -> Any:
    return round(value, 5) if isinstance(value, float) else value


def summarize(runs: dict[Run, dict[str, Any]], method: str = "ours") -> list[dict[str, Any]]:
    """Return means of ours and of a peer over the seeds that both finished, for every table and epsilon."""
    found = []
    for peer, neighbors in (("mst", "replace-one"), ("aim", "replace-one"), ("mst", "add-remove")):
        order = [(r.table, r.epsilon) for r in queue() if (r.method, r.neighbors) == (peer, neighbors)]
        for table, epsilon in dict.fromkeys(order):
            pairs = []
            for seed in range(SEEDS):
                both = [runs.get(Run(m, table, epsilon, seed, neighbors), {}) for m in (method, peer)]
                if all("auc" in one for one in both):
                    pairs.append(both)
            if pairs:
                found.append(
                    {"peer": peer, "neighbors": neighbors, "table": table, "epsilon": epsilon}
                    | {"seeds": len(pairs)} | _compare(pairs)
                )  # fmt: skip
    return found


def _compare(pairs: list[list[dict[str, float]]]) -> dict[str, Any]:
    """Return means of both, and the mean difference with its standard error where there are seeds for one."""
    result: dict[str, Any] = {}
    for name in MEASURES:
        values = np.array([[one[name] for one in both] for both in pairs])
        result[name] = {
            "ours": float(values[:, 0].mean()),
            "theirs": float(values[:, 1].mean()),
        }
        if len(values) > 1:
            errors = (values[:, 0] - values[:, 1]).std(ddof=1) / np.sqrt(len(values))
            result[name]["error of difference"] = float(errors)
    result["ahead in auc"] = result["auc"]["ours"] > result["auc"]["theirs"]
    result["ahead in tv2"] = result["tv2"]["ours"] < result["tv2"]["theirs"]
    return result


def count_wins(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return in how many pairs of table and epsilon ours is ahead, and the ratio of processor times."""
    counts: dict[str, Any] = {}
    for peer, neighbors in dict.fromkeys((row["peer"], row["neighbors"]) for row in rows):
        own = [row for row in rows if (row["peer"], row["neighbors"]) == (peer, neighbors)]
        for group, members in (("all", own), ("untouched", [r for r in own if r["table"] not in CHOSEN_ON])):
            counts[f"{peer}, {neighbors}, {group}"] = {
                "pairs": len(members),
                "ahead in auc": sum(r["ahead in auc"] for r in members),
                "ahead in tv2": sum(r["ahead in tv2"] for r in members),
                "ahead in both": sum(r["ahead in auc"] and r["ahead in tv2"] for r in members),
                "largest share of their time": max(
                    (r["cpu"]["ours"] / r["cpu"]["theirs"] for r in members), default=0.0
                ),
            }
    return counts


def list_unfinished(runs: dict[Run, dict[str, Any]]) -> dict[str, list[str]]:
    """Return the runs of peers that were given up or failed, and those not yet made."""
    lists: dict[str, list[str]] = {"unfinished": [], "failed": [], "not run": []}
    for run in queue():
        entry = runs.get(run)
        text = f"{run.method} {run.table} {run.epsilon:g} seed {run.seed} {run.neighbors}"
        if entry is None:
            lists["not run"].append(text)
        elif "unfinished" in entry:
            lists["unfinished"].append(f"{text}: stopped after {entry['unfinished']} s")
        elif "failed" in entry:
            lists["failed"].append(f"{text}: {entry['failed']}")
    return lists


def write_table(rows: list[dict[str, Any]], peer: str, neighbors: str) -> str:
    """Return the comparison with one peer as a table of Markdown."""
    lines = [
        "| table | epsilon | seeds | AUC: ours, theirs | 2-way TV: ours, theirs | 1-way TV | CPU s |",
        "|---|---:|---:|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda r: (ORDER.index(r["table"]), r["epsilon"])):
        if (row["peer"], row["neighbors"]) != (peer, neighbors):
            continue
        star = "" if row["table"] in CHOSEN_ON else "*"
        cells = [f"{row['table']}{star}", f"{row['epsilon']:g}", str(row["seeds"])]
        for name, smaller in (("auc", False), ("tv2", True), ("tv1", True)):
            mine, other = row[name]["ours"], row[name]["theirs"]
            texts = [f"{mine:.3f}", f"{other:.3f}"]
            if mine != other:
                ahead = int((mine > other) == smaller)
                texts[ahead] = f"**{texts[ahead]}**"
            cells.append(", ".join(texts))
        cells.append(f"{row['cpu']['ours']:.2f}, {row['cpu']['theirs']:.0f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def report(path: Path) -> None:
    """Write what was found where it is committed, and print the tables."""
    import measure

    runs = read_runs(path)
    rows, untold = summarize(runs), summarize(runs, "ours without target")
    lists = list_unfinished(runs)
    measure.save(
        "synthetic_peers",
        {
            "versions": {n: importlib.metadata.version(n) for n in ("discreet", "numpy", "scikit-learn")}
            | {"peers": PINNED[0]},
            "settings": {"delta": DELTA, "divisors": DIVISORS, "limits": LIMITS, "chosen on": CHOSEN_ON},
            "counts": count_wins(rows),
            "counts without target": count_wins(untold),
            "pairs": rows,
            "given up": lists["unfinished"],
            "failed": lists["failed"],
            "not run": len(lists["not run"]),
        },
    )
    text = write_results(rows, untold, lists)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + text + END + rest.partition(END)[2])
    print(text)


def write_results(
    rows: list[dict[str, Any]], untold: list[dict[str, Any]], lists: dict[str, list[str]]
) -> str:
    """Return the results section of the page: for each peer sentences that count, and a table."""
    counts, others = count_wins(rows), count_wins(untold)
    parts = []
    for peer, neighbors in dict.fromkeys((row["peer"], row["neighbors"]) for row in rows):
        own = [counts[f"{peer}, {neighbors}, {group}"] for group in ("all", "untouched")]
        sentences = [
            f"ours is ahead in AUC in {c['ahead in auc']} and in 2-way TV in {c['ahead in tv2']} of "
            f"{c['pairs']} pairs of table and epsilon"
            for c in own
            if c["pairs"]
        ]
        title = f"## {peer.upper()}" + (", one row more or fewer" if neighbors == "add-remove" else "")
        parts += [
            f"{title}\n",
            "O" + "; on tables with a star ".join(sentences)[1:] + ". "
            f"It takes at most {own[0]['largest share of their time']:.1%} of the processor time."
            + _write_untold(others.get(f"{peer}, {neighbors}, all"))
            + "\n",
            write_table(rows, peer, neighbors) + "\n",
        ]
    for name, title in (("unfinished", "Given up"), ("failed", "Failed")):
        if lists[name]:
            parts.append(f"{title}: {'; '.join(lists[name])}.\n")
    if lists["not run"]:
        parts.append(f"Of {len(list(queue()))} runs of peers, {len(lists['not run'])} were not made.\n")
    return "\n" + "\n".join(parts) + "\n"


def _write_untold(counts: dict[str, Any] | None) -> str:
    """Return the sentence about ours without a target, where it was run."""
    if counts is None:
        return ""
    return (
        f" Not told the target, ours is ahead in AUC in {counts['ahead in auc']} and in 2-way TV in "
        f"{counts['ahead in tv2']} of {counts['pairs']}."
    )


def main() -> None:
    """Run what is missing, or report what there is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("run", "report"))
    parser.add_argument("--runs", type=Path, default=HERE / "results" / "synthetic_peers.jsonl")
    parser.add_argument("--only", choices=("ours", "peers"), default="")
    options = parser.parse_args()
    if options.command == "run":
        run_all(options.runs, options.only)
    else:
        report(options.runs)


if __name__ == "__main__":
    main()
