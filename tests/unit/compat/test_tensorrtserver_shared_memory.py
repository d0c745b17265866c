"""The first protocol's modules of shared memory: what is put into a region is read from it."""

import ctypes
import os
import sys
from types import SimpleNamespace
from uuid import uuid4

import numpy as np
import pytest
import tritonclient.utils.shared_memory as tritonclient_shm

import pytriton.compat.tensorrtserver.cuda_shared_memory as cudashm
import pytriton.compat.tensorrtserver.shared_memory as shm
from pytriton.compat.tensorrtserver.api import InferenceServerException, serialize_string_tensor
from pytriton.compat.tensorrtserver.shared_memory import SharedMemoryHandle

NUMBERS = np.arange(6, dtype=np.int32).reshape(2, 3)
TEXTS = np.array(["one", b"", "drei\u00df"], dtype=object)
ENCODED = [b"one", b"", "drei\u00df".encode()]


class FakeCuda:
    """``cupy.cuda``, whose GPUs have the CPU's memory."""

    def __init__(self) -> None:
        self.allocated: dict[int, object] = {}
        self.runtime = SimpleNamespace(
            malloc=self.malloc,
            free=self.allocated.pop,
            ipcGetMemHandle=lambda pointer: pointer.to_bytes(64, "little"),
            memcpy=lambda target, source, size, kind: ctypes.memmove(target, source, size),
            memcpyDefault=4,
            deviceSynchronize=lambda: None,
        )

    class Device:
        def __init__(self, number: int) -> None:
            if number != 0:
                raise RuntimeError("cudaErrorInvalidDevice: invalid device ordinal")

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    def malloc(self, size: int) -> int:
        memory = ctypes.create_string_buffer(size)
        self.allocated[ctypes.addressof(memory)] = memory
        return ctypes.addressof(memory)


@pytest.fixture
def cuda(monkeypatch):
    cuda = FakeCuda()
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    return cuda


@pytest.fixture
def key():
    key = f"/pytriton-test-{uuid4().hex}"
    yield key
    if os.path.exists(f"/dev/shm{key}"):
        os.unlink(f"/dev/shm{key}")


def system_region(key, size):
    return shm, shm.create_shared_memory_region("data", key, size)


@pytest.fixture(params=["system", "cuda"])
def region(request, key):
    """A module, and a region of 64 bytes of its kind."""
    if request.param == "system":
        yield system_region(key, 64)
    else:
        request.getfixturevalue("cuda")
        yield cudashm, cudashm.create_shared_memory_region("data", np.int64(64), 0)


def test_arrays_follow_each_other_in_a_region(region):
    module, handle = region
    module.set_shared_memory_region(handle, [NUMBERS.T, np.array(7.0)])
    assert module.get_contents_as_numpy(handle, np.int32, [3, 2]).tolist() == NUMBERS.T.tolist()
    assert module.get_contents_as_numpy(handle, np.float64, (4,))[3] == 7
    assert module.get_contents_as_numpy(handle, np.int8, 0).shape == (0,)


@pytest.mark.parametrize("given", [TEXTS, np.array(["one", "", "drei\u00df"]), serialize_string_tensor(TEXTS)])
@pytest.mark.parametrize("datatype", [object, np.bytes_, np.str_])
def test_strings_come_back_as_bytes(region, given, datatype):
    module, handle = region
    module.set_shared_memory_region(handle, [given])
    assert module.get_contents_as_numpy(handle, datatype, [3, 1]).tolist() == [[each] for each in ENCODED]


def test_strings_that_v1_had_encoded_are_taken_as_they_are(region):
    module, handle = region
    module.set_shared_memory_region(handle, [np.array(serialize_string_tensor(TEXTS).tobytes(), dtype=object)])
    assert module.get_contents_as_numpy(handle, np.object_, [3]).tolist() == ENCODED


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda module, handle: module.set_shared_memory_region(handle, NUMBERS), "a list of arrays, got ndarray"),
        (lambda module, handle: module.set_shared_memory_region(handle, [1]), "a list of arrays, got a list with"),
        (lambda module, handle: module.set_shared_memory_region(handle, [NUMBERS] * 3), "take 72 bytes.* room for 64"),
        (lambda module, handle: module.get_contents_as_numpy(handle, np.int32, [17]), "takes 68 bytes.* there are 64"),
        (lambda module, handle: module.get_contents_as_numpy(handle, object, [17]), "holds 16 strings and no more"),
        (lambda module, handle: module.get_contents_as_numpy(handle, np.int32, [-1]), "must not be negative"),
        (lambda module, handle: module.get_contents_as_numpy(None, np.int32, [1]), "got None"),
        (lambda module, handle: module.destroy_shared_memory_region(None), "got None"),
    ],
)
def test_what_does_not_fit_is_an_error_of_the_module_and_of_the_api(region, call, message):
    module, handle = region
    module.set_shared_memory_region(handle, [np.zeros(16, np.int32)])
    kind = shm.SharedMemoryException if module is shm else cudashm.CudaSharedMemoryException
    assert issubclass(kind, InferenceServerException)
    with pytest.raises(kind, match=message):
        call(module, handle)


