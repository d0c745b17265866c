"""From a configuration to a server's command line, after what can be checked beforehand."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

from pytriton.config import TritonConfig
from pytriton.constants import DEFAULT_GRPC_PORT, DEFAULT_HTTP_PORT, DEFAULT_METRICS_PORT, TRITON_LOCAL_IP
from pytriton.exceptions import PyTritonServerError
from pytriton.server.flags import flags
from pytriton.server.installation import Installation

ANY_ADDRESS = "0.0.0.0"
DEFAULT_EXTRA_PORT = 8080


def command_line(
    installation: Installation, config: TritonConfig, store: Path, overlay: Path, shared_memory_prefix: str
) -> list[str]:
    """The server's arguments: the user's configuration, and what makes it serve our repository."""
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
        # Only alarming log lines come of looking for GPUs where there are none.
        arguments += ["--allow-gpu-metrics=false", "--pinned-memory-pool-byte-size=0"]
    return arguments + flags(config)


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


def metrics_address(config: TritonConfig) -> str:
    """Where the server listens for those who want its metrics."""
    return config.metrics_address or config.http_address or ANY_ADDRESS


def local_url(config: TritonConfig) -> str:
    """The URL at which this machine reaches the server: HTTP's if it is on, else gRPC's."""
    open_endpoints = endpoints(config)
    scheme = "http" if "http_port" in open_endpoints else "grpc"
    address, port = open_endpoints[f"{scheme}_port"]
    return f"{scheme}://{local_host(address)}:{port}"


def local_host(address: str) -> str:
    """How a URL on this machine names an address that somebody listens on."""
    return TRITON_LOCAL_IP if not address.strip("0.") else f"[{address}]" if ":" in address else address


def check_ports(config: TritonConfig) -> None:
    """Fail while it is cheap, and before another server on the port could be taken for ours.

    Raises:
        PyTritonServerError: A port is in use, or two endpoints have the same.
    """
    taken: dict[int, str] = {}
    for name, (address, port) in endpoints(config).items():
        if port in taken:
            raise PyTritonServerError(f"{name} and {taken[port]} are both {port}; give each its own port")
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
