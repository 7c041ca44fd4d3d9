# Each target installs its dependencies; only make and Python with venv are required.
# To use another Python: make demo PYTHON=/path/to/python3.12

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Images of Python often set it; each process would compile distlaunch and TensorFlow again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
# Three at once: on two cores, one of them mostly waits for servers and timeouts.
PYTEST := $(BIN)/python -m pytest --numprocesses=3 --dist=loadscope --no-loadscope-reorder
# Python compiles what it imports; pip would compile all of TensorFlow, for half a minute.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# The versions of a file of requirements/, all of them, so that pip resolves nothing; then the checkout.
INSTALL = $(PIP_INSTALL) --no-deps --require-hashes -r requirements/$(1).txt && \
  $(PIP_INSTALL) --no-deps --no-build-isolation -e .
CANDIDATES := python3.13 python3.12 python3.11 python3.10 python3 python
IS_FIT := import ensurepip, sys, venv; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))

# Tests without TensorFlow, for the Python versions that `make test` is not run on.
QUICK_TESTS := tests/job tests/engines/vertex tests/checks/test_machines.py \
  tests/checks/test_trainer.py \
  tests/checks/project/test_imports.py::test_a_file_that_python_cannot_parse \
  tests/checks/project/test_imports.py::test_imports_in_functions_and_branches_are_not_required

ROUNDS := 3

# One version of each package for all platforms and Pythons that have it. Hashes are PyPI's.
UPGRADE := --upgrade
COMPILE := $(BIN)/uv pip compile --quiet --no-config \
  --universal --python-version 3.10 --generate-hashes --no-annotate --custom-compile-command 'make lock' \
  --override requirements/overrides.in $(UPGRADE) pyproject.toml

.PHONY: help demo test quick fuzz laws docs docs-test bench wheels lock release-check gpu-image check

help: ## List the targets
	@sed -n 's/^\([a-z-]*\): .*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## Train the starter model: a chief and a worker on this machine
	@rm -rf build/demo
	@$(BIN)/distlaunch init build/demo/digits
	@cd build/demo/digits && "$(CURDIR)/$(BIN)/distlaunch" local --workers 2
	@echo "now: . $(BIN)/activate; cd build/demo/digits"

test: $(VENV)/.test ## Run all tests
	@$(PYTEST)

quick: $(VENV)/.quick ## Run the quick tests without TensorFlow (make quick PYTHON=python3.10 VENV=.venv-3.10)
	@$(PYTEST) -m 'not slow and not hypothesis' \
	  $(QUICK_TESTS)

fuzz: $(VENV)/.test ## Run the property-based tests on random examples, 3 rounds (make fuzz ROUNDS=20)
	@for round in $$(seq $(ROUNDS)); do \
	  $(BIN)/python -m pytest --numprocesses=2 --quiet -m hypothesis --hypothesis-profile=fuzz || exit; \
	done

laws: $(VENV)/.test ## Run the long tests of promises: one job per launch, models, kills, random faults, two devices per task
	@DISTLAUNCH_TEST_LAWS=1 $(PYTEST) --numprocesses=0 --timeout=1800 \
	  tests/cli/test_compare.py tests/cli/test_forecast.py
	@DISTLAUNCH_TEST_LAWS=1 $(PYTEST) --numprocesses=2 --timeout=1800 \
	  tests/submit/test_one_job.py tests/submit/test_stockout.py \
	  tests/trainer_skeleton/runs/test_faults.py tests/trainer_skeleton/runs/test_random_faults.py \
	  tests/trainer_skeleton/runs/test_zoo.py tests/trainer_skeleton/runs/test_fit_scripts.py \
	  tests/trainer_skeleton/runs/test_user_data.py tests/trainer_skeleton/keras_suite \
	  tests/trainer_skeleton/keras_table \
	  tests/trainer_skeleton/runs/test_promises.py \
	  tests/trainer_skeleton/runs/test_parameter_server.py \
	  tests/trainer_skeleton/runs/test_evaluator.py tests/trainer_skeleton/runs/test_learning_rate.py \
	  tests/trainer_skeleton/runs/test_starters.py \
	  tests/trainer_skeleton/runs/test_downloaded_starters.py \
	  tests/trainer_skeleton/input/test_input_laws.py tests/trainer_skeleton/loop/test_run_state.py \
	  tests/trainer_skeleton/step/test_losses.py \
  tests/trainer_skeleton/fit/test_other_launchers.py
	@DISTLAUNCH_TEST_LAWS=1 DISTLAUNCH_TEST_TWO_DEVICES=1 $(PYTEST) --numprocesses=2 --timeout=1800 \
	  tests/trainer_skeleton/runs/test_promises.py tests/trainer_skeleton/runs/test_zoo.py

