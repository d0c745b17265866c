"""From a configuration to the server's command line and endpoints, with the checks that come before a start.

The address of the HTTP endpoint may be ``unix:`` and the path of a socket, which has no port.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from pytriton.client.auth import TritonUrl
from pytriton.config import NO_FLAGS, TritonConfig
from pytriton.constants import DEFAULT_GRPC_PORT, DEFAULT_HTTP_PORT, DEFAULT_METRICS_PORT, TRITON_LOCAL_IP
from pytriton.exceptions import PyTritonServerError, PyTritonValidationError
from pytriton.logs import get_logger
from pytriton.security import is_loopback
from pytriton.server.installation import Installation

__all__ = [
    "application_address",
    "check_cloud_endpoints",
    "check_ports",
    "check_ports_differ",
    "command_line",
    "endpoints",
    "flag_value",
    "flags",
    "has_gpu_driver",
    "has_one_port",
    "is_for_this_machine",
    "local_host",
    "local_url",
    "metrics_address",
    "names_of_machine",
    "socket_path",
    "wait_listening",
    "warn_unchecked_clouds",
    "with_vertex_ai_settings",
]

LOGGER = get_logger(__name__)

ANY_ADDRESS = "0.0.0.0"
UNIX = "unix:"
DEFAULT_EXTRA_PORT = 8080
POLL_S = 0.005
SAGEMAKER_MODEL = "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
VERTEX_AI_ROUTES = {"AIP_PREDICT_ROUTE": "/predict", "AIP_HEALTH_ROUTE": "/health"}


def command_line(
    installation: Installation, config: TritonConfig, store: Path, overlay: Path, shared_memory_prefix: str
) -> list[str]:
    """The server's arguments: the user's configuration, and what makes the server use our repository."""
    arguments = [
        str(installation.executable),
        f"--model-repository={store}",
        "--model-control-mode=explicit",
        f"--backend-directory={overlay / 'backends'}",
        f"--backend-config=python,shm-region-prefix-name={shared_memory_prefix}",
    ]
    if config.cache_directory is None:
        arguments.append(f"--cache-directory={installation.caches}")
    if config.model_repository is None:
        # Our configurations are complete. Without this, each load starts a second stub, asks it, and takes 1.2 s more.
        arguments.append("--disable-auto-complete-config")
    if config.allow_gpu_metrics is None and not has_gpu_driver():
        # Without a GPU, looking for one only writes alarming lines to the log.
        arguments += ["--allow-gpu-metrics=false", "--pinned-memory-pool-byte-size=0"]
    return arguments + flags(config)


def flags(config: TritonConfig) -> list[str]:
    """One argument ``--field-name=value`` for each field that is set, and for each item of a list.

    The arguments go to the process as they are, without a shell, so values may hold spaces and quotes.
    """
    return [
        f"--{name.replace('_', '-')}={flag_value(item)}"
        for name, value in config.to_dict().items()
        if value is not None and name not in NO_FLAGS
        for item in (value if isinstance(value, list) else [value])
    ]


def flag_value(value: object) -> str:
    """The value as the server reads it: ``True`` or ``False``, POSIX paths, else ``str(value)``."""
    return value.as_posix() if isinstance(value, PurePath) else str(value)


def has_gpu_driver() -> bool:
    """Whether this machine has an NVIDIA driver: a data-centre or desktop one, WSL's, or Tegra's."""
    return any(Path("/dev", name).exists() for name in ("nvidiactl", "dxg", "nvmap"))


def endpoints(config: TritonConfig) -> dict[str, tuple[str, int]]:
    """Address and port of each endpoint that the server will open, by the name of its port's field."""
    http = (config.http_address or ANY_ADDRESS, config.http_port or DEFAULT_HTTP_PORT)
    result = {}
    if config.allow_http is not False:
        result["http_port"] = http
    if config.allow_grpc is not False:
        result["grpc_port"] = (config.grpc_address or ANY_ADDRESS, config.grpc_port or DEFAULT_GRPC_PORT)
    if config.allow_metrics is not False:
        result["metrics_port"] = (metrics_address(config), config.metrics_port or DEFAULT_METRICS_PORT)
    if config.allow_sagemaker:
        result["sagemaker_port"] = (ANY_ADDRESS, config.sagemaker_port or DEFAULT_EXTRA_PORT)
    if config.allow_vertex_ai:
        result["vertex_ai_port"] = (ANY_ADDRESS, config.vertex_ai_port or DEFAULT_EXTRA_PORT)
    return result


