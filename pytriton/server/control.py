"""Calls to a running server: whether it is ready, what it serves, and loading and unloading models."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

from pytriton.client.conversations import Call
from pytriton.client.exceptions import (
    PyTritonClientError,
    PyTritonClientInferenceServerError,
    PyTritonClientTimeoutError,
)
from pytriton.exceptions import PyTritonModelControlError
from pytriton.model_config.generator import ModelConfigGenerator
from pytriton.model_config.parser import ModelConfigParser
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.server.access import Access
from pytriton.server.announcement import announcement
from pytriton.server.python_backend import NO_PYTHON_BACKEND
from pytriton.server.repository import CONFIG_FILE
from pytriton.server.statistics import ModelStatistics, parse_statistics

__all__ = ["ModelControl", "RemoteModelControl"]

CALL_TIMEOUT_S = 600.0
READY_POLL_S = 0.002
ACCESS_POLL_S = 1.0
LIVE_TIMEOUT_S = 5.0
OWNER = "pytriton_owner"
HELD_STATES = {"READY", "LOADING", "UNLOADING"}
NOT_LOADED = ("is not found", "has no available versions")
MESSAGE_END = ";. \n"  # how the server ends its messages
RESTRICTED = "restricted"
ADVICE = {
    RESTRICTED: "give RemoteTriton the server's access_token",
    "explicit model load / unload is not allowed": "start that server with --model-control-mode=explicit",
    NO_PYTHON_BACKEND: "RemoteTriton needs Triton's Python backend, which this server has not. If it belongs to a "
    "Triton object, start that with an interpreter whose shared library is installed and that the server has a stub "
    "for (pytriton env tells); or bind the model in that process",
}


class ModelControl:
    """Controls a server that reads the model repository which this process writes.

    All methods raise PyTritonModelControlError if the server refuses or cannot be reached.

    Args:
        access: To the server.

    Attributes:
        url: Of the server.
        id: Marks the models that this object loads, among those of others.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self.url = access.url
        self.id = ""  # models of the server's own repositories have no mark

    def load(self, name: str) -> None:
        """Load a model, or its new versions and configuration."""
        self._call("load_model", model_name=name)

    def unload(self, name: str) -> None:
        """Have a model refuse new requests and go once those in flight are answered; returns before it is gone."""
        self._call("unload_model", model_name=name)

    def is_model_ready(self, name: str, version: int | None = None) -> bool:
        """Whether the server can serve a version of a model, or any."""
        return bool(self._call("is_model_ready", model_name=name, model_version=str(version or "")))

    def is_own(self, name: str) -> bool:
        """Whether the server has loaded a model of this name, and it is the one that this object loaded."""
        try:
            config = self._call("get_model_config", model_name=name)
        except PyTritonModelControlError as error:
            if any(text in str(error) for text in NOT_LOADED):
                return False
            raise
        parameters = config.get("parameters") or {}
        return bool(parameters.get(OWNER, {}).get("string_value", "") == self.id)

    def announcement(self, config: TritonModelConfig) -> str:
        """Where a model is served, as lines for the log."""
        return announcement(self.url, config, self._access.inference_header)

    def models(self) -> dict[str, bool]:
        """The models of the server's repositories, and whether any version of each is ready."""
        return {name: "READY" in states for name, states in self.states().items()}

    def states(self) -> dict[str, set[str]]:
        """The models of the server's repositories, and the states of their versions, such as READY and UNLOADING."""
        found: dict[str, set[str]] = defaultdict(set)
        for (name, _), state in self.version_states().items():
            found[name].add(state)
        return found

    def version_states(self) -> dict[tuple[str, str], str]:
        """The state of each version of each model; a model that was never loaded has a version without a number."""
        index = self._call("get_model_repository_index")
        return {(entry["name"], entry.get("version", "")): entry.get("state", "") for entry in index}

    def are_unloaded(self, versions: Iterable[tuple[str, int]]) -> bool:
        """Whether models, by name and version, have gone: each goes when its last request is answered.

        The server counts an open gRPC stream as a request, and never stops to count some that were cancelled.
        """
        states = self.version_states()
        return not any(states.get((name, str(version))) in HELD_STATES for name, version in versions)

    def statistics(self, name: str | None) -> list[ModelStatistics]:
        """What the server has counted of a model, or with None of all, by name and version."""
        return parse_statistics(self._call("get_inference_statistics", model_name=name or ""))

    def is_ready(self) -> bool:
        """Whether the server answers, and is ready."""
        return self.wait_ready(0.0, lambda: True) is None

    def wait_ready(self, timeout_s: float, keep_waiting: Callable[[], bool], *, live: bool = False) -> str | None:
        """Wait until the server is live and ready.

        Args:
            timeout_s: For at most so long; 0 asks once.
            keep_waiting: Whether to wait on.
            live: It is enough that the server is live: it need not have all its models ready.

        Returns:
            None, or what the server said last if it did not get ready.
        """
        deadline = time.monotonic() + timeout_s
        answer = "not ready"
        methods = ["is_server_live"] if live else ["is_server_live", "is_server_ready"]
        with closing(self._access.connect()) as transport:
            while keep_waiting():
                try:
                    if all(transport.call(Call(method, CALL_TIMEOUT_S)) for method in methods) and keep_waiting():
                        return None
                except PyTritonClientError as error:
                    answer = str(error)
                if time.monotonic() >= deadline:
                    break
                time.sleep(READY_POLL_S)
        return answer

    def check_ready(self, timeout_s: float, keep_waiting: Callable[[], bool] = lambda: True) -> None:
        """Wait as :meth:`wait_ready` does.

        Raises:
            PyTritonClientTimeoutError: The server was not ready in time; also a TimeoutError.
        """
        answer = self.wait_ready(timeout_s, keep_waiting)
        if answer is not None:
            raise self._not_ready(timeout_s, answer)

    def _not_ready(self, timeout_s: float, answer: str) -> PyTritonClientTimeoutError:
        return PyTritonClientTimeoutError(
            f"the server at {self.url} was not ready after {timeout_s:g} s; it last said: {answer}"
        )

    def _call(self, method: str, timeout_s: float = CALL_TIMEOUT_S, **arguments: Any) -> Any:
        """Perform one :class:`~pytriton.client.conversations.Call` on a new connection."""
        try:
            with closing(self._access.connect()) as transport:
                return transport.call(Call(method, timeout_s, arguments))
        except (PyTritonClientInferenceServerError, PyTritonClientTimeoutError) as error:
            raise PyTritonModelControlError(self._explain(str(error))) from error

    def _explain(self, message: str) -> str:
        """What the server, or the network, said, and what to do about it if that is known."""
        return message


