# Each target does all of its own set-up: a virtual environment in .venv with the package and the server's binaries, and
# the group of dependencies in pyproject.toml that the target needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CREATED := $(VENV)/.created
READY := $(VENV)/.ready
# The tests also wait. In the order of the files: the slow ones, with a server, come first.
WORKERS ?= 6
SECONDS ?= 60
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# A test that hangs where its own time limit cannot end it, such as in C, tells where it hangs, and ends its process.
PARALLEL += -o faulthandler_timeout=610 -o faulthandler_exit_on_timeout=true
SOURCES := $(wildcard pytriton/native/*/*.cpp scripts/hosts/*.cpp tests/native/*.cpp)

# pip would compile all modules of a package, and few of them are used: an interpreter compiles what it imports. The tests
# start hundreds, which find what the first one has compiled.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile
demo test thorough test-pages test-python-proxy test-triton-endpoints unit coverage interpreters: export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test thorough test-pages test-python-proxy test-triton-endpoints test-cluster test-gguf test-torch unit coverage \
  interpreters newer lint types docs fuzz fuzz-service wheel bench clean

demo: $(VENV)/.with-demo
	$(BIN)/python examples/digits.py

test: $(VENV)/.with-test
	$(BIN)/python -m pytest $(PARALLEL) -m "not thorough" -o faulthandler_timeout=310

# The rest: sanitized programs, pages of the documents, requests of all kinds and sizes, a browser, others' programs, the
# tools; and the Python proxy, with the tests that could differ.
thorough: $(VENV)/.with-test newer
	$(BIN)/python -m pytest $(PARALLEL) -m thorough --ignore tests/unit
	$(MAKE) test-python-proxy test-triton-endpoints

test-python-proxy: $(VENV)/.with-test
	PYTRITON_PROXY=python $(BIN)/python -m pytest $(PARALLEL) -m "not either_proxy" tests/server

# What has ended the bundled server, at its own endpoints in place of the edge.
test-triton-endpoints: $(VENV)/.with-test
	PYTRITON_TRITON_CONFIG_HTTP_FRONTEND=triton PYTRITON_TRITON_CONFIG_GRPC_FRONTEND=triton \
	$(BIN)/python -m pytest tests/server/test_hostile_requests.py tests/server/test_hostile_loads.py

# Of make thorough, what users read and see.
test-pages: $(VENV)/.with-test
	$(BIN)/python -m pytest $(PARALLEL) -m thorough $(addprefix tests/server/,test_documents.py test_examples.py rest/test_openapi.py rest/test_pages_in_browser.py)

unit: $(VENV)/.with-test
	$(BIN)/python -m pytest tests/unit tests/test_layers.py

# The total, and an HTML report in build/coverage. Child processes count too, except those that a signal ends.
coverage: $(VENV)/.with-test
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest $(PARALLEL)
	PYTRITON_PROXY=python $(BIN)/python -m coverage run -m pytest $(PARALLEL) -m "not either_proxy" tests/server
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage html --quiet
	$(BIN)/python -m coverage report --skip-covered --skip-empty --sort=cover

# Sets up what the tests above skip otherwise: each interpreter of this machine.
interpreters: $(VENV)/.with-test
	$(BIN)/python tests/server/interpreters.py
	$(BIN)/python -m pytest tests/server/test_interpreters.py

# A newer CPython as WebAssembly, in which tests/newer runs. Where there is no npm, or no registry, those tests are skipped.
newer:
	@test -d build/pyodide/node_modules/pyodide || ! command -v npm >/dev/null || \
	npm install --silent --no-save --prefix build/pyodide pyodide@314 || echo "tests/newer are skipped: no pyodide"

# Workers on the nodes of a Ray cluster, which this machine plays.
test-cluster: $(VENV)/.with-test
	$(INSTALL) --editable '.[ray]'
	$(BIN)/python -m pytest tests/cluster tests/server/test_remote_networks.py

# Saved models whose libraries are large: of PyTorch, Hugging Face and CatBoost. One wheel of torch for the CPU is smaller.
test-torch: $(VENV)/.with-test
	$(INSTALL) --editable '.[catboost,hf,torch]'
	$(BIN)/python -m pytest tests/torch
	$(BIN)/python -m pytest tests/unit/saved tests/server/test_saved_models.py -k catboost

# GGUF files: llama-cpp-python has no wheels, so that pip compiles llama.cpp, which takes long.
test-gguf: $(VENV)/.with-test
	$(INSTALL) --editable '.[gguf]' gguf
	$(BIN)/python -m pytest tests/torch/test_saved_gguf.py

# clang-tidy reads each folder of the native code as one source: what they include is read once, and a fault that takes
# several sources is found.
lint: $(VENV)/.with-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(SOURCES) pytriton/native/*/*.h tests/native/*.h
	@rm -rf build/tidy && mkdir -p build/tidy && for folder in $(sort $(dir $(wildcard pytriton/native/*/*.cpp))); \
	do printf '#include "../../%s"\n' $$folder*.cpp > build/tidy/$$(basename $$folder).cpp; done
	@if command -v c++ >/dev/null; \
	then printf '%s\n' build/tidy/*.cpp scripts/hosts/*.cpp tests/native/*.cpp | xargs -P 2 -I{} $(BIN)/clang-tidy --quiet \
	  --checks=-bugprone-suspicious-include {} -- -std=c++17 -Wall -Wextra -Wpedantic -Ipytriton/native \
	  -isystem pytriton/native/vendor/nghttp2/lib/includes -isystem build/native/nghttp2; \
	else echo "clang-tidy: left out, as there is no C++ compiler whose standard library it could read"; fi

types: $(VENV)/.with-lint $(VENV)/.with-test
	$(BIN)/mypy

# The documents and the API as a site that needs no network: build/site/index.html.
docs: $(VENV)/.with-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Each target in turn, for so many seconds; clang with libFuzzer is the machine's.
fuzz: $(VENV)/.with-fuzz $(VENV)/.with-test
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

# A whole service under mutated traffic over all of its ports, with 2 GiB of memory; SANITIZE=address compiles its native
# libraries with AddressSanitizer and UBSan.
fuzz-service: $(VENV)/.with-test
	$(BIN)/python -m tests.fuzz.composition --seconds $(SECONDS) $(if $(SANITIZE),--sanitize $(SANITIZE))

# For other machines, which need no compiler to install it: dist/*.whl, for each interpreter that the package supports.
wheel: | $(CREATED)
	rm -f dist/*.whl
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .
	@ls -sh dist/*.whl

# wrk (apt-get install wrk) costs less of the cores than the generator that is used without it.
bench: $(VENV)/.with-test
	@command -v wrk >/dev/null || echo "wrk is not installed: a generator in Python sends the requests over HTTP"
	$(BIN)/python scripts/bench.py

clean:
	rm -rf $(VENV) pytriton/tritonserver pytriton/native/*.so pytriton/native/stamp.txt pytriton/native/vendor build dist

$(READY): pyproject.toml hatch_build.py $(wildcard pytriton/native/*/*.cpp pytriton/native/*/*.h pytriton/native/*.map) pytriton/native/CMakeLists.txt | $(CREATED)
	$(INSTALL) --editable .
	@touch $@

$(CREATED):
	@$(PYTHON) -c 'import sys; sys.exit("pytriton needs Python 3.10 or newer" if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade pip
	@touch $@

$(VENV)/.with-%: pyproject.toml $(READY)
	$(INSTALL) --group $*
	@touch $@
