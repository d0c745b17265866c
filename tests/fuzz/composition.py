"""Fuzz a whole service: ``python -m tests.fuzz.composition --seconds 120``.

The service (``service.py``) runs under a limit of 2 GiB of memory, in a cgroup where one can be made. Threads send it
mutated traffic (``traffic.py``) over the ports of HTTP, of the app, of metrics, of gRPC and of clouds, and end each
connection in one of several ways. Meanwhile a client checks answers over each port. A fault is a process that ends, an
answer that is wrong or late, or memory beyond the limit, or beyond a bound that follows from the bytes that were sent.

The seed is printed; ``--seed`` gives the same traffic again, though threads meet differently. The last messages before
a fault and the log are kept in ``build/fuzz/composition``; ``--replay <file> ...`` sends such files to a new service.

With ``--sanitize address``, the native libraries are compiled with AddressSanitizer and UBSan (``sanitized.py``), and
what these report is a fault, too. The service may take 4 GiB then.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from itertools import islice
from pathlib import Path
from random import Random
from subprocess import PIPE
from typing import Any

import grpc
import numpy as np

from pytriton.client import ModelClient
from tests.fuzz import sanitized, traffic

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "fuzz"
KEPT = BUILD / "composition"
CGROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
)
HOST = "127.0.0.1"
CONNECT_S, SILENCE_S, CONTROL_S = 5.0, 0.3, 60.0
THREADS, CALLERS = 7, 2  # all; those that make calls with gRPC's library
KEPT_MESSAGES = 40  # of each thread
MIB = 1 << 20
MOST_READ_BYTES = 16 * MIB
MOST_READ_S = 5.0
# What memory may grow by within a round: a buffer of each thread and arena, and copies of what is sent.
ROUND_S, SLACK_BYTES, COPIES = 10.0, 512 * MIB, 6


class Fault(Exception):
    """What the fuzzer looks for."""


class Service:
    """The program that is attacked, in a process group and, if possible, in a cgroup of its own.

    Args:
        sanitizer: That its native libraries are compiled with; None: they are as they are installed.
    """

    def __init__(self, memory_bytes: int, sanitizer: str | None = None) -> None:
        self.memory_bytes = memory_bytes
        folder, variables = ROOT, {}
        if sanitizer is not None:
            folder = BUILD / sanitizer
            sanitized.make_package(sanitizer, folder)
            variables = sanitized.environment(KEPT)
        self.cgroup = _cgroup(memory_bytes)
        enter = f"echo $$ > {self.cgroup}/cgroup.procs && " if self.cgroup else ""
        command = ["/bin/sh", "-c", f'{enter}exec "$0" -m tests.fuzz.service', sys.executable]
        KEPT.mkdir(parents=True, exist_ok=True)
        for report in sanitized.reports(KEPT):
            report.unlink()
        with (KEPT / "service.log").open("w") as log:
            self._process = subprocess.Popen(
                command, cwd=folder, env={**os.environ, **variables}, stdin=PIPE, stdout=PIPE, stderr=log, text=True
            )
        self._lock = threading.Lock()
        line = self._line()
        if not line:
            sys.exit(f"the service does not start; see {KEPT}/service.log")
        told = json.loads(line)
        self.ports: dict[str, int] = told["ports"]
        self.app: list[str] = told["app"]  # the ports that have the routes of the app
        self.processes: dict[str, int] = told["processes"]

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def check(self) -> None:
        """Raise Fault unless each process is the one that was there at the start, and has nothing to report."""
        for report in sanitized.reports(KEPT):
            raise Fault(f"a sanitizer has found something: {report}")
        with self._lock:
            assert self._process.stdin is not None
            try:
                self._process.stdin.write("processes\n")
                self._process.stdin.flush()
                now = json.loads(self._line())
            except (OSError, ValueError) as error:
                raise Fault("the service has ended") from error
        gone = {name: pid for name, pid in self.processes.items() if pid not in now.values()}
        if gone:
            raise Fault(f"processes have ended: {gone}; now there are {now}")

    def resident(self) -> int:
        """Bytes of memory that its processes share or have alone."""
        return sum(map(_resident, [self._process.pid, *self.processes.values()]))

    def close(self) -> None:
        """End it.

        Raises:
            Fault: A sanitizer has something to report of its end.
        """
        with suppress(OSError):
            self._process.communicate(timeout=60)
        if self.cgroup:
            with suppress(OSError):
                self.cgroup.rmdir()
        for report in sanitized.reports(KEPT):
            raise Fault(f"a sanitizer has found something: {report}")


def _cgroup(memory_bytes: int) -> Path | None:
    for root, limit in CGROUPS:
        folder = root / f"pytriton-fuzz-{os.getpid()}"
        try:
            folder.mkdir()
            if (folder / limit).exists():  # else it is no cgroup of this controller
                (folder / limit).write_text(str(memory_bytes))
                return folder
            folder.rmdir()
        except OSError:
            with suppress(OSError):
                folder.rmdir()
    return None


def _resident(pid: int) -> int:
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return 0


class Attack:
    """Threads that send traffic, and the client whose answers are checked."""

    def __init__(self, service: Service, seed: int) -> None:
        self._service = service
        self.sent = self.bytes = self.answered = self.checked = 0
        self.faults: list[str] = []
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._last: list[deque[tuple[str, bytes]]] = []
        self._threads = [threading.Thread(target=self._control)]
        for number in range(THREADS):
            self._last.append(deque(maxlen=KEPT_MESSAGES))
            run = self._call if number < CALLERS else self._send
            self._threads.append(threading.Thread(target=run, args=(Random(f"{seed} {number}"), self._last[-1])))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def keep(self) -> None:
        """Write the last messages to files."""
        for thread, messages in enumerate(self._last):
            for number, (port, data) in enumerate(messages):
                (KEPT / f"{thread}-{number:02}.{port}").write_bytes(data)

    def _send(self, random: Random, last: deque[tuple[str, bytes]]) -> None:
        while not self._stopped.is_set():
            message = traffic.message(random)
            last.append((message.port, message.data))
            answer = b""
            with suppress(OSError):
                answer = send(self._service.ports, message)
            with self._lock:
                self.sent += 1
                self.answered += answer.startswith(b"HTTP/1.1 2")
                self.bytes += max(len(message.data), message.counted_bytes)

    def _call(self, random: Random, last: deque[tuple[str, bytes]]) -> None:
        options = [("grpc.enable_http_proxy", 0), ("grpc.max_send_message_length", -1)]
        while not self._stopped.is_set():
            with grpc.insecure_channel(f"{HOST}:{self._service.ports['grpc']}", options=options) as channel:
                for _ in range(random.choice((1, 10, 1000))):
                    if self._stopped.is_set():
                        break
                    method, messages = traffic.grpc_call(random)
                    last.append((f"grpc-{method}", b"".join(map(_framed, messages))))
                    with suppress(grpc.RpcError):
                        call(channel, method, messages, random.choice((None, None, None, 0, 1, 3)))
                        with self._lock:
                            self.answered += 1
                    with self._lock:
                        self.sent += 1
                        self.bytes += sum(map(len, messages))

    def _control(self) -> None:
        ports = self._service.ports
        values = np.arange(3, dtype=np.float32)
        options: dict[str, Any] = {"init_timeout_s": CONTROL_S, "inference_timeout_s": CONTROL_S}
        try:
            with (
                ModelClient(f"http://{HOST}:{ports['http']}", "numbers", **options) as http,
                ModelClient(f"grpc://{HOST}:{ports['grpc']}", "numbers", **options) as grpc_client,
            ):
                while not self._stopped.wait(0.1):
                    for client in (http, grpc_client):
                        assert client.infer_sample(values)["y"].tolist() == [0, 2, 4]
                    for port in self._service.app:
                        assert json.loads(_post(ports[port], "/predict/numbers", b'{"x": [1, 2]}'))["y"] == [2, 4]
                    self.checked += 1
        except Exception as error:
            self.faults.append(f"the client that is served meanwhile: {error!r}")


def call(channel: grpc.Channel, method: str, messages: list[bytes], answers: int | None = None) -> None:
    """Send messages over gRPC, and wait for all answers, or stop a stream after some.

    Raises:
        grpc.RpcError: They are refused.
    """
    path = f"/inference.GRPCInferenceService/{method}"
    if method == "ModelStreamInfer":
        stream = channel.stream_stream(path)(iter(messages), timeout=CONTROL_S)
        for _ in islice(stream, answers):
            pass
        stream.cancel()
    else:
        channel.unary_unary(path)(messages[0], timeout=CONTROL_S)


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "little") + data


def _messages(data: bytes) -> list[bytes]:
    found = []
    while data:
        end = 4 + int.from_bytes(data[:4], "little")
        found.append(data[4:end])
        data = data[end:]
    return found


def _post(port: int, path: str, body: bytes) -> bytes:
    with socket.create_connection((HOST, port), timeout=CONTROL_S) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nConnection: close\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        reply = b""
        while data := connection.recv(1 << 16):
            reply += data
    assert reply.startswith(b"HTTP/1.1 200"), reply[:300]
    return reply.split(b"\r\n\r\n", 1)[1]


def send(ports: dict[str, int], message: traffic.Message) -> bytes:
    """Send it to its port, and return the beginning of the answer."""
    port = ports.get(message.port, ports["http"])  # without the edge there are no ports of clouds
    with socket.create_connection((HOST, port), timeout=CONNECT_S) as connection:
        size = max(1, len(message.data) // message.pieces)
        for at in range(0, len(message.data), size):
            connection.sendall(message.data[at : at + size])
        if message.ending == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if message.ending in ("close", "reset"):
            return b""
        if message.ending == "half":
            connection.shutdown(socket.SHUT_WR)
        connection.settimeout(SILENCE_S)
        first = answer = connection.recv(1 << 16)
        # Some answers are endless.
        left_bytes, end = 0 if message.ending == "leave" else MOST_READ_BYTES, time.monotonic() + MOST_READ_S
        while answer and left_bytes > 0 and time.monotonic() < end:
            answer = connection.recv(1 << 16)
            left_bytes -= len(answer)
        return first


def fuzz(seconds: float, seed: int, memory_bytes: int, sanitizer: str | None) -> None:
    service = Service(memory_bytes, sanitizer)
    print(f"seed {seed}; processes {service.processes}; cgroup {service.cgroup}", flush=True)
    attack = Attack(service, seed)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            before, sent_before = service.resident(), attack.bytes
            round_end, peak = min(end, time.monotonic() + ROUND_S), before
            while time.monotonic() < round_end:
                time.sleep(0.2)
                peak = max(peak, service.resident())
                if attack.faults:
                    raise Fault(attack.faults[0])
            service.check()
            sent = attack.bytes - sent_before
            counts = f"{attack.sent} messages, {attack.answered} accepted, {attack.checked} checks"
            print(f"{counts}, {sent / MIB:.0f} MiB, {peak // MIB} MiB resident", flush=True)
            if peak > memory_bytes:
                raise Fault(f"the service took {peak // MIB} MiB")
            if peak - before > SLACK_BYTES + COPIES * sent:
                raise Fault(f"{sent // MIB} MiB of requests took {(peak - before) // MIB} MiB")
    except Fault as fault:
        attack.stop()
        attack.keep()
        sys.exit(f"FAULT: {fault}; seed {seed}; the last messages are in {KEPT}")
    finally:
        attack.stop()
        try:
            service.close()
        except Fault as fault:
            sys.exit(f"FAULT: {fault}; seed {seed}")
    if not attack.answered or not attack.checked:
        sys.exit("the service has accepted nothing, so nothing was shown")


def replay(files: list[Path], memory_bytes: int, sanitizer: str | None) -> None:
    service = Service(memory_bytes, sanitizer)
    try:
        for file in files:
            port, data = file.suffix[1:], file.read_bytes()
            print(file, flush=True)
            if port.startswith("grpc-"):
                with grpc.insecure_channel(f"{HOST}:{service.ports['grpc']}") as channel, suppress(grpc.RpcError):
                    call(channel, port[5:], _messages(data))
            else:
                with suppress(OSError):
                    send(service.ports, traffic.Message(port, data, len(data)))
            service.check()
    finally:
        service.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--memory-mib", type=int, help="limit of the service; default: 2048, with a sanitizer 4096")
    parser.add_argument("--sanitize", choices=[*sanitized.SANITIZERS], help="compile the native libraries with it")
    parser.add_argument("--replay", nargs="+", type=Path, metavar="file")
    arguments = parser.parse_args()
    memory_bytes = MIB * (arguments.memory_mib or (4096 if arguments.sanitize else 2048))
    if arguments.replay:
        replay(arguments.replay, memory_bytes, arguments.sanitize)
    else:
        fuzz(arguments.seconds, arguments.seed, memory_bytes, arguments.sanitize)


if __name__ == "__main__":
    main()
