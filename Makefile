# GNU make and a POSIX shell; `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONFIG ?= conf/digits.toml
COMPARE ?= $(if $(wildcard ../shared/data/mnist_train.parquet),conf/compare.toml,conf/compare-digits.toml)
SUBMIT_ARGS ?=
PYTEST_ARGS ?=
# Processes that share the tests, file by file, each with a Spark session of two slots (about 3 GB); 0 is this one alone.
WORKERS ?= 2

# Drivers and workers must be the interpreter that the packages were installed for, and Spark
# the one installed beside them.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
unexport SPARK_HOME

.DEFAULT_GOAL := help
.PHONY: help tools venv demo test test-fast lint bench compare clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

tools: ## check that Python and Java are there, and say how to install what is not
	@install() { \
	  case "$$(uname -s)" in \
	    Darwin) echo "brew install $$2" ;; \
	    *) echo "apt-get install $$1   (or your system's package of the same kind)" ;; \
	  esac; \
	}; \
	if ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then \
	  echo "Python >= 3.10 is needed and '$(PYTHON)' is not that; set PYTHON=... or install it:" \
	    "$$(install python3 python@3.12)" >&2; exit 1; \
	fi; \
	if ! $(PYTHON) -c 'import ensurepip, venv' >/dev/null 2>&1; then \
	  echo "'$(PYTHON)' cannot make virtual environments; install it:" \
	    "$$(install python3-venv python@3.12)" >&2; exit 1; \
	fi; \
	java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	version=$$("$$java" -version 2>&1 | \
	  sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1); \
	if [ "$${version:-0}" -lt 17 ]; then \
	  echo "Java >= 17 is needed and '$$java' is $${version:-missing}; install it:" \
	    "$$(install openjdk-17-jre-headless \
	    'openjdk@17 && export JAVA_HOME="$$(brew --prefix openjdk@17)"')" >&2; exit 1; \
	fi

$(VENV)/.stamp: pyproject.toml | tools
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	$(BIN)/python -m sparkdml.compiling  # the kernels, once
	@touch $@

venv: $(VENV)/.stamp ## make .venv and install the package into it, for development

demo: venv ## train on the handwritten digits in data/ through spark-submit
	@test -f data/digits_train.parquet && test -f data/digits_test.parquet \
	  || $(BIN)/python jobs/prepare.py
	@SPARK_CONF_DIR=conf $(BIN)/spark-submit $(SUBMIT_ARGS) jobs/train.py --config $(CONFIG)

PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=15

test: venv ## run the whole test suite
	$(PYTEST) $(PYTEST_ARGS)

test-fast: venv ## run the tests that are neither slow nor end a process
	$(PYTEST) -m "not slow and not fault" $(PYTEST_ARGS)

lint: venv ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: venv ## compare with pyspark.ml and scikit-learn, in one run
	@SPARK_CONF_DIR=conf $(BIN)/spark-submit --driver-memory 4g $(SUBMIT_ARGS) jobs/benchmark.py

compare: venv ## race placements and solvers against one another; writes compare/report.html
	@test -f data/digits_train.parquet && test -f data/digits_test.parquet \
	  || $(BIN)/python jobs/prepare.py
	@SPARK_CONF_DIR=conf $(BIN)/spark-submit --driver-memory 4g $(SUBMIT_ARGS) jobs/compare.py --config $(COMPARE)

clean: ## remove what runs, tests and tools wrote
	rm -rf build dist compare models predictions data/mnist_shifted spark-warehouse metastore_db derby.log *.egg-info \
	  .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find sparkdml jobs tests -type d -name __pycache__ -exec rm -rf {} +

distclean: clean ## clean, and remove .venv
	rm -rf $(VENV)
