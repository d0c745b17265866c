"""Models that both endpoints serve."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pytriton.config import TritonConfig
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonSecurityConfig
from tests.server.conftest import local_config
from tests.unit.generators import count_up

DTYPES = {
    "BOOL": np.bool_,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BYTES": bytes,
}


def same(requests: list[Any]) -> list[Any]:
    return [dict(request) for request in requests]


@batch
def pair(a: Any, b: Any) -> dict[str, Any]:
    return {"sum": a + b, "difference": a - b}


def told(requests: list[Any]) -> list[Any]:
    """The parameters of each request, as text."""
    return [{"y": np.array([[repr(sorted((request.parameters or {}).items())).encode()]])} for request in requests]


def failing(requests: list[Any]) -> list[Any]:
    raise ValueError('it "fails"\n\u00e9\u20ac')


def words(requests: list[Any]) -> list[Any]:
    return [{"word": request["text"], "index": request["count"]} for request in requests]


def stream(requests: list[Any]) -> Iterator[list[Any]]:
    for index in range(int(requests[0]["count"].item())):
        yield [{"word": requests[0]["text"], "index": np.array([[index]], np.int32)}]


def bind_models(triton: Triton, folder: Path) -> None:
    """Bind them all; ``folder`` is for files."""
    for name, dtype in DTYPES.items():
        tensor = [Tensor((-1,), dtype, "x")]
        triton.bind(f"echo_{name}", same, tensor, tensor, config=ModelConfig(max_batch_size=8))
    number = [Tensor((-1,), np.float32, "x")]
    triton.bind(
        "flat",
        same,
        [Tensor((-1, 2), np.float32, "x")],
        [Tensor((-1, 2), np.float32, "x")],
        config=ModelConfig(batching=False),
    )
    triton.bind("versions", same, number, number, 1, ModelConfig(max_batch_size=8))
    triton.bind("versions", same, number, number, 3, ModelConfig(max_batch_size=8))
    both = [Tensor((2,), np.int32, name) for name in ("a", "b")]
    results = [Tensor((2,), np.int32, name) for name in ("sum", "difference")]
    triton.bind("pair", pair, both, results, config=ModelConfig(max_batch_size=8))
    (folder / "labels.txt").write_text("cat\ndog\nfish: a whale\n")
    labelled = [Tensor((3,), np.float32, "x", labels=folder / "labels.txt")]
    triton.bind("labels", same, [Tensor((3,), np.float32, "x")], labelled, config=ModelConfig(max_batch_size=8))
    triton.bind("told", told, number, [Tensor((1,), bytes, "y")], config=ModelConfig(max_batch_size=8))
    triton.bind("failing", failing, number, number, config=ModelConfig(max_batch_size=8))
    spoken = [Tensor((1,), bytes, "text"), Tensor((1,), np.int32, "count")]
    heard = [Tensor((1,), bytes, "word"), Tensor((1,), np.int32, "index")]
    triton.bind("words", words, spoken, heard, config=ModelConfig(max_batch_size=8))
    triton.bind("stream", stream, spoken, heard, config=ModelConfig(max_batch_size=1, decoupled=True, batcher=None))
    triton.bind(
        "counter", count_up, number, [Tensor((-1,), np.float32, "y")],
        config=ModelConfig(max_batch_size=8, decoupled=True, batcher=None),
    )  # fmt: skip


@contextmanager
def server_of_models(folder: Path, **options: Any) -> Iterator[TritonConfig]:
    """The configuration of a server with the models, of which no endpoint needs a token."""
    with (
        local_config(**options) as config,
        Triton(config=config, security_config=TritonSecurityConfig(restricted_endpoints=[])) as triton,
    ):
        bind_models(triton, folder)
        triton.run()
        yield config
