"""How good private components and clusters are, with diffprivlib beside them in the same run.

Bounds are those of the tables' documentation or of how they are made; nothing is read off the rows. Ours
promise (epsilon, 1e-6) and, "pure", (epsilon, 0); diffprivlib promises (epsilon, 0). Scores are over the best
that is known without privacy: variance captured by as many components (more is better, at most 1), mean
squared distance from the nearest center (less is better, about 1 at best), both in units of the declared
ranges.

Constants of the learners (shares of the passes, radii, spare centers) were chosen on the made-up tables and
on digits; census, waveform, segment and mnist-25 were not looked at. Seeds change the noise alone.
``DISCREET_BENCH_SEEDS=2`` makes a short run, which is not saved. diffprivlib's interpreter: see ``peers.py``.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
from typing import Any

import numpy as np
import pandas as pd
import sulq_tables
from measure import save
from peers import SECONDS, Peer, versions
from sklearn.cluster import KMeans
from sulq_tables import Registered, Table, quartiles

from discreet import ApproxDP, Column, PureDP, Schema
from discreet.learn import PrivateKMeans, PrivatePCA
from discreet.noise import Stream

SEEDS = int(os.environ.get("DISCREET_BENCH_SEEDS", "20"))
EPSILONS = (0.1, 1.0, 10.0)
DELTA = 1e-6
COMPONENTS = {"100,000 x 20": 4, "digits": 10, "census": 10, "waveform": 2, "segment": 5, "mnist-25": 8}
CLUSTERS = {"8 in the box": 8, "digits": 10, "census": 8, "waveform": 3, "segment": 7, "mnist-25": 10}


def made_up() -> dict[str, Table]:
    """Return tables whose structure is known: a plane, and clusters."""
    random = Stream.from_seed(20).generator()
    turn = np.linalg.qr(random.normal(size=(20, 20)))[0]
    spread = np.array([0.15, 0.125, 0.1, 0.075] + [0.02] * 16)
    plane = np.clip(0.45 + (random.normal(size=(100_000, 20)) * spread) @ turn.T, 0, 1)

    def blobs(low: float, high: float, sd: float) -> Any:
        centers = random.uniform(low, high, (8, 10))
        rows = centers[random.integers(8, size=100_000)]
        return np.clip(rows + sd * random.normal(size=rows.shape), 0, 1)

    return {
        "100,000 x 20": _cube("100,000 x 20", plane),
        "8 in the box": _cube("8 in the box", blobs(0.2, 0.8, 0.05)),
    }


def _cube(name: str, X: Any) -> Table:
    columns = [Column(f"x{i}", lower=0, upper=1) for i in range(X.shape[1])]
    return Table(name, pd.DataFrame(X, columns=[c.name for c in columns]), Schema(columns=columns))


class Task:
    """Components or clusters of one table: what is possible, and how good others are."""

    def __init__(self, kind: str, table: Table, k: int) -> None:
        self.kind, self.table, self.k = kind, table, k
        self.X = table.coordinates()
        self._covariance = np.cov(self.X.T)
        self.features = table.rows[list(table.layout.names)]
        self._best = self._possible()

    def _possible(self) -> float:
        if self.kind == "pca":
            return float(np.linalg.eigvalsh(self._covariance)[::-1][: self.k].sum())
        some = self.X[:20_000]
        starts = [KMeans(self.k, n_init=4, random_state=i).fit(some).cluster_centers_ for i in range(3)]
        return min(self._distance(start) for start in starts)

    def _distance(self, centers: Any) -> float:
        squares = (self.X**2).sum(axis=1)[:, None] + (centers**2).sum(axis=1) - 2 * self.X @ centers.T
        return float(squares.min(axis=1).mean())

    def score(self, found: Any) -> float:
        """Return how good components or centers are, over the best."""
        if self.kind == "pca":
            return float(np.trace(found @ self._covariance @ found.T)) / self._best
        return self._distance(found) / self._best

    def learner(self, privacy: Any) -> Any:
        """Return our learner, all else as it is by default."""
        if self.kind == "pca":
            return PrivatePCA(n_components=self.k, range_units=True, privacy=privacy)
        return PrivateKMeans(n_clusters=self.k, privacy=privacy)

    def found(self, model: Any) -> Any:
        """Return components or centers of a fitted model, in units of the declared ranges."""
        if self.kind == "pca":
            return model.components_
        return (model.cluster_centers_ - self.table.layout.lower) / self.table.layout.width

    def seconds(self) -> dict[str, float]:
        """Return the least wall time and processor time of three fits to rows in memory, at epsilon 1."""
        taken = []
        for _ in range(3):
            model = self.learner(ApproxDP(epsilon=1.0, delta=DELTA)).set_params(
                schema=self.table.layout.schema, random_state=0
            )
            start = time.perf_counter(), time.process_time()
            model.fit(self.features)
            taken.append((time.perf_counter() - start[0], time.process_time() - start[1]))
        wall, processor = np.min(taken, axis=0)
        return {"wall": round(float(wall), 2), "processor": round(float(processor), 2)}

    def peers(self, peer: Peer, epsilon: float, seed: int) -> tuple[Any, float] | None:
        """Fit diffprivlib; return components or centers and the time, or None if there was not enough."""
        if self.kind == "pca":
            # Rows around the middle of what is declared are shorter, which is what its noise goes by.
            X, lower, norm = self.table.vectors(self.features)
            path = peer.table(f"pca {self.table.name}", X=X, lower=lower, upper=lower + 1)
        else:
            norm = 0.0
            sides = np.zeros(self.X.shape[1])
            path = peer.table(f"k-means {self.table.name}", X=self.X, lower=sides, upper=sides + 1)
        job = {"model": self.kind, "table": path, "k": self.k, "epsilon": epsilon, "seed": seed, "norm": norm}
        answer = peer.fit(job)
        return None if answer is None else (np.array(answer["found"]), float(answer["seconds"]))


def measured(task: Task, rows: Registered, peer: Peer, epsilon: float) -> dict[str, Any]:
    """Return the scores of one table at one epsilon."""
    row: dict[str, Any] = {}
    for label, privacy in (
        ("ours", ApproxDP(epsilon=epsilon, delta=DELTA)),
        ("ours, pure", PureDP(epsilon=epsilon)),
    ):
        fitted = [task.learner(privacy).fit_database(rows.sums(seed)) for seed in range(SEEDS)]
        row[label] = quartiles([task.score(task.found(model)) for model in fitted])
    fits = []
    for seed in range(SEEDS):
        fit = task.peers(peer, epsilon, seed)
        if fit is None:
            break  # The next seed would take as long.
        fits.append(fit)
    if fits:
        scores, seconds = [task.score(one) for one, _ in fits], float(np.mean([time for _, time in fits]))
        row["diffprivlib"] = quartiles(scores) | {"seconds": round(seconds, 3), "seeds": len(fits)}
    if len(fits) < SEEDS:
        row["diffprivlib took too long"] = f"seed {len(fits)} did not end in {SECONDS:g} s of processor time"
    return row


def compared(kind: str, name: str, epsilon: float, row: dict[str, Any]) -> list[str]:
    """Print one line; return where ours is behind, if it is."""
    ours, pure = row["ours"]["median"], row["ours, pure"]["median"]
    theirs = row.get("diffprivlib", {}).get("median")
    shown = "too slow" if theirs is None else f"{theirs:.3f}"
    line = f"{kind:8} {name:15} {epsilon:5g}  ours {ours:.3f}  pure {pure:.3f}  diffprivlib {shown}"
    print(line, flush=True)
    worse = theirs is not None and (ours < theirs if kind == "pca" else ours > theirs)
    return [f"{kind} {name} at {epsilon:g}"] if worse else []


def main() -> None:
    """Run, print, and write the results."""
    tables = made_up() | sulq_tables.made(
        {
            "digits": sulq_tables.digits,
            "census": sulq_tables.census,
            "waveform": sulq_tables.waveform,
            "segment": sulq_tables.segment,
            "mnist-25": sulq_tables.mnist,
        }
    )
    result: dict[str, Any] = {"delta": DELTA, "seeds": SEEDS}
    behind = []
    with Peer() as peer:
        result["versions"] = versions() | peer.versions
        for kind, sizes in (("pca", COMPONENTS), ("k-means", CLUSTERS)):
            result[kind] = {}
            for name, k in sizes.items():
                if name not in tables:
                    continue
                task = Task(kind, tables[name], k)
                shape = {"rows": task.X.shape[0], "coordinates": task.X.shape[1], "k": k}
                result[kind][name] = shape | {"our seconds": task.seconds()}
                with Registered(task.features, task.table.layout.schema) as rows:
                    for epsilon in EPSILONS:
                        row = measured(task, rows, peer, epsilon)
                        result[kind][name][f"epsilon {epsilon:g}"] = row
                        behind += compared(kind, name, epsilon, row)
                print(f"{kind:8} {name:15} seconds a fit: {result[kind][name]['our seconds']}", flush=True)
                keep(result)
    result["behind diffprivlib"] = behind
    print("behind diffprivlib:", ", ".join(behind) or "nowhere")
    keep(result)


def keep(result: dict[str, Any]) -> None:
    """Write what there is so far, unless the run is a short one."""
    if SEEDS >= 20:
        save("sulq_unsupervised", result)


if __name__ == "__main__":
    main()
