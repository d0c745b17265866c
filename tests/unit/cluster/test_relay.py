"""The program's side of proxies on another machine, with peers that do as they like."""

import json
import sys

import pytest

from pytriton.cluster.options import ProxyListener
from pytriton.wire.channel import PeerGoneError
from tests.server.processes import DEADLINE_S, wait_for
from tests.unit.loopback import closed_address

pytest.importorskip("zmq")
import zmq

from pytriton.cluster import proxy
from pytriton.cluster.broker import Broker
from pytriton.cluster.messages import PROTOCOL
from pytriton.cluster.relay import ProxyRelay
from pytriton.wire.control import HELLO, PROBE, REFUSED

TOLD = {"model": "m", "instance": "m_0", "socket": "7.0", "serial": True}


@pytest.fixture
def relay(tmp_path):
    relay = ProxyRelay(ProxyListener("tcp://127.0.0.1:0"), tmp_path)
    yield relay
    relay.close()


@pytest.fixture
def peer(relay):
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.setsockopt(zmq.LINGER, 0)
        peer.connect(relay.description["address"])
        yield peer


def answer(peer):
    """The next message that is no probe."""
    while peer.poll(DEADLINE_S * 1e3):
        if (parts := peer.recv_multipart())[0] != PROBE:
            return parts
    raise AssertionError("no answer")


def hello(to, **changed):
    told = {"protocol": PROTOCOL, "relay": to.description["relay"], "host": "h", **TOLD}
    return json.dumps({**told, **changed}).encode()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"relay": "other"}, "another program had its model loaded"),
        ({"protocol": 0}, "it speaks version 0 of the protocol"),
        ({"socket": "../7.0"}, "no name of a socket"),
        ({"socket": 7}, "cannot be read"),
    ],
)
def test_a_proxy_of_another_program_or_with_a_made_up_socket_is_refused(relay, peer, changed, reason):
    peer.send_multipart([HELLO, hello(relay, **changed)])
    kind, text = answer(peer)
    assert kind == REFUSED
    assert reason in json.loads(text)[0]


@pytest.mark.parametrize("parts", [[HELLO], [HELLO, b"{"], [HELLO, b"[]"], [HELLO, b"{}"]])
def test_what_cannot_be_read_is_refused(peer, parts):
    peer.send_multipart(parts)
    kind, text = answer(peer)
    assert kind == REFUSED
    assert "cannot be read" in json.loads(text)[0]


def test_frames_of_those_who_have_not_joined_are_ignored(relay, peer):
    for parts in ([b"x" * 1000], [b""], [b"x" * 40, b"y" * 1000]):
        peer.send_multipart(parts)
    peer.send_multipart([HELLO, hello(relay, relay="other")])
    assert answer(peer)[0] == REFUSED


def test_a_proxy_says_that_it_cannot_reach_the_program_and_where(relay, monkeypatch):
    monkeypatch.setattr(proxy, "CONNECT_S", 0.05)
    with closed_address() as nobody:
        remote = {**relay.description, "address": f"tcp://{nobody}"}
        with pytest.raises(
            PeerGoneError, match=f"cannot reach the program with the inference callable at tcp://{nobody}"
        ):
            proxy.connect(remote, TOLD, 0.05)


def test_a_server_without_pyzmq_says_what_to_install(proxy_model, relay, monkeypatch):
    monkeypatch.setitem(sys.modules, "pytriton.cluster.proxy", None)  # as if an import in it failed
    with pytest.raises(RuntimeError, match=f"install it for {sys.executable}: pip install pyzmq"):
        proxy_model.worker_of({"batches_in_flight": None, "remote": relay.description}, "7.0", {})


def test_a_broker_whose_thread_fails_once_goes_on(relay, peer, monkeypatch, caplog):
    with monkeypatch.context() as patch:
        patch.setattr(Broker, "_turn", lambda self: 1 / 0)
        wait_for(lambda: "failed; it goes on" in caplog.text, "the thread to fail")
    peer.send_multipart([HELLO, hello(relay, relay="other")])
    assert answer(peer)[0] == REFUSED


def test_programs_with_the_same_address_and_keys_share_it(tmp_path):
    listener = ProxyListener(f"ipc://{tmp_path}/socket")
    first, second = ProxyRelay(listener, tmp_path), ProxyRelay(listener, tmp_path)
    first.close()
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.setsockopt(zmq.LINGER, 0)
        peer.connect(listener.listen)
        peer.send_multipart([HELLO, hello(second, socket="../7.0")])
        assert "no name of a socket" in answer(peer)[1].decode()
    second.close()
    second.close()
