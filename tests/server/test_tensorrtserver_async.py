"""Asynchronous requests of the first protocol: callbacks, results, threads, endings."""

import gc
import queue
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pytriton.compat.tensorrtserver.api import InferenceServerException, ProtocolType
from pytriton.exceptions import PyTritonRequestError
from tests.server.arrays import filled
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.tensorrtserver_contexts import KINDS, RAW, Contexts

pytestmark = pytest.mark.either_proxy

X = filled(2)[0]
FORGETFUL = """
import sys
import numpy as np
from pytriton.compat.tensorrtserver.api import *

url, protocol, model, streaming = sys.argv[1:]
context = InferContext(url, ProtocolType.from_str(protocol), model, streaming=bool(streaming))
x = np.ones(4, np.float32)
context.async_run(lambda context, number: None, {"x": [x]}, {"y": InferContext.ResultFormat.RAW})
print(context.run({"x": [x]}, {"y": InferContext.ResultFormat.RAW})["y"][0].tolist())
"""


@pytest.fixture(params=KINDS)
def contexts(triton_config, request):
    with Contexts(triton_config, request.param) as contexts:
        yield contexts


@pytest.fixture(scope="module")
def choosy(bind):
    """Doubles; fails for values below 0."""

    def infer(requests):
        if any(request["x"].min() < 0 for request in requests):
            raise PyTritonRequestError("too small", code="INVALID_ARG")
        return [{"y": request["x"] * 2} for request in requests]

    return bind(infer, max_batch_size=4, isolate_errors=True)


class Done(queue.Queue):
    """A callback that keeps what it gets."""

    def __call__(self, context, number):
        self.put((context, number))

    def next(self):
        return self.get(timeout=DEADLINE_S)


def start(context, value, callback):
    context.async_run(callback, {"x": [X * value]}, {"y": RAW})


def test_results_can_be_taken_in_another_thread_once(contexts, choosy):
    context, done = contexts.infer(choosy), Done()
    for number in range(1, 51):
        start(context, number, done)
    ended = [done.next() for _ in range(50)]
    assert {found for found, _ in ended} == {context}
    numbers = [number for _, number in ended]
    with ThreadPoolExecutor(4) as pool:
        taken = zip(numbers, pool.map(context.get_async_run_results, numbers), strict=True)
    assert {number: results["y"][0].tolist() for number, results in taken} == {
        number: (X * number * 2).tolist() for number in range(1, 51)
    }
    for number in (1, 50, 51):
        with pytest.raises(InferenceServerException, match=f"no request {number}, or its results have been taken"):
            context.get_async_run_results(number)
    assert context.get_stat()["completed_request_count"] == 50


def test_several_threads_make_requests_of_one_context(contexts, choosy):
    context = contexts.infer(choosy)

    def values_of(thread):
        done = Done()
        for step in range(10):
            start(context, 100 * thread + step, done)
        return sorted(context.get_async_run_results(done.next()[1])["y"][0][0] for _ in range(10))

    with ThreadPoolExecutor(5) as pool:
        found = list(pool.map(values_of, range(5)))
    assert found == [[4.0 * (100 * thread + step) for step in range(10)] for thread in range(5)]


def test_a_failed_request_is_called_back_too_and_raises_when_it_is_fetched(contexts, choosy):
    context, done = contexts.infer(choosy), Done()
    for value in (1, -1, 2):
        start(context, value, done)
    assert sorted(done.next()[1] for _ in range(3)) == [1, 2, 3]
    assert context.get_async_run_results(1)["y"][0].tolist() == (X * 2).tolist()
    assert (context.get_last_request_id(), context.get_last_request_model_name()) == (1, choosy)
    with pytest.raises(InferenceServerException, match="too small") as raised:
        context.get_async_run_results(2)
    assert raised.value.request_id() == 2
    assert context.get_last_request_id() is None
    assert context.get_async_run_results(3)["y"][0].tolist() == (X * 4).tolist()
    assert context.get_last_request_id() == 3


