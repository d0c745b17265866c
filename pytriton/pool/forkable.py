"""What would hang or fail in a process that is forked from this one: threads, CUDA, a running event loop."""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from pytriton.pool.native_threads import native_threads

__all__ = ["why_not_forkable"]

FORK_S = 10.0
ENDING_S, POLL_S = 0.5, 0.01  # the kernel shows a thread of Python for a moment after it was joined
CUDA_LIBRARIES = ("torch", "cupy", "onnxruntime", "tensorrt", "jax", "tensorflow", "numba", "pycuda")
ONE_THREAD = "give Processes threads=1, or do not compute in the factory"
# Parts of paths of libraries, what to do about their threads, and how many threads they may have.
KNOWN = {
    "onnxruntime": ("set SessionOptions.intra_op_num_threads and inter_op_num_threads to 1", 1),  # its import's
    "tokenizers": ("set TOKENIZERS_PARALLELISM=false, or do not encode in the factory", 0),
    "libgomp": (f"{ONE_THREAD}; it belongs to OpenMP, which scikit-learn, PyTorch, XGBoost and LightGBM use", 0),
    "omp": (f"{ONE_THREAD}; it belongs to OpenMP", 0),
    "torch": (f"{ONE_THREAD}", 0),
    "libcuda": ("do not use CUDA in the factory; choose a GPU in after_fork", 0),
}
INSTEAD = "start it in the callable's method after_fork(worker), or use share=False"


def why_not_forkable(fork: Callable[[], int]) -> str:
    """Why workers cannot be forked from this process, and what to do; empty if they can.

    Libraries that are prepared for a fork end their threads before it, as OpenBLAS does. So threads count that are
    there after a fork.

    Args:
        fork: As :func:`os.fork`.
    """
    reasons = [*_python_threads(), *_event_loops(), *_cuda()]
    if not reasons:  # or the fork might hang
        reasons = [*_fork_once(fork)]
        until = time.monotonic() + ENDING_S
        while (running := [*_native_threads()]) and time.monotonic() < until:
            time.sleep(POLL_S)
        reasons += running
    lines = "\n".join(f"- {reason}" for reason in reasons)
    return f"share=True cannot fork workers from a process in which\n{lines}" if reasons else ""


def _python_threads() -> Iterator[str]:
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            yield f"the factory has started the thread {thread.name!r}: {INSTEAD}"


def _event_loops() -> Iterator[str]:
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        yield f"an event loop runs: {INSTEAD}"


def _cuda() -> Iterator[str]:
    is_initialized = False
    with suppress(OSError):  # it is not loaded
        driver = ctypes.CDLL("libcuda.so.1", os.RTLD_NOLOAD | os.RTLD_NOW)
        is_initialized = driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == 0  # before cuInit an error
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():  # ROCm, too
        is_initialized = True
    if is_initialized:
        loaded = ", ".join(name for name in CUDA_LIBRARIES if name in sys.modules) or "a library"
        yield (
            f"CUDA is initialised, by {loaded}: load on the CPU, and use CUDA from the callable's method "
            "after_fork(worker) on, or use share=False; torch.cuda.is_available() does not initialise it with "
            "PYTORCH_NVML_BASED_CUDA_CHECK=1 in the environment"
        )


def _fork_once(fork: Callable[[], int]) -> Iterator[str]:
    """Fork a process that ends at once."""
    pid = fork()
    if not pid:
        os._exit(0)
    child = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(child, select.POLLIN)
    if not poll.poll(1000 * FORK_S):
        os.kill(pid, 9)
        yield "a fork hangs, in a function that a library runs at each fork: use share=False"
    os.close(child)
    os.waitpid(pid, 0)


def _native_threads() -> Iterator[str]:
    for (library, name), count in native_threads().items():
        advice, allowed = next((KNOWN[each] for each in KNOWN if each in library), (INSTEAD, 0))
        if count > allowed:
            what = os.path.basename(library) or "an unknown library"
            threads = f"{count} threads {name!r} are" if count > 1 else f"a thread {name!r} is"
            yield f"{threads} running, of {what}: {advice}"
