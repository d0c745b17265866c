"""``pytriton record``: turns the recording of a model on at a running server, and off again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pytriton.cli.calls import app_url, post
from pytriton.client.auth import Tls, TritonUrl
from pytriton.client.exceptions import PyTritonClientInferenceServerError, PyTritonClientValueError
from pytriton.model_config import Recording

__all__ = ["RecordCommand"]


@dataclass(frozen=True)
class RecordCommand:
    """Commands for the recording of one model.

    Args:
        url: Of the app, or of the server's HTTP port.
        version: Of the model; None if it has only one.
        tls: Encrypts the connection; None does not.
    """

    url: str
    model: str
    version: int | None
    token: str | None
    tls: Tls | None
    timeout_s: float

    def start(self, recording: Recording) -> str:
        """Start one; returns what it does, for a person. The path is a name at the server.

        Raises:
            PyTritonClientError: The server refuses, or cannot be reached.
        """
        status = self._send("start", {**asdict(recording), "path": str(recording.path)})
        return f"recording {self.model} to {status['path']} there; --stop ends it"

    def stop(self) -> str:
        """End the recording; returns what has come of it, and raises as :meth:`start`."""
        return self._told(self._send("stop"))

    def status(self) -> str:
        """What has come of it so far; raises as :meth:`start`."""
        return self._told(self._send("status"))

    def _told(self, status: dict[str, Any] | None) -> str:
        if status is None:
            return f"{self.model} is not recorded"
        return (
            f"{self.model}: {status['recorded']:,} requests recorded in {status['path']}, {status['bytes']:,} bytes; "
            f"{status['dropped']:,} dropped, {status['too_large']:,} too large"
        )

    def _send(self, action: str, recording: dict[str, Any] | None = None) -> Any:
        url = app_url(TritonUrl.from_url(self.url), self.tls)
        if not url:
            raise PyTritonClientValueError(f"give the URL of the app or of the server's HTTP port, not {self.url}")
        command = {"command": "record", "model": self.model, "action": action, "version": self.version}
        content = {**command, "recording": recording}
        answer = post(url, "/pages/commands", content, self.tls or Tls(), self.timeout_s, "the command", self.token)
        if not isinstance(answer, dict) or "recording" not in answer:
            raise PyTritonClientInferenceServerError(f"{self.url} answers, but is no app of this version")
        return answer["recording"]
