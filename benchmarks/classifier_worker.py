"""Fits of DP-EBM, in the interpreter that has interpret-core: jobs as lines of JSON, one answer for each."""

from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any

import numpy as np


def fit(job: dict[str, Any]) -> dict[str, Any]:
    """Return accuracy and processor seconds of one fit with the defaults of DP-EBM."""
    import interpret  # type: ignore[import-not-found,unused-ignore]
    from interpret.privacy import (  # type: ignore[import-not-found,unused-ignore]
        DPExplainableBoostingClassifier,
    )

    if job["model"] == "versions":
        return {"interpret-core": interpret.__version__}
    rows = np.load(job["table"], allow_pickle=False)
    kinds = rows["kinds"].tolist()
    parts = [_columns(rows[name], kinds) for name in ("X", "X_test")]
    bounds = {
        i: (float(rows["lower"][i]), float(rows["upper"][i]))
        for i, kind in enumerate(kinds)
        if kind == "continuous"
    }
    model = DPExplainableBoostingClassifier(
        feature_types=kinds, epsilon=job["epsilon"], delta=job["delta"], privacy_bounds=bounds,
        random_state=job["seed"], n_jobs=1,
    )  # fmt: skip
    start = time.process_time()
    model.fit(parts[0], rows["y"])
    seconds = time.process_time() - start
    return {"found": float(np.mean(model.predict(parts[1]) == rows["y_test"])), "seconds": seconds}


def _columns(X: Any, kinds: list[str]) -> Any:
    """Return rows of numbers and of levels, which DP-EBM takes as text."""
    rows = X.astype(object)
    for i, kind in enumerate(kinds):
        if kind == "nominal":
            rows[:, i] = [str(int(v)) for v in X[:, i]]
    return rows


def main() -> None:
    """Answer jobs until there are none."""
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        try:
            found = fit(json.loads(line))
        except Exception as problem:  # a peer may fail in any way, and that is a result
            found = {"failed": f"{type(problem).__name__}: {problem}"[:300]}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
