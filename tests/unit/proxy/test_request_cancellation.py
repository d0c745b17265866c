"""Cancelled requests, between a scripted server and real callables on a real socket."""

import math
import sys
import threading

import numpy as np
import pytest

from pytriton.proxy.types import Request
from pytriton.worker import serial
from tests.server.processes import DEADLINE_S, wait_for
from tests.unit.backend import InferenceRequest
from tests.unit.batches import DECOUPLED, X, answers, in_thread
from tests.unit.links import CONFIG, Link, outcomes


@pytest.fixture
def link(proxy_model, tmp_path):
    """A link whose proxy answers one batch after the other."""
    link = Link(proxy_model, tmp_path)
    yield link
    link.end()


class Asking:
    """Waits until some request is cancelled; then answers, with which of them are."""

    def __init__(self):
        self.entered = threading.Event()
        self.cancelled = None
        self.requests = None

    def __call__(self, requests):
        self.requests = requests
        self.entered.set()
        wait_for(lambda: any(request.is_cancelled() for request in requests), "a request to be cancelled")
        self.cancelled = [request.is_cancelled() for request in requests]
        return [{"y": request["x"]} for request in requests]

    async def coroutine(self, requests):
        return self(requests)


def requests_of(count):
    return [InferenceRequest({"x": X}) for _ in range(count)]


def test_a_plain_function_learns_which_requests_of_its_batch_are_cancelled(link):
    asking = Asking()
    link.serve(asking)
    requests, got = requests_of(3), []
    thread = in_thread(lambda: got.extend(link.model.execute(requests)))
    assert asking.entered.wait(DEADLINE_S)
    requests[1].sender.cancelled = True
    thread.join(DEADLINE_S)
    assert asking.cancelled == [False, True, False]
    assert outcomes(got) == [{"y": [[1, 2]]}] * 3


@pytest.mark.parametrize("form", ["__call__", "coroutine"])
@pytest.mark.parametrize("config", [CONFIG, DECOUPLED])
def test_a_call_that_does_not_return_learns_it_too(serve, form, config):
    asking = Asking()
    link = serve(getattr(asking, form), config=config)
    requests = requests_of(2)
    link.model.execute(requests)
    assert asking.entered.wait(DEADLINE_S)
    requests[1].sender.cancelled = True
    assert answers(requests[0]) == [{"y": [[1, 2]]}]
    assert asking.cancelled == [False, True]


def test_batches_that_arrive_while_a_callable_looks_for_cancellations_are_answered(serve):
    asking, entered = Asking(), []

    def first_asks(requests):
        entered.append(requests)
        return asking(requests) if len(entered) == 1 else [{"y": request["x"]} for request in requests]

    link = serve(first_asks)
    first, *others = requests_of(6)
    link.model.execute([first])
    assert asking.entered.wait(DEADLINE_S)
    for request in others:
        link.model.execute([request])
    first.sender.cancelled = True
    assert [answers(request) for request in others] == [[{"y": [[1, 2]]}]] * 5
    assert asking.cancelled == [True]


def test_the_server_is_asked_only_when_the_callable_asks_and_not_each_time(link, monkeypatch):
    monkeypatch.setattr(serial, "ASK_S", math.inf)
    counts = []

    class Counted(InferenceRequest):
        asked = 0

        def is_cancelled(self):
            self.asked += 1
            return False

    def ask(requests):
        if requests[0]["x"][0, 0]:
            counts.append(sum(request.is_cancelled() for _ in range(1000) for request in requests))
        return [{"y": request["x"]} for request in requests]

    link.serve(ask)
    silent, asking = Counted({"x": X * 0}), Counted({"x": X})
    link.model.execute([silent])
    link.model.execute([asking])
    assert counts == [0]
    assert silent.asked == 0
    assert asking.asked == 1


def test_another_thread_may_ask_at_any_time(link):
    kept, stop = [], threading.Event()

    def keep(requests):
        kept.extend(requests)
        return [{"y": request["x"]} for request in requests]

    def ask():
        while not stop.is_set():
            for request in kept[-3:]:
                assert not request.is_cancelled()
                finished.append(request)

    finished = []
    link.serve(keep)
    asker = in_thread(ask)
    for number in range(300):
        x = np.array([[number]], np.float32)
        assert link.infer({"x": x}) == [{"y": [[number]]}]
    stop.set()
    asker.join(DEADLINE_S)
    assert finished


def test_an_old_request_is_not_taken_for_one_of_the_batch_that_is_being_answered(link, monkeypatch):
    monkeypatch.setattr(serial, "ASK_S", 0)  # each look is a question
    monkeypatch.setattr(serial, "ASK_SHARE", math.inf)
    kept, told = [], []

    def function(requests):
        kept.extend(requests)
        told.append(kept[0].is_cancelled())
        return [{"y": request["x"]} for request in requests]

    link.serve(function)
    link.infer({"x": X})
    (second,) = requests_of(1)
    second.sender.cancelled = True
    link.model.execute([second])
    assert told == [False, False]


def test_when_the_proxy_has_gone_so_have_its_clients(link):
    asking = Asking()
    link.serve(asking)
    thread = in_thread(link.model.execute, requests_of(2))
    assert asking.entered.wait(DEADLINE_S)
    link.model._executor._worker.channel.shutdown()
    wait_for(lambda: asking.cancelled == [True, True], "the callable to notice")
    thread.join(DEADLINE_S)


def test_requests_that_were_cancelled_while_they_waited_are_not_handed_over(serve, monkeypatch):
    monkeypatch.setattr(sys.modules["pytriton.python_proxy.concurrent"], "LONG_WAIT_S", -1.0)  # each did
    gate, entered, seen = threading.Event(), threading.Event(), []

    def slow(requests):
        seen.extend(request["x"][0, 0].item() for request in requests)
        entered.set()
        gate.wait(DEADLINE_S)
        return [{"y": request["x"]} for request in requests]

    link = serve(slow, batches_in_flight=1)
    first, waiting, last = (InferenceRequest({"x": X * factor}) for factor in (1, 2, 3))
    server = in_thread(lambda: [link.model.execute([request]) for request in (first, waiting, last)])
    assert entered.wait(DEADLINE_S)
    waiting.sender.cancelled = True
    gate.set()
    server.join(DEADLINE_S)
    assert answers(last) == [{"y": [[3, 6]]}]
    assert waiting.sender.all() == []
    assert seen == [1, 3]


def test_a_request_that_was_made_by_hand_is_never_cancelled():
    assert not Request({"x": X}).is_cancelled()
