"""``RemoteTriton``: binds Python callables as models of a Triton Inference Server that another process launched."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from pytriton.base import END_TIMEOUT_S, TritonBase
from pytriton.constants import DEFAULT_TRITON_STARTUP_TIMEOUT_S
from pytriton.exceptions import PyTritonModelControlError
from pytriton.model import Model
from pytriton.rest.config import RestConfig
from pytriton.server.access import Access
from pytriton.server.control import ModelControl, RemoteModelControl
from pytriton.server.endpoints import ServerEndpoints
from pytriton.utils.workspace import Workspace

__all__ = ["RemoteTriton"]

LOGGER = logging.getLogger(__name__)

SETTLE_TIMEOUT_S = 10.0
POLL_S, LONGEST_PAUSE_S = 0.1, 5.0


class RemoteTriton(TritonBase):
    """Serves bound callables with a server on this machine that another process, or a container, runs.

    The models are loaded through the server's repository API, for which it must allow explicit model control
    (``--model-control-mode=explicit``; servers of :class:`Triton` do). A model that the server loses, because it
    restarts or another client unloads it, is loaded again; one that another process replaces is not. The models go with
    :meth:`unbind`, :meth:`stop`, on leaving the context and at the interpreter's exit.

    Args:
        url: Of the server, as :meth:`pytriton.client.utils.TritonUrl.from_url` reads it.
        workspace: Folder for the sockets over which the server's proxies reach this process. It must not exist, and
            must be below a folder that both see under the same path. It is removed at the end.
        access_token: Of the server, if its model-repository endpoint is restricted. None takes that in the environment
            variable ``PYTRITON_ACCESS_TOKEN``, if there is one.
        init_timeout_s: How long to wait for the server to be ready.
        rest: As for :class:`Triton`; the front serves all models of the server.

    Attributes:
        triton_context: What the bound callables share.

    Raises:
        PyTritonClientInvalidUrlError: The URL cannot be understood.
        FileExistsError: ``workspace`` exists.
    """

    def __init__(
        self,
        url: str,
        workspace: Workspace | str | Path | None = None,
        access_token: str | None = None,
        *,
        init_timeout_s: float = DEFAULT_TRITON_STARTUP_TIMEOUT_S,
        rest: RestConfig | bool | None = False,
    ) -> None:
        self._access = Access.to_other(url, access_token)
        self._init_timeout_s = init_timeout_s
        super().__init__(workspace, rest=rest)

    def is_alive(self) -> bool:
        """Whether there is a server, which is asked if nothing was bound yet, and every bound model can be served."""
        if self._control is None and not self._stopping and not [*self._models]:
            return self._new_control().is_live()
        return super().is_alive()

    def is_connected(self) -> bool:
        """Whether the server has every bound model now, connected to this process."""
        return super().is_connected() and not any(map(self._models.is_lost, self._models))

    def endpoints(self) -> ServerEndpoints:
        """The endpoint of the server that this object was given."""
        return ServerEndpoints.of_access(self._access)

    def _reach(self) -> ModelControl:
        control = self._new_control()
        control.check_ready(self._init_timeout_s, self._is_wanted)
        LOGGER.info("connected to the Triton Inference Server at %s", control.url)
        return control

    def _new_control(self) -> RemoteModelControl:
        return RemoteModelControl(self._access, self._workspace.model_store_path)

    def _check_python_backend(self) -> None:
        pass  # loading the model shows it

    def _load(self, control: ModelControl) -> None:
        new = {*self._models.names()} - {*self._models.names(loaded=True)}
        if new:
            with suppress(PyTritonModelControlError):  # loading them shows the problem
                for name in sorted(filter(control.is_model_ready, new)):
                    LOGGER.warning(
                        "model %s: the server at %s serves a model of this name already; it is replaced",
                        name,
                        control.url,
                    )
        super()._load(control)

    def _revive(self, control: ModelControl, model: Model) -> None:
        pause_s, problem = POLL_S, ""
        while self._is_lost(model):
            if control.is_ready():
                before, problem = problem, self._load_again(control, model)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S) if problem else POLL_S
                if problem and problem != before:
                    LOGGER.warning("model %s cannot be loaded yet: %s", model.name, problem)
            self._stopped.wait(pause_s)

    def _load_again(self, control: ModelControl, model: Model) -> str:
        """Load a model that the server has lost; returns why that was not possible, or nothing."""
        with self._lock:
            if self._is_lost(model):
                try:
                    reason = f"the server at {control.url} lost it; loading it again"
                    self._models.revive(control, model, reason, if_unloaded=True)
                except PyTritonModelControlError as error:  # the server may be going again
                    return str(error)
        return ""

    def _end(self, control: ModelControl, deadline: float) -> None:
        loaded = self._models.names(loaded=True)
        try:
            for name in loaded:
                control.unload(name)
        except PyTritonModelControlError as error:
            LOGGER.warning("models cannot be unloaded from the server at %s: %s", control.url, error)
            return
        if not self._models.wait_drained(control, deadline, lambda: True):
            LOGGER.warning("requests in flight were ended after %.0f s", END_TIMEOUT_S)
        if loaded:  # else a model that it has refused would be all that keeps it from being ready
            control.wait_ready(SETTLE_TIMEOUT_S, lambda: True)

    def _kill(self) -> None:
        self._models.disconnect()
