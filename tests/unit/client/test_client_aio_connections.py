"""Connections of transports for asyncio: kept, cancelled, failed, closed, left by event loops."""

import asyncio
import contextlib
import gc
import threading

import pytest
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from pytriton.client.conversations import Call
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientConnectionError,
    PyTritonClientInferenceServerError,
    PyTritonClientTimeoutError,
)
from pytriton.client.grpc_protocol import GrpcProtocol
from pytriton.client.transport import AsyncNetworkTransport
from tests.unit.loopback import listening, serving_grpc
from tests.unit.loops import PATIENCE_S, in_loop, until
from tests.unit.transports import CONFIG, LIVE, SCHEMES, async_transport_to, open_async_to


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


@in_loop
async def test_calls_one_after_the_other_share_a_connection(web):
    async with async_transport_to(web.address) as transport:
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
        async with async_transport_to(address) as transport:
            for _ in range(2):
                assert await transport.call(LIVE) is False


@SCHEMES
@in_loop
async def test_many_calls_at_once_all_succeed(scheme, live_address):
    async with async_transport_to(live_address, scheme) as transport:
        assert await asyncio.gather(*(transport.call(LIVE) for _ in range(100))) == [True] * 100


@in_loop
async def test_cancelled_http_call_hangs_up_and_the_next_one_works():
    silence = Silence()
    with listening(silence.talk) as address:
        async with async_transport_to(address) as transport:
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
    async with async_transport_to(inference.address, "grpc") as transport:
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
    async with async_transport_to(closed_port, "grpc") as transport:
        for _ in range(5):
            with pytest.raises(PyTritonClientConnectionError):
                await transport.call(LIVE)
        with serving_grpc(closed_port) as servicer:
            servicer.answer = service_pb2.ServerLiveResponse(live=True)
            assert await transport.call(LIVE) is True


class Channel:
    """A channel whose server is live when ``release`` is set, and otherwise cannot be reached."""

    def __init__(self):
        self.release, self.closed = asyncio.Event(), False

    async def is_server_ready(self):
        raise InferenceServerException("failed to connect", "StatusCode.UNAVAILABLE")

    async def is_server_live(self):
        await self.release.wait()
        return not self.closed

    async def close(self):
        self.closed = True


class Transport(AsyncNetworkTransport):
    """Takes one channel after the other, and another one after a failure."""

    _replaces_failed_connections = True

    def __init__(self, *channels):
        super().__init__(GrpcProtocol("the server", {}), iter(channels).__next__)

    async def _perform(self, connections, call):
        return await getattr(connections, call.method)()


@in_loop
async def test_channel_that_failed_is_closed_when_its_last_call_has_ended():
    first, second = channels = [Channel(), Channel()]
    transport = Transport(*channels)
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
    async with async_transport_to(closed_port, "grpc") as transport:
        errors = await asyncio.gather(*(transport.call(LIVE) for _ in range(20)), return_exceptions=True)
    assert {type(error) for error in errors} == {PyTritonClientConnectionError}


@SCHEMES
@in_loop
async def test_closing_twice_is_fine_and_closed_is_closed(scheme, live_address):
    async with async_transport_to(live_address, scheme) as transport:
        await transport.call(LIVE)
        await transport.close()
        with pytest.raises(PyTritonClientClosedError):
            await transport.call(LIVE)


@SCHEMES
def test_transport_works_in_one_event_loop_after_the_other(scheme, live_address):
    transport = open_async_to(live_address, scheme)
    for _ in range(2):
        in_loop(lambda: transport.call(LIVE))()
    in_loop(transport.close)()


@SCHEMES
def test_transport_survives_an_event_loop_that_was_closed_without_care(scheme, live_address):
    transport = open_async_to(live_address, scheme)
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
    """A channel that cannot be closed, as it is where calls were under way when their event loop was closed."""

    async def is_server_live(self):
        return True

    async def close(self):
        raise RuntimeError("Event loop is closed")


def test_what_a_closed_event_loop_left_under_way_does_not_fail_the_next_one():
    transport = Transport(Stubborn(), Channel())
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
        transport = open_async_to(address)
        assert await transport.call(LIVE) is True
        del transport
        gc.collect()
        await until(left.is_set)
