# Two commands do everything on a fresh machine with Python 3.11+ and make: `make run` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install java first-look pipeline server-kernels run test test-all tested-with check attack mutants lint types postgres chromium web coverage docs soak bench clean

install: .venv/installed

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
PIP_INSTALL = $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off
NAME_PACKAGES = | sed -un 's/^Collecting \([^ ;(<>=~!]*\).*/  \1/p; s/^Installing collected.*/  all fetched; unpacking/p'

# Spark runs on Java 17 or newer: where it is missing, root on Debian or Ubuntu gets it.
JAVA_VERSION = $$("$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p')
java:
	@if [ "0$(JAVA_VERSION)" -ge 17 ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		echo "Installing Java for Spark"; \
		apt-get update -qq && \
		{ apt-get install -qq -y openjdk-17-jre-headless || apt-get install -qq -y default-jre-headless; } > /dev/null; \
	else \
		echo "Spark needs Java 17 or newer. On Debian: sudo apt-get install openjdk-17-jre-headless;"; \
		echo "on macOS: brew install openjdk@17. Or set JAVA_HOME to one that is there."; exit 1; \
	fi

# In three steps: the library, Spark, and what tests and documentation need. Each package is named when it is fetched.
.venv/library-installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Nearcast needs Python 3.11 or newer; say which one with PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || \
		{ echo "This Python cannot make environments; on Debian: apt-get install python3-venv"; exit 1; }
	@echo "Installing Nearcast and what it needs into .venv:"
	@$(PIP_INSTALL) --editable '.[bench,client,server]' $(NAME_PACKAGES)
	@touch $@

.venv/spark-installed: .venv/library-installed
	@$(PIP_INSTALL) --quiet --no-compile --editable '.[bench,client,server,spark]'
	@echo "Spark is installed."
	@touch $@

.venv/installed: .venv/spark-installed
	@echo "Installing what tests and documentation need into .venv:"
	@$(PIP_INSTALL) --editable '.[dev]' $(NAME_PACKAGES)
	@touch $@

# Something to see while Spark is being installed; it also compiles what the pipeline uses.
first-look: .venv/library-installed
	@echo; echo "A first look, while Spark (430 MB) is being installed: messages and subscriptions, generated and matched."
	@echo "On a new machine the index is compiled first, which takes about half a minute; later matches load it."
	@$(BIN)/nearcast generate --dataset places --subscriptions 100000 --messages 20000 --out out/first > /dev/null
	@$(BIN)/nearcast match --subscriptions out/first/subscriptions.parquet --messages out/first/messages.parquet \
		--out out/first/matches.parquet --map out/first/matches.png

pipeline:
	@echo; echo "The whole pipeline: with the library, on Spark, and as a stream."
	@$(BIN)/python examples/spark/pipeline.py out/run 20000 100000

# What the server compiles at its first start: meanwhile, so that nobody waits for it afterwards.
server-kernels:
	@NEARCAST_COMPILE=at-once nice -n 5 $(BIN)/python -c 'from nearcast.server.warming import compile_kernels; compile_kernels()'

# The pipeline, then the demo of the live server, until Ctrl-C. ONCE=1: its sample stream over HTTP, for a minute, with a summary.
PORT ?= 8080
RUN_SECONDS ?= 60
run: .venv/library-installed
	@$(MAKE) --no-print-directory --jobs 3 first-look .venv/spark-installed java
	@$(MAKE) --no-print-directory --jobs 2 pipeline server-kernels
	@echo
	@$(if $(ONCE),$(BIN)/python examples/live_server.py out/first --port $(PORT) --seconds $(RUN_SECONDS),$(BIN)/nearcast serve --demo --port $(PORT))

# All suites, two at a time and a third that mostly waits (tools/suites.py): progress while they run, failures as they happen, times at the end.
SUITES = $(BIN)/python tools/suites.py
INSTALL_TIMED = @$(MAKE) --no-print-directory tested-with && echo "Installing everything for the tests took $$SECONDS s."
test:
	$(INSTALL_TIMED)
	@$(SUITES)

# The long form of every suite: more examples, more kills, all versions. Before a release, and every night.
test-all:
	$(INSTALL_TIMED)
	@$(SUITES) --long

# One suite: make tests-server. LONG=1: its long form.
tests-%: install tested-with
	@$(SUITES) $(if $(LONG),--long) $*

# What suites need beside Python. What cannot be had is said, and its tests are skipped.
tested-with: install
	@$(MAKE) --no-print-directory java postgres chromium web

# Style, types, layers, and the tests of what changed since REV and of what imports it: about three minutes.
REV ?= HEAD
check: install
	@$(SUITES) --since $(REV)

# Attacks on a server in another process, with a table of what each did to it. LONG=1: ten times as many; ONLY=headers: one of them.
ATTACK_PATH = tests:tests/server/faults
attack: install
	PYTHONPATH=$(ATTACK_PATH) $(BIN)/python -m attack $(if $(LONG),--long) $(if $(ONLY),--only $(ONLY)) $(if $(SEED),--seed $(SEED))

# Faults planted in our code, and whether tests find them. It takes hours.
mutants: install
	$(BIN)/python tools/mutants.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: install
	$(BIN)/mypy

# Statements and branches that tests run, kernels included: as plain Python, which can take hours.
KERNEL_TESTS = $(addprefix tests/compiled/test_,borrow.py distances_and_areas.py partition.py simd_boxes.py sorting.py token_table.py)
ROAD_TESTS = $(addprefix tests/datasets/test_,movers.py roads_network.py)
COVERED = tests/indexes tests/text $(KERNEL_TESTS) $(ROAD_TESTS) tests/engine tests/model tests/intake tests/storage tests/cli tests/test_columns.py tests/test_growing.py
coverage: install
	rm -rf out/coverage
	NEARCAST_LONG=1 NUMBA_DISABLE_JIT=1 $(BIN)/coverage run -m pytest -n 2 $(COVERED)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage json --quiet
	$(BIN)/coverage html --quiet
	$(BIN)/python tools/coverage_page.py out/coverage/coverage.json $(COVERED)
	@echo "The tables of docs/benchmarks/coverage.md are new; out/coverage/html/index.html shows every line."

# Where PostgreSQL is missing, root on Debian or Ubuntu gets it. Tests start one of their own, on a free port.
postgres:
	@if ls /usr/lib/postgresql/*/bin/postgres > /dev/null 2>&1; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		echo "Installing PostgreSQL for its tests"; \
		apt-get update -qq && apt-get install -qq -y --no-install-recommends postgresql > /dev/null; \
	else \
		echo "PostgreSQL is not installed; its tests are skipped."; \
	fi

# The map, built into the package when web/ has changed. Building needs Node; running does not.
WEB_PAGE := src/nearcast/server/http/web/index.html
WEB_SOURCES := $(shell find web -type f -not -path 'web/node_modules/*' -not -path 'web/generated/*' -not -path 'web/tests/*')
web:
	@if command -v npm > /dev/null; then \
		$(MAKE) --no-print-directory --silent $(WEB_PAGE); \
	else \
		echo "Node.js (20.19 or newer) is not installed: the map is not built, and the server shows its plain page."; \
	fi

$(WEB_PAGE): $(WEB_SOURCES) web/node_modules/.package-lock.json
	@echo "Building the map"
	@cd web && said=$$(npm run --silent build 2>&1) || { echo "$$said"; exit 1; }
	@touch $@

web/node_modules/.package-lock.json: web/package-lock.json
	@echo "Installing what the map is built of into web/node_modules"
	@cd web && npm install --no-save --no-audit --no-fund --loglevel error
	@touch $@

run: web

# Where Chromium is missing, root on Debian gets it. Another apt may run at the same time.
chromium:
	@if command -v chromium > /dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		echo "Installing Chromium for the tests of the map"; \
		for attempt in 1 2 3 4 5; do \
			apt-get update -qq && apt-get install -qq -y -o DPkg::Lock::Timeout=300 --no-install-recommends \
				chromium fonts-dejavu-core > /dev/null && exit 0; \
			sleep 10; \
		done; \
		echo "Chromium could not be installed; its tests are skipped."; \
	else \
		echo "Chromium is not installed; its tests are skipped."; \
	fi

# The documentation site in out/site; a broken link or anchor is an error. With --quiet, MkDocs would not count warnings.
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "The site is in out/site; $(BIN)/mkdocs serve shows it while you write."

# The generated tests again and again with other seeds, for an hour or a night.
ROUNDS ?= 20
SOAK = NEARCAST_LONG=1 NEARCAST_KILLS=40 NEARCAST_MALFORMED_ROWS=1000000 NEARCAST_SERVER_KILLS=50 NEARCAST_MALFORMED_REQUESTS=100000 \
	NEARCAST_SERVER_CLIENTS=1000 NEARCAST_SERVER_FLIPS=50 NEARCAST_POSTGRES_KILLS=20 \
	NEARCAST_WEBHOOK_EVENTS=300 NEARCAST_WEBHOOK_KILLS=30 NEARCAST_PACING_STEPS=2000
soak: install java
	for seed in $$(seq 1 $(ROUNDS)); do \
		$(SOAK) NEARCAST_TEST_SEED=$$seed $(BIN)/pytest -x --hypothesis-seed=$$seed tests || exit 1; \
	done

bench: install java
	$(BIN)/nearcast bench compare --dataset tweets --subscriptions 1000000 --messages 20000 --out out/bench
	$(BIN)/nearcast bench churn --subscriptions 1000000 --out out/bench
	$(BIN)/nearcast bench spark --out out/bench

clean:
	rm -rf .venv out web/node_modules web/generated src/nearcast/server/http/web .pytest_cache .mypy_cache .ruff_cache .hypothesis
