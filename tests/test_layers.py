"""Dependencies point one way: the imports of every module are read and checked against the picture of the layers."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "pytriton"
SERVER = PACKAGE / "tritonserver"  # the server's own files

# Each layer and those that it may import. A layer is a package, or a module beside them; a longer name is one module
# of a layer, and all that may be imported of it.
LAYERS = {
    "exceptions": [],
    "constants": [],
    "distribution": [],
    "forks": [],
    "introspection": [],
    "logs": [],
    "threads": ["exceptions", "logs", "restarts"],
    "options": ["exceptions"],
    "lifecycle": ["exceptions", "forks"],
    "restarts": [],
    "signals": ["forks"],
    "systemd": [],
    "wire": [],
    "python_proxy": ["cluster.proxy", "wire"],
    "proxy": ["model_config"],
    "recording": ["exceptions", "forks", "logs", "wire"],
    "config": ["exceptions", "logs", "options"],
    "security": ["exceptions"],
    "utils": ["constants", "exceptions", "forks"],
    "model_config": ["exceptions", "logs", "wire.tensors"],
    "client": [
        "constants",
        "exceptions",
        "forks",
        "introspection",
        "logs",
        "model_config",
        "restarts",
        "signature.schema",
        "signature.problems",
        "signature.values",
        "threads",
        "wire.frames",
    ],
    "files": ["exceptions"],
    "compat": ["client", "exceptions", "files.formats", "files.zips", "forks", "model_config", "server.statistics"],
    "worker": ["constants", "exceptions", "forks", "logs", "model_config", "proxy", "recording", "threads", "wire"],
    "decorators": [
        "constants",
        "distribution",
        "exceptions",
        "introspection",
        "logs",
        "model_config",
        "proxy.telemetry",
        "proxy.types",
        "worker.context",
    ],
    "composition": [
        "client",
        "constants",
        "decorators.signatures",
        "exceptions",
        "forks",
        "introspection",
        "proxy.types",
        "worker.origin",
        "worker.results",
    ],
    "server": [
        "client",
        "config",
        "constants",
        "exceptions",
        "forks",
        "introspection",
        "logs",
        "model_config",
        "security",
        "threads",
        "utils",
    ],
    "signature": [
        "decorators.function_kinds",
        "decorators.signatures",
        "exceptions",
        "introspection",
        "model_config",
        "proxy.types",
    ],
    "pool": [
        "composition.connector",
        "composition.injection",
        "decorators.batching",
        "decorators.signatures",
        "exceptions",
        "forks",
        "introspection",
        "logs",
        "model_config",
        "options",
        "proxy.telemetry",
        "restarts",
        "signals",
        "signature",
        "threads",
        "wire",
        "worker",
    ],
    "cluster": [
        "client",
        "composition.connector",
        "composition.injection",
        "decorators.signatures",
        "exceptions",
        "forks",
        "introspection",
        "logs",
        "model_config",
        "options",
        "pool",
        "proxy.telemetry",
        "restarts",
        "security",
        "signature.derive",
        "signature.examples",
        "signature.served",
        "threads",
        "wire",
        "worker",
    ],
    "workers": ["cluster.workers", "pool"],
    "pipeline": ["exceptions", "introspection", "model_config", "pool.pool", "signature"],
    "routing": [
        "composition.handle",
        "composition.traffic_file",
        "exceptions",
        "forks",
        "introspection",
        "model_config",
        "pool.pool",
        "pool.threads",
        "proxy.types",
        "signature.derive",
        "signature.examples",
        "signature.schema",
        "signature.served",
        "worker.context",
        "worker.metrics",
    ],
    "traffic": [
        "composition.handle",
        "exceptions",
        "introspection",
        "logs",
        "model_config",
        "proxy.types",
        "routing",
        "worker.metrics",
        "worker.origin",
    ],
    "model_spec": [
        "exceptions",
        "model_config",
        "options",
        "pool",
        "server",
        "signature.functions",
        "worker",
    ],
    "model": ["exceptions", "model_config", "pool", "server", "worker.recording"],
    "inprocess": [
        "base",
        "binding",
        "client",
        "composition.connector",
        "exceptions",
        "forks",
        "introspection",
        "lifecycle",
        "logs",
        "model_config",
        "server.backends",
        "server.drain",
        "server.installation",
        "server.launch",
        "server.metrics_page",
        "server.model_server",
        "threads",
        "utils.workspace",
        "wire",
        "worker",
    ],
    "binding": ["exceptions", "logs", "model", "model_config", "model_spec", "server", "utils", "worker.context"],
    "revival": ["binding", "exceptions", "logs", "model", "restarts", "server", "threads"],
    "operations": [
        "exceptions",
        "logs",
        "model",
        "model_config",
        "rest.launched_app",
        "server.model_server",
        "worker.recording",
    ],
    "serving": [
        "binding",
        "exceptions",
        "lifecycle",
        "logs",
        "operations",
        "rest.hosted",
        "server",
        "signals",
        "systemd",
    ],
    "base": [
        "binding",
        "client",
        "composition.connector",
        "operations",
        "constants",
        "exceptions",
        "forks",
        "lifecycle",
        "logs",
        "model",
        "model_config",
        "model_spec",
        "pool",
        "rest.config",
        "rest.hosted",
        "revival",
        "server",
        "serving",
        "threads",
        "utils",
        "worker",
    ],
    "llm": ["exceptions", "model_config", "signature"],
    "rest": [
        "client",
        "constants",
        "exceptions",
        "forks",
        "introspection",
        "llm",
        "logs",
        "model_config",
        "options",
        "pool.pipes",
        "pool.process",
        "python_proxy.memory",
        "restarts",
        "security",
        "server.access",
        "server.endpoints",
        "server.launch",
        "server.statistics",
        "signals",
        "signature",
        "threads",
        "wire.control",
    ],
    "remote": [
        "base",
        "client.exceptions",
        "cluster.options",
        "cluster.relay",
        "constants",
        "exceptions",
        "introspection",
        "logs",
        "model_config",
        "rest.config",
        "rest.launched_app",
        "server",
        "utils",
    ],
    "triton": [
        "base",
        "client",
        "config",
        "constants",
        "exceptions",
        "logs",
        "model_config",
        "remote",
        "rest.authorization",
        "rest.config",
        "rest.launched_app",
        "rest.permits",
        "restarts",
        "security",
        "server",
        "utils",
        "worker",
    ],
    "saved": [
        "compat.mlserver",
        "compat.torchserve",
        "decorators.batching",
        "exceptions",
        "files",
        "llm",
        "logs",
        "model_config",
        "signature",
        "threads",
    ],
    "image": ["exceptions", "files.onnx", "saved.layouts"],
    "cli": [
        "base",
        "client",
        "cluster",
        "compat.mlserver",
        "config",
        "constants",
        "decorators",
        "exceptions",
        "files.formats",
        "image",
        "introspection",
        "logs",
        "model_config",
        "model_spec",
        "pool.resources",
        "recording",
        "rest",
        "saved",
        "security",
        "server",
        "signals",
        "signature.functions",
        "signature.schema",
        "systemd",
        "threads",
        "triton",
        "workers",
    ],
    "__main__": ["cli"],
}

# Imports that break the rule above or close a circle. Both lists must only shrink.
KNOWN_UPWARD: dict[str, list[str]] = {}
KNOWN_CIRCLES: list[list[str]] = []

# Imports that run later than their module: within functions, or by importlib. A name that is computed is given as code.
OPTIONAL = "comes with an extra"
SLOW = "takes long to import, and few programs need it"
LAZY_IMPORTS = {
    "pytriton": {
        "f'{__name__}.{name}'": "a client does not load the modules that serve models",
        "f'{__name__}.{_HOME_OF[name]}'": "the same, for names of the package",
        "importlib.metadata": "takes longer than the rest of the package, and few programs ask for the version",
    },
    "pytriton.composition.connector": {
        "pytriton.client.aio": "few callables call models",
        "pytriton.client.auth": "the same",
        "pytriton.client.sync": "the same",
    },
    "pytriton.composition.injection": {"pytriton.composition.handle": "few callables call models"},
    "pytriton.rest.hosted": {"pytriton.rest.launched_app": "few programs have an app"},
    "pytriton.triton": {
        "pytriton.rest.authorization": "few programs have an app",
        "pytriton.rest.permits": "the same",
    },
    "pytriton.cli.dashboard": {"uvicorn": OPTIONAL},
    "pytriton.cli": {"pytriton.cli.app": "tells what to install if the extra is absent"},
    "pytriton.llm": {
        "f'{__name__}.{_HOME_OF[name]}'": "tells what to install if the extra is absent, and the app needs a part"
    },
    "pytriton.llm.templates": {"jinja2": OPTIONAL, "jinja2.sandbox": OPTIONAL},
    "pytriton.rest": {"pytriton.rest.app": "tells what to install if the extra is absent"},
    "pytriton.rest.mcp": {
        "mcp.server.lowlevel.server": OPTIONAL,
        "mcp.server.streamable_http_manager": OPTIONAL,
        "mcp.types": OPTIONAL,
    },
    "pytriton.cli.app": {"f'pytriton.cli.{MODULES.get(cmd_name, cmd_name)}'": "a command needs no other's imports"},
    "pytriton.cli.cluster": {
        "pytriton.cli.worker": OPTIONAL,
        "pytriton.cluster.keys": OPTIONAL,
        "pytriton.cluster.worker": OPTIONAL,
    },
    "pytriton.cluster.ray": {"ray": OPTIONAL},
    "pytriton.cluster.worker": {"pytriton.cluster.call_client": "few callables call models"},
    "pytriton.cluster.workers": {
        "pytriton.cluster.derivation": OPTIONAL,
        "pytriton.cluster.pool": OPTIONAL,
        "pytriton.cluster.ray": OPTIONAL,
    },
    "pytriton.cli.reloader": {"watchfiles": "few commands reload"},
    "pytriton.cli.target": {"self.module": "the user's module"},
    "pytriton.client": {
        "f'{__name__}.{name}'": "a program needs one or two clients, and a server none",
        "f'{__name__}.{_HOME_OF[name]}'": "the same, for names of the package",
    },
    "pytriton.client.arguments": {"_PROPAGATION": OPTIONAL},
    "pytriton.client.grpc_protocol": {
        "google.protobuf.json_format": SLOW,
        "grpc": SLOW,
        "library": "grpc or grpc.aio, which take long to import",
        "tritonclient.grpc.service_pb2": SLOW,
    },
    "pytriton.client.grpc_transports": {"grpc": SLOW, "tritonclient.grpc.service_pb2_grpc": SLOW},
    "pytriton.client.transport": {"tritonclient.utils": SLOW},
    "pytriton.client.tritonclients": {
        "_CUDA": "works with a GPU only",
        "aiohttp": SLOW,
        "f'tritonclient.{scheme}'": "importing tritonclient for HTTP or gRPC takes long; a program needs one",
        "f'tritonclient.{scheme}.aio'": "importing tritonclient for HTTP or gRPC takes long; a program needs one",
        "gevent": SLOW,
        "geventhttpclient.response": SLOW,
    },
    "pytriton.compat.tensorrtserver.cuda_shared_memory": {"cupy": OPTIONAL},
    "pytriton.inprocess.memory": {"cupy": OPTIONAL},
    "pytriton.model_config.generator": {"google.protobuf": SLOW, "tritonclient.grpc.model_config_pb2": SLOW},
    "pytriton.model_config.parser": {"google.protobuf": SLOW, "tritonclient.grpc.model_config_pb2": SLOW},
    "pytriton.proxy.telemetry": {
        "module": OPTIONAL,
        "opentelemetry.exporter.otlp.proto.http.trace_exporter": OPTIONAL,
        "opentelemetry.sdk.resources": OPTIONAL,
        "opentelemetry.sdk.trace": OPTIONAL,
        "opentelemetry.sdk.trace.export": OPTIONAL,
        "opentelemetry.trace": OPTIONAL,
        "opentelemetry.trace.propagation.tracecontext": OPTIONAL,
    },
    "pytriton.python_proxy.model": {"pytriton.cluster.proxy": "tells what to install if pyzmq is absent"},
    "pytriton.remote": {"pytriton.cluster.relay": OPTIONAL},
    "pytriton.saved.model": {"f'pytriton.saved.{file_format.module}'": "the library of one format comes with an extra"},
    "pytriton.saved.huggingface": {"sentence_transformers": OPTIONAL},
    "pytriton.saved.torch": {"module": "the user's module", "safetensors.torch": OPTIONAL},
    "pytriton.saved.sklearn": {"pandas": OPTIONAL, "skops": OPTIONAL},
    "pytriton.python_proxy.abi": {"numpy.core.multiarray": "must be looked up by the name that pybind11 uses"},
    "pytriton.server.guard": {
        "glob": "the server starts before the guard needs it",
        "shutil": "the server starts before the guard needs it",
    },
    "pytriton.server.launched_server": {"http.client": "reads the metrics at the end alone"},
    "pytriton.worker.metrics": {"prometheus_client": OPTIONAL},
}
# Modules whose names are looked up by a function of theirs, `__getattr__`.
LAZY_NAMES = {
    "pytriton": "the names of the README are imported when they are first used",
    "pytriton.client": "the same, for clients",
    "pytriton.llm": "the types of requests need pydantic",
    "pytriton.rest": "options of the app need none of its libraries",
}

# State of the process: names of modules that change, locks, context variables, counters and caches.
ONE_MESSAGE = "a message is logged once per process"
GLOBAL_STATE = {
    "pytriton.saved.huggingface": {"OFFLINE": "a setting of its library is that of the process"},
    "pytriton": {"globals()": "names that were imported when first used"},
    "pytriton.client": {"globals()": "names that were imported when first used"},
    "pytriton.client.grpc_protocol": {"grpc_messages": "a module that is imported late"},
    "pytriton.client.grpc_transports": {"_usage": "gRPC of an asyncio client cannot be used in a forked process"},
    "pytriton.client.http_protocol": {"_described_tensors": "forms of requests", "_uri_of": "paths of models"},
    "pytriton.client.transport": {"server_exception": "a class that is imported late"},
    "pytriton.cluster.broker": {"_brokers": "models with the same address share it", "_brokers_lock": "guards them"},
    "pytriton.compat.tensorrtserver.contexts": {"_numbers": "numbers of requests"},
    "pytriton.composition.handle": {"_background": "an event loop that all handles share"},
    "pytriton.forks": {"_owners": "the objects that a forked process must drop"},
    "pytriton.inprocess.capi": {
        "_api": "the server's library is loaded once",
        "_kept": "libraries that stay loaded",
        "_lock": "guards the loading",
    },
    "pytriton.inprocess.handle": {
        "DEFAULTS": "is not changed, though its class could be",
        "_process": "the process that has a server: forked ones lack its threads",
        "_running": "servers of this process, of which the server's library allows one",
        "_servers": "servers whose deletion is deferred",
    },
    "pytriton.inprocess.local_channel": {"_lock": "guards the loading", "_proxy": "loaded once"},
    "pytriton.inprocess.memory": {
        "_exported": "tensors that other libraries hold",
        "has_gpu": "the answer does not change",
    },
    "pytriton.inprocess.messages": {
        "_array_description": "forms of requests",
        "_decode_description": "forms of responses",
    },
    "pytriton.inprocess.native": {
        "_library": "loaded once",
        "_lock": "guards the loading",
        "_tokens": "numbers of buffers, by which C++ names them",
        "in_flight": "requests in flight, by number",
    },
    "pytriton.inprocess.pending": {
        "_lock": "guards the deliveries",
        "_loop_deliveries": "the responses of asyncio calls, by event loop",
        "_numbers": "numbers of requests, by which C++ names them",
        "_thread_delivery": "the responses of blocking calls",
        "in_flight": "of native",
    },
    "pytriton.model": {"_package_version": "it does not change, and is in a file"},
    "pytriton.proxy.telemetry": {"_lock": "guards the tracer", "_tracer": "the tracer of the process"},
    "pytriton.python_proxy.abi": {"_KEEP": "memory that NumPy's table of functions refers to"},
    "pytriton.rest.errors": {"_hidden_errors": "a log is of a process, and so is the rate of its lines"},
    "pytriton.rest.json_arrays": {"_range": "facts about dtypes"},
    "pytriton.server.installation": {"_warned": ONE_MESSAGE},
    "pytriton.server.backends": {
        "_warned": ONE_MESSAGE,
        "build_mismatch": "reading the libraries takes long",
        "linked_libpython": "reading a stub takes some ms",
    },
    "pytriton.signals": {
        "_installed": "signal handlers belong to the process",
        "_masks": "signals that a thread blocks during a fork",
    },
    "pytriton.wire.layout": {"encode_entry": "entries of tensors that were sent before are found again"},
    "pytriton.worker.context": {"current_binding": "the model that a thread serves"},
    "pytriton.worker.origin": {"current_origin": "the requests that a callable works on"},
    "pytriton.worker.metrics": {
        "_made": "prometheus_client allows one metric of a name per registry",
        "_making": "guards the other one",
    },
}

# Private members of other packages: the module that uses them. Each has a test that fails when they change.
PRIVATE = {
    # As multiprocessing does; tests/unit/pool/test_template.py
    "atexit": {"pytriton.pool.template_main": ["_clear", "_run_exitfuncs"]},
    "numpy": {"pytriton.python_proxy.abi": ["_ARRAY_API"]},  # tests/unit/python_proxy/test_abi.py
    "tritonclient": {
        "pytriton.client.tritonclients": [  # tests/unit/client/test_client_tritonclients.py
            "_byte_size",
            "_cuda_shm_handle",
            "_device_id",
            "_mpsm_handle",
            "_shm_key",
            "_triton_shm_name",
        ],
    },
    "wrapt": {"pytriton.decorators.signatures": ["_self_wrapper"]},  # tests/unit/decorators/test_decorator_stacks.py
}
DOCUMENTED_IN_SPITE_OF_ITS_NAME = {"os._exit"}
OF_NAMED_TUPLES = {"_asdict", "_field_defaults", "_fields", "_replace"}  # documented too

# tritonclient brings "google" and "grpc", and the first one for Python 3.10.
DEPENDENCIES = {"async_timeout", "cloudpickle", "google", "grpc", "httptools", "numpy"}
DEPENDENCIES |= {"tritonclient", "wrapt"}
# Of the extra "cli".
COMMAND_LINE = {"packaging", "rich", "typer", "watchfiles"}
# Of the extra "rest".
APP = {"orjson", "pydantic", "python_multipart", "simdjson", "starlette", "uvicorn"}
# Of the extra "llm"; pydantic brings the others.
MODELS_OF_LANGUAGE = {"pydantic", "pydantic_core", "typing_extensions"}
# Of the extras with the names of formats.
FORMATS = {
    "catboost",
    "joblib",
    "jinja2",
    "lightgbm",
    "llama_cpp",
    "mlflow",
    "onnxruntime",
    "pandas",
    "sklearn",
    "xgboost",
}
FORMATS |= {"PIL", "sentence_transformers", "torch", "huggingface_hub", "transformers", "safetensors"}
BY_LAYER = {
    "cli": COMMAND_LINE,
    "cluster": {"zmq"},
    "image": {"packaging"},
    "llm": MODELS_OF_LANGUAGE,
    "rest": APP,
    "saved": FORMATS,
}
PUBLIC = [
    "pytriton",
    "pytriton.client",
    "pytriton.decorators",
    "pytriton.inprocess",
    "pytriton.llm",
    "pytriton.model_config",
    "pytriton.recording",
    "pytriton.rest",
    "pytriton.saved",
    "pytriton.triton",
    "pytriton.workers",
]
COPIED = "python_proxy", "wire"
IN_THE_BACKEND = {f"pytriton.python_proxy.{name}" for name in ("codec", "concurrent", "model", "pending", "serial")}
OF_NEWER_PYTHONS = {"annotationlib"}  # 3.14
NETWORK = {"aiohttp", "grpc", "google.protobuf", "tritonclient.grpc", "tritonclient.http", "gevent", "geventhttpclient"}


class Import(NamedTuple):
    """One imported module; ``lazy`` if it is imported later than its module, ``typing`` if for type checkers alone."""

    name: str
    lazy: bool = False
    typing: bool = False


class Imports(ast.NodeVisitor):
    """Collects the imports of a module.

    Args:
        module: Its name; for a package, that of its ``__init__``.
        modules: Names of all modules: ``from a import b`` imports the module ``a.b`` if there is one.
    """

    def __init__(self, module: str, modules: set[str]) -> None:
        self.found: list[Import] = []
        self._package = module.rpartition(".")[0].split(".")
        self._modules = modules
        self._lazy = self._typing = False

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        above = self._package[: len(self._package) + 1 - node.level] if node.level else []
        module = ".".join([*above, *([node.module] if node.module else [])])
        for alias in node.names:
            whole = f"{module}.{alias.name}"
            self._add(whole if whole in self._modules else module)

    def visit_Call(self, node: ast.Call) -> None:
        if ast.unparse(node.func) in ("importlib.import_module", "import_module", "__import__"):
            (name, *_) = node.args
            self.found.append(Import(name.value if isinstance(name, ast.Constant) else ast.unparse(name), lazy=True))
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        before, self._lazy = self._lazy, True
        self.generic_visit(node)
        self._lazy = before

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            return self.generic_visit(node)
        before, self._typing = self._typing, True
        for statement in node.body:
            self.visit(statement)
        self._typing = before
        for statement in node.orelse:
            self.visit(statement)
        return None

    def _add(self, name: str) -> None:
        self.found.append(Import(name, self._lazy, self._typing))


def module_name(path: Path) -> str:
    return ".".join(["pytriton", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")


def imports_in(source: str, path: Path, modules: set[str]) -> list[Import]:
    visitor = Imports(".".join(["pytriton", *path.relative_to(PACKAGE).with_suffix("").parts]), modules)
    visitor.visit(ast.parse(source))
    return visitor.found


PATHS = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py")) if SERVER not in path.parents}


@cache
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_text()) for name, path in PATHS.items()}


@cache
def imports() -> dict[str, list[Import]]:
    return {name: imports_in(path.read_text(), path, {*PATHS}) for name, path in PATHS.items()}


def ours(module: str, *, typing: bool) -> list[str]:
    """The modules of this package that a module imports; with ``typing`` also those for type checkers alone."""
    return [each.name for each in imports()[module] if each.name in PATHS and (typing or not each.typing)]


def theirs(module: str) -> set[str]:
    """Third-party packages that a module imports."""
    roots = {each.name.split(".")[0] for each in imports()[module] if not each.typing and not is_dynamic(module, each)}
    return roots - {"pytriton", "__future__"} - sys.stdlib_module_names - OF_NEWER_PYTHONS


def is_dynamic(module: str, found: Import) -> bool:
    """Whether an import is of a package that need not be installed, or of a computed name."""
    return found.lazy and found.name in LAZY_IMPORTS.get(module, {})


def layer_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def may_import(module: str, name: str) -> bool:
    layer, target = layer_of(module), name.removeprefix("pytriton.")
    return layer_of(name) == layer or any(f"{target}.".startswith(f"{allowed}.") for allowed in LAYERS[layer])


def test_the_reader_of_imports_finds_every_kind():
    source = """
