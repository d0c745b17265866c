"""Errors with status codes, which a callable raises or returns for single requests."""

import asyncio
from functools import partial

import pytest

from pytriton.client import DecoupledModelClient
from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.decorators import batch
from pytriton.exceptions import ErrorCode, PyTritonRequestError
from tests.server.arrays import filled
from tests.server.traffic import Gate

GRPC_STATUSES = {
    "UNKNOWN": "UNKNOWN",
    "INTERNAL": "INTERNAL",
    "NOT_FOUND": "NOT_FOUND",
    "INVALID_ARG": "INVALID_ARGUMENT",
    "UNAVAILABLE": "UNAVAILABLE",
    "UNSUPPORTED": "UNIMPLEMENTED",
    "ALREADY_EXISTS": "ALREADY_EXISTS",
    "CANCELLED": "CANCELLED",
}
CODES = [*ErrorCode]


def error_of(x):
    """The first number chooses the code."""
    return PyTritonRequestError("it is you", CODES[int(x[0, 0])])


@batch
def raised(x):
    raise error_of(x)


def returned(requests):
    return [error_of(request["x"]) for request in requests]


async def raised_async(requests):
    await asyncio.sleep(0)
    raise error_of(requests[0]["x"])


FORMS = [raised, returned, raised_async]


@pytest.fixture(scope="module")
def models(bind):
    return {function: bind(function) for function in FORMS}


@pytest.fixture(params=FORMS)
def failing(models, request):
    return models[request.param]


def test_every_code_has_a_status():
    assert {code.name for code in ErrorCode} == {*GRPC_STATUSES}


@pytest.mark.parametrize("code", CODES)
def test_code_and_message_reach_the_client(api, failing, code):
    with api.refuses(GRPC_STATUSES[code.name], "it is you"):
        api.infer(failing, {"x": filled(CODES.index(code))})


def test_the_message_stands_alone(traffic, failing):
    with pytest.raises(PyTritonClientInferenceServerError) as caught:
        traffic.infer(failing, filled(CODES.index(ErrorCode.NOT_FOUND)))
    assert str(caught.value).endswith(" it is you")


class Choosy:
    """Doubles, but fails -1 with a code of its own, and -2 with an exception; by raising, or returning it."""

    def __init__(self, raises):
        self.raises = raises
        self.gate = Gate()

    def __call__(self, requests):
        self.gate.wait()
        return [self.answer(request["x"]) for request in requests]

    def answer(self, x):
        error = {-1: PyTritonRequestError("not you", ErrorCode.NOT_FOUND), -2: ValueError("nor you")}.get(x[0, 0])
        if error and self.raises:
            raise error
        return error or {"y": x * 2}


@pytest.mark.parametrize("raises", [False, True])
def test_the_rest_of_a_merged_batch_is_answered(bind, traffic, raises):
    choosy = Choosy(raises)
    model = bind(choosy, max_batch_size=8)
    values = [0, 1, -1, 2, -2, 3]
    calls = traffic.merge(model, choosy.gate, [partial(traffic.infer, model, filled(value)) for value in values])
    for value, call in zip(values, calls, strict=True):
        if value >= 0:
            assert call.result()["y"][0, 0] == 2 * value
        else:
            assert ("not you" if value == -1 else "ValueError: nor you") in str(call.exception())


def test_a_stream_ends_with_the_code(failing_stream, grpc_url):
    with DecoupledModelClient(grpc_url, failing_stream) as client:
        responses = client.infer_batch(filled(5))
        assert next(responses)["y"][0, 0] == 5
        with pytest.raises(PyTritonClientInferenceServerError, match="enough"):
            next(responses)


@pytest.fixture(scope="module", params=["raise", "return"])
def failing_stream(bind, request):
    def stream(requests):
        yield [{"y": request["x"]} for request in requests]
        error = PyTritonRequestError("enough", ErrorCode.UNAVAILABLE)
        if request.param == "raise":
            raise error
        yield [error for _ in requests]

    return bind(stream, decoupled=True)
