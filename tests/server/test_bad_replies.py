"""Replies that make no sense: they fail their batch, and never the server."""

import random

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientError
from pytriton.decorators import batch
from pytriton.model_config import Tensor
from pytriton.wire import channel
from pytriton.wire.frames import ASK, RELEASE, REQUEST
from tests.server.processes import wait_for
from tests.server.proxies import IS_NATIVE

ROUNDS = 150 if IS_NATIVE else 20  # the Python proxy takes longer to connect anew
KIND = 4  # its place in a frame
NUMBERS = [0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**62, 2**63 - 1, 2**64 - 1]


@pytest.fixture(scope="module")
def protocol():
    """One is enough: what comes from workers is read before it is written for a client."""
    return "http"


@batch
def both(x, s):
    return [x * 2, s]


async def both_async(requests):
    return [{"y": request["x"] * 2, "t": request["s"]} for request in requests]


def damaged(message, chance):
    """The message with some bytes changed; it keeps its length, and stays a reply."""
    message = bytearray(message)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(KIND, len(message))
        width = chance.choice([1, 2, 4, 8])
        number = chance.choice([*NUMBERS, chance.getrandbits(64)])
        piece = number.to_bytes(8, "little")[:width][: len(message) - at]
        message[at : at + len(piece)] = piece
    if message[KIND] in (ASK, RELEASE):  # after which the proxy would wait on
        message[KIND] = REQUEST
    return bytes(message)


@pytest.mark.parametrize("columns", [3, 20_000], ids=["within the frame", "in the arena"])
@pytest.mark.parametrize("function", [both, both_async], ids=["turns", "streams"])
def test_a_damaged_reply_fails_its_batch_alone(bind, triton, url, monkeypatch, function, columns):
    inputs = [Tensor(name="x", shape=(-1,), dtype=np.float32), Tensor(name="s", shape=(-1,), dtype=bytes)]
    outputs = [Tensor(name="y", shape=(-1,), dtype=np.float32), Tensor(name="t", shape=(-1,), dtype=bytes)]
    model = bind(function, inputs, outputs)
    x, s = np.ones((2, columns), np.float32), np.array([[b"a", b"bc", b""]] * 2, object)
    chance, pack, failed = random.Random(columns), channel.pack, 0
    with ModelClient(url, model) as client:

        def is_right():
            try:
                answer = client.infer_batch(x, s)
            except PyTritonClientError:
                return False
            if answer.keys() != {"y", "t"}:  # a reply may leave outputs out
                return False
            return np.array_equal(answer["y"], x * 2) and np.array_equal(answer["t"], s)

        assert is_right()
        monkeypatch.setattr(channel, "pack", lambda *arguments: damaged(pack(*arguments), chance))
        for _ in range(ROUNDS):
            failed += not is_right()
        monkeypatch.undo()
        assert failed > ROUNDS / 10
        wait_for(is_right, "right answers to be given again")
    assert triton.is_alive()
