"""What we ask of a running server: whether it is ready, and to load and unload models."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

from tritonclient.utils import InferenceServerException

from pytriton.client.exceptions import PyTritonClientTimeoutError
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.server.access import Access
from pytriton.server.announcement import announcement
from pytriton.server.statistics import ModelStatistics, parse_statistics

__all__ = ["OWNER", "REFUSED", "ModelControl"]

READY_POLL_S = 0.01
REFUSED = (InferenceServerException, OSError)
OWNER = "pytriton_owner"
HOLDING = {"READY", "LOADING", "UNLOADING"}


class ModelControl:
    """Controls a server that reads the model repository which we write.

    Args:
        access: To the server.

    Attributes:
        url: Of the server.
        id: Marks the models that this object loads, among those of others.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self.url = access.url
        self.id = ""  # what comes from the server's own repositories bears no mark

    def load(self, name: str) -> None:
        """Load a model, or what is new of it.

        Raises:
            InferenceServerException: The server refused it.
        """
        with self._access.client() as client:
            client.load_model(name, headers=self._access.headers)

    def unload(self, name: str) -> None:
        """Have a model refuse new requests and go once those in flight are answered; returns before it is gone."""
        with self._access.client() as client:
            client.unload_model(name, headers=self._access.headers)

    def is_model_ready(self, name: str, version: int | None = None) -> bool:
        """Whether the server can serve a version of a model, or any."""
        with self._access.client() as client:
            return bool(client.is_model_ready(name, str(version or ""), headers=self._access.headers))

    def is_own(self, name: str) -> bool:
        """Whether a model is the one that we loaded, and no other one of that name; one that is not loaded is not."""
        as_json = {} if self.url.startswith("http") else {"as_json": True}
        with self._access.client() as client:
            try:
                config = client.get_model_config(name, headers=self._access.headers, **as_json)
            except InferenceServerException as error:
                if "is not found" in str(error) or "has no available versions" in str(error):
                    return False
                raise
        parameters = config.get("config", config).get("parameters") or {}
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
        for entry in self._index():
            found[entry["name"]].add(entry.get("state", ""))
        return found

    def _index(self) -> list[dict[str, str]]:
        """What the server says of each version of each model."""
        as_json = {} if self.url.startswith("http") else {"as_json": True}
        with self._access.client() as client:
            index = client.get_model_repository_index(headers=self._access.headers, **as_json)
        return index if isinstance(index, list) else list(index.get("models", ()))

    def is_unloaded(self, name: str, version: int) -> bool:
        """Whether a version of a model, whose files are there, has gone: it goes when its last request is answered.

        The server counts an open gRPC stream as a request, and does not end to count some that were cancelled.
        """
        return not any(
            entry["name"] == name and entry.get("version") == str(version) and entry.get("state") in HOLDING
            for entry in self._index()
        )

    def statistics(self, name: str | None) -> list[ModelStatistics]:
        """What the server has counted of a model, or with None of all, by name and version.

        Raises:
            InferenceServerException: There is no such model.
        """
        as_json = {} if self.url.startswith("http") else {"as_json": True}
        with self._access.client() as client:
            answer = client.get_inference_statistics(name or "", headers=self._access.headers, **as_json)
        return parse_statistics(answer)

    def is_ready(self) -> bool:
        """Whether the server answers, and is ready."""
        return self.wait_ready(0.0, lambda: True) is None

    def wait_ready(self, timeout_s: float, may_come: Callable[[], bool], *, live: bool = False) -> str | None:
        """Wait until the server is live and ready.

        Args:
            timeout_s: For at most so long; 0 asks once.
            may_come: Whether it makes sense to wait on.
            live: It is enough that the server is live: it need not have all its models ready.

        Returns:
            None, or what the server said last if it did not get ready.
        """
        deadline = time.monotonic() + timeout_s
        answer = "not ready"
        headers = self._access.headers
        with self._access.client() as client:
            while may_come():
                try:
                    if client.is_server_live(headers) and (live or client.is_server_ready(headers)) and may_come():
                        return None
                except (*REFUSED, ValueError) as error:  # ValueError: an answer that was cut short
                    answer = str(error)
                if time.monotonic() >= deadline:
                    break
                time.sleep(READY_POLL_S)
        return answer

    def check_ready(self, timeout_s: float, may_come: Callable[[], bool] = lambda: True) -> None:
        """Wait as :meth:`wait_ready` does.

        Raises:
            PyTritonClientTimeoutError: The server was not ready in time; also a TimeoutError.
        """
        answer = self.wait_ready(timeout_s, may_come)
        if answer is not None:
            raise self._too_late(timeout_s, answer)

    def _too_late(self, timeout_s: float, answer: str) -> PyTritonClientTimeoutError:
        return PyTritonClientTimeoutError(
            f"the server at {self.url} was not ready after {timeout_s:g} s; it last said: {answer}"
        )
