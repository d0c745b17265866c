"""The edge of a server that this process launches: whether it is used, its options, its drain.

It is a library in the server's process (``pytriton/native/edge``), which takes the public HTTP endpoint. The server's
own HTTP endpoint then listens on a Unix socket in the workspace, for the edge and for this process alone::

    http/              open to this user alone
      edge.json        options of the edge, with the values of the headers that restricted endpoints ask for
      triton.sock      the server's own HTTP endpoint
      metrics.sock     the server's own endpoint of metrics
      rest.sock        the app, if there is one
      counters         requests that are answered for the app, for its metrics
      requests         those that came last, for the log after a crash
      control.sock     the edge itself: that the models are there, its drain, and inference without tokens for the
                       app
"""

from __future__ import annotations

import json
import math
import os
import select
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytriton import forks
from pytriton.client.auth import TritonUrl
from pytriton.config import NATIVE_HTTP_OPTIONS, TritonConfig
from pytriton.constants import DEFAULT_HTTP_PORT, GRPC_PREFIX, HISTOGRAM_BOUNDS_S, LATENCY_BOUNDS_S
from pytriton.exceptions import PyTritonValidationError
from pytriton.logs import get_logger
from pytriton.security import TRITON_ACCESS_HEADER, is_loopback
from pytriton.server.access import Restrictions
from pytriton.server.backends import LIBRARY, build_mismatch
from pytriton.server.crashes import RECENT_BYTES, Crashes, described, read_requests
from pytriton.server.endpoints import application_is_everywhere
from pytriton.server.installation import EDGE, PRELOADED
from pytriton.server.launch import (
    ANY_ADDRESS,
    SAGEMAKER_MODEL,
    UNIX,
    endpoints,
    has_one_port,
    names_of_machine,
    socket_path,
)
from pytriton.server.tls import uses_tls
from pytriton.server.watchdog import ask_http

__all__ = ["Edge", "EdgeDrain", "serves_grpc", "uses_edge"]

LOGGER = get_logger("pytriton.triton")

FILE_VARIABLE = "PYTRITON_HTTP"  # names the file of options to the library
MOST_SOCKET_BYTES = 107
CONTROL_TIMEOUT_S = 5.0
MOST_HEAD_TIMEOUT_S = 30
# Options that the edge's file has under the same name, without "http_".
SAME_NAMES = (
    "max_head_bytes",
    "max_body_bytes",
    "max_json_bytes",
    "max_buffered_bytes",
    "max_buffered_bytes_per_address",
    "max_connections",
    "max_connections_per_address",
    "max_requests",
    "least_bytes_per_second",
    "access_log",
    "metrics",
    "header_forward_pattern",
)

# Options of gRPC that the edge's file has under the same name.
GRPC_SAME_NAMES = (
    "grpc_header_forward_pattern",
    "grpc_infer_response_compression_level",
    "grpc_keepalive_time",
    "grpc_keepalive_timeout",
    "grpc_keepalive_permit_without_calls",
    "grpc_http2_min_recv_ping_interval_without_data",
    "grpc_http2_max_ping_strikes",
)


def uses_edge(config: TritonConfig, library: Path = LIBRARY) -> bool:
    """Whether the edge serves a server's HTTP.

    Args:
        library: The native proxy, beside which the edge lies.

    Raises:
        PyTritonValidationError: It was asked for, or an option that it alone has, and it cannot be used.
    """
    if config.allow_http is False:
        return False
    chosen = config.http_frontend or "native"
    reason = _unusable(library) if chosen == "native" else "the server's own HTTP endpoint was chosen"
    if not reason:
        return True
    if config.http_frontend == "native":
        raise PyTritonValidationError(f"http_frontend='native' cannot be used: {reason}")
    given = [name for name in NATIVE_HTTP_OPTIONS if getattr(config, name) is not None]
    if socket_path(config.http_address or ""):
        given.append("a Unix socket as http_address")
    if given:
        raise PyTritonValidationError(
            f"only the edge has {', '.join(given)}: set http_frontend='native'"
            + (f", which cannot be used, because {reason}" if chosen == "native" else "")
        )
    return False


