"""Models whose callables change while the server serves."""

import asyncio
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pytest

from pytriton.client import DecoupledModelClient, ModelClient
from pytriton.decorators import batch, triton_context
from pytriton.exceptions import PyTritonInvalidOperationError, PyTritonValidationError
from pytriton.model_config import ModelConfig, SequenceBatcher, Tensor
from tests.server.arrays import filled
from tests.server.conftest import LOCALHOST
from tests.server.gated import Gated
from tests.server.multipliers import IN, OUT, answer, answer_of_version, is_served, times
from tests.server.processes import DEADLINE_S, wait_for

pytestmark = pytest.mark.either_proxy

REQUESTS, CLIENTS, REQUESTS_PER_CALLABLE = 4_000, 6, 200


@pytest.fixture(scope="module")
def protocol():
    """One is enough to see models come and go; the load comes over both."""
    return "http"


def test_what_is_not_bound_is_refused_with_what_is(triton, bind):
    model = bind(times(2))
    for change in (triton.unbind, lambda name, *version: triton.rebind(name, times(3), *version)):
        with pytest.raises(PyTritonInvalidOperationError, match=f"'missing' is not bound; bound .*'{model}'"):
            change("missing")
        with pytest.raises(PyTritonInvalidOperationError, match=f"version 9 of model '{model}' is not bound"):
            change(model, 9)


def test_a_model_of_several_versions_is_rebound_by_version_alone(triton, bind, url):
    model = bind(times(2))
    triton.bind(model, times(3), IN, OUT, model_version=2, config=ModelConfig())
    with pytest.raises(PyTritonInvalidOperationError, match="has 2 versions; say which with model_version"):
        triton.rebind(model, times(4))
    triton.rebind(model, times(4), model_version=1)
    assert [answer_of_version(url, model, version) for version in ("1", "2")] == [4, 3]


def test_no_request_fails_while_the_versions_that_are_served_change(triton, bind, url):
    model = bind(times(1))
    triton.bind(model, times(2), IN, OUT, model_version=2, config=ModelConfig())
    done, answered, seen = threading.Event(), [0], set()

    def call():
        with ModelClient(url, model) as client:
            while not done.is_set():
                seen.add(float(client.infer_batch(filled(1))["y"][0, 0]))
                answered[0] += 1

    with ThreadPoolExecutor(1) as pool:
        calls = pool.submit(call)
        try:
            for versions, highest in ([1], 1), (None, 2), ([1], 1), ([2], 2), ([1, 2], 2):
                triton.serve_versions(model, versions)
                assert answer_of_version(url, model, None) == highest
                before = answered[0]
                wait_for(lambda: answered[0] > before or calls.done(), "an answer")  # noqa: B023
                gone = {"1", "2"} - {str(version) for version in versions or (1, 2)}
                wait_for(lambda: not any(is_served(url, model, version) for version in gone), "others to go")  # noqa: B023
                assert triton.is_alive()
        finally:
            done.set()
        calls.result(DEADLINE_S)
    assert seen == {1, 2}


def test_versions_are_chosen_among_the_bound_ones_until_one_of_them_is_bound_or_unbound(triton, bind, url):
    model = bind(times(1))
    for versions, error in ([2], PyTritonInvalidOperationError), ([], ValueError):
        with pytest.raises(error):
            triton.serve_versions(model, versions)
    triton.bind(model, times(2), IN, OUT, model_version=2, config=ModelConfig())
    triton.serve_versions(model, [1])
    triton.bind(model, times(3), IN, OUT, model_version=3, config=ModelConfig())
    assert [answer_of_version(url, model, version) for version in ("1", "2", None)] == [1, 2, 3]
    triton.serve_versions(model, [1])
    triton.unbind(model, 1)
    assert [answer_of_version(url, model, version) for version in ("2", None)] == [2, 3]


@pytest.mark.parametrize("given", [[times(3)], [times(3)] * 3])
def test_a_model_takes_as_many_callables_as_it_has_instances(triton, bind, traffic, given):
    model = bind([times(2)] * 2)
    with pytest.raises(PyTritonValidationError, match=r"has 2 instances, and got \d callables; give one for each"):
        triton.rebind(model, given)
    assert answer(traffic, model) == 2
    triton.rebind(model, [times(7)] * 2)
    assert {answer(traffic, model) for _ in range(4)} == {7}


