"""Models that a server has lost are loaded again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from pytriton.binding import ModelRegistry, call_in_parallel
from pytriton.exceptions import PyTritonModelControlError
from pytriton.logs import get_logger
from pytriton.model import Model
from pytriton.restarts import Backoff
from pytriton.server.model_server import ModelServer
from pytriton.threads import keep_running

__all__ = ["Revival"]

LOGGER = get_logger("pytriton.triton")

DEATH_GRACE_S, DISMISSAL_GRACE_S = 0.05, 0.5
REVIVAL_PAUSE_S, LONGEST_REVIVAL_PAUSE_S, LONGEST_REFUSED_PAUSE_S = 0.1, 5.0, 30.0
NOT_AGAIN = "model %s cannot be loaded again: %s"


class Revival:
    """Loads bound models again, on threads of its own.

    Args:
        models: The models, which tell it when the server's side of one has disconnected.
        lock: Held by whoever changes models, and by the threads of this object.
        running_server: The server, while it can be expected to answer.
    """

    def __init__(
        self, models: ModelRegistry, lock: threading.RLock, running_server: Callable[[], ModelServer | None]
    ) -> None:
        self._models, self._lock, self._running_server = models, lock, running_server
        models.on_disconnect = self._on_disconnect

    def reload(self, server: ModelServer) -> None:
        """Load all models into a server that has lost them; those that it refuses are tried on in the background.

        Raises:
            PyTritonModelControlError: It has refused all of them, or has ended.
        """
        names, refused = self._models.names(loaded=True), dict[str, PyTritonModelControlError]()

        def load(name: str) -> None:
            try:
                server.load(name)
            except PyTritonModelControlError as error:
                refused[name] = error
            for model in self._models.versions(name):
                model.refused = name in refused

        call_in_parallel([partial(load, name) for name in names])
        if refused and (len(refused) == len(names) or not server.is_alive()):
            raise next(iter(refused.values()))
        for name, error in refused.items():
            keep_running(partial(self._load_refused, server, name, str(error)), f"pytriton-load-{name}")

    def _load_refused(self, server: ModelServer, name: str, problem: str) -> None:
        """Try to load a model that the server has refused, until it is loaded, or no longer bound."""
        LOGGER.warning(NOT_AGAIN, name, problem)
        backoff = Backoff(REVIVAL_PAUSE_S, LONGEST_REFUSED_PAUSE_S)
        while not self._models.cleared.wait(backoff.next_s()):
            with self._lock:
                if self._running_server() is not server or not server.is_alive():
                    return
                if name not in self._models.names(loaded=True):
                    return
                before = problem
                try:
                    self._models.repair()
                    server.load(name)
                    for model in self._models.versions(name):
                        model.refused = False
                    LOGGER.warning("model %s was loaded again", name)
                    return
                except PyTritonModelControlError as error:
                    problem = str(error)
            if problem != before:
                LOGGER.warning(NOT_AGAIN, name, problem)

    def _on_disconnect(self, model: Model) -> None:
        if model.loaded and self._running_server() is not None:
            keep_running(lambda: self._revive_if_lost(model), "pytriton-revive")

    def _revive_if_lost(self, model: Model) -> None:
        """Have the server load a model again whose proxies have gone by themselves: its requests fail."""
        time.sleep(DISMISSAL_GRACE_S if model.was_dismissed() else DEATH_GRACE_S)
        backoff, problem = Backoff(REVIVAL_PAUSE_S, LONGEST_REVIVAL_PAUSE_S), ""
        while (server := self._running_server()) is not None and self._models.is_lost(model):
            if server.is_alive():
                before, problem = problem, self._revive(server, model)
                if problem and problem != before:
                    LOGGER.warning(NOT_AGAIN, model.name, problem)
                if not problem:
                    backoff.reset()
            if not server.is_shared:
                return
            self._models.cleared.wait(backoff.next_s())

    def _revive(self, server: ModelServer, model: Model) -> str:
        """Load a lost model again; forget it if another process has replaced it in the server.

        A model that was unloaded, or is being loaded again, is only loaded into a server that others share.

        Returns:
            Why that was not possible, or nothing.
        """
        with self._lock:
            if self._running_server() is not server or not self._models.is_lost(model):
                return ""
            try:
                if server.is_model_ready(model.name, model.version):
                    if not server.is_own(model.name):
                        self._forget_replaced(server, model)
                        return ""
                    if model.was_dismissed() and not server.is_shared:
                        return ""
                    server.unload(model.name)
                elif not server.is_shared:
                    return ""
                lost_by = f"the server at {server.url} lost it" if server.is_shared else "its proxy in the server died"
                LOGGER.warning("model %s: %s; loading it again", model.name, lost_by)
                self._models.repair()
                server.load(model.name)
            except PyTritonModelControlError as error:
                return str(error) if server.is_ready() else ""  # else the server has gone, or is going
        return ""

    def _forget_replaced(self, server: ModelServer, model: Model) -> None:
        LOGGER.warning(
            "model %s: another process has loaded a model of this name into the server at %s; it is not bound here any "
            "more",
            model.name,
            server.url,
        )
        for version in self._models.versions(model.name):
            self._models.remove(version)
