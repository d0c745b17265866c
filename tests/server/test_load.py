"""Many clients at once, each with payloads of its own: every answer is right and reaches the client that asked."""

import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import grpc
import numpy as np
import pytest
import wire

from pytriton.decorators import batch
from pytriton.model_config import Tensor

CLIENTS = 64
REQUESTS = {"http": 120, "grpc": 40}  # of each client: 10,240 for each model
COLUMNS = [16, 16, 16, 16, 16, 16, 16, 12_000]  # the last are 48 KB, which travel through the arena
LARGEST_ANSWER_BYTES = 64 * 1024


class Numbered(wire.Target):
    """A request that no other one equals: consecutive numbers from one of its own on.

    All are below 2**24 and distinct in float32, also when doubled.
    """

    client = number = 0

    @property
    def values(self):
        start = self.client * 100_000 + self.number * 100
        return np.arange(start, start + self.floats, dtype=np.float32).reshape(1, -1)


def requests_of(client, protocol, port, model):
    """What a client sends, in its order; clients begin with the large one at different times."""
    for number in range(REQUESTS[protocol]):
        target = Numbered(port, model, COLUMNS[(client + number) % len(COLUMNS)])
        object.__setattr__(target, "client", client)
        object.__setattr__(target, "number", number)
        yield target


def run_http(client, port, model):
    """Number of right answers over one keep-alive connection."""
    right = 0
    with socket.create_connection((wire.HOST, port), timeout=wire.TIMEOUT_S) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for target in requests_of(client, "http", port, model):
            connection = wire.Connection(stream, wire.http_request(target), LARGEST_ANSWER_BYTES)
            connection.exchange()
            right += np.array_equal(connection.output(), target.values[0] * 2)
    return right


def run_grpc(client, port, model):
    """Number of right answers over one channel."""
    right = 0
    options = [("grpc.use_local_subchannel_pool", 1)]
    with closing(grpc.insecure_channel(f"{wire.HOST}:{port}", options)) as channel:
        call = channel.unary_unary(wire.GRPC_PATH)
        for target in requests_of(client, "grpc", port, model):
            output = wire.grpc_output(call(wire.grpc_request(target), timeout=wire.TIMEOUT_S))
            right += np.array_equal(output, target.values[0] * 2)
    return right


@pytest.mark.parametrize("form", ["requests", "batch"])
def test_64_clients_get_the_answers_to_their_own_requests(bind, triton_config, protocol, form):
    sizes = Counter()

    def double(requests):
        sizes[len(requests)] += 1
        return [{"OUTPUT": request["INPUT"] * 2} for request in requests]

    @batch
    def double_batch(INPUT):
        sizes[len(INPUT)] += 1
        return [INPUT * 2]

    tensor = {"shape": (-1,), "dtype": np.float32}
    model = bind(
        double if form == "requests" else double_batch,
        [Tensor(name="INPUT", **tensor)],
        [Tensor(name="OUTPUT", **tensor)],
        max_batch_size=32,
    )
    run, port = (run_http, triton_config.http_port) if protocol == "http" else (run_grpc, triton_config.grpc_port)
    with ThreadPoolExecutor(CLIENTS) as pool:
        right = list(pool.map(lambda client: run(client, port, model), range(CLIENTS)))
    assert right == [REQUESTS[protocol]] * CLIENTS
    assert sum(size * calls for size, calls in sizes.items()) == sum(right)
    assert max(sizes) > 1
