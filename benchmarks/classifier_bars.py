"""What the default classifier is held to, beside what ``classifier.py`` measured: each line met or missed.

    python benchmarks/classifier_bars.py

Reads ``results/classifier.json``, adds 200 fits under seeds of their own on small tables, where the floor
matters, and writes ``results/classifier_bars.json``.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from classifier import DELTA, EPSILONS, HERE, TABLES, Split
from measure import save

from discreet import ApproxDP, learn
from discreet.privacy.calibration import gaussian_mu

PROTOTYPE = {
    "german": (0.674, 0.697, 0.736), "australian": (0.586, 0.857, 0.867), "pima": (0.640, 0.682, 0.764),
    "blood": (0.774, 0.777, 0.788), "mammo": (0.587, 0.778, 0.790), "abalone": (0.737, 0.746, 0.747),
    "breast": (0.742, 0.914, 0.963), "heart": (0.514, 0.735, 0.815), "wdbc": (0.711, 0.915, 0.934),
    "waveform": (0.688, 0.799, 0.815), "segment": (0.264, 0.797, 0.861), "splice": (0.523, 0.875, 0.948),
    "spliceb": (0.619, 0.897, 0.933), "adult": (0.839, 0.854, 0.855), "lending": (0.847, 0.847, 0.846),
}  # fmt: skip
"""Accuracy of the prototype, in which the rules were first tried, at each epsilon."""
OURS = "classifier, replace-one"
FLOORS = (("pima", 0.1, 0.025), ("german", 0.1, 0.025), ("german", 0.5, 0.01))
"""Tables and epsilon of the fits, and how far below the vote their mean may be."""
FITS, SPLITS = 200, 5


def beside_prototype(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the cells with a signal of 10 or more that are over 1.5 points below the prototype."""
    compared = {
        f"{cell['table']} {cell['epsilon']:g}": cell[OURS][0]
        - PROTOTYPE[cell["table"]][EPSILONS.index(cell["epsilon"])]
        for cell in cells
        if cell["table"] in PROTOTYPE and cell["S"] >= 10 and cell[OURS]
    }
    return {
        "cells with S of 10 or more": len(compared),
        "more than 1.5 points below": [name for name, ahead in compared.items() if ahead < -0.015],
        "ahead, points": {name: round(100 * ahead, 1) for name, ahead in compared.items()},
    }


def beside_vote(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the cells with 15 rows or more for 1/mu that are over 2.5 points below the vote."""
    found: dict[str, float] = {}
    for cell in cells:
        features = len(TABLES[cell["table"]]().schema.features)
        rows = cell["S"] * math.sqrt(2 * features)
        if rows >= 15 and cell[OURS]:
            found[f"{cell['table']} {cell['epsilon']:g}"] = cell[OURS][0] - cell["vote"]
    return {
        "cells with n mu of 15 or more": len(found),
        "more than 2.5 points below": {k: round(100 * v, 1) for k, v in found.items() if v < -0.025},
    }


def measure_floor(name: str, epsilon: float, allowed: float) -> dict[str, float]:
    """Return the mean accuracy of many fits on five splits of a small table, and that of the vote."""
    table = TABLES[name]()
    features = list(table.layout.names)
    accuracies, votes = [], []
    for seed in range(SPLITS):
        split = Split(table, seed)
        for fit in range(FITS // SPLITS):
            sums = split.registered("replace-one").sums(10_000 * seed + fit)
            model = learn.PrivateClassifier(privacy=ApproxDP(epsilon=epsilon, delta=DELTA)).fit_database(sums)
            accuracies.append(model.score(split.test[features], split.test[table.target]))
            votes.append(split.vote)
    mean, vote = float(np.mean(accuracies)), float(np.mean(votes))
    return {
        "rows times mu": len(split.train) * gaussian_mu(epsilon, DELTA), "vote": vote, "accuracy": mean,
        "standard error": float(np.std(accuracies, ddof=1)) / math.sqrt(FITS),
        "allowed": vote - allowed, "met": float(mean >= vote - allowed),
    }  # fmt: skip


def main() -> None:
    """Measure and record."""
    cells = json.loads((HERE / "results" / "classifier.json").read_text())["cells"]
    floors = {}
    for name, epsilon, allowed in FLOORS:
        found = measure_floor(name, epsilon, allowed)
        floors[f"{name} {epsilon:g}"] = {what: round(value, 4) for what, value in found.items()}
    bars = {"prototype": beside_prototype(cells), "vote": beside_vote(cells), "floor": floors}
    save("classifier_bars", bars)
    print(json.dumps(bars, indent=2))


if __name__ == "__main__":
    main()
