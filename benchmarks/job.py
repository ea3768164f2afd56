"""The release stage of the main job on five million rows, beside DuckDB copying the same file."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from measure import peak_memory_mb, save

from discreet.evaluation.tallies import PairedSample
from discreet.noise import Stream
from discreet.privacy import GaussianDP
from discreet.release import GaussianRelease
from discreet.schema import Column, Schema
from discreet.tables import write_table

ROWS, COLUMNS, ROUNDS = 5_000_000, 10, 3
SCHEMA = Schema(columns=[Column(f"x{j}", lower=0, upper=1) for j in range(COLUMNS)])


def _release(folder: str, name: str, connection: Any) -> None:
    """Draw and write data.parquet as the job does: shuffled, charged, watched for the report."""
    before = peak_memory_mb()
    start = time.perf_counter()
    pairs = PairedSample(SCHEMA, Stream())
    method = GaussianRelease(privacy=GaussianDP(mu=1.0), schema=SCHEMA)
    method.publish(Path(folder) / "in.parquet", Path(folder) / name, watch=pairs)
    connection.send((time.perf_counter() - start, before, peak_memory_mb()))


def _copy(folder: str, name: str) -> float:
    start = time.perf_counter()
    duckdb.sql(f"COPY (FROM '{folder}/in.parquet') TO '{folder}/{name}' (FORMAT parquet)")
    return time.perf_counter() - start


def main() -> dict[str, Any]:
    """Measure, print and save: both in turn, the best of each."""
    generator = np.random.default_rng(1)  # noqa: TID251 - made-up rows
    with tempfile.TemporaryDirectory() as folder:
        batches = (
            {c.name: generator.uniform(size=100_000) for c in SCHEMA.columns} for _ in range(ROWS // 100_000)
        )
        write_table(Path(folder) / "in.parquet", SCHEMA, batches)
        context = multiprocessing.get_context("spawn")
        copies, releases, before, peak = [], [], 0.0, 0.0
        for turn in range(ROUNDS):
            copies.append(_copy(folder, f"copy{turn}.parquet"))
            receiver, sender = context.Pipe(duplex=False)
            worker = context.Process(target=_release, args=(folder, f"out{turn}.parquet", sender))
            worker.start()
            spent, before, after = receiver.recv()
            worker.join()
            releases.append(spent)
            peak = max(peak, after)
    result = {
        "rows": ROWS,
        "columns": COLUMNS,
        "copy_seconds": [round(s, 2) for s in copies],
        "release_seconds": [round(s, 2) for s in releases],
        "ratio_to_copy": round(min(releases) / min(copies), 2),
        "memory_mb_before": round(before),
        "peak_memory_mb": round(peak),
    }
    print(result)
    save("job", result)
    return result


if __name__ == "__main__":
    main()
