"""Failures of one model: the first in full, the others counted."""

import logging
import threading

import pytest

from pytriton.worker.failures import FORGOTTEN_S, INTERVAL_S, MOST_KINDS, FailureLog


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def log(clock):
    return FailureLog("of this test", clock)


def raised(error):
    try:
        raise error
    except BaseException as caught:
        return caught


def made_at(line, error):
    """An exception that was raised at a line."""
    with pytest.raises(type(error)) as caught:
        exec(compile("\n" * (line - 1) + "raise error", "model.py", "exec"), {"error": error})
    return caught.value


def lines(caplog):
    """Of this model: loops that other tests left complain when they are collected."""
    records = [record for record in caplog.records if record.getMessage().startswith("model of this test: ")]
    return [(record.getMessage(), record.exc_info is not None) for record in records]


def test_the_first_failure_is_logged_in_full_and_others_like_it_once_in_an_interval(log, clock, caplog):
    for number in range(3):
        log.add(made_at(7, ValueError(number)), "the call failed")
    clock.now = INTERVAL_S
    log.add(made_at(7, ValueError(3)), "the call failed")
    log.add(made_at(7, ValueError(4)), "the call failed")
    first, second = lines(caplog)
    assert first == ("model of this test: the call failed", True)
    text, has_traceback = second
    told = "model of this test: the call failed: ValueError at model.py:7, 3 more times in the last 10 s; the last was "
    assert text == told + "ValueError: 3"
    assert not has_traceback
    log.flush()
    assert lines(caplog)[2][0].endswith(", 1 more time in the last 0 s; the last was ValueError: 4")
    log.flush()
    assert len(lines(caplog)) == 3


def test_failures_of_another_kind_are_new(log, caplog):
    failures = [made_at(3, ValueError()), made_at(4, ValueError()), made_at(3, KeyError()), ValueError()]
    for failure in failures * 2:
        log.add(failure, "the call failed")
    log.add(failures[0], "the request failed")
    assert lines(caplog) == [("model of this test: the call failed", True)] * 4 + [
        ("model of this test: the request failed", True)
    ]


def test_a_failure_after_a_long_time_is_new(log, clock, caplog):
    for _ in range(2):
        log.add(raised(ValueError()), "the call failed")
    clock.now = FORGOTTEN_S + 1
    log.add(raised(ValueError()), "the call failed")
    assert [has_traceback for _, has_traceback in lines(caplog)] == [True, False, True]


def test_any_failure_brings_the_lines_that_are_due(log, clock, caplog):
    for _ in range(2):
        log.add(made_at(1, ValueError()), "the call failed")
    clock.now = INTERVAL_S
    log.add(made_at(2, ValueError()), "the call failed")
    assert "model.py:1, 1 more time in the last 10 s" in lines(caplog)[1][0]


def test_a_new_callable_s_failures_are_new(log, caplog):
    for _ in range(2):
        log.add(made_at(1, ValueError()), "the call failed")
        log.add(made_at(1, ValueError()), "the call failed")
        log.flush(forget=True)
    assert [has_traceback for _, has_traceback in lines(caplog)] == [True, False] * 2


def test_memory_is_bounded_and_nothing_counted_is_lost(log, caplog):
    for line in range(1, 3 * MOST_KINDS):
        log.add(made_at(line, ValueError("a" * 10_000)), "the call failed")
        log.add(made_at(line, ValueError("a" * 10_000)), "the call failed")
    assert len(log._kinds) == MOST_KINDS
    log.flush()
    assert sum("1 more time" in text for text, _ in lines(caplog)) == 3 * MOST_KINDS - 1
    assert max(len(text) for text, _ in lines(caplog)) < 1000


def test_a_failure_without_a_usable_text_is_counted(log, caplog):
    class NastyError(Exception):
        def __str__(self):
            raise RuntimeError

    for _ in range(2):
        log.add(raised(NastyError()), "the call failed", with_traceback=False)
    log.flush()
    assert "its text is not available" in lines(caplog)[1][0]


def test_what_is_not_logged_is_not_counted(log, caplog):
    caplog.set_level(logging.WARNING, "pytriton.worker")
    for _ in range(2):
        log.add(raised(ValueError()), "the call was cancelled", level=logging.INFO)
    log.flush()
    assert not lines(caplog)


def test_threads_lose_no_failure(log, caplog):
    def fail():
        for _ in range(500):
            log.add(made_at(1, ValueError("no")), "the call failed")

    threads = [threading.Thread(target=fail) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.flush()
    (first, last) = lines(caplog)
    assert first == ("model of this test: the call failed", True)
    assert "1,999 more times" in last[0]


def test_a_warning_is_given_once(log, caplog):
    for _ in range(2):
        log.warn_once("outputs", "careful")
    assert lines(caplog) == [("model of this test: careful", False)]
