# Everything is installed into .venv/, and nothing outside this folder is changed.

PYTHON ?= python3
# `make test SPARK=4.0.*` tests with that PySpark, in an environment of its own.
VENV := .venv$(if $(SPARK),-spark-$(subst *,x,$(SPARK)))
PY := $(VENV)/bin/python
STAMP := $(VENV)/.nova-setup
DEMO_STAMP := $(VENV)/.nova-demo
DAGSTER := .nova/dagster

.DEFAULT_GOAL := help
.PHONY: help setup demo ui test test-ci test-all test-fast test-remote soak soak-catalog check reference docs peers clean distclean

help:  ## Show this list
	@echo "nova_assets: incremental pipelines on Spark as Dagster assets"
	@echo
	@echo "Start with:  make demo    and then:  make test"
	@echo "Needs Python 3.11 or newer with venv. Brings its own Java where there is none."
	@echo
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r name text; do \
		printf '%-16s %s\n' "$$name" "$$text"; done
	@echo
	@echo "Another Python:  make setup PYTHON=python3.12"
	@echo "Another Spark:   make test SPARK='4.0.*', or '3.5.*'"

setup: $(STAMP)  ## Install everything that developers need into .venv/ (the first time downloads half a gigabyte)

# Installed again when the dependencies change, and only then. The demo needs less than the developers do.
$(STAMP): pyproject.toml tools/setup.sh
	@PYTHON='$(PYTHON)' VENV='$(VENV)' SPARK='$(SPARK)' EXTRAS=dev sh tools/setup.sh
	@touch $@ $(DEMO_STAMP)

$(DEMO_STAMP): pyproject.toml tools/setup.sh
	@PYTHON='$(PYTHON)' VENV='$(VENV)' SPARK='$(SPARK)' EXTRAS=examples,java,webserver sh tools/setup.sh
	@touch $@

# Initialised by one process before any other uses it: two that do so at once would spoil it for good.
$(DAGSTER)/.initialised: dagster.yaml tools/init_dagster_home.py | $(DEMO_STAMP)
	@$(PY) tools/init_dagster_home.py '$(CURDIR)/$(DAGSTER)'

demo: $(DEMO_STAMP) $(DAGSTER)/.initialised  ## Run the news pipeline, and say how to look at it in the Dagster UI
	@DAGSTER_HOME='$(CURDIR)/$(DAGSTER)' $(PY) -m examples.news

ui: $(DEMO_STAMP) $(DAGSTER)/.initialised  ## Open the Dagster UI on what the demo made, at http://localhost:3000
	@DAGSTER_HOME='$(CURDIR)/$(DAGSTER)' $(VENV)/bin/dagster dev --workspace workspace.yaml

# A worker on each core, each with a Spark of its own. The tests of a file stay together. At most eight workers: each
# needs two gigabytes of memory, and Spark itself uses several cores.
OPTIONS := -n logical --maxprocesses 8 --dist loadfile --no-loadscope-reorder
PYTEST := -m pytest $(OPTIONS)

# A JVM then needs half of the time to start.
CLASSES := $(VENV)/spark-classes.jsa

$(CLASSES): tools/spark_classes.py $(STAMP)
	@$(PY) tools/spark_classes.py $@

test: export NOVA_TEST_CONTENTION_SECONDS ?= 10
test: $(STAMP) $(CLASSES)  ## Run the quick tests, and one of each behaviour that docs/coverage.md lists (seven minutes on two cores)
	@$(PY) $(PYTEST) -m 'core or not (spark or slow or long)' $(ARGS)

test-ci: $(STAMP) $(CLASSES)  ## Run the long tests too, as CI does; half an hour on two cores
	@$(PY) $(PYTEST) -m 'not exhaustive' $(ARGS)

test-all: $(STAMP) $(CLASSES)  ## Run every case and more random examples (NOVA_TEST_BY_HAND=1: all), room by room; hours
	@$(PY) tools/every_test.py $(OPTIONS) $(ARGS)

test-fast: $(STAMP)  ## Run the tests that need no Spark and little time; a minute and a half on two cores
	@$(PY) $(PYTEST) -m 'not spark and not slow and not long' $(ARGS)

REMOTE := $(addprefix nova_assets_tests/cloud/test_,spark.py hdfs.py cluster.py)

test-remote: $(STAMP)  ## Test Spark on warehouses in S3 and HDFS, and a cluster (downloads a gigabyte, as Spark packages)
	@NOVA_TEST_REMOTE=1 $(PY) -m pytest -s $(REMOTE) $(ARGS)

soak: $(STAMP)  ## Ten minutes of batches and killed processes under dagster dev, then see that nothing is amiss
	@$(PY) -m nova_assets_tests.soak $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

soak-catalog: $(STAMP)  ## Half an hour of services, Dagster, commands and signals on one SQLite catalog: nothing is lost
	@$(PY) -m nova_assets_tests.catalog_soak $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

check: $(STAMP)  ## Check style, format, types, structure, the links of the docs, and dependencies for known vulnerabilities
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy --strict
	$(PY) tools/reference.py --check
	$(VENV)/bin/lint-imports
	$(PY) tools/structure.py
	$(PY) tools/rooms.py --check
	$(PY) tools/docs_site.py
	$(PY) tools/audit.py

reference: $(STAMP)  ## Write docs/api.md from the docstrings
	@$(PY) tools/reference.py

docs: $(STAMP)  ## Build the site of the docs in build/docs/site; a link that leads nowhere is an error
	@$(PY) tools/docs_site.py

PEERS := .venv-peers

$(PEERS)/.nova-setup: pyproject.toml benchmarks/peers/requirements.txt benchmarks/peers/setup.sh
	@PYTHON='$(PYTHON)' VENV='$(PEERS)' sh benchmarks/peers/setup.sh
	@touch $@

peers: $(PEERS)/.nova-setup  ## Measure beside Delta, Hudi, Iceberg and others (hours; ARGS=--quick: 15 minutes)
	@$(PEERS)/bin/python -m benchmarks.peers $(ARGS)

clean:  ## Remove what the demo and the tools have left, but not .venv/
	rm -rf .nova build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf spark-warehouse metastore_db derby.log .tmp_dagster_home_*
	find nova_assets nova_assets_tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## Remove .venv/ too
	rm -rf .venv .venv-spark-* .venv-peers
