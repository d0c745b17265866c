"""Calling again after failures that may pass, on a scripted server."""

import gc
import weakref

import numpy as np
import pytest

from pytriton.client.arguments import RequestOptions
from pytriton.client.conversations import Call, retried
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientConnectionError,
    PyTritonClientInferenceServerError,
    PyTritonClientInputError,
    PyTritonClientQueueTimeoutError,
    PyTritonClientServerUnavailableError,
    PyTritonClientTimeoutError,
    PyTritonClientTlsError,
)
from pytriton.client.sync import drive
from tests.unit.scripted import Result, Script, config, echo, infer, session

X = np.ones((6, 2), np.float32)
CALL = Call("infer", 5.0)
REFUSED = PyTritonClientConnectionError("refused")
BUSY = PyTritonClientServerUnavailableError("the queue is full")


def again(call, retries):
    return retried(call, retries, lambda: None)


@pytest.mark.parametrize("failures", [[], [REFUSED], [BUSY, REFUSED, BUSY]])
def test_call_is_made_again_until_it_succeeds(failures):
    server = Script(*failures, "the answer")
    assert drive(again(CALL, 3), server) == "the answer"
    assert server.calls == [CALL] * (len(failures) + 1)


def test_last_error_is_raised_after_the_last_retry():
    errors = [PyTritonClientConnectionError(str(number)) for number in range(3)]
    server = Script(*errors)
    with pytest.raises(PyTritonClientConnectionError) as caught:
        drive(again(CALL, 2), server)
    assert caught.value is errors[-1]


@pytest.mark.parametrize(
    "error",
    [
        PyTritonClientTimeoutError("late"),
        PyTritonClientQueueTimeoutError("waited too long"),
        PyTritonClientInputError("wrong"),
        PyTritonClientInferenceServerError("the model failed"),
        PyTritonClientTlsError("not trusted"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_other_errors_are_raised_at_once(error):
    server = Script(error, "never asked")
    with pytest.raises(type(error)):
        drive(again(CALL, 5), server)
    assert (len(server.calls), server.naps) == (1, [])


def test_pauses_are_random_and_get_longer_up_to_a_limit():
    naps = []
    for _ in range(50):
        server = Script(*[REFUSED] * 12, "the answer")
        drive(again(CALL, 12), server)
        naps.append(server.naps)
    longest = np.max(naps, axis=0)
    assert np.min(naps) >= 0.05
    assert (longest[:4] <= [0.2, 0.4, 0.8, 1.6]).all()
    assert longest[-1] <= 10
    assert longest[6] > 3
    assert len(np.unique(naps)) > 500


def test_retries_are_off_by_default():
    with pytest.raises(PyTritonClientConnectionError):
        drive(infer(session(config(), True), X[0]), Script(REFUSED))


def test_client_that_was_closed_meanwhile_does_not_try_again():
    model = session(config(), True)

    def close_and_refuse(call):
        model.close()
        raise REFUSED

    server = Script(infer=close_and_refuse)
    with pytest.raises(PyTritonClientClosedError):
        drive(infer(model, X[0], options=RequestOptions(retries=3)), server)
    assert len(server.calls) == 1


def test_request_is_the_same_at_every_try():
    server = Script(BUSY, BUSY, Result())
    drive(infer(session(config(), True), X[0], options=RequestOptions(retries=2)), server)
    first, *others = server.calls
    assert others == [first] * 2


def test_each_part_of_a_split_batch_has_its_retries():
    server = Script(BUSY, echo, BUSY, echo)
    options = RequestOptions(retries=1, split_batches=True)
    outputs = drive(infer(session(config(max_batch_size=3), True), X, sample=False, options=options), server)
    assert outputs["x"].shape == (6, 2)
    assert server.answers == []


def test_failed_request_is_not_kept_in_memory():
    class Inputs:
        """Something in the conversation's hands that can be watched."""

    def refuse(call):
        raise PyTritonClientConnectionError("refused")

    def watch_failing_inputs():
        call = Call("infer", 5.0, {"inputs": Inputs()})
        with pytest.raises(PyTritonClientConnectionError):
            drive(again(call, 1), Script(refuse, refuse))
        return weakref.ref(call.arguments["inputs"])

    gc.collect()
    gc.disable()
    try:
        assert watch_failing_inputs()() is None
    finally:
        gc.enable()
