# Start with make demo and make test. All files are in .venv, .cache and build.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SOURCES := pyproject.toml CMakeLists.txt $(wildcard $(addprefix src/evencover/_kernels/cpp/,*.cpp *.hpp lanes/*.hpp))

# Tests of one file share fixtures, so one worker runs them; the longest come first. There is one
# more worker than cores, because some tests wait for subprocesses.
WORKERS := $(shell $(PYTHON) -c 'import os; print(1 + (os.cpu_count() or 1))')
# Always write bytecode: tests start hundreds of processes, and each would compile the package. Linear
# algebra has one thread per worker: more would wait for each other longer than they work.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: setup demo lint test test-deep test-oldest audit bench evidence docs wheels release clean

setup: $(VENV)/.ready

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "evencover needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: $(SOURCES) | $(VENV)/bin/python
	$(PIP) --editable .
	touch $@

# One installation, because each compiles the kernels.
$(VENV)/.ready-dev: $(SOURCES) | $(VENV)/bin/python
	$(PIP) --editable '.[dev]'
	touch $(VENV)/.ready $@

demo: $(VENV)/.ready  ## compare the methods on the bundled data
	$(BIN)/evencover compare

lint: $(VENV)/.ready-dev  ## style, spelling and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy

test: lint  ## style, types and tests, in a few minutes
	$(PYTEST) -m 'not deep'

# Run a subset with DEEP="tests/statistical tests/kernels". The second run makes blocks tiny, so that
# small data take every path of large ones. It leaves out tests of text, pages, builds and hostile
# files, kernels and laws (they choose their sizes), and test_sizes.py, which compares both sizes.
DEEP ?= src tests
WITHOUT_BLOCKS := $(patsubst %,--ignore tests/%,attacks browser docs kernels statistical test_examples.py test_layers.py test_sizes.py)
test-deep: lint  ## all tests, with more examples and repetitions, then with tiny blocks
	test -d /usr/include/simde || apt-get install -y -qq --no-install-recommends libsimde-dev || true  # to emulate AVX-512
	$(PIP) torch==2.13.0 transformers accelerate cleanlab covmetrics mapie wordllama xgboost lightgbm
	$(PIP) --editable '.[export,mlflow,postgresql,serve]' httpx onnxruntime 'tritonclient[http]'
	EVENCOVER_TESTS=deep $(PYTEST) -m 'deep or not deep' $(DEEP)
	EVENCOVER_SIZES=blocks $(PYTEST) -m 'not deep' $(WITHOUT_BLOCKS) $(DEEP) || test $$? -eq 5  # no tests are left

# Old packages emit warnings, which are not errors here. Browser, cluster and docs need other tools.
# Run a subset with OLDEST="tests/cli".
OLDEST ?= src tests --ignore tests/browser --ignore tests/cluster --ignore tests/docs
test-oldest:  ## with the oldest supported versions of all dependencies
	$(PYTHON) -m venv .cache/oldest
	.cache/oldest/bin/python -m pip install --quiet --disable-pip-version-check uv
	.cache/oldest/bin/uv pip install --quiet --python .cache/oldest/bin/python --resolution lowest-direct --editable '.[all,zarr]' 'pandas>=2.1' 'polars>=1'
	.cache/oldest/bin/uv pip install --quiet --python .cache/oldest/bin/python pytest pytest-xdist hypothesis
	.cache/oldest/bin/python -m pytest -q -W default --numprocesses auto --dist loadfile -m 'not deep' $(OLDEST)

# Strict: fail for packages that cannot be audited. Only findings are written to the output.
audit: $(VENV)/.ready-dev  ## check installed packages for known vulnerabilities; needs a network
	$(PIP) pip-audit
	mkdir -p .cache
	rm -f .cache/findings.txt
	$(BIN)/python -m pip freeze --exclude-editable > .cache/audited.txt
	@$(BIN)/python -m pip_audit --strict --disable-pip --no-deps --requirement .cache/audited.txt --output .cache/findings.txt || \
	{ cat .cache/findings.txt 2> /dev/null || echo "Nothing was audited: the vulnerability service does not answer for every package (see above); use a network that reaches pypi.org itself, or another service with PIP_AUDIT_VULNERABILITY_SERVICE=osv." >&2; exit 1; }

# The studies also run a service and a model.
$(VENV)/.ready-evidence: $(SOURCES) | $(VENV)/bin/python
	$(PIP) --editable '.[dev,serve]' magika==1.0.3
	touch $(VENV)/.ready $(VENV)/.ready-dev $@

bench: STEP := topk,compare,reading,serving,cluster,peers
bench: evidence  ## time evencover and other packages; needs an idle machine

# One step with STEP=filetypes; recorded predictions that are not in the repository with DATA=FOLDER.
# With CHECK=1, list the steps that were measured with other code instead; this needs no packages.
evidence: $(if $(CHECK),,$(VENV)/.ready-evidence)  ## measure every number of README and site again
	$(if $(CHECK),$(PYTHON),$(BIN)/python) scripts/evidence.py $(STEP) $(if $(DATA),--data $(DATA)) $(if $(CHECK),--check)

docs: $(VENV)/.ready-dev  ## build the site in docs/_build; runs every tutorial
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build
	$(BIN)/python scripts/check_site.py docs/_build

wheels:  ## build wheels and test them without a compiler
	$(PYTHON) scripts/build_wheels.py

release:  ## build wheels, if the numbers of README and site are those of the present code
	$(MAKE) evidence CHECK=1
	$(MAKE) wheels

clean:
	rm -rf $(VENV) .cache build dist docs/_build docs/api docs/commands docs/studies docs/tutorials