class RemoteModelControl(ModelControl):
    """Controls a server that does not see the model repository: each load sends the model's files.

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
        try:
            return bool(self._call("is_server_live", LIVE_TIMEOUT_S))
        except PyTritonModelControlError:
            return False

    def check_ready(self, timeout_s: float, keep_waiting: Callable[[], bool] = lambda: True) -> None:
        """Wait until the server is live, whether or not its other models are ready.

        Raises:
            PyTritonClientTimeoutError: The server was not live in time; also a TimeoutError.
            PyTritonModelControlError: The server wants another access token.
        """
        deadline = time.monotonic() + timeout_s
        while (answer := self.wait_ready(min(ACCESS_POLL_S, timeout_s), keep_waiting, live=True)) is not None:
            self._check_token()
            if time.monotonic() >= deadline or not keep_waiting():
                raise self._not_ready(timeout_s, answer)
        self._check_token()

    def _check_token(self) -> None:
        try:
            self.version_states()
        except PyTritonModelControlError as error:
            if ADVICE[RESTRICTED] in str(error):
                raise

    def load(self, name: str) -> None:
        """Load a model, with its configuration and files, in place of one of that name."""
        folder = self._store / name
        config_file = folder / CONFIG_FILE
        config = ModelConfigGenerator(ModelConfigParser.from_file(config_path=config_file)).get_config()
        config.setdefault("parameters", {})[OWNER] = {"string_value": self.id}
        files = {
            f"file:{path.relative_to(folder).as_posix()}": path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and path != config_file
        }
        self._call("load_model", model_name=name, config=json.dumps(config), files=files)

    def unload(self, name: str) -> None:
        """As :meth:`ModelControl.unload`, unless the model of this name is not the one that this object loaded."""
        if self.is_own(name):
            super().unload(name)

    def _explain(self, message: str) -> str:
        for text, advice in ADVICE.items():
            if text in message:
                return f"{message.rstrip(MESSAGE_END)}; {advice} (the server at {self.url})"
        return message
