"""Run every benchmark; each prints ratios and writes benchmarks/results/<name>.json."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

HERE = Path(__file__).parent
NOT_BENCHMARKS = {
    "run", "measure", "large", "peers", "sulq_tables", "noise_aware_tables",
    "synthetic", "synthetic_cost", "synthetic_hidden", "synthetic_peers", "synthetic_worker",
}  # fmt: skip


def main() -> None:
    """Import and run the modules beside this one."""
    sys.path.insert(0, str(HERE))
    for path in sorted(HERE.glob("*.py")):
        if path.stem not in NOT_BENCHMARKS:
            print(f"== {path.stem}")
            importlib.import_module(path.stem).main()


if __name__ == "__main__":
    main()
