"""``Triton``: binds Python callables as models of a server in this process, and loads them there."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytriton.base import TritonBase
from pytriton.exceptions import PyTritonModelControlError, PyTritonServerError
from pytriton.inprocess.capi import installation
from pytriton.inprocess.clients import ModelClient
from pytriton.inprocess.enums import ModelControlMode, RateLimitMode
from pytriton.inprocess.exceptions import InvalidArgumentError, NotFoundError, TritonError, UnavailableError
from pytriton.inprocess.local_channel import native_proxy
from pytriton.inprocess.model import LATEST
from pytriton.inprocess.options import Options
from pytriton.inprocess.server import Server
from pytriton.model import Model
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.server.capabilities import ServerCapabilities
from pytriton.server.control import ModelControl
from pytriton.server.installation import BUNDLED
from pytriton.server.native_backend import LIBRARY
from pytriton.server.statistics import ModelStatistics, parse_statistics
from pytriton.utils.workspace import Workspace
from pytriton.worker.interfaces import Accept

__all__ = ["Triton"]

LOGGER = logging.getLogger("pytriton.triton")

UNLOADED = {"", "UNAVAILABLE"}
SERVER_POLL_S = 1.0  # a server that stops checks its models this seldom; most are unloaded at once
POLL_S = 0.002


class Triton(TritonBase):
    """Serves bound callables with a Triton Inference Server in this process: no network, no second process.

    The server's own threads call the callables. It starts on entering the context, or at :meth:`connect`, and ends with
    :meth:`stop`, on leaving the context and at the interpreter's exit::

        with Triton() as triton:
            triton.bind("doubler", double, inputs, outputs, config=ModelConfig(max_batch_size=8))
            with triton.client("doubler") as client:
                print(client.infer_sample(x))

    Args:
        options: Options of the server. Their repositories, if any, are served beside the bound models. The control mode
            is always EXPLICIT.
        workspace: Folder for the bound models' files, which must not exist; default: a new one below
            ``PYTRITON_HOME``. It is removed at the end.
        kwargs: Fields of :class:`Options`, in place of ``options``.

    Attributes:
        triton_context: Shared by the bound callables.
        server: The server, for models, metrics and so on; started by :meth:`connect`.

    Raises:
        InvalidArgumentError: Options are given twice, or there is no such field.
        FileExistsError: ``workspace`` exists.
    """

    def __init__(
        self, options: Options | None = None, *, workspace: Workspace | str | Path | None = None, **kwargs: Any
    ) -> None:
        given = Server(options, **kwargs).options
        super().__init__(workspace)
        self.server = Server(_with_store(given, self._workspace.model_store_path))

    def client(self, model_name: str, model_version: str | None = None, **settings: Any) -> ModelClient:
        """A client of a model; use :class:`DecoupledModelClient` for decoupled models.

        Args:
            model_name: Name of the model.
            model_version: Its version; None uses the highest.
            settings: Those of :class:`ModelClient`.
        """
        return ModelClient(self.server, model_name, model_version, **settings)

    def _reach(self) -> ModelControl:
        try:
            self.server.start()
        except InvalidArgumentError:
            raise
        except TritonError as error:
            raise PyTritonServerError(f"the server cannot start in this process: {error}") from error
        return InprocessControl(self.server)

    def _is_ours(self) -> bool:
        return installation().home == BUNDLED  # with another one, our backend would not find the server's functions

    def _listen_locally(self, path: str, accept: Accept) -> Callable[[], None]:
        if self._is_ours() and LIBRARY.is_file():
            return native_proxy().listen(path, accept)
        return super()._listen_locally(path, accept)

    def _capabilities(self) -> ServerCapabilities:
        options = self.server.options
        return ServerCapabilities(
            has_native_backend=self._is_ours(),
            forwards_headers=False,
            caches=bool(options.cache_config),
            limits=options.rate_limiter_mode != RateLimitMode.OFF,
            host_policies=options.host_policies or (),
            cache_option="Options.cache_config",
            limit_option="Options.rate_limiter_mode to RateLimitMode.EXEC_COUNT",
            host_policy_option="Options.host_policies",
        )

    def _check_python_backend(self) -> None:
        installation().python_backend()

    def _revive(self, control: ModelControl, model: Model) -> None:
        with self._lock:
            if not self._is_lost(model):
                return
            LOGGER.warning("model %s: its proxy in the server died; loading the model again", model.name)
            try:
                control.unload(model.name)
                control.load(model.name)
            except PyTritonModelControlError as error:
                LOGGER.warning("model %s cannot be loaded again: %s", model.name, error)

    def _end(self, control: ModelControl, deadline: float) -> None:
        names = self._models.names(loaded=True)
        poll_end = time.monotonic() + SERVER_POLL_S
        try:
            for name in names:
                control.unload(name)
            while time.monotonic() < poll_end and not all(_is_unloaded(control, name) for name in names):
                time.sleep(POLL_S)
            self.server.stop()
        except (TritonError, PyTritonModelControlError) as error:
            LOGGER.warning("the server in this process did not end well: %s", error)

    def _kill(self) -> None:
        self._models.disconnect()


def _is_unloaded(control: ModelControl, name: str) -> bool:
    return control.states().get(name, set()) <= UNLOADED


def _with_store(options: Options, store: Path) -> Options:
    """The user's options, with the folder of bound models."""
    repositories = options.model_repository or []
    if isinstance(repositories, str):
        repositories = [repositories]
    return replace(options, model_repository=[str(store), *repositories], model_control_mode=ModelControlMode.EXPLICIT)


class InprocessControl(ModelControl):
    """Controls a server in this process.

    Args:
        server: The server.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self.url = "this process"
        self.id = ""

    def load(self, name: str) -> None:
        """As :meth:`ModelControl.load`."""
        with _translated_errors():
            self._server.load(name)

    def unload(self, name: str) -> None:
        """As :meth:`ModelControl.unload`."""
        with _translated_errors():
            self._server.unload(name)

    def is_model_ready(self, name: str, version: int | None = None) -> bool:
        """As :meth:`ModelControl.is_model_ready`."""
        try:
            return self._server.model(name, version or LATEST).ready()
        except (NotFoundError, UnavailableError):
            return False

    def is_own(self, name: str) -> bool:
        """Whether the server has a model of this name: no other process loads any."""
        return self.is_model_ready(name)

    def announcement(self, config: TritonModelConfig) -> str:
        """As :meth:`ModelControl.announcement`; other processes cannot call the model."""
        return f"Infer function available as model {config.model_name!r} of the server in this process"

    def version_states(self) -> dict[tuple[str, str], str]:
        """As :meth:`ModelControl.version_states`."""
        with _translated_errors():
            return {(name, str(version)): model.state or "" for (name, version), model in self._server.models().items()}

    def statistics(self, name: str | None) -> list[ModelStatistics]:
        """As :meth:`ModelControl.statistics`."""
        with _translated_errors():
            return parse_statistics(self._server.model(name or "").statistics())

    def wait_ready(self, timeout_s: float, may_come: Callable[[], bool], *, live: bool = False) -> str | None:
        """As :meth:`ModelControl.wait_ready`, without waiting: a server that has started is ready."""
        try:
            return None if may_come() and (self._server.live() if live else self._server.ready()) else "not ready"
        except TritonError as error:
            return str(error)


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Raise the server's errors as the error that clients of a server elsewhere raise."""
    try:
        yield
    except TritonError as error:
        raise PyTritonModelControlError(str(error)) from error
