"""The app's own processes, as the hosting process sees them: started, watched, restarted, drained and ended."""

from __future__ import annotations

import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pytriton import forks
from pytriton.client.auth import TOKEN_VARIABLE
from pytriton.exceptions import PyTritonServerError
from pytriton.logs import get_logger
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.pool.pipes import log_levels
from pytriton.pool.process import ChildProcess, Program
from pytriton.rest.announcement import announcement
from pytriton.rest.config import AppSpec, EdgeFiles, RestConfig
from pytriton.rest.host import Answer, serve
from pytriton.rest.keys import memory_bytes
from pytriton.rest.metrics import MEMORY_BYTES
from pytriton.restarts import RestartPolicy
from pytriton.security import is_loopback
from pytriton.server.endpoints import ServerEndpoints
from pytriton.server.launch import ANY_ADDRESS, local_host
from pytriton.threads import keep_running
from pytriton.wire.control import DRAIN, END_PAGES

__all__ = ["LaunchedApp"]

SETTINGS = {
    "OPENBLAS_NUM_THREADS": "1",  # each of its threads takes memory
    # Bodies and arrays of some megabytes come with each request: else the kernel would clear their memory each time.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(128 << 20),
}
LOGGER = get_logger("pytriton.rest")

MOST_MISSED = 12  # signs of life, of which one comes in 5 s
END_TIMEOUT_S = 5.0  # for a process to end after its last request
BACKLOG = 2048


class LaunchedApp:
    """Serves the application in processes of its own, which share a port.

    This process owns the listening sockets, so that a client that connects while there is no process waits for the next
    one, or for the end of this process. The edge inherits that of the port, and the processes get
    requests from it by a Unix socket.

    Args:
        config: Options, which :func:`checked` has returned.
        endpoints: Of the server behind the app, which need not run yet.
        on_failure: Called, on a thread of its own, when a process cannot be started for the first time.
        answer: Answers the questions of the processes.
        edge: What it shares with the server's edge, if that accepts from its port.

    Attributes:
        url: Where the app is, for this machine.
        takes_codes: Whether a code can unlock its pages: it listens on this machine alone, and operators need a token.
        port: The sockets of its port.

    Raises:
        PyTritonServerError: It cannot listen there.
    """

    def __init__(
        self,
        config: RestConfig,
        endpoints: ServerEndpoints,
        on_failure: Callable[[], None],
        answer: Answer,
        edge: EdgeFiles | None = None,
    ) -> None:
        scheme = "https" if (edge and edge.is_encrypted) or config.certificate is not None else "http"
        address = config.address or ANY_ADDRESS
        self.url = f"{scheme}://{local_host(address)}:{config.port}{config.root_path}"
        has_operators = endpoints.access_token is not None or config.access_token is not None
        self.takes_codes = is_loopback(address) and has_operators
        self._header = _token_header(config, endpoints)
        self._edge = edge
        self._announced = False
        self.port = _listen(address, config.port, 1 if edge else config.processes)
        self._counters = [_memory(f"metrics-{index}", MEMORY_BYTES) for index in range(config.processes)]
        self._behind: list[socket.socket] = []
        if edge is not None:
            self._behind.append(_listen_at(edge.socket))
            self._counters.append(_file(edge.counters, MEMORY_BYTES))
        listeners = self._behind * config.processes or self.port
        limits = _memory("limits", memory_bytes(len(config.keys()), config.processes))
        self._memories = [*self._counters, limits]
        forks.register(self)
        self._processes = [
            AppProcess(config, endpoints, listener, self._counters, limits, index, on_failure, answer)
            for index, listener in enumerate(listeners)
        ]

    def after_fork(self) -> None:
        """In a forked child, do not listen: clients that connect after the parent's end would wait for ever."""
        forks.abandon(*(listener.fileno() for listener in (*self.port, *self._behind)))

    def wait_ready(self, timeout_s: float, keep_waiting: Callable[[], bool]) -> None:
        """Wait until all processes accept requests, the timeout, or until ``keep_waiting()`` is false.

        Raises:
            PyTritonServerError: One could not be started, or not in time.
        """
        deadline = time.monotonic() + timeout_s
        for process in self._processes:
            process.wait_ready(deadline, keep_waiting)

    def announce(self, models: Sequence[TritonModelConfig], timeout_s: float, keep_waiting: Callable[[], bool]) -> None:
        """Log :meth:`announcement` once, when :meth:`wait_ready` has returned."""
        if not self._announced:
            self.wait_ready(timeout_s, keep_waiting)
            self._announced = True
            get_logger("pytriton.triton").info("%s", self.announcement(models))

    def announcement(self, models: Sequence[TritonModelConfig]) -> str:
        """Where the app is, and a command that calls one of these models, as lines for the log."""
        return announcement(self.url, models, header=self._header)

    def pids(self) -> list[int]:
        """Ids of the processes that run."""
        return [pid for process in self._processes if (pid := process.pid()) is not None]

    def is_alive(self) -> bool:
        """Whether all processes run, or are started again."""
        return all(process.failure is None for process in self._processes)

    def drain(self, timeout_s: float) -> None:
        """Accept nothing more, answer the requests in progress for at most so many seconds, and end."""
        deadline = time.monotonic() + timeout_s + END_TIMEOUT_S
        self._close_listeners()
        for process in self._processes:
            process.drain(timeout_s)
        for process in self._processes:
            process.join(deadline)
        self.close()

    def end_pages(self) -> None:
        """End the streams of the pages that are open, which have no end of their own."""
        for process in self._processes:
            process.end_pages()

    def kill(self) -> None:
        """End the processes at once, and the requests in progress with them. Waits for nothing."""
        for process in self._processes:
            process.kill()

    def close(self) -> None:
        """End what is left. May be called twice."""
        self._close_listeners()
        self.kill()
        for process in self._processes:
            process.join(time.monotonic() + END_TIMEOUT_S)
        while self._memories:
            os.close(self._memories.pop())

    def _close_listeners(self) -> None:
        for listener in (*self.port, *self._behind):
            listener.close()
        if self._edge is not None:
            with suppress(OSError):
                os.unlink(self._edge.socket)


