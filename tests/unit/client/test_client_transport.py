"""Transports on scripted servers: the timeouts are kept, and every foreign error is translated."""

import contextlib
import json
import resource
import socket
from concurrent import futures
from pathlib import Path

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from pytriton.client import ModelClient
from pytriton.client.auth import TritonUrl
from pytriton.client.conversations import Call
from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientInferenceServerError,
    PyTritonClientTimeoutError,
)
from pytriton.client.tensors import InputTensor
from pytriton.client.tritonclients import adopt_client, bare_client, load_lib
from pytriton.client.warnings import NotSupportedTimeoutWarning
from tests.unit.loopback import KNOWN, X, listening, serving_grpc
from tests.unit.transports import CONFIG, INDEX, LIVE, SCHEMES, transport_to


def bare(address, timeout_s):
    url = TritonUrl.from_url(address)
    return bare_client(load_lib(url.scheme), url, timeout_s)


@SCHEMES
def test_server_that_accepts_but_never_answers_is_a_timeout(scheme):
    with listening() as address, transport_to(address, scheme) as transport:
        for _ in range(2):
            with pytest.raises(
                PyTritonClientTimeoutError, match=rf"{address} did not answer is_server_live within 0.05"
            ):
                transport.call(Call("is_server_live", 0.05))


@pytest.mark.parametrize("timeout_s", [2**32 / 1000 + 0.05, 1e10, 1e300])
def test_a_timeout_that_is_longer_than_sockets_can_tell_is_none(server, timeout_s):
    with ModelClient(server.url, "m", inference_timeout_s=timeout_s, **KNOWN) as client:
        np.testing.assert_array_equal(client.infer_batch(X)["x"], X)


@pytest.mark.parametrize("beginning", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 500 No\r\nContent-Length: 999999\r\n\r\n"])
def test_server_that_never_finishes_its_answer_is_a_timeout(beginning):
    def trickle(connection, stopped):
        connection.sendall(beginning)
        with contextlib.suppress(OSError):
            while not stopped.wait(0.01):
                connection.sendall(b"x")

    with (
        listening(trickle) as address,
        transport_to(address) as transport,
        pytest.raises(PyTritonClientTimeoutError, match=r"get_model_config within 0\.2 s"),
    ):
        transport.call(Call("get_model_config", 0.2, CONFIG.arguments))


@SCHEMES
def test_refused_connection_is_a_connection_error(scheme, closed_port):
    with (
        transport_to(closed_port, scheme) as transport,
        pytest.raises(PyTritonClientConnectionError, match=f"{closed_port} failed at is_server_live"),
    ):
        transport.call(LIVE)


@SCHEMES
def test_unknown_host_is_a_connection_error(scheme):
    with transport_to("host.invalid:1", scheme) as transport, pytest.raises(PyTritonClientConnectionError):
        transport.call(LIVE)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n", b"SSH-2.0-OpenSSH\r\n"])
def test_connection_that_ends_early_or_speaks_otherwise_is_a_connection_error(answer):
    def hang_up(connection, stopped):
        connection.recv(65536)
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_RDWR)

    with (
        listening(hang_up) as address,
        transport_to(address) as transport,
        pytest.raises(PyTritonClientConnectionError),
    ):
        transport.call(LIVE)


def test_http_error_of_the_server_carries_its_text(web):
    web.status, web.body = 400, b'{"error": "no such thing"}'
    with (
        transport_to(web.address) as transport,
        pytest.raises(PyTritonClientInferenceServerError, match=r"^\[400\] no such thing$") as error,
    ):
        transport.call(CONFIG)
    assert not isinstance(error.value, ConnectionError)


def test_answer_that_is_no_json_is_a_server_error(web):
    web.body = b"<html>"
    with (
        transport_to(web.address) as transport,
        pytest.raises(PyTritonClientInferenceServerError, match="get_model_config at"),
    ):
        transport.call(CONFIG)


def test_connection_is_kept_also_after_an_error_of_the_server(web):
    with transport_to(web.address) as transport:
        transport.call(LIVE)
        web.status, web.body = 404, b'{"error": "x"}'
        for _ in range(2):
            with pytest.raises(PyTritonClientInferenceServerError):
                transport.call(CONFIG)
    assert len(web.requests) == 3
    assert len(web.connections) == 1


