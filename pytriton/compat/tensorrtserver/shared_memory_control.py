"""Shared memory that a server knows."""

from __future__ import annotations

import itertools
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

        A region of the same name and key, such as one that a crashed program has left, is replaced: the server forgets
        it and maps what has that key now.

        Raises:
            InferenceServerException: It cannot; or it knows a region of that name with another key, or of a GPU.
        """
        with self._request():
            handle = SharedMemoryHandle.of(shm_handle)
            if handle.raw_handle is not None:
                raise InferenceServerException("this is a handle of CUDA memory; use cuda_register")
            self._register("register_system_shared_memory", handle, key=handle.key, offset=handle.offset)

    def cuda_register(self, cuda_shm_handle: Any) -> None:
        """Have the server open a region of a GPU's memory.

        A region of the same name is not replaced, as the server does not tell which memory that is.

        Raises:
            InferenceServerException: It cannot, or knows a region of that name.
        """
        with self._request():
            handle = SharedMemoryHandle.of(cuda_shm_handle)
            if handle.raw_handle is None:
                raise InferenceServerException("this is a handle of system memory; use register")
            self._register(
                "register_cuda_shared_memory", handle, raw_handle=handle.raw_handle, device_id=handle.device_id
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
            for region in self._system_regions():
                added = status.shared_memory_region.add(name=region["name"], byte_size=int(region["byte_size"]))
                added.system_shared_memory.shared_memory_key = region["key"]
                added.system_shared_memory.offset = int(region.get("offset", 0))
            for region in self._cuda_regions():
                added = status.shared_memory_region.add(name=region["name"], byte_size=int(region["byte_size"]))
                added.cuda_shared_memory.device_id = int(region.get("device_id", 0))
        return status

    def _register(self, method: str, handle: SharedMemoryHandle, **arguments: Any) -> None:
        arguments = {"name": handle.name, "byte_size": handle.byte_size, **arguments}
        try:
            self._call(method, **arguments)
        except InferenceServerException as refusal:
            known = self._known(handle.name)
            if known is None:
                raise
            if not _is_same(known, handle):
                raise InferenceServerException(
                    f"the server knows region {handle.name!r} already, as {_described(known)}; if no running program "
                    "needs that, have the server forget it first, with unregister or unregister_all of "
                    "SharedMemoryControlContext, else choose another name"
                ) from refusal
        else:
            return
        self._call("unregister_system_shared_memory", name=handle.name)
        self._call(method, **arguments)

    def _known(self, name: str) -> Mapping[str, Any] | None:
        """What the server knows by a name."""
        regions = itertools.chain(self._system_regions(), self._cuda_regions())
        return next((region for region in regions if region["name"] == name), None)

    def _system_regions(self) -> Iterable[Mapping[str, Any]]:
        return _regions(self._call("get_system_shared_memory_status"))

    def _cuda_regions(self) -> Iterable[Mapping[str, Any]]:
        return _regions(self._call("get_cuda_shared_memory_status"))


def _regions(answer: Any) -> Iterable[Mapping[str, Any]]:
    """The server's list, which gRPC wraps."""
    return answer if isinstance(answer, list) else answer.get("regions", {}).values()


def _is_same(region: Mapping[str, Any], handle: SharedMemoryHandle) -> bool:
    """Whether a region of the server is the memory of a handle; of memory of GPUs the server does not tell."""
    return handle.raw_handle is None and region.get("key", "").lstrip("/") == handle.key.lstrip("/")


def _described(region: Mapping[str, Any]) -> str:
    if "key" in region:
        return f"system memory with key {region['key']!r}"
    return f"{region['byte_size']} bytes of GPU {region.get('device_id', 0)}"
