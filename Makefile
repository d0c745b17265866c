# Each target does all of its own set-up: a virtual environment in .venv with the package and the server's binaries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The tests wait more than they compute. In the order of the files: the slow ones, with a server, come first.
WORKERS ?= 4
SECONDS ?= 60
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
SOURCES := $(wildcard pytriton/native/*.cpp pytriton/native/http/*.cpp scripts/hosts/*.cpp tests/native/*.cpp)

# The tests start hundreds of interpreters, which find what the first one has compiled.
test unit coverage interpreters: export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test test-cluster unit coverage interpreters lint types docs fuzz wheel bench clean

demo: $(READY)
	$(BIN)/python examples/digits.py

test: $(READY)
	$(BIN)/python -m pytest $(PARALLEL)
	PYTRITON_PROXY=python $(BIN)/python -m pytest $(PARALLEL) -m "not either_proxy" tests/server

unit: $(READY)
	$(BIN)/python -m pytest tests/unit tests/test_layers.py

# The total, and an HTML report in build/coverage. Child processes count too, except those that a signal ends.
coverage: $(READY)
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest $(PARALLEL)
	PYTRITON_PROXY=python $(BIN)/python -m coverage run -m pytest $(PARALLEL) -m "not either_proxy" tests/server
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage html --quiet
	$(BIN)/python -m coverage report --skip-covered --skip-empty --sort=cover

# Sets up what the tests above skip otherwise: each interpreter of this machine.
interpreters: $(READY)
	$(BIN)/python tests/server/interpreters.py
	$(BIN)/python -m pytest tests/server/test_interpreters.py

# Workers on the nodes of a Ray cluster, which this machine plays.
test-cluster: $(READY)
	$(BIN)/pip install --quiet --editable '.[ray]'
	$(BIN)/python -m pytest tests/cluster tests/server/test_remote_networks.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(SOURCES) pytriton/native/*.h pytriton/native/http/*.h tests/native/*.h
	@if command -v c++ >/dev/null; \
	then printf '%s\n' $(SOURCES) | xargs -P 2 -I{} $(BIN)/clang-tidy --quiet {} -- -std=c++17 -Wall -Wextra -Wpedantic -Ipytriton/native; \
	else echo "clang-tidy: left out, as there is no C++ compiler whose standard library it could read"; fi

types: $(READY)
	$(BIN)/mypy

# The documents and the API as a site that needs no network: build/site/index.html.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Each target in turn, for so many seconds; clang with libFuzzer is the machine's.
fuzz: $(READY)
	$(BIN)/pip install --quiet --editable '.[fuzz]'
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

wheel: $(READY)
	$(BIN)/pip install --quiet build
	$(BIN)/python -m build --wheel

# wrk (apt-get install wrk) costs less of the cores than the generator that is used without it.
bench: $(READY)
	@command -v wrk >/dev/null || echo "wrk is not installed: a generator in Python sends the requests over HTTP"
	$(BIN)/python scripts/bench.py

clean:
	rm -rf $(VENV) pytriton/tritonserver pytriton/native/*.so pytriton/native/stamp.txt pytriton/native/vendor build dist

$(READY): pyproject.toml hatch_build.py $(wildcard pytriton/native/*.cpp pytriton/native/*.h pytriton/native/http/*.cpp pytriton/native/http/*.h) pytriton/native/CMakeLists.txt
	@$(PYTHON) -c 'import sys; sys.exit("pytriton needs Python 3.10 or newer" if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test,lint,examples,docs]'
	@touch $@
