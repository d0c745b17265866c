"""The server in this process."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from ctypes import byref, c_bool, c_size_t, c_void_p, string_at
from types import TracebackType
from typing import Any

from pytriton.inprocess.enums import MetricFormat
from pytriton.inprocess.exceptions import InvalidArgumentError, InvalidTypeError, TritonError, UnavailableError
from pytriton.inprocess.load_parameters import checked_model_name, checked_parameters
from pytriton.inprocess.model import Model, ModelDictionary
from pytriton.inprocess.options import Options
from pytriton.inprocess.parameters import encoded, mapping, parameters, seconds
from pytriton.inprocess.rest import wait_for_rest
from pytriton.inprocess.running import NOT_STARTED, Running, check_process
from pytriton.model_config.parser import complete_config, is_partial_config

__all__ = ["Server"]

READY_ONLY = 1
GONE = (None, "UNAVAILABLE")


class Server:
    """A Triton Inference Server within this process, without HTTP or gRPC. Entering it as a context starts it.

    Every method but ``start`` raises InvalidArgumentError while it is not started, and those of TritonError that the
    server answers with. A server that nobody refers to any more, or that still runs when the interpreter ends, stops.

    Args:
        options: What it is told.
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
        self._running: Running | None = None
        self._forgotten: weakref.finalize[..., Server] | None = None

    def __repr__(self) -> str:
        return f"Server({self.options.server_id!r}, {'started' if self._running else 'not started'})"

    def __enter__(self) -> Server:
        self._start(only_if_needed=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._running:
            self.stop()

    @property
    def running(self) -> Running:
        """What the C API calls the server; for the modules of this package."""
        if self._running is None:
            raise InvalidArgumentError(NOT_STARTED)
        return self._running

    def start(
        self, wait_until_ready: bool = False, polling_interval: float = 0.1, timeout: float | None = None
    ) -> Server:
        """Start it, and load the models that are to be loaded then.

        Args:
            wait_until_ready: Whether to wait on until the server is ready.
            polling_interval: Seconds between two looks at that.
            timeout: Seconds to wait so; None: for ever.

        Raises:
            InvalidArgumentError: It is started already, or an option is wrong.
            UnavailableError: It was not ready in time, but goes on; or there is no server here.
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
            if self._running is None:
                running = Running(self.options)
                self._running, self._forgotten = running, weakref.finalize(self, running.stop_aside)
                self._forgotten.atexit = False  # Running sees to that
            elif not only_if_needed:
                raise InvalidArgumentError("the server is started already")

    def stop(self) -> Server:
        """Answer the requests in flight, for ``exit_timeout`` seconds at most, and unload all. It may start again.

        Raises:
            TritonError: There were more requests than that; they will never be answered.
        """
        running, self._running = self.running, None
        if self._forgotten:
            self._forgotten.detach()
        running.stop()
        return self

    def live(self) -> bool:
        """Whether it answers at all."""
        return self._asked("ServerIsLive")

    def ready(self) -> bool:
        """Whether it answers requests; with ``strict_readiness``: for every model."""
        return self._asked("ServerIsReady")

    def metadata(self) -> dict[str, Any]:
        """Name, version and extensions."""
        with self.running as (api, server):
            found: dict[str, Any] = api.document("ServerMetadata", server)
        return found

    def metrics(self, metric_format: MetricFormat = MetricFormat.PROMETHEUS) -> str:
        """All metrics in Prometheus' text format."""
        if not isinstance(metric_format, MetricFormat):
            raise InvalidTypeError(f"metric_format is {metric_format!r}; give MetricFormat.PROMETHEUS")
        metrics, text, size = c_void_p(), c_void_p(), c_size_t()
        with self.running as (api, server):
            api.ServerMetrics(server, byref(metrics))
            try:
                api.MetricsFormatted(metrics, metric_format, byref(text), byref(size))
                return string_at(text.value or 0, size.value).decode()
            finally:
                api.MetricsDelete(metrics)

    def model(self, model_name: str, model_version: int = -1) -> Model:
        """A model to call, whether or not there is one yet."""
        self.running  # noqa: B018 - raises
        return Model(self, model_name, model_version)

    def models(self, exclude_not_ready: bool = False) -> ModelDictionary:
        """Every model in the repositories, with its state; or those that can be called."""
        with self.running as (api, server):
            index = api.document("ServerModelIndex", server, READY_ONLY if exclude_not_ready else 0)
        return ModelDictionary(self, index)

    def load(self, model_name: str, parameters: Mapping[str, str | int | bool | bytes] | None = None) -> Model:
        """Load a model or load it anew, and wait for it; only in the control mode EXPLICIT.

        Args:
            model_name: Its name.
            parameters: ``config``: a configuration in JSON, in place of the model's own; one without backend and
                tensors is filled up from that of the model, if it is loaded. ``file:<path>``: a file, in place of the
                model's folder.

        Raises:
            InvalidTypeError: The configuration is no text, or a file is not of bytes.
            InvalidArgumentError: The configuration is not JSON, or a file's path is not one below a model's folder.
            TritonError: The server refuses to load it.
        """
        values = checked_parameters(parameters)
        if is_partial_config(values.get("config")):
            with suppress(TritonError):  # it is not loaded
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
            model: It, or its name.
            unload_dependents: Whether models that consist of it are to go, too.
            wait_until_unloaded: Whether to wait until it has gone, which is when its last request is answered.
            polling_interval: Seconds between two looks at that.
            timeout: Seconds to wait so; None: for ever.

        Raises:
            UnavailableError: It has not gone in time.
        """
        pause_s, limit_s = seconds("polling_interval", polling_interval), seconds("timeout", timeout, math.inf)
        name = model.name if isinstance(model, Model) else model
        self._call(f"ServerUnloadModel{'AndDependents' if unload_dependents else ''}", encoded(name))
        if wait_until_unloaded and not _wait(lambda: self._gone(name), pause_s, limit_s):
            raise UnavailableError(f"model {name!r} was not unloaded within {timeout} s")

    def register_model_repository(self, repository_path: str, name_mapping: Mapping[str, str] | None = None) -> Server:
        """Add a folder of models; not in the control mode POLL.

        Args:
            repository_path: The folder.
            name_mapping: Names to serve models by, by the names of their folders.
        """
        self._call(
            "ServerRegisterModelRepository", encoded(repository_path), values=mapping("name_mapping", name_mapping)
        )
        return self

    def unregister_model_repository(self, repository_path: str) -> Server:
        """Forget a folder of models; not in the control mode POLL."""
        self._call("ServerUnregisterModelRepository", encoded(repository_path))
        return self

    def poll_model_repository(self) -> Server:
        """Look for changes in the repositories, and load and unload accordingly; only in the control mode POLL."""
        self._call("ServerPollModelRepository")
        return self

    def _asked(self, function: str) -> bool:
        answer = c_bool()
        with self.running as (api, server):
            getattr(api, function)(server, byref(answer))
        return answer.value

    def _call(self, function: str, *arguments: bytes, values: Mapping[str, Any] | None = None) -> None:
        """Have the server change its models."""
        with self.running as (api, server):
            wait_for_rest()
            if values is None:
                getattr(api, function)(server, *arguments)
                return
            with parameters(api, values) as array:
                getattr(api, function)(server, *arguments, array, len(array))

    def _gone(self, name: str) -> bool:
        return all(model.state in GONE for (found, _), model in self.models().items() if found == name)


def _wait(reached: Callable[[], bool], interval_s: float, timeout_s: float) -> bool:
    """Whether a state was reached in time."""
    deadline = time.monotonic() + timeout_s
    while not reached():
        if time.monotonic() >= deadline:
            return False
        time.sleep(interval_s)
    return True
