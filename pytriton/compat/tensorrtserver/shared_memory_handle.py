"""Regions of shared memory, as programs name them."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytriton.compat.tensorrtserver.exceptions import InferenceServerException

__all__ = ["SharedMemoryHandle"]

_CUDA = "tritonclient.utils.cuda_shared_memory"
_MISSING = object()


@dataclass(frozen=True)
class SharedMemoryHandle:
    """What a server needs to know of a region.

    Args:
        name: To the server.
        byte_size: Of the region.
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
        if hasattr(handle, "_mpsm_handle"):
            return cls(handle._triton_shm_name, handle._mpsm_handle.size, key=handle._shm_key)
        if hasattr(handle, "_cuda_shm_handle"):
            raw_handle = importlib.import_module(_CUDA).get_raw_handle(handle)
            return cls(handle._triton_shm_name, handle._byte_size, raw_handle=raw_handle, device_id=handle._device_id)
        return cls._of_fields(handle)

    @staticmethod
    def is_one(value: Any) -> bool:
        """Whether :meth:`of` takes it."""
        return hasattr(value, "_triton_shm_name") or _field(value, "name") is not _MISSING

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
                f"a shared memory handle is what tritonclient.utils.shared_memory or {_CUDA} creates, or has name, "
                f"byte_size and either key or raw_handle, got {handle!r}"
            )
        return cls(**found)


def _field(handle: Any, name: str) -> Any:
    return handle.get(name, _MISSING) if isinstance(handle, Mapping) else getattr(handle, name, _MISSING)
