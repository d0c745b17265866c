"""Asynchronous requests of the first protocol: callbacks, results, threads, endings."""

import gc
import os
import queue
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pytriton.compat.tensorrtserver.api import InferenceServerException, InferRequestHeader, ProtocolType
from pytriton.exceptions import PyTritonRequestError
from pytriton.model_config import SequenceBatcher, Tensor
from tests.server.arrays import filled
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.tensorrtserver_contexts import KINDS, RAW, Contexts
from tests.server.tensorrtserver_models import IDLE_US, Accumulator

pytestmark = pytest.mark.either_proxy

X = filled(2)[0]
FORKING = """
import os
import sys
import numpy as np
from pytriton.compat.tensorrtserver.api import *

url, protocol, model, streaming = sys.argv[1:]
context = InferContext(url, ProtocolType.from_str(protocol), model, streaming=bool(streaming))

def infer(value):
    x = np.full(4, value, np.float32)
    return context.run({"x": [x]}, {"y": InferContext.ResultFormat.RAW})["y"][0].tolist()

print(infer(1), flush=True)
child = os.fork()
if not child:
    print(infer(2), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(infer(3))
"""
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


def test_the_forms_of_releases_1_4_to_1_7_run(contexts, choosy):
    context, done = contexts.infer(choosy), Done()
    inputs, outputs = {"x": [X, X]}, {"y": RAW}
    for number in (
        context.async_run(inputs, outputs, 2),
        context.async_run(inputs, outputs=outputs, batch_size=2),
        context.async_run(inputs=inputs, outputs=outputs, batch_size=2),
        context.async_run(None, inputs, outputs, 2),
    ):
        assert len(context.get_async_run_results(number, True)["y"]) == 2
    assert context.async_run_with_cb(done, inputs, outputs, 2) is None
    found, number = done.next()
    assert (found, len(found.get_async_run_results(number, False)["y"])) == (context, 2)


def test_results_can_be_taken_in_another_thread_once(contexts, choosy):
    context, done = contexts.infer(choosy), Done()
    for number in range(1, 51):
        start(context, number, done)
    ended = [done.next() for _ in range(50)]
    assert {found for found, _ in ended} == {context}
    numbers = [number for _, number in ended]
    with ThreadPoolExecutor(4) as pool:
        taken = zip(numbers, pool.map(context.get_async_run_results, numbers), strict=True)
    first = min(numbers)
    assert {number - first: results["y"][0].tolist() for number, results in taken} == {
        number: (X * (number + 1) * 2).tolist() for number in range(50)
    }
    for number in (numbers[0], numbers[-1], max(numbers) + 1):
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
    first, second, third = sorted(done.next()[1] for _ in range(3))
    assert context.get_async_run_results(first)["y"][0].tolist() == (X * 2).tolist()
    assert (context.get_last_request_id(), context.get_last_request_model_name()) == (first, choosy)
    with pytest.raises(InferenceServerException, match="too small") as raised:
        context.get_async_run_results(second)
    assert raised.value.request_id() == second
    assert context.get_last_request_id() is None
    assert context.get_async_run_results(third)["y"][0].tolist() == (X * 4).tolist()
    assert context.get_last_request_id() == third


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
    (number,) = context._pending  # programs learn it from the callback alone
    assert context.get_async_run_results(number, False) is None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(context.get_async_run_results, number)
        gated.gate.open()
        assert waiting.result(DEADLINE_S)["y"][0].tolist() == (X * 2).tolist()


@pytest.fixture(scope="module")
def one_slot(bind):
    """Sums the values of each sequence, of which one is open at a time."""
    batcher = SequenceBatcher(max_sequence_idle_microseconds=IDLE_US)
    tensors = [Tensor((1,), np.int32, "INPUT")], [Tensor((1,), np.int32, "OUTPUT")]
    return bind(Accumulator(), *tensors, batcher=batcher, max_batch_size=1)


