"""One face for tritonclient's four clients, so that a test of what the server does is written once.

    kind       module                  here
    http       tritonclient.http       called as it is, by one thread
    http.aio   tritonclient.http.aio   its coroutines run on an event loop in a thread
    grpc       tritonclient.grpc       called as it is
    grpc.aio   tritonclient.grpc.aio   its coroutines run on an event loop in a thread

Replies come in HTTP's form from all of them: dictionaries without the wrappings of protobuf messages.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import pytest
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.server.processes import DEADLINE_S, wait_for
from tests.server.tritonclient_replies import integers, parameters, plain

KINDS = ["http", "http.aio", "grpc", "grpc.aio"]
HTTP_STATUSES = {
    "ALREADY_EXISTS": "400",
    "CANCELLED": "400",
    "INTERNAL": "500",
    "INVALID_ARGUMENT": "400",
    "NOT_FOUND": "404",
    "UNAVAILABLE": "503",
    "UNIMPLEMENTED": "501",
    "UNKNOWN": "400",
}

only_http = pytest.mark.parametrize("api", ["http", "http.aio"], indirect=True)
only_grpc = pytest.mark.parametrize("api", ["grpc", "grpc.aio"], indirect=True)
only_aio = pytest.mark.parametrize("api", ["http.aio", "grpc.aio"], indirect=True)


def only(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("api", [kind], indirect=True)


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tritonclients")
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Start a coroutine; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.submit(coroutine).result(DEADLINE_S)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Answer:
    """The result of an inference.

    Attributes:
        result: tritonclient's object.
        response: Its response without data: ``model_name``, ``model_version``, ``id``, ``parameters``, ``outputs``.
    """

    def __init__(self, result: Any) -> None:
        self.result = result
        response = result.get_response()
        self.response = integers(response if isinstance(response, dict) else result.get_response(as_json=True))
        self.response["parameters"] = parameters(self.response.get("parameters", {}))

    def __getitem__(self, name: str) -> NDArray[Any]:
        array: NDArray[Any] = self.result.as_numpy(name)
        return array

    def names(self) -> list[str]:
        """The outputs that came."""
        return [output["name"] for output in self.response.get("outputs", ())]


class Api:
    """A tritonclient client of one of the four kinds.

    Args:
        kind: One of KINDS.
        address: ``host:port`` of the server.
        options: Of the client's constructor.

    Attributes:
        address: As given.
        lib: Its module.
        client: The client itself.
    """

    def __init__(self, kind: str, address: str, **options: Any) -> None:
        self.kind = kind
        self.lib = import_module(f"tritonclient.{kind}")
        self.is_http = kind.startswith("http")
        self.is_aio = kind.endswith("aio")
        self.address = address
        self._options = options
        self.loop = Loop() if self.is_aio else None
        self._pool = ThreadPoolExecutor(64)
        self.client = self._open()

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        self._finish(self.client.close())
        if self.loop:
            self.loop.close()

    def other(self, **options: Any) -> Api:
        """Another client of the same kind and server."""
        return Api(self.kind, self.address, **options)

    def call(self, method: str, *args: Any, **options: Any) -> Any:
        """Call a method and return its reply as HTTP has it."""
        return plain(method, self._finish(self._start(self.client, method, *args, **options)))

    def submit(self, method: str, *args: Any, **options: Any) -> Future[Any]:
        """Start a call, beside others.

        The future has tritonclient's reply; for an aio client, cancelling it cancels the call.
        """
        if self.loop:
            return self.loop.submit(self._start(self.client, method, *args, **options))
        return self._pool.submit(self._call_alone, method, *args, **options)

    def infer(
        self, model: str, inputs: Mapping[str, NDArray[Any]], outputs: Sequence[Any] | None = None, **options: Any
    ) -> Answer:
        """Infer with arrays; outputs are names, or the library's objects."""
        wanted = None if outputs is None else [self._wanted(output) for output in outputs]
        return Answer(self.call("infer", model, self.inputs(inputs), outputs=wanted, **options))

    def inputs(self, arrays: Mapping[str, NDArray[Any]], **options: Any) -> list[Any]:
        """The library's inputs with the data of arrays; options are those of ``set_data_from_numpy``."""
        inputs = []
        for name, array in arrays.items():
            inputs.append(self.lib.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
            inputs[-1].set_data_from_numpy(array, **options)
        return inputs

    def unregister_regions(self, kind: str) -> None:
        """Unregister all shared memory of a kind, ``system`` or ``cuda``.

        For a moment after its answer the server still holds the request, and refuses to unregister what that used.
        """

        def unregistered() -> bool:
            with suppress(InferenceServerException):
                self.call(f"unregister_{kind}_shared_memory")
            return not self.call(f"get_{kind}_shared_memory_status")

        wait_for(unregistered, "the regions to be unregistered")

    @contextmanager
    def refuses(self, status: str, text: str = "") -> Iterator[None]:
        """Expect an error.

        Args:
            status: gRPC's; HTTP's counterpart is expected of HTTP.
            text: A part of the message.
        """
        with pytest.raises(InferenceServerException, match=re.escape(text) or None) as raised:
            yield
        error = raised.value
        assert error.status() == (HTTP_STATUSES[status] if self.is_http else f"StatusCode.{status}"), error

    @contextmanager
    def client_refuses(self, text: str) -> Iterator[None]:
        """Expect an error of the client itself, before it sends anything.

        Args:
            text: A part of the message.
        """
        # tritonclient.http.aio 2.73 raises by a name that it forgot to import.
        errors = (InferenceServerException, NameError) if self.kind == "http.aio" else InferenceServerException
        with pytest.raises(errors) as raised:
            yield
        assert ("raise_error" if raised.type is NameError else text) in str(raised.value)

    def _open(self) -> Any:
        if self.loop is None:
            return self.lib.InferenceServerClient(self.address, **self._options)

        async def opened() -> Any:  # an aio client belongs to the loop that runs
            return self.lib.InferenceServerClient(self.address, **self._options)

        return self.loop.run(opened())

    def _start(self, client: Any, method: str, *args: Any, **options: Any) -> Any:
        if not self.is_http and method.startswith(("get_", "update_")):
            options.setdefault("as_json", True)
        return getattr(client, method)(*args, **options)

    def _finish(self, reply: Any) -> Any:
        return self.loop.run(reply) if self.loop and asyncio.iscoroutine(reply) else reply

    def _call_alone(self, method: str, *args: Any, **options: Any) -> Any:
        client = self._open()  # HTTP's belongs to the thread that made it
        try:
            return self._start(client, method, *args, **options)
        finally:
            client.close()

    def _wanted(self, output: Any) -> Any:
        return self.lib.InferRequestedOutput(output) if isinstance(output, str) else output
