"""The native HTTP front end of a server that this process launches: whether it is used, its options, its drain.

It is a library in the server's process (``pytriton/native/http``), which takes the public HTTP endpoint. The server's
own HTTP endpoint then listens on a Unix socket in the workspace, for the front end and for this process alone::

    http/              open to this user alone
      frontend.json    options of the front end, with the values of the headers that restricted endpoints ask for
      triton.sock      the server's own HTTP endpoint
      rest.sock        the REST front, if there is one
      counters         requests that are answered for the REST front, for its metrics
      control.sock     the front end itself: that the models are there, its drain, and inference without tokens for the
                       REST front
"""

from __future__ import annotations

import json
import math
import os
import select
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytriton import forks
from pytriton.client.auth import TritonUrl
from pytriton.config import NATIVE_HTTP_OPTIONS, TritonConfig
from pytriton.constants import DEFAULT_HTTP_PORT
from pytriton.exceptions import PyTritonValidationError
from pytriton.server.access import Restrictions, uses_tls
from pytriton.server.backends import LIBRARY, build_mismatch
from pytriton.server.installation import HTTP_FRONTEND, PRELOADED
from pytriton.server.launch import ANY_ADDRESS, UNIX, metrics_address, socket_path

__all__ = ["FrontendDrain", "HttpFrontend", "uses_native_frontend"]

ANY_ADDRESS_6 = "::"
FILE_VARIABLE = "PYTRITON_HTTP"  # names the file of options to the library
MOST_SOCKET_BYTES = 107
CONTROL_TIMEOUT_S = 5.0
# Options that the front end's file has under the same name, without "http_".
SAME_NAMES = (
    "max_head_bytes",
    "max_body_bytes",
    "max_nesting",
    "max_connections",
    "max_connections_per_address",
    "max_requests",
    "head_timeout_s",
    "body_timeout_s",
    "idle_timeout_s",
    "access_log",
    "metrics",
    "header_forward_pattern",
)


def uses_native_frontend(config: TritonConfig, library: Path = LIBRARY) -> bool:
    """Whether the native front end serves a server's HTTP.

    Args:
        config: Of the server.
        library: The native proxy, beside which the front end lies.

    Raises:
        PyTritonValidationError: It was asked for, or an option that it alone has, and it cannot be used.
    """
    if config.allow_http is False:
        return False
    wish = config.http_frontend or "native"
    reason = _unusable(library) if wish == "native" else "the server's own HTTP endpoint was chosen"
    if not reason:
        return True
    if config.http_frontend == "native":
        raise PyTritonValidationError(f"http_frontend='native' cannot be used: {reason}")
    given = [name for name in NATIVE_HTTP_OPTIONS if getattr(config, name) is not None]
    if socket_path(config.http_address or ""):
        given.append("a Unix socket as http_address")
    if given:
        raise PyTritonValidationError(
            f"only the native HTTP front end has {', '.join(given)}: set http_frontend='native'"
            + (f", which cannot be used, because {reason}" if wish == "native" else "")
        )
    return False


def _unusable(library: Path) -> str:
    for name in (HTTP_FRONTEND, PRELOADED):
        if not library.with_name(name).is_file():
            return (
                f"{library.with_name(name)} is missing: there was no C++ compiler, CMake or Ninja when this package "
                "was built, or it was built without the front end"
            )
    return build_mismatch(library)


