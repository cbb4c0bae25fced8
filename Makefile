# Two commands are enough: make demo, make test. Everything lives in .venv, .cache and build.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SOURCES := pyproject.toml CMakeLists.txt $(wildcard src/evencover/_kernels/*.cpp src/evencover/_kernels/*.hpp)

.PHONY: setup demo test bench docs clean

setup: $(VENV)/.ready

$(VENV)/.ready: $(SOURCES)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "evencover needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	$(PIP) --editable '.[dev]'
	touch $@

demo: $(VENV)/.ready  ## compare the methods on the bundled data
	$(BIN)/evencover compare

test: $(VENV)/.ready-dev  ## style, types and tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q

bench: $(VENV)/.ready-dev  ## against other packages; takes a while
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.reading

docs: $(VENV)/.ready-dev  ## the documentation as a site, in docs/_build
	$(PIP) --editable '.[docs]'
	$(BIN)/python -m sphinx -q -W -b html docs docs/_build

clean:
	rm -rf $(VENV) .cache build
