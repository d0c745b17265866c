"""A program that serves and calls over HTTP needs no gRPC, no gevent and no orjson, whatever its interpreter has."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S

pytestmark = pytest.mark.either_proxy

PROGRAM = """
import sys

WITHOUT = {"gevent", "geventhttpclient", "google", "grpc", "orjson", "uvloop", "zmq"}


class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in WITHOUT:
            raise ModuleNotFoundError(f"{name} is not there", name=name)


sys.meta_path.insert(0, Refused())

import numpy as np
from pytriton import ModelClient, Tensor, Triton, TritonConfig, batch

http, metrics = map(int, sys.argv[1:])
config = TritonConfig(http_port=http, metrics_port=metrics, http_address="127.0.0.1", allow_grpc=False)
with Triton(config=config) as triton:

    @triton.model
    def shout(text: str) -> str:
        return text.upper()

    @batch
    def double(x):
        return {"y": x * 2}

    tensors = [[Tensor(name=name, shape=(-1,), dtype=np.float32)] for name in "xy"]
    triton.bind("double", double, *tensors)
    url = f"http://127.0.0.1:{http}"
    with ModelClient(url, "shout") as client, ModelClient(url, "double") as arrays:
        print(client.call("hi"), arrays.infer_sample(np.ones(2, np.float32))["y"].tolist())
print(*sorted(WITHOUT & {name.partition(".")[0] for name in sys.modules}))
"""


def test_http_is_served_and_called_without_libraries_of_other_protocols():
    with reserved_ports(2) as ports:
        command = [sys.executable, "-c", PROGRAM, *map(str, ports)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["HI [2.0, 2.0]", ""]
