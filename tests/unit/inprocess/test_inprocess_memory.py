"""Copies between memory of the CPU and of GPUs, with CuPy; or what is said without it, or without a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest

from pytriton.inprocess import InvalidArgumentError, MemoryType, UnsupportedError
from pytriton.inprocess.memory import (
    MemoryBuffer,
    allocate,
    choose_allocator,
    copy,
    default_memory_allocators,
    has_gpu,
)
from pytriton.inprocess.tensor import Tensor, tensor_of

gpu_only = pytest.mark.skipif(not has_gpu(), reason="there is no GPU, or no CuPy")
no_gpu_only = pytest.mark.skipif(has_gpu(), reason="there is a GPU")
PLACES = [(MemoryType.GPU, 0), (MemoryType.CPU_PINNED, 0)]


@pytest.fixture
def without_cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "cupy", None)
    has_gpu.cache_clear()
    yield
    has_gpu.cache_clear()


@pytest.mark.parametrize("device", ["gpu:3", "cpu_pinned"])
@pytest.mark.usefixtures("without_cupy")
def test_who_has_no_cupy_is_told_to_install_it(device: str):
    with pytest.raises(UnsupportedError, match=r"pip install 'pytriton\[cuda\]'"):
        tensor_of(np.ones(2)).to_device(device)
    with pytest.raises(UnsupportedError, match="memory of GPU 3"):
        Tensor(tensor_of(np.ones(2)).data_type, (2,), MemoryBuffer(64, MemoryType.GPU, 3, 16, None)).to_host()


@pytest.mark.usefixtures("without_cupy")
def test_outputs_may_not_be_wanted_where_nobody_allocates():
    with pytest.raises(InvalidArgumentError, match=r"pip install 'pytriton\[cuda\]'"):
        choose_allocator(None, (MemoryType.GPU, 0))
    assert choose_allocator(None, None) is None


def test_each_type_of_memory_has_a_default_allocator_which_may_be_deleted(monkeypatch: pytest.MonkeyPatch):
    assert set(default_memory_allocators) == set(MemoryType)
    monkeypatch.delitem(default_memory_allocators, MemoryType.GPU)
    with pytest.raises(InvalidArgumentError, match="add one to default_memory_allocators"):
        choose_allocator(None, (MemoryType.GPU, 0))


@pytest.mark.usefixtures("without_cupy")
def test_the_allocator_of_gpu_memory_says_what_it_lacks():
    with pytest.raises(UnsupportedError, match=r"pip install 'pytriton\[cuda\]'"):
        default_memory_allocators[MemoryType.GPU].allocate(10, MemoryType.GPU, 0)


@no_gpu_only
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_without_a_gpu_nothing_is_copy(place: tuple[MemoryType, int]):
    with pytest.raises(UnsupportedError, match="memory"):
        tensor_of(np.ones(2)).to_device(place)
    with pytest.raises(UnsupportedError, match="memory"):
        tensor_of(np.ones(2)).__dlpack__(dl_device=(2, 0))


def test_memory_of_the_cpu_takes_no_library():
    source = np.arange(8, dtype=np.uint8)
    made = copy(MemoryBuffer.from_array(source), 5, (MemoryType.CPU, 0))
    assert (made.memory_type, made.size) == (MemoryType.CPU, 5)
    assert made.owner.tolist() == [0, 1, 2, 3, 4]
    assert allocate(0, (MemoryType.CPU, 0)).size == 0


@gpu_only
@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("shape", [(3, 5), (0, 2), (1 << 20,)], ids=str)
def test_tensors_go_there_and_back(place: tuple[MemoryType, int], shape: tuple[int, ...]):
    array = np.random.default_rng(0).random(shape)
    there = tensor_of(array).to_device(place)
    assert (there.memory_type, there.memory_type_id) == place
    assert there.to_device(place) is there
    back = copy(there.memory_buffer, there.size, (MemoryType.CPU, 0))
    assert np.array_equal(np.frombuffer(back.owner, np.float64).reshape(shape), array)
    assert np.array_equal(np.from_dlpack(there.to_host()), array)


@gpu_only
def test_outputs_may_be_wanted_on_a_gpu():
    allocator = choose_allocator(None, (MemoryType.GPU, 0))
    assert allocator is not None
    made = allocator.allocate(100, MemoryType.GPU, 0)
    assert (made.memory_type, made.memory_type_id, made.size) == (MemoryType.GPU, 0, 100)
