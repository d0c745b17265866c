"""After a crash, the log tells the requests in flight; a client whose requests preceded several is refused."""

from __future__ import annotations

import os
import re
import signal
import socket
from contextlib import closing

import httpx
import pytest
from tritonclient.grpc import service_pb2

from pytriton.triton import Triton
from tests.server.conftest import LOCALHOST
from tests.server.edge import http2
from tests.server.edge.test_edge import INFER, native
from tests.server.gated import Gated
from tests.server.own_server import server_of
from tests.server.processes import DEADLINE_S, is_alive, wait_for

pytestmark = pytest.mark.either_proxy

ATTACKER = "127.0.0.66"


@pytest.fixture
def attacker(monkeypatch):
    """Makes connections from an address that counts as that of another machine."""
    monkeypatch.setattr("pytriton.server.crashes.is_loopback", lambda peer: peer != ATTACKER)
    return lambda port: socket.create_connection((LOCALHOST, port), 30, (ATTACKER, 0))


def asks(connection: socket.socket) -> bool:
    """Whether a server answers on a connection."""
    try:
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return connection.recv(1000).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def is_served(triton: Triton) -> bool:
    try:
        return (
            httpx.get(f"http://{LOCALHOST}:{triton.config.http_port}/v2/health/ready", timeout=DEADLINE_S).status_code
            == 200
        )
    except httpx.HTTPError:
        return False


def restarts(triton: Triton) -> int:
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=str(triton._workspace.path / "http" / "control.sock"))
    ) as client:
        return int(re.search(r"^pytriton_server_restarts_total (\d+)$", client.get("http://x/metrics").text, re.M)[1])


def grpc_call() -> bytes:
    tensor = service_pb2.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[1, 1])
    request = service_pb2.ModelInferRequest(model_name="m", inputs=[tensor], raw_input_contents=[bytes(4)])
    return http2.PREFACE + http2.settings() + http2.call(1, request.SerializeToString())


ATTACKS = {
    "http": (INFER.encoded(), "/v2/models/m/infer"),
    "grpc": (grpc_call(), "/inference.GRPCInferenceService/ModelInfer"),
}


@pytest.mark.parametrize("protocol", ATTACKS)
def test_a_client_whose_requests_preceded_three_crashes_is_refused_and_others_are_served(attacker, caplog, protocol):
    gated, (request, target) = Gated(), ATTACKS[protocol]
    with native(gated) as triton:
        for crash in range(3):
            assert restarts(triton) == crash
            with closing(attacker(getattr(triton.config, f"{protocol}_port"))) as connection:
                connection.sendall(request)
                gated.wait_called()
                assert is_served(triton)  # by another client
                pid = server_of(triton.config)
                os.kill(pid, signal.SIGSEGV)
                wait_for(lambda: not is_alive(pid), "the server to die")  # noqa: B023
                gated.gate.open()
                gated.reset()
                wait_for(lambda: triton.is_connected() and is_served(triton), "the next server")
        with closing(attacker(triton.config.http_port)) as connection:
            assert not asks(connection)
        assert is_served(triton)
    lines = [each.getMessage() for each in caplog.records if "launching the server again" in each.getMessage()]
    assert len(lines) == 3
    for line in lines:
        expected = (
            rf"it died \(exit status 139: SIGSEGV\); in flight over HTTP were 'POST {re.escape(target)}' with \d+ bytes"
        )
        assert re.search(f"{expected} from {re.escape(ATTACKER)}", line)
    refusals = [each.getMessage() for each in caplog.records if "is refused" in each.getMessage()]
    assert refusals == [
        f"requests from {ATTACKER} were in flight at several crashes of the server; it is refused for 60 s"
    ]


def test_a_server_that_is_stopped_did_not_crash(caplog):
    with native() as triton:
        assert is_served(triton)
        triton.stop()
        assert triton._edge.crashes.count == 0