class AppProcess:
    """Keeps one process of the app running, on a thread of its own.

    Args:
        endpoints: Of the server behind it.
        listener: What it accepts from.
        counters: Descriptors of the metrics of all processes of the app.
        limits: Descriptor of what the API keys have used.
        index: Which of them this process is.
        on_failure: As for :class:`LaunchedApp`.

    Attributes:
        failure: Why there is no process any more; None while there is one, or another follows.
    """

    def __init__(
        self,
        config: RestConfig,
        endpoints: ServerEndpoints,
        listener: socket.socket,
        counters: list[int],
        limits: int,
        index: int,
        on_failure: Callable[[], None],
        answer: Answer,
    ) -> None:
        self.failure: str | None = None
        self._config, self._endpoints, self._listener = config, endpoints, listener
        self._counters, self._limits, self._index = tuple(counters), limits, index
        self._on_failure, self._answer = on_failure, answer
        self._lock = threading.Lock()  # guards the start of a process against the end
        self._ending = False
        self._wake = threading.Event()
        self._ready = threading.Event()  # once a process was
        self._process: ChildProcess | None = None
        self._host: socket.socket | None = None
        forks.register(self)
        # The kernel kills the process when this thread ends.
        self._thread = keep_running(self._supervise, f"pytriton-rest-{index}")

    def after_fork(self) -> None:
        """In a forked child, drop the socket of a process that is not its child."""
        if self._host is not None:
            forks.abandon(self._host.fileno())

    def wait_ready(self, deadline: float, keep_waiting: Callable[[], bool]) -> None:
        """As :meth:`LaunchedApp.wait_ready`, until a deadline in :func:`time.monotonic` seconds."""
        while not self._ready.wait(0.05) and self.failure is None and keep_waiting():
            if time.monotonic() > deadline:
                raise PyTritonServerError("the app took too long to start")
        if self.failure is not None:
            raise PyTritonServerError(self.failure)

    def pid(self) -> int | None:
        """Id of the process; None if there is none at the moment."""
        process = self._process
        return None if process is None else process.pid

    def end_pages(self) -> None:
        """As :meth:`LaunchedApp.end_pages`, of this process."""
        self._tell(END_PAGES)

    def drain(self, timeout_s: float) -> None:
        """Ask the process to end when it has answered its requests, within so many seconds."""
        with self._lock:
            self._ending = True
        self._wake.set()
        self._tell(DRAIN, timeout_s)

    def _tell(self, *command: Any) -> None:
        process = self._process
        if process is not None:
            process.send(*command)

    def kill(self) -> None:
        """Kill the process. Takes no lock: a signal handler may call it."""
        self._ending = True
        process = self._process
        if process is not None:
            process.kill()

    def join(self, deadline: float) -> None:
        """Wait for the end of the process, until a deadline in :func:`time.monotonic` seconds."""
        self._wake.set()
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _supervise(self) -> None:
        restarts = RestartPolicy()
        while not self._ending:
            try:
                died = self._run(restarts)
            except Exception as error:  # a want of memory or descriptors may pass, and a handler of the log may raise
                died = f"no process can be started: {error}"
            if self._ending:
                return
            pause_s = restarts.record_exit(time.monotonic()) or 0.0
            if not self._ready.is_set():
                return self._fail(f"the app cannot be started: {died}")
            LOGGER.warning("the app died and is started again in %.1f s: %s", pause_s, died)
            self._wake.wait(pause_s)

    def _fail(self, failure: str) -> None:
        LOGGER.error("%s", failure)
        self.failure = failure
        self._on_failure()

    def _run(self, restarts: RestartPolicy) -> str:
        """Start a process and follow it to its end; returns how it ended."""
        with self._lock:
            if self._ending:
                return ""
            process = self._process = self._start()
        if self._ending:  # kill() may have seen no process
            process.kill()
        try:
            for _ in process.reports(most_missed=MOST_MISSED):  # it is ready
                self._ready.set()
                restarts.record_ready(time.monotonic())
        except BaseException:
            process.kill()  # else the next one would be beside it
            raise
        finally:
            self._process = None
            ended = process.wait()
        return f"process {process.pid} ended with {ended}"

    def _start(self) -> ChildProcess:
        config = replace(self._config, show_errors=self._config.shows_errors())
        host, of_app = socket.socketpair()
        with of_app:
            spec = AppSpec(
                config,
                self._endpoints,
                self._listener.fileno(),
                of_app.fileno(),
                self._counters,
                self._limits,
                self._index,
                log_levels(),
            )
            try:
                process = ChildProcess(
                    f"pytriton-rest:{config.port}",
                    Program("pytriton.rest.process", {**SETTINGS, **os.environ}),
                    pickle.dumps(spec),
                    spec.descriptors(),
                    logger=LOGGER,
                    logs_output=False,
                )
            except BaseException:
                host.close()
                raise
        self._host = host
        threading.Thread(target=serve, args=(host, self._answer), name="pytriton-console", daemon=True).start()
        LOGGER.debug("the app is starting: process %d", process.pid)
        return process


