"""tritonclient's clients for asyncio on scripted servers: timeouts, errors, cancellation, event loops."""

import asyncio
import contextlib
import gc
import json
import socket
import threading

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from pytriton.client.aio_transport import (
    AsyncGrpcTransport,
    adopt_async_client,
    create_async_client,
    load_async_lib,
    open_async_transport,
)
from pytriton.client.dialect import GrpcDialect
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientConnectionError,
    PyTritonClientInferenceServerError,
    PyTritonClientTimeoutError,
    PyTritonClientValueError,
)
from pytriton.client.flows import Call
from pytriton.client.model_state import ModelState
from pytriton.client.transport import create_client
from pytriton.client.url import TritonUrl
from pytriton.client.warnings import NotSupportedTimeoutWarning
from tests.unit.loopback import ModelServer, Web, listening, serving, serving_grpc, unused_address
from tests.unit.loops import PATIENCE_S, in_loop, until

TOKEN = {"triton-access-token": "secret"}
LIVE = Call("is_server_live", 5.0)
CONFIG = Call("get_model_config", 5.0, {"model_name": "m", "model_version": ""})
INDEX = Call("get_model_repository_index", 5.0)
SCHEMES = pytest.mark.parametrize("scheme", ["http", "grpc"])


def open_to(address, scheme="http", headers=TOKEN):
    url = TritonUrl.from_url(f"{scheme}://{address}")
    return open_async_transport(url, load_async_lib(scheme), headers)


@contextlib.asynccontextmanager
async def transport_to(address, scheme="http", headers=TOKEN):
    transport = open_to(address, scheme, headers)
    try:
        yield transport
    finally:
        await transport.close()


@pytest.fixture
def closed_port():
    return unused_address()


@pytest.fixture
def web():
    with serving(Web()) as server:
        yield server


@pytest.fixture
def inference():
    with serving_grpc() as servicer:
        servicer.answer = service_pb2.ServerLiveResponse(live=True)
        yield servicer


@pytest.fixture
def live_address(scheme, web, inference):
    return web.address if scheme == "http" else inference.address


class Silence:
    """A server that never answers, and sees connections come and go."""

    def __init__(self):
        self.asked, self.left = threading.Event(), threading.Event()

    def talk(self, connection, stopped):
        if connection.recv(65536):
            self.asked.set()
        with contextlib.suppress(OSError):
            while connection.recv(65536):
                pass
        self.left.set()


@SCHEMES
@in_loop
async def test_server_that_accepts_but_never_answers_is_a_timeout(scheme):
    with listening() as address:
        async with transport_to(address, scheme) as transport:
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
        async with transport_to(address) as transport:
            with pytest.raises(PyTritonClientTimeoutError, match=r"get_model_config within 0\.2 s"):
                await transport.call(Call("get_model_config", 0.2, CONFIG.arguments))


@SCHEMES
@in_loop
async def test_refused_connection_is_a_connection_error(scheme, closed_port):
    async with transport_to(closed_port, scheme) as transport:
        with pytest.raises(PyTritonClientConnectionError, match=f"{closed_port} failed at is_server_live"):
            await transport.call(LIVE)


@SCHEMES
@in_loop
async def test_unknown_host_is_a_connection_error(scheme):
    async with transport_to("host.invalid:1", scheme) as transport:
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
        async with transport_to(address) as transport:
            with pytest.raises(PyTritonClientConnectionError):
                await transport.call(LIVE)


@in_loop
async def test_http_error_of_the_server_carries_its_text(web):
    web.status, web.body = 400, b'{"error": "no such thing"}'
    async with transport_to(web.address) as transport:
        with pytest.raises(PyTritonClientInferenceServerError, match=r"^\[400\] no such thing$") as error:
            await transport.call(CONFIG)
    assert not isinstance(error.value, ConnectionError)


@in_loop
async def test_answer_that_is_no_json_is_a_server_error(web):
    web.body = b"<html>"
    async with transport_to(web.address) as transport:
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
    async with transport_to(inference.address, "grpc") as transport:
        with pytest.raises(PyTritonClientInferenceServerError, match=text) as error:
            await transport.call(CONFIG)
    assert not isinstance(error.value, ConnectionError)


@in_loop
async def test_answers_have_the_forms_that_flows_expect(web, inference):
    entry = {"name": "m", "version": "1", "state": "READY"}
    async with transport_to(web.address) as http, transport_to(inference.address, "grpc") as grpc_transport:
        assert await http.call(LIVE) is await grpc_transport.call(LIVE) is True
        web.body = b'{"name": "m"}'
        inference.answer = service_pb2.ModelConfigResponse(config={"name": "m"})
        assert await http.call(CONFIG) == await grpc_transport.call(CONFIG) == {"name": "m"}
        web.body = json.dumps([entry]).encode()
        inference.answer = service_pb2.RepositoryIndexResponse(models=[entry])
        assert await http.call(INDEX) == await grpc_transport.call(INDEX) == {("m", "1"): ModelState.READY}
        web.status = 400
        assert await http.call(LIVE) is False


