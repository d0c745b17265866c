"""What the kernel says about answers that clients have not taken yet."""

import math
import socket
import time
from contextlib import closing

import pytest

from pytriton.server import connections
from pytriton.server.connections import unsent_bytes, wait_sent


@pytest.fixture(params=["127.0.0.1", "::1"])
def pair(request):
    """A server's and a client's end of a connection."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        listener = socket.create_server((request.param, 0), family=family)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with (
        listener,
        socket.create_connection(listener.getsockname()[:2]) as client,
        closing(listener.accept()[0]) as server,
    ):
        server.setblocking(False)
        yield server, client


def fill(server):
    """Send until the kernel takes no more."""
    sent = 0
    try:
        while True:
            sent += server.send(bytes(1 << 20))
    except BlockingIOError:
        return sent


def drain(client, count):
    while count:
        count -= len(client.recv(count))


def port_of(server):
    return server.getsockname()[1]


def test_answers_on_their_way_are_counted_by_the_servers_port(pair):
    server, client = pair
    port = port_of(server)
    assert unsent_bytes([port]) == 0
    sent = fill(server)
    assert 0 < unsent_bytes([port]) <= sent
    assert unsent_bytes([port_of(client)]) == 0
    assert unsent_bytes([]) == 0
    drain(client, sent)
    assert wait_sent([port], time.monotonic() + 10)
    assert unsent_bytes([port]) == 0


def test_waiting_ends_at_the_deadline(pair):
    server, _ = pair
    fill(server)
    assert not wait_sent([port_of(server)], -math.inf)
    assert not wait_sent([port_of(server)], time.monotonic() + 0.02)


def test_nothing_is_waited_for_without_connections():
    assert wait_sent([1], time.monotonic() + 10)


def test_a_system_without_these_tables_has_nothing_to_wait_for(monkeypatch):
    def missing(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr(connections, "open", missing, raising=False)
    assert unsent_bytes([8000]) == 0
