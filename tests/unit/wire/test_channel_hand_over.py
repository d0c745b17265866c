"""A connection that another process goes on with: nothing of it is lost, and its memory is given back."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pytriton.wire.channel import HandOverError
from pytriton.wire.connect import go_on
from pytriton.wire.frames import INLINE_LIMIT_BYTES, REQUEST, RESPONSE, Frame
from pytriton.wire.tensors import tensor
from tests.unit.sockets import TIMEOUT_S, pair_of

LARGE = INLINE_LIMIT_BYTES // 4 + 1  # float32 values that do not fit into a message


@pytest.fixture
def ends(tmp_path):
    """The proxy's channel, and the worker's, which tests replace."""
    proxy, worker, _ = pair_of(tmp_path / "socket")
    ends = [proxy, worker]
    yield ends
    for end in ends:
        end.close()


def exchange(sender, receiver, value, **fields):
    sender.send(Frame(REQUEST, requests=1, **fields), [tensor(0, np.full(LARGE, value, np.float32), 0)])
    frame = receiver.receive()
    return frame.array(frame.tensors[0])


def hand_over(ends):
    """As between two processes, which have descriptors of their own."""
    descriptors, state = ends[1].handed_over()
    connection, arena, peer = map(os.dup, descriptors)
    ends[1].close()
    ends[1] = go_on(socket.socket(fileno=connection), arena, peer, state)


def test_batches_go_on_in_both_directions(ends):
    for value in range(5):
        assert exchange(*ends, value)[0] == value
        assert exchange(*reversed(ends), -value)[-1] == -value
        hand_over(ends)


def test_a_batch_that_comes_meanwhile_is_for_the_next_process(ends):
    ends[0].send(Frame(REQUEST, 7, requests=1), [tensor(0, np.full(LARGE, 7, np.float32), 0)])
    hand_over(ends)
    frame = ends[1].receive()
    assert (frame.number, frame.array(frame.tensors[0])[0]) == (7, 7)


def test_a_process_receives_the_batch_that_it_was_started_for_although_it_is_to_hand_over_at_once(ends):
    for number in (1, 2):
        ends[0].send(Frame(REQUEST, number, requests=1))
    hand_over(ends)
    ends[1].hand_over()
    assert ends[1].receive(between_batches=True).number == 1
    with pytest.raises(HandOverError):
        ends[1].receive(between_batches=True)


def test_regions_that_the_peer_has_not_released_are_not_used_again(ends):
    kept = exchange(*reversed(ends), 1)
    hand_over(ends)
    other = exchange(*reversed(ends), 2)
    assert (kept[0], kept[-1], other[0]) == (1, 1, 2)
    del kept, other
    exchange(*ends, 3)  # tells of what was released
    assert ends[1]._arena.used_bytes() == 0


def test_inputs_that_the_process_has_kept_are_given_back(ends):
    kept = exchange(*ends, 1)
    hand_over(ends)
    exchange(*reversed(ends), 2)  # tells of what was released
    assert ends[0]._arena.used_bytes() == 0
    assert kept[0] == 1


def test_pages_that_no_region_needs_are_given_back(ends):
    reply = np.ones(64 << 20, np.uint8)
    ends[1].send(Frame(RESPONSE, requests=1), [tensor(0, reply, 0)])
    ends[0].receive()
    ends[0].send(Frame(REQUEST, requests=1))
    ends[1].receive()
    hand_over(ends)
    assert os.fstat(ends[1]._arena.fd).st_blocks == 0


def test_a_receive_that_waits_ends_when_the_connection_is_handed_over(ends):
    ends[1].look_every(0.01)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ends[1].receive, between_batches=True)
        ends[1].hand_over()
        with pytest.raises(HandOverError):
            waiting.result(TIMEOUT_S)
    assert ends[1].is_handed_over()
    ends[0].send(Frame(REQUEST, 8, requests=1))
    assert ends[1].receive().number == 8  # within a batch, a frame is waited for nevertheless
