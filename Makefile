# Everything runs in .venv, which is made here and remade when the pins change.
# Needs make, Python 3.11 or newer and a package index; uv is used when it is there.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
UV := $(shell command -v uv 2>/dev/null)
# Two workers: what the smallest machine that we promise to support has cores for.
TEST_WORKERS ?= 2
ARGS ?=

# uv reads a hash-pinned file as pip does, only ten times as fast.
ifneq ($(UV),)
INSTALL := $(UV) pip install --quiet --python $(BIN)/python
else
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
endif

.DEFAULT_GOAL := help

.PHONY: help
help: ## Say what there is
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-11s %s\n", $$1, $$2 }'

.PHONY: venv
venv: $(STAMP) ## Make or refresh the environment in .venv

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "cardledger needs Python 3.11 or newer; say which: make PYTHON=python3.12 …" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing what constraints.txt pins into $(VENV) …"
	@$(INSTALL) --require-hashes -r constraints.txt
	@$(INSTALL) --no-build-isolation --no-deps -e .
	@touch $@

.PHONY: demo
demo: $(STAMP) ## Play the demo: databases, API, workers and a proof (ARGS="…")
	@$(BIN)/cardledger demo $(ARGS)

.PHONY: test
test: $(STAMP) ## Run the tests (ARGS="tests/core -k tip")
	@# loadscope keeps a module on one worker: a database is made once a module.
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadscope $(ARGS)

.PHONY: docs
docs: $(STAMP) ## Renew the pages of docs that are made of the code
	$(BIN)/python -m api.pages docs

.PHONY: fuzz
fuzz: $(STAMP) ## Send tens of thousands of generated requests (FUZZ_EXAMPLES=20)
	FUZZ_EXAMPLES=$(or $(FUZZ_EXAMPLES),20) $(BIN)/python -m pytest tests/api/test_fuzz.py -q -s

.PHONY: bench
bench: $(STAMP) ## Measure rates and latencies on this machine (ARGS="--part engine")
	$(BIN)/cardledger bench $(ARGS)

.PHONY: bench-smoke
bench-smoke: $(STAMP) ## Hold a few ratios of a short run to generous bars
	$(BIN)/cardledger bench --part smoke --rounds 5

.PHONY: bench-page
bench-page: $(STAMP) ## Renew docs/benchmarks.md of runs (RUN="run.json")
	$(BIN)/python -m benchmarks.page $(or $(RUN),$(error which run? RUN=run.json)) docs

.PHONY: mutants
mutants: $(STAMP) ## Change the rules one line at a time; the tests must notice
	$(BIN)/python benchmarks/mutate.py $(ARGS)

.PHONY: check
check: lint types arrows ## Lint, types and import arrows

.PHONY: lint
lint: $(STAMP) ## Lint and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: types
types: $(STAMP) ## mypy --strict over everything
	$(BIN)/mypy

.PHONY: arrows
arrows: $(STAMP) ## Which package may import which
	$(BIN)/lint-imports

.PHONY: lock
lock: ## Pin every dependency anew into constraints.txt
	@test -n "$(UV)" || { $(PYTHON) -m venv $(VENV)-lock && $(VENV)-lock/bin/python -m pip install --quiet uv; }
	$(or $(UV),$(VENV)-lock/bin/uv) pip compile pyproject.toml --upgrade --universal --python-version 3.11 \
	  --all-extras --group build --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --quiet --output-file constraints.txt

.PHONY: clean
clean: ## Remove the environment and everything that tools left behind
	rm -rf $(VENV) $(VENV)-lock .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
