"""The server in this process, and its models: the calls of the C API as methods."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from ctypes import byref, c_bool, c_size_t, c_uint32, c_void_p, string_at
from typing import Any

from pytriton.inprocess.arguments import (
    checked_model_name,
    checked_parameters,
    encode,
    encode_name,
    integer,
    mapping,
    parameters,
    seconds,
)
from pytriton.inprocess.capi import MetricFormat, ModelBatchFlag, ModelTxnPropertyFlag
from pytriton.inprocess.exceptions import (
    InvalidArgumentError,
    InvalidTypeError,
    NotFoundError,
    TritonError,
    UnavailableError,
)
from pytriton.inprocess.handle import NOT_STARTED, ServerHandle, check_process, wait_until_threads_sleep
from pytriton.inprocess.messages import InferenceRequest, ResponseLayout
from pytriton.inprocess.options import Options
from pytriton.inprocess.pending import AsyncResponseIterator, ResponseIterator
from pytriton.model_config.parser import complete_config, is_partial_config
from pytriton.threads import check_threads

__all__ = ["LATEST", "Model", "ModelDictionary", "Server"]

UNLOADED = (None, "UNAVAILABLE")
LATEST = -1  # the version that the server chooses
VERSIONS = range(LATEST, 1 << 63)


class Server:
    """A Triton Inference Server in this process, without HTTP or gRPC. Entering it as a context starts it.

    Every method but ``start`` raises InvalidArgumentError while the server is not started, and the TritonError that the
    server returns. The server stops when nothing refers to it any more, and when the interpreter ends.

    Args:
        kwargs: Fields of :class:`Options`, in place of ``options``.

    Attributes:
        options: Its options.
        owner: What has bound callables to it, and stays as long as this object; None if nothing has.

    Raises:
        InvalidArgumentError: Both are given, or there is no such field.
        InvalidTypeError: ``options`` are of another type.
    """

    def __init__(self, options: Options | None = None, **kwargs: Any) -> None:
        if options is not None and kwargs:
            raise InvalidArgumentError(f"give options, or their fields as keywords, not both: {', '.join(kwargs)}")
        if unknown := kwargs.keys() - Options.__dataclass_fields__.keys():
            raise InvalidArgumentError(f"Options has no {', '.join(map(repr, sorted(unknown)))}")
        if options is not None and not isinstance(options, Options):
            raise InvalidTypeError(f"options are {options!r:.200}; give Options, or their fields as keywords")
        self.options = options if options is not None else Options(**kwargs)
        self._starting = threading.Lock()
        self._handle: ServerHandle | None = None
        self._finalizer: weakref.finalize[..., Server] | None = None
        self.owner: object = None

    def __repr__(self) -> str:
        return f"Server({self.options.server_id!r}, {'started' if self._handle else 'not started'})"

    def __enter__(self) -> Server:
        self._start(only_if_needed=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle:
            self.stop()

    @property
    def handle(self) -> ServerHandle:
        """The server of the C API; for the modules of this package."""
        if self._handle is None:
            raise InvalidArgumentError(NOT_STARTED)
        return self._handle

    def start(
        self, wait_until_ready: bool = False, polling_interval: float = 0.1, timeout: float | None = None
    ) -> Server:
        """Start the server, and load the models of its start.

        Args:
            wait_until_ready: Whether to wait until the server is ready.
            polling_interval: Seconds between two checks.
            timeout: Seconds to wait for that; None: without limit.

        Raises:
            InvalidArgumentError: It is started already, or an option is wrong.
            UnavailableError: It was not ready in time, and keeps running; or there is no server library.
            TritonError: It cannot start, or a model cannot be loaded and ``exit_on_error`` is set.
        """
        pause_s, limit_s = seconds("polling_interval", polling_interval), seconds("timeout", timeout, math.inf)
        self._start()
        if wait_until_ready and not _wait(self.ready, pause_s, limit_s):
            raise UnavailableError(f"the server was not ready within {timeout} s")
        return self

    def _start(self, only_if_needed: bool = False) -> None:
        check_process()
        check_threads("a server in this process", "threading", instead="start it in a process without it")
        with self._starting:
            if self._handle is None:
                handle = ServerHandle(self.options)
                self._handle, self._finalizer = handle, weakref.finalize(self, handle.stop_aside)
                self._finalizer.atexit = False  # the handle's own hook stops it
            elif not only_if_needed:
                raise InvalidArgumentError("the server is started already")

    def successor(self) -> Server:
        """Another object of the same server, which goes on when nothing refers to this one: the other one stops it."""
        if self._finalizer is not None:
            self._finalizer.detach()
        other = Server(self.options)
        other._handle = self.handle
        return other

    def stop(self) -> Server:
        """Wait for requests in flight, for ``exit_timeout`` seconds at most, and unload all models. It may start again.

        Raises:
            TritonError: Requests were not answered in time; they never will be.
        """
        handle, self._handle = self.handle, None
        if self._finalizer:
            self._finalizer.detach()
        handle.stop()
        return self

    def live(self) -> bool:
        """Whether it is alive."""
        return self._query("ServerIsLive")

    def ready(self) -> bool:
        """Whether it takes requests; with ``strict_readiness``: for every model."""
        return self._query("ServerIsReady")

    def metadata(self) -> dict[str, Any]:
        """Name, version and extensions."""
        with self.handle as (api, server):
            found: dict[str, Any] = api.document("ServerMetadata", server)
        return found

    def metrics(self, metric_format: MetricFormat = MetricFormat.PROMETHEUS) -> str:
        """All metrics in Prometheus' text format."""
        if not isinstance(metric_format, MetricFormat):
            raise InvalidTypeError(f"metric_format is {metric_format!r}; give MetricFormat.PROMETHEUS")
        metrics, text, size = c_void_p(), c_void_p(), c_size_t()
        with self.handle as (api, server):
            api.ServerMetrics(server, byref(metrics))
            try:
                api.MetricsFormatted(metrics, metric_format, byref(text), byref(size))
                return string_at(text.value or 0, size.value).decode()
            finally:
                api.MetricsDelete(metrics)

    def model(self, model_name: str, model_version: int = LATEST) -> Model:
        """A model by name; the server need not have it yet."""
        self.handle  # noqa: B018 - raises
        return Model(self, model_name, model_version)

    def models(self, exclude_not_ready: bool = False) -> ModelDictionary:
        """Every model in the repositories, with its state; or only those that are ready."""
        return ModelDictionary(self, self.model_index(exclude_not_ready))

    def model_index(self, exclude_not_ready: bool = False) -> list[dict[str, Any]]:
        """As :meth:`models`, as the server lists them: ``name`` and perhaps ``version``, ``state`` and ``reason``."""
        with self.handle as (api, server):
            index: list[dict[str, Any]] = api.document("ServerModelIndex", server, int(exclude_not_ready))
        return index

    def load(self, model_name: str, parameters: Mapping[str, str | int | bool | bytes] | None = None) -> Model:
        """Load or reload a model, and wait until it is loaded; only in the control mode EXPLICIT.

        Args:
            parameters: ``config``: a configuration in JSON that replaces the model's own; one without backend and
                tensors is completed from that of the loaded model. ``file:<path>``: a file; files replace the model's
                folder.

        Raises:
            InvalidTypeError: The configuration is not a text, or a file is not bytes.
            InvalidArgumentError: The configuration is not JSON, or a file's path is not below a model's folder.
            TritonError: The server refuses to load it.
        """
        values = checked_parameters(parameters)
        if is_partial_config(values.get("config")):
            with suppress(TritonError):  # the model is not loaded
                values = {**values, "config": complete_config(values["config"], Model(self, model_name).config())}
        self._call("ServerLoadModelWithParameters", checked_model_name(model_name), values=values)
        return Model(self, model_name)

    def unload(
        self,
        model: str | Model,
        unload_dependents: bool = False,
        wait_until_unloaded: bool = False,
        polling_interval: float = 0.1,
        timeout: float | None = None,
    ) -> None:
        """Unload all versions of a model; only in the control mode EXPLICIT.

        Args:
            unload_dependents: Whether to unload models that it consists of as well.
            wait_until_unloaded: Whether to wait until it is unloaded: its last request is answered then.
            polling_interval: Seconds between two checks.
            timeout: Seconds to wait for that; None: without limit.

        Raises:
            UnavailableError: It was not unloaded in time.
        """
        pause_s, limit_s = seconds("polling_interval", polling_interval), seconds("timeout", timeout, math.inf)
        name = model.name if isinstance(model, Model) else model
        self._call(f"ServerUnloadModel{'AndDependents' if unload_dependents else ''}", encode(name))
        if wait_until_unloaded and not _wait(lambda: self._is_unloaded(name), pause_s, limit_s):
            raise UnavailableError(f"model {name!r} was not unloaded within {timeout} s")

    def register_model_repository(self, repository_path: str, name_mapping: Mapping[str, str] | None = None) -> Server:
        """Add a folder of models; not in the control mode POLL.

        Args:
            name_mapping: Names of models by names of their folders.
        """
        self._call(
            "ServerRegisterModelRepository", encode(repository_path), values=mapping("name_mapping", name_mapping)
        )
        return self

    def unregister_model_repository(self, repository_path: str) -> Server:
        """Remove a folder of models; not in the control mode POLL."""
        self._call("ServerUnregisterModelRepository", encode(repository_path))
        return self

    def poll_model_repository(self) -> Server:
        """Load and unload what has changed in the repositories; only in the control mode POLL."""
        self._call("ServerPollModelRepository")
        return self

    def _query(self, function: str) -> bool:
        answer = c_bool()
        with self.handle as (api, server):
            getattr(api, function)(server, byref(answer))
        return answer.value

    def _call(self, function: str, *arguments: bytes, values: Mapping[str, Any] | None = None) -> None:
        """Call a function that loads or unloads models."""
        with self.handle as (api, server):
            wait_until_threads_sleep()
            if values is None:
                getattr(api, function)(server, *arguments)
                return
            with parameters(api, values) as array:
                getattr(api, function)(server, *arguments, array, len(array))

    def _is_unloaded(self, name: str) -> bool:
        return all(model.state in UNLOADED for (found, _), model in self.models().items() if found == name)


