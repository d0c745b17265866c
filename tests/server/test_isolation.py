"""One request of a merged call fails: the others are answered."""

import asyncio
import logging
from functools import partial

import numpy as np
import pytest

from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.decorators import batch
from tests.server.arrays import filled
from tests.server.proxies import native_proxy_only
from tests.server.traffic import Gate, batches_of

BAD = -1.0


class Model:
    """Refuses BAD values; counts its rows per call."""

    def __init__(self):
        self.gate = Gate()
        self.calls = []

    def see(self, values):
        self.gate.wait()
        self.calls.append(values)

    def requests(self, requests):
        self.see([request["x"][0, 0].item() for request in requests])
        for request in requests:
            request["x"] *= 2  # in place, before the failure
        return [{"y": self.checked(request["x"], 2 * BAD)} for request in requests]

    @batch
    def batch(self, x):
        self.see(x[:, 0].tolist())
        x *= 2
        return [self.checked(x, 2 * BAD)]

    def per_request(self, requests):
        self.see([request["x"][0, 0].item() for request in requests])
        return [self.response(request["x"]) for request in requests]

    def response(self, x):
        try:
            return {"y": self.checked(x, BAD) * 2}
        except ValueError as error:
            return error

    def checked(self, x, bad):
        if (x == bad).any():
            raise ValueError(f"refused {x[x == bad][0].item()}")
        return x


def merged(traffic, name, model, columns=4, values=(0.0, 1.0, BAD, 2.0, 3.0)):
    """Answers to requests of which all but the first, which has as many rows, were merged: values or errors' texts."""
    inputs = [filled(value, 1 if number else len(values) - 1, columns) for number, value in enumerate(values)]
    calls = [partial(traffic.infer, name, x) for x in inputs]
    results = []
    for answer in traffic.merge(name, model.gate, calls):
        error = answer.exception()
        if error is None:
            assert np.ptp(answer.result()["y"]) == 0
            results.append(answer.result()["y"][0, 0].item())
        else:
            assert isinstance(error, PyTritonClientInferenceServerError)
            results.append(str(error))
    return results


@pytest.mark.parametrize("columns", [4, 20_000], ids=["small", "large"])
@pytest.mark.parametrize("form", ["requests", "batch"])
def test_requests_of_a_failed_call_are_called_again_alone_with_the_inputs_as_sent(bind, traffic, form, columns):
    model = Model()
    name = bind(getattr(model, form), max_batch_size=8, batcher=batches_of(4))
    before, one, bad, two, three = merged(traffic, name, model, columns)
    assert (before, one, two, three) == (0, 2, 4, 6)
    assert "ValueError: refused -2.0" in bad
    assert model.calls[1:] == [[1, BAD, 2, 3], [1], [BAD], [2], [3]]


def test_the_retry_is_logged_once_for_each_model_and_a_failure_with_its_traceback(bind, traffic, caplog):
    model = Model()
    name = bind(model.batch, max_batch_size=8, batcher=batches_of(4))
    with caplog.at_level(logging.WARNING, "pytriton"):
        for _ in range(2):
            model.gate = Gate()
            merged(traffic, name, model)
    retry, failure = [record for record in caplog.records if name in record.getMessage()]
    assert "4 merged requests" in retry.getMessage()
    assert "ModelConfig(isolate_errors=False)" in retry.getMessage()
    assert not retry.exc_info
    assert failure.exc_info  # those like it are counted


@native_proxy_only  # the Python proxy takes a request from the server's queue before it has a slot for it
def test_repeated_requests_of_a_coroutine_count_among_the_batches_in_flight(bind, traffic):
    gate, running, most = Gate(), [], []

    async def infer(requests):
        running.append(requests)
        most.append(len(running))
        await asyncio.to_thread(gate.wait)
        for _ in range(100):  # turns of the loop, in which others would begin
            await asyncio.sleep(0)
        running.remove(requests)
        if len(requests) > 1:
            raise ValueError("one at a time")
        return [{"y": request["x"]} for request in requests]

    name = bind(infer, max_batch_size=8, batcher=batches_of(4), max_batches_in_flight=1)
    calls = [partial(traffic.infer, name, filled(value, 1 if value else 4)) for value in range(5)]
    answers = [answer.result()["y"][0, 0].item() for answer in traffic.merge(name, gate, calls)]
    assert answers == [0, 1, 2, 3, 4]
    assert most == [1] * 6


@pytest.mark.parametrize("form", ["requests", "batch"])
def test_without_isolation_all_requests_of_a_failed_call_fail(bind, traffic, form):
    model = Model()
    name = bind(getattr(model, form), max_batch_size=8, batcher=batches_of(4), isolate_errors=False)
    before, *others = merged(traffic, name, model)
    assert before == 0
    assert len(others) == 4
    assert all("ValueError: refused" in text for text in others)
    assert model.calls[1:] == [[1, BAD, 2, 3]]


def test_an_exception_in_the_list_of_responses_fails_its_request_alone(bind, traffic):
    model = Model()
    name = bind(model.per_request, max_batch_size=8, batcher=batches_of(4))
    before, one, bad, two, three = merged(traffic, name, model)
    assert (before, one, two, three) == (0, 2, 4, 6)
    assert "ValueError: refused -1.0" in bad
    assert model.calls[1:] == [[1, BAD, 2, 3]]


def test_each_client_gets_its_own_errors_text(bind, traffic):
    gate = Gate()

    def fail(requests):
        gate.wait()
        return [ValueError(f"secret of {request['x'][0, 0]}") for request in requests]

    model = Model()
    model.gate = gate
    name = bind(fail, max_batch_size=8, batcher=batches_of(3))
    texts = merged(traffic, name, model, values=(0.0, 1.0, 2.0, 3.0))
    for number, text in enumerate(texts):
        assert f"secret of {number}.0" in text
        assert text.count("secret") == 1


@pytest.mark.parametrize("form", ["requests", "batch"])
def test_a_wrong_result_of_a_merged_call_is_isolated_too(bind, traffic, form):
    model = Model()

    def short(x):
        return x[:-1] if (x == BAD).any() else x

    def requests(requests):
        model.see([request["x"][0, 0].item() for request in requests])
        return [{"y": short(request["x"])} for request in requests]

    @batch
    def columns(x):
        model.see(x[:, 0].tolist())
        return [short(x)]

    name = bind(requests if form == "requests" else columns, max_batch_size=8, batcher=batches_of(4))
    before, one, bad, two, three = merged(traffic, name, model)
    assert (before, one, two, three) == (0, 1, 2, 3)
    assert "has 0 rows, expected 1" in bad
