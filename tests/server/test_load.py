"""Many clients at once, each with payloads of its own: every answer is right and reaches the client that asked."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pytest
from connections import PROTOCOLS
from payloads import Workload

from pytriton.decorators import batch
from pytriton.model_config import Tensor

pytestmark = [pytest.mark.either_proxy, pytest.mark.thorough]

CLIENTS = 64
REQUESTS = {"http": 60, "grpc": 20}  # of each client: 5,120 for each model
COLUMNS = [16, 16, 16, 16, 16, 16, 16, 12_000]  # the last are 48 KB, which travel through the arena


@dataclass(frozen=True)
class Numbered(Workload):
    """A request that no other one equals: consecutive numbers from one of its own on.

    All are below 2**24 and distinct in float32, also when doubled.
    """

    model: str = ""
    start: int = 0

    def inputs(self, rows):
        return {"INPUT": np.arange(self.start, self.start + self.values, dtype=np.float32).reshape(1, -1)}


def count_right(protocol, client, port, model):
    """The number of right answers over one connection; clients begin with the large request at different times."""
    workloads = [
        Numbered(COLUMNS[(client + number) % len(COLUMNS)], model=model, start=client * 100_000 + number * 100)
        for number in range(REQUESTS[protocol])
    ]
    kind, encode, decode = PROTOCOLS[protocol]
    with closing(kind(port, [encode(port, workload, 1) for workload in workloads])) as connection:
        return sum(decode(*connection.fetch()) == workload.outputs(1) for workload in workloads)


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
    port = triton_config.http_port if protocol == "http" else triton_config.grpc_port
    with ThreadPoolExecutor(CLIENTS) as pool:
        right = list(pool.map(lambda client: count_right(protocol, client, port, model), range(CLIENTS)))
    assert right == [REQUESTS[protocol]] * CLIENTS
    assert sum(size * calls for size, calls in sizes.items()) == sum(right)
    assert max(sizes) > 1
