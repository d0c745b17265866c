"""The functions of ``tensorrtserver.cuda_shared_memory``: regions of a GPU's memory, for a server on this machine.

CuPy allocates and copies it.
"""

from __future__ import annotations

import base64
import importlib
import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.compat.tensorrtserver.exceptions import InferenceServerException
from pytriton.compat.tensorrtserver.shared_memory import as_array, as_chunks, raised_as

__all__ = [
    "CudaSharedMemoryException",
    "CudaSharedMemoryRegion",
    "create_shared_memory_region",
    "destroy_shared_memory_region",
    "get_contents_as_numpy",
    "set_shared_memory_region",
]


class CudaSharedMemoryException(InferenceServerException):
    """A region could not be created, written, read or destroyed."""


class CudaSharedMemoryRegion:
    """A region that this process has allocated: the handle, which ``cuda_register`` and ``run`` take.

    Args:
        name: To the server.
        device_id: Of the GPU.
        pointer: Where it is in this process.
        raw_handle: By which other processes open it, in base64.
    """

    def __init__(self, name: str, byte_size: int, device_id: int, pointer: int, raw_handle: bytes) -> None:
        self.name = name
        self.byte_size = byte_size
        self.device_id = device_id
        self.raw_handle = raw_handle
        self._pointer: int | None = pointer

    def __repr__(self) -> str:
        return f"CudaSharedMemoryRegion(name={self.name!r}, byte_size={self.byte_size}, device_id={self.device_id})"

    @property
    def pointer(self) -> int:
        """Where it is in this process.

        Raises:
            ValueError: The region was destroyed.
        """
        if self._pointer is None:
            raise ValueError(f"region {self.name!r} was destroyed")
        return self._pointer

    def release(self) -> int | None:
        """The pointer, which is the caller's to free from now on; None if it was released before."""
        pointer, self._pointer = self._pointer, None
        return pointer


def create_shared_memory_region(trtis_shm_name: str, byte_size: int, device_id: int) -> CudaSharedMemoryRegion:
    """Allocate a region of a GPU's memory.

    Args:
        trtis_shm_name: Name of the region to the server.
        device_id: Of the GPU.

    Raises:
        CudaSharedMemoryException: There is no CuPy, no such GPU, or not enough memory.
    """
    with raised_as(CudaSharedMemoryException, f"allocate memory of GPU {device_id}"):
        size, device = operator.index(byte_size), operator.index(device_id)
        if size < 1:
            raise ValueError(f"byte_size must be at least 1, got {size}")
        cuda = _cuda()
        with cuda.Device(device):
            pointer = cuda.runtime.malloc(size)
            try:
                raw_handle = base64.b64encode(cuda.runtime.ipcGetMemHandle(pointer))
            except BaseException:
                cuda.runtime.free(pointer)
                raise
        return CudaSharedMemoryRegion(trtis_shm_name, size, device, pointer, raw_handle)


def set_shared_memory_region(cuda_shm_handle: CudaSharedMemoryRegion, input_values: Any) -> None:
    """Copy arrays into a region, one after the other.

    Args:
        cuda_shm_handle: From :func:`create_shared_memory_region`.
        input_values: A list of arrays; strings are encoded as the server wants them.

    Raises:
        CudaSharedMemoryException: They do not fit, or are no list of arrays.
    """
    with raised_as(CudaSharedMemoryException, "set the shared memory region"):
        target = _checked(cuda_shm_handle).pointer
        for chunk in as_chunks(input_values, cuda_shm_handle.byte_size):
            _copy(cuda_shm_handle.device_id, target, chunk.ctypes.data, chunk.nbytes)
            target += chunk.nbytes


def get_contents_as_numpy(cuda_shm_handle: CudaSharedMemoryRegion, datatype: Any, shape: Any) -> NDArray[Any]:
    """A new array, in memory of the CPU, of what is in a region.

    Args:
        cuda_shm_handle: From :func:`create_shared_memory_region`.
        datatype: A dtype of NumPy; ``object`` and ``np.bytes_`` mean strings, which come as ``bytes``.

    Raises:
        CudaSharedMemoryException: The region is too small, or does not hold that.
    """
    with raised_as(CudaSharedMemoryException, "read the shared memory region"):
        host = np.empty(_checked(cuda_shm_handle).byte_size, np.uint8)
        _copy(cuda_shm_handle.device_id, host.ctypes.data, cuda_shm_handle.pointer, host.nbytes)
        return as_array(host.data, datatype, shape, 0)


def destroy_shared_memory_region(cuda_shm_handle: CudaSharedMemoryRegion) -> None:
    """Free a region. Doing so again does nothing.

    Unregister it first: a server that has it open keeps it.

    Raises:
        CudaSharedMemoryException: The handle is not from :func:`create_shared_memory_region`.
    """
    with raised_as(CudaSharedMemoryException, "destroy the shared memory region"):
        pointer = _checked(cuda_shm_handle).release()
        if pointer is not None:
            cuda = _cuda()
            with cuda.Device(cuda_shm_handle.device_id):
                cuda.runtime.free(pointer)


def _checked(handle: Any) -> CudaSharedMemoryRegion:
    if not isinstance(handle, CudaSharedMemoryRegion):
        raise TypeError(f"expected what create_shared_memory_region returned, got {handle!r}")
    return handle


def _copy(device_id: int, target: int, source: int, size: int) -> None:
    cuda = _cuda()
    with cuda.Device(device_id):
        cuda.runtime.memcpy(target, source, size, cuda.runtime.memcpyDefault)
        cuda.runtime.deviceSynchronize()  # the server reads it on a stream of its own


def _cuda() -> Any:
    try:
        return importlib.import_module("cupy").cuda
    except ImportError as error:
        raise RuntimeError(
            f"CuPy is needed for memory of GPUs, and is not there ({error}); "
            "install it with: pip install 'pytriton[cuda]'"
        ) from error
