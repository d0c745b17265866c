# Each target does all of its own set-up: a virtual environment in .venv with the package and the server's binaries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The tests wait more than they compute.
WORKERS ?= 3
SOURCES := $(wildcard pytriton/native/*.cpp tests/native/*.cpp)

.PHONY: demo test unit lint types wheel bench clean

demo: $(READY)
	$(BIN)/python examples/digits.py

test: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

unit: $(READY)
	$(BIN)/python -m pytest tests/unit tests/test_layers.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(SOURCES) pytriton/native/*.h tests/native/*.h
	@if command -v c++ >/dev/null; \
	then printf '%s\n' $(SOURCES) | xargs -P 2 -I{} $(BIN)/clang-tidy --quiet {} -- -std=c++17 -Ipytriton/native; \
	else echo "clang-tidy: left out, as there is no C++ compiler whose standard library it could read"; fi

types: $(READY)
	$(BIN)/mypy

wheel: $(READY)
	$(BIN)/pip install --quiet build
	$(BIN)/python -m build --wheel

bench: $(READY)
	$(BIN)/python scripts/bench.py

clean:
	rm -rf $(VENV) pytriton/tritonserver pytriton/native/*.so build dist

$(READY): pyproject.toml hatch_build.py
	@$(PYTHON) -c 'import sys; sys.exit("pytriton needs Python 3.10 or newer" if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test,lint,examples]'
	@touch $@
