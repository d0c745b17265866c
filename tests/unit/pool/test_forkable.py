"""What a process must not have, from which workers are to be forked, and how it is told."""

import asyncio
import ctypes
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from pytriton.pool.forkable import why_not_forkable
from tests.unit.children import in_child


def test_a_process_with_one_thread_can_fork():
    assert in_child(lambda: why_not_forkable(os.fork)) == ""


def test_a_thread_of_python_is_told_by_its_name():
    def work():
        threading.Thread(target=threading.Event().wait, name="refresher", daemon=True).start()
        return why_not_forkable(os.fork)

    assert "the factory has started the thread 'refresher': start it in" in in_child(work)


def test_threads_that_the_factory_has_ended_do_not_count():
    def work():
        for _ in range(20):
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(abs, range(100)))
            if reason := why_not_forkable(os.fork):
                return reason
        return ""

    assert in_child(work) == ""


def test_an_event_loop_that_runs_is_refused():
    async def ask():
        return why_not_forkable(os.fork)

    assert "an event loop runs" in in_child(lambda: asyncio.run(ask()))


SLEEPER = """
#include <pthread.h>
#include <unistd.h>
static void* sleeping(void* nothing) { for (;;) pause(); return nothing; }
int start(void) {
    pthread_t thread;
    return pthread_create(&thread, 0, sleeping, 0) || pthread_setname_np(thread, "sleeper");
}
"""


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

    def work():
        sleepers = ctypes.CDLL(str(path))
        for _ in range(threads):
            assert sleepers.start() == 0
        return why_not_forkable(os.fork)

    reason = in_child(work)
    assert told in reason
    assert bool(told) == bool(reason)


def test_openblas_ends_its_threads_before_a_fork():
    def work():
        matrix = np.ones((600, 600))
        matrix @ matrix
        return why_not_forkable(os.fork)

    assert in_child(work) == ""


DRIVER = """
int cuDeviceGetCount(int* count) { *count = 1; return INITIALISED ? 0 : 3; }
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a compiler of C")
@pytest.mark.parametrize("initialised", [0, 1])
def test_the_driver_of_cuda_tells_whether_it_is_initialised(tmp_path, initialised):
    path = tmp_path / "libcuda.so.1"
    command = ["cc", f"-DINITIALISED={initialised}", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-x", "c", "-"]
    subprocess.run([*command, "-o", path], input=DRIVER, text=True, check=True)

    def work():
        ctypes.CDLL(str(path))
        return why_not_forkable(os.fork)

    assert ("CUDA is initialised" in in_child(work)) == bool(initialised)


def test_cuda_that_is_initialised_is_refused_with_the_libraries_that_are_loaded():
    def work():
        sys.modules.pop("onnxruntime", None)  # of another test
        sys.modules["torch"] = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True))
        return why_not_forkable(os.fork)

    assert "CUDA is initialised, by torch: load on the CPU" in in_child(work)


def test_a_fork_that_hangs_is_killed_and_refused(monkeypatch):
    def hanging():
        pid = os.fork()
        if not pid:
            threading.Event().wait()
        return pid

    def work():
        monkeypatch.setattr("pytriton.pool.forkable.FORK_S", 0.1)
        return why_not_forkable(hanging)

    assert "a fork hangs" in in_child(work)


@pytest.mark.parametrize("torch", [None, SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False))])
def test_libraries_without_cuda_may_be_loaded(torch):
    def work():
        sys.modules["torch"] = torch
        return why_not_forkable(os.fork)

    assert in_child(work) == ""
