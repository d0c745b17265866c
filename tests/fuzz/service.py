"""The service that the composition fuzzer attacks: a server, the app and a model of each kind, until stdin ends.

It prints a line of JSON: its ports, and the ids of its processes by name.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pytriton.decorators import batch
from pytriton.llm import ChatModel, ChatRequest
from pytriton.model_config import ModelConfig, Tensor
from pytriton.rest import RestConfig
from pytriton.server.edge import uses_edge
from pytriton.triton import Triton
from tests.server.conftest import LOCALHOST, local_config
from tests.server.ports import reserved_ports
from tests.server.processes import command_line, descendants
from tests.unit.generators import count_up


@batch
def double(x: Any) -> list[Any]:
    return [x * 2]


@batch
def repeat(x: Any) -> list[Any]:
    return [x]


def shout(text: str, times: int = 1) -> str:
    return text.upper() * min(times, 3)


def parrot(request: ChatRequest) -> Iterator[str]:
    yield from (str(word) for word in str(request.messages[-1]["content"]).split(" ")[:100])


def processes() -> dict[str, int]:
    """The processes below this one, which are all that serve; names are those of their programs."""
    found = {}
    for pid in descendants(os.getpid()):
        name = Path(command_line(pid)[0]).name
        found[f"{name} {pid}"] = pid
    return found


def main() -> None:
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the server writes there
    floats = [Tensor((-1,), np.float32, name) for name in ("x", "y")]
    texts = [Tensor((-1,), np.bytes_, name) for name in ("x", "y")]
    with reserved_ports(3) as (port, *cloud_ports), local_config() as config:
        clouds = {}
        if uses_edge(config):
            os.environ.update(AIP_PREDICT_ROUTE="/predict", AIP_HEALTH_ROUTE="/health")
            clouds = dict(zip(("vertex_ai_port", "sagemaker_port"), cloud_ports, strict=True))
            allowed = {"allow_vertex_ai": True, "allow_sagemaker": True, "vertex_ai_default_model": "numbers"}
            config = replace(config, **clouds, **allowed)
        rest = RestConfig(port=port, address=LOCALHOST, mcp=True)
        with Triton(config=config, rest=rest) as triton:
            triton.bind("numbers", double, floats[:1], floats[1:], config=ModelConfig(max_batch_size=8))
            triton.bind("words", repeat, texts[:1], texts[1:], config=ModelConfig(max_batch_size=8))
            decoupled = ModelConfig(decoupled=True, max_batch_size=8, batcher=None)
            triton.bind("counter", count_up, floats[:1], floats[1:], config=decoupled)
            triton.bind("shout", shout)
            triton.bind(ChatModel(parrot))
            triton.run()
            ports = {
                "http": config.http_port,
                "rest": port,
                "metrics": config.metrics_port,
                "grpc": config.grpc_port,
                **{name.removesuffix("_port"): each for name, each in clouds.items()},
            }
            app_ports = ["http", "rest"] if uses_edge(config) else ["rest"]
            print(json.dumps({"ports": ports, "app": app_ports, "processes": processes()}), file=told, flush=True)
            for line in sys.stdin:
                if line.strip() == "processes":
                    print(json.dumps(processes()), file=told, flush=True)


if __name__ == "__main__":
    main()
