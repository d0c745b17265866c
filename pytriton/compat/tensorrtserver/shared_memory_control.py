"""Shared memory that a server knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pytriton.compat.tensorrtserver.context import Context
from pytriton.compat.tensorrtserver.exceptions import InferenceServerException
from pytriton.compat.tensorrtserver.messages import SharedMemoryStatus
from pytriton.compat.tensorrtserver.shared_memory_handle import SharedMemoryHandle

__all__ = ["SharedMemoryControlContext"]


class SharedMemoryControlContext(Context):
    """Tells a server on this machine of shared memory; the arguments are those of :class:`Context`.

    Handles are what :meth:`SharedMemoryHandle.of` takes; v1's own library, which made pointers, is not needed.
    """

    def register(self, shm_handle: Any) -> None:
        """Have the server map a region of system memory.

        Raises:
            InferenceServerException: It cannot, or knows a region of that name.
        """
        with self._request():
            handle = SharedMemoryHandle.of(shm_handle)
            if handle.raw_handle is not None:
                raise InferenceServerException("this is a handle of CUDA memory; use cuda_register")
            self._call(
                "register_system_shared_memory",
                name=handle.name,
                key=handle.key,
                byte_size=handle.byte_size,
                offset=handle.offset,
            )

    def cuda_register(self, cuda_shm_handle: Any) -> None:
        """Have the server open a region of a GPU's memory; raises as :meth:`register`."""
        with self._request():
            handle = SharedMemoryHandle.of(cuda_shm_handle)
            if handle.raw_handle is None:
                raise InferenceServerException("this is a handle of system memory; use register")
            self._call(
                "register_cuda_shared_memory",
                name=handle.name,
                raw_handle=handle.raw_handle,
                device_id=handle.device_id,
                byte_size=handle.byte_size,
            )

    def unregister(self, shm_handle: Any) -> None:
        """Have the server forget a region of either kind.

        Raises:
            InferenceServerException: A request uses it.
        """
        with self._request():
            handle = SharedMemoryHandle.of(shm_handle)
            kind = "system" if handle.raw_handle is None else "cuda"
            self._call(f"unregister_{kind}_shared_memory", name=handle.name)

    def unregister_all(self) -> None:
        """Have the server forget all regions of both kinds; raises as :meth:`unregister`."""
        with self._request():
            self._call("unregister_system_shared_memory")
            self._call("unregister_cuda_shared_memory")

    def get_shared_memory_status(self) -> Any:
        """The regions that the server knows, as a ``SharedMemoryStatus``.

        Raises:
            InferenceServerException: The server cannot be reached, or does not allow it.
        """
        with self._request():
            status = SharedMemoryStatus()
            for region in _regions(self._call("get_system_shared_memory_status")):
                added = status.shared_memory_region.add(name=region["name"], byte_size=int(region["byte_size"]))
                added.system_shared_memory.shared_memory_key = region["key"]
                added.system_shared_memory.offset = int(region.get("offset", 0))
            for region in _regions(self._call("get_cuda_shared_memory_status")):
                added = status.shared_memory_region.add(name=region["name"], byte_size=int(region["byte_size"]))
                added.cuda_shared_memory.device_id = int(region.get("device_id", 0))
        return status


def _regions(answer: Any) -> Iterable[Mapping[str, Any]]:
    """The server's list, which gRPC wraps."""
    return answer if isinstance(answer, list) else answer.get("regions", {}).values()
