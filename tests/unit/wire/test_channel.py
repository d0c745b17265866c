"""Two ends of a channel over a real socket: what is sent arrives, what is kept stays, what ends is noticed."""

import gc
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytriton.wire import channel as channels
from pytriton.wire import connect as connecting
from pytriton.wire.arena import Arena, ArenaFullError
from pytriton.wire.channel import MAX_MESSAGE_BYTES, PeerGoneError
from pytriton.wire.connect import accept
from pytriton.wire.frames import INLINE_LIMIT_BYTES, NO_REGION, REQUEST, RESPONSE, SPILL, Frame, pack, unpack
from pytriton.wire.tensors import ALIGN, FrameError, tensor
from tests.unit.sockets import TIMEOUT_S, listen, pair_of

LARGE = INLINE_LIMIT_BYTES // 4 + 1  # float32 values that do not fit into a message


@pytest.fixture
def pair(tmp_path):
    proxy, worker, _ = pair_of(tmp_path / "socket")
    yield proxy, worker
    proxy.close()
    worker.close()


def exchange(sender, receiver, *arrays, **fields):
    sender.send(Frame(REQUEST, requests=1, **fields), [tensor(i, array, 0) for i, array in enumerate(arrays)])
    return receiver.receive()


def arrays_in(frame):
    return [frame.array(item) for item in frame.tensors]


def echo(proxy, worker, value, count=LARGE):
    """One batch there and back, after which the proxy may use the region again; returns the worker's frame."""
    frame = exchange(proxy, worker, np.full(count, value, np.float32))
    worker.send(Frame(RESPONSE, requests=1))
    proxy.receive()
    return frame


def test_small_tensors_travel_inside_the_message(pair):
    array = np.arange(INLINE_LIMIT_BYTES, dtype=np.uint8)
    frame = exchange(*pair, array)
    assert frame.region == NO_REGION
    assert np.array_equal(arrays_in(frame)[0], array)


def test_larger_tensors_travel_through_the_arena_in_both_directions(pair):
    proxy, worker = pair
    arrays = [
        np.arange(LARGE, dtype=np.float32),
        np.array([b"x" * 50_000, b"", b"\0"], object),
        np.zeros((0, 5), np.int16),
        np.array(7, np.int64),
        np.arange(1_000_000, dtype=np.uint8),
    ]
    for sender, receiver in ((proxy, worker), (worker, proxy)):
        frame = exchange(sender, receiver, *arrays)
        assert frame.region == 0
        for received, array in zip(arrays_in(frame), arrays, strict=True):
            assert received.dtype == array.dtype
            assert received.shape == array.shape
            assert np.array_equal(received, array)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(sizes=st.lists(st.integers(0, 60_000), min_size=1, max_size=5), metadata=st.binary(max_size=70_000))
def test_any_sizes_arrive(pair, sizes, metadata):
    arrays = [np.random.default_rng(size).integers(0, 255, size, np.uint8) for size in sizes]
    frame = exchange(*pair, *arrays, metadata=metadata)
    assert frame.metadata == metadata
    assert all(map(np.array_equal, arrays_in(frame), arrays))
    del frame
    exchange(pair[1], pair[0])  # gives the regions back


def test_a_large_tensor_is_not_copied_by_the_receiver(pair):
    _, worker = pair
    (array,) = arrays_in(exchange(*pair, np.arange(LARGE, dtype=np.float32)))
    assert np.shares_memory(array, np.frombuffer(worker._peer_memory, np.uint8, array.nbytes))
    array[0] = 42
    assert array[0] == 42


@pytest.mark.parametrize("count", [1, LARGE])
def test_a_description_longer_than_a_message_arrives(pair, count):
    frame = exchange(*pair, np.full(count, 3, np.float32), metadata=b"m" * 3 * MAX_MESSAGE_BYTES, number=9)
    assert frame.kind == REQUEST
    assert frame.number == 9
    assert frame.metadata == b"m" * 3 * MAX_MESSAGE_BYTES
    assert arrays_in(frame)[0].tolist() == [3] * count


def test_descriptions_of_many_tensors_arrive(pair):
    frame = exchange(*pair, *(np.full(1, i, np.int32) for i in range(5000)))
    assert [array.item() for array in arrays_in(frame)] == list(range(5000))


