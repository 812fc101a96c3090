# `make train` and `make test` prepare their own virtual environment in .venv.
# `make test-all` adds the tests that train for long; a release must pass them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two workers: more would compile more programs at once than small machines have memory for.
WORKERS ?= 2

# TensorFlow keeps what it compiled until its process ends: each group of folders has processes of
# its own, which stay below this limit. pytest prints their peaks.
MEGABYTES ?= 3000
LOOPS := tests/loop tests/trainer
POLICIES := tests/family tests/policy tests/model
FOLDERS := tests/record tests/callback tests/deployment tests/machine tests/config
COMMANDS := tests/command tests/agent tests/environment
TEXTS := tests/search/text tests/search/model tests/search/command
QUERIES := tests/search/reformulate tests/search/benchmark tests/benchmarks
GROUPED := $(LOOPS) $(POLICIES) $(FOLDERS) $(COMMANDS) $(TEXTS) $(QUERIES)
REST := tests $(patsubst %,--ignore=%,$(GROUPED))
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --most-megabytes $(MEGABYTES)
TYPES = $(BIN)/pyright --pythonpath $(BIN)/python
# pyright needs one core for half a minute: it works beside the tests, and has the last word.
define run-tests
@$(TYPES) > $(VENV)/types.txt 2>&1 & types=$$!; failed=0; \
for group in "$(LOOPS)" "$(POLICIES)" "$(FOLDERS)" "$(COMMANDS)" "$(TEXTS)" "$(QUERIES)" "$(REST)"; do \
	echo "$(PYTEST) $(subst ",',$(1)) $$group"; $(PYTEST) $(1) $$group || failed=1; done; \
wait $$types || failed=1; cat $(VENV)/types.txt; exit $$failed
endef

.PHONY: train test test-all style lint clean

train: $(VENV)/.installed
	$(BIN)/kytolly train dqn --env CartPole-v1 --reward-threshold 475 --evaluation-episodes 100

test: style
	$(call run-tests,-m "not learning")

test-all: style
	$(call run-tests,)

style: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

lint: style
	$(TYPES)

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

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache
