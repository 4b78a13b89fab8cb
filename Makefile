# Everything runs in .venv, which is made on first use and brought up to date when a requirements file changes.
# PYTHON=/path/to/python3 names the interpreter that .venv is made from.

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input
QUICK := -m "not real_agent and not slow"
REST := -m "real_agent or slow"
# More arguments for pytest: make test T="-k restore -x"
T ?=
# With such arguments test-all may find nothing for one of its halves.
OR_NONE := $(if $(and $(T),$(filter test-all,$(MAKECMDGOALS))),|| test $$? -eq 5)
FUZZ_EXAMPLES ?= 20000
export PYTHON

# An environment whose interpreter is gone, or that stood in another folder, is made anew.
STAMPS := $(addprefix $(VENV)/,.made .dev .package .types .agents .bench)
$(shell test -x $(PY) && test "$$(cat $(VENV)/.made)" = "$(CURDIR)" || rm -f $(STAMPS))

.DEFAULT_GOAL := help
.PHONY: help demo test test-all campaign lint format types bench versus fuzz docs matrix venv agents lock clean

help:            ## this list
	@sed -n 's/^\([a-z-]*\): .*## */  make \1	/p' $(MAKEFILE_LIST) | expand -t 20

demo: venv       ## kill a bundled agent and its runtime in mid turn, and watch the session come back
	@$(VENV)/bin/outlast demo

test: venv       ## the tests that need nothing but the locked wheels
	$(PY) -m pytest $(QUICK) $(T) $(OR_NONE)

test-all: test agents  ## every test, also with real agents and every kill point
	$(PY) -m pytest $(REST) $(T) $(OR_NONE)

campaign: venv   ## kill real processes at their durable steps; what is lost, doubled, found out (EVERY=1, SAVE=FILE)
	$(PY) -m tests.campaign $(if $(EVERY),--every) $(if $(SAVE),--save $(SAVE))

matrix: venv agents  ## kill the real agents and their runtimes at each moment; writes docs/agents-matrix.json
	OUTLAST_MATRIX=docs/agents-matrix.json $(PY) -m pytest tests/agents/matrix/test_matrix.py $(T)

lint: venv       ## style, formatting, import boundaries
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(VENV)/bin/lint-imports --no-cache --no-logo

format: venv     ## put the code into the house format
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

types: venv $(VENV)/.types  ## strict types, over the package and its tests, and a complete public surface
	$(PY) -m mypy
	$(PY) scripts/check_public_types.py

bench: venv $(VENV)/.bench  ## every budget, and the peers beside ours, measured on this machine: docs/performance.md
	@status=0; $(PY) -m benchmarks --out docs/performance.json || status=$$?; \
	$(PY) -m docs.make_performance && exit $$status

versus: venv $(VENV)/.bench  ## what the peers do when they are killed or resumed twice, beside ours
	$(PY) -m examples.versus

fuzz: venv       ## the property tests, with many more examples (FUZZ_EXAMPLES)
	FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(PY) -m pytest -m hypothesis --hypothesis-profile=fuzz --timeout=0 $(T)

docs: venv       ## the pictures and tables that the pages show
	$(PY) docs/make_ladder.py
	$(PY) docs/make_failures.py
	$(PY) docs/make_cli.py
	$(PY) -m docs.make_performance
	$(PY) docs/make_campaign.py
	$(PY) docs/make_matrix.py

venv: $(VENV)/.package         ## .venv with the locked requirements and the package itself

agents: $(VENV)/.agents        ## the real agents that test-all drives

# Locking is the only thing here that needs uv; it lives apart from .venv so that nothing else can come to lean on it.
lock:            ## resolve requirements/*.txt anew
	scripts/lock $(UPGRADE)

clean:           ## remove what the other targets made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.made:
	scripts/make-venv $(VENV)
	@echo "$(CURDIR)" >$@

$(VENV)/.dev: requirements/dev.txt | $(VENV)/.made
	$(PIP) install --quiet --require-hashes -r $<
	@touch $@

$(VENV)/.package: pyproject.toml $(VENV)/.dev
	$(PIP) install --quiet --no-index --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.types: requirements/types.txt | $(VENV)/.package
	$(PIP) install --quiet --require-hashes -r $<
	@touch $@

$(VENV)/.agents: requirements/agents.txt scripts/link_agents.py | $(VENV)/.package
	$(PIP) install --quiet --require-hashes -r $<
	$(PY) scripts/link_agents.py $(VENV)/bin
	@touch $@

# The peers have an environment of their own: nothing of theirs comes between our requirements.
$(VENV)/.bench: requirements/bench.txt | $(VENV)/.made
	scripts/make-venv $(VENV)/peers
	$(VENV)/peers/bin/python -m pip --disable-pip-version-check --no-input install --quiet --require-hashes -r $<
	@touch $@
