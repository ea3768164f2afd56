"""Write the measured rows of ``docs/explanation/comparison.md``: ``python docs/generate_comparison.py``."""

from __future__ import annotations

import json
import re
from pathlib import Path

PAGE = Path(__file__).parent / "explanation" / "comparison.md"
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "noise_peers.json"
_ROWS = ("count", "sum", "mean", "histogram", "50 counts", "mean by group")


def write_page(text: str) -> str:
    """Return the page with the table of what was measured last."""
    results = json.loads(RESULTS.read_text())
    lines = [f"| | {' | '.join(results)} |", "|---|" + "---:|" * len(results)]
    for row in _ROWS:
        values = [tool["noise"]["add-remove"].get(row) for tool in results.values()]
        least = min(value for value in values if value is not None)
        # Those within a percent of the smallest are as good: some are measured, not computed.
        cells = ["–" if v is None else f"**{v:.3g}**" if v <= 1.01 * least else f"{v:.3g}" for v in values]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    table = "\n".join(lines)
    return re.sub(r"(?<=% begin noise\n).*?(?=% end noise)", f"\n{table}\n\n", text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(write_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
