"""A callable that keeps its inputs: they never change, and their memory is used again once they are dropped."""

import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.decorators import batch
from pytriton.model_config import Tensor
from tests.server.arrays import filled

SMALL, LARGE = 4, 50_000


class Keeper:
    """Keeps its inputs, and where they lay in memory."""

    def __init__(self):
        self.kept = []
        self.addresses = []

    def keep(self, x):
        self.kept.append(x)
        self.addresses.append(x.__array_interface__["data"][0])
        return x + 1

    def requests(self, requests):
        return [{"y": self.keep(request["x"])} for request in requests]

    @batch
    def batch(self, x):
        return [self.keep(x)]


@pytest.fixture(params=["requests", "batch"])
def keeper(bind, request):
    keeper = Keeper()
    keeper.model = bind(getattr(keeper, request.param))
    return keeper


@pytest.fixture
def infer(keeper, traffic):
    with ModelClient(traffic.url, keeper.model) as client:
        yield lambda number, columns: client.infer_batch(filled(number, 1, columns))["y"]


def test_kept_inputs_never_change(keeper, infer):
    sizes = [SMALL, LARGE, 3 * LARGE, SMALL, LARGE // 4]
    numbers = range(60)
    for number in numbers:
        columns = sizes[number % len(sizes)]
        assert np.array_equal(infer(number, columns), filled(number + 1, 1, columns))
    for number, x in zip(numbers, keeper.kept, strict=True):
        assert np.array_equal(x, filled(number, 1, sizes[number % len(sizes)]))
    assert len(set(keeper.addresses)) == len(numbers)


def test_memory_of_large_inputs_is_used_again_once_nothing_refers_to_them(keeper, infer):
    for number in range(10):
        infer(number, LARGE)
    while_kept = set(keeper.addresses)
    keeper.kept.clear()
    keeper.addresses.clear()
    for number in range(10):
        infer(number, LARGE)
        keeper.kept.clear()
    assert len(while_kept) == 10
    # The news that a region is free travels with the next answer, so the first call alone finds none.
    assert set(keeper.addresses[1:]) <= while_kept
    assert min(while_kept) in keeper.addresses
    assert len(set(keeper.addresses[1:])) <= 2


def test_a_view_or_a_part_keeps_the_memory_of_its_input(keeper, infer):
    infer(1, LARGE)
    part = keeper.kept.pop()[:, 10:20].reshape(-1)[::2]
    keeper.kept.clear()
    for number in range(2, 12):
        infer(number, LARGE)
        keeper.kept.clear()
    assert part.tolist() == [1] * 5


def test_without_keeping_two_regions_serve_any_number_of_calls(bind, traffic):
    addresses = set()

    @batch
    def echo(x):
        addresses.add(x.__array_interface__["data"][0])
        return [x]

    with ModelClient(traffic.url, bind(echo)) as client:
        for number in range(20):
            assert np.array_equal(client.infer_batch(filled(number, 1, LARGE))["y"], filled(number, 1, LARGE))
    assert len(addresses) <= 2


def test_kept_inputs_outlive_the_connection_that_brought_them(keeper, infer, traffic, triton_config):
    infer(7, LARGE)
    infer(8, SMALL)
    with ModelClient(f"http://127.0.0.1:{triton_config.http_port}", keeper.model) as client:
        client.model_config  # noqa: B018 (waits for the model)
        client.unload_model()
        client.load_model()
        client.wait_for_model(30)
    infer(9, LARGE)
    assert [x[0, -1] for x in keeper.kept] == [7, 8, 9]
    assert [np.ptp(x) for x in keeper.kept] == [0, 0, 0]


def test_outputs_may_be_arrays_that_the_callable_goes_on_using(bind, traffic):
    """An answer is laid out before the callable is called again, so later changes do not reach it."""
    total = filled(0, 1, LARGE)

    @batch
    def accumulate(x):
        nonlocal total
        total += x
        return [total]

    with ModelClient(traffic.url, bind(accumulate)) as client:
        answers = [client.infer_batch(filled(1, 1, LARGE))["y"] for _ in range(5)]
    assert [(answer.min(), answer.max()) for answer in answers] == [(n, n) for n in range(1, 6)]


def arenas():
    """Memory in the arenas of all connections that this process has, in bytes by the file."""
    found = {}
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if "pytriton-arena" in os.readlink(descriptor):
                status = os.stat(descriptor)
                found[status.st_ino] = status.st_blocks * 512
    return found


@pytest.mark.parametrize("form", ["plain", "async"])
def test_memory_of_one_large_request_and_answer_is_given_back_after_small_ones(bind, traffic, form):
    @batch
    def plain(x):
        return [x]

    @batch
    async def coroutine(x):
        return [x]

    others = arenas()  # of models that were there before, which may give memory back meanwhile

    def arena_bytes():
        return sum(size for file, size in arenas().items() if file not in others)

    tensors = [[Tensor(name=name, shape=(-1,), dtype=np.uint8)] for name in "xy"]
    with ModelClient(traffic.url, bind(plain if form == "plain" else coroutine, *tensors)) as client:
        client.infer_batch(np.zeros((1, 64 << 20), np.uint8))
        assert arena_bytes() >= 128 << 20
        for _ in range(200):
            client.infer_batch(np.zeros((1, 4), np.uint8))
        assert arena_bytes() <= 2 << 20
