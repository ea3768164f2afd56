"""Speed of noise that a model does not notice, against drawing the raw noise; memory of the streamed form."""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

import numpy as np
from measure import interleaved, peak_memory_mb, save

from discreet.noise import Stream, standard_normal
from discreet.release.invariant import InvariantNoise

ROWS, COLUMNS = 1_000_000, 100
STREAMED_ROWS = 2_000_000
BATCH = 10_000
MOST_TIMES_RAW = 2.0
"""What the whole draw may cost, in draws of the raw noise."""


def constraints(n_rows: int, *, support: float) -> tuple[Any, Any]:
    """Make derivatives and weights as of a model that leans on a share of the rows."""
    derivatives = standard_normal((n_rows, 1), Stream.from_seed(1))
    derivatives[np.arange(n_rows) % round(1 / support) != 0] = 0.0
    return derivatives, standard_normal((COLUMNS, 1), Stream.from_seed(2))


def _streamed(connection: Any) -> None:
    """Noise a table that is never held; report time and growth of memory."""
    noise = InvariantNoise(*constraints(STREAMED_ROWS, support=0.1), 1.0)
    batch = np.zeros((BATCH, COLUMNS))
    before = peak_memory_mb()
    start = time.process_time()
    total = 0.0
    for part in noise.add((batch for _ in range(STREAMED_ROWS // BATCH)), Stream()):
        total += float(part[0, 0])
    connection.send((time.process_time() - start, before, peak_memory_mb(), total))


def main() -> dict[str, Any]:
    """Measure, print and save."""
    generator = np.random.default_rng(1)  # noqa: TID251 - what we are compared with
    dense = InvariantNoise(*constraints(ROWS, support=1.0), 1.0)
    sparse = InvariantNoise(*constraints(ROWS, support=0.1), 1.0)
    # One task at a time holds its 800 MB.
    seconds = interleaved(
        {
            "numpy standard_normal": lambda: generator.standard_normal((ROWS, COLUMNS)).shape,
            "raw noise": lambda: standard_normal((ROWS, COLUMNS), Stream()).shape,
            "invariant, every row leaned on": lambda: dense.draw(Stream()).shape,
            "invariant, a tenth of the rows": lambda: sparse.draw(Stream()).shape,
        },
        rounds=3,
    )
    raw = seconds["raw noise"]
    rows = {
        name: {"seconds": round(t, 2), "ratio_to_raw_noise": round(t / raw, 2)} for name, t in seconds.items()
    }
    receiver, sender = multiprocessing.get_context("spawn").Pipe(duplex=False)
    worker = multiprocessing.get_context("spawn").Process(target=_streamed, args=(sender,))
    worker.start()
    spent, before, after, _ = receiver.recv()
    worker.join()
    met = seconds["invariant, every row leaned on"] < MOST_TIMES_RAW * raw
    result = {
        "table": f"{ROWS} x {COLUMNS}",
        "in_memory": rows,
        "bar": {"most_times_raw": MOST_TIMES_RAW, "met": met},
        "streamed": {
            "table": f"{STREAMED_ROWS} x {COLUMNS}",
            "seconds": round(spent, 2),
            "ratio_to_raw_noise": round(spent / raw * ROWS / STREAMED_ROWS, 2),
            "peak_memory_mb_before": round(before),
            "peak_memory_mb_at_the_end": round(after),
        },
    }
    for name, row in rows.items():
        print(f"{name:34s} {row['seconds']:6.2f} s  {row['ratio_to_raw_noise']:5.2f} x raw noise")
    print("bar of", MOST_TIMES_RAW, "met:", met)
    print("streamed:", result["streamed"])
    save("invariant", result)
    return result


if __name__ == "__main__":
    main()