def test_a_destroyed_region_is_not_used_and_may_be_destroyed_again(region):
    module, handle = region
    for _ in range(2):
        module.destroy_shared_memory_region(handle)
    with pytest.raises(InferenceServerException, match="'data' was destroyed"):
        module.get_contents_as_numpy(handle, np.int32, [1])
    with pytest.raises(InferenceServerException, match="'data' was destroyed"):
        module.set_shared_memory_region(handle, [NUMBERS])


def test_a_region_is_a_handle_for_the_server(key, cuda):
    _, handle = system_region(key, 64)
    assert SharedMemoryHandle.is_one(handle)
    assert SharedMemoryHandle.of(handle) == SharedMemoryHandle("data", 64, key=key)
    gpu = cudashm.create_shared_memory_region("gpu", 16, 0)
    found = SharedMemoryHandle.of(gpu)
    assert (found.name, found.byte_size, found.device_id, found.raw_handle) == ("gpu", 16, 0, gpu.raw_handle)


def test_a_region_that_a_crashed_program_left_is_used_again_and_never_shrinks(key):
    _, first = system_region(key, 64)
    shm.set_shared_memory_region(first, [NUMBERS])
    _, smaller = system_region(key, 8)
    assert shm.get_contents_as_numpy(smaller, np.int32, [2]).tolist() == [0, 1]
    assert os.stat(f"/dev/shm{key}").st_size == 64
    _, larger = system_region(key, 8192)
    assert shm.get_contents_as_numpy(larger, np.int32, [6]).tolist() == NUMBERS.ravel().tolist()
    shm.destroy_shared_memory_region(larger)
    assert not os.path.exists(f"/dev/shm{key}")
    shm.destroy_shared_memory_region(first)


def test_contents_are_a_view_that_outlives_the_region(key):
    _, handle = system_region(key, 24)
    shm.set_shared_memory_region(handle, [NUMBERS])
    seen = shm.get_contents_as_numpy(handle, np.int32, [6])
    shm.set_shared_memory_region(handle, [NUMBERS[0] + 10], offset=12)
    assert seen.tolist() == [0, 1, 2, 10, 11, 12]
    shm.destroy_shared_memory_region(handle)
    assert seen.tolist() == [0, 1, 2, 10, 11, 12]


def test_regions_of_tritonclient_and_fields_are_read_as_well(key):
    theirs = tritonclient_shm.create_shared_memory_region("data", key, 64)
    try:
        tritonclient_shm.set_shared_memory_region(theirs, [NUMBERS])
        fields = {"name": "data", "key": key, "byte_size": 12, "offset": 12}
        assert shm.get_contents_as_numpy(theirs, np.int32, [6]).tolist() == list(range(6))
        assert shm.get_contents_as_numpy(fields, np.int32, [3]).tolist() == [3, 4, 5]
        shm.set_shared_memory_region(fields, [NUMBERS[0]])
        assert shm.get_contents_as_numpy(theirs, np.int32, [6]).tolist() == [0, 1, 2, 0, 1, 2]
    finally:
        tritonclient_shm.destroy_shared_memory_region(theirs)


@pytest.mark.parametrize("wrong", ["", "/", "/a/b", ".."])
def test_a_key_is_one_name(wrong):
    with pytest.raises(shm.SharedMemoryException, match="a key is a name such as '/input_simple'"):
        shm.create_shared_memory_region("data", wrong, 64)


@pytest.mark.parametrize("size", [0, -1, 1.5, None])
def test_a_region_has_a_size(key, size):
    with pytest.raises(shm.SharedMemoryException, match="cannot create the shared memory"):
        shm.create_shared_memory_region("data", key, size)


def test_memory_of_a_gpu_is_freed(cuda):
    handle = cudashm.create_shared_memory_region("data", 64, 0)
    assert len(cuda.allocated) == 1
    cudashm.destroy_shared_memory_region(handle)
    assert cuda.allocated == {}


def test_a_gpu_that_is_not_there_and_a_missing_cupy_are_told(cuda, monkeypatch):
    with pytest.raises(cudashm.CudaSharedMemoryException, match=r"allocate memory of GPU 3: .*invalid device"):
        cudashm.create_shared_memory_region("data", 64, 3)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(cudashm.CudaSharedMemoryException, match=r"pip install 'pytriton\[cuda\]'"):
        cudashm.create_shared_memory_region("data", 64, 0)