def test_regions_of_long_descriptions_are_given_back(pair):
    proxy, worker = pair
    for _ in range(5):
        frame = exchange(proxy, worker, np.zeros(LARGE, np.float32), metadata=b"m" * 2 * MAX_MESSAGE_BYTES)
        assert frame.region == 0
        del frame
        exchange(worker, proxy)


def test_a_kept_view_never_changes(pair):
    proxy, worker = pair
    kept = {}
    for value in range(300):
        frame = echo(proxy, worker, value)
        if value % 50 == 0:
            kept[value] = arrays_in(frame)[0][::100]  # a derived view keeps the region as well
        del frame
    assert all((view == value).all() for value, view in kept.items())


def test_a_kept_small_view_never_changes(pair):
    proxy, worker = pair
    kept = [arrays_in(echo(proxy, worker, value, count=16))[0] for value in range(300)]
    assert [view.tolist() for view in kept] == [[value] * 16 for value in range(300)]


def test_a_region_is_used_again_once_the_last_view_has_died(pair):
    proxy, worker = pair
    gc.disable()  # reference counting has to do
    try:
        first = arrays_in(echo(proxy, worker, 1))[0]
        assert echo(proxy, worker, 2).region > 0
        derived = first.reshape(1, -1)[:, 5:].T
        del first
        assert echo(proxy, worker, 3).region > 0
        del derived
        exchange(worker, proxy)  # tells of the death
        assert echo(proxy, worker, 5).region == 0
    finally:
        gc.enable()


