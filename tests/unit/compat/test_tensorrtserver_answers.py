"""Contexts of the first protocol, and servers that answer in other ways than Triton."""

import json

import grpc
import numpy as np
import pytest

from pytriton.compat.tensorrtserver.api import (
    InferContext,
    InferenceServerException,
    ModelControlContext,
    ModelRepositoryContext,
    ProtocolType,
    ServerHealthContext,
    ServerStatusContext,
)
from tests.unit.loopback import listening

RAW = InferContext.ResultFormat.RAW


def test_a_context_keeps_its_connection(web):
    with ServerHealthContext(web.address, ProtocolType.HTTP) as context:
        for _ in range(3):
            assert context.is_live()
    assert len(web.connections) == 1


def test_headers_travel_with_every_request(web):
    http_headers, headers = ["X-First: a:b ", "triton-access-token:t"], {"X-Second": "c"}
    with ServerHealthContext(web.address, ProtocolType.HTTP, False, http_headers, headers=headers) as context:
        context.is_live()
        context.is_ready()
    for _, got in web.requests:
        assert {"x-first": "a:b", "triton-access-token": "t", "x-second": "c"}.items() <= got.items()
    assert len(web.requests) == 2


def test_only_headers_by_name_travel_over_grpc(inference):
    http_headers, headers = ["X-First:a"], {"X-Second": "c"}
    with ServerHealthContext(inference.address, ProtocolType.GRPC, False, http_headers, headers=headers) as context:
        assert context.is_live()
    (metadata,) = inference.metadata
    assert metadata["x-second"] == "c"
    assert "x-first" not in metadata


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"{}"),
        (200, b"[]"),
        (200, b'"text"'),
        (200, b"no json"),
        (400, b'{"error": "refused"}'),
        (404, b""),
        (503, b"busy"),
    ],
)
def test_whatever_a_server_answers_is_an_error_of_v1(web, status, body):
    web.status, web.body = status, body
    for call in (
        lambda: InferContext(web.address, ProtocolType.HTTP, "m"),
        ServerStatusContext(web.address, ProtocolType.HTTP).get_server_status,
    ):
        with pytest.raises(InferenceServerException):
            call()


def test_a_broken_index_is_an_error_of_v1(web):
    web.body = json.dumps([{"no": "name"}]).encode()
    with pytest.raises(InferenceServerException, match="answer cannot be understood: KeyError 'name'") as raised:
        ModelRepositoryContext(web.address, ProtocolType.HTTP).get_model_repository_index()
    assert raised.value.request_id() > 0


def test_a_server_that_hangs_up_is_an_error_of_v1():
    with listening(lambda connection, stopped: connection.close()) as address:
        for protocol in ProtocolType:
            with pytest.raises(InferenceServerException):
                ModelControlContext(address, protocol).load("m")


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN]
)
def test_whatever_grpc_fails_with_is_an_error_of_v1(inference, code):
    inference.abort = code, "for this reason"
    with pytest.raises(InferenceServerException) as raised:
        InferContext(inference.address, ProtocolType.GRPC, "m")
    if code is not grpc.StatusCode.DEADLINE_EXCEEDED:  # our own words
        assert raised.value.message() == "model 'm': for this reason"


def test_an_answer_to_another_request_is_refused(server):
    address = server.url.removeprefix("http://")
    with InferContext(address, ProtocolType.HTTP, "m") as context:
        with pytest.raises(InferenceServerException, match=r"the response is to request None, not \d+"):
            context.run({"x": [np.ones(2, np.float32)]}, {"x": RAW})
        assert context.get_stat()["completed_request_count"] == 0
