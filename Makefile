# Every verb sets up what it needs in .venv, from names and versions in constraints.txt.
PYTHON ?= python3
BIN := .venv/bin

# Some machines forbid Python to keep what it compiles: every start would then take seconds.
export PYTHONDONTWRITEBYTECODE :=

# uv takes a fifth of pip's time. Where it cannot be had, or a mirror is known to pip alone, pip installs;
# modules are then compiled when they are first imported, not all of them now.
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check --no-compile -c constraints.txt
install = $(BIN)/uv pip install -q --python $(BIN)/python -c constraints.txt -e '.[$(1)]' || $(PIP) -e '.[$(1)]'

.PHONY: run test lint pytest docs notebooks lowest bench slow fuzz clean

run: .venv/.run        ## learn the default policy and show what came out
	$(BIN)/gradband learn

test: .venv/.dev       ## lint, types, tests (one of them builds the site), side by side
	$(MAKE) --no-print-directory -j 2 lint pytest

pytest: .venv/.dev     # three workers keep two cores busy while tests of services wait; their matrices are small
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 3 --dist worksteal

lint: .venv/.dev       ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/.dev       ## build the site into site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

notebooks: .venv/.dev  ## run the notebooks of the site again, and keep what they show
	$(BIN)/python docs/notebooks/run.py

lowest: .venv/.dev     ## core tests against the lowest versions that pyproject.toml allows
	$(BIN)/python tests/lowest.py

slow: .venv/.dev       ## checks that take longer than a test run may
	$(BIN)/python -m pytest -q -m slow tests

fuzz: .venv/.dev       ## fuzz whatever reads files, MINUTES each
	$(call install,fuzz)
	$(BIN)/python tests/fuzz.py --minutes $(or $(MINUTES),20)

bench: .venv/.run      ## speed side by side with peers
	$(BIN)/gradband bench

.venv/bin/python:
	$(PYTHON) -m venv .venv
	-$(PIP) uv

.venv/.run: .venv/bin/python pyproject.toml constraints.txt
	$(call install,learn)
	touch $@

.venv/.dev: .venv/bin/python pyproject.toml constraints.txt
	$(call install,dev)
	touch $@ .venv/.run

clean:                 ## remove everything that was made here
	rm -rf .venv .venv-lowest runs site dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -exec rm -rf {} +