def test_views_that_die_in_another_thread_give_their_regions_back(pair):
    proxy, worker = pair
    held = [arrays_in(echo(proxy, worker, value))[0] for value in range(20)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    exchange(worker, proxy)  # tells of the deaths
    assert echo(proxy, worker, 0).region == 0


def test_views_that_die_in_many_threads_while_batches_travel_lose_no_region(pair):
    proxy, worker = pair
    with ThreadPoolExecutor(4) as pool:
        for value in range(500):
            pool.submit(np.sum, arrays_in(echo(proxy, worker, value))[0])
    exchange(worker, proxy)  # tells of the deaths
    assert echo(proxy, worker, 0).region == 0
    exchange(worker, proxy)
    assert exchange(proxy, worker, np.zeros(600 * LARGE, np.float32)).region == 0


def test_more_released_regions_than_fit_into_a_message_are_told_in_the_next(pair, monkeypatch):
    monkeypatch.setattr(channels, "MAX_RELEASED", 2)
    proxy, worker = pair
    held = [arrays_in(echo(proxy, worker, value))[0] for value in range(5)]
    del held
    for _ in range(3):
        exchange(worker, proxy)
    assert exchange(proxy, worker, np.zeros(5 * LARGE, np.float32)).region == 0


def test_arrays_outlive_their_channel(pair):
    proxy, worker = pair
    (large,), (small,) = (arrays_in(echo(proxy, worker, 6, count)) for count in (LARGE, 4))
    proxy.close()
    worker.close()
    assert (large == 6).all()
    assert (small == 6).all()


def test_a_batch_that_does_not_fit_is_refused_and_the_next_one_served(tmp_path, monkeypatch):
    monkeypatch.setattr(connecting, "Arena", lambda: Arena(1 << 20))
    proxy, worker, _ = pair_of(tmp_path / "socket")
    with pytest.raises(ArenaFullError):
        proxy.send(Frame(REQUEST, requests=1), [tensor(0, np.zeros(1 << 20, np.uint16), 0)])
    assert arrays_in(exchange(proxy, worker, np.ones(LARGE, np.float32)))[0].all()
    proxy.close()
    worker.close()


def test_a_long_description_that_does_not_fit_leaves_nothing_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(connecting, "Arena", lambda: Arena(1 << 20))
    proxy, worker, _ = pair_of(tmp_path / "socket")
    echo(worker, proxy, 1)  # a region that the refused frame would have told of
    for _ in range(3):
        with pytest.raises(ArenaFullError):
            exchange(proxy, worker, np.zeros(1 << 19, np.uint8), metadata=bytes(1 << 20))
    assert exchange(proxy, worker, np.zeros(1 << 20, np.uint8)).region == 0
    assert exchange(worker, proxy, np.zeros(1 << 20, np.uint8)).region == 0
    proxy.close()
    worker.close()


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("how", ["close", "shutdown"])
def test_the_other_side_notices_an_end_when_it_receives_and_when_it_sends(pair, end, how):
    getattr(pair[end], how)()
    other = pair[1 - end]
    with pytest.raises(PeerGoneError):
        other.receive()
    for count in (1, LARGE):
        with pytest.raises(PeerGoneError):
            other.send(Frame(REQUEST, requests=1), [tensor(0, np.zeros(count, np.float32), 0)])


@pytest.mark.parametrize("count", [1, LARGE])
def test_a_closed_channel_says_that_its_peer_is_gone(pair, count):
    proxy, _ = pair
    proxy.close()
    for _ in range(3):
        with pytest.raises(PeerGoneError):
            proxy.send(Frame(REQUEST, requests=1), [tensor(0, np.zeros(count, np.float32), 0)])
    with pytest.raises(PeerGoneError):
        proxy.receive()
    proxy.shutdown()


def test_a_killed_peer_is_noticed(tmp_path):
    path = tmp_path / "socket"
    with closing(listen(path)) as listener:
        script = "import sys; from pytriton.wire.connect import connect; connect(sys.argv[1], {}, 10).receive()"
        with subprocess.Popen([sys.executable, "-c", script, str(path)]) as peer:
            _, worker = accept(listener.accept()[0], TIMEOUT_S)
            peer.kill()
            with pytest.raises(PeerGoneError):
                worker.receive()
    worker.close()


def test_shutdown_in_another_thread_wakes_a_receiver(pair):
    proxy, _ = pair
    waiting = threading.Event()

    def receive():
        waiting.set()
        with pytest.raises(PeerGoneError):
            proxy.receive()

    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(receive)
        waiting.wait()
        proxy.shutdown()
        received.result(TIMEOUT_S)


def raw(message):
    """Has a channel receive these bytes."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    arena = Arena(1 << 20)
    with closing(channels.Channel(ours, arena, os.dup(arena.fd))) as receiver, theirs:
        theirs.send(message)
        return receiver.receive()


@pytest.mark.parametrize(
    "message",
    [
        b"noise",
        bytes(MAX_MESSAGE_BYTES),
        b"\xff" * (MAX_MESSAGE_BYTES + 100),  # longer than a message may be
        pack(Frame(REQUEST, requests=1, region=(1 << 20) - 8), [tensor(0, np.zeros(3), 0)]),
        pack(Frame(REQUEST, requests=1, region=2**64 - 64), [tensor(0, np.zeros(8), 0)]),
        pack(Frame(REQUEST, requests=1, region=2**63), [tensor(0, np.zeros(8), 0)]),
        pack(Frame(SPILL)),
        pack(Frame(SPILL, requests=1), [tensor(0, np.zeros(8), 0)]),
        pack(Frame(SPILL, requests=1), [tensor(0, np.zeros(8), 0)] * 2),
        pack(Frame(SPILL, requests=1), [tensor(0, np.array([b"x"], object), 0)]),
        pack(Frame(SPILL, requests=1), [tensor(0, np.array(7), 0)]),
    ],
)
def test_what_is_no_frame_is_refused(message):
    with pytest.raises(FrameError):
        raw(message)


def test_a_long_description_within_another_is_refused():
    message = pack(Frame(REQUEST))
    assert raw(message).kind == REQUEST
    for _ in range(2):
        message = pack(Frame(SPILL, requests=1), [tensor(0, np.frombuffer(message, np.uint8), 0)])
    with pytest.raises(FrameError):
        raw(message)


def test_messages_reach_the_limit_of_the_socket():
    head = pack(Frame(REQUEST, metadata=b"m" * 40))
    metadata = b"m" * (MAX_MESSAGE_BYTES - len(head) + 40)
    message = pack(Frame(REQUEST, metadata=metadata))
    assert len(message) == MAX_MESSAGE_BYTES
    assert raw(message).metadata == metadata
    assert unpack(memoryview(message)).metadata == metadata


def test_regions_are_aligned(pair):
    frame = exchange(*pair, np.zeros(LARGE, np.float32), np.zeros(3, np.int8), np.zeros(5, np.float64))
    assert all(array.ctypes.data % ALIGN == 0 for array in arrays_in(frame))
