"""Random inputs, and loads on scripted models."""

import asyncio
import time

import numpy as np
import pytest

from pytriton.cli.errors import InputError
from pytriton.cli.load import (
    ERROR_TEXTS,
    LoadOptions,
    Measurement,
    RandomInputs,
    RequestResult,
    parse_shapes,
    run_load,
    stream_sender,
)
from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.model_config.dtypes import triton_name
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig

DTYPES = [
    np.bool_,
    np.uint8,
    np.uint16,
    np.uint32,
    np.uint64,
    np.int8,
    np.int16,
    np.int32,
    np.int64,
    np.float16,
    np.float32,
    np.float64,
]


class Model:
    """Answers at once, or fails; counts how many requests are in flight."""

    def __init__(self, *, fail=(), on_request=lambda number: None):
        self.arrays = []
        self.in_flight = self.most = 0
        self._fail = fail
        self._on_request = on_request

    async def __call__(self, arrays):
        number = len(self.arrays)
        self.arrays.append(arrays)
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        self._on_request(number)
        if number in self._fail:
            raise PyTritonClientInferenceServerError(f"[500] no {number}\nmore")
        return RequestResult(1, None)


def load(model, options, inputs=((1,),), stop=None):
    measurement = Measurement()

    async def run():
        await run_load(model, inputs, options, measurement, stop or asyncio.Event())

    asyncio.run(run())
    return measurement


@pytest.mark.parametrize("concurrency", [1, 3, 50])
def test_as_many_requests_are_sent_as_asked_for(concurrency):
    model = Model()
    measurement = load(model, LoadOptions(concurrency, requests=20))
    assert len(model.arrays) == len(measurement.latencies_s) == measurement.responses == measurement.finished == 20
    assert model.most == min(concurrency, 20)


def test_the_inputs_rotate():
    model = Model()
    load(model, LoadOptions(1, requests=5), inputs=["a", "b"])
    assert model.arrays == ["a", "b", "a", "b", "a"]


def test_failures_are_counted_by_the_first_line_of_their_text_and_the_load_goes_on():
    measurement = load(Model(fail=(1, 3)), LoadOptions(1, requests=5))
    assert len(measurement.latencies_s) == 3
    assert measurement.errors == {"[500] no 1": 1, "[500] no 3": 1}
    assert measurement.finished == 5


def test_many_different_errors_are_counted_together():
    measurement = load(Model(fail=range(100)), LoadOptions(10, requests=ERROR_TEXTS + 5))
    assert len(measurement.errors) == ERROR_TEXTS + 1
    assert measurement.errors["other errors"] == 5


def test_no_request_starts_after_the_time_is_over():
    model = Model()
    load(model, LoadOptions(4, duration_s=0.0))
    assert model.arrays == []


def test_a_load_can_be_stopped_with_what_was_measured():
    stop = asyncio.Event()
    model = Model(on_request=lambda number: stop.set() if number == 9 else None)
    measurement = load(model, LoadOptions(1, requests=1000), stop=stop)
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

    result = asyncio.run(stream_sender(Client(), batch=True)([1, 2]))
    assert result.responses == 3
    assert result.first <= moments[0] < moments[1]


def test_a_stream_without_responses_has_no_first_one():
    class Client:
        async def infer_sample(self):
            return
            yield

        infer_batch = None

    assert asyncio.run(stream_sender(Client(), batch=False)([])) == RequestResult(0, None)


def config(*inputs, **options):
    return TritonModelConfig("m", inputs=[TensorSpec(*each) for each in inputs], **options)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_have_the_declared_type(dtype):
    (array,) = RandomInputs(config(("x", (2, 3), dtype)), batch_size=4).arrays()
    assert (array.dtype, array.shape) == (np.dtype(dtype), (4, 2, 3))


def test_texts_are_bytes_in_object_arrays():
    (array,) = RandomInputs(config(("x", (2,), np.bytes_))).arrays()
    assert (array.dtype, array.shape) == (np.dtype(object), (1, 2))
    assert all(isinstance(each, bytes) and each for each in array.ravel())


def test_inputs_come_in_the_order_of_the_model():
    inputs = RandomInputs(config(("b", (2,), np.float32), ("a", (3,), np.int64)), batch_size=2)
    assert [array.shape for array in inputs.arrays()] == [(2, 2), (2, 3)]
    assert inputs.describe() == [
        {"name": "b", "dtype": "FP32", "shape": [2, 2]},
        {"name": "a", "dtype": triton_name(np.int64), "shape": [2, 3]},
    ]


def test_a_model_without_batching_gets_no_batch_axis():
    inputs = RandomInputs(config(("x", (2,), np.float32), batching=False))
    assert (inputs.rows, inputs.arrays()[0].shape, inputs.describe()[0]["shape"]) == (0, (2,), [2])


def test_open_dimensions_get_one_size_and_chosen_ones_theirs():
    model = config(("x", (-1, 3), np.float32), ("y", (-1,), np.float32))
    inputs = RandomInputs(model, shapes={"x": (5, 3)}, dynamic_size=7)
    assert [array.shape for array in inputs.arrays()] == [(1, 5, 3), (1, 7)]


def test_one_value_per_row_has_an_axis_for_it():
    assert RandomInputs(config(("x", (), np.float32)), batch_size=2).arrays()[0].shape == (2, 1)


def test_two_requests_differ():
    inputs = RandomInputs(config(("x", (100,), np.float32)))
    assert not np.array_equal(inputs.arrays()[0], inputs.arrays()[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 5}, "batches of up to 4 rows, not 5"),
        ({"shapes": {"z": (1,)}}, "has no input 'z'; it has x"),
        ({"shapes": {"x": (1, 4)}}, r"has the shape any,3 without the batch axis, which \(1, 4\) does not fit"),
        ({"shapes": {"x": (1,)}}, "does not fit"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        RandomInputs(config(("x", (-1, 3), np.float32)), **options)


def test_a_batch_size_is_refused_for_a_model_without_batching():
    with pytest.raises(InputError, match="does not support batching"):
        RandomInputs(config(("x", (3,), np.float32), batching=False), batch_size=1)


def test_shapes_are_read_from_texts():
    assert parse_shapes(["x=3,224", "in:put=1", "y:2"]) == {"x": (3, 224), "in:put": (1,), "y": (2,)}


@pytest.mark.parametrize("text", ["x", "x=", "=1", "x=a", "x=0", "x=1,-1", ""])
def test_other_texts_are_no_shapes(text):
    with pytest.raises(InputError, match="not of the form"):
        parse_shapes([text])