@in_loop
async def test_headers_travel_with_every_call(web, inference):
    more = Call("is_server_live", float("inf"), headers={"X-More": "1"})
    for address, scheme in ((web.address, "http"), (inference.address, "grpc")):
        async with transport_to(address, scheme) as transport:
            await transport.call(more)
    for headers in (web.requests[0][1], inference.metadata[0]):
        assert (headers["triton-access-token"], headers["x-more"]) == ("secret", "1")


@in_loop
async def test_calls_one_after_the_other_share_a_connection(web):
    async with transport_to(web.address) as transport:
        for status in (200, 400, 200):
            web.status = status
            await transport.call(LIVE)
        web.status, web.body = 400, b'{"error": "no"}'
        with pytest.raises(PyTritonClientInferenceServerError):
            await transport.call(CONFIG)
        await asyncio.sleep(0)
    assert len(web.connections) == 1


@in_loop
async def test_answer_that_nobody_looks_at_is_read_to_its_end():
    asked = threading.Semaphore(0)

    def answer_in_pieces(connection, stopped):
        for _ in range(2):
            connection.recv(65536)
            asked.release()
            connection.sendall(b"HTTP/1.1 400 No\r\nContent-Length: 2\r\n\r\n")
            stopped.wait(0.05)
            connection.sendall(b"{}")

    with listening(answer_in_pieces) as address:
        async with transport_to(address) as transport:
            for _ in range(2):
                assert await transport.call(LIVE) is False


@SCHEMES
@in_loop
async def test_many_calls_at_once_all_succeed(scheme, live_address):
    async with transport_to(live_address, scheme) as transport:
        assert await asyncio.gather(*(transport.call(LIVE) for _ in range(100))) == [True] * 100


@in_loop
async def test_answers_are_asked_for_uncompressed_unless_they_are_wanted_otherwise(web):
    async with transport_to(web.address) as transport:
        for headers in ({}, {"accept-encoding": "gzip"}):
            await transport.call(Call("is_server_live", 5.0, headers=headers))
    assert [headers.get("accept-encoding") for _, headers in web.requests] == [None, "gzip"]


@pytest.mark.parametrize("rows", [2, 3_000_000])
@in_loop
async def test_inference_carries_small_and_large_tensors(rows):
    array = np.arange(rows, dtype=np.float32)
    tensor = load_async_lib("http").InferInput("x", array.shape, "FP32").set_data_from_numpy(array)
    with serving(ModelServer()) as server:
        async with transport_to(server.url.removeprefix("http://"), headers={}) as transport:
            result = await transport.call(Call("infer", 20.0, {"model_name": "m", "inputs": [tensor]}))
    np.testing.assert_array_equal(result.as_numpy("x"), array)


@in_loop
async def test_cancelled_http_call_hangs_up_and_the_next_one_works():
    silence = Silence()
    with listening(silence.talk) as address:
        async with transport_to(address) as transport:
            call = asyncio.create_task(transport.call(LIVE))
            await until(silence.asked.is_set)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await until(silence.left.is_set)
            with pytest.raises(PyTritonClientTimeoutError):
                await transport.call(Call("is_server_live", 0.05))


@in_loop
async def test_cancelled_grpc_call_is_cancelled_at_the_server_and_the_next_one_works(inference):
    asked, cancelled = threading.Event(), threading.Event()

    def hold(context):
        context.add_callback(cancelled.set)
        asked.set()
        cancelled.wait(PATIENCE_S)

    inference.hold = hold
    async with transport_to(inference.address, "grpc") as transport:
        call = asyncio.create_task(transport.call(Call("is_server_live", PATIENCE_S)))
        await until(asked.is_set)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(cancelled.is_set)
        inference.hold = lambda context: None
        assert await transport.call(LIVE) is True


@in_loop
async def test_grpc_transport_reaches_a_server_that_started_after_a_failure(closed_port):
    async with transport_to(closed_port, "grpc") as transport:
        for _ in range(5):
            with pytest.raises(PyTritonClientConnectionError):
                await transport.call(LIVE)
        with serving_grpc(closed_port) as servicer:
            servicer.answer = service_pb2.ServerLiveResponse(live=True)
            assert await transport.call(LIVE) is True


class Channel:
    """A client whose server is live when ``release`` is set, and otherwise cannot be reached."""

    def __init__(self):
        self.release, self.closed = asyncio.Event(), False

    async def is_server_ready(self, **_):
        raise InferenceServerException("failed to connect", "StatusCode.UNAVAILABLE")

    async def is_server_live(self, **_):
        await self.release.wait()
        return not self.closed

    async def lease(self):
        try:
            yield self
        finally:
            self.closed = True


