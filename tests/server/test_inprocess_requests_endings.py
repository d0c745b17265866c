"""What ends while requests are in flight in a server of this process: waits, servers, and the last reference to one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pytriton.inprocess import CancelledError, InvalidArgumentError, MemoryAllocator, MemoryBuffer, MemoryType, Server
from tests.server.inprocess_repository import HEAD, write_echo, write_model
from tests.server.proxies import native_part_only

pytestmark = [pytest.mark.either_proxy, native_part_only]
ONE = {"in_FP32": np.ones((1, 3), np.float32)}
WAITER = f"""{HEAD}
        while not all(request.is_cancelled() for request in requests):
            time.sleep(0.002)
        return [pb_utils.InferenceResponse([], pb_utils.TritonError("noticed", pb_utils.TritonError.CANCELLED))
                for _ in requests]
"""


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl+C counts, also where these tests run in the background of a shell, which has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_signal_interrupts_a_wait_and_the_request_goes_on(tmp_path: Path):
    write_model(tmp_path, "waiter", WAITER, 'input { name: "x" data_type: TYPE_INT32 dims: [1] }')
    with Server(model_repository=str(tmp_path)) as server:
        responses = server.model("waiter").infer(inputs={"x": np.ones(1, np.int32)})
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 (it may come before the wait)
            timer.start()
            next(responses)
        timer.join()
        responses.cancel()
        with pytest.raises(CancelledError):
            next(responses)


def test_a_server_that_stops_leaves_the_requests_of_another_alone(tmp_path: Path):
    write_echo(tmp_path)
    with Server(model_repository=str(tmp_path)) as one, Server(model_repository=str(tmp_path)) as other:
        models = one.model("echo"), other.model("echo")
        pending = [model.infer(inputs=ONE) for _ in range(50) for model in models]
        one.stop()
        pending += [models[1].infer(inputs=ONE) for _ in range(50)]
        assert all(next(each).error is None for each in pending)
        with pytest.raises(InvalidArgumentError, match="not started"):
            models[0].infer(inputs=ONE)


def test_the_last_reference_to_a_server_may_go_on_a_thread_of_the_servers(tmp_path: Path):
    class Allocator(MemoryAllocator):
        server: Server | None = None

        def allocate(self, size: int, memory_type: MemoryType, memory_type_id: int) -> MemoryBuffer:
            self.server = None
            return MemoryBuffer.from_dlpack(np.empty(size, np.uint8))

    write_echo(tmp_path)
    allocator = Allocator()
    allocator.server = Server(model_repository=str(tmp_path)).start()
    responses = allocator.server.model("echo").infer(inputs=ONE, output_memory_allocator=allocator)
    assert np.from_dlpack(next(responses).outputs["out_FP32"]).sum() == 3
    for thread in threading.enumerate():
        if thread.name == "pytriton-inprocess-stop":
            thread.join()