docs: $(VENV)/.docs ## Build the site in build/site; a link or anchor to nowhere is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

docs-test: $(VENV)/.test ## Run the long sessions of the documents
	@$(BIN)/python -m pytest --numprocesses=2 -m docs tests/test_documents.py tests/test_keras_tuner.py \
	  tests/test_trackers.py

bench: $(VENV)/.test ## Run all benchmarks; fail where a ratio is beyond its limit
	@failed=; for script in $(filter-out benchmarks/common.py,$(wildcard benchmarks/*.py)); do \
	  echo "== $$script"; $(BIN)/python $$script || failed="$$failed $$script"; \
	done; test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

wheels: $(VENV)/.test docs ## Build the wheels of distlaunch, with the site, and of the trainer alone, in dist/
	@for folder in . trainer_skeleton/runtime; do \
	  $(BIN)/python -m build --no-isolation --wheel --outdir dist $$folder >/dev/null || exit; \
	done; ls dist/*.whl

lock: $(VENV)/.lock ## Renew the versions that make installs, in requirements/ (make lock UPGRADE= keeps what fits)
	@$(COMPILE) requirements/test.in --extra local --extra dev -o requirements/test.txt
	@$(COMPILE) requirements/demo.in --extra local -c requirements/test.txt -o requirements/demo.txt
	@$(COMPILE) requirements/quick.in -c requirements/test.txt -o requirements/quick.txt
	@$(COMPILE) requirements/docs.in --extra docs -c requirements/test.txt -o requirements/docs.txt

release-check: $(VENV)/.test docs ## Build what is released, install it on Python 3.10 and 3.13, and use it (10 min)
	@$(BIN)/python tools/release_check.py

gpu-image: $(VENV)/.test ## Build the GPU image with Docker and without, and verify it (10 GB, 20 min)
	@$(BIN)/python tools/gpu_image.py

check: $(VENV)/.test ## Check the code: ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

# The candidates are run, because a shim may exist without a Python.
$(VENV)/.made:
	@for python in $(or $(PYTHON),$(CANDIDATES)); do \
	  if "$$python" -c "$(IS_FIT)" >/dev/null 2>&1; then \
	    "$$python" -m venv $(VENV) && touch $@; exit; \
	  fi; \
	done; \
	echo "needs Python 3.10 to 3.13 with venv and ensurepip; not found among:" \
	  "$(or $(PYTHON),$(CANDIDATES)) (use another: make PYTHON=/path/to/python3.12)" >&2; \
	exit 1

$(VENV)/.demo: $(VENV)/.made pyproject.toml requirements/demo.txt
	@echo "installing distlaunch and TensorFlow into $(VENV)"
	@$(call INSTALL,demo)
	@touch $@

$(VENV)/.test: $(VENV)/.made pyproject.toml requirements/test.txt
	@echo "installing distlaunch, TensorFlow and the test dependencies into $(VENV)"
	@$(call INSTALL,test)
	@touch $@ $(VENV)/.demo

$(VENV)/.docs: $(VENV)/.made pyproject.toml requirements/docs.txt
	@echo "installing distlaunch and what builds its site into $(VENV)"
	@$(call INSTALL,docs)
	@touch $@

$(VENV)/.quick: $(VENV)/.made pyproject.toml requirements/quick.txt
	@echo "installing distlaunch and the dependencies of the quick tests into $(VENV)"
	@$(call INSTALL,quick)
	@touch $@

$(VENV)/.lock: $(VENV)/.made
	@$(PIP_INSTALL) 'uv>=0.13,<0.14'
	@touch $@
