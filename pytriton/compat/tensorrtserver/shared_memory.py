"""The functions of ``tensorrtserver.shared_memory``: regions of system memory that a server on this machine maps.

Keys are names of files in ``/dev/shm``, as for ``shm_open``. Regions outlive the program that made them, until
:func:`destroy_shared_memory_region`.
"""

from __future__ import annotations

import mmap
import operator
import os
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from pytriton.compat.tensorrtserver.exceptions import InferenceServerException
from pytriton.compat.tensorrtserver.regions import SharedMemoryHandle, as_array, as_chunks, raised_as

__all__ = [
    "SharedMemoryException",
    "SharedMemoryRegion",
    "create_shared_memory_region",
    "destroy_shared_memory_region",
    "get_contents_as_numpy",
    "set_shared_memory_region",
]

_FOLDER = Path("/dev/shm")


class SharedMemoryException(InferenceServerException):
    """A region could not be created, written, read or destroyed."""


class SharedMemoryRegion:
    """A region that this process has mapped: the handle, which ``register`` and ``run`` take.

    Args:
        name: To the server.
        key: Name of the memory.
        memory: The mapping, of ``byte_size`` bytes.
    """

    offset = 0

    def __init__(self, name: str, key: str, memory: mmap.mmap) -> None:
        self.name = name
        self.key = key
        self.byte_size = len(memory)
        self._memory: mmap.mmap | None = memory

    def __repr__(self) -> str:
        return f"SharedMemoryRegion(name={self.name!r}, key={self.key!r}, byte_size={self.byte_size})"

    @property
    def memory(self) -> mmap.mmap:
        """The mapping.

        Raises:
            ValueError: The region was destroyed.
        """
        if self._memory is None:
            raise ValueError(f"region {self.name!r} was destroyed")
        return self._memory

    def release(self) -> None:
        """Give up the mapping; arrays that are views of it keep it as long as they live."""
        self._memory = None


def create_shared_memory_region(trtis_shm_name: str, shm_key: str, byte_size: int) -> SharedMemoryRegion:
    """Map a region of system memory, which is created if there is none of that key.

    One that is there keeps what is in it, and grows to ``byte_size`` if it is smaller. It does not shrink, because a
    server that has it mapped would crash.

    Args:
        trtis_shm_name: Name of the region to the server.
        shm_key: Name of the memory, such as ``/input_simple``.
        byte_size: Of the region.

    Raises:
        SharedMemoryException: A program of another user has that key, or there is not enough memory.
    """
    with raised_as(SharedMemoryException, f"create the shared memory {shm_key!r}"):
        return SharedMemoryRegion(trtis_shm_name, shm_key, _mapped(shm_key, operator.index(byte_size)))


def set_shared_memory_region(shm_handle: Any, input_values: Any, offset: int = 0) -> None:
    """Copy arrays into a region, one after the other.

    Args:
        shm_handle: From :func:`create_shared_memory_region`, or any other that :meth:`SharedMemoryHandle.of` takes.
        input_values: A list of arrays; strings are encoded as the server wants them.
        offset: Where to begin, in bytes.

    Raises:
        SharedMemoryException: They do not fit, or are no list of arrays.
    """
    with raised_as(SharedMemoryException, "set the shared memory region"):
        memory = _memory(shm_handle)
        if not 0 <= offset <= len(memory):
            raise ValueError(f"offset must be 0 to {len(memory)}, got {offset}")
        for chunk in as_chunks(input_values, len(memory) - offset):
            memory[offset : offset + chunk.nbytes] = chunk.data
            offset += chunk.nbytes


def get_contents_as_numpy(shm_handle: Any, datatype: Any, shape: Any, offset: int = 0) -> NDArray[Any]:
    """An array of what is in a region.

    Args:
        shm_handle: As for :func:`set_shared_memory_region`.
        datatype: A dtype of NumPy; ``object`` and ``np.bytes_`` mean strings.
        shape: Of the array.
        offset: Where it begins in the region, in bytes; v1 did not have it.

    Returns:
        A view of the memory, which changes with it, also after the region was destroyed; copy it to keep it. Strings
        are a new object array of ``bytes``.

    Raises:
        SharedMemoryException: The region is too small, or does not hold that.
    """
    with raised_as(SharedMemoryException, "read the shared memory region"):
        return as_array(_memory(shm_handle), datatype, shape, offset)


def destroy_shared_memory_region(shm_handle: SharedMemoryRegion) -> None:
    """Remove a region that was created here. Doing so again does nothing.

    A server that has it mapped keeps it until it is unregistered.

    Raises:
        SharedMemoryException: The handle is not from :func:`create_shared_memory_region`.
    """
    with raised_as(SharedMemoryException, "destroy the shared memory region"):
        if not isinstance(shm_handle, SharedMemoryRegion):
            raise TypeError(f"expected what create_shared_memory_region returned, got {shm_handle!r}")
        shm_handle.release()
        _path(shm_handle.key).unlink(missing_ok=True)


def _memory(handle: Any) -> Any:
    """The memory of a handle of any kind, from the region's offset on."""
    if isinstance(handle, SharedMemoryRegion):
        return handle.memory
    fields = SharedMemoryHandle.of(handle)
    if fields.raw_handle is not None:
        raise TypeError("this is a handle of CUDA memory; use cuda_shared_memory")
    with _path(fields.key).open("r+b") as file:
        whole = mmap.mmap(file.fileno(), fields.offset + fields.byte_size)
    return memoryview(whole)[fields.offset :] if fields.offset else whole


def _mapped(key: str, byte_size: int) -> mmap.mmap:
    if byte_size < 1:
        raise ValueError(f"byte_size must be at least 1, got {byte_size}")
    file = os.open(_path(key), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(file).st_size < byte_size:
            os.ftruncate(file, byte_size)
        return mmap.mmap(file, byte_size)
    finally:
        os.close(file)


def _path(key: str) -> Path:
    name = key.lstrip("/")
    if not name or "/" in name or name in (".", ".."):
        raise ValueError(f"a key is a name such as '/input_simple', got {key!r}")
    return _FOLDER / name
