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

# The package with its rules compiled, and how to run that instead of the sources beside it.
COMPILED := .compiled
COMPILED_STAMP := $(COMPILED)/.built
AS_COMPILED := PYTHONSAFEPATH=1 PYTHONPATH="$(CURDIR)/$(COMPILED)"
HEADERS := import os, sysconfig; print(os.path.exists(sysconfig.get_path("include") + "/Python.h") or "")
CAN_COMPILE = $(and $(shell command -v cc 2>/dev/null),$(shell $(PYTHON) -c '$(HEADERS)' 2>/dev/null))

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
	$(BIN)/python -m cardledger.commands.generate_docs docs

.PHONY: fuzz
fuzz: $(STAMP) ## Send tens of thousands of generated requests (FUZZ_EXAMPLES=20)
	FUZZ_EXAMPLES=$(or $(FUZZ_EXAMPLES),20) $(BIN)/python -m pytest tests/api/test_fuzz.py -q -s

.PHONY: compiled
compiled: $(COMPILED_STAMP) ## Compile the rules into .compiled (needs a C compiler)

$(COMPILED_STAMP): $(STAMP) hatch_build.py $(shell find -L cardledger -type f -not -name '*.pyc')
	@echo "compiling the rules into $(COMPILED) …"
	@rm -rf $(COMPILED)
	@CARDLEDGER_COMPILE=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --no-build-isolation --no-deps --target $(COMPILED) .
	@touch $@

OF_RULES := $(addprefix tests/core/test_,authorization.py build.py card_transaction.py entries.py \
  lifecycles.py money.py properties.py roll_up.py transfers.py wire.py) \
  $(addprefix tests/integration/test_,arrays.py engine.py guarantees.py history.py inbox.py lives.py transfers.py)

.PHONY: test-compiled
test-compiled: $(COMPILED_STAMP) ## Run the tests of rules and engine on the compiled rules
	@# Brief: what Hypothesis may find is in the rules, and they are the same ones.
	HYPOTHESIS_PROFILE=$(or $(HYPOTHESIS_PROFILE),brief) CARDLEDGER_COMPILED=1 PYTHONSAFEPATH=1 \
	  $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadscope \
	  --import-mode=importlib -o pythonpath="$(COMPILED) ." $(or $(ARGS),$(OF_RULES))

.PHONY: bench
bench: $(if $(CAN_COMPILE),$(COMPILED_STAMP),$(STAMP)) ## Measure rates and latencies on this machine (ARGS="--part engine")
	$(if $(CAN_COMPILE),$(AS_COMPILED)) $(BIN)/python -m benchmarks $(ARGS)

.PHONY: bench-smoke
bench-smoke: $(STAMP) ## Hold a few ratios of a short run to generous bars
	$(BIN)/python -m benchmarks --part smoke --rounds 5

.PHONY: bench-page
bench-page: $(STAMP) ## Renew docs/benchmarks.md of runs (RUN="run.json")
	$(BIN)/python -m benchmarks.page $(or $(RUN),$(error which run? RUN=run.json)) docs

.PHONY: mutants
mutants: $(STAMP) ## Change the rules one line at a time; the tests must notice
	$(BIN)/python -m benchmarks.mutate $(ARGS)

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
	rm -rf $(VENV) $(VENV)-lock $(COMPILED) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