@in_loop
async def test_channel_that_failed_is_closed_when_its_last_call_has_ended():
    first, second = channels = [Channel(), Channel()]
    leases = iter(channels)
    dialect = GrpcDialect(load_async_lib("grpc"), "the server", {})
    transport = AsyncGrpcTransport(dialect, lambda: next(leases).lease())
    live = asyncio.create_task(transport.call(LIVE))
    await asyncio.sleep(0)
    for _ in range(2):
        with pytest.raises(PyTritonClientConnectionError):
            await transport.call(Call("is_server_ready", 5.0))
        if not second.closed:
            assert not first.closed
    assert second.closed
    first.release.set()
    assert await live is True
    assert first.closed


@in_loop
async def test_grpc_calls_that_fail_together_fail_each_for_itself(closed_port):
    async with transport_to(closed_port, "grpc") as transport:
        errors = await asyncio.gather(*(transport.call(LIVE) for _ in range(20)), return_exceptions=True)
    assert {type(error) for error in errors} == {PyTritonClientConnectionError}


@SCHEMES
@in_loop
async def test_closing_twice_is_fine_and_closed_is_closed(scheme, live_address):
    async with transport_to(live_address, scheme) as transport:
        await transport.call(LIVE)
        await transport.close()
        with pytest.raises(PyTritonClientClosedError):
            await transport.call(LIVE)


@SCHEMES
def test_transport_works_in_one_event_loop_after_the_other(scheme, live_address):
    transport = open_to(live_address, scheme)
    for _ in range(2):
        in_loop(lambda: transport.call(LIVE))()
    in_loop(transport.close)()


@SCHEMES
def test_transport_survives_an_event_loop_that_was_closed_without_care(scheme, live_address):
    transport = open_to(live_address, scheme)
    careless = asyncio.new_event_loop()
    careless.run_until_complete(transport.call(LIVE))
    careless.close()
    with contextlib.ExitStack() as tolerated:
        if scheme == "http":  # the open socket is the loop's own complaint
            tolerated.enter_context(pytest.warns(ResourceWarning, match="unclosed"))
        in_loop(lambda: transport.call(LIVE))()
        gc.collect()
    in_loop(transport.close)()


class Stubborn(Channel):
    """A client that cannot be closed, as it is where calls were under way when their event loop was closed."""

    async def is_server_live(self, **_):
        return True

    async def lease(self):
        try:
            yield self
        finally:
            raise RuntimeError("Event loop is closed")


def test_what_a_closed_event_loop_left_under_way_does_not_fail_the_next_one():
    leases = iter([Stubborn(), Channel()])
    transport = AsyncGrpcTransport(GrpcDialect(load_async_lib("grpc"), "the server", {}), lambda: next(leases).lease())
    careless = asyncio.new_event_loop()
    assert careless.run_until_complete(transport.call(LIVE)) is True
    careless.close()

    @in_loop
    async def go_on():
        with pytest.raises(PyTritonClientConnectionError, match="failed to connect"):
            await transport.call(Call("is_server_ready", 5.0))

    go_on()


@in_loop
async def test_transport_that_nobody_refers_to_hangs_up():
    left = threading.Event()

    def answer_once(connection, stopped):
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        if not connection.recv(65536):
            left.set()

    with listening(answer_once) as address:
        transport = open_to(address)
        assert await transport.call(LIVE) is True
        del transport
        gc.collect()
        await until(left.is_set)


@in_loop
async def test_adopted_clients_are_not_closed(web, inference):
    for address in (f"http://{web.address}", f"grpc://{inference.address}"):
        async with create_async_client(TritonUrl.from_url(address), None) as client:
            transport = adopt_async_client(client, {"x-more": "1"})
            assert await transport.call(LIVE) is True
            await transport.close()
            assert await client.is_server_live() is True
    assert web.requests[0][1]["x-more"] == inference.metadata[0]["x-more"] == "1"


@SCHEMES
def test_synchronous_client_is_refused_with_the_way_out(scheme, closed_port):
    with (
        create_client(TritonUrl.from_url(f"{scheme}://{closed_port}"), None) as client,
        pytest.raises(PyTritonClientValueError, match=r"synchronous client; .*pytriton\.client\.utils"),
    ):
        adopt_async_client(client, {})


@in_loop
async def test_bare_http_client_keeps_its_network_timeout():
    with listening() as address:
        async with create_async_client(TritonUrl.from_url(address), 0.05) as client:
            with pytest.raises(asyncio.TimeoutError):
                await client.is_server_live()


@in_loop
async def test_network_timeout_of_a_bare_grpc_client_is_a_warning(closed_port):
    with pytest.warns(NotSupportedTimeoutWarning, match="client_timeout"):
        client = create_async_client(TritonUrl.from_url(f"grpc://{closed_port}"), 5)
    await client.close()
