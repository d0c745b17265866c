"""Where the server runs the instances of a model, and what limits how many work at once."""

from __future__ import annotations

from dataclasses import dataclass

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config.common import DeviceKind

__all__ = ["InstanceGroup", "RateLimiter", "RateLimiterResource"]


@dataclass
class RateLimiterResource:
    """What an instance needs while it works.

    Args:
        name: Of the resource; letter case does not count.
        count: How many units; ``TritonConfig.rate_limit_resource`` says how many there are.
        is_global: All devices share the units; otherwise each device has its own.
    """

    name: str
    count: int
    is_global: bool = False


@dataclass
class RateLimiter:
    """Bounds how many instances work at once, also of different models; needs ``TritonConfig.rate_limit``.

    Args:
        resources: What an instance needs while it works; it waits until all are free.
        priority: Weight of the instance: one of priority 2 gets half as many turns as one of priority 1. 0 is the
            server's default, 1.

    Raises:
        PyTritonBadParameterError: ``resources`` is no list of RateLimiterResource.
    """

    resources: list[RateLimiterResource] | None = None
    priority: int = 0

    def __post_init__(self) -> None:
        resources = self.resources or ()
        if not isinstance(resources, (list, tuple)) or not all(isinstance(r, RateLimiterResource) for r in resources):
            raise PyTritonBadParameterError(f"resources must be a list of RateLimiterResource, got {self.resources!r}")
        self.resources = list(resources) or None


@dataclass
class InstanceGroup:
    """Some of a model's instances. Each instance is one callable, in the order of the groups.

    Callables run in your process, wherever the server places their instances. What a kind changes is how the server
    accounts for them: per device for the rate limiter, and in its metrics.

    Args:
        count: Instances, on each of the GPUs if there are any. For ``bind``, None is as many as there are callables.
        kind: Kind of device.
        gpus: Numbers of the GPUs, for KIND_GPU.
        host_policy: Name of a policy of ``TritonConfig.host_policy``, for memory and cores of the server's threads.
        rate_limiter: What the instances need while they work.

    Raises:
        PyTritonBadParameterError: ``gpus`` is no list of numbers.
    """

    count: int | None = None
    kind: DeviceKind = DeviceKind.KIND_CPU
    gpus: list[int] | None = None
    host_policy: str = ""
    rate_limiter: RateLimiter | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.gpus, (list, tuple, type(None))):
            raise PyTritonBadParameterError(f"gpus must be a list such as [0, 1], got {self.gpus!r}")
        # A server sends empty collections back for absent ones; both must compare equal.
        self.gpus = list(self.gpus or ()) or None

    @property
    def devices(self) -> int:
        """How often ``count`` counts: once for each GPU."""
        return len(self.gpus or [0])
