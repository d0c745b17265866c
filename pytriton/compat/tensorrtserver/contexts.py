"""Contexts: the base of all, and those for health, model control, the repository index, and shared memory."""

from __future__ import annotations

import itertools
import math
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from pytriton.client.conversations import NETWORK_TIMEOUT_S
from pytriton.compat.tensorrtserver.connection import Connection
from pytriton.compat.tensorrtserver.exceptions import InferenceServerException
from pytriton.compat.tensorrtserver.messages import (
    ModelRepositoryIndex,
    SharedMemoryStatus,
)
from pytriton.compat.tensorrtserver.shared_memory import SharedMemoryHandle

__all__ = [
    "Context",
    "ModelControlContext",
    "ModelRepositoryContext",
    "ServerHealthContext",
    "SharedMemoryControlContext",
    "next_number",
]

ContextT = TypeVar("ContextT", bound="Context")

RELEASE_S = 0.1
"""How long a region may be in use after the response to the last request that uses it."""
RELEASE_PAUSE_S = 0.005

_numbers = itertools.count(1)


def next_number() -> int:
    """A number that no other request of this process has."""
    return next(_numbers)


class Context:
    """The base of all contexts, each of which calls one server; ``with`` closes it.

    Servers no longer number requests. This process numbers its own, from 1, across all contexts, so that programs can
    store the results of several contexts under the requests' numbers.

    Args:
        url: ``host:port`` of the server's endpoint for the protocol.
        protocol: 0 is HTTP, and 1 is gRPC.
        verbose: Print every call and its result.
        http_headers: Texts ``name:value``, sent with every request over HTTP; ignored over gRPC, as in v1, except for
            the access token. A server with restricted endpoints wants ``triton-access-token:<token>``; without it, the
            environment variable ``PYTRITON_ACCESS_TOKEN`` is used, if it is set.
        headers: Name to value, sent with every request over either protocol; v1 did not have them.

    Raises:
        InferenceServerException: An argument is wrong.
    """

    def __init__(
        self,
        url: str,
        protocol: int,
        verbose: bool = False,
        http_headers: Sequence[str] | None = (),
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._start(Connection(url, protocol, verbose, http_headers, headers))

    def __enter__(self: ContextT) -> ContextT:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; may be called twice.

        Later calls that need the server raise ``InferenceServerException``.
        """
        self._closed = True
        self._connection.close()

    def get_last_request_id(self) -> int | None:
        """Number of the last request; None if it failed, and before the first. Also after :meth:`close`."""
        return self._last_request_id

    def _start(self, connection: Connection) -> None:
        self._connection = connection
        weakref.finalize(self, connection.close)  # programs of v1 often do not close contexts
        self._closed = False
        self._last_request_id: int | None = None
        self._server_id: str | None = None

    @contextmanager
    def _request(self) -> Iterator[None]:
        """One request of v1, which may take several calls."""
        self._check_open()
        number = next_number()
        self._last_request_id = None
        with self._numbered(number):
            try:
                yield
            except InferenceServerException:
                raise
            except Exception as error:
                raise InferenceServerException(
                    f"the server's answer cannot be understood: {type(error).__name__} {error}"
                ) from None
        self._last_request_id = number

    @contextmanager
    def _numbered(self, number: int) -> Iterator[None]:
        """Add the request's number to errors."""
        try:
            yield
        except InferenceServerException as error:
            error.identify(number, self._server_id)
            raise

    def _call(self, method: str, timeout_s: float = NETWORK_TIMEOUT_S, **arguments: Any) -> Any:
        return self._connection.call(method, arguments, timeout_s)

    def _check_open(self) -> None:
        if self._closed:
            raise InferenceServerException(f"this {type(self).__name__} is closed; make a new one")


class ServerHealthContext(Context):
    """Asks a server for its health; the arguments are those of :class:`Context`."""

    def is_live(self) -> bool:
        """Whether the server runs.

        Raises:
            InferenceServerException: It cannot be reached.
        """
        with self._request():
            return bool(self._call("is_server_live"))

    def is_ready(self) -> bool:
        """Whether all models of the server can serve.

        Raises:
            InferenceServerException: It cannot be reached.
        """
        with self._request():
            return bool(self._call("is_server_ready"))


class ModelControlContext(Context):
    """Loads and unloads models of a server that allows it; the arguments are those of :class:`Context`."""

    def load(self, model_name: str) -> None:
        """Load a model, or what is new of it, and wait until it can serve.

        Raises:
            InferenceServerException: The server could not, or does not allow it.
        """
        with self._request():
            self._call("load_model", math.inf, model_name=model_name)  # as long as the model's own start takes

    def unload(self, model_name: str) -> None:
        """Have the server unload a model, which it may finish later than this returns.

        Raises:
            InferenceServerException: The server does not allow it.
        """
        with self._request():
            self._call("unload_model", model_name=model_name)


class ModelRepositoryContext(Context):
    """Asks a server for the models in its repositories; the arguments are those of :class:`Context`."""

    def get_model_repository_index(self) -> Any:
        """The names of all models, loaded or not.

        Returns:
            A ``ModelRepositoryIndex``, whose ``models`` have a ``name``, each its own. What servers tell of versions
            and states today has no place in it: see :class:`ServerStatusContext`.

        Raises:
            InferenceServerException: The server cannot be reached, or does not allow it.
        """
        with self._request():
            names = dict.fromkeys(entry["name"] for entry in self._call("get_model_repository_index"))
            return ModelRepositoryIndex(models=[{"name": name} for name in names])


class SharedMemoryControlContext(Context):
    """Registers shared memory with a server on this machine; the arguments are those of :class:`Context`.

    Handles are what :meth:`SharedMemoryHandle.of` takes.
    """

    def register(self, shm_handle: Any) -> None:
        """Have the server map a region of system memory.

        It replaces a region of the same name and key, such as one of a program that crashed.

        Raises:
            InferenceServerException: It cannot, or it knows a region of that name with another key or of a GPU.
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

        The server may use the region for a moment after its response, so a refusal is followed by further tries.

        Raises:
            InferenceServerException: A request uses it.
        """
        with self._request():
            handle = SharedMemoryHandle.of(shm_handle)
            self._unregister("system" if handle.raw_handle is None else "cuda", name=handle.name)

    def unregister_all(self) -> None:
        """Have the server forget all regions of both kinds; raises as :meth:`unregister`."""
        with self._request():
            self._unregister("system")
            self._unregister("cuda")

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
        self._unregister("system", name=handle.name)
        self._call(method, **arguments)

    def _unregister(self, kind: str, **arguments: Any) -> None:
        deadline_s = time.monotonic() + RELEASE_S
        while True:
            try:
                self._call(f"unregister_{kind}_shared_memory", **arguments)
            except InferenceServerException:
                if time.monotonic() > deadline_s:
                    raise
            else:
                return
            time.sleep(RELEASE_PAUSE_S)

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
