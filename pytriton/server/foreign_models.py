"""The models in a repository of the user's, served beside those that are bound."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from pathlib import Path

from pytriton.config import TritonConfig
from pytriton.exceptions import PyTritonServerError
from pytriton.server.control import REFUSED, ModelControl
from pytriton.server.installation import Installation
from pytriton.server.python_backend import REFUSAL, PythonBackend

__all__ = ["ForeignModels"]

LOGGER = logging.getLogger(__name__)

LACKS = ("contains models that are not available", "depends on")  # of an ensemble: what a bind may solve
NOT_FOUND = "failed to poll from model repository"  # also of an ensemble, if the server has no folder of a model of it
BUSY = {"READY", "UNLOADING"}
TRAILING = ";. \n"  # what the server ends such messages with
POLL_S = 0.02


class ForeignModels:
    """Loads them as soon as they can be loaded: an ensemble has to wait for the bound models that it uses.

    Args:
        installation: The server's.
        repository: The user's, if there is one.
    """

    def __init__(self, installation: Installation, repository: Path | None) -> None:
        self._installation = installation
        self._repository = repository
        self._problems: dict[str, str] = {}  # why models are not served
        self._told: dict[str, str] = {}  # those that there was a warning about
        self._loaded: set[str] = set()

    @staticmethod
    def to_preload(config: TritonConfig) -> list[str]:
        """Names of those that the server needs while it starts: the default model of Vertex AI's endpoint."""
        name, repository = config.vertex_ai_default_model, config.model_repository
        return [name] if name and repository and (repository / name).is_dir() else []

    def load(self, control: ModelControl, bound: Collection[str]) -> None:
        """Load those that the server does not serve yet; a model that it refuses is a warning, once for each reason.

        One that lacks other models may get them by the next bind: :meth:`warn_of_lacks` is for the time after the last.

        Args:
            control: Of the server.
            bound: Names of the models that are not the user's own.
        """
        models = {name: is_ready for name, is_ready in sorted(control.models().items()) if name not in bound}
        waiting = [
            name
            for name, is_ready in models.items()
            if not is_ready and (name not in self._problems or self._may_pass(name, self._problems[name]))
        ]
        refused: dict[str, str] = {}
        while waiting:
            tried = {name: _load(control, name) for name in waiting}
            refused.update(tried)
            self._loaded.update(name for name, problem in tried.items() if not problem)
            again = [name for name, problem in tried.items() if self._may_pass(name, problem)]
            if len(again) == len(waiting):
                break
            waiting = again  # one of those that could be loaded may be what they lacked
        for name, problem in refused.items():
            if problem and self._may_pass(name, problem) and self._problems.get(name) != problem:
                LOGGER.info("model %s of the model repository is not served yet: %s", name, problem)
            self._problems[name] = problem
            if problem and not self._may_pass(name, problem):
                self._warn(name)
        self._loaded.update(name for name, is_ready in models.items() if is_ready)  # the server loads some by itself
        for name in [name for name in self._problems if models.get(name) or not self._problems[name]]:
            del self._problems[name]
            if self._told.pop(name, ""):
                LOGGER.warning("model %s of the model repository is served now", name)

    def warn_of_lacks(self) -> None:
        """Warn of those that still lack other models, once for each reason: no bind is known to come."""
        for name in self._problems:
            self._warn(name)

    def _warn(self, name: str) -> None:
        problem = self._problems[name]
        if self._told.get(name) != problem:
            self._told[name] = problem
            LOGGER.warning("model %s of the model repository is not served: %s", name, self._explain(problem))

    def _may_pass(self, name: str, problem: str) -> bool:
        """Whether a model may only lack others that are bound later."""
        return any(text in problem for text in LACKS) or (NOT_FOUND in problem and self._is_ensemble(name))

    def _is_ensemble(self, name: str) -> bool:
        if self._repository is None:
            return False
        try:
            return "ensemble_scheduling" in (self._repository / name / "config.pbtxt").read_text("utf-8", "replace")
        except OSError:
            return False

    def _explain(self, problem: str) -> str:
        """Add why there is no Python backend, if that is the problem: the server does not know."""
        if REFUSAL in problem:
            try:
                PythonBackend.find(self._installation.home)
            except PyTritonServerError as error:
                return f"{problem.rstrip(TRAILING)}: {error}"
        return problem

    def unload(self, control: ModelControl, deadline: float) -> None:
        """Have the server answer the requests that it has accepted for them, before the bound models go that they use.

        Args:
            control: Of the server.
            deadline: In :func:`time.monotonic` seconds.
        """
        try:
            for name in self._loaded:
                control.unload(name)
            while any(control.states()[name] & BUSY for name in self._loaded) and time.monotonic() < deadline:
                time.sleep(POLL_S)
        except REFUSED as error:
            LOGGER.debug("the models of the model repository cannot be unloaded: %s", error)
        self._loaded.clear()


def _load(control: ModelControl, name: str) -> str:
    """Load a model; returns why it cannot be, or nothing."""
    try:
        control.load(name)
    except REFUSED as error:
        return str(error)
    return ""
