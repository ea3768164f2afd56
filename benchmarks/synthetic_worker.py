"""MST or AIM of dpmm on one table of codes; runs in dpmm's own interpreter, which has nothing of ours.

    python synthetic_worker.py JOB.json CODES.npz MADE.npz

The job names the mechanism, epsilon, delta, by how much the promise must be divided, the seed and the
processor seconds after which it is given up. The mechanism has its default settings, one process.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def equivalent_epsilon(epsilon: float, delta: float, divisor: float) -> float:
    """Return the epsilon at which the mechanism spends the zCDP of `epsilon` over `divisor`."""
    from dpmm.models.base.mechanisms.cdp2adp import (  # type: ignore[import-not-found,unused-ignore]
        cdp_eps,
        cdp_rho,
    )

    return float(cdp_eps(cdp_rho(epsilon, delta) / divisor, delta))


def make(job: dict[str, Any], codes: Any, cells: Any) -> Any:
    """Return as many made-up rows of codes as there are rows."""
    import pandas as pd
    from dpmm.models.aim import AIMGM  # type: ignore[import-not-found,unused-ignore]
    from dpmm.models.mst import MSTGM  # type: ignore[import-not-found,unused-ignore]
    from dpmm.pipelines.base import (  # type: ignore[import-not-found,unused-ignore]
        GenerativePipeline,
    )

    names = [f"c{i}" for i in range(codes.shape[1])]
    model = {"mst": MSTGM, "aim": AIMGM}[job["method"]](
        epsilon=equivalent_epsilon(job["epsilon"], job["delta"], job["divisor"]),
        delta=job["delta"],
        n_jobs=1,
    )
    # Its noise comes from the operating system whatever the seed, which only fixes choices and rows.
    GenerativePipeline(gen=model).set_random_state(job["seed"])
    model.set_domain({name: int(count) for name, count in zip(names, cells, strict=True)})
    model.fit(pd.DataFrame(codes, columns=names))
    return model.generate(n_records=len(codes))[names].to_numpy()


def main() -> None:
    """Run one job; importing is not part of its time, and importing pandas takes seconds."""
    job = json.loads(Path(sys.argv[1]).read_text())
    table = np.load(sys.argv[2], allow_pickle=False)
    equivalent_epsilon(1.0, 1e-6, 1.0)
    started = time.process_time()
    limit = int(started + job["limit"]) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    made = make(job, table["codes"], table["cells"])
    seconds = time.process_time() - started
    np.savez(sys.argv[3], codes=made, seconds=seconds)


if __name__ == "__main__":
    main()