def test_requests_of_a_stream_do_not_wait_for_each_others_answers(triton_config, one_slot):
    sequences, values, done = (5, 6, 2**64 - 1), (1, 20, 300), Done()
    with Contexts(triton_config, "stream") as contexts:
        context = contexts.infer(one_slot)
        start, end = InferRequestHeader.FLAG_SEQUENCE_START, InferRequestHeader.FLAG_SEQUENCE_END
        for value, flags in zip(values, (start, 0, end), strict=True):
            for sequence in sequences:
                given = np.array([value + sequence % 10], np.int32)
                context.async_run(done, {"INPUT": [given]}, {"OUTPUT": RAW}, 1, flags, sequence)
        numbers = [done.next()[1] for _ in range(9)]
        assert numbers == sorted(numbers)
        sums = [int(context.get_async_run_results(number)["OUTPUT"][0][0]) for number in numbers]
    assert [sums[first::3] for first in range(3)] == [[6, 31, 336], [7, 33, 339], [6, 31, 336]]


def test_requests_of_a_sequence_keep_their_order(contexts, one_slot):
    """More of them than a context has threads, and two sequences of which the model takes one at a time."""
    start, end = InferRequestHeader.FLAG_SEQUENCE_START, InferRequestHeader.FLAG_SEQUENCE_END
    context, done, sequences = contexts.infer(one_slot), Done(), {}
    for step in range(20):
        flags = start * (step == 0) | end * (step == 19)
        for sequence in (5, 6):
            context.async_run(
                lambda *ended, sequence=sequence: done(sequence, ended[1]),
                {"INPUT": [np.array([step + sequence], np.int32)]},
                {"OUTPUT": RAW},
                1,
                flags,
                sequence,
            )
    for _ in range(40):
        sequence, number = done.next()
        sums = sequences.setdefault(sequence, [])
        sums.append(int(context.get_async_run_results(number)["OUTPUT"][0][0]))
    assert sequences == {n: np.cumsum(np.arange(20) + n).tolist() for n in (5, 6)}


@pytest.mark.parametrize("error", [RuntimeError("broken"), SystemExit(1)])
def test_a_callback_that_raises_does_not_stop_others(contexts, choosy, error, caplog):
    context, done = contexts.infer(choosy), Done()

    def fail(context, number):
        raise error

    start(context, 1, fail)
    start(context, 1, done)
    context.get_async_run_results(done.next()[1])
    wait_for(lambda: caplog.records, "the failure to be logged")
    assert [record.exc_info[1] for record in caplog.records] == [error]


def test_a_synchronous_request_of_a_stream_waits_for_its_own_answer(triton_config, choosy):
    with Contexts(triton_config, "stream") as contexts:
        context, done = contexts.infer(choosy), Done()
        for value in range(5):
            start(context, value, done)
            other = X * (value + 7)
            assert context.run({"x": [other]}, {"y": RAW})["y"][0].tolist() == (other * 2).tolist()
        results = [context.get_async_run_results(done.next()[1])["y"][0].tolist() for _ in range(5)]
        assert results == [(X * value * 2).tolist() for value in range(5)]


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


def test_what_is_known_of_the_last_request_is_known_after_closing(contexts, choosy):
    context = contexts.infer(choosy, correlation_id=7)
    context.run({"x": [X]}, {"y": RAW})
    number = context.get_last_request_id()
    context.close()
    assert (context.get_last_request_id(), context.correlation_id()) == (number, 7)
    assert (context.get_last_request_model_name(), context.get_last_request_model_version()) == (choosy, 1)


def test_a_forgotten_context_gives_its_threads_back(contexts, choosy):
    before = set(threading.enumerate())
    context, done = contexts.infer(choosy), Done()
    start(context, 1, done)
    done.next()
    assert set(threading.enumerate()) - before
    contexts.forget()
    del context
    gc.collect()
    wait_for(lambda: set(threading.enumerate()) <= before, "the threads to end")


def run_program(program, contexts, model):
    """What a program prints."""
    address, protocol = contexts.server
    streaming = "yes" if contexts.kind == "stream" else ""
    command = [sys.executable, "-W", "error", "-c", program, address, ProtocolType(protocol).name, model, streaming]
    quiet = {**os.environ, "GRPC_VERBOSITY": "ERROR"}  # else it tells of each fork
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=quiet)
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout.splitlines()


def test_a_forked_child_has_a_connection_of_its_own(contexts, choosy):
    printed = run_program(FORKING, contexts, choosy)
    assert printed == [str(np.full(4, 2.0 * value).tolist()) for value in (1, 2, 3)]


def test_a_program_that_never_closes_ends(contexts, choosy):
    assert run_program(FORGETFUL, contexts, choosy) == [str(np.full(4, 2.0).tolist())]
