"""Memory of inputs and outputs in one process: who makes it, and how long it is kept."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytriton.inprocess import (
    DLDeviceType,
    InternalError,
    InvalidArgumentError,
    MemoryAllocator,
    MemoryBuffer,
    MemoryType,
    Model,
    Server,
    default_memory_allocators,
)
from tests.server.inprocess_echo import echoed
from tests.server.inprocess_repository import write_echo
from tests.server.processes import wait_for
from tests.server.proxies import native_part_only

pytestmark = [pytest.mark.either_proxy, native_part_only]


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    repository = tmp_path_factory.mktemp("repository")
    write_echo(repository)
    with Server(model_repository=str(repository)) as server:
        yield server.model("echo")


def test_inputs_are_kept_until_the_response_and_no_longer(echo: Model):
    array = np.ones((1, 1000), np.float32)
    gone = weakref.ref(array)
    responses = echo.infer(inputs={"in_FP32": array})
    del array
    assert np.from_dlpack(next(responses).outputs["out_FP32"]).sum() == 1000
    wait_for(lambda: gone() is None, "the input to go")


def test_outputs_are_kept_as_long_as_what_is_made_of_them(echo: Model):
    class Allocator(MemoryAllocator):
        def allocate(self, size: int, memory_type: MemoryType, memory_type_id: int) -> MemoryBuffer:
            array = np.empty(size, np.uint8)
            owners.append(weakref.ref(array))
            return MemoryBuffer.from_array(array)

    owners: list[weakref.ref[Any]] = []
    tensor = echoed(echo, "FP32", np.ones((1, 3), np.float32), output_memory_allocator=Allocator())
    array = np.from_dlpack(tensor)
    del tensor
    assert array.tolist() == [[1, 1, 1]]
    assert owners[0]() is not None
    del array
    wait_for(lambda: owners[0]() is None, "the output to go")


def test_the_callers_allocator_makes_the_outputs_memory(echo: Model):
    class Allocator(MemoryAllocator):
        def __init__(self) -> None:
            self.made: list[MemoryBuffer] = []

        def allocate(self, size: int, memory_type: MemoryType, memory_type_id: int) -> MemoryBuffer:
            assert (memory_type, memory_type_id) == (MemoryType.CPU, 0)
            self.made.append(MemoryBuffer.from_dlpack(np.empty(size, np.uint8)))
            return self.made[-1]

    allocator = Allocator()
    tensor = echoed(
        echo, "FP32", np.ones((1, 5), np.float32), output_memory_allocator=allocator, output_memory_type="cpu"
    )
    (made,) = allocator.made
    assert tensor.memory_buffer.owner is made.owner
    assert tensor.memory_buffer.capsule is made.capsule
    assert tensor.data_ptr == made.data_ptr
    assert np.from_dlpack(tensor).ctypes.data == made.data_ptr


def test_a_default_allocator_makes_the_memory_of_requests_without_one(echo: Model, monkeypatch: pytest.MonkeyPatch):
    class Allocator(MemoryAllocator):
        def allocate(self, size: int, memory_type: MemoryType, memory_type_id: int) -> MemoryBuffer:
            made.append(np.empty(size, np.uint8))
            return MemoryBuffer.from_array(made[-1])

    made: list[np.ndarray] = []
    values = np.ones((1, 3), np.float32)
    with pytest.raises(InvalidArgumentError, match="add one to default_memory_allocators"):
        echoed(echo, "FP32", values, output_memory_type="gpu")
    for kind in (MemoryType.CPU, MemoryType.GPU):
        monkeypatch.setitem(default_memory_allocators, kind, Allocator())
    for wish in (None, "gpu"):
        tensor = echoed(echo, "FP32", values, output_memory_type=wish)
        assert tensor.data_ptr == made[-1].ctypes.data
        assert np.array_equal(np.from_dlpack(tensor), values)


@pytest.mark.parametrize(
    ("answer", "text"), [(ValueError("no memory today"), "no memory today"), (2, "2 bytes; 20"), (None, "made None")]
)
def test_an_allocator_that_fails_or_gives_too_little_fails_the_response(echo: Model, answer: Any, text: str):
    class Allocator(MemoryAllocator):
        def allocate(self, size: int, memory_type: MemoryType, memory_type_id: int) -> MemoryBuffer:
            if isinstance(answer, Exception):
                raise answer
            return None if answer is None else MemoryBuffer.from_array(np.empty(answer, np.uint8))

    with pytest.raises(InternalError, match=text):
        echoed(echo, "FP32", np.ones((1, 5), np.float32), output_memory_allocator=Allocator())


def test_outputs_outlive_the_server(tmp_path: Path):
    write_echo(tmp_path)
    with Server(model_repository=str(tmp_path)) as server:
        tensor = echoed(server.model("echo"), "FP32", np.ones((1, 3), np.float32))
    assert np.from_dlpack(tensor).tolist() == [[1, 1, 1]]


@pytest.mark.parametrize("device", [MemoryType.CPU, (MemoryType.CPU, 0), (DLDeviceType.kDLCPU, 0), "CPU", "cpu:0"])
def test_a_place_has_several_names(echo: Model, device: Any):
    tensor = echoed(echo, "FP32", np.ones((1, 1), np.float32), output_memory_type=device)
    assert tensor.to_device(device) is tensor
