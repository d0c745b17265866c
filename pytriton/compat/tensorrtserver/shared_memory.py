"""The functions of ``tensorrtserver.shared_memory``, the handles of regions of memory, and what is in them.

Keys are names of files in ``/dev/shm``, as for ``shm_open``. Regions outlive the program that made them, until
:func:`destroy_shared_memory_region`.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import operator
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.client.tensors import serialize_bytes
from pytriton.client.tritonclients import is_region, region_fields
from pytriton.compat.tensorrtserver.exceptions import InferenceServerException

__all__ = [
    "SharedMemoryException",
    "SharedMemoryRegion",
    "create_shared_memory_region",
    "destroy_shared_memory_region",
    "get_contents_as_numpy",
    "set_shared_memory_region",
]

_FOLDER = Path("/dev/shm")
_MISSING = object()


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


@dataclass(frozen=True)
class SharedMemoryHandle:
    """What a server needs to know of a region.

    Args:
        name: To the server.
        key: Of system memory.
        offset: Where the region begins in system memory, in bytes.
        raw_handle: Of CUDA memory, in base64; None is system memory.
        device_id: Of the GPU.
    """

    name: str
    byte_size: int
    key: str = ""
    offset: int = 0
    raw_handle: bytes | None = None
    device_id: int = 0

    @classmethod
    def of(cls, handle: Any) -> SharedMemoryHandle:
        """The region of a handle.

        Args:
            handle: From ``create_shared_memory_region`` of ``tritonclient.utils.shared_memory`` or
                ``tritonclient.utils.cuda_shared_memory``; or an object or dict with ``name``, ``byte_size`` and either
                ``key`` and ``offset``, or ``raw_handle`` and ``device_id``.

        Raises:
            InferenceServerException: It is something else, such as one of v1's own pointers.
        """
        if isinstance(handle, SharedMemoryHandle):
            return handle
        fields = region_fields(handle)
        return cls._of_fields(handle) if fields is None else cls(**fields)

    @staticmethod
    def is_one(value: Any) -> bool:
        """Whether :meth:`of` takes it."""
        return is_region(value) or _field(value, "name") is not _MISSING

    @classmethod
    def _of_fields(cls, handle: Any) -> SharedMemoryHandle:
        found = {name: _field(handle, name) for name in cls.__dataclass_fields__}
        found = {name: value for name, value in found.items() if value is not _MISSING}
        if not found.keys() >= {"name", "byte_size"} or not found.keys() & {"key", "raw_handle"}:
            if isinstance(handle, ctypes.c_void_p):
                raise InferenceServerException(
                    "a pointer, as v1 and early versions of tritonclient make, does not tell what it points at; pass a "
                    "dict with name, byte_size and key"
                )
            raise InferenceServerException(
                "a shared memory handle is what tritonclient.utils.shared_memory or "
                "tritonclient.utils.cuda_shared_memory creates, or has name, byte_size and either key or "
                f"raw_handle, got {handle!r}"
            )
        return cls(**found)


def _field(handle: Any, name: str) -> Any:
    return handle.get(name, _MISSING) if isinstance(handle, Mapping) else getattr(handle, name, _MISSING)


@contextmanager
def raised_as(kind: type[InferenceServerException], doing: str) -> Iterator[None]:
    """Raise errors of the body as ``kind``; the message begins with what the body was doing."""
    try:
        yield
    except kind:
        raise
    except Exception as error:
        raise kind(f"cannot {doing}: {error}") from None  # one failure prints one traceback


def as_chunks(input_values: Any, room: int) -> list[NDArray[np.uint8]]:
    """The bytes of arrays, in C order.

    Strings are encoded as :func:`serialize_string_tensor` does. An array without axes that holds ``bytes`` counts as
    encoded.

    Args:
        input_values: A list or tuple of arrays.
        room: Most bytes of all of them together.

    Raises:
        ValueError: It is something else, or has more bytes.
    """
    if not isinstance(input_values, (list, tuple)) or not all(isinstance(each, np.ndarray) for each in input_values):
        raise ValueError(f"input_values must be a list of arrays, got {_described(input_values)}")
    chunks = [_chunk(array) for array in input_values]
    needed = sum(chunk.nbytes for chunk in chunks)
    if needed > room:
        raise ValueError(f"the arrays take {needed} bytes, but there is room for {room}")
    return chunks


def as_array(memory: Any, datatype: Any, shape: Any, offset: int) -> NDArray[Any]:
    """An array of what lies in memory.

    Args:
        memory: A buffer.
        datatype: A dtype of NumPy; ``object``, ``bytes`` and ``str`` mean strings.
        offset: Where it begins in memory, in bytes.

    Returns:
        A view of the memory; strings are a new object array of ``bytes``.

    Raises:
        ValueError: The memory is too short, or does not hold strings.
    """
    dtype = np.dtype(datatype)
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(int(size) for size in shape)
    if offset < 0 or any(size < 0 for size in shape):
        raise ValueError(f"shape and offset must not be negative, got {list(shape)} and {offset}")
    if dtype.kind in "OSU":
        return _strings(memory, math.prod(shape), offset).reshape(shape)
    needed, there = math.prod(shape) * dtype.itemsize, len(memory) - offset
    if needed > there:
        raise ValueError(f"shape {list(shape)} of {dtype} takes {needed} bytes, but there are {max(0, there)}")
    return np.ndarray(shape, dtype, buffer=memory, offset=offset if needed else 0)


def serialize_string_tensor(input_tensor: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of a tensor of strings.

    Args:
        input_tensor: Any shape, not empty, dtype ``np.bytes_``, ``np.str_`` or ``object``; see :func:`as_bytes`.

    Returns:
        One axis. For each element, in C order, the count of its bytes as a little-endian uint32, then the bytes.

    Raises:
        InferenceServerException: It is no such array.
    """
    items = as_bytes(input_tensor).ravel().tolist()
    if not items:
        raise InferenceServerException("a tensor of strings must not be empty")
    return np.frombuffer(serialize_bytes(items), np.uint8)


def as_bytes(array: NDArray[Any]) -> NDArray[np.object_]:
    """A new array of the same shape whose elements are ``bytes``.

    Text is encoded as UTF-8; objects that are neither bytes nor text, as ``str()`` shows them.

    Raises:
        InferenceServerException: It is no array, or of numbers.
    """
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "SUO":
        kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise InferenceServerException(f"strings must be an array of dtype object, bytes or str, got {kind}")
    found = np.empty(array.shape, dtype=object)
    found.ravel()[:] = [
        bytes(item) if isinstance(item, bytes) else str(item).encode() for item in array.ravel().tolist()
    ]
    return found


def _chunk(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype.kind in "OSU":
        item = array.item() if array.ndim == 0 else None
        if isinstance(item, bytes):
            return np.frombuffer(item, np.uint8)
        return serialize_string_tensor(array)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _strings(memory: Any, count: int, offset: int) -> NDArray[np.object_]:
    found = np.empty(count, dtype=object)
    for index in range(count):
        start = offset + 4
        if start > len(memory) or (end := start + struct.unpack_from("<I", memory, offset)[0]) > len(memory):
            raise ValueError(f"the region holds {index} strings and no more; {count} are wanted")
        found[index] = bytes(memory[start:end])
        offset = end
    return found


def _described(value: Any) -> str:
    return f"a list with {[type(each).__name__ for each in value]}" if isinstance(value, list) else type(value).__name__
