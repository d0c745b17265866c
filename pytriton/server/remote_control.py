"""What we ask of a server that somebody else launched: as of our own, but it sees none of our files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from tritonclient.utils import InferenceServerException

from pytriton.model_config.generator import ModelConfigGenerator
from pytriton.model_config.parser import ModelConfigParser
from pytriton.server.access import Access
from pytriton.server.control import OWNER, REFUSED, ModelControl
from pytriton.server.python_backend import REFUSAL
from pytriton.server.repository import CONFIG_FILE

__all__ = ["RemoteModelControl"]

LOOK_S = 1.0
LIVE_TIMEOUT_S = 5.0
TRAILING = ";. \n"  # what the server ends its messages with
ADVICE = {
    "restricted": "give RemoteTriton the server's access_token",
    "explicit model load / unload is not allowed": "start that server with --model-control-mode=explicit",
    REFUSAL: "RemoteTriton needs Triton's Python backend, which this server has not. If it belongs to a Triton object, "
    "start that with an interpreter whose shared library is installed and that the server has a stub for (pytriton env "
    "tells); or bind the model in that process",
}


class RemoteModelControl(ModelControl):
    """Controls a server that sees nothing of the model repository: each load brings the model's files with it.

    Args:
        access: To the server.
        store: The repository.
    """

    def __init__(self, access: Access, store: Path) -> None:
        super().__init__(access)
        self._store = store
        self.id = uuid4().hex

    def is_live(self) -> bool:
        """Whether the server answers within some seconds."""
        limit = {} if self.url.startswith("http") else {"client_timeout": LIVE_TIMEOUT_S}
        with self._access.client(LIVE_TIMEOUT_S) as client:
            try:
                return bool(client.is_server_live(self._access.headers, **limit))
            except (*REFUSED, ValueError):  # ValueError: an answer that was cut short
                return False

    def check_ready(self, timeout_s: float, may_come: Callable[[], bool] = lambda: True) -> None:
        """Wait until the server is live, whatever its other models do, but only while it does not refuse us.

        Raises:
            PyTritonClientTimeoutError: The server was not ready in time; also a TimeoutError.
            InferenceServerException: The server wants another access token.
        """
        deadline = time.monotonic() + timeout_s
        while (answer := self.wait_ready(min(LOOK_S, timeout_s), may_come, live=True)) is not None:
            self._check_access()
            if time.monotonic() >= deadline or not may_come():
                raise self._too_late(timeout_s, answer)
        self._check_access()

    def _check_access(self) -> None:
        try:
            with self._advice():
                self.models()
        except InferenceServerException as error:
            if ADVICE["restricted"] in str(error):
                raise
        except REFUSED:
            pass

    def load(self, name: str) -> None:
        """Load a model, with its configuration and files, in place of one of that name.

        Raises:
            InferenceServerException: The server refused it.
        """
        folder = self._store / name
        config_file = folder / CONFIG_FILE
        config = ModelConfigGenerator(ModelConfigParser.from_file(config_path=config_file)).get_config()
        config.setdefault("parameters", {})[OWNER] = {"string_value": self.id}
        files = {
            f"file:{path.relative_to(folder).as_posix()}": path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and path != config_file
        }
        with self._advice(), self._access.client() as client:
            client.load_model(name, headers=self._access.headers, config=json.dumps(config), files=files)

    def unload(self, name: str) -> None:
        """As :meth:`ModelControl.unload`, unless the model of this name is not the one that we loaded."""
        with self._advice():
            if self.is_own(name):
                super().unload(name)

    @contextmanager
    def _advice(self) -> Iterator[None]:
        """Say what to do about refusals that are not about a model."""
        try:
            yield
        except InferenceServerException as error:
            for text, advice in ADVICE.items():
                if text in str(error):
                    message = f"{error.message().rstrip(TRAILING)}; {advice} (the server at {self.url})"
                    raise InferenceServerException(message, error.status(), error.debug_details()) from error
            raise
