# Two commands are enough: make demo, make test. Everything lives in .venv, .cache and build.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SOURCES := pyproject.toml CMakeLists.txt $(wildcard $(addprefix src/evencover/_kernels/cpp/,*.cpp *.hpp lanes/*.hpp))

# Tests of one file share their fixtures, so one worker runs them; the longest come first. There is
# one worker more than there are cores, because some tests wait for processes that they started.
WORKERS := $(shell $(PYTHON) -c 'import os; print(1 + (os.cpu_count() or 1))')
# Bytecode is written whatever the shell says: tests start some hundred processes, and each of them
# would compile the package.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: setup demo lint test test-deep test-oldest audit bench docs wheels clean

setup: $(VENV)/.ready

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "evencover needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: $(SOURCES) | $(VENV)/bin/python
	$(PIP) --editable .
	touch $@

# All at once, because each installation compiles the kernels.
$(VENV)/.ready-dev: $(SOURCES) | $(VENV)/bin/python
	$(PIP) --editable '.[dev]'
	touch $(VENV)/.ready $@

demo: $(VENV)/.ready  ## compare the methods on the bundled data
	$(BIN)/evencover compare

lint: $(VENV)/.ready-dev  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint  ## style, types and tests, in a few minutes
	$(PYTEST) -m 'not deep'

# A part of it is run with DEEP="tests/statistical tests/kernels".
DEEP ?= src tests
test-deep: lint  ## everything, with many more examples, repetitions and kills; takes hours
	$(PIP) torch==2.13.0 transformers accelerate cleanlab datasets wordllama xgboost lightgbm
	$(PIP) --editable '.[export,mlflow,onnx,postgresql,serve]' httpx schemathesis 'tritonclient[grpc,http]'
	EVENCOVER_TESTS=deep $(PYTEST) -m 'deep or not deep' $(DEEP)

# Old packages warn of each other, so warnings are no errors here. Browser, cluster and docs have tools of
# their own; a subset is run with OLDEST="tests/cli".
OLDEST ?= src tests --ignore tests/browser --ignore tests/cluster --ignore tests/docs
test-oldest:  ## with the oldest versions of all that evencover says it works with
	$(PYTHON) -m venv .cache/oldest
	.cache/oldest/bin/python -m pip install --quiet --disable-pip-version-check uv
	.cache/oldest/bin/uv pip install --quiet --python .cache/oldest/bin/python --resolution lowest-direct --editable '.[all]' 'pandas>=2.1' 'polars>=1'
	.cache/oldest/bin/uv pip install --quiet --python .cache/oldest/bin/python pytest pytest-xdist hypothesis
	.cache/oldest/bin/python -m pytest -q -W default --numprocesses auto --dist loadfile -m 'not deep' $(OLDEST)

# Strict: a package about which nothing could be learnt is a failure, not a pass.
audit: $(VENV)/.ready-dev  ## known vulnerabilities of what is installed; asks a server
	$(PIP) pip-audit
	mkdir -p .cache
	$(BIN)/python -m pip freeze --exclude-editable > .cache/audited.txt
	$(BIN)/python -m pip_audit --strict --disable-pip --no-deps --requirement .cache/audited.txt

bench: $(VENV)/.ready-dev  ## against other packages; takes a while
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.reading

docs: $(VENV)/.ready-dev  ## the documentation as a site, in docs/_build; runs every tutorial
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build
	$(BIN)/python scripts/check_site.py docs/_build

wheels:  ## build what this machine can build, and try it where there is no compiler
	$(PYTHON) scripts/build_wheels.py

clean:
	rm -rf $(VENV) .cache build dist docs/_build docs/api docs/commands docs/studies docs/tutorials
