# Everything runs in .venv, which is created here and refreshed when the locks change.
# Needs make, Python 3.11 or newer and a package index; uv is used when it is installed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
UV := $(shell command -v uv 2>/dev/null)
# One more than the cores of the smallest supported machine: tests wait for processes, servers and
# time limits a third of the time.
TEST_WORKERS ?= 3
LOCK_ARGS ?= --upgrade
ARGS ?=

# The tests start a hundred processes, and each would compile every module again where the
# environment forbids to keep bytecode, as that of images does. `make clean` removes it.
unexport PYTHONDONTWRITEBYTECODE

# The package with compiled rules, and the environment that imports it instead of the sources.
COMPILED := .compiled
COMPILED_STAMP := $(COMPILED)/.built
AS_COMPILED := PYTHONSAFEPATH=1 PYTHONPATH="$(CURDIR)/$(COMPILED)"
HEADERS := import os, sysconfig; print(os.path.exists(sysconfig.get_path("include") + "/Python.h") or "")
CAN_COMPILE = $(and $(shell command -v cc 2>/dev/null),$(shell $(PYTHON) -c '$(HEADERS)' 2>/dev/null))

# Installs into an environment: $(call install,VENV). uv checks hashes as pip does, and is faster.
ifneq ($(UV),)
install = $(UV) pip install --quiet --python $(1)/bin/python
else
install = $(1)/bin/python -m pip install --quiet --disable-pip-version-check
endif

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-14s %s\n", $$1, $$2 }'

.PHONY: venv
venv: $(STAMP) ## Create or refresh the environment in .venv

$(STAMP): pyproject.toml client/pyproject.toml constraints-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "cardledger needs Python 3.11 or newer; choose an interpreter: make PYTHON=python3.12 …" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing constraints-dev.txt into $(VENV) …"
	@$(call install,$(VENV)) --require-hashes -r constraints-dev.txt
	@$(call install,$(VENV)) --no-build-isolation --no-deps -e . -e ./client
	@touch $@

.PHONY: demo
demo: $(STAMP) ## Run the demo: servers, API, workers and checks (ARGS="…")
	@$(BIN)/cardledger demo $(ARGS)

.PHONY: test
test: $(STAMP) ## Run the tests (ARGS="tests/core -k tip")
	@# loadscope keeps a module on one worker, which creates one database for each module.
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadscope --no-loadscope-reorder $(ARGS)

BROWSER_STAMP := $(VENV)/.browser-installed

$(BROWSER_STAMP): $(STAMP) constraints-browser.txt
	@echo "installing constraints-browser.txt into $(VENV) …"
	@$(call install,$(VENV)) --require-hashes -r constraints-browser.txt
	@touch $@

.PHONY: test-console
test-console: $(BROWSER_STAMP) ## Show the pages of the console in Chromium, which must be installed (ARGS="…")
	$(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder -m browser tests/console/browser $(ARGS)

.PHONY: pictures
pictures: $(BROWSER_STAMP) ## Renew the pictures of README and docs from the pages of the console
	PICTURES=docs/pictures $(BIN)/python -m pytest -q -m browser tests/console/browser/test_pictures.py

.PHONY: docs
docs: $(STAMP) ## Regenerate the generated pages of docs
	$(BIN)/python -m cardledger.commands.generate_docs docs

# What `make site` and `make release` need besides: the generator of the site, checks of packages.
PUBLISH := .venv-publish
PUBLISH_STAMP := $(PUBLISH)/.installed
SITE := build/site

$(PUBLISH_STAMP): pyproject.toml client/pyproject.toml constraints-publish.txt
	@rm -rf $(PUBLISH) && $(PYTHON) -m venv $(PUBLISH)
	@echo "installing constraints-publish.txt into $(PUBLISH) …"
	@$(call install,$(PUBLISH)) --require-hashes -r constraints-publish.txt
	@$(call install,$(PUBLISH)) --no-build-isolation --no-deps -e . -e ./client
	@touch $@

.PHONY: site
site: $(PUBLISH_STAMP) ## Build the documentation as a site: build/site/index.html
	@rm -rf $(SITE) build/site-pages
	@$(PUBLISH)/bin/python docs/site/stage.py build/site-pages
	@$(PUBLISH)/bin/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env \
	  --conf-dir docs/site --doctree-dir build/site-doctrees build/site-pages $(SITE)
	@echo "$(SITE)/index.html"

.PHONY: release
release: $(PUBLISH_STAMP) ## Build and check the distributions, try the wheel; uploads nothing
	@PYTHON="$(PYTHON)" .ci/release $(PUBLISH)/bin/python
.PHONY: dist
dist: $(STAMP) ## Build wheels and sdists of cardledger and cardledger-client into dist
	$(BIN)/python -m hatchling build -d dist
	cd client && ../$(BIN)/python -m hatchling build -d ../dist

.PHONY: schedules
schedules: $(STAMP) ## Try every fault at every boundary, and many preemptions
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -n $(TEST_WORKERS) tests/schedules

OF_MODEL := $(addprefix tests/core/test_,conversion.py entries.py payments.py properties.py) \
  $(addprefix tests/integration/test_,payment_machine.py credits.py)

.PHONY: properties
properties: $(STAMP) ## Compare cards, credits, transfers and quotes with the models (EXAMPLES=10000)
	HYPOTHESIS_PROFILE=nightly NIGHTLY_EXAMPLES=$(or $(EXAMPLES),10000) \
	  $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadscope $(OF_MODEL) $(ARGS)

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
  lifecycles.py money.py properties.py card_transaction_resource.py transfers.py wire.py write_offs.py) \
  $(addprefix tests/integration/test_,arrays.py engine.py guarantees.py history.py inbox.py lives.py transfers.py \
  write_offs.py)

