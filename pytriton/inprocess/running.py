"""A server of the C API, from its start to its end."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from ctypes import byref, c_void_p
from functools import partial
from types import TracebackType

from pytriton import forks
from pytriton.inprocess.backends import arrange
from pytriton.inprocess.capi import Api
from pytriton.inprocess.exceptions import InvalidArgumentError
from pytriton.inprocess.flight_library import FlightLibrary, flight_library
from pytriton.inprocess.library import installation, load
from pytriton.inprocess.lives import Lives
from pytriton.inprocess.options import Options
from pytriton.inprocess.rest import wait_for_rest
from pytriton.inprocess.settings import settings
from pytriton.utils.workspace import Workspace

__all__ = ["NOT_STARTED", "Running", "check_process", "is_forked"]

NOT_STARTED = "the server is not started; call start() first"
_alive: set[Running] = set()
_lives = Lives()
_forked = False  # whether this process was forked from one with a server, whose threads it lacks


class _Home:
    """The process in which servers may be used."""

    def __init__(self) -> None:
        self.process: int | None = None
        forks.register(self)

    def after_fork(self) -> None:
        global _forked
        _forked = self.process is not None


_home = _Home()


class Running:
    """A server that has started. ``with running as (api, pointer)`` uses it, and keeps it from ending.

    Args:
        options: Its options; the constructor checks them, and returns when models of the start are loaded.

    Attributes:
        flights: What requests fly with.
        airspace: The C++ object for them: as long as there are any in it, the server is not deleted; then it refuses
            new ones.

    Raises:
        TritonError: An option is wrong, or the server cannot start.
    """

    def __init__(self, options: Options) -> None:
        check_process()
        self._api: Api = load()
        self.flights: FlightLibrary = flight_library(self._api)
        self._uses = 0
        self._ending = False
        self._changed = threading.Condition(threading.Lock())
        list(settings(options))  # before anything is made
        self._workspace = Workspace()
        try:
            self._pointer = _new(self._api, arrange(options, installation(), self._workspace))
        except BaseException:
            self._workspace.clean()
            raise
        self.airspace: int = self.flights.airspace_new(self._pointer)
        weakref.finalize(self, self.flights.airspace_delete, self.airspace).atexit = False
        _alive.add(self)
        forks.register(self)

    def after_fork(self) -> None:
        """In a forked child, count as stopped: the server is the parent's."""
        self._changed, self._ending = threading.Condition(threading.Lock()), True

    def __enter__(self) -> tuple[Api, c_void_p]:
        check_process()
        with self._changed:
            if self._ending:
                raise InvalidArgumentError(NOT_STARTED)
            self._uses += 1
        return self._api, self._pointer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._changed:
            self._uses -= 1
            if self._ending:
                self._changed.notify_all()

    def stop(self) -> None:
        """Wait for requests in flight, unload the models and end; only the first call does something.

        Raises:
            TritonError: Requests were not answered within the exit timeout. The server is beyond use, but what they
                hold of it stays in memory.
        """
        with self._changed:
            if self._ending:
                return
            self._ending = True
        _alive.discard(self)
        delete: Callable[[], object] | None = None
        try:
            wait_for_rest()
            self._api.ServerStop(self._pointer)
            with self._changed:
                self._changed.wait_for(lambda: not self._uses)
            self.flights.airspace_close(self.airspace)
            delete = partial(self._api.ServerDelete, self._pointer)
        finally:
            _lives.end(delete)
            self._workspace.clean()

    def stop_aside(self) -> None:
        """Stop on another thread: this one may be the server's own, in which the garbage collector happens to run."""
        if not _forked:
            threading.Thread(target=self.stop, name="pytriton-inprocess-stop").start()


def check_process() -> None:
    """Refuse to go on in a process that was forked from one with a server, whose threads it does not have.

    Raises:
        InvalidArgumentError: So it is.
    """
    if _forked:
        raise InvalidArgumentError(
            f"this process was forked from process {_home.process}, which has started a server in itself: servers do "
            "not live on in a fork. Start the process with the 'spawn' or 'forkserver' method of multiprocessing"
        )


def _new(api: Api, options: Options) -> c_void_p:
    pointer, server = c_void_p(), c_void_p()
    api.ServerOptionsNew(byref(pointer))
    try:
        for function, arguments in settings(options):
            getattr(api, f"ServerOptions{function}")(pointer, *arguments)
        _home.process = os.getpid()
        _lives.begin()
        try:
            api.ServerNew(byref(server), pointer)
        except BaseException:
            _lives.end()
            raise
    finally:
        api.ServerOptionsDelete(pointer)
    return server


def is_forked() -> bool:
    """Whether servers, and what they have to do with, are another process's."""
    return _forked


@atexit.register
def _stop_all() -> None:
    """While callbacks still find an interpreter."""
    if not _forked:
        for running in [*_alive]:
            running.stop()
