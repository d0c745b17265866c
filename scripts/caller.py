"""What the programs that call through clients have in common.

They use nothing of ``pytriton`` but the public clients, so that nvidia-pytriton's interpreter runs them too.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import ArrayLike
from tensors import Floats
from wire import HOST, LoadError, Target

__all__ = ["INIT_TIMEOUT_S", "add_times", "check_double", "command_line", "target_of", "url"]

INIT_TIMEOUT_S = 10.0  # the server has answered before; a client that waits longer will wait for ever


def command_line(description: str) -> argparse.ArgumentParser:
    """The arguments that each program takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("protocol", choices=["http", "grpc"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    return parser


def add_times(parser: argparse.ArgumentParser) -> None:
    """Those of a program that measures for some time."""
    parser.add_argument("--seconds", type=float, default=5, help="of the measurement")
    parser.add_argument("--warmup", type=float, default=1, help="seconds before the measurement")


def target_of(chosen: argparse.Namespace) -> Target:
    """Where the calls go."""
    return Target(chosen.port, chosen.model)


def url(protocol: str, target: Target) -> str:
    """The server, as clients of pytriton take it."""
    return f"{protocol}://{HOST}:{target.port}"


def check_double(output: ArrayLike, values: Floats) -> None:
    """Raise LoadError unless the output is what the model makes of the values, shape included."""
    if not np.array_equal(output, 2 * values):
        raise LoadError(f"wrong output {output}, expected {2 * values}")
