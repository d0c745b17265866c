"""A server of the C API from its start to its end: its folders, its uses, its stop and its deletion."""

from __future__ import annotations

import atexit
import os
import shlex
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from ctypes import byref, c_void_p
from dataclasses import replace
from functools import partial
from pathlib import Path

from pytriton import forks
from pytriton.exceptions import PyTritonServerError
from pytriton.inprocess.capi import Api, installation, load
from pytriton.inprocess.exceptions import InvalidArgumentError, UnavailableError
from pytriton.inprocess.native import RequestsLibrary, requests_library
from pytriton.inprocess.options import Options, settings
from pytriton.server.backends import STUB
from pytriton.server.drain import thread_states
from pytriton.server.installation import Installation, overlay, server_environment
from pytriton.server.launch import has_gpu_driver
from pytriton.utils.workspace import Workspace

__all__ = [
    "NOT_STARTED",
    "SERVER_VERSION",
    "DeferredDeletion",
    "ServerHandle",
    "check_process",
    "is_forked",
    "thread_states",
    "wait_until_threads_sleep",
]

NOT_STARTED = "the server is not started; call start() first"
DEFAULTS = Options()
SERVER_VERSION = "2.51.0"  # needs wait_until_threads_sleep(); a test tells when the bundled server has another version
WAIT_LIMIT_S = 0.1  # other threads of the program may compute for ever
WAIT_POLL_S = 0.0005


