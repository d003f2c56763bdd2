# Everything a newcomer types. `make demo` and `make test` work on a fresh machine with Python 3.11+ and nothing of ours installed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test lint types bench clean

demo: $(STAMP)
	$(BIN)/medprobe demo

test: $(STAMP) lint types
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

# The pinned set. The stamp is written last, so an interrupted install is done again.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "medprobe needs Python 3.11 or newer: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@echo "installing the pinned set into $(VENV) (about 7 GB; two minutes on a fast line)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[eval,curation,space,dev]'
	@touch $@

clean:
	rm -rf demo build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
