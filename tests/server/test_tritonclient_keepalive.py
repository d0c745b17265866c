"""Pings of tritonclient.grpc, as the server allows them. gRPC sends at most one a second."""

from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
from tritonclient.grpc import KeepAliveOptions

from pytriton.triton import Triton
from tests.server.conftest import LOCALHOST
from tests.server.processes import wait_for
from tests.server.relay import relay
from tests.server.tritonclients import Api

pytestmark = pytest.mark.either_proxy

PING = b"\x00\x00\x08\x06\x00\x00\x00\x00\x00"  # the head of HTTP/2's frame: 8 bytes, kind 6, no flags, stream 0
STRIKES = 1  # pings too soon that the server bears
GRPC = ["grpc", "grpc.aio"]


@contextmanager
def idle_clients(config):
    """A client of each kind that pings while it has nothing to say, and what passes between it and the server."""
    options = KeepAliveOptions(
        keepalive_time_ms=100, keepalive_permit_without_calls=True, http2_max_pings_without_data=0
    )
    config = replace(config, grpc_http2_max_ping_strikes=STRIKES)
    with ExitStack() as stack:
        stack.enter_context(Triton(config=config))
        clients = []
        for kind in GRPC:
            passed = stack.enter_context(relay(config.grpc_port))
            client = stack.enter_context(Api(kind, f"{LOCALHOST}:{passed.port}", keepalive_options=options))
            assert client.call("is_server_live")
            clients.append((client, passed))
        yield clients


def test_a_server_closes_the_connection_of_an_idle_client_that_pings_too_often(free_config):
    with idle_clients(free_config) as clients:
        for client, passed in clients:
            wait_for(lambda: b"too_many_pings" in passed.to_client, "the server to have enough")  # noqa: B023
            assert client.call("is_server_live")  # through a new connection


def test_a_server_that_allows_pings_keeps_the_connection(free_config):
    allowing = replace(
        free_config, grpc_keepalive_permit_without_calls=True, grpc_http2_min_recv_ping_interval_without_data=10
    )
    with idle_clients(allowing) as clients:
        for client, passed in clients:
            wait_for(lambda: passed.to_server.count(PING) > STRIKES + 1, "pings")  # noqa: B023
            assert b"too_many_pings" not in passed.to_client
            assert client.call("is_server_live")


@pytest.mark.parametrize("kind", GRPC)
def test_arguments_of_the_channel_win_over_keep_alive_options(free_config, kind):
    options = {"channel_args": [("grpc.max_receive_message_length", 8)], "keepalive_options": KeepAliveOptions()}
    with Triton(config=free_config), Api(kind, f"{LOCALHOST}:{free_config.grpc_port}", **options) as client:
        assert client.call("is_server_live")
        with client.refuses("RESOURCE_EXHAUSTED"):
            client.call("get_server_metadata")
