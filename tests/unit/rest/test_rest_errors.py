"""Errors of the app are of bounded size, whatever a request has."""

from __future__ import annotations

import json

import pytest

from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.exceptions import ErrorCode
from pytriton.rest.errors import (
    LINES_PER_S,
    MOST_BYTES,
    MOST_LINES,
    RestError,
    SparingLog,
    invalid_input,
    of_client,
)
from pytriton.signature.problems import MOST_SENT_BYTES, Problem, Problems, ValueMismatchError, problems_of, shown
from pytriton.wire.frames import join_details, split_details
from pytriton.worker.failures import describe


@pytest.mark.parametrize("text", ["a", "\x01", "é", "\U0001f600", "\ud800", '"'])
def test_an_answer_is_bounded(text):
    for error in (
        RestError(400, "INVALID_ARG", text * 1_000_000),
        invalid_input(ValueMismatchError([Problem((text * 500,) * 100, text * 500, text * 500)] * 2000).problems),
        invalid_input([Problem((text * 500,) * 100, text * 500, text * 500)] * 20, more=7),
    ):
        encoded = error.encoded()
        assert len(encoded) <= MOST_BYTES
        assert json.loads(encoded)["error"]["code"] == error.code


def test_what_is_left_out_is_counted():
    error = invalid_input([Problem(("a" * 4000,), "b", "c")] * 10, more=5)
    found = json.loads(error.encoded())["error"]
    assert len(found.get("details", ())) + found["more"] == 15


@pytest.mark.parametrize("text", ["a", "é", "\ud800", "%", ' | {"details":[]}'])
def test_details_are_of_bounded_size_and_tell_how_many_are_left_out(text):
    for count in (1, 20):
        sent = ValueMismatchError([Problem((text * 500,) * 100, text * 500, text * 500)] * count)
        assert len(sent.details) <= MOST_SENT_BYTES
        problems, more = problems_of(sent.details)
        assert len(problems) + more == count


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"details":[1]}', '{"details":[{"path":[[]],"expected":"","got":""}]}']
)
def test_what_is_no_problem_is_none(text):
    assert problems_of(text) == ([], 0)


def test_problems_travel_behind_a_message_with_their_number():
    problems = [Problem(("rows", index, "x"), "a number", '" | {"') for index in range(40)]
    sent = ValueMismatchError(problems)
    told = describe(sent, with_traceback=False)
    message, details = split_details(join_details(told["message"], told["details"]))
    assert (message, told["code"]) == (sent.message, "INVALID_ARG")
    error = PyTritonClientInferenceServerError(message)
    error.code, error.details = ErrorCode.INVALID_ARG, details
    found = of_client(error)
    assert (found.status, len(found.details), found.more) == (422, 10, 30)
    assert found.message == sent.message
    assert [*found.details] == sent.problems


def test_an_iterator_of_problems_is_read_as_far_as_they_are_counted():
    read = []

    def endless():
        while True:
            read.append(1)
            yield Problem((), "a", "b")

    found = Problems(endless())
    assert (len(found.kept), found.more, found.is_enough) == (10, 990, True)
    assert len(read) == 1001
    found.add_error(ValueMismatchError(endless()))
    assert (len(found.kept), found.more) == (10, 990)


def test_a_value_in_a_message_is_short():
    texts = "a" * 10**7, b"a" * 10**7
    for value in (*texts, 10**5000, [1] * 10**6, {"a" * 10**6: 1}, dict.fromkeys(range(10**6)), None):
        assert len(shown(value)) <= 63


def test_a_client_that_makes_requests_fail_does_not_fill_the_log(caplog):
    now = 0.0
    log = SparingLog(clock=lambda: now)
    for number in range(1000):
        log.warning(str(number), "wrong")
    assert caplog.messages == [f"request {number}: wrong" for number in range(MOST_LINES)]
    caplog.clear()
    now = 2 / LINES_PER_S
    for _ in range(5):
        log.warning("later", "wrong")
    left_out = 1000 - MOST_LINES
    assert caplog.messages == [f"{left_out} more requests failed; their messages were left out"] + 2 * [
        "request later: wrong"
    ]
