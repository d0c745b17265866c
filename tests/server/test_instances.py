"""Several callables for one model run at the same time; one runs once at a time."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from pytriton.decorators import batch, triton_context
from tests.server.arrays import filled
from tests.server.processes import DEADLINE_S


def in_parallel(calls):
    """Results of calls that are all made before any result is awaited."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [call.result() for call in [pool.submit(call) for call in calls]]


def meeting(barrier, threads):
    """A callable that returns when as many as the barrier wants run at once."""

    @batch
    def infer(x):
        barrier.wait(DEADLINE_S)
        threads.add(threading.get_ident())
        return [x]

    return infer


@pytest.mark.parametrize("same", [False, True], ids=["each its own", "one twice"])
def test_instances_run_at_the_same_time_each_in_its_thread(bind, traffic, same):
    barrier, threads = threading.Barrier(3), set()
    functions = [meeting(barrier, threads)] * 3 if same else [meeting(barrier, threads) for _ in range(3)]
    model = bind(functions, max_batch_size=1)
    for _ in range(3):
        answers = in_parallel([partial(traffic.infer, model, filled(number)) for number in range(3)])
        assert [answer["y"][0, 0] for answer in answers] == [0, 1, 2]
    assert len(threads) == 3


def test_coroutines_of_several_instances_run_at_the_same_time(bind, traffic):
    barrier = threading.Barrier(2)

    async def infer(requests):
        barrier.wait(DEADLINE_S)
        return [{"y": request["x"]} for request in requests]

    model = bind([infer, infer], max_batch_size=1, max_batches_in_flight=1)
    in_parallel([partial(traffic.infer, model, filled(number)) for number in range(2)])


def test_one_callable_never_runs_twice_at_once(bind, traffic):
    running, overlaps, threads = threading.Lock(), [], set()

    def infer(requests):
        if not running.acquire(blocking=False):
            overlaps.append(True)
            return [{"y": request["x"]} for request in requests]
        threads.add(threading.get_ident())
        try:
            return [{"y": request["x"].copy()} for request in requests]
        finally:
            running.release()

    model = bind(infer, max_batch_size=1)
    in_parallel([partial(traffic.infer, model, filled(number)) for number in range(24)])
    assert not overlaps
    assert len(threads) == 1


class Adder:
    """An object whose methods and calls are bound."""

    def __init__(self, number):
        self.number = number

    @batch
    def add(self, x):
        return [x + self.number]

    @batch
    def __call__(self, x):
        return [x + self.number]


def test_methods_and_callable_objects_keep_their_objects(bind, traffic):
    barrier = threading.Barrier(2)

    class Meeting(Adder):
        @batch
        def __call__(self, x):
            barrier.wait(DEADLINE_S)
            return [x + self.number]

    assert traffic.infer(bind(Adder(1).add), filled(1))["y"][0, 0] == 2
    assert traffic.infer(bind(Adder(2)), filled(1))["y"][0, 0] == 3
    assert traffic.infer(bind(partial(Adder(3).add)), filled(1))["y"][0, 0] == 4
    model = bind([Meeting(10), Meeting(20)], max_batch_size=1)
    answers = in_parallel([partial(traffic.infer, model, filled(1))] * 2)
    assert sorted(answer["y"][0, 0] for answer in answers) == [11, 21]


def test_each_instance_finds_the_configuration_of_its_model(bind, traffic):
    barrier, names = threading.Barrier(2), []

    @batch
    @triton_context
    def infer(x, triton_context):
        barrier.wait(DEADLINE_S)
        names.append(triton_context.model_configs[infer].model_name)
        return [x]

    for model in (bind([infer, infer], max_batch_size=1), bind([infer, infer], max_batch_size=1)):
        names.clear()
        in_parallel([partial(traffic.infer, model, filled(1))] * 2)
        assert names == [model] * 2