def _unusable(library: Path) -> str:
    for name in (EDGE, PRELOADED):
        if not library.with_name(name).is_file():
            return (
                f"{library.with_name(name)} is missing: there was no C++ compiler, CMake or Ninja when this package "
                "was built, or it was built without the edge"
            )
    return build_mismatch(library)


def serves_grpc(config: TritonConfig, library: Path = LIBRARY) -> bool:
    """Whether the edge serves a server's gRPC, too.

    Args:
        library: As for :func:`uses_edge`.

    Raises:
        PyTritonValidationError: It was asked for, or a Unix socket, or the port of HTTP, and the edge is not used, or
            lacks one of the options.
    """
    if config.allow_grpc is False:
        return False
    if config.grpc_frontend == "triton":
        reason = "the server's own gRPC endpoint was chosen"
    else:
        reason = _lacks_for_grpc(config, library)
    if reason and config.grpc_frontend == "edge":
        raise PyTritonValidationError(f"grpc_frontend='edge' cannot be used: {reason}")
    if reason and socket_path(config.grpc_address or ""):
        raise PyTritonValidationError(f"grpc_address cannot be a Unix socket: {reason}")
    if reason and has_one_port(config):
        raise PyTritonValidationError(
            f"only the edge serves HTTP and gRPC at one port, and it does not: {reason}. Choose another grpc_port"
        )
    return not reason


def _lacks_for_grpc(config: TritonConfig, library: Path) -> str:
    if not uses_edge(config, library):
        return "the edge serves gRPC beside HTTP, which needs allow_http and http_frontend='native'"
    if config.trace_config:
        return "it makes no traces, for which trace_config asks"
    return ""


def _nanoseconds(bounds_s: Sequence[float]) -> list[int]:
    return [round(bound_s * 1e9) for bound_s in bounds_s]


