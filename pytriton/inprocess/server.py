"""The server in this process."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from ctypes import byref, c_bool, c_size_t, c_void_p, string_at
from typing import Any

from pytriton.inprocess.arguments import checked_model_name, checked_parameters, encode, mapping, parameters, seconds
from pytriton.inprocess.enums import MetricFormat
from pytriton.inprocess.exceptions import InvalidArgumentError, InvalidTypeError, TritonError, UnavailableError
from pytriton.inprocess.handle import NOT_STARTED, ServerHandle, check_process
from pytriton.inprocess.model import LATEST, Model, ModelDictionary
from pytriton.inprocess.options import Options
from pytriton.inprocess.thread_states import wait_until_threads_sleep
from pytriton.model_config.parser import complete_config, is_partial_config

__all__ = ["Server"]

READY_ONLY = 1
UNLOADED = (None, "UNAVAILABLE")


class Server:
    """A Triton Inference Server in this process, without HTTP or gRPC. Entering it as a context starts it.

    Every method but ``start`` raises InvalidArgumentError while the server is not started, and the TritonError that the
    server returns. The server stops when nothing refers to it any more, and when the interpreter ends.

    Args:
        options: Its options.
        kwargs: Fields of :class:`Options`, in place of ``options``.

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
        with self._starting:
            if self._handle is None:
                handle = ServerHandle(self.options)
                self._handle, self._finalizer = handle, weakref.finalize(self, handle.stop_aside)
                self._finalizer.atexit = False  # the handle's own hook stops it
            elif not only_if_needed:
                raise InvalidArgumentError("the server is started already")

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
        with self.handle as (api, server):
            index = api.document("ServerModelIndex", server, READY_ONLY if exclude_not_ready else 0)
        return ModelDictionary(self, index)

    def load(self, model_name: str, parameters: Mapping[str, str | int | bool | bytes] | None = None) -> Model:
        """Load or reload a model, and wait until it is loaded; only in the control mode EXPLICIT.

        Args:
            model_name: Its name.
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
            model: The model, or its name.
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
            repository_path: The folder.
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
