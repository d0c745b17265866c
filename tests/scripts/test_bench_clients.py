"""What the benchmark's client loads do with what they receive."""

import asyncio
import socket
import threading
from argparse import Namespace
from functools import partial
from types import SimpleNamespace

import clients
import numpy as np
import payloads
import pytest

pytestmark = pytest.mark.thorough

VALUES = np.array([[1, 2]], np.float32)


def received(*responses, first_ns=1_000, end_ns=6_000):
    return [*responses], first_ns, end_ns


def measure(streams, seconds=0):
    """Measure streams that are there already; a response is its array."""
    chosen = Namespace(count=3, seconds=seconds, warmup=0)
    return clients.measure_streams(iter(streams).__next__, np.asarray, VALUES, chosen)


class Client:
    """The stream of a client of tritonclient, whose answers to each request are given."""

    def __init__(self, *answers):
        self._answers = answers
        self.requests = []

    def start_stream(self, callback):
        self._callback = callback

    def async_stream_infer(self, model, inputs, enable_empty_final_response):
        self.requests.append((model, inputs, enable_empty_final_response))
        for result, error in self._answers:
            self._callback(result, error)


def answer(outputs=1, final=False):
    parameters = {"triton_final_response": SimpleNamespace(bool_param=final)}
    message = SimpleNamespace(outputs=["OUTPUT"] * outputs, parameters=parameters)
    return SimpleNamespace(get_response=lambda: message), None


def test_blocks_of_both_kinds_alternate_and_swap_places():
    def call(name):
        order.append(name)
        if len(order) == 2 + 8 * clients.BLOCK_CALLS:
            raise KeyboardInterrupt
        return 2 * VALUES

    order = []
    with pytest.raises(KeyboardInterrupt):
        clients.alternate({name: partial(call, name) for name in "ab"}, VALUES, 3600, 0)
    # The first two calls are checked, the first two blocks are the warm-up.
    blocks = [name for name in "abbaabba" for _ in range(clients.BLOCK_CALLS)]
    assert order == ["a", "b", *blocks]


def test_each_kind_gets_as_many_blocks_as_the_other():
    calls = {name: lambda: 2 * VALUES for name in "ab"}
    assert [each["answered"] for each in clients.alternate(calls, VALUES, 0, 0).values()] == [clients.BLOCK_CALLS] * 2


def test_calls_that_return_anything_but_the_double_are_refused():
    with pytest.raises(payloads.LoadError, match="wrong output"):
        clients.alternate({"a": lambda: VALUES}, VALUES, 0, 0)


def test_calls_that_fail_are_errors_and_have_no_latency():
    answers = iter([2 * VALUES, *[None, ValueError] * clients.BLOCK_CALLS, 2 * VALUES])

    def call():
        answer = next(answers)
        if answer is ValueError:
            raise answer
        return answer

    found = clients.alternate({"a": call}, VALUES, 0, 0)["a"]
    assert (found["errors"], found["answered"]) == (clients.BLOCK_CALLS, clients.BLOCK_CALLS // 2)


@pytest.mark.parametrize("output", [[[2, 5]], [2, 4], [[2, 4], [2, 4]]], ids=["value", "rank", "rows"])
def test_an_output_that_is_not_the_double_is_refused(output):
    clients.check_double([[2, 4]], VALUES)
    with pytest.raises(payloads.LoadError, match="wrong output"):
        clients.check_double(np.array(output, np.float32), VALUES)


def test_the_speed_of_streams_counts_from_request_to_end_without_the_warm_up():
    good = 2 * VALUES
    warm, cold = received(good, good, good, end_ns=10**12), received(good, good, good, first_ns=2_000, end_ns=6_000)
    result = measure([warm, cold])
    assert result["answered"] == 6
    assert result["responses/s"] == 500_000.0
    assert (result["first response p50 us"], result["first response p99 us"]) == (2.0, 2.0)


@pytest.mark.parametrize("count", [2, 4])
def test_a_stream_with_another_number_of_responses_is_refused(count):
    with pytest.raises(payloads.LoadError, match=f"{count} responses instead of 3"):
        measure([received(*[2 * VALUES] * count)])


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_each_response_of_the_last_stream_is_verified(wrong):
    responses = [2 * VALUES] * 3
    good = received(*responses)
    responses[wrong] = 3 * VALUES
    with pytest.raises(payloads.LoadError, match="wrong output"):
        measure([good, received(*responses)])


def test_an_open_stream_collects_the_responses_of_one_request_after_the_other():
    client = Client(answer(), answer(), answer(outputs=0, final=True))
    stream = clients.OpenStream(client, "m", ["input"])
    first, second = stream.receive(), stream.receive()
    assert [len(first[0]), len(second[0])] == [2, 2]
    assert 0 < first[1] <= first[2]
    assert client.requests == [("m", ["input"], True)] * 2


def test_a_final_response_that_has_outputs_counts():
    stream = clients.OpenStream(Client(answer(), answer(final=True)), "m", [])
    assert len(stream.receive()[0]) == 2


def test_a_stream_that_fails_says_why():
    stream = clients.OpenStream(Client(answer(), (None, ValueError("no more"))), "m", [])
    with pytest.raises(payloads.LoadError, match="failed after 1 responses: no more"):
        stream.receive()


def test_what_clients_leave_is_counted_after_those_that_come_first():
    sockets = []

    async def use():
        sockets.append(socket.socket())

    found = asyncio.run(clients.churn(use, 2, first=3, settle_s=0))
    for each in sockets:
        each.close()
    assert len(sockets) == 5
    assert found["sockets after"] - found["sockets before"] == 2


def test_threads_that_end_a_little_later_are_not_left():
    ending = threading.Event()

    async def use():
        threading.Thread(target=ending.wait).start()
        asyncio.get_running_loop().call_later(3 * clients.POLL_S, ending.set)

    found = asyncio.run(clients.churn(use, 2, first=0, settle_s=60))
    assert found["threads after"] <= found["threads before"]