def has_one_port(config: TritonConfig) -> bool:
    """Whether HTTP and gRPC are to come to one port, or to one Unix socket."""
    where = endpoints(config)
    if "http_port" not in where or "grpc_port" not in where:
        return False
    (http_address, http_port), (grpc_address, grpc_port) = where["http_port"], where["grpc_port"]
    return http_address == grpc_address and (bool(socket_path(http_address)) or http_port == grpc_port)


def metrics_address(config: TritonConfig) -> str:
    """The address on which the server's metrics endpoint listens: for this machine alone if HTTP has a Unix socket."""
    address = config.metrics_address or config.http_address or ANY_ADDRESS
    return TRITON_LOCAL_IP if address.startswith(UNIX) else address


def socket_path(address: str) -> str:
    """The path in the address of an HTTP endpoint that is a Unix socket; empty for one that has a port."""
    return address.removeprefix(UNIX) if address.startswith(UNIX) else ""


def local_url(config: TritonConfig) -> str:
    """The URL at which this machine reaches the server: HTTP's if it is on, else gRPC's.

    It is one of ``https`` if HTTP is encrypted, which clients take without the ``s``.
    """
    open_endpoints = endpoints(config)
    scheme = "http" if "http_port" in open_endpoints else "grpc"
    address, port = open_endpoints[f"{scheme}_port"]
    if path := socket_path(address):
        return TritonUrl.of_socket(path).with_scheme
    secured = "s" if scheme == "http" and (config.http_use_ssl or config.http_use_ssl_mutual) else ""
    return f"{scheme}{secured}://{local_host(address)}:{port}"


def local_host(address: str) -> str:
    """The host to put into a URL on this machine for an endpoint that listens on ``address``."""
    return TRITON_LOCAL_IP if not address.strip("0.") else f"[{address}]" if ":" in address else address


def application_address(config: TritonConfig) -> str:
    """The address of an app that was given none: HTTP's, and this machine's own if that is a Unix socket."""
    address = config.http_address or ANY_ADDRESS
    return TRITON_LOCAL_IP if socket_path(address) else address


def is_for_this_machine(address: str) -> bool:
    """Whether an endpoint is for this machine alone: its address is that of a Unix socket, or a loopback address."""
    return address.startswith(UNIX) or is_loopback(address)


def names_of_machine() -> list[str]:
    """The name of this machine, and its first part; the resolver is not asked, which may take seconds."""
    name = socket.gethostname()
    return [name, name.partition(".")[0]]


