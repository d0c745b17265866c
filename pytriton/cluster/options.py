"""Where workers and proxies of other machines connect, and with which keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from pytriton.exceptions import PyTritonBadParameterError, PyTritonValidationError
from pytriton.options import FLAG, SECONDS, check, integer, option, with_none
from pytriton.security import is_loopback

__all__ = ["ProxyListener", "WorkerListener", "check_address", "is_local"]

ANY_INTERFACE = "0.0.0.0", "::", "*"


@dataclass(frozen=True)
class WorkerListener:
    """Where a program listens for workers, and what it expects of them. Arguments: those of ``RemoteWorkers``.

    Raises:
        PyTritonValidationError: Workers of other machines may connect without keys.
        PyTritonBadParameterError: Another argument has a wrong value.
        ImportError: pyzmq is not installed.
    """

    listen: str
    _: KW_ONLY
    key: str | Path | None = None
    worker_keys: str | Path | None = None
    min_workers: int = option(1, integer(0))
    start_timeout_s: float = option(300.0, SECONDS)
    worker_timeout_s: float = option(30.0, SECONDS)
    idempotent: bool = option(False, FLAG)
    batches_in_flight: int | None = option(None, with_none(integer()))
    instances: int = option(1, integer())
    heartbeat_s: float = option(2.0, SECONDS)

    def __post_init__(self) -> None:
        _check_listen("RemoteWorkers need", self.listen, {"key": self.key, "worker_keys": self.worker_keys})
        check(self)


@dataclass(frozen=True)
class ProxyListener:
    """Where a program listens for the proxies of a server on another machine. Arguments: those of ``RemoteTriton``.

    Raises:
        PyTritonValidationError: Other machines may connect without keys, or ``address`` is needed.
        PyTritonBadParameterError: Another argument has a wrong value.
        ImportError: pyzmq is not installed.
    """

    listen: str
    _: KW_ONLY
    address: str | None = None
    key: str | Path | None = None
    proxy_keys: str | Path | None = None
    proxy_key: str | Path | None = None
    heartbeat_s: float = option(2.0, SECONDS)

    def __post_init__(self) -> None:
        keys = {"key": self.key, "proxy_keys": self.proxy_keys, "proxy_key": self.proxy_key}
        _check_listen("listen needs", self.listen, keys)
        check(self)
        if self.address is not None:
            check_address("address", self.address)
        if self.address is None and urlsplit(self.listen).hostname in ANY_INTERFACE:
            raise PyTritonValidationError(
                f"{self.listen} does not tell the server where this program is; give address, such as tcp://10.0.0.1:5600"
            )


def _check_listen(what_needs: str, listen: str, keys: Mapping[str, str | Path | None]) -> None:
    """Check an address to listen on, and that keys are given if other machines can reach it.

    Args:
        what_needs: What needs pyzmq, for a message.
        listen: The address.
        keys: Paths, by name of the argument.
    """
    if find_spec("zmq") is None:
        raise ImportError(f"{what_needs} pyzmq, which is not installed; run pip install 'pytriton[cluster]'")
    check_address("listen", listen)
    *first, last = keys
    names = f"{', '.join(first)} and {last}"
    given = [value is not None for value in keys.values()]
    if any(given) and not all(given):
        raise PyTritonBadParameterError(f"give {names}, or none of them")
    if not any(given) and not is_local(listen):
        raise PyTritonValidationError(
            f"other machines can reach {listen}, so that it needs {names}; make them with `pytriton keys`, or listen "
            "on tcp://127.0.0.1 or ipc://"
        )


def is_local(address: str) -> bool:
    """Whether only this machine can reach an address of ZeroMQ."""
    parts = urlsplit(address)
    return parts.scheme == "ipc" or is_loopback(parts.hostname or "")


def check_address(name: str, address: str) -> None:
    """Check an address of ZeroMQ.

    Raises:
        PyTritonBadParameterError: It is none of ours.
    """
    parts = urlsplit(address if isinstance(address, str) else "")
    try:
        valid = (parts.scheme == "tcp" and parts.hostname and parts.port is not None) or (
            parts.scheme == "ipc" and (parts.path or parts.netloc)
        )
    except ValueError:  # of the port
        valid = False
    if not valid:
        raise PyTritonBadParameterError(f"{name} is {address!r}; give tcp://HOST:PORT or ipc://PATH")