def test_what_does_not_fit_is_refused_at_once_and_not_called_back(contexts, choosy):
    context, done = contexts.infer(choosy), Done()
    with pytest.raises(InferenceServerException, match="must be a list of arrays"):
        context.async_run(done, {"x": X}, {"y": RAW})
    start(context, 1, done)
    context.get_async_run_results(done.next()[1])
    assert done.empty()


def test_results_are_waited_for_and_arrays_may_change_meanwhile(contexts, gated):
    context, done = contexts.infer(gated.model), Done()
    given = X.copy()
    context.async_run(done, {"x": [given]}, {"y": RAW})
    given[:] = 0
    gated.wait_called()
    assert done.empty()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(context.get_async_run_results, 1)
        gated.gate.open()
        assert waiting.result(DEADLINE_S)["y"][0].tolist() == (X * 2).tolist()


def test_callbacks_run_one_after_the_other_and_may_infer(contexts, choosy):
    context, done, threads = contexts.infer(choosy), Done(), set()

    def again(context, number):
        threads.add(threading.current_thread())
        value = context.get_async_run_results(number)["y"][0][0]
        done.put(context.run({"x": [X * value]}, {"y": RAW})["y"][0][0])

    for value in range(1, 21):
        start(context, value, again)
    assert sorted(done.next() for _ in range(20)) == [X[0] ** 2 * 4 * value for value in range(1, 21)]
    assert len(threads) == 1
    assert threading.current_thread() not in threads


def test_closing_waits_for_requests_and_their_callbacks(contexts, gated):
    context, results = contexts.infer(gated.model), []

    def fetch(context, number):
        results.append(context.get_async_run_results(number)["y"][0].tolist())

    for _ in range(3):
        start(context, 1, fetch)
    gated.wait_called()
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(context.close)
        assert not closing.done()
        gated.gate.open()
        closing.result(DEADLINE_S)
    assert results == [(X * 2).tolist()] * 3


def test_a_callback_may_close_its_context(contexts, choosy):
    context, done = contexts.infer(choosy), Done()

    def close(context, number):
        context.close()
        done(context, number)

    start(context, 1, close)
    done.next()
    with pytest.raises(InferenceServerException, match="closed"):
        start(context, 1, done)


@pytest.mark.parametrize(
    "call",
    [
        lambda context: context.run({"x": [X]}, {"y": RAW}),
        lambda context: context.async_run(print, {"x": [X]}, {"y": RAW}),
        lambda context: context.get_async_run_results(1),
        lambda context: context.get_last_request_id(),
        lambda context: context.get_last_request_model_name(),
        lambda context: context.get_last_request_model_version(),
        lambda context: context.correlation_id(),
        lambda context: context.get_stat(),
    ],
)
def test_a_closed_context_says_so(triton_config, choosy, call):
    with Contexts(triton_config, "http") as contexts:
        context = contexts.infer(choosy)
        context.run({"x": [X]}, {"y": RAW})
        for _ in range(2):
            context.close()
            with pytest.raises(InferenceServerException, match="this InferContext is closed"):
                call(context)


def test_a_forgotten_context_gives_its_threads_back(contexts, choosy):
    before = threading.active_count()
    context, done = contexts.infer(choosy), Done()
    start(context, 1, done)
    done.next()
    assert threading.active_count() > before
    contexts.forget()
    del context
    gc.collect()
    wait_for(lambda: threading.active_count() <= before, "the threads to end")


def test_a_program_that_never_closes_ends(contexts, choosy):
    address, protocol = contexts.server
    streaming = "yes" if contexts.kind == "stream" else ""
    command = [sys.executable, "-W", "error", "-c", FORGETFUL, address, ProtocolType(protocol).name, choosy, streaming]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.stdout, done.stderr, done.returncode) == (f"{np.full(4, 2.0).tolist()}\n", "", 0)