import os, numpy.linalg
from typing import TYPE_CHECKING
from .guard import main
from . import log
from ..constants import PORT
from pytriton import model_config as other
if TYPE_CHECKING:
    import grpc
else:
    import wrapt
async def function():
    class Inner:
        from pytriton.client import sync
    importlib.import_module("cupy").cuda
    return importlib.import_module(f"{name}.aio")
try:
    import google.protobuf
finally:
    pass
"""
    found = imports_in(source, PACKAGE / "server" / "made_up.py", {*PATHS})
    assert found == [
        Import("os"),
        Import("numpy.linalg"),
        Import("typing"),
        Import("pytriton.server.guard"),
        Import("pytriton.server.log"),
        Import("pytriton.constants"),
        Import("pytriton.model_config"),
        Import("grpc", typing=True),
        Import("wrapt"),
        Import("pytriton.client.sync", lazy=True),
        Import("cupy", lazy=True),
        Import("f'{name}.aio'", lazy=True),
        Import("google.protobuf"),
    ]


def test_a_package_imports_relative_to_itself():
    found = imports_in("from .tensor import Tensor", PACKAGE / "model_config" / "__init__.py", {*PATHS})
    assert [each.name for each in found] == ["pytriton.model_config.tensor"]


def test_the_rules_tell_layers_and_single_modules_apart():
    assert may_import("pytriton.client.auth", "pytriton.constants")
    assert may_import("pytriton.client.auth", "pytriton.client.arguments")
    assert not may_import("pytriton.client.auth", "pytriton.server.launch")
    assert not may_import("pytriton.model_config.tensor", "pytriton.model")
    assert may_import("pytriton.decorators.batching", "pytriton.worker.context")
    assert not may_import("pytriton.decorators.batching", "pytriton.worker.instance")


def without_empty(found: dict[str, Any]) -> dict[str, Any]:
    """The entries whose values are not empty."""
    return {module: values for module, values in found.items() if values}


def test_the_layers_have_an_order():
    TopologicalSorter({name: {each.split(".")[0] for each in below} for name, below in LAYERS.items()}).prepare()


def test_the_architecture_names_every_layer():
    text = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    packages = text[text.index("## Packages") : text.index("## One request")]
    named = {name.removesuffix(".py").rstrip("/") for line in packages.splitlines() for name in _first_cell(line)}
    assert named == {*LAYERS, "native"} - {"__main__"}


def _first_cell(line: str) -> list[str]:
    return re.findall(r"`([^`]+)`", line.split("|")[1]) if line.startswith("| `") else []


def test_every_module_belongs_to_a_layer():
    assert {layer_of(module) for module in PATHS} == {"", *LAYERS}


def test_a_module_imports_only_lower_layers():
    upward = {
        module: sorted({name for name in ours(module, typing=True) if not may_import(module, name)})
        for module in PATHS
        if module != "pytriton"
    }
    assert without_empty(upward) == KNOWN_UPWARD


def test_the_package_itself_imports_only_the_check_of_its_own_files():
    assert ours("pytriton", typing=False) == ["pytriton.distribution"]
    assert theirs("pytriton") | theirs("pytriton.distribution") == set()


def test_modules_import_each_other_in_no_circle_also_for_type_checkers():
    graph = {module: {*ours(module, typing=True)} - {module} for module in PATHS if module != "pytriton"}
    assert sorted(circles(graph)) == sorted(KNOWN_CIRCLES)


def test_importing_runs_in_no_circle():
    TopologicalSorter({module: {*ours(module, typing=False)} - {module} for module in PATHS}).prepare()


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The largest groups of modules that all reach each other."""
    below = {module: reached(graph, module) for module in graph}
    groups = {tuple(sorted(each for each in below[module] if module in below[each])) for module in graph}
    return [[*group] for group in groups if len(group) > 1]


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    found, waiting = set(), [start]
    while waiting:
        following = graph.get(waiting.pop(), set()) - found
        found |= following
        waiting += following
    return found


