"""Waiting for the threads of a process."""

import hashlib
import threading

from pytriton.inprocess import handle
from pytriton.server.drain import thread_states
from tests.server.processes import wait_for


class Computer(threading.Thread):
    """Computes for a while, without the interpreter's lock, and then sleeps."""

    def __init__(self, rounds):
        super().__init__(daemon=True)
        self.rounds, self.is_done, self._released = rounds, False, threading.Event()

    def run(self):
        hashlib.pbkdf2_hmac("sha256", b"password", b"salt", self.rounds)
        self.is_done = True
        self._released.wait()

    def __enter__(self):
        self.start()
        wait_for(lambda: dict(thread_states("self"))[str(self.native_id)] == "R", "the thread to compute")
        return self

    def __exit__(self, *error):
        self._released.set()
        self.join()


def test_threads_that_compute_are_waited_for(monkeypatch):
    monkeypatch.setattr(handle, "WAIT_LIMIT_S", 60.0)
    with Computer(rounds=300_000) as computer:
        assert handle.wait_until_threads_sleep()
        assert computer.is_done


def test_threads_that_compute_for_long_are_not_waited_for(monkeypatch):
    monkeypatch.setattr(handle, "WAIT_LIMIT_S", 0.0)
    with Computer(rounds=1_000_000) as computer:
        assert not handle.wait_until_threads_sleep()
        assert not computer.is_done


def test_nothing_is_known_of_the_threads_of_a_process_that_has_ended():
    assert dict(thread_states(2**22 + 1)) == {}  # more than the kernel gives