class HttpFrontend:
    """Where the front end and what is behind it listen, for as long as the workspace is there.

    Args:
        config: Of the server.
        restrictions: What its endpoints ask for.
        workspace: The folder of the server.
        application: Options of the REST front behind it; None without one.
        application_address: Where the REST front's port listens.

    Attributes:
        url: Of the server's own HTTP endpoint.
        private_url: Of the front end, which asks for no token there.
        application: Path of the REST front's socket; None without one.
        counters: Path of the file for the REST front's metrics.
        listener: Descriptor of the socket of the REST front's port, once it listens; negative without one. This
            process keeps it, so that clients wait while the server is launched again.
        waits_for_models: Whether the next server is not ready before :meth:`announce_models`.
    """

    def __init__(
        self,
        config: TritonConfig,
        restrictions: Restrictions,
        workspace: Path,
        application: Mapping[str, Any] | None = None,
        application_address: str = ANY_ADDRESS,
    ) -> None:
        self._folder = workspace / "http"
        self._folder.mkdir(mode=0o700)
        self._descriptor = -1
        sockets = str(self._folder)
        if len(os.fsencode(self._folder / "control.sock")) > MOST_SOCKET_BYTES:
            self._descriptor = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            sockets = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        self._upstream, self._control = f"{sockets}/triton.sock", f"{sockets}/control.sock"
        self.url = TritonUrl.of_socket(self._upstream).with_scheme
        self.private_url = TritonUrl.of_socket(self._control).with_scheme
        self.application = f"{sockets}/rest.sock" if application else None
        self._application_address = application_address
        self.listener = -1
        self.waits_for_models = False
        self.counters = str(self._folder / "counters")
        self._config, self._restrictions = config, restrictions
        self._application = application
        forks.register(self)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            with suppress(OSError):
                os.close(self._descriptor)

    def after_fork(self) -> None:
        """In a forked child, leave the folder to the parent."""
        forks.abandon(self._descriptor)

    def prepare(self) -> dict[str, str]:
        """Write the file of options, before each start of the server.

        Returns:
            What the server's environment has to have.
        """
        path = self._folder / "frontend.json"
        for name in (path, self._upstream, self._control):  # of a server that was killed
            with suppress(FileNotFoundError):
                os.unlink(name)
        with open(path, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            json.dump(self.options(), file)
        return {FILE_VARIABLE: str(path)}

    def options(self) -> dict[str, Any]:
        """What the file has (``pytriton/native/http/config.h``)."""
        config = self._config
        options: dict[str, Any] = {
            "address": config.http_address or ANY_ADDRESS,
            "port": config.http_port or DEFAULT_HTTP_PORT,
            "threads": config.http_thread_count or 1,
            "upstream": self._upstream,
            "control": self._control,
            "waits_for_models": self.waits_for_models,
            **self._application_options(),
            "is_traced": bool(config.trace_config),
            "access": [
                {"endpoints": list(rule.endpoints), "header": rule.header, "value": rule.value}
                for rule in self._restrictions.rules("http")
            ],
        }
        if uses_tls(config, "http"):
            options["tls_certificate"] = str(config.http_server_cert)
            options["tls_key"] = str(config.http_server_key)
            if config.http_use_ssl_mutual:
                options["tls_authorities"] = str(config.http_root_cert)
        given = {name: getattr(config, f"http_{name}") for name in SAME_NAMES}
        return options | {name: value for name, value in given.items() if value is not None}

    def _application_options(self) -> dict[str, Any]:
        if self._application is None or self.application is None:
            return {}
        address, own = self._config.http_address or ANY_ADDRESS, self._application_address
        return {
            "application": self.application,
            "application_listener": self.listener,
            "counters": self.counters,
            # What is for some interfaces alone does not get to others by the server's port.
            "application_everywhere": bool(socket_path(address)) or own in (address, ANY_ADDRESS, ANY_ADDRESS_6),
            **self._application,
        }

    def server_config(self) -> TritonConfig:
        """The options of the server behind the front end."""
        return replace(
            self._config,
            http_address=f"{UNIX}{self._upstream}",
            http_thread_count=None,  # few requests come here
            http_restricted_api=None,
            metrics_address=metrics_address(self._config),
        )

    def announce_models(self) -> None:
        """Tell the front end that all models are loaded, so that checks of the server's health may say so."""
        with suppress(OSError), socket.socket(socket.AF_UNIX) as control:  # it has ended
            _post(control, self._control, "/ready")
            control.recv(1)  # else a check just after this might come first

    def drain(self) -> FrontendDrain:
        """Have the front end refuse new connections, answer the requests in progress, and close all connections."""
        return FrontendDrain(self._control)

    def remove_public_socket(self) -> None:
        """Remove what the front end leaves at its address if that is a path."""
        if path := socket_path(self._config.http_address or ""):
            with suppress(OSError):
                os.unlink(path)


class FrontendDrain:
    """The drain of a front end, which begins with this object.

    Args:
        control: Path of the front end's own socket.
    """

    def __init__(self, control: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._is_done = False
        forks.register(self)
        try:
            _post(self._socket, control, "/drain")
        except OSError:  # it has ended
            self._finish()

    def after_fork(self) -> None:
        """In a forked child, leave the connection to the parent."""
        forks.abandon(self._socket.fileno())
        self._is_done = True

    def wait(self, deadline: float = -math.inf) -> bool:
        """Wait until all requests are answered, and all answers are with the clients.

        Args:
            deadline: In :func:`time.monotonic` seconds; by default this does not wait.

        Returns:
            False at the deadline.
        """
        if not self._is_done:
            poll = select.poll()
            with suppress(ValueError):  # another thread has closed it meanwhile
                poll.register(self._socket, select.POLLIN)
                if poll.poll(max(0, math.ceil((deadline - time.monotonic()) * 1000)) if deadline > 0 else 0):
                    self._finish()  # it answers when it is done, and is not there any more if it has ended
        return self._is_done

    def _finish(self) -> None:
        self._is_done = True
        self._socket.close()


def _post(control: socket.socket, path: str, target: str) -> None:
    """Connect to a front end's own socket, and send a request without a body."""
    control.settimeout(CONTROL_TIMEOUT_S)
    control.connect(path)
    control.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n" % target.encode())