.PHONY: test-compiled
test-compiled: $(COMPILED_STAMP) ## Run the tests of rules and engine on the compiled rules
	@# The brief profile: `make test` has searched the same rules with more examples.
	HYPOTHESIS_PROFILE=$(or $(HYPOTHESIS_PROFILE),brief) CARDLEDGER_COMPILED=1 PYTHONSAFEPATH=1 \
	  $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadscope \
	  --import-mode=importlib -o pythonpath="$(COMPILED) ." $(or $(ARGS),$(OF_RULES))

.PHONY: bench
bench: $(if $(CAN_COMPILE),$(COMPILED_STAMP),$(STAMP)) ## Measure rates and latencies on this machine (ARGS="--part engine")
	$(if $(CAN_COMPILE),$(AS_COMPILED)) $(BIN)/python -m benchmarks $(ARGS)

.PHONY: bench-smoke
bench-smoke: $(STAMP) ## Compare ratios of a short run with generous limits
	$(BIN)/python -m benchmarks --part smoke --rounds 5

.PHONY: bench-compare
bench-compare: $(STAMP) ## Measure revisions by turns (ARGS="main~5 HEAD")
	$(BIN)/python -m benchmarks.compare $(or $(ARGS),$(error set ARGS, for example ARGS="main~5 HEAD"))

.PHONY: bench-page
bench-page: $(STAMP) ## Regenerate docs/benchmarks.md from runs (RUN="run.json")
	$(BIN)/python -m benchmarks.page $(or $(RUN),$(error set RUN, for example RUN=run.json)) docs

.PHONY: storm
storm: $(STAMP) ## Strike a whole system with faults and check every promise (SEED=1 MINUTES=5)
	$(BIN)/python -m storm --seed $(or $(SEED),1) --minutes $(or $(MINUTES),5) $(ARGS)

.PHONY: storm-page
storm-page: $(STAMP) ## Regenerate docs/storm.md from runs (RUN="run.json …")
	$(BIN)/python -m storm.page $(or $(RUN),$(error which run? RUN=run.json)) docs

.PHONY: attack
attack: $(STAMP) ## Attack a whole system and judge what another platform notices (ARGS="--seconds 60")
	$(BIN)/python -m attack $(ARGS)

.PHONY: mutants
mutants: $(STAMP) ## Mutation testing: change one line of the rules, expect failing tests
	$(BIN)/python -m benchmarks.mutate $(ARGS)

.PHONY: check
check: lint types imports ## Lint, types and import contracts

.PHONY: lint
lint: $(STAMP) ## Check lint rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: types
types: $(STAMP) ## Check types with mypy --strict
	$(BIN)/mypy

.PHONY: imports
imports: $(STAMP) ## Check the import contracts
	$(BIN)/lint-imports

# What the image installs, the runtime lock: it must suffice, be small and hold no development package.
RUNTIME := .venv-runtime
RUNTIME_LIMIT_MB := 165

