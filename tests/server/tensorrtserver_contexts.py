"""Contexts of the first protocol, for the server that the tests of a module share."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from pytriton.compat.tensorrtserver.api import (
    InferContext,
    InferenceServerException,
    ProtocolType,
    SharedMemoryControlContext,
)
from pytriton.config import TritonConfig

RAW, CLASS = InferContext.ResultFormat.RAW, InferContext.ResultFormat.CLASS
KINDS = ["http", "grpc", "stream"]


class Contexts:
    """Makes contexts of one kind, and closes them.

    Args:
        config: Of the server.
        kind: Of KINDS; ``stream`` is gRPC's, and for inference alone.

    Attributes:
        server: The first two arguments of each context.
    """

    def __init__(self, config: TritonConfig, kind: str) -> None:
        self.kind = kind
        self.is_http = kind == "http"
        port = config.http_port if self.is_http else config.grpc_port
        self.server = f"127.0.0.1:{port}", ProtocolType.HTTP if self.is_http else ProtocolType.GRPC
        self._open = ExitStack()

    def __enter__(self) -> Contexts:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def forget(self) -> None:
        """Do not close what was made so far."""
        self._open.pop_all()

    def infer(self, model: str, *args: Any, **options: Any) -> InferContext:
        """An InferContext; arguments are those after the model's name."""
        streaming = {"streaming": True} if self.kind == "stream" else {}
        return self.make(InferContext, model, *args, **streaming, **options)

    def make(self, context: type[Any], *args: Any, **options: Any) -> Any:
        """A context of any class; arguments are those after the protocol."""
        return self._open.enter_context(context(*self.server, *args, **options))


def forgotten(control: SharedMemoryControlContext, handle: Any) -> bool:
    """Unregister a region, and tell whether that worked.

    For a moment after its answer the server still holds the request, and refuses to unregister what that used.
    """
    try:
        control.unregister(handle)
    except InferenceServerException:
        return False
    return True
