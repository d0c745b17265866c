"""Each call of tritonclient's specification gets its answer from our server, by each client that has it."""

from __future__ import annotations

import asyncio
import os
import queue
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import numpy as np
import pytest
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from tests.server.conftest import Bind
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.tritonclients import Api
from tests.specifications.compatibility_tables import entries

pytestmark = pytest.mark.either_proxy

CLIENT = "InferenceServerClient."
X = np.array([[1, 2]], np.float32)
KEY, REGION, REGION_BYTES = f"/pytriton-calls-{os.getpid()}", "calls", 16
SPECIFIED = [
    (entry.module.removeprefix("tritonclient."), entry.leaf)
    for entry in entries("tritonclient")
    if entry.name.startswith(CLIENT) and not entry.is_special
]


class Calls:
    """Methods with the names of the client's: each makes the call, and checks the answer."""

    def __init__(self, api: Api, model: str) -> None:
        self.api, self.model = api, model
        self.call = api.call
        self.inputs = api.inputs({"x": X})

    def is_server_live(self) -> None:
        assert self.call("is_server_live") is True

    def is_server_ready(self) -> None:
        assert self.call("is_server_ready") is True

    def is_model_ready(self) -> None:
        assert self.call("is_model_ready", self.model, "1") is True
        assert self.call("is_model_ready", "no-such-model") is False

    def get_server_metadata(self) -> None:
        assert self.call("get_server_metadata")["name"] == "triton"

    def get_model_metadata(self) -> None:
        assert self.call("get_model_metadata", self.model, "1")["name"] == self.model

    def get_model_config(self) -> None:
        assert self.call("get_model_config", self.model, "1")["max_batch_size"] == 4

    def get_model_repository_index(self) -> None:
        assert self.model in [each["name"] for each in self.call("get_model_repository_index")]

    def load_model(self) -> None:
        self.call("load_model", self.model)
        assert self.call("is_model_ready", self.model)

    def unload_model(self) -> None:
        self.call("unload_model", self.model, unload_dependents=True)
        wait_for(lambda: not self.call("is_model_ready", self.model), "the model to be unloaded")
        self.call("load_model", self.model)

    def get_inference_statistics(self) -> None:
        self.infer()
        (found,) = self.call("get_inference_statistics", self.model, "1")["model_stats"]
        assert found["name"] == self.model

    def update_trace_settings(self) -> None:
        assert self.call("update_trace_settings", self.model, {"trace_rate": "7"})["trace_rate"] == "7"

    def get_trace_settings(self) -> None:
        assert self.call("get_trace_settings", self.model)["trace_mode"] == "triton"

    def update_log_settings(self) -> None:
        assert self.call("update_log_settings", {"log_verbose_level": 0})["log_verbose_level"] == 0

    def get_log_settings(self) -> None:
        assert self.call("get_log_settings")["log_error"] is True

    def register_system_shared_memory(self) -> None:
        self.call("register_system_shared_memory", REGION, KEY, REGION_BYTES, 0)
        try:
            (found,) = self.call("get_system_shared_memory_status", REGION)
            assert (found["key"], found["byte_size"]) == (KEY, REGION_BYTES)
        finally:
            self.call("unregister_system_shared_memory", REGION)

    def get_system_shared_memory_status(self) -> None:
        assert self.call("get_system_shared_memory_status") == []

    def unregister_system_shared_memory(self) -> None:
        self.call("unregister_system_shared_memory")

    def register_cuda_shared_memory(self) -> None:
        with pytest.raises(InferenceServerException):  # of a handle that is none, with a GPU or without
            self.call("register_cuda_shared_memory", "calls", b"AAAA", 0, REGION_BYTES)

    def get_cuda_shared_memory_status(self) -> None:
        assert self.call("get_cuda_shared_memory_status") == []

    def unregister_cuda_shared_memory(self) -> None:
        self.call("unregister_cuda_shared_memory")

    def infer(self) -> None:
        assert self.api.infer(self.model, {"x": X}, ["y"], request_id="1")["y"].tolist() == [[2, 4]]

    def async_infer(self) -> None:
        if self.api.is_http:
            result = self.api.client.async_infer(self.model, self.inputs).get_result(True, DEADLINE_S)
        else:
            answers: queue.Queue[Any] = queue.Queue()
            self.api.client.async_infer(self.model, self.inputs, lambda result, error: answers.put((result, error)))
            result, error = answers.get(timeout=DEADLINE_S)
            assert error is None
        assert result.as_numpy("y").tolist() == [[2, 4]]

    def start_stream(self) -> None:
        answers: queue.Queue[Any] = queue.Queue()
        self.api.client.start_stream(lambda result, error: answers.put((result, error)))
        try:
            self.api.client.async_stream_infer(self.model, self.inputs, request_id="7")
            result, error = answers.get(timeout=DEADLINE_S)
        finally:
            self.api.client.stop_stream()
        assert error is None
        assert result.as_numpy("y").tolist() == [[2, 4]]

    async_stream_infer = stop_stream = start_stream

    def stream_infer(self) -> None:
        async def requests() -> AsyncIterator[dict[str, Any]]:
            yield {"model_name": self.model, "inputs": self.inputs}

        async def asked() -> list[Any]:
            return [pair async for pair in self.api.client.stream_infer(requests())]

        assert self.api.loop is not None
        ((result, error),) = self.api.loop.run(asyncio.wait_for(asked(), DEADLINE_S))
        assert error is None
        assert result.as_numpy("y").tolist() == [[2, 4]]

    def generate_request_body(self) -> None:
        body, header_length = self.api.client.generate_request_body(self.inputs)
        headers = {"Inference-Header-Content-Length": str(header_length)} if header_length else {}
        request = Request(f"http://{self.api.address}/v2/models/{self.model}/infer", bytes(body), headers)
        with build_opener(ProxyHandler({})).open(request, timeout=DEADLINE_S) as reply:
            length = reply.headers["Inference-Header-Content-Length"]
            answer = self.api.client.parse_response_body(reply.read(), header_length=length and int(length))
        assert answer.as_numpy("y").tolist() == [[2, 4]]

    parse_response_body = generate_request_body

    def register_plugin(self) -> None:
        seen = []

        class Plugin(self.api.lib.InferenceServerClientPlugin):  # type: ignore[misc, name-defined]
            def __call__(self, request: Any) -> None:
                seen.append(request.headers)

        plugin = Plugin()
        self.api.client.register_plugin(plugin)
        assert self.api.client.plugin() is plugin
        self.is_server_live()
        self.api.client.unregister_plugin()
        assert self.api.client.plugin() is None
        assert len(seen) == 1

    plugin = unregister_plugin = register_plugin

    def close(self) -> None:
        with self.api.other() as other:
            assert other.call("is_server_live")


@pytest.fixture(scope="module")
def model(bind: Bind) -> str:
    return bind(lambda requests: [{"y": 2 * request["x"]} for request in requests], max_batch_size=4)


@pytest.fixture(scope="module", autouse=True)
def region() -> Iterator[None]:
    """The shared memory that is registered."""
    handle = shm.create_shared_memory_region(REGION, KEY, REGION_BYTES)
    yield
    shm.destroy_shared_memory_region(handle)


@pytest.mark.parametrize(("api", "method"), SPECIFIED, indirect=["api"])
def test_a_call_is_answered(api: Api, model: str, method: str):
    getattr(Calls(api, model), method)()