def _wait(reached: Callable[[], bool], interval_s: float, timeout_s: float) -> bool:
    """Wait for a state; whether it was reached in time."""
    deadline = time.monotonic() + timeout_s
    while not reached():
        if time.monotonic() >= deadline:
            return False
        time.sleep(interval_s)
    return True


class Model:
    """A model of a server, by name. Only its methods ask the server.

    Each method raises InvalidArgumentError while the server is not started, and the server's error if it has no such
    model, as a rule NotFoundError.

    Args:
        version: Its version; -1: the one that the server chooses.
        state: READY, UNAVAILABLE, LOADING, UNLOADING or None, as ``Server.models()`` found it.
        reason: The reason of that state, if the server gave one.

    Attributes:
        response_layouts: Decoded parts of its responses; see :mod:`pytriton.inprocess.messages`.
    """

    def __init__(
        self, server: Server, name: str, version: int = LATEST, state: str | None = None, reason: str | None = None
    ) -> None:
        if type(version) is not int or version not in VERSIONS:
            version = integer("model_version", version, VERSIONS)
        if not isinstance(name, str):
            raise InvalidTypeError(f"a model's name is {name!r:.200}; give a text")
        self._key = encode_name(name), version
        self.response_layouts: dict[bytes, ResponseLayout] = {}
        self.server, self.name, self.version, self.state, self.reason = server, name, version, state, reason

    def __repr__(self) -> str:
        return f"Model(name={self.name!r}, version={self.version}, state={self.state!r})"

    def ready(self) -> bool:
        """Whether it takes requests."""
        ready = c_bool()
        with self.server.handle as (api, server):
            api.ServerModelIsReady(server, *self._key, byref(ready))
        return ready.value

    def is_served(self) -> bool:
        """As :meth:`ready`; False also if the server does not have it."""
        try:
            return self.ready()
        except (NotFoundError, UnavailableError):
            return False

    def metadata(self) -> dict[str, Any]:
        """Name, versions, platform, inputs and outputs."""
        return self._document("ServerModelMetadata")

    def config(self, config_version: int = 1) -> dict[str, Any]:
        """The configuration, as the server completed it; ``config_version`` is the version of its layout: 1."""
        return self._document("ServerModelConfig", integer("config_version", config_version, range(1 << 32)))

    def statistics(self) -> dict[str, Any]:
        """Numbers and nanoseconds of requests so far: ``{"model_stats": [...]}``, one entry for each version."""
        return self._document("ServerModelStatistics")

    def batch_properties(self) -> ModelBatchFlag:
        """Whether the first axis of its tensors is the batch."""
        return ModelBatchFlag(self._flags("ServerModelBatchProperties"))

    def transaction_properties(self) -> ModelTxnPropertyFlag:
        """Whether it gives one response to a request, or any number."""
        return ModelTxnPropertyFlag(self._flags("ServerModelTransactionProperties"))

    def create_request(self, **kwargs: Any) -> InferenceRequest:
        """A request for this model; the arguments are those of :class:`InferenceRequest`."""
        kwargs["model"] = self
        return InferenceRequest(**kwargs)

    def infer(
        self, inference_request: InferenceRequest | None = None, raise_on_error: bool = True, **kwargs: Any
    ) -> ResponseIterator:
        """Send a request. Returns at once an iterator that waits for the responses.

        Args:
            inference_request: The request; None: one made from ``kwargs``.
            raise_on_error: Whether to raise the error of a response, or to return the response.
            kwargs: As for :meth:`create_request`.

        Raises:
            TritonError: The server does not accept the request, or a field of it is wrong.
        """
        return ResponseIterator(self._request(inference_request, kwargs), raise_on_error)

    def async_infer(
        self, inference_request: InferenceRequest | None = None, raise_on_error: bool = True, **kwargs: Any
    ) -> AsyncResponseIterator:
        """As :meth:`infer`, for ``async for`` on the running loop.

        Raises:
            RuntimeError: No loop runs.
        """
        return AsyncResponseIterator(self._request(inference_request, kwargs), raise_on_error)

    def _request(self, request: InferenceRequest | None, kwargs: dict[str, Any]) -> InferenceRequest:
        if request is None:
            kwargs["model"] = self
            return InferenceRequest(**kwargs)
        if kwargs:
            raise InvalidArgumentError(f"give a request, or its fields as keywords, not both: {', '.join(kwargs)}")
        if not isinstance(request, InferenceRequest):
            raise InvalidTypeError(f"inference_request is {request!r:.200}; give an InferenceRequest")
        if not isinstance(request.model, Model):
            raise InvalidTypeError(
                f"the request's model is {request.model!r:.200}; give a Model, or use create_request()"
            )
        return request

    def _document(self, function: str, *arguments: int) -> dict[str, Any]:
        with self.server.handle as (api, server):
            found: dict[str, Any] = api.document(function, server, *self._key, *arguments)
        return found

    def _flags(self, function: str) -> int:
        flags = c_uint32()
        with self.server.handle as (api, server):
            getattr(api, function)(server, *self._key, byref(flags), None)
        return flags.value


class ModelDictionary(dict[tuple[str, int], Model]):
    """Models by name and version (-1: none); by name alone, the version that the server chooses."""

    def __init__(self, server: Server, index: list[dict[str, Any]]) -> None:
        self._server = server
        models = (
            Model(server, each["name"], int(each.get("version") or LATEST), each.get("state"), each.get("reason"))
            for each in index
        )
        super().__init__({(model.name, model.version): model for model in models})

    def __getitem__(self, key: str | tuple[str, int]) -> Model:
        return super().__getitem__(key) if isinstance(key, tuple) else self._named(key)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) if isinstance(key, tuple) else any(name == key for name, _ in self)

    def get(self, key: Any, default: Any = None) -> Any:
        """As ``dict.get``, also by name alone."""
        try:
            return self[key]
        except KeyError:
            return default

    def _named(self, name: str) -> Model:
        if not any(name == found for found, _ in self):
            raise KeyError(name)
        return Model(self._server, name)
