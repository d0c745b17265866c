"""Every dtype arrives in the callable and back at the client as it was sent."""

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.decorators import batch, sample
from pytriton.model_config import Tensor
from tests.server.arrays import NUMBERS, STRINGS, assert_same, completed, values

DTYPES = [*NUMBERS, "bytes", "object"]
# The second is still inline in a frame for all dtypes; the last takes an arena's region for each.
SHAPES = [(1, 1), (4, 6), (3, 0), (1, 33_000)]


class Echo:
    """Answers with its inputs, and keeps what it saw of them."""

    def __init__(self):
        self.seen = {}

    def see(self, inputs):
        self.seen = {name: (array.dtype, array.shape) for name, array in inputs.items()}
        return completed(inputs, dict(zip(DTYPES, [*NUMBERS, object, object], strict=True)))

    def requests(self, requests):
        return [self.see(request) for request in requests]

    @batch
    def batch(self, **inputs):
        return self.see(inputs)

    @sample
    def sample(self, **inputs):
        return self.see(inputs)


@pytest.fixture(scope="module", params=["requests, batching", "batch, batching", "requests", "sample"])
def echo(bind, request):
    form, _, batching = request.param.partition(", ")
    echo = Echo()
    tensors = [Tensor(name=name, shape=(-1,) if batching else (-1, -1), dtype=name) for name in DTYPES]
    inputs = [Tensor(tensor.shape, tensor.dtype, tensor.name, optional=True) for tensor in tensors]
    echo.model = bind(getattr(echo, form), inputs, tensors, batching=bool(batching))
    echo.sample_only = not batching
    return echo


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_all_sizes_come_back_as_they_were_sent(echo, traffic, dtype):
    with ModelClient(traffic.url, echo.model) as client:
        infer = client.infer_sample if echo.sample_only else client.infer_batch
        for shape in SHAPES:
            sent = values(dtype, shape)
            answer = infer(**{dtype: sent})
            assert_same(answer[dtype], sent)
            assert echo.seen == {dtype: (object if dtype in ("bytes", "object") else np.dtype(dtype), shape)}


def test_all_dtypes_travel_in_one_request_in_the_order_of_the_signature(echo, traffic):
    sent = {dtype: values(dtype, (3, 7)) for dtype in reversed(DTYPES)}
    answer = traffic.infer(echo.model, sample=echo.sample_only, **sent)
    assert list(echo.seen) == DTYPES
    for dtype in DTYPES:
        assert_same(answer[dtype], sent[dtype])


def test_an_array_of_several_mib_comes_back_as_it_was_sent(echo, traffic):
    sent = values("float64", (2, 500_000))
    assert_same(traffic.infer(echo.model, sample=echo.sample_only, float64=sent)["float64"], sent)


def test_one_long_string_comes_back_as_it_was_sent(echo, traffic):
    sent = np.array([[bytes(range(256)) * 8_000]], dtype=object)
    assert_same(traffic.infer(echo.model, sample=echo.sample_only, bytes=sent)["bytes"], sent)


def test_a_fixed_width_bytes_array_arrives_as_bytes_objects(echo, traffic):
    sent = np.array([[b"", b"a", b"a\0b", b"longest"], [b"b", b"\xff", b"", b"c"]])
    assert_same(traffic.infer(echo.model, sample=echo.sample_only, bytes=sent)["bytes"], sent)


@pytest.mark.parametrize(
    "output",
    [
        pytest.param(np.array([["zażółć", "☃", ""]]), id="text"),
        pytest.param(np.array([[b"a", b"", b"a\0b"]]), id="fixed width"),
        pytest.param(np.array([[np.bytes_(b"a"), b"", b"b"]], dtype=object), id="scalars of NumPy"),
        pytest.param(np.array([STRINGS[:3], STRINGS[3:6]], dtype=object).T[:1], id="not contiguous"),
        pytest.param(np.empty((1, 0), dtype=object), id="empty"),
    ],
)
def test_outputs_in_any_form_of_text_reach_the_client_as_bytes(bind, traffic, output):
    model = bind(lambda requests: [{"y": output}], outputs=[Tensor(name="y", shape=(-1,), dtype=bytes)])
    answer = traffic.infer(model, np.zeros((1, 1), np.float32))["y"]
    encoded = [item.encode() if isinstance(item, str) else bytes(item) for item in output.ravel()]
    assert answer.shape == output.shape
    assert answer.ravel().tolist() == encoded
