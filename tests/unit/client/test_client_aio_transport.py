"""Transports for asyncio on scripted servers: timeouts, errors, and the forms of answers."""

import asyncio
import contextlib
import json
import socket

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from pytriton.client.auth import TritonUrl
from pytriton.client.conversations import Call
from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientInferenceServerError,
    PyTritonClientTimeoutError,
    PyTritonClientValueError,
)
from pytriton.client.tensors import InputTensor
from pytriton.client.tritonclients import adopt_async_client, bare_client, load_async_lib, load_lib
from pytriton.client.warnings import NotSupportedTimeoutWarning
from tests.unit.loopback import ModelServer, listening, serving
from tests.unit.loops import in_loop
from tests.unit.transports import CONFIG, INDEX, LIVE, SCHEMES, async_transport_to


def bare(address, timeout_s):
    url = TritonUrl.from_url(address)
    return bare_client(load_async_lib(url.scheme), url, timeout_s)


@SCHEMES
@in_loop
async def test_server_that_accepts_but_never_answers_is_a_timeout(scheme):
    with listening() as address:
        async with async_transport_to(address, scheme) as transport:
            for _ in range(2):
                with pytest.raises(
                    PyTritonClientTimeoutError, match=rf"{address} did not answer is_server_live within 0.05"
                ):
                    await transport.call(Call("is_server_live", 0.05))


@pytest.mark.parametrize("beginning", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 500 No\r\nContent-Length: 999999\r\n\r\n"])
@in_loop
async def test_server_that_never_finishes_its_answer_is_a_timeout(beginning):
    def trickle(connection, stopped):
        connection.sendall(beginning)
        with contextlib.suppress(OSError):
            while not stopped.wait(0.01):
                connection.sendall(b"x")

    with listening(trickle) as address:
        async with async_transport_to(address) as transport:
            with pytest.raises(PyTritonClientTimeoutError, match=r"get_model_config within 0\.2 s"):
                await transport.call(Call("get_model_config", 0.2, CONFIG.arguments))


@SCHEMES
@in_loop
async def test_refused_connection_is_a_connection_error(scheme, closed_port):
    async with async_transport_to(closed_port, scheme) as transport:
        with pytest.raises(PyTritonClientConnectionError, match=f"{closed_port} failed at is_server_live"):
            await transport.call(LIVE)


@SCHEMES
@in_loop
async def test_unknown_host_is_a_connection_error(scheme):
    async with async_transport_to("host.invalid:1", scheme) as transport:
        with pytest.raises(PyTritonClientConnectionError):
            await transport.call(LIVE)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n", b"SSH-2.0-OpenSSH\r\n"])
@in_loop
async def test_connection_that_ends_early_or_speaks_otherwise_is_a_connection_error(answer):
    def hang_up(connection, stopped):
        connection.recv(65536)
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_RDWR)

    with listening(hang_up) as address:
        async with async_transport_to(address) as transport:
            with pytest.raises(PyTritonClientConnectionError):
                await transport.call(LIVE)


@in_loop
async def test_http_error_of_the_server_carries_its_text(web):
    web.status, web.body = 400, b'{"error": "no such thing"}'
    async with async_transport_to(web.address) as transport:
        with pytest.raises(PyTritonClientInferenceServerError, match=r"^\[400\] no such thing$") as error:
            await transport.call(CONFIG)
    assert not isinstance(error.value, ConnectionError)


@in_loop
async def test_answer_that_is_no_json_is_a_server_error(web):
    web.body = b"<html>"
    async with async_transport_to(web.address) as transport:
        with pytest.raises(PyTritonClientInferenceServerError, match="get_model_config at"):
            await transport.call(CONFIG)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "no such thing"),
        (grpc.StatusCode.CANCELLED, "the server gave it up"),
        (grpc.StatusCode.INTERNAL, "the callable said: Deadline Exceeded, Socket closed"),
    ],
)
@in_loop
async def test_grpc_error_of_the_server_carries_its_text(inference, code, text):
    inference.abort = (code, text)
    async with async_transport_to(inference.address, "grpc") as transport:
        with pytest.raises(PyTritonClientInferenceServerError, match=text) as error:
            await transport.call(CONFIG)
    assert not isinstance(error.value, ConnectionError)


