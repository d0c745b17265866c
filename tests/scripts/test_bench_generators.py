"""What the load generator sends and counts."""

import json
import shutil
import socket
import struct
import threading
from contextlib import contextmanager, suppress

import connections
import load
import numpy as np
import payloads
import pytest
import sections
from connections import CutError, GrpcConnection, HttpConnection

pytestmark = pytest.mark.thorough

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
ERROR = b"HTTP/1.1 500 no\r\ncontent-length: 0\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@contextmanager
def served(serve):
    """A server of one connection, which ``serve(connection)`` serves in a thread."""

    def run():
        connection, _ = listener.accept()
        with connection, suppress(ConnectionError):  # the client hangs up when it likes
            serve(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(30)
        assert not thread.is_alive()


def receive(connection, count):
    """So many bytes."""
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        assert piece
        data += piece
    return data


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def read_frame(connection):
    head = receive(connection, 9)
    return head[3], head[4], int.from_bytes(head[5:], "big"), receive(connection, int.from_bytes(head[:3], "big"))


def read_call(connection):
    """The stream and the message of a call, and the other frames before its end."""
    message, others = b"", []
    while True:
        kind, flags, stream, payload = read_frame(connection)
        if kind == DATA:
            message += payload
            if flags & 1:
                return stream, message[5:], others
        elif kind != HEADERS:
            others.append((kind, flags, payload))


def respond(stream, message=b"\0\0\0\0\2hi"):
    data = frame(DATA, 0, stream, message) if message else b""
    return frame(HEADERS, 4, stream, b"\x88") + data + frame(HEADERS, 5, stream, b"\x88")


def test_requests_are_sent_in_rotation_each_with_a_new_id():
    requests, seen = [b"a%b." % payloads.ID, b"b%b." % payloads.ID], []

    def serve(connection):
        for _ in range(4):
            seen.append(receive(connection, 10))
            connection.sendall(OK)

    with served(serve) as port:
        connection = HttpConnection(port, requests)
        for _ in range(4):
            connection.exchange()
        connection.close()
    assert [each[:1] for each in seen] == [b"a", b"b", b"a", b"b"]
    ids = [int(each[1:9]) for each in seen]
    assert ids == [*range(ids[0], ids[0] + 4)]


def test_a_response_may_come_in_pieces_and_its_status_counts():
    def serve(connection):
        for piece in (OK[:10], OK[10:-1], OK[-1:]):
            connection.sendall(piece)
        receive(connection, 2)
        connection.sendall(ERROR)

    with served(serve) as port:
        connection = HttpConnection(port, [b"."])
        connection.exchange()
        assert connection.good
        with pytest.raises(payloads.LoadError, match="500 no"):
            connection.fetch()
        assert not connection.good
        connection.close()


@pytest.mark.parametrize(("sent", "error"), [(b"", ConnectionResetError), (OK[:12], CutError), (OK[:-1], CutError)])
def test_a_connection_that_ends_within_a_response_is_told_from_one_that_ends_before(sent, error):
    def serve(connection):
        receive(connection, 1)
        connection.sendall(sent)

    with served(serve) as port:
        connection = HttpConnection(port, [b"."])
        with pytest.raises(error):
            connection.exchange()
        connection.close()


def test_a_response_may_be_larger_than_the_buffer(monkeypatch):
    monkeypatch.setattr(connections, "BUFFER_BYTES", 60)
    body = b"0123456789" * 100

    def serve(connection):
        receive(connection, 1)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    with served(serve) as port:
        connection = HttpConnection(port, [b"."])
        assert connection.fetch()[1] == body
        connection.close()


def test_a_call_has_a_stream_and_an_id_of_its_own_and_fails_without_a_message():
    calls = []

    def serve(connection):
        assert receive(connection, len(PREFACE)) == PREFACE
        for message in (b"\0\0\0\0\2hi", b""):
            stream, request, _ = read_call(connection)
            calls.append((stream, request))
            connection.sendall(respond(stream, message))

    with served(serve) as port:
        connection = GrpcConnection(port, [b"id=%b" % payloads.ID])
        good = []
        for _ in range(2):
            connection.exchange()
            good.append(connection.good)
        connection.close()
    assert good == [True, False]
    assert [stream for stream, _ in calls] == [1, 3]
    assert int(calls[1][1][3:]) == int(calls[0][1][3:]) + 1


def test_a_large_call_waits_for_the_windows_of_the_server():
    message = bytes(range(256)) * 1000
    received = []

    def serve(connection):
        receive(connection, len(PREFACE))
        connection.sendall(frame(SETTINGS, 0, 0))
        size, data = 0, b""
        while True:
            kind, flags, stream, payload = read_frame(connection)
            if kind != DATA:
                continue
            size, data = size + len(payload), data + payload
            if flags & 1:
                break
            if size > 40_000:  # as a server has it: after more than half of its window
                update = struct.pack(">I", size)
                connection.sendall(frame(WINDOW_UPDATE, 0, 0, update) + frame(WINDOW_UPDATE, 0, stream, update))
                size = 0
        received.append(data[5:])
        connection.sendall(respond(stream))

    with served(serve) as port:
        connection = GrpcConnection(port, [message])
        connection.exchange()
        assert connection.good
        connection.close()
    assert received == [message]


def test_pings_and_settings_are_acknowledged():
    answers = []

    def serve(connection):
        receive(connection, len(PREFACE))
        stream, _, _ = read_call(connection)
        connection.sendall(frame(SETTINGS, 0, 0) + frame(PING, 0, 0, b"12345678") + respond(stream))
        answers.extend(read_frame(connection)[:2] for _ in range(2))

    with served(serve) as port:
        connection = GrpcConnection(port, [b"x"])
        connection.exchange()
        connection.close()
    assert answers == [(SETTINGS, 1), (PING, 1)]


def test_several_connections_are_driven_at_once_and_each_request_is_answered_before_the_end():
    """Each server answers only when all have a request; the first request ends after the time that is measured."""
    barrier, unread = threading.Barrier(3, timeout=30), []

    def serve(listener):
        connection, _ = listener.accept()
        with connection:
            receive(connection, 1)
            barrier.wait()
            connection.sendall(OK)
            unread.append(connection.recv(1))

    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    threads = [threading.Thread(target=serve, args=(each,)) for each in listeners]
    for thread in threads:
        thread.start()
    ports = iter([each.getsockname()[1] for each in listeners])
    found = load.drive(lambda: HttpConnection(next(ports), [b"."]), 3, lambda: load.Tally(0, 0))
    for each in [*threads, *listeners]:
        each.join(30) if isinstance(each, threading.Thread) else each.close()
    assert (found["answered"], found["errors"]) == (3, 0)
    assert unread == [b""] * 3  # neither another request nor a reset


def test_a_warm_up_counts_for_errors_and_answers_but_not_for_the_speed():
    seconds = []

    def run(duration_s):
        seconds.append(duration_s)
        return {"requests/s": 10 / duration_s, "errors": 2, "answered": 10}

    assert load.warmed(run, 0.5, 2) == {"requests/s": 5.0, "errors": 4, "answered": 20}
    assert seconds == [0.5, 2]


def test_a_run_without_a_good_answer_is_an_error():
    with pytest.raises(payloads.LoadError, match="no request was answered well in 2 s, errors: 7"):
        load.warmed(lambda duration_s: {"errors": 7, "answered": 0}, 0, 2)


def test_quantiles_are_latencies_that_occurred():
    assert load.quantiles(np.array([10, 20, 30, 1000])) == (20.0, 1000.0)


def test_a_tally_leaves_out_warm_up_and_failures():
    warming, measuring = load.Tally(3600, 3600), load.Tally(0, 3600)
    assert warming.add(0, good=True)
    with pytest.raises(payloads.LoadError, match="no request was answered well"):
        warming.figures()
    assert measuring.add(0, good=True)
    assert measuring.add(0, good=False)
    found = measuring.figures()
    assert (found["requests/s"], found["answered"], found["errors"]) == (1 / 3600, 1, 1)


def test_a_tally_counts_the_requests_in_flight_at_the_end_if_none_has_ended_before():
    tally = load.Tally(0, 0)
    assert [tally.add(0, good) for good in (False, True, True)] == [False] * 3
    found = tally.figures()
    assert (found["answered"], found["errors"]) == (2, 1)
    assert found["requests/s"] > 0


@pytest.mark.skipif(not shutil.which("wrk"), reason="wrk is not installed")
@pytest.mark.parametrize("name", ["64 B", "1-4 rows, ids"])
def test_wrk_sends_the_requests_in_rotation_each_with_its_id(name):
    workload, seen, served = payloads.WORKLOADS[name], [], threading.Event()

    def serve(listener):
        while len(seen) < 8:
            connection, _ = listener.accept()
            with connection:  # wrk first looks whether a server is there
                while len(seen) < 8 and (data := connection.recv(1 << 16)):
                    seen.append(data)
                    connection.sendall(OK)
        served.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        port = listener.getsockname()[1]
        requests = [payloads.http_request(port, workload, rows) for rows in workload.rows]
        found = load.wrk(port, requests, 1, 1)
        thread.join(30)
    assert served.is_set()
    assert found["answered"] == 8
    assert sorted({len(each) for each in seen}) == sorted({len(each) for each in requests})
    if workload.ids:
        ids = [int(json.loads(b"{" + each.partition(b"{")[2].partition(b"}}]}")[0] + b"}}]}")["id"]) for each in seen]
        assert ids == [*range(ids[0], ids[0] + 8)]


@pytest.mark.parametrize("beginning", [b"", b"data: {}\n\n"], ids=["no answer", "the beginning of a stream"])
def test_a_stream_of_events_that_stalls_is_an_error_and_ends_the_load(beginning):
    def serve(connection):
        receive(connection, 1)
        if beginning:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + beginning)
        while connection.recv(1 << 16):  # until the client hangs up
            pass

    with served(serve) as port:
        found = sections.read_events(port, 0.1, grace_s=0.1)
    assert found == {"responses/s": 0, "errors": 1, "answered": 0}