def check_ports(config: TritonConfig) -> None:
    """Check that every endpoint can listen, so that another server on a port is not taken for ours.

    Raises:
        PyTritonServerError: A port is in use, or two endpoints have the same, which are not HTTP and gRPC at one
            address.
    """
    taken: dict[int, str] = {}
    where = endpoints(config)
    if has_one_port(config):
        del where["grpc_port"]
    for name, (address, port) in where.items():
        if path := socket_path(address):
            check_path(path)
            continue
        if port in taken:
            own = "give each its own port" + (", or both one address" if name == "grpc_port" else "")
            raise PyTritonServerError(f"{name} and {taken[port]} are both {port}; {own}")
        taken[port] = name
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with closing(socket.socket(family)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                endpoint = name.removesuffix("_port")
                raise PyTritonServerError(
                    f"the {endpoint} endpoint cannot listen on {address}:{port}: {error.strerror}. Choose another "
                    f"{name} in TritonConfig, or turn the endpoint off with allow_{endpoint}=False"
                ) from error


def check_path(path: str) -> None:
    """Check that the HTTP endpoint can listen at a path.

    Raises:
        PyTritonServerError: Another program listens there, something else than a socket is there, or no folder is.
    """
    what = f"the http endpoint cannot listen on {UNIX}{path}"
    with closing(socket.socket(socket.AF_UNIX)) as probe:
        try:
            probe.connect(path)
        except FileNotFoundError:
            if not Path(path).parent.is_dir():
                raise PyTritonServerError(f"{what}: there is no folder {Path(path).parent}; make it first") from None
        except ConnectionRefusedError as error:
            if not Path(path).is_socket():
                raise PyTritonServerError(f"{what}: there is a file; remove it, or choose another path") from error
        except OSError as error:
            raise PyTritonServerError(f"{what}: {error.strerror or error}; choose another http_address") from error
        else:
            raise PyTritonServerError(f"{what}: another program does; choose another http_address in TritonConfig")


def check_ports_differ(config: TritonConfig, name: str, port: int) -> None:
    """Check that a port beside the server is none of the server's.

    Args:
        name: Of the option that chooses the port, for the error.

    Raises:
        PyTritonServerError: The server is to listen on it.
    """
    for other, (address, taken) in endpoints(config).items():
        if port == taken and not socket_path(address):
            raise PyTritonServerError(f"{name} and {other} are both {port}; give each its own port")


def wait_listening(ports: Collection[int], keep_waiting: Callable[[], bool]) -> bool:
    """Wait until all these ports of this machine accept connections; False once ``keep_waiting()`` is false."""
    for port in ports:
        while not _accepts(port):
            if not keep_waiting():
                return False
            time.sleep(POLL_S)
    return True


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((TRITON_LOCAL_IP, port)) == 0


# Endpoints of Vertex AI and SageMaker


def with_vertex_ai_settings(config: TritonConfig, environment: Mapping[str, str] = os.environ) -> TritonConfig:
    """A copy that says what the server would otherwise conclude from the environment of Vertex AI.

    With ``AIP_MODE=PREDICTION`` the server opens Vertex AI's endpoint, and neither HTTP's nor gRPC's. We load models
    through one of these, so this opens it to this machine alone.

    Raises:
        PyTritonValidationError: ``AIP_HTTP_PORT`` is not a number.
    """
    chosen: dict[str, Any] = {}
    if environment.get("AIP_MODE") == "PREDICTION":
        chosen["allow_vertex_ai"] = True
        if config.allow_http is None:
            chosen |= {"allow_http": True, "http_address": TRITON_LOCAL_IP}
        if config.allow_grpc is None:
            chosen |= {"allow_grpc": config.allow_http is False, "grpc_address": TRITON_LOCAL_IP}
    if (port := environment.get("AIP_HTTP_PORT")) is not None:
        try:
            chosen["vertex_ai_port"] = int(port)
        except ValueError as error:
            raise PyTritonValidationError(
                f"AIP_HTTP_PORT in the environment is {port!r}; give a port's number"
            ) from error
    return replace(config, **{name: value for name, value in chosen.items() if getattr(config, name) is None})


def check_cloud_endpoints(
    config: TritonConfig, models: Collection[str], environment: Mapping[str, str] = os.environ
) -> None:
    """Check what the endpoints of SageMaker and Vertex AI need: the server would crash, or fail each request.

    Args:
        models: Names of the models that the server loads while it starts.

    Raises:
        PyTritonValidationError: Vertex AI's endpoint is to be opened, and lacks a route or its default model.
    """
    if config.allow_sagemaker and SAGEMAKER_MODEL not in environment:
        LOGGER.warning("SageMaker's /invocations need the name of their model in the environment: %s", SAGEMAKER_MODEL)
    if not config.allow_vertex_ai:
        return
    missing = [f"{name}={example}" for name, example in VERTEX_AI_ROUTES.items() if not environment.get(name)]
    if missing:
        raise PyTritonValidationError(
            f"allow_vertex_ai needs the paths of its endpoint in the environment, such as {' '.join(missing)}; "
            "Vertex AI sets them in its containers"
        )
    default, names = config.vertex_ai_default_model, ", ".join(sorted(models)) or "none"
    if default is not None and default not in models:
        raise PyTritonValidationError(
            f"vertex_ai_default_model is {default!r}, which the server does not load at its start; it loads: {names}. "
            "Bind that model before run() or serve(), with VertextAILifecyclePolicy"
        )
    if default is None and len(models) != 1:
        raise PyTritonValidationError(
            f"the server loads {len(models)} models at its start ({names}), so Vertex AI's endpoint needs "
            "TritonConfig.vertex_ai_default_model; bind that model before run() or serve(), with "
            "VertextAILifecyclePolicy"
        )


def warn_unchecked_clouds(config: TritonConfig, protected: Collection[str]) -> None:
    """Warn of ports of clouds that Triton's own endpoint serves: it checks no token there.

    Args:
        config: Of a server without the edge.
        protected: Groups of endpoints that ask for a header at the HTTP port.
    """
    names = {"Vertex AI": config.allow_vertex_ai, "SageMaker": config.allow_sagemaker}
    if not protected:
        return
    for name in (name for name, is_open in names.items() if is_open):
        LOGGER.warning(
            "%s's port leads to %s without the access token, as Triton's own HTTP endpoint serves it: use the native "
            "edge, or let nobody but %s reach that port",
            name,
            ", ".join(sorted(protected)),
            name,
        )
