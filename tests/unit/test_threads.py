"""Threads that do not end unnoticed."""

import subprocess
import sys
import threading

import pytest

from pytriton.threads import keep_running

PATIENCE_S = 30.0


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(1), KeyboardInterrupt()], ids=repr)
def test_a_thread_that_raises_is_logged_and_goes_on(error, caplog):
    calls = []

    def work():
        calls.append(threading.current_thread())
        if len(calls) < 3:
            raise error

    thread = keep_running(work, "the worker")
    thread.join(PATIENCE_S)
    assert calls == [thread] * 3
    assert caplog.messages == ["thread the worker failed; it goes on"] * 2
    assert repr(caplog.records[0].exc_info[1]) == repr(error)


def test_what_a_thread_served_is_declared_dead_at_once(caplog):
    failures = []

    def work():
        raise SystemExit("bad")

    thread = keep_running(work, "the worker", failures.append)
    thread.join(PATIENCE_S)
    assert [str(error) for error in failures] == ["bad"]
    assert caplog.messages == ["thread the worker failed; what it served has ended"]


def test_a_thread_that_returns_has_ended(caplog):
    thread = keep_running(lambda: None, "the worker")
    thread.join(PATIENCE_S)
    assert thread.daemon
    assert caplog.messages == []


FORKING = """
import os
from pytriton.threads import keep_running

def work():
    child = os.fork()
    if not child:
        print("child", flush=True)
        raise ValueError
    os.waitpid(child, 0)

keep_running(work, "the worker").join()
"""


def test_a_child_that_a_thread_forks_does_not_go_on_with_the_work():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKING], capture_output=True, text=True, check=True)
    assert done.stdout == "child\n"
