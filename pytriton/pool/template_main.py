"""The program of a template: calls the factory, and forks workers that serve its callable. It has one thread."""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import logging
import os
import pickle
import random
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from pytriton.pool.forkable import why_not_forkable
from pytriton.pool.messages import ProcessSpec
from pytriton.pool.pipes import MessagePipe, run_child
from pytriton.pool.template import ForkedWorker
from pytriton.pool.worker_main import prepare, serve_worker
from pytriton.signals import IGNORED, ignored_signals, reset_inherited_signals
from pytriton.wire.control import FAILED, READY
from pytriton.worker.results import is_async

__all__ = ["main"]

DESCRIPTORS = 5  # of spec, pipe, output, exit status, and the one that a worker inherits at most


def main(spec: int, pipe: int, parent: int, lifeline: int) -> None:
    """Run a template to its end, or, in each process that it forks, a worker.

    Args:
        lifeline: The reading end of a pipe, whose other end the launching process holds as long as it lives.
    """
    run_worker = run_child(lambda file, pipe: _run(file, pipe, lifeline), spec, pipe, parent, [lifeline])
    if run_worker is not None:
        run_worker()


def _run(file: IO[bytes], pipe: MessagePipe, lifeline: int) -> Callable[[], None] | None:
    """Run the template to its end; returns None then, and in each process that it forks what runs the worker."""
    try:
        spec: ProcessSpec = replace(pickle.load(file), trace_config=None)  # tracing starts a thread, in each worker
        handler = prepare(spec, pipe)
        made = spec.call_factory()
        inference = replace(spec, factory=lambda: made, takes_device=False).inference_callable()
        reason = why_not_forkable(_fork)
    except BaseException:
        pipe.send(FAILED, traceback.format_exc())
        return None
    if reason:
        pipe.send(FAILED, reason)
        return None
    pipe.send(READY, is_async(inference))
    del inference
    logging.root.removeHandler(handler)  # each worker has its own pipe for log records
    del handler  # or each worker would replace it by one that writes to standard error
    _settle()
    worker = _Forks(pipe).serve()
    return None if worker is None else partial(_run_worker, worker, made, lifeline)


def _settle() -> None:
    """Leave as few pages as possible that a worker's garbage collection or first allocations would have to copy."""
    gc.collect()
    gc.freeze()
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the user's code may have replaced it
            stream.flush()


def _fork() -> int:
    """As :func:`os.fork`, without the warning of threads, about which :func:`why_not_forkable` knows more."""
    _flush()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)  # a worker unblocks them when it ignores them
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        raise
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return pid


class _Forks:
    """Forks workers on request, and tells how each has ended."""

    def __init__(self, pipe: MessagePipe) -> None:
        self._pipe = pipe
        self._running: dict[int, tuple[int, Connection[Any, Any]]] = {}  # by pidfd

    def serve(self) -> list[int] | None:
        """Go on until the launching process closes the pipe and all workers have ended.

        Returns:
            None; in a worker its :data:`DESCRIPTORS`, without that of the exit status.
        """
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        accepts = True
        while accepts or self._running:
            for descriptor, _ in poll.poll():
                if descriptor in self._running:
                    poll.unregister(descriptor)
                    self._reap(descriptor)
                elif self._pipe.receive() is None:
                    poll.unregister(descriptor)
                    accepts = False
                else:
                    *descriptors, status = self._pipe.receive_descriptors(DESCRIPTORS)
                    child = self._fork(Connection(status, readable=False))
                    if child is None:
                        return descriptors
                    for each in descriptors:
                        os.close(each)
                    if child:
                        poll.register(child, select.POLLIN)
        return None

    def _fork(self, status: Connection[Any, Any]) -> int | None:
        """Fork; a pidfd, 0 if that failed, and None in the worker."""
        try:
            pid = _fork()
        except OSError as error:
            with suppress(OSError):
                status.send(error)
            status.close()
            return 0
        if not pid:
            for descriptor, (_, other) in self._running.items():
                os.close(descriptor)
                other.close()
            status.close()
            return None
        descriptor = os.pidfd_open(pid)
        self._running[descriptor] = pid, status
        self._send(status, pid)
        return descriptor

    def _reap(self, descriptor: int) -> None:
        pid, status = self._running.pop(descriptor)
        self._send(status, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        status.close()
        os.close(descriptor)

    def _send(self, status: Connection[Any, Any], value: int) -> None:
        with suppress(OSError):  # nobody waits for it any more
            status.send(value)


def _run_worker(descriptors: list[int], made: Any, lifeline: int) -> None:
    spec, pipe, output, *inherited = descriptors
    _die_with(lifeline)
    os.setsid()
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    atexit._clear()  # what the factory has registered is for the end of the template, such as removing its files
    with ignored_signals(), open(spec, "rb") as file:
        reset_inherited_signals()
        serve_worker(file, MessagePipe(Connection(pipe)), inherited, partial(_with_callable, made))
    atexit._run_exitfuncs()
    _flush()
    os._exit(0)  # as objects of the template must not be finalized


def _die_with(lifeline: int) -> None:
    """Have the kernel kill this process when the last holder of the pipe's other end has ended.

    The signal that a process gets at its parent's death would come with the template's.
    """
    own = os.open(f"/proc/self/fd/{lifeline}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # with an owner of its own
    fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(own, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    poll = select.poll()
    poll.register(own, select.POLLIN)
    if poll.poll(0):  # it has ended before
        os._exit(1)


def _with_callable(made: Any, spec: ProcessSpec) -> ProcessSpec:
    """The spec of a forked worker, with what the template's factory has made."""

    def adopt() -> Any:
        os.environ.update(spec.resources.environment())
        _seed_random_generators()
        after_fork = getattr(made, "after_fork", None)
        if callable(after_fork):
            after_fork(ForkedWorker(spec.name, spec.index, spec.resources.device_in_worker))
        return made

    _name_process(spec.name)
    return replace(spec, factory=adopt)


def _seed_random_generators() -> None:
    """Or all workers would draw the same numbers: seed the global generators, each from the system's."""
    random.seed()
    for name, seed in (("numpy.random", "seed"), ("torch", "seed")):
        if name in sys.modules:
            getattr(sys.modules[name], seed)()


def _name_process(name: str) -> None:
    """Show a worker's name in place of the template's, which is longer, as the last argument of the command line."""
    argument = Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").rpartition(b"\0")[2]
    with suppress(OSError, ValueError, IndexError):
        end = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[46])  # arg_end
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(end - len(argument) - 1)
            memory.write(name.encode()[: len(argument)].ljust(len(argument), b"\0"))
