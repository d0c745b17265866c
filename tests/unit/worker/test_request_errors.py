"""Errors that are meant for clients, from the callable to the server's response."""

import logging

import numpy as np
import pytest

from pytriton.decorators import batch, group_by_keys
from pytriton.exceptions import ErrorCode, PyTritonRequestError
from tests.unit.backend import InferenceRequest
from tests.unit.batches import DECOUPLED, answers, submit
from tests.unit.links import Link

X = np.array([[1, 2]], np.float32)
NO = PyTritonRequestError("not you", ErrorCode.NOT_FOUND)


@pytest.fixture
def link(proxy_model, tmp_path):
    link = Link(proxy_model, tmp_path)
    yield link
    link.end()


def refuse_negative(requests):
    return [NO if request["x"][0, 0] < 0 else {"y": request["x"]} for request in requests]


def raise_for_negative(requests):
    if any(request["x"][0, 0] < 0 for request in requests):
        raise NO
    return [{"y": request["x"]} for request in requests]


@batch
def raise_for_negative_rows(x):
    if (x < 0).any():
        raise NO
    return {"y": x}


FORMS = pytest.mark.parametrize(
    "function", [refuse_negative, raise_for_negative, raise_for_negative_rows, group_by_keys(refuse_negative)]
)


@FORMS
def test_code_and_message_reach_the_server_and_other_requests_are_answered(link, function):
    link.serve(function)
    good, failed, good_too = link.model.execute([InferenceRequest({"x": x}) for x in (X, -X, X)])
    assert (failed.error.message, failed.error.code) == ("not you", "not found")
    assert not good.has_error()
    assert not good_too.has_error()


@FORMS
def test_streams_tell_them_as_well(serve, function):
    requests = submit(serve(function, config=DECOUPLED), {"x": X}, {"x": -X})
    assert [answers(request) for request in requests] == [[{"y": [[1, 2]]}], ["not you"]]
    assert requests[1].sender.all()[0].error.code == "not found"


def test_without_isolation_a_raised_error_fails_all_requests_of_the_call(link):
    link.serve(raise_for_negative, isolate_errors=False)
    failed = link.model.execute([InferenceRequest({"x": x}) for x in (X, -X)])
    assert [(each.error.message, each.error.code) for each in failed] == [("not you", "not found")] * 2


def test_a_call_for_a_sequence_is_not_made_again(link):
    calls = []

    def fail(requests):
        calls.append([request.correlation_id for request in requests])
        raise NO

    link.serve(fail)
    requests = [InferenceRequest({"x": X}) for _ in range(2)]
    requests[1].sequence = 7
    assert [each.error.message for each in link.model.execute(requests)] == ["not you", "not you"]
    assert calls == [[None, 7]]


def test_the_traceback_is_not_told_even_where_that_of_others_is(link):
    link.serve(raise_for_negative, send_traceback=True)
    assert link.infer({"x": -X}) == ["not you"]


@pytest.mark.parametrize("function", [refuse_negative, raise_for_negative])
def test_the_log_has_them_as_information(link, function, caplog):
    link.serve(function)
    with caplog.at_level(logging.INFO, "pytriton.worker"):
        link.infer({"x": -X})
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert "NOT_FOUND: not you" in record.getMessage()


def test_a_code_that_this_server_does_not_know_is_an_internal_error(link):
    link.serve(lambda requests: [PyTritonRequestError("taken", ErrorCode.ALREADY_EXISTS)])
    (failed,) = link.model.execute([InferenceRequest({"x": X})])
    assert (failed.error.message, failed.error.code) == ("taken", "internal")
