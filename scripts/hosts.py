"""The systems that are compared, and the processes that host them."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from connections import check
from payloads import HOST, MODEL, WORKLOADS, LoadError
from processes import descendants, end_descendants, end_with_parent, family, names, shared_memory, wait_gone

from pytriton.exceptions import PyTritonValidationError
from pytriton.server.backends import uses_native

__all__ = [
    "APPS",
    "CHATS",
    "CHAT_PEERS",
    "EVHTP",
    "LIMIT",
    "LOOPBACK",
    "OTHERS",
    "PEERS",
    "PYTHON_PROXY",
    "REST_PEERS",
    "SYSTEMS",
    "BenchError",
    "Host",
    "System",
    "find_app",
    "find_chats",
    "find_other",
    "find_system",
    "free_ports",
]

EVHTP = "evhtp"  # ours with the server's own endpoints
PYTHON_PROXY = "python-proxy"  # ours with the Python proxy
SERVER_BATCHER = "server-batcher"  # ours with batches that the server makes
BATCHER_VARIABLE = "BENCH_BATCHER"  # hosts/served.py reads it
FRONTEND_VARIABLE = "PYTRITON_TRITON_CONFIG_HTTP_FRONTEND"
LIMIT = "limit"  # the server's edge with a backend in C++ that copies inputs to outputs
SYSTEMS = ["ours", EVHTP, PYTHON_PROXY, SERVER_BATCHER, "raw", LIMIT, "peer"]
APPS = {"ours": "own", EVHTP: "own", "mounted": "mounted"}  # of the section rest
OTHERS = ["fastapi", "fastapi-1"]  # of the section rest, under our interpreter
LOOPBACK = "loopback"  # ours, whose callables call by clients; of the section composition
PEERS = ["litserve", "bentoml", "mlflow", "mlserver", "ray"]  # each under an interpreter of its own
REST_PEERS = PEERS[:2]  # those of PEERS that the section rest measures
CHATS = {"ours": "own", "fastapi": "fastapi"}  # of the section openai
CHAT_PEERS = ["litserve"]  # those of PEERS that the section openai measures
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
KILLED_TIMEOUT_S = 5.0
POLL_S = 0.005
TAIL_LINES = 40
PORTS = range(20000, 32768)  # below those that the kernel gives to clients

_ROOT = Path(__file__).parents[1]
_HOSTS = Path(__file__).with_name("hosts")
_COPY_BACKEND = _HOSTS / "copy_backend.cpp"
_NATIVE = _ROOT / "pytriton" / "native"
_DESCRIBE = """
import importlib.metadata, json, platform, sysconfig
names = ("pytriton", "nvidia-pytriton", "numpy", "tritonclient")
found = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions() if d.metadata["Name"] in names}
print(json.dumps({"python": platform.python_version(), **found, "libdir": sysconfig.get_config_var("LIBDIR")}))
"""


class BenchError(RuntimeError):
    """A system did not start, or a load on it failed, so that the comparison has no result."""


@dataclass(frozen=True)
class System:
    """What is compared: a program that hosts a server, and the interpreter of its clients.

    Attributes:
        name: One of SYSTEMS.
        command: An interpreter and a script. The three ports and the models are appended.
        environment: Of the program.
        versions: Of the interpreter and of the packages that matter, and what else distinguishes the system.
        protocol: In which the first answer is asked for, one of ``connections.PROTOCOLS``.
    """

    name: str
    command: list[str]
    environment: dict[str, str]
    versions: dict[str, str]
    protocol: str = "http"


def find_system(name: str, peer_python: str | None = None) -> System:
    """One of SYSTEMS.

    Args:
        name: Of the system.
        peer_python: Interpreter of the environment with nvidia-pytriton; all others run under this one.

    Raises:
        BenchError: The interpreter does not run, or lacks nvidia-pytriton; or PYTRITON_PROXY names no proxy.
    """
    environment = dict(os.environ)
    if name == "peer":
        return _find_peer(peer_python, environment)
    versions = _describe(sys.executable, environment)
    del versions["libdir"]
    raw = [sys.executable, str(_HOSTS / "raw.py")]
    if name == LIMIT:
        return System(name, [*raw, f"--copy={_copy_backend()}"], environment, versions)
    if name == "raw":
        plain = int(versions["numpy"].partition(".")[0]) < 2
        versions["malloc"] = "as in ours" if os.environ.get("BENCH_RAW_MALLOC") else "without pytriton's settings"
        versions["tensors"] = "plain" if plain else "through pytriton.python_proxy.abi, as NumPy 2 needs it"
        return System(name, raw, environment, versions)
    if name == PYTHON_PROXY:
        environment["PYTRITON_PROXY"] = "python"
    if name == SERVER_BATCHER:
        environment[BATCHER_VARIABLE] = "server"
    environment[FRONTEND_VARIABLE] = versions["http"] = "triton" if name == EVHTP else "native"
    try:
        versions["proxy"] = "native" if uses_native("auto", ours=True, environment=environment) else "python"
    except PyTritonValidationError as error:
        raise BenchError(str(error)) from error
    return System(name, [sys.executable, str(_HOSTS / "served.py")], environment, versions)


def find_app(name: str, ours: System) -> System:
    """One of APPS or OTHERS, under the interpreter of ours."""
    command = ["apps.py", APPS[name]] if name in APPS else ["others.py", name]
    script = [ours.command[0], str(_HOSTS / command[0]), command[1]]
    environment = ours.environment | {FRONTEND_VARIABLE: "triton" if name == EVHTP else "native"}
    return replace(ours, name=name, command=script, environment=environment, protocol="json")


def find_other(name: str, python: str, program: str = "others.py") -> System:
    """One of PEERS, or with ``chats.py`` of CHAT_PEERS, under an interpreter that has it and NumPy."""
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    return System(name, [python, str(_HOSTS / program), name], environment, {}, "json")


def find_chats(name: str, ours: System) -> System:
    """One of CHATS, under the interpreter of ours."""
    return replace(ours, name=name, command=[ours.command[0], str(_HOSTS / "chats.py"), CHATS[name]], protocol="json")


def _copy_backend() -> Path:
    """The library of the backend that copies, compiled if it is not there."""
    library, header = _ROOT / "build" / "libtriton_copy.so", _NATIVE / "frames" / "triton.h"
    if not library.is_file() or library.stat().st_mtime < max(_COPY_BACKEND.stat().st_mtime, header.stat().st_mtime):
        compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        if not compiler:
            raise BenchError("the system limit needs a C++ compiler")
        library.parent.mkdir(exist_ok=True)
        how = ["-std=c++17", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{_NATIVE}"]
        ran = subprocess.run([compiler, *how, "-o", str(library), str(_COPY_BACKEND)], capture_output=True, text=True)
        if ran.returncode:
            raise BenchError(f"{_COPY_BACKEND.name} does not compile:\n{ran.stderr}")
    return library


def _find_peer(python: str | None, environment: dict[str, str]) -> System:
    if python is None:
        raise BenchError("the peer needs --peer-python, an interpreter with nvidia-pytriton")
    environment.pop("PYTHONPATH", None)  # it may lead to our package, which has the same import name
    versions = _describe(python, environment)
    if "nvidia-pytriton" not in versions:
        raise BenchError(f"{python} has no nvidia-pytriton: {versions}")
    libraries = [versions.pop("libdir"), environment.get("LD_LIBRARY_PATH", "")]
    environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
    return System("peer", [python, str(_HOSTS / "served.py")], environment, versions)


def _describe(python: str, environment: dict[str, str]) -> dict[str, str]:
    try:
        ran = subprocess.run([python, "-c", _DESCRIBE], env=environment, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BenchError(f"{python} does not run: {error}") from error
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


class Host:
    """A hosting process in a folder of its own; on leaving the context, it and its family are gone.

    Args:
        system: What to start.
        folder: An empty one, for the log, temporary files and ``PYTRITON_HOME``.
        models: What it serves; ``double`` must be the last one, which is asked for the first answer.
        ports: Of HTTP, gRPC and metrics; default: free ones.

    Attributes:
        pid: Of the process.
        ports: Of the endpoints, by protocol.
        home: The ``PYTRITON_HOME`` in which workspaces are made.
        copies: Whether the models copy their inputs instead of doubling them.
    """

    def __init__(
        self, system: System, folder: Path, models: Sequence[str] = (MODEL,), ports: Sequence[int] = ()
    ) -> None:
        self.copies, self._protocol = system.name == LIMIT, system.protocol
        self._log, self.home, self._temporary = folder / "log", folder / "home", folder / "tmp"
        self.home.mkdir(parents=True)
        self._temporary.mkdir()
        ports = ports or free_ports(3)
        self.ports = dict(zip(("http", "grpc", "metrics"), ports, strict=True))
        self.ports.setdefault(system.protocol, ports[0])
        self._seen_shared_memory: set[str] = set()
        places = {"PYTRITON_HOME": str(self.home), "TMPDIR": str(self._temporary)}
        with self._log.open("wb") as log:
            self._began = perf_counter()
            self._process = subprocess.Popen(
                [*system.command, *map(str, ports), *models],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**system.environment, **places},
                start_new_session=True,  # Ctrl+C in a terminal reaches the benchmark alone
                preexec_fn=end_with_parent,
            )
        self.pid = self._process.pid

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill what still runs, and remove shared memory that it left."""
        self.family()
        self._process.kill()
        end_descendants(KILLED_TIMEOUT_S)  # pytriton's guard of the server gets the time to clean up
        self._process.wait()
        for path in self._seen_shared_memory:
            Path(path).unlink(missing_ok=True)

    def family(self) -> list[int]:
        """The hosting process and its descendants; notes their shared memory."""
        pids = family(self.pid)
        for pid in pids:
            self._seen_shared_memory |= shared_memory(pid)
        return pids

    def wait_first_answer(self, ask: Callable[[int], None] | None = None) -> float:
        """Wait for a right answer; returns the seconds since the process was started.

        Args:
            ask: Gets the port of HTTP, and raises LoadError unless the answer is right; default: 64 B to ``double``.

        Raises:
            BenchError: The process ended, or none came in time.
        """
        while self._process.poll() is None and perf_counter() - self._began < START_TIMEOUT_S:
            with suppress(LoadError, OSError):
                if ask:
                    ask(self.ports["http"])
                else:
                    check(self._protocol, self.ports[self._protocol], WORKLOADS["64 B"], self.copies)
                return perf_counter() - self._began
            time.sleep(POLL_S)
        raise BenchError(f"no right answer (exit status {self._process.poll()}); the last lines:\n{self.tail()}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Send the process a signal; returns the seconds until it and its family were gone, 60 at most."""
        pids = self.family()
        began = perf_counter()
        self._process.send_signal(number)
        wait_gone(pids, STOP_TIMEOUT_S)
        return perf_counter() - began

    def shared_memory(self) -> dict[str, int]:
        """Sizes in bytes of the files in /dev/shm that the family has mapped so far and that are there now."""
        sizes = {}
        for path in self._seen_shared_memory:
            with suppress(FileNotFoundError):
                sizes[path] = os.stat(path).st_size
        return sizes

    def left_behind(self, status: int = 0, others: Collection[int] = ()) -> list[str]:
        """What is wrong after a stop: another exit status, processes, shared memory, files.

        Args:
            status: That the process has to have.
            others: Processes which this one has started besides, and which may go on.
        """
        found = self._process.poll()
        problems = [] if found == status else [f"exit status {found}; the last lines:\n{self.tail()}"]
        left = names([os.getpid(), *(pid for pid in descendants() if pid not in others)])
        problems += [f"process left: {name}" for name in left.values()][1:]
        problems += [f"shared memory left: {path}" for path in sorted(self.shared_memory())]
        files = [*self.home.iterdir(), *self._temporary.iterdir()]
        return problems + [f"file left: {path}" for path in sorted(files)]

    def tail(self) -> str:
        """The last lines of its output."""
        return "\n".join(self.output().splitlines()[-TAIL_LINES:])

    def output(self) -> str:
        """All that it has written."""
        return self._log.read_text(errors="replace")


def free_ports(count: int) -> list[int]:
    """So many ports of this machine that nothing listens on."""
    with ExitStack() as sockets:
        found: list[int] = []
        while len(found) < count:
            probe = sockets.enter_context(socket.socket())
            port = random.choice(PORTS)
            with suppress(OSError):
                probe.bind((HOST, port))
                found.append(port)
    return found
