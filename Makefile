# `make train` and `make test` prepare their own virtual environment in .venv.
# `make test-all` adds the tests that train for long; a release must pass them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Processes of tests at a time: more need more cores, and 3 GB of memory each.
WORKERS ?= 2

# Megabytes that a process of the tests may need.
MEGABYTES ?= 3000
TESTS = $(BIN)/python scripts/run_tests.py --workers $(WORKERS) --most-megabytes $(MEGABYTES)

.PHONY: train test test-all style lint clean

train: $(VENV)/.installed
	$(BIN)/kytolly train dqn --env CartPole-v1 --reward-threshold 475 --evaluation-episodes 100

test: style
	$(TESTS) -m "not learning"

test-all: style $(VENV)/.installed-gpu-compile
	$(TESTS)

style: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

lint: style
	$(BIN)/pyright --pythonpath $(BIN)/python

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15) and "Python 3.11 to 3.14 is expected; choose one with make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@ $(VENV)/.installed

# The compiler for a described GPU, 1 GB: with it `make test` compiles every device loop, too.
$(VENV)/.installed-gpu-compile: pyproject.toml | $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --editable ".[gpu-compile]"
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache
