# `make` alone lists what there is. Needs Python 3.10 or newer and make, nothing else.

PYTHON ?= python3
ARGS ?=
PYTEST_ARGS ?=

VENV := .venv
MINIMUM := .venv-minimum
COMPILED := .venv-extras
OPENERS := .venv-openers
RUNTIMES := .venv-runtimes
SITE := .venv-docs
ONNX := .venv-onnx
EXTRAS := dev,demo,mining,evaluate,lora,ray
PIP := -m pip install --quiet --disable-pip-version-check
# The pinned set needs Python 3.11 (transformers 5.23 and numpy 2.4 do); on 3.10 pip picks from pyproject's ranges.
pinned = $(shell $(1) -c 'import sys; print("--constraint constraints.txt" * (sys.version_info >= (3, 11)))')

# Tests share out over the cores, at most four processes.
PYTEST = -m pytest --numprocesses $(shell $(PYTHON) -c 'import os; print(min(4, os.cpu_count() or 1))') --dist worksteal

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

quickstart: $(VENV)/installed-demo ## train, evaluate and export a small model on this machine (options: ARGS="--max_steps 60 ...")
	$(VENV)/bin/hf-xsent quickstart $(ARGS)

test: lint ## lint, types and all tests (options for pytest: PYTEST_ARGS="-k dap")
	$(VENV)/bin/python $(PYTEST) $(PYTEST_ARGS)

test-ray: $(VENV)/installed-dev ## commands on a Ray cluster of this machine: killed workers, nodes and drivers
	$(VENV)/bin/python -m pytest tests/runs/test_engines.py $(PYTEST_ARGS)

test-minimum: $(MINIMUM)/installed ## all tests on the oldest versions that pyproject.toml allows
	$(MINIMUM)/bin/python $(PYTEST) $(PYTEST_ARGS)

test-extras: $(COMPILED)/installed $(ONNX)/installed ## the tests of rarer extras (DeepSpeed, eflomal, ONNX), in an environment of their own
	HF_XSENT_ONNX_PYTHON=$(abspath $(ONNX))/bin/python $(COMPILED)/bin/python -m pytest tests/training/test_deepspeed.py tests/words tests/publishing/test_onnx.py $(PYTEST_ARGS)

test-openers: $(VENV)/installed-dev $(OPENERS)/installed ## exports in environments that have transformers or sentence-transformers alone
	HF_XSENT_OPENERS=$(abspath $(OPENERS)) $(VENV)/bin/python -m pytest tests/publishing/test_other_environments.py $(PYTEST_ARGS)

test-runtimes: $(RUNTIMES)/installed ## open exports in ONNX Runtime, OpenVINO, fastembed, transformers.js and llama.cpp
	$(RUNTIMES)/bin/python benchmarks/runtimes.py --node $(RUNTIMES)/node --output $(RUNTIMES)/results.json $(ARGS)

docs: $(SITE)/installed ## build the docs site into build/site; a dead link is an error
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --strict --site-dir build/site

attack: $(VENV)/installed-dev ## random kills of commands, 10 minutes (SEED=7 repeats an attack; ARGS="--kills 20")
	$(VENV)/bin/python -m tests.attack $(if $(SEED),--seed $(SEED)) $(ARGS)

gpu: $(VENV)/installed-dev ## measure training, encoding and mining on one GPU, 20 minutes (ARGS="--minutes 10 --only training")
	$(VENV)/bin/python benchmarks/gpu $(ARGS)

lint: $(VENV)/installed-dev ## ruff and mypy, changing nothing
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

fix: $(VENV)/installed-dev ## let ruff mend and format
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean: ## remove environments and caches
	rm -rf $(VENV) $(MINIMUM) $(COMPILED) $(OPENERS) $(RUNTIMES) $(SITE) $(ONNX) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Environments. A stamp is renewed when pyproject.toml or its constraints are; `installed-dev` builds on `installed-demo`.

$(VENV)/bin/python:
	@$(call require-python)
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed-demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP) $(call pinned,$(VENV)/bin/python) --editable '.[demo]'
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed-demo
	$(VENV)/bin/python $(PIP) $(call pinned,$(VENV)/bin/python) --editable '.[$(EXTRAS)]'
	@touch $@

$(MINIMUM)/installed: pyproject.toml constraints-minimum.txt
	@$(call require-python)
	$(PYTHON) -m venv --clear $(MINIMUM)
	$(MINIMUM)/bin/python $(PIP) --constraint constraints-minimum.txt --editable '.[$(EXTRAS)]'
	@touch $@

$(COMPILED)/installed: pyproject.toml constraints.txt
	@$(call require-python)
	$(PYTHON) -m venv --clear $(COMPILED)
	DS_BUILD_OPS=0 $(COMPILED)/bin/python $(PIP) $(call pinned,$(PYTHON)) --editable '.[dev,deepspeed,align,onnx]'
	@touch $@

$(SITE)/installed: pyproject.toml
	@$(call require-python)
	$(PYTHON) -m venv --clear $(SITE)
	$(SITE)/bin/python $(PIP) mkdocs==1.6.1 mkdocs-material==9.8.1 mkdocstrings-python==2.0.11
	@touch $@

# sentence-transformers' ONNX backend needs optimum-onnx, which needs transformers 4.
$(ONNX)/installed: constraints.txt
	@$(call require-python)
	$(PYTHON) -m venv --clear $(ONNX)
	$(ONNX)/bin/python $(PIP) torch==2.13.0 'sentence-transformers[onnx]<6'
	@touch $@

# The oldest sentence-transformers that opens our exports, with the last transformers that it takes.
$(OPENERS)/installed: constraints.txt
	@$(call require-python)
	rm -rf $(OPENERS)
	for name in transformers sentence-transformers sentence-transformers-oldest; do $(PYTHON) -m venv $(OPENERS)/$$name || exit; done
	$(OPENERS)/transformers/bin/python $(PIP) $(call pinned,$(PYTHON)) torch transformers
	$(OPENERS)/sentence-transformers/bin/python $(PIP) $(call pinned,$(PYTHON)) sentence-transformers
	$(OPENERS)/sentence-transformers-oldest/bin/python $(PIP) torch==2.13.0 sentence-transformers==3.0.1 'transformers<5'
	@touch $@

# fastembed and LangChain need an older huggingface_hub than the pinned one. The scripts and optional packages of npm would
# download what is not used: graphics cards and other systems.
$(RUNTIMES)/installed: pyproject.toml constraints.txt
	@$(call require-python)
	$(PYTHON) -m venv --clear $(RUNTIMES)
	grep -v '^huggingface_hub==' constraints.txt > $(RUNTIMES)/constraints.txt
	$(RUNTIMES)/bin/python $(PIP) $(patsubst constraints.txt,$(RUNTIMES)/constraints.txt,$(call pinned,$(PYTHON))) \
		--editable '.[onnx,openvino,gguf]' fastembed==0.9.1 langchain-huggingface==1.2.3
	@if command -v node && command -v npm; then npm install --prefix $(RUNTIMES)/node --ignore-scripts --omit=optional --no-audit --no-fund \
		@huggingface/transformers@4.3.1 sharp@0.35.5 @img/sharp-linux-x64@0.35.5 @img/sharp-libvips-linux-x64@1.3.4 \
		node-llama-cpp@3.21.1 @node-llama-cpp/linux-x64@3.21.1; fi
	@touch $@

define require-python
$(PYTHON) -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
echo "hf-xsent needs Python 3.10 or newer with venv, and '$(PYTHON)' is not that: name another, as in 'make PYTHON=python3.12'." >&2; exit 1; }
endef

.PHONY: help docs quickstart attack gpu test test-ray test-minimum test-extras test-openers test-runtimes lint fix clean
