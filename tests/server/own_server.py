"""A server of one test's own, which may come, go and come back on the same ports."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from pytriton.config import TritonConfig
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton
from tests.server.processes import command_line, descendants

TENSORS = [[Tensor(name=name, shape=(-1,), dtype=np.float32)] for name in ("x", "y")]


def double(requests: list[Any]) -> list[Any]:
    """An inference callable: ``y`` is twice ``x``."""
    return [{"y": request["x"] * 2} for request in requests]


def serving(config: TritonConfig, function: Callable[..., Any] = double, **options: Any) -> Triton:
    """A server with the model ``m``, to be entered; options are those of Triton."""
    triton = Triton(config=config, **options)
    triton.bind("m", function, *TENSORS, config=ModelConfig(max_batch_size=4))
    return triton


def address(config: TritonConfig, protocol: str) -> str:
    """The URL of a server's endpoint."""
    return f"{protocol}://{config.http_address}:{config.http_port if protocol == 'http' else config.grpc_port}"


def server_of(config: TritonConfig) -> int:
    """Process id of the server with this configuration."""
    (pid,) = servers_of(config)
    return pid


def servers_of(config: TritonConfig) -> list[int]:
    """Process ids of the servers with this configuration, which are one or none."""
    return [
        pid
        for pid in descendants(os.getpid())
        if command_line(pid)[0].endswith("/tritonserver") and f"--http-port={config.http_port}" in command_line(pid)
    ]
