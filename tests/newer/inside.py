"""What runs in a newer CPython, without a library in C: prints the results as JSON.

Packages with C extensions are stood in for by mocks. So this checks that the sources compile and import without a
warning, and what is pure Python: how annotations are read.
"""

import ctypes
import importlib
import importlib.abc
import importlib.machinery
import json
import sys
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

REPOSITORY, SITE = Path("/repository"), "/site"
IN_C = {
    "catboost", "google", "grpc", "httptools", "huggingface_hub", "joblib", "lightgbm", "llama_cpp", "mlflow", "numpy",
    "onnx", "onnxruntime", "orjson", "pandas", "PIL", "prometheus_client", "pydantic", "pydantic_core", "ray",
    "safetensors", "scipy", "simdjson", "sklearn", "skops", "torch", "transformers", "triton_python_backend_utils",
    "tritonclient", "uvicorn", "uvloop", "watchfiles", "xgboost", "zmq",
}  # fmt: skip
SCALARS = ["generic", "number", "integer", "floating", "bool_", "bytes_", "str_", "object_", "void"]
SCALARS += [f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)] + ["ndarray"]
NOT_THERE = {"resource"}  # modules of the standard library that WebAssembly does not have
OTHERS = {"pytriton.tritonserver"}  # the server's own


class StandIn(MagicMock):
    """A module whose attributes are mocks."""

    __all__ = ()
    __version__ = "2.0.0"

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (type("Base", (), {}),)  # a class of its own, as several may be bases of one class


class Scalar(int):
    """The base of NumPy's types."""

    def __class_getitem__(cls, item: Any) -> Any:
        return cls


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] in IN_C | NOT_THERE:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> Any:
        module = StandIn(name=spec.name)
        module.__path__ = []
        if spec.name == "numpy":
            module.lib.NumpyVersion = str
            for name in SCALARS:
                setattr(module, name, type(name, (module.generic,) if name != "generic" else (Scalar,), {}))
        return module

    def exec_module(self, module: Any) -> None:
        pass


def names() -> list[str]:
    paths = [path.relative_to(REPOSITORY) for path in (REPOSITORY / "pytriton").rglob("*.py")]
    found = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths}
    return sorted(name for name in found if not name.startswith((*OTHERS,)) and not name.endswith("__main__"))


def told(call: Any, *args: Any) -> str:
    try:
        return str(call(*args))
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


def compiled() -> dict[str, str]:
    """The sources that do not compile without a warning."""
    folders = ("pytriton", "examples", "scripts", "tests")
    paths = [path for folder in folders for path in (REPOSITORY / folder).rglob("*.py") if "programs" not in path.parts]
    found = {
        str(path): told(compile, path.read_text(), str(path), "exec")
        for path in [*paths, REPOSITORY / "hatch_build.py"]
    }
    return {path: text for path, text in found.items() if not text.startswith("<code object")}


def imported() -> dict[str, str]:
    """The modules that cannot be imported without a warning."""
    found = {name: told(importlib.import_module, name) for name in names()}
    return {name: text for name, text in found.items() if not text.startswith("<module")}


FUNCTIONS = """
import functools
import dataclasses
import typing

def undefined(x: Missing, y: int) -> int: ...
def listed(x: list[Missing]) -> int: ...
def resulting(x: int) -> Missing: ...
def later(x: Later) -> int: ...
def optional(x: int | None = None, *, y: "Later" = 1) -> "int": ...

@functools.wraps(undefined)
def wrapped(*args, **kwargs): ...

class Later: ...

@dataclasses.dataclass
class Record:
    x: Missing

def enclosing():
    class Local: ...
    def function(x: Local) -> Local: ...
    return function
"""


def annotations() -> dict[str, str]:
    """What is told of functions whose annotations are evaluated late."""
    from pytriton.decorators.signatures import check_callable
    from pytriton.introspection import annotations_of, signature_of
    from pytriton.pool.resources import takes_device
    from pytriton.signature.functions import describe
    from pytriton.signature.records import fields_of

    space: dict[str, Any] = {"__name__": "functions"}
    exec(FUNCTIONS, space)

    def hints(function: Any) -> dict[str, Any]:
        return {name: getattr(hint, "__name__", str(hint)) for name, hint in describe(function).hints.items()}

    found = {name: told(hints, space[name]) for name in ("undefined", "listed", "resulting", "later", "optional")}
    found["enclosing"] = told(hints, space["enclosing"]())
    found["record"] = told(fields_of, space["Record"])
    found["signature"] = told(lambda: [*signature_of(space["undefined"]).parameters])
    found["wrapped"] = told(lambda: [*signature_of(space["wrapped"]).parameters])
    found["builtin"] = told(annotations_of, len)
    found["object"] = told(annotations_of, object())
    found["device"] = told(takes_device, space["undefined"])
    config = MagicMock(model_name="m", inputs=[], batching=True)
    found["bound"] = told(check_callable, space["undefined"], config)
    found["bound list"] = told(check_callable, space["listed"], config)
    return found


def main() -> None:
    sys.dont_write_bytecode = True
    sys.meta_path.insert(0, Finder())
    ctypes.CDLL = MagicMock()  # type: ignore[misc]  # there is no C library either
    sys.path[:0] = [str(REPOSITORY), SITE]
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", module=r"(?!pytriton|tests)")
    results = {"version": sys.version_info[:2], "compiled": compiled(), "imported": imported(), "count": len(names())}
    try:
        results["annotations"] = annotations()
    finally:
        print(json.dumps(results))


main()
