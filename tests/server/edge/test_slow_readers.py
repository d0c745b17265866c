"""What the edge keeps of streams whose clients do not read."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton
from tests.server.conftest import local_config
from tests.server.edge.wire import Request, connected
from tests.server.own_server import server_of
from tests.server.processes import wait_for

pytestmark = pytest.mark.either_proxy

TEXT = b"x" * 2**16
RESPONSES = 300
STREAMS = 12


def own_bytes(pid: int) -> int:
    """Memory of a process that it shares with no other."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))


def test_memory_of_streams_that_were_read_late_is_used_for_the_next_ones():
    written = []

    def flood(requests: Any) -> Any:
        for _ in range(RESPONSES):
            yield [{"text": np.array([TEXT])}]
        written.append(requests)

    ask = Request("POST", "/v2/models/flood/generate_stream", json.dumps({"x": 1.0}).encode())
    with local_config(http_frontend="native") as config, Triton(config=config) as triton, ExitStack() as clients:
        x, text = Tensor(name="x", shape=(1,), dtype=np.float32), Tensor(name="text", shape=(1,), dtype=np.bytes_)
        triton.bind("flood", flood, [x], [text], config=ModelConfig(batching=False, decoupled=True))
        triton.run()
        pid, kept = server_of(config), []
        for number in range(STREAMS):
            client = clients.enter_context(connected(config))
            client.send(ask.encoded())
            wait_for(lambda number=number: len(written) > number, "the stream to be written")
            kept.append(own_bytes(pid))
            assert client.answer("POST").data.count(b"data:") == RESPONSES
        assert kept[-1] - kept[0] < STREAMS / 2 * RESPONSES * len(TEXT)
