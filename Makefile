# Every recipe of the project, for people and for CI. `make` alone lists them.
# They work in a virtual environment of their own, made when it is missing or outdated: Python 3.11
# or newer and make are all that has to be there. PYTHON names another Python. `make run` installs
# what a server needs; the other recipes add Spark and the test tools.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SERVER := $(VENV)/.server
INSTALLED := $(VENV)/.installed
# Two test processes suit two cores; `make test JOBS=1` runs one test at a time.
JOBS ?= 2
# Files that share something expensive stay in one process, and are taken in the order of tests/conftest.py.
PROCESSES := -n $(JOBS) --dist loadgroup --no-loadscope-reorder
ARGS ?=
# `--quick` and `--help` reach the Spark benchmark too.
SPARK_ARGS ?= $(if $(findstring --quick,$(ARGS)),--messages 200000) $(filter --help,$(ARGS))

export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup run check test lint fmt bench soak specs docs site pictures dashboard constraints clean

help: ## List the recipes
	@sed -nE 's/^([a-z]+):[^#]*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: $(INSTALLED) ## Make the environment with everything in it

run: ## Start the broker on port 6632 with an embedded PostgreSQL (ARGS="--port 7000")
	@$(MAKE) --no-print-directory -j2 $(SERVER) dashboard
	@$(BIN)/skep serve $(ARGS)

check: lint ## Check what can be checked in minutes: lint, unit tests, SQL tests of changed functions
	$(BIN)/python -m pytest -q $(PROCESSES) tests/tidy tests/typecheck tests/unit $$($(BIN)/python tools/changed_sql_tests.py)

test: lint dashboard ## Check everything: lint, then the whole test suite
	$(BIN)/python -m pytest $(PROCESSES)

lint: $(INSTALLED) ## Check style, formatting, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

fmt: $(INSTALLED) ## Format the code and fix what can be fixed automatically
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED) ## Measure throughput, latency and cost per message (ARGS="--help")
	$(BIN)/python -m benchmarks $(ARGS)
	$(BIN)/python -m benchmarks.jobs $(filter --quick,$(ARGS))
	$(BIN)/python -m benchmarks.spark $(SPARK_ARGS)

soak: $(INSTALLED) ## Break things for a long time and account for every message (ARGS="--help")
	$(BIN)/python -m tests.faults.soak $(ARGS)

specs: $(INSTALLED) ## Check the TLA+ models and print what was found, with every counterexample
	$(BIN)/python -m tests.specs.support.models

docs: $(INSTALLED) ## Write the reference pages that come from the code
	$(BIN)/python -m tools.generate_reference_pages
	$(BIN)/python tools/generate_lock_reference.py

site: $(INSTALLED) ## Build the documentation as a site with search, in build/site
	$(BIN)/python -m tools.build_site

pictures: $(INSTALLED) dashboard ## Take the pictures in docs anew, of brokers that really run
	$(BIN)/python tools/capture_terminal.py
	$(BIN)/python tools/capture_admin_terminals.py
	REQUIRE_BROWSER=1 SKEP_WRITE_SCREENSHOTS=1 $(BIN)/python -m pytest -q tests/dashboard/test_looks.py tests/dashboard/test_report_page.py -k keep

# The dashboard needs Node to be built; without it a checkout serves everything else.
ifneq ($(shell command -v npm),)
SITE := src/skep/dashboard/site/index.html
PACKAGES := dashboard/node_modules/.package-lock.json
endif

dashboard: $(SITE) ## Build the dashboard, if there is Node on the path

src/skep/dashboard/site/index.html: $(PACKAGES) $(shell find dashboard -path '*/node_modules' -prune -o -type f -print)
	cd dashboard && npm run build

dashboard/node_modules/.package-lock.json: dashboard/package-lock.json
	cd dashboard && npm ci --no-audit --no-fund
	@touch $@

constraints: ## Pin the newest versions that pyproject.toml allows, in constraints.txt
	rm -rf build/constraints
	$(PYTHON) -m venv build/constraints
	build/constraints/bin/python -m pip install --quiet -e ".[dev]"
	echo '# The versions we test with, all of them. Written by `make constraints`.' > constraints.txt
	build/constraints/bin/python -m pip freeze --exclude-editable >> constraints.txt
	rm -rf build/constraints

clean: ## Remove what these recipes made, except for the broker's data
	rm -rf dashboard/node_modules src/skep/dashboard/site
	rm -rf $(VENV) build dist .hypothesis .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(SERVER): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("skep needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -e ".[server]" -c constraints.txt
	@touch $@

$(INSTALLED): $(SERVER)
	$(BIN)/python -m pip install --quiet -e ".[dev]" -c constraints.txt
	@touch $@
