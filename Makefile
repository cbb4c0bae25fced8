# Two commands are enough: make demo, make test. Everything lives in .venv and .cache.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SOURCES := pyproject.toml CMakeLists.txt $(wildcard src/evencover/_kernels/*.cpp src/evencover/_kernels/*.hpp)

.PHONY: setup demo test bench docs clean

setup: $(READY)

$(READY): $(SOURCES)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "evencover needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(READY)  ## compare the paper's methods on the bundled data
	$(BIN)/evencover compare

test: $(READY)  ## style, types and tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q

bench: $(READY)  ## against other packages; takes a while
	$(BIN)/python -m benchmarks

docs: $(READY)  ## the documentation as a site, in docs/_build
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	$(BIN)/python -m sphinx -q -W -b html docs docs/_build

clean:
	rm -rf $(VENV) .cache build
