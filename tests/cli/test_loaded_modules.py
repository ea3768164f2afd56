"""Heavy packages that a command must not load, because loading them would take longer than its work."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import discreet

DATA = Path(discreet.__file__).parent / "data"
PROMISE = ("--epsilon", "1", "--delta", "1e-6")
SLOW = {"sklearn", "pandas", "pyarrow", "numba"}
SCIPY = {"scipy.stats", "scipy.optimize", "scipy.sparse", "scipy.spatial"}
OTHER_METHODS = {f"discreet.release.{name}" for name in ("coarse", "invariant", "masked", "synthetic")}
SERVER = {"fastapi", "starlette", "uvicorn", "httpx", "matplotlib"}
RUN = """
import sys
from discreet.cli import main
sys.argv[0] = "discreet"
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("LOADED", *sys.modules)
"""
THREADS = """
from threadpoolctl import threadpool_info
print("THREADS", *(one["num_threads"] for one in threadpool_info() if one["internal_api"] == "openblas"))
"""

pytestmark = pytest.mark.slow


def _loaded(folder: Path, *words: str) -> set[str]:
    """Return the modules that a command has loaded when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rsplit("LOADED ", 1)[1].split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a table, its schema and a release of it."""
    place = tmp_path_factory.mktemp("commands")
    duckdb.read_parquet(str(DATA / "hospital.parquet")).limit(1000).write_csv(str(place / "hospital.csv"))
    shutil.copy(DATA / "hospital.schema.yaml", place)
    _loaded(
        place,
        "release",
        "hospital.csv",
        "--protect",
        "age=9",
        "--accept-risk",
        "made-up rows",
        "--out",
        "out",
    )
    return place


def test_help_loads_no_array(folder: Path) -> None:
    assert not _loaded(folder, "--help") & (
        SLOW | SERVER | {"numpy", "duckdb", "pydantic", "rich", "sqlglot"}
    )


@pytest.mark.parametrize(
    "words",
    [
        ("query", "hospital.csv", "count where age > 40", *PROMISE),
        ("plan", "hospital.csv", "--method", "synthetic", *PROMISE),
    ],
    ids=lambda words: words[0],
)
def test_command_loads_no_slow_package(folder: Path, words: tuple[str, ...]) -> None:
    assert not _loaded(folder, *words) & (SLOW | SCIPY | SERVER)


def test_verify_loads_no_learner_and_no_other_method(folder: Path) -> None:
    loaded = _loaded(folder, "verify", "out/public")
    assert "discreet.release.gaussian" in loaded
    assert not loaded & (SLOW | SERVER | OTHER_METHODS | {"scipy.stats", "sqlglot"})
    # A ledger, attacks on tables as a whole, and charts that this statement has not.
    assert not loaded & {
        "discreet.ledger._ledger",
        "discreet.audit._table_risk",
        "discreet.noise.bounded",
        "discreet.report.charts._curves",
    }
    assert "scipy.linalg._basic" not in loaded  # the package itself is there, and not executed


def test_a_plan_without_a_target_loads_no_learner(folder: Path) -> None:
    loaded = _loaded(folder, "plan", "hospital.csv", *PROMISE)
    assert not loaded & (SLOW | SERVER | {"jinja2", "narwhals", "scipy.stats"})
    assert "discreet.pipeline.ways" in loaded
    assert not loaded & {
        "discreet.pipeline.plan",
        "discreet.pipeline.draft",
        "discreet.release.masked",
        "discreet.release.spark",
        "discreet.report.statement.build",
    }


def test_a_release_by_floors_loads_no_learner(folder: Path) -> None:
    words = ("--protect", "age=9", "--accept-risk", "made-up rows", "--out", "again")
    assert not _loaded(folder, "release", "hospital.csv", *words) & (SLOW | SERVER)


def test_a_command_loads_no_other_command(folder: Path) -> None:
    loaded = _loaded(folder, "query", "hospital.csv", "count where age > 40", *PROMISE)
    assert "discreet.cli.query" in loaded
    assert not loaded & {f"discreet.cli.{name}" for name in ("release", "plan", "verify", "learn", "serve")}


def test_query_loads_no_frames_and_no_report(folder: Path) -> None:
    loaded = _loaded(folder, "query", "hospital.csv", "count where age > 40", *PROMISE)
    assert "scipy.special" in loaded
    assert not loaded & {
        # Parts of the two packages of numpy that scipy imports and nobody uses.
        "numpy.f2py.crackfortran",
        "numpy.testing._private",
        "narwhals",
        "jinja2",
        "scipy.linalg",
        "discreet.report",
        "discreet.learn",
        "discreet.audit",
    }


def test_learners_are_loaded_by_name_only() -> None:
    code = "import sys, discreet.learn, discreet.release; print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(("given", "used"), [(None, 1), ("2", 2)], ids=["default", "said by the user"])
def test_command_loads_arrays_with_one_thread_unless_told(folder: Path, given: str | None, used: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    if given:
        environment["OPENBLAS_NUM_THREADS"] = given
    script = RUN + THREADS
    words = ("query", "hospital.csv", "count where age > 41", *PROMISE)
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    # Where numpy brings another BLAS, there is none to look at.
    assert set(done.stdout.rsplit("THREADS", 1)[1].split()) <= {str(min(used, os.cpu_count() or 1))}
