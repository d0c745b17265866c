"""What reads foreign bytes in Python, each as a function of bytes: it returns, or it has found a fault.

Each lets the errors pass that its callers expect, and nothing else. Some change the process that they run in: it should
run nothing else. ``python -m tests.fuzz.targets <target> <file> ...`` gives files to one of them.
"""

from __future__ import annotations

import atexit
import json
import logging
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import Any

import numpy as np

from pytriton.client import ModelClient, http_transports
from pytriton.client.exceptions import PyTritonClientError
from pytriton.client.http_messages import ResponseReader
from pytriton.decorators import batch
from pytriton.decorators.batching import whole_batch_form
from pytriton.exceptions import PyTritonModelConfigError
from pytriton.model_config.parser import ModelConfigParser
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.wire.frames import NO_REGION, unpack
from pytriton.wire.tensors import FrameError
from pytriton.worker.inference import Inference, Options
from tests.unit import backend
from tests.unit.loopback import fed

CORPUS = Path(__file__).parent / "corpus"
REGION_BYTES = 1 << 16
MOST_REQUESTS = 8
MODEL = TritonModelConfig(
    "m",
    inputs=[TensorSpec("x", (-1,), np.float32), TensorSpec("s", (-1,), np.bytes_, optional=True)],
    outputs=[TensorSpec("y", (-1,), np.float32), TensorSpec("z", (-1,), np.bytes_)],
)
FLOATS = {"data_type": "TYPE_FP32", "dims": [-1]}
TEXTS = {"data_type": "TYPE_STRING", "dims": [-1]}
DESCRIBED = {
    "name": "m",
    "max_batch_size": 4,
    "input": [{"name": "x", **FLOATS}, {"name": "s", **TEXTS}],
    "output": [{"name": "y", **FLOATS}, {"name": "z", **TEXTS}],
}


def received(data: bytes) -> Any:
    """A frame, with memory for its region. Its length is set right, or few would get beyond that."""
    message = bytearray(data)
    message[:4] = len(message).to_bytes(4, "little")
    frame = unpack(memoryview(message))
    if frame.region != NO_REGION:  # as the channel does
        if frame.data_bytes > REGION_BYTES:
            raise FrameError("the region ends beyond the arena")
        frame.data = np.zeros(frame.data_bytes, np.uint8)
    return frame


def batches(data: bytes) -> None:
    """What a proxy sends to a worker, which answers everything that is a frame."""
    with suppress(FrameError):
        frame = received(data)
        if frame.requests > MOST_REQUESTS:
            return
        reply, _ = _worker().answer(frame)
        assert (reply.number, reply.requests) == (frame.number, frame.requests)


def replies(data: bytes) -> None:
    """What a worker sends to the Python proxy; what is no reply ends the connection."""
    codec, status_of = _proxy()
    with suppress(LookupError, ValueError):  # FrameError is one
        frame = received(data)
        if frame.requests <= MOST_REQUESTS:
            codec.decode(frame)
            status_of(frame)


def http(data: bytes) -> None:
    """What a server sends to a client; the first byte says into how many pieces it is cut."""
    _client().reply = data
    with suppress(PyTritonClientError):
        outputs = _client().client.infer_batch(np.ones((2, 3), np.float32), np.array([[b"a"]] * 2, object))
        for array in outputs.values():
            assert isinstance(array, np.ndarray)
            array.copy()


def config(data: bytes) -> None:
    """What a server says of a model, as JSON."""
    with suppress(ValueError, RecursionError):  # whoever reads JSON deals with these
        described = json.loads(data)
        with suppress(PyTritonModelConfigError, KeyError, TypeError):
            ModelConfigParser.from_dict(described)


def config_file(data: bytes) -> None:
    """What a model repository says of a model, as text."""
    path = _folder() / "config.pbtxt"
    path.write_bytes(data)
    with suppress(PyTritonModelConfigError, KeyError, TypeError):
        ModelConfigParser.from_file(config_path=path)


TARGETS: dict[str, Callable[[bytes], None]] = {
    each.__name__: each for each in (batches, replies, http, config, config_file)
}


@cache
def _folder() -> Path:
    folder = Path(mkdtemp(prefix="pytriton-fuzz-"))
    atexit.register(shutil.rmtree, folder)
    return folder


@cache
def _worker() -> Inference:
    @batch
    def double(x: Any = None, s: Any = None) -> dict[str, Any]:
        return {} if x is None else {"y": x[:, :1]}

    logging.getLogger("pytriton.worker").disabled = True
    return Inference(double, MODEL, Options(), lambda: None, whole_batch_form(double))


@cache
def _proxy() -> tuple[Any, Callable[[Any], Any]]:
    """The Python proxy's codec, imported as in the backend's stub."""
    module = ModuleType(backend.NAME)
    for kind in (backend.Tensor, backend.TritonError, backend.TritonModelException, backend.InferenceResponse):
        setattr(module, kind.__name__, kind)
    before = {name: sys.modules.pop(name, None) for name in (backend.NAME, "pytriton.python_proxy.codec")}
    sys.modules[backend.NAME] = module
    try:
        from pytriton.python_proxy.codec import Codec, status_of
    finally:
        for name, known in before.items():
            del sys.modules[name]
            if known is not None:
                sys.modules[name] = known
    return Codec(DESCRIBED, backend.Tensor), status_of


class _Client:
    """A client whose connections answer each request with the same bytes."""

    def __init__(self) -> None:
        self.reply = b""
        known = ModelConfigParser.from_dict(DESCRIBED)
        self.client = ModelClient("http://127.0.0.1:1", "m", model_config=known, ensure_model_is_ready=False)

    def connect(self, *_: Any) -> _Client:
        return self

    def is_usable(self) -> bool:
        return False

    def exchange(self, *_: Any) -> Any:
        reader, pieces, data = ResponseReader(), self.reply[:1], self.reply[1:]
        size = max(1, len(data) // (1 + (pieces[0] if pieces else 0) % 4))
        for begin in range(0, len(data), size):
            if complete := fed(reader, data[begin : begin + size]):
                return complete[0]
        raise ConnectionResetError("the server closed the connection")

    def close(self) -> None:
        pass


@cache
def _client() -> _Client:
    client = _Client()
    http_transports.BlockingConnection = client.connect  # type: ignore[assignment, misc]
    return client


if __name__ == "__main__":
    for file in sys.argv[2:]:
        print(file, flush=True)
        TARGETS[sys.argv[1]](Path(file).read_bytes())
