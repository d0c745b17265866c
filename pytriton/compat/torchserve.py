"""Archives of TorchServe and their handlers, called as TorchServe calls them, without it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pytriton.exceptions import PyTritonValidationError
from pytriton.files.formats import MANIFEST
from pytriton.files.zips import extract

__all__ = ["Archive", "Context", "load_archive"]


OF_TORCHSERVE = ("image_classifier", "image_segmenter", "object_detector", "text_classifier")
Handle = Callable[[Any, Any], Any]


@dataclass
class Context:
    """What a handler gets beside the requests, as far as there is such."""

    model_name: str
    manifest: Mapping[str, Any]
    system_properties: Mapping[str, Any]
    model_yaml_config: Mapping[str, Any] = field(default_factory=dict)
    metrics: Any = None
    explain: bool = False

    def get_request_header(self, index: int, name: str) -> None:
        """None: headers are not passed on."""

    def set_response_content_type(self, index: int, value: str) -> None:
        """Nothing: answers are JSON."""


class Archive(NamedTuple):
    """The name of an archive's model, that of its handler, and what answers the requests of a batch."""

    name: str
    handler: str
    answer: Callable[[Any], Any]


def load_archive(path: Path) -> Archive:
    """Load the handler of an archive into this process, and let it load its model.

    The files of the archive are in a folder of their own, until nothing has a reference to ``answer`` any more.

    Raises:
        PyTritonValidationError: The archive is damaged, or its handler is missing, fails, or comes with TorchServe.
    """
    folder = Path(tempfile.mkdtemp(prefix="pytriton-mar-"))
    try:
        extract(path, folder)
        manifest = json.loads((folder / MANIFEST).read_bytes())
        name, handler = manifest["model"]["modelName"], manifest["model"]["handler"]
        sys.path.insert(0, str(folder))  # for the other modules of the archive
        properties = {"model_dir": str(folder), "gpu_id": None, "batch_size": 1, "server_name": "pytriton"}
        answer = _load_handler(path, folder, handler, Context(name, manifest, properties))
    except BaseException as error:
        _remove(folder, os.getpid())
        if isinstance(error, ModuleNotFoundError):
            hint = "it comes with TorchServe: pip install torchserve" if error.name == "ts" else "install it"
            raise PyTritonValidationError(f"{path} needs the module {error.name!r}; {hint}") from error
        if isinstance(error, PyTritonValidationError) or not isinstance(error, Exception):
            raise
        raise PyTritonValidationError(f"{path} cannot be loaded ({type(error).__name__}: {error!s:.200})") from error
    weakref.finalize(answer, _remove, folder, os.getpid())
    return Archive(name, handler, answer)


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # and not a worker that was forked from it
        sys.path[:] = [each for each in sys.path if each != str(folder)]
        shutil.rmtree(folder, ignore_errors=True)


def _load_handler(archive: Path, folder: Path, handler: str, context: Context) -> Callable[[Any], Any]:
    """What answers the requests of a batch, after it has loaded the model.

    Args:
        archive: Its path, for messages.
        folder: With the files of the archive; it is in ``sys.path``.
        handler: ``file.py``, or ``file.py:function``.

    Raises:
        PyTritonValidationError: There is no such handler.
        Exception: What the handler raises.
    """
    file, _, function = handler.partition(":")
    source = (folder / file).with_suffix(".py")
    if file in OF_TORCHSERVE or not source.is_file():
        reason = "comes with TorchServe" if file in OF_TORCHSERVE else "is missing"
        raise PyTritonValidationError(
            f"{archive} has the handler {handler!r}, which {reason}; archive the model with a handler of its own"
        )
    before = {*sys.modules}
    spec = importlib.util.spec_from_file_location(f"{source.stem}_of_{folder.name}".replace("-", "_"), source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    owner: Any = module
    names = (function or "handle", "inference")
    if not any(hasattr(module, each) for each in names):
        classes = [each for each in vars(module).values() if getattr(each, "__module__", None) == spec.name]
        found = [each for each in classes if isinstance(each, type) and any(hasattr(each, name) for name in names)]
        if not found:
            raise PyTritonValidationError(
                f"{archive}: {source.name} has neither a function handle nor a class with one"
            )
        owner = found[0]()
    handle: Handle | None = getattr(owner, names[0], None)
    if hasattr(owner, "initialize"):
        owner.initialize(context)
    elif handle is not None and owner is module:
        handle(None, context)  # as TorchServe tells a function to load the model
    for name in {*sys.modules} - before - {spec.name}:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)):
            del sys.modules[name]  # another archive may have modules of the same names
    if handle is not None:
        return lambda requests: handle(requests, context)
    steps = [getattr(owner, each) for each in ("preprocess", "inference", "postprocess") if hasattr(owner, each)]

    def each_step(value: Any) -> Any:
        for step in steps:
            value = step(value)
        return value

    return each_step