def test_a_callable_of_another_kind_and_none_at_all_are_refused(triton, bind, traffic):
    async def infer(requests):
        return [{"y": request["x"]} for request in requests]

    model = bind(times(2))
    with pytest.raises(PyTritonValidationError, match="was a plain function, and the new one is async"):
        triton.rebind(model, infer)
    with pytest.raises(PyTritonValidationError, match="give a callable"):
        triton.rebind(model, "infer")
    assert answer(traffic, model) == 2


def test_no_request_fails_while_callables_change_under_load(triton, triton_config, bind):
    outputs = [Tensor(name=name, shape=(-1,), dtype=np.float32) for name in ("y", "z")]

    def tell(number):
        return batch(lambda x: {"y": np.full_like(x, number), "z": np.full_like(x, number)})

    model = bind(tell(0), outputs=outputs, max_batch_size=8)
    answered, bound, last = count(), 0, 0

    def call(url):
        nonlocal last
        seen = set()
        with ModelClient(url, model) as client:
            while (number := next(answered)) < REQUESTS:
                before = bound
                got = client.infer_batch(filled(0, rows=2))
                values = {float(value) for name in ("y", "z") for value in got[name].flat}
                assert len(values) == 1, "two callables answered one request"
                (value,) = values
                assert before <= value <= bound + 1, "a callable answered that was replaced"
                seen.add(value)
                last = number
        return seen

    ports = {"http": triton_config.http_port, "grpc": triton_config.grpc_port}
    urls = [f"{scheme}://{LOCALHOST}:{port}" for scheme, port in ports.items()] * (CLIENTS // 2)
    with ThreadPoolExecutor(CLIENTS) as pool:
        calls = [pool.submit(call, url) for url in urls]
        for number in range(1, REQUESTS // REQUESTS_PER_CALLABLE):
            wait_for(
                lambda: last >= number * REQUESTS_PER_CALLABLE or any(call.done() for call in calls),  # noqa: B023
                f"{number * REQUESTS_PER_CALLABLE} answers",
            )
            triton.rebind(model, tell(number))
            bound = number
        seen = set().union(*(call.result(DEADLINE_S) for call in calls))
    assert len(seen) > REQUESTS // REQUESTS_PER_CALLABLE // 2


def test_a_call_that_runs_goes_on_with_the_configuration_of_its_model(triton, bind, traffic):
    gated = Gated()

    @batch
    @triton_context
    def slow(x, triton_context):
        gated([{"x": x}])
        assert triton_context.model_configs[slow].model_name == first
        return [x * 2]  # its name comes from the configuration

    def named(name):
        return [Tensor(name=name, shape=(-1,), dtype=np.float32)]

    first = bind(slow, outputs=named("a"))
    bind(slow, outputs=named("b"))
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(traffic.infer, first, filled(1))
        gated.wait_called()
        triton.rebind(first, times(5))
        gated.gate.open()
        assert made.result(DEADLINE_S)["a"][0, 0] == 2
    assert traffic.infer(first, filled(1))["a"][0, 0] == 5


def test_a_new_callable_knows_its_model(triton, bind, traffic):
    seen = []

    @batch
    @triton_context
    def infer(x, triton_context):
        seen.append(triton_context.model_configs[infer].model_name)
        return [x * 3]

    model = bind(times(2))
    triton.rebind(model, infer)
    assert answer(traffic, model) == 3
    assert seen == [model]


def test_a_callable_may_lose_its_decorators(triton, bind, traffic):
    model = bind(times(2))
    triton.rebind(model, lambda requests: [{"y": request["x"] * 3} for request in requests])
    assert answer(traffic, model) == 3
    triton.rebind(model, times(4))
    assert answer(traffic, model) == 4


def test_a_callable_may_replace_itself(triton, bind, traffic):
    def infer(requests):
        triton.rebind(model, times(3))
        return [{"y": request["x"] * 2} for request in requests]

    model = bind(infer)
    assert [answer(traffic, model) for _ in range(2)] == [2, 3]


@pytest.mark.parametrize("is_async", [False, True])
def test_callables_that_were_replaced_or_unbound_are_let_go(triton, bind, traffic, is_async):
    class Large:
        def __call__(self, requests):
            return [{"y": request["x"] * 2} for request in requests]

    class LargeAsync:
        async def __call__(self, requests):
            return [{"y": request["x"] * 2} for request in requests]

    make = LargeAsync if is_async else Large
    first, second, third = make(), make(), make()
    gone = [weakref.ref(large) for large in (first, second, third)]
    model = bind(first)
    answer(traffic, model)
    triton.rebind(model, second)
    answer(traffic, model)
    triton.rebind(model, third)
    answer(traffic, model)
    del first, second
    gc.collect()
    assert [large() for large in gone[:2]] == [None, None]
    triton.unbind(model)
    del third
    wait_for(lambda: gc.collect() is not None and gone[2]() is None, "the last callable to be let go")


def test_an_async_callable_ends_its_calls_while_the_next_one_answers(triton, bind, traffic):
    entered, go = threading.Event(), threading.Event()

    @batch
    async def slow(x):
        entered.set()
        while not go.is_set():
            await asyncio.sleep(0.01)
        return [x * 2]

    @batch
    async def quick(x):
        return [x * 3]

    model = bind(slow)
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(answer, traffic, model)
        assert entered.wait(DEADLINE_S)
        triton.rebind(model, quick)
        assert answer(traffic, model) == 3
        go.set()
        assert made.result(DEADLINE_S) == 2


def test_a_stream_that_has_begun_ends_as_it_began(triton, bind, grpc_url):
    def counting(number):
        @batch
        def tell(x):
            for _ in range(3):
                yield [x * number]

        return tell

    model = bind(counting(2), decoupled=True)
    bind(counting(2), outputs=[Tensor(name="other", shape=(-1,), dtype=np.float32)], decoupled=True)
    go = threading.Event()

    @batch
    def waiting(x):
        for _ in range(3):
            yield [x * 7]
            assert go.wait(DEADLINE_S)

    triton.rebind(model, waiting)
    with DecoupledModelClient(grpc_url, model) as client, DecoupledModelClient(grpc_url, model) as other:
        begun = client.infer_batch(filled(1))
        first = next(begun)["y"][0, 0]
        triton.rebind(model, counting(3))
        go.set()
        assert [response["y"][0, 0] for response in other.infer_batch(filled(1))] == [3, 3, 3]
        assert [first, *(response["y"][0, 0] for response in begun)] == [7, 7, 7]


def test_a_sequence_goes_on_with_the_state_that_callables_share(triton, bind, traffic):
    sums = {}

    def adding(factor):
        def infer(requests):
            responses = []
            for request in requests:
                if request.sequence_start:
                    sums[request.correlation_id] = np.zeros_like(request["x"])
                sums[request.correlation_id] += request["x"] * factor
                responses.append({"y": sums[request.correlation_id]})
            return responses

        return infer

    model = bind(adding(1), batcher=SequenceBatcher())
    got = []
    for value, start, end in ((1, True, False), (2, False, False), (3, False, True)):
        if end:
            triton.rebind(model, adding(100))
        options = {"sequence_id": 5, "sequence_start": start, "sequence_end": end}
        got.append(float(traffic.infer_bare(model, {"x": filled(value)}, **options)["y"][0, 0]))
    assert got == [1, 3, 303]


def test_a_bind_that_replaces_serves_the_new_model_under_the_name(triton, bind, url):
    model = bind([times(2)] * 2, max_batch_size=4)
    outputs = [Tensor(name="z", shape=(-1,), dtype=np.float32)]
    triton.bind(model, batch(lambda x: {"z": x * 5}), IN, outputs, config=ModelConfig(max_batch_size=9), replace=True)
    with ModelClient(url, model) as client:
        assert client.model_config.max_batch_size == 9
        assert client.infer_batch(filled(1))["z"].tolist() == [[5.0] * 4]


def test_a_bind_that_replaces_one_version_leaves_the_others(triton, bind, url):
    model = bind(times(2))
    triton.bind(model, times(3), IN, OUT, model_version=2)
    triton.bind(model, times(4), IN, OUT, model_version=2, replace=True)
    assert [answer_of_version(url, model, version) for version in ("1", "2")] == [2, 4]
