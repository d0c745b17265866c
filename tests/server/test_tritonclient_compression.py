"""tritonclient compresses requests, and asks for compressed responses."""

from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton
from tests.server.conftest import LOCALHOST
from tests.server.relay import relay
from tests.server.tritonclients import Answer, Api, only_grpc, only_http

pytestmark = pytest.mark.either_proxy

ALGORITHMS = [None, "gzip", "deflate"]
EASY = np.zeros((1, 50_000), np.float32)
MUCH = EASY.nbytes // 2  # bytes on the wire: more than this is not compressed


def echo(requests):
    return [{"y": request["x"]} for request in requests]


@pytest.fixture(scope="module")
def model(bind):
    return bind(echo)


@pytest.fixture
def relayed(api):
    """The client behind a relay, and what passes through it."""
    with relay(int(api.address.rpartition(":")[2])) as passed, Api(api.kind, f"{LOCALHOST}:{passed.port}") as client:
        yield client, passed


def infer(client, model, binary=True, **options):
    """Send what is easy to compress, and check that it comes back."""
    flag = {"binary_data": binary} if client.is_http else {}
    wanted = [client.lib.InferRequestedOutput("y", **flag)]
    answer = Answer(client.call("infer", model, client.inputs({"x": EASY}, **flag), outputs=wanted, **options))
    assert np.array_equal(answer["y"], EASY)


@only_http
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
@pytest.mark.parametrize("response", ALGORITHMS)
@pytest.mark.parametrize("request_", ALGORITHMS)
def test_requests_and_responses_are_compressed_as_asked(model, relayed, request_, response, binary):
    client, passed = relayed
    infer(
        client,
        model,
        binary,
        request_compression_algorithm=request_,
        response_compression_algorithm=response,
        headers=None if response else {"Accept-Encoding": "identity"},  # aiohttp asks for compression by itself
    )
    assert (len(passed.to_server) < MUCH) == (request_ is not None)
    assert (len(passed.to_client) < MUCH) == (response is not None)
    if response:
        assert f"content-encoding: {response}".encode() in passed.to_client.lower()


@only_http
@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_a_body_that_is_not_what_its_header_says_is_refused(api, model, algorithm):
    with api.refuses("INVALID_ARGUMENT"):
        api.infer(model, {"x": EASY}, headers={"Content-Encoding": algorithm})
    infer(api, model)


@only_grpc
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_grpc_requests_are_compressed_as_asked_and_responses_are_not(model, relayed, algorithm):
    client, passed = relayed
    infer(client, model, compression_algorithm=algorithm)
    assert (len(passed.to_server) < MUCH) == (algorithm is not None)
    assert len(passed.to_client) > MUCH


@pytest.mark.parametrize("level", ["none", "low", "medium", "high"])
def test_the_server_compresses_grpc_responses_at_its_level(free_config, level):
    config = replace(free_config, grpc_infer_response_compression_level=level)
    tensors = [[Tensor((-1,), np.float32, name)] for name in ("x", "y")]
    with Triton(config=config) as triton, ExitStack() as stack:
        triton.bind("echo", echo, *tensors, config=ModelConfig())
        for kind in ("grpc", "grpc.aio"):
            passed = stack.enter_context(relay(config.grpc_port))
            infer(stack.enter_context(Api(kind, f"{LOCALHOST}:{passed.port}")), "echo")
            assert len(passed.to_server) > MUCH
            assert (len(passed.to_client) < MUCH) == (level != "none")
