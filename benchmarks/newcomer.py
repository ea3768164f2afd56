"""Time a newcomer's path: from a clone, and from a wheel, to a first answer, model and released table.

    python benchmarks/newcomer.py

Needs a package index. Each command runs in a new environment and a new folder; times are processor seconds of
the command and its children. The result is written to ``benchmarks/results/newcomer.json``.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results" / "newcomer.json"
FIRST_STEPS = {
    "import": ["python", "-W", "error", "-c", "import discreet"],
    "first answer": [
        "discreet",
        "query",
        "demo:census",
        "mean(hours_per_week) by sex",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
    ],
    "first model": [
        "discreet",
        "learn",
        "demo:census",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--out",
        "model",
    ],
    "first released table": [
        "discreet",
        "release",
        "demo:census",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--out",
        "made",
    ],
    "verify it": ["discreet", "verify", "made/public"],
}


def run(command: list[str], folder: Path) -> dict[str, object]:
    """Run a command in a folder; return it with its processor and wall seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {"HOME": str(folder), "PATH": os.environ["PATH"], "OPENBLAS_NUM_THREADS": "1"}
    environment |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    shown = " ".join(Path(part).name if part.startswith("/") else part for part in command)
    shown = shown.replace(f"file://{ROOT}", "<this repository>")
    return {"command": shown, "cpu": round(cpu, 2), "wall": round(time.perf_counter() - start, 1)}


def walk(source: str, folder: Path) -> dict[str, object]:
    """Install from a source into a new environment, and take the first steps there."""
    bin_folder = folder / "env" / "bin"
    steps = {"environment": run([sys.executable, "-m", "venv", str(folder / "env")], folder)}
    steps["install"] = run([str(bin_folder / "pip"), "install", "--quiet", source], folder)
    for name, (program, *rest) in FIRST_STEPS.items():
        steps[name] = run([str(bin_folder / program), *rest], folder)
        print(f"{name:22s} {steps[name]['cpu']:6.2f} s CPU {steps[name]['wall']:6.1f} s", flush=True)
    packages = next((folder / "env" / "lib").glob("python*")) / "site-packages"
    size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())
    return {"steps": steps, "megabytes": round(size / 1e6)}


def main() -> None:
    """Walk from a clone and from a wheel, and write what it took."""
    results: dict[str, object] = {"python": platform.python_version(), "system": platform.system()}
    with tempfile.TemporaryDirectory() as name:
        clone, wheels = Path(name, "clone"), Path(name, "wheels")
        cloned = run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(clone)], Path(name))
        results["clone"] = cloned
        for kind in ("clone", "wheel"):
            folder = Path(name, kind + "-walk")
            folder.mkdir()
            source = str(clone)
            if kind == "wheel":
                build = [
                    sys.executable,
                    "-m",
                    "pip",
                    "wheel",
                    "--quiet",
                    "--no-deps",
                    "-w",
                    str(wheels),
                    source,
                ]
                results["build wheel"] = run(build, Path(name))
                source = str(next(wheels.glob("*.whl")))
            print(f"from a {kind}:", flush=True)
            results[f"from a {kind}"] = walk(source, folder)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
