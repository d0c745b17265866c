"""The front's own processes, as the hosting process sees them: started, watched, restarted, drained and ended."""

from __future__ import annotations

import logging
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from pytriton import forks
from pytriton.exceptions import PyTritonServerError
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.pool.supervisor import RestartPolicy
from pytriton.rest.announcement import announcement
from pytriton.rest.config import READY, FrontendFiles, FrontSpec, RestConfig
from pytriton.rest.counters import MEMORY_BYTES
from pytriton.rest.host import Answer, serve
from pytriton.rest.keys import memory_bytes
from pytriton.server.endpoints import ServerEndpoints
from pytriton.server.launch import local_host

__all__ = ["Front"]

SETTINGS = {
    "OPENBLAS_NUM_THREADS": "1",  # each of its threads takes memory
    # Bodies and arrays of some megabytes come with each request: else the kernel would clear their memory each time.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(128 << 20),
}
LOGGER = logging.getLogger("pytriton.rest")

MOST_RESTARTS, RESTARTS_PERIOD_S = 5, 60.0
END_TIMEOUT_S = 5.0  # for a process to end after its last request
READ_BYTES = 65536
TAIL_LINES = 50
BACKLOG = 2048
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
# The paths come first, as they may lead to this package. The options are in a file, as ps shows arguments to all users.
BOOTSTRAP = """
import pickle, sys
file = open(int(sys.argv[1]), "rb")
sys.path[:] = pickle.load(file)
from pytriton.rest.process import main
main(file)
"""