def test_circles_are_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"f"}, "f": {"e"}}
    assert sorted(circles(graph)) == [["b", "c"], ["e", "f"]]


def test_an_import_that_runs_late_has_a_reason():
    late = {module: {each.name for each in found if each.lazy} for module, found in imports().items()}
    assert without_empty(late) == {module: {*reasons} for module, reasons in LAZY_IMPORTS.items()}


def test_the_lists_name_modules_that_exist():
    users = {module for modules in PRIVATE.values() for module in modules}
    assert {*KNOWN_UPWARD, *LAZY_IMPORTS, *LAZY_NAMES, *GLOBAL_STATE, *users} - {*PATHS} == set()


def test_names_of_modules_that_a_function_looks_up_have_a_reason():
    lazy = {name for name, tree in trees().items() if any(getattr(n, "name", "") == "__getattr__" for n in tree.body)}
    assert lazy == {*LAZY_NAMES}


def test_what_is_copied_to_another_machine_imports_what_is_copied_there_and_zeromq():
    files = pytest.importorskip("pytriton.cluster.relay").PROXY_FILES
    copied = {f"pytriton.cluster.{Path(name).stem}".removesuffix(".__init__") for name in files}
    for module in copied:
        assert {*ours(module, typing=True)} <= {*copied, *(name for name in PATHS if layer_of(name) == "wire")}
        assert theirs(module) <= {"numpy", "zmq"}


