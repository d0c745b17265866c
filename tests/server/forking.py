"""A hosting process for test_forks.py: forks in many ways, and tells after each what the child and a client got.

Arguments: what it binds a model with, the server's options in JSON, and the server's URL.
"""

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import warnings
from functools import partial

import numpy as np

from pytriton.client import ModelClient
from pytriton.exceptions import PyTritonInvalidOperationError
from pytriton.inprocess import Triton as InprocessTriton
from pytriton.model_config import ModelConfig
from pytriton.triton import RemoteTriton, Triton, TritonConfig
from pytriton.workers import Processes
from tests.server.conftest import local_config
from tests.server.other_server import TOKEN
from tests.server.own_server import TENSORS

KIND, OPTIONS, URL = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
EXITS, RETURNS, RAISES, ENDS = range(4)
warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, for a fork beside threads


def fork_and_wait(what):
    """Answer a request with the exit status of a child, and what the child does if it comes back."""
    if not (child := os.fork()):
        if what == EXITS:
            sys.exit(5)
        if what == RAISES:
            raise ValueError("on purpose, in a child")
        if what == ENDS:
            os._exit(6)
        return -1
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def plain(requests):
    return [{"y": request["x"] * 0 + fork_and_wait(int(request["x"][0, 0]))} for request in requests]


async def coroutine(requests):
    return plain(requests)


def double(requests):
    return [{"y": request["x"] * 2} for request in requests]


def made():
    if KIND == "inprocess":
        return InprocessTriton()
    return RemoteTriton(URL, access_token=TOKEN) if KIND == "remote" else Triton(config=TritonConfig(**OPTIONS))


def ask(model, value):
    settings = {"init_timeout_s": 10.0, "inference_timeout_s": 20.0}
    client = triton.client(model, **settings) if KIND == "inprocess" else ModelClient(URL, model, **settings)
    with client:
        return float(client.infer_batch(np.array([[value]], np.float32))["y"][0, 0])


def say(what):
    print(json.dumps(what), flush=True)


def status(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def exits():
    if not (child := os.fork()):
        sys.exit(3)
    return status(child)


def raises():
    if not (child := os.fork()):
        raise ValueError("on purpose")
    return status(child)


def ends_at_once():
    if not (child := os.fork()):
        os._exit(3)
    return status(child)


def stops():
    if not (child := os.fork()):
        os._exit(3 if triton.stop() is False else 1)
    return status(child)


def forks_in_a_thread():
    statuses = []
    thread = threading.Thread(target=lambda: statuses.append(ends_in_a_thread()))
    thread.start()
    thread.join()
    return statuses[0]


def ends_in_a_thread():
    if not (child := os.fork()):
        with contextlib.suppress(PyTritonInvalidOperationError):
            triton.connect()
            os._exit(1)
        os._exit(3)
    return status(child)


def runs_multiprocessing():
    process = multiprocessing.get_context("fork").Process(target=sys.exit, args=(3,))
    process.start()
    process.join()
    return process.exitcode


def runs_a_pool():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return sum(pool.map(int, "111"))


def runs_a_subprocess():
    return subprocess.run([sys.executable, "-c", "exit(3)"], check=False, preexec_fn=lambda: os.nice(0)).returncode


def serves_with_another():
    if not (child := os.fork()):
        with local_config() as config, Triton(config=config) as other:
            other.bind("other", double, *TENSORS)
            with ModelClient(f"http://127.0.0.1:{config.http_port}", "other") as client:
                answer = client.infer_batch(np.ones((1, 1), np.float32))["y"]
        sys.exit(3 if answer == 2 else 1)
    return status(child)


def tells():
    """What the methods say in a child."""
    reader, writer = os.pipe()
    if not (child := os.fork()):
        said = {"alive": triton.is_alive(), "connected": triton.is_connected(), "stopped": triton.stop()}
        calls = {
            "bind": lambda: triton.bind("other", double, *TENSORS),
            "connect": triton.connect,
            "serve": triton.serve,
            "statistics": triton.statistics,
            "unbind": lambda: triton.unbind("m"),
            "wait": triton.wait_for_ready,
        }
        for name, call in calls.items():
            try:
                said[name] = repr(call())
            except PyTritonInvalidOperationError as error:
                said[name] = str(error)
        os.write(writer, json.dumps({**said, "parent": os.getppid()}).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        said = json.load(pipe)
    status(child)
    return said


def holds():
    """What sockets and pipes a child has, other than those of its own and standard input, output and error."""
    before = {os.readlink(f"/proc/self/fd/{number}") for number in (0, 1, 2)}
    own = os.pipe()
    before |= {os.readlink(f"/proc/self/fd/{number}") for number in own}
    if not (child := os.fork()):
        found = []
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):
                target = os.readlink(f"/proc/self/fd/{number}")
                if target.startswith(("socket:", "pipe:")) and target not in before:
                    found.append(target)
        os.write(own[1], json.dumps(found).encode())
        os._exit(0)
    os.close(own[1])
    with open(own[0]) as pipe:
        found = json.load(pipe)
    status(child)
    return found


def bind(*functions):
    for function in functions:
        infer = Processes(partial(lambda made: made, function), count=1) if KIND == "workers" else function
        triton.bind(function.__name__, infer, *TENSORS, config=ModelConfig(max_batch_size=1))


WAYS = [
    holds,
    exits,
    raises,
    ends_at_once,
    stops,
    forks_in_a_thread,
    runs_multiprocessing,
    runs_a_pool,
    runs_a_subprocess,
    tells,
]
if KIND != "inprocess":  # whose library lacks its threads in a child
    WAYS.append(serves_with_another)
with made() as triton:
    bind(double, plain)
    triton.serve_metrics(0, "127.0.0.1")
    for way in WAYS:
        say([way.__name__, way(), ask("double", 2), triton.is_alive()])
    bind(coroutine)  # whose event loop has sockets of its own
    for name in ("plain", "coroutine"):
        answers = [ask(name, what) for what in (EXITS, RETURNS, RAISES, ENDS)]
        say([name, answers, ask("double", 2), triton.is_alive()])
    if not (child := os.fork()):
        signal.pause()  # it lives on
    say(["child", child, ask("double", 2), triton.is_alive()])
    sys.stdin.readline()
    say(["stop", triton.stop(), 4.0, True])
