"""``RemoteWorkers``, which ``bind`` takes instead of callables."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pytriton.exceptions import PyTritonBadParameterError, PyTritonValidationError

__all__ = ["ProxyListener", "RayWorkers", "RemoteWorkers", "check_address", "is_local"]

ANY_INTERFACE = "0.0.0.0", "::", "*"


@dataclass(frozen=True)
class RemoteWorkers:
    """Workers for a model on this and other machines: ``pytriton worker`` programs, which connect to this process.

    Any number of workers may join and leave while the model is served. Models with the same ``listen`` share the port.
    Needs pyzmq (``pip install 'pytriton[cluster]'``).

    Args:
        listen: Address to listen on: ``tcp://0.0.0.0:5555``, ``tcp://127.0.0.1:5555`` or ``ipc:///run/models.sock``.
            Without keys, only this machine may connect: ``ipc://``, or a loopback address.
        key: File with this side's secret key (``pytriton keys``).
        worker_keys: Folder with the public keys of the workers that may connect, read at the start.
        min_workers: ``bind``, ``run`` and ``serve`` wait until so many workers have joined; 0 waits for none.
        start_timeout_s: For how long they wait.
        worker_timeout_s: How long a batch waits for a worker, while there is none, before it fails with UNAVAILABLE.
        idempotent: Whether a batch may be repeated on another worker if the one that was computing it is lost. Batches
            that no callable has got yet are always sent to another one.
        batches_in_flight: How many batches each instance hands over before it waits, while the server merges further
            requests. Default: as many as the workers that have joined need. That is one for each worker of a plain
            function that takes long beside the time that a batch travels, two for each that takes less, and
            ``ModelConfig.max_batches_in_flight`` for each worker of a coroutine function or a decoupled model.
        instances: Model instances of the server, which share the workers. Sequences need several: each instance sends
            its sequences to one worker, as long as that worker is there.
        heartbeat_s: A worker that is silent for three times as long is lost. A worker whose process has ended is
            noticed sooner.

    Raises:
        PyTritonValidationError: Workers of other machines may connect without keys.
        PyTritonBadParameterError: Another argument has a wrong value.
        ImportError: pyzmq is not installed.
    """

    listen: str
    _: KW_ONLY
    key: str | Path | None = None
    worker_keys: str | Path | None = None
    min_workers: int = 1
    start_timeout_s: float = 300.0
    worker_timeout_s: float = 30.0
    idempotent: bool = False
    batches_in_flight: int | None = None
    instances: int = 1
    heartbeat_s: float = 2.0

    def __post_init__(self) -> None:
        if find_spec("zmq") is None:
            raise ImportError("RemoteWorkers need pyzmq, which is not installed; run pip install 'pytriton[cluster]'")
        check_address("listen", self.listen)
        if (self.key is None) != (self.worker_keys is None):
            raise PyTritonBadParameterError("give both key and worker_keys, or neither")
        if self.key is None and not is_local(self.listen):
            raise PyTritonValidationError(
                f"other machines can reach {self.listen}, so that it needs key and worker_keys; make them with "
                "`pytriton keys`, or listen on tcp://127.0.0.1 or ipc://"
            )
        for name, least in (("min_workers", 0), ("instances", 1), ("batches_in_flight", 1)):
            value = getattr(self, name)
            if name == "batches_in_flight" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise PyTritonBadParameterError(f"{name} is {value!r}; give a whole number from {least} on")
        for name in ("start_timeout_s", "worker_timeout_s", "heartbeat_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise PyTritonBadParameterError(f"{name} is {value!r}; give a positive number of seconds")


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
    heartbeat_s: float = 2.0

    def __post_init__(self) -> None:
        if find_spec("zmq") is None:
            raise ImportError("listen needs pyzmq, which is not installed; run pip install 'pytriton[cluster]'")
        check_address("listen", self.listen)
        if self.address is not None:
            check_address("address", self.address)
        given = [value is not None for value in (self.key, self.proxy_keys, self.proxy_key)]
        if any(given) and not all(given):
            raise PyTritonBadParameterError("give key, proxy_keys and proxy_key, or none of them")
        if self.key is None and not is_local(self.listen):
            raise PyTritonValidationError(
                f"other machines can reach {self.listen}, so that it needs key, proxy_keys and proxy_key; make them "
                "with `pytriton keys`, or listen on tcp://127.0.0.1 or ipc://"
            )
        if self.address is None and urlsplit(self.listen).hostname in ANY_INTERFACE:
            raise PyTritonValidationError(
                f"{self.listen} does not tell the server where this program is; give address, such as tcp://10.0.0.1:5600"
            )


@dataclass(frozen=True)
class RayWorkers:
    """Workers for a model as actors of Ray, which places them on its nodes and restarts them.

    The actors connect to this process, which is a driver or an actor of the same cluster, over ZeroMQ with keys made
    for this model. Needs Ray (``pip install 'pytriton[ray]'``); ``ray.init()`` is called if the program has not.

    Args:
        factory: Makes the inference callable, in each actor; sent as Ray sends functions. A parameter ``device``
            receives ``"cuda:0"`` with ``num_gpus``, as the actor sees its own GPU alone.
        count: Number of actors; ``Triton.scale`` and ``Autoscaler`` change it.
        num_cpus: Of each actor; None is Ray's default.
        num_gpus: Of each actor; may be a fraction.
        resources: Custom resources of each actor.
        scheduling_strategy: Ray's: ``"SPREAD"``, a placement group's, a node's.
        address: At which the actors reach this process; default: this node's, as Ray knows it.
        start_timeout_s: How long ``bind``, ``run`` and ``serve`` wait until all have joined.
        worker_timeout_s: As for :class:`RemoteWorkers`.
        idempotent: As for :class:`RemoteWorkers`.
        heartbeat_s: As for :class:`RemoteWorkers`.

    Raises:
        PyTritonValidationError: ``factory`` cannot be called.
        PyTritonBadParameterError: ``count`` is not a positive integer.
        ImportError: Ray or pyzmq is not installed.
    """

    factory: Callable[..., Any]
    _: KW_ONLY
    count: int = 1
    num_cpus: float | None = None
    num_gpus: float | None = None
    resources: Mapping[str, float] | None = None
    scheduling_strategy: Any = None
    address: str | None = None
    start_timeout_s: float = 300.0
    worker_timeout_s: float = 30.0
    idempotent: bool = False
    heartbeat_s: float = 2.0

    def __post_init__(self) -> None:
        if not callable(self.factory):
            raise PyTritonValidationError(f"factory is {self.factory!r}; give what returns the inference callable")
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise PyTritonBadParameterError(f"count is {self.count!r}; give a whole number from 1 on")
        if find_spec("zmq") is None or find_spec("ray") is None:
            raise ImportError("RayWorkers need Ray and pyzmq; run pip install 'pytriton[ray]'")


def is_local(address: str) -> bool:
    """Whether only this machine can reach an address of ZeroMQ."""
    parts = urlsplit(address)
    if parts.scheme == "ipc":
        return True
    try:
        return ipaddress.ip_address((parts.hostname or "").replace("localhost", "127.0.0.1")).is_loopback
    except ValueError:
        return False


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