class DeferredDeletion:
    """Deletes servers together, when all of them have stopped.

    The server's library has one pool of memory for all servers of a process. The first server makes it, and the
    deletion of any server deletes it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._deletions: list[Callable[[], object]] = []

    def add(self) -> None:
        """Count a server that is about to be made."""
        with self._lock:
            self._running += 1

    def remove(self, delete: Callable[[], object] | None = None) -> None:
        """Count a server no more, because it has stopped or was not made.

        Args:
            delete: Deletes it; None: it cannot be deleted.
        """
        with self._lock, ExitStack() as deletions:
            self._running -= 1
            if delete is not None:
                self._deletions.append(delete)
            while not self._running and self._deletions:
                deletions.callback(self._deletions.pop())


class _Process:
    """The process that has started servers. A forked child has none of their threads, and must not use them."""

    def __init__(self) -> None:
        self.pid: int | None = None
        self.is_forked = False
        forks.register(self)

    def after_fork(self) -> None:
        self.is_forked = self.pid is not None


_process = _Process()
_servers = DeferredDeletion()
_running: set[ServerHandle] = set()


def is_forked() -> bool:
    """Whether this process was forked from one that has started a server."""
    return _process.is_forked


def check_process() -> None:
    """Raise InvalidArgumentError in a process that was forked from one that has started a server."""
    if _process.is_forked:
        raise InvalidArgumentError(
            f"this process was forked from process {_process.pid}, which has started a server in itself: servers do "
            "not live on in a fork. Start the process with the 'spawn' or 'forkserver' method of multiprocessing"
        )


class ServerHandle:
    """A server that has started. ``with handle as (api, server)`` calls functions, and keeps it from being deleted.

    Args:
        options: Its options. The constructor checks them, and returns when the models of the start are loaded.

    Attributes:
        library: Sends requests to it.
        pointer: The C++ object that counts its uses: calls from Python, and requests in flight.

    Raises:
        TritonError: An option is wrong, or the server cannot start.
    """

    def __init__(self, options: Options) -> None:
        check_process()
        self._api: Api = load()
        self.library: RequestsLibrary = requests_library(self._api)
        list(settings(options))  # raises before anything is made
        self._workspace = Workspace()
        try:
            self._server = _start(self._api, _with_folders(options, installation(), self._workspace))
        except BaseException:
            self._workspace.clean()
            raise
        self.pointer: int = self.library.handle_new(self._server)
        weakref.finalize(self, self.library.handle_delete, self.pointer).atexit = False
        _running.add(self)

    def __enter__(self) -> tuple[Api, c_void_p]:
        check_process()
        if not self.library.handle_enter(self.pointer):
            raise InvalidArgumentError(NOT_STARTED)
        return self._api, self._server

    def __exit__(self, *_: object) -> None:
        if not is_forked():
            self.library.handle_leave(self.pointer)

    def stop(self) -> None:
        """Wait for requests in flight, unload the models and delete the server. A second call does nothing.

        Raises:
            TritonError: Requests were not answered within the exit timeout. The server cannot be used any more, and
                what the requests use stays in memory.
        """
        if is_forked() or not self.library.handle_close(self.pointer):
            return
        _running.discard(self)
        delete: Callable[[], object] | None = None
        try:
            wait_until_threads_sleep()
            self._api.ServerStop(self._server)
            self.library.handle_wait_unused(self.pointer)
            delete = partial(self._api.ServerDelete, self._server)
        finally:
            _servers.remove(delete)
            self._workspace.clean()

    def stop_aside(self) -> None:
        """Stop on a new thread: the garbage collector may call this on a thread of the server."""
        if not is_forked():
            threading.Thread(target=self.stop, name="pytriton-inprocess-stop").start()


def _start(api: Api, options: Options) -> c_void_p:
    pointer, server = c_void_p(), c_void_p()
    api.ServerOptionsNew(byref(pointer))
    try:
        for function, arguments in settings(options):
            getattr(api, f"ServerOptions{function}")(pointer, *arguments)
        _process.pid = os.getpid()
        _servers.add()
        try:
            api.ServerNew(byref(server), pointer)
        except BaseException:
            _servers.remove()
            raise
    finally:
        api.ServerOptionsDelete(pointer)
    return server


@atexit.register
def _stop_all() -> None:
    """While callbacks still find an interpreter."""
    if not is_forked():
        for handle in [*_running]:
            handle.stop()


def _with_folders(options: Options, installation: Installation, workspace: Workspace) -> Options:
    """Options for this machine: bundled folders in place of defaults that do not exist, and GPUs only if there are any.

    Raises:
        UnavailableError: No backends run here.
    """
    directory = options.backend_directory
    folder = workspace.path / "server"
    if directory == DEFAULTS.backend_directory and not Path(directory).is_dir():
        try:
            _make_backends(installation, folder)
        except PyTritonServerError as error:
            raise UnavailableError(str(error)) from error
        options = replace(options, backend_directory=str(folder / "backends"))
    if options.cache_directory == DEFAULTS.cache_directory and not Path(options.cache_directory).is_dir():
        options = replace(options, cache_directory=str(installation.caches))
    prefix = {"shm-region-prefix-name": workspace.shared_memory_prefix}
    backends = options.backend_configuration
    options = replace(options, backend_configuration={**backends, "python": {**prefix, **backends.get("python", {})}})
    if not has_gpu_driver():
        # Without GPUs, looking for them only logs alarming lines.
        options = replace(options, gpu_metrics=False, pinned_memory_pool_size=0)
    return options


def _make_backends(installation: Installation, folder: Path) -> None:
    """Make a folder of backends, those of the bundled server for this interpreter."""
    python = overlay(installation, folder)
    if python is None:
        return
    # The stub needs variables in its environment that the user's process does not have. So the stub in this folder is
    # a script that sets them, and then executes the real stub.
    environment = os.environ
    needed = server_environment(installation, folder, python, environment)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in needed.items() if environment.get(name) != value]
    lines += [f"unset {name}" for name in environment.keys() - needed.keys() if name.isidentifier()]
    stub = folder / "backends" / "python" / STUB
    stub.unlink()
    stub.write_text("\n".join(["#!/bin/sh", *lines, f'exec {shlex.quote(str(python.stub))} "$@"', ""]))
    stub.chmod(0o755)


def wait_until_threads_sleep() -> bool:
    """Magic: wait, for 0.1 s at most, until all other threads of this process sleep, before a model is unloaded.

    Without the wait, an unload may end the process. The server (2.51) deletes a model through a list of its instances.
    The thread of an instance empties that list while it loads or executes, and restores it a moment after it has
    reported that it is done. If the thread loses the processor in that moment, which happens where processors are
    scarce, the server reads an instance that is not there: SIGSEGV. No function of the C API tells when the list is
    whole again. A thread that sleeps has restored it.

    Returns:
        Whether they sleep.
    """
    end, own = time.monotonic() + WAIT_LIMIT_S, str(threading.get_native_id())
    while is_running := any(state == "R" for thread, state in thread_states("self") if thread != own):
        if time.monotonic() >= end:
            break
        time.sleep(WAIT_POLL_S)
    return not is_running
