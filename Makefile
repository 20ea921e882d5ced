# Every target sets up what it needs: a virtual environment in .venv with pinned versions.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-all check fix bench conformance mutation clean help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ —/'

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $(READY)

demo: $(READY)  ## audit the recorded ALFWorld rollouts and explain one number
	$(BIN)/groupwise check rollouts examples/alfworld_rollouts.jsonl
	$(BIN)/groupwise audit examples/alfworld_rollouts.jsonl

test: $(READY)  ## run the tests (a few minutes)
	$(BIN)/python -m pytest -n 2 -m "not slow and not gpu"

test-all: $(READY)  ## run the slow tests too
	$(BIN)/python -m pytest -n 2 -m "not gpu"

check: $(READY)  ## formatting, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(READY)  ## repair what can be repaired automatically
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## speed of credit against the loop oracles
	$(BIN)/python -m benchmarks.credit

conformance: $(READY)  ## regenerate docs/conformance.md against installed peers (downloads them into .peers)
	$(BIN)/python -m conformance.with_peers

mutation: $(READY)  ## plant bugs in groups/ and advantages/ and see which tests turn red
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[mutation]"
	$(BIN)/mutmut run

clean:  ## remove what the other targets made
	rm -rf .venv .peers mutants
