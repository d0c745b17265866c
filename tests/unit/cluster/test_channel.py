"""A worker's connection to the server's side, which does as the tests like."""

import pytest

from pytriton.wire.channel import PeerGoneError
from tests.server.processes import DEADLINE_S, wait_for

pytest.importorskip("zmq")
import zmq

from pytriton.cluster.channel import RemoteChannel
from pytriton.wire.control import HELLO

HEARTBEAT_S = 60.0


def test_a_connection_that_was_there_at_the_first_look_is_missed_when_it_is_lost():
    with zmq.Context() as worker, zmq.Context() as server:
        sockets = []
        router = server.socket(zmq.ROUTER)
        port = router.bind_to_random_port("tcp://127.0.0.1")
        channel = RemoteChannel(worker, f"tcp://127.0.0.1:{port}", HEARTBEAT_S, sockets.append, lambda: None)
        try:
            wait_for(lambda: sockets[0].get(zmq.EVENTS) & zmq.POLLOUT, "the connection")
            assert channel.wait_connected(0)
            channel.tell(HELLO)
            assert router.poll(DEADLINE_S * 1e3)
            router.close(0)
            with pytest.raises(PeerGoneError, match="the connection was lost"):
                channel.receive_message(DEADLINE_S)
        finally:
            channel.close()
            router.close(0)
