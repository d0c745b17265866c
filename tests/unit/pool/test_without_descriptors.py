"""Pipes and held connections while the process has no free descriptor. There is no server here."""

import json
import os
import resource
import socket
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from multiprocessing.connection import Pipe

import pytest

from pytriton.pool.held_connections import HeldConnections
from pytriton.pool.pipes import MessagePipe
from pytriton.wire.connect import connect
from pytriton.wire.frames import ERROR, REQUEST, Frame


@contextmanager
def no_free_descriptor():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    with ExitStack() as taken:
        taken.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        with suppress(OSError):
            while True:
                taken.callback(os.close, os.dup(0))
        yield


def test_descriptors_and_the_end_are_sent_without_a_free_descriptor():
    ours, theirs = (MessagePipe(end) for end in Pipe())
    with closing(ours), closing(theirs):
        with no_free_descriptor():
            ours.send_descriptors(b"m", [0], "detail")
            ours.end_sending()
        assert theirs.receive() == (b"m", "detail")
        (received,) = theirs.receive_descriptors(1)
        os.close(received)
        assert theirs.receive() is None


@pytest.fixture
def connected(tmp_path):
    """Held connections of a worker without a process, and the channel of a proxy that has connected."""
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        held, channels = HeldConnections("m-0", listener), []
        proxy = threading.Thread(target=lambda: channels.append(connect(path, {}, 10.0)))
        proxy.start()
        held.wait(0.0)
        proxy.join()
        with closing(held), closing(channels[0]) as channel:
            yield held, channel


def test_a_request_that_cannot_be_refused_for_want_of_descriptors_is_refused_later(connected):
    held, channel = connected
    details = {"0": {"deadline": time.monotonic() + 1.0}}
    channel.send(Frame(REQUEST, 1, 1, metadata=json.dumps(details).encode()))
    before = len(os.listdir("/proc/self/fd"))
    with no_free_descriptor():
        assert held.wait(60.0).is_wanted
    assert len(os.listdir("/proc/self/fd")) == before
    assert held.wait(60.0).is_wanted
    assert channel.receive().kind == ERROR