class Front:
    """Serves the application in processes of its own, which share a port.

    This process owns the listening sockets, so that a client that connects while there is no process waits for the next
    one, or for the end of this process. The native HTTP front end inherits that of the port, and the processes get
    requests from it by a Unix socket.

    Args:
        config: Options, which :func:`checked` has returned.
        endpoints: Of the server behind the front, which need not run yet.
        on_failure: Called, on a thread of its own, when a process cannot be started, or has died too often.
        answer: Answers the questions of the processes.
        frontend: What it shares with the server's native HTTP front end, if that accepts from its port.

    Attributes:
        url: Where the front is, for this machine.
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
        frontend: FrontendFiles | None = None,
    ) -> None:
        scheme = "http" if config.certificate is None else "https"
        self.url = f"{scheme}://{local_host(config.address)}:{config.port}{config.root_path}"
        self._asks_token = config.access_token is not None
        self._frontend = frontend
        self.port = _listen(config.address, config.port, 1 if frontend else config.processes)
        self._counters = [_memory(f"metrics-{index}", MEMORY_BYTES) for index in range(config.processes)]
        self._behind: list[socket.socket] = []
        if frontend is not None:
            self._behind.append(_listen_at(frontend.socket))
            self._counters.append(_file(frontend.counters, MEMORY_BYTES))
        listeners = self._behind * config.processes or self.port
        limits = _memory("limits", memory_bytes(len(config.keys()), config.processes))
        self._memories = [*self._counters, limits]
        forks.register(self)
        self._processes = [
            FrontProcess(config, endpoints, listener, self._counters, limits, index, on_failure, answer)
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

    def announcement(self, models: Sequence[TritonModelConfig]) -> str:
        """Where the front is, and a command that calls one of these models, as lines for the log."""
        return announcement(self.url, models, asks_token=self._asks_token)

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
        if self._frontend is not None:
            with suppress(OSError):
                os.unlink(self._frontend.socket)


class FrontProcess:
    """Keeps one process of the front running, on a thread of its own.

    Args:
        config: Options of the front.
        endpoints: Of the server behind it.
        listener: What it accepts from.
        counters: Descriptors of the metrics of all processes of the front.
        limits: Descriptor of what the API keys have used.
        index: Which of them this process is.
        on_failure: As for :class:`Front`.
        answer: Likewise.

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
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._lock = threading.Lock()  # guards the start of a process against the end
        self._ending = False
        self._wake = threading.Event()
        self._ready = threading.Event()  # once a process was
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._host: socket.socket | None = None
        forks.register(self)
        self._thread = threading.Thread(target=self._supervise, name=f"pytriton-rest-{index}", daemon=True)
        self._thread.start()  # the kernel kills the process when this thread ends

    def after_fork(self) -> None:
        """In a forked child, drop the pipes of a process that is not its child."""
        for each in (self._control, self._host):
            if each is not None and each.fileno() >= 0:
                forks.abandon(each.fileno())
        if self._process is not None and self._process.stderr is not None and not self._process.stderr.closed:
            forks.abandon(self._process.stderr.fileno())
            self._process.poll()

    def wait_ready(self, deadline: float, keep_waiting: Callable[[], bool]) -> None:
        """As :meth:`Front.wait_ready`, until a deadline in :func:`time.monotonic` seconds."""
        while not self._ready.wait(0.05) and self.failure is None and keep_waiting():
            if time.monotonic() > deadline:
                raise PyTritonServerError("the REST front took too long to start")
        if self.failure is not None:
            raise PyTritonServerError(self.failure)

    def pid(self) -> int | None:
        """Id of the process; None if there is none at the moment."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    def drain(self, timeout_s: float) -> None:
        """Ask the process to end when it has answered its requests, within so many seconds."""
        with self._lock:
            self._ending = True
            self._wake.set()
            if self._control is not None:
                with suppress(OSError):  # it has just died
                    self._control.send(b"%.3f" % timeout_s)

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
        restarts = RestartPolicy(MOST_RESTARTS, RESTARTS_PERIOD_S)
        while not self._ending:
            try:
                died = self._run()
            except OSError as error:
                died = f"no process can be started: {error}"
            if self._ending:
                return
            backoff_s = restarts.record_death(time.monotonic())
            if not self._ready.is_set():
                return self._fail(f"the REST front cannot be started: {died}")
            if backoff_s is None:
                return self._fail(f"the REST front died {restarts.deaths} times and is not started again: {died}")
            LOGGER.warning("the REST front died and is started again in %.1f s: %s", backoff_s, died)
            self._wake.wait(backoff_s)

    def _fail(self, failure: str) -> None:
        LOGGER.error("%s", failure)
        self.failure = failure
        self._on_failure()

    def _run(self) -> str:
        """Start a process and follow it to its end; returns how it ended."""
        with self._lock:
            if self._ending:
                return ""
            process, control = self._start()
            self._process, self._control = process, control
        if self._ending:  # kill() may have seen no process
            process.kill()
        assert process.stderr is not None
        with control, process.stderr as output:
            self._follow(control, output.fileno())
            status = process.wait()
            with self._lock:
                self._control = None
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        last = "; its last lines:\n" + "\n".join(self._tail) if self._tail else ""
        self._tail.clear()
        return f"process {process.pid} ended with {how}{last}"

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        (ours, theirs), (host, of_front) = socket.socketpair(), socket.socketpair()
        with theirs, of_front, open(os.memfd_create("pytriton-rest"), "wb") as file:
            spec = FrontSpec(
                self._config,
                self._endpoints,
                self._listener.fileno(),
                theirs.fileno(),
                of_front.fileno(),
                self._counters,
                self._limits,
                self._index,
                os.getpid(),
                LOGGER.getEffectiveLevel(),
            )
            pickle.dump([path for path in sys.path if isinstance(path, str)], file)
            pickle.dump(spec, file)
            file.seek(0)
            try:
                process = subprocess.Popen(
                    [sys.executable, "-c", BOOTSTRAP, str(file.fileno()), f"pytriton-rest:{self._config.port}"],
                    stdin=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env={**SETTINGS, **os.environ},
                    pass_fds=(file.fileno(), *spec.descriptors()),
                    start_new_session=True,  # Ctrl+C in a terminal reaches the hosting process alone
                )
            except BaseException:
                ours.close()
                host.close()
                raise
        self._host = host
        threading.Thread(target=serve, args=(host, self._answer), name="pytriton-console", daemon=True).start()
        LOGGER.debug("the REST front is starting: process %d", process.pid)
        return process, ours

    def _follow(self, control: socket.socket, output: int) -> None:
        """Log what the process writes until it has ended."""
        poll, unfinished = select.poll(), b""
        for descriptor in (control.fileno(), output):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if control.fileno() in ready:
                if control.recv(len(READY)) == READY:
                    self._ready.set()
                else:
                    poll.unregister(control)
            if output in ready:
                data = os.read(output, READ_BYTES)
                *lines, unfinished = (unfinished + data).split(b"\n")
                if not data and unfinished:
                    lines.append(unfinished)
                for line in lines:
                    self._log(line.decode("utf-8", "replace"))
                if not data:
                    return

    def _log(self, line: str) -> None:
        self._tail.append(line)
        level, _, text = line.partition(": ")
        number, message = (getattr(logging, level), text) if level in LEVELS else (logging.WARNING, line)
        LOGGER.log(number, "%s", message)


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
            f"the REST front cannot listen on {address}:{port}: {error.strerror}. Choose another port in RestConfig"
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
        raise PyTritonServerError(f"the REST front cannot listen on {path}: {error.strerror}") from error
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
