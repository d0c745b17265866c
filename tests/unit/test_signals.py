"""SIGINT and SIGTERM while serving, and the handlers that the program had before."""

import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from pytriton.signals import ENDING, IGNORED, ending_signals, ignored_signals
from tests.unit.children import in_child, in_child_of_a_thread


class Calls(list):
    """Remembers what was called."""

    def first(self, number):
        self.append(("first", number))

    def again(self):
        self.append("again")

    def users(self, number, frame):
        self.append(("user's", number, frame is not None))


@contextmanager
def handler(number, action):
    """The program's own reaction to a signal."""
    before = signal.signal(number, action)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", ENDING)
def test_the_first_signal_and_later_ones_are_told_apart(number):
    calls = Calls()
    with ending_signals(calls.first, calls.again):
        signal.raise_signal(number)
        assert calls == [("first", number)]
        signal.raise_signal(number)
        signal.raise_signal(number)
    assert calls == [("first", number), "again", "again"]


def test_a_signal_after_one_of_the_other_kind_is_not_the_first():
    calls = Calls()
    with ending_signals(calls.first, calls.again):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert calls == [("first", signal.SIGTERM), "again"]
    assert isinstance(calls[0][1], signal.Signals)


@pytest.mark.parametrize("number", ENDING)
def test_the_programs_handler_is_called_too_each_time(number):
    calls = Calls()
    with handler(number, calls.users), ending_signals(calls.first, calls.again):
        signal.raise_signal(number)
        signal.raise_signal(number)
    users = ("user's", number, True)
    assert calls == [("first", number), users, "again", users]


@pytest.mark.parametrize("action", [signal.SIG_IGN, signal.SIG_DFL, signal.default_int_handler])
@pytest.mark.parametrize("number", ENDING)
def test_actions_that_are_no_functions_of_the_programs_are_not_called(number, action):
    calls = Calls()
    with handler(number, action), ending_signals(calls.first, calls.again):
        signal.raise_signal(number)
    assert calls == [("first", number)]


@pytest.mark.parametrize("action", [signal.SIG_IGN, signal.SIG_DFL, signal.default_int_handler, Calls().users])
def test_the_programs_actions_are_restored_also_after_an_exception(action):
    calls = Calls()

    def fail():
        with ending_signals(calls.first, calls.again):
            assert signal.getsignal(signal.SIGINT) != action
            raise RuntimeError("over")

    with handler(signal.SIGINT, action), handler(signal.SIGTERM, action):
        with pytest.raises(RuntimeError, match="over"):
            fail()
        assert [signal.getsignal(number) for number in ENDING] == [action, action]


def test_contexts_nest_and_each_counts_for_itself():
    outer, inner = Calls(), Calls()
    with ending_signals(outer.first, outer.again):
        with ending_signals(inner.first, inner.again):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert inner == [("first", signal.SIGINT)]
    assert outer == [("first", signal.SIGINT), "again"]


def test_in_another_thread_signals_are_left_alone():
    before = [signal.getsignal(number) for number in ENDING]
    seen = []

    def run():
        with ending_signals(lambda number: None, lambda: None):
            seen.extend(signal.getsignal(number) for number in ENDING)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == before


def test_a_handler_that_python_does_not_know_becomes_the_default():
    script = (
        "import signal\n"
        "from pytriton.signals import ending_signals\n"
        "signal.getsignal = lambda number: None\n"  # what it gives for a handler that was set from C
        "with ending_signals(print, print): pass\n"
        "print(signal.signal(signal.SIGTERM, signal.SIG_IGN) == signal.SIG_DFL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


@pytest.mark.parametrize("fork", [in_child, in_child_of_a_thread])
def test_a_forked_child_has_the_handlers_that_the_program_had(fork):
    calls = Calls()

    def actions():
        found = [signal.getsignal(number) for number in ENDING]
        return [action in (signal.SIG_IGN, signal.SIG_DFL) and action for action in found]

    with handler(signal.SIGINT, signal.SIG_IGN), handler(signal.SIGTERM, signal.SIG_DFL):
        with ending_signals(calls.first, calls.again), ending_signals(calls.first, calls.again):
            assert fork(actions) == [signal.SIG_IGN, signal.SIG_DFL]
            signal.raise_signal(signal.SIGTERM)
            assert calls == 2 * [("first", signal.SIGTERM)]
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        assert fork(actions) == [signal.SIG_IGN, signal.SIG_IGN]


@pytest.mark.parametrize("number", IGNORED)
def test_ignored_signals_do_nothing_here_but_end_what_is_started(number):
    program = [sys.executable, "-c", f"import signal; print(signal.getsignal({number}) is signal.SIG_IGN)"]
    with handler(number, signal.SIG_DFL):
        with ignored_signals():
            signal.raise_signal(number)
            assert subprocess.run(program, capture_output=True, text=True, check=True).stdout == "False\n"
            assert in_child(lambda: signal.getsignal(number) is signal.SIG_DFL)
        assert signal.getsignal(number) is signal.SIG_DFL
