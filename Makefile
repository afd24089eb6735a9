# Two commands are enough for a newcomer: `make demo` and `make test`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo demo-down test check snapshots bench lock schemas clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

demo: $(VENV)/.runtime ## install what is missing, boot a sandbox Slurm, run the example, show the checks
	@scripts/demo

demo-down: $(VENV)/.runtime ## stop the demo's sandbox and remove every trace of it
	@$(BIN)/srtctl sandbox down

test: $(VENV)/.dev ## install what is missing, run everything
	@$(BIN)/srtctl sandbox install
	@$(MAKE) --no-print-directory lint
	@$(BIN)/python -m pytest -q tests/unit -m "not process" -n 2 --cov --cov-report=term
	@$(BIN)/python -m pytest -q tests/unit -m process -n 2 --dist loadgroup
	@$(BIN)/python -m pytest tests/e2e -n 3 --dist worksteal # launches mostly wait: three fill two cores

check: $(VENV)/.dev lint ## seconds: linters, types, import contracts, unit tests, snapshots, schemas
	@$(BIN)/python -m pytest -q tests/unit -m "not process" -n 2

.PHONY: lint
lint: $(VENV)/.dev
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache > .lint-imports.log 2>&1 || { cat .lint-imports.log; exit 1; }
	@scripts/lint-shell

snapshots: $(VENV)/.dev ## regenerate tests/snapshots; read the diff before you commit it
	@rm -rf tests/snapshots/*
	@$(BIN)/python -m pytest -q tests/unit/render/test_snapshots.py tests/unit/plan/test_text.py --snapshot-update
	@git --no-pager diff --stat -- tests/snapshots tests/unit/plan/__snapshots__

schemas: $(VENV)/.dev ## regenerate schemas/
	@$(BIN)/python scripts/write_schemas.py

bench: $(VENV)/.runtime ## start-up and planning, as ratios to `import yaml, pydantic`
	@$(BIN)/python scripts/bench.py

lock: $(VENV)/.dev ## resolve requirements/*.lock again
	@scripts/lock

clean: ## remove what make installed into this folder
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .lint-imports.log

$(VENV)/.runtime: requirements/runtime.lock pyproject.toml scripts/venv
	@scripts/venv $(PYTHON) $(VENV) runtime

$(VENV)/.dev: requirements/dev.lock pyproject.toml scripts/venv
	@scripts/venv $(PYTHON) $(VENV) dev
