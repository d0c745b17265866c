"""Clients of decoupled models, and servers that mix streams up."""

import asyncio
from concurrent import futures

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from pytriton.client import AsyncioDecoupledModelClient, DecoupledModelClient
from pytriton.client.exceptions import PyTritonClientConnectionError
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig

MODEL = TritonModelConfig(
    "m",
    decoupled=True,
    inputs=[TensorSpec("x", (1,), np.float32)],
    outputs=[TensorSpec("y", (1,), np.float32)],
)
X = np.ones((1, 1), np.float32)


class Mixed(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers each request of a stream twice; the last response of the first request is to another one's.

    Attributes:
        asked: Ids of the requests.
    """

    def __init__(self):
        self.asked = []

    def ModelStreamInfer(self, requests, context):
        for request in requests:
            self.asked.append(request.id)
            yield answer(request.id, 1, final=False)
            yield answer("another's" if len(self.asked) == 1 else request.id, 2, final=True)


def answer(request_id, value, final):
    message = service_pb2.ModelStreamInferResponse()
    message.infer_response.id = request_id
    message.infer_response.outputs.add(name="y", datatype="FP32", shape=[1, 1])
    message.infer_response.raw_output_contents.append(np.float32(value).tobytes())
    message.infer_response.parameters["triton_final_response"].bool_param = final
    return message


@pytest.fixture
def mixed():
    return Mixed()


@pytest.fixture
def url(mixed):
    server = grpc.server(futures.ThreadPoolExecutor(4))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(mixed, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"grpc://127.0.0.1:{port}"
    server.stop(None).wait()


def collect(url):
    """What two requests of one client come to: the values, and the error that ended them."""
    found = []
    with DecoupledModelClient(url, "m", ensure_model_is_ready=False, model_config=MODEL) as client:
        for _ in range(2):
            try:
                for response in client.infer_batch(X):
                    found.append(response["y"][0, 0])
            except PyTritonClientConnectionError as error:
                found.append(str(error))
    return found


async def collect_async(url):
    found = []
    async with AsyncioDecoupledModelClient(url, "m", ensure_model_is_ready=False, model_config=MODEL) as client:
        for _ in range(2):
            try:
                async for response in client.infer_batch(X):
                    found.append(response["y"][0, 0])
            except PyTritonClientConnectionError as error:
                found.append(str(error))
    return found


@pytest.mark.parametrize("collected", [collect, lambda url: asyncio.run(collect_async(url))], ids=["sync", "asyncio"])
def test_a_response_to_anothers_request_is_an_error_and_the_next_request_has_a_new_stream(mixed, url, collected):
    first, error, *second = collected(url)
    assert first == 1
    assert f"a response to request \"another's\" on the stream of request '{mixed.asked[0]}'" in error
    assert second == [1, 2]


def test_requests_of_streams_have_ids_that_no_other_client_gives(mixed, url):
    collect(url)
    collect(url)
    assert len({*mixed.asked}) == len(mixed.asked) == 4
