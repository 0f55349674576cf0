# `make demo` installs what running needs and runs the five objectives on this machine. See README.md.
#
# PYTHON     the interpreter the environment is made from, 3.11 or newer
# DEMO_ARGS  what the demo is given besides, as in  make demo DEMO_ARGS="--seeds 3 --budget tokens=2e7"
# MUTANTS    what `make mutants` is given besides, as in  make mutants MUTANTS="--seed other workbench/models/losses.py"
# GPU_ARGS   what the scripts of `make gpu-check` and `make gpu-job` are given; GPU_ARGS="--device cpu --tiny" rehearses them
#            without a GPU
# NAME       the study of `make gpu-job`: small-pair, small-rtd, generator-width, five-objectives or streams
# TEST_ARGS  what pytest is given besides, as in  make test TEST_ARGS="-k resume -x" (default: three processes,
#            each of which takes whole files, or of the slow tests neighbouring ones, which share what they trained)
# pip's own settings (PIP_INDEX_URL, PIP_FIND_LINKS, pip.conf ...) are respected.

PYTHON ?= python3
DEMO_ARGS ?= --seeds 4 --workers 2
TEST_ARGS ?=
GPU_ARGS ?=
MUTANTS ?= --sample 200
VENV := .venv
READY := $(VENV)/.ready
DEV_READY := $(VENV)/.ready-dev
UNFINISHED := $(VENV)/.unfinished
# Tests start hundreds of processes: what Python compiles in one, the next ones read.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check

# An environment that was moved here, or whose interpreter is gone, is made anew: its scripts name absolute paths.
ifneq ($(shell cat $(READY) 2>/dev/null && $(VENV)/bin/python -c '' 2>/dev/null && echo runs),$(CURDIR) runs)
$(shell [ ! -e $(READY) ] || mv $(READY) $(UNFINISHED))
endif

.PHONY: help demo setup test test-slow gpu-check gpu-job mutants lint format docs clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       pre-train, measure and compare the five objectives on this machine"
	@echo "make setup      an environment for changing the code; the targets below make it by themselves"
	@echo "make test       the tests that take minutes at most"
	@echo "make test-slow  the tests that train for longer"
	@echo "make gpu-check  the tests that need a GPU, then the speed of training on it"
	@echo "make gpu-job    a study of 13 minutes on one GPU, NAME=small-pair or another of gpu_job.py"
	@echo "make mutants    change the code in 200 places and look whether tests notice"
	@echo "make lint       ruff and mypy"
	@echo "make format     let ruff rewrite what it can"
	@echo "make docs       build the documentation site; a broken link is an error"
	@echo "make clean      remove the environment, caches and builds; runs and reports stay"

demo: $(READY)
	$(VENV)/bin/workbench run ablation $(DEMO_ARGS)

setup: $(DEV_READY)

test: $(DEV_READY)
	HF_HUB_OFFLINE=1 $(VENV)/bin/python -m pytest $(or $(TEST_ARGS),-n 3 --dist loadfile --no-loadscope-reorder)

test-slow: $(DEV_READY)
	HF_HUB_OFFLINE=1 $(VENV)/bin/python -m pytest -m "slow and not gpu" $(or $(TEST_ARGS),-n 3 --dist worksteal)

gpu-check: $(DEV_READY)
	HF_HUB_OFFLINE=1 $(VENV)/bin/python -m pytest -m gpu $(or $(TEST_ARGS),-n 3)
	mkdir -p build
	HF_HUB_OFFLINE=1 $(VENV)/bin/python experiments/benchmarks/gpu.py build/gpu.json $(GPU_ARGS)
	HF_HUB_OFFLINE=1 $(VENV)/bin/python experiments/benchmarks/scaling.py build/scaling.json $(GPU_ARGS)

gpu-job: $(READY)
	$(VENV)/bin/python experiments/benchmarks/gpu_job.py $(NAME) build/gpu-job/$(NAME)/back $(GPU_ARGS)

mutants: $(DEV_READY)
	$(VENV)/bin/python -m tests.mutation $(MUTANTS)

lint: $(DEV_READY)
	$(VENV)/bin/python -m ruff check .
	$(VENV)/bin/python -m ruff format --check .
	$(VENV)/bin/python -m mypy

docs: $(DEV_READY)
	$(VENV)/bin/python docs/generate.py
	$(VENV)/bin/python -m sphinx -W --keep-going -q -c docs -b html . build/site
	@echo "site: build/site/docs/index.html"

format: $(DEV_READY)
	$(VENV)/bin/python -m ruff check --fix .
	$(VENV)/bin/python -m ruff format .

# The environment has two stages: READY has what running needs, DEV_READY also the tools of tests, checks and docs. An
# install of either that was cut short leaves UNFINISHED behind, and the next `make` starts over. torch goes first and
# alone: it is by far the largest, and pip takes a local build of the pinned version (such as a CPU one) where it finds
# one. --use-pep517: older versions of pip would build seqeval, which has no wheel, with build tools that lack their own
# dependencies.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "workbench needs Python 3.11 or newer, which '$(PYTHON)' is not ($$($(PYTHON) --version 2>&1 || true));" \
	       "name another, as in: make $(or $(firstword $(MAKECMDGOALS)),demo) PYTHON=python3.12" >&2; exit 2; }
	@if [ -e $(UNFINISHED) ] || ! $(VENV)/bin/python -m pip --version >/dev/null 2>&1 \
	    || ! $(VENV)/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	  echo "making $(VENV)"; rm -rf $(VENV); $(PYTHON) -m venv $(VENV) || exit 2; fi
	@rm -f $(READY); touch $(UNFINISHED)
	@echo "installing torch; where no build is at hand this loads one, up to gigabytes"
	@$(PIP) install -q -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	@echo "installing the rest, a few hundred megabytes"
	@$(PIP) install -q --use-pep517 -c constraints.txt -e .
	@rm -f $(UNFINISHED); printf '%s\n' '$(CURDIR)' > $(READY)

$(DEV_READY): $(READY)
	@mv $(READY) $(UNFINISHED)
	@echo "installing the tools of tests, checks and docs"
	@$(PIP) install -q --use-pep517 -c constraints.txt -e ".[dev]"
	@mv $(UNFINISHED) $(READY); touch $(READY) $(DEV_READY)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis mutants mutants.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