.PHONY: runtime
runtime: $(STAMP) ## Install wheel and runtime lock only, import all modules, check the size
	@rm -rf $(RUNTIME) && $(PYTHON) -m venv $(RUNTIME)
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
	  --wheel-dir $(RUNTIME)/wheel .
	@$(RUNTIME)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints.txt
	@$(RUNTIME)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $(RUNTIME)/wheel/*.whl
	@$(RUNTIME)/bin/python -P tests/import_everything.py && $(RUNTIME)/bin/cardledger --version
	@$(RUNTIME)/bin/python -m pip --quiet uninstall --yes setuptools pip
	@size=$$(du -sm $(RUNTIME) | cut -f1); rm -rf $(RUNTIME); \
	  echo "runtime: $$size MB installed, bytecode included (limit $(RUNTIME_LIMIT_MB))"; \
	  test $$size -le $(RUNTIME_LIMIT_MB)

# The oldest supported versions: the lower bounds of pyproject.toml.
LOWEST := .venv-lowest
LOWEST_STAMP := $(LOWEST)/.installed
LOWEST_TESTS := tests/core tests/integration/test_engine.py tests/integration/test_workers.py \
  tests/api/test_flow.py tests/api/protocol tests/api/test_idempotency.py tests/system/test_cli.py

.PHONY: test-lowest
test-lowest: $(LOWEST_STAMP) ## Run part of the tests on the oldest supported dependencies
	PYTHONPATH=. $(LOWEST)/bin/python tests/import_everything.py
	@# Older releases of pydantic name some schemas otherwise, so the checked-in OpenAPI document is
	@# not compared.
	HYPOTHESIS_PROFILE=brief $(LOWEST)/bin/python -m pytest \
	  --deselect tests/system/test_cli.py::test_the_document_of_the_interface_is_printed_as_it_is_checked_in \
	  -n $(TEST_WORKERS) --dist loadscope $(or $(ARGS),$(LOWEST_TESTS))

$(LOWEST_STAMP): pyproject.toml constraints-lowest.txt
	@rm -rf $(LOWEST) && $(PYTHON) -m venv $(LOWEST)
	@echo "installing constraints-lowest.txt into $(LOWEST) …"
	@$(call install,$(LOWEST)) --require-hashes -r constraints-lowest.txt
	@$(call install,$(LOWEST)) --no-build-isolation --no-deps -e .
	@touch $@

.PHONY: test-matrix
test-matrix: ## Run a quick part of the tests on each Python 3.11-3.14 that is installed
	@UV="$(UV)" TEST_WORKERS="$(TEST_WORKERS)" .ci/test-matrix $(ARGS)

COMPILE_LOCK = $(or $(UV),$(VENV)-lock/bin/uv) pip compile --universal --python-version 3.11 \
  --generate-hashes --no-header --no-annotate --no-emit-index-url --quiet
# Tools of `make test-lowest` and its editable install, at the versions of constraints-dev.txt.
LOWEST_TOOLS := duckdb|hatchling|httpx2|hypothesis|jsonschema-rs|openpyxl|packaging|psutil|pygal|pytest|pytest-xdist|standardwebhooks

.PHONY: lock
lock: ## Update the locks: constraints.txt (runtime), -browser, -dev, -publish and -lowest (LOCK_ARGS="")
	@test -n "$(UV)" || { $(PYTHON) -m venv $(VENV)-lock && $(VENV)-lock/bin/python -m pip install --quiet uv; }
	@# The development lock first: its tools may require an older version of a shared dependency.
	$(COMPILE_LOCK) $(LOCK_ARGS) pyproject.toml --extra embedded --extra export --extra bank --extra testing \
	  --extra dev --group build --output-file constraints-dev.txt
	$(COMPILE_LOCK) $(LOCK_ARGS) pyproject.toml --constraints constraints-dev.txt \
	  --output-file constraints.txt
	$(COMPILE_LOCK) $(LOCK_ARGS) pyproject.toml --extra testing --group publish \
	  --constraints constraints-dev.txt --output-file constraints-publish.txt
	$(COMPILE_LOCK) $(LOCK_ARGS) pyproject.toml --extra browser --constraints constraints-dev.txt \
	  --output-file constraints-browser.txt
	sed -nE 's/^(($(LOWEST_TOOLS))==[^ ]+).*/\1/p' constraints-dev.txt > $(VENV)-lowest.in
	$(COMPILE_LOCK) --upgrade --resolution lowest-direct pyproject.toml $(VENV)-lowest.in \
	  --extra embedded --extra testing --extra export --extra bank --output-file constraints-lowest.txt
	@rm $(VENV)-lowest.in

.PHONY: clean
clean: ## Remove the environments, builds and caches
	rm -rf $(VENV) $(VENV)-lock $(VENV)-3.* $(RUNTIME) $(LOWEST) $(PUBLISH) $(COMPILED) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
