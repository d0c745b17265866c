"""A model that adds and subtracts, served and called over both protocols: the shortest test of an installation.

``python -m pytriton.cli.add_sub`` runs it as a script.
"""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pytriton.client import ModelClient
from pytriton.constants import TRITON_LOCAL_IP
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

__all__ = ["check_add_sub"]

MODEL = "add_sub"
ROWS, COLUMNS = 4, 3
TIMEOUT_S = 60.0


class WrongResultError(Exception):
    """The model answered, but not with the sum and the difference."""


@batch
def add_sub(a: NDArray[np.float32], b: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    """Two arrays of shape ``(rows, any size)``: their sum and their difference."""
    return {"sum": a + b, "difference": a - b}


def check_add_sub(log_file: Path | None = None) -> Iterator[str]:
    """Serve the model on free ports of this machine alone, and infer over HTTP and over gRPC.

    Args:
        log_file: For the server's log; None copies it to standard output.

    Yields:
        The name of each protocol that works.

    Raises:
        Exception: Whatever goes wrong.
    """
    config = _local_config(log_file)
    with Triton(config=config) as triton:
        triton.bind(
            MODEL,
            add_sub,
            inputs=[Tensor(name=name, shape=(-1,), dtype=np.float32) for name in ("a", "b")],
            outputs=[Tensor(name=name, shape=(-1,), dtype=np.float32) for name in ("sum", "difference")],
            config=ModelConfig(max_batch_size=ROWS),
        )
        for name, scheme, port in (("HTTP", "http", config.http_port), ("gRPC", "grpc", config.grpc_port)):
            _infer(f"{scheme}://{TRITON_LOCAL_IP}:{port}")
            yield name


def _infer(url: str) -> None:
    a = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
    b = np.full_like(a, 2)
    with ModelClient(url, MODEL, init_timeout_s=TIMEOUT_S, inference_timeout_s=TIMEOUT_S) as client:
        outputs = client.infer_batch(a, b)
    for name, expected in {"sum": a + b, "difference": a - b}.items():
        if not np.array_equal(outputs[name], expected):
            raise WrongResultError(f"{url}: {name} is {outputs[name].tolist()}, expected {expected.tolist()}")


def _local_config(log_file: Path | None) -> TritonConfig:
    http, grpc, metrics = _free_ports(3)
    return TritonConfig(
        http_address=TRITON_LOCAL_IP,
        http_port=http,
        grpc_address=TRITON_LOCAL_IP,
        grpc_port=grpc,
        metrics_address=TRITON_LOCAL_IP,
        metrics_port=metrics,
        log_file=log_file,
    )


def _free_ports(count: int) -> list[int]:
    with ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind((TRITON_LOCAL_IP, 0))
        return [probe.getsockname()[1] for probe in sockets]


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    for protocol in check_add_sub():
        print(f"{protocol} works", flush=True)
