"""Loading, unloading and asking the server in this process, as bound models are loaded over a network elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pytriton.exceptions import PyTritonModelControlError
from pytriton.inprocess.exceptions import NotFoundError, TritonError, UnavailableError
from pytriton.inprocess.server import Server
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.server.control import ModelControl
from pytriton.server.statistics import ModelStatistics, parse_statistics

__all__ = ["InprocessControl"]

LATEST = -1


class InprocessControl(ModelControl):
    """Controls a server in this process.

    Args:
        server: It.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self.url = "this process"
        self.id = ""

    def load(self, name: str) -> None:
        """As :meth:`ModelControl.load`."""
        with _refusals():
            self._server.load(name)

    def unload(self, name: str) -> None:
        """As :meth:`ModelControl.unload`."""
        with _refusals():
            self._server.unload(name)

    def is_model_ready(self, name: str, version: int | None = None) -> bool:
        """As :meth:`ModelControl.is_model_ready`."""
        try:
            return self._server.model(name, version or LATEST).ready()
        except (NotFoundError, UnavailableError):
            return False

    def is_own(self, name: str) -> bool:
        """Whether the server has a model of this name: nobody else loads any."""
        return self.is_model_ready(name)

    def announcement(self, config: TritonModelConfig) -> str:
        """As :meth:`ModelControl.announcement`: there is no path to it from other processes."""
        return f"Infer function available as model {config.model_name!r} of the server in this process"

    def version_states(self) -> dict[tuple[str, str], str]:
        """As :meth:`ModelControl.version_states`."""
        with _refusals():
            return {(name, str(version)): model.state or "" for (name, version), model in self._server.models().items()}

    def statistics(self, name: str | None) -> list[ModelStatistics]:
        """As :meth:`ModelControl.statistics`."""
        with _refusals():
            return parse_statistics(self._server.model(name or "").statistics())

    def wait_ready(self, timeout_s: float, may_come: Callable[[], bool], *, live: bool = False) -> str | None:
        """Whether it is ready, as :meth:`ModelControl.wait_ready` tells; a server that has started need not wait."""
        try:
            return None if may_come() and (self._server.live() if live else self._server.ready()) else "not ready"
        except TritonError as error:
            return str(error)


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise the server's errors as clients of a server elsewhere would."""
    try:
        yield
    except TritonError as error:
        raise PyTritonModelControlError(str(error)) from error
