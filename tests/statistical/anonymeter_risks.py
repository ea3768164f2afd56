"""Anonymeter's three risks of a synthetic table, printed as JSON; run by a Python that has anonymeter.

    python anonymeter_risks.py FOLDER SECRET ATTACKS

The folder holds ``original.csv``, ``control.csv`` and ``synthetic.csv``; the secret is the column that is
inferred. Each risk is the success of an attack on original rows beyond that on control rows, with its
interval of 95 % and one that fails once in 10**9.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
from anonymeter.evaluators import (  # type: ignore[import-not-found, unused-ignore]
    InferenceEvaluator,
    LinkabilityEvaluator,
    SinglingOutEvaluator,
)

SURELY = 1 - 1e-9


def describe(evaluator: Any) -> dict[str, Any]:
    """Return success on original and control rows, and the risk with its intervals."""
    results, risk, sure = evaluator.results(), evaluator.risk(), evaluator.risk(confidence_level=SURELY)
    return {
        "original": results.attack_rate.value,
        "control": results.control_rate.value,
        "risk": risk.value,
        "interval": list(risk.ci),
        "sure_interval": list(sure.ci),
    }


def main(folder: Path, secret: str, attacks: int) -> dict[str, Any]:
    """Run the three attacks."""
    rows = {name: pd.read_csv(folder / f"{name}.csv") for name in ("original", "control", "synthetic")}
    for frame in rows.values():
        for column in frame.select_dtypes(exclude="number"):
            frame[column] = frame[column].astype(object).fillna("missing")
    ori, control, syn = rows["original"], rows["control"], rows["synthetic"]
    others = [column for column in ori.columns if column != secret]
    halves = others[::2], others[1::2]
    single = SinglingOutEvaluator(ori=ori, syn=syn, control=control, n_attacks=attacks, n_cols=3, seed=1)
    link = LinkabilityEvaluator(
        ori=ori, syn=syn, control=control, n_attacks=attacks, aux_cols=halves, n_neighbors=10
    )
    infer = InferenceEvaluator(
        ori=ori, syn=syn, control=control, n_attacks=attacks, aux_cols=others, secret=secret
    )
    return {
        "singling out": describe(single.evaluate(mode="multivariate")),
        "linkability": describe(link.evaluate(n_jobs=1)),
        "inference": describe(infer.evaluate(n_jobs=1)),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
