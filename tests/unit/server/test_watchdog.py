"""When a server counts as hung, and what counts as its answer. The servers are sockets of the test."""

import queue
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from pytriton.server.watchdog import (
    CALL,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    STREAM,
    Watchdog,
    ask_grpc,
    ask_http,
)
from tests.server.processes import wait_for

TIMEOUT_S = 0.6
LONG_S = 30.0


class Endpoint:
    """Answers its questions as it is told."""

    def __init__(self):
        self.answer = True
        self.asked = 0

    def __call__(self, timeout_s):
        self.asked += 1
        return self.answer


@pytest.fixture
def watched():
    """A watchdog, its endpoints, and queues of what it tells."""
    watchdogs = []

    def start(pid=None, **endpoints):
        changes, hangs = queue.Queue(), queue.Queue()
        watchdogs.append(Watchdog(endpoints, TIMEOUT_S, lambda: pid, changes.put, hangs.put))
        return watchdogs[-1], changes, hangs

    yield start
    for watchdog in watchdogs:
        watchdog.stop()
        watchdog._thread.join()


def test_a_server_that_answers_no_question_any_more_hangs_and_is_reported_once(watched):
    http, grpc = Endpoint(), Endpoint()
    watchdog, changes, hangs = watched(HTTP=http, gRPC=grpc)
    wait_for(lambda: grpc.asked > 3, "questions")
    assert watchdog.is_answered()
    grpc.answer = False
    assert hangs.get(timeout=LONG_S) == "gRPC"
    assert changes.get(timeout=LONG_S) is False
    assert not watchdog.is_answered()
    watchdog._thread.join(LONG_S)
    assert hangs.empty()


def test_a_server_that_answers_again_in_time_does_not_hang(watched):
    endpoint = Endpoint()
    watchdog, changes, hangs = watched(HTTP=endpoint)
    for _ in range(3):
        endpoint.answer = False
        assert changes.get(timeout=LONG_S) is False
        endpoint.answer = True
        assert changes.get(timeout=LONG_S) is True
    assert watchdog.is_answered()
    assert hangs.empty()


def test_a_connection_that_fails_is_no_hang(watched):
    endpoint = Endpoint()
    endpoint.answer = None
    watchdog, changes, hangs = watched(HTTP=endpoint)
    wait_for(lambda: endpoint.asked > 6, "questions")
    assert watchdog.is_answered()
    assert changes.empty()
    assert hangs.empty()


def test_a_server_that_a_debugger_holds_does_not_hang(watched):
    endpoint = Endpoint()
    endpoint.answer = False
    tracer = "import ctypes, os, time; libc = ctypes.CDLL(None); pid = os.fork(); pid or time.sleep(1000); " + (
        "libc.ptrace(0x4206, pid, 0, 0); print(pid, flush=True); input(); os.kill(pid, 9)"  # PTRACE_SEIZE
    )
    with subprocess.Popen(
        [sys.executable, "-c", tracer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        pid = int(process.stdout.readline())
        _, _, hangs = watched(pid, HTTP=endpoint)
        wait_for(lambda: endpoint.asked > 8, "questions")
        assert hangs.empty()
        process.communicate("\n")
    assert hangs.get(timeout=LONG_S) == "HTTP"


@contextmanager
def server(serve):
    """An address at which a function gets each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run():
            connection, _ = listener.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=run)
        thread.start()
        yield listener.getsockname()
        thread.join()


def ended(stream):
    """The headers that end a response."""
    return b"\0\0\1" + bytes([HEADERS, END_HEADERS | END_STREAM]) + stream.to_bytes(4, "big") + b"\x88"


def answering(*pieces):
    """A server that answers with these pieces, and then waits for the end of the connection."""

    def serve(connection):
        assert connection.recv(65536).startswith(PREFACE)
        for piece in pieces:
            connection.sendall(piece)
        while connection.recv(65536):
            pass

    return server(serve)


SETTINGS_FRAME = b"\0\0\0\4\0\0\0\0\0"


@pytest.mark.parametrize(
    ("pieces", "answer"),
    [
        ([SETTINGS_FRAME + ended(CALL) + ended(STREAM)], True),
        ([SETTINGS_FRAME + ended(STREAM)[:5], ended(STREAM)[5:] + ended(CALL)], True),
        ([SETTINGS_FRAME, ended(CALL)], False),  # as if streams hang and calls do not
        ([SETTINGS_FRAME, ended(STREAM)], False),
        ([SETTINGS_FRAME + b"\0\0\x08\x07\0\0\0\0\0" + bytes(8)], True),  # GOAWAY: it ends
        ([], False),
    ],
)
def test_grpc_answers_if_a_call_and_a_stream_end(pieces, answer):
    with answering(*pieces) as address:
        assert ask_grpc(address, {"triton-grpc-protocol-x": "long" * 100}, LONG_S if answer else 0.3) is answer


def test_http_answers_with_any_byte():
    with server(lambda connection: connection.sendall(b"H")) as address:
        assert ask_http(address, {}, LONG_S) is True
    with server(lambda connection: connection.recv(65536)) as address:
        assert ask_http(address, {}, LONG_S) is None
    assert ask_http(address, {}, LONG_S) is None  # nobody listens


def test_a_unix_socket_whose_queue_is_full_does_not_answer(tmp_path):
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(0)
        for _ in range(3):
            assert ask_http(path, {}, 0.1) is False
