# Two commands do everything on a fresh machine with Python 3.11+ and make: `make run` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install run test lint types rooms tests tests-interpreted soak bench clean

install: .venv/installed

.venv/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Nearcast needs Python 3.11 or newer; say which one with PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || \
		{ echo "This Python cannot make environments; on Debian: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

run: install
	$(BIN)/nearcast generate --dataset places --subscriptions 100000 --messages 20000 --seed 7 --out out/sample
	$(BIN)/nearcast match --subscriptions out/sample/subscriptions.parquet \
		--messages out/sample/messages.parquet --out out/matches.parquet --map out/matches.png
	@echo "The matches are in out/matches.parquet, and on the map in out/matches.png."

test: lint types rooms tests tests-interpreted

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

rooms: install
	$(BIN)/lint-imports --no-cache

tests: install
	$(BIN)/pytest -n 2

# The kernels once more as plain Python: what Numba compiles is what was written.
tests-interpreted: install
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -n 2 tests/indexes tests/kernels tests/text

# The generated tests again and again with other seeds, for an hour or a night.
ROUNDS ?= 20
soak: install
	for seed in $$(seq 1 $(ROUNDS)); do \
		NEARCAST_TEST_SEED=$$seed $(BIN)/pytest -x --hypothesis-seed=$$seed tests || exit 1; \
	done

bench: install
	$(BIN)/nearcast bench compare --dataset tweets --subscriptions 1000000 --messages 20000 --out out/bench
	$(BIN)/nearcast bench churn --subscriptions 1000000 --out out/bench

clean:
	rm -rf .venv out .pytest_cache .mypy_cache .ruff_cache .hypothesis
