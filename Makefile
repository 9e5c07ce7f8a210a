# Two commands do everything: `make curate` and `make test`. The rest is for people who work on datamask.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
INPUT  ?=
OUT    ?= out/sample
ARGS   ?=
TARGET ?=
TARGETS ?=
EXTRAS ?=
comma  := ,
# the processes that tests start find the package's bytecode, whatever the shell says of writing it
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --no-loadscope-reorder
EXTRA  := $(if $(EXTRAS),$(VENV)/.extra-$(subst $(comma),-,$(EXTRAS)))

export INPUT OUT TARGET TARGETS
export DO_NOT_TRACK = 1
export PREFECT_SERVER_ANALYTICS_ENABLED = false

.PHONY: curate judge-gpu test test-all test-gpu lint docs server server-down clean

$(VENV)/.core: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "datamask needs Python 3.11 or newer; name one with make PYTHON=python3.12 …")'
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@echo 'Setting up $(VENV), once: about 2 GB of packages, 2 to 5 minutes; then the inner loops are compiled, 1 minute.'
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	@echo 'Compiling the inner loops …'
	@$(BIN)/python -m datamask.precompile
	@touch $@

$(VENV)/.extra-%: $(VENV)/.core    # the packages of optional features; the installation stays the editable one
	@echo 'Installing the extras $(EXTRAS) …'
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo 'Installing what tests and documentation need, 1 to 3 minutes …'
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

# INPUT= your text (a file, folder or glob), OUT= where to, TARGET= texts like those the model shall be good at,
# EXTRAS=dask,ray,…, ARGS= any option of `datamask curate`
curate: $(VENV)/.core $(EXTRA)    ## the whole pipeline
	@$(BIN)/datamask curate $(if $(INPUT),--input "$$INPUT",--sample) $(if $(TARGET),--target "$$TARGET") --output "$$OUT" $(ARGS)

judge-gpu: $(VENV)/.core  ## the judge with its largest network on a GPU; OUT= a curated corpus, TARGETS= texts from outside it
	@$(BIN)/datamask judge "$$OUT" $(if $(TARGETS),--targets "$$TARGETS") \
		--judge coder --judge network --size large --network-pools 1 --device cuda $(ARGS)

test: $(VENV)/.dev       ## every test but the slow ones, in two processes
	$(PYTEST) --dist loadgroup -m 'not slow' $(ARGS)

test-all: $(VENV)/.dev   ## every test
	$(PYTEST) --dist loadfile $(ARGS)

test-slow: $(VENV)/.dev  ## those that `make test` leaves out
	$(PYTEST) --dist loadfile -m slow $(ARGS)

test-gpu: $(VENV)/.dev   ## the tests that compute on a CUDA device; says so where there is none
	@$(BIN)/python -c 'import sys, torch; sys.exit(None if torch.cuda.is_available() else f"make test-gpu needs a CUDA device; torch {torch.__version__} sees none. The same paths run on a fake device in make test.")'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m gpu tests/selection tests/quality $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/deptry .
	$(BIN)/lint-imports
	$(BIN)/python docs/sentences.py
	$(BIN)/python benchmarks/figures.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

docs: $(VENV)/.dev       ## the documentation as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

server: $(VENV)/.core $(EXTRA)    ## Prefect's server, worker and deployments on loopback; PORT=, RUNS=, GPUS=; again: what is missing
	@$(BIN)/python deployments/local_server.py up

server-down:             ## stops what `make server` started
	@test ! -x $(BIN)/python || $(BIN)/python deployments/local_server.py down

clean: server-down
	rm -rf $(VENV) .prefect out site .pytest_cache .mypy_cache .ruff_cache
