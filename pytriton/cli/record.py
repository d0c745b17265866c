"""``pytriton record``: turns the recording of a model on at a running server, and off again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from pytriton.cli import options
from pytriton.cli.calls import app_url, post
from pytriton.cli.errors import TargetError, exit_on_error
from pytriton.client.auth import Tls, TritonUrl
from pytriton.client.exceptions import PyTritonClientInferenceServerError, PyTritonClientValueError
from pytriton.model_config import Recording

__all__ = ["record"]


def record(
    url: Annotated[str, typer.Argument(metavar="URL", help="The app, or the server's HTTP port, e.g. localhost.")],
    model: Annotated[str, typer.Option(help="Name of the model.")],
    model_version: Annotated[int | None, typer.Option(min=1, help="Its version.", show_default="the only one")] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE.ptr", help="Start: name of a new file, at the server."),
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="End the recording, and show what has come of it.")] = False,
    share: Annotated[float, typer.Option(help="Share of the requests, above 0 and up to 1.")] = Recording.share,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Leave an input, output, parameter or the id out; may be repeated."),
    ] = None,
    file_bytes: Annotated[int, typer.Option(help="Bytes of a file.")] = Recording.file_bytes,
    files: Annotated[int, typer.Option(help="Number of files; the oldest is deleted.")] = Recording.files,
    record_bytes: Annotated[int, typer.Option(help="Most bytes of a request.")] = Recording.record_bytes,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds to wait for the server.")] = 30.0,
    token: options.Token = None,
    tls: options.Secured = False,
    roots: options.Roots = None,
    key: options.Key = None,
    certificate: options.Certificate = None,
) -> None:
    """Record requests to a model of a running server, with their answers.

    **-o** starts, **--stop** ends, and without both, it shows what has come of the recording so far. It needs the
    server's access token, and a server with an app, such as **pytriton serve --rest-port 8080** launches. The file is
    in the folder that PYTRITON_RECORDINGS names at the server, else in the working folder there; only the user that
    serves may read it. **pytriton replay** reads it.
    """
    with exit_on_error():
        if output and stop:
            raise TargetError("-o starts a recording and --stop ends it; give one of them")
        command = RecordCommand(url, model, model_version, token, options.trust(tls, roots, key, certificate), timeout)
        if output:
            chosen = Recording(output, share, without or [], file_bytes, files, record_bytes)
            typer.echo(command.start(chosen))
        else:
            typer.echo(command.stop() if stop else command.status())


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
