# Needs make and Python 3.11 or later. Everything else goes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
# A worker that a timeout ends is not replaced: pytest-xdist may wait forever for the new one.
PARALLEL := -n 2 --dist loadgroup --max-worker-restart 0

.PHONY: help run test test-all bench clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

help:
	@echo "make run       cluster the data set that ships with Shoal, and leave a report in demo.html"
	@echo "make test      linters, types, layers and tests"
	@echo "make test-all  the same with every slow case, and ten times as many random ones (about an hour)"
	@echo "make bench     Shoal beside other libraries"
	@echo "make clean     remove .venv and caches"

run: $(VENV)/.run
	@$(BIN)/shoal demo -o demo.html --force

test: $(VENV)/.test
	@echo "== ruff" && $(BIN)/ruff check --quiet .
	@echo "== mypy" && $(BIN)/mypy
	@echo "== layers" && $(BIN)/lint-imports --no-logo
	@echo "== pytest" && $(BIN)/python -m pytest -q $(PARALLEL)

test-all: $(VENV)/.test
	@SHOAL_TIMES=10 $(BIN)/python -m pytest -q --timeout 3600 $(PARALLEL) -m "slow or not slow"

bench: $(VENV)/.bench
	@$(BIN)/python -m bench

clean:
	@rm -rf $(VENV) demo.html build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Shoal needs Python 3.11 or later: make PYTHON=python3.12 ...")'
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade pip

# One stamp for each set of dependencies: nothing is installed again until pyproject.toml changes.
$(VENV)/.run: pyproject.toml | $(BIN)/python
	@echo "Installing Shoal"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.test $(VENV)/.bench: $(VENV)/.%: pyproject.toml | $(BIN)/python
	@echo "Installing Shoal and what '$*' needs"
	@$(PIP) --editable '.[$*]'
	@touch $@
