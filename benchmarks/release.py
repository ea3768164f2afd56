"""Releasing rows: against numpy's unsafe noise, and from file to file in constant memory."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from measure import interleaved, peak_memory_mb, save

from discreet.privacy import GaussianDP
from discreet.release import GaussianRelease, LaplaceRelease
from discreet.schema import Column, Schema
from discreet.tables import write_table

ROWS, COLUMNS = 500_000, 20
STREAMED = 10_000_000
SCHEMA = Schema(columns=[Column(f"x{j}", lower=0, upper=1) for j in range(COLUMNS)])


def _publish(folder: str, shuffle: bool, connection: Any) -> None:
    """Release a Parquet file into another; report time and memory."""
    before = peak_memory_mb()
    start = time.perf_counter()
    method = GaussianRelease(privacy=GaussianDP(mu=1.0), schema=SCHEMA)
    method.publish(Path(folder) / "in.parquet", Path(folder) / f"out-{shuffle}.parquet", shuffle=shuffle)
    connection.send((time.perf_counter() - start, before, peak_memory_mb()))


def main() -> dict[str, Any]:
    """Measure, print and save."""
    generator = np.random.default_rng(1)  # noqa: TID251 - what we are compared with
    X = generator.uniform(size=(ROWS, COLUMNS))
    gaussian = GaussianRelease(privacy=GaussianDP(mu=1.0), schema=SCHEMA)
    laplace = LaplaceRelease(scale=4.0, schema=SCHEMA)
    seconds = interleaved(
        {
            "numpy": lambda: X + 4.0 * generator.standard_normal(X.shape),
            "gaussian": lambda: gaussian.release(X),
            "laplace": lambda: laplace.release(X),
        },
        rounds=5,
    )
    result: dict[str, Any] = {
        "values": ROWS * COLUMNS,
        "ratio_to_numpy": {k: round(v / seconds["numpy"], 2) for k, v in seconds.items()},
    }
    print(result)
    with tempfile.TemporaryDirectory() as folder:
        batches = (
            {c.name: generator.uniform(size=100_000) for c in SCHEMA.columns}
            for _ in range(STREAMED // 100_000)
        )
        write_table(Path(folder) / "in.parquet", SCHEMA, batches)
        context = multiprocessing.get_context("spawn")
        for shuffle in (False, True):
            receiver, sender = context.Pipe(duplex=False)
            worker = context.Process(target=_publish, args=(folder, shuffle, sender))
            worker.start()
            spent, before, after = receiver.recv()
            worker.join()
            key = "file_to_file_shuffled" if shuffle else "file_to_file"
            result[key] = {
                "rows": STREAMED,
                "columns": COLUMNS,
                "seconds": round(spent, 1),
                "memory_mb_before": round(before),
                "peak_memory_mb": round(after),
            }
            print(key, result[key])
    save("release", result)
    return result


if __name__ == "__main__":
    main()
