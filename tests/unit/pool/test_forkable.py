"""What a process must not have, from which workers are to be forked, and how it is told.

Each is asked in a process of its own: gRPC, which other tests use, starts threads in a fork of this one.
"""

import asyncio
import ctypes
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pytriton.pool import forkable
from pytriton.pool.forkable import why_not_forkable
from pytriton.pool.native_threads import native_threads
from tests.unit.children import in_new_process


def ask() -> str:
    return why_not_forkable(os.fork)


def test_a_process_with_one_thread_can_fork():
    assert in_new_process(ask) == ""


def ask_beside_a_thread() -> str:
    threading.Thread(target=threading.Event().wait, name="refresher", daemon=True).start()
    return ask()


def test_a_thread_of_python_is_told_by_its_name():
    assert "the factory has started the thread 'refresher': start it in" in in_new_process(ask_beside_a_thread)


def ask_after_threads() -> str:
    for _ in range(20):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(abs, range(100)))
        if reason := ask():
            return reason
    return ""


def test_threads_that_the_factory_has_ended_do_not_count():
    assert in_new_process(ask_after_threads) == ""


def ask_in_a_coroutine() -> str:
    async def asking() -> str:
        return ask()

    return asyncio.run(asking())


def test_an_event_loop_that_runs_is_refused():
    assert "an event loop runs" in in_new_process(ask_in_a_coroutine)


SLEEPER = """
#include <pthread.h>
#include <unistd.h>
static void* sleeping(void* nothing) { for (;;) pause(); return nothing; }
int start(void) {
    pthread_t thread;
    return pthread_create(&thread, 0, sleeping, 0) || pthread_setname_np(thread, "sleeper");
}
"""


def ask_beside_threads_of(library: Path, threads: int) -> str:
    sleepers = ctypes.CDLL(str(library))
    for _ in range(threads):
        assert sleepers.start() == 0
    return ask()


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a compiler of C")
@pytest.mark.parametrize(
    ("library", "threads", "told"),
    [
        ("libsleepers.so", 1, "a thread 'sleeper' is running, of libsleepers.so: start it in"),
        ("libsleepers.so", 2, "2 threads 'sleeper' are running, of libsleepers.so"),
        ("libgomp.so.1", 1, "of libgomp.so.1: give Processes threads=1"),
        ("onnxruntime.so", 2, "of onnxruntime.so: set SessionOptions.intra_op_num_threads and"),
        ("onnxruntime.so", 1, ""),
    ],
)
def test_a_thread_of_a_library_is_told_with_its_name_its_library_and_what_to_do(tmp_path, library, threads, told):
    path = tmp_path / library
    command = ["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-pthread", "-x", "c", "-", "-o", path]
    subprocess.run(command, input=SLEEPER, text=True, check=True)
    reason = in_new_process(ask_beside_threads_of, path, threads)
    assert told in reason
    assert bool(told) == bool(reason)


def ask_after_a_product() -> tuple[int, str]:
    """How many threads OpenBLAS has, and why workers cannot be forked."""
    matrix = np.ones((600, 600))
    matrix @ matrix
    return sum(native_threads().values()), ask()


def test_openblas_ends_its_threads_before_a_fork(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    threads = min(2, len(os.sched_getaffinity(0)))
    assert in_new_process(ask_after_a_product) == (threads - 1, "")


DRIVER = """
int cuDeviceGetCount(int* count) { *count = 1; return INITIALISED ? 0 : 3; }
"""


def ask_with_a_driver(path: Path) -> str:
    ctypes.CDLL(str(path))
    return ask()


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a compiler of C")
@pytest.mark.parametrize("initialised", [0, 1])
def test_the_driver_of_cuda_tells_whether_it_is_initialised(tmp_path, initialised):
    path = tmp_path / "libcuda.so.1"
    command = ["cc", f"-DINITIALISED={initialised}", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-x", "c", "-"]
    subprocess.run([*command, "-o", path], input=DRIVER, text=True, check=True)
    assert ("CUDA is initialised" in in_new_process(ask_with_a_driver, path)) == bool(initialised)


def ask_with_torch(is_initialized: bool | None) -> str:
    """With a torch that says so; None is one that could not be imported."""
    torch = (
        None if is_initialized is None else SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: is_initialized))
    )
    sys.modules["torch"] = torch
    return ask()


def test_cuda_that_is_initialised_is_refused_with_the_libraries_that_are_loaded():
    assert "CUDA is initialised, by torch: load on the CPU" in in_new_process(ask_with_torch, True)


@pytest.mark.parametrize("is_initialized", [None, False])
def test_libraries_without_cuda_may_be_loaded(is_initialized):
    assert in_new_process(ask_with_torch, is_initialized) == ""


def ask_with_a_fork_that_hangs() -> str:
    def hanging() -> int:
        pid = os.fork()
        if not pid:
            threading.Event().wait()
        return pid

    forkable.FORK_S = 0.1
    return why_not_forkable(hanging)


def test_a_fork_that_hangs_is_killed_and_refused():
    assert "a fork hangs" in in_new_process(ask_with_a_fork_that_hangs)
