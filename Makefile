# The two commands a new user runs: make demo, make test. Each sets up all it needs in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-slow simulate lint types clean

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "turnlog needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(STAMP)
	@$(BIN)/turnlog demo
	@command -v turnlog >/dev/null || echo "         (first, once in each shell: . $(VENV)/bin/activate)"

test: $(STAMP) lint types
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

test-slow: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal -m slow

# A seed is a whole session with crashes, failures and takeovers; make simulate SEED=8713 repeats one of them.
SEEDS ?= 200
simulate: $(STAMP)
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