@pytest.fixture
def many_files(tmp_path):
    """So many open files that select() does not know the next ones."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] < 3000:
        pytest.skip(f"this user may have {limits[1]} files open at most")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 3000), limits[1]))
    with contextlib.ExitStack() as files:
        for _ in range(1100):
            files.enter_context((tmp_path / "file").open("w"))
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_connection_is_kept_in_a_program_that_has_many_files_open(web, many_files):
    with transport_to(web.address) as transport:
        for _ in range(3):
            transport.call(LIVE)
    assert len(web.connections) == 1


def test_threads_share_a_connection_and_leave_no_files_open(web):
    def files():
        return {path.name for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}

    with transport_to(web.address) as transport:
        transport.call(LIVE)
        before = files()
        for _ in range(3):
            with futures.ThreadPoolExecutor(1) as other:
                assert other.submit(transport.call, LIVE).result() is True
        assert files() <= before
    assert len(web.connections) == 1


def test_grpc_clients_do_not_share_a_connection(inference):
    with transport_to(inference.address, "grpc") as one, transport_to(inference.address, "grpc") as other:
        one.call(LIVE)
        other.call(LIVE)
    assert len(inference.peers) == 2


def test_http_call_sends_the_token_and_its_own_headers_below_the_base_path(web):
    with transport_to(f"{web.address}/base") as transport:
        transport.call(Call("is_server_live", 5.0, headers={"X-More": "1"}))
    ((path, headers),) = web.requests
    assert path == "/base/v2/health/live"
    assert (headers["triton-access-token"], headers["x-more"]) == ("secret", "1")


def test_infinite_timeout_is_none_at_all(web):
    with transport_to(web.address) as transport:
        assert transport.call(Call("is_server_live", float("inf"))) is True


def test_http_answers_have_the_forms_that_conversations_expect(web):
    with transport_to(web.address) as transport:
        web.body = json.dumps({"name": "m"}).encode()
        assert transport.call(CONFIG) == {"name": "m"}
        index = [{"name": "m", "version": "1", "state": "READY"}, {"name": "never loaded"}]
        web.body = json.dumps(index).encode()
        assert transport.call(INDEX) == index


def test_grpc_answers_have_the_same_forms(inference):
    with transport_to(inference.address, "grpc") as transport:
        inference.answer = service_pb2.ModelConfigResponse(config={"name": "m"})
        assert transport.call(CONFIG) == {"name": "m"}
        index = [{"name": "m", "version": "1", "state": "READY"}, {"name": "never loaded"}]
        inference.answer = service_pb2.RepositoryIndexResponse(models=index)
        assert transport.call(INDEX) == index
        inference.answer = service_pb2.RepositoryIndexResponse()
        assert transport.call(INDEX) == []


def test_grpc_metadata_names_are_lower_case(inference):
    with transport_to(inference.address, "grpc") as transport:
        assert transport.call(Call("is_server_live", float("inf"), headers={"X-More": "1"})) is True
    (metadata,) = inference.metadata
    assert (metadata["triton-access-token"], metadata["x-more"]) == ("secret", "1")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "no such thing"),
        (grpc.StatusCode.UNAVAILABLE, "This protocol is restricted"),
        (grpc.StatusCode.INTERNAL, "the callable said: Deadline Exceeded, Socket closed"),
    ],
)
def test_grpc_error_of_the_server_carries_its_text(inference, code, text):
    inference.abort = (code, text)
    with (
        transport_to(inference.address, "grpc") as transport,
        pytest.raises(PyTritonClientInferenceServerError, match=text) as error,
    ):
        transport.call(CONFIG)
    assert not isinstance(error.value, ConnectionError)


def test_grpc_transport_reaches_a_server_that_started_after_a_failure(closed_port):
    with transport_to(closed_port, "grpc") as transport:
        for _ in range(5):
            with pytest.raises(PyTritonClientConnectionError):
                transport.call(LIVE)
        with serving_grpc(closed_port) as servicer:
            servicer.answer = service_pb2.ServerLiveResponse(live=True)
            assert transport.call(LIVE) is True


def test_inference_goes_to_the_model(web):
    web.body = b'{"outputs":[{"name":"y","datatype":"FP32","shape":[1],"data":[3.0]}]}'
    tensor = InputTensor("x", "FP32", (1,), np.float32([3]))
    with transport_to(web.address) as transport:
        result = transport.call(Call("infer", 5.0, {"model_name": "m", "inputs": [tensor]}))
    assert result.as_numpy("y").tolist() == [3.0]
    assert web.requests[0][0] == "/v2/models/m/infer"


@SCHEMES
def test_closing_twice_is_fine(scheme, closed_port):
    with transport_to(closed_port, scheme) as transport:
        transport.close()


def test_adopted_clients_are_not_closed(web, inference):
    for address in (f"http://{web.address}", f"grpc://{inference.address}"):
        with bare(address, None) as client:
            transport = adopt_client(client, {"x-more": "1"})
            assert transport.call(LIVE) is True
            del transport
            assert client.is_server_live() is True
    assert web.requests[0][1]["x-more"] == inference.metadata[0]["x-more"] == "1"


def test_bare_http_client_keeps_its_network_timeout():
    with (
        listening() as address,
        bare(f"http://{address}", 0.05) as client,
        pytest.raises(TimeoutError),
    ):
        client.is_server_live()


def test_network_timeout_of_a_bare_grpc_client_is_a_warning(closed_port):
    with pytest.warns(NotSupportedTimeoutWarning, match="client_timeout"):
        bare(f"grpc://{closed_port}", 5).close()
