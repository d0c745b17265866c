"""The server writes its own traces; they need nothing but their setting."""

import json
from contextlib import ExitStack
from dataclasses import replace

import pytest

from pytriton.client import ModelClient
from pytriton.triton import Triton
from tests.server.arrays import filled
from tests.server.own_server import TENSORS

pytestmark = pytest.mark.either_proxy

X, Y = TENSORS


def test_the_trace_file_is_complete_after_the_end_even_if_a_connection_stays_open(free_config, tmp_path):
    file = tmp_path / "trace.json"
    settings = ["level=TIMESTAMPS", "rate=1", "count=-1", "mode=triton", f"triton,file={file}"]
    with ExitStack() as after_the_server:
        with Triton(config=replace(free_config, trace_config=settings)) as triton:
            triton.bind("model", lambda requests: [{"y": r["x"]} for r in requests], X, Y, trace_config=settings)
            client = after_the_server.enter_context(ModelClient(f"localhost:{free_config.http_port}", "model"))
            for number in range(3):
                client.infer_batch(filled(number))
        entries = json.loads(file.read_text())
    assert {entry["request_id"] for entry in entries if entry.get("model_name") == "model"} == {"0", "1", "2"}
    for end in ("REQUEST_END", "HTTP_SEND_END"):
        assert sum(stamp["name"] == end for entry in entries for stamp in entry.get("timestamps", ())) == 3