@pytest.mark.parametrize("module", [module for module in PATHS if layer_of(module) in COPIED])
def test_the_proxy_needs_the_standard_library_and_numpy_alone(module):
    """Its files are copied into the model repository, where the server's Python backend imports them."""
    backend = {"triton_python_backend_utils"} if module in IN_THE_BACKEND else set()
    assert theirs(module) <= {"numpy"} | backend


def test_the_guard_needs_the_standard_library_alone():
    assert imports()["pytriton.server.guard"]
    assert ours("pytriton.server.guard", typing=True) == []
    assert theirs("pytriton.server.guard") == set()


def test_third_parties_are_dependencies_of_the_distribution():
    layers = {module: layer_of(module) for module in PATHS if layer_of(module) != "python_proxy"}
    unknown = {module: theirs(module) - DEPENDENCIES - BY_LAYER.get(layer, set()) for module, layer in layers.items()}
    assert without_empty(unknown) == {}


def test_the_command_says_what_to_install_without_its_extra():
    assert theirs("pytriton.cli") | theirs("pytriton.__main__") == set()


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_package_lists_what_it_offers(name):
    package = importlib.import_module(name)
    assert len(set(package.__all__)) == len(package.__all__)  # their order is ruff's
    assert all(hasattr(package, offered) for offered in package.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_package_lists_every_class_and_function_that_it_defines(name):
    statements = ast.parse(PATHS[name].read_text()).body
    defined = {node.name for node in statements if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert {each for each in defined if not each.startswith("_")} <= {*importlib.import_module(name).__all__}


CHANGES = {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "move_to_end", "pop", "popitem"}
CHANGES |= {"popleft", "remove", "reverse", "setdefault", "sort", "update"}
STATE = {"BoundedSemaphore", "Condition", "ContextVar", "Event", "Lock", "Queue", "RLock", "Semaphore", "SimpleQueue"}
STATE |= {"WeakKeyDictionary", "WeakSet", "WeakValueDictionary", "count", "deque", "local"}
CACHES = {"cache", "lru_cache"}


def last_name(node: ast.expr) -> str:
    """``c`` of ``a.b.c`` and of ``a.b.c(...)``."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def classes_with_state(tree: ast.Module) -> set[str]:
    """Names of classes whose objects can change: not those without constructor, and not frozen dataclasses."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            decorators = {ast.unparse(each) for each in node.decorator_list}
            constructor = any(isinstance(each, ast.FunctionDef) and each.name == "__init__" for each in node.body)
            if constructor or any(each.startswith("dataclass") and "frozen" not in each for each in decorators):
                found.add(node.name)
    return found


def changed_in(node: ast.AST) -> Iterator[str]:
    """Names whose object a statement changes in place, or that it binds as global names."""
    for each in ast.walk(node):
        match each:
            case ast.Global(names=names):
                yield from names
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in CHANGES:
                yield name
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                yield name
            case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                yield name
            case ast.Subscript(value=ast.Call(func=ast.Name(id="globals")), ctx=ast.Store() | ast.Del()):
                yield "globals()"


def local_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    bound = {each.id for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    shared = {name for each in ast.walk(function) if isinstance(each, ast.Global) for name in each.names}
    return (bound | {each.arg for each in ast.walk(function) if isinstance(each, ast.arg)}) - shared


def global_state(tree: ast.Module, classes: dict[str, set[str]]) -> set[str]:
    """Names of a module's own objects that change or can change, and of others' objects that it changes.

    Args:
        tree: The module.
        classes: By module, the names of the classes whose objects can change.
    """
    found = set()
    names: set[str] = {"globals()"}
    stateful = STATE | classes_with_state(tree)
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            bound = {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
            names |= bound
            if isinstance(node.value, ast.Call) and last_name(node.value) in stateful:
                found |= bound
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pytriton"):
            names |= {alias.asname or alias.name for alias in node.names}
            stateful |= {alias.name for alias in node.names} & classes.get(node.module or "", set())
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found |= {*changed_in(node)} & names - local_names(node)
            if any(last_name(each) in CACHES for each in node.decorator_list):
                found.add(node.name)
    return found


def test_every_kind_of_state_is_found():
    source = """
import functools, threading
from pytriton.forks import Frozen, Pool, owners
_lock = threading.Lock()
TABLE, _known, _cells, _told, _frozen = {}, {}, [], False, Frozen()
_pool = Pool()
@functools.lru_cache(maxsize=8)
def cached(): ...
def change(key):
    global _told
    _known[key] = TABLE[key]
    _cells.append(key)
    TABLE = {}
    TABLE[key] = owners.pop()
"""
    found = global_state(ast.parse(source), {"pytriton.forks": {"Pool"}, "pytriton.signals": {"Frozen"}})
    assert found == {"_lock", "_known", "_cells", "_told", "_pool", "cached", "owners"}


def test_state_of_the_process_has_a_reason():
    classes = {name: classes_with_state(tree) for name, tree in trees().items()}
    found = {module: global_state(tree, classes) for module, tree in trees().items()}
    assert without_empty(found) == {module: {*reasons} for module, reasons in GLOBAL_STATE.items()}


def test_our_loggers_do_not_raise():
    makers = {
        module: {ast.unparse(node.value.func) for node in tree.body if is_logger(node)}
        for module, tree in trees().items()
        if module != "pytriton.logs"
    }
    assert {module: sorted(found) for module, found in makers.items() if found - {"get_logger"}} == {}


def is_logger(node: ast.stmt) -> bool:
    """Whether a statement of a module binds a logger to a name."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and last_name(node.value) in ("getLogger", "get_logger")
    )


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def names_in(tree: ast.Module) -> Iterator[str]:
    """Names that a module defines: of functions, classes, variables, parameters, attributes and slots."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                yield name
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=value):
                yield from (each.value for each in ast.walk(value) if isinstance(each, ast.Constant))


def foreign_private_names(tree: ast.Module, own: set[str]) -> set[str]:
    """Private names that a module takes from objects and modules of other packages: those that none of ours defines."""
    found = set()
    imported = {
        alias.asname or alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and is_foreign(node))
        for alias in node.names
    }
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found |= {part for alias in names for part in alias.name.split(".") if is_private(part)}
            case ast.ImportFrom(module=module, names=names) if is_foreign(node):
                parts = [*(module or "").split("."), *(alias.name for alias in names)]
                found |= {part for part in parts if is_private(part)}
            case ast.Attribute(value=value, attr=name) if is_private(name):
                root = value
                while isinstance(root, (ast.Attribute, ast.Call, ast.Subscript)):
                    root = root.func if isinstance(root, ast.Call) else root.value
                of_import = isinstance(root, ast.Name) and root.id in imported
                documented = ast.unparse(node) in DOCUMENTED_IN_SPITE_OF_ITS_NAME
                if (of_import or name not in own) and not documented:
                    found.add(name)
            case ast.Call(func=ast.Name(id="getattr" | "hasattr" | "setattr"), args=[_, ast.Constant(value=name), *_]):
                if is_private(name) and name not in own:
                    found.add(name)
    return found - OF_NAMED_TUPLES


def is_foreign(node: ast.ImportFrom) -> bool:
    return not node.level and (node.module or "").split(".")[0] not in ("pytriton", "__future__")


def test_private_names_of_other_packages_are_found():
    source = """
import grpc._channel, os
from numpy import _core as core
from pytriton.forks import _owners
class Own:
    def method(self, call):
        os._exit(1)
        self._own = call._stub, getattr(call, "_code"), core.x()._own, call._own
"""
    tree = ast.parse(source)
    assert foreign_private_names(tree, {*names_in(tree)}) == {"_channel", "_core", "_stub", "_code", "_own"}


def test_private_members_of_other_packages_are_used_by_one_module_for_each_package():
    own = {name for tree in trees().values() for name in names_in(tree)}
    found = {module: foreign_private_names(tree, own) for module, tree in trees().items()}
    listed = [(module, name) for users in PRIVATE.values() for module, names in users.items() for name in names]
    assert sorted((module, name) for module, names in found.items() for name in names) == sorted(listed)
    assert {package for package, users in PRIVATE.items() if len(users) > 1} == set()


def loaded_after(statement: str) -> set[str]:
    """Names of the modules that a fresh interpreter has loaded after a statement."""
    script = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", PUBLIC)
def test_importing_loads_no_library_of_the_network(module):
    loaded = loaded_after(f"import {module}")
    assert NETWORK & (loaded | {name.split(".")[0] for name in loaded}) == set()


@pytest.mark.parametrize("module", ["pytriton", "pytriton.decorators", "pytriton.model_config"])
def test_importing_what_callables_need_loads_no_client_at_all(module):
    assert not any(name.startswith(("tritonclient", "pytriton.client")) for name in loaded_after(f"import {module}"))


def test_importing_the_package_alone_loads_nothing_else():
    loaded = loaded_after("import pytriton")
    assert "numpy" not in loaded
    assert [name for name in loaded if name.startswith("pytriton.")] == ["pytriton.distribution"]


# Folders of C++, and those whose files each may include.
FOLDERS = {
    "frames": [],
    "proxy": ["frames"],
    "inprocess": ["frames"],
    "preload": ["frames"],
    "edge": ["frames"],
    "kserve": ["edge", "frames", "preload"],
    "grpc": ["edge", "frames", "kserve"],
    "predict": ["edge", "frames", "kserve"],
    "routes": ["edge", "frames", "kserve", "predict"],
}


def included_folders(folder: str) -> set[str]:
    """The other folders whose files those of a folder include."""
    includes = (
        name
        for path in (PACKAGE / "native" / folder).iterdir()
        if path.suffix in (".cpp", ".h")
        for name in re.findall(r'^#include "(.*)"', path.read_text(), re.MULTILINE)
    )
    return {name.removeprefix("../").rpartition("/")[0] for name in includes if "/" in name and "vendor/" not in name}


def test_every_native_source_is_in_a_folder_of_the_list():
    sources = (PACKAGE / "native").rglob("*.cpp")
    folders = {path.parent.relative_to(PACKAGE / "native").as_posix() for path in sources}
    assert {each for each in folders if not each.startswith("vendor")} == {*FOLDERS}


def test_the_native_folders_have_an_order():
    TopologicalSorter(FOLDERS).prepare()


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_native_source_includes_only_lower_folders(folder):
    assert included_folders(folder) == {*FOLDERS[folder]}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_readme_tells_of_every_native_source_of_its_folder(folder):
    text = (PACKAGE / "native" / folder / "README.md").read_text()
    named = {name.partition(".")[0] for name in re.findall(r"`([a-z0-9_]+\.(?:h|cpp|\*))`", text)}
    sources = {path.stem for path in (PACKAGE / "native" / folder).iterdir() if path.suffix in (".cpp", ".h")}
    assert sources == named & sources