def _token_header(config: RestConfig, endpoints: ServerEndpoints) -> str | None:
    """The header that inference needs, with a variable of the shell."""
    if config.access_token is not None:
        return "Authorization: Bearer $PYTRITON_REST_ACCESS_TOKEN"
    rule = next((each for each in endpoints.rules if "inference" in each.endpoints), None)
    if rule is not None:
        return f"{rule.header}: ${TOKEN_VARIABLE}"
    return None if config.api_keys is None else "Authorization: Bearer $API_KEY"


def _listen(address: str, port: int, count: int) -> list[socket.socket]:
    """Sockets that all listen on a port, among which the kernel divides the connections.

    Raises:
        PyTritonServerError: One cannot listen there, as if another program does.
    """
    listeners: list[socket.socket] = []
    try:
        for _ in range(count):
            listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if len(listeners) == 1:  # alone at first, so that it fails if others share the port already
                listener.bind((address, port))
            if count > 1:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if len(listeners) > 1:
                listener.bind((address, port))
            listener.listen(BACKLOG)
    except OSError as error:
        for listener in listeners:
            listener.close()
        raise PyTritonServerError(
            f"the app cannot listen on {address}:{port}: {error.strerror}. Choose another port in RestConfig"
        ) from error
    return listeners


def _listen_at(path: str) -> socket.socket:
    """A socket that listens at a path, in a folder of this user alone."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise PyTritonServerError(f"the app cannot listen on {path}: {error.strerror}") from error
    return listener


def _memory(name: str, size: int) -> int:
    """Memory that processes share: a descriptor."""
    file = os.memfd_create(f"pytriton-rest-{name}")
    os.truncate(file, size)
    return file


def _file(path: str, size: int) -> int:
    """A file that processes share, in a folder of this user alone: a descriptor."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.truncate(file, size)
    return file
