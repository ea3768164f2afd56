"""How good private components and clusters are, with diffprivlib beside them where it can be run.

``python benchmarks/sulq_unsupervised.py [--seeds 20] [--peer /path/to/python]``

Bounds are those of the tables' documentation or of how they are made; nothing is read off the rows. Ours
promise (epsilon, 1e-6), diffprivlib the stronger (epsilon, 0). Scores are over the best that is known without
privacy: variance captured by as many components (more is better, at most 1), mean squared distance from the
nearest center (less is better, about 1 at best). The interpreter of ``--peer`` has diffprivlib and a
scikit-learn that it still works with.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

EPSILONS = (0.1, 1.0, 10.0)
DELTA = 1e-6
PEER_SECONDS = 40.0


def tables() -> dict[str, tuple[str, Any, int]]:
    """Return task, rows in the unit cube and number of components or clusters, by name."""
    from discreet.noise import Stream

    random = Stream.from_seed(20).generator()
    turn = np.linalg.qr(random.normal(size=(20, 20)))[0]
    spread = np.array([0.15, 0.125, 0.1, 0.075] + [0.02] * 16)
    plane = np.clip(0.45 + (random.normal(size=(100_000, 20)) * spread) @ turn.T, 0, 1)

    def blobs(low: float, high: float, sd: float) -> Any:
        centers = random.uniform(low, high, (8, 10))
        rows = centers[random.integers(8, size=100_000)]
        return np.clip(rows + sd * random.normal(size=rows.shape), 0, 1)

    digits = load_digits().data / 16
    return {
        "pca: 100,000 x 20": ("pca", plane, 4),
        "pca: digits": ("pca", digits, 10),
        "k-means: 8 clusters in the box": ("kmeans", blobs(0.2, 0.8, 0.05), 8),
        "k-means: 8 clusters that overlap": ("kmeans", blobs(0.2, 0.8, 0.12), 8),
        "k-means: 8 clusters in a corner": ("kmeans", blobs(0.1, 0.35, 0.02), 8),
        "k-means: digits": ("kmeans", digits, 10),
    }


def best(task: str, X: Any, k: int) -> float:
    """Return what is possible without privacy."""
    if task == "pca":
        return float(np.sort(np.linalg.eigvalsh(np.cov(X.T)))[::-1][:k].sum())
    starts = [KMeans(k, n_init=4, random_state=i).fit(X[:20_000]).cluster_centers_ for i in range(3)]
    return min(quality(task, X, start) for start in starts)


def quality(task: str, X: Any, found: Any) -> float:
    """Return the variance along components, or the mean squared distance from centers."""
    if task == "pca":
        return float(np.trace(found @ np.cov(X.T) @ found.T))
    squares = (X**2).sum(axis=1)[:, None] + (found**2).sum(axis=1) - 2 * X @ found.T
    return float(squares.min(axis=1).mean())


def ours(task: str, X: Any, k: int, epsilon: float, seed: int) -> Any:
    """Return components or centers, and fit as a user would."""
    from discreet import ApproxDP
    from discreet.learn import PrivateKMeans, PrivatePCA

    privacy = ApproxDP(epsilon=epsilon, delta=DELTA)
    if task == "pca":
        return (
            PrivatePCA(n_components=k, privacy=privacy, bounds=(0, 1), random_state=seed).fit(X).components_
        )
    model = PrivateKMeans(n_clusters=k, privacy=privacy, bounds=(0, 1), random_state=seed).fit(X)
    return model.cluster_centers_


def peers(task: str, X: Any, k: int, epsilon: float, seed: int) -> Any:
    """Return the same from diffprivlib; only its own interpreter gets here."""
    import warnings

    from diffprivlib import models  # type: ignore[import-not-found,unused-ignore]

    warnings.simplefilter("ignore")
    if task == "pca":
        norm = float(np.sqrt(X.shape[1])) / 2
        model = models.PCA(
            k, epsilon=epsilon, centered=False, bounds=(-0.5, 0.5), data_norm=norm, random_state=seed
        )
        return model.fit(X - 0.5).components_
    return models.KMeans(k, epsilon=epsilon, bounds=(0, 1), random_state=seed).fit(X).cluster_centers_


def quartiles(values: list[float]) -> list[float]:
    """Return three quartiles, rounded."""
    return [round(float(value), 3) for value in np.quantile(values, (0.25, 0.5, 0.75))]


def from_peer(python: str, folder: str, name: str, task: str, k: int, epsilon: float, seed: int) -> Any:
    """Fit diffprivlib in its own interpreter; "too slow" or "failed" where it has no result."""
    path = Path(folder)
    command = [python, __file__, "--one", name, task, str(k), str(epsilon), str(seed), folder]
    try:
        subprocess.run(command, check=True, timeout=PEER_SECONDS, capture_output=True)
    except subprocess.TimeoutExpired:
        return "too slow"
    except subprocess.CalledProcessError:
        return "failed"
    return np.load(path / "found.npy")


def main() -> None:
    """Run, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--peer", help="interpreter that has diffprivlib")
    parser.add_argument("--one", nargs=6, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        name, task, k, epsilon, seed, folder = asked.one
        rows = np.load(Path(folder) / f"{name}.npy")
        np.save(Path(folder) / "found.npy", peers(task, rows, int(k), float(epsilon), int(seed)))
        return
    from benchmarks.measure import save

    results: dict[str, Any] = {"delta": DELTA, "seeds": asked.seeds, "tables": {}}
    with tempfile.TemporaryDirectory() as folder:
        for place, (title, (task, X, k)) in enumerate(tables().items()):
            np.save(Path(folder) / f"{place}.npy", X)
            least = best(task, X, k)
            for epsilon in EPSILONS:
                start = time.perf_counter()
                scores = [quality(task, X, ours(task, X, k, epsilon, s)) / least for s in range(asked.seeds)]
                seconds = (time.perf_counter() - start) / asked.seeds
                row: dict[str, Any] = {"ours": quartiles(scores), "seconds": round(seconds, 2)}
                if asked.peer:
                    found = [
                        from_peer(asked.peer, folder, str(place), task, k, epsilon, seed)
                        for seed in range(min(asked.seeds, 5))
                    ]
                    theirs = [quality(task, X, one) / least for one in found if not isinstance(one, str)]
                    row["diffprivlib"] = quartiles(theirs) if theirs else None
                    for why in ("too slow", "failed"):
                        row[f"diffprivlib {why}"] = sum(isinstance(one, str) and one == why for one in found)
                results["tables"].setdefault(title, {})[str(epsilon)] = row
                print(title, epsilon, json.dumps(row), flush=True)
    save("sulq_unsupervised", results)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main()
