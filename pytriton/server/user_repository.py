"""The models in the user's own model repository, which the server serves beside those that are bound."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from pathlib import Path

from pytriton.config import TritonConfig
from pytriton.exceptions import PyTritonModelControlError, PyTritonServerError
from pytriton.server.installation import Installation
from pytriton.server.model_server import MESSAGE_END, ModelServer
from pytriton.server.python_backend import NO_PYTHON_BACKEND, PythonBackend

__all__ = ["UserRepository"]

LOGGER = logging.getLogger(__name__)

MISSING_MODELS = ("contains models that are not available", "depends on")  # of an ensemble
NOT_FOUND = "failed to poll from model repository"  # also of an ensemble, if the server has no folder of a model of it
BUSY_STATES = {"READY", "UNLOADING"}
POLL_S = 0.02


class UserRepository:
    """Loads the user's models as soon as they can be loaded: an ensemble has to wait for the bound models that it uses.

    Args:
        installation: Of the server.
        path: The user's repository, if there is one.
    """

    def __init__(self, installation: Installation, path: Path | None) -> None:
        self._installation = installation
        self._path = path
        self._problems: dict[str, str] = {}  # why models are not served
        self._warnings: dict[str, str] = {}  # the problems that were logged as warnings
        self._loaded: set[str] = set()

    @staticmethod
    def preloaded(config: TritonConfig) -> list[str]:
        """Names of the models that the server needs while it starts: the default model of Vertex AI's endpoint."""
        name, path = config.vertex_ai_default_model, config.model_repository
        return [name] if name and path and (path / name).is_dir() else []

    def load(self, server: ModelServer, bound: Collection[str]) -> None:
        """Load those that the server does not serve yet; a model that it refuses is a warning, once for each reason.

        The next bind may provide the models that an ensemble lacks, so :meth:`warn_of_missing_models` warns of those.

        Args:
            server: The server.
            bound: Names of the models that are not the user's own.
        """
        models = {name: is_ready for name, is_ready in sorted(server.models().items()) if name not in bound}
        waiting = [
            name
            for name, is_ready in models.items()
            if not is_ready and (name not in self._problems or self._lacks_models(name, self._problems[name]))
        ]
        results: dict[str, str] = {}
        while waiting:
            tried = {name: _load(server, name) for name in waiting}
            results.update(tried)
            self._loaded.update(name for name, problem in tried.items() if not problem)
            again = [name for name, problem in tried.items() if self._lacks_models(name, problem)]
            if len(again) == len(waiting):
                break
            waiting = again  # they may have lacked one that could be loaded
        for name, problem in results.items():
            lacks_models = self._lacks_models(name, problem)
            if lacks_models and self._problems.get(name) != problem:
                LOGGER.info("model %s of the model repository is not served yet: %s", name, problem)
            self._problems[name] = problem
            if problem and not lacks_models:
                self._warn(name)
        self._loaded.update(name for name, is_ready in models.items() if is_ready)  # the server loads some by itself
        for name in [name for name in self._problems if models.get(name) or not self._problems[name]]:
            del self._problems[name]
            if self._warnings.pop(name, ""):
                LOGGER.warning("model %s of the model repository is served now", name)

    def warn_of_missing_models(self) -> None:
        """Warn of the models that still lack others, once for each reason: no other bind need follow."""
        for name in self._problems:
            self._warn(name)

    def _warn(self, name: str) -> None:
        problem = self._problems[name]
        if self._warnings.get(name) != problem:
            self._warnings[name] = problem
            LOGGER.warning("model %s of the model repository is not served: %s", name, self._explain(problem))

    def _lacks_models(self, name: str, problem: str) -> bool:
        """Whether a model may only lack others that are bound later."""
        return any(text in problem for text in MISSING_MODELS) or (NOT_FOUND in problem and self._is_ensemble(name))

    def _is_ensemble(self, name: str) -> bool:
        if self._path is None:
            return False
        try:
            return "ensemble_scheduling" in (self._path / name / "config.pbtxt").read_text("utf-8", "replace")
        except OSError:
            return False

    def _explain(self, problem: str) -> str:
        """Add why there is no Python backend, if that is the problem: the server does not know."""
        if NO_PYTHON_BACKEND in problem:
            try:
                PythonBackend.find(self._installation.home)
            except PyTritonServerError as error:
                return f"{problem.rstrip(MESSAGE_END)}: {error}"
        return problem

    def unload(self, server: ModelServer, deadline: float) -> None:
        """Unload them, and wait until their requests are answered: they may use bound models.

        Args:
            server: The server.
            deadline: In :func:`time.monotonic` seconds.
        """
        try:
            for name in self._loaded:
                server.unload(name)
            while any(server.states()[name] & BUSY_STATES for name in self._loaded) and time.monotonic() < deadline:
                time.sleep(POLL_S)
        except PyTritonModelControlError as error:
            LOGGER.debug("the models of the model repository cannot be unloaded: %s", error)
        self._loaded.clear()


def _load(server: ModelServer, name: str) -> str:
    """Load a model; returns why it cannot be loaded, or nothing."""
    try:
        server.load(name)
    except PyTritonModelControlError as error:
        return str(error)
    return ""
