"""Handlers of archives of TorchServe, called as TorchServe calls them, without it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytriton.exceptions import PyTritonValidationError

__all__ = ["Context", "load_handler"]

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


def load_handler(archive: Path, folder: Path, handler: str, context: Context) -> Callable[[Any], Any]:
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
