# Every target needs python3 (with venv), make and a package index; each makes and reuses .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Our matrices are small: a second BLAS thread costs more than it brings.
export OPENBLAS_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1
# To compile the tests anew in every worker takes longer than most of them.
unexport PYTHONDONTWRITEBYTECODE
# Neighboring tests share fixtures: a worker runs them in one piece, and takes from the other when it is done.
TESTS := -n auto --dist worksteal

.PHONY: help demo test slow check stats bench peers figures docs clean
help:            ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 12

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.core: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	# It asks for an old typer, which the tests of our own commands must not be held to.
	$(BIN)/python -m pip install --quiet --no-deps openapi-python-client==0.29.1
	touch $@ $(VENV)/.core

$(VENV)/.docs: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable '.[dev,docs]'
	touch $@

demo: $(VENV)/.core  ## install and run the main job on a bundled table
	$(BIN)/discreet demo

test: $(VENV)/.dev   ## the fast tests: they start no process but one PostgreSQL server
	$(BIN)/python -m pytest $(TESTS) -m "not slow and not stats"

slow: $(VENV)/.dev   ## the tests of processes, engines and browsers, long checks in reduced form
	$(BIN)/python -m pytest $(TESTS) -m "slow and not stats"

check: $(VENV)/.dev  ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

stats: $(VENV)/.dev  ## statistical, kill, fuzz and load checks in full; results go to benchmarks/results
	$(BIN)/python -m pytest -m stats

bench: $(VENV)/.dev  ## speed, measured as ratios side by side; results go to benchmarks/results
	$(BIN)/python benchmarks/run.py

peers: $(VENV)/.dev  ## MST and AIM beside the synthetic release, in an environment of their own: hours, resumable
	$(BIN)/python benchmarks/synthetic_peers.py run
	$(BIN)/python benchmarks/synthetic_peers.py report

figures: $(VENV)/.dev  ## re-make every figure
	for script in figures/*.py; do $(BIN)/python $$script || exit 1; done

docs: $(VENV)/.docs  ## build the documentation into docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

clean:           ## remove everything that the other targets made
	rm -rf $(VENV) docs/_build docs/examples docs/reference/generated .mypy_cache .ruff_cache .pytest_cache .hypothesis
