"""Load tests on scripted models."""

import asyncio
import time

import pytest

from pytriton.cli.load import ERROR_TEXTS, Answer, Extent, Measurement, ask_stream, put_load
from pytriton.cli.summary import Percentiles, Summary
from pytriton.client.exceptions import PyTritonClientInferenceServerError


class Model:
    """Answers at once, or fails; counts how many requests are under way."""

    def __init__(self, *, fail=(), on_request=lambda number: None):
        self.arrays = []
        self.under_way = self.most = 0
        self._fail = fail
        self._on_request = on_request

    async def __call__(self, arrays):
        number = len(self.arrays)
        self.arrays.append(arrays)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        self._on_request(number)
        if number in self._fail:
            raise PyTritonClientInferenceServerError(f"[500] no {number}\nmore")
        return Answer(1, None)


def load(model, extent, inputs=((1,),), stop=None):
    measurement = Measurement()

    async def run():
        await put_load(model, inputs, extent, measurement, stop or asyncio.Event())

    asyncio.run(run())
    return measurement


@pytest.mark.parametrize("concurrency", [1, 3, 50])
def test_as_many_requests_are_sent_as_asked_for(concurrency):
    model = Model()
    measurement = load(model, Extent(concurrency, requests=20))
    assert len(model.arrays) == len(measurement.latencies_s) == measurement.responses == measurement.finished == 20
    assert model.most == min(concurrency, 20)


def test_the_inputs_take_turns():
    model = Model()
    load(model, Extent(1, requests=5), inputs=["a", "b"])
    assert model.arrays == ["a", "b", "a", "b", "a"]


def test_failures_are_counted_by_the_first_line_of_their_text_and_the_load_goes_on():
    measurement = load(Model(fail=(1, 3)), Extent(1, requests=5))
    assert len(measurement.latencies_s) == 3
    assert measurement.errors == {"[500] no 1": 1, "[500] no 3": 1}
    assert measurement.finished == 5


def test_many_different_errors_are_counted_together():
    measurement = load(Model(fail=range(100)), Extent(10, requests=ERROR_TEXTS + 5))
    assert len(measurement.errors) == ERROR_TEXTS + 1
    assert measurement.errors["other errors"] == 5


def test_no_request_starts_after_the_time_is_over():
    model = Model()
    load(model, Extent(4, duration_s=0.0))
    assert model.arrays == []


def test_a_load_can_be_stopped_with_what_was_measured():
    stop = asyncio.Event()
    model = Model(on_request=lambda number: stop.set() if number == 9 else None)
    measurement = load(model, Extent(1, requests=1000), stop=stop)
    assert len(measurement.latencies_s) == 10


def test_a_stream_is_measured_to_its_first_response_and_counted_to_its_last():
    moments = []

    class Client:
        async def infer_batch(self, *arrays):
            assert arrays == (1, 2)
            for _ in range(3):
                yield {}
                moments.append(time.perf_counter())

        infer_sample = None

    answer = asyncio.run(ask_stream(Client(), batch=True)([1, 2]))
    assert answer.responses == 3
    assert answer.first <= moments[0] < moments[1]


def test_a_stream_without_responses_has_no_first_one():
    class Client:
        async def infer_sample(self):
            return
            yield

        infer_batch = None

    assert asyncio.run(ask_stream(Client(), batch=False)([])) == Answer(0, None)


def test_percentiles_are_in_milliseconds():
    seconds = Measurement().latencies_s
    seconds.extend(each / 1000 for each in range(1, 102))
    found = Percentiles.of(seconds)
    assert [found.mean, found.min, found.p50, found.p90, found.p99, found.max] == pytest.approx(
        [51, 1, 51, 91, 100, 101]
    )


def test_rates_are_those_of_the_answered_requests():
    measurement = Measurement(elapsed_s=2.0)
    for _ in range(10):
        measurement.add(0.0, Answer(3, 0.5), 1.0)
    measurement.fail(PyTritonClientInferenceServerError("no"))
    figures = Summary.of(measurement, rows=4).to_dict()
    assert (figures["requests_per_s"], figures["rows_per_s"], figures["responses_per_s"]) == (5, 20, 15)
    assert (figures["answered"], figures["failed"], figures["errors"]) == (10, 1, {"no": 1})
    assert (figures["latency_ms"]["max"], figures["first_response_ms"]["max"]) == (1000, 500)


def test_without_answers_there_are_no_times():
    summary = Summary.of(Measurement(), rows=0)
    assert (summary.latency_ms, summary.first_response_ms, summary.per_second(0)) == (None, None, 0)
