# Everything a newcomer types. `make demo` and `make test` work on a fresh machine with Python 3.11+ and nothing of ours installed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# `make lint` needs one small tool: that of the whole set where this is installed, or else a virtual environment of 40 MB for itself.
TOOLS  := $(if $(wildcard $(STAMP)),$(VENV),.venv-lint)
LINT   := $(TOOLS)/bin
# Test processes at a time: one more than a small machine has processors, since tests wait for servers, browsers and time limits.
# Each takes up to 3 GB with what it starts.
WORKERS ?= 3
# Some containers forbid Python to keep what it compiled. Each of the hundred processes of a test run would then compile what it imports
# once more (17 s of processor time for torch and gradio), since nothing was compiled on installing, either.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-all test-harnesses some-tests all-tests lint types docs hooks clean

demo: $(STAMP)
	$(BIN)/medprobe demo

# With small samples of what is generated; `make test-all` adds the long runs (marked `exhaustive`).
test: $(STAMP) lint
	@$(MAKE) --no-print-directory -j2 types some-tests

test-all: $(STAMP) lint
	@$(MAKE) --no-print-directory -j2 types all-tests

some-tests: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) -m "not exhaustive and not harness"

all-tests: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) -m "not harness"

# Other harnesses (inspect-ai, lmms-eval), each installed into an environment of its own: gigabytes, and many minutes.
test-harnesses: $(STAMP)
	$(BIN)/python -m pytest -m harness

lint: $(TOOLS)/.installed
	$(LINT)/ruff check .
	$(LINT)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

# The site of guides, in site/. It imports nothing of ours, so it needs an environment of 270 MB, not of 7 GB.
docs: .venv-docs/.installed
	.venv-docs/bin/mkdocs build --quiet

.venv-docs/.installed: pyproject.toml constraints.txt
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt mkdocs-jupyter mkdocs-material
	@touch $@

hooks: .venv-lint/.installed
	.venv-lint/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt pre-commit
	.venv-lint/bin/pre-commit install

.venv-lint/.installed: constraints.txt
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv .venv-lint
	.venv-lint/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt ruff
	@touch $@

# The pinned set. The stamp is written last, so an interrupted install is done again. Python compiles a module when it is first imported;
# to compile all 21,000 here would take as long again as to copy them.
$(STAMP): pyproject.toml constraints.txt
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv $(VENV)
	@echo "installing the pinned set into $(VENV) (about 7 GB; two minutes on a fast line)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[eval,curation,space,dev]'
	@touch $@

CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "medprobe needs Python 3.11 or newer: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }

clean:
	rm -rf demo build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis .venv-lint .venv-docs site
