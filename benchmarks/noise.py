"""Speed of exact noise, against numpy's floats and against OpenDP's exact integers."""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

import numpy as np
from measure import interleaved, peak_memory_mb, save

from discreet.noise import Stream, _kernels, discrete_laplace, rounded_gaussian, spherical_laplace

DRAWS = 4_000_000
OPENDP_DRAWS = 2_000


def _with_loops(compiled: bool, sample: Any) -> Any:
    def run() -> None:
        _kernels.WORTH_COMPILING = 1 if compiled else 1 << 62
        sample()

    return run


def _opendp() -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    mechanism = dp.m.make_gaussian(*space, scale=2.0**20)
    zeros = [0] * OPENDP_DRAWS
    return lambda: mechanism(zeros)


def _stream_of_draws(n: int, connection: Any) -> None:
    """Draw ``n`` numbers a million at a time; report time and growth of memory."""
    stream = Stream()
    rounded_gaussian(2.0**20, 1_000_000, stream)
    before = peak_memory_mb()
    start = time.process_time()
    total = 0
    for _ in range(n // 1_000_000):
        total += int(rounded_gaussian(2.0**20, 1_000_000, stream).sum())
    connection.send((time.process_time() - start, before, peak_memory_mb(), total))


def main() -> dict[str, Any]:
    """Measure, print and save."""
    generator = np.random.default_rng(1)  # noqa: TID251 - what we are compared with
    stream = Stream()
    tasks: dict[str, Any] = {
        "numpy standard_normal": lambda: generator.standard_normal(DRAWS),
        "numpy laplace": lambda: generator.laplace(size=DRAWS),
    }
    scales = {"1": 1.0, "10": 10.0, "2^12": 2.0**12, "2^20": 2.0**20, "2^40": 2.0**40, "1.1e6": 1.1e6}
    for label, s in scales.items():
        for loops, compiled in (("numpy", False), ("numba", True)):
            tasks[f"rounded_gaussian s={label} ({loops})"] = _with_loops(
                compiled, lambda s=s: rounded_gaussian(s, DRAWS, stream)
            )
    for label, t in [("1", 1.0), ("30", 30.0), ("2^30", 2.0**30)]:
        for loops, compiled in (("numpy", False), ("numba", True)):
            tasks[f"discrete_laplace scale={label} ({loops})"] = _with_loops(
                compiled, lambda t=t: discrete_laplace(t, DRAWS, stream)
            )
    tasks["spherical_laplace d=100 (numpy)"] = _with_loops(
        False, lambda: spherical_laplace(1.0, 100, DRAWS // 100, stream)
    )
    opendp = _opendp()
    tasks["opendp integer Gaussian s=2^20"] = opendp
    seconds = interleaved(tasks)
    per_draw = {
        name: t / (OPENDP_DRAWS if name.startswith("opendp") else DRAWS) * 1e9 for name, t in seconds.items()
    }
    base, base_laplace = per_draw["numpy standard_normal"], per_draw["numpy laplace"]
    peer = per_draw["opendp integer Gaussian s=2^20"]
    rows = {
        name: {
            "nanoseconds": round(ns, 2),
            "ratio_to_numpy_normal": round(ns / base, 3),
            **({"ratio_to_numpy_laplace": round(ns / base_laplace, 3)} if "laplace" in name else {}),
            "times_faster_than_opendp": round(peer / ns, 1),
        }
        for name, ns in per_draw.items()
    }
    receiver, sender = multiprocessing.get_context("spawn").Pipe(duplex=False)
    worker = multiprocessing.get_context("spawn").Process(target=_stream_of_draws, args=(10**8, sender))
    worker.start()
    spent, before, after, _ = receiver.recv()
    worker.join()
    result = {
        "draws_per_round": DRAWS,
        "samplers": rows,
        "hundred_million_draws": {
            "seconds": round(spent, 2),
            "peak_memory_mb_after_first_million": round(before),
            "peak_memory_mb_at_the_end": round(after),
        },
    }
    for name, row in rows.items():
        print(f"{name:42s} {row['nanoseconds']:10.1f} ns  {row['ratio_to_numpy_normal']:9.2f} x numpy normal")
    print("10^8 draws:", result["hundred_million_draws"])
    save("noise", result)
    return result


if __name__ == "__main__":
    main()
