"""What the kernel says of a server's connections, and what follows for requests under way."""

import math
import socket
import subprocess
import sys
import time
from contextlib import closing

import pytest

from pytriton.server import drain as drains
from pytriton.server.drain import Drain, open_connections

DEADLINE_S = 30.0


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


def take(connection, count):
    while count:
        try:
            count -= len(connection.recv(count))
        except BlockingIOError:
            time.sleep(0.001)


def port_of(server):
    return server.getsockname()[1]


def drain_of(server):
    return Drain(None, [port_of(server)], None)


def poll(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def pass_time(server, client):
    """Until the kernel's clock, in which it tells when something was sent, has gone on."""
    (before,) = open_connections([port_of(server)])

    def gone_on():
        (now,) = open_connections([port_of(server)])
        return min(now.since_sent_s, now.since_received_s) > min(before.since_sent_s, before.since_received_s) + 0.01

    poll(gone_on)


def exchange(server, client):
    """A request and its answer."""
    client.sendall(b"request")
    take(server, 7)
    pass_time(server, client)
    server.send(b"answer")
    take(client, 6)
    pass_time(server, client)


def test_bytes_in_both_directions_are_counted_by_the_servers_port(pair):
    server, client = pair
    (idle,) = open_connections([port_of(server)])
    assert (idle.unread_bytes, idle.unsent_bytes, idle.received_bytes) == (0, 0, 0)
    client.sendall(b"12345")
    sent = fill(server)
    (busy,) = open_connections([port_of(server)])
    assert (busy.cookie, busy.unread_bytes, busy.received_bytes) == (idle.cookie, 5, 5)
    assert 0 < busy.unsent_bytes <= sent
    assert open_connections([]) == []
    take(client, sent)
    poll(lambda: open_connections([port_of(server)])[0].unsent_bytes == 0)


def test_without_the_kernels_diagnosis_its_tables_tell_of_the_queues(pair, monkeypatch):
    def forbidden(ports):
        raise PermissionError(1, "no such sockets here")

    monkeypatch.setattr(drains, "_from_diagnosis", forbidden)
    server, client = pair
    client.sendall(b"12345")
    fill(server)
    (busy,) = open_connections([port_of(server)])
    assert busy.unread_bytes == 5
    assert busy.unsent_bytes > 0
    assert not drain_of(server).wait_answered(time.monotonic() + 0.05)


def test_a_system_without_tables_has_no_connections(pair, monkeypatch):
    def missing(*_):
        raise FileNotFoundError

    monkeypatch.setattr(drains, "_from_diagnosis", missing)
    monkeypatch.setattr(drains, "open", missing, raising=False)
    assert open_connections([port_of(pair[0])]) == []


@pytest.mark.parametrize("requests", [0, 1])
def test_an_idle_connection_is_not_waited_for(pair, requests):
    for _ in range(requests):
        exchange(*pair)
    drain = drain_of(pair[0])
    assert drain.wait_answered(time.monotonic() + DEADLINE_S)
    assert drain.is_silent()


def test_a_request_is_under_way_until_its_answer_has_been_sent(pair):
    server, client = pair
    exchange(*pair)
    client.sendall(b"request")
    take(server, 7)
    pass_time(*pair)
    drain = drain_of(server)
    assert not drain.has_parsed()
    assert not drain.is_silent()
    assert not drain.wait_answered(time.monotonic() + 0.1)
    server.send(b"answer")
    assert drain.wait_answered(time.monotonic() + DEADLINE_S)


def test_a_client_that_does_not_read_its_answer_is_waited_for(pair):
    server, client = pair
    client.sendall(b"request")
    take(server, 7)
    pass_time(*pair)
    sent = fill(server)
    drain = drain_of(server)
    assert not drain.wait_answered(-math.inf)
    assert not drain.wait_answered(time.monotonic() + 0.1)
    take(client, sent)
    assert drain.wait_answered(time.monotonic() + DEADLINE_S)


def test_an_answer_may_go_on_while_a_thread_of_the_server_is_busy(pair):
    busy = "import select, sys, time\nwhile not select.select([sys.stdin], [], [], 0)[0]: pass\ntime.sleep(100)"
    exchange(*pair)
    with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE) as process:
        try:
            drain = Drain(process.pid, [port_of(pair[0])], None)
            assert not drain.wait_answered(time.monotonic() + 0.1)
            process.stdin.close()
            assert drain.wait_answered(time.monotonic() + DEADLINE_S)
        finally:
            process.kill()


def test_a_client_that_sends_again_at_once_has_got_its_answer(pair):
    server, client = pair
    client.sendall(b"request")
    take(server, 7)
    pass_time(*pair)
    drain = drain_of(server)
    assert not drain.wait_answered(-math.inf)
    server.send(b"answer")
    take(client, 6)
    assert not drain.wait_answered(-math.inf)  # it has only just been sent
    client.sendall(b"the next request")
    assert drain.wait_answered(time.monotonic() + DEADLINE_S)


def test_a_grpc_connection_is_waited_for_while_its_client_does_not_read(pair):
    server, client = pair
    sent = fill(server)
    drain = Drain(None, [], port_of(server))
    assert not drain.is_silent()
    assert not drain.wait_answered(time.monotonic() + 0.1)
    take(client, sent)
    assert drain.wait_answered(time.monotonic() + DEADLINE_S)
    poll(drain.is_silent)


def test_a_grpc_connection_on_which_requests_go_on_is_not_waited_for(pair, monkeypatch):
    monkeypatch.setattr(drains, "CALLING_S", 0.0)
    drain = Drain(None, [], port_of(pair[0]))
    pair[1].sendall(b"request")
    pass_time(*pair)
    assert not drain.is_silent()  # the server has not read it
    take(pair[0], 7)
    exchange(*pair)
    assert drain.is_silent()