@in_loop
async def test_answers_have_the_forms_that_conversations_expect(web, inference):
    entry = {"name": "m", "version": "1", "state": "READY"}
    async with async_transport_to(web.address) as http, async_transport_to(inference.address, "grpc") as grpc_transport:
        assert await http.call(LIVE) is await grpc_transport.call(LIVE) is True
        web.body = b'{"name": "m"}'
        inference.answer = service_pb2.ModelConfigResponse(config={"name": "m"})
        assert await http.call(CONFIG) == await grpc_transport.call(CONFIG) == {"name": "m"}
        web.body = json.dumps([entry]).encode()
        inference.answer = service_pb2.RepositoryIndexResponse(models=[entry])
        assert await http.call(INDEX) == await grpc_transport.call(INDEX) == [entry]
        web.status = 400
        assert await http.call(LIVE) is False


@in_loop
async def test_headers_travel_with_every_call(web, inference):
    more = Call("is_server_live", float("inf"), headers={"X-More": "1"})
    for address, scheme in ((web.address, "http"), (inference.address, "grpc")):
        async with async_transport_to(address, scheme) as transport:
            await transport.call(more)
    for headers in (web.requests[0][1], inference.metadata[0]):
        assert (headers["triton-access-token"], headers["x-more"]) == ("secret", "1")


@in_loop
async def test_answers_are_asked_for_uncompressed_unless_they_are_wanted_otherwise(web):
    async with async_transport_to(web.address) as transport:
        for headers in ({}, {"accept-encoding": "gzip"}):
            await transport.call(Call("is_server_live", 5.0, headers=headers))
    assert [headers.get("accept-encoding") for _, headers in web.requests] == [None, "gzip"]


@pytest.mark.parametrize("rows", [2, 3_000_000])
@in_loop
async def test_inference_carries_small_and_large_tensors(rows):
    array = np.arange(rows, dtype=np.float32)
    tensor = InputTensor("x", "FP32", array.shape, array)
    with serving(ModelServer()) as server:
        async with async_transport_to(server.url.removeprefix("http://"), headers={}) as transport:
            result = await transport.call(Call("infer", 20.0, {"model_name": "m", "inputs": [tensor]}))
    np.testing.assert_array_equal(result.as_numpy("x"), array)


@in_loop
async def test_adopted_clients_are_not_closed(web, inference):
    for address in (f"http://{web.address}", f"grpc://{inference.address}"):
        async with bare(address, None) as client:
            transport = adopt_async_client(client, {"x-more": "1"})
            assert await transport.call(LIVE) is True
            await transport.close()
            assert await client.is_server_live() is True
    assert web.requests[0][1]["x-more"] == inference.metadata[0]["x-more"] == "1"


@SCHEMES
def test_synchronous_client_is_refused_with_the_way_out(scheme, closed_port):
    with (
        bare_client(load_lib(scheme), TritonUrl.from_url(f"{scheme}://{closed_port}"), None) as client,
        pytest.raises(PyTritonClientValueError, match=r"synchronous client; .*pytriton\.client\.utils"),
    ):
        adopt_async_client(client, {})


@in_loop
async def test_bare_http_client_keeps_its_network_timeout():
    with listening() as address:
        async with bare(f"http://{address}", 0.05) as client:
            with pytest.raises(asyncio.TimeoutError):
                await client.is_server_live()


@in_loop
async def test_network_timeout_of_a_bare_grpc_client_is_a_warning(closed_port):
    with pytest.warns(NotSupportedTimeoutWarning, match="client_timeout"):
        client = bare(f"grpc://{closed_port}", 5)
    await client.close()