class Edge:
    """Where the edge and what is behind it listen, for as long as the workspace is there.

    Args:
        application: Options of the app behind it; None without one.
        application_address: Where the app's port listens.
        application_tokens: What opens the app beside keys; None if it asks for nothing.

    Attributes:
        url: Of the server's own HTTP endpoint.
        private_url: Of the edge, which asks for no token there.
        application: Path of the app's socket; None without one.
        metrics: Path of the socket of the server's own endpoint of metrics.
        counters: Path of the file for the app's metrics.
        listener: Descriptor of the socket of the app's port, once it listens; negative without one. This
            process keeps it, so that clients wait while the server is launched again.
        serves_grpc: Whether gRPC comes to the edge, too.
        waits_for_models: Whether the next server is not ready before :meth:`announce_models`.
        crashes: Of the servers so far.
    """

    def __init__(
        self,
        config: TritonConfig,
        restrictions: Restrictions,
        workspace: Path,
        application: Mapping[str, Any] | None = None,
        application_address: str = ANY_ADDRESS,
        application_tokens: Sequence[str] | None = None,
    ) -> None:
        self._folder = workspace / "http"
        self._folder.mkdir(mode=0o700)
        self._descriptor = -1
        sockets = str(self._folder)
        if len(os.fsencode(self._folder / "control.sock")) > MOST_SOCKET_BYTES:
            self._descriptor = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            sockets = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        self._upstream, self._control = f"{sockets}/triton.sock", f"{sockets}/control.sock"
        self.serves_grpc = serves_grpc(config)
        self.metrics = f"{sockets}/metrics.sock"
        self.url = TritonUrl.of_socket(self._upstream).with_scheme
        self.private_url = TritonUrl.of_socket(self._control).with_scheme
        self.application = f"{sockets}/rest.sock" if application else None
        self._application_address, self._application_tokens = application_address, application_tokens
        self.listener = -1
        self.waits_for_models = False
        self.crashes = Crashes()
        self._recent = -1  # the file of the requests that came last
        self.counters = str(self._folder / "counters")
        self._recent_path = self._folder / "requests"
        self._config, self._restrictions = config, restrictions
        self._application = application
        forks.register(self)

    def __del__(self) -> None:
        for descriptor in (self._descriptor, self._recent):
            if descriptor >= 0:
                with suppress(OSError):
                    os.close(descriptor)

    def after_fork(self) -> None:
        """In a forked child, leave the folder to the parent."""
        forks.abandon(self._descriptor, self._recent)

    def prepare(self, models: Sequence[str] = ()) -> dict[str, str]:
        """Write the file of options, before each start of the server.

        Args:
            models: Names of the models that the server loads while it starts.

        Returns:
            What the server's environment has to have.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)  # a cleaner may have removed it
        if self._descriptor >= 0 and not os.path.samestat(os.fstat(self._descriptor), self._folder.stat()):
            folder = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            os.dup2(folder, self._descriptor, inheritable=False)
            os.close(folder)
        path = self._folder / "edge.json"
        # Of a server that was killed
        for name in (path, self._recent_path, self._upstream, self._control, self.metrics):
            with suppress(FileNotFoundError):
                os.unlink(name)
        recent = os.open(self._recent_path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.truncate(recent, RECENT_BYTES)
        before, self._recent = self._recent, recent
        if before >= 0:
            os.close(before)
        with open(path, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            json.dump(self.options() | self._port_options(models) | self._grpc_options(), file)
        return {FILE_VARIABLE: str(path)}

    def options(self) -> dict[str, Any]:
        """What the file has (``pytriton/native/edge/config.h``)."""
        config, application = self._config, self._application_options()
        address = config.http_address or ANY_ADDRESS
        hosts = application["hosts"] if application else config.http_hosts or ()
        is_local = is_loopback(address) or (bool(application) and is_loopback(self._application_address))
        options: dict[str, Any] = {
            "address": address,
            "port": config.http_port or DEFAULT_HTTP_PORT,
            "threads": config.http_thread_count or 1,
            "upstream": self._upstream,
            "control": self._control,
            "waits_for_models": self.waits_for_models,
            "checks_hosts": is_local or bool(hosts),
            **application,
            "hosts": [*names_of_machine(), *hosts],
            "recent_requests": str(self._recent_path),
            "traffic": str(self._folder.parent / "sockets"),
            "refused_ns": {peer: int(until * 1e9) for peer, until in self.crashes.refused().items()},
            "restarts": self.crashes.count,
            "histogram_ns": _nanoseconds(HISTOGRAM_BOUNDS_S),
            "latency_ns": _nanoseconds(LATENCY_BOUNDS_S),
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
        if (timeout_s := config.http_timeout_s) is not None:
            options["head_timeout_s"] = min(timeout_s, MOST_HEAD_TIMEOUT_S)
            options["body_timeout_s"] = options["idle_timeout_s"] = timeout_s
        given = {name: getattr(config, f"http_{name}") for name in SAME_NAMES}
        return options | {name: value for name, value in given.items() if value is not None}

    def _port_options(self, models: Sequence[str]) -> dict[str, Any]:
        """Further ports: of the metrics, of Vertex AI and of SageMaker."""
        where, options = endpoints(self._config), dict[str, Any]()
        if "metrics_port" in where:
            options["metrics_address"], options["metrics_port"] = where["metrics_port"]
        if "vertex_ai_port" in where:
            options["vertex_ai_port"] = where["vertex_ai_port"][1]
            options["vertex_ai_predict_route"] = os.environ["AIP_PREDICT_ROUTE"]
            options["vertex_ai_health_route"] = os.environ["AIP_HEALTH_ROUTE"]
            options["vertex_ai_model"] = self._config.vertex_ai_default_model or models[0]
        if "sagemaker_port" in where:
            options["sagemaker_port"] = where["sagemaker_port"][1]
            options["sagemaker_model"] = os.environ.get(SAGEMAKER_MODEL, "")
        return options

    def _grpc_options(self) -> dict[str, Any]:
        if not self.serves_grpc:
            return {}
        config = self._config
        address, port = endpoints(config)["grpc_port"]
        options: dict[str, Any] = {
            "grpc_address": address,
            "grpc_port": port,
            "grpc_access": [
                {
                    "endpoints": list(rule.endpoints),
                    "header": f"{GRPC_PREFIX}{rule.header.lower()}",
                    "value": rule.value,
                }
                for rule in self._restrictions.rules("grpc")
            ],
        }
        if uses_tls(config):
            options["grpc_tls_certificate"] = str(config.grpc_server_cert)
            options["grpc_tls_key"] = str(config.grpc_server_key)
            if config.grpc_use_ssl_mutual:
                options["grpc_tls_authorities"] = str(config.grpc_root_cert)
        given = {name: getattr(config, name) for name in GRPC_SAME_NAMES}
        return options | {name: value for name, value in given.items() if value is not None}

    def _application_options(self) -> dict[str, Any]:
        if self._application is None or self.application is None:
            return {}
        address = self._config.http_address or ANY_ADDRESS
        return {
            "application": self.application,
            "application_listener": self.listener,
            "counters": self.counters,
            # What is for some interfaces alone does not get to others by the server's port.
            "application_everywhere": application_is_everywhere(address, self._application_address),
            **self._application,
            "application_tls": uses_tls(self._config, "http"),
            "predict_access": self._predict_access(),
        }

    def _predict_access(self) -> list[dict[str, Any]]:
        """The headers of which ``/predict`` needs one; other requests are for the app, which knows the keys."""
        rules = self._restrictions.rules("http")
        rule = self._restrictions.rule_of("inference", "http")
        if rule is None and self._application_tokens is None:
            return []
        own = [each.value for each in rules if each.header.lower() == TRITON_ACCESS_HEADER]
        accepted = [(TRITON_ACCESS_HEADER, value) for value in dict.fromkeys((*own, *(self._application_tokens or ())))]
        if rule is not None:
            accepted.append((rule.header, rule.value))
        # An empty value opens nothing.
        headers = accepted or [(TRITON_ACCESS_HEADER, "")]
        return [{"endpoints": ["inference"], "header": header, "value": value} for header, value in headers]

    def server_config(self) -> TritonConfig:
        """The options of the server behind the edge."""
        config = self._config
        if self.serves_grpc:
            given: dict[str, Any] = {name: None for name in vars(config) if name.startswith("grpc_")}
            config = replace(config, **given, allow_grpc=False)  # it has no gRPC endpoint of its own
        return replace(
            config,
            http_address=f"{UNIX}{self._upstream}",
            http_thread_count=None,  # few requests come here
            http_restricted_api=None,
            metrics_address=f"{UNIX}{self.metrics}",
            allow_vertex_ai=False,
            allow_sagemaker=False,
        )

    def announce_models(self, are_served: bool = True) -> None:
        """Tell the edge that all models are loaded, so that checks of the server's health may say so; or not."""
        with suppress(OSError), socket.socket(socket.AF_UNIX) as control:  # it has ended
            _post(control, self._control, "/ready" if are_served else "/unready")
            control.recv(1)  # else a check just after this might come first

    def is_responding(self, timeout_s: float) -> bool | None:
        """As :func:`pytriton.server.watchdog.ask_http`, of the edge itself."""
        return ask_http(self._control, {}, timeout_s)

    def record_crash(self) -> str:
        """After a server's death, count it, log which addresses are refused for it, and describe its last requests."""
        requests = read_requests(self._recent) if self._recent >= 0 else []
        for peer, period_s in self.crashes.record(requests):
            what = "requests from %s were in flight at several crashes of the server; it is refused for %g s"
            LOGGER.warning(what, peer, period_s)
        return described(requests)

    def drain(self) -> EdgeDrain:
        """Have the edge refuse new connections, answer the requests in progress, and close all connections."""
        return EdgeDrain(self._control)

    def remove_public_socket(self) -> None:
        """Remove what the edge leaves at its addresses if they are paths."""
        names = ("http_port", "grpc_port") if self.serves_grpc else ("http_port",)
        for path in {socket_path(endpoints(self._config)[name][0]) for name in names} - {""}:
            with suppress(OSError):
                os.unlink(path)


class EdgeDrain:
    """The drain of an edge, which begins with this object.

    Args:
        control: Path of the edge's own socket.
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
    """Connect to an edge's own socket, and send a request without a body."""
    control.settimeout(CONTROL_TIMEOUT_S)
    control.connect(path)
    control.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n" % target.encode())
