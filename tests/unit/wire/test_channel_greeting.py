"""How a proxy and a worker find each other: both swap greetings and arenas, and refuse whoever speaks otherwise."""

import gc
import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import numpy as np
import pytest

from pytriton.wire.arena import Arena
from pytriton.wire.channel import PeerGoneError
from pytriton.wire.connect import PROTOCOL, accept, connect
from pytriton.wire.frames import REQUEST, Frame
from pytriton.wire.tensors import tensor
from tests.server.processes import wait_for
from tests.unit.sockets import TIMEOUT_S, listen, pair_of


def test_the_worker_learns_what_the_proxy_tells(tmp_path):
    proxy, worker, hello = pair_of(tmp_path / "socket")
    assert hello == {"model": "m", "protocol": PROTOCOL}
    proxy.close()
    worker.close()


def test_a_path_longer_than_a_socket_address_works(tmp_path):
    folder = tmp_path / ("d" * 120) / ("e" * 120)
    folder.mkdir(parents=True)
    proxy, worker, _ = pair_of(folder / "socket")
    proxy.send(Frame(REQUEST, requests=1), [tensor(0, np.ones(1), 0)])
    assert worker.receive().kind == REQUEST
    proxy.close()
    worker.close()


def test_connecting_waits_for_the_worker_to_listen(tmp_path):
    path = tmp_path / "socket"
    with ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(connect, str(path), {}, TIMEOUT_S)
        with closing(listen(path)) as listener:
            _, worker = accept(listener.accept()[0], TIMEOUT_S)
            connecting.result().close()
    worker.close()


@pytest.mark.parametrize("folder", [".", "missing"])
def test_connecting_to_nobody_ends_at_the_timeout(tmp_path, folder):
    with pytest.raises(PeerGoneError, match=r"inference callable does not answer: .*No such file"):
        connect(str(tmp_path / folder / "socket"), {}, 0.05)


def test_connecting_to_somebody_who_never_answers_ends_at_the_timeout_and_leaves_no_descriptor(tmp_path):
    with closing(listen(tmp_path / "socket")):
        before = descriptors_open()
        with pytest.raises(PeerGoneError, match="does not answer: timed out"):
            connect(str(tmp_path / "socket"), {}, 0.05)
        wait_for(lambda: descriptors_open() <= before, "the descriptors to be closed")


def test_a_peer_that_never_says_hello_is_given_up(tmp_path):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, pytest.raises(PeerGoneError, match="timed out"):
        accept(ours, 0.05)


@pytest.mark.parametrize(
    ("hello", "descriptors"),
    [
        (b'{"protocol": 99}', 1),
        (b"{}", 1),
        (json.dumps({"protocol": PROTOCOL}).encode(), 0),
        (b"not JSON", 1),
        (b"\xff\xfe\xfd", 1),
        (b"[1]", 1),
        (b"", 0),
    ],
)
def test_a_peer_that_speaks_otherwise_is_refused_on_both_sides_and_leaves_no_descriptor(tmp_path, hello, descriptors):
    before = descriptors_open()
    with closing(Arena()) as arena:
        refused_by_worker(hello, [arena.fd] * descriptors)
        refused_by_proxy(tmp_path / "socket", hello, [arena.fd] * descriptors)
    del arena
    wait_for(lambda: descriptors_open() <= before, "the descriptors to be closed")


def descriptors_open():
    """Some more for a moment while threads of earlier tests end."""
    gc.collect()  # the frames in an exception's traceback hold a future that holds the exception
    return len(os.listdir("/proc/self/fd"))


def refused_by_worker(hello, fds):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        socket.send_fds(theirs, [hello], fds)
        with pytest.raises(PeerGoneError):
            accept(ours, TIMEOUT_S)


def refused_by_proxy(path, hello, fds):
    with closing(listen(path)) as listener, ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(connect, str(path), {}, 0.05)
        with listener.accept()[0] as theirs:
            with suppress(BrokenPipeError):  # the proxy does not wait long
                socket.send_fds(theirs, [hello], fds)
            with pytest.raises(PeerGoneError, match="does not answer: "):
                connecting.result()


def test_an_arena_without_memory_is_refused():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    empty = os.memfd_create("empty")
    with ours, theirs:
        socket.send_fds(theirs, [json.dumps({"protocol": PROTOCOL}).encode()], [empty])
        with pytest.raises(PeerGoneError):
            accept(ours, TIMEOUT_S)
    os.close(empty)
